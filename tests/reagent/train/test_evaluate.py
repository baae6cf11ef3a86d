"""Held-out evaluation: one way of doing it, whoever asks."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from feedback_lab import PaidEnv, calls_of, configured, make_episode, scripted
from trainer_setup import settings

from reagent.cli import probe_cmd
from reagent.env.task import Task
from reagent.feedback.judging import content_key
from reagent.lab.search_env import SearchEnv
from reagent.rollout.episode import Episode, Turn
from reagent.train import run
from reagent.train.choosing import Cost, at_equal_tokens, distinct_by_n, evaluate_chosen, policy_tokens
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.evaluate import evaluate_config, mean_interval, summarise, without_interval
from reagent.train.probe import Probe, measured
from reagent.train.run import build, check_gate, train
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.choosing import STRATEGIES, Attempts, as_preference


def config(base: Path, output: Path) -> AgentConfig:
    tree: dict[str, Any] = {
        "output_dir": str(output), "cpu": True, "threads": 1, "max_updates": 1,
        "environment": {"train": {"hops": 1}, "eval": {"hops": 1}, "train_tasks": 8, "eval_tasks": 3},
        "policy": {"base": str(base)},
        "rollout": {"tasks_per_update": 2, "group_size": 2, "max_turns": 2, "max_new_tokens": 12},
        "eval": {"samples": 2, "temperature": 0.7},
    }  # fmt: skip
    return AgentConfig.model_validate(tree)


def test_a_run_and_reagent_eval_measure_the_same_policy_alike(base, tmp_path) -> None:
    settings = config(base, tmp_path)
    train(settings)
    *_, during = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    settings.policy.base = str(tmp_path / "policy")
    figures, episodes = evaluate_config(settings)
    assert len(episodes) == 6
    assert {k: during[k] for k in figures} == json.loads(json.dumps(figures))


def test_the_untrained_policy_is_measured_too_greedily_and_sampled(base, tmp_path) -> None:
    greedy = config(base, tmp_path).eval.model_copy(update={"temperature": 0.0, "sampled": 2})
    summary = train(settings := config(base, tmp_path).model_copy(update={"eval": greedy}))
    rows = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == [-1, 0]
    assert summary["untrained_success"] == rows[0]["success"]
    assert summary["sampled_success"] == rows[1]["sampled_success"]
    settings.rollout.temperature, settings.eval.sampled, settings.eval.temperature = 0.9, 0, 0.9
    sampled, _ = evaluate_config(settings)  # as the sampled attempts of an evaluation that is greedy
    assert "sampled_success" not in sampled
    settings.eval.temperature, settings.eval.sampled = 0.0, 2
    assert evaluate_config(settings)[0]["sampled_success"] == sampled["success"]


def test_evaluating_makes_no_training_tasks(base, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = SearchEnv.make_tasks

    def watched(n: int, seed: int, *, split: str = "train", **options: Any) -> Any:
        made.append(split)
        return make(n, seed, split=split, **options)

    monkeypatch.setattr(SearchEnv, "make_tasks", staticmethod(watched))
    evaluate_config(config(base, tmp_path))
    assert made == ["heldout"]


def test_intervals_are_over_tasks_and_nothing_has_none() -> None:
    interval = mean_interval([1.0] * 60 + [0.0] * 140, 200, seed=0)
    width = 1.96 * (0.3 * 0.7 / 200) ** 0.5
    assert interval["value"] == pytest.approx(0.3)
    assert [interval["low"], interval["high"]] == pytest.approx([0.3 - width, 0.3 + width], abs=0.01)
    assert mean_interval([], 0, seed=0) == summarise([], samples=1, seed=0)["success"]
    assert mean_interval([], 0, seed=0) == {"value": None, "low": None, "high": None}


def played(task: Task, success: bool | None, *, group: str = "t", ungraded: bool = False) -> Episode:
    """An attempt that was graded, or is `ungraded`, or (neither) whose environment failed."""
    status = "finished" if ungraded or success is not None else "env_error"
    outcome = None if success is None else float(success)
    made = make_episode([0.0], outcome)
    return replace(made, task=task, group_id=group, success=success, ungraded=ungraded, status=status)


def test_few_tasks_have_no_interval() -> None:
    for tasks, attempts, sure in ((6, 4, False), (1, 30, False), (19, 1, False), (20, 1, True), (10, 2, True)):
        episodes = [
            played(Task(f"t{t}", "?", "a", meta={"hops": 1 + t % 2}), t % 3 == 0, group=f"t{t}")
            for t in range(tasks)
            for _ in range(attempts)
        ]
        figures = summarise(episodes, samples=attempts, seed=0)
        assert figures["success"]["value"] == pytest.approx(-(-tasks // 3) / tasks)
        assert (figures["success"]["low"] is not None) == sure, (tasks, attempts)
        hops = [f"success_by_hops.{h}" for h in figures["success_by_hops"]]
        assert without_interval(figures) == ([] if sure else ["success"]) + hops
    one = {"success": {"value": None, "low": None, "high": None}, "refined": figures, "tasks": 3}
    assert without_interval(one) == ["refined.success_by_hops.1", "refined.success_by_hops.2"]


def test_two_tasks_of_one_id_are_two_tasks() -> None:
    task = Task("t", "?", "a")
    episodes = [played(task, True, group=g) for g in ("t", "t", "t#2", "t#2")]
    figures = summarise(episodes, samples=2, seed=0)
    assert (figures["tasks"], figures["pass_at_k"]) == (2, {"1": 1.0, "2": 1.0})
    assert figures["by_task"] == {"t": 1.0, "t#2": 1.0}


def test_an_ungraded_task_whose_environment_failed_is_no_failure() -> None:
    open_, known = Task("open", "?"), Task("known", "?", "a")
    graded = [played(known, True, group="known"), played(known, None, group="known")]
    once = [played(open_, None, group="open", ungraded=True), played(open_, None, group="open")]
    figures = summarise([*graded, *once], samples=2, seed=0)
    assert (figures["tasks"], figures["ungraded_tasks"], figures["by_task"]) == (2, 1, {"known": 0.5})
    always = [played(open_, None, group="open"), played(open_, None, group="open")]
    figures = summarise([*graded, *always], samples=2, seed=0, is_graded=lambda task: task.answer is not None)
    assert (figures["ungraded_tasks"], figures["by_task"], figures["unknown"]) == (1, {"known": 0.5}, 0.75)
    off = [played(replace(known, graded=False), None, group="off")] * 2  # the task says so itself
    assert summarise(off, samples=2, seed=0)["ungraded_tasks"] == 1
    failed = [played(known, None, group="known")] * 2  # graded, and never played to an end: no success
    assert summarise(failed, samples=2, seed=0)["by_task"] == {"known": 0.0}


def test_where_an_environment_pays_and_never_says_what_a_success_is_there_is_none() -> None:
    task = Task("paid", "?")
    paid = [replace(played(task, None, group="paid"), outcome_reward=r, status="finished") for r in (1.0, 0.5)]
    cut = replace(played(task, False, group="paid"), status="turn_limit")  # which a limit ended is no success by itself
    for attempts in (paid, [*paid, cut]):
        figures = summarise(attempts, samples=len(attempts), seed=0)
        assert (figures["ungraded_tasks"], figures["success"]["value"], figures["by_task"]) == (1, None, {})
    assert figures["reward"] == pytest.approx(0.5)


def test_unknown_grades_of_long_answers_are_told_apart() -> None:
    task = Task("t", "?", "a")

    def answered(tokens: int, success: bool | None) -> Episode:
        made = played(task, success)
        made.turns = [replace(made.turns[0], output_ids=[1] * tokens, output_logprobs=[0.0] * tokens)]
        return made

    # the median is 5: of the three longer ones two are unknown
    episodes = [
        answered(n, s) for n, s in ((2, True), (3, None), (4, False), (5, True), (6, None), (7, True), (90, None))
    ]
    figures = summarise(episodes, samples=7, seed=0)
    assert (figures["unknown"], figures["unknown_long_answers"]) == (pytest.approx(3 / 7), pytest.approx(2 / 3))
    assert summarise(episodes[:1], samples=1, seed=0)["unknown_long_answers"] is None


def test_an_evaluation_asks_the_environment_which_tasks_are_graded(base, tmp_path, monkeypatch) -> None:
    """Every step fails, so that no episode can say of itself that nobody grades it."""

    async def step(*_: Any, **__: Any) -> Any:
        raise OSError("no connection")

    monkeypatch.setattr(SearchEnv, "step", step)
    monkeypatch.setattr(SearchEnv, "is_graded", lambda self, task: False)
    figures, episodes = evaluate_config(config(base, tmp_path))
    assert {e.status for e in episodes} == {"env_error"} and not any(e.ungraded for e in episodes)
    assert (figures["tasks"], figures["ungraded_tasks"], figures["by_task"]) == (3, 3, {})


class OpenEnv(PaidEnv):
    """Its tasks come without their answers."""

    def is_graded(self, task: Task) -> bool:
        return False


def choosing_config(base: Path, output: Path, mode: str = "none", **changes: Any) -> AgentConfig:
    """Four attempts at each of four held-out tasks."""
    return configured(base, output, mode, **{"eval": {"samples": 4, "temperature": 1.0}, **changes})


def by_task(episodes: list[Episode]) -> dict[str, list[Episode]]:
    found: dict[str, list[Episode]] = defaultdict(list)
    for e in episodes:
        found[e.group_id].append(e)
    return found


def test_what_the_judge_chooses_is_what_it_scores_best(base, tmp_path) -> None:
    judge, settings = scripted(), choosing_config(base, tmp_path)
    figures, episodes = evaluate_chosen(settings, ["judge", "longest", "random", "oracle"], judge=judge)
    tasks = by_task(episodes)
    assert len(tasks) == 4 and all(len(found) == 4 for found in tasks.values())
    worth, best = [], []
    for group, found in tasks.items():
        scores = [e.trajectory.meta["judge_score"] for e in found]
        (chosen,) = [e for e in found if "judge" in e.trajectory.meta["chosen_by"]]
        assert chosen.trajectory.meta["judge_score"] == max(scores)
        assert figures["choose"]["chosen"][group]["judge"] == {
            "id": chosen.trajectory.id, "answer": chosen.answer, "score": max(scores),
        }  # fmt: skip
        worth.append(np.mean([float(e.success or 0) for e, s in zip(found, scores, strict=True) if s == max(scores)]))
        best.append(max(float(e.success or 0) for e in found))
    success = figures["choose"]["success"]
    assert success["judge"]["value"] == pytest.approx(np.mean(worth))
    assert success["random"]["value"] == pytest.approx(figures["success"]["value"])
    assert success["oracle"]["value"] == pytest.approx(np.mean(best))
    assert success["oracle"]["value"] == pytest.approx(figures["pass_at_k"]["4"])
    assert [*figures["choose"]["by_n"]] == ["2", "4"]
    tokens = sum(len(e.flatten().input_ids) for e in episodes)
    assert figures["choose"]["policy_tokens"] == policy_tokens(episodes) == tokens
    assert len(calls_of(judge)) == len({content_key(e.trajectory) for e in episodes})  # each content once
    assert figures["choose"]["judge_tokens"] == figures["feedback/judge_tokens"] > 0
    plain, same = evaluate_config(settings)  # the attempts are those of an evaluation without choosing
    assert [e.turns for e in same] == [e.turns for e in episodes] and plain["by_task"] == figures["by_task"]
    json.dumps(figures, allow_nan=False)


def test_without_answers_it_is_said_what_is_chosen_and_success_is_nothing(base, tmp_path, caplog) -> None:
    settings = choosing_config(base, tmp_path, "r", environment={"name": "test_evaluate:OpenEnv"})
    figures, episodes = evaluate_chosen(settings, ["judge", "oracle", "majority"], judge=scripted())
    assert "the oracle, which chooses by outcomes, is left out" in caplog.text
    assert figures["ungraded_tasks"] == 4 and figures["success"]["value"] is None
    chosen = figures["choose"]
    assert (chosen["graded_tasks"], chosen["by_n"], "success" in chosen) == (0, {}, False)
    assert all({*found} == {"judge", "majority"} for found in chosen["chosen"].values())
    marks = [[name for e in found for name in e.trajectory.meta["chosen_by"]] for found in by_task(episodes).values()]
    assert all(sorted(one) == ["judge", "majority"] for one in marks)


def test_no_judge_is_asked_where_no_strategy_does(base, tmp_path) -> None:
    judge = scripted()
    figures, episodes = evaluate_chosen(choosing_config(base, tmp_path), ["majority", "longest"], judge=judge)
    assert not calls_of(judge) and figures["choose"]["judge_tokens"] == 0
    assert figures["choose"]["judge_minus"] == {} and "judge_score" not in episodes[0].trajectory.meta


@pytest.mark.parametrize(
    ("changes", "strategies", "retries", "message"),
    [
        ({"eval": {"samples": 1}}, ["judge"], 0, "eval.samples=1: choosing needs several attempts"),
        ({"mode": "c"}, ["judge"], 0, "feedback.mode=c plays second attempts"),
        ({}, ["longest"], 1, "give --choose judge"),
        ({}, ["judge"], 5, "no more retries than eval.samples"),
    ],
)
def test_what_there_is_nothing_to_choose_from_is_refused(base, tmp_path, changes, strategies, retries, message) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluate_chosen(choosing_config(base, tmp_path, **changes), strategies, retries=retries, judge=scripted())


@pytest.mark.parametrize(
    ("strategies", "retries", "said"),
    [
        (["judge"], 0, "--choose judge with environment.name=calculator: the judge is feedback.judge=lab, which reads"),
        ([*STRATEGIES], 1, "--choose judge,weighted with environment.name=calculator"),
        ([*STRATEGIES], 1, "; or leave judge and weighted out of --choose and --retries (majority, longest"),
        (["weighted", "random"], 0, "; or leave judge and weighted out of --choose (majority, longest"),
    ],
)
def test_a_judge_that_cannot_read_the_tasks_is_refused_by_the_options_name(
    base, tmp_path, strategies, retries, said
) -> None:
    settings = choosing_config(base, tmp_path, environment={"name": "calculator"}, feedback={"judge": "lab"})
    with pytest.raises(ConfigError) as refused:
        evaluate_chosen(settings, strategies, retries=retries)
    assert said in str(refused.value) and "feedback.mode" not in str(refused.value)


# ---- second attempts at equal tokens ----


def group(question: int, scores: list[float | None], outcomes: list[float]) -> Attempts:
    n = len(outcomes)
    return Attempts(
        f"q{question}", range(n), np.ones(n), [None] * n, np.array(outcomes), {"judge": as_preference(scores)}
    )


def test_equal_tokens_by_hand(base, tmp_path, caplog) -> None:
    settings = choosing_config(base, tmp_path)
    # n attempts hold the success n times in four
    alone = [group(q, [0.9, 0.5, 0.4, 0.3], [1, 0, 0, 0]) for q in range(12)]
    both = [group(q, [0.1, 0.2], [1, 0] if q < 6 else [0, 1]) for q in range(12)]
    comparison = at_equal_tokens(alone, both, 2.5, settings)
    assert comparison["samples"] | {"success": None} == {"attempts": 2.5, "wanted": 2.5, "success": None}
    assert comparison["samples"]["success"]["value"] == pytest.approx((0.5 + 0.75) / 2)
    assert comparison["success"]["value"] == 0.5
    assert comparison["minus_samples"]["value"] == pytest.approx(0.5 - 0.625)
    minus = comparison["minus_samples"]
    assert minus["low"] < minus["value"] < minus["high"]
    assert not caplog.text
    four = [replace(g, question=f"{g.question}/{n}", asked=g.question) for g in both for n in range(4)]
    of_four = [replace(g, question=f"{g.question}/{n}", asked=g.question) for g in alone for n in range(4)]
    together = at_equal_tokens(of_four, four, 2.5, settings)  # each question asked in four ways
    assert together["success"] == comparison["success"] and together["minus_samples"] == comparison["minus_samples"]
    more = at_equal_tokens(alone, both, 5.2, settings)
    assert (more["samples"]["attempts"], more["samples"]["success"]["value"]) == (4.0, 1.0)
    assert "set eval.samples=6 or more" in caplog.text


def test_copies_of_an_attempt_are_judged_once_so_few_attempts_cost_more_than_their_share() -> None:
    """Of four attempts at a task three are the same: the judge reads two of them."""
    first = make_episode([0.0])
    other = make_episode([0.0])
    other.trajectory.messages[-1] = Message(role="assistant", content="something else")
    episodes = [first, first, other, first]
    distinct = distinct_by_n(episodes, 4)
    # by hand: the other one is among n of four with n/4, the copies' with …
    assert distinct == pytest.approx([0, 1, 1.5, 1.75, 2])
    cost = Cost(policy=400, judge=200, distinct=distinct)
    assert [cost.at(n) for n in (1, 2, 4)] == [(100, 100), (200, 150), (400, 200)]
    assert cost.at(1.5) == (150, 125)  # half of one attempt's and half of two attempts'
    for n in (1, 1.5, 3, 4):
        assert cost.attempts(sum(cost.at(n))) == pytest.approx(n)
    assert cost.attempts(1200) == pytest.approx(8)  # more than there are: at the mean price
    assert distinct_by_n([replace(first, turns=[])] * 4, 4) == [0] * 5  # nothing to judge
    assert Cost(policy=400, judge=0, distinct=[0.0] * 5).attempts(200) == pytest.approx(2)


@pytest.mark.parametrize("same_mode", [True, False])
def test_second_attempts_are_compared_at_equal_tokens(base, tmp_path, same_mode) -> None:
    feedback = {"score_mode": "full" if same_mode else "score", "critique_mode": "full"}
    judge = scripted()
    figures, episodes = evaluate_chosen(
        choosing_config(base, tmp_path, feedback=feedback), ["judge"], retries=1, judge=judge
    )
    retry, firsts = figures["retry"], [e for e in episodes if e.stage == "initial"]
    seconds = [e for e in episodes if e.stage == "refined"]
    again = [e for e in firsts if e.attempt == 0]
    assert [e.group_id for e in seconds] == [e.group_id for e in again] and retry["retries"] == 1
    assert retry["policy_tokens"] == policy_tokens([*again, *seconds])
    assert "Critique:" in seconds[0].trajectory.messages[1].text()
    contents = {content_key(e.trajectory) for e in firsts}
    assert len(calls_of(judge)) >= len(contents) + (0 if same_mode else 1)
    spent, alone = retry["policy_tokens"] + retry["judge_tokens"], retry["samples"]
    if alone["wanted"] <= 4:  # the same tokens, to a token's rounding
        assert alone["policy_tokens"] + alone["judge_tokens"] == pytest.approx(spent, abs=2)
    assert figures["feedback/judge_tokens"] >= retry["judge_tokens"]
    for e, s in zip(again, seconds, strict=True):  # the better scored of the two is marked
        scores = {x.key: x.trajectory.meta.get("judge_score", -1.0) for x in (e, s)}
        (chosen,) = [x for x in (e, s) if "retry" in x.trajectory.meta["chosen_by"]]
        assert scores[chosen.key] == max(scores.values())
    assert sum("retry" in x.trajectory.meta["chosen_by"] for x in episodes) == 4


GOOD = Probe(100, 8, greedy=0.4, sampled=0.4, best=0.6, live_groups=0.6, truncated=0.0, malformed=0.0, turn_tokens=9.0)


def episode(task: str, success: bool | None, reward: float | None, turn: dict[str, Any] | None = None) -> Episode:
    messages = [Message(role="user", content="?"), Message(role="assistant", content="!")]
    made = Turn([1, 2], [-1.0, -1.0], [], 0.0, **(turn or {}))
    transcript = Trajectory(id=task, task="?", messages=messages)
    return Episode(Task(task, "?", "a"), [1], [made], reward, "finished", None, success, task, "initial", transcript)


def test_figures_by_hand() -> None:
    """a: 1 of 4 right; b: none, all alike; c: nobody can grade it."""
    sampled = [episode("a", k == 0, float(k == 0)) for k in range(4)]
    sampled += [episode("b", False, 0.0) for _ in range(4)] + [episode("c", None, None) for _ in range(4)]
    probed = measured(sampled, [episode("a", True, 1.0), episode("b", False, 0.0), episode("c", None, None)], 4)
    assert (probed.tasks, probed.greedy, probed.sampled, probed.best, probed.live_groups) == (3, 0.5, 0.125, 0.5, 0.5)
    assert probed.turn_tokens == 2.0 and probed.malformed == 0.0 and probed.learnable is False
    penalised = [episode("b", False, 0.0, {"info": {"overlong": -0.1 * k}}) for k in range(4)]
    for k, long in enumerate(penalised):
        long.turns[0].reward = -0.1 * k
    assert measured(penalised, [episode("b", False, 0.0)], 4).live_groups == 0.0  # unlike in length alone
    sampled[0].turns[0].info.update(
        malformed=1, tool_calls=1
    )  # the only call of all: no obstacle to a task without tools
    assert measured(sampled, [episode("a", True, 1.0)], 4).malformed == pytest.approx(1 / 12)


def test_greedy_decoding_is_measured_on_the_tasks_that_samples_are() -> None:
    sampled = [episode(task, k == 0, float(k == 0)) for task in "ab" for k in range(4)]
    sampled += [episode("c", None, None) for _ in range(4)]  # an environment that failed in each
    probed = measured(sampled, [episode("a", True, 1.0), episode("b", None, None), episode("c", True, 1.0)], 4)
    assert (probed.greedy, probed.best) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({}, None), ({"sampled": 0.19}, "demonstrations first"), ({"sampled": 0.61}, "harder tasks"),
        ({"live_groups": 0.59}, "rollout.group_size"), ({"best": 0.54}, "little for rewards to find"),
        ({"truncated": 0.11}, "rollout.max_new_tokens"), ({"malformed": 0.21}, "environment.options.parser"),
    ],
)  # fmt: skip
def test_each_bound_names_what_to_change(changed: dict[str, float], text: str | None) -> None:
    found = replace(GOOD, **changed)
    assert found.learnable is (text is None)
    assert (text or "learnable: sampled success 0.40 (greedy 0.40, best of 8 0.60)") in found.verdict


def test_tasks_that_nobody_can_grade_say_nothing() -> None:
    probed = measured([episode("c", None, None)] * 2, [episode("c", None, None)], 2)
    assert probed.learnable is None and "give some of them an answer" in probed.verdict
    assert "why their environment fails" in probed.verdict  # of an attempt that failed so success is unknown, too
    assert json.loads(json.dumps(probed.figures(), allow_nan=False))["sampled"] is None


def test_a_training_measures_first_and_is_the_same_without(base: Path, tmp_path: Path) -> None:
    gate = {"tasks": 4, "samples": 2}
    with pytest.raises(RRMError, match="gate=warn trains all the same"):
        train(settings(base, tmp_path / "stopped", gate={"action": "stop", **gate}))
    runs = {
        name: settings(base, tmp_path / name, max_updates=1, gate=gate | {"action": name}) for name in ("warn", "off")
    }
    for config in runs.values():
        train(config)
    probed = json.loads((tmp_path / "warn" / "probe.json").read_text())
    assert (probed["tasks"], probed["samples"]) == (4, 2) and probed["verdict"].startswith("hardly learnable")
    assert not (tmp_path / "off" / "probe.json").exists()
    lines = [json.loads((tmp_path / name / "metrics.jsonl").read_text()) for name in runs]
    warned, off = ({k: v for k, v in line.items() if not k.startswith("time/")} for line in lines)
    gaps = [{k: one.pop(k) for k in [*one] if k.startswith("logprob_gap")} for one in (warned, off)]
    # to the bit, but for what decoding rounds otherwise in another batch: tools answer when they do
    assert warned == off
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-6)


def test_tasks_that_a_judge_alone_pays_are_no_reason_to_stop(base, tmp_path, monkeypatch) -> None:
    trainer, _ = build(settings(base, tmp_path, gate={"action": "stop"}))
    for sampled, stops in ((float("nan"), False), (GOOD.sampled, False), (0.0, True)):
        probed = replace(GOOD, sampled=sampled)
        monkeypatch.setattr(run, "probe", lambda *_, probed=probed: (probed, []))
        with pytest.raises(RRMError) if stops else nullcontext():
            check_gate(trainer)


@pytest.mark.parametrize("written", ["gate=off", "gate.action=off", "gate={action: off}"])
def test_the_gate_is_off_as_yaml_reads_it(written: str) -> None:
    assert load_agent_config("smollm2", [written]).gate.action == "off"


def test_the_command(base: Path, tmp_path: Path, invoke) -> None:
    options = [
        f"policy.base={base}", "environment.train.hops=[1]", "rollout.max_turns=2", "gate.tasks=3", "gate.samples=2",
    ]  # fmt: skip
    code, summary = invoke(probe_cmd.command, *options, "--transcripts", tmp_path / "played.jsonl")
    assert (code, summary["learnable"], summary["tasks"]) == (3, False, 3)
    assert len((tmp_path / "played.jsonl").read_text().splitlines()) == 3 * (2 + 1)
