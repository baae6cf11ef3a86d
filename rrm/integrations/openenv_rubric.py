"""OpenEnv: the judge as the rubric of an environment's episodes.

    rubric = AgentRRMRubric(judge="default", task="Where was Ada born?")      # in your environment: self.rubric
    reward = rubric(action, observation)                                 # 0.0 until `done`, then the judge's score
    rubric.compute_step_rewards()                                        # one a step: how good it is, not to be summed

Needs the extra `openenv`.
"""

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

Pair = tuple[Any, Any]
"""(action, observation)."""
OWN = {"done", "reward", "metadata"}
"""What every action and observation has, and no judge reads."""
WORTH = {"good": 1.0, "bad": 0.0}
UNKNOWN = 0.5
"""Worth of a step of which nothing clear is said, or on which the judge abstains: neither good nor bad."""


class AgentRRMRubric(TrajectoryRubric):
    """The judge's score of a whole episode, and for each step what the judge thinks of it.

    An action that calls a tool (`tool_name`, `arguments`, as OpenEnv's own has) is that call and its observation the `result`; of others
    the judge reads the fields as JSON, or the text where there is but one. `said` and `seen` say it otherwise.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it (None: the judge that ships with the package), or one that is loaded.
        task: what the agent is to do, which rubrics are not told: set `rubric.task` when an episode begins.
        mode: None: the one that the judge prefers, or `full`. Only `steps`, `critique` and `full` tell steps apart.
        failed_score: what a failed judgement counts: OpenEnv has no reward that is left out. None: an error instead.
        said, seen: an action as an assistant's chat message, an observation as the message (of a tool, or a user) that answers it.
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
        """What the judge says of an episode; of one that it has just judged, without asking again."""
        row = self.transcript(self._trajectory if trajectory is None else trajectory)
        if self._judged is None or self._judged[0] != row.id:
            self._judged = row.id, self._asker.submit(row).result()
        return self._judged[1]

    def score_trajectory(self, trajectory: list[Pair]) -> float:
        """The score in [0, 1].

        Raises:
            RRMError: a failed judgement without `failed_score`.
        """
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
        """For each step the probability that it is good, or what its verdict is worth, one half where the judge is unsure; the episode's score for a step that the judge left out.

        Those say how good a step is, each in [0, 1], and are no shares of the episode's score: their sum grows with the number of steps,
        so an agent that earned it would learn to take more of them. Take them as what a step is worth beside others (less their mean over
        a group's steps), or divide them by the number of steps. Of a judgement without findings (mode `score`, or one that failed) no
        step is known to be better than another: the last has the episode's score, and those before it 0. That sums to the score.
        """
        if not self._trajectory:
            return []
        score = self.score_trajectory(self._trajectory)
        steps = range(1, len(self._trajectory) + 1)
        told = {step: found for step in steps if (found := [f for f in self.feedback().findings if f.step == step])}
        if not told:
            return [0.0] * (len(steps) - 1) + [score]
        return [_worth(told[step]) if step in told else score for step in steps]

    def reset(self) -> None:
        """An episode begins."""
        super().reset()
        self._judged = None

    def transcript(self, trajectory: Sequence[Pair]) -> Trajectory:
        """An episode as the judge reads it: a step each pair."""
        messages: list[dict[str, Any]] = [{"role": "user", "content": self.task}] if self.task else []
        for number, (action, observation) in enumerate(trajectory, 1):
            call = {**self._said(action), "role": "assistant"}
            answer = {"role": "tool" if call.get("tool_calls") else "user", **self._seen(observation)}
            if given := call.get("tool_calls"):  # one observation answers them all: the first has its name
                call["tool_calls"] = [{**one, "id": f"c{number}.{n}"} for n, one in enumerate(given, 1)]
                answer["tool_call_id"] = f"c{number}.1"
            messages += [call, answer] if answer.get("content") else [call]
        read = [Message(**m) for m in chat_messages(messages)]
        return by_content(Trajectory(id="", task=self.task, messages=read))


def _worth(findings: Sequence[Finding]) -> float:
    """Of a step that was judged, perhaps in parts: the worst of them decides."""
    sure = [f for f in findings if f.verdict != "unsure"]
    known = [f.p_good for f in sure if f.p_good is not None]
    if known:
        return min(known)
    bad = is_bad_of_parts([f.verdict for f in sure])
    return UNKNOWN if bad is None else WORTH["bad" if bad else "good"]


def action_message(action: Any) -> dict[str, Any]:
    """An action as an assistant's message."""
    fields = _fields(action)
    if "tool_name" in fields:
        return {
            "content": "",
            "tool_calls": [{"name": fields["tool_name"], "arguments": fields.get("arguments") or {}}],
        }
    return {"content": _text(fields)}


def observation_message(observation: Any) -> dict[str, Any]:
    """An observation as what came back."""
    fields = _fields(observation)
    if error := fields.get("error"):
        return {"content": f"Error: {_text(error) if isinstance(error, dict) else as_text(error)}"}
    if "tool_name" in fields:
        return {"content": _content(fields.get("result"))}
    return {"content": _text(fields)}


def _fields(given: Any) -> dict[str, Any]:
    value = given.model_dump(mode="json") if hasattr(given, "model_dump") else given
    value = value if isinstance(value, dict) else vars(value) if hasattr(value, "__dict__") else {"": value}
    return {k: v for k, v in value.items() if k not in OWN and v not in (None, "")}


def _text(fields: dict[str, Any]) -> str:
    """The only field's text, or all as JSON."""
    values = list(fields.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return json.dumps(fields, ensure_ascii=False, default=str) if fields else ""


def _content(result: Any) -> str:
    """What a tool returned: its text, where it comes in parts."""
    parts = result.get("content") if isinstance(result, dict) else None
    if isinstance(parts, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in parts):
        return "\n".join(p["text"] for p in parts)
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
