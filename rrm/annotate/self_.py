"""`self`: the judge's own judgements that agree with the outcome (rejection sampling).

Each trajectory with a known outcome is judged k times at temperature 1. A judgement is kept when its score is on the outcome's side
of the question's bar (`bars`; at ½ a harsh judge would keep failures alone), it has a finding where it wrote a critique, and it
does not leak the reference; the best agreement comes first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Protocol

from rrm.data.annotation import Annotation
from rrm.data.feedback import Feedback, Mode, clear, format_findings
from rrm.data.questions import question_of
from rrm.data.text import leaks, references, transcript_text
from rrm.data.time_slices import beside, windows
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError

HALF = 0.5


class Sampler(Protocol):
    """Part of `rrm.judge.agent_rrm.AgentRRM` that is needed."""

    def sample(
        self, trajectories: Sequence[Trajectory], *, mode: Mode = ..., k: int, seed: int = ..., temperature: float = ...
    ) -> list[list[Feedback]]: ...


def bars(rows: Sequence[Trajectory], judged: Sequence[Sequence[Feedback]]) -> list[float]:
    """Return each row's bar: good runs must score above it, failed ones below.
    Of a question with both outcomes it is the median score of the attempts with the other one. Else it is the score that as large a
    share of all judgements exceeds as there are good runs; ½ where all have one outcome."""
    by_side: dict[tuple[str, bool], list[float]] = defaultdict(list)
    every = list[float]()
    good = 0
    for t, judgements in zip(rows, judged, strict=True):
        scores = [f.score for f in judgements if f.score is not None]
        by_side[question_of(t), is_good(t)] += scores
        every += scores
        good += len(scores) * is_good(t)
    ranked = sorted(every)
    mixed = 0 < good < len(every)
    middle = (ranked[len(every) - good - 1] + ranked[len(every) - good]) / 2 if mixed else HALF
    others = (by_side.get((question_of(t), not is_good(t))) for t in rows)
    return [median(scores) if scores else middle for scores in others]


def is_good(trajectory: Trajectory) -> bool:
    return (trajectory.outcome or 0.0) >= HALF


def agreeing(
    trajectory: Trajectory, judgements: Sequence[Feedback], mode: Mode = "full", bar: float = HALF
) -> list[Feedback]:
    """Select the complete judgements without leaks on the outcome's side of the bar, best first."""
    outcome = trajectory.outcome
    if outcome is None:
        return []
    answers, transcript = references(trajectory.meta.get("reference")), transcript_text(trajectory)
    ranked: list[tuple[float, Feedback]] = []
    for judgement in judgements:
        if judgement.score is None or (judgement.score - bar) * (1 if is_good(trajectory) else -1) <= 0:
            continue
        complete = (mode == "score" or bool(clear(judgement.findings))) and (mode != "full" or bool(judgement.trace))
        text = f"{judgement.trace or ''} {judgement.critique or ''}"
        if complete and not leaks(text, answers, transcript):
            ranked.append((abs(judgement.score - outcome), judgement))
    return [judgement for _, judgement in sorted(ranked, key=lambda pair: pair[0])]


def annotate(
    trajectories: Iterable[Trajectory],
    judge: Sampler,
    *,
    model: str,
    k: int = 4,
    keep: int = 1,
    mode: Mode = "full",
    seed: int = 0,
    temperature: float = 1.0,
    window: int = 32,
    counts: Counter[str] | None = None,
) -> Iterator[Annotation]:
    """Yield at most `keep` annotations a trajectory, the best agreement first; not in mode `steps`.

    Args:
        k: judgements sampled of each trajectory.
        window: most trajectories judged at once: what a killed run may have to judge again.
        counts: gains `annotated`, `judgements`, `agreeing`, `without_agreement`, `without_label` and `without_steps`.
    """
    if mode == "steps":
        raise RRMError("mode steps samples nothing and writes nothing: several judgements of a transcript would be one")
    counts = Counter() if counts is None else counts
    for rows in windows(beside(trajectories, question_of, window), window):  # attempts at one question together
        labelled = [t for t in rows if t.outcome is not None and t.steps]
        counts["without_label"] += sum(t.outcome is None for t in rows)
        counts["without_steps"] += sum(t.outcome is not None and not t.steps for t in rows)
        sampled = judge.sample(labelled, mode=mode, k=k, seed=seed, temperature=temperature) if labelled else []
        judged = zip(labelled, sampled, bars(labelled, sampled), strict=True)
        for trajectory, judgements, bar in judged:
            good = agreeing(trajectory, judgements, mode, bar)
            counts["judgements"] += len(judgements)
            counts["agreeing"] += len(good)
            counts["annotated" if good else "without_agreement"] += 1
            for judgement in good[:keep]:
                yield Annotation(
                    trajectory_id=trajectory.own_id,
                    digest=trajectory.digest,
                    score=judgement.score,
                    trace=judgement.trace,
                    critique=format_findings(clear(judgement.findings)) or None,
                    findings=judgement.findings,
                    annotator=model,
                    kind="self",
                )
