"""`smoothed`: outcomes pulled towards how often the same agent succeeds, as score labels with less noise.

One run's outcome says little about the run: most of it is the question's difficulty and luck. How often the agent that
made it succeeds on the training questions says more about how its transcripts should look, and the judge never sees who
the agent was: it has to find the habits of strong agents in the text (privileged information at training time only,
Vapnik and Vashist 2009). Measured on MINT in docs/decisions.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from rrm.data.annotation import Annotation
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError


def group_rates(trajectories: Sequence[Trajectory], group: str, prior_rows: float = 5.0) -> dict[str, float]:
    """Success rate of each value of `meta[group]`, shrunk to the mean of all rows as if by `prior_rows` rows of it."""
    outcomes: dict[str, list[float]] = defaultdict(list)
    for t in trajectories:
        if t.outcome is not None and t.meta.get(group) is not None:
            outcomes[str(t.meta[group])].append(t.outcome)
    total = sum(map(len, outcomes.values()))
    if not total:
        raise RRMError(f"no row has an outcome and meta[{group!r}]: name the field that says which agent made the run")
    mean = sum(map(sum, outcomes.values())) / total
    return {g: (sum(found) + prior_rows * mean) / (len(found) + prior_rows) for g, found in outcomes.items()}


def annotate(
    trajectories: Sequence[Trajectory], questions: Collection[str], *, group: str = "agent", own_share: float = 0.35
) -> Iterator[Annotation]:
    """A score label for each row of the training `questions` with an outcome y: w·y + (1 − w)·rate / (best rate).

    Args:
        questions: question ids whose outcomes may be used; rows of others get no label, so nothing leaks into tests.
        group: field of `meta` that names the agent.
        own_share: w in [0, 1], the weight of the row's own outcome; rows without `meta[group]` keep their outcome.

    Raises:
        RRMError: no row names its agent, none of them ever succeeds, or w lies outside [0, 1].
    """
    if not 0.0 <= own_share <= 1.0:
        raise RRMError(f"own_share is {own_share}, not in [0, 1]")
    rows = [t for t in trajectories if t.question_id in questions and t.outcome is not None]
    rates = group_rates(rows, group)
    best = max(rates.values())
    if best <= 0:
        raise RRMError(f"no {group} ever succeeds in {len(rows)} rows: outcomes cannot be smoothed")
    for t in rows:
        y = t.outcome or 0.0
        name = t.meta.get(group)
        score = y if name is None else own_share * y + (1.0 - own_share) * rates[str(name)] / best
        yield Annotation(
            trajectory_id=t.own_id, digest=t.digest, score=round(score, 4), annotator=f"smoothed:{group}", kind="rules"
        )
