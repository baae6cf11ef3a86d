"""What was silently wrong, section by section: chat judges over real HTTP, logs, agents' faults, hostile input, failing machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.acceptance import Bar, suite_bars

ROOT = Path(__file__).resolve().parents[2]
MORE = ROOT / "tests" / "rrm" / "judge" / "judge_replies_more.json"
CASES = ROOT.parent / "shared" / "cases" / "judge_replies.json"
CHAT_TESTS = {
    "scores of replies, repair": "rrm/judge/test_said_score.py",
    "log-probabilities, refused parameters": "rrm/engines/test_openai_refusals.py",
    "contexts, cut prompts": "rrm/engines/test_contexts.py",
    "kinds of scores": "rrm/judge/test_score_sources.py",
    "truncated runs, retries": "rrm/test_truncated_runs.py",
    "guard of unfinished runs": "rrm/guard/test_chat_guard.py",
    "annotators": "rrm/annotators/test_ranked_agreement.py",
}
"""Of the section on chat judges: what a file of tests is about."""


def bars(run: bool = True) -> list[Bar]:
    """The finished bars of all sections."""
    return [*chat_judges(run)]


def chat_judges(run: bool = True) -> Iterator[Bar]:
    """Replies that are read or typed as they should be, of both files; and the tests of the section."""
    from rrm.engines.base import Reply
    from rrm.judge.chat import read_reply

    def right(text: str, wanted: object) -> bool:
        found = read_reply(Reply(text, "eos"))
        return (found.raw_score if found.status == "scored" else found.status) == wanted

    cases: list[tuple[str, object]] = [(text, wanted) for text, wanted in json.loads(MORE.read_text("utf-8"))]
    yield _counted("chat judges: further replies read or typed", cases, [right(*case) for case in cases])
    if CASES.is_file():
        told = json.loads(CASES.read_text("utf-8"))
        given = [(text, wanted) for text, wanted in told["readable"]] + [
            (t, "unparsable") for t in told["not_readable"]
        ]
        yield _counted("chat judges: replies of shared/cases read or typed", given, [right(*case) for case in given])
    else:
        yield Bar("chat judges: replies of shared/cases read or typed", "no ../shared/cases", "all", None)
    yield from suite_bars({f"chat judges: {what}": f"tests/{path}" for what, path in CHAT_TESTS.items()}, run)


def _counted(what: str, cases: list[tuple[str, object]], right: list[bool]) -> Bar:
    wrong = [text for (text, _), ok in zip(cases, right, strict=True) if not ok]
    first = f"; the first that is not: {wrong[0][:80]!r}" if wrong else ""
    return Bar(what, f"{sum(right)} of {len(cases)}{first}", "all", not wrong)
