"""The figures of the study without an answer key, from run folders as a training writes them, against hand computations."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from study_runs import MADE, TASKS, begun, hoped_for, made, solved

from benchmarks.studies import tables
from benchmarks.studies.no_answer_key import Study, kept, made_before
from benchmarks.studies.no_answer_key_arms import JUDGE
from benchmarks.studies.no_answer_key_figures import GUARDS, POOLED, as_digits, collect, fell_at, gamed
from benchmarks.studies.study import two_way_interval, two_way_ratio
from rrm.evaluation.choosing import STRATEGIES

NOTHING = {"value": None}


def test_digits_stand_in_the_order_of_the_tasks() -> None:
    found = {f"search-heldout-0-{n}": float(n == 10) for n in range(11)}
    assert as_digits(dict(sorted(found.items()))) == "00000000001"
    with pytest.raises(ValueError, match="held-out"):
        as_digits({"search-heldout-0-1": 1.0})
    with pytest.raises(ValueError, match="more than once"):
        as_digits({"search-heldout-0-0": 0.5})


def test_a_run_says_what_it_took(tmp_path: Path) -> None:
    begun(tmp_path)
    made(tmp_path, "tenth", 0, [0.4, 0.6], ungraded=0.875)
    made(tmp_path, "nothing", 0, [0.2, 0.1])
    made(tmp_path, "judge", 0, [0.2, 0.1], ungraded=0.75, unknown=0.25)
    made(tmp_path, "tenth-repeated", 0, [0.3, 0.5])
    made(tmp_path, "outcome-again", 0, [0.3, 0.5], guards=[("length", 3)])
    arms = collect(tmp_path)["arms"]
    # four updates of 16 tasks, an eighth of them graded; no outcome is paid; a tool that failed told none; 38 tasks over and over
    assert [arms[name]["labels"] for name in ("tenth", "nothing", "judge", "tenth-repeated")] == [[8], [0], [0], [38]]
    (run,) = arms["outcome-again"]["runs"]
    assert (run["seed"], run["episodes"], run["judge_tokens"], run["minutes"]) == (100, 256, 414, 2.0)
    assert run["guards"] == [{"guard": "length", "update": 3}]
    assert arms["tenth"]["success"]["value"] == pytest.approx(0.6)


def test_a_run_is_recorded_with_the_options_it_was_made_with(tmp_path: Path) -> None:
    """Not with what its arm says by now; and nothing in a record says where the runs lay."""
    made(begun(tmp_path), "gamed", 1, [0.4])
    done = tmp_path / "gamed" / "seed1" / "done.json"
    said = json.loads(done.read_text())
    for changed in (said["options"], [*said["options"], "max_updates=1"], ["algorithm=ppo", *said["options"]]):
        done.write_text(json.dumps(said | {"options": changed}))
        (run,) = collect(tmp_path)["arms"]["gamed"]["runs"]
        assert (run["options"] == Study.anywhere().options("gamed", 1)) == (changed == said["options"])
        assert "output_dir=RUNS/gamed/seed1" in run["options"] and str(tmp_path) not in json.dumps(run)
    options = Study(tmp_path, f"{tmp_path}/judge").options_of_judge("steps")
    trained = {"seconds": 1.0, "commit": "abc", "commits": ["abc"], "options": options}
    folder = tmp_path / "judges" / "steps"
    folder.mkdir(parents=True)
    (folder / "done.json").write_text(json.dumps(trained))
    assert collect(tmp_path)["judges"]["steps"]["options"] == Study.anywhere().options_of_judge("steps")


def test_the_area_is_under_the_curve_from_the_start(tmp_path: Path) -> None:
    made(begun(tmp_path, 0.2), "outcome", 0, [0.4, 0.8])
    # (0.2 + 0.4) / 2 over the first half, (0.4 + 0.8) / 2 over the second
    assert collect(tmp_path)["arms"]["outcome"]["area"]["value"] == pytest.approx(0.45)


def test_arms_are_compared_on_the_runs_both_have(tmp_path: Path) -> None:
    begun(tmp_path)
    for n, share in enumerate((0.8, 0.6, 0.1)):
        made(tmp_path, "outcome", n, [share])
    for n, share in enumerate((0.7, 0.5)):
        made(tmp_path, "judge", n, [share])
    found = collect(tmp_path)
    apart = found["differences"]["judge - outcome"]
    assert (apart["value"], apart["seeds"], apart["each"]) == (pytest.approx(-0.1), 2, [-0.1, -0.1])
    assert found["ratios"]["judge / outcome"]["value"] == pytest.approx(0.6 / 0.7)
    assert "judge - nothing" not in found["differences"]


def test_runs_are_paired_by_their_numbers(tmp_path: Path) -> None:
    """A run that failed leaves a gap, and is paired with none: those both have are alike here."""
    begun(tmp_path)
    for arm, numbers in (("judge", (0, 2, 3)), ("outcome", (0, 1, 2)), ("outcome-again", (1, 2))):
        for n in numbers:
            made(tmp_path, arm, n, [(0.8, 0.6, 0.4, 0.2)[n]])
    found = collect(tmp_path)
    alike, again = (found["differences"][f"{arm} - outcome"] for arm in ("judge", "outcome-again"))
    assert (alike["each"], alike["seeds"]) == ([0.0, 0.0], 2)
    assert (again["each"], again["seeds"]) == ([0.0, 0.0], 2)
    assert found["ratios"]["judge / outcome"]["value"] == 1.0
    (tmp_path / "judge" / "seed0" / "done.json").unlink()
    (tmp_path / "judge" / "seed2" / "done.json").unlink()
    assert "judge - outcome" not in collect(tmp_path)["differences"]


def test_a_ratio_varies_as_its_tables_do() -> None:
    rng = np.random.default_rng(0)
    below = (rng.random((6, 100)) < 0.7).astype(float)
    same = two_way_ratio(below, below)
    assert same["value"] == same["low"] == same["high"] == 1.0
    above = (rng.random((6, 100)) < 0.5).astype(float)
    assert two_way_ratio(above, np.ones_like(above)) == pytest.approx(two_way_interval(above, within=(0, 1)))
    assert two_way_ratio(above, np.zeros_like(above)) == {"value": None, "low": None, "high": None}
    # of one seed and paired tasks: the delta method, var(above − ratio · below) / (n · mean below²)
    one, other = above[:1], below[:1]
    found = two_way_ratio(one, other)
    half = 1.96 * float(np.std(one - found["value"] * other)) / math.sqrt(100) / float(other.mean())
    assert (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=0.1)


def test_the_other_algorithms_together_are_the_pairs_of_each(tmp_path: Path) -> None:
    begun(tmp_path)
    for name, mine, theirs in (("ppo", 0.5, 0.6), ("rloo", 0.7, 0.8), ("reinforce++", 0.6, 0.7)):
        for arm, share in ((f"{name}-judge", mine), (f"{name}-outcome", theirs)):
            made(tmp_path, arm, 0, [share])
            if name != "reinforce++":
                assert POOLED not in collect(tmp_path)["ratios"]
    both = collect(tmp_path)["ratios"][POOLED]
    assert (both["value"], both["seeds"]) == (pytest.approx(1.8 / 2.1), 3)
    assert both["low"] <= both["value"] <= both["high"]


def test_what_noise_costs_and_the_judge_regains(tmp_path: Path) -> None:
    begun(tmp_path)
    for arm, share in (("outcome", 0.7), ("noisy", 0.5), ("noisy+judge", 0.65)):
        for n in range(2):
            made(tmp_path, arm, n, [share])
    found = collect(tmp_path)["regained"]
    assert set(found) == {"noisy+judge"}
    one = found["noisy+judge"]
    assert (one["value"], one["lost"]["value"]) == (pytest.approx(0.75), pytest.approx(0.2))
    assert one["back"]["value"] == pytest.approx(0.15)
    assert one["above_half"]["value"] == pytest.approx(0.05)
    made(tmp_path / "other", "outcome", 0, [0.4])
    for arm in ("noisy", "noisy+judge"):
        made(begun(tmp_path / "other"), arm, 0, [0.5])
    assert collect(tmp_path / "other")["regained"]["noisy+judge"]["value"] is None


@pytest.mark.parametrize(
    ("curve", "guard", "fell", "in_time"),
    [
        ((0.3, 0.6, 0.5, 0.4, 0.2), 1, 3, True),
        ((0.3, 0.6, 0.5, 0.4, 0.2), 3, 3, False),
        ((0.3, 0.6, 0.5, 0.4, 0.2), None, 3, False),
        ((0.3, 0.6, 0.55, 0.58, 0.4), 2, None, None),
        ((0.3, 0.6, 0.5, 0.58, 0.5), None, None, None),
    ],
)
def test_a_gamed_run_is_caught_before_it_fell_twice(
    curve: Sequence[float], guard: int | None, fell: int | None, in_time: bool | None
) -> None:
    evaluations = [{"update": n, "success": solved(share), "score": n / 10} for n, share in enumerate(curve)]
    run = {"evaluations": evaluations, "guards": [{"guard": "drift", "update": guard}] if guard is not None else []}
    found = gamed(run, GUARDS)
    assert (found["best"], found["best_update"], found["fell_update"]) == (pytest.approx(0.6), 1, fell)
    assert found["in_time"] is in_time and (found["score_first"], found["score_last"]) == (0.0, 0.4)
    assert gamed(run, ["success"])["guard"] is None  # one that does not count


def test_a_policy_that_never_changes_hardly_ever_fell() -> None:
    """13 evaluations of 200 tasks: looks of 1 % each. By the rule of two running below the best so far most of these runs had."""
    rng, fell = np.random.default_rng(0), 0
    for _ in range(6):
        rates = rng.beta(0.5, 0.5, TASKS)
        rows = [{"update": n, "success": "".join(str(int(rng.random() < p)) for p in rates)} for n in range(13)]
        fell += fell_at({"evaluations": rows}) is not None
    assert fell <= 1


def test_a_record_stands_for_the_folders_of_its_runs(tmp_path: Path) -> None:
    """Of a study that went on elsewhere: as if all had been made in one place."""
    shares = (("outcome", (0.7, 0.6)), ("judge", (0.65, 0.66)), ("nothing", (0.1,)))
    for folder, here in (("one", lambda arm: arm != "nothing"), ("two", lambda arm: arm == "nothing"), ("all", bool)):
        begun(tmp_path / folder)
        for arm, each in shares:
            for n, share in enumerate(each):
                if here(arm):
                    made(tmp_path / folder, arm, n, [share])
    facts = {"overrides": [], "policy": "p", "judge": JUDGE}
    record = MADE | {"environment": {}} | collect(tmp_path / "one")
    earlier = kept(record, facts)
    assert collect(tmp_path / "two", earlier) == collect(tmp_path / "all")
    assert earlier["earlier"] == [{"command": "c", "commit": "abc", "environment": {}}]
    assert kept(earlier, facts)["earlier"] == earlier["earlier"]
    made(tmp_path / "two", "judge", 1, [0.9])  # made again: the folder's is the newer
    assert collect(tmp_path / "two", earlier)["arms"]["judge"]["each"] == [0.65, 0.9]
    # an arm that has other options by now
    record["arms"]["judge"]["runs"][0]["options"][0] = "algorithm=ppo"
    assert [len(arm["runs"]) for arm in kept(record, facts)["arms"].values()] == [2, 1]
    assert made_before(record) == {("outcome", 0), ("outcome", 1), ("judge", 0), ("judge", 1)}
    with pytest.raises(SystemExit, match="another policy"):
        kept(record, facts | {"policy": "q"})


def test_what_is_recorded_is_not_made_again(tmp_path: Path) -> None:
    study, wanted = Study(tmp_path, "/judge"), {"outcome": 2, "judge": 1, "rows-100": 1}
    every = study.jobs(wanted)
    left = study.jobs(wanted, have={("outcome", 0), ("rows-100", 0)})
    # two runs, and the judge that one of them alone would need
    assert len(every) - len(left) == 3


def test_the_tables_have_a_row_for_all_that_was_measured(tmp_path: Path) -> None:
    found = json.loads(hoped_for(tmp_path / "runs"))
    one = {
        "success": dict.fromkeys(STRATEGIES, NOTHING),
        "judge_minus": dict.fromkeys(("majority", "longest"), NOTHING),
    }
    by_n, read = {"2": one, "4": one}, [0.0, 1.0, 5 / 3, 2.0, 2.0]  # two contents, two copies of each
    lab = {"attempts": 4, "policy_tokens": 8000, "judge_tokens": 12000, "by_n": by_n, "read": read}
    found |= {"choosing": {"lab": lab}, "field": None}
    arms, comparisons, choosing, gamed_runs = (
        make(found) for make in (tables.arms, tables.comparisons, tables.choosing, tables.gamed)
    )
    for rows in (arms, comparisons, choosing, gamed_runs):
        assert {len(row) for row in rows} == {len(rows[0])}
    judge = next(row for row in arms if row[1] == "`judge`")
    assert judge[2] == "judge alone, no outcome" and judge[3].startswith("0.685") and judge[-3:] == ["0 k", "2.0", "10"]
    assert comparisons[1][0] == "judge / outcome" and len(comparisons) == 1 + len(found["ratios"]) + len(
        found["differences"]
    )
    assert [[row[0], *row[-2:]] for row in choosing[1:]] == [["2", "4 k", "10 k"], ["4", "8 k", "12 k"]]
    assert [row[2] for row in gamed_runs[1:]] == ["drift, 5"] * 5
