"""`feedback.recalibrate`: the judge's calibration refitted on graded attempts; never on those it is to pay."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from feedback_lab import configured, read, scripted, trainer_of

from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.feedback.recalibration import Recalibration, calibration_error
from reagent.feedback.settings import FeedbackConfig, RecalibrateConfig
from reagent.train.check_feedback import check_labels
from reagent.train.checkpoint import checkpoints
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.run import train
from reagent.train.trainer import AgentTrainer
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.errors import ConfigError
from rrm.judge.calibration import Platt, fit

INFO = JudgeInfo(model="judge", prompt_version="1", mode="score")
SMALL = RecalibrateConfig(rows=40, min_rows=20, min_each=5)


def said(raw: float | None, score: float | None = None) -> Feedback:
    status = "scored" if raw is not None else "unparsable"
    return Feedback(id="t", status=status, score=raw if score is None else score, raw_score=raw, judge=INFO)


def graded(n: int) -> list[tuple[float, float, float, float]]:
    """Attempts that a judge scores 0.8 and 0.6, of which a half and a quarter succeed: it is too high by 0.3 and 0.35."""
    results = []
    for i in range(n):
        raw, label = (0.8, float(i // 2 % 2 == 0)) if i % 2 == 0 else (0.6, float(i // 2 % 4 == 0))
        results.append((raw, raw, raw, label))
    return results


def test_the_map_is_the_librarys_fit_on_what_was_graded_and_its_errors_are_told() -> None:
    again, rows = Recalibration(SMALL), graded(40)
    figures = again.observe(rows)
    expected = fit([r[0] for r in rows], [r[3] for r in rows])
    assert again.map == expected and figures["recalibration/rows"] == 40
    assert (
        figures["recalibration/ece_own"] == figures["recalibration/ece_paid"] == pytest.approx(0.5 * 0.3 + 0.5 * 0.35)
    )
    assert figures["recalibration/ece_fitted"] < 0.02 and figures["recalibration/falling"] == 0.0
    assert isinstance(expected, Platt)
    assert (figures["recalibration/slope"], figures["recalibration/intercept"]) == (expected.a, expected.b)
    high, low = again.apply(said(0.8, 0.9)), again.apply(said(0.6, 0.9))
    assert (high.score, high.raw_score) == (expected(0.8), 0.8)
    assert high.score == pytest.approx(0.5, abs=0.02) and low.score == pytest.approx(0.25, abs=0.02)


def test_the_order_of_scores_stays() -> None:
    again = Recalibration(SMALL)
    again.observe(graded(40))
    scores = [again.apply(said(raw / 20)).score or 0.0 for raw in range(21)]
    assert scores == sorted(set(scores))


def test_until_there_is_enough_the_judges_own_calibration_stands() -> None:
    again = Recalibration(SMALL)
    assert again.apply(said(0.8, 0.9)).score == 0.9
    assert again.observe(graded(19)) == {"recalibration/rows": 19.0} and again.map is None
    ones = Recalibration(SMALL)
    assert ones.observe([(0.8, 0.8, 0.8, 1.0)] * 36 + [(0.6, 0.6, 0.6, 0.0)] * 4) == {"recalibration/rows": 40.0}
    assert ones.map is None  # four failures are not five
    assert ones.apply(said(None)).score is None


def test_the_last_so_many_rows_count() -> None:
    again = Recalibration(SMALL)
    again.observe([(0.9, 0.9, 0.9, 0.0)] * 40)
    figures = again.observe(graded(40))
    assert figures["recalibration/rows"] == 40 and again.map == fit(
        [r[0] for r in graded(40)], [r[3] for r in graded(40)]
    )


def test_scores_that_fall_as_success_rises_leave_the_map_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    again = Recalibration(SMALL)
    again.observe(graded(40))
    before = again.map
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            figures = again.observe([(raw, raw, raw, 1.0 - label) for raw, _, _, label in graded(40)])
    assert figures["recalibration/falling"] == 1.0 and again.map == before and caplog.text.count("the map stays") == 1


def test_its_state_goes_through_json() -> None:
    again, other = Recalibration(SMALL), Recalibration(SMALL)
    again.observe(graded(40))
    other.restore(json.loads(json.dumps(again.state())))
    assert other.map == again.map and list(other.rows) == list(again.rows)
    assert other.observe(graded(3)) == again.observe(graded(3))


def test_ece_by_hand() -> None:
    assert calibration_error([0.8, 0.8, 0.6, 0.6], [1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.5 * 0.3 + 0.5 * 0.6)


# ---- in a training ----


def config(base: Path, output: Path, **changes) -> AgentConfig:
    """Half of the tasks are graded: of answers' lengths, a third succeed."""
    again = {"rows": 64, "min_rows": 10, "min_each": 1}
    feedback = {"recalibrate": again, "score_weight": 1.0}
    return configured(
        base, output, "r", feedback=feedback, environment={"label_share": 0.5}, algorithm="grpo", **changes
    )


