"""Read transcripts window by window with a judge that writes (prompt version 2, DESIGN §4).

A transcript's readings run in order, each with marks of earlier findings. Locally, round k asks for the k-th reading of every
transcript. A server gets many transcripts at once, and attempts at one question next to each other, as it caches their common
prefix. Earlier readings contribute findings; the score and the end of trace and critique come from the last one.

In mode `score` earlier readings give a server's critique, or locally the slots of a judge trained in `steps`, else its text. A
judge trained in `score` alone reads only the ending, as `coverage` shows. A reading without a reply, or too long, fails its
row; one with an unreadable reply counts as not read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, ImagesRead, Mode, parse_findings
from rrm.data.pictures import seen, told_of
from rrm.data.questions import question_of
from rrm.data.time_slices import beside
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage, total_of
from rrm.engines.base import SamplingParams
from rrm.errors import SpendingLimit
from rrm.judge.abstention import findings_of_parts, is_bad_of_parts
from rrm.judge.chat import Judgement, TranscriptFacts
from rrm.judge.domain import DomainFlagger, OutOfDomainDetector
from rrm.judge.hallucinated_steps import only_critique, only_trace
from rrm.judge.judge_request import JudgeRequest, OnReading, unspoken
from rrm.prompt.windows import Planner, WindowPlan

UNANSWERED = frozenset({"judge_error", "too_long"})  # statuses that end a row at any reading


@dataclass
class JudgeState:
    """One judgement of one transcript, reading after reading."""

    trajectory: Trajectory
    plan: WindowPlan
    earlier: Mode  # mode of the readings before the last
    mode: Mode
    sample: int = 0
    findings: dict[int, list[Finding]] = field(default_factory=dict)  # by step
    # marks for later readings: True for each step with a bad finding
    bad: dict[int, bool] = field(default_factory=dict)
    traces: list[str] = field(default_factory=list)
    critiques: list[str] = field(default_factory=list)
    read_tokens: int = 0
    unread: list[int] = field(default_factory=list)  # numbers, from 1, of readings with an unreadable reply
    why: str | None = None  # of the first of them
    result: Judgement | None = None  # set after the last reading
    usage: Usage | None = None
    row: int = 0  # index of the transcript
    # all judgements of the transcript, with this one
    together: list[JudgeState] = field(default_factory=list, repr=False)
    on_reading: OnReading | None = None

    @cached_property
    def n_steps(self) -> int:
        return len(self.trajectory.steps)

    def take(self, ask: WindowRequest, judgement: Judgement) -> None:
        self.usage = total_of((self.usage, judgement.usage))
        judgement = replace(judgement, usage=self.usage)
        count = len(self.plan)
        if self.on_reading is not None and count > 1:
            self.on_reading(self.trajectory.id, count * len(self.together))
        if judgement.status in UNANSWERED and count > 1:
            where = f"reading {ask.number + 1} of {count}: {judgement.reason}"
            judgement = replace(judgement, reason=where)
        if count == 1 or judgement.status in UNANSWERED:
            tokens = self.plan.shown_tokens if judgement.status not in UNANSWERED else self.read_tokens
            self.result = replace(judgement, coverage=self._share(tokens))
            return
        if judgement.status == "scored" or ask.last:
            self.read_tokens += self.plan.new_tokens(ask.number)
            self._listen(ask, judgement)
        else:
            self.unread.append(ask.number + 1)
            self.why = self.why or judgement.reason
        if ask.last:
            self.result = self._joined(judgement)

    def _share(self, tokens: int) -> float:
        return tokens / self.plan.transcript_tokens if self.plan.transcript_tokens else 1.0

    def _listen(self, ask: WindowRequest, judgement: Judgement) -> None:
        """Add what concerns steps new in this reading; for a step in parts, every part counts."""
        parted, n_steps = self.plan.parted, self.n_steps
        new = {step for step in ask.steps if step in parted or step not in self.findings}
        findings = judgement.findings
        if findings is None:
            findings = parse_findings(judgement.critique, n_steps)
        for finding in findings:
            if finding.step in new:
                self.findings.setdefault(finding.step, []).append(finding)
                if is_bad_of_parts([finding.verdict]):
                    self.bad[finding.step] = True
        if judgement.trace:
            self.traces.append(only_trace(judgement.trace, n_steps, new))
        if judgement.critique:
            self.critiques.append(only_critique(judgement.critique, n_steps, new))

    def _joined(self, last: Judgement) -> Judgement:
        reason = last.reason
        if self.unread:
            which = f"reading{'s' * (len(self.unread) > 1)} {', '.join(map(str, self.unread))} of {len(self.plan)}"
            reason = "; ".join(filter(None, (reason, f"{which} could not be read ({self.why})")))
        judgement = replace(last, reason=reason, coverage=self._share(self.read_tokens))
        if self.mode == "score":
            return judgement
        trace = "\n".join(filter(None, self.traces)) or None
        return replace(
            judgement,
            trace=trace if self.mode == "full" else last.trace,
            critique="\n".join(filter(None, self.critiques)) or None,
            findings=tuple(f for parts in self.findings.values() for f in findings_of_parts(parts)),
        )


@dataclass(frozen=True)
class WindowRequest:
    chain: JudgeState
    number: int
    marks: Mapping[int, bool]
    steps: tuple[int, ...]  # that it shows

    @property
    def last(self) -> bool:
        return self.number == len(self.chain.plan) - 1

    @property
    def mode(self) -> Mode:
        return self.chain.mode if self.last else self.chain.earlier

    @property
    def key(self) -> str:
        """Names and seeds the reply; for a single reading as in prompt version 1."""
        name = self.chain.trajectory.id + (f"/sample{self.chain.sample}" if self.chain.sample else "")
        return name if self.last else f"{name}/reading{self.number + 1}"


Ended = Callable[[JudgeState], None]  # called after a transcript's last reading


class Backend(Protocol):
    @property
    def planner(self) -> Planner: ...

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        """Return a transcript's windows, and the mode of all readings but the last."""
        ...

    def sampled(self, params: SamplingParams) -> dict[str, Any]: ...

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None: ...


