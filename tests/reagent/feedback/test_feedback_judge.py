"""The judge in training: what it is asked and when, what is learned of its texts, and evaluation with its critiques."""

from __future__ import annotations

import re
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from feedback_lab import TURNS, configured, read, reply, scripted, trainer_of

from reagent.feedback.judging import JudgeFailure, content_key
from reagent.feedback.texts import SFTRow, text_batches
from reagent.rollout.episode import Episode
from reagent.train.build_feedback import make_feedback
from reagent.train.evaluate import evaluate_config
from reagent.train.run import train
from rrm.errors import EngineError, RRMError
from rrm.judge.agent_rrm import AgentRRM

sys.path.append(str(Path(__file__).parents[2] / "rrm"))  # openai_server


# ---- the judge's texts ----


def test_texts_follow_the_attempt_as_it_was_played(base, tmp_path) -> None:
    trainer = trainer_of(configured(base, tmp_path, "u", environment=TURNS), scripted())
    round_ = trainer.round(0)
    first = [e for e in round_.played if e.stage == "initial"]
    assert [t.kind for t in round_.texts] == ["trace", "critique"] * 8
    for text in round_.texts:
        held = [e.prompt_ids + [i for t in e.turns for i in (*t.output_ids, *t.observation_ids)] for e in first]
        assert any(text.ids[: len(ids)] == ids for ids in held)
        said = trainer.tokenizer.decode(text.ids[text.start :])
        opening = "looked for fact" if text.kind == "trace" else "(good|bad): look for fact"
        assert re.match(rf"\[step 1\] {opening}", said) and said.endswith("<|im_end|>")


def test_a_share_of_the_texts_is_spread_over_the_groups(base, tmp_path) -> None:
    config = configured(base, tmp_path, "u", environment=TURNS, feedback={"aux": {"share": 0.25}})
    trainer = trainer_of(config, scripted())
    round_ = trainer.round(0)
    fourth, eighth = [e for e in round_.played if e.stage == "initial"][3::4]
    assert [t.kind for t in round_.texts] == ["trace", "critique"] * 2
    for text, episode in zip(round_.texts, (fourth, fourth, eighth, eighth), strict=True):
        ids = episode.prompt_ids + [i for t in episode.turns for i in (*t.output_ids, *t.observation_ids)]
        assert text.ids[: len(ids)] == ids


def test_the_texts_loss_is_the_weighted_mean_nll_and_so_is_its_gradient(base, tmp_path) -> None:
    trainer = trainer_of(configured(base, tmp_path, "none", algorithm="grpo"))
    rows = [SFTRow([5, 6, 7, 8], 2, "trace", 0.5), SFTRow([5, 9, 6, 6, 7], 1, "critique", 0.25),
            SFTRow([8, 5, 6], 1, "trace", 0.5)]  # fmt: skip
    kept: dict[int, dict[str, torch.Tensor]] = {}
    for budget in (1000, 5):  # in one micro-batch, and each row on its own
        trainer.config.optim.microbatch_tokens = budget
        trainer.policy.zero_grad()
        figures = trainer.imitate(rows)
        batches = text_batches(rows, {"trace": 4.0, "critique": 4.0}, budget)
        assert len(figures) == len(batches) == (1 if budget > 5 else 3)
        kept[budget] = {n: p.grad.clone() for n, p in trainer.policy.named_parameters() if p.grad is not None}
    sums = {"trace": 0.0, "critique": 0.0}
    trainer.policy.zero_grad()
    total = torch.tensor(0.0)
    for row in rows:
        logprobs = trainer.policy.model(torch.tensor([row.ids])).logits[0].log_softmax(-1)
        nll = -sum(logprobs[t - 1, row.ids[t]] for t in range(row.start, len(row.ids)))
        sums[row.kind] += float(nll.detach()) / 4  # four tokens of each kind
        total = total + row.weight * nll / 4
    total.backward()
    for name, parameter in trainer.policy.named_parameters():
        for gradients in kept.values():
            if parameter.grad is not None:
                torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
    assert sum(part.losses.get("trace_nll", 0.0) for part in figures) == pytest.approx(sums["trace"], rel=1e-4)
    assert sum(part.losses.get("critique_nll", 0.0) for part in figures) == pytest.approx(sums["critique"], rel=1e-4)


