"""docs/results.md says what benchmarks/results says."""

from __future__ import annotations

import pytest

from benchmarks.tables import PAGE, filled, part


def test_the_page_of_results_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run python -m benchmarks.tables"


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(SystemExit, match="nonsense"):
        filled("<!-- table: nonsense -->\n<!-- end -->")


def test_a_part_of_a_table_has_the_rows_and_columns_that_it_is_told() -> None:
    whole = "| arm |  | seeds |\n| --- | --- | --- |\n| a | 1 | 5 |\n| b |  | 6 |"
    assert part(whole) == whole
    assert part(whole, rows=("b",), columns=(0, 2)) == "| arm | seeds |\n| --- | --- |\n| b | 6 |"
    with pytest.raises(SystemExit, match="no rows c"):
        part(whole, rows=("c",))