Take = Callable[[WindowRequest, Judgement], None]


def hear_in_rounds(
    ask: Callable[[Sequence[WindowRequest], SamplingParams, Take], None],
    chains: Iterable[JudgeState],
    params: SamplingParams,
    ended: Ended,
) -> None:
    """Ask for the first readings of all at once, then the second, and so on.

    Raises SpendingLimit at the limit, once the transcripts that were begun are read.
    """
    heard, limit = set[int](), None

    def take(request: WindowRequest, judgement: Judgement) -> None:
        heard.add(id(request.chain))
        request.chain.take(request, judgement)
        if request.chain.result is not None:
            ended(request.chain)

    left, number = list(chains), 0
    while left:
        try:
            ask([next_ask(chain, number) for chain in left], params, take)
        except SpendingLimit as reached:
            limit = reached
            left = [chain for chain in left if id(chain) in heard]
        left = [chain for chain in left if chain.result is None]
        number += 1
    if limit is not None:
        raise limit


def chains_of(
    backend: Backend, trajectories: Iterable[Trajectory], mode: Mode, samples: int, on_reading: OnReading | None = None
) -> Iterator[JudgeState]:
    # each sample has its own findings
    budget = getattr(backend, "images", None)
    for row, original in enumerate(trajectories):
        trajectory = original if budget is None else seen(original, budget)
        plan, earlier = backend.plan(trajectory, mode)
        together = list[JudgeState]()
        for sample in range(samples):
            chain = JudgeState(
                trajectory, plan, earlier, mode, sample, row=row, together=together, on_reading=on_reading
            )
            together.append(chain)
        yield from together


def hear_all(
    backend: Backend,
    trajectories: Iterable[Trajectory],
    request: JudgeRequest,
    ended: Callable[[JudgeState, list[Feedback]], None],
) -> None:
    """Judge each transcript, and call `ended` with one of its chains and its rows when complete."""

    def end(chain: JudgeState) -> None:
        results = [c.result for c in chain.together if c.result is not None]
        if len(results) < len(chain.together):
            return
        cut = chain.plan.transcript_tokens - chain.plan.shown_tokens
        item = TranscriptFacts(chain.trajectory.id, chain.n_steps, -(-cut // backend.planner.scale))
        rows = request.rows(item, results, windowed=chain.plan.windowed, sampled=backend.sampled(request.params))
        if (images := told_of(chain.trajectory)) is not None:
            rows = [row.model_copy(update={"images": ImagesRead.model_validate(images)}) for row in rows]
        ended(chain, rows)

    chains = chains_of(backend, trajectories, request.mode, request.samples, request.on_reading)
    backend.run_requests(chains, request.params, end)


def judge_in_windows(
    backend: Backend, trajectories: Sequence[Trajectory], request: JudgeRequest, *, together: bool
) -> list[list[Feedback]]:
    """Return judgements in order; `together` puts attempts at one question next to each other."""
    done: dict[int, list[Feedback]] = {}
    order = list(range(len(trajectories)))
    if together:
        order = list(beside(order, lambda row: question_of(trajectories[row]), len(order)))

    def end(chain: JudgeState, rows: list[Feedback]) -> None:
        done[order[chain.row]] = rows
        request.tell(rows)

    hear_all(backend, [trajectories[row] for row in order], request, end)
    return [done[row] for row in range(len(trajectories))]


def judge_stream(
    backend: Backend,
    trajectories: Iterable[Trajectory],
    request: JudgeRequest,
    domain: OutOfDomainDetector | None,
    on_feedback: Callable[[Feedback], None],
) -> None:
    """Judge each transcript, consumed in a thread of their own; `on_feedback` gets one row at a time.

    One without a step is `unparsable`. The request's own `on_feedback` is not called. Raises SpendingLimit at the limit, once
    the transcripts that were begun are judged.
    """
    one_at_a_time = threading.Lock()

    def tell(feedback: Feedback, trajectory: Trajectory) -> None:
        with one_at_a_time:
            on_feedback(DomainFlagger(domain, [trajectory]).mark(feedback, trajectory))

    def spoken() -> Iterator[Trajectory]:
        for trajectory in trajectories:
            if trajectory.steps:
                yield trajectory
            else:
                tell(unspoken(trajectory, request.info), trajectory)

    def ended(chain: JudgeState, rows: list[Feedback]) -> None:
        tell(rows[0], chain.trajectory)

    hear_all(backend, spoken(), request, ended)


def next_ask(chain: JudgeState, number: int) -> WindowRequest:
    return WindowRequest(chain, number, chain.bad, chain.plan.steps(number))
