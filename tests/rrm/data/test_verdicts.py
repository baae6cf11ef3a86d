"""Verdicts in the spellings of chat models: good means good, bad means bad, and what cannot be read is unclear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrm.data.annotation import Finding, Verdict
from rrm.data.feedback import clear, format_findings, parse_findings, written_findings
from rrm.data.verdicts import SEVERAL, VERDICTS

SPELLINGS: list[tuple[str, Verdict, str]] = [
    ("[step 1] good: text", "good", "text"), ("[step 1] bad: text", "bad", "text"),
    ("[step 1] Good: text", "good", "text"), ("[step 1] GOOD: text", "good", "text"),
    ("[Step 1] good: text", "good", "text"), ("[STEP 1] BAD: text", "bad", "text"),
    ("[step 1]: good: text", "good", "text"), ("[step 1] good - text", "good", "text"),
    ("[step 1] GOOD - text", "good", "text"), ("[step 1] good – text", "good", "text"),
    ("[step 1] good — text", "good", "text"), ("[step 1] bad | text", "bad", "text"),
    ("[step 1] Good. text", "good", "text"), ("[step 1] Bad! text", "bad", "text"),
    ("[step 1] good, text", "good", "text"), ("[step 1] good", "good", ""), ("[Step 1] good", "good", ""),
    ("[step 1] **good** text", "good", "text"), ("[step 1] **good**: text", "good", "text"),
    ("[step 1] **Good:** text", "good", "text"), ("[step 1] *bad*: text", "bad", "text"),
    ("[step 1] __good__ – text", "good", "text"), ("[step 1] `good`: text", "good", "text"),
    ('[step 1] "good": text', "good", "text"), ("[step 1] (good) text", "good", "text"),
    ("[step 1] [BAD] text", "bad", "text"), ("[step 1] <b>good</b>: text", "good", "text"),
    ("[step 1] - good: text", "good", "text"), ("[step 1] — good: text", "good", "text"),
    ("[step 1] — verdict: good — text", "good", "text"), ("[step 1] Verdict: **Bad**. text", "bad", "text"),
    ("[step 1] is good: text", "good", "text"), ("[step 1] GOOD the text", "good", "the text"),
    ("[step 1] GOOD Searched for it", "good", "Searched for it"), ("[step 1] BAD It repeats", "bad", "It repeats"),
    ("[step 1] good the text", "good", "the text"), ("[step 1] bad because it repeats", "bad", "because it repeats"),
    ("[step 1] good (the year is right)", "good", "(the year is right)"), ("[step 1]\ngood\ntext", "good", "text"),
    ("[step 1]\n- Verdict: Good\n- text", "good", "- text"), ("**[step 1]** good: text", "good", "text"),
    ("**[step 1] good:** text", "good", "text"), ("**[Step 1] Good** – text", "good", "text"),
    ("- [step 1] good: text", "good", "text"), ("* **[step 1]**: **good** — text", "good", "text"),
    ("1. [step 1] good: text", "good", "text"), ("> [step 1] bad: text", "bad", "text"), ("Step 1: Good", "good", ""),
    ("Step 1: Good. text", "good", "text"), ("step 1 - bad - text", "bad", "text"),
    ("Step 1 (good): text", "good", "text"), ("Step #1: good: text", "good", "text"),
    ("**Step 1:** Good. text", "good", "text"), ("**Step 1: Good** text", "good", "text"),
    ("### Step 1\nGood. text", "good", "text"), ("### Step 1 – Bad\ntext", "bad", "text"),
    ("1. **Step 1** — GOOD: text", "good", "text"), ("| Step 1 | Good | text |", "good", "text"),
    ("(step 1) good: text", "good", "text"), ("Good: [step 1] text", "good", "text"),
    ("**Bad** – [step 1] text", "bad", "text"), ("✅ Step 1: text", "good", "text"), ("[step 1] ✅ text", "good", "text"),
    ("[step 1] ❌ Bad: text", "bad", "text"), ("[step 1] ✔️ text", "good", "text"),
    ("[step 1] correct: text", "good", "text"), ("[step 1] Incorrect. text", "bad", "text"),
    ("[step 1] wrong – text", "bad", "text"), ("[step 1] not good: text", "bad", "text"),
    ("[step 1] Right, text", "good", "text"), ("[step 1] CORRECT", "good", ""),
    ("[step 1] (correct) text", "good", "text"), ("Correct: [step 1] text", "good", "text"),
    ("Step 1 (search): good: text", "good", "text"), ("Step 1 (web search, page 2) - **bad**: text", "bad", "text"),
    ("**Step 1 (search):** Good. text", "good", "text"), ("[step 1] (search): good: text", "good", "text"),
    ("[step 1] the search finds it (good)", "good", "the search finds it (good)"),
    ("[step 1] the search finds it → good", "good", "the search finds it → good"),
    ("[step 1] the search finds it. Verdict: good", "good", "the search finds it. Verdict: good"),
]  # fmt: skip
UNCLEAR = [
    "[step 1] text", "[step 1]: text", "[step 1]", "[step 1] good/bad: text", "[step 1] good but slow",
    "[step 1] good, but the year is wrong", "[step 1] **good** but slow", "[step 1] good and bad: text",
    "[step 1] good (mostly)", "[step 1] good query, wrong year", "[step 1] bad luck with the server",
    "[step 1] not bad: text", "[step 1] neither good nor bad", "[step 1] mostly good: text", "[step 1] good? text",
    "[step 1] goodness: text", "[step 1] bad-tempered: text", "[step 1] neutral: text", "[step 1] ok: text",
    "[step 1] failed: HTTP 500", "[step 1] unclear: text", "[step 1] ✅ Bad: text", "Good: [step 1] bad: text",
    "[step 1] r\u0130ght: text", "[step 1] Verdict: mixed", "Step 1: searches the web",
    "[step 1] Correct the argument and call again.", "[step 1] correct this before going on",
    "[step 1] Right the order of the two calls", "[step 1] RIGHT NOW the agent loops",
    "[step 1] GOOD would be to search first", "[step 1] BAD or not, it goes on", "[step 1] BAD REQUEST came back",
    "[step 1] Bad Gateway came back", "[step 1] CORRECT The year first", "[step 1] Verdict: correct the argument",
    "[step 1] Verdict: good, but slow", "Correct [step 1] by quoting the name", "Correct step 1: quote the name",
    "Step 1 (good query, wrong year): good", "Step 1 (search): looks for Ada",
]  # fmt: skip


@pytest.mark.parametrize(("critique", "verdict", "text"), SPELLINGS)
def test_a_verdict_is_read_in_every_usual_spelling(critique: str, verdict: Verdict, text: str) -> None:
    assert parse_findings(critique, 1) == [Finding(step=1, verdict=verdict, text=text)]


@pytest.mark.parametrize("critique", UNCLEAR)
def test_what_cannot_be_read_is_unclear_never_bad(critique: str) -> None:
    assert [f.verdict for f in parse_findings(critique, 1)] == ["unclear"]


@pytest.mark.parametrize(("critique", "verdict", "text"), SPELLINGS)
def test_spellings_are_read_inside_a_longer_critique_too(critique: str, verdict: Verdict, text: str) -> None:
    before, after = "A run of three steps.\n\n", "\n" + critique.replace("1", "2", 1) + "\n"
    assert verdicts(before + critique + after, 2) == [(1, verdict), (2, verdict)] or critique.startswith("1.")


def test_several_parts_in_one_line_and_references_to_other_steps() -> None:
    one_line = "[step 1] good: found it [step 2] bad: repeats [step 1] and learns nothing. [step 3] Good. done"
    assert [(f.step, f.verdict, f.text) for f in parse_findings(one_line, 3)] == [
        (1, "good", "found it"),
        (2, "bad", "repeats [step 1] and learns nothing."),
        (3, "good", "done"),
    ]
    prose = "[step 1] good: as planned\nStep 2 of the plan was skipped, step 3 is good.\n[step 2] bad: stops"
    assert verdicts(prose, 3) == [(1, "good"), (2, "bad")]
    assert parse_findings("Steps 1-3 are good. Step 2, which failed, is odd.", 3) == []


def verdicts(critique: str, n_steps: int) -> list[tuple[int, Verdict]]:
    return [(f.step, f.verdict) for f in parse_findings(critique, n_steps)]


def test_verdicts_listed_in_one_line_are_all_read() -> None:
    for line in (
        "[step 1]: 'bad', [step 2]: 'good', [step 3]: 'bad'",
        "[step 1] bad, [step 2] good, [step 3] bad",
        '[step 1]: "bad"; [step 2]: "good"; [step 3]: "bad"',
    ):
        assert verdicts(line, 3) == [(1, "bad"), (2, "good"), (3, "bad")], line
    assert verdicts("[step 1]: 'bad', [step 2]: 'good'", 2) == [(1, "bad"), (2, "good")]


@pytest.mark.parametrize(("critique", "steps"), [
    ("Steps 1-2: good. text", [1, 2]), ("Step 1-2: good. text", [1, 2]), ("**Step 1–3:** good. text", [1, 2, 3]),
    ("- Step 2 and 3 (search): good: text", [2, 3]), ("Good: Step 1-2: text", [1, 2]),
    ("Good: [step 1-2] text", [1, 2]), ("**Steps 1–3:** good. text", [1, 2, 3]),
    ("- Steps 2 to 4 (search): good: text", [2, 3, 4]), ("[step 1-3] good: text", [1, 2, 3]),
    ("[steps 1, 2] good: text", [1, 2]), ("[step 1, step 3] good: text", [1, 3]),
    ("[Steps 1, 3-4 and 6] good: text", [1, 3, 4, 6]), ("Good: [steps 1-2] text", [1, 2]),
    ("[steps 5-999999] good: text", [5, 6]), ("[steps 3-1] good: text", [3, 1]),
])  # fmt: skip
def test_a_verdict_on_several_steps_is_one_on_each(critique: str, steps: list[int]) -> None:
    assert parse_findings(critique, 6) == [Finding(step=k, verdict="good", text="text") for k in steps]


def test_a_part_about_several_steps_ends_the_part_before_it() -> None:
    critique = "[step 1] good: found it\n[steps 2-3] Correct the dates first.\nStep 9 of the plan\n[step 4] bad: stops"
    assert verdicts(critique, 4) == [(1, "good"), (2, "unclear"), (3, "unclear"), (4, "bad")]
    in_line = "[step 1] good: found it. [steps 2, 3] bad: repeats it"
    assert verdicts(in_line, 3) == [(1, "good"), (2, "bad"), (3, "bad")]
    assert parse_findings("Steps 1-3 are good.\nSteps 2 and 3 repeat it.", 3) == []
    assert parse_findings("Step 1-3 are good.\nStep 2, 3 searches later, is odd.", 3) == []
    assert len(parse_findings("[steps 1-999999] bad: x\n" * 3, 1000)) == 3 * SEVERAL


def test_steps_outside_the_run_are_left_out() -> None:
    assert parse_findings("[step 0] bad: a\n[step 1] good: b\n[step 3] bad: c\nStep 999999: Bad", 2) == [
        Finding(step=1, verdict="good", text="b")
    ]
    assert parse_findings(None, 3) == parse_findings("", 3) == []


def test_what_is_written_comes_back_and_unclear_is_not_passed_on() -> None:
    findings = [
        Finding(step=1, verdict="good", text='"Ada" is right: -5'),
        Finding(step=2, verdict="unclear", text="hm"),
        Finding(step=2, verdict="bad", text=""),
    ]
    assert format_findings(findings) == '[step 1] good: "Ada" is right: -5\n[step 2] unclear: hm\n[step 2] bad: '
    assert parse_findings(format_findings(findings), 2) == findings
    assert written_findings(format_findings(clear(findings)), 2) == clear(findings) == [findings[0], findings[2]]


def test_only_the_trained_form_counts_as_written() -> None:
    assert written_findings("[step 1] good: a\n[step 2] Good: b\nStep 3: bad: c", 3) == [
        Finding(step=1, verdict="good", text="a"),
        Finding(step=2, verdict="unclear", text="Good: b Step 3: bad: c"),
    ]


MARKS = ["[step ", "step ", "Step 2", "steps ", "-3", ", 2", " and 3", "\n", "**", "> ", "<b>", *"12[] :-|().#`"]
PIECES = st.sampled_from([*MARKS, "not ", "is ", "Verdict", "word", "é", "\u0130", "\ud800", *VERDICTS])


@given(st.lists(PIECES | st.text(max_size=3), max_size=30).map("".join), st.integers(0, 3))
def test_any_text_is_read_without_a_crash_and_steps_stay_in_the_run(critique: str, n_steps: int) -> None:
    findings = parse_findings(critique, n_steps)
    assert all(1 <= f.step <= n_steps and "\n" not in f.text for f in findings)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["good", "bad"]), st.text("ab [](step):-*é", max_size=12)))
)
def test_the_trained_form_is_read_as_it_always_was(rows: list[tuple[int, Verdict, str]]) -> None:
    findings = [Finding(step=k, verdict=v, text=" ".join(text.split())) for k, v, text in rows]
    critique = format_findings(findings)
    if critique.count("[step") == len(rows):
        assert verdicts(critique, 4) == [(f.step, f.verdict) for f in findings]
