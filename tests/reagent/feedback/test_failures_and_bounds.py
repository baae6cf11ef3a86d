"""What a policy could gain by confusing its judge, or by taking more turns: nothing."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from feedback_lab import TURNS, configured, make_episode, reply, scripted, trainer_of
from test_feedback import judged_text

from reagent.env.task import Task
from reagent.errors import GradeFailed
from reagent.feedback.base import JudgedEpisode, Round
from reagent.feedback.judging import Judging, JudgingReport
from reagent.feedback.modes import ScoreFeedback
from reagent.feedback.settings import FeedbackConfig, ProcessConfig
from reagent.feedback.shaping import with_findings
from reagent.rollout.episode import Episode
from reagent.tasks.judged import AnswerJudge
from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, EngineError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.criteria import Criteria, parse_criteria

LAMBDA = 0.3


# ---- process rewards are bounded ----


@pytest.mark.parametrize("verdict", ["good", "bad"])
def test_process_findings_are_bounded_per_episode(verdict: str) -> None:
    sums = []
    for turns in (4, 40):
        findings = [Finding(step=k, verdict=verdict) for k in range(1, turns + 1)]  # pyright: ignore[reportArgumentType]
        paid = with_findings(make_episode([0.0] * turns), findings, good=0.05, bad=-0.1, max_rewarded_steps=4)
        sums.append(sum(t.reward for t in paid.turns))
        assert sum(t.reward != 0 for t in paid.turns) == 4
    assert sums == pytest.approx([0.2 if verdict == "good" else -0.4] * 2)


def test_a_probable_finding_earns_its_share_within_the_same_bounds() -> None:
    """Hand-computed: 0.9 · 0.05, then (1 − 0.2) · −0.1; a finding without a probability earns all."""
    said = [("good", 0.9), ("bad", 0.2), ("good", None)]
    findings = [Finding(step=k, verdict=v, p_good=p) for k, (v, p) in enumerate(said, start=1)]  # pyright: ignore[reportArgumentType]
    paid = with_findings(make_episode([0.0] * 3), findings, good=0.05, bad=-0.1, max_rewarded_steps=4)
    assert [turn.reward for turn in paid.turns] == pytest.approx([0.045, -0.08, 0.05])
    many = [Finding(step=k, verdict="good", p_good=0.8) for k in range(1, 13)]
    paid = with_findings(make_episode([0.0] * 12), many, good=0.05, bad=-0.1, max_rewarded_steps=4)
    assert sum(turn.reward for turn in paid.turns) == pytest.approx(4 * 0.8 * 0.05)
    assert FeedbackConfig(process=ProcessConfig(judge_mode="steps")).process.judge_mode == "steps"


def test_the_bound_is_in_the_config_and_reaches_the_rows(base, tmp_path) -> None:
    praise = scripted(
        lambda text: "<think>t</think><critique>[step 1] good: a\n[step 2] good: b</critique><score>0.5</score>"
    )
    sums = {}
    for most in (0, 1, 4):
        config = configured(base, tmp_path, "process", environment={"options": {"parser": "search_tags"}},
                            feedback={"process": {"good": 0.05, "max_rewarded_steps": most}})  # fmt: skip
        round_ = trainer_of(config, praise).round(0)
        assert all(len(e.turns) == 2 for e in round_.played)
        added = [
            sum(t.reward for t in row.turns) - sum(t.reward for t in played.turns)
            for played, row in zip(round_.played, round_.rows, strict=True)
        ]
        sums[most] = added
    assert sums == {0: [0.0] * 8, 1: pytest.approx([0.05] * 8), 4: pytest.approx([0.1] * 8)}
    assert FeedbackConfig().process.max_rewarded_steps == 4


# ---- failures that the policy can cause ----


def test_confusing_the_judge_earns_the_floor_and_the_score_stays_none(base, tmp_path) -> None:
    config = configured(base, tmp_path, "r", feedback={"max_failure_rate": 0.5, "failure_reward": -0.5})
    whole = trainer_of(config, scripted()).round(0)
    broken = judged_text(whole.played[0])
    trainer = trainer_of(config, scripted(lambda text: "I cannot say." if text == broken else reply(text)))
    round_ = trainer.round(0)
    same = [i for i, e in enumerate(round_.played) if judged_text(e) == broken]
    for i, (row, before) in enumerate(zip(round_.rows, whole.rows, strict=True)):
        played = round_.played[i]
        assert played.outcome_reward is not None
        expected = played.outcome_reward + LAMBDA * -0.5 if i in same else before.outcome_reward
        assert row.outcome_reward == pytest.approx(expected)
    metrics = trainer.feedback.report(0, [round_.report])
    assert metrics["feedback/floored"] == metrics["feedback/failed"] == len(same)
    (said,) = {f.score for (_, _), f in trainer.feedback._judging.known.items() if f.status == "unparsable"}  # pyright: ignore
    assert said is None and round_.report.counts["score_n"] == 8 - len(same)
    assert trainer.learn(round_.rows)["unknown_rows"] == 0


@pytest.mark.parametrize(
    ("say", "floor", "unknown"), [("I cannot say.", 0.0, 0), ("I cannot say.", None, 8), (EngineError("503"), 0.0, 8)]
)
def test_only_what_the_policy_may_have_caused_has_a_floor(base, tmp_path, say, floor, unknown) -> None:
    config = configured(base, tmp_path, "r", feedback={"max_failure_rate": 1.0, "failure_reward": floor})
    round_ = trainer_of(config, scripted(lambda text: say)).round(0)
    assert sum(row.reward is None for row in round_.rows) == unknown
    known = [
        (row.reward, e.reward) for row, e in zip(round_.rows, round_.played, strict=True) if row.reward is not None
    ]
    assert all(paid == earned for paid, earned in known)


def test_without_findings_every_turn_counts_as_bad(base, tmp_path) -> None:
    feedback = {"max_failure_rate": 1.0, "process": {"bad": -0.1, "max_rewarded_steps": 4}}
    config = configured(
        base, tmp_path, "process", environment={"options": {"parser": "search_tags"}}, feedback=feedback
    )
    round_ = trainer_of(config, scripted(lambda text: "no")).round(0)
    for row, played in zip(round_.rows, round_.played, strict=True):
        assert [t.reward for t in row.turns] == pytest.approx([t.reward - 0.1 for t in played.turns])
    assert not JudgedEpisode(round_.played[0], None).policy_may_have_caused


# ---- which judge ----


@pytest.mark.parametrize("mode", ["c", "r", "u", "process", "placebo"])
def test_the_lab_judge_is_refused_where_it_cannot_read(base, tmp_path, mode: str) -> None:
    """It wrote noise into the rewards of the documented environment, without a word."""
    config = configured(base, tmp_path, mode, environment={"name": "calculator", "train": {"hops": 2}})
    with pytest.raises(
        ConfigError, match=rf"feedback\.mode={mode} .*search lab alone.*feedback\.judge=openai:BASE_URL#MODEL"
    ):
        trainer_of(config)
    trainer_of(config, scripted())  # a judge of one's own is one's own affair


def test_judge_options_reach_the_judge(tmp_path) -> None:
    from reagent.train.build_feedback import load_judge

    options = {"max_transcript_tokens": 64, "max_new_tokens": 32, "batch_tokens": 2048}
    settings = FeedbackConfig.model_validate({"mode": "r", "judge": "lab", "judge_options": options})
    judge = load_judge(settings, "cpu")
    assert (judge.settings.transcript_tokens, judge.settings.max_new_tokens) == (64, 32)
    assert judge.engine.max_batch_tokens == 2048  # pyright: ignore[reportAttributeAccessIssue]
    server = {"judge": "openai:http://localhost:1/v1#m", "judge_options": {"timeout_s": 5.0, "concurrency": 3}}
    engine = load_judge(FeedbackConfig.model_validate({"mode": "r", **server}), "cpu").engine
    assert (engine.timeout_s, engine.concurrency) == (5.0, 3)  # pyright: ignore[reportAttributeAccessIssue]
    wrong = FeedbackConfig.model_validate({"mode": "r", "judge": "lab", "judge_options": {"concurrency": 3}})
    with pytest.raises(RRMError, match=r"feedback\.judge=lab: .*concurrency"):
        load_judge(wrong, "cpu")


@pytest.mark.parametrize("text", ["the search was poor", "[step 1] unclear: who knows", "[step 99] good: well done"])
def test_a_poor_judgement_without_a_finding_takes_the_floor(base, tmp_path, text: str) -> None:
    for floor, paid in ((0.0, -0.1), (None, 0.0)):
        round_ = processed(base, tmp_path / str(floor), text, 0.1, floor)
        for row, played in zip(round_.rows, round_.played, strict=True):
            assert row.reward is not None and played.reward is not None
            assert row.reward - played.reward == pytest.approx(paid * len(played.turns))
        counts = round_.report.counts
        assert counts["without_finding"] == len(round_.rows) and counts["failed"] == 0
        assert counts["floored"] == (0 if floor is None else len(round_.rows))


def processed(base, folder: Path, critique: str, score: float, floor: float | None = 0.0) -> Round:
    """A round of mode `process` whose judge says this of every attempt; a good turn pays 0.01 and a bad one costs 0.1."""
    judge = scripted(lambda text: f"<think>t</think><critique>{critique}</critique><score>{score}</score>")
    paying = {"process": {"good": 0.01, "bad": -0.1, "max_rewarded_steps": None}, "failure_reward": floor}
    return trainer_of(configured(base, folder, "process", environment=TURNS, feedback=paying), judge).round(0)


@pytest.mark.parametrize("score", [0.5, 1.0])
def test_a_good_judgement_without_a_finding_costs_nothing(base, tmp_path, score: float) -> None:
    round_ = processed(
        base, tmp_path, "All four searches were necessary and the answer is right; nothing to fix.", score
    )
    assert [row.reward for row in round_.rows] == [played.reward for played in round_.played]
    assert round_.report.counts["without_finding"] == len(round_.rows) and round_.report.counts["floored"] == 0


def test_one_praised_turn_of_a_poor_attempt_frees_no_other(base, tmp_path) -> None:
    round_ = processed(base, tmp_path, "[step 1] good: x", 0.1)
    for row, played in zip(round_.rows, round_.played, strict=True):
        assert len(played.turns) > 1
        earned = [a.reward - b.reward for a, b in zip(row.turns, played.turns, strict=True)]
        assert earned == pytest.approx([0.01] + [-0.1] * (len(played.turns) - 1))


def test_a_poor_attempt_whose_bad_turn_is_named_pays_for_that_one(base, tmp_path) -> None:
    round_ = processed(base, tmp_path, "[step 2] bad: x", 0.1)
    for row, played in zip(round_.rows, round_.played, strict=True):
        earned = [a.reward - b.reward for a, b in zip(row.turns, played.turns, strict=True)]
        assert earned == pytest.approx([0.0, -0.1] + [0.0] * (len(played.turns) - 2))


MALFORMED = [
    '{"score": 0.8', '{"score": 0.', '{"critique": "[step 1] good: fine"}', '{"score": null, "critique": "fine"}',
    "Error 429: too many requests, retry after 1 second",
    '{"error": {"code": 503, "message": "overloaded, 1 of 1 servers"}}', "HTTP 500", "<score>429</score>",
]  # fmt: skip
GOOD = {1: 0.2, 2: 0.6, 3: 0.9}


def group() -> list[Episode]:
    """Four attempts at a task; the first is the one whose judgement is malformed."""
    results = []
    for n in range(4):
        messages = [Message(role="user", content="?"), Message(role="assistant", content=f"attempt {n}")]
        shown = Trajectory(id=f"g/{n}", task="?", messages=messages)
        made = make_episode([0.0], outcome=0.25)
        results.append(replace(made, group_id="g", attempt=n, trajectory=shown, prompt_messages=1))
    return results


class Replies:
    """Says each attempt's score in its own words; of the first, `malformed`, and what it is asked once more."""

    def __init__(self, malformed: str, repaired: str) -> None:
        self.malformed, self.repaired = malformed, repaired
        self.asked = 0

    def __call__(self, messages: list[dict[str, str]], params: Any, key: str) -> str:
        found = re.search(r"attempt (\d)", "".join(m["content"] for m in messages))
        assert found is not None
        if int(found[1]):
            return f"<score>{GOOD[int(found[1])]}</score>"
        self.asked += 1
        return self.malformed if self.asked == 1 else self.repaired


