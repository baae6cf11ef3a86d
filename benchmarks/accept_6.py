"""Every bar of training and choosing without an answer key: what, measured, wanted, pass or fail.

    python -m benchmarks.accept_6            (exit code 1 if a bar is missed)

    no_answer_key.json  python -m benchmarks.studies.no_answer_key
    timings.json        python -m benchmarks.timings

Recorded results are read; nothing is trained here. Every figure of the study is made anew from its raw rows (a digit a held-out
task, of every run), and a record whose figures are not those that follow is refused, as one without command, commit or seeds. Tests
that are bars are run unless `--no-run` is given. A bar of something that was not measured is missed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.acceptance import ROOT, Bar, interval, load, main, missing, suite_bars
from benchmarks.studies.no_answer_key import Study
from benchmarks.studies.no_answer_key_arms import ARMS, JUDGE, KNOWN, METHODS, TRAINED
from benchmarks.studies.no_answer_key_figures import (
    ALARMS,
    GUARDS,
    POOLED,
    arm_of,
    derived,
    fell_at,
    gamed,
    start_of_arm,
)
from rrm.evaluation.choosing import success_of

STUDY = "no_answer_key"
RATIO, HALF, AIM, TASKS = 0.9, 0.5, 0.05, 200
IN_TIME, GAMED_RUNS, LEAST_FELL = 4, 5, 3
SAMPLES = "8"
LENGTHS = ("longest", "shortest")
"""Of these the one with more success is the rival, on every task: whoever chooses by length may choose which."""
REMEDY = "by votes that the judge's scores weigh"
RIVALS = "majority and the better of longest and shortest"
LEAST_SUCCESS = 0.1
"""Of a real task, by chance: where hardly an attempt succeeds there is nothing to choose."""
SECONDS = 360
SUITES = {
    "1 tasks without answers: who may learn from them, and what": "tests/reagent/feedback/test_ungraded.py",
    "1 guards: each condition by hand, and on a gamed run": (
        "tests/reagent/train/test_guards.py tests/reagent/feedback/test_guarded_runs.py"
    ),
    "2 labels by task, the judge recalibrated on them": "tests/reagent/feedback/test_recalibration.py",
    "3 choosing: the exact expectation, at equal tokens": (
        "tests/rrm/evaluation/test_choosing.py tests/reagent/train/test_eval_choosing.py tests/rrm/cli/test_choose_command.py tests/reagent/cli/test_eval_choose.py"
    ),
    "3 a round of learning from what was chosen": "tests/reagent/train/test_distil_run.py",
    "5 differences of potentials": "tests/reagent/feedback/test_process_differences.py",
    "the study: arms that pay what they say, figures by hand": (
        "tests/benchmarks/test_no_answer_key.py tests/benchmarks/test_no_answer_key_figures.py tests/benchmarks/test_accept_6.py"
    ),
}
Found = Mapping[str, Any]


def same(one: Any, other: Any) -> bool:
    """Whether two figures are equal but for rounding."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return one == other


def problems(found: Found) -> list[str]:
    """What is wrong with the study's record."""
    wrong = [f"no {key}" for key in ("command", "commit", "policy", "judge", "arms", "starts") if not found.get(key)]
    if found.get("overrides"):
        wrong.append(f"a try-out: {' '.join(found['overrides'])}")
    starts = found.get("starts") or {}
    wrong += [
        f"{name}: {text}" for name, arm in found.get("arms", {}).items() for text in arm_problems(name, arm, starts)
    ]
    if found.get("judge") and found["judge"] != JUDGE:
        wrong.append(f"the judge {found['judge']}, not the one that was named beforehand")
    for name, made in found.get("judges", {}).items():
        if name not in TRAINED or made.get("options") != Study.anywhere().options_of_judge(name):
            wrong.append(
                f"the judge {name}: {'copied from elsewhere' if made.get('copied') else 'made with other options'}"
            )
    if wrong:
        return wrong
    return [
        f"{key}: not what the raw rows say" for key, made in derived(found).items() if not same(made, found.get(key))
    ]


