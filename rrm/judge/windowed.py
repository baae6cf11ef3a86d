"""Transcripts read window after window by a judge that writes (prompt version 2, DESIGN §4).

The readings of one transcript come one after the other, each told what was found in those before it. Here round k asks for the
k-th reading of every transcript that has one. A server is asked for many transcripts at once, each reading right after the one
before it, and attempts at one question beside each other: what their prompts begin with alike it still knows. Of an earlier
reading counts what it says of its steps; score, and the end of trace and critique, come from the last one.

| mode | what earlier readings are asked for |
|---|---|
| `full`, `critique` | the same |
| `score` | on a server, the critique; here, the slots of a judge trained in `steps`, else the text it was trained to write |

A judge trained in `score` alone finds nothing in a window that it could pass on: it reads the ending, and `coverage` says so.
A reading without a reply, or too long, fails its row. One whose reply cannot be read counts as not read.
"""

from __future__ import annotations

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
from rrm.judge.chat import ChatItem, Judgement
from rrm.judge.hallucinated_steps import only_critique, only_trace
from rrm.judge.judge_request import JudgeRequest, OnReading
from rrm.judge.step_aggregation import findings_of_parts, is_bad_of_parts
from rrm.prompt.windows import Planner, WindowPlan

UNANSWERED = frozenset({"judge_error", "too_long"})
"""What ends a row at whichever reading it happens."""


@dataclass
class JudgeState:
    """One judgement of one transcript, reading after reading."""

    trajectory: Trajectory
    plan: WindowPlan
    earlier: Mode
    """What the readings before the last are asked for."""
    mode: Mode
    sample: int = 0
    findings: dict[int, list[Finding]] = field(default_factory=dict)
    """By the steps that were spoken of so far."""
    bad: dict[int, bool] = field(default_factory=dict)
    """What later readings are told: True for each step of which something bad was said."""
    traces: list[str] = field(default_factory=list)
    critiques: list[str] = field(default_factory=list)
    read_tokens: int = 0
    unread: list[int] = field(default_factory=list)
    """Numbers, from 1, of the readings whose reply could not be read."""
    why: str | None = None
    """Of the first of them."""
    result: Judgement | None = None
    """Set after the last reading."""
    usage: Usage | None = None
    """What a server used for all readings so far."""
    row: int = 0
    """Of the transcript among those that are judged."""
    together: list[JudgeState] = field(default_factory=list, repr=False)
    """All judgements of the transcript, this one among them."""
    on_reading: OnReading | None = None

    @cached_property
    def n_steps(self) -> int:
        """How many steps the transcript has."""
        return len(self.trajectory.steps)

    def take(self, ask: WindowRequest, judgement: Judgement) -> None:
        """Add what a reading says."""
        self.usage = total_of((self.usage, judgement.usage))
        judgement = replace(judgement, usage=self.usage)
        count = len(self.plan)
        if self.on_reading is not None and count > 1:
            self.on_reading(self.trajectory.id, count * len(self.together))
        if judgement.status in UNANSWERED and count > 1:
            where = f"reading {ask.number + 1} of {count}: {judgement.reason}"
            judgement = replace(judgement, reason=where)
        if count == 1 or judgement.status in UNANSWERED:
            read = self.plan.shown_tokens if judgement.status not in UNANSWERED else self.read_tokens
            self.result = replace(judgement, coverage=self._share(read))
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
        """Keep what is said of the steps that the reading shows, unless an earlier one spoke of them; of a step in parts, of each."""
        parted, n_steps = self.plan.parted, self.n_steps
        new = {step for step in ask.steps if step in parted or step not in self.findings}
        found = judgement.findings
        if found is None:
            found = parse_findings(judgement.critique, n_steps)
        for finding in found:
            if finding.step in new:
                self.findings.setdefault(finding.step, []).append(finding)
                if is_bad_of_parts([finding.verdict]):
                    self.bad[finding.step] = True
        if judgement.trace:
            self.traces.append(only_trace(judgement.trace, n_steps, new))
        if judgement.critique:
            self.critiques.append(only_critique(judgement.critique, n_steps, new))

    def _joined(self, last: Judgement) -> Judgement:
        """The whole chain as one judgement: the last reading's score, everyone's words."""
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
            findings=tuple(f for found in self.findings.values() for f in findings_of_parts(found)),
        )


@dataclass(frozen=True)
class WindowRequest:
    """One reading that is wanted."""

    chain: JudgeState
    number: int
    marks: Mapping[int, bool]
    steps: tuple[int, ...]
    """That it shows."""

    @property
    def last(self) -> bool:
        """Whether the score comes from it."""
        return self.number == len(self.chain.plan) - 1

    @property
    def mode(self) -> Mode:
        """What is asked for."""
        return self.chain.mode if self.last else self.chain.earlier

    @property
    def key(self) -> str:
        """Names it; its seed derives from that. A transcript in one reading is asked for as one of version 1 is."""
        name = self.chain.trajectory.id + (f"/sample{self.chain.sample}" if self.chain.sample else "")
        return name if self.last else f"{name}/reading{self.number + 1}"


