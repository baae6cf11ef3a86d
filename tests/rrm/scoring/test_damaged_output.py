"""A run that goes on with an output: rows that cannot be right are refused, and rows of no input are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_judge import ChatJudge, rows_of, transcripts

from rrm.errors import RRMError
from rrm.scoring.run import score_file
from rrm.scoring.sharding import merge


@pytest.mark.parametrize(
    ("field", "value"),
    [("score", 7.5), ("score", -0.1), ("score", float("nan")), ("raw_score", 2), ("coverage", 1.5), ("score", "0.5"), ("status", "scord")],
)  # fmt: skip
def test_a_damaged_row_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    """A row whose score was 7.5 was taken for judged."""
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(), transcripts(3), output)
    found = rows_of(output)
    found[1][field] = value
    output.write_text("".join(json.dumps(row) + "\n" for row in found))
    before = output.read_bytes()
    with pytest.raises(RRMError, match=rf"out\.jsonl:2: not a row of `rrm score` \(its {field} is .*--overwrite"):
        score_file(ChatJudge(), transcripts(4), output)
    with pytest.raises(RRMError, match=r"out\.jsonl:2: not a row of `rrm score`"):
        merge([output], tmp_path / "merged.jsonl")
    assert output.read_bytes() == before


def test_rows_of_no_input_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They stayed, and nothing said that they were of transcripts which are no longer there."""
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(), transcripts(5), output)
    summary = score_file(ChatJudge(), transcripts(7)[2:], output)
    assert (summary.judged, summary.resumed) == (2, 3)
    assert (
        "2 rows are of transcripts that are no longer in the input; they stay, behind the others: t0, t1" in caplog.text
    )
    assert [row["id"] for row in rows_of(output)] == ["t2", "t3", "t4", "t5", "t6", "t0", "t1"]
    caplog.clear()
    score_file(ChatJudge(), transcripts(7), output)
    assert "no longer" not in caplog.text
