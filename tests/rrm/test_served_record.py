"""What `python -m benchmarks.served` records of a server: how every row ended."""

from __future__ import annotations

from pathlib import Path

from openai_server import completion, serve

from benchmarks import served
from rrm.feedback import Feedback, JudgeInfo
from rrm.trajectory import write_jsonl

JUDGE = JudgeInfo(model="m", prompt_version="2", mode="score", score_source="expected")


def test_a_command_over_a_server_is_counted_by_how_its_rows_ended(tmp_path: Path) -> None:
    rows = served.transcripts(3, 0)
    assert len({t.question_id for t in rows}) < 3 and all(t.outcome is not None for t in rows)
    write_jsonl(tmp_path / "in.jsonl", rows)
    whole = "<think>t</think><critique>[step 1] good: ok</critique><score>0.5</score>"
    with serve(lambda n, body: completion(whole if n else "I cannot say.")) as server:
        found = served.run("full", f"openai:{server.url}#m", tmp_path / "in.jsonl", tmp_path)
    assert found["command"] == "rrm score --mode full" and (found["exit"], found["rows"]) == (0, 3)
    assert found["statuses"] == {"unparsable": 1, "scored": 2} and len(found["reasons"]) == 1


def test_scores_stand_row_by_row() -> None:
    local = [Feedback(id=i, status="scored", score=0.25, raw_score=0.5, judge=JUDGE) for i in "ab"]
    other = [local[0], Feedback(id="b", status="unparsable", judge=JUDGE.model_copy(update={"score_source": None}))]
    assert served.compared(local, other) == {
        "local": [0.25, 0.25],
        "served": [0.25, None],
        "score_source": {"expected": 1, "None": 1},
        "statuses": {"scored": 1, "unparsable": 1},
    }
