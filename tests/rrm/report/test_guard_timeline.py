"""A guard's audit on the page: matched by run, drawn as a timeline, hostile text as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_pages import HOSTILE, complaints, pair, written

from benchmarks.speed.devtools import Chromium
from rrm.cli.report_cmd import command
from rrm.data.trajectory import write_jsonl
from rrm.errors import ReadError
from rrm.guard.audit import AuditCall, AuditRow, append
from rrm.report import write_report
from rrm.report.guarded import AuditRows, watched

BEGAN = "2026-01-01T00:00:00+00:00"


def row(run: str, step: int, second: float, **more: Any) -> AuditRow:
    calls = [AuditCall(name="search", arguments='{"query": "x"}', seconds=2.0, answered=True)]
    said: dict[str, Any] = {"verdict": "continue", "status": "scored", "score": 0.5, "tokens": 40, "seconds": 0.5}
    at = f"2026-01-01T00:00:{second:06.3f}+00:00"
    return AuditRow.model_validate({"run": run, "began": BEGAN, "step": step, "at": at, "calls": calls, **said, **more})


def test_spans_stand_where_the_session_had_them() -> None:
    rows = [row("a", 1, 3.0), row("a", 1, 4.0), row("a", 2, 10.0, score=None, status="judge_error", reason="down")]
    found = watched(rows)
    assert found is not None
    assert found["spans"] == [
        [1, "tool", "search", 2.0, 1.5],
        [1, "judge", None, 0.5, 3.5],
        [2, "tool", "search", 2.0, 7.5],
        [2, "judge", None, 0.5, 9.5],
    ]
    assert [said[:6] for said in found["said"]] == [
        [1, "continue", "scored", 0.5, None, ""],
        [2, "continue", "judge_error", None, None, "down"],
    ]
    assert watched([]) is None


def test_the_latest_session_of_a_run_is_shown() -> None:
    later = "2026-02-01T00:00:00+00:00"
    audit = AuditRows([row("run/0", 1, 1), row("run/0", 1, 2, began=later), row("run/0", 2, 3), row("gone", 1, 1)])
    assert [r.began for r in audit.of(pair(0)[0])] == [later] and audit.of(pair(1)[0]) == []
    assert (len(audit), audit.unmatched) == (2, 1)
    let_go = watched([row("a", 3, 1, verdict="ask"), row("a", 0, 2, resumed=True), row("a", 4, 3)])
    assert let_go is not None and let_go["resumed"] == [3] and [s[0] for s in let_go["said"]] == [3, 4]


def test_the_command_matches_runs_and_counts(tmp_path: Path, invoke: Callable[..., tuple[int, dict[str, Any]]]) -> None:
    pairs = [pair(0), pair(1)]
    runs, scored, audit, page = (tmp_path / n for n in ("runs.jsonl", "scored.jsonl", "audit.jsonl", "report.html"))
    write_jsonl(runs, [t for t, _ in pairs])
    scored.write_text("".join(json.dumps(r) + "\n" for _, r in pairs))
    for one in (row("run/0", 1, 3.0), row("run/9", 1, 3.0)):
        append(audit, one)
    given = [scored, "--transcripts", runs, "-o", page]
    code, said = invoke(command, *given, "--audit", audit)
    assert (code, said["guarded"], said["audited_without_transcript"]) == (0, 1, 1)
    assert "guarded" not in invoke(command, *given)[1]
    with pytest.raises(ReadError, match=r"runs\.jsonl:1: not a row of a guard's audit"):
        invoke(command, *given, "--audit", runs)
    with pytest.raises(ReadError, match=r"none\.jsonl: cannot be opened"):
        invoke(command, *given, "--audit", tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"version": 1, "run": "a", "began": "x", "step": -1}', "step: Input should be greater than or equal to 0"),
        ("[1]", "Input should be a valid dictionary or instance of AuditRow"),
        ("{broken", "Expecting property name"),
    ],
)
def test_a_line_that_is_no_row_of_an_audit_is_one_line(
    line: str, said: str, tmp_path: Path, invoke: Callable[..., tuple[int, dict[str, Any]]]
) -> None:
    audit, given = judged(tmp_path)
    append(audit, row("run/0", 1, 1))
    with open(audit, "a") as more:
        more.write(line + "\n")
    with pytest.raises(ReadError) as error:
        invoke(command, *given, "--audit", audit)
    assert str(error.value).startswith(f"{audit}:2: not a row of a guard's audit: {said}")
    assert "\n" not in str(error.value) and "pydantic.dev" not in str(error.value)


def test_an_audit_of_nothing_on_the_page_is_said(
    tmp_path: Path, invoke: Callable[..., tuple[int, dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    audit, given = judged(tmp_path)
    audit.write_text("")
    invoke(command, *given, "--audit", audit)
    assert f"{audit} holds no row of a guard: the page has no timeline" in caplog.text
    append(audit, row("elsewhere", 1, 1))
    code, said = invoke(command, *given, "--audit", audit)
    assert (code, said["guarded"], said["audited_without_transcript"]) == (0, 0, 1)
    assert (
        f"{audit} is of no transcript of this page" in caplog.text
        and "1 ids ('elsewhere'), and the page of" in caplog.text
    )
    caplog.clear()
    append(audit, row("run/0", 1, 1))
    invoke(command, *given, "--audit", audit)
    assert not caplog.messages


def judged(folder: Path) -> tuple[Path, list[object]]:
    """Where an audit goes, and the arguments of a report of one judged transcript."""
    pairs = [pair(0)]
    runs, scored = folder / "runs.jsonl", folder / "scored.jsonl"
    write_jsonl(runs, [t for t, _ in pairs])
    scored.write_text("".join(json.dumps(one) + "\n" for _, one in pairs))
    return folder / "audit.jsonl", [scored, "--transcripts", runs, "-o", folder / "report.html"]


def test_a_page_without_an_audit_has_no_guard(tmp_path: Path) -> None:
    assert "guard" not in written(tmp_path, [pair(0)]).details[0]


def test_the_guard_s_timeline_in_a_browser(browser: Chromium, tmp_path: Path) -> None:
    why = "score 0.05; 2 steps below 0.1 since the run last stood at 0.2 or more"
    calls = [AuditCall(name=text, arguments=text.encode("utf-8", "replace").decode(), seconds=1.0) for text in HOSTILE]
    audit = AuditRows(
        [
            row("run/0", 1, 3.0, p_good=0.25),
            row("run/0", 2, 9.0, verdict="halt", score=0.05, reason=why + HOSTILE[0], calls=calls),
        ]
    )
    path = tmp_path / "report.html"
    write_report([pair(0), pair(1)], path, audit=audit)
    browser.open(path.as_uri() + "#run%2F0")
    browser.wait("document.querySelector('.guard')")
    summary = browser.evaluate("document.querySelector('.guard summary').textContent")
    assert summary == "Guard2 steps; halt from step 2 on. The judge read 80 tokens in 1.0 s."
    labels = browser.evaluate("[...document.querySelectorAll('.guard-step')].map(l => l.getAttribute('aria-label'))")
    assert labels[0] == "Step 1: go on, score 0.50, step 0.25" and labels[1].startswith(
        f"Step 2: halt, score 0.05, {why}"
    )
    assert browser.evaluate("document.querySelectorAll('.guard-step .times i').length") == 2 + len(HOSTILE) + 1
    assert browser.evaluate("document.title") != "pwned"
    assert browser.evaluate("document.querySelectorAll('img, iframe, #main script').length") == 0
    browser.evaluate("document.querySelectorAll('.guard-step')[1].click()")
    browser.wait("document.activeElement.id === 'step-2'")
    browser.press("j")
    browser.wait("document.querySelector('.place .num')?.textContent === '2 of 2'")
    assert browser.evaluate("document.querySelector('.guard')") is None
    assert not complaints(browser)
