"""Guards in a training: what judges are asked for them, how a guard stops a run, and how the run goes on."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from feedback_lab import configured, read, score_of, scripted, trainer_of
from safetensors.torch import load_file
from test_feedback import judged_text

import rrm
from reagent.feedback.base import as_judged
from reagent.feedback.judging import JudgingReport
from reagent.rollout.episode import Episode
from reagent.tasks.environments import held_out_tasks
from reagent.train.best_policy import keep_best, kept_best
from reagent.train.checkpoint import checkpoints
from reagent.train.config import AgentConfig
from reagent.train.evaluate import evaluate
from reagent.train.guards import Best
from reagent.train.judge_monitor import rank_correlation, without_copies
from reagent.train.metrics import mean
from reagent.train.run import build, train
from reagent.train.trainer import AgentTrainer
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, EngineError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Platt
from rrm.judge.domain import load_domain

QUIET = {name: {"action": "none"} for name in ("success", "drift", "length", "auditor")}


def with_kl(base: Path, output: Path, action: str, **changes: Any) -> AgentConfig:
    """A run that is one step from its start policy after the first update: more than 1e-9 nats a token."""
    guards = {**QUIET, "kl": {"max": 1e-9, "patience": 1, "action": action}}
    return configured(base, output, "none", save_every=100, guards=guards, algorithm="grpo", **changes)


def played(trainer: AgentTrainer, temperature: float = 1.0) -> list[Episode]:
    config = trainer.config.model_copy(
        update={"eval": trainer.config.eval.model_copy(update={"temperature": temperature})}
    )
    tasks = held_out_tasks(config.environment)
    return evaluate(replace(trainer.player(), config=config), tasks)[1]


# ---- a guard that stops ----


def test_a_guard_stops_a_run_and_the_run_goes_on_with_another_setting(base, tmp_path, caplog) -> None:
    torch.set_num_threads(1)
    whole = tmp_path / "whole"
    summary = train(with_kl(base, whole, "warn"))
    assert summary["stopped_by"] == [] and summary["policy"] == str(whole / "policy")
    (text,) = summary["guards"]  # one spell
    assert "nats a token from the one it started from, above guards.kl.max=1e-09" in text
    kl = [row["kl"] for row in read(whole / "metrics.jsonl")]
    assert kl[0] == pytest.approx(0.0, abs=1e-9) and all(k > 1e-9 for k in kl[1:])  # by k3, without loss.kl_coef

    folder = tmp_path / "stopped"
    with caplog.at_level(logging.WARNING):
        summary = train(with_kl(base, folder, "stop"))
    assert (summary["stopped_by"], summary["updates"], summary["policy"]) == (["kl"], 2, None)
    assert "stopped by a guard (kl) after 2 updates" in caplog.text and "guards.kl.action=warn" in caplog.text
    assert [path.name for path in checkpoints(folder / "checkpoints")] == ["checkpoint-000002"]
    assert not (folder / "policy").exists()
    (event,) = [json.loads(line) for line in (folder / "guards.jsonl").read_text().splitlines()]
    assert (event["update"], event["episodes"], event["guard"], event["action"]) == (1, 16, "kl", "stop")

    again = train(with_kl(base, folder, "stop"))  # the same command: no further update
    assert (again["stopped_by"], again["updates"]) == (["kl"], 2) and len(read(folder / "metrics.jsonl")) == 2
    assert len((folder / "guards.jsonl").read_text().splitlines()) == 1

    summary = train(with_kl(base, folder, "warn"))
    assert (summary["stopped_by"], summary["updates"]) == ([], 3)
    assert read(folder / "metrics.jsonl") == read(whole / "metrics.jsonl")  # to the bit
    weights = [(f / "policy" / "model.safetensors").read_bytes() for f in (folder, whole)]
    assert weights[0] == weights[1]


FOREIGN = {**QUIET, "out_of_domain": {"action": "stop"}}


def test_a_judge_far_from_home_stops_a_run_after_its_first_update(base, tmp_path) -> None:
    torch.set_num_threads(1)
    judge = scripted()
    judge.domain = load_domain(Path(rrm.__file__).parent / "assets" / "small")
    config = configured(base, tmp_path / "run", "r", algorithm="grpo", max_updates=2, guards=FOREIGN)
    summary = train(config, judge=judge)
    assert (summary["stopped_by"], summary["updates"]) == (["out_of_domain"], 1)
    assert "8 of 8 judgements are of what lies outside of what the judge was measured on" in summary["guards"][0]


def test_a_judge_that_cannot_say_where_it_was_measured_is_refused_or_told_of(
    base, tmp_path, caplog, monkeypatch
) -> None:
    torch.set_num_threads(1)
    changes = {"algorithm": "grpo", "guards": FOREIGN}
    with pytest.raises(
        ConfigError,
        match=r"guards\.out_of_domain\.action=stop can never stop anything: feedback\.judge=.* does not say",
    ):
        train(configured(base, tmp_path / "refused", "r", **changes), judge=scripted())
    monkeypatch.setattr("reagent.feedback.base.RemoteJudge", AgentRRM)  # as if it were on a server
    with caplog.at_level(logging.WARNING):
        for updates, told in ((2, 1), (3, 2)):  # and again where the run is gone on with
            summary = train(configured(base, tmp_path / "run", "r", max_updates=updates, **changes), judge=scripted())
            assert (summary["stopped_by"], summary["updates"]) == ([], updates)
            assert caplog.text.count("guards.out_of_domain.action=stop has nothing to look at") == told


def test_a_run_that_is_finished_is_not_stopped_by_a_guard(base, tmp_path) -> None:
    """The guard fires at the second update, which is the last."""
    torch.set_num_threads(1)
    summary = train(with_kl(base, tmp_path / "run", "stop", max_updates=2))
    assert (summary["updates"], summary["stopped_by"], summary["policy"]) == (2, [], str(tmp_path / "run" / "policy"))
    assert len(summary["guards"]) == 1


def test_a_guard_changes_nothing_that_is_learned(base, tmp_path) -> None:
    torch.set_num_threads(1)
    rows = []
    for name, guards in (("with", {"kl": {"max": 1.0}}), ("without", {})):
        train(configured(base, tmp_path / name, "none", algorithm="grpo", max_updates=2, guards=guards))
        rows.append(read(tmp_path / name / "metrics.jsonl"))
    assert [{k: v for k, v in row.items() if k != "kl"} for row in rows[0]] == rows[1]


def test_the_commands_exit_code_says_that_a_guard_stopped_it(reagent, base, tmp_path) -> None:
    options = [
        "environment.name=feedback_lab:PaidEnv", "environment.train={hops: 1}", f"policy.base={base}", f"output_dir={tmp_path / 'run'}", "algorithm=grpo", "environment.train_tasks=8",
        "environment.eval_tasks=2", "rollout.tasks_per_update=2", "rollout.group_size=2", "rollout.max_turns=2",
        "rollout.max_new_tokens=8", "guards.kl.max=1e-9", "guards.kl.action=stop", "guards.kl.patience=1", "optim.minibatches=1",
    ]  # fmt: skip
    code, out, _ = reagent("train", *options)
    assert code == 3 and json.loads(out)["stopped_by"] == ["kl"]


def test_a_kill_while_the_best_policy_is_replaced_leaves_the_earlier_one(base, tmp_path, monkeypatch) -> None:
    trainer, folder = trainer_of(configured(base, tmp_path, "none")), tmp_path / "best"
    earlier, later = Best(1, 8, "success", 0.5, 0.2, 0.8), Best(3, 16, "success", 0.6, 0.3, 0.9)
    keep_best(trainer.policy, trainer.tokenizer, folder, earlier)
    rename, done = os.replace, list[Path]()

    def killed(a: Path, b: Path) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(b)
        rename(a, b)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        keep_best(trainer.policy, trainer.tokenizer, folder, later)
    assert done == [tmp_path / "best.previous"] and not folder.exists()
    assert kept_best(trainer.policy, folder, earlier) == folder and (folder / "model.safetensors").is_file()
    keep_best(trainer.policy, trainer.tokenizer, folder, later)
    assert kept_best(trainer.policy, folder, later) == folder and kept_best(trainer.policy, folder, earlier) is None
    assert sorted(path.name for path in tmp_path.glob("best*")) == ["best"]


def test_a_best_policy_kept_without_an_interval_is_found(base, tmp_path) -> None:
    trainer, folder = trainer_of(configured(base, tmp_path, "none")), tmp_path / "best"
    best = Best(1, 8, "success", 0.5, 0.2, 0.8)
    keep_best(trainer.policy, trainer.tokenizer, folder, best)
    held = folder / "evaluation.json"
    held.write_text(json.dumps({k: v for k, v in json.loads(held.read_text()).items() if k not in ("low", "high")}))
    assert kept_best(trainer.policy, folder, best) == folder
    assert kept_best(trainer.policy, folder, Best(3, 16, "success", 0.5, 0.2, 0.8)) is None


# ---- what judges are asked ----


def test_evaluations_are_judged_by_both_and_the_start_policy_is_evaluated(base, tmp_path) -> None:
    config = configured(
        base, tmp_path / "run", "r", max_updates=2, eval={"every": 1, "temperature": 1.0},
        environment={"label_share": 0.0}, guards={"auditor": {"judge": "named", "share": 0.5, "min_correlation": 0.5}},
    )  # fmt: skip
    summary = train(config, judge=scripted(), auditor=judge_by(lambda text: 1 - score_of(text), "against"))
    rows = read(tmp_path / "run" / "eval.jsonl")
    assert [(row["update"], row["episodes"]) for row in rows] == [(-1, 0), (0, 8), (1, 16)]
    for row in rows:
        # held-out tasks keep their grades, whatever share of the training tasks has any
        assert row["success"]["value"] is not None and row["ungraded_tasks"] == 0
        assert row["score"]["value"] + row["auditor"]["value"] == pytest.approx(1.0)
        assert row["auditor_correlation"] == pytest.approx(-1.0)
        assert row["score_unscored"] == row["auditor_unscored"] == 0
    for row in read(tmp_path / "run" / "metrics.jsonl"):
        assert row["episode/ungraded"] == 1.0 and row["auditor/rows"] == 4.0  # half of eight
        assert row["auditor/score"] + row["auditor/judge_score"] == pytest.approx(1.0)
    assert any(
        "rank correlation of -1.00 (before the first update; 3 comparisons)" in text for text in summary["guards"]
    )
    best = summary["best"]
    assert best["by"] == "success" and best["policy"] == str(tmp_path / "run" / "best")
    top = max(rows, key=lambda row: row["success"]["value"])  # the first of equals
    assert best["update"] == top["update"] and best["value"] == top["success"]["value"]
    if best["update"] == -1:
        kept, start = load_file(tmp_path / "run" / "best" / "model.safetensors"), load_file(base / "model.safetensors")
        assert all(torch.equal(kept[name], start[name]) for name in start)


def test_the_scores_of_an_evaluation_by_hand(base, tmp_path) -> None:
    config = configured(base, tmp_path, "r", eval={"every": 1, "temperature": 1.0})
    trainer = trainer_of(config, scripted())
    episodes = played(trainer)
    figures = trainer.watch.evaluation(episodes, -1)
    scores = [score_of(judged_text(e)) for e in episodes]
    assert figures["score"]["value"] == pytest.approx(mean(scores))
    apart = {True: [], False: []}
    for e, score in zip(episodes, scores, strict=True):
        apart[bool(e.success)].append(score)
    for name, of in (("score_success", True), ("score_failure", False)):
        assert figures[name] == (pytest.approx(mean(apart[of])) if apart[of] else None)
    record = [json.loads(line) for line in (tmp_path / "judgements.jsonl").read_text().splitlines()]
    assert {row["update"] for row in record} == {-1} and "auditor" not in figures


def test_guards_see_scores_as_they_are_before_recalibration(base, tmp_path) -> None:
    """A refit lifts all scores: the guards' stay."""
    config = configured(base, tmp_path, "r", eval={"every": 1, "temperature": 1.0}, feedback={"recalibrate": {}})
    trainer = trainer_of(config, scripted())
    episodes = played(trainer)
    before = trainer.watch.evaluation(episodes, -1)
    assert trainer.feedback.recalibration is not None
    trainer.feedback.recalibration.map = Platt(rows=64, a=1.0, b=3.0)
    lifted = trainer.feedback.judge(episodes, "score", 0, JudgingReport())
    assert mean([j.score for j in lifted if j.score is not None]) > before["score"]["value"] + 0.1
    assert trainer.watch.evaluation(episodes, 0)["score_by_task"] == before["score_by_task"]


