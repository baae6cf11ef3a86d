"""Gymnasium: the judge's score added to the last reward of a text episode. Needs the extra `gym`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrm.data.feedback import Mode
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, MissingExtra
from rrm.integrations.rows import messages_of
from rrm.judge.cached_judge import BatchJudge, JudgeQueue, by_content, log_fields

try:
    import gymnasium
except ImportError as missing:
    raise MissingExtra("the Gymnasium wrapper needs gymnasium: pip install 'agent-rrm[gym]'") from missing


class JudgeReward(gymnasium.Wrapper[str, str, str, str]):
    """R_env + weight · s at the end of an episode, judged once and by itself.

    The transcript holds observations as user messages and actions as the agent's, or the chat messages in `info` (`messages`,
    and `message` for the action). The last step's `info["agent_rrm"]` has score, failed, status, first finding and reason; a
    failed judgement's episode has R_env alone, score nan and failed True.

    Args:
        weight: λ.
        at_truncation: whether a truncated episode's last reward includes weight · s. False for a learner that adds a
            discounted value there (PPO of Stable-Baselines3), which holds the score to come; `info` still has the score.
        tools: schemas of the agent's tools, which the judge reads (`GymEnv.env.tools`).
    """

    def __init__(
        self,
        env: gymnasium.Env[str, str],
        judge: BatchJudge,
        *,
        weight: float = 0.3,
        mode: Mode = "score",
        samples: int = 1,
        seed: int = 0,
        tools: list[dict[str, Any]] | None = None,
        at_truncation: bool = True,
    ) -> None:
        super().__init__(env)
        for name, space in (("action", env.action_space), ("observation", env.observation_space)):
            if not isinstance(space, gymnasium.spaces.Text):
                raise ConfigError(
                    f"a judge reads text, and the {name} space is {type(space).__name__}: wrap it as Text"
                )
        self.weight, self.tools, self.at_truncation = weight, tools, at_truncation
        self._asker = JudgeQueue(judge, mode=mode, samples=samples, seed=seed)
        self._messages: list[dict[str, Any]] = []
        self._ended = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._messages = _chat(info.get("messages")) or _text("user", observation)
        self._ended = False
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        own_messages, came_back = _chat([info.get("message")]), _chat(info.get("messages"))
        self._messages += _text("assistant", action) if own_messages is None else own_messages
        self._messages += (_text("user", observation) if observation else []) if came_back is None else came_back
        reward = float(reward)  # pyright: ignore[reportArgumentType]
        if (terminated or truncated) and not self._ended:
            self._ended = True
            (feedback,) = self._asker.ask([self.transcript()])
            info = {**info, "agent_rrm": log_fields(feedback)}
            if feedback.score is not None and (terminated or self.at_truncation):
                reward += self.weight * feedback.score
        return observation, reward, terminated, truncated, info

    def transcript(self) -> Trajectory:
        messages = [Message(**message) for message in self._messages]
        task = next((m.text() for m in messages if m.role == "user"), "")
        return by_content(Trajectory(id="", task=task, messages=messages, tools=self.tools))


def _text(role: str, text: str) -> list[dict[str, Any]]:
    return messages_of(role, str(text), role)


def _chat(messages: Any) -> list[dict[str, Any]] | None:
    # None: whatever `info` holds there is not chat messages
    if not isinstance(messages, list | tuple) or not all(isinstance(m, Mapping) and "role" in m for m in messages):
        return None
    try:
        return messages_of("", messages, "messages")
    except ValueError:
        return None
