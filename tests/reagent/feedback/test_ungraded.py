"""`ungraded` (no answer key) is not `unknown` (a judge or an environment failed): it learns from a judge's feedback alone."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from feedback_lab import PaidEnv, configured, make_episode, score_of, scripted, trainer_of
from rollout_models import Echo, says
from test_feedback import judged_text
from transformers import PreTrainedTokenizerFast

from reagent.env.env import StepResult, ToolEnv
from reagent.env.gradability import Grading
from reagent.env.graders import numeric
from reagent.env.task import Task, read_tasks
from reagent.feedback.base import judgeable
from reagent.feedback.settings import FeedbackConfig
from reagent.feedback.shaping import with_findings, with_score
from reagent.lab.search_env import SearchEnv
from reagent.report import read_runs, write_page
from reagent.rollout.episode import Episode
from reagent.rollout.rollout import rollout
from reagent.train.evaluate import evaluate, summarise
from reagent.train.metrics import episode_metrics
from reagent.train.run import train
from rrm.data.annotation import Finding
from rrm.engines.base import SamplingParams, StopReason
from rrm.errors import ConfigError, EngineError, ReadError

PARAMS = SamplingParams(max_new_tokens=64)
OPEN = Task("open", "Who?")


class OpenEnv(SearchEnv):
    """The search lab, whose tasks come without their answers."""

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        return await super().step(text)

    @staticmethod
    def make_tasks(n: int, seed: int, *, split: str = "train", **options: Any) -> list[Task]:
        return [
            Task(t.id, t.question, None, t.seed, t.question_id, t.meta)
            for t in SearchEnv.make_tasks(n, seed, split=split, **options)
        ]


# ---- episodes ----


def test_a_task_without_an_answer_plays_normally(tokenizer: PreTrainedTokenizerFast) -> None:
    """It ended in env_error."""
    e = rollout(says(tokenizer, "Answer: she"), tokenizer, ToolEnv, [OPEN], params=PARAMS)[0]
    assert (e.status, e.error, e.answer) == ("finished", None, "she")
    assert e.ungraded and (e.outcome_reward, e.reward, e.success, e.trajectory.outcome) == (None, None, None, None)
    assert judgeable(e) and Episode.from_json(e.to_json()) == e


def test_a_group_is_graded_wholly_or_not_at_all(tokenizer: PreTrainedTokenizerFast) -> None:
    """Also where some attempts answer and others run into a limit, of turns or of tokens."""
    call = '<tool_call>{"name": "none", "arguments": {}}</tool_call>'
    env = lambda: ToolEnv(max_turns=2, rewards={"unanswered": -0.5})  # noqa: E731
    for task, graded in ((OPEN, False), (Task("known", "Who?", "she"), True)):
        answered, limit = (
            rollout(says(tokenizer, said), tokenizer, env, [task], params=PARAMS)[0] for said in ("Answer: she", call)
        )
        tokens = rollout(
            says(tokenizer, call), tokenizer, env, [task], params=PARAMS, max_episode_tokens=len(limit.prompt_ids) + 30
        )[0]
        assert [e.status for e in (answered, limit, tokens)] == ["finished", "turn_limit", "token_limit"]
        assert [e.ungraded for e in (answered, limit, tokens)] == [not graded] * 3
        expected = [1.0, -0.5, -0.5] if graded else [None] * 3
        assert [e.outcome_reward for e in (answered, limit, tokens)] == expected
        assert [e.success for e in (answered, limit, tokens)] == ([True, False, False] if graded else [None] * 3)


def test_a_grader_of_ones_own_needs_no_answer(tokenizer: PreTrainedTokenizerFast) -> None:
    class Judged(ToolEnv):
        def grade(self, task: Task, answer: str) -> float:
            return float(len(answer) == 3)

    e = rollout(says(tokenizer, "Answer: she"), tokenizer, Judged, [OPEN], params=PARAMS)[0]
    assert not e.ungraded and e.reward == 1.0
    graded = ToolEnv(grader=lambda task, answer: 1.0)
    assert graded.is_graded(OPEN) and not graded.is_graded(Task("t", "?", graded=False))
    assert not ToolEnv().is_graded(OPEN)


def test_an_environment_that_ends_without_an_outcome_is_ungraded_and_one_that_fails_unknown(tokenizer) -> None:
    class Silent(Echo):
        async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
            return StepResult({"role": "assistant", "content": text}, [], 0.1, None, True, False, {})

    class Broken(Echo):
        async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
            raise OSError("gone")

    silent, broken = (
        rollout(says(tokenizer, "x"), tokenizer, env, [OPEN], params=PARAMS)[0] for env in (Silent, Broken)
    )
    assert silent.ungraded and judgeable(silent) and silent.status == "finished"
    assert not broken.ungraded and not judgeable(broken) and broken.status == "env_error"
    figures = episode_metrics([silent, broken, make_episode([0.0]), make_episode([0.0])])
    assert figures["episode/ungraded"] == figures["episode/unknown"] == 0.25


# ---- what feedback makes of them ----


def test_an_ungraded_episode_earns_what_the_judge_says_and_nothing_where_it_fails() -> None:
    episode = make_episode([0.1, 0.2], outcome=None)
    episode.ungraded = True
    assert with_score(episode, 0.5, 0.3).reward == pytest.approx(0.1 + 0.2 + 0.3 * 0.5)
    findings = [Finding(step=1, verdict="good"), Finding(step=2, verdict="bad")]
    assert with_findings(episode, findings, good=0.05, bad=-0.1).reward == pytest.approx(0.3 + 0.05 - 0.1)
    for failed in (with_score(episode, None, 0.3), with_findings(episode, None, good=1.0, bad=1.0)):
        assert failed.reward is None and not failed.ungraded
    unknown = make_episode([0.1], outcome=None)
    assert with_score(unknown, 0.5, 0.3).reward is None  # the environment failed: no score mends that


@pytest.mark.parametrize("mode", ["r", "u", "process"])
def test_tasks_without_answers_train_on_the_judges_word_alone(base, tmp_path, mode: str) -> None:
    config = configured(base, tmp_path, mode, environment={"name": "test_ungraded:OpenEnv"}, algorithm="grpo")
    trainer = trainer_of(config, scripted())
    before = {n: p.detach().clone() for n, p in trainer.policy.named_parameters()}
    round_ = trainer.round(0)
    assert {e.status for e in round_.played} <= {"finished", "turn_limit"} and all(e.ungraded for e in round_.played)
    assert all(row.reward is not None for row in round_.rows)
    if mode == "r":
        for played, row in zip(round_.played, round_.rows, strict=True):
            assert row.outcome_reward == pytest.approx(0.3 * score_of(judged_text(played)))
    metrics, _ = trainer.update()
    assert metrics["episode/ungraded"] == 1.0 and metrics["episode/unknown"] == metrics["unknown_rows"] == 0.0
    assert metrics["ungraded_rows"] == 0.0 and metrics["learned/rows"] == len(round_.rows)
    assert metrics["feedback/reward"] == pytest.approx(metrics["learned/reward"])
    assert "feedback/score_failure" not in metrics  # neither successes nor failures
    assert any(not p.equal(before[n]) for n, p in trainer.policy.named_parameters())


def test_scores_of_what_nobody_calls_a_success_are_of_no_failures(base, tmp_path) -> None:
    """An environment may pay and never say what a success is."""
    trainer = trainer_of(configured(base, tmp_path, "r", algorithm="grpo"), scripted())

    def play(*args: Any, **hooks: Any) -> list[Episode]:
        return [replace(e, success=None) for e in trainer.play(*args, **hooks)]

    round_ = trainer.round(0, play)
    assert not any(e.ungraded for e in round_.played) and all(row.reward is not None for row in round_.rows)
    figures = trainer.feedback.report(0, [round_.report])
    assert "feedback/score" in figures and not {"feedback/score_success", "feedback/score_failure"} & figures.keys()


def test_a_failed_judgement_of_an_ungraded_episode_is_unknown(base, tmp_path) -> None:
    config = configured(
        base, tmp_path, "r", environment={"name": "test_ungraded:OpenEnv"}, feedback={"max_failure_rate": 1}
    )
    trainer = trainer_of(config, scripted(lambda text: EngineError("503")))
    metrics, _ = trainer.update()
    assert (metrics["unknown_rows"], metrics["ungraded_rows"]) == (8, 0) and metrics["learned/rows"] == 0


def test_a_whole_run_without_answers_ends_with_figures_and_a_report(base, tmp_path) -> None:
    config = configured(base, tmp_path / "run", "r", environment={"name": "test_ungraded:OpenEnv"}, max_updates=2)
    summary = train(config, judge=scripted())
    json.dumps(summary, allow_nan=False)
    assert summary["reward"] is None and summary["held_out_success"]["value"] is None
    assert isinstance(summary["learned_reward"], float)
    page = tmp_path / "page.html"
    write_page(page, read_runs([str(tmp_path / "run")]))
    assert "NaN" not in page.read_text() and (tmp_path / "run" / "curves.png").stat().st_size > 0


# ---- before the first rollout ----


def test_a_task_set_without_any_answer_is_an_error_where_grades_are_all_there_is(base, tmp_path) -> None:
    config = configured(base, tmp_path / "run", "none", environment={"name": "test_ungraded:OpenEnv"})
    with pytest.raises(ConfigError, match=r"none of the 32 training tasks has an answer.*feedback\.mode=r\|u\|process"):
        train(config)
    assert not (tmp_path / "run").exists()


SPREAD, SHAPING = ({"mode": "process", "process": {"pay": pay}} for pay in ("spread", "shaping"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "none"}, "feedback.mode=none .*: choose feedback.mode=r"),
        ({"mode": "c"}, "feedback.mode=c .*: choose feedback.mode=r"),
        ({"mode": "retry"}, "feedback.mode=retry .*: choose feedback.mode=r"),
        ({"mode": "r", "score_weight": 0.0}, "feedback.score_weight=0 .*: set feedback.score_weight above 0"),
        ({"mode": "u", "score_weight": 0.0}, "feedback.score_weight=0 .*: set feedback.score_weight above 0"),
        ({"mode": "process", "process": {"good": 0.0, "bad": 0.0}}, "good=0 and bad=0 .*: set them"),
        ({**SPREAD, "score_weight": 0.0}, "feedback.score_weight=0 .*: set feedback.score_weight above 0"),
        (SHAPING, "pay=shaping, which adds up to 0, .*: choose feedback.process.pay=spread or findings"),
        ({"mode": "r"}, None),
        ({"mode": "u"}, None),
        ({"mode": "process"}, None),
        (SPREAD, None),
    ],
)
def test_which_modes_learn_without_answers(settings: dict[str, Any], message: str | None) -> None:
    """What does not says by which setting, and never to choose what is chosen already."""
    from reagent.train.check_feedback import check_labels

    feedback = FeedbackConfig.model_validate(settings)
    if message is None:
        check_labels(feedback, ToolEnv, [OPEN])
        return
    with pytest.raises(ConfigError, match=rf"none of the 1 training tasks .*{message}"):
        check_labels(feedback, ToolEnv, [OPEN])


def test_some_tasks_without_answers_are_said_where_they_teach_nothing(caplog: pytest.LogCaptureFixture) -> None:
    from reagent.train.check_feedback import check_labels

    tasks = [OPEN, Task("known", "?", "x")]
    with caplog.at_level(logging.WARNING):
        check_labels(FeedbackConfig(mode="none"), ToolEnv, tasks)
        assert "1 of 2 training tasks have no answer" in caplog.text
        caplog.clear()
        check_labels(FeedbackConfig(mode="r"), ToolEnv, tasks)
        check_labels(FeedbackConfig(mode="none"), Echo, tasks)  # says nothing of what it grades
        assert not caplog.text


def test_answers_that_the_grader_cannot_compare_with_are_refused_before_training() -> None:
    from reagent.train.check_feedback import check_labels

    tasks = [Task("a", "?", "7"), OPEN, Task("b", "?", "seven")]
    with pytest.raises(ConfigError, match="'b': its reference 'seven' holds no number; grade by exact_match"):
        check_labels(FeedbackConfig(mode="r"), lambda: ToolEnv(grader=numeric), tasks)
    check_labels(FeedbackConfig(mode="r"), lambda: ToolEnv(grader=numeric), tasks[:2])


def test_an_environment_that_is_asked_of_its_tasks_is_made_when_needed_and_closed() -> None:
    made: list[Echo] = []

    def factory() -> Any:
        made.append(Echo())
        return made[-1]

    with Grading(factory) as grading:
        assert not grading.is_graded(Task("t", "?", "x", graded=False)) and not made
        assert grading.is_graded(OPEN) and grading.is_graded(OPEN)
        assert [env.closed for env in made] == [False]
    assert [env.closed for env in made] == [True]


def test_a_task_may_be_numbered(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"id": 7, "question": "?"}\n{"id": "x", "question": "?"}\n')
    assert [t.id for t in read_tasks(path)] == ["7", "x"]
    for line, message in (('{"id": true, "question": "?"}', "must be text"), ("[1]", "not a task")):
        path.write_text(line + "\n")
        with pytest.raises(ReadError, match=message):
            read_tasks(path)


def test_labels_are_drawn_by_task(base, tmp_path) -> None:
    """`environment.label_share`: the same tasks keep their grading whoever asks, and an environment keeps their answers."""
    from reagent.tasks.environments import with_labels

    tasks = [Task(f"t{i}", "?", "x", question_id=f"q{i // 2}") for i in range(2000)]
    kept = with_labels(tasks, 0.3, seed=1)
    graded = {t.id for t in kept if t.graded}
    assert 0.25 < len(graded) / 2000 < 0.35 and graded == {
        t.id for t in with_labels(tasks[::-1], 0.3, seed=1) if t.graded
    }
    assert all(a.graded == b.graded for a, b in zip(kept[::2], kept[1::2], strict=True))
    assert graded != {t.id for t in with_labels(tasks, 0.3, seed=2) if t.graded}
    assert with_labels(tasks, 1.0, seed=1) == tasks and all(t.answer == "x" for t in kept)
    config = configured(base, tmp_path, "r", environment={"label_share": 0.5})
    by_group: dict[str, set[bool]] = {}
    for e in trainer_of(config, scripted()).round(0).played:
        by_group.setdefault(e.group_id, set()).add(e.ungraded)
    assert sorted(map(len, by_group.values())) == [1] * 4 and len(set.union(*by_group.values())) == 2


def test_task_files_say_what_is_graded(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"question": "a?"}\n{"question": "b?", "answer": "x", "graded": false}\n')
    assert [(t.answer, t.graded) for t in read_tasks(path)] == [(None, True), ("x", False)]


# ---- evaluation ----


def test_evaluation_of_ungraded_tasks_reports_reward_and_score_not_success(base, tmp_path) -> None:
    config = configured(base, tmp_path, "r", environment={"name": "test_ungraded:OpenEnv"}, eval={"temperature": 1.0})
    trainer = trainer_of(config, scripted())
    tasks = OpenEnv.make_tasks(3, 0, split="heldout", hops=1)
    figures, _ = evaluate(replace(trainer.player(), env_factory=OpenEnv), tasks, trainer.feedback)
    json.dumps(figures, allow_nan=False)
    assert (figures["tasks"], figures["ungraded_tasks"], figures["by_task"]) == (3, 3, {})
    assert figures["success"] == {"value": None, "low": None, "high": None}
    assert (figures["exact_match"], figures["pass_at_k"]) == (None, {"1": None})
    assert 0.0 <= figures["feedback/score"] <= 1.0
    weight = config.feedback.score_weight
    assert figures["feedback/reward"] == pytest.approx(
        weight * figures["feedback/score"] + process_of(trainer, tasks, config)
    )


def process_of(trainer: Any, tasks: list[Task], config: Any) -> float:
    _, episodes = evaluate(replace(trainer.player(), env_factory=OpenEnv, config=config), tasks)
    return sum(t.reward for e in episodes for t in e.turns) / len(episodes)


def test_graded_tasks_keep_their_success_beside_ungraded_ones() -> None:
    right, wrong, open_ = make_episode([0.0], 1.0), make_episode([0.0], 0.0), make_episode([0.0], None)
    right.success, right.task, right.group_id = True, Task("right", "?", "a"), "right"
    open_.ungraded, open_.task, open_.group_id, open_.success = True, OPEN, OPEN.id, None
    figures = summarise([right, wrong, open_], samples=1, seed=0)
    assert figures["success"]["value"] == 0.5 and (figures["tasks"], figures["ungraded_tasks"]) == (3, 1)
    assert figures["by_task"] == {"right": 1.0, "t": 0.0} and PaidEnv().is_graded(OPEN)
