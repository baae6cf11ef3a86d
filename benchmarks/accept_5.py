"""Every bar of the judge that reads the whole run, step by step: what, measured, wanted, pass or fail.

    python -m benchmarks.accept_5            (exit code 1 if a bar is missed)

    needle.json                   python -m benchmarks.needle -o benchmarks/results/needle.json
    needle_lab.json               python -m benchmarks.needle_lab
    lab_steps.json                python -m benchmarks.lab_steps --train --runs steps=runs/lab_steps …
    default_judge.json            python -m benchmarks.default_judge.evaluate
    default_judge_attempts.json   the same with --attempts 8, of MINT and tau_bench
    default_judge_scaling.json    python -m benchmarks.default_judge.scaling
    default_judge_domain.json     python -m benchmarks.default_judge.domain
    default_judge_baselines.json  python -m benchmarks.default_judge.baselines
    steps_speed.json              python -m benchmarks.speed.steps
    adversarial_default_steps.json  python -m benchmarks.adversarial --mode steps --limit 60; and with --windows

Recorded results are read and must name their command, commit and seed; nothing is judged here. Tests that are bars are run unless
`--no-run` is given. A bar of something that was not measured is missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.acceptance import Bar, interval, load, main, missing, suite_bars, unmade
from benchmarks.default_judge.scorers import SAME
from rrm.judge.agent_rrm import AgentRRM

SUITES = {
    "1 every step is read once, a prefix as the whole run, no text opens a slot": "tests/rrm/prompt/test_windows.py",
    "1 what a judge reads can be shown": "tests/rrm/cli/test_show.py",
    "2 verdicts at many positions in one prefill": "tests/rrm/engines/test_choice_logprobs.py",
    "2 rows of mode steps: the loss by hand, the label alone is the verdict": "tests/rrm/train/test_step_rows.py",
    "2 judging by slots: windows, parts, prefixes, calibration": "tests/rrm/judge/test_steps_mode.py",
    "1 a planted line: the needle of the lab": "tests/benchmarks/test_needle_lab.py",
    "2 the lab's steps: rows, rules and first faults by hand": "tests/benchmarks/test_lab_steps.py",
    "3 transcripts unlike the judge's own are marked": "tests/rrm/judge/test_domain.py tests/benchmarks/test_default_judge_domain.py",
    "4 the mixture: cut before its verdict, one split": "tests/benchmarks/test_default_judge_mixture.py",
    "7 p_good measured beside baselines, by hand": "tests/rrm/evaluation/test_step_scores.py",
}
REPORTED = ("intercode/sql", "intercode/bash", "mint_more/alfworld")
UNSEEN_LOWEST, UNSEEN_MEAN, ECE, AIM = 0.45, 0.60, 0.05, 0.75
MCC_OF_CRITIQUES = 0.111
READ = {1024: 2.1, 8192: 1.4}
ATTEMPTS = "default_judge_attempts"
POINTS = 8


def recorded(what: str, found: Mapping[str, Any], measured: object) -> Bar:
    """Whether a record says what made it, and holds what was measured."""
    made = found.get("made", found)
    wrong = [f"no {key}" for key in ("command", "seed") if made.get(key) in (None, "")]
    wrong += [why] if (why := unmade(made.get("commit"))) else []
    wrong += [] if measured else ["nothing measured"]
    shown = "; ".join(wrong) or str(made["command"])
    return Bar(f"{what}: command, commit, seed, figures", shown, "all of them", not wrong)


def needle_bars() -> Iterator[Bar]:
    """One line that decides, anywhere in logs of 2k to 200k tokens: found by a script, and by a judge trained on short logs."""
    for name, who in (("needle", "scripted judge"), ("needle_lab", "a judge trained for it in the lab")):
        found = load(name)
        if found is None:
            yield missing(f"1 a line that decides is found at every place, {who}", "≥ 0.95, ≤ 0.05 alarms", name)
            continue
        for row in found["rows"]:
            what = f"1 window {row['window']}, log of {row['tokens']} tokens, {who}"
            shown = f"found {row['found']:.3f}, alarms {row['alarms']:.3f}, read {row['read_per_token']:.2f} a token"
            most = READ[row["window"]]
            ok = row["found"] >= 0.95 and row["alarms"] <= 0.05 and row["read_per_token"] <= most
            yield Bar(what, shown, f"≥ 0.95, ≤ 0.05, ≤ {most}", ok)
        # a script's answers follow from the command: its figures are all there is
        yield recorded(f"1 {who}", found, found["rows"] if name == "needle" else found.get("raw"))


def lab_bars() -> Iterator[Bar]:
    """The lab judge's verdicts read in one prefill, arm by arm; the best arm must be above position and rules."""
    what, wanted = "2 lab: first planted fault in mode steps", "above position and rules; aim 95 %, ≤ 5 % alarms"
    found = load("lab_steps")
    if found is None:
        yield missing(what, wanted, "lab_steps")
        return
    arms = {name: arm["parts"]["fresh"]["alarms"] for name, arm in found["arms"].items()}
    best = max(arms, key=lambda name: arms[name]["metrics"]["judge"]["first_error"]["value"])
    for name, report in arms.items():
        of = report["metrics"]["judge"]
        parts = [above(report, other, "first_error") for other in ("position", "rules")]
        alarms = f"false alarms {interval(of['false_alarms'])}"
        shown = "; ".join([interval(of["first_error"]), alarms, *(text for text, _ in parts)])
        ok = all(good for _, good in parts) if name == best else None
        yield Bar(f"{what}, arm {name}", shown, wanted if name == best else "reported", ok)
    yield recorded(what, found, found["arms"])