def test_a_failed_judgement_counts_as_what_it_is_paid_and_an_unreachable_judge_as_nothing(base, tmp_path) -> None:
    config = configured(base, tmp_path, "r", eval={"every": 1, "temperature": 1.0})
    trainer = trainer_of(config, scripted(lambda text: "no score at all"))
    figures = trainer.watch.evaluation(played(trainer), -1)
    assert figures["score"]["value"] == 0.0 and figures["score_unscored"] == 0  # feedback.failure_reward
    trainer = trainer_of(config, scripted(lambda text: EngineError("503")))
    figures = trainer.watch.evaluation(played(trainer), -1)
    assert figures["score"]["value"] is None and figures["score_unscored"] == 4


def test_an_auditor_that_cannot_be_reached_guards_nothing_and_that_is_said(base, tmp_path, caplog) -> None:
    config = configured(base, tmp_path, "r")
    trainer, _ = build(config, judge=scripted(), auditor=scripted(lambda text: EngineError("503")))
    with caplog.at_level(logging.WARNING):
        metrics, _ = trainer.update()
    assert metrics["auditor/rows"] == 0.0 and metrics["auditor/unscored"] == 2.0
    assert caplog.text.count("it guards nothing") == 1


@pytest.mark.parametrize(("mode", "changes"), [("none", {}), ("c", {}), ("r", {"guards": {"evaluate": False}})])
def test_where_no_judge_is_paid_or_none_asked_for_evaluations_are_as_they_were(base, tmp_path, mode, changes) -> None:
    config = configured(base, tmp_path / "run", mode, max_updates=1, eval={"every": 1}, **changes)
    summary = train(config, judge=scripted())
    (row,) = read(tmp_path / "run" / "eval.jsonl")
    assert row["update"] == 0 and "score" not in row
    assert (tmp_path / "run" / "best").exists() == (mode == "r") and (summary["best"] is not None)