def paid(script: Any, criteria: Criteria | None = None) -> tuple[list[float | None], dict[str, int]]:
    """What the attempts earn beside the environment's 0.25, with λ = 1."""
    engine = ScriptedChatEngine(script)
    engine.asks_again = True
    judge = AgentRRM(engine, settings=JudgeSettings(opening=False, criteria=criteria))
    feedback = ScoreFeedback(FeedbackConfig(mode="r", score_weight=1.0), judging=Judging(judge, seed=0))
    episodes = group()
    round_ = feedback.round(0, [], lambda attempts, **hooks: episodes)
    return [None if row.reward is None else row.reward - 0.25 for row in round_.rows], dict(round_.report.counts)


@pytest.mark.parametrize("malformed", MALFORMED)
def test_one_malformed_reply_in_a_group_costs_its_own_row_alone(malformed: str) -> None:
    script = Replies(malformed, malformed)
    rewards, counts = paid(script)
    assert rewards == pytest.approx([0.0, 0.2, 0.6, 0.9])  # feedback.failure_reward, and the others' own
    assert script.asked == 2 and counts["failed_unparsable"] == counts["failed"] == 1
    script = Replies(malformed, "<score>0.4</score>")
    rewards, counts = paid(script)
    assert rewards == pytest.approx([0.4, 0.2, 0.6, 0.9]) and script.asked == 2 and not counts.get("failed")


