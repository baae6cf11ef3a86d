"""Fixtures shared by both packages' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public transcripts beside the checkout; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("public transcripts (../shared/data) are not on this machine")
    return SHARED
