"""Asks a judge about a run so far, in the cheapest way it has. A judge that fails stops nothing.

A judge trained in `steps` computes the new step's tokens alone (`rrm.judge.incremental_judge`), on a server a token at each new slot;
behind `rrm serve` it is asked for mode `steps`. Any other is asked for mode `score`, of the whole prefix. A chat model's score of
a run that goes on (`rrm.judge.prefixes`) is no signal until calibrated on such runs (`rrm calibrate --prefixes`).
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
from rrm.guard.timeouts import Deadline
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.cached_judge import BatchJudge, lock_of
from rrm.judge.incremental_judge import Follower
from rrm.judge.prefixes import is_chat_model, lacks_prefixes, of_unfinished
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN
from rrm.scoring.escalating import EscalatingJudge

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrefixJudgement:
    status: str  # `scored`, or why there is no number
    score: float | None
    # of the latest step; 1 or 0 of a stronger judge that gives a verdict alone; None outside of mode `steps`
    p_good: float | None
    reason: str | None
    # read: computed by an engine here, reported by a server, else estimated, four characters a token
    tokens: int
    seconds: float
    abstains: bool = False  # the run is outside what the judge was measured on: its score is no signal
    unsure: bool = False  # the judge abstains on the latest step: its p_good is no signal
    cost: float | None = None  # of a server's tokens, where prices are known
    uncalibrated: bool = False  # its scores of runs that go on are no signal at all


def mode_of(judge: BatchJudge) -> Mode:
    """The default mode: `steps` where the judge was trained in it and can be asked, else `score`."""
    settings = getattr(judge, "settings", None)
    if settings is None or "steps" not in settings.modes:
        return "score"
    return "steps" if _follows(judge) or _elsewhere(judge) else "score"


def _elsewhere(judge: BatchJudge) -> bool:
    # behind `rrm serve`
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
    """One run's judge; `mode` None: `mode_of` the judge.

    Raises:
        ConfigError: mode `steps` of a judge that cannot be asked for it.
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
        """Judge the run so far. A failure of the judge raises nothing: it is a `judge_error`."""
        if self._deadline is None:
            return self._asked(trajectory)
        began = time.perf_counter()
        try:
            return self._deadline.within(lambda: self._asked(trajectory))
        except TimeoutError as error:
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
        judges = (judge for judge in (self.judge, getattr(self.judge, "stronger", None)) if isinstance(judge, AgentRRM))
        vague = any(
            lacks_prefixes(judge, feedback.judge.mode) for judge in judges if judge.model == feedback.judge.model
        )
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
        # run by the engine so far, in tokens; 0 where it does not count
        counters = self._counters()
        return 0 if counters is None else counters.prefilled + counters.decoded

    def _read(self, feedback: Feedback, computed: int, trajectory: Trajectory) -> int:
        if feedback.usage is not None:
            return feedback.usage.prompt_tokens + feedback.usage.completion_tokens
        if self._counters() is not None:
            return computed
        characters = sum(
            len(m.text()) + len(m.reasoning_content or "") + sum(len(c.arguments_text()) for c in m.tool_calls or [])
            for m in trajectory.messages
        )
        return characters // CHARACTERS_PER_TOKEN


class AbsentJudge:
    """A judge that could not be loaded, because of `why`; `model` is its name in the audit."""

    def __init__(self, model: str | None, why: Exception) -> None:
        self.model, self.why = model, why

    def judge(self, trajectories: Sequence[Trajectory], **options: object) -> NoReturn:
        del trajectories, options
        reason = str(self.why) if isinstance(self.why, RRMError) else f"{type(self.why).__name__}: {self.why}"
        raise RRMError(f"no judge: {reason}") from self.why
