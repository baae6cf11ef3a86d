"""Whole runs that cannot learn: they say so, at the time, at the end, and in the last line of JSON."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path
from typing import Any

from trainer_setup import settings

from reagent.env.env import StepResult
from reagent.lab.search_env import SearchEnv
from reagent.train.config import load_agent_config
from reagent.train.run import train
from reagent.train.runlog import progress_text


def test_the_documented_environment_with_the_labs_model_is_warned_of(tmp_path, monkeypatch, caplog) -> None:
    """It wrote noise for three updates and ended with exit code 0, without a word."""
    text = Path("docs/mdp.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "guess_env.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    small = ["rollout.tasks_per_update=2", "rollout.group_size=2", "rollout.max_turns=2", "rollout.max_new_tokens=16"]
    config = load_agent_config("lab", [
        "environment.name=guess_env:GuessEnv", "environment.train_tasks=8", "environment.eval_tasks=1", "max_updates=3", f"output_dir={tmp_path / 'run'}", *small,
    ])  # fmt: skip
    with caplog.at_level(logging.WARNING):
        summary = train(config)
    assert any("every tool call was malformed" in w or "every turn was cut" in w for w in summary["warnings"])
    assert any("no episode earned anything" in w for w in summary["warnings"])
    assert caplog.text.count("nothing may be learned: updates 0 to 2: no episode earned anything") == 1
    assert caplog.text.count("in this run, nothing may have been learned: ") == len(summary["warnings"])
    json.dumps(summary, allow_nan=False)


class StingyEnv(SearchEnv):
    """Pays nobody."""

    async def step(self, text: str, stop_reason: Any = "eos") -> StepResult:
        return StepResult({"role": "assistant", "content": text}, [], 0.0, 0.0, True, False, {"success": False})


def test_a_continued_run_remembers_what_was_before(base, tmp_path) -> None:
    changes: dict[str, Any] = {"algorithm": "grpo", "environment": {"name": "test_silent_runs:StingyEnv"}}
    train(settings(base, tmp_path, max_updates=2, **changes))
    summary = train(settings(base, tmp_path, max_updates=4, **changes))
    standing = [w.partition(":")[0] for w in summary["warnings"] if "earned anything" in w or "never differed" in w]
    assert standing == ["updates 0 to 3"] * 2


def test_a_run_in_which_all_is_well_has_no_warnings(base, tmp_path) -> None:
    config = settings(base, tmp_path, environment={"name": "feedback_lab:PaidEnv"}, max_updates=3)
    assert not [w for w in train(config)["warnings"] if "cut at" not in w]  # an untrained policy ends hardly a turn


def test_a_finished_run_asked_again_says_what_it_said(base, tmp_path) -> None:
    config = settings(base, tmp_path, max_updates=1)
    first = train(config)
    assert first["reward"] is not None
    assert train(config) == first


def test_the_progress_line_says_the_reward_that_is_learned_from() -> None:
    alone = {"episode/reward": math.nan, "learned/reward": 0.5678, "episode/success": math.nan, "kl": 0.01}
    assert progress_text(alone) == "learned_reward 0.568  kl 0.01"
    both = {"episode/reward": 0.25, "learned/reward": 0.5, "episode/turns": 3.0}
    assert progress_text(both) == "reward 0.25  learned_reward 0.5  turns 3"
    assert progress_text({"episode/reward": 0.25, "learned/reward": 0.25}) == "reward 0.25"
