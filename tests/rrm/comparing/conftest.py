"""A browser for the tests of pages that people answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.speed.devtools import Chromium, find_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if find_chromium() is None:
        pytest.skip("no chromium on this machine")
    with Chromium() as page:
        yield page