@pytest.mark.filterwarnings("error:No artists with labels")  # of a drawing of success that there is nowhere
@pytest.mark.parametrize("judged", [True, False])
def test_held_out_tasks_without_answers_leave_guards_blind_and_that_is_said(base, tmp_path, caplog, judged) -> None:
    environment, guards = {"name": "test_ungraded:OpenEnv"}, {"evaluate": judged}
    changes = {"max_updates": 1, "eval": {"every": 1}, "environment": environment, "guards": guards}
    config = configured(base, tmp_path / "run", "r", **changes)
    with caplog.at_level(logging.WARNING):
        summary = train(config, judge=scripted())
    assert caplog.text.count("no held-out task can be graded") == 1 and summary["best"] is None
    rows = read(tmp_path / "run" / "eval.jsonl")
    assert len(rows) == 1 + judged and all(("score" in r and r["score"]["value"] is not None) == judged for r in rows)


def test_an_auditor_is_named_where_it_cannot_be_used(base, tmp_path) -> None:
    options: dict[str, Any] = {
        "guards": {"auditor": {"judge": "lab"}},
        "feedback": {"judge": "default"},
        "environment": {"name": "calculator", "train": {"hops": [2, 3]}, "eval": {"hops": [4, 5]}},
    }
    with pytest.raises(ConfigError, match=r"the judge is guards\.auditor\.judge=lab"):
        build(configured(base, tmp_path, "r", **options), judge=scripted())


