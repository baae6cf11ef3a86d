"""A bound on how surely a judge must speak for its verdicts to agree with people at a promised rate.

A run's verdict is good where its calibrated score p ≥ c, bad where p ≤ 1 − c, else unsure. The bound c is chosen so that, with a
given confidence over the draw of labels, at least the promised share of verdicts on new runs agrees (selective evaluation by fixed-sequence
testing: Jung et al. 2024, arXiv 2407.18370, §3): bounds are tried from the surest runs on, each by a binomial test that its verdicts disagree
more often than allowed, until one cannot be refuted. A single start may fail by chance on few runs, so four starts share the error
probability (Bonferroni), and the widest bound that one of them reaches counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from rrm.data.feedback import Mode
from rrm.judge.abstention import AgreementPromise

STARTS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the labelled runs, the surest first, at which a sequence of tests begins."""
LEAST_LABELS = 100


def promise(
    scores: np.ndarray,
    labels: np.ndarray,
    questions: Sequence[str],
    mode: Mode,
    agreement: float = 0.9,
    confidence: float = 0.9,
) -> AgreementPromise | None:
    """The widest bound that keeps the promise; None where the labels allow none.

    Args:
        scores: (N,) calibrated by maps that did not see the row's own question (out of fold).
        labels: (N,) what people say, in [0, 1]; with one half, where they part, no verdict agrees.
        questions: (N,) what each is an attempt at; of one question a drawn row counts, as a binomial test takes independent rows.
    """
    drawn = np.random.default_rng(0).permutation(len(labels))  # rows may be in the order of their labels
    names = np.asarray(questions, dtype=object).astype(str)
    rows_of_questions = np.sort(drawn[np.unique(names[drawn], return_index=True)[1]])
    p, y = scores[rows_of_questions], labels[rows_of_questions]
    sure = np.maximum(p, 1 - p)
    order = np.argsort(-sure, kind="stable")
    sure, wrong = sure[order], np.where(p >= 0.5, y <= 0.5, y >= 0.5)[order]
    last_of_ties = np.flatnonzero(np.append(sure[1:] < sure[:-1], True))
    rows = last_of_ties + 1
    # chance of as few disagreements among n verdicts, if one in 1/(1 − agreement) disagreed
    chance = binom.cdf(np.cumsum(wrong)[last_of_ties], rows, 1 - agreement)
    refuted = chance <= (1 - confidence) / len(STARTS)
    best = -1
    for share in STARTS:
        at = int(np.searchsorted(rows, share * len(p)))
        while at < len(rows) and refuted[at]:
            best, at = max(best, at), at + 1
    if best < 0:
        return None
    n = int(rows[best])
    return AgreementPromise(
        mode=mode, agreement=agreement, confidence=confidence, least_sure=float(sure[n - 1]), coverage=n / len(p),
        agreed=float(1 - wrong[:n].mean()), labels=len(p),
    )  # fmt: skip
