"""What is fitted after training: maps at the natural rate, and what a judge's package may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.default_judge.finish import Scored, carry, finish, fit_maps, recalibrate
from benchmarks.default_judge.said import Judged, floor_of
from benchmarks.default_judge.sources import Example
from benchmarks.judge_mint import kept
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import P_GOOD, Calibration, Platt
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings


def row(id: str, question: str, outcome: float, said: str) -> Example:
    messages = [Message(role="user", content=question), Message(role="assistant", content=said)]
    return Example(Trajectory(id=id, task=question, question_id=question, messages=messages, outcome=outcome), None, ())


def test_the_floor_of_the_calibration_error() -> None:
    assert floor_of([0.5], 0) == 0.5  # whatever the label is
    assert floor_of([0.0, 1.0, 1.0], 0) == 0.0
    rows = np.random.default_rng(0).random(485).tolist()
    assert 0.04 < floor_of(rows, 0) < 0.06
    assert floor_of(rows * 4, 0) < 0.6 * floor_of(rows, 0)


@pytest.fixture
def scored() -> Scored:
    """Raw scores around one half, as of a judge that learned from pairs; one run in five succeeds; half are read in windows."""
    rng, found = np.random.default_rng(0), []
    for i in range(400):
        y = float(i % 5 == 0)
        said = ("verified" if y else "crashed") if rng.random() < 0.7 else "looked"
        raw = float(np.clip(0.45 + 0.15 * y + rng.normal(0, 0.1), 0.01, 0.99))
        found.append((row(f"t{i}", f"q{i // 4}", y, said=f"{said} word{rng.integers(9)}"), raw, i % 2 == 0))
    return found


def test_maps_fitted_at_the_natural_rate_say_the_natural_rate(scored: Scored) -> None:
    settings = JudgeSettings(calibration=Calibration(modes={P_GOOD: Platt(a=1.0, b=0.5, rows=9), "steps": Platt(a=1.0, b=0.0, rows=9)}))  # fmt: skip
    found = recalibrate(settings, scored, "steps", "platt", 0)
    maps = settings.calibration
    assert maps.modes["steps"] == maps.modes["steps@windowed"]  # both readings are of one kind here
    mine = [(r.trajectory.outcome or 0.0, maps.apply("steps", raw, windowed=many)) for r, raw, many in scored]
    y, p = np.mean(mine, axis=0)
    assert p == pytest.approx(y, abs=1e-3)  # a logistic regression with a free intercept
    assert set(maps.modes) == {P_GOOD, "steps", "steps@windowed"}
    assert maps.modes[P_GOOD] == Platt(a=1.0, b=0.5, rows=9)
    assert (found["rows"], found["questions"], found["positive_rate"]) == (400, 100, 0.2)
    assert found["ece_before"] > 0.2 > 2 * found["ece_out_of_fold"] > 0
    assert found["ece_floor"] < 0.06


def test_one_kind_of_reading_may_stay_without_a_map_and_not_both(scored: Scored) -> None:
    once = [one for one in scored if not one[2]]
    assert set(fit_maps(once, "steps", "platt")) == {"steps"}
    with pytest.raises(RRMError, match=r"steps: .*steps@windowed: "):
        fit_maps(scored[:5], "steps", "platt")


def test_too_few_rows_in_windows_leave_the_map_that_training_fitted(scored: Scored) -> None:
    """It was dropped: rows read in windows took the other map, of another kind of score."""
    old: dict[str, Any] = {"steps": Platt(a=1.0, b=0.0, rows=40), "steps@windowed": Platt(a=2.0, b=-1.0, rows=300)}
    settings = JudgeSettings(calibration=Calibration(modes=old))
    few = [one for i, one in enumerate(scored) if not one[2] or i < 10]
    found = recalibrate(settings, few, "steps", "platt", 0)
    maps = settings.calibration.modes
    assert maps["steps@windowed"] == old["steps@windowed"] and maps["steps"] != old["steps"]
    assert found["fitted"] == ["steps"] and found["ece_out_of_fold"] > 0


def test_a_thin_fold_leaves_out_one_figure_and_not_the_maps(scored: Scored) -> None:
    """All successes are of one question: without its fold there is no map."""
    failed = [one for one in scored if one[0].trajectory.outcome == 0.0][:60]
    won = [(row(f"w{i}", "one", 1.0, "verified"), 0.6, False) for i in range(6)]
    settings = JudgeSettings()
    found = recalibrate(settings, [*((r, raw, False) for r, raw, _ in failed), *won], "steps", "platt", 0)
    assert found["ece_out_of_fold"] is None and set(settings.calibration.modes) == {"steps"}


def test_nothing_is_written_where_something_cannot_be_fitted(scored: Scored, tmp_path: Path) -> None:
    save_settings(tmp_path, JudgeSettings())
    told = finish(tmp_path, scored, "steps", "platt", 0)
    assert set(told) == {"calibration"}
    assert set(load_settings(tmp_path).calibration.modes) == {"steps", "steps@windowed"}
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    falling = [(r, 1.0 - raw, many) for r, raw, many in scored]
    with pytest.raises(RRMError):
        finish(tmp_path, falling, "steps", "platt", 0)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def judge_of(folder: Path, settings: JudgeSettings) -> AgentRRM:
    """A judge of which only the folder is asked."""
    return AgentRRM(cast(Any, object()), settings=settings, model="m", model_hash="new", folder=folder)


def said_of(scored: Scored) -> Judged:
    info = JudgeInfo(model="m", model_hash="old", prompt_version="1", mode="steps")
    rows = [Feedback(id=r.trajectory.id, status="scored", score=raw, raw_score=raw, judge=info) for r, raw, _ in scored]
    return Judged("steps", feedback={f.id: f for f in rows})


def test_what_was_read_is_kept_as_the_changed_judges(scored: Scored, tmp_path: Path) -> None:
    settings = JudgeSettings(prompt_version="1")
    recalibrate(settings, [(r, raw, False) for r, raw, _ in scored], "steps", "platt", 0)
    rows, before, after = [r for r, _, _ in scored], tmp_path / "before", tmp_path / "after"
    before.mkdir()
    old = [f.model_dump_json() for f in said_of(scored).feedback.values()]
    (before / "steps.test.a.jsonl").write_text("".join(f"{line}\n" for line in old[:50]), encoding="utf-8")
    (before / "steps.unseen.b.jsonl").write_text("".join(f"{line}\n" for line in old[50:]), encoding="utf-8")
    (before / "score.test.a.jsonl").write_text("".join(f"{line}\n" for line in old), encoding="utf-8")
    assert carry(before, after, "steps", judge_of(tmp_path, settings), rows[:-1], 0) == len(rows) - 1
    again = {f.id: f for path in after.glob("*.jsonl") for f in kept(path)}
    assert sorted(p.name for p in after.glob("*.jsonl")) == ["steps.test.a.jsonl", "steps.unseen.b.jsonl"]
    for r, raw, _ in scored[:-1]:
        found = again[r.trajectory.id]
        assert (found.raw_score, found.score) == (raw, settings.calibration.apply("steps", raw))
        assert found.judge.model_hash == "new" and found.judge.calibrated
