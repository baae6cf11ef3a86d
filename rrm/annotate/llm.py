"""`llm`: a chat model writes the labels (the paper's annotator was GPT-OSS-120B).

The model reads the transcript in windows, without outcome or reference, and gives one verdict a step. Findings and traces that
name the reference answer where the transcript does not are dropped. A reply without a score makes no annotation.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rrm.data.annotation import Annotation
from rrm.data.feedback import Feedback, JudgeInfo, clear, format_findings
from rrm.data.text import leaks, references, transcript_text
from rrm.data.time_slices import windows
from rrm.data.trajectory import Trajectory
from rrm.engines.base import ChatEngine, SamplingParams
from rrm.errors import SpendingLimit
from rrm.judge.backends import ServerBackend
from rrm.judge.calibration import Calibration
from rrm.judge.judge_request import JudgeRequest
from rrm.judge.windowed import JudgeState, WindowRequest, hear_all
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN, PROMPT_VERSION, CharacterTokenizer
from rrm.prompt.windows import Planner
from rrm.readers.base import printable

log = logging.getLogger(__name__)
INSTRUCTION = (
    " In <think> write one short line `[step k] …` for each step: what it did and what came back."
    " In <critique> write one line `[step k] good: …` or `[step k] bad: …` for each step, at most 25 words: why, and for a"
    " bad step what to do instead, without saying the answer. The score is the quality of the whole run: 1.0 for a right"
    " answer reached by sound steps, 0.7 for a mistake that was corrected, 0.3 or less for a wrong answer."
)
MAX_TRACE_WORDS = 200
"""A longer trace is dropped: a small judge should not learn it."""


@dataclass(frozen=True)
class Annotator(ServerBackend):
    """A judge's prompt with `INSTRUCTION` at the end of the rubric."""

    def messages(self, ask: WindowRequest) -> list[dict[str, str]]:
        system, *rest = super().messages(ask)
        return [{**system, "content": system["content"] + INSTRUCTION}, *rest]


class Useless:
    """Replies without an annotation, reported once for a run with the first of each status."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        self.counts = Counter[str]()

    def add(self, trajectory: Trajectory, feedback: Feedback) -> None:
        message = f"{printable(trajectory.id)}: {printable(str(feedback.reason))}"
        self.first.setdefault(feedback.status, message)
        self.counts[feedback.status] += 1
        log.debug("no annotation (%s) of %s", feedback.status, message)

    def __enter__(self) -> Useless:
        return self

    def __exit__(self, *_: object) -> None:
        if self.counts:
            each = "; ".join(f"{n} {status}, the first {self.first[status]}" for status, n in self.counts.most_common())
            log.warning("%d transcripts got no annotation: %s", self.counts.total(), each)


def to_annotation(
    trajectory: Trajectory, feedback: Feedback, model: str, counts: Counter[str], useless: Useless
) -> Annotation | None:
    """Make an annotation without leaks; None without a score (counted by status, and added to `useless`)."""
    if feedback.score is None:
        counts[feedback.status] += 1
        useless.add(trajectory, feedback)
        return None
    answers, transcript = references(trajectory.meta.get("reference")), transcript_text(trajectory)
    findings = [f for f in feedback.findings if not leaks(f.text, answers, transcript)]
    counts["leaks_dropped"] += len(feedback.findings) - len(findings)
    counts["findings_unclear"] += sum(f.verdict == "unclear" for f in findings)
    trace = feedback.trace
    if trace and len(trace.split()) > MAX_TRACE_WORDS:
        counts["traces_too_long"] += 1
        trace = None
    if trace and leaks(trace, answers, transcript):
        counts["leaks_dropped"] += 1
        trace = None
    counts["annotated"] += 1
    return Annotation(
        trajectory_id=trajectory.own_id,
        digest=trajectory.digest,
        score=feedback.score,
        trace=trace or None,
        critique=format_findings(clear(findings)) or None,
        findings=findings,
        annotator=model,
        kind="llm",
    )


def annotate(
    trajectories: Iterable[Trajectory],
    engine: ChatEngine,
    *,
    model: str,
    transcript_tokens: int = 6000,
    max_new_tokens: int = 2048,
    temperature: float = 0.0,
    seed: int = 0,
    window: int = 32,
    counts: Counter[str] | None = None,
) -> Iterator[Annotation]:
    """Yield an annotation for each trajectory the model gave a usable reply to, in input order.

    Args:
        transcript_tokens: of a window, a token counted as four characters.
        window: most trajectories held at once: what a killed run may have to ask again.
        counts: gains `annotated`, `leaks_dropped`, `findings_unclear`, `traces_too_long`, `without_steps` and statuses.

    Raises:
        SpendingLimit: the engine's money is spent; what it had answered by then was yielded.
    """
    counts = Counter() if counts is None else counts
    info = JudgeInfo(model=model, prompt_version=PROMPT_VERSION, mode="full", seed=seed)
    planner = Planner(CharacterTokenizer(), transcript_tokens * CHARACTERS_PER_TOKEN)
    backend = Annotator(engine, planner, None)
    params = SamplingParams(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        timeout_s=getattr(engine, "timeout_s", SamplingParams.timeout_s),
    )
    at_once = getattr(engine, "concurrency", 1)
    with Useless() as useless:
        for batch in windows(trajectories, max(window, at_once), first=at_once):  # one round of requests
            rows = [t for t in batch if t.steps]
            counts["without_steps"] += len(batch) - len(rows)  # the agent never spoke: there is nothing to say of it
            replies, limit = dict[int, Feedback](), None

            def keep(chain: JudgeState, feedback: list[Feedback], replies: dict[int, Feedback] = replies) -> None:
                replies[chain.row] = feedback[0]

            try:
                hear_all(backend, rows, JudgeRequest(info, params, Calibration(), 1, True, None), keep)
            except SpendingLimit as reached:
                limit = reached
            answered = [(t, replies[row]) for row, t in enumerate(rows) if row in replies]
            for trajectory, feedback in answered:
                annotation = to_annotation(trajectory, feedback, model, counts, useless)
                if annotation is not None:
                    yield annotation
            if limit is not None:
                raise limit