Ended = Callable[[JudgeState], None]
"""Hears of a transcript's last judgement."""


class Backend(Protocol):
    """Who answers for readings: a model here, or a server."""

    @property
    def planner(self) -> Planner:
        """Divides transcripts."""
        ...

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        """How a transcript is read, and what its earlier readings are asked for."""
        ...

    def sampled(self, params: SamplingParams) -> dict[str, Any]:
        """What a row's `judge` says of how replies are sampled, where the judgements do not."""
        ...

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
        """Ask for all readings of each."""
        ...


class RoundAsker(Protocol):
    """One that asks for many readings at once."""

    def ask(
        self, asks: Sequence[WindowRequest], params: SamplingParams, take: Callable[[WindowRequest, Judgement], None]
    ) -> None:
        """What each reading says, through `take` as it comes."""
        ...


def hear_in_rounds(asker: RoundAsker, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
    """Ask for the first readings of all, then for their second ones, and so on.

    Raises:
        SpendingLimit: the money is spent: what was begun was read to its end, the rest was not begun.
    """
    heard, limit = set[int](), None

    def take(ask: WindowRequest, judgement: Judgement) -> None:
        heard.add(id(ask.chain))
        ask.chain.take(ask, judgement)
        if ask.chain.result is not None:
            ended(ask.chain)

    left, number = list(chains), 0
    while left:
        try:
            asker.ask([next_ask(chain, number) for chain in left], params, take)
        except SpendingLimit as reached:
            limit = reached
            left = [chain for chain in left if id(chain) in heard]
        left = [chain for chain in left if chain.result is None]
        number += 1
    if limit is not None:
        raise limit


def chains_of(
    asker: Backend, trajectories: Iterable[Trajectory], mode: Mode, samples: int, on_reading: OnReading | None = None
) -> Iterator[JudgeState]:
    """`samples` judgements of each transcript, each with the findings of its own earlier readings."""
    budget = getattr(asker, "images", None)
    for row, given in enumerate(trajectories):
        trajectory = given if budget is None else seen(given, budget)
        plan, earlier = asker.plan(trajectory, mode)
        together = list[JudgeState]()
        for sample in range(samples):
            chain = JudgeState(
                trajectory, plan, earlier, mode, sample, row=row, together=together, on_reading=on_reading
            )
            together.append(chain)
        yield from together


def hear_all(
    asker: Backend,
    trajectories: Iterable[Trajectory],
    wanted: JudgeRequest,
    ended: Callable[[JudgeState, list[Feedback]], None],
) -> None:
    """Judge each transcript, and say its rows as soon as its last reading is answered, with one of its chains.

    Args:
        trajectories: read as they are needed where a server is asked.
    """

    def end(chain: JudgeState) -> None:
        results = [c.result for c in chain.together if c.result is not None]
        if len(results) < len(chain.together):
            return
        cut = chain.plan.transcript_tokens - chain.plan.shown_tokens
        item = ChatItem(chain.trajectory.id, [], chain.n_steps, -(-cut // asker.planner.scale))
        rows = wanted.rows(item, results, windowed=chain.plan.windowed, sampled=asker.sampled(wanted.params))
        if (told := told_of(chain.trajectory)) is not None:
            rows = [row.model_copy(update={"images": ImagesRead.model_validate(told)}) for row in rows]
        ended(chain, rows)

    chains = chains_of(asker, trajectories, wanted.mode, wanted.samples, wanted.on_reading)
    asker.run_requests(chains, wanted.params, end)


def judge_in_windows(
    asker: Backend, trajectories: Sequence[Trajectory], wanted: JudgeRequest, *, together: bool
) -> list[list[Feedback]]:
    """Each transcript's judgements, in the order of the transcripts.

    Args:
        together: attempts at one question are asked for beside each other, whose prompts begin alike to a server.
    """
    done: dict[int, list[Feedback]] = {}
    order = list(range(len(trajectories)))
    if together:
        order = list(beside(order, lambda row: question_of(trajectories[row]), len(order)))

    def end(chain: JudgeState, rows: list[Feedback]) -> None:
        done[order[chain.row]] = rows
        wanted.tell(rows)

    hear_all(asker, [trajectories[row] for row in order], wanted, end)
    return [done[row] for row in range(len(trajectories))]


def next_ask(chain: JudgeState, number: int) -> WindowRequest:
    """The `number`-th reading, with what was found before it."""
    return WindowRequest(chain, number, chain.bad, chain.plan.steps(number))
