"""The trainer on a tiny real model and the real search lab: exactness, resume, faults, every algorithm."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from feedback_lab import configured, make_episode, scripted
from trainer_setup import make_trainer, settings
from transformers import AutoTokenizer, LlamaForCausalLM

from reagent.algorithms.objective import LossMetrics
from reagent.algorithms.registry import Advantages
from reagent.feedback.judging import JudgingReport
from reagent.feedback.shaping import weight_at
from reagent.rollout.batch import Batch, make_batch, microbatches, minibatches
from reagent.rollout.episode import Episode
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.launch import refuse_launch
from reagent.train.learner import Prepared
from reagent.train.metrics import episode_metrics
from reagent.train.optimizer import learning_rate_factor
from reagent.train.policy import Policy
from reagent.train.prepare import with_horizon
from reagent.train.run import train
from reagent.train.runlog import RunLog
from reagent.train.trainer import AgentTrainer
from rrm.engines.hf.host_memory import freed_memory
from rrm.errors import ConfigError, RRMError
from rrm.train.run_folder import claim_folder

ALGORITHMS = ("ppo", "grpo", "rloo", "reinforce++", "reinforce++-baseline")


def graded(episodes: list[Episode]) -> list[Episode]:
    """An untrained policy earns nothing anywhere: give its episodes rewards that differ."""
    for i, e in enumerate(episodes):
        e.outcome_reward = float(i % 3)
    return episodes


def lines(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


# ---- exactness ----


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_first_update_has_ratio_one_and_engine_and_trainer_agree(base, tmp_path, algorithm) -> None:
    trainer = make_trainer(settings(base, tmp_path, algorithm=algorithm))
    before = {n: p.detach().clone() for n, p in trainer.policy.named_parameters()}
    episodes = graded(trainer.collect(0))
    metrics = trainer.learn(episodes)
    assert metrics["ratio_deviation"] < 1e-5
    assert metrics["logprob_gap"] < 1e-4  # the rollout engine's log-probabilities against the training forward's
    assert metrics["tokens"] == sum(len(t.output_ids) for e in episodes for t in e.turns)
    assert any(not torch.equal(p, before[n]) for n, p in trainer.policy.named_parameters())


def test_microbatches_add_up_to_the_whole_batch(base, tmp_path) -> None:
    gradients = []
    for budget in (100_000, 300):
        config = settings(base, tmp_path / str(budget), optim={"microbatch_tokens": budget, "max_grad_norm": 1e9})
        trainer = make_trainer(config)
        episodes = graded(trainer.collect(0))
        batch = make_batch(episodes)
        assert (len(microbatches(batch.lengths, range(len(batch)), budget)) > 1) == (budget == 300)
        trainer.ddp_optimizer.step = lambda: None  # look at the gradients instead
        trainer.ddp_optimizer.zero_grad = lambda set_to_none=True: None
        trainer.learn(episodes)
        gradients.append({n: p.grad.clone() for n, p in trainer.policy.named_parameters() if p.grad is not None})
    for name, whole in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], whole, rtol=1e-4, atol=1e-6, msg=name)


def test_values_and_logprobs_stand_at_the_token_they_speak_of(base) -> None:
    model = LlamaForCausalLM.from_pretrained(base)
    policy = Policy(model, with_values=True)
    assert policy.value_head is not None
    torch.nn.init.normal_(policy.value_head.weight)
    ids = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 0, 0]])
    mask = torch.tensor([[0, 0, 1, 0, 1], [0, 1, 1, 0, 0]], dtype=torch.bool)
    out = policy(ids, mask, temperature=0.7)
    for b, t in mask.nonzero().tolist():
        alone = model(ids[b : b + 1, :t], output_hidden_states=True)
        expected = (alone.logits[0, -1] / 0.7).log_softmax(-1)
        torch.testing.assert_close(out.logprobs[b, t], expected[ids[b, t]])
        torch.testing.assert_close(out.entropy[b, t], -(expected.exp() * expected).sum())
        assert out.values is not None
        torch.testing.assert_close(out.values[b, t], policy.value_head(alone.hidden_states[-1][0, -1])[0])
    assert (out.logprobs[~mask] == 0).all()


def test_reference_is_the_adapter_switched_off_and_training_goes_on(base, tmp_path) -> None:
    config = settings(
        base,
        tmp_path,
        loss={"kl_coef": 0.1},
        policy={"lora": {"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}},
    )
    trainer = make_trainer(config)
    episodes = graded(trainer.collect(0))
    first, second = trainer.learn(episodes), trainer.learn(episodes)
    assert first["kl"] == pytest.approx(0.0, abs=1e-6) and second["kl"] > 0
    assert all(p.requires_grad == ("lora" in n or "value_head" in n) for n, p in trainer.policy.named_parameters())


def test_minibatches_hold_every_row_once() -> None:
    rows = [(f"task-{i}", 0, i) for i in range(10)]
    dealt = minibatches(rows, 0, 3, seed=1)
    assert sorted(i for part in dealt for i in part) == list(range(10))
    assert dealt == minibatches(rows[::-1], 0, 3, seed=1) != minibatches(rows, 0, 3, seed=2)


def test_processes_deal_the_same_minibatches_and_as_many_as_each_other() -> None:
    """Ten rows on one process, or 7 and 3 on two: the same rows together, and a process with fewer rows than minibatches has
    empty ones (it made fewer steps, and the other one waited for it for ever)."""
    names = [f"task-{i}" for i in range(10)]
    alone = minibatches([(name, 0, i) for i, name in enumerate(names)], 0, 6, seed=1)
    together = [(name, i // 7, i % 7) for i, name in enumerate(names)]
    parts = [minibatches(together, rank, 6, seed=1) for rank in range(2)]
    assert [len(part) for part in parts] == [6, 6] and [] in parts[1]
    for whole, mine, others in zip(alone, *parts, strict=True):
        assert {names[i] for i in whole} == {names[i] for i in mine} | {names[7 + i] for i in others}


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_turn_by_turn_a_first_attempt_is_not_compared_with_the_second_one_that_read_it(
    base, tmp_path, algorithm
) -> None:
    """Two first attempts and their second ones, all of a turn: o1 against the other o1 and the other's o2, o2 against all."""
    loss = {"credit": "turn", "advantage_scale": "none"}
    trainer = make_trainer(configured(base, tmp_path, "u", algorithm=algorithm, loss=loss), scripted())
    rows = [e for e in trainer.round(0).rows if e.group_id == trainer.tasks[0].id]
    for e, reward in zip(rows, (1.0, 2.0, 4.0, 8.0), strict=True):
        for turn in e.turns:
            turn.reward = 0.0
        e.outcome_reward = reward
    assert [(e.stage, e.attempt) for e in rows] == [("initial", 0), ("initial", 1), ("refined", 0), ("refined", 1)]
    batch = make_batch(rows)
    assert batch.attempt.tolist() == [0, 1, 0, 1] and batch.stage.tolist() == [0, 0, 1, 1]
    found = trainer.prepare(batch).advantages
    first = [float(found.advantages[i][found.loss_mask[i]][0]) for i in range(4)]
    assert first == pytest.approx([1 - 10 / 2, 2 - 5 / 2, 4 - 11 / 3, 8 - 7 / 3])


