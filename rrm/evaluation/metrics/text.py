"""The text that a judge writes: format, answer leaks, dependence on length, variance between runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from rrm.data.feedback import Feedback
from rrm.data.text import answer_leak, is_short, references
from rrm.evaluation.metrics.pairs import check_rows

ANSWERED = ("scored", "unparsable", "truncated")
"""The statuses in which the judge wrote something."""


def well_formed(feedback: Feedback) -> bool:
    """Tell whether a reply has the texts that its mode asks for, and a score."""
    parts = {"full": (feedback.trace, feedback.critique), "critique": (feedback.critique,)}
    return feedback.status == "scored" and all(text and text.strip() for text in parts.get(feedback.judge.mode, ()))


def unwritten(feedback: Feedback) -> bool:
    """Tell whether the judge wrote nothing: it reads score and steps from probabilities."""
    judge = feedback.judge
    if judge.mode == "steps" or judge.threshold is not None:
        return True
    scored = feedback.status == "scored" and judge.score_source == "expected"
    return judge.mode == "score" and scored and judge.temperature is None


def replies(feedback: Sequence[Feedback]) -> list[Feedback]:
    answered = [f for f in feedback if f.status in ANSWERED]
    return [] if any(map(unwritten, answered)) else answered


def format_validity(feedback: Sequence[Feedback]) -> float | None:
    """Compute the share of well-formed replies among one judge's `ANSWERED` rows; None without any."""
    written = replies(feedback)
    return sum(map(well_formed, written)) / len(written) if written else None


def answer_leak_rates(judge_texts: Sequence[str], answers: Sequence[Any], transcripts: Sequence[str]) -> dict[str, Any]:
    """Compute `rate, leaks, rows` over rows with a reference, and the same of short answers apart."""
    counts: dict[str, Any] = {"leaks": 0, "rows": 0, "short_leaks": 0, "short_rows": 0}
    for judge_text, reference, transcript in zip(judge_texts, answers, transcripts, strict=True):
        leak = answer_leak(judge_text, reference, transcript)
        if leak == "no_reference":
            continue
        short = leak == "short_leak" or (leak == "clean" and all(map(is_short, references(reference))))
        counts["short_rows" if short else "rows"] += 1
        if leak != "clean":
            counts["short_leaks" if short else "leaks"] += 1
    rate = counts["leaks"] / counts["rows"] if counts["rows"] else None
    short_rate = counts["short_leaks"] / counts["short_rows"] if counts["short_rows"] else None
    return {"rate": rate, "short_rate": short_rate, **counts}


def length_correlation(scores: np.ndarray, lengths: np.ndarray) -> float | None:
    from scipy.stats import spearmanr

    check_rows(scores=scores, lengths=lengths)
    if len(scores) < 2 or np.ptp(scores) == 0 or np.ptp(lengths) == 0:
        return None
    return float(spearmanr(scores, lengths).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def rerun_variance(scores: np.ndarray, ids: Sequence[Hashable]) -> dict[str, float | int | None]:
    """Compute how a row's score varies: `variance` (mean over rows, ddof = 1), `std`, `max_range`, `rows`.
    `scores` (M,) of all runs, `ids` (M,) the row of each; rows judged once are left out."""
    check_rows(scores=scores)
    by_id: dict[Hashable, list[float]] = defaultdict(list)
    for key, score in zip(ids, scores.tolist(), strict=True):
        by_id[key].append(score)
    repeated = [values for values in by_id.values() if len(values) > 1]
    if not repeated:
        return {"variance": None, "std": None, "max_range": None, "rows": 0}
    variance = float(np.mean([np.var(values, ddof=1) for values in repeated]))
    widest = max(max(values) - min(values) for values in repeated)
    return {"variance": variance, "std": variance**0.5, "max_range": widest, "rows": len(repeated)}
