"""Garbage made by hypothesis: no reader crashes, and every non-blank line ends in a trajectory or in an error."""

from __future__ import annotations

import copy
import gzip
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_samples import LOGS

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import _GATHERERS, FORMATS, read, sniff

SLOW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    derandomize=True,
)
ASK: dict[str, Any] = {"role": "user", "content": "What is 6 x 7?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": '{"e": "6*7"}'}}
CHAT = [
    ASK, {"role": "assistant", "content": None, "tool_calls": [CALL], "timestamp": 1.5},
    {
        "role": "tool", "tool_call_id": "c1", "name": "calc", "content": [{"type": "text", "text": "42"}],
        "duration_s": 0.1,
    },
    {"role": "assistant", "content": "42", "reasoning_content": "done"},
]  # fmt: skip
REACT = "Question: q?\nThought 1: t\nAction 1: Search[x]\nObservation 1: y\nThought 2: u\nAction: Finish[z]\n"
TAGS = "a<|begin_of_query|> q<|end_of_query|><|begin_of_documents|>d<|end_of_documents|> b</think><answer>c</answer>"
BLOCKS = [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "x"}]
BLOCKS += [{"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}]
RESULTS = [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}], "is_error": True}]
ANTHROPIC = [ASK, {"role": "assistant", "content": BLOCKS}, {"role": "user", "content": RESULTS}]
SESSION = {"type": "assistant", "uuid": "u", "sessionId": "s", "isSidechain": True, "parentUuid": "p", "agentId": "a"}
TAU = {"task_id": 1, "trial": 0, "reward": 1.0, "traj": CHAT, "info": {"task": {"instruction": "i", "actions": []}}}
SIMULATION = {"id": "s", "task_id": "1", "trial": 0, "messages": CHAT, "reward_info": {"reward": 1.0}}
SWE_STEP = {"action": "ls", "observation": "a.py", "response": "I list.", "thought": "I list.", "execution_time": 0.1}
SWE_SAID = {"role": "assistant", "content": "I list.", "action": "ls", "agent": "main", "tool_calls": [CALL]}
SWE_HEARD = {"role": "tool", "content": "a.py", "agent": "main", "tool_call_ids": ["c1"]}
ATIF_STEPS = [
    {"step_id": 1, "source": "user", "message": [{"type": "image", "source": {
        "media_type": "image/png", "path": "p"
    }}]},
    {
        "step_id": 2, "source": "agent", "message": "m",
        "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {"a": 1}}],
        "observation": {"results": [{"source_call_id": "c", "content": "r"}]},
    },
]  # fmt: skip
OPENHANDS_ACT = {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "t"}}
SAMPLES: dict[
    str, Any
] = LOGS | {"canonical": {"schema_version": 1, "id": "x", "messages": CHAT, "outcome": 0.5, "meta": {}}, "atif": {"schema_version": "ATIF-v1.8", "agent": {"tool_definitions": []}, "steps": ATIF_STEPS, "extra": {"reward": 1}}, "mini_swe_agent": {"trajectory_format": "mini-swe-agent-1.1", "info": {"exit_status": "Submitted", "resolved": True}, "messages": [*CHAT[:3], {"object": "response", "output": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}]}, {"type": "function_call_output", "call_id": "c", "output": "o", "extra": {"raw_output": "o", "timestamp": 1.5}}, {"role": "exit", "content": "patch", "extra": {"exit_status": "Submitted"}}]}, "swe_agent": {"trajectory": [SWE_STEP, {**SWE_STEP, "query": [ASK]}], "history": [{**ASK, "agent": "main", "is_demo": True}, {**ASK, "agent": "main"}, SWE_SAID, SWE_HEARD], "info": {"exit_status": "submitted", "submission": "+"}}, "openhands": {"instance_id": "i", "history": [{"id": 0, "source": "user", "action": "message", "args": {"content": "q", "image_urls": ["u"]}}, {**OPENHANDS_ACT, "tool_call_metadata": {"tool_call_id": "c1", "model_response": {"id": "m", "choices": [{"message": CHAT[1]}]}}}, {"id": 2, "source": "agent", "cause": 1, "observation": "run", "content": "a", "extras": {"exit_code": 0}}, {"id": "e", "source": "agent", "kind": "ActionEvent", "tool_call": {"id": "c", "name": "n", "arguments": "{}"}}, {"id": "f", "source": "environment", "kind": "ObservationEvent", "observation": {"content": []}}], "test_result": {"report": {"resolved": True}}}, "openhands_events": OPENHANDS_ACT, "verl": {"input": "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n", "output": '<think>t</think><tool_call>{"name": "n", "arguments": {}}</tool_call><|im_end|>\n<|im_start|>user\n' "<tool_response>r</tool_response><|im_end|>\n<|im_start|>assistant\na<|im_end|>", "gts": "a", "score": 1.0, "step": 3, "steps": [{"input": "user\nq\nassistant\n", "output": "a", "step_index": 0, "acc": True}]}, "judge_sft": {"conversations": [{"from": "human", "value": "Rate it.\n\nOriginal question:\nq\n\nAgent Trajectory:\n<think>t</think>" '<tool_call>{"name": "n", "arguments": {}}</tool_call><tool_response>r</tool_response>a'}, {"from": "gpt", "value": "<think>t</think><critique>c</critique><score>0.5</score>"}]}, "sharegpt": {"conversations": [{"from": "function_call", "value": '<think>t</think>[{"name": "n", "arguments": {"a": 1}}]'}, {"from": "observation", "value": "r"}], "system": "s"}, "prm800k": {"labeler": "l", "question": {"problem": "q", "ground_truth_answer": "42", "pre_generated_steps": ["a", "b", "c"]}, "label": {"steps": [{"completions": [{"text": "a", "rating": 1, "flagged": None}], "chosen_completion": 0}, {"completions": [{"text": "x", "rating": 0}, {"text": "b", "rating": -1}], "chosen_completion": None}], "finish_reason": "found_error"}}, "processbench": {"id": "g-0", "generator": "m", "problem": "q", "steps": ["a", "b"], "final_answer_correct": False, "label": 1}, "claude_code": {**SESSION, "message": {"role": "assistant", "id": "m", "content": BLOCKS}, "toolUseResult": {"durationMs": 1}}, "inspect": {"id": 1, "epoch": 1, "input": "q", "target": "42", "messages": [{"role": "user", "content": [{"type": "image", "image": "attachment://a"}]}, {"role": "assistant", "content": [{"type": "reasoning", "reasoning": "r"}, {"type": "text", "text": "t"}], "tool_calls": [{"id": "c", "function": "f", "arguments": {"x": 1}}]}, {"role": "tool", "tool_call_id": "c", "function": "f", "content": "", "error": {"message": "e"}}], "attachments": {"a": "data:image/gif;base64,R0lG"}, "scores": {"match": {"value": "C"}}, "events": [{"event": "tool", "id": "c", "working_time": 0.5}]}, "otel": {"traceId": "t", "spanId": "s", "startTimeUnixNano": "1", "attributes": [{"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps([{"role": "user", "parts": []}])}}, {"key": "llm.input_messages.0.message.role", "value": {"stringValue": "user"}}], "events": [{"name": "gen_ai.evaluation.result", "attributes": {"gen_ai.evaluation.score.value": 1}}]}, "langsmith": {"id": "r", "trace_id": "t", "run_type": "llm", "inputs": {"messages": CHAT[:3]}, "outputs": {"choices": [{"message": CHAT[3]}]}, "feedback_stats": {"ok": {"n": 1, "avg": 1.0}}, "start_time": "2026-01-01T00:00:00"}, "tau2": {"info": {"environment_info": {"policy": "p", "domain_name": "d"}}, "tasks": [{"id": "1"}], "simulations": [SIMULATION]}, "tau_bench": TAU, "calls": {"request": {"model": "m", "messages": [ASK], "tools": [{"name": "n", "parameters": {}}]}, "response": {"choices": [{"message": CHAT[1], "finish_reason": "stop"}], "usage": {"total_tokens": 1}}, "metadata": {"trace_id": "t"}, "timestamp": 1.5}, "langchain": {"messages": [{"type": "human", "data": {"content": "q", "name": None}}, {"lc": 1, "type": "constructor", "id": ["l", "AIMessage"], "kwargs": {"content": BLOCKS}}, {"type": "ai", "content": "a", "tool_calls": [{"name": "n", "args": {}, "id": "c"}], "invalid_tool_calls": []}, {"type": "tool", "content": "r", "tool_call_id": "c", "status": "error"}]}, "responses": {"object": "response", "instructions": "s", "input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}], "output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]}, {"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]}, {"type": "mcp_call", "id": "m", "name": "n", "arguments": "{}", "output": "o", "error": None}], "tools": [{"type": "function", "name": "n", "parameters": {}}]}, "anthropic": {"system": "s", "messages": ANTHROPIC, "tools": [{"name": "n", "input_schema": {}}]}, "openai": {"id": "i", "messages": CHAT, "tools": "[]", "outcome": True, "question_id": "q", "answer": "42"}, "search_tags": {"question": "q?", "gen_text_store": TAGS, "gpt4o_output": "True", "answer": "c"}, "react": {"question": "q?", "traj": REACT, "reward": True, "traj_by_line": ["a"], "name": "n"}, "mapping": {"log": {"turns": CHAT}, "y": 1, "task": "q"}}  # fmt: skip
MAPPING = {"messages": "log.turns", "outcome": "y?", "task": "task", "message.content": "content"}