def test_learning_rate_warms_up_and_decays() -> None:
    config = AgentConfig(max_updates=6, optim={"warmup_updates": 2, "lr_schedule": "linear"})  # pyright: ignore[reportArgumentType]
    assert [learning_rate_factor(u, config) for u in range(6)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    config.optim.lr_schedule = "cosine"
    assert [learning_rate_factor(u, config) for u in (1, 2, 4, 6, 9)] == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.0])


def test_a_larger_max_updates_on_resume_moves_no_schedule(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    schedules: dict[str, Any] = {"optim": {"lr_schedule": "linear"}, "feedback": {"score_schedule": "linear"}}

    def asked(updates: int, **more: Any) -> tuple[float, float]:
        config = with_horizon(AgentConfig(output_dir=str(tmp_path), max_updates=updates, **schedules, **more))
        claim_folder(config, tmp_path)
        optim = config.optim.model_copy(update={"warmup_updates": 0})
        rate = learning_rate_factor(4, config.model_copy(update={"optim": optim}))
        return rate, weight_at(4, config.horizon, 0.3, config.feedback.score_schedule)

    assert asked(8) == (0.5, 0.15)
    assert asked(16) == (0.75, pytest.approx(0.225)) and asked(8) == (0.5, 0.15)  # no checkpoint yet: another run
    (tmp_path / "checkpoints" / "checkpoint-000004").mkdir(parents=True)
    for updates in (16, 32, 6, 16):  # from then on, however often it goes on
        assert asked(updates) == (0.5, 0.15)
    assert "falls to 0 at update 8, as this run began" in caplog.text
    assert asked(16, schedule_updates=16) == (0.75, pytest.approx(0.225))  # asked for by name


def test_times_add_up_where_judging_overlaps_with_playing(base, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge over a server works while others play, on every process: its busy seconds taken off the round's left −900."""
    trainer = make_trainer(configured(base, tmp_path, "r"), scripted())
    play = trainer.feedback.round

    def busy(*args: Any) -> Any:
        round_ = play(*args)
        round_.report.seconds += 1000.0
        return round_

    monkeypatch.setattr(trainer.feedback, "round", busy)
    metrics, _ = trainer.update()
    parts = [metrics[f"time/{name}_s"] for name in ("sync", "rollout", "judge", "update")]
    assert all(part > 0 for part in parts) and sum(parts) <= metrics["time/total_s"] < 100
    assert metrics["time/judge_busy_s"] > 1000
    assert metrics["time/rollout_tokens_per_s"] < 1e6


def test_an_update_gives_freed_memory_back(base, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, done = make_trainer(configured(base, tmp_path, "none"), scripted()), []
    learn = trainer.learn
    monkeypatch.setattr(trainer, "learn", lambda *given: (learn(*given), done.append("learned"))[0])
    monkeypatch.setattr(freed_memory, "give_back", lambda: done.append("gave back"))
    trainer.update()
    assert done.count("learned") == 1 and done[-1] == "gave back"  # after the steps, too


@pytest.mark.parametrize("ahead", [False, True])
def test_sending_weights_is_neither_judging_nor_learning(base, tmp_path, monkeypatch, ahead: bool) -> None:
    clock = [0.0]

    def taking(seconds: float, does: Any) -> Any:
        def done(*given: Any, **named: Any) -> Any:
            clock[0] += seconds
            return does(*given, **named)

        return done

    trainer = make_trainer(configured(base, tmp_path, "r", rollout={"max_lag": int(ahead)}), scripted())
    monkeypatch.setattr("reagent.train.trainer.time", SimpleNamespace(perf_counter=lambda: clock[0]))
    monkeypatch.setattr("reagent.train.trainer.sync", taking(100, lambda *given: None))
    monkeypatch.setattr(trainer, "play", taking(7, trainer.play))
    monkeypatch.setattr(trainer, "learn", taking(20, trainer.learn))
    monkeypatch.setattr(trainer.ahead, "start", lambda update, play: None)  # it would jump while steps are made
    metrics, _ = trainer.update(run_ahead=ahead)
    parts = {name: metrics[f"time/{name}_s"] for name in ("sync", "rollout", "judge", "update", "total")}
    sent = 200 if ahead else 100  # before the round, and once more for the next one
    assert parts == {"sync": sent, "rollout": 7, "judge": 0, "update": 20, "total": sent + 27}


# ---- options of the loss ----


WHOLE = {"microbatch_tokens": 16384}
"""One micro-batch a step."""


def one_step(trainer: AgentTrainer, batch: Batch, advantage: float, old: torch.Tensor | None = None) -> LossMetrics:
    """Metrics of one step in which every action token has the same advantage."""
    advantages = Advantages(advantage * batch.action_mask.float(), None, batch.action_mask, 0)
    (metrics,), _ = trainer.step(Prepared(batch, advantages, old), range(len(batch)), "here")
    return metrics


def test_dual_clip_bounds_the_loss_of_a_bad_token(base, tmp_path) -> None:
    results = {}
    for clip in (None, 2.5):
        loss = {} if clip is None else {"dual_clip": clip}
        trainer = make_trainer(settings(base, tmp_path, algorithm="grpo", loss=loss, optim=WHOLE))
        batch = make_batch(graded(trainer.collect(0)))
        old, _ = trainer.statistics(batch, trainer.ddp_model, batch.action_mask)
        results[clip] = one_step(trainer, batch, -1.0, old - math.log(8))  # the ratio is 8
    assert results[None].losses["policy_loss"] == pytest.approx(8.0, rel=1e-4)
    assert results[2.5].losses["policy_loss"] == pytest.approx(2.5, rel=1e-6)


def test_importance_weights_multiply_the_loss_up_to_their_cap(base, tmp_path) -> None:
    for cap, expected in ((None, 1.0), (100.0, 3.0), (2.0, 2.0)):
        loss = {} if cap is None else {"importance_cap": cap}
        trainer = make_trainer(settings(base, tmp_path, algorithm="grpo", loss=loss, optim=WHOLE))
        batch = make_batch(graded(trainer.collect(0)))
        batch.rollout_logprobs -= math.log(3)  # as if the engine had thought each token three times less likely
        metrics = one_step(trainer, batch, -1.0)
        assert metrics.losses["policy_loss"] == pytest.approx(expected, rel=1e-4)
        assert ("importance_mean" in metrics.sums) == (cap is not None)


def test_bootstrap_puts_the_last_states_value_behind_cut_off_episodes(base, tmp_path) -> None:
    results = {}
    for bootstrap in (False, True):
        loss = {"bootstrap": bootstrap, "whiten": False, "gamma": 0.9, "gae_lambda": 0.8}
        trainer = make_trainer(settings(base, tmp_path, loss=loss, environment={"rewards": {"unanswered": 0}}))
        head = trainer.policy.value_head
        assert head is not None
        torch.manual_seed(1)
        torch.nn.init.normal_(head.weight)
        episodes = graded(trainer.collect(0))
        for e, status in zip(episodes, ("finished", "turn_limit", "token_limit", "turn_limit"), strict=False):
            # of different lengths, beside rows of others
            e.status, e.end_ids = status, [7, 8, 9][: 1 + len(e.turns) % 3]
        batch = make_batch(episodes)
        results[bootstrap] = trainer.prepare(batch).advantages.advantages
    ends = trainer.end_values(batch)
    for i, e in enumerate(episodes):
        ids = torch.tensor([[*e.flatten().input_ids.tolist(), *e.end_ids]])
        hidden = trainer.policy.model(ids, output_hidden_states=True).hidden_states[-1]
        expected = 0.0 if e.status != "turn_limit" else head(hidden[0, -1]).item()
        assert float(ends[i]) == pytest.approx(expected, abs=1e-4)
        # the n-th last action token sees γ V through n − 1 decays of γλ
        gained = (results[True] - results[False])[i][batch.action_mask[i]]
        decay = 0.72 ** torch.arange(len(gained) - 1, -1, -1)
        torch.testing.assert_close(gained, 0.9 * expected * decay, rtol=1e-4, atol=1e-5)
    assert {e.status for e in episodes} >= {"finished", "turn_limit", "token_limit"}
    with pytest.raises(ConfigError, match=r"loss\.bootstrap takes values"):
        load_agent_config("lab", ["algorithm=grpo", "loss.bootstrap=true"])
    with pytest.raises(ConfigError, match=r"set environment\.rewards\.unanswered=0"):
        # V had no fixed point: it fell by 0.1 an update
        load_agent_config("lab", ["algorithm=ppo", "loss.bootstrap=true", "environment.rewards.unanswered=-0.1"])


def test_target_kl_ends_an_update_before_the_step_that_is_too_far(base, tmp_path) -> None:
    results = {}
    for target, epochs in ((None, 1), (1e-9, 3), (1e9, 3)):
        optim = {**WHOLE, "epochs": epochs}
        trainer = make_trainer(settings(base, tmp_path, algorithm="grpo", loss={"target_kl": target}, optim=optim))
        metrics = trainer.learn(graded(trainer.collect(0)))
        results[target] = metrics, torch.cat([p.detach().flatten() for p in trainer.policy.parameters()])
    (plain, once), (stopped, first_alone), (free, all_steps) = results.values()
    assert "optimizer_steps" not in plain and stopped["optimizer_steps"] == 1 and free["optimizer_steps"] == 3
    # the second pass was read and made no step: its KL is in the mean, its loss is not
    assert stopped["approx_kl"] > 1.5e-9 and stopped["loss"] == pytest.approx(plain["loss"], abs=1e-6)
    torch.testing.assert_close(first_alone, once, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(all_steps, once, atol=1e-4)
    with pytest.raises(ConfigError, match=r"loss\.target_kl ends an update before its later steps.*optim\.epochs"):
        load_agent_config("lab", ["loss.target_kl=0.02", "optim.epochs=1", "optim.minibatches=1"])


@pytest.mark.parametrize(("excess", "ends"), [(0.99, False), (1.01, True)])
def test_the_bound_is_one_and_a_half_times_target_kl(base, tmp_path, excess: float, ends: bool) -> None:
    # every ratio is 1.2, so the mean of ρ − 1 − log ρ is 0.2 − log 1.2
    target = (0.2 - math.log(1.2)) / 1.5 / excess
    changes: dict[str, Any] = {"loss": {"target_kl": target}, "optim": {"microbatch_tokens": 256, "epochs": 2}}
    trainer = make_trainer(settings(base, tmp_path, algorithm="grpo", **changes))
    batch = make_batch(graded(trainer.collect(0)))
    old, _ = trainer.statistics(batch, trainer.ddp_model, batch.action_mask)
    advantages = Advantages(batch.action_mask.float(), None, batch.action_mask, 0)
    parts, norm = trainer.step(Prepared(batch, advantages, old - math.log(1.2)), range(len(batch)), "here")
    assert len(parts) > 1 and (norm is None) == ends
    assert all(p.grad is None for p in trainer.policy.parameters())


# ---- faults ----


def test_a_loss_that_is_not_finite_stops_and_names_batch_and_checkpoint(base, tmp_path) -> None:
    trainer = make_trainer(settings(base, tmp_path))
    trainer.update()
    kept = trainer.save()
    with torch.no_grad():
        trainer.policy.model.get_output_embeddings().weight[3] = float("nan")
    episodes = graded(make_trainer(settings(base, tmp_path / "other")).collect(0))
    with pytest.raises(RRMError, match=r"update 1, pass 0, minibatch 0, micro-batch 0.*checkpoint-000001"):
        trainer.learn(episodes)
    assert kept is not None and kept.is_dir()


def test_an_episode_of_unknown_outcome_changes_no_other_row(base, tmp_path) -> None:
    trainer = make_trainer(settings(base, tmp_path, algorithm="grpo", loss={"credit": "episode"}))
    episodes = graded(trainer.collect(0))
    known = trainer.prepare(make_batch(episodes[2:])).advantages.advantages
    episodes[0].outcome_reward = episodes[1].outcome_reward = None
    with_unknown = trainer.prepare(make_batch(episodes)).advantages
    assert with_unknown.unknown_rows == 2 and not with_unknown.loss_mask[:2].any()
    width = known.shape[1]
    torch.testing.assert_close(with_unknown.advantages[2:, :width], known)


def test_an_environment_that_fails_at_once_leaves_the_others_to_learn_from(base, tmp_path) -> None:
    trainer = make_trainer(settings(base, tmp_path))
    episodes = graded(trainer.collect(0))
    lost = episodes[0]
    lost.prompt_ids, lost.turns, lost.status, lost.outcome_reward = [], [], "env_error", None
    metrics = trainer.learn(episodes)
    assert metrics["unknown_rows"] == 1 and metrics["tokens"] > 0


# ---- resume ----


def test_a_killed_run_resumes_to_the_bit(base, tmp_path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    files = {}
    for folder in (whole, killed):
        config = settings(base, folder, max_updates=6, optim={"epochs": 2, "minibatches": 2})
        files[folder] = tmp_path / f"{folder.name}.yaml"
        files[folder].write_text(yaml.safe_dump(config.model_dump(mode="json")))
    command = [sys.executable, "-m", "reagent", "train", "--config"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["agents", "."]), "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.Popen(
        [*command, str(files[killed])], env=env, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 240
    while not (killed / "checkpoints" / "checkpoint-000002").is_dir():
        assert run.poll() is None and time.monotonic() < deadline, "the run ended before it could be killed"
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    run.wait()
    assert len(lines(killed / "metrics.jsonl")) < 6
    torch.set_num_threads(1)
    for folder in (killed, whole):
        train(load_agent_config(str(files[folder])))
    assert lines(killed / "metrics.jsonl") == lines(whole / "metrics.jsonl")
    timeless = [
        re.sub(r'"(timestamp|duration_s)": [^,}]+', "", (folder / "episodes.jsonl").read_text())
        for folder in (killed, whole)
    ]
    assert timeless[0] == timeless[1] and timeless[0]
    weights = [(folder / "policy" / "model.safetensors").read_bytes() for folder in (killed, whole)]
    assert weights[0] == weights[1]
    assert (whole / "curves.png").stat().st_size > 1000
    AutoTokenizer.from_pretrained(whole / "policy")


def test_a_folder_of_another_run_is_refused(base, tmp_path) -> None:
    train(settings(base, tmp_path, max_updates=1))
    with pytest.raises(RRMError, match="another seed"):
        train(settings(base, tmp_path, max_updates=2, seed=1))


# ---- configs ----


def test_configs_say_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"nearest valid key: loss\.clip_low"):
        load_agent_config("lab", ["loss.clip_lo=0.1"])
    with pytest.raises(ConfigError, match="group_size"):
        load_agent_config("lab", ["algorithm=grpo", "rollout.group_size=1"])


def test_a_value_learning_rate_of_zero_leaves_the_head_alone(base, tmp_path) -> None:
    rates = [
        g["lr"]
        for g in make_trainer(settings(base, tmp_path, optim={"value_learning_rate": 0.0})).optimizer.param_groups
    ]
    assert rates == [1e-3, 0.0]
    assert [g["lr"] for g in make_trainer(settings(base, tmp_path)).optimizer.param_groups] == [1e-3, 1e-3]


def test_texts_are_learned_where_no_reward_is_known(base, tmp_path) -> None:
    config = configured(base, tmp_path, "u", feedback={"refinement": "none", "score_weight": 0.0})
    trainer = make_trainer(config, scripted())
    round_ = trainer.round(0)
    for e in round_.rows:
        e.outcome_reward = None
    before = {name: p.detach().clone() for name, p in trainer.policy.named_parameters()}
    metrics = trainer.learn(round_.rows, round_.texts)
    assert metrics["critique_nll"] > 0 and metrics["trace_nll"] > 0 and metrics["tokens"] == 0
    assert metrics["policy_loss"] == 0 and math.isfinite(metrics["grad_norm"]) and metrics["grad_norm"] > 0
    assert any(not torch.equal(p, before[name]) for name, p in trainer.policy.named_parameters())
    trainer.update_index += 1
    assert trainer.learn(round_.rows)["grad_norm"] == 0.0  # without a text there is nothing to step on


def test_tokens_of_all_kinds_are_counted_of_the_mean_and_the_longest_episode() -> None:
    """Two of the prompt and one a turn; an observation adds its own."""
    short, long = make_episode([0.0]), make_episode([0.0, 0.0])
    long.turns[0] = replace(long.turns[0], observation_ids=[7, 8, 9])
    figures = episode_metrics([short, long], "refined")
    assert (figures["refined/tokens"], figures["refined/longest_tokens"]) == (5.0, 7.0)
    assert math.isnan(episode_metrics([])["episode/longest_tokens"])


def test_the_summary_says_how_many_judgements_failed_and_of_what(tmp_path: Path) -> None:
    """It stood in the run's files alone, and there without the kinds."""
    updates: list[dict[str, int]] = [
        {"judged": 8, "failed": 3, "failed_unparsable": 2, "failed_judge_error": 1},
        {"judged": 8},
        {"judged": 8, "failed": 1, "failed_unparsable": 1},
    ]
    path: Any = tmp_path / "metrics.jsonl"
    rows = [JudgingReport(counts=Counter(counts)).figures() for counts in updates]
    path.write_text("".join(json.dumps({"update": n, **row}) + "\n" for n, row in enumerate(rows)))
    log: Any = SimpleNamespace(metrics=path)
    assert RunLog.judgements(log) == {"judged": 24, "failed": 4, "judge_error": 1, "unparsable": 3}
    path.write_text(json.dumps({"update": 0, "learned/rows": 4.0}) + "\n")
    assert RunLog.judgements(log) is None


@pytest.mark.parametrize(
    ("variable", "name"),
    [("ACCELERATE_USE_FSDP", "accelerate's FSDP plugin"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")],
)
def test_launches_that_shard_by_themselves_name_the_key(base, tmp_path, monkeypatch, variable: str, name: str) -> None:
    monkeypatch.setenv(variable, "true")
    for sharding in ("none", "fsdp"):
        with pytest.raises(RRMError, match=rf"launched with {name}.*--multi_gpu.*sharding=fsdp"):
            train(settings(base, tmp_path / "run", sharding=sharding))
    assert not (tmp_path / "run").exists()


def test_a_launch_is_read_from_the_environment() -> None:
    refuse_launch({"ACCELERATE_USE_FSDP": "false", "ACCELERATE_USE_CPU": "True", "WORLD_SIZE": "2", "MASTER_PORT": "1"})
    refuse_launch({}, "MULTI_GPU")
    with pytest.raises(RRMError, match="FSDP"):
        refuse_launch({}, "FSDP")
    with pytest.raises(RRMError, match="starts one process"):
        refuse_launch({"ACCELERATE_USE_CPU": "True", "MASTER_PORT": "1"})
