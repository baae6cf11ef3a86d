"""What `make accept-N` share: a bar, the results they are read from, the tests that are bars, and the table."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from benchmarks.record import RESULTS

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Bar:
    """One line of the table. `ok` None: reported, nothing is demanded."""

    what: str
    measured: str
    wanted: str
    ok: bool | None


def load(name: str) -> dict[str, Any] | None:
    """A results file, or None where it was never made."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def interval(value: dict[str, float]) -> str:
    """`0.712 [0.690, 0.734]`; `not defined` where there is nothing to measure (one class only)."""
    if value.get("value") is None:
        return "not defined"
    if value.get("low") is None or value.get("high") is None:
        return f"{value['value']:.3f} [too few questions]"
    return f"{value['value']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def missing(what: str, wanted: str, name: str) -> Bar:
    """A bar whose results file is absent, or does not hold it, is missed."""
    held = (RESULTS / f"{name}.json").is_file()
    return Bar(what, f"{'not in' if held else 'no'} benchmarks/results/{name}.json", wanted, False)


def suite_bars(suites: Mapping[str, str], run: bool) -> Iterator[Bar]:
    """Tests that are bars themselves. `suites`: what they show → pytest's arguments, separated by spaces."""
    for what, tests in suites.items():
        if not run:
            files = dict.fromkeys(test.partition("::")[0] for test in tests.split())
            yield Bar(what, f"part of `make test`: {', '.join(files)}", "passes", None)
            continue
        command = [sys.executable, "-m", "pytest", "-q", *tests.split()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
        yield Bar(what, last, "passes", done.returncode == 0)


def finish(bars: Sequence[Bar]) -> NoReturn:
    """Print the table and one line of JSON; exit code 1 if a bar is missed."""
    table = Table(show_lines=False)
    for column in ("what", "measured", "wanted", ""):
        table.add_column(column, overflow="fold")
    for bar in bars:
        verdict = "—" if bar.ok is None else "pass" if bar.ok else "FAIL"
        table.add_row(bar.what, bar.measured, bar.wanted, verdict, style=None if bar.ok is not False else "red")
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    failed = [bar.what for bar in bars if bar.ok is False]
    print(json.dumps({"bars": len(bars), "passed": sum(bar.ok is True for bar in bars), "failed": failed}))
    sys.exit(1 if failed else 0)
