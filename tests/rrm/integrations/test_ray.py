"""Scoring as a Ray Data job (docs/scale.md): two workers = `rrm score`, row for row; run again, it judges what is new."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ray = pytest.importorskip("ray", reason="ray (extra `ray`) is not installed")
pytest.importorskip("ray.data")

from reagent.lab.transcripts import make_transcripts  # noqa: E402
from rrm.data.trajectory import write_jsonl  # noqa: E402
from rrm.integrations.ray import JudgeRuns, collect, read_runs, stored_rows, unjudged  # noqa: E402
from rrm.judge.agent_rrm import AgentRRM  # noqa: E402
from rrm.scoring.run import score_file  # noqa: E402


def job(paths: list[Path], folder: Path) -> None:
    runs = ray.data.from_items([{"path": str(path)} for path in paths]).flat_map(read_runs)
    judge = {"judge": "lab", "mode": "score"}
    rows = unjudged(runs.repartition(target_num_rows_per_block=8), folder).map_batches(
        JudgeRuns, fn_constructor_kwargs=judge, compute=ray.data.ActorPoolStrategy(size=2), batch_size=8
    )
    rows.write_json(str(folder))


def test_two_workers_write_the_rows_of_one_and_a_second_job_judges_what_is_new(tmp_path: Path) -> None:
    transcripts = [run for run, _ in make_transcripts(40, seed=1)]
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, rows in zip(paths, (transcripts[:20], transcripts[20:]), strict=True):
        write_jsonl(path, rows)
    with open(paths[1], "a") as file:
        file.write('{"id": "broken", "messages": 3}\n')
    folder = tmp_path / "out"
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        job(paths[:1], folder)
        first = list(stored_rows(folder))
        job(paths, folder)
        job(paths, folder)
    finally:
        ray.shutdown()
    assert len(first) == 20 and {row["status"] for row in first} == {"scored"}
    assert len(list(stored_rows(folder))) == 41  # nothing twice
    counts = collect(folder, tmp_path / "ray.jsonl")
    assert counts == {"scored": 40, "unreadable": 1}
    assert "b.jsonl:21" in (tmp_path / "ray.errors.jsonl").read_text()
    score_file(AgentRRM.from_pretrained("lab"), transcripts, tmp_path / "alone.jsonl", mode="score", progress=False)
    mine, alone = (
        {row["id"]: row for row in map(json.loads, (tmp_path / name).read_text().splitlines())}
        for name in ("ray.jsonl", "alone.jsonl")
    )
    assert mine.keys() == alone.keys()
    for id, row in alone.items():
        assert mine[id]["score"] == pytest.approx(row["score"], abs=2e-6)
        assert mine[id]["source"]["digest"] == row["source"]["digest"] and mine[id]["status"] == row["status"]
        assert all(mine[id]["judge"][name] == row["judge"][name] for name in ("model", "model_hash", "mode"))