# ---- judging ----


@pytest.mark.parametrize("parts", [1, 4])
def test_the_logged_nll_is_of_the_steps_that_have_texts(base, tmp_path, parts: int) -> None:
    """One text is in one of four minibatches: a mean over all four would say a quarter of its loss."""
    optim = {"minibatches": parts, "learning_rate": 1e-12}
    trainer = trainer_of(configured(base, tmp_path, "none", algorithm="grpo", optim=optim))
    rows, ids = trainer.round(0).rows, [1, 5, 6, 7]
    with torch.no_grad():
        told = trainer.policy.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    expected = -sum(float(told[t - 1, ids[t]]) for t in (2, 3)) / 2
    metrics = trainer.learn(rows, [SFTRow(ids, 2, "critique", 0.1)])
    assert metrics["critique_nll"] == pytest.approx(expected, rel=1e-3) and "trace_nll" not in metrics


def test_what_was_judged_once_is_not_judged_again(base, tmp_path) -> None:
    judge = scripted()
    trainer = trainer_of(configured(base, tmp_path, "r"), judge)
    calls = judge.engine.calls  # pyright: ignore[reportAttributeAccessIssue]
    first = trainer.round(0)
    asked = len(calls)
    assert asked == len({content_key(e.trajectory) for e in first.played}) <= 8
    again = trainer.round(0)
    assert len(calls) == asked
    assert [e.outcome_reward for e in again.rows] == [e.outcome_reward for e in first.rows]
    metrics = trainer.feedback.report(0, [again.report])
    assert metrics["feedback/judged"] == 8 and metrics["feedback/asked"] == 0


def test_content_is_what_the_judge_reads() -> None:
    from rrm.data.trajectory import Trajectory

    message = {
        "role": "tool",
        "content": "x",
        "tool_call_id": "a",
        "timestamp": "2026-01-01T00:00:00Z",
        "duration_s": 1,
    }
    one = Trajectory.model_validate({"id": "1", "task": "q", "messages": [message], "outcome": 1.0})
    two = Trajectory.model_validate({"id": "2", "task": "q", "messages": [{"role": "tool", "content": "x"}]})
    other = Trajectory.model_validate({"id": "1", "task": "q", "messages": [{**message, "content": "y"}]})
    assert content_key(one) == content_key(two) != content_key(other)


def test_a_stopped_run_goes_on_with_the_numbers_of_an_unbroken_one(base, tmp_path) -> None:
    for name, stops in (("whole", (3,)), ("stopped", (1, 3))):
        for updates in stops:
            train(configured(base, tmp_path / name, "u", max_updates=updates), judge=scripted())
    assert read(tmp_path / "whole" / "metrics.jsonl") == read(tmp_path / "stopped" / "metrics.jsonl")
    records = [(tmp_path / name / "judgements.jsonl").read_text().splitlines() for name in ("whole", "stopped")]
    assert sorted(records[0]) == sorted(records[1])  # written in the order in which episodes ended


def test_a_judge_over_http_judges_while_others_still_play(base, tmp_path) -> None:
    """The first judgement is asked for before the last episode has ended, and the result is that of judging afterwards."""
    from openai_server import completion, serve

    rollout = {"max_turns": 4, "group_size": 4, "max_episode_tokens": 1400}
    config = configured(base, tmp_path / "http", "u", environment=TURNS, rollout=rollout)
    plain = configured(base, tmp_path / "plain", "u", environment=TURNS, rollout=rollout)
    afterwards = trainer_of(plain, scripted()).round(0)
    ended: list[int] = []
    asked: list[int] = []
    with serve(lambda n, body: completion(reply(body["messages"][-1]["content"]))) as server:
        config.feedback.judge = f"openai:{server.url}#m"
        trainer = trainer_of(config)
        play = trainer.play

        def watched(attempts: Any, *, update: int, **hooks: Any) -> list[Episode]:
            told = hooks.pop("on_end")

            def end(episode: Episode) -> None:
                told(episode)
                while not server.requests:  # the judge answers while the policy waits here
                    time.sleep(0.01)
                ended.append(len(server.requests))

            return play(attempts, update=update, on_end=end, **hooks)

        trainer.play = watched
        round_ = trainer.round(0)
        asked.append(len(server.requests))
    assert ended[0] >= 1 and len(ended) == 32
    assert [e.outcome_reward for e in round_.rows] == [e.outcome_reward for e in afterwards.rows]
    assert [t.ids for t in round_.texts] == [t.ids for t in afterwards.texts]
    assert round_.report.counts == afterwards.report.counts
    assert asked == [round_.report.counts["asked"]]


