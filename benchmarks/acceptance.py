"""What every set of bars shares: a bar, the results it is read from, the tests that are bars, and the table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from xml.etree import ElementTree  # of our own pytest

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.record import RESULTS, is_known

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Bar:
    """One line of the table. `ok` None: reported, nothing is demanded. `waits`: nobody has measured it yet, for want of a GPU."""

    what: str
    measured: str
    wanted: str
    ok: bool | None
    waits: bool = False

    @property
    def result(self) -> str:
        """`pass`, `FAIL`, `reported` or `waits for a GPU`."""
        if self.waits:
            return "waits for a GPU"
        return "reported" if self.ok is None else "pass" if self.ok else "FAIL"


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


def unmade(commit: object) -> str | None:
    """Why a record cannot be made again by this commit; None where it can."""
    if commit in (None, ""):
        return "no commit"
    if str(commit).endswith("+"):
        return "made by files that no commit has"
    return None if is_known(str(commit)) else f"made by {commit}, which this repository does not have"


def missing(what: str, wanted: str, name: str) -> Bar:
    """A bar whose results file is absent, or does not hold it, is missed."""
    held = (RESULTS / f"{name}.json").is_file()
    return Bar(what, f"{'not in' if held else 'no'} benchmarks/results/{name}.json", wanted, False)


def suite_bars(suites: Mapping[str, str], run: bool) -> Iterator[Bar]:
    """Tests that are bars themselves, all run by one pytest. `suites`: what they show → test files, or tests of them as
    `file::test`, separated by spaces. A bar passes where some of its tests ran and none failed, or was skipped without a reason."""
    if not run:
        for what, tests in suites.items():
            files = dict.fromkeys(test.partition("::")[0] for test in tests.split())
            yield Bar(what, f"part of `make test`: {', '.join(files)}", "passes", None)
        return
    cases = _outcomes(sorted({test for tests in suites.values() for test in tests.split()}))
    for what, tests in suites.items():
        yield _verdict(what, [outcome for test in tests.split() for outcome in _of(test, cases)])


@dataclass(frozen=True)
class Outcome:
    """How a test ended: passed, failed or skipped."""

    kind: str
    reason: str = ""
    """Why it was skipped, or the name of a test that failed."""


def _verdict(what: str, outcomes: Sequence[Outcome]) -> Bar:
    """The bar of some tests, with the names of those that failed and the reasons of those that were skipped."""
    counts = Counter(outcome.kind for outcome in outcomes)
    reasons = dict.fromkeys(outcome.reason for outcome in outcomes if outcome.kind == "skipped")
    failed = dict.fromkeys(outcome.reason for outcome in outcomes if outcome.kind == "failed")
    said = {"passed": "", "failed": ", ".join(failed), "skipped": "; ".join(r or "without a reason" for r in reasons)}
    shown = ", ".join(f"{counts[k]} {k}{f' ({why})' if why else ''}" for k, why in said.items() if counts[k])
    ok = counts["passed"] > 0 and not counts["failed"] and "" not in reasons
    return Bar(what, shown or "no such test ran", "passes", ok)


def _outcomes(tests: Sequence[str]) -> dict[tuple[str, str], list[Outcome]]:
    """How each test of one pytest run ended: (file, function) → its outcomes, one a parameter."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-o", "junit_family=xunit1", *tests]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not report.is_file():
            raise SystemExit(f"pytest did not run: {(done.stdout + done.stderr)[-800:]}")
        tree = ElementTree.parse(report)
    found: dict[tuple[str, str], list[Outcome]] = {}
    for case in tree.iter("testcase"):
        found.setdefault((case.get("file", ""), case.get("name", "").partition("[")[0]), []).append(_outcome(case))
    return found


def _outcome(case: ElementTree.Element) -> Outcome:
    """Of one test case of a JUnit report."""
    by_tag = {child.tag: child for child in case}
    if by_tag.keys() & {"failure", "error"}:
        return Outcome("failed", case.get("name", ""))
    if (skipped := by_tag.get("skipped")) is None:
        return Outcome("passed")
    reason = (skipped.get("message") or "").strip()
    return Outcome("skipped", "" if reason == "unconditional skip" else reason)


def _of(test: str, cases: Mapping[tuple[str, str], list[Outcome]]) -> list[Outcome]:
    """The outcomes of a file, a folder, or one test function."""
    place, _, name = test.partition("::")
    inside = f"{place.rstrip('/')}/"
    return [
        outcome
        for (file, function), outcomes in cases.items()
        if (file == place or file.startswith(inside)) and name.partition("[")[0] in ("", function)
        for outcome in outcomes
    ]


def finish(bars: Sequence[Bar], name: str) -> NoReturn:
    """Print the table of a set and one line of JSON, counts and every bar; exit code 1 if a bar is missed."""
    table = Table(show_lines=False)
    for column in ("what", "measured", "wanted", "result"):
        table.add_column(column, overflow="fold")
    for bar in bars:
        cells = (escape(text) for text in (bar.what, bar.measured, bar.wanted, bar.result))
        table.add_row(*cells, style="red" if bar.result == "FAIL" else None)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    rows = [{"what": b.what, "measured": b.measured, "wanted": b.wanted, "result": b.result} for b in bars]
    counts = Counter(bar.result for bar in bars)
    print(json.dumps({"set": name, "counts": {"all": len(bars), **counts}, "bars": rows}, ensure_ascii=False))
    sys.exit(1 if counts["FAIL"] else 0)


def main(doc: str | None, bars: Callable[[bool], Sequence[Bar]]) -> NoReturn:
    """Run the command of one acceptance.

    Args:
        doc: its help. bars: whether tests that are bars are run → all bars.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-run", action="store_true", help="do not run the tests that are bars")
    finish(bars(not parser.parse_args().no_run), Path(sys.argv[0]).stem.replace("_", "-"))
