"""Guards on hand-made series: when each fires, when not, and that a stopped run can be told from its rows alone."""

from __future__ import annotations

from typing import Any

import pytest

from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.guards import WINDOW, Best, Guards
from rrm.errors import ConfigError


def config(**changes: Any) -> AgentConfig:
    every = {"eval.every": 2, "feedback.mode": "r"} | changes
    return load_agent_config("lab", ["algorithm=grpo", *(f"{k}={v}" for k, v in every.items())])


def only(name: str, **changes: Any) -> AgentConfig:
    """Every other guard is off."""
    off = {f"guards.{n}.action": "none" for n in ("success", "drift", "length", "kl", "auditor") if n != name}
    return config(**off, **{f"guards.{name}.{k}": v for k, v in changes.items()})


def row(number: int, success: float | None = None, score: float | None = None, **more: Any) -> dict[str, Any]:
    """Evaluation `number` (from 0) of a run that is evaluated every second update, and before the first."""
    held: dict[str, Any] = {"update": 2 * number - 1, "episodes": 128 * number}
    named = {"success": success, "score": score, "auditor": more.pop("auditor", None)}
    return held | {k: {"value": v, "low": v, "high": v} for k, v in named.items()} | more


def series(guards: Guards, rows: list[dict[str, Any]]) -> list[list[str]]:
    """Which guards fire at each evaluation."""
    return [[event.guard for event in guards.evaluated(r)] for r in rows]


# ---- success ----


@pytest.mark.parametrize(
    ("points", "fires_at"),
    [
        ([(0.4, 0.4), (0.5, 0.5), (0.45, 0.6), (0.44, 0.7)], 3),  # 0.05 and more below at two running
        ([(0.4, 0.4), (0.5, 0.5), (0.46, 0.6), (0.44, 0.7)], None),  # the first of them by 0.04 only
        ([(0.5, 0.5), (0.4, 0.6), (0.5, 0.6), (0.4, 0.7)], None),  # never two running
        ([(0.5, 0.5), (0.4, 0.45), (0.3, 0.4)], None),  # the judge sees it: its score falls by half as much
        ([(0.5, 0.5), (0.4, 0.46), (0.3, 0.41)], 2),  # by a little less than half
        ([(0.5, None), (0.4, None), (0.4, None)], 2),  # nobody knows the score
        ([(0.5, 0.5), (None, 0.9), (None, 0.9)], None),  # nobody knows success
        ([(0.5, 0.5), (0.4, 0.5), (None, 0.9), (0.4, 0.5)], 3),  # what is not known ends no spell
        ([(0.2, 0.2), (0.4, 0.5), (0.6, 0.9)], None),
    ],
)
def test_success_falls_and_the_score_does_not_follow(points: list[Any], fires_at: int | None) -> None:
    guards = Guards(only("success"), pays=True)
    fired = series(guards, [row(n, *point) for n, point in enumerate(points)])
    assert fired == [["success"] if n == fires_at else [] for n in range(len(points))]


def test_the_score_is_compared_with_that_of_the_best_evaluation_the_last_of_equals() -> None:
    guards = Guards(only("success", patience=1), pays=True)
    assert series(guards, [row(0, 0.5, 0.9), row(1, 0.5, 0.5), row(2, 0.4, 0.5)]) == [[], [], ["success"]]
    assert (
        "is 0.400, 0.100 below its best (0.500, after update 1), and the judge's mean score went from 0.500 to 0.500"
        in (guards.events[0].text)
    )  # against 0.9 it would have followed


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
    fired = series(Guards(only("drift"), pays=True), [row(n, *point) for n, point in enumerate(points)])
    assert fired == [["drift"] if n == fires_at else [] for n in range(len(points))]


