"""Asks a judge about a run so far, in the cheapest way it has, and says what that took. A judge that fails is no reason to stop.

| judge | asked for | what is computed |
|---|---|---|
| trained in `steps`, weights here | slots (`rrm.judge.incremental_judge`) | the new step's tokens |
| the same, on a server whose tokenizer is here | slots | a token at each new slot; the server's prefix cache holds the rest |
| behind `rrm serve`, trained in `steps` | mode `steps` | the whole prefix, there |
| a chat model | mode `score`, of a run that goes on (`rrm.judge.prefixes`) | the whole prefix |
| any other | mode `score` | the whole prefix |

What a chat model says of a run that goes on is a number without a meaning until it is calibrated on such (`rrm calibrate --prefixes`): until
then it is a signal of nothing, and the guard says nothing because of it.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.guard.timeouts import Deadline, OutOfTime
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.cached_judge import BatchJudge, lock_of
from rrm.judge.incremental_judge import Follower
from rrm.judge.prefixes import is_chat_model, lacks_prefixes, of_unfinished
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN
from rrm.scoring.escalating import EscalatingJudge

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrefixJudgement:
    """One judgement of a prefix."""

    status: str
    """`scored`, or why there is no number."""
    score: float | None
    p_good: float | None
    """That the latest step was good; 1 or 0 of a stronger judge that gives a verdict alone; None outside of mode `steps`."""
    reason: str | None
    tokens: int
    """That the judge read: computed by an engine here, reported by a server, else estimated, four characters a token."""
    seconds: float
    abstains: bool = False
    """Whether the run so far is outside what the judge was measured on, and it abstains: its score is then no signal."""
    unsure: bool = False
    """Whether it abstains on the latest step: its p_good is then no signal."""
    cost: float | None = None
    """What a server's tokens cost, where prices are known."""
    uncalibrated: bool = False
    """Whether its scores of runs that go on are no signal at all."""


def mode_of(judge: BatchJudge) -> Mode:
    """What a judge is asked for where nobody says: `steps` where it was trained in it and can be asked, else `score`."""
    settings = getattr(judge, "settings", None)
    if settings is None or "steps" not in settings.modes:
        return "score"
    return "steps" if _follows(judge) or _elsewhere(judge) else "score"


def _elsewhere(judge: BatchJudge) -> bool:
    """Whether `rrm serve` has it."""
    return hasattr(judge, "address")


def _follows(judge: BatchJudge) -> bool:
    if not isinstance(judge, AgentRRM) or _elsewhere(judge):
        return False
    try:
        judge.abilities.check("steps")
    except RRMError:
        return False
    return True


