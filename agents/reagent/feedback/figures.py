"""A round's report as metrics."""

from __future__ import annotations

from reagent.feedback.judging import JudgingReport

SUMS = (
    "judged", "asked", "failed", "floored", "without_finding", "judge_tokens", "critiques", "traces",
    "leaked_critiques", "leaked_traces", "without_critique", "long_texts", "no_room",
)  # fmt: skip
MEANS = (
    "reward", "score", "own_score", "score_success", "score_failure", "refined_score", "refined_score_success",
    "refined_score_failure",
)  # fmt: skip


def figures(report: JudgingReport) -> dict[str, float]:
    """A report as metrics, `feedback/…`; nothing where nothing was asked and nothing refined."""
    counts = report.counts
    if not any(counts.values()):
        return {}
    found = {name: float(counts[name]) for name in SUMS}
    if counts["outside_n"]:  # of a judge that cannot say, a 0 would read as: all inside
        found |= {"outside": float(counts["outside"]), "placed": float(counts["outside_n"])}
    found |= {name: float(count) for name, count in counts.items() if name.startswith("failed_")}
    found["failure_rate"] = counts["failed"] / max(counts["judged"], 1)
    for name in MEANS:
        if counts[f"{name}_n"]:
            found[name] = counts[f"{name}_sum"] / counts[f"{name}_n"]
    return {f"feedback/{k}": v for k, v in found.items()} | {"time/judge_s": report.seconds}