def test_texts_end_where_the_policys_turns_end(base, tmp_path) -> None:
    """A tokenizer's own end token need not be the one that ends a turn: the engine knows."""
    config = configured(base, tmp_path, "u")
    trainer = trainer_of(config, scripted())
    trainer.tokenizer.eos_token = trainer.tokenizer.pad_token
    adapter = make_feedback(config, trainer.tokenizer, device="cpu", judge=scripted(), eos_ids=trainer.engine.eos_ids)
    round_ = adapter.round(0, trainer.attempts(0), partial(trainer.play, update=0))
    assert round_.texts and {row.ids[-1] for row in round_.texts} == trainer.engine.eos_ids


# ---- evaluation ----


def test_reagent_eval_gives_a_frozen_policy_a_second_attempt(base, tmp_path) -> None:
    config = configured(base, tmp_path, "c", environment={"eval_tasks": 3}, eval={"samples": 2, "temperature": 1.0})
    figures, episodes = evaluate_config(config, judge=scripted())
    assert [e.stage for e in episodes] == ["initial"] * 6 + ["refined"] * 6
    plain, first = evaluate_config(configured(base, tmp_path, "none", environment={"eval_tasks": 3}, eval=config.eval))
    assert [e.turns[0].output_ids for e in first] == [e.turns[0].output_ids for e in episodes[:6]]
    assert figures["success"] == plain["success"] and "refined" not in plain
    assert figures["refined"]["tasks"] == 3 and set(figures["refined"]["by_task"]) == set(figures["by_task"])
    assert figures["feedback/judged"] == 6 and "Critique:" in episodes[-1].trajectory.prelude[-1].text()


def test_an_evaluation_with_a_judge_that_fails_is_none(base, tmp_path) -> None:
    def down(text: str) -> str | Exception:
        return EngineError("the server is down")

    config = configured(base, tmp_path, "c", environment={"eval_tasks": 3})
    with pytest.raises(JudgeFailure, match=r"evaluation: 3 of 3 judgements failed .*the server is down"):
        evaluate_config(config, judge=scripted(down))


def test_u_asks_once_for_what_it_needs_twice(base, tmp_path) -> None:
    settings = {"score_mode": "full", "critique_mode": "full"}
    round_ = trainer_of(configured(base, tmp_path, "u", feedback=settings), scripted()).round(0)
    assert round_.report.counts["judged"] == len(round_.played) == 16
    assert round_.report.counts["score_n"] == round_.report.counts["refined_score_n"] == 8


def test_a_missing_judge_is_named(base, tmp_path) -> None:
    with pytest.raises(RRMError, match=r"feedback\.judge=\./nowhere: no judge at"):
        trainer_of(configured(base, tmp_path, "r", feedback={"judge": "./nowhere"}))


def test_a_judge_in_this_process_scores_rollouts(base, tmp_path) -> None:
    """A real small model as the judge: one prefill a transcript, its tokens counted, its expected score the reward."""
    from reagent.lab.model import build_lab_model, build_lab_tokenizer
    from rrm.engines.hf.engine import HFEngine
    from rrm.judge.judge_dir import JudgeSettings
    from rrm.prompt.prompter import Prompter

    tokenizer = build_lab_tokenizer(["<score>0.1</score> What is the answer? search result"], 400)
    model = build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0).eval()
    settings = JudgeSettings(transcript_tokens=200, max_new_tokens=24)
    judge = AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, 200), settings=settings)
    trainer = trainer_of(configured(base, tmp_path, "r", environment=TURNS), judge)
    metrics, played = trainer.update()
    scores = [f.score or 0.0 for f in judge.judge([e.trajectory for e in played], mode="score")]
    assert metrics["feedback/score"] == pytest.approx(statistics.mean(scores))
    assert metrics["feedback/judge_tokens"] > 8 * 100 and metrics["feedback/failed"] == 0
