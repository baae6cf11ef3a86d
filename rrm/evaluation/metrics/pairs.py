"""Comparisons of attempts at the same question, for the headline also with the same number of turns.

N rows, Q questions, `questions` (N,) integer codes in [0, Q).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from rrm.evaluation.bootstrap import Ratio


def codes(values: Sequence[Hashable]) -> tuple[np.ndarray, int]:
    """Return (N,) integer codes in order of first appearance, and how many there are."""
    index: dict[Hashable, int] = {}
    array = np.array([index.setdefault(v, len(index)) for v in values], dtype=np.int64)
    return array, len(index)


def check_rows(**columns: np.ndarray) -> None:
    """Raise ValueError unless columns are one-dimensional, of one length and finite."""
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
    keys = questions if turns is None else codes(list(zip(questions.tolist(), turns.tolist(), strict=True)))[0]
    order = np.argsort(keys, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(rows) > 1:
            yield rows


def pair_parts(
    scores: np.ndarray, labels: np.ndarray, questions: np.ndarray, n_questions: int, turns: np.ndarray | None = None
) -> Ratio:
    """Compute pair accuracy per question: over pairs with y_i > y_j, how often s_i > s_j, ties ½.
    `turns` (N,): only rows with the same number of turns are paired. Returns (Q,) pairs won and (Q,) pairs."""
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
    """Count every pair with an unscored row as one half; `all_pairs` (Q,) over all labelled rows."""
    missing = all_pairs - scored.denominator
    if (missing < 0).any():
        raise ValueError("there are more scored pairs than pairs: both must be over the same questions")
    return Ratio(scored.numerator + 0.5 * missing, all_pairs)


def best_of_n_parts(scores: np.ndarray, labels: np.ndarray, questions: np.ndarray, n_questions: int) -> Ratio:
    """Compute the best-scored attempt's label (ties averaged) minus the mean label, per question."""
    check_rows(scores=scores, labels=labels, questions=questions)
    gain, counted = np.zeros(n_questions), np.zeros(n_questions)
    for rows in _groups(questions, None):
        best = scores[rows] == scores[rows].max()
        gain[questions[rows[0]]] = labels[rows][best].mean() - labels[rows].mean()
        counted[questions[rows[0]]] = 1.0
    return Ratio(gain, counted)
