"""What the speed comparisons share: arms in processes of their own, and TRL's configuration."""

from __future__ import annotations

import argparse
import multiprocessing
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

Make = Callable[[argparse.Namespace], dict[str, Callable[[], Any]]]
"""Options → arms by name; called in the process that runs them, so that they share no memory with others."""
GRPO: dict[str, Any] = {
    "temperature": 1.0,
    "max_steps": 1,
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
}
"""TRL's `GRPOConfig` beside lengths, batch sizes and what a comparison is about; all else is TRL's default."""


@dataclass(frozen=True)
class Taken:
    """What one run of an arm took and made."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of the arm's process."""
    result: Any
    peak_mb: float | None = None
    """The process's VmHWM over the run."""
    resting_mb: float | None = None
    """Its VmRSS before the run."""


def memory_mb(name: str) -> float:
    """`VmHWM` (peak) or `VmRSS` of this process, in megabytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    if found is None:
        raise SystemExit(f"/proc/self/status has no {name}: memory is measured on Linux only")
    return int(found[1]) / 1024


def _serve(make: Make, args: argparse.Namespace, pipe: Any, memory: bool) -> None:
    """A worker process: runs the arm it is asked for and answers with a `Taken`."""
    arms = make(args)
    while (name := pipe.recv()) is not None:
        resting = None
        if memory:
            Path("/proc/self/clear_refs").write_text("5")  # the peak is the present size from here on
            resting = memory_mb("VmRSS")
        start, cpu_start = time.perf_counter(), time.process_time()
        result = arms[name]()
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu_start
        pipe.send(Taken(wall, cpu, result, memory_mb("VmHWM") if memory else None, resting))


class Arms:
    """A process for each of `makers`, which names the arms it makes; only the one that is asked works.

    Args:
        memory: also measure memory (Linux).
    """

    def __init__(self, args: argparse.Namespace, makers: Mapping[Make, tuple[str, ...]], memory: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends: dict[str, Any] = {}
        self._workers = []
        for make, names in makers.items():
            here, there = context.Pipe()
            self._workers.append(context.Process(target=_serve, args=(make, args, there, memory), daemon=True))
            self._workers[-1].start()
            there.close()  # so that a worker that dies is noticed
            self._ends |= dict.fromkeys(names, here)

    def ask(self, name: str) -> Taken:
        """Run an arm once; raises EOFError if its process died."""
        self._ends[name].send(name)
        return self._ends[name].recv()

    def __enter__(self) -> Arms:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            for end in set(self._ends.values()):
                end.send(None)
            for worker in self._workers:
                worker.join()
