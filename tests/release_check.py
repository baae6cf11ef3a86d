"""Whether a release installs and works: `make release-check`. Outside the suite: it makes environments and asks the package index.

Builds the sdist, and the wheel from the sdist; then on each Python of `PYTHONS` that this machine has, in a fresh environment,

    base     pip install WHEEL: no torch, at most 30 s; reads, checks, annotates, reports, and judges through `rrm serve` and a chat server
    local    pip install WHEEL[local]: judges with the weights of the lab judge (where a build of torch is at hand, see --any-torch)

prints what it did and took, and ends with one line of JSON; exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "agents")]

import doc_server  # noqa: E402

PYTHONS = ("3.11", "3.12", "3.13")
BASE_S = 30.0
EXTRAS = ("local",)


class Failed(Exception):
    """A command failed; with its last words."""


def run(*words: str | Path, cwd: Path, env: dict[str, str], codes: Sequence[int] = (0,)) -> str:
    """A command's standard output.

    Raises:
        Failed: its exit code is none of `codes`.
    """
    done = subprocess.run([str(w) for w in words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        said = (done.stderr or done.stdout).strip()[-1500:]
        raise Failed(f"{' '.join(str(w) for w in words[1:4])} …: exit code {done.returncode}: {said}")
    return done.stdout


def interpreter(version: str) -> str | None:
    """A Python of that version: on the PATH, of pyenv, or of uv."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [str(p) for p in sorted(home.glob(f"versions/{version}.*/bin/python"))]
    if (here := shutil.which(f"python{version}")) is not None:
        found.append(here)
    if (uv := shutil.which("uv")) is not None:
        asked = subprocess.run(
            [uv, "python", "find", "--no-python-downloads", version], capture_output=True, text=True, check=False
        )
        found += asked.stdout.split()
    program = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    for path in found:
        done = subprocess.run([path, "-c", program], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return path
    return None


def build(folder: Path) -> Path:
    """The sdist, and the wheel that is built from it."""
    env = {**os.environ, "PYTHONPATH": ""}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder, env=env)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    print(
        f"built {sdist.name} ({sdist.stat().st_size / 1e6:.1f} MB) and {wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)",
        flush=True,
    )
    return wheel


