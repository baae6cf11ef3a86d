"""Episode, the token-exact result of a rollout: a trainer reads its tokens, a judge its trajectory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from reagent.env.task import Task
from rrm.data.jsonl import read_lines
from rrm.data.output import write_lines
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import StopReason

Status = Literal["finished", "turn_limit", "token_limit", "halted", "env_error"]
"""`halted`: by a guard (`reagent.env.guarded`), with an unknown outcome where its judge failed."""
Stage = Literal["initial", "refined"]


def attempt_key(group_id: str, stage: Stage, number: int) -> str:
    """Key of an attempt on every process: for its cache, its random numbers, and its episode."""
    return f"{group_id}/{stage}/{number}"


@dataclass
class Turn:
    """One turn: the policy's sample, and the environment's answer."""

    output_ids: list[int]
    """Sampled ids, the end-of-turn token included if it was sampled; never empty."""
    output_logprobs: list[float]  # under the sampling temperature
    observation_ids: list[int]
    """The tokens before the next turn: missing end-of-turn tokens, observations, the next opening."""
    reward: float = 0.0
    stop_reason: StopReason = "eos"
    info: dict[str, Any] = field(default_factory=dict)
    """The environment's, and `truncated_tokens`: how many of its observations' tokens were cut."""
    version: int = 0  # of the weights that sampled it: updates done by then
    server: str = ""  # address that sampled it; "": the process that trains

    def __post_init__(self) -> None:
        if not self.output_ids or len(self.output_ids) != len(self.output_logprobs):
            raise ValueError(
                f"a turn needs sampled ids with as many log-probabilities, got {len(self.output_ids)} and "
                f"{len(self.output_logprobs)}"
            )


@dataclass(frozen=True)
class FlatEpisode:
    """An episode as arrays of length T = prompt + Σ (output + observation)."""

    input_ids: np.ndarray  # int64
    action_mask: np.ndarray  # bool: exactly the sampled tokens
    turn_index: np.ndarray  # int64: −1 on the prompt, k (from 0) on turn k's output and its observation
    token_rewards: np.ndarray
    """float32: process rewards on each turn's last sampled token, the outcome on the last one."""
    rollout_logprobs: np.ndarray  # float32: 0 off the action mask


@dataclass
class Episode:
    """One attempt at a task."""

    task: Task
    prompt_ids: list[int]
    turns: list[Turn]
    outcome_reward: float | None
    """None: `ungraded`, or unknown: a failure, a halt without a judgement, or a prompt without room."""
    status: Status
    error: str | None  # for `env_error`, for a prompt that left no room, and for a halt without a judgement
    success: bool | None  # the task was solved; None where unknown or ungraded
    group_id: str  # attempts at one task share it, in both stages
    stage: Stage
    trajectory: Trajectory
    attempt: int = 0  # its number within the group and stage
    prompt_messages: int = 0
    """Number of the trajectory's messages in the prompt, with examples of other agents' turns."""
    ungraded: bool = False
    """The task has no answer key: the episode was played out, and its outcome is unknown."""
    end_ids: list[int] = field(default_factory=list)
    """Ids after an episode that the turn limit cut off: the observation and the next turn's opening.
    `loss.bootstrap` reads the value at their end; no training sees the state before them."""

    @property
    def key(self) -> str:
        return attempt_key(self.group_id, self.stage, self.attempt)

    @property
    def reward(self) -> float | None:
        """Σ process rewards + outcome reward; None while the outcome is unknown or ungraded (DESIGN §5)."""
        return None if self.outcome_reward is None else sum(t.reward for t in self.turns) + self.outcome_reward

    @property
    def turn_rewards(self) -> list[float]:
        """Each turn's reward, the outcome with the last; an unknown one adds nothing."""
        earned = [turn.reward for turn in self.turns]
        if earned:
            earned[-1] += self.outcome_reward or 0.0
        return earned

    @property
    def grade_failed(self) -> bool:
        """The answer kept itself from being graded: it earned `environment.failure_reward`."""
        return bool(self.turns) and "grader_error" in self.turns[-1].info

    @property
    def own_messages(self) -> list[Message]:
        return self.trajectory.messages[self.prompt_messages :]

    @property
    def answer(self) -> str | None:
        answer = self.turns[-1].info.get("answer") if self.turns else None
        return None if answer is None else str(answer)

    def flatten(self) -> FlatEpisode:
        """The arrays a trainer needs, never made from token ids. An unknown outcome adds nothing."""
        parts = [self.prompt_ids]
        mask, index, rewards, logprobs = ([value] * len(self.prompt_ids) for value in (False, -1, 0.0, 0.0))
        for k, (turn, earned) in enumerate(zip(self.turns, self.turn_rewards, strict=True)):
            outputs, others = len(turn.output_ids), len(turn.observation_ids)
            parts += [turn.output_ids, turn.observation_ids]
            mask += [True] * outputs + [False] * others
            index += [k] * (outputs + others)
            logprobs += [*turn.output_logprobs, *[0.0] * others]
            rewards += [0.0] * (outputs - 1) + [earned] + [0.0] * others
        return FlatEpisode(
            input_ids=np.array([i for piece in parts for i in piece], dtype=np.int64),
            action_mask=np.array(mask, dtype=bool),
            turn_index=np.array(index, dtype=np.int64),
            token_rewards=np.array(rewards, dtype=np.float32),
            rollout_logprobs=np.array(logprobs, dtype=np.float32),
        )

    def to_json(self) -> str:
        """One ASCII-only line of JSON. Raises ValueError: NaN or infinity."""
        fields = {k: v for k, v in vars(self).items() if k not in ("task", "turns", "trajectory")}
        nested = {"task": asdict(self.task), "turns": [asdict(turn) for turn in self.turns]}
        row = {**fields, **nested, "trajectory": self.trajectory.model_dump(exclude_none=True)}
        return json.dumps(row, ensure_ascii=True, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> Episode:
        """The inverse of `to_json`; raises ValueError or TypeError on a line that is none."""
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"an episode is a JSON object, got {type(row).__name__}")
        missing = {"task", "turns", "trajectory"} - row.keys()
        if missing:
            raise ValueError(f"an episode needs {', '.join(sorted(missing))}")
        task, turns, trajectory = row.pop("task"), row.pop("turns"), row.pop("trajectory")
        return cls(
            task=Task(**task),
            turns=[Turn(**turn) for turn in turns],
            trajectory=Trajectory.model_validate(trajectory),
            **row,
        )


def jsonable(value: Any) -> Any:
    """`value` as JSON can keep it; an environment's `info` may hold anything, the rest becomes its text."""
    if isinstance(value, dict):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(v) for v in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


def write_episodes(path: str | Path, episodes: Iterable[Episode]) -> int:
    return write_lines(path, (e.to_json() for e in episodes))


def read_episodes(path: str | Path) -> Iterator[Episode]:
    return read_lines(path, Episode.from_json, "an episode")
