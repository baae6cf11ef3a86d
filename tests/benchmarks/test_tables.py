"""docs/results.md says what benchmarks/results says."""

from __future__ import annotations

import pytest

from benchmarks import tables
from benchmarks.tables import PAGE, filled, part


def test_the_page_of_results_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run python -m benchmarks.tables"


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(SystemExit, match="nonsense"):
        filled("<!-- table: nonsense -->\n<!-- end -->")


def test_cells_that_failed_or_were_not_judged_have_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"value": 0.5, "low": 0.4, "high": 0.6}
    figures = {"exact_match": known, "f1": known, "policy_tokens": 12.0}
    judged = figures | {"judge": {"mean": known, "auroc": {"value": None, "low": None, "high": None}}}
    rows = [
        {"task": "hotpotqa", "label": "react", "failure": {"kind": "NoFile"}},
        {"task": "hotpotqa", "label": "direct", "figures": figures | {"judge": None}},
        {"task": "hotpotqa", "label": "tool_call", "figures": judged},
    ]
    monkeypatch.setattr(tables, "needed", lambda name: {"rows": rows})
    failed, unjudged, whole = tables.agent_table().splitlines()[2:]
    assert failed == "| hotpotqa | `react` | NoFile | – | – | – | – |"
    assert unjudged.endswith("0.500 [0.400, 0.600] | – | – | 12 |")
    assert whole.endswith("0.500 [0.400, 0.600] | 0.500 [0.400, 0.600] | – | 12 |")


def test_a_part_of_a_table_has_the_rows_and_columns_that_it_is_told() -> None:
    whole = "| arm |  | seeds |\n| --- | --- | --- |\n| a | 1 | 5 |\n| b |  | 6 |"
    assert part(whole) == whole
    assert part(whole, rows=("b",), columns=(0, 2)) == "| arm | seeds |\n| --- | --- |\n| b | 6 |"
    with pytest.raises(SystemExit, match="no rows c"):
        part(whole, rows=("c",))
