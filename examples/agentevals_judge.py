"""agentevals: the judge as an evaluator of trajectories. Needs `pip install 'agent-rrm[agentevals,local]'`.

    python examples/agentevals_judge.py

The evaluator goes into LangSmith's `evaluate` as agentevals' own do. The last line is JSON: its result.
"""

from __future__ import annotations

import json
import sys

try:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from rrm.integrations.agentevals_evaluator import trajectory_evaluator
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'agent-rrm[agentevals,local]'")


def main() -> None:
    """One trajectory."""
    call = {"name": "multiply", "args": {"a": 6, "b": 7}, "id": "c1", "type": "tool_call"}
    messages = [
        HumanMessage("What is 6 * 7?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("42", tool_call_id="c1"),
        AIMessage("Final Answer: 42"),
    ]
    print(json.dumps(trajectory_evaluator("lab", mode="full")(outputs=messages)))


if __name__ == "__main__":
    main()
