"""A run's judge over HTTP that goes away: judgements are failures on record, and those that were made are kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
sys.path.append(str(Path(__file__).parents[2] / "rrm" / "serve"))  # cut_server

from cut_server import cutting, refused, whole

from reagent.feedback.judging import Judging, JudgingReport
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import untrained
from rrm.serve.address import ServerAddress
from rrm.serve.client import RemoteJudge


def runs(*texts: str) -> list[Trajectory]:
    messages = [[{"role": "user", "content": "Do it."}, {"role": "assistant", "content": text}] for text in texts]
    return [
        Trajectory.model_validate({"id": f"e{n}", "task": "Do it.", "messages": said})
        for n, said in enumerate(messages)
    ]


def test_judgements_are_kept_where_the_server_goes_right_after_them(tmp_path: Path) -> None:
    report, record = JudgingReport(), tmp_path / "judgements.jsonl"
    with cutting([whole, refused(500)]) as server:  # nothing but rows is had of it
        judging = Judging(RemoteJudge(ServerAddress(server.url, patience_s=0.3)), seed=0, record=record)
        rows = judging.ask(runs("one", "two"), "score", 0, report)
    assert [row.score for row in rows] == [0.5, 0.5] and len(record.read_text().splitlines()) == 2
    assert [path for path, _ in server.asked] == ["/v1/score"]
    assert report.counts["asked"] == 2 and report.counts["judge_tokens"] >= 2


@pytest.mark.parametrize("ranks", [False, True])
def test_a_server_that_is_gone_costs_judgements_and_not_the_run(tmp_path: Path, ranks: bool) -> None:
    report, record = JudgingReport(), tmp_path / "judgements.jsonl"
    with cutting([]) as server:
        judge = RemoteJudge(ServerAddress(server.url, patience_s=0.3))
    judging = Judging(judge, seed=0, record=record)
    if ranks:
        judge.settings = untrained(None)  # a chat model's
        (rows,) = judging.rank([runs("one", "two")], 0, report)
    else:
        rows = judging.ask(runs("one", "two"), "score", 0, report)
    assert [row.status for row in rows] == ["judge_error"] * 2 and len(record.read_text().splitlines()) == 2
    assert report.counts["failed_judge_error"] == 2 and not judging.known  # asked again the next time
