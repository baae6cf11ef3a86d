"""One update ahead: what is played on which weights, to the bit; errors and rounds that nobody wants any more."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from feedback_lab import configured, scripted
from trainer_setup import make_trainer

from reagent.feedback.base import Round
from reagent.train.checkpoint import checkpoints
from reagent.train.config import AgentConfig
from reagent.train.engine import HFCopyEngine
from reagent.train.policy import load_policy
from reagent.train.rollout_prefetcher import RolloutPrefetcher, RoundCancelled
from reagent.train.run import train
from reagent.train.trainer import AgentTrainer
from rrm.engines.base import SamplingParams
from rrm.errors import ConfigError

AHEAD = {"rollout": {"max_lag": 1}}


def lagging(base: Path, folder: Path, mode: str = "r", **changes: Any) -> AgentConfig:
    """Judged episodes of an untrained policy, whose weights move fast enough to be told apart."""
    changes = {"algorithm": "grpo", "max_updates": 5, "save_every": 50, "eval": {"every": 0}, **changes}
    config = configured(base, folder, mode, **changes)
    tree = config.model_dump(mode="json", exclude_unset=True)
    tree["rollout"] |= {"max_lag": 1}
    return AgentConfig.model_validate(tree)


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def recorded(folder: Path) -> list[dict[str, Any]]:
    return timeless([json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()])


def by_hand(trainer: AgentTrainer, updates: int) -> list[dict[str, Any]]:
    """The same without a thread: each round is played whole, on the weights from before the update before it."""
    results, waiting = [], None
    for update in range(updates):
        if waiting is None:
            trainer.sync()
            waiting = trainer.timed_round(update)
        round_, seconds = waiting
        trainer.ahead.take = lambda update, now=(round_, seconds, 0.0): now  # pyright: ignore[reportAttributeAccessIssue]
        waiting = None
        if update + 1 < updates:
            trainer.sync()
            waiting = trainer.timed_round(update + 1)
        metrics, _ = trainer.update()
        results.append(metrics)
    return timeless([{k: v if math.isfinite(v) else None for k, v in row.items()} for row in results])


def test_each_round_is_played_on_the_weights_of_one_update_before(base, tmp_path) -> None:
    summary = train(lagging(base, tmp_path / "thread"), judge=scripted())
    assert summary["updates"] == 5
    rows = recorded(tmp_path / "thread")
    assert [row["staleness"] for row in rows] == [0.0, 1.0, 1.0, 1.0, 1.0]
    assert rows[0]["logprob_gap_mean"] < 1e-5 and all(row["logprob_gap_mean"] > 1e-4 for row in rows[1:])
    assert all(row["grad_norm"] > 0 for row in rows)
    trainer = make_trainer(lagging(base, tmp_path / "hand"), scripted())
    expected = by_hand(trainer, 5)
    for row, one in zip(rows, expected, strict=True):
        assert {k: (row[k], v) for k, v in one.items() if row[k] != v} == {}


def test_nothing_is_played_ahead_of_a_checkpoint_or_an_evaluation(base, tmp_path) -> None:
    often = {"max_updates": 6, "save_every": 3, "eval": {"every": 4}, "guards": {"evaluate": False}}
    train(lagging(base, tmp_path / "whole", **often), judge=scripted())
    assert [row["staleness"] for row in recorded(tmp_path / "whole")] == [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    train(lagging(base, tmp_path / "parts", **often | {"max_updates": 3}), judge=scripted())
    train(lagging(base, tmp_path / "parts", **often), judge=scripted())
    assert recorded(tmp_path / "parts") == recorded(tmp_path / "whole")
    weights = [(tmp_path / name / "policy" / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def test_a_copy_keeps_its_weights_until_it_is_sent_others(base) -> None:
    config = AgentConfig.model_validate({"policy": {"base": str(base), "lora": {"r": 2, "target_modules": ["q_proj"]}}})
    policy, tokenizer = load_policy(config.policy, with_values=False)
    engine = HFCopyEngine(policy.model, tokenizer, exact_head=True)
    frozen = {p.data_ptr() for p in policy.model.parameters() if not p.requires_grad}
    mine = list(engine._copy.parameters())
    assert frozen <= {p.data_ptr() for p in mine} and not any(p.requires_grad for p in mine)
    params = SamplingParams(max_new_tokens=4, temperature=1.0, seed=3)

    def said() -> list[float]:
        try:
            return engine.generate([[5, 6, 7]], params, ["a"])[0].logprobs
        finally:
            engine.release(["a"])

    before = said()
    with torch.no_grad():
        for p in policy.model.parameters():
            if p.requires_grad:
                p.add_(0.5)
    assert said() == before and engine.version == 0
    engine.sync(policy.model, 1)
    assert said() != before and engine.generate([[5]], params, ["b"])[0].version == 1


# ---- rounds at play ----


def test_what_playing_raised_is_raised_where_the_round_is_taken() -> None:
    ahead = RolloutPrefetcher()

    def fails(check: Any) -> tuple[Round, float]:
        raise ConfigError("no such tool")

    ahead.start(3, fails)
    with pytest.raises(ConfigError, match="no such tool"):
        ahead.take(3)
    assert not ahead.busy and ahead.take(4) is None


def test_one_round_at_a_time_and_of_the_update_that_asks() -> None:
    ahead, go = RolloutPrefetcher(), threading.Event()

    def plays(check: Any) -> tuple[Round, float]:
        go.wait(10)
        return Round([], []), 1.5

    ahead.start(1, plays)
    with pytest.raises(ValueError, match="update 1 has not been taken"):
        ahead.start(2, plays)
    with pytest.raises(ValueError, match="is of update 1, not 2"):
        ahead.take(2)
    go.set()
    found = ahead.take(1)
    assert found is not None and found[:2] == (Round([], []), 1.5) and found[2] >= 0


def test_a_round_that_is_given_up_ends_between_episodes() -> None:
    ahead, seen, at_play = RolloutPrefetcher(), [], threading.Event()

    def plays(check: Any) -> tuple[Round, float]:
        at_play.set()
        try:
            while True:
                check()
        except RoundCancelled:
            seen.append("given up")
            raise

    ahead.start(0, plays)
    at_play.wait(10)
    ahead.drop()
    assert seen == ["given up"] and not ahead.busy
    ahead.drop()  # nothing is at play


def test_a_run_that_fails_leaves_no_round_at_play(base, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn, learned = AgentTrainer.learn, []
    drop, kept = RolloutPrefetcher.drop, []

    def drops(self: RolloutPrefetcher) -> None:
        kept.extend(path.name for path in checkpoints(tmp_path / "checkpoints"))
        drop(self)

    def fails(self: AgentTrainer, *args: Any) -> Any:
        learned.append(self.ahead)
        if len(learned) == 3:
            assert self.ahead.busy
            raise MemoryError
        return learn(self, *args)

    monkeypatch.setattr(AgentTrainer, "learn", fails)
    monkeypatch.setattr(RolloutPrefetcher, "drop", drops)
    with pytest.raises(MemoryError):
        train(lagging(base, tmp_path), judge=scripted())
    assert kept == ["checkpoint-000002"] and not learned[0].busy
    assert not [t.name for t in threading.enumerate() if t.name.startswith("round ")]


def test_processes_that_wait_for_each_other_do_not_run_ahead(base, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accelerator, "num_processes", property(lambda self: 2))
    with pytest.raises(ConfigError, match=r"rollout\.max_lag=1 on several processes: feedback\.mode=c"):
        make_trainer(lagging(base, tmp_path, "c"), scripted())
    make_trainer(lagging(base, tmp_path / "r"), scripted())


def test_the_cap_of_importance_weights_goes_with_the_lag() -> None:
    def cap(**tree: Any) -> float | None:
        return AgentConfig.model_validate(tree).importance_cap

    lag = {"max_lag": 1}
    assert (cap(), cap(rollout=lag), cap(rollout=lag, loss={"importance_cap": 5})) == (None, 2.0, 5.0)
    assert cap(rollout=lag, loss={"importance_cap": None}) is None
    # a config that was written where nothing lagged does not switch them off elsewhere
    tree = AgentConfig().model_dump(mode="json")
    tree["rollout"]["engine"] = "vllm:http://127.0.0.1:9"
    assert cap(**tree) == 2.0
