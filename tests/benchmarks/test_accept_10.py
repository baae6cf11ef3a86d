"""The guard's bars: its record as measured, and ones that lack something."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from benchmarks import accept_10, guard, guard_figures, record
from benchmarks.acceptance import Bar
from benchmarks.guard_ways import Run

COMMIT = (record.commit() or "0" * 12).rstrip("+")


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    """A record of few draws."""
    rng = np.random.default_rng(0)
    runs = [
        Run(str(k), f"s{k % 2}", str(k), k % 3 == 0, [10] * 4, rng.random(4).tolist(), [0.5] * 4, [5] * 4, [0.1] * 4)
        for k in range(30)
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name, few in (("DRAWS", 2), ("OTHER_FOLDS", 1), ("RESAMPLES", 100)):
            patch.setattr(guard_figures, name, few)
        found = {**guard.counts(runs), **guard_figures.measured(runs, 0)}
    return {"command": "c", "commit": COMMIT, "environment": {"python": "3"}, "draw": {"seed": 0}, **found}


def bars(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any] | None) -> list[Bar]:
    monkeypatch.setattr(accept_10, "load", {"guard": found}.get)
    return list(accept_10.guard_bars())


def test_a_record_as_measured_passes(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> None:
    found = bars(monkeypatch, made)
    assert {bar.ok for bar in found} == {True, None} and any("other runs of each source" in bar.what for bar in found)
    (nothing,) = bars(monkeypatch, None)
    assert nothing.ok is False


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("cross_fitted",), {}, "no guard, turns, random"),
        (("cross_fitted",), {"guard": {}, "random": {}}, "no turns"),
        (("environment",), {}, "no environment"),
        (("commit",), "abc+", "made by files that no commit has"),
        (("commit",), None, "no commit"),
    ],
)
def test_a_record_that_lacks_something_is_missed(
    monkeypatch: pytest.MonkeyPatch, made: dict[str, Any], place: tuple[Any, ...], value: Any, said: str
) -> None:
    found = copy.deepcopy(made)
    inner: Any = found
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert any(bar.ok is False and said in bar.measured for bar in bars(monkeypatch, found))
