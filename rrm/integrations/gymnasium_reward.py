"""Gymnasium: the judge's score added to the reward at the end of an episode of text.

Needs the extra `gym` (`pip install 'agent-rrm[gym]'`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rrm.data.feedback import Mode
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, MissingExtra
from rrm.integrations.rows import messages_of
from rrm.judge.cached_judge import BatchJudge, JudgeQueue, by_content, said_of

try:
    import gymnasium
except ImportError as missing:
    raise MissingExtra("the Gymnasium wrapper needs gymnasium: pip install 'agent-rrm[gym]'") from missing


class JudgeReward(gymnasium.Wrapper[str, str, str, str]):
    """R_env + weight · s at the end of an episode, terminated or (unless `at_truncation` is False) truncated.

    The transcript: what `reset` returns is the user's, an action the agent's, an observation what came back. Where `info` holds chat
    messages (`messages`, and `message` for the action as the environment understood it), those are taken. `info["agent_rrm"]` of
    the last step says score, failed, status, first finding and, of a failed judgement, the reason; such an episode has R_env alone,
    score nan and failed True, so that a learner can leave it out.

    An episode is judged when it ends, once until the next `reset`, and by itself: the environments of a vector do not share batches.

    Args:
        env: texts in, texts out.
        weight: λ.
        at_truncation: whether the last reward of a truncated episode holds weight · s too. As it stands it does: a limit of turns that
            the agent knows is part of the task. A learner that adds a discounted value to a truncated episode's last reward (PPO
            of Stable-Baselines3 does) counts it twice, since that value holds the score to come: False, and only `info` says the score.
        tools: schemas of what the agent can call, which the judge then reads (`GymEnv.env.tools`).

    Raises:
        ConfigError: a space that is no text.
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
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._messages = _chat(info.get("messages")) or _text("user", observation)
        self._ended = False
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One turn; the last one's reward holds the judge's score."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        said, came_back = _chat([info.get("message")]), _chat(info.get("messages"))
        self._messages += _text("assistant", action) if said is None else said
        self._messages += (_text("user", observation) if observation else []) if came_back is None else came_back
        reward = float(reward)  # pyright: ignore[reportArgumentType]
        if (terminated or truncated) and not self._ended:
            self._ended = True
            (feedback,) = self._asker.ask([self.transcript()])
            info = {**info, "agent_rrm": said_of(feedback)}
            if feedback.score is not None and (terminated or self.at_truncation):
                reward += self.weight * feedback.score
        return observation, reward, terminated, truncated, info

    def transcript(self) -> Trajectory:
        """The episode so far, as the judge reads it."""
        messages = [Message(**message) for message in self._messages]
        task = next((m.text() for m in messages if m.role == "user"), "")
        return by_content(Trajectory(id="", task=task, messages=messages, tools=self.tools))


def _text(role: str, said: str) -> list[dict[str, Any]]:
    return messages_of(role, str(said), role)


def _chat(given: Any) -> list[dict[str, Any]] | None:
    """Chat messages in `info`; None: whatever the environment tells there is none."""
    if not isinstance(given, list | tuple) or not all(isinstance(m, Mapping) and "role" in m for m in given):
        return None
    try:
        return messages_of("", given, "messages")
    except ValueError:
        return None
