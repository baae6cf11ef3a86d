"""`feedback.criteria` in stages: which criteria judge which update, on one judge, on record; and what is refused."""

from __future__ import annotations

import json
import logging
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from feedback_lab import calls_of, configured, make_episode, read, same_run, trainer_of
from trainer_setup import settings

from reagent.feedback.judging import Judging, JudgingReport
from reagent.feedback.modes import ScoreFeedback
from reagent.feedback.settings import FeedbackConfig
from reagent.feedback.stages import by_stage, read_criteria
from reagent.rollout.episode import Episode
from reagent.train.build_feedback import load_judge, make_feedback
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.evaluate import evaluate_config
from reagent.train.run import build, train
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.loading import reply_tokens
from rrm.train.run_folder import check_folder, claim_folder


def config(base: Path, output: Path, *firsts: int, **changes: Any) -> AgentConfig:
    feedback = {"criteria": staged(output.parent, *firsts), **changes.pop("feedback", {})}
    return configured(base, output, "r", feedback=feedback, algorithm="grpo", **changes)


def episodes(*merits: int) -> list[Episode]:
    """Attempts at one task."""
    results = []
    for number, merit in enumerate(merits):
        said = [Message(role="user", content="?"), Message(role="assistant", content=f"merit {merit}")]
        trajectory = Trajectory(id=f"g/{number}", task="?", messages=said)
        made = make_episode([0.0], outcome=0.25)
        results.append(replace(made, group_id="g", attempt=number, trajectory=trajectory, prompt_messages=1))
    return results


def adapter(folder: Path, judge: AgentRRM, **feedback: Any) -> ScoreFeedback:
    """Mode `r` with the hard criteria from update 2 on."""
    asked = FeedbackConfig.model_validate({"mode": "r", "criteria": staged(folder, 2), **feedback})
    first, second = by_stage(judge, asked, read_criteria(asked))
    return ScoreFeedback(asked, judging=Judging(first, seed=0, later=[(2, second)]), updates=4)


# ---- which criteria judge ----


def test_each_update_is_judged_by_its_stages_criteria_and_says_which(base, tmp_path) -> None:
    judge = answering()
    train(config(base, tmp_path / "run", 1, 3, max_updates=4), judge=judge)
    rows = read(tmp_path / "run" / "metrics.jsonl")
    assert [row["feedback/criteria_stage"] for row in rows] == [0.0, 1.0, 1.0, 2.0]
    assert asked_by_update(tmp_path / "run") == {0: {"simple"}, 1: {"hard"}, 2: {"hard"}, 3: {"simple"}}
    # one engine was asked all of it
    shown = ["- short: " in messages[0]["content"] for messages, _, _ in calls_of(judge)]
    assert len(shown) == sum(row["feedback/asked"] for row in rows) and set(shown) == {True, False}
    assert judge.criteria is None  # what was handed in is as it was


def test_an_episode_that_was_played_ahead_is_judged_by_the_criteria_of_the_update_that_learns_it(
    base, tmp_path
) -> None:
    lagging = config(base, tmp_path / "run", 2, max_updates=4, save_every=50, rollout={"max_lag": 1})
    train(lagging, judge=answering())
    assert [row["staleness"] for row in read(tmp_path / "run" / "metrics.jsonl")] == [0.0, 1.0, 1.0, 1.0]
    assert asked_by_update(tmp_path / "run") == {0: {"simple"}, 1: {"simple"}, 2: {"hard"}, 3: {"hard"}}


def test_a_run_that_was_stopped_in_a_stage_goes_on_in_it_to_the_bit(base, tmp_path) -> None:
    """Between two stages, and within one."""
    torch.set_num_threads(1)
    again = {"rows": 64, "min_rows": 10, "min_each": 1}
    changes = {"save_every": 100, "eval": {"every": 2, "temperature": 1.0}}

    def run(name: str, updates: int) -> Path:
        asked = config(base, tmp_path / name, 2, max_updates=updates, feedback={"recalibrate": again}, **changes)
        train(asked, judge=answering())
        return tmp_path / name

    whole = run("whole", 5)
    rows = read(whole / "metrics.jsonl")
    assert [row["feedback/criteria_stage"] for row in rows] == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert [row["recalibration/rows"] for row in rows] == [8.0, 16.0, 8.0, 16.0, 24.0]  # other questions, another scale
    for stopped in (2, 4):
        run(f"stopped-{stopped}", stopped)
        folder = run(f"stopped-{stopped}", 5)
        same_run(folder, whole)


