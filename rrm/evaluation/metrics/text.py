"""What a judge writes and how stable it is: format, answer leaks, dependence on length, variance between runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from rrm.data.feedback import Feedback
from rrm.data.text import answer_leak, is_short, references
from rrm.evaluation.metrics.pairs import check_rows

ANSWERED = ("scored", "unparsable", "truncated")
"""The statuses in which the judge wrote something; the format of a reply that never came says nothing about it."""


def well_formed(feedback: Feedback) -> bool:
    """Whether a reply has the parts its mode asks for: `full` trace + critique + score, `critique` critique + score, the
    others no text."""
    wanted = {"full": (feedback.trace, feedback.critique), "critique": (feedback.critique,)}
    return feedback.status == "scored" and all(part and part.strip() for part in wanted.get(feedback.judge.mode, ()))


def unwritten(feedback: Feedback) -> bool:
    """Whether a judge gave this row without writing a word: its score and its steps are read from probabilities, and what
    text there is was made from them (`rrm.judge.steps`)."""
    judge = feedback.judge
    if judge.mode == "steps" or judge.threshold is not None:
        return True
    scored = feedback.status == "scored" and judge.score_source == "expected"
    return judge.mode == "score" and scored and judge.temperature is None


def replies(feedback: Sequence[Feedback]) -> list[Feedback]:
    """The rows for which the judge wrote something (see `ANSWERED`); none of a judge that writes nothing."""
    answered = [f for f in feedback if f.status in ANSWERED]
    return [] if any(map(unwritten, answered)) else answered


def format_validity(feedback: Sequence[Feedback]) -> float | None:
    """Share of well-formed replies among one judge's `replies`, None when it wrote none."""
    written = replies(feedback)
    return sum(map(well_formed, written)) / len(written) if written else None


def answer_leak_rates(judge_texts: Sequence[str], answers: Sequence[Any], transcripts: Sequence[str]) -> dict[str, Any]:
    """Leak rates over rows with a reference, short answers apart.

    Returns:
        `rate, leaks, rows` over ordinary answers and `short_rate, short_leaks, short_rows`; a rate over no rows is None.
    """
    found: dict[str, Any] = {"leaks": 0, "rows": 0, "short_leaks": 0, "short_rows": 0}
    for said, reference, transcript in zip(judge_texts, answers, transcripts, strict=True):
        kind = answer_leak(said, reference, transcript)
        if kind == "no_reference":
            continue
        short = kind == "short_leak" or (kind == "clean" and all(map(is_short, references(reference))))
        found["short_rows" if short else "rows"] += 1
        if kind != "clean":
            found["short_leaks" if short else "leaks"] += 1
    rate = found["leaks"] / found["rows"] if found["rows"] else None
    short_rate = found["short_leaks"] / found["short_rows"] if found["short_rows"] else None
    return {"rate": rate, "short_rate": short_rate, **found}


def length_correlation(scores: np.ndarray, lengths: np.ndarray) -> float | None:
    """Spearman's rank correlation of the score with the transcript's length; None when either is constant."""
    from scipy.stats import spearmanr

    check_rows(scores=scores, lengths=lengths)
    if len(scores) < 2 or np.ptp(scores) == 0 or np.ptp(lengths) == 0:
        return None
    return float(spearmanr(scores, lengths).statistic)  # pyright: ignore[reportAttributeAccessIssue]


def rerun_variance(scores: np.ndarray, ids: Sequence[Hashable]) -> dict[str, float | int | None]:
    """How much a row's score moves when it is judged again: `variance` (mean over rows, ddof = 1), `std`, `max_range`, `rows`.

    Args:
        scores: (M,) scores of all runs.
        ids: (M,) the row each belongs to; rows judged once say nothing and are left out.
    """
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
