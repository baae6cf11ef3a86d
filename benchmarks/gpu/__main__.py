"""`next` prints the calls of the next item, `smoke ITEM` tries one here, `collect FOLDER` stores results; `run JOB` is for the other machine."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu import pieces
from benchmarks.gpu.items import FOLDER, MIB, Item, Queue, QueueError, load, plan, set_state, states, unfinished


def examine(queue: Queue, folder: Path, target: Path, tried: bool = False) -> tuple[Item, dict[str, Any], str]:
    """Check what came back and extract it into `target`; returns item, report, and state.

    An item goes on waiting where a run is not finished and can go on; one that cannot has failed, if it was not only `tried`.
    """
    queue.limits.check_back(folder)
    report = json.loads((folder / "run.json").read_text("utf-8"))
    item = queue.item(report["name"])
    pieces.unpack(report.pop("pieces"), folder, target)
    problems = [f"{name} is missing" for name in item.promised() if not (target / name).is_file()]
    problems += [f"{name} ended with {code}" for name, code in report["codes"].items() if code != 0]
    report["problems"] = problems
    if not (item.resumes() or tried):
        problems += [f"{name} is not finished" for name in unfinished(target)]
    return item, report, "failed" if problems else "waiting" if unfinished(target) else "done"


def smoke(queue: Queue, item: Item, root: Path) -> str:
    """Run an item's first run here with tiny limits, through the same pieces and the same command.

    Raises:
        QueueError: a promised file does not come back, or those of all runs would not fit.
    """
    first = replace(item, runs=dict(list(item.runs.items())[:1]))
    calls = len(plan(queue, item, root, [])[1])
    queue = replace(queue, items=[first])
    with tempfile.TemporaryDirectory() as scratch:
        stubs, out, work = (Path(scratch) / name for name in ("stubs", "out", "work"))
        for path in (stubs, out, work):
            path.mkdir()
        for name in queue.absent:
            (stubs / f"{name}.py").write_text(f"raise ModuleNotFoundError('{name} is not on the other machine')\n")
        job, _ = plan(queue, first, root, [], device="cpu", stubs=[str(stubs)], **queue.smoke)
        command = [sys.executable, "-m", "benchmarks.gpu", "run", str(job), "--out", str(out), "--work", str(work)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
        if not (out / "run.json").is_file():
            raise QueueError(f"{item.name}: {done.stdout}{done.stderr}")
        _, report, _ = examine(queue, out, Path(scratch) / "back", tried=True)
        back = sum(path.stat().st_size for path in out.iterdir()) * len(item.runs)
    if back > queue.limits.back_mib * MIB:
        report["problems"].append(f"all {len(item.runs)} runs would give back {back:,} bytes")
    if report["problems"]:
        raise QueueError(f"{item.name}: {'; '.join(report['problems'])}\n{done.stdout}")
    return f"{item.name}: {calls} calls up, {back:,} bytes back, {report['seconds']} s here"


def collect(queue: Queue, folder: Path, root: Path) -> str:
    """Store what came back: its files below runs/gpu, its record at the item's result path, the state in the queue."""
    with tempfile.TemporaryDirectory() as scratch:
        item, report, state = examine(queue, folder, Path(scratch) / "back")
        target = root / FOLDER / ("failed" if state == "failed" else "results") / item.name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(Path(scratch) / "back", target)
    result = root / item.result
    earlier = json.loads(result.read_text("utf-8"))["calls"] if result.is_file() else []
    record: dict[str, Any] = {"item": item.name, "purpose": item.purpose, "prediction": item.prediction, "state": state}
    record["runs"] = states(target)
    record["files"] = {path.name: pieces.sha256(path) for path in sorted(target.iterdir())}
    record["calls"] = [*earlier, report]
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    set_state(root, item.name, state)
    return f"{item.name} is {state}: {result}, files in {target}. {'; '.join(report['problems'])}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    following = commands.add_parser("next", help="print the calls of the next waiting item, as JSON")
    following.add_argument("--have", action="append", default=[], metavar="INPUT", help="input that is there already")
    commands.add_parser("smoke", help="run an item here with tiny limits").add_argument("item")
    commands.add_parser("collect", help="check and store what came back").add_argument("folder", type=Path)
    there = commands.add_parser("run", help="do a job (on the other machine)")
    there.add_argument("job", type=Path)
    there.add_argument("--out", type=Path, required=True)
    there.add_argument("--work", type=Path, default=FOLDER / "work")
    options, root = parser.parse_args(arguments), Path.cwd()
    try:
        queue = load(root)
        if options.command == "run":
            from benchmarks.gpu.machine import run  # the only command that needs torch at once

            sys.exit(run(options.job, options.out, root, options.work.absolute(), queue.limits))
        if options.command == "next":
            print(json.dumps(plan(queue, queue.item(), root, options.have)[1], indent=1))
        elif options.command == "smoke":
            print(smoke(queue, queue.item(options.item), root))
        else:
            print(collect(queue, options.folder, root))
    except (QueueError, pieces.PieceError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