def test_criteria_with_a_field_missing_are_asked_once_more_and_then_typed() -> None:
    asked = {"questions": {"done": {"ask": "Done?", "scale": "yes_no"}, "short": {"ask": "Short?", "scale": "yes_no"}}}
    criteria = parse_criteria(asked, "here")
    half = '<criterion name="done">\nanswer: yes\n</criterion>'
    whole = half + '\n<criterion name="short">\nanswer: no\n</criterion>'

    asked_of = list[bool]()

    def script(messages: list[dict[str, str]], params: Any, key: str) -> str:
        asked_of.append("attempt 0" in "".join(m["content"] for m in messages))
        return half if asked_of[-1] else whole

    rewards, counts = paid(script, criteria)
    assert rewards == pytest.approx([0.0, 0.5, 0.5, 0.5]) and counts["failed_unparsable"] == 1
    assert asked_of.count(True) == 2 and asked_of.count(False) == 3


@pytest.mark.parametrize(
    "reply", ['{"verdict": "correct"', '{"verdict": "correct"} 1', "Error 1: correct", '{"why": "1"}', "1"]
)
def test_a_judge_of_answers_takes_no_half_a_verdict(reply: str) -> None:
    """Cut, beside an error's text or without its fields it is typed after its tries, and is no grade."""
    engine = ScriptedChatEngine([reply] * 3)
    with pytest.raises(GradeFailed, match="could not be read in 3 tries"):
        AnswerJudge(engine).grade(Task("t", "Who?", "Ana"), "Bo")
    assert len(engine.calls) == 3