def above(report: Mapping[str, Any], scorer: str, metric: str) -> tuple[str, bool]:
    """The paired difference judge − scorer, and whether its interval lies above 0."""
    found = report.get("differences", {}).get(scorer, {}).get(metric)
    if found is None or found.get("low") is None:
        return f"{scorer}: not defined", False
    return f"− {scorer} {interval(found)}", found["low"] > 0


def same_rows(metrics: Mapping[str, Any]) -> str:
    """TF-IDF on the rows the judge was trained on: on all of the mixture, unless it was trained on fewer."""
    return SAME if SAME in metrics else "tfidf_all"


def beside(report: Mapping[str, Any], words: str, metric: str) -> str:
    """The difference to TF-IDF on the whole mixture, where that is more than the judge learned from."""
    return above(report, "tfidf_all", metric)[0] if words == SAME else "the judge learned from all of it"


def step_bars(sources: Mapping[str, Any]) -> Iterator[Bar]:
    """p_good against step labels and per-step rewards."""
    critics = (sources.get("mint_critic") or {}).get("step_scores")
    if critics is None:
        yield missing("2 MINT's step labels: MCC", f"above {MCC_OF_CRITIQUES}", "default_judge")
    else:
        mine = critics["metrics"]["judge"]["mcc"]
        others = [name for name in ("all_bad", "position", "rules") if name in critics["metrics"]]
        parts = [above(critics, name, "mcc") for name in others]
        low = mine.get("low")
        ok = low is not None and low > MCC_OF_CRITIQUES and all(good for _, good in parts)
        shown = "; ".join([interval(mine), *(text for text, _ in parts)])
        yield Bar(f"2 MINT's step labels, {critics['steps']} steps: MCC", shown,
                  f"above {MCC_OF_CRITIQUES} (critique text) and each, intervals apart; aim 0.25", ok)  # fmt: skip
    for name in REPORTED:
        report = (sources.get(name) or {}).get("step_scores")
        if report is None:
            yield missing(f"2 {name}: AUROC of per-step rewards", "above TF-IDF, interval apart", "default_judge")
            continue
        words = same_rows(report["metrics"])
        text, ok = above(report, words, "auroc")
        shown = f"{interval(report['metrics']['judge']['auroc'])}; {text}; {beside(report, words, 'auroc')}"
        yield Bar(f"2 {name}, {report['steps']} steps: AUROC", shown, "above TF-IDF, interval apart", ok)


