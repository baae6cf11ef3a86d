"""Fixtures that tests share: of the table of benchmarks × methods (`table_setup`), and of records with many intervals."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from rrm.evaluation import bootstrap


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random policy; nobody writes into its folder."""
    from table_setup import make_policy

    return make_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def settings(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A table of one benchmark and two methods."""
    from table_setup import make_settings

    return make_settings(policy, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def drawn_once() -> Iterator[None]:
    """Nearly all the time of a record's figures goes into drawing 500 questions 10,000 times, for each of some sixty intervals the
    same. The figures themselves are made anew each time."""
    draw_counts = bootstrap.draw_counts
    draw = functools.cache(lambda *of: tuple(draw_counts(*of)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "draw_counts", lambda n_questions, n, seed: draw(n_questions, n, seed))
        yield
