"""What in the record of a study does not follow from its raw rows, or was made with other options than the study's.

Each `Anew` takes a record and lists what is wrong with it. Studies are imported inside functions: they load what trains models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Found = Mapping[str, Any]


class Anew:
    """What does not follow from a record's raw rows, as a list of words; it can take minutes."""

    anew = True

    def __init__(self, wrong: Callable[[Found], Iterator[str]]) -> None:
        self.wrong = wrong

    def __call__(self, found: Found) -> list[str]:
        return list(self.wrong(found))


@Anew
def shipped(found: Found) -> Iterator[str]:
    """Of a record of the judge that ships: another judge's hash."""
    from rrm.judge.agent_rrm import AgentRRM

    if (judge := found["judge"]["model_hash"]) != AgentRRM.from_pretrained().model_hash:
        yield f"of judge {judge}"


def same(one: Any, other: Any) -> bool:
    """Whether two figures are equal but for rounding."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return one == other


@Anew
def no_answer_key(found: Found) -> Iterator[str]:
    """Of the study without an answer key, also of arms whose options are gone."""
    from benchmarks.studies.no_answer_key import Study
    from benchmarks.studies.no_answer_key_arms import JUDGE, KNOWN, TRAINED
    from benchmarks.studies.no_answer_key_figures import arm_of, derived

    study = Study.anywhere()
    yield from ["overrides"] * bool(found["overrides"]) + ["another judge"] * (found["judge"] != JUDGE)
    for name, made in found.get("judges", {}).items():
        options = [option.replace("sft.short_first=", "sft.short_first_share=") for option in made.get("options", ())]
        if name not in TRAINED or options != study.options_of_judge(name):
            yield f"the judge {name}"
    for name, arm in found["arms"].items():
        runs, known = arm["runs"], KNOWN.get(name)
        if not runs:
            yield f"no runs of {name}"
        if known and [run["seed"] for run in runs] != [known.seed(n) for n in range(len(runs))]:
            yield f"seeds of {name}"
        if known and any(run["options"] != study.options(name, n) for n, run in enumerate(runs)):
            yield f"options of {name}"
        digits = [one["success"] for run in runs for one in run["evaluations"]]
        if any(len(one) != 200 or set(one) - {"0", "1"} for one in digits):
            yield f"an evaluation of {name} that is not of 200 tasks"
    for name, arm in found["arms"].items():
        if not all(same(value, arm.get(key)) for key, value in arm_of(name, arm["runs"], found["starts"]).items()):
            yield f"figures of {name}"
    yield from (key for key, made in derived(found).items() if not same(made, found.get(key)))


@Anew
def integrations(found: Found) -> Iterator[str]:
    """Of the adapters: differences follow from the scores of all transcripts."""
    from benchmarks.integrations import apart

    for name, one in found["ways"].items():
        for part, key in (("alone", "apart"), ("at_once", "apart_at_once")):
            direct, through = found["scores"]["judge"][part], found["scores"].get(name, {}).get(part, {})
            if len(direct) != found["transcripts"] or apart(direct, through) != one[key]:
                yield f"{name} {part}"
