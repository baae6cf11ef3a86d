"""The guard of a running agent (docs/guard.md).

    guard = Guard(AgentRRM.from_pretrained(), GuardPolicy(halt_below=0.1, patience=2), audit="audit.jsonl")
    with guard.session(task=question) as session:
        for message in loop:                      # the agent's and its tools', as OpenAI chat messages
            if session.observe(message).action == "halt":
                break

A step is over once each of its calls has its result; then the run so far is judged, and the verdict stands until a later step's.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rrm.data.feedback import OUTSIDE, Mode
from rrm.data.trajectory import Message, Step, Trajectory
from rrm.data.usage import Usage
from rrm.engines.cost import CostTracker
from rrm.errors import ConfigError
from rrm.guard.audit import EXHAUSTED, NOT_JUDGED, UNASKED, AuditRow, append, bounded, read_audit, shown_call
from rrm.guard.policy import Action, GuardPolicy
from rrm.guard.prefix import PrefixJudge, PrefixJudgement, mode_of
from rrm.guard.state import GuardState, digest_before, now
from rrm.guard.timeouts import Deadline
from rrm.judge.cached_judge import BatchJudge
from rrm.judge.prefixes import lacks_prefixes

log = logging.getLogger(__name__)
UNCALIBRATED = "the judge is a chat model whose scores of runs that go on are not calibrated: rrm calibrate --prefixes makes a judge of it whose are"


@dataclass(frozen=True)
class GuardVerdict:
    action: Action
    step: int  # the latest, from 1; 0 before the first
    checked: bool  # the judge was asked now; False: the verdict before stands
    status: str  # of the judgement; `not_judged` or `exhausted` without one
    score: float | None = None  # of the run so far, where the judge was asked now
    p_good: float | None = None  # probability that the latest step was good, likewise
    reason: str | None = None  # of an action other than `continue`, or of no score
    tokens: int = 0
    seconds: float = 0.0
    unsure: bool = False  # the judge abstained: the verdict before stands, and nothing is counted

    @property
    def goes_on(self) -> bool:
        return self.action == "continue"


class Guard:
    """A judge and a policy; it may watch many runs, one session each.

    Args:
        judge: an `AgentRRM`, or anything that judges like one.
        audit: a file that gets a JSON line a step (`rrm.guard.audit`); None: none is kept.
        mode: None: `steps` where the judge can, else `score`.
        seed: of sampled replies.
        deadline: a judgement that is not there by then has failed; for one answer, as in a hook.

    Raises:
        ConfigError: the policy uses `p_good` and the mode is not `steps`, or `steps` is not possible.
        ReadError: the audit is a file that holds something else.
    """

    def __init__(
        self,
        judge: BatchJudge,
        policy: GuardPolicy | None = None,
        *,
        audit: str | Path | None = None,
        mode: Mode | None = None,
        seed: int = 0,
        deadline: Deadline | None = None,
    ) -> None:
        self.judge, self.policy, self.seed, self.deadline = judge, policy or GuardPolicy(), seed, deadline
        self.audit = None if audit is None else Path(audit)
        self.mode: Mode = mode or mode_of(judge)
        if self.policy.signal == "p_good" and self.mode != "steps":
            raise ConfigError(
                f"signal p_good is read in mode steps, and this judge is asked for {self.mode}: use signal score"
            )
        # refused now, not beside a running agent
        PrefixJudge(judge, mode=self.mode, seed=seed)
        if lacks_prefixes(judge, self.mode):
            log.warning("the guard only watches, and never halts: %s", UNCALIBRATED)
        if self.audit is not None and self.audit.is_file():
            purse: CostTracker | None = getattr(judge, "purse", None)
            if purse is None or purse.max_cost is None:
                next(read_audit(self.audit), None)
            else:
                purse.begin(Usage(cost=sum(row.cost or 0.0 for row in read_audit(self.audit))), str(self.audit))

    def session(
        self,
        *,
        task: str = "",
        run: str | None = None,
        tools: Sequence[dict[str, Any]] | None = None,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        resume: bool = False,
    ) -> GuardSession:
        """Watch one run.

        Args:
            run: its id; a random one by default.
            tools: their JSON schemas, which the judge reads.
            messages: earlier messages, which are not judged.
            resume: continue the audit's latest session of this run, with its counts and spending.

        Raises:
            ConfigError: `resume` without an audit or a run's id; ReadError: the audit cannot be read.
        """
        trajectory = Trajectory(
            id=run or uuid.uuid4().hex[:16], task=task, tools=list(tools) if tools else None, messages=[]
        )
        session = GuardSession(self, trajectory)
        if resume:
            if self.audit is None or run is None:
                raise ConfigError("a session is resumed by its run's id from the guard's audit: give both")
            session.state.recall(read_audit(self.audit, run) if self.audit.exists() else ())
        for message in messages:
            session.observe(message, check=False)
        return session


class GuardSession:
    """One run under watch. One thread at a time; sessions of a guard take turns at its judge."""

    def __init__(self, guard: Guard, trajectory: Trajectory) -> None:
        self.guard, self.policy, self.trajectory = guard, guard.policy, trajectory
        self.state = GuardState(guard.policy)
        self.verdicts: list[GuardVerdict] = []  # one for each row of the audit
        self._seen: dict[int, float] = {}  # index of a message → when it came (monotonic seconds)
        self._judge = PrefixJudge(guard.judge, mode=guard.mode, seed=guard.seed, deadline=guard.deadline)

    def __enter__(self) -> GuardSession:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._judge.close()

    # ---- what the agent did ----

    def observe(self, message: Message | Mapping[str, Any], *, check: bool | None = None) -> GuardVerdict:
        """Add a message; the run so far is judged when a step ends with it. Returns the standing verdict.

        Args:
            check: True: judge now in any case (before a call is run, say); False: do not.
        """
        message = message if isinstance(message, Message) else Message.model_validate(message)
        self._seen[len(self.trajectory.messages)] = time.monotonic()
        self.trajectory.messages.append(message)
        if not self.trajectory.task and message.role == "user":
            self.trajectory.task = message.text()
        ended = check if check is not None else _ends_a_step(self.trajectory, message)
        return self.check() if ended and self.trajectory.steps else self.standing()

    async def observe_async(self, message: Message | Mapping[str, Any], *, check: bool | None = None) -> GuardVerdict:
        return await asyncio.to_thread(self.observe, message, check=check)

    def judge_now(self, trajectory: Trajectory) -> GuardVerdict:
        """Judge a whole run so far instead of observed messages, from a transcript in a file, say."""
        self.trajectory = trajectory.model_copy(update={"id": self.trajectory.id})
        return self.check() if trajectory.steps else self.standing()

    def judge_if_new(self, trajectory: Trajectory) -> GuardVerdict:
        """`judge_now` if a step has ended since, for frameworks that show the run before each model call.

        Not in a run that was shown before (a node of it runs again), nor where the user spoke and the agent has not yet. A verdict
        that is known from the audit comes before any judgement.
        """
        previous, steps = self.trajectory, trajectory.steps
        fresh = not previous.messages
        said_nothing_since = fresh or (steps and previous.steps and steps[-1].message == previous.steps[-1].message)
        if (
            not steps
            or trajectory.messages == previous.messages
            or (trajectory.messages[-1].role == "user" and said_nothing_since)
            or (fresh and self.state.action != "continue")
        ):
            self.trajectory = trajectory.model_copy(update={"id": previous.id})
            return self.standing()
        return self.judge_now(trajectory)

    def failed(self, why: str) -> GuardVerdict:
        """Count a run that could not be read as a failed judgement."""
        step = self.trajectory.steps[-1] if self.trajectory.steps else None
        judgement = PrefixJudgement("judge_error", None, None, bounded(why), 0, 0.0)
        return self._say(step, judgement, self.policy.on_failure, judgement.reason)

    def check(self) -> GuardVerdict:
        step = self.trajectory.steps[-1]
        if not self.policy.judges(step.index):
            return self._say(
                step, PrefixJudgement(NOT_JUDGED, None, None, None, 0, 0.0), self.state.action, self.state.why
            )
        spent = self.state.spent
        used = self.policy.spent(spent.checks, spent.tokens, spent.seconds)
        if used is not None:
            why = f"the budget is used up: {used}"
            return self._say(step, PrefixJudgement(EXHAUSTED, None, None, why, 0, 0.0), self.policy.on_exhausted, why)
        judgement = self._judge.ask(self.trajectory)
        spent.add(judgement.tokens, judgement.seconds)
        signal = judgement.score if self.policy.signal == "score" else judgement.p_good
        if signal is None:
            why = bounded(judgement.reason or f"the judge gave no {self.policy.signal}")
            return self._say(step, judgement, self.policy.on_failure, why)
        why = self._why_unsure(judgement)
        if why is not None:
            return self._say(step, judgement, self.state.action, why, unsure=True)
        self.state.take(step.index, signal, digest_before(self.trajectory, step.message_index))
        return self._say(step, judgement, self.state.action, self.state.why)

    def standing(self) -> GuardVerdict:
        """The current verdict, without asking the judge."""
        return GuardVerdict(self.state.action, len(self.trajectory.steps), False, NOT_JUDGED, reason=self.state.why)

    def resume(self) -> None:
        """A person lets the run go on: counts begin anew."""
        self.state.reset()
        self._keep(
            AuditRow(
                run=self.trajectory.id,
                began=self.state.began,
                step=len(self.trajectory.steps),
                at=now(),
                verdict="continue",
                status=NOT_JUDGED,
                resumed=True,
            )
        )

    # ---- inside ----

    def _why_unsure(self, judgement: PrefixJudgement) -> str | None:
        if judgement.uncalibrated and self.policy.signal == "score":
            return UNCALIBRATED
        if judgement.abstains:
            return f"the judge is unsure: the run so far is {OUTSIDE}"
        if judgement.unsure and self.policy.signal == "p_good":
            return f"the judge is unsure: p_good {judgement.p_good:.2f} is within its unsure_band"
        return None

    def _say(
        self, step: Step | None, judgement: PrefixJudgement, action: Action, why: str | None, *, unsure: bool = False
    ) -> GuardVerdict:
        """Record a verdict; a check without a signal does not take back what stands."""
        why = self.state.hold(action, why)
        action = self.state.action
        checked = judgement.status not in UNASKED
        number = 0 if step is None else step.index
        verdict = GuardVerdict(
            action,
            number,
            checked,
            judgement.status,
            judgement.score,
            judgement.p_good,
            why,
            judgement.tokens,
            judgement.seconds,
            unsure,
        )
        self.verdicts.append(verdict)
        judge = getattr(self.guard.judge, "model", None)
        self._keep(
            AuditRow(
                run=self.trajectory.id,
                began=self.state.began,
                step=number,
                before=None if step is None else digest_before(self.trajectory, step.message_index),
                at=now(),
                calls=[] if step is None else self._calls(step),
                verdict=action,
                status=judgement.status,
                score=judgement.score,
                p_good=judgement.p_good,
                reason=why,
                tokens=judgement.tokens,
                seconds=round(judgement.seconds, 6),
                cost=judgement.cost,
                judge=judge if isinstance(judge, str) else None,
                unsure=unsure,
            )
        )
        return verdict

    def _keep(self, row: AuditRow) -> None:
        if self.guard.audit is not None:
            append(self.guard.audit, row)

    def _calls(self, step: Step) -> list[Any]:
        by_id = {m.tool_call_id: (i, m) for i, m in enumerate(step.observations) if m.tool_call_id}
        plain = [(i, m) for i, m in enumerate(step.observations) if m.role == "tool" and not m.tool_call_id]
        calls = []
        for call in step.message.tool_calls or []:
            index, result = by_id.get(call.id or "") or (plain.pop(0) if plain else (None, None))
            seconds = None if result is None else result.duration_s
            if seconds is None and index is not None:
                called, came = (self._seen.get(step.message_index + n) for n in (0, index + 1))
                seconds = None if called is None or came is None else round(came - called, 6)
            calls.append(shown_call(call, seconds if seconds is None or seconds >= 0 else None, result is not None))
        return calls


def _ends_a_step(trajectory: Trajectory, message: Message) -> bool:
    """True if all calls of the step are answered, or it has none."""
    if message.role in ("system", "developer") or not trajectory.steps:
        return False
    step = trajectory.steps[-1]
    results = sum(m.role == "tool" for m in step.observations)
    return results >= len(step.message.tool_calls or [])