INFO = JudgeInfo(model="far", prompt_version="1", mode="score")


class Far:
    """A judge that knows no attempt which says "far", and cannot tell of one that says "unknown"."""

    engine = prompter = criteria = None

    def judge(self, trajectories: Sequence[Trajectory], mode: str, seed: int) -> list[Feedback]:
        marks = {"far": True, "near": False, "unknown": None}
        return [
            Feedback(
                id=t.id, judge=INFO, status="scored", score=0.5, raw_score=0.5,
                out_of_domain=marks[t.messages[-1].text()],
            )
            for t in trajectories
        ]  # fmt: skip

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: str) -> list[int]:
        return [1 for _ in trajectories]


def attempts(*text: str) -> list[Trajectory]:
    return [
        Trajectory(id=f"a{n}", task=f"{n}?", messages=[Message(role="user", content="?"), Message(role="assistant", content=one)])
        for n, one in enumerate(text)
    ]  # fmt: skip


def test_they_are_counted_each_time_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    judging = Judging(cast(Any, Far()), seed=0)
    with caplog.at_level(logging.WARNING):
        rounds = (("unknown", None), ("near unknown", 0), ("far near far unknown", 2), ("far near", 1))
        for said, outside in ((words.split(), outside) for words, outside in rounds):
            report = JudgingReport()
            judging.ask(attempts(*said), "score", 0, report)
            assert report.figures().get("feedback/outside") == outside
            told = sum(word != "unknown" for word in said)
            assert report.figures().get("feedback/placed") == (told or None)
            assert report.figures()["feedback/judged"] == len(said)
    (warned,) = [one.getMessage() for one in caplog.records]
    assert warned.startswith("2 of 3 transcripts are outside what this judge was measured on")


def test_counts_of_processes_add_up() -> None:
    one, other = JudgingReport(), JudgingReport()
    for report, said in ((one, ("far", "near")), (other, ("far", "far"))):
        Judging(cast(Any, Far()), seed=0).ask(attempts(*said), "score", 0, report)
    figures = one.merge(other).figures()
    assert (figures["feedback/outside"], figures["feedback/placed"]) == (3, 4)


def test_stages_of_one_judge_say_it_once(caplog: pytest.LogCaptureFixture) -> None:
    judging = Judging(cast(Any, Far()), seed=0, later=[(1, cast(Any, Far()))])
    with caplog.at_level(logging.WARNING):
        for update in (0, 1):
            judging.at(update).ask(attempts("far"), "score", update, JudgingReport())
            judging.known.clear()
    assert len(caplog.records) == 1
