"""What the speed measurements share: arms timed in turn, a second command beside them, memory, and the record."""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import record


@dataclass(frozen=True)
class Timing:
    """What one run of an arm took, in seconds, and made."""

    wall: float
    cpu: float  # of the arm's own process: it holds on a machine that does other work too
    result: Any = None


Timings = Mapping[str, Sequence[Timing]]


def timed(arm: Callable[[], Any]) -> Timing:
    """Run an arm once."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = arm()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu, result)


def in_turn(
    arms: Mapping[str, Callable[[], Timing]], repeats: int, what: str = "", warm_up: int = 0
) -> dict[str, list[Timing]]:
    """Run the arms in turn (A B A B …), and say on standard error what each took; rounds of warming up do not count."""
    timings: dict[str, list[Timing]] = {name: [] for name in arms}
    for repeat, (name, arm) in itertools.product(range(repeats + warm_up), arms.items()):
        timing = arm()
        print(f"{what} {name}: {timing.wall:.3f} s", file=sys.stderr)
        if repeat >= warm_up:
            timings[name].append(timing)
    return timings


def medians(timings: Timings, of: str = "wall") -> dict[str, float]:
    """Give each arm's median seconds."""
    return {name: statistics.median(getattr(one, of) for one in timings[name]) for name in timings}


def seconds(timings: Timings, of: str = "wall") -> dict[str, list[float]]:
    """Give each arm's seconds, as they are recorded."""
    return {name: [round(getattr(one, of), 3) for one in timings[name]] for name in timings}


def memory_mb(name: str) -> float:
    """Read `VmHWM` (peak) or `VmRSS` of this process, in megabytes."""
    (kilobytes,) = re.findall(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)  # Linux
    return int(kilobytes) / 1024


class Second:
    """A second command of a measurement, in a process of its own: it runs the arms that it is asked for (`answer`)."""

    def __init__(self, *command: str) -> None:
        own = [sys.executable, "-m", *command]
        self.process = subprocess.Popen(own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, name: str) -> Timing:
        """Run an arm once, while this process waits."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        if not (line := self.process.stdout.readline()):
            raise SystemExit(f"the second command ended with {self.process.wait()}")
        return Timing(**json.loads(line))


def answer(arms: Mapping[str, Callable[[], Any]]) -> None:
    """Run the arms that the first command asks for, until it ends; their results are JSON."""
    for line in sys.stdin:
        print(json.dumps(vars(timed(arms[line.strip()]))), flush=True)


def made(module: str, args: argparse.Namespace, *packages: str) -> dict[str, Any]:
    """Give what stands beside a measurement: options, command, commit, versions, hardware, load."""
    about = record.timed_with(f"speed.{module}", args, *packages)
    return {**about, "model": Path(getattr(args, "model", None) or "default").name, "commit": record.commit()}


def finish(found: Mapping[str, Any], out: Path | None) -> None:
    """Write a record where it is wanted, and print it as one line of JSON."""
    if out is not None:
        record.write(out, found)
    print(json.dumps(found))
