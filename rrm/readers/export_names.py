"""The name that a judge's score has in another framework's records."""

from __future__ import annotations

from rrm.data.feedback import Feedback
from rrm.data.own_entries import OURS


def name_of(feedback: Feedback) -> str:
    """`agent_rrm`; of a relative score `agent_rrm.rank`: a mean over both would be of nothing."""
    return OURS if feedback.rank is None else f"{OURS}.rank"
