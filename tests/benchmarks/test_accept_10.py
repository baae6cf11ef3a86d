"""The guard's bars: its record as measured, and doctored ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks import accept_10, guard, guard_figures, record
from benchmarks.acceptance import Bar
from benchmarks.guard_ways import Run

COMMIT = (record.commit() or "0" * 12).rstrip("+")


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Few draws, and what the same rows say is made once."""
    kept: dict[str, dict[str, Any]] = {}
    measured = guard_figures.measured

    def once(runs: Sequence[Run], seed: int) -> dict[str, Any]:
        key = json.dumps([vars(run) for run in runs])
        if key not in kept:
            kept[key] = measured(runs, seed)
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        for name, few in (("DRAWS", 2), ("OTHER_FOLDS", 1), ("RESAMPLES", 100)):
            patch.setattr(guard_figures, name, few)
        patch.setattr(guard_figures, "measured", once)
        yield


@pytest.fixture(scope="module")
def made(small: None) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    runs = [
        Run(str(k), f"s{k % 2}", str(k), k % 3 == 0, [10] * 4, rng.random(4).tolist(), [0.5] * 4, [5] * 4, [0.1] * 4)
        for k in range(30)
    ]
    found = {**guard.counts(runs), **guard_figures.measured(runs, 0)}
    how = {"command": "c", "commit": COMMIT, "environment": {"python": "3"}, "draw": {"seed": 0}}
    return {**how, "computed": {"commit": COMMIT}, **found, "rows": [vars(run) for run in runs]}


def bars(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None) -> list[Bar]:
    monkeypatch.setattr(accept_10, "load", {"guard": found}.get)
    return list(accept_10.guard_bars())


def test_a_record_that_says_what_its_rows_say_passes(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> None:
    found = bars(monkeypatch, made)
    assert {bar.ok for bar in found} == {True, None} and any("other runs of each source" in bar.what for bar in found)
    (nothing,) = bars(monkeypatch, None)
    assert nothing.ok is False


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("primary", "value"), 0.9, "primary"),
        (("cross_fitted", "guard", "failing_tokens_saved", "low"), 0.9, "cross_fitted"),
        (("shuffled", "share_that_saves_as_much"), 0.7, "shuffled"),
        (("by_source", "s0", "good"), 1, "by_source"),
        (("net", "judge_tokens"), 1, "net"),
        (("curves", "guard"), [], "no curve of guard"),
        (("curves",), {}, "no curve of guard, turns, random"),
        (("rows", 1, "good"), True, "good"),
        (("rows",), [], "rows"),
        (("good",), 29, "good"),
        (("computed", "commit"), "abc+", "made by files that no commit has"),
        (("computed",), {}, "no commit"),
        (("commit",), None, "commit"),
    ],
)
def test_a_doctored_record_is_refused(
    monkeypatch: pytest.MonkeyPatch, made: dict[str, Any], place: tuple[Any, ...], value: Any, said: str
) -> None:
    found = copy.deepcopy(made)
    inner: Any = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert any(bar.ok is False and said in bar.measured for bar in bars(monkeypatch, found))
