"""The guards of today over the rows of a run that is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from benchmarks.studies.no_answer_key import Study
from benchmarks.studies.no_answer_key_replay import run_of
from reagent.train.config import load_agent_config


def evaluation(update: int, solved: int, score: float) -> dict[str, Any]:
    """Of forty tasks, all scored alike."""
    tasks = [f"t{n}" for n in range(40)]
    return {
        "update": update,
        "success": {"value": solved / 40},
        "by_task": {task: float(n < solved) for n, task in enumerate(tasks)},
        "score": {"value": score},
        "score_by_task": dict.fromkeys(tasks, score),
    }


def test_a_judge_that_does_not_see_a_fall_is_blamed(tmp_path: Path) -> None:
    folder = tmp_path / "judge" / "seed0"
    folder.mkdir(parents=True)
    config = load_agent_config("lab", Study(tmp_path, str(tmp_path / "judge")).options("judge", 0))
    (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"update": n}) + "\n" for n in range(6)))
    rows = [evaluation(-1, 20, 0.5), evaluation(5, 2, 0.9)]
    (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "guards.jsonl").write_text(json.dumps({"guard": "kl", "update": 3, "text": "…"}) + "\n")
    found = run_of(folder)
    assert found["judged"] and found["evaluate"] and found["before"] == [{"guard": "kl", "update": 3}]
    assert {"guard": "drift", "update": 5} in found["now"]
    (folder / "eval.jsonl").write_text(json.dumps(rows[0]) + "\n")
    assert run_of(folder)["now"] == []
