"""LangChain: a callback that records an agent's runs, which are then judged together.

    pip install langchain-core 'agent-rrm[local]'
    python examples/langchain_judge.py

The agent's model is played here; with `langchain.agents.create_agent` it is the same callback. The last line is JSON: scores by question.
"""

from __future__ import annotations

import json
import sys
from typing import Any

try:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.load import Serializable, dumpd
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool
    from langchain_core.tracers.base import BaseTracer
    from langchain_core.tracers.schemas import Run
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install langchain-core 'agent-rrm[local]'")

from rrm import AgentRRM, Trajectory
from rrm.readers import read_value


class Recorder(BaseTracer):
    """Keeps finished runs as transcripts, as the reader of LangSmith's exports reads them."""

    def __init__(self) -> None:
        super().__init__(_schema_format="original+chat")  # messages as they are, not one text of them
        self.runs: list[Trajectory] = []

    def _persist_run(self, run: Run) -> None:
        results = read_value(flat(run, str(run.id)), f"run {run.id}", format="langsmith")
        self.runs += [entry for entry in results if isinstance(entry, Trajectory) and entry.steps]


def flat(run: Run, trace_id: str) -> list[dict[str, Any]]:
    """A tree of runs as the list that LangSmith exports."""
    kind = "llm" if run.run_type == "chat_model" else run.run_type
    own = {"id": str(run.id), "trace_id": trace_id, "parent_run_id": run.parent_run_id, "run_type": kind}
    own |= {name: getattr(run, name) for name in ("name", "inputs", "outputs", "error", "extra")}
    own |= {"start_time": run.start_time.isoformat(), "end_time": run.end_time and run.end_time.isoformat()}
    plain = json.dumps(own, default=lambda value: dumpd(value) if isinstance(value, Serializable) else str(value))
    return [json.loads(plain), *(entry for child in run.child_runs for entry in flat(child, trace_id))]


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def agent(question: str, config: Any) -> str:
    """A loop of a model and its tools."""
    call = {"name": "multiply", "args": {"a": 6, "b": 7}, "id": "c1", "type": "tool_call"}
    model = GenericFakeChatModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Final Answer: 42")]))
    messages: list[Any] = [HumanMessage(question)]
    while True:
        messages.append(reply := model.invoke(messages, config))
        if not reply.tool_calls:
            return str(reply.content)
        messages += [multiply.invoke(one, config) for one in reply.tool_calls]


if __name__ == "__main__":
    recorder = Recorder()
    for question in ("What is 6 * 7?", "What is 6 * 8?"):
        RunnableLambda(agent).invoke(question, {"callbacks": [recorder]})
    feedback = AgentRRM.from_pretrained("lab").judge(recorder.runs, mode="full")
    print(json.dumps({run.task: row.score for run, row in zip(recorder.runs, feedback, strict=True)}))
