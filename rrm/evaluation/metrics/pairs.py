"""Comparisons inside a question: which attempt at the same question is the better one?

Across questions a score mostly measures how hard the question is; across lengths, how long failures get. So attempts
are compared with attempts at the same question, for the headline also with the same number of agent turns.

Legend: N rows, Q questions, `questions` (N,) integer codes in [0, Q).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from rrm.evaluation.bootstrap import Ratio


def codes(values: Sequence[Hashable]) -> tuple[np.ndarray, int]:
    """(N,) integer codes in order of first appearance, and how many there are."""
    seen: dict[Hashable, int] = {}
    found = np.array([seen.setdefault(v, len(seen)) for v in values], dtype=np.int64)
    return found, len(seen)


def check_rows(**columns: np.ndarray) -> None:
    """Columns must be one-dimensional, of one length and finite.

    Raises:
        ValueError: naming the column and the row. A row without a score is left out and counted, never given a number.
    """
    lengths = {name: column.shape for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or any(len(shape) != 1 for shape in lengths.values()):
        raise ValueError(f"columns must be flat and of one length, got {lengths}")
    for name, column in columns.items():
        if column.dtype.kind not in "fiub":
            row = next((i for i, v in enumerate(column) if not isinstance(v, int | float)), 0)
            raise ValueError(
                f"{name}[{row}] is {column[row]!r}: leave rows without a score or label out and count them"
            )
        if not np.isfinite(column).all():
            row = int(np.argmin(np.isfinite(column)))
            raise ValueError(f"{name}[{row}] is {column[row]}: leave rows without a score or label out and count them")


def _groups(questions: np.ndarray, turns: np.ndarray | None) -> Iterator[np.ndarray]:
    """Row indices of each group that holds two rows or more."""
    keys = questions if turns is None else codes(list(zip(questions.tolist(), turns.tolist(), strict=True)))[0]
    order = np.argsort(keys, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(rows) > 1:
            yield rows


def pair_parts(
    scores: np.ndarray, labels: np.ndarray, questions: np.ndarray, n_questions: int, turns: np.ndarray | None = None
) -> Ratio:
    """Pair accuracy, summed per question: over pairs with labels y_i > y_j, how often s_i > s_j, ties ½.

    Args:
        scores, labels: (N,) floats, finite.
        questions: (N,) codes; only rows of one question are paired.
        turns: (N,) integers; given, only rows with the same number of turns are paired (the headline).

    Returns:
        Numerator (Q,) pairs won, denominator (Q,) pairs.
    """
    check_rows(scores=scores, labels=labels, questions=questions, **({} if turns is None else {"turns": turns}))
    wins, pairs = np.zeros(n_questions), np.zeros(n_questions)
    for rows in _groups(questions, turns):
        better = labels[rows][:, None] > labels[rows][None, :]
        if better.any():
            gap = scores[rows][:, None] - scores[rows][None, :]
            wins[questions[rows[0]]] += np.sum(better & (gap > 0)) + 0.5 * np.sum(better & (gap == 0))
            pairs[questions[rows[0]]] += np.sum(better)
    return Ratio(wins, pairs)


def count_unscored_as_half(scored: Ratio, all_pairs: np.ndarray) -> Ratio:
    """The conservative reading: every pair with an unscored row counts as a coin toss.

    Args:
        scored: `pair_parts` over the scored rows.
        all_pairs: (Q,) pairs over all labelled rows (the denominator does not depend on scores).
    """
    missing = all_pairs - scored.denominator
    if (missing < 0).any():
        raise ValueError("there are more scored pairs than pairs: both must be over the same questions")
    return Ratio(scored.numerator + 0.5 * missing, all_pairs)


def best_of_n_parts(scores: np.ndarray, labels: np.ndarray, questions: np.ndarray, n_questions: int) -> Ratio:
    """Best-of-n gain: the label of the best-scored attempt minus the mean label, averaged over questions.

    Attempts tied for the best score are averaged. Questions with one attempt have nothing to choose and count nothing.
    """
    check_rows(scores=scores, labels=labels, questions=questions)
    gain, counted = np.zeros(n_questions), np.zeros(n_questions)
    for rows in _groups(questions, None):
        best = scores[rows] == scores[rows].max()
        gain[questions[rows[0]]] = labels[rows][best].mean() - labels[rows].mean()
        counted[questions[rows[0]]] = 1.0
    return Ratio(gain, counted)