def outcome_bars(found: Mapping[str, Any]) -> Iterator[Bar]:
    """Held-out questions, MINT's tasks, sources never trained on, calibration, coverage, best of n."""
    for key, what in (
        ("pooled", "sources with ≥ 200 held-out pairs, a vote each"),
        ("pooled_mint", "MINT's eight tasks"),
    ):
        report = found[key]
        if not report.get("metrics"):
            yield Bar(f"7 {what}: pair accuracy", "no source has enough pairs", "above TF-IDF on the same rows", False)
            continue
        words = same_rows(report["metrics"])
        text, ok = above(report, words, "pair_accuracy_same_turns")
        text += "; " + beside(report, words, "pair_accuracy_same_turns")
        mine = report["metrics"]["judge"]["pair_accuracy_same_turns"]
        some = f", {sum(report['pairs'].values())} pairs" if "pairs" in report else ""
        what = f"7 {what} ({len(report['sources'])}{some}): pair accuracy"
        yield Bar(what, f"{interval(mine)}; {text}", f"interval above TF-IDF's; aim {AIM}", ok)
    unseen = found["unseen"]
    silent = "".join(f", {s} without a score of {rows} rows" for s, rows in unseen.get("unscored", {}).items())
    if silent and not unseen.get("metrics"):
        yield Bar("7 sources never trained on: AUROC", silent.removeprefix(", "), f"mean ≥ {UNSEEN_MEAN}", False)
    if unseen.get("metrics"):
        mean = unseen["metrics"]["judge"]["auroc"]
        each = {s: found["sources"][s]["metrics"]["judge"]["auroc"]["value"] for s in unseen["sources"]}
        ok = (
            (mean["value"] or 0) >= UNSEEN_MEAN
            and (mean["low"] or 0) > 0.5
            and all((v or 0) >= UNSEEN_LOWEST for v in each.values())
            and not silent
        )
        shown = f"{interval(mean)}; " + ", ".join(
            f"{s} {'not defined' if v is None else f'{v:.3f}'}" for s, v in each.items()
        )
        shown += "".join(f", {s} not defined ({why})" for s, why in unseen.get("undefined", {}).items()) + silent
        wanted = f"mean ≥ {UNSEEN_MEAN}, interval above 0.5, none below {UNSEEN_LOWEST}"
        yield Bar("7 sources never trained on: AUROC", shown, wanted, ok)
    yield from flag_bars()
    home = found["sources"]["home"]
    ece = home["metrics"].get("judge", {}).get("ece")
    if ece is not None:
        floor = home.get("ece_floor")
        least = "" if floor is None else f"; {floor:.3f} of a judge that is perfectly calibrated, on so many rows"
        ok = ece["value"] is not None and ece["value"] <= ECE
        yield Bar("7 ECE on held-out questions at home", interval(ece) + least, f"≤ {ECE}", ok)
    covered = home.get("coverage")
    if covered is not None:
        shown = f"median {covered['median']:.3f}, whole {covered['whole']:.0%} of {covered['rows']} rows"
        yield Bar("1 coverage of the default judge", shown, "reported", None)


def attempt_bars() -> Iterator[Bar]:
    """Best of n on real attempts, from a draw of whole groups of attempts (`evaluate --attempts 8`)."""
    what = "7 best of n on real attempts: judge beside majority, longest, shortest, random and oracle"
    found = load(ATTEMPTS)
    if found is None:
        yield missing(what, "measured", ATTEMPTS)
        return
    for name, sizes in found["modes"]["steps"]["best_of_n"].items():
        for n, report in sizes.items():
            gains = (report or {}).get("metrics", {})
            shown = ", ".join(f"{who} {v['outcome']['value']:.3f}" for who, v in gains.items())
            questions = f", {report['questions']} questions" if report else ""
            yield Bar(f"7 best of {n}, {name}{questions}: success", shown or "too few attempts", "reported", None)
    yield recorded(what, found, bool(found["modes"]["steps"]["raw"]))


def scaling_bars() -> Iterator[Bar]:
    """What more rows, epochs, trainable weights and context give."""
    what = "5 scaling curve, one axis at a time"
    found = load("default_judge_scaling")
    if found is None:
        yield missing(what, f"≥ {POINTS} points", "default_judge_scaling")
        return
    points = found["points"]
    shown = "; ".join(
        f"{name} {of['tokens'] / 1000:.0f}k tokens: outcomes {of['auroc']['outcomes']:.3f}, steps {of['auroc']['steps']:.3f}"
        for name, of in points.items()
    )
    yield Bar(what, shown, f"≥ {POINTS} points", len(points) >= POINTS)
    yield recorded(what, found, all(of["raw"] for of in points.values()))