def test_the_next_updates_scores_are_by_the_new_map_and_only_the_reward_sees_it(base, tmp_path) -> None:
    trainer = trainer_of(config(base, tmp_path), scripted())
    again = trainer.feedback.recalibration
    assert again is not None
    first = trainer.round(0)
    graded_ones = [e for e in first.played if not e.ungraded]
    assert len(first.report.graded) == len(graded_ones) and 0 < len(graded_ones) < len(first.played)
    for (_, own, paid, success), e in zip(first.report.graded, graded_ones, strict=True):
        assert own == paid and success == float(e.success or 0)
    again.observe([(r / 40, r / 40, r / 40, float((r > 20) != (r % 5 == 0))) for r in range(1, 41)])
    assert again.map is not None
    trainer.update_index = 1
    second = trainer.round(1)
    known = trainer.feedback._judging.known  # pyright: ignore[reportOptionalMemberAccess]
    assert all(f.score == f.raw_score for f in known.values())  # the record keeps the judge's own words
    ungraded = [row for row in second.rows if row.ungraded]
    mapped = [again.map(f.raw_score) for f in known.values() if f.raw_score is not None]
    for row in ungraded:
        assert min(abs((row.outcome_reward or 0.0) - score) for score in mapped) < 1e-12


def test_held_out_evaluations_are_not_fitted_on_and_a_continued_run_is_the_same_to_the_bit(base, tmp_path) -> None:
    torch.set_num_threads(1)
    changes = {"max_updates": 4, "eval": {"every": 1, "temperature": 1.0}, "save_every": 100}
    train(config(base, tmp_path / "whole", **changes), judge=scripted())
    rows = read(tmp_path / "whole" / "metrics.jsonl")
    held = [row["recalibration/rows"] for row in rows]
    per_update = [round((1 - row["episode/ungraded"]) * 8) for row in rows]
    assert held == [sum(per_update[: n + 1]) for n in range(4)]  # training's graded attempts, no other

    folder = tmp_path / "stopped"
    train(config(base, folder, **{**changes, "max_updates": 2}), judge=scripted())
    state = json.loads((folder / "checkpoints" / "checkpoint-000002" / "state.json").read_text())
    assert len(state["feedback"]["recalibration"]["rows"]) == held[1]
    train(config(base, folder, **changes), judge=scripted())
    assert read(folder / "metrics.jsonl") == rows
    assert read(folder / "eval.jsonl") == read(tmp_path / "whole" / "eval.jsonl")


# ---- what is refused ----


def test_an_update_that_fails_before_its_steps_is_observed_once(base, tmp_path, monkeypatch) -> None:
    """The checkpoint of before it must not hold its rows: they would count twice when the run goes on."""
    torch.set_num_threads(1)

    def run(name: str) -> list[dict[str, Any]]:
        train(config(base, tmp_path / name, max_updates=3, save_every=100), judge=scripted())
        return read(tmp_path / name / "metrics.jsonl")

    whole, prepare = run("whole"), AgentTrainer.prepare

    def broken(self: AgentTrainer, *args: Any, **more: Any) -> Any:
        if self.update_index == 1:
            raise OSError("no space left on device")
        return prepare(self, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(AgentTrainer, "prepare", broken)
        with pytest.raises(OSError, match="no space"):
            run("stopped")
    (kept,) = checkpoints(tmp_path / "stopped" / "checkpoints")
    state = json.loads((kept / "state.json").read_text())
    assert state["update"] == 1 and len(state["feedback"]["recalibration"]["rows"]) == whole[0]["recalibration/rows"]
    assert run("stopped") == whole


def test_it_needs_a_judge_and_grades() -> None:
    with pytest.raises(ConfigError, match=r"feedback\.recalibrate needs the judge's scores"):
        load_agent_config("lab", ["feedback.recalibrate={}"])
    assert load_agent_config("lab", ["feedback.recalibrate={}", "feedback.mode=r"]).feedback.recalibrate is not None
    with pytest.raises(ConfigError, match="can never hold"):
        load_agent_config("lab", ["feedback.recalibrate={rows: 20}", "feedback.mode=r"])
    settings = FeedbackConfig.model_validate({"mode": "r", "recalibrate": {}})
    with pytest.raises(
        ConfigError, match=r"feedback\.recalibrate fits on graded attempts, and none of the 1 training tasks"
    ):
        check_labels(settings, ToolEnv, [Task("open", "Who?")])
    check_labels(settings, ToolEnv, [Task("open", "Who?"), Task("known", "Who?", "she")])