text = st.text(st.characters(codec=None), max_size=30) | st.sampled_from([
    "\ud800", "x" * 20_000, REACT, TAGS, "<think>", "Observation:", "Action: [", "> go", "\0", "assistant", "tool",
    "user",
])  # fmt: skip
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | text
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4), max_leaves=12
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every value inside, the outermost included."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, child in inner for path in places(child, (*at, key)))]


@st.composite
def mutated(draw: st.DrawFn, name: str) -> Any:
    """The format's sample with up to three of its values replaced, removed or doubled."""
    value = copy.deepcopy(SAMPLES[name])
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(places(value)))
        if not path:
            return draw(anything)
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        how = draw(st.sampled_from(["replace", "remove", "double"]))
        if how == "remove":
            del parent[path[-1]]
        elif how == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        else:
            parent[path[-1]] = draw(anything)
    return value


@st.composite
def lines_of(draw: st.DrawFn, name: str) -> list[bytes]:
    """Lines of mutated records: some cut off, in other encodings, not JSON at all, or nested without end."""
    lines: list[bytes] = []
    for record in draw(st.lists(mutated(name), min_size=1, max_size=4)):
        line = json.dumps(record, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
        damage = draw(st.sampled_from(["none", "none", "none", "cut", "latin", "bytes", "deep", "blank"]))
        if damage == "cut":
            line = line[: draw(st.integers(1, len(line)))]
        elif damage == "latin":
            line = json.dumps({"é": record}, ensure_ascii=False).encode("latin-1", "replace")
        elif damage == "bytes":
            line = draw(st.binary(min_size=1, max_size=40)).replace(b"\n", b"")
        elif damage == "deep":
            line = draw(st.sampled_from([b"[" * 50_000, b'{"messages":' * 3_000 + b"1" + b"}" * 3_000]))
        lines += [b" \t"] if damage == "blank" else [line]
    return lines


def gather(data: bytes, suffix: str, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    errors: list[ReadError] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"garbage{suffix}"
        path.write_bytes(data)
        found = list(read(path, on_error=errors.append, **options))
        for error in errors:
            assert error.path == str(path) and error.reason and error.reason.isprintable()
    assert len({t.id for t in found}) == len(found)
    for trajectory in found:
        line = trajectory.to_json()
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
        assert trajectory.source and Trajectory.from_json(line).to_json() == line
    return found, errors


def accounted(found: list[Trajectory], errors: list[ReadError]) -> set[int | None]:
    return {t.source.line for t in found if t.source} | {e.line for e in errors}


@pytest.mark.parametrize("name", list(FORMATS))
@SLOW
@given(st.data())
def test_every_line_of_garbage_is_accounted_for(name: str, data: st.DataObject) -> None:
    lines = data.draw(lines_of(name))
    # two good lines in front: the file is JSONL beyond doubt, and the reader must still work after what follows
    sample = SAMPLES["tau_bench" if name == "tau2" else name]
    good = json.dumps(sample).encode()
    options: dict[str, Any] = {"mapping": MAPPING} if name == "mapping" else {}
    if name != "mapping" and data.draw(st.booleans(), label="explicit format"):
        options = {"format": name}
    found, errors = gather(b"\n".join([good, good, *lines, good]), ".jsonl", **options)
    wanted = {1, 2, len(lines) + 3} | {k for k, line in enumerate(lines, 3) if line.strip()}
    if name in _GATHERERS.keys() - {
        "crewai",
        "responses",
    }:  # a run is many lines: its trajectory, or its error, says how many
        failed = [re.search(r"(\d+) lines (?:of session|of trace|without)", e.reason) for e in errors]
        lines_seen = sum(t.meta.get("lines", 1) for t in found) + sum(int(m[1]) if m else 1 for m in failed)
        assert lines_seen == len(wanted)
    elif name != "tau2":
        assert accounted(found, errors) == wanted and len(found) + len(errors) == len(wanted)
    else:  # one line may hold many simulations
        assert accounted(found, errors) == wanted


@pytest.mark.parametrize("name", list(FORMATS))
@SLOW
@given(st.data())
def test_whole_documents_of_garbage(name: str, data: st.DataObject) -> None:
    record = data.draw(mutated(name))
    document = data.draw(st.sampled_from([record, [record, record], {"a": record, "b": record}]))
    raw = json.dumps(document, indent=data.draw(st.sampled_from([None, 2]))).encode()
    found, errors = gather(raw, ".json", **({"mapping": MAPPING} if name == "mapping" else {}))
    assert found or errors


@SLOW
@given(st.binary(max_size=400), st.sampled_from(["", ".json", ".jsonl", ".gz", ".parquet", ".txt"]))
def test_any_bytes(data: bytes, suffix: str) -> None:
    found, errors = gather(data, suffix)
    assert found or errors


@SLOW
@given(st.data())
def test_cut_anywhere(data: st.DataObject) -> None:
    """A good file of every format, in any encoding, cut or with a byte changed: results or errors, never a crash."""
    lines = "\n".join(json.dumps(sample, ensure_ascii=False) for sample in SAMPLES.values())
    encoding = data.draw(st.sampled_from(["utf-8", "utf-16", "utf-8-sig", "gzip"]))
    raw = gzip.compress(lines.encode(), mtime=0) if encoding == "gzip" else lines.encode(encoding)
    at = data.draw(st.integers(0, len(raw) - 1))
    raw = raw[:at] + (b"" if data.draw(st.booleans()) else data.draw(st.binary(min_size=1, max_size=3)) + raw[at + 1 :])
    found, errors = gather(raw, data.draw(st.sampled_from([".jsonl", ".gz", ""])))
    assert found or errors


@SLOW
@given(anything)
def test_sniffing_never_raises(value: Any) -> None:
    assert sniff(value) is None or sniff(value) in FORMATS


def test_samples_are_what_they_claim() -> None:
    for name, sample in SAMPLES.items():
        assert sniff(sample) == (None if name == "mapping" else name)
