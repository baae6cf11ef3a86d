"""The judges `small` and `base`: sanity set, plants, steps and calls on sources left out, calibration, cascade, speed.

All is read from benchmarks/results/judges.json: `small` and `base`, each with the figures at the paths below. What `base` measured
needs a GPU to train it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.bars.recorded import Operator, Recorded

RECORD = "judges"
FOLDS = ("tau_stepshield", "workbench_intercode", "agentdojo_mintcode", "hotpotqa_maths")
RIVALS = ("position", "always_good", "tfidf")
LENGTHS = (500, 5000, 50000)
CLAIMED = ("tau", "workbench", "agentdojo")
"""Sources, each left out, of runs whose last message says that the task is done."""


class Row(NamedTuple):
    """A bar of both judges: paths start below the judge's key, and so does a limit that is a path."""

    what: str
    path: str
    wanted: Operator = "reported"
    small: float | str = 0.0
    base: float | str = 0.0


SANITY = (
    Row("sanity set: recall at p = 0.5", "sanity.recall", "≥", 0.70, 0.80),
    Row("sanity set: false alarms of good steps", "sanity.false_alarms", "≤", 0.10, 0.10),
    Row("sanity set: flawless runs, of 30, without a bad verdict", "sanity.flawless_clean", "≥", 27, 27),
    Row("sanity set: always good, always bad, rules alone", "sanity.constants"),
)
PLANTS = (
    Row("plants that show in meaning: mean recall at 0.10 alarms", "plants.mean_recall_at_10", "≥", 0.50, 0.65),
    Row("plants, kind by kind", "plants.per_kind"),
    Row("plants, rules", "plants.rules"),
    Row("plants, TF-IDF", "plants.tfidf"),
)
OTHERS = (
    Row("outcomes, pairs of about one length, left out", "outcome_pairs", "≥", 0.60, 0.65),
    Row("prior-balanced ECE, left out", "calibration.ece_balanced", "≤", 0.10, 0.10),
    Row("coverage of that", "calibration.coverage", "≥", 0.70, 0.70),
    Row("ECE after 30 labels of the source", "calibration.ece_after_30", "≤", 0.08, 0.08),
    Row("coverage by default", "calibration.default_coverage"),
    Row("risk by default", "calibration.default_risk"),
    *(Row(f"curve, {share} % of the tokens", f"curves.tokens_{share}") for share in (25, 50, 100)),
    Row("Qwen 0.5B, untrained, as a chat judge on 500 of the same steps", "curves.untrained"),
    Row("ours less the untrained, paired", "curves.minus_untrained", "interval >"),
    Row("cascade: of the stronger judge's gain, at 30 % of its cost", "cascade.share_of_gain_at_30", "≥", 0.70, 0.70),
)
SPEED = (
    *(Row(f"int8 over float32, {length} tokens", f"speed.ratio_{length}", "≥", 3, 3) for length in LENGTHS),
    Row("verdicts that flip in int8, 500 runs", "speed.flips", "≤", 0.01, 0.01),
    Row("RSS in GB", "speed.rss_gb", "≤", 1.5, 2.0),
    Row("seconds per 1,000 tokens", "speed.seconds_per_1000"),
    Row("flags of that CPU", "speed.cpu_flags"),
)
PROCESS_BENCH = {
    "small": {"auroc": 0.80, "error_f1": 0.50, "first_error": 0.60},
    "base": {"step_accuracy": 0.721, "error_f1": 0.494, "first_error": 0.696},
}
"""AgentProcessBench, HotpotQA part; of `base` the row of GPT-5.2."""
BENCH_FIGURES = ("auroc", "step_accuracy", "error_f1", "first_error")


def steps() -> Iterator[Row]:
    """Verdicts on steps, fold by fold, beside rivals trained on the same other folds."""
    for fold in FOLDS:
        for key, measure in (("error_f1", "error F1"), ("auroc", "AUROC")):
            yield Row(f"steps, {fold} left out: {measure}", f"folds.{fold}.{key}")
            for rival in RIVALS:
                less = f"folds.{fold}.minus_{rival}.{key}"
                yield Row(f"steps, {fold} left out: {measure} less {rival}", less, "interval >")
        yield Row(f"steps, {fold} left out: first error found", f"folds.{fold}.first_error")
        yield Row(f"steps, {fold} left out: none claimed in runs without one", f"folds.{fold}.none_claimed")


def calls() -> Iterator[Row]:
    """State-changing calls against reference actions."""
    for where, small, base in (("abroad", 0.70, 0.78), ("home", 0.80, 0.85)):
        for source in ("tau", "workbench"):
            name = f"{source}_{where}"
            yield Row(f"state-changing calls, {name}: AUROC", f"calls.{name}.auroc", "≥", small, base)
            yield Row(f"state-changing calls, {name}: TF-IDF", f"calls.{name}.tfidf")


def claimed() -> Iterator[Row]:
    """Success that is claimed and was not reached."""
    for source in CLAIMED:
        path, rival = f"false_success.{source}.auroc", f"false_success.{source}.tfidf"
        yield Row(f"success claimed, not reached, {source}: AUROC", path, "≥", 0.62, 0.70)
        yield Row(f"success claimed, not reached, {source}: above TF-IDF", path, ">", rival, rival)


def rows_of(judge: str) -> Iterator[Row]:
    """All rows of one judge."""
    yield from (*SANITY, *PLANTS, *steps(), *calls())
    yield Row("AgentProcessBench: the commit that froze the judge", "agentprocessbench.frozen_commit")
    for key in BENCH_FIGURES:
        limit = PROCESS_BENCH[judge].get(key)
        kind: Operator = "reported" if limit is None else "≥"
        yield Row(
            f"AgentProcessBench: {key.replace('_', ' ')}", f"agentprocessbench.{key}", kind, limit or 0, limit or 0
        )
    yield from (*claimed(), *OTHERS, *SPEED)
    if judge == "base":
        yield Row("`full`: step and kind right on held-out reasons", "full.step_and_kind", "≥", 0.5, 0.5)
        yield Row("`full`: untrained Qwen", "full.untrained")
        yield Row("`full`: rules", "full.rules")


def recorded(judge: str) -> Iterator[Recorded]:
    """The bars of one judge."""
    for row in rows_of(judge):
        limit = row.small if judge == "small" else row.base
        limit = f"{judge}.{limit}" if isinstance(limit, str) else limit
        yield Recorded(f"{judge}: {row.what}", RECORD, f"{judge}.{row.path}", row.wanted, limit, gpu=judge == "base")


BARS = (*recorded("small"), *recorded("base"))
