"""Guards where the criteria of the judge that pays change: scores are compared within a stage, and what fired stands."""

from __future__ import annotations

from typing import Any

import pytest
from by_task import TASKS, by_task

from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.guards import Guards, check_guards
from reagent.train.monitor_conditions import WINDOW
from rrm.errors import ConfigError

STAGES = "[{from: 0, file: simple.yaml}, {from: 4, file: hard.yaml}]"


def only(name: str, criteria: str = STAGES, *more: str) -> AgentConfig:
    """One guard, evaluations every second update: the second stage begins with one."""
    off = [
        f"guards.{n}.action=none" for n in ("success", "drift", "length", "out_of_domain", "kl", "auditor") if n != name
    ]
    told = ["algorithm=grpo", "eval.every=2", "feedback.mode=r", f"feedback.criteria={criteria}", *off, *more]
    return load_agent_config("lab", told)


def row(update: int, success: float, score: float | None, following: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"update": update, "success": {"value": success}, "by_task": by_task([success] * TASKS)}
    for name, value in (("score", score), ("next_score", following)):
        if value is not None:
            found |= {name: {"value": value}, f"{name}_by_task": by_task([value] * TASKS)}
    return found


def fired(config: AgentConfig, rows: list[dict[str, Any]]) -> list[int]:
    """After which updates a guard does."""
    guards = Guards(config, watched=True)
    return [r["update"] for r in rows if guards.evaluated(r)]


def test_a_jump_between_two_stages_is_no_drift_and_a_rise_within_one_is() -> None:
    """Harder questions, then easier ones than before: the scale alone moves."""
    quiet = [row(-1, 0.3, 0.3), row(1, 0.3, 0.35), row(3, 0.3, 0.4, 0.8), row(5, 0.3, 0.85), row(7, 0.3, 0.9)]
    assert fired(only("drift"), quiet) == []
    assert fired(only("drift", "simple.yaml"), quiet) == [5]  # as one scale it would be
    assert fired(only("drift"), [*quiet, row(9, 0.3, 0.96)]) == [9]  # 0.16 since the stage began
    early = [row(-1, 0.3, 0.3), row(1, 0.3, 0.35), row(3, 0.3, 0.5, 0.1), row(5, 0.3, 0.1)]
    assert fired(only("drift"), early) == [3]  # the last look at a stage is by its own criteria


def test_success_is_compared_within_a_stage() -> None:
    rows = [row(-1, 0.5, 0.5), row(1, 0.5, 0.5), row(3, 0.5, 0.5, 0.2), row(5, 0.5, 0.2), row(7, 0.4, 0.2)]
    assert fired(only("success"), rows) == [7]
    # harder criteria give less, whatever success does: a fall that looked as if the judge had seen it
    hidden = [row(-1, 0.5, 0.9), row(1, 0.5, 0.9), row(3, 0.5, 0.9, 0.2), row(5, 0.4, 0.2)]
    assert fired(only("success"), hidden) == [5] and fired(only("success", "simple.yaml"), hidden) == []


def test_a_stage_that_no_evaluation_begins_is_compared_from_its_first_one_on() -> None:
    config = only("drift", "[{from: 0, file: simple.yaml}, {from: 5, file: hard.yaml}]")
    guards = Guards(config, watched=True)
    seen = []
    for update, score in enumerate((0.3, 0.3, 0.3, 0.3, 0.3, 0.8, 0.8, 0.8, 0.8, 1.0)):
        guards.observe(update, {"feedback/score": score})
        if update % 2:
            seen += [update] * bool(guards.evaluated(row(update, 0.3, score)))
    assert seen == [9]


@pytest.mark.parametrize("second", [8, 9])
def test_scores_of_updates_are_of_one_stage_too(second: int) -> None:
    """guards.evaluate=false: the means between two evaluations. One that holds two scales is left out."""
    stages = f"[{{from: 0, file: a.yaml}}, {{from: {second}, file: b.yaml}}]"
    config = only("drift", stages, "guards.evaluate=false")
    guards, seen = Guards(config, watched=True), []
    for update in range(28):
        score = 0.3 if update < second else 0.8 if update < 24 else 1.0
        guards.observe(update, {"feedback/score": score})
        if update % 4 == 3:
            seen += [update] * bool(guards.evaluated(row(update, 0.3, None)))
    assert seen == [27]


def test_an_auditor_over_updates_is_compared_within_a_stage() -> None:
    """The first judge's level moves with the criteria; the second's word falls for good."""
    for criteria, fires in ((f"[{{from: 0, file: a}}, {{from: {2 * WINDOW}, file: b}}]", False), ("a", True)):
        guards = Guards(only("auditor", criteria), watched=True)
        for update in range(4 * WINDOW):
            late = update >= 2 * WINDOW
            noise = 0.001 * (update % 3)
            said = {"auditor/score": 0.5 - 0.3 * late + noise, "auditor/judge_score": 0.4 + 0.4 * late + noise}
            guards.observe(update, said)
        assert bool(guards.events) == fires


def test_what_fired_at_the_end_of_a_stage_stops_the_run_there() -> None:
    guards = Guards(only("drift", STAGES, "guards.drift.action=stop"), watched=True)
    for r in (row(-1, 0.3, 0.3), row(3, 0.3, 0.6, 0.1)):
        guards.evaluated(r)
    assert [event.guard for event in guards.standing] == ["drift"]
    again = Guards(only("drift", STAGES, "guards.drift.action=stop"), watched=True)
    again.replay([{"update": n} for n in range(4)], [row(-1, 0.3, 0.3), row(3, 0.3, 0.6, 0.1)])
    assert again.standing == guards.standing


def test_a_guard_that_no_stage_is_long_enough_for_is_refused() -> None:
    """Each stage has three evaluations, with those at its ends: two comparisons."""
    short, stops = "[{from: 0, file: a}, {from: 4, file: b}, {from: 8, file: c}]", "guards.drift.action=stop"
    said = r"3 evaluations are made in any stage of feedback\.criteria before the last update \(eval\.every=2, max_updates=13\)"
    with pytest.raises(
        ConfigError, match=rf"guards\.drift\.action=stop can never stop anything: {said}, and it takes 4"
    ):
        check_guards(only("drift", short, stops, "guards.drift.patience=3", "max_updates=13"))
    check_guards(only("drift", short, stops, "guards.drift.patience=2", "max_updates=13"))
    check_guards(only("drift", "a", stops, "guards.drift.patience=3", "max_updates=13"))