def test_rank_correlation_by_hand() -> None:
    """Of tasks with one attempt across them; with several within each, weighed by the attempts less one."""

    def alone(a: list[float], b: list[float]) -> list[tuple[str, float, float]]:
        return [(str(n), x, y) for n, (x, y) in enumerate(zip(a, b, strict=True))]

    assert rank_correlation(alone([1, 2, 3], [0.1, 0.2, 0.9])) == (pytest.approx(1.0), 2)
    assert rank_correlation(alone([1, 2, 3, 4], [1, 3, 2, 4])) == (pytest.approx(0.8), 3)  # 1 − 6·2/(4·15)
    assert rank_correlation(alone([1, 2], [1, 2])) == (None, 1) and rank_correlation(alone([1, 1, 1], [1, 2, 3])) == (
        None,
        0,
    )
    tasks = [("a", 1, 3), ("a", 2, 2), ("a", 3, 1), ("b", 11, 11), ("b", 12, 12), ("c", 5, 5), ("c", 5, 6), ("d", 9, 9)]
    assert rank_correlation(tasks) == (pytest.approx((2 * -1 + 1 * 1) / 3), 3)
    assert rank_correlation([]) == (None, 0)


def test_copies_of_an_attempt_are_one_comparison_and_equal_scores_of_others_are_not(base, tmp_path) -> None:
    trainer, _ = build(configured(base, tmp_path, "r"), judge=scripted())
    one, other, *_ = trainer.round(0).played  # two attempts at one task
    other = replace(other, trajectory=other.trajectory.model_copy(update={"messages": []}))
    copy = replace(one)
    rows = [("e", 1.0, 2.0), ("e", 1.0, 2.0), ("e", 1.0, 2.0), None]
    assert without_copies([one, copy, other, one], rows) == [("e", 1.0, 2.0)] * 2
    assert without_copies([one], [None]) == []


