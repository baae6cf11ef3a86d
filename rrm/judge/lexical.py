"""A lexical model: the log-odds of success from a transcript's words alone, small enough to lie beside a judge.

TF-IDF over words and pairs of words with a logistic regression, as the baseline that a judge must beat
(`rrm.evaluation.baselines.fit_tfidf`), cut to the terms that count most and stored as plain JSON. Whoever can write into a
transcript can write its words: blended into a reward it would be played at once (`rrm.judge.blend`).

    score = intercept + Σ_t weight_t · x_t / ‖x‖,   x_t = idf_t · (1 + ln count_t) over the terms that were kept
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from rrm.evaluation.baselines import BaselineError, C, tfidf_text
from rrm.judge.stored import Stored
from rrm.trajectory import Trajectory

FILE = "lexical.json"
MOST_BYTES = 3_000_000
"""The file is cut to this; a judge that ships with a package brings it along."""
_WORD = re.compile(r"\b\w\w+\b")
_DIGITS = 4
"""Significant digits that are kept of a number, and so all that a score is ever computed from."""


def terms_of(text: str) -> list[str]:
    """Lower-case words of two letters or more, and pairs of neighbours, as scikit-learn's TfidfVectorizer cuts them."""
    words = _WORD.findall(text.lower())
    return words + [f"{a} {b}" for a, b in pairwise(words)]


class Lexical(Stored):
    """The model as it is stored."""

    file = FILE
    what = "lexical model"
    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 1
    intercept: float = Field(allow_inf_nan=False)
    terms: list[str]
    idf: list[float]
    weights: list[float]
    rows: int
    """Transcripts it was fitted on."""
    terms_seen: int
    """Terms there were before it was cut."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Lexical:
        if not len(self.terms) == len(self.idf) == len(self.weights):
            raise ValueError(f"{len(self.terms)} terms, {len(self.idf)} idf, {len(self.weights)} weights")
        if len(set(self.terms)) != len(self.terms):
            raise ValueError("a term occurs twice")
        if not (np.isfinite(self.idf).all() and np.isfinite(self.weights).all()):
            raise ValueError("idf and weights must be finite numbers")
        return self

    @cached_property
    def _place(self) -> dict[str, tuple[float, float]]:
        return {term: (idf, weight) for term, idf, weight in zip(self.terms, self.idf, self.weights, strict=True)}

    def log_odds(self, trajectory: Trajectory) -> float:
        """The log-odds of success; the intercept where the transcript has none of the terms."""
        square = total = 0.0
        for term, count in Counter(terms_of(tfidf_text(trajectory))).items():
            if term in self._place:
                idf, weight = self._place[term]
                x = idf * (1.0 + math.log(count))
                square += x * x
                total += weight * x
        return self.intercept + (total / math.sqrt(square) if square else 0.0)

    def best_terms(self, n: int) -> list[str]:
        """The n terms that lift the score most, best first; what an attacker would write."""
        lift = np.array(self.idf) * np.array(self.weights)
        return [self.terms[i] for i in np.argsort(-lift, kind="stable")[:n]]

    @property
    def sha256(self) -> str:
        """Of the stored form."""
        return hashlib.sha256(self.to_json().encode("utf-8")).hexdigest()


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{v:.{_DIGITS}g}") for v in values]


def _affordable(terms: list[str], weights: np.ndarray, most_bytes: int) -> list[str]:
    """The terms of largest |weight| that fit, in alphabetical order. A term costs its letters, quotes, commas, two numbers."""
    order = np.argsort(-np.abs(weights), kind="stable")
    sizes = np.array([len(json.dumps(terms[i], ensure_ascii=False).encode("utf-8")) for i in order])
    numbers = 2 * (_DIGITS + len("-0.e-05")) + 3
    return sorted(terms[i] for i in order[: np.searchsorted(np.cumsum(sizes + numbers), most_bytes - 1000)])


def fit_lexical(
    trajectories: Sequence[Trajectory], labels: Sequence[float], *, most_bytes: int = MOST_BYTES
) -> Lexical:
    """Fit on transcripts and labels (success from 0.5): once on all terms, then again on those that are kept.

    Args:
        most_bytes: size of the stored file.

    Raises:
        BaselineError: one class only, or no term in three transcripts.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    good = np.asarray(labels, dtype=np.float64) >= 0.5
    if not len(good) or good.all() or not good.any():
        raise BaselineError("a lexical model needs training rows of both outcomes; these hold one class only")
    texts = [tfidf_text(t) for t in trajectories]
    how = {"ngram_range": (1, 2), "sublinear_tf": True}
    whole = TfidfVectorizer(min_df=3, **how)
    try:
        features = whole.fit_transform(texts)
    except ValueError as error:
        raise BaselineError(f"lexical model: {error} ({len(texts)} training rows)") from error
    terms = [str(term) for term in whole.get_feature_names_out()]
    first = LogisticRegression(C=C, max_iter=500).fit(features, good)
    usable = np.array([term.isprintable() for term in terms])  # lone surrogates have no place in a file
    kept = _affordable(terms, np.where(usable, first.coef_[0], 0.0), most_bytes)
    vectorizer = TfidfVectorizer(vocabulary=kept, **how)
    model = LogisticRegression(C=C, max_iter=500).fit(vectorizer.fit_transform(texts), good)
    return Lexical(
        intercept=float(model.intercept_[0]),
        terms=kept,
        idf=_rounded(vectorizer.idf_),
        weights=_rounded(model.coef_[0]),
        rows=len(texts),
        terms_seen=len(terms),
    )
