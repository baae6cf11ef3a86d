"""What a training without an answer key is refused for before its first rollout: guards that could see nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.prepare import prepare
from rrm.errors import ConfigError


def bare(tmp_path: Path, graded: int, *overrides: str) -> AgentConfig:
    """Bare questions to train on, and twelve held-out ones of which so many have an answer."""
    for name, answers in (("train", 0), ("eval", graded)):
        rows = [{"question": f"{name} {i}?"} | ({"answer": "x"} if i < answers else {}) for i in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [f"environment.{name}={{path: {tmp_path}/{name}.jsonl}}" for name in ("train", "eval")]
    sizes = ["environment.train_tasks=12", "environment.eval_tasks=12", "eval.every=2", "max_updates=12"]
    judge = ["feedback.mode=r", "feedback.judge=openai:http://localhost:1/v1#m"]
    return load_agent_config("lab", ["environment.name=reagent.env:ToolEnv", *files, *sizes, *judge, *overrides])


@pytest.mark.parametrize("guard", ["success", "drift"])
def test_a_guard_that_is_to_stop_a_run_needs_held_out_answers(tmp_path: Path, guard: str) -> None:
    stop = f"guards.{guard}.action=stop"
    with pytest.raises(ConfigError, match=rf"guards\.{guard}\.action=stop can never .*: 9 of 12 held-out tasks have"):
        prepare(bare(tmp_path, 9, stop), 1)
    prepare(bare(tmp_path, 10, stop), 1)
    prepare(bare(tmp_path, 0), 1)  # to warn of nothing harms nobody, and is said by the run


def test_an_auditor_that_cannot_read_the_environment_is_refused_with_the_rest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"guards\.auditor\.judge=lab, which reads runs of the search lab alone"):
        prepare(bare(tmp_path, 12, "guards.auditor.judge=lab"), 1)
    prepare(bare(tmp_path, 12, "guards.auditor.judge=lab", "guards.auditor.action=none"), 1)
