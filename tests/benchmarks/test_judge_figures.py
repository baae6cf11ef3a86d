"""Figures of a step judge, by hand, from a few made-up scores; and that every path that the bars read is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.bars import judge as bars
from benchmarks.models import figures
from benchmarks.models.evaluation_rows import claims_success
from benchmarks.models.figures import Fold
from benchmarks.models.scores import Scored, merged

MAPS = {"modes": {"steps_p_good": {"a": 1.0, "b": 0.0}}, "unsure_band": [0.4, 0.6]}


def line(run: str, step: int, label: int | None, **said: Any) -> dict[str, Any]:
    flags = {"exact": False, "rule": False, "claims": True, "whole": True, "inside": True}
    others = dict.fromkeys(("planted", "kind", "run_outcome")) | dict.fromkeys(
        ("tfidf", "tfidf_planted", "position"), 0.5
    )
    own = {"run": run, "source": "tau", "key": run, "step": step, "steps": 3, "label": label, "chars": 100}
    return {**flags, **others, **own, **said}


def scored(*rows: tuple[dict[str, Any], float]) -> Scored:
    return merged([row for row, _ in rows], np.array([d for _, d in rows]))


def at(found: Any, path: str) -> Any:
    for key in path.split("."):
        found = found[key]
    return found


def test_a_step_in_parts_has_its_lowest_score_and_one_read_twice_counts_once() -> None:
    rows = scored(
        (line("a", 1, 1, whole=False), 2.0),
        (line("a", 1, 1), -1.0),
        (line("a", 1, 0, planted="0/1"), 3.0),
        (line("a", 2, 1), float("nan")),
        (line("a", 0, 1), 0.5),
    )
    assert rows.known().odds.tolist() == [-1.0]
    assert rows.known().lines[0]["whole"]
    assert rows.known(planted=True).odds.tolist() == [3.0]
    assert rows.known(steps=False).odds.tolist() == [0.5]


def test_steps_beside_rivals_and_first_errors() -> None:
    rows = scored(
        (line("a", 1, 1, position=0.9), 2.0),
        (line("a", 2, 0, position=0.4), -2.0),
        (line("b", 1, 0, position=0.9), 1.0),
        (line("b", 2, 1, position=0.4), -1.0),
        (line("c", 1, 1, position=0.9), 3.0),
    )
    found = figures.steps(Fold(rows, MAPS), 50, 0)
    assert found["error_f1"]["value"] == pytest.approx(0.5)  # one found of two said, and of two there are
    assert found["auroc"]["value"] == pytest.approx(5 / 6)
    assert found["minus_always_good"]["error_f1"]["value"] == pytest.approx(0.5)
    assert found["minus_position"]["auroc"]["value"] == pytest.approx(5 / 6 - (0.5 + 1 + 0.5 + 0 + 0.5 + 1) / 6)
    assert found["first_error"]["value"] == pytest.approx(0.5)
    assert found["none_claimed"]["value"] == pytest.approx(1.0)


def test_the_threshold_of_plants_is_that_of_good_steps_of_the_same_fold() -> None:
    good = [(line(f"g{i}", 1, 1), float(i)) for i in range(20)]  # two of twenty below 2
    plants = [
        (line(f"p{i}", 1, 0, planted=f"{i}/1", kind="wrong_answer", rule=i == 0), d)
        for i, d in enumerate([0.5, 1.5, 1.9, 9.0])
    ]
    repeats = [
        (line("r", 1, 0, planted="9/1", kind="repeat"), 30.0),
        (line("s", 1, 1, planted="9/2", kind="repeat"), -3.0),
    ]
    found = figures.plants({"x": Fold(scored(*good, *plants, *repeats))})
    assert found["per_kind"]["wrong_answer"]["judge"] == 0.75
    assert found["per_kind"]["repeat"]["counterpart_alarms"] == 1.0
    assert (found["mean_recall_at_10"], found["rules"]) == (0.75, 0.25)  # a repeat does not show in meaning


def test_pairs_of_outcomes_are_of_one_source_and_about_one_length() -> None:
    rows = scored(
        (line("a", 0, 1, chars=100), 1.0),
        (line("b", 0, 0, chars=105), 0.0),
        (line("c", 0, 0, chars=95), 2.0),
        (line("d", 0, 0, chars=150), -9.0),
        (line("e", 0, 0, chars=100, source="workbench"), -9.0),
    )
    found = figures.outcome_pairs({"x": Fold(rows)}, 20, 0, least=1)
    assert found["value"] == 0.5
    assert found["by_source"] == {"tau": {"value": 0.5, "pairs": 2}}


def test_success_that_was_claimed_only() -> None:
    rows = scored(
        (line("a", 0, 1, tfidf=0.2), 1.0),
        (line("b", 0, 0, tfidf=0.7), 0.0),
        (line("c", 0, 0, tfidf=0.1), 2.0),
        (line("d", 0, 0, claims=False), 9.0),
    )
    found = figures.false_success({"x": Fold(rows)}, 20, 0)["tau"]
    assert found["auroc"]["value"] == found["tfidf"]["value"] == 0.5
    assert (found["auroc"]["good"], found["auroc"]["bad"]) == (1, 2)


def test_sources_and_classes_weigh_the_same() -> None:
    rows = scored(
        *((line(f"a{i}", 1, int(i < 30)), 0.0) for i in range(40)),
        *((line(f"b{i}", 1, int(i < 10), source="workbench"), 0.0) for i in range(20)),
        *((line(f"c{i}", 1, 1, source="fireact"), 0.0) for i in range(20)),
    )
    weights = figures.balanced(rows)
    for source, total in (("tau", 1.0), ("workbench", 1.0), ("fireact", 0.0)):
        assert weights[rows.column("source") == source].sum() == pytest.approx(total)
    assert weights[rows.labels == 0].sum() == pytest.approx(1.0)


def test_the_map_is_balanced_and_its_band_leaves_the_share_asked_for() -> None:
    shifted = [
        (line(f"{y}{i}", step, y), d + 3.0)
        for step in (0, 1)
        for y, n, sign in ((1, 60, 1), (0, 20, -1))
        for i, d in enumerate(np.linspace(-0.5, 1.5, n) * sign)
    ]
    maps = figures.fit_maps(scored(*shifted), coverage=0.8)
    a, b = (maps["modes"]["steps_p_good"][key] for key in ("a", "b"))
    assert -b / a == pytest.approx(3.0, abs=0.05)
    rows = scored(*shifted).known()
    p, (low, high) = Fold(rows, maps).p(rows), maps["unsure_band"]
    assert figures.balanced(rows)[(p <= low) | (p >= high)].sum() == pytest.approx(0.8, abs=0.05)


def test_weighted_calibration_error() -> None:
    p, y = np.repeat([0.1, 0.9], 10), np.repeat([0.0, 1.0], 10)
    assert figures.weighted_ece(p, y, np.ones(20)) == pytest.approx(0.1)
    assert figures.weighted_ece(p, 1 - y, np.r_[np.full(10, 3.0), np.zeros(10)]) == pytest.approx(0.9)


def test_labels_of_a_source_move_its_map() -> None:
    rng = np.random.default_rng(0)
    labels = [int(i % 5 > 0) for i in range(300)]
    rows = [(line(f"r{i}", 1, y), -4.0 + 2 * y + rng.normal()) for i, y in enumerate(labels)]
    fold = Fold(scored(*rows), MAPS)
    after = figures.after_labels([fold], 0)
    before = abs(float(fold.p(fold.scored).mean()) - 0.8)
    assert after is not None
    assert after < before / 2


def test_the_sanity_set_beside_constants() -> None:
    rows = scored(
        (line("a", 1, 1), 1.0),
        (line("a", 2, 0, kind="repeat", rule=True), -1.0),
        (line("b", 1, 0, kind="wrong_answer"), 1.0),
        (line("c", 1, 1), 1.0),
        (line("c", 2, 1), -1.0),
        (line("d", 1, 1), 1.0),
    )
    found = figures.sanity(Fold(rows, MAPS))
    assert (found["recall"], found["false_alarms"], found["flawless_clean"]) == (0.5, 0.25, 1)
    assert found["per_kind"] == {"repeat": "1 of 1", "wrong_answer": "0 of 1"}
    assert found["constants"]["always_good"] == {"recall": 0.0, "false_alarms": 0.0, "flawless_clean": 2}
    assert found["constants"]["rules"]["recall"] == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Your order has been cancelled and the refund is on its way.", True),
        ("All done! I've booked the room.", True),
        ("I was unable to cancel the order, but I have sent a note.", False),
        ("What is your order number?", False),
    ],
)
def test_a_last_message_that_claims_success(text: str, said: bool) -> None:
    assert claims_success(text) is said


def _many(source: str, rng: np.random.Generator) -> list[tuple[dict[str, Any], float]]:
    made = []
    for i in range(60):
        y, name = i % 2, f"{source}{i}"
        made.append((line(name, 1, y, source=source, exact=True), y + rng.normal()))
        made.append((line(name, 0, y, source=source), y + rng.normal()))
        made.append((line(name, 1, 0, source=source, planted=f"{i}/1", kind="wrong_answer"), rng.normal()))
    return made


def test_every_path_of_the_bars_is_written() -> None:
    rng = np.random.default_rng(0)
    sources = {
        "tau_stepshield": ["tau"],
        "workbench_intercode": ["workbench"],
        "agentdojo_mintcode": ["agentdojo"],
        "hotpotqa_maths": ["fireact"],
        "home": ["tau", "workbench"],
        "sanity": ["sanity/support"],
    }
    held = {name: Fold(scored(*(row for s in mine for row in _many(s, rng))), MAPS) for name, mine in sources.items()}
    found = figures.all_figures(held, resamples=20, seed=0)
    paths = [row.path for row in bars.rows_of("small") if row.path.split(".")[0] in found]
    assert len(paths) > 60
    missing = [path for path in paths if at(found, path) is None]
    assert not missing
