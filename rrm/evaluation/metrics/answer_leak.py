"""Answer leak: a critique that names the answer teaches the agent nothing and makes a second attempt worthless."""

from __future__ import annotations

from typing import Any

from rrm.evaluation.metrics import _base, text


class AnswerLeak(_base.LocalMetric):
    """Rate at which the normalised reference occurs in trace or critique (`predictions`) but nowhere in the transcript.

    Yes/no answers and those of one or two characters occur by chance and are counted apart (`short_…`). Returns
    `rate, leaks, rows, short_rate, short_leaks, short_rows`; an empty reference is left out.
    """

    inputs = (("predictions", "string"), ("references", "string"), ("transcripts", "string"))

    def _compute(self, predictions: list[str], references: list[str], transcripts: list[str]) -> dict[str, Any]:
        return text.answer_leak_rates(predictions, references, transcripts)
