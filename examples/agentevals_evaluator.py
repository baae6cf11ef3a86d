"""agentevals and LangSmith: the judge as an evaluator of trajectories.

    pip install agentevals 'agent-rrm[local]'
    python examples/agentevals_evaluator.py

LangSmith's `evaluate(…, evaluators=[trajectory_evaluator(judge)])` takes it as it takes agentevals' own. The last line is JSON: its result.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

try:
    from agentevals.types import EvaluatorResult
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install agentevals 'agent-rrm[local]'")

from rrm import AgentRRM
from rrm.errors import ReadError
from rrm.readers import read_value


def trajectory_evaluator(judge: AgentRRM) -> Callable[..., EvaluatorResult]:
    """An evaluator, called with `outputs`: messages (of LangChain, or as OpenAI has them), or an object that holds them as `messages`.

    A failed judgement has score None, which LangSmith leaves out, and a comment that says why.
    """

    def agent_rrm(*, outputs: Any, **_: Any) -> EvaluatorResult:
        messages = outputs["messages"] if isinstance(outputs, dict) else outputs
        plain = [message if isinstance(message, dict) else message.model_dump() for message in messages]
        (run,) = read_value({"messages": plain}, "outputs")
        if isinstance(run, ReadError):
            raise run
        (feedback,) = judge.judge([run])
        return EvaluatorResult(
            key="agent_rrm",
            score=feedback.score,
            comment=feedback.critique or feedback.reason,
            metadata={"status": feedback.status},
            source_run_id=None,
        )

    return agent_rrm


if __name__ == "__main__":
    call = {"id": "c1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}}
    trajectory = [
        {"role": "user", "content": "What is 6 * 7?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "assistant", "content": "Final Answer: 42"},
    ]
    print(json.dumps(trajectory_evaluator(AgentRRM.from_pretrained("lab"))(outputs=trajectory)))