class PrefixJudge:
    """One run's judge.

    Args:
        mode: None: as `mode_of` says.
        deadline: a judgement that is not there by then has failed.

    Raises:
        ConfigError: `steps` of a judge that cannot be asked for it.
    """

    def __init__(
        self, judge: BatchJudge, *, mode: Mode | None = None, seed: int = 0, deadline: Deadline | None = None
    ) -> None:
        self.judge, self.seed, self._deadline = judge, seed, deadline
        self.mode: Mode = mode or mode_of(judge)
        follows = self.mode == "steps" and _follows(judge)
        if self.mode == "steps" and isinstance(judge, AgentRRM) and not (follows or _elsewhere(judge)):
            raise ConfigError(f"{judge.model} cannot be asked for mode steps here: use mode score")
        self._follower = Follower(judge, seed=seed) if follows and isinstance(judge, AgentRRM) else None
        self._lock = lock_of(judge)
        if isinstance(judge, EscalatingJudge) and is_chat_model(judge.stronger):
            self.judge = copy.copy(judge)
            self.judge.stronger = of_unfinished(judge.stronger)
        elif is_chat_model(judge) and isinstance(judge, AgentRRM):
            self.judge = of_unfinished(judge)

    def ask(self, trajectory: Trajectory) -> PrefixJudgement:
        """What the judge says of the run so far. Raises nothing that the judge raises: that is a `judge_error`."""
        if self._deadline is None:
            return self._asked(trajectory)
        began = time.perf_counter()
        try:
            return self._deadline.within(lambda: self._asked(trajectory))
        except OutOfTime as error:
            why = f"no judgement: {error}"
            return PrefixJudgement("judge_error", None, None, why, 0, time.perf_counter() - began)

    def _asked(self, trajectory: Trajectory) -> PrefixJudgement:
        with self._lock:
            before, began = self._computed(), time.perf_counter()
            try:
                feedback = self._judged(trajectory)
            except Exception as error:  # noqa: BLE001 - an agent must not end because its guard did; the audit has it
                log.warning("the guard's judge failed: %s: %s", type(error).__name__, error)
                seconds = time.perf_counter() - began
                why = f"{type(error).__name__}: {error}"
                return PrefixJudgement("judge_error", None, None, why, self._computed() - before, seconds)
            seconds, computed = time.perf_counter() - began, self._computed() - before
        last = len(trajectory.steps)
        latest = next((f for f in feedback.findings if f.step == last), None) if self.mode == "steps" else None
        p_good, unsure = (None, False) if latest is None else (latest.p_good, latest.verdict == "unsure")
        if latest is not None and p_good is None and latest.decided:  # a stronger judge's word
            p_good = float(latest.verdict == "good")
        scored = feedback.status == "scored"
        tokens = self._read(feedback, computed, trajectory)
        reason = None if scored else feedback.reason or feedback.status
        score, abstains = feedback.score if scored else None, feedback.abstains
        cost = None if feedback.usage is None else feedback.usage.cost
        said_by = (one for one in (self.judge, getattr(self.judge, "stronger", None)) if isinstance(one, AgentRRM))
        vague = any(lacks_prefixes(one, feedback.judge.mode) for one in said_by if one.model == feedback.judge.model)
        return PrefixJudgement(feedback.status, score, p_good, reason, tokens, seconds, abstains, unsure, cost, vague)

    def close(self) -> None:
        """Let the judge forget the run; one that is still at work keeps it."""
        if self._follower is not None and not (self._deadline is not None and self._deadline.late):
            with self._lock:
                self._follower.close()

    def _judged(self, trajectory: Trajectory) -> Feedback:
        if self._follower is not None:
            feedback = self._follower.judge(trajectory)
            if isinstance(self.judge, EscalatingJudge):
                (feedback,) = self.judge.again([feedback], [trajectory], mode=self.mode, seed=self.seed, latest=True)
            return feedback
        (feedback,) = self.judge.judge([trajectory], mode=self.mode, samples=1, seed=self.seed)
        return feedback

    def _counters(self) -> Any:
        return getattr(getattr(self.judge, "engine", None), "counters", None)

    def _computed(self) -> int:
        """Tokens that the judge's engine ran so far; 0 where it does not count."""
        counters = self._counters()
        return 0 if counters is None else counters.prefilled + counters.decoded

    def _read(self, feedback: Feedback, computed: int, trajectory: Trajectory) -> int:
        if feedback.usage is not None:
            return feedback.usage.prompt_tokens + feedback.usage.completion_tokens
        if self._counters() is not None:
            return computed
        said = sum(
            len(m.text()) + len(m.reasoning_content or "") + sum(len(c.arguments_text()) for c in m.tool_calls or [])
            for m in trajectory.messages
        )
        return said // CHARACTERS_PER_TOKEN


class AbsentJudge:
    """A judge that is not there.

    Args:
        model: its name, for the audit.
        why: it cannot be loaded.
    """

    def __init__(self, model: str | None, why: Exception) -> None:
        self.model, self.why = model, why

    def judge(self, trajectories: Sequence[Trajectory], **asked: object) -> NoReturn:
        """Raises RRMError, always: why there is none."""
        del trajectories, asked
        said = str(self.why) if isinstance(self.why, RRMError) else f"{type(self.why).__name__}: {self.why}"
        raise RRMError(f"no judge: {said}") from self.why
