"""Fixtures of the table of benchmarks × methods (`table_setup`)."""

from __future__ import annotations

from pathlib import Path

import pytest


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