def test_relative_scores_are_asked_for_by_the_stages_questions(tmp_path) -> None:
    judge = AgentRRM(ScriptedChatEngine(lambda *_: "<ranking>A > B</ranking>"), model="ranks")
    feedback = adapter(tmp_path, judge, score_from="rank")
    for update in (1, 2, 3):
        feedback.round(update, [], lambda attempts, **hooks: episodes(1, 2))
    shown = ["Short?" in messages[0]["content"] for messages, _, _ in calls_of(judge)]
    assert shown == [False, True]  # the same attempts: compared once in each stage


def test_the_reference_answer_is_shown_in_the_stages_that_allow_it(tmp_path) -> None:
    _, hard = files(tmp_path)
    Path(hard).write_text("see_reference: true\n" + HARD)
    judge = answering()
    asked = FeedbackConfig.model_validate(
        {"mode": "r", "criteria": [{"from": 0, "file": str(tmp_path / "simple.yaml")}, {"from": 2, "file": hard}]}
    )
    first, second = by_stage(judge, asked, read_criteria(asked))
    feedback = ScoreFeedback(asked, judging=Judging(first, seed=0, later=[(2, second)]))
    task = replace(episodes(1)[0].task, answer="forty-two")
    for update in (1, 2):
        feedback.round(update, [], lambda attempts, **hooks: [replace(episodes(1)[0], task=task)])
    assert ["forty-two" in json.dumps(messages) for messages, _, _ in calls_of(judge)] == [False, True]


def test_calibration_begins_anew_with_other_criteria(tmp_path) -> None:
    """After update 1, before anything of update 2 is judged."""
    feedback = adapter(tmp_path, answering(), recalibrate={"rows": 64, "min_rows": 10, "min_each": 1})
    assert feedback.recalibration is not None
    graded = [(k / 12, k / 12, k / 12, float((k > 6) != (k % 5 == 0))) for k in range(1, 13)]
    held = []
    for update in range(4):
        figures = feedback.report(update, [JudgingReport(graded=graded)])
        kept = feedback.recalibration
        held.append((len(kept.rows), kept.map is not None, figures["recalibration/rows"]))
    assert held == [(12, True, 12.0), (0, False, 24.0), (12, True, 12.0), (24, True, 24.0)]


# ---- evaluations ----


def test_an_evaluation_between_two_stages_is_read_by_the_criteria_of_both(base, tmp_path) -> None:
    judge = answering()
    changes = {"max_updates": 3, "eval": {"every": 1, "temperature": 1.0}, "guards": {"auditor": {"action": "none"}}}
    train(config(base, tmp_path / "run", 2, **changes), judge=judge)
    rows = read(tmp_path / "run" / "eval.jsonl")
    assert [(row["update"], row["criteria_stage"], "next_score" in row) for row in rows] == [
        (-1, 0, False), (0, 0, False), (1, 0, True), (2, 1, False),
    ]  # fmt: skip
    assert set(rows[2]["next_score_by_task"]) == set(rows[2]["score_by_task"])
    assert all(score in (0.0, 1.0) for row in rows[:3] for score in row["score_by_task"].values())  # yes or no alone
    assert any(score not in (0.0, 1.0) for score in rows[2]["next_score_by_task"].values())
    # by the update that it stands after, so that a continued run finds it
    assert asked_by_update(tmp_path / "run")[1] == {"simple", "hard"}


# ---- one judge ----


def test_a_judge_is_loaded_once_with_room_for_the_longest_reply() -> None:
    tree = {"mode": "r", "judge": "openai:http://127.0.0.1:9/v1#m"}
    asked = FeedbackConfig.model_validate(
        {**tree, "criteria": [{"from": 0, "file": "task-success"}, {"from": 4, "file": "tool-use"}]}
    )
    judge = load_judge(asked, "cpu")
    judges = by_stage(judge, asked, read_criteria(asked))
    assert [one.criteria.name for one in judges if one.criteria] == ["task-success", "tool-use"]
    assert all(one.engine is judge.engine for one in judges)
    budgets = {(one.settings.max_new_tokens, one.settings.transcript_tokens) for one in judges}
    assert {most for most, _ in budgets} == {max(map(reply_tokens, read_criteria(asked)))} and len(budgets) == 1
    alone = FeedbackConfig.model_validate({**tree, "criteria": "tool-use"})
    (one,) = by_stage(load_judge(alone, "cpu"), alone, read_criteria(alone))
    assert one.settings == load_judge(alone, "cpu").settings


