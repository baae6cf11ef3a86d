"""An episode in play: its tokens as the engine holds them, its messages, and its ending."""

from dataclasses import dataclass, field
from typing import Any

from reagent.env.env import Environment
from reagent.rollout.attempts import Attempt
from reagent.rollout.episode import Status, Turn
from reagent.rollout.templates import TurnTemplate
from rrm.errors import RRMError


@dataclass
class ActiveEpisode:
    attempt: Attempt
    env: Environment | None = None
    template: TurnTemplate | None = None
    prompt_ids: list[int] = field(default_factory=list)
    engine_ids: list[int] = field(default_factory=list)  # ids that the engine was given and returned so far
    turns: list[Turn] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    prompt_messages: int = 0  # number of the prompt's messages
    tools: list[dict[str, Any]] = field(default_factory=list)
    stop: tuple[str, ...] = ()
    status: Status | None = None
    error: str | None = None
    outcome: float | None = None
    success: bool | None = None
    graded: bool = True  # the task has an answer key, as far as the environment says
    ungraded: bool = False
    end_ids: list[int] = field(default_factory=list)
    at_guard: bool = False  # its turn was taken, and a guard decides whether it goes on

    def end(self, status: Status, outcome: float | None = None, success: bool | None = None) -> None:
        """End an episode that was played out; an outcome of None is ungraded."""
        outcome, success = (outcome, success) if self.graded else (None, None)
        self.status, self.outcome, self.success, self.ungraded = status, outcome, success, outcome is None

    def end_at_limit(self, status: Status, outcome: float | None = None, success: bool = False) -> None:
        """End an episode at a limit: not solved, unless the environment says so. It may price that."""
        self.end(status, float(getattr(self.env, "unanswered_reward", 0.0)) if outcome is None else outcome, success)

    def fail(self, status: Status, error: str) -> None:
        """End an episode that could not be played out: its outcome is unknown."""
        self.status, self.error = status, error

    def tokens(self) -> list[int]:
        """Prompt, outputs and observations. Raises RRMError: they do not begin with `engine_ids`."""
        ids = self.prompt_ids + [i for turn in self.turns for i in (*turn.output_ids, *turn.observation_ids)]
        if ids[: len(self.engine_ids)] != self.engine_ids:
            position = next((i for i, (a, b) in enumerate(zip(ids, self.engine_ids, strict=False)) if a != b), len(ids))
            raise RRMError(
                f"{self.attempt.key}, turn {len(self.turns)}: token {position} of {len(ids)} is not what the engine holds "
                f"({len(self.engine_ids)} tokens): ids must be kept as they were sampled, never encoded again"
            )
        return ids
