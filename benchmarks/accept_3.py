"""Every bar of the feedback modes: what, measured, wanted, pass or fail. Studies are read from benchmarks/results/*.json.

    python -m benchmarks.accept_3            (exit code 1 if a bar is missed)

    feedback_modes.json  python -m benchmarks.studies.feedback_modes
    lab_stages.json      python -m benchmarks.lab_stages
    self_labels.json     python -m benchmarks.studies.self_labels

The bars that are tests are run here, unless `--no-run` is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.acceptance import RESULTS, Bar, interval, load, main, missing, suite_bars
from benchmarks.studies.feedback_modes import ARMS, CORE, SEEDS

Found = dict[str, Any]

STUDY = "feedback_modes"
STEPS_RATIO = 0.6
NAMED_STEP, FALSE_ALARMS = 0.95, 0.05
CRITIQUES = 1000
PAPER_DROP = "5–7 % of the score in the paper"

TESTS = "tests/reagent/feedback/test_feedback.py"
JUDGE_TESTS = "tests/reagent/feedback/test_feedback_judge.py"
SUITES = {
    "every mode trains from one config file by one key, with PPO and with GRPO": (
        f"{TESTS}::test_every_mode_trains_from_the_same_config_by_one_key"
    ),
    "U's advantages = a hand computation: 2G rows pooled (GRPO), per row and whitened over both stages (PPO)": (
        f"{TESTS}::test_u_scales_2g_rows_of_a_group_jointly_for_grpo_a_first_attempt_without_its_own_second "
        f"{TESTS}::test_u_runs_gae_per_row_and_whitens_over_both_stages_for_ppo"
    ),
    "critique tokens carry no gradient as context": (
        f"{TESTS}::test_critique_tokens_are_context_and_carry_no_gradient"
    ),
    "U with everything off = none, to the last bit": f"{TESTS}::test_u_with_everything_off_is_none_to_the_last_bit",
    "R's rewards = R_env + λ·s exactly": (
        f"{TESTS}::test_r_pays_the_environments_reward_and_lambda_times_the_score_exactly"
    ),
    "a failed judgement changes no other row; too many stop the training": (
        f"{TESTS}::test_a_failed_judgement_changes_no_other_row "
        f"{TESTS}::test_too_many_failures_stop_training_and_say_why"
    ),
    "leaks are dropped and counted, hostile critiques open no turn": (
        f"{TESTS}::test_a_critique_that_names_the_answer_is_dropped_and_counted "
        f"{TESTS}::test_hostile_critiques_open_no_turn_and_are_learned_disarmed"
    ),
    "the auxiliary loss and its gradient = a plain computation": JUDGE_TESTS,
}


def table_bars(found: Found) -> Iterator[Bar]:
    """Every arm, on both evaluations, with its seeds and costs."""
    for arm in ARMS:
        wanted = f"{SEEDS.get(arm, 5)} seeds"
        row = found.get("arms", {}).get(arm)
        if row is None:
            yield missing(f"{arm}: held-out success", wanted, STUDY)
            continue
        shown = f"first {interval(row['first']['success'])}, refined {interval(row['refined']['success'])}"
        whole = row["seeds"] >= SEEDS.get(arm, 5)
        yield Bar(f"{arm}: held-out success, {row['seeds']} seeds", shown, wanted, whole)
    for mode, row in found.get("frozen", {}).items():
        shown = f"first {interval(row['first']['success'])}, refined {interval(row['refined']['success'])}"
        yield Bar(f"untrained policy, second attempt by {mode}", shown, "reported", None)
    arms = found.get("arms", {})
    if arms:
        episodes = {n for row in arms.values() for n in row["episodes"]}
        yield Bar("episodes of each run", ", ".join(map(str, sorted(episodes))), "the same", len(episodes) == 1)


def claim_bars(found: Found) -> Iterator[Bar]:
    """The papers' claims, and what was aimed at, on first attempts."""
    pairs = found.get("differences", {})
    for other in ("none", "r", "retry"):
        what, wanted = f"u − {other}, same seeds and tasks", "above 0 with its interval"
        pair = pairs.get(f"u - {other}")
        if pair is None:
            yield missing(what, wanted, STUDY)
        else:
            yield Bar(what, interval(pair["first"]), wanted, pair["first"]["low"] > 0)
    what, wanted = "u reaches none's final success in", f"≤ {STEPS_RATIO}× of its steps"
    soon = {arm: s for arm, s in found.get("sooner", {}).items() if s is not None}
    if "u" not in soon:
        yield missing(what, wanted, STUDY)
    else:
        ratio = soon["u"]["last"]["ratio"]
        shown = "never within the run" if ratio is None else f"{ratio:.2f}×"
        yield Bar(what, shown, wanted, ratio is not None and ratio <= STEPS_RATIO)
        ratios = {arm: s["nearly"]["ratio"] for arm, s in soon.items() if arm in CORE}
        shown = ", ".join(f"{arm} {'never' if r is None else f'{r:.2f}×'}" for arm, r in ratios.items())
        yield Bar("episodes to nine tenths of none's final success, in none's", shown, "reported", None)
    if "order" in found:
        order = [f"{arm} {value:.3f}" for arm, value in found["order"].items() if arm != "seeds"]
        what = f"order of the modes, on {found['order']['seeds']} seeds all have"
        yield Bar(what, " > ".join(order), "paper: u > r > c > none; reported", None)
    for arm in ("u-no-trace", "u-no-critique", "u-no-score"):
        pair = pairs.get(f"{arm} - u")
        wanted = f"{PAPER_DROP}; reported" if arm != "u-no-score" else "reported"
        yield (
            Bar(f"{arm} − u", interval(pair["first"]), wanted, None) if pair else missing(f"{arm} − u", wanted, STUDY)
        )
    stages = (("first", "first attempts"), ("own", "second attempts, each after the kind it trained with"))
    for stage, said in stages:
        what, wanted = f"placebo − retry, {said}", "not above 0 with its interval"
        pair = pairs.get("placebo - retry")
        if pair is None or pair[stage] is None:
            yield missing(what, wanted, STUDY)
        else:
            yield Bar(what, interval(pair[stage]), wanted, pair[stage]["low"] <= 0)
    if "placebo - retry" in pairs:
        what = "placebo − retry, second attempts after a critique, which retry never met"
        yield Bar(what, interval(pairs["placebo - retry"]["refined"]), "reported", None)


