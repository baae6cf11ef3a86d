"""`sharegpt`: LLaMA-Factory's turns of calls and observations."""

import json

from rrm.data.trajectory import Trajectory
from rrm.readers import read_value


def test_turns_become_messages_and_calls() -> None:
    call = {"name": "ask", "arguments": {"at": "Ulm </think>"}}
    calls = (f"<think>Both.</think>\n{json.dumps([call, call])}", json.dumps(call), "ask(Ulm")
    turns = [{"from": "human", "value": "Rain?"}, *({"from": "function_call", "value": one} for one in calls)]
    said = [*turns, {"from": "observation", "value": "rain"}, {"from": "gpt", "value": "Yes."}]
    (run,) = read_value({"conversations": said, "system": "Be kind.", "tools": '[{"name": "ask"}]'}, "rows")
    assert isinstance(run, Trajectory) and run.source and run.source.format == "sharegpt"
    assert " ".join(m.role for m in run.messages) == "system user assistant assistant assistant tool assistant"
    made = [[(c.name, c.arguments) for c in m.tool_calls or []] for m in run.messages[2:5]]
    assert made == [[("ask", call["arguments"])] * 2, [("ask", call["arguments"])], [("", "ask(Ulm")]]
    assert [m.reasoning_content for m in run.messages[2:4]] == ["Both.", None]
    assert (run.task, run.tools, run.meta) == ("Rain?", [{"name": "ask"}], {})
