"""Does a job on the machine with the GPU: join the inputs, run the script side by side, put the results into few files."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import pieces
from benchmarks.gpu.items import FOLDER, MIB, Limits

PACKAGES = ("torch", "transformers", "peft", "accelerate")


def run(job_path: Path, out: Path, root: Path, work: Path, limits: Limits) -> int:
    """Do a job and leave run.json and the runs' files, one archive in pieces, in `out`; returns 1 where something failed."""
    began = time.monotonic()
    job = json.loads(job_path.read_text("utf-8"))
    gpu = job["device"] != "cpu"
    report = {key: job[key] for key in ("name", "commit", "changed")}
    report["device"] = torch.cuda.get_device_name(0) if gpu else f"{os.cpu_count()} CPU cores, {platform.machine()}"
    report["versions"] = {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in PACKAGES}
    paths = {
        name: pieces.join(manifest, root / FOLDER / "pieces" / name, work / f"{name}-{manifest['stamp']}")
        for name, manifest in job["inputs"].items()
    }
    made = work / f"{job['name']}-out"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    report["codes"] = _side_by_side(job, paths, made, root, began + job["seconds"] - 30)
    report["seconds"] = round(time.monotonic() - began)
    room, chosen, left_out = (limits.back_mib - 1) * MIB, {}, []
    for name in [*job["promised"], *sorted(path.name for path in made.glob("*.console.txt"))]:
        size = (made / name).stat().st_size + 2048 if (made / name).is_file() else 0  # with its head and padding
        if 0 < size <= room:
            room -= size
            chosen[name] = made / name
        else:
            left_out.append(f"{name} ({f'{size:,} bytes do not fit' if size else 'not made'})")
    report["left_out"] = left_out
    report["pieces"] = pieces.split(chosen, out, "results", limits.back_file_mib * MIB)
    (out / "run.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    limits.check_back(out)
    print(f"left out: {left_out}" if left_out else "every promised file comes back")
    return int(bool(left_out) or any(report["codes"].values()))


def _side_by_side(job: dict[str, Any], paths: dict[str, Path], made: Path, root: Path, end: float) -> dict[str, Any]:
    """Start each run as a process and wait; returns exit codes, "stopped" for one that was still running at `end`."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*job.get("stubs", []), str(root)]),
        "HF_HUB_OFFLINE": "1",
    }
    running = {}
    for name, text in job["runs"].items():
        command = [sys.executable, job["script"], *(part.format(**paths) for part in shlex.split(text))]
        command += ["--out", str(made), "--run", name, "--minutes", str(job["minutes"]), "--device", job["device"]]
        resume = paths.get(f"{job['name']}-resume")
        if resume and (resume / f"{name}.state.json").is_file():
            command += ["--resume", str(resume)]
            for log in resume.glob(f"{name}.log.jsonl"):  # the script goes on writing it
                shutil.copyfile(log, made / log.name)
        with (made / f"{name}.console.txt").open("w") as console:
            command += job["arguments"]
            running[name] = subprocess.Popen(command, cwd=root, env=environment, stdout=console, stderr=console)
    codes: dict[str, Any] = {}
    for name, process in running.items():
        try:
            codes[name] = process.wait(timeout=max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            codes[name] = f"stopped ({process.wait()})"
        print(f"{name}: {codes[name]}", *(made / f"{name}.console.txt").read_text().splitlines()[-5:], sep="\n  ")
    return codes