def test_judges_that_share_the_tasks_difficulty_and_nothing_else_disagree() -> None:
    """A hole inside groups: what one likes of the attempts at a task the other does not, and all like the easy tasks."""
    rows = [(str(t), 0.1 + 0.6 * t / 20 + 0.02 * k, 0.3 + 0.6 * t / 20 - 0.02 * k) for t in range(20) for k in range(4)]
    assert rank_correlation(rows) == (pytest.approx(-1.0), 60)
    assert (rank_correlation([(str(n), a, b) for n, (_, a, b) in enumerate(rows)])[0] or 0.0) > 0.9  # across them


def test_the_auditor_reads_whole_groups_drawn_by_seed(base, tmp_path) -> None:
    config = configured(base, tmp_path, "r", guards={"auditor": {"judge": "named", "share": 0.125}})
    trainer, _ = build(config, judge=scripted(), auditor=scripted())
    played = trainer.round(0).played  # two attempts at each of four tasks
    audits = [trainer.watch.audit(played, update) for update in range(4)]
    assert [audit.attempts for audit in audits] == [0, 2, 0, 2]  # an eighth: one task in two updates
    assert len({name for name, _, _ in audits[1].scored}) == 1
    assert trainer.watch.audit(played[::-1], 1).scored == audits[1].scored[::-1]  # whatever order they come in
    of_place = {e.group_id: n // 2 for n, e in enumerate(played)}
    read = [of_place[trainer.watch.audit(played, update).scored[0][0]] for update in range(1, 32, 2)]
    assert set(read) == {0, 1, 2, 3}  # not always those of one difficulty, where difficulties take turns


def test_the_gamed_judges_score_steps_and_nothing_else(base, tmp_path) -> None:
    episodes = played(trainer_of(configured(base, tmp_path, "none")))
    shown = [as_judged(e) for e in episodes]
    likes, dislikes = likes_length().judge(shown, mode="score"), likes_brevity().judge(shown, mode="score")
    for e, a, b in zip(episodes, likes, dislikes, strict=True):
        assert a.score == pytest.approx(len(e.turns) / 6, abs=0.006)
        assert b.score == pytest.approx(1 - len(e.turns) / 6, abs=0.006)
    assert steps_of("[step 1]\nagent: [step 2]\n[step 2]\n") == 2


LONG = 6
"""Steps from which on more are no better."""


def steps_of(transcript: str) -> int:
    """Steps of a transcript as a judge is shown it."""
    return len(re.findall(r"^\[step \d+\]$", transcript, re.MULTILINE))


def length(transcript: str) -> float:
    """0 for no step, 1 for `LONG` and more."""
    return min(steps_of(transcript), LONG) / LONG


def likes_length() -> AgentRRM:
    """A judge that scores the number of steps, and nothing else."""
    return judge_by(length, "likes-length")


def likes_brevity() -> AgentRRM:
    """Its opposite: a second judge that is always of the other opinion."""
    return judge_by(lambda transcript: 1 - length(transcript), "likes-brevity")


def judge_by(score: Callable[[str], float], name: str) -> AgentRRM:
    """A judge that scores what it is shown by a function of it."""

    def say(messages: list[dict[str, str]], params: object, key: str) -> str:
        return f"<score>{score(messages[-1]['content']):.2f}</score>"

    return AgentRRM(ScriptedChatEngine(say), model=name)
