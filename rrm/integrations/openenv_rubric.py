"""OpenEnv: the judge as the rubric of an environment's episodes, `self.rubric = AgentRRMRubric()`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import MissingExtra, RRMError
from rrm.integrations.loading import asker
from rrm.judge.abstention import is_bad_of_parts
from rrm.judge.cached_judge import BatchJudge, by_content
from rrm.readers.chat import as_text
from rrm.readers.messages import chat_messages

try:
    from openenv.core.rubrics import TrajectoryRubric  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("the rubric needs openenv-core: pip install 'agent-rrm[openenv]'") from missing

Pair = tuple[Any, Any]  # (action, observation)
OWN = {"done", "reward", "metadata"}  # fields of every action and observation, which no judge reads
WORTH = {"good": 1.0, "bad": 0.0}
UNKNOWN = 0.5  # worth of a step without a clear verdict


class AgentRRMRubric(TrajectoryRubric):
    """The judge's score of an episode once it is `done`, and its value of each step.

    A tool action (`tool_name`, `arguments`) becomes a call, its observation's `result` the answer; others are read as JSON, or
    as the text of their only field.

    Args:
        judge, options: as `rrm.integrations.loading.asker`.
        task: the question, which rubrics are not told: set `rubric.task` when an episode begins.
        mode: only `steps`, `critique` and `full` tell steps apart.
        failed_score: reward of a failed judgement; None: an error.
        said, seen: convert an action, an observation to a chat message.
    """

    def __init__(
        self,
        judge: str | BatchJudge | None = None,
        *,
        task: str = "",
        mode: Mode | None = None,
        samples: int = 1,
        seed: int = 0,
        options: dict[str, Any] | None = None,
        failed_score: float | None = None,
        intermediate_reward: float = 0.0,
        said: Callable[[Any], dict[str, Any]] | None = None,
        seen: Callable[[Any], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(intermediate_reward=intermediate_reward)
        self.task, self.failed_score = task, failed_score
        self._asker = asker(judge, mode=mode, samples=samples, seed=seed, options=options)
        self._said, self._seen = said or action_message, seen or observation_message
        self._judged: tuple[str, Feedback] | None = None

    def feedback(self, trajectory: Sequence[Pair] | None = None) -> Feedback:
        """Judge an episode; the last result is cached."""
        row = self.transcript(self._trajectory if trajectory is None else trajectory)
        if self._judged is None or self._judged[0] != row.id:
            self._judged = row.id, self._asker.submit(row).result()
        return self._judged[1]

    def score_trajectory(self, trajectory: list[Pair]) -> float:
        """The score in [0, 1]; raises `RRMError` for a failed judgement without `failed_score`."""
        feedback = self.feedback(trajectory)
        if feedback.score is not None:
            return feedback.score
        if self.failed_score is None:
            why = f": {feedback.reason}" if feedback.reason else ""
            raise RRMError(
                f"the judge gave no score ({feedback.status}{why}): set failed_score to what that shall earn"
            )
        return self.failed_score

    def compute_step_rewards(self) -> list[float]:
        """Return for each step its p_good or its verdict's worth in [0, 1]; one half where unsure.

        A step without a finding has the episode's score; without any findings the last step has it and the others 0. These values
        grow in sum with the number of steps: compare them (less their mean over a group's steps) or divide by that number.
        """
        if not self._trajectory:
            return []
        score = self.score_trajectory(self._trajectory)
        steps = range(1, len(self._trajectory) + 1)
        by_step = {
            step: findings for step in steps if (findings := [f for f in self.feedback().findings if f.step == step])
        }
        if not by_step:
            return [0.0] * (len(steps) - 1) + [score]
        return [_worth(by_step[step]) if step in by_step else score for step in steps]

    def reset(self) -> None:
        super().reset()
        self._judged = None

    def transcript(self, trajectory: Sequence[Pair]) -> Trajectory:
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.task}] if self.task else []
        for number, (action, observation) in enumerate(trajectory, 1):
            call = {**self._said(action), "role": "assistant"}
            answer = {"role": "tool" if call.get("tool_calls") else "user", **self._seen(observation)}
            if calls := call.get("tool_calls"):  # one observation answers them all: the first has its name
                call["tool_calls"] = [{**item, "id": f"c{number}.{n}"} for n, item in enumerate(calls, 1)]
                answer["tool_call_id"] = f"c{number}.1"
            messages += [call, answer] if answer.get("content") else [call]
        parsed = [Message(**m) for m in chat_messages(messages)]
        return by_content(Trajectory(id="", task=self.task, messages=parsed))


def _worth(findings: Sequence[Finding]) -> float:
    """Return a step's worth: the minimum over the findings of its parts."""
    sure = [f for f in findings if f.verdict != "unsure"]
    values = [f.p_good for f in sure if f.p_good is not None]
    if values:
        return min(values)
    bad = is_bad_of_parts([f.verdict for f in sure])
    return UNKNOWN if bad is None else WORTH["bad" if bad else "good"]


def action_message(action: Any) -> dict[str, Any]:
    fields = _fields(action)
    if "tool_name" in fields:
        return {
            "content": "",
            "tool_calls": [{"name": fields["tool_name"], "arguments": fields.get("arguments") or {}}],
        }
    return {"content": _text(fields)}


def observation_message(observation: Any) -> dict[str, Any]:
    fields = _fields(observation)
    if error := fields.get("error"):
        return {"content": f"Error: {_text(error) if isinstance(error, dict) else as_text(error)}"}
    if "tool_name" in fields:
        return {"content": _content(fields.get("result"))}
    return {"content": _text(fields)}


def _fields(record: Any) -> dict[str, Any]:
    value = record.model_dump(mode="json") if hasattr(record, "model_dump") else record
    value = value if isinstance(value, dict) else vars(value) if hasattr(value, "__dict__") else {"": value}
    return {k: v for k, v in value.items() if k not in OWN and v not in (None, "")}


def _text(fields: dict[str, Any]) -> str:
    values = list(fields.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(fields, ensure_ascii=False, default=str) if fields else ""


def _content(result: Any) -> str:
    parts = result.get("content") if isinstance(result, dict) else None
    if isinstance(parts, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in parts):
        return "\n".join(p["text"] for p in parts)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