def test_without_judged_evaluations_the_scores_of_the_updates_between_are_compared() -> None:
    guards = Guards(only("drift"), pays=True)
    updates = [0.4, 0.4, 0.5, 0.7, 0.6, 0.6]
    fired = []
    for n, score in enumerate(updates):
        fired += guards.observe(n, {"feedback/score": score})
        if n % 2:
            fired += guards.evaluated(row(n // 2 + 1, 0.3))
    (event,) = fired  # 0.4, then 0.6: moved by 0.2 while success stood still
    assert event.update == 3 and "moved by +0.200 (to 0.600) and held-out success by +0.000" in event.text


def test_scores_of_training_and_of_held_out_episodes_are_not_mixed() -> None:
    guards = Guards(only("drift"), pays=True)
    guards.evaluated(row(0, 0.3, 0.4))
    guards.observe(0, {"feedback/score": 0.9})
    assert not guards.evaluated(row(1, 0.3))  # not judged
    assert not guards.evaluated(row(2, 0.3, 0.5))


# ---- length, kl ----


def test_episodes_grow_or_shrink() -> None:
    guards = Guards(only("length"), pays=True)
    tokens = [10.0, 14.0, 12.0, 24.1, 24.1, 24.0, 24.1, 24.2, 24.3, 30.0]  # 12 at first: above 24 at three running
    fired = [[e.guard for e in guards.observe(n, {"episode/action_tokens": t})] for n, t in enumerate(tokens)]
    assert fired == [[]] * 8 + [["length"], []]
    assert "an episode has 24.3 tokens, 2.02 times the 12.0 of the first 3 updates" in guards.events[0].text
    turns = Guards(only("length", patience=1), pays=True)
    fired = [bool(turns.observe(n, {"episode/turns": t})) for n, t in enumerate([4.0, 4.0, 4.0, 2.0, 1.9])]
    assert fired == [False] * 4 + [True]


def test_a_kl_limit_holds_in_every_mode() -> None:
    for pays in (True, False):
        guards = Guards(only("kl", max=0.1, patience=1), pays=pays)
        fired = [bool(guards.observe(n, {"kl": k})) for n, k in enumerate([0.0, 0.1, 0.11, 0.2, 0.05, 0.3])]
        assert fired == [False, False, True, False, False, True]
    assert not Guards(only("kl"), pays=True).observe(0, {"kl": 99.0})  # no limit set


# ---- the auditor ----


def test_the_auditors_mean_falls_while_the_firsts_rises() -> None:
    guards = Guards(only("auditor"), pays=True)
    rows = [row(0, None, 0.3, auditor=0.5), row(1, None, 0.5, auditor=0.44), row(2, None, 0.7, auditor=0.4)]
    assert series(guards, rows) == [[], [], ["auditor"]]
    follows = [row(0, None, 0.7, auditor=0.5), row(1, None, 0.65, auditor=0.4), row(2, None, 0.6, auditor=0.3)]
    assert series(Guards(only("auditor"), pays=True), follows) == [[]] * 3


def test_two_judges_whose_scores_run_against_each_other() -> None:
    guards = Guards(only("auditor", min_correlation=0.2), pays=True)
    rows = [row(n, auditor_correlation=c) for n, c in enumerate([0.2, 0.19, 0.5, 0.1, None, -0.3])]
    assert series(guards, rows) == [[]] * 5 + [["auditor"]]
    assert (
        "rank correlation of -0.30 (after update 9), below guards.auditor.min_correlation=0.2" in guards.events[0].text
    )


def test_the_auditors_word_on_training_rows_is_a_mean_of_updates() -> None:
    guards = Guards(only("auditor", patience=1), pays=True)
    fired = []
    for n in range(2 * WINDOW):
        said = 0.6 if n < WINDOW else 0.5  # the mean of five falls by 0.02 an update
        fired.append(bool(guards.observe(n, {"auditor/score": said, "auditor/judge_score": 0.1 * n})))
    assert fired.index(True) == WINDOW + 2 and sum(fired) == 1  # 0.06 below
    against = Guards(only("auditor", patience=1), pays=True)
    fired = [bool(against.observe(n, {"auditor/correlation": c})) for n, c in enumerate([0.4] * 4 + [-1.0] * 3)]
    assert fired == [False] * 5 + [True, False]  # -0.04 with the second of them


# ---- all of them ----


def test_nothing_fires_where_no_judge_is_paid_or_all_is_well() -> None:
    gamed = [row(n, 0.5 - 0.1 * n, 0.2 * n, auditor=0.5 - 0.1 * n, auditor_correlation=-1.0) for n in range(5)]
    assert series(Guards(config(), pays=False), gamed) == [[]] * 5
    off = Guards(only("none"), pays=True)
    assert series(off, gamed) == [[]] * 5
    well = [row(n, 0.2 + 0.1 * n, 0.25 + 0.1 * n, auditor=0.2 + 0.1 * n, auditor_correlation=0.8) for n in range(5)]
    guards = Guards(config(), pays=True)
    assert series(guards, well) == [[]] * 5
    for n in range(10):
        steady = {"episode/action_tokens": 60.0 + n, "episode/turns": 3.0, "feedback/score": 0.3, "kl": 0.01 * n}
        assert not guards.observe(n, steady)
    assert not guards.standing


def test_a_spell_fires_once_and_a_second_one_anew() -> None:
    guards = Guards(only("success", patience=1), pays=True)
    fired = series(guards, [row(n, s, 0.5) for n, s in enumerate([0.5, 0.4, 0.4, 0.5, 0.4])])
    assert fired == [[], ["success"], [], [], ["success"]]


def test_what_stands_stops_until_it_no_longer_holds_or_is_only_to_warn() -> None:
    rows = [row(0, 0.5, 0.5), row(1, 0.4, 0.6), row(2, 0.4, 0.6)]
    guards = Guards(only("success", action="stop"), pays=True)
    assert series(guards, rows) == [[], [], ["success"]] and guards.events[0].action == "stop"
    assert [e.guard for e in guards.standing] == ["success"]
    # a run that is continued sees the same rows, under the settings of today
    for changes, stands in (({"action": "stop"}, True), ({"action": "warn"}, False), ({"action": "stop", "drop": 0.2}, False),
                            ({"action": "stop", "patience": 3}, False)):  # fmt: skip
        again = Guards(only("success", **changes), pays=True)
        again.replay([], rows)
        assert bool(again.standing) == stands
    assert not guards.evaluated(row(3, 0.5, 0.6)) and not guards.standing


def test_replaying_takes_updates_and_evaluations_in_the_order_they_came() -> None:
    updates = [{"update": n, "feedback/score": s} for n, s in enumerate([0.4, 0.4, 0.7, 0.7])]
    evaluations = [row(0, 0.3), row(1, 0.3), row(2, 0.3)]
    guards = Guards(only("drift"), pays=True)
    guards.replay(updates, evaluations)
    assert [(e.guard, e.update) for e in guards.events] == [("drift", 3)]
    assert guards.events[0].as_row(256) == {
        "update": 3, "episodes": 256, "guard": "drift", "action": "warn", "text": guards.events[0].text,
    }  # fmt: skip


def test_the_best_evaluation_is_named_by_success_and_without_by_the_auditor_never_by_the_judge_that_pays() -> None:
    guards = Guards(config(), pays=True)
    series(guards, [row(n, s, 0.1 * n) for n, s in enumerate([0.2, 0.5, 0.5, 0.4])])
    assert guards.best == Best(1, 128, "success", 0.5)
    guards = Guards(config(), pays=True)
    series(guards, [row(n, None, 0.1 * n, auditor=a) for n, a in enumerate([0.3, 0.2])])
    assert guards.best == Best(-1, 0, "auditor", 0.3)
    guards = Guards(config(), pays=True)
    series(guards, [row(0, None, 0.9)])
    assert guards.best is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"guards.success.action": "stop", "eval.every": 0}, "set eval.every"),
        ({"guards.drift.action": "stop", "eval.every": 0}, "set eval.every"),
        ({"guards.kl.action": "stop"}, "set guards.kl.max"),
        ({"guards.auditor.action": "stop"}, "set guards.auditor.judge"),
        ({"guards.auditor.judge": "lab", "feedback.score_mode": "score"}, "cannot disagree with itself"),
        ({"guards.length.ratio": 1.0}, "guards.length.ratio"),
        ({"guards.success.action": "halt"}, "guards.success.action"),
    ],
)
def test_a_guard_that_could_never_stop_anything_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**changes)
