"""An episode at play: its tokens as the engine holds them, its messages, and how it ended."""

from dataclasses import dataclass, field
from typing import Any

from reagent.env.env import Environment
from reagent.rollout.attempts import Attempt
from reagent.rollout.episode import Status, Turn
from reagent.rollout.templates import TurnTemplate
from rrm.errors import RRMError


class TokenDriftError(RRMError):
    """An episode's tokens are not the ones its engine was given and returned: nothing may be learned from it."""


@dataclass
class ActiveEpisode:
    """An episode at play."""

    attempt: Attempt
    env: Environment | None = None
    template: TurnTemplate | None = None
    prompt_ids: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    """What the engine was given and returned so far."""
    turns: list[Turn] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    given: int = 0
    """How many of them the prompt has."""
    tools: list[dict[str, Any]] = field(default_factory=list)
    stop: tuple[str, ...] = ()
    status: Status | None = None
    error: str | None = None
    outcome: float | None = None
    success: bool | None = None
    graded: bool = True
    """Whether the task has an answer key, as far as the environment says."""
    ungraded: bool = False
    end_ids: list[int] = field(default_factory=list)
    at_guard: bool = False
    """Its turn was taken, and a guard is being asked whether it may go on."""

    def end(self, status: Status, outcome: float | None = None, success: bool | None = None) -> None:
        """The episode was played to an end; an outcome of None is one that nobody can grade."""
        outcome, success = (outcome, success) if self.graded else (None, None)
        self.status, self.outcome, self.success, self.ungraded = status, outcome, success, outcome is None

    def end_at_limit(self, status: Status, outcome: float | None = None, success: bool = False) -> None:
        """A limit ended it: not solved, unless the environment says so. It may price that."""
        self.end(status, float(getattr(self.env, "unanswered_reward", 0.0)) if outcome is None else outcome, success)

    def fail(self, status: Status, error: str) -> None:
        """It could not be played to an end of its own: its outcome is unknown."""
        self.status, self.error = status, error

    def tokens(self) -> list[int]:
        """Prompt, outputs and observations; starts with all that is held, or the episode is worth nothing."""
        ids = self.prompt_ids + [i for turn in self.turns for i in (*turn.output_ids, *turn.observation_ids)]
        if ids[: len(self.held)] != self.held:
            at = next((i for i, (a, b) in enumerate(zip(ids, self.held, strict=False)) if a != b), len(ids))
            raise TokenDriftError(
                f"{self.attempt.key}, turn {len(self.turns)}: token {at} of {len(ids)} is not what the engine holds "
                f"({len(self.held)} tokens): ids must be kept as they were sampled, never encoded again"
            )
        return ids
