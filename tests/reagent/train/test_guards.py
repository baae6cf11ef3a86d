"""Guards on hand-made series: when each fires, when not, and that a stopped run can be told from its rows alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer_setup import TASKS, by_task, succeed

from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.guard_settings import GuardConfig, GuardsConfig
from reagent.train.guards import Best, Guards, check_guards
from reagent.train.monitor_conditions import WINDOW
from reagent.train.prepare import prepare
from rrm.errors import ConfigError


def config(**changes: Any) -> AgentConfig:
    every = {"eval.every": 2, "feedback.mode": "r"} | changes
    return load_agent_config("lab", ["algorithm=grpo", *(f"{k}={v}" for k, v in every.items())])


GUARDS = [name for name, settings in GuardsConfig() if isinstance(settings, GuardConfig)]


def only(name: str, **changes: Any) -> AgentConfig:
    """Every other guard is off."""
    off = {f"guards.{n}.action": "none" for n in GUARDS if n != name}
    return config(**off, **{f"guards.{name}.{k}": v for k, v in changes.items()})


def row(number: int, success: Any = None, score: Any = None, auditor: Any = None, **more: Any) -> dict[str, Any]:
    """Evaluation `number` (from 0) of a run that is evaluated every second update, and before the first. Figures are one a task, or one
    for all of `TASKS`: then nothing is left to chance."""
    results: dict[str, Any] = {"update": 2 * number - 1, "episodes": 128 * number}
    for name, given in (("success", success), ("score", score), ("auditor", auditor)):
        values: list[Any] = [given] * TASKS if given is None or isinstance(given, float) else list(given)
        middle = given if given is None or isinstance(given, float) else float(np.mean(values))
        results[name] = {"value": middle, "low": middle, "high": middle}
        results["by_task" if name == "success" else f"{name}_by_task"] = {} if given is None else by_task(values)
    return results | more


def series(guards: Guards, rows: list[dict[str, Any]]) -> list[list[str]]:
    """Which guards fire at each evaluation."""
    return [[event.guard for event in guards.evaluated(r)] for r in rows]


# ---- within chance and beyond it ----


def quiet_runs(runs: int, tasks: int, evaluations: int, fall_at: int | None = None) -> list[dict[str, int]]:
    """Guards of runs whose policy stays as it is (or from `fall_at` on solves a tenth less of all tasks, as the score rises): outcomes are
    drawn anew at each evaluation, of rates drawn by Beta(½, ½); two honest judges give a success 0.3 more. The first evaluation at which each fires."""
    rng, found = np.random.default_rng(5), list[dict[str, int]]()
    for _ in range(runs):
        rates, guards, seen = rng.beta(0.5, 0.5, tasks), Guards(config(), watched=True), dict[str, int]()
        for n in range(evaluations):
            gone = fall_at is not None and n >= fall_at
            solved = (rng.random(tasks) < rates * (1 - 0.1 / rates.mean() * gone)).astype(float)
            said = [0.2 + 0.3 * solved + 0.15 * rng.standard_normal(tasks) for _ in range(2)]
            for event in guards.evaluated(row(n, solved, said[0] + 0.1 * gone, said[1])):
                seen.setdefault(event.guard, n)
        found.append(seen)
    return found


def test_a_policy_that_stays_as_it_is_fires_nothing() -> None:
    assert sum(bool(seen) for seen in quiet_runs(2, tasks=40, evaluations=10)) == 0


def test_success_that_falls_by_a_tenth_while_the_score_rises_is_seen() -> None:
    first_fired = quiet_runs(2, tasks=200, evaluations=8, fall_at=5)
    assert all(5 <= seen["success"] <= 7 for seen in first_fired)


def test_an_auditor_over_updates_stays_quiet_while_nothing_changes_and_sees_a_fall() -> None:
    """Two honest judges whose scores correlate by a half, of 16 attempts an update."""
    rng = np.random.default_rng(3)
    for fall, fires in ((0.0, False), (0.2, True)):
        guards = Guards(only("auditor"), watched=True)
        for n in range(40):
            both, first, second = (rng.standard_normal(16) for _ in range(3))
            gone = fall * (n >= 20)
            paid, said = 0.5 + 0.18 * (both + first) + gone, 0.5 + 0.18 * (both + second) - gone
            guards.observe(n, {"auditor/score": said.mean(), "auditor/judge_score": paid.mean()})
        assert bool(guards.events) == fires


# ---- success ----


@pytest.mark.parametrize(
    ("points", "fires_at"),
    [
        ([(0.4, 0.4), (0.5, 0.5), (0.45, 0.6)], 2),  # 0.05 below the best
        ([(0.4, 0.4), (0.5, 0.5), (0.46, 0.6)], None), ([(0.5, 0.5), (0.5, 0.5), (0.5, 0.6), (0.46, 0.7)], None),
        (
            [(0.5, 0.5), (0.4, 0.49)],
            None,
        ),  # the score follows: half of a tenth of the fall is enough where it tells tasks apart by less
        ([(0.5, 0.5), (0.4, 0.496)], 1), ([(0.5, 0.5), (0.4, 0.5)], 1),
        ([(0.5, None), (0.4, None), (0.4, None)], None),  # nobody knows the score
        ([(0.5, 0.4), (0.4, None), (0.4, None)], None),
        ([(0.5, 0.5), (None, 0.9), (None, 0.9)], None),  # nobody knows success
        ([(0.5, 0.5), (None, 0.9), (0.4, 0.5)], 2), ([(0.2, 0.2), (0.4, 0.5), (0.6, 0.9)], None),
    ],
)  # fmt: skip
def test_success_falls_and_the_score_does_not_follow(points: list[Any], fires_at: int | None) -> None:
    guards = Guards(only("success"), watched=True)
    fired = series(guards, [row(n, *point) for n, point in enumerate(points)])
    assert fired == [["success"] if n == fires_at else [] for n in range(len(points))]


def test_a_judge_that_differs_little_with_success_is_asked_to_fall_by_little() -> None:
    """Scores 0.35 and 0.65 of failures and successes: a fall of success by 0.2 is one of the score by 0.06."""
    before, now = succeed(50), succeed(30)
    scores = [0.35 + 0.3 * v for v in before]
    calibrated = Guards(only("success"), watched=True)
    assert series(calibrated, [row(0, before, scores), row(1, now, [0.35 + 0.3 * v for v in now])]) == [[], []]
    gamed = Guards(only("success"), watched=True)
    assert series(gamed, [row(0, before, scores), row(1, now, [0.45 + 0.3 * v for v in now])]) == [[], ["success"]]
    assert (
        "held-out success is 0.300 (after update 1), 0.200 (standard error 0.040) below its best (0.500, before the first update), and "
        "the judge's mean score went from 0.500 to 0.540" in guards_text(gamed)
    )


def guards_text(guards: Guards) -> str:
    return guards.events[0].text


def test_a_fall_within_chance_fires_nothing() -> None:
    """Of 20 tasks five are lost and two won: a fall by 0.15, of which the standard error is 0.13."""
    before = succeed(10, of=20)
    now = [*succeed(5, of=10), *succeed(2, of=10)]
    assert series(Guards(only("success"), watched=True), [row(0, before, 0.4), row(1, now, 0.6)]) == [[], []]


# ---- drift ----


@pytest.mark.parametrize(
    ("points", "fires_at"),
    [
        ([(0.3, 0.4), (0.4, 0.6), (0.5, 0.76)], 2),  # gap 0.10, 0.20, 0.26: more than 0.15 wider
        ([(0.3, 0.4), (0.4, 0.6), (0.5, 0.75)], None),  # 0.15 is allowed
        ([(0.3, 0.4), (0.8, 0.9)], None),  # success explains it
        ([(0.3, 0.4), (0.2, 0.46)], 1),
        ([(0.3, 0.9), (0.9, 0.9)], None),  # a score that stands still while success rises
        ([(None, 0.1), (0.3, 0.4), (0.3, 0.5), (None, 0.9)], None),  # the first that has both is the measure
    ],
)
def test_the_score_moves_further_than_success(points: list[Any], fires_at: int | None) -> None:
    fired = series(Guards(only("drift"), watched=True), [row(n, *point) for n, point in enumerate(points)])
    assert fired == [["drift"] if n == fires_at else [] for n in range(len(points))]


def test_without_judged_evaluations_the_scores_of_the_updates_between_are_compared() -> None:
    guards = Guards(only("drift"), watched=True)
    updates = [*[0.1] * 8, *[0.4] * 8, *[0.5, 0.7] * 4, *[0.6] * 8]
    fired = []
    for n, score in enumerate(updates):
        fired += guards.observe(n, {"feedback/score": score})
        if n % 8 == 7:
            fired += guards.evaluated(row(1, 0.3) | {"update": n})
    # 0.4, then 0.6: moved by 0.2 while success stood still; the 0.1 had no evaluation before them. Neighbours differ by 0.1 once and
    # by 0.2 seven times in 15 pairs: noise √(0.29 / 30), of means of eight half of that
    (event,) = fired
    assert event.update == 23 and "moved by +0.200 (to 0.600) and held-out success by +0.000" in event.text
    assert "standard error of the difference 0.049" in event.text


def test_means_of_few_updates_that_differ_among_themselves_prove_no_drift() -> None:
    """Two updates each, 0.1 apart where the level is: 0.2 more is 2.2 of the error, of which one knows as much as of two values."""
    guards = Guards(only("drift"), watched=True)
    for n, score in enumerate([0.1, 0.1, 0.4, 0.4, 0.5, 0.7]):
        assert not guards.observe(n, {"feedback/score": score})
        assert not (n % 2 and guards.evaluated(row(n // 2 + 1, 0.3)))


@pytest.mark.parametrize("episodes", [8, 64])
def test_scores_that_only_scatter_are_seldom_taken_for_a_drift(episodes: int) -> None:
    """Nothing changes: an update's episodes have scores spread over [0, 1], and every second update is evaluated."""
    rng, fired = np.random.default_rng(5), 0
    for _ in range(100):
        guards = Guards(only("drift"), watched=True)
        for n in range(24):
            guards.observe(n, {"feedback/score": float(rng.random(episodes).mean())})
            if n % 2:
                guards.evaluated(row(n // 2 + 1, 0.3))
        fired += bool(guards.events)
    assert fired <= 3


@pytest.mark.parametrize(
    "success",
    [
        [0.95 - 0.7 * 0.78 ** (n + 1) for n in range(24)],  # most is learned at first: means lag by 0.16 there, and by nothing at the end
        [min(0.2 + 0.05 * n, 1.35 - 0.05 * n) for n in range(18)],  # 0.15 below the best evaluation, and higher than on the way there
    ],
)  # fmt: skip
def test_a_score_that_is_success_itself_is_not_blamed_for_the_lag_of_its_means(success: list[float]) -> None:
    guards = Guards(config(**{"eval.every": 6}), watched=True)
    for n, solved in enumerate(success):
        guards.observe(n, {"feedback/score": solved})
        if (n + 1) % 6 == 0:
            guards.evaluated(row(1, solved) | {"update": n})
    assert not guards.events


def test_updates_scores_are_taken_as_they_were_before_recalibration() -> None:
    guards = Guards(only("drift"), watched=True)
    for n, score in enumerate([0.3, 0.3, 0.6, 0.6]):  # the first refit lifts what is paid
        guards.observe(n, {"feedback/score": score, "feedback/own_score": 0.3})
        assert not (n % 2 and guards.evaluated(row(n // 2 + 1, 0.3)))


def test_scores_of_training_and_of_held_out_episodes_are_not_mixed() -> None:
    guards = Guards(only("drift"), watched=True)
    guards.evaluated(row(0, 0.3, 0.4))
    guards.observe(0, {"feedback/score": 0.9})
    assert not guards.evaluated(row(1, 0.3))  # not judged
    assert not guards.evaluated(row(2, 0.3, 0.5))


@pytest.mark.parametrize(("name", "success"), [("drift", 0.5), ("success", 0.3)])
def test_a_run_that_goes_on_without_judged_evaluations_is_guarded_by_its_updates_scores(name, success) -> None:
    guards = Guards(only(name), watched=True)
    guards.replay([], [row(0, 0.5, 0.3)])
    fired = []
    for n in range(8):
        guards.observe(n, {"feedback/score": 0.3 + 0.05 * n})
        if n % 2:
            fired += guards.evaluated(row(n // 2 + 1, 0.5 if n < 4 else success))
    assert [event.guard for event in fired] == [name]


def test_drift_within_chance_fires_nothing() -> None:
    """Of 20 tasks eight are lost and four won while the score stands: 0.2 more than the gap of 0.15, with a standard error of 0.17."""
    before, now = succeed(10, of=20), [*succeed(2, of=10), *succeed(4, of=10)]
    assert series(Guards(only("drift"), watched=True), [row(0, before, 0.5), row(1, now, 0.5)]) == [[], []]
    assert series(Guards(only("drift"), watched=True), [row(0, 0.5, 0.5), row(1, 0.3, 0.5)]) == [[], ["drift"]]


# ---- length, kl ----


def test_episodes_grow_or_shrink() -> None:
    guards = Guards(only("length"), watched=True)
    tokens = [10.0, 14.0, 12.0, 24.1, 24.1, 24.0, 24.1, 24.2, 24.3, 30.0]  # 12 at first: above 24 at three running
    fired = [[e.guard for e in guards.observe(n, {"episode/action_tokens": t})] for n, t in enumerate(tokens)]
    assert fired == [[]] * 8 + [["length"], []]
    assert "an episode has 24.3 tokens, 2.02 times the 12.0 of the first 3 updates" in guards.events[0].text
    turns = Guards(only("length", patience=1), watched=True)
    fired = [bool(turns.observe(n, {"episode/turns": t})) for n, t in enumerate([4.0, 4.0, 4.0, 2.0, 1.9])]
    assert fired == [False] * 4 + [True]


def test_attempts_that_are_foreign_to_the_judge() -> None:
    def fired(guards: Guards, counts: list[tuple[float, float] | None]) -> list[bool]:
        rows = [{} if c is None else {"feedback/outside": c[0], "feedback/placed": c[1]} for c in counts]
        return [bool(guards.observe(n, row)) for n, row in enumerate(rows)]

    guards = Guards(only("out_of_domain", action="stop"), watched=True)
    assert fired(guards, [(12, 24), (13, 24), None, (24, 24), (0, 24)]) == [False, True, False, False, False]
    assert "13 of 24 judgements are of what lies outside of what the judge was measured on" in guards.events[0].text
    assert guards.events[0].action == "stop" and guards.standing == []  # it ended at the last update
    assert fired(
        Guards(only("out_of_domain", share=0, patience=2), watched=True), [(1, 24), (0, 24), (1, 9), (2, 9)]
    ) == [False] * 3 + [True]
    # a judge that cannot say
    assert fired(Guards(only("out_of_domain"), watched=True), [None, (0, 0)]) == [False, False]
    assert fired(Guards(only("out_of_domain"), watched=False), [(24, 24)]) == [False]  # which pays nothing


def test_a_kl_limit_holds_in_every_mode() -> None:
    for pays in (True, False):
        guards = Guards(only("kl", max=0.1, patience=1), watched=pays)
        fired = [bool(guards.observe(n, {"kl": k})) for n, k in enumerate([0.0, 0.1, 0.11, 0.2, 0.05, 0.3])]
        assert fired == [False, False, True, False, False, True]
    assert not Guards(only("kl"), watched=True).observe(0, {"kl": 99.0})  # no limit set


# ---- the auditor ----


def test_the_auditors_mean_falls_while_the_firsts_rises() -> None:
    guards = Guards(only("auditor"), watched=True)
    rows = [row(0, None, 0.3, auditor=0.5), row(1, None, 0.5, auditor=0.46), row(2, None, 0.7, auditor=0.4)]
    assert series(guards, rows) == [[], [], ["auditor"]]
    follows = [row(0, None, 0.7, auditor=0.5), row(1, None, 0.65, auditor=0.4), row(2, None, 0.6, auditor=0.3)]
    assert series(Guards(only("auditor"), watched=True), follows) == [[]] * 3


def test_two_judges_whose_scores_run_against_each_other() -> None:
    """Of 100 free comparisons: a standard error of 0.1, of which the first look takes 2.33 and the fourth 2.81."""
    guards = Guards(only("auditor", min_correlation=0.2), watched=True)
    results = [0.2, 0.19, None, 0.0, -0.05, -0.09]
    assert series(guards, [row(n, auditor_correlation=c, auditor_compared=100.0) for n, c in enumerate(results)]) == [
        *[[]] * 5, ["auditor"],
    ]  # fmt: skip
    assert "rank correlation of -0.09 (after update 9; 100 comparisons), below guards.auditor.min_correlation=0.2" in (
        guards.events[0].text
    )


def test_the_auditors_word_on_training_rows_is_of_updates_that_no_two_looks_share() -> None:
    guards = Guards(only("auditor"), watched=True)
    fired = []
    for n in range(2 * WINDOW):
        said = 0.6 if n < WINDOW else 0.5
        fired.append(bool(guards.observe(n, {"auditor/score": said, "auditor/judge_score": 0.1 * n})))
    assert [n for n, at in enumerate(fired) if at] == [2 * WINDOW - 1]
    against = Guards(only("auditor"), watched=True)
    said = [0.4] * WINDOW + [0.4, -1.0, -1.0, -1.0, -1.0]
    fired = [bool(against.observe(n, {"auditor/correlation": c, "auditor/compared": 12.0})) for n, c in enumerate(said)]
    assert [n for n, at in enumerate(fired) if at] == [2 * WINDOW - 1]  # -0.72 of 60 comparisons
    assert "rank correlation of -0.72 (over the last 5 updates that have one, to update 9" in against.events[0].text


# ---- all of them ----


def test_nothing_fires_where_no_judge_is_paid_or_all_is_well() -> None:
    gamed = [
        row(n, 0.5 - 0.1 * n, 0.2 * n, auditor=0.5 - 0.1 * n, auditor_correlation=-1.0, auditor_compared=19.0)
        for n in range(5)
    ]
    assert series(Guards(config(), watched=False), gamed) == [[]] * 5
    off = Guards(only("none"), watched=True)
    assert series(off, gamed) == [[]] * 5
    well = [
        row(n, 0.2 + 0.1 * n, 0.25 + 0.1 * n, auditor=0.2 + 0.1 * n, auditor_correlation=0.8, auditor_compared=19.0)
        for n in range(5)
    ]
    guards = Guards(config(), watched=True)
    assert series(guards, well) == [[]] * 5
    for n in range(10):
        steady = {"episode/action_tokens": 60.0 + n, "episode/turns": 3.0, "feedback/score": 0.3, "kl": 0.01 * n}
        assert not guards.observe(n, steady)
    assert not guards.standing


def test_a_spell_fires_once_and_a_second_one_anew() -> None:
    guards = Guards(only("drift"), watched=True)
    fired = series(guards, [row(n, 0.5, s) for n, s in enumerate([0.5, 0.7, 0.7, 0.5, 0.7])])
    assert fired == [[], ["drift"], [], [], ["drift"]]


def test_what_stands_stops_until_it_no_longer_holds_or_is_only_to_warn() -> None:
    rows = [row(0, 0.5, 0.5), row(1, 0.4, 0.6), row(2, 0.4, 0.6)]
    guards = Guards(only("success", action="stop", patience=2), watched=True)
    assert series(guards, rows) == [[], [], ["success"]] and guards.events[0].action == "stop"
    assert [e.guard for e in guards.standing] == ["success"]
    # a run that is continued sees the same rows, under the settings of today
    for changes, stands in (({"action": "stop"}, True), ({"action": "warn"}, False), ({"action": "stop", "drop": 0.2}, False),
                            ({"action": "stop", "patience": 3}, False)):  # fmt: skip
        again = Guards(only("success", **changes), watched=True)
        again.replay([], rows)
        assert bool(again.standing) == stands
    assert not guards.evaluated(row(3, 0.6, 0.6)) and not guards.standing


def test_replaying_takes_updates_and_evaluations_in_the_order_they_came() -> None:
    updates = [{"update": n, "feedback/score": s} for n, s in enumerate([0.4] * 8 + [0.7] * 8)]
    evaluations = [row(0, 0.3) | {"update": n} for n in (-1, 7, 15)]
    guards = Guards(only("drift"), watched=True)
    guards.replay(updates, evaluations)
    assert [(e.guard, e.update) for e in guards.events] == [("drift", 15)]
    assert guards.events[0].as_row(256) == {
        "update": 15, "episodes": 256, "guard": "drift", "action": "warn", "text": guards.events[0].text,
    }  # fmt: skip


def test_the_best_evaluation_is_named_by_success_and_without_by_the_auditor_never_by_the_judge_that_pays() -> None:
    guards = Guards(config(), watched=True)
    series(guards, [row(n, s, 0.1 * n) for n, s in enumerate([0.2, 0.5, 0.5, 0.4])])
    assert guards.best == Best(1, 128, "success", 0.5, 0.5, 0.5)
    guards = Guards(config(), watched=True)
    series(guards, [row(n, None, 0.1 * n, auditor=a) for n, a in enumerate([0.3, 0.2])])
    assert guards.best == Best(-1, 0, "auditor", 0.3, 0.3, 0.3)
    guards = Guards(config(), watched=True)
    series(guards, [row(0, None, 0.9)])
    assert guards.best is None
    guards = Guards(config(), watched=True)
    series(guards, [row(0, None, auditor=0.9), row(1, 0.5, auditor=0.8), row(2, None, auditor=0.95)])
    assert guards.best == Best(1, 128, "success", 0.5, 0.5, 0.5)  # never an auditor's value against a success


STOPS = {"guards.success.action": "stop"}
AUDITS = {"guards.auditor.action": "stop", "guards.auditor.judge": "default"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({**STOPS, "eval.every": 0}, "0 evaluations are made"),
        ({**STOPS, "environment.eval_tasks": 9}, "9 held-out tasks .* prove nothing, and it takes 10"),
        ({"guards.drift.action": "stop", "environment.eval_tasks": 9}, "9 held-out tasks"),
        ({"guards.drift.action": "stop", "eval.every": 0}, "0 evaluations are made"),
        ({"guards.drift.action": "stop", "feedback.score_from": "rank"}, "the mean score is ½ whatever is learned"),
        ({**STOPS, "eval.every": 50, "max_updates": 10}, "1 evaluations are made before the last update"),
        ({**STOPS, "eval.every": 4, "max_updates": 8, "guards.success.patience": 2}, "2 evaluations are made before the last update"),
        ({**STOPS, "eval.every": 4, "max_updates": 9, "guards.evaluate": "false"}, "2 evaluations are made .* it takes 3"),
        ({"guards.kl.action": "stop"}, "set guards.kl.max"),
        ({"guards.length.action": "stop", "max_updates": 6}, "it takes more than max_updates=6"),
        ({"guards.out_of_domain.action": "stop", "max_updates": 1}, "it takes more than max_updates=1"),
        ({"guards.auditor.action": "stop"}, "set guards.auditor.judge"),
        ({**AUDITS, "guards.auditor.share": 0.0, "guards.evaluate": "false"}, "neither evaluations"),
        ({**STOPS, "feedback.mode": "none"}, "feedback.mode=none .* nothing is learned from a judge"),
        ({**STOPS, "feedback.mode": "c"}, "nothing is learned from a judge"),
        ({**AUDITS, "feedback.mode": "process", "feedback.process.pay": "shaping", "feedback.score_weight": 0.0, "loss.credit": "turn"}, "nothing is learned"),
        ({"guards.auditor.judge": "lab", "feedback.score_mode": "score"}, "cannot disagree with itself"),
        ({"guards.auditor.judge": "lab", "guards.auditor.judge_mode": "full", "feedback.mode": "process", "feedback.process.judge_mode": "full"},
         "cannot disagree with itself"),
    ],
)  # fmt: skip
def test_a_guard_that_could_never_stop_anything_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_guards(config(**changes))


@pytest.mark.parametrize(
    "text", ["guards.length.ratio=1.0", "guards.success.action=halt", "guards.out_of_domain.share=1.0"]
)
def test_settings_that_mean_nothing_are_refused(text: str) -> None:
    name, _, value = text.partition("=")
    with pytest.raises(ConfigError, match=name):
        config(**{name: value})


@pytest.mark.parametrize(
    "changes",
    [
        {**STOPS, "eval.every": 4, "max_updates": 9},
        {**STOPS, "eval.every": 4, "max_updates": 13, "guards.evaluate": "false"},
        {**STOPS, "environment.eval_tasks": 10},
        {**STOPS, "feedback.score_from": "rank"},
        {"guards.auditor.judge": "lab", "feedback.score_mode": "score", "feedback.criteria": "tool-use"},  # other questions: it can disagree
        {"guards.auditor.judge": "lab", "feedback.score_mode": "score", "feedback.score_from": "rank"},
        {**STOPS, "feedback.mode": "process", "feedback.process.pay": "shaping", "loss.credit": "turn"},  # each turn is paid
        {**AUDITS, "guards.evaluate": "false"},
        {**STOPS, "feedback.mode": "u", "feedback.score_weight": 0.0},  # the judge's texts teach
        {"guards.kl.action": "stop", "guards.kl.max": 0.1, "feedback.mode": "none"},
    ],
)  # fmt: skip
def test_guards_that_can_stop_a_run_are_not(changes: dict[str, Any]) -> None:
    check_guards(config(**changes))


def test_an_auditor_that_is_never_asked_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_guards(config(**{"feedback.mode": "none", "guards.auditor.judge": "default"}))
    assert "guards.auditor.judge=default is not asked" in caplog.text


STAGES = "[{from: 0, file: simple.yaml}, {from: 4, file: hard.yaml}]"


def staged(name: str, criteria: str = STAGES, *more: str) -> AgentConfig:
    """One guard, evaluations every second update: the second stage begins with one."""
    off = {f"guards.{n}.action": "none" for n in GUARDS if n != name}
    return config(**off, **{"feedback.criteria": criteria}, **dict(change.split("=", 1) for change in more))


def stage_row(update: int, success: float, score: float | None, following: float | None = None) -> dict[str, Any]:
    results: dict[str, Any] = {"update": update, "success": {"value": success}, "by_task": by_task([success] * TASKS)}
    for name, value in (("score", score), ("next_score", following)):
        if value is not None:
            results |= {name: {"value": value}, f"{name}_by_task": by_task([value] * TASKS)}
    return results


def fired(config: AgentConfig, rows: list[dict[str, Any]]) -> list[int]:
    """After which updates a guard does."""
    guards = Guards(config, watched=True)
    return [r["update"] for r in rows if guards.evaluated(r)]


def test_a_jump_between_two_stages_is_no_drift_and_a_rise_within_one_is() -> None:
    """Harder questions, then easier ones than before: the scale alone moves."""
    quiet = [
        stage_row(-1, 0.3, 0.3), stage_row(1, 0.3, 0.35), stage_row(3, 0.3, 0.4, 0.8), stage_row(5, 0.3, 0.85),
        stage_row(7, 0.3, 0.9),
    ]  # fmt: skip
    assert fired(staged("drift"), quiet) == []
    assert fired(staged("drift", "simple.yaml"), quiet) == [5]  # as one scale it would be
    assert fired(staged("drift"), [*quiet, stage_row(9, 0.3, 0.96)]) == [9]  # 0.16 since the stage began
    early = [stage_row(-1, 0.3, 0.3), stage_row(1, 0.3, 0.35), stage_row(3, 0.3, 0.5, 0.1), stage_row(5, 0.3, 0.1)]
    assert fired(staged("drift"), early) == [3]  # the last look at a stage is by its own criteria


def test_success_is_compared_within_a_stage() -> None:
    rows = [
        stage_row(-1, 0.5, 0.5), stage_row(1, 0.5, 0.5), stage_row(3, 0.5, 0.5, 0.2), stage_row(5, 0.5, 0.2),
        stage_row(7, 0.4, 0.2),
    ]  # fmt: skip
    assert fired(staged("success"), rows) == [7]
    # harder criteria give less, whatever success does: a fall that looked as if the judge had seen it
    hidden = [stage_row(-1, 0.5, 0.9), stage_row(1, 0.5, 0.9), stage_row(3, 0.5, 0.9, 0.2), stage_row(5, 0.4, 0.2)]
    assert fired(staged("success"), hidden) == [5] and fired(staged("success", "simple.yaml"), hidden) == []


def test_a_stage_that_no_evaluation_begins_is_compared_from_its_first_one_on() -> None:
    config = staged("drift", "[{from: 0, file: simple.yaml}, {from: 5, file: hard.yaml}]")
    guards = Guards(config, watched=True)
    seen = []
    for update, score in enumerate((0.3, 0.3, 0.3, 0.3, 0.3, 0.8, 0.8, 0.8, 0.8, 1.0)):
        guards.observe(update, {"feedback/score": score})
        if update % 2:
            seen += [update] * bool(guards.evaluated(stage_row(update, 0.3, score)))
    assert seen == [9]


@pytest.mark.parametrize("second", [8, 9])
def test_scores_of_updates_are_of_one_stage_too(second: int) -> None:
    """guards.evaluate=false: the means between two evaluations. One that holds two scales is left out."""
    stages = f"[{{from: 0, file: a.yaml}}, {{from: {second}, file: b.yaml}}]"
    config = staged("drift", stages, "guards.evaluate=false")
    guards, seen = Guards(config, watched=True), []
    for update in range(28):
        score = 0.3 if update < second else 0.8 if update < 24 else 1.0
        guards.observe(update, {"feedback/score": score})
        if update % 4 == 3:
            seen += [update] * bool(guards.evaluated(stage_row(update, 0.3, None)))
    assert seen == [27]


def test_an_auditor_over_updates_is_compared_within_a_stage() -> None:
    """The first judge's level moves with the criteria; the second's word falls for good."""
    for criteria, fires in ((f"[{{from: 0, file: a}}, {{from: {2 * WINDOW}, file: b}}]", False), ("a", True)):
        guards = Guards(staged("auditor", criteria), watched=True)
        for update in range(4 * WINDOW):
            late = update >= 2 * WINDOW
            noise = 0.001 * (update % 3)
            said = {"auditor/score": 0.5 - 0.3 * late + noise, "auditor/judge_score": 0.4 + 0.4 * late + noise}
            guards.observe(update, said)
        assert bool(guards.events) == fires


def test_what_fired_at_the_end_of_a_stage_stops_the_run_there() -> None:
    guards = Guards(staged("drift", STAGES, "guards.drift.action=stop"), watched=True)
    for r in (stage_row(-1, 0.3, 0.3), stage_row(3, 0.3, 0.6, 0.1)):
        guards.evaluated(r)
    assert [event.guard for event in guards.standing] == ["drift"]
    again = Guards(staged("drift", STAGES, "guards.drift.action=stop"), watched=True)
    again.replay([{"update": n} for n in range(4)], [stage_row(-1, 0.3, 0.3), stage_row(3, 0.3, 0.6, 0.1)])
    assert again.standing == guards.standing


def test_a_guard_that_no_stage_is_long_enough_for_is_refused() -> None:
    """Each stage has three evaluations, with those at its ends: two comparisons."""
    short, stops = "[{from: 0, file: a}, {from: 4, file: b}, {from: 8, file: c}]", "guards.drift.action=stop"
    message = r"3 evaluations are made in any stage of feedback\.criteria before the last update \(eval\.every=2, max_updates=13\)"
    with pytest.raises(
        ConfigError, match=rf"guards\.drift\.action=stop can never stop anything: {message}, and it takes 4"
    ):
        check_guards(staged("drift", short, stops, "guards.drift.patience=3", "max_updates=13"))
    check_guards(staged("drift", short, stops, "guards.drift.patience=2", "max_updates=13"))
    check_guards(staged("drift", "a", stops, "guards.drift.patience=3", "max_updates=13"))


def bare(tmp_path: Path, graded: int, *overrides: str) -> AgentConfig:
    """Bare questions to train on, and twelve held-out ones of which so many have an answer."""
    for name, answers in (("train", 0), ("eval", graded)):
        rows = [{"question": f"{name} {i}?"} | ({"answer": "x"} if i < answers else {}) for i in range(12)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [f"environment.{name}={{path: {tmp_path}/{name}.jsonl}}" for name in ("train", "eval")]
    sizes = ["environment.train_tasks=12", "environment.eval_tasks=12", "eval.every=2", "max_updates=12"]
    judge = ["feedback.mode=r", "feedback.judge=openai:http://localhost:1/v1#m"]
    return load_agent_config("lab", ["environment.name=reagent.env:ToolEnv", *files, *sizes, *judge, *overrides])


@pytest.mark.parametrize("guard", ["success", "drift"])
def test_a_guard_that_is_to_stop_a_run_needs_held_out_answers(tmp_path: Path, guard: str) -> None:
    stop = f"guards.{guard}.action=stop"
    with pytest.raises(ConfigError, match=rf"guards\.{guard}\.action=stop can never .*: 9 of 12 held-out tasks have"):
        prepare(bare(tmp_path, 9, stop), 1)
    prepare(bare(tmp_path, 10, stop), 1)
    prepare(bare(tmp_path, 0), 1)  # to warn of nothing harms nobody, and is said by the run


def test_an_auditor_that_cannot_read_the_environment_is_refused_with_the_rest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"guards\.auditor\.judge=lab, which reads runs of the search lab alone"):
        prepare(bare(tmp_path, 12, "guards.auditor.judge=lab"), 1)
    prepare(bare(tmp_path, 12, "guards.auditor.judge=lab", "guards.auditor.action=none"), 1)
