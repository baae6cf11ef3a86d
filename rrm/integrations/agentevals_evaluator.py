"""agentevals and LangSmith: the judge as an evaluator of trajectories.

    evaluator = trajectory_evaluator(judge="default", mode="full")
    evaluator(outputs=messages)            # {"key": "agent_rrm", "score": 0.8, "comment": …, "metadata": …}
    client.evaluate(agent, data=…, evaluators=[evaluator])

Needs the extra `agentevals`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.own_entries import OURS
from rrm.data.trajectory import Trajectory
from rrm.errors import MissingExtra, ReadError
from rrm.integrations.inspect_sample import explanation
from rrm.integrations.loading import asker
from rrm.judge.cached_judge import BatchJudge, JudgeQueue, by_content
from rrm.readers import read_value
from rrm.readers.exports import said

try:
    from agentevals.types import EvaluatorResult  # pyright: ignore[reportMissingImports]
    from langchain_core.messages import BaseMessage  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("the evaluator needs agentevals: pip install 'agent-rrm[agentevals]'") from missing


def trajectory_evaluator(
    judge: str | BatchJudge | None = None,
    *,
    mode: Mode | None = None,
    samples: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    feedback_key: str = OURS,
) -> Callable[..., EvaluatorResult]:
    """An evaluator, called with `outputs`: messages (of LangChain, or as OpenAI has them), or an object that holds them as `messages`.

    Where the outputs do not begin with what was asked, `inputs` (messages, such an object, or a text) stands before them. The reference
    is read by a judge whose criteria allow it, and by no other. A failed judgement has score None, which LangSmith leaves out, and a comment that
    says why.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it (None: the judge that ships with the package), or one that is loaded.
        mode: None: the one that the judge prefers, or `full`.
        samples: replies whose scores are averaged.
        options: further arguments of `AgentRRM.from_pretrained`.
        feedback_key: of the result.
    """
    asking = asker(judge, mode=mode, samples=samples, seed=seed, options=options)

    def agent_rrm(*, inputs: Any = None, outputs: Any, reference_outputs: Any = None, **_: Any) -> EvaluatorResult:
        feedback = asking.submit(as_trajectory(inputs, outputs, reference_outputs)).result()
        return _result(feedback, feedback_key)

    return agent_rrm


def async_trajectory_evaluator(
    judge: str | BatchJudge | None = None,
    *,
    mode: Mode | None = None,
    samples: int = 1,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    feedback_key: str = OURS,
) -> Callable[..., Coroutine[Any, Any, EvaluatorResult]]:
    """`trajectory_evaluator` as a coroutine: those that are awaited together are judged in batches."""
    asking: JudgeQueue = asker(judge, mode=mode, samples=samples, seed=seed, options=options)

    async def agent_rrm(
        *, inputs: Any = None, outputs: Any, reference_outputs: Any = None, **_: Any
    ) -> EvaluatorResult:
        (feedback,) = await asking.ask_async([as_trajectory(inputs, outputs, reference_outputs)])
        return _result(feedback, feedback_key)

    return agent_rrm


def as_trajectory(inputs: Any, outputs: Any, reference: Any = None) -> Trajectory:
    """What an evaluator is told, as a transcript that is named by its content.

    Raises:
        ReadError: there are no messages that can be read.
    """
    said_, asked = _messages(outputs), _messages(inputs)
    rest = [m for m in said_ if _role(m) != "system"]
    if not rest or _role(rest[0]) not in ("user", "human"):
        rest = [m for m in asked if _role(m) != "system"] + rest
    system = [m for m in said_ if _role(m) == "system"] or [m for m in asked if _role(m) == "system"]
    said_ = [*system, *rest]
    (found,) = read_value({"messages": said_}, "outputs") or [ReadError("outputs", None, "no messages")]
    if isinstance(found, ReadError):
        raise found
    meta = found.meta | ({} if reference is None else {"reference": _plain(reference)})
    return by_content(found.model_copy(update={"meta": meta}))


def _messages(given: Any) -> list[Any]:
    if isinstance(given, dict):
        given = given.get("messages", [given] if "role" in given else given.get("input", given.get("question")))
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [_plain(one) for one in given or ()]


def _plain(value: Any) -> Any:
    if isinstance(value, BaseMessage):
        return value.model_dump()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def _role(message: Any) -> str | None:
    return message.get("role", message.get("type")) if isinstance(message, dict) else None


def _result(feedback: Feedback, key: str) -> EvaluatorResult:
    return EvaluatorResult(
        key=key,
        score=feedback.score,  # pyright: ignore[reportArgumentType]  # None: LangSmith's own "no score"
        comment=explanation(feedback),
        metadata=said(feedback),
        source_run_id=None,
    )
