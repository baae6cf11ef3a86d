"""Old dotted names, as users wrote them into configs and code, still find their modules (`rrm.moved`)."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import reagent
from rrm.moved import GONE, MOVED


def test_every_old_name_has_a_module_of_this_version_and_none_of_its_own() -> None:
    assert reagent.__doc__ and len(MOVED) > 120
    for old, new in MOVED.items():
        assert importlib.util.find_spec(new), new
        assert new not in MOVED, f"{old} is sent on twice"


@pytest.mark.parametrize(
    "old", ["rrm.trajectory", "rrm.models.hub", "rrm.writers", "rrm.writers.atif", "reagent.lab.drills"]
)
def test_an_old_name_is_the_new_module_and_says_where_it_is(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is {MOVED[old]} now"):
        found = importlib.import_module(old)
    assert found is importlib.import_module(MOVED[old])
    assert found.__spec__ is not None and found.__spec__.name == MOVED[old]


@pytest.mark.parametrize("old", GONE)
def test_a_module_that_is_gone_names_what_replaces_it(old: str) -> None:
    with pytest.raises(ImportError, match=re.escape(f"{old} is {GONE[old]} now")):
        importlib.import_module(old)
    assert (Path(__file__).parents[1] / GONE[old]).is_file()


def test_a_metric_that_is_gone_names_what_replaces_it() -> None:
    with pytest.raises(ImportError, match=r"PairAccuracy is gone: examples/evaluate_metric\.py"):
        from rrm.evaluation.metrics import PairAccuracy  # noqa: F401  # pyright: ignore[reportAttributeAccessIssue]


def test_a_name_that_nothing_had_is_no_module() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("rrm.nothing_of_the_kind")
