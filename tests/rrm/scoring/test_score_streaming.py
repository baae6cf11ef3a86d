"""Rows are on disk as they end, from the first on; progress is heard of without a terminal; Ctrl-C says what is kept."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_judge import ChatJudge, rows_of, transcripts
from openai_server import Answer, completion, serve

from rrm.data import progress
from rrm.data.trajectory import Trajectory
from rrm.engines.openai import OpenAIEngine
from rrm.judge import local
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.run import score_file


def test_a_servers_rows_are_written_as_each_request_ends(tmp_path: Path) -> None:
    output, written = tmp_path / "out.jsonl", list[int]()

    def answer(n: int, body: dict[str, Any]) -> Answer:
        written.append(len(rows_of(output)))  # what a kill at this moment would leave
        return completion("<score>0.5</score>")

    with serve(answer) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m", concurrency=1), model="m")
        score_file(judge, transcripts(6), output, mode="score")
    assert written == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("mode", ["score", "full"])
def test_a_local_judges_rows_are_written_while_others_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    from reagent.lab.transcripts import make_transcripts

    rows = [t for t, _ in make_transcripts(5, seed=3)]
    judge = AgentRRM.from_pretrained("lab", device="cpu")
    whole = {f.id: f for f in judge.judge(rows, mode=mode)}
    monkeypatch.setattr(local, "SLICE_ROWS", 1)
    monkeypatch.setattr(local, "SLICE_SECONDS", 0.0)
    counters: Any = judge.engine.counters  # pyright: ignore[reportAttributeAccessIssue]
    heard: list[tuple[str, int]] = []
    found = judge.judge(
        rows, mode=mode, on_feedback=lambda f: heard.append((f.id, counters.prefilled + counters.decoded))
    )
    work = [done for _, done in heard]
    assert sorted(name for name, _ in heard) == sorted(t.id for t in rows)
    assert work == sorted(work) and work[0] < work[-1]  # the model went on after the first row was handed over
    for f in found:
        assert (f.trace, f.critique, f.status) == (whole[f.id].trace, whole[f.id].critique, whole[f.id].status)
        assert f.score == pytest.approx(whole[f.id].score, abs=1e-5)


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output = tmp_path / "out.jsonl"

    def interrupt(window: Sequence[Trajectory]) -> None:
        if window[0].id == "t4":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_file(ChatJudge(interrupt), transcripts(9), output, chunk_size=4)
    assert f"interrupted: 4 rows are kept in {output} (4 of this run); run the same command again" in caplog.text
    assert score_file(ChatJudge(), transcripts(9), output, chunk_size=4).resumed == 4


def test_progress_is_logged_where_there_is_no_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "rrm.data.progress")
    score_file(ChatJudge(), transcripts(3), tmp_path / "quick.jsonl", total=3)
    assert "judged" not in caplog.text  # a run of seconds says nothing
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.0)
    score_file(ChatJudge(), transcripts(3), tmp_path / "out.jsonl", total=3)
    lines = [r.getMessage() for r in caplog.records if r.name == "rrm.data.progress"]
    assert [line.partition(",")[0] for line in lines] == ["judged 1 of 3", "judged 2 of 3", "judged 3 of 3"]
    assert "left" in lines[0]