def arm_problems(name: str, arm: Found, starts: Mapping[str, str]) -> list[str]:
    """What is wrong with an arm's part of it.

    Args:
        starts: success of the policy at the start, a digit a task.
    """
    runs, known = arm.get("runs"), KNOWN.get(name)
    if known is None or not runs or not all(run.get("evaluations") for run in runs):
        return ["no raw rows" if known else "no arm of the study"]
    wrong = []
    seeds = [known.seed(n) for n in range(len(runs))]
    if [run["seed"] for run in runs] != seeds or arm["seeds"] != seeds:
        wrong.append(f"seeds {[run['seed'] for run in runs]}, not the first {len(runs)} of the arm")
    study = Study.anywhere()
    other = [n for n, run in enumerate(runs) if run.get("options") != study.options(name, n)]
    if other:
        wrong.append(f"made with other options: {', '.join(f'seed{n}' for n in other)}")
    if any(not run.get("commits") or any(not c or c.endswith("+") for c in run["commits"]) for run in runs):
        wrong.append("a run that no commit made")
    if any(len(e["success"]) != TASKS or set(e["success"]) - {"0", "1"} for run in runs for e in run["evaluations"]):
        wrong.append(f"an evaluation that is not of {TASKS} tasks")
    elif start_of_arm(name) not in starts:
        wrong.append("nothing of the policy at its start")
    else:
        made = arm_of(name, runs, starts)
        other = [key for key in made if not same(made[key], arm.get(key))]
        wrong += [f"its {key} is not what the raw rows say" for key in other]
    return wrong


def enough(found: Found, arms: Sequence[str], least: int | None = None) -> str | None:
    """Why the runs of these arms are too few; None where they are not.

    Args:
        least: runs of each; by default as many as the study plans.
    """
    for arm in arms:
        have, need = len(found["arms"].get(arm, {"runs": []})["runs"]), least or ARMS[arm].seeds
        if have < need:
            return f"{arm}: {have} of {need} seeds"
    return None


def bar(
    found: Found, what: str, wanted: str, arms: Sequence[str], shown: str, ok: bool | None, least: int | None = None
) -> Bar:
    """A bar over arms that must all be there."""
    few = enough(found, arms, least)
    return Bar(what, few or shown, wanted, False if few else ok)


def ratio_bar(found: Found, one: str, other: str, what: str) -> Bar:
    """Whether one arm has enough of another's success; its own number of seeds of both."""
    wanted, ratio = f"≥ {RATIO}", found["ratios"].get(f"{one} / {other}")
    if ratio is None:
        return missing(what, wanted, STUDY)
    shown = f"{interval(ratio)}, {ratio['seeds']} seeds, labels {_labels(found, one)} against {_labels(found, other)}"
    ok = ratio["value"] is not None and ratio["value"] >= RATIO
    return bar(found, what, wanted, (one, other), shown, ok, least=min(ARMS[one].seeds, ARMS[other].seeds))


def _labels(found: Found, arm: str) -> str:
    low, high = (f(found["arms"][arm]["labels"]) for f in (min, max))
    return f"{low}" if low == high else f"{low}–{high}"


def label_bars(found: Found) -> Iterator[Bar]:
    """E1: label efficiency."""
    yield ratio_bar(found, "judge", "outcome", "E1 the judge alone over full outcomes: success")
    for other in ("nothing", "length"):
        what, wanted = f"E1 the judge alone above {other}", "intervals apart"
        if not {"judge", other} <= found["arms"].keys():
            yield missing(what, wanted, STUDY)
            continue
        mine, theirs = (found["arms"][arm]["success"] for arm in ("judge", other))
        shown = f"{interval(mine)} against {interval(theirs)}"
        yield bar(found, what, wanted, ("judge", other), shown, mine["low"] > theirs["high"])
    yield ratio_bar(found, "tenth+judge", "outcome", "E1 a tenth of the outcomes and the judge over full outcomes")
    for pair in ("tenth+judge - judge", "tenth+judge - tenth"):
        one = found["differences"].get(pair)
        shown = "not measured" if one is None else f"{interval(one)}, {one['seeds']} seeds"
        yield Bar(f"E1 what the tenth, and what the judge adds: {pair}", shown, "reported", None)
    for name in METHODS:
        yield ratio_bar(found, f"{name}-judge", f"{name}-outcome", f"E1 the judge alone over full outcomes, {name}")
    if (both := found["ratios"].get(POOLED)) is not None:
        yield Bar(f"E1 {POOLED}", f"{interval(both)}, {both['seeds']} pairs of runs", "reported", None)
    for one in (
        "tenth",
        "tenth-repeated",
        "weak",
        "outcome-again",
        "outcome+judge",
        *(arm for arm in ARMS if arm.startswith("rows-")),
    ):
        if (ratio := found["ratios"].get(f"{one} / outcome")) is not None:
            yield Bar(f"E1 {one} over full outcomes", f"{interval(ratio)}, {ratio['seeds']} seeds", "reported", None)