def flag_bars() -> Iterator[Bar]:
    """Transcripts unlike the training data."""
    found = load("default_judge_domain")
    if found is None:
        yield missing("3 sources never trained on are flagged", "the flag marks them", "default_judge_domain")
        return
    shares = {name: of["share"] for name, of in found["unseen"].items()}
    home = found["home"]["share"]
    shown = ", ".join(f"{name} {share:.0%}" for name, share in shares.items()) + f"; at home {home:.1%}"
    yield Bar(
        "3 sources never trained on are flagged",
        shown,
        "≥ 90 % of each; at home ≤ 8 %",
        min(shares.values()) >= 0.9 and home <= 0.08,
    )
    yield recorded("3 transcripts unlike the training data", found, found["home_by_source"])


def judge_bars() -> Iterator[Bar]:
    """The shipped judge on the mixture's held-out rows."""
    found = load("default_judge")
    if found is None or "steps" not in found.get("modes", {}):
        yield missing("2, 7 the default judge in mode steps", "every bar of its evaluation", "default_judge")
        return
    yield recorded("7 the default judge", found, found["modes"]["steps"]["raw"])
    yield from step_bars(found["modes"]["steps"]["sources"])
    yield from outcome_bars(found["modes"]["steps"])


def speed_bars() -> Iterator[Bar]:
    """Seconds by length, and beside mode `score`."""
    found = load("steps_speed")
    if found is None:
        yield missing(
            "7 seconds at 500, 5k and 50k tokens; steps beside score", "≤ 1 s per 1,000; ≥ 0.8", "steps_speed"
        )
        return
    for run in found["runs"]:
        which = f"{run['dtype']}, {run['threads']} threads"
        for row in run["lengths"]:
            bar = run["dtype"] == "bfloat16" and run["threads"] == 2
            shown = f"{row['seconds']} s, {row['seconds_a_thousand']} s a thousand"
            ok = row["seconds_a_thousand"] <= 1.0 if bar else None
            what = f"7 {row['transcript_tokens']} tokens, {which}"
            yield Bar(what, shown, "≤ 1 s a thousand" if bar else "reported", ok)
        if "beside_score" in run:
            ratio = run["beside_score"]["ratio"]
            yield Bar(f"2 transcripts/s, steps over score, {which}", f"{ratio}", "≥ 0.8", ratio >= 0.8)
    yield recorded("7 seconds by length", found, found["runs"])


def attack_bars() -> Iterator[Bar]:
    """The attacks on the judge that ships: its score, and in every window of long runs."""
    shipped = AgentRRM.from_pretrained().model_hash
    for kind, what in (("", "mode steps"), ("_windows", "in every window")):
        name = f"adversarial_default_steps{kind}"
        found = load(name)
        wanted = "≤ 0.05 beyond benign, none escapes" + ("" if kind == "_windows" else "; length lifts ≤ 0.05")
        if found is None:
            yield missing(f"7 attacks, {what}", wanted, name)
            continue
        same = found["judge"]["model_hash"] == shipped
        lift = found.get("length_lift")
        shown = f"excess {found['excess']:.3f}, escapes {found['escapes']}" + (
            "" if lift is None else f", length {lift:+.3f}"
        )
        shown += "" if same else f", of judge {found['judge']['model_hash']}: another than ships"
        ok = found["passed"] and found["mode"] == "steps" and same and (lift is not None or kind == "_windows")
        yield Bar(f"7 {found['cases']} attacks, {what}", shown, wanted, ok)
        yield recorded(f"7 attacks, {what}", found, bool(found["report"]["rows"]))


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    read = [*needle_bars(), *lab_bars(), *judge_bars(), *attempt_bars(), *scaling_bars(), *speed_bars(), *attack_bars()]
    return [*read, *suite_bars(SUITES, run)]


if __name__ == "__main__":
    main(__doc__, bars)
