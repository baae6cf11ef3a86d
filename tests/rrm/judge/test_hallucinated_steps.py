"""Steps that the run does not have: cut from critique and trace, nothing else touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrm.data.verdicts import anchors, named_steps, read_findings
from rrm.judge.hallucinated_steps import cut_from_critique, cut_from_trace, cut_notice


@pytest.mark.parametrize(
    ("critique", "remaining", "gone"),
    [
        ("[step 1] good: a\n[step 2] bad: b", "[step 1] good: a\n[step 2] bad: b", set()),
        ("[step 1] good: a\n[step 3] bad: b\n[step 2] good: c", "[step 1] good: a\n[step 2] good: c", {3}),
        ("In short:\n[step 3] bad: b\n  because of d\nOverall poor.", "In short:\nOverall poor.", {3}),
        ("[step 1] bad: a. [step 9] good: b", "[step 1] bad: a.", {9}),
        ("**Step 1**: good\n- **Step 0**: bad\n- **Step 7**: bad", "**Step 1**: good", {0, 7}),
        ("Steps 2-5: good\nSteps 3-5: bad", "Steps 2-5: good", {3, 5}),
        ("[step 1] good: as [step 9] would have been", "[step 1] good: as [step 9] would have been", set()),
        ("[step 4] good: all of it", "", {4}),
        ("Step 2 - bad\n[step 3] bad: b\nand so on\n[step 1] good: a", "Step 2 - bad\n[step 1] good: a", {3}),
        ("no steps named, step 5 aside", "no steps named, step 5 aside", set()),
    ],
)
def test_critique(critique: str, remaining: str, gone: set[int]) -> None:
    assert cut_from_critique(critique, 2) == (remaining, gone)


def test_trace_loses_its_lines_and_keeps_its_thoughts() -> None:
    trace = "[step 1] calls f\n[step 2] answers\n[step 3] repeats\n[step 4] repeats"
    assert cut_from_trace(trace, 2) == ("[step 1] calls f\n[step 2] answers", {3, 4})
    thought = "Step 1: read the task.\nStep 9: conclude; the agent at [step 7] is a mystery."
    assert cut_from_trace(thought, 2) == (thought, set())


@given(
    st.lists(
        st.sampled_from(["[step 1] good: a", "[step 3] bad: b", "Step 7: good", "Step 2 - bad", "and so on", "  x"])
    ),
    st.sampled_from([" ", "\n", "\n\n", ". "]),
)
def test_nothing_of_another_step_is_left_and_no_finding_is_lost(parts: list[str], between: str) -> None:
    critique = between.join(parts)
    remaining, gone = cut_from_critique(critique, 2)
    assert all(named_steps(listed, 2) for _, listed in anchors(remaining))
    assert gone or remaining == critique
    left = iter([f.step for f in read_findings(remaining, 2)])
    assert all(f.step in left for f in read_findings(critique, 2))  # in their order; fewer anchors may uncover more


def test_the_row_says_which() -> None:
    assert cut_notice(set()) is None
    assert str(cut_notice({9, 3, 4, 5, 6, 7})).endswith(": 3, 4, 5, 6, 7, …")
