"""docs/results.md says what benchmarks/results says."""

from __future__ import annotations

import pytest

from benchmarks.tables import PAGE, filled


def test_the_page_of_results_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run python -m benchmarks.tables"


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(SystemExit, match="nonsense"):
        filled("<!-- table: nonsense -->\n<!-- end -->")