def noise_bars(found: Found) -> Iterator[Bar]:
    """E2: a noisy verifier. Where it is not seen to cost anything nothing is shown, and the bar is missed; else both the share and what is
    had back must be more than chance gives."""
    what, wanted = "E2 of what 30 % flipped grades cost, the judge regains", f"≥ {HALF}, and what is had back above 0"
    for arm, counts in (("noisy+judge", True), ("noisy+overruled", False)):
        one = found["regained"].get(arm)
        if one is None:
            if counts:
                yield missing(f"{what}, {arm}", wanted, STUDY)
            continue
        said = (
            f"lost {interval(one['lost'])}, back {interval(one['back'])}, above half by {interval(one['above_half'])}"
        )
        unseen = one["value"] is None
        shown = f"not shown, as nothing was lost that can be seen: {said}" if unseen else f"{one['value']:.2f}; {said}"
        ok = (not unseen and one["value"] >= HALF and one["back"]["low"] > 0) if counts else None
        arms = (arm, "noisy", "outcome")
        least = min(ARMS[name].seeds for name in arms)
        yield bar(found, f"{what}, {arm}", wanted if counts else "reported", arms, shown, ok, least)
    if (apart := found.get("differences", {}).get("noisy+judge - judge")) is not None:
        shown = f"{interval(apart)}, {apart['seeds']} seeds"
        yield Bar("E2 what the noisy grades add to the judge alone", shown, "reported", None)


def reported_bars(found: Found) -> Iterator[Bar]:
    """E3, E4 and the field: reported."""
    for part, pairs in (
        (
            "E3 process rewards",
            ("bare-findings - bare", "bare-steps - bare", "bare-labels - bare", "bare-findings - bare-others"),
        ),
        ("E4 second attempts distilled", ("rare-c-distil - rare", "rare-c-distil - rare-c", "rare-c-context - rare-c")),
        ("E4 the remedy, ten times the weight", ("rare-c-distil-1 - rare", "rare-c-distil-1 - rare-c")),
    ):
        for pair in pairs:
            one = found["differences"].get(pair)
            shown = "not measured" if one is None else f"{interval(one)}, {one['seeds']} seeds"
            yield Bar(f"{part}: {pair}", shown, f"reported; aim ≥ {AIM}", None)
    for name in ("unified - outcome", "outcome-again - outcome"):
        shown = interval(found["field"]["area"][name]) if found.get("field") else "not measured"
        yield Bar(f"6 the field, area under the curve: {name}", shown, "reported", None)


def ahead(measured: Mapping[str, Any] | None, who: str = "judge") -> tuple[str, bool]:
    """The judge's success (or of votes that it weighs), how far it is above each rival, and whether each difference lies above 0."""
    if not measured:
        return "not measured", False
    by_length = [name for name in LENGTHS if measured["success"].get(name)]
    best = max(by_length, key=lambda name: measured["success"][name]["value"], default=LENGTHS[0])
    apart = {rival: measured.get(f"{who}_minus", {}).get(rival) for rival in ("majority", best)}
    shown = [f"{who} {interval(measured['success'][who]) if who in measured['success'] else 'not measured'}"]
    shown += [f"− {rival} {'not defined' if one is None else interval(one)}" for rival, one in apart.items()]
    ok = all(one is not None and one.get("low") is not None and one["low"] > 0 for one in apart.values())
    return "; ".join(shown), ok


def choosing_bars(found: Found) -> Iterator[Bar]:
    """E5: one of eight attempts."""
    wanted, lab = "paired intervals above 0", found["choosing"].get("lab")
    what = f"E5 lab, one of {SAMPLES}: judge above {RIVALS}"
    if lab is None:
        yield missing(what, wanted, STUDY)
    else:
        one = lab["by_n"].get(SAMPLES) or {}
        asked, (shown, ok) = one.get("questions"), ahead(one)
        yield Bar(what, shown if asked == TASKS else f"{asked} of {TASKS} tasks", wanted, ok and asked == TASKS)
        yield Bar(f"{what}, {REMEDY}", ahead(lab["by_n"].get(SAMPLES), "weighted")[0], "reported", None)
    yield from real_bars(found["choosing"].get("real"))


def real_bars(real: Mapping[str, Any] | None) -> Iterator[Bar]:
    """E5 on real attempts: every task counts that has enough attempts, answers that can be voted on and some success by chance, and all
    of them must hold: the best of several would be several tries at one bar."""
    what = f"E5 real attempts, one of {SAMPLES}: judge above {RIVALS}"
    wanted = "paired intervals above 0 on every task that counts"
    if real is None or not all(real["made"].get(key) not in (None, "") for key in ("command", "commit", "seed")):
        yield missing(what, wanted, STUDY)
        return
    counted: dict[str, bool] = {}
    remedied: dict[str, str] = {}
    for name, sizes in real["best_of_n"].items():
        for n, report in sizes.items():
            if report is None or name.endswith("_blended"):  # older records hold a blend that judges had
                continue
            measured = success_of(report)
            shown, ok = ahead(measured)
            by_chance = measured["success"].get("random", {}).get("value") or 0
            if n == SAMPLES and by_chance >= LEAST_SUCCESS and measured["judge_minus"].keys() >= {"majority", *LENGTHS}:
                counted[name] = ok
                remedied[name] = ahead(measured, "weighted")[0]
            yield Bar(f"E5 {name}, one of {n}, {report['questions']} questions", shown, "reported", None)
    kind = f"{SAMPLES} attempts, comparable answers and a success of {LEAST_SUCCESS} by chance"
    said = f"on {sum(counted.values())} of {', '.join(counted)}" if counted else f"not measured: no task with {kind}"
    for name, shown in remedied.items():
        yield Bar(f"E5 {name}, one of {SAMPLES}, {REMEDY}", shown, "reported: the remedy", None)
    yield Bar(what, said, wanted, bool(counted) and all(counted.values()))


