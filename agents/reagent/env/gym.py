"""An environment under Gymnasium's contract: text in, text out. Rollouts do not use it."""

import string
from collections.abc import Sequence
from typing import Any, ClassVar

from reagent.env.env import Environment
from reagent.env.task import Task
from rrm.engines.async_runner import run
from rrm.errors import MissingExtra

try:
    import gymnasium
except ImportError as missing:
    raise MissingExtra("the Gymnasium wrapper needs gymnasium: pip install 'agent-rrm[gym]'") from missing

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
CHARSET = frozenset(string.printable + "…–—‘’“”•°±×÷€£äöüÄÖÜßéèêàâçñ" + _UNKNOWN)
"""Characters of the text spaces; others in an observation become U+FFFD."""
_AUDIT = ("timestamp", "duration_s")


class GymEnv(gymnasium.Env[str, str]):
    """One environment and its tasks. An observation is the new messages' text, one `role: content` each.

    Args:
        env: the environment to wrap.
        tasks: drawn at random by `reset`, or chosen by `reset(options={"task": index})`.
        max_chars: longest action and observation; a longer observation is cut.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}

    def __init__(self, env: Environment, tasks: Sequence[Task], *, max_chars: int = 16384) -> None:
        if not tasks:
            raise ValueError("a Gymnasium environment needs at least one task")
        self.env, self.tasks, self.max_chars = env, list(tasks), max_chars
        self.action_space = gymnasium.spaces.Text(max_chars, min_length=0, charset=CHARSET)
        self.observation_space = gymnasium.spaces.Text(max_chars, min_length=0, charset=CHARSET)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode; `info` holds the task's id and the messages."""
        super().reset(seed=seed)
        index = (options or {}).get("task")
        task = self.tasks[int(self.np_random.integers(len(self.tasks))) if index is None else index]
        messages = self.env.reset(task)
        return self._text(messages), {"task_id": task.id, "messages": _plain(messages)}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play one turn. The reward holds the outcome's once the episode is over."""
        result = run(self.env.step(action))
        info = result.info | {"message": result.message, "messages": _plain(result.observations)}
        reward = float(result.reward + (result.outcome_reward or 0.0))
        return self._text(result.observations), reward, result.terminated, result.truncated, info

    def close(self) -> None:
        run(self.env.close())

    def _text(self, messages: Sequence[dict[str, Any]]) -> str:
        text = "\n".join(f"{m['role']}: {m['content']}" for m in messages)
        return "".join(c if c in CHARSET else _UNKNOWN for c in text[: self.max_chars])


def _plain(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in message.items() if k not in _AUDIT} for message in messages]
