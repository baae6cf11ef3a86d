"""One bar, the tests that are bars, and the table that is printed."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from xml.etree import ElementTree  # of our own pytest

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.record import ROOT


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
    table = Table("what", "measured", "wanted", "result")
    for column in table.columns:
        column.overflow = "fold"
    for bar in bars:
        cells = (escape(text) for text in (bar.what, bar.measured, bar.wanted, bar.result))
        table.add_row(*cells, style="red" if bar.result == "FAIL" else None)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    rows = [{"what": b.what, "measured": b.measured, "wanted": b.wanted, "result": b.result} for b in bars]
    counts = Counter(bar.result for bar in bars)
    print(json.dumps({"set": name, "counts": {"all": len(bars), **counts}, "bars": rows}, ensure_ascii=False))
    sys.exit(1 if counts["FAIL"] else 0)