# ---- what is refused ----


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[{from: 1, file: a}]", r"feedback\.criteria: stage 0 is from 1"),
        ("[{from: 0, file: a}, {from: 4, file: b}, {from: 4, file: c}]", "stage 2 is from 4, and the stage before it from 4"),
        ("[{from: 0, file: a}, {from: 2.5, file: b}]", "stage 1: from: Input should be a valid integer"),
        ("[{from: 0, file: a}, {file: b}]", "stage 1: from: Field required"),
        ("[{from: 0, fil: a}]", "unknown key 'fil'; nearest valid key: file"),
        ("[{start: 0, file: a}]", "unknown key 'start'; the keys here are from, file"),
        ("[a, b]", r"stage 0 is no \{from: UPDATE, file: FILE\}"),
        ("[]", "name a file, or stages as"),
        ("{from: 0, file: a}", "name a file, or stages as"),
        ("3", "name a file, or stages as"),
    ],
)  # fmt: skip
def test_stages_that_mean_nothing_are_refused(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_agent_config("lab", [f"feedback.criteria={given}"])


def test_files_are_read_before_any_weights_and_the_stage_is_named(base, tmp_path) -> None:
    nowhere = tmp_path / "no-policy"
    (tmp_path / "broken.yaml").write_text("questions:\n  done: {ask: 'Done?', scal: yes_no}\n")
    for file, message in (
        ("no-such", r"feedback\.criteria, stage 1 \(from update 8, no-such\): no criteria 'no-such'"),
        (str(tmp_path / "broken.yaml"), r"stage 1 .*questions\.done\.scal.*scale"),
        (staged(tmp_path)[0]["file"], r"stage 1 .*: it asks what the stage before it does"),
    ):
        criteria = [{"from": 0, "file": str(tmp_path / "simple.yaml")}, {"from": 8, "file": file}]
        files(tmp_path)
        with pytest.raises(ConfigError, match=message):
            build(configured(nowhere, tmp_path / "run", "r", feedback={"criteria": criteria}), judge=answering())
    # where no judge is asked, nobody reads them
    unread = {"criteria": [{"from": 0, "file": "no-such"}]}
    assert build(configured(base, tmp_path / "run", "none", feedback=unread))[0].feedback.has_judge is False


def test_a_stage_that_is_never_reached_is_said(base, tmp_path, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        build(config(base, tmp_path / "run", 2, 3, 9), judge=answering())  # three updates
    assert "stage 2 (from update 3, " in caplog.text and "is not reached, nor is what follows it" in caplog.text


def test_judges_that_know_their_own_questions_are_refused(base, tmp_path) -> None:
    with pytest.raises(RRMError, match=r"stage 1 \(from update 1, .*trained to judge by its fixed rubric"):
        build(config(base, tmp_path / "run", 1), judge=AgentRRM.from_pretrained("lab", device="cpu"))
    own = answering()
    first, _ = by_stage(own, asked := config(base, tmp_path / "run", 1).feedback, read_criteria(asked))
    folder = tmp_path / "judge"
    folder.mkdir()
    (folder / "judge.json").write_text(first.settings.model_dump_json())
    kept = AgentRRM(ScriptedChatEngine([]), settings=first.settings, model="kept", folder=folder)
    with pytest.raises(ConfigError, match=r"stage 1 .*has criteria of its own, simple \("):
        by_stage(kept, asked, read_criteria(asked))


def test_a_stage_that_shows_the_reference_is_refused_where_the_policy_reads_the_judge(base, tmp_path) -> None:
    seeing = tmp_path / "seeing.yaml"
    seeing.write_text("see_reference: true\n" + HARD)
    feedback = {"criteria": [*staged(tmp_path), {"from": 2, "file": str(seeing)}]}
    asked = configured(base, tmp_path / "run", "c", feedback=feedback)
    with pytest.raises(ConfigError, match=r"stage 1 \(from update 2, .*feedback\.mode=c hands its texts to the policy"):
        build(asked, judge=answering())


def test_stages_are_of_a_training_alone(base, tmp_path) -> None:
    asked = config(base, tmp_path / "run", 2)
    with pytest.raises(
        ConfigError, match=r"has 2 stages.*feedback\.mode=r of an evaluation.*feedback\.criteria=.*hard\.yaml"
    ):
        evaluate_config(asked, judge=answering())
    one = asked.model_copy(
        update={"feedback": asked.feedback.model_copy(update={"criteria": asked.feedback.stages[:1]})}
    )
    assert make_feedback(one, None, device="cpu", judge=answering()).has_judge


def test_a_continued_run_has_the_stages_and_the_questions_it_began_with(base, tmp_path) -> None:
    asked = config(base, tmp_path / "run", 2, max_updates=1)
    train(asked, judge=answering())
    claim_folder(asked, tmp_path / "run")
    check_folder(config(base, tmp_path / "run", 2), tmp_path / "run", ("feedback",))
    with pytest.raises(RRMError, match="another feedback"):
        train(config(base, tmp_path / "run", 1, max_updates=2), judge=answering())
    judged = (tmp_path / "run" / "judgements.jsonl").read_text()
    later = config(base, tmp_path / "run", 2, max_updates=2)
    Path(later.feedback.stages[1].file).write_text(HARD.replace("weight: 3", "weight: 2"))
    with pytest.raises(RRMError, match=r"stage 1 \(from update 2, .*no longer those that this run was judged by"):
        train(later, judge=answering())
    assert (tmp_path / "run" / "judgements.jsonl").read_text() == judged
    Path(later.feedback.stages[1].file).write_text("# a comment asks nothing\n" + HARD)
    assert train(later, judge=answering())["updates"] == 2


def test_criteria_without_stages_are_asked_of_a_judge_that_is_handed_in(base, tmp_path) -> None:
    simple, _ = files(tmp_path)
    trainer = trainer_of(configured(base, tmp_path / "run", "r", feedback={"criteria": simple}), answering())
    metrics, _ = trainer.update()
    assert asked_by_update(tmp_path / "run") == {0: {"simple"}} and "feedback/criteria_stage" not in metrics
    assert trainer.feedback.state() == {"criteria": [read_criteria(trainer.config.feedback)[0].hash]}
    assert trainer_of(settings(base, tmp_path / "other")).feedback.state() == {}


SIMPLE = "name: simple\nquestions:\n  done: {ask: 'Done?', scale: yes_no}\n"
HARD = (
    "name: hard\nquestions:\n  done: {ask: 'Done?', scale: yes_no}\n  short: {ask: 'Short?', scale: unit, weight: 3}\n"
)


def files(folder: Path) -> tuple[str, str]:
    """The simple file and the hard one."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "simple.yaml", folder / "hard.yaml"
    for path, text in zip(paths, (SIMPLE, HARD), strict=True):
        path.write_text(text)
    return str(paths[0]), str(paths[1])


def staged(folder: Path, *firsts: int) -> list[dict[str, Any]]:
    """`feedback.criteria`: simple and hard in turn, from these updates on; `simple` from the first."""
    pair = files(folder)
    return [{"from": first, "file": pair[n % 2]} for n, first in enumerate((0, *firsts))]


def answer(messages: list[dict[str, str]], params: object = None, key: str = "") -> str:
    """To each question that is asked, by what is read alone."""
    read = zlib.crc32(messages[-1]["content"].encode())
    said = {"done": "yes" if read % 2 else "no", "short": f"{read % 11 / 10}"}
    asked = re.findall(r"^- (\w+): ", messages[0]["content"], re.MULTILINE)
    return "\n".join(
        f'<criterion name="{name}">\nwhy: w\nsteps: 1\nanswer: {said[name]}\n</criterion>' for name in asked
    )


def answering() -> AgentRRM:
    """A chat model as anybody would name it: it was asked no criteria yet."""
    return AgentRRM(ScriptedChatEngine(answer), model="answering")


def asked_by_update(folder: Path) -> dict[int, set[str]]:
    """Names of the criteria on record, by the update that they judged."""
    results: dict[int, set[str]] = {}
    for line in (folder / "judgements.jsonl").read_text().splitlines():
        row = json.loads(line)
        results.setdefault(row["update"], set()).add(row["feedback"]["judge"]["criteria"].split(" (")[0])
    return results
