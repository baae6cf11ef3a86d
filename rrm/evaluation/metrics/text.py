"""What a judge writes and how stable it is: format, answer leaks, dependence on length, variance between runs."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np

from rrm.evaluation.metrics.pairs import check_rows
from rrm.feedback import Feedback

ANSWERED = ("scored", "unparsable", "truncated")
"""The statuses in which the judge wrote something; the format of a reply that never came says nothing about it."""
LeakClass = Literal["leak", "short_leak", "clean", "no_reference"]

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A point stays inside a number and before its digits, a minus stays as a sign: `3.5`, `.5`, `-2`, but `3-2` is two words.
_NOT_WORD = re.compile(r"[^\w.-]|\.(?!\d)|(?<=[^\W\d])\.|(?<=\w)-|-(?![\d.])|_")
_LEADING_ARTICLE = re.compile(r"^(?:an?|the) (?=.)")
_YES_NO = frozenset({"yes", "no", "true", "false", "none", "unknown"})


def well_formed(feedback: Feedback) -> bool:
    """Whether a reply has the parts its mode asks for: `full` trace + critique + score, `critique` critique + score."""
    wanted = {"full": (feedback.trace, feedback.critique), "critique": (feedback.critique,), "score": ()}
    return feedback.status == "scored" and all(part and part.strip() for part in wanted[feedback.judge.mode])


def format_validity(feedback: Sequence[Feedback]) -> float | None:
    """Share of well-formed replies among those the judge wrote (see `ANSWERED`), None when it wrote none."""
    written = [well_formed(f) for f in feedback if f.status in ANSWERED]
    return sum(written) / len(written) if written else None


def normalise_answer(text: str) -> str:
    """Text as it is compared: NFKC, lower case, no punctuation or thousands commas, single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\N{MINUS SIGN}", "-")
    return " ".join(_NOT_WORD.sub(" ", _THOUSANDS.sub("", folded)).split())


def _aliases(reference: Any) -> list[str]:
    """The forms an answer may take: each text of a list of texts, otherwise its own text; a leading article is dropped."""
    if isinstance(reference, float) and reference.is_integer():
        reference = int(reference)
    forms = reference if isinstance(reference, list) and all(isinstance(r, str) for r in reference) else [reference]
    found = [normalise_answer(str(form)) for form in forms if form is not None]
    return [_LEADING_ARTICLE.sub("", alias) for alias in found if alias]


def answer_leak(judge_text: str, reference: Any, transcript: str) -> LeakClass:
    """Whether the judge gave the answer away: its normalised form occurs in trace or critique, nowhere in the transcript.

    Args:
        judge_text: trace and critique together.
        reference: the reference answer (text, number, or a list of texts that all count as the answer).
        transcript: everything the agent, its tools and the task said.

    Returns:
        `short_leak` for yes/no-like answers and those of one or two characters, which occur by chance.
    """
    aliases = _aliases(reference)
    if not aliases:
        return "no_reference"
    said, seen = f" {normalise_answer(judge_text)} ", f" {normalise_answer(transcript)} "
    if any(f" {alias} " in seen for alias in aliases):
        return "clean"
    leaked = [alias for alias in aliases if f" {alias} " in said]
    if not leaked:
        return "clean"
    return "short_leak" if all(len(a) <= 2 or a in _YES_NO for a in leaked) else "leak"


def is_short_answer(reference: Any) -> bool:
    """Whether every form of the answer is yes/no-like or at most two characters long."""
    return all(len(a) <= 2 or a in _YES_NO for a in _aliases(reference))


def answer_leak_rates(
    judge_texts: Sequence[str], references: Sequence[Any], transcripts: Sequence[str]
) -> dict[str, Any]:
    """Leak rates over rows with a reference, short answers apart.

    Returns:
        `rate, leaks, rows` over ordinary answers and `short_rate, short_leaks, short_rows`; a rate over no rows is None.
    """
    found: dict[str, Any] = {"leaks": 0, "rows": 0, "short_leaks": 0, "short_rows": 0}
    for said, reference, transcript in zip(judge_texts, references, transcripts, strict=True):
        kind = answer_leak(said, reference, transcript)
        if kind == "no_reference":
            continue
        short = kind == "short_leak" or (kind == "clean" and is_short_answer(reference))
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
