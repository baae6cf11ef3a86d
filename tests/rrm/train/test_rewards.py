"""Rewards of stage 2, computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rrm.data.annotation import Finding
from rrm.train.rewards import MINIMUM, PARTS, Label, ParsedReply, agreement, anchoring, leakage, read_reply, rewards

FULL = "<think>it searched</think><critique>[step 1] bad: wrong query</critique><score>0.3</score>"


def bad(step: int) -> Finding:
    return Finding(step=step, verdict="bad", text="x")


def good(step: int) -> Finding:
    return Finding(step=step, verdict="good", text="x")


def test_a_reply_of_the_form_is_read() -> None:
    assert read_reply(FULL, "full") == ParsedReply("it searched", "[step 1] bad: wrong query", 0.3)
    spaced = "<think>a\nb</think>\n<critique> c </critique>\n<score>1.0</score>\n"
    assert read_reply(spaced, "full") == ParsedReply("a\nb", "c", 1.0)
    assert read_reply("<critique>c</critique><score>0.0</score>", "critique") == ParsedReply("", "c", 0.0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<think>",
        FULL.replace("</think>", ""),
        FULL.replace("<critique>", ""),
        FULL.replace("it searched", " \n"),  # an empty block says nothing
        FULL.replace("[step 1] bad: wrong query", " "),
        FULL.replace("0.3", "0.35"),  # off the grid
        FULL.replace("0.3", "1.1"),
        FULL.replace("0.3", "-0.3"),
        FULL.replace("0.3", "nan"),
        FULL.replace("0.3", "3/10"),
        FULL + FULL,
        FULL + "<score>0.9</score>",
        FULL + " and more",
        "so: " + FULL,
        FULL.replace("it searched", "it wrote <score>1.0</score>"),  # blocks inside blocks
        "<critique>c</critique><think>a</think><score>0.3</score>",
    ],
)
def test_any_other_reply_is_malformed(text: str) -> None:
    assert read_reply(text, "full") is None


def test_a_reply_cut_off_or_of_another_mode_is_malformed() -> None:
    assert read_reply(FULL, "full", ended=False) is None
    assert read_reply(FULL, "critique") is None
    assert read_reply(FULL.removeprefix("<think>it searched</think>"), "full") is None


def test_agreement_is_one_minus_the_squared_error() -> None:
    assert agreement(0.7, 0.7) == 1.0
    assert agreement(0.2, 0.7) == pytest.approx(0.75)
    assert agreement(1.0, 0.0) == 0.0
    # a proper score: with y = 1 six times in ten, 0.6 beats its neighbours on the grid and the confident 1.0
    expected = {s: 0.6 * agreement(s, 1.0) + 0.4 * agreement(s, 0.0) for s in (0.5, 0.6, 0.7, 1.0)}
    assert max(expected, key=lambda s: expected[s]) == 0.6


@pytest.mark.parametrize(
    ("critique", "share"),
    [
        ("[step 1] good: a\n[step 2] bad: b\n[step 3] bad: c", 3 / 3),
        ("[step 1] good: a\n[step 2] good: b\n[step 3] bad: c", 2 / 3),  # one verdict wrong
        ("[step 2] bad: b", 1 / 3),  # two labelled steps left out
        ("[step 2] b", 0 / 3),  # an anchor without a verdict is none
        ("[step 1] good: a\n[step 1] good: again\n[step 2] bad: b\n[step 3] bad: c", 2 / 4),  # a repeat
        ("[step 1] good: a\n[step 2] bad: b\n[step 3] bad: c\n[step 9] bad: d", 3 / 4),  # no such step
        ("[step 0] bad: z\n[step 2] bad: b", 1 / 4),
        ("[step 1] good:\n[step 2] bad: b\n[step 3] bad: c", 2 / 3),  # it says nothing
        ("[step 1] good: a\n[step 2] bad: b\n[step 3] bad: c\n[step 4] good: d", 3 / 3),  # step 4 has no label
        ("all of it is bad", 0.0),
    ],
)
def test_anchoring_counts_right_verdicts_and_faults(critique: str, share: float) -> None:
    assert anchoring(critique, 4, [good(1), bad(2), bad(3)]) == pytest.approx(share)


def test_several_findings_on_a_step_count_by_majority_and_ties_are_bad() -> None:
    assert anchoring("[step 1] bad: a", 2, [good(1), bad(1)]) == 1.0
    assert anchoring("[step 1] good: a", 2, [good(1), bad(1), good(1)]) == 1.0


@pytest.mark.parametrize(
    ("critique", "share"),
    [
        ("[step 1] good: a\n[step 2] bad: b", 1.0),
        ("[step 1] good: a\n[step 7] bad: b", 1 / 2),
        ("[step 1] good: a\n[step 1] bad: b\n[step 2] bad: c", 1 / 3),
        ("[step 1] good:", 0.0),
        ("[step 1] a\n[step 2] bad: b", 1 / 2),
        ("[step 1] Good: a\nStep 2: bad: b", 0.0),
        ("nothing is anchored", 0.0),
    ],
)
def test_without_findings_anchoring_is_the_share_of_sound_anchors(critique: str, share: float) -> None:
    assert anchoring(critique, 2, []) == pytest.approx(share)


def test_naming_the_answer_costs_one_unless_the_transcript_has_it() -> None:
    reply = ParsedReply("it should have said Marie Curie", "[step 1] bad: a", 0.1)
    assert leakage(reply, ["Marie Curie"], "who found radium") == -1.0
    assert (
        leakage(
            ParsedReply("a", "[step 1] bad: say marie curie!", 0.1), ["M. Curie", "Marie Curie"], "who found radium"
        )
        == -1.0
    )
    assert leakage(reply, ["Marie Curie"], "who found radium marie curie") == 0.0
    assert leakage(reply, ["Pierre"], "who found radium") == 0.0
    assert leakage(reply, [], "") == 0.0


def test_a_malformed_reply_gets_the_minimum_of_every_part() -> None:
    label = Label(target=0.0, n_steps=2, findings=[bad(1)], references=["Paris"], transcript="which town")
    assert rewards(None, label) == {"agreement": 0.0, "format": 0.0, "anchor": 0.0, "leak": -1.0} == MINIMUM
    worst = ParsedReply("Paris", "[step 1] good: a", 1.0)  # as wrong as a well-formed reply can be
    assert rewards(worst, label) == {"agreement": 0.0, "format": 1.0, "anchor": 0.0, "leak": -1.0}
    best = ParsedReply("a", "[step 1] bad: a", 0.0)
    assert rewards(best, label) == {"agreement": 1.0, "format": 1.0, "anchor": 1.0, "leak": 0.0}


@given(
    text=st.text(alphabet="<>/thinkcrqueso 0.1[step]:badgo\n", max_size=200) | st.just(FULL),
    target=st.floats(0, 1),
    n_steps=st.integers(0, 5),
    steps=st.lists(st.integers(1, 9), max_size=6),
)
def test_every_part_stays_in_its_range(text: str, target: float, n_steps: int, steps: list[int]) -> None:
    label = Label(target, n_steps, [bad(s) for s in steps], "wrong query", "which town")
    amounts = rewards(read_reply("<think>" + text, "full"), label)
    assert tuple(amounts) == PARTS
    for name, value in amounts.items():
        assert MINIMUM[name] <= value <= MINIMUM[name] + 1.0
    assert MINIMUM["anchor"] <= anchoring(text, n_steps, label.findings) <= 1.0