def content_bars(found: Found) -> Iterator[Bar]:
    """Whether it is the critique's content that helps: one trained policy, its own critique and another task's."""
    for arm, row in found.get("arms", {}).items():
        second = row.get("second_attempts")
        if second:
            shown = f"another's {interval(second['c - placebo'])}, none {interval(second['c - retry'])}"
            yield Bar(f"{arm}: second attempts after the own critique, less after", shown, "reported", None)
            what = f"{arm}: second attempts of the same policies after another's critique, less after none"
            yield Bar(what, interval(second["placebo - retry"]), "reported", None)


def judge_bars(found: Found) -> Iterator[Bar]:
    """The judge in the study: leaks, failures, reward hacking; and how well the lab judge points."""
    arms = found.get("arms", {})
    if arms:
        total = {k: sum(row["judge"][k] for row in arms.values()) for k in next(iter(arms.values()))["judge"]}
        critiques, leaked = total["critiques"], total["leaked_critiques"]
        shown = f"{leaked} of {critiques} critiques, {total['leaked_traces']} of {total['traces']} traces"
        yield Bar(
            "leaks, dropped before the policy saw them", shown, f"≥ {CRITIQUES} critiques", critiques >= CRITIQUES
        )
        shown = f"{total['failed']} of {total['judged']}; {total['asked']} asked, {total['judge_tokens']:,} tokens"
        yield Bar("failed judgements", shown, "reported", None)
        for arm in CORE:
            probe = arms.get(arm, {}).get("probe")
            if probe and probe["seeds"]:
                shown = f"{probe['seeds_hacked']} of {probe['seeds']} seeds"
                yield Bar(f"{arm}: success falls while the score rises", shown, "reported", None)
    else:
        yield missing("leaks, dropped before the policy saw them", f"≥ {CRITIQUES} critiques", STUDY)
    stages = (load("lab_stages") or {}).get("stages", {}).get("shipped", {})
    for part, said in (("fresh", "worlds never seen"), ("heldout_kinds", "faults and wordings never trained on")):
        planted = stages.get(part, {}).get("full", {}).get("planted")
        names = (f"lab judge names the planted step, {said}", f"lab judge's false alarms, {said}")
        if planted is None:
            yield missing(names[0], f"≥ {NAMED_STEP:.0%}", "lab_stages")
            yield missing(names[1], f"≤ {FALSE_ALARMS:.0%}", "lab_stages")
            continue
        named, alarms = planted["named_step"], planted["false_alarms"]
        yield Bar(names[0], f"{named:.1%} of {planted['faulty']}", f"≥ {NAMED_STEP:.0%}", named >= NAMED_STEP)
        yield Bar(names[1], f"{alarms:.1%} of {planted['clean']}", f"≤ {FALSE_ALARMS:.0%}", alarms <= FALSE_ALARMS)
    for part, said in (("agent", "the agent's own runs"), ("trained_agents", "runs of trained agents")):
        own = stages.get(part, {}).get("full", {}).get("planted")
        if own:
            shown = (
                f"{own['named_step']:.1%} of {own['faulty']}, false alarms {own['false_alarms']:.1%} of {own['clean']}"
            )
            yield Bar(f"lab judge names the first wrong step in {said}", shown, "reported", None)


def self_bars(found: Found) -> Iterator[Bar]:
    """Judges retrained on labels made by rules, by the judge itself, by both."""
    what, wanted = "judges trained on rules, on self, on both", "one comparison"
    arms = found.get("arms", {})
    if not {"rules", "self", "both"} <= set(arms):
        yield missing(what, wanted, "self_labels")
        return
    named = {arm: row["named_first"] for arm, row in arms.items()}
    shown = ", ".join(f"{arm} {v['mean']:.2f}" if v else f"{arm} none" for arm, v in named.items())
    yield Bar(f"{what}: first wrong step named", shown, wanted, True)


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    study = load(STUDY) or {}
    plot = RESULTS / f"{STUDY}.png"
    return [
        *table_bars(study),
        *claim_bars(study),
        *content_bars(study),
        *judge_bars(study),
        *self_bars(load("self_labels") or {}),
        Bar("the study's plot", plot.name if plot.is_file() else "none", plot.name, plot.is_file()),
        *suite_bars(SUITES, run),
    ]


if __name__ == "__main__":
    main(__doc__, bars)