def gamed_bars(found: Found) -> Iterator[Bar]:
    """E6: a judge with a hole."""
    what = f"E6 guards fire before two evaluations running show success {AIM} below its best"
    wanted = f"≥ {IN_TIME} of {GAMED_RUNS} of the runs whose success fell, ≥ {LEAST_FELL} of these"
    runs = found["gamed"]
    if not runs:
        yield missing(what, wanted, STUDY)
        return
    fell = [run["in_time"] for run in runs if run["in_time"] is not None]
    fired = ", ".join(f"{run['guard']} at {run['guard_update']} ({_fall(run)})" for run in runs)
    shown = f"{sum(fell)} of {len(fell)}, of {len(runs)} runs: {fired}"
    ok = len(fell) >= LEAST_FELL and sum(fell) * GAMED_RUNS >= IN_TIME * len(fell)
    yield bar(found, what, wanted, ("gamed",), shown, ok)
    yield by_guard_bar(found)
    yield alarm_bar(found)


def by_guard_bar(found: Found) -> Bar:
    """E6: each guard that counts by itself. `length` looks at what this judge likes, and `success` at what is to be foreseen."""
    runs = [run for run in found["arms"].get("gamed", {"runs": []})["runs"] if fell_at(run) is not None]
    in_time = {name: sum(gamed(run, [name])["in_time"] for run in runs) for name in found["guards_counted"]}
    each = ", ".join(f"{name} in {number}" for name, number in in_time.items()) or "none counts"
    return Bar(f"E6 in time by one guard alone, of {len(runs)} runs that fell", each, "reported", None)


def alarm_bar(found: Found) -> Bar:
    """E6: the guards that count, on an honest judge with the same options."""
    counted = found["guards_counted"]
    what = f"E6 honest runs in which one of the guards that count fires ({', '.join(counted) or 'none'})"
    fired = [{row["guard"] for row in run["guards"]} for run in found["arms"].get("honest", {"runs": []})["runs"]]
    number = sum(bool(of & set(counted)) for of in fired)
    each = ", ".join(f"{name} in {sum(name in of for of in fired)}" for name in GUARDS)
    return bar(found, what, f"≤ {ALARMS}", ("honest",), f"{number} of {len(fired)}; {each}", number <= ALARMS)


def _fall(run: Found) -> str:
    return "did not fall" if run["fell_update"] is None else f"fell at {run['fell_update']}"


def study_bars() -> Iterator[Bar]:
    """All of the study."""
    found = load(STUDY)
    if found is None:
        yield missing("E1–E6 the study without an answer key", "every bar", STUDY)
        return
    wrong = problems(found)
    what = "E1–E6 the record: command, commit, seeds, and figures that follow from its raw rows"
    yield Bar(what, "; ".join(wrong) or str(found["command"]), "all of it, or no figure counts", not wrong)
    if wrong:
        return
    for bars in (label_bars, noise_bars, choosing_bars, gamed_bars, reported_bars):
        yield from bars(found)


def without_labels(script: str) -> bool:
    """Whether a script has a training of which no task has a label: a share of 0 as a word of its own, in a line that is no comment."""
    words = [word.strip("\"'") for line in script.splitlines() for word in line.partition("#")[0].split()]
    return any(re.fullmatch(r"environment\.label_share=0+(\.0*)?", word) for word in words)


def quickstart_bars() -> Iterator[Bar]:
    """The quickstart tells this story, in time."""
    script = (ROOT / "examples" / "quickstart.sh").read_text(encoding="utf-8")
    what = "`make quickstart`: the agent learns from the judge alone, without one answer"
    told = without_labels(script)
    yield Bar(
        what,
        "it trains with environment.label_share=0" if told else "no training without labels in it",
        "it does",
        told,
    )
    seconds = (load("timings") or {}).get("quickstart_s")
    shown = "not measured" if seconds is None else f"{seconds:.0f} s"
    yield Bar("`make quickstart`", shown, f"≤ {SECONDS} s", seconds is not None and seconds <= SECONDS)


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    return [*study_bars(), *quickstart_bars(), *suite_bars(SUITES, run)]


if __name__ == "__main__":
    main(__doc__, bars)