def environment(python: str, folder: Path) -> dict[str, str]:
    """A fresh virtual environment's variables: its programs first, nothing of the checkout."""
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return {**kept, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


def install(folder: Path, env: dict[str, str], what: str) -> tuple[float, float]:
    """Seconds of pip install: on the clock, and of the processor, which do not count what runs beside it."""
    begun, used = time.monotonic(), processor_s()
    run(folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", what, cwd=folder, env=env)
    return round(time.monotonic() - begun, 1), round(processor_s() - used, 1)


def processor_s() -> float:
    """Processor seconds of the processes that this one has waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def smoke_base(folder: Path, env: dict[str, str], chat: str, service: str) -> None:
    """What somebody without torch does."""
    rrm, work = folder / "bin" / "rrm", folder / "work"
    shutil.copytree(ROOT / "examples" / "transcripts", work / "logs")

    def do(*words: str, codes: Sequence[int] = (0,)) -> str:
        return run(rrm, *words, cwd=work, env=env, codes=codes)

    do("--help")
    found = json.loads(do("doctor", "--json", "--server", chat.removesuffix("/v1"), "--server", service, codes=(0, 1)))
    if "torch" in found["versions"] or found["default_judge"]["runs"]:
        raise Failed("the base install has torch")
    if not found["servers"][1]["reachable"]:
        raise Failed(f"doctor: {found['servers'][1]}")
    do("convert", "logs", "-o", "rows.jsonl")
    do("check", "rows.jsonl")
    do("annotate", "rows.jsonl", "--annotator", "rules", "-o", "labels.jsonl")
    for name, model in (("chat", f"openai:{chat}/v1#model"), ("service", service)):
        do("score", "rows.jsonl", "--model", model, "--mode", "score", "-o", f"{name}.jsonl", "--html", f"{name}.html")
        rows = [json.loads(line) for line in (work / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        if not rows or any(row["status"] != "scored" for row in rows):
            raise Failed(f"score through {name}: {[row['status'] for row in rows]}")
    do("eval", "rows.jsonl", "--feedback", "chat.jsonl", "-o", "metrics.json", "--resamples", "100")
    do("report", "chat.jsonl", "rows.jsonl", "-o", "report.html")
    do(
        "score", "rows.jsonl", "--model", "lab", "-o", "none.jsonl", codes=(2,)
    )  # names the extra: tests/rrm/test_dependencies.py
    run(folder / "bin" / "reagent", "--help", cwd=work, env=env)
    run(folder / "bin" / "reagent", "lab", "transcripts", "-o", "lab.jsonl", "--n", "8", cwd=work, env=env)
    run(folder / "bin" / "python", "-c", "import rrm, reagent.env; rrm.Trajectory", cwd=work, env=env)


def smoke_local(folder: Path, env: dict[str, str]) -> None:
    """Judging with weights."""
    work = folder / "work"
    run(
        folder / "bin" / "rrm",
        "score",
        "lab.jsonl",
        "--model",
        "lab",
        "--mode",
        "score",
        "-o",
        "local.jsonl",
        cwd=work,
        env=env,
    )
    rows = [json.loads(line) for line in (work / "local.jsonl").read_text(encoding="utf-8").splitlines()]
    if len(rows) != 8 or any(row["status"] != "scored" for row in rows):
        raise Failed(f"score with weights: {[row['status'] for row in rows]}")


def torch_at_hand(folder: Path, env: dict[str, str]) -> bool:
    """Whether PIP_FIND_LINKS has a build of torch for this Python: that of the index is of gigabytes."""
    links = env.get("PIP_FIND_LINKS", "").split()
    if not links:
        return False
    words = [
        str(folder / "bin" / "pip"),
        "download",
        "-q",
        "--no-deps",
        "--no-index",
        "-d",
        str(folder / "torch"),
        "torch",
    ]
    return subprocess.run(words, env=env, capture_output=True, check=False).returncode == 0


def check(version: str, wheel: Path, folder: Path, chat: str, service: str, any_torch: bool) -> dict[str, Any]:
    """All of one Python; `failed` says what failed."""
    python = interpreter(version)
    if python is None:
        print(f"Python {version}: not on this machine, skipped", flush=True)
        return {"skipped": "not on this machine"}
    said: dict[str, Any] = {}
    env = environment(python, folder)
    try:
        said["base_install_s"], said["base_processor_s"] = install(folder, env, str(wheel))
        begun = time.monotonic()
        smoke_base(folder, env, chat, service)
        said["base_smoke_s"] = round(time.monotonic() - begun, 1)
        print(
            f"Python {version}: base installed in {said['base_install_s']} s, {said['base_processor_s']} s of the processor (wanted {BASE_S:.0f}), worked through in {said['base_smoke_s']} s",
            flush=True,
        )
        if any_torch or torch_at_hand(folder, env):
            said["local_install_s"], said["local_processor_s"] = install(folder, env, f"{wheel}[local]")
            begun = time.monotonic()
            smoke_local(folder, env)
            said["local_smoke_s"] = round(time.monotonic() - begun, 1)
            print(
                f"Python {version}: [local] installed in {said['local_install_s']} s more, judged in {said['local_smoke_s']} s",
                flush=True,
            )
        else:
            said["local_skipped"] = "no build of torch in PIP_FIND_LINKS (--any-torch takes the index's)"
            print(f"Python {version}: [local] skipped: {said['local_skipped']}", flush=True)
        if said["base_install_s"] > BASE_S:
            said["slow"] = True
    except Failed as error:
        said["failed"] = str(error)
        print(f"Python {version}: FAILED: {error}", flush=True)
    shutil.rmtree(folder)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--any-torch", action="store_true", help="install torch from the index where no other build is at hand"
    )
    parser.add_argument("--only", action="append", metavar="3.X", help="this Python alone; repeatable")
    args = parser.parse_args()
    from reagent.lab.shipped import judge_folder

    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")])}
    with (
        tempfile.TemporaryDirectory() as scratch,
        doc_server.chat() as chat,
        doc_server.judge_service(judge_folder(), env) as service,
    ):
        folder = Path(scratch)
        (folder / "dist").mkdir()
        wheel = build(folder / "dist")
        found = {v: check(v, wheel, folder / v, chat, service, args.any_torch) for v in args.only or PYTHONS}
    failed = [version for version, said in found.items() if "failed" in said]
    print(json.dumps({"pythons": found, "load_average": os.getloadavg(), "failed": failed, "passed": not failed}))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
