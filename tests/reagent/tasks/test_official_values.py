r"""Our metrics held against what the benchmarks' official scripts gave for the same answers.

`official_values.json` has the pairs, which are our own, with the scripts' values, their names and commits; the scripts themselves are not
here. Where a metric departs from its script on purpose, the departure stands below with its reason, pair by pair: any other is a mistake.
HLE, WebWalkerQA and xbench are not held against theirs: a judge reads our prompt there and replies in our form, so no reply is
common to both. BFCL is graded by the package's own checker.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reagent.env.task import Task
from reagent.tasks.base import Benchmark
from reagent.tasks.boxed import boxed_equal
from reagent.tasks.gaia import Gaia
from reagent.tasks.gsm8k import GSM8K
from reagent.tasks.hotpotqa import HotpotQA
from reagent.tasks.math500 import Math500
from reagent.tasks.musique import MuSiQue
from reagent.tasks.wikimultihop import WikiMultihop
from rrm.data.text import squad_normalise

OFFICIAL: dict[str, Any] = json.loads(Path(__file__).with_name("official_values.json").read_text(encoding="utf-8"))
MULTIHOP: dict[str, type[Benchmark]] = {"hotpotqa": HotpotQA, "2wiki": WikiMultihop, "musique": MuSiQue}

# ---- where we depart -----------------------------------------------------------------------------------------------------

NOTHING_LEFT = {
    # normalisation leaves nothing of the reference: the scripts then take every answer that nothing is left of for it, the empty
    # one too (F1 0 for the right one with HotpotQA's and 2Wiki's, 1 for the wrong ones with MuSiQue's). It is compared as it is.
    ("A", "A"): (1.0, 1.0),
    ("A", "a."): (1.0, 1.0),
    ("A", "B"): (0.0, 0.0),
    ("A", ""): (0.0, 0.0),
    ("A", "the"): (0.0, 0.0),
    ("The", "The"): (1.0, 1.0),
    ("The", "a"): (0.0, 0.0),
    ("+", "+"): (1.0, 1.0),
    ("+", "-"): (0.0, 0.0),
    ("+", "plus"): (0.0, 0.0),
    ("an A", "a"): (0.0, 2 / 3),
    ("Oltava|A", "a"): (1.0, 1.0),
    ("Oltava|A", ""): (0.0, 0.0),
}
GAIA = {
    # the scorer reads what is no number as infinity, which then equals a reference of that name
    ("infinity", "no number"): 0.0,
    ("inf, 3", "x, 3"): 0.0,
    # the scorer compares without punctuation: a reference of nothing else equals all of its kind, and the empty answer
    ("(+)", ""): 0.0,
    ("(+)", "(-)"): 0.0,
    ("!", "?"): 0.0,
}
GSM8K_MARKED = {
    # behind the mark the script compares texts, we compare values
    ("1250", "#### 1250.00"): 1.0,
    ("1250", "#### 1250."): 1.0,
    ("1250", "#### 1,250."): 1.0,
    ("0.5", "#### .5"): 1.0,
    ("0.5", "#### 0.50"): 1.0,
    ("5", "#### 05"): 1.0,
}
GSM8K_UNMARKED = {
    # agents are told to answer with the number alone, not to write the mark: the script takes no such answer, we take the last number
    ("1250", "####1250"): 1.0,
    ("1250", "#### $1250"): 1.0,
    ("1250", "#### so 1250"): 1.0,
    ("1250", "1250"): 1.0,
    ("1250", "The answer is 1250."): 1.0,
    ("1250", "$1,250.00 in all"): 1.0,
    ("1250", "1250%"): 1.0,
    ("-5", "−5"): 1.0,
}
MATH = {
    # a box of another form, or none
    ("2", r"\fbox{2}"), ("2", "2"), ("2", r"\boxed 2"), ("2", r"\boxed{{2}}"), ("2", r"\boxed{$2$}"), ("4", r"\boxed{xyz=4}"),
    # a number written otherwise, or with a unit that the script does not know
    ("2", r"\boxed{2.0}"), ("73", r"\boxed{073}"), ("1000", r"\boxed{1,000}"), ("10080", r"\boxed{10{,}080}"), ("10080", r"\boxed{10,\!080}"),
    ("5", r"\boxed{5\mbox{ cm}}"), ("5", r"\boxed{5\text{cm}}"), ("5", r"\boxed{5 cm}"),
    # the same value
    (r"\frac{1}{2}", r"\boxed{\frac{2}{4}}"), (r"\frac{1}{4}", r"\boxed{0.25}"), (r"3\sqrt{2}", r"\boxed{\sqrt{18}}"), ("6", r"\boxed{2+4}"),
    (r"1\frac{1}{2}", r"\boxed{\frac{3}{2}}"), ("1.5", r"\boxed{\frac{3}{2}}"), ("2^{10}", r"\boxed{1024}"), ("x^2+2x+1", r"\boxed{(x+1)^2}"),
    ("x+1", r"\boxed{1+x}"), (r"x \le 3", r"\boxed{x\leq 3}"),
    # a set in another order
    ("1,2", r"\boxed{2,1}"), (r"\{1,2\}", r"\boxed{\{2,1\}}"),
    # a text without its command, its brackets or its case
    (r"\text{(C)}", r"\boxed{C}"), (r"\text{Ana}", r"\boxed{Ana}"), (r"\text{Ana}", r"\boxed{\text{ana}}"),
}  # fmt: skip
"""Taken by math-verify, and not by `is_equiv`, which compares texts; no answer that it takes is refused."""


# ---- the values ----------------------------------------------------------------------------------------------------------


def test_the_scripts_are_named() -> None:
    assert {*OFFICIAL} == {"scripts", "words", "gaia", "gsm8k", "math"}
    assert {*OFFICIAL["scripts"]} == {*MULTIHOP, "gaia", "gsm8k", "math"}
    assert all(len(script["commit"]) == 40 and "/" in script["repository"] for script in OFFICIAL["scripts"].values())
    for pairs in ("gaia", "gsm8k", "math"):
        named = [(row["reference"], row["answer"]) for row in OFFICIAL[pairs]]
        assert len(set(named)) == len(named) >= 35


@pytest.mark.parametrize("name", MULTIHOP)
def test_exact_match_and_f1(name: str) -> None:
    """HotpotQA has one reference a question; of several the first is its."""
    metrics, departed = MULTIHOP[name].metrics, set[tuple[str, str]]()
    for row in OFFICIAL["words"]:
        references = row["references"][:1] if name == "hotpotqa" else row["references"]
        task = Task("t", "?", references[0], meta={"aliases": references[1:]})
        answer, pair = row["answer"], ("|".join(references), row["answer"])
        expected = row[name]
        if not all(map(squad_normalise, references)):
            departed.add(pair)
            expected = NOTHING_LEFT[pair]
        ours = metrics["exact_match"](task, answer), metrics["f1"](task, answer)
        assert ours == (expected[0], pytest.approx(expected[1])), pair
    assert departed == {pair for pair in NOTHING_LEFT if name != "hotpotqa" or "|" not in pair[0]}


def check(pairs: str, grade: Callable[[Task, str], float], departures: dict[tuple[str, str], float]) -> None:
    """Each pair as the script has it, but for the departures, each of which is one."""
    official = {(row["reference"], row["answer"]): row["value"] for row in OFFICIAL[pairs]}
    assert all(official[pair] != ours for pair, ours in departures.items())
    grades = {(reference, answer): grade(Task("t", "?", reference), answer) for reference, answer in official}
    assert grades == official | departures


def test_gaia() -> None:
    check("gaia", Gaia.grader, GAIA)


def test_gsm8k() -> None:
    check("gsm8k", GSM8K.grader, GSM8K_MARKED | GSM8K_UNMARKED)


def test_math() -> None:
    pytest.importorskip("math_verify", reason="math-verify (the extra `tasks`) is not installed")
    assert Math500.grader is boxed_equal
    check("math", boxed_equal, dict.fromkeys(MATH, 1.0))
