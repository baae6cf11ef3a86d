"""LangSmith's runs as its own classes dump them (samples/make_langsmith.py), and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read

SAMPLE = Path(__file__).parent / "samples" / "langsmith_runs.jsonl"


def traces(tmp_path: Path, runs: Any, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(runs))
    errors: list[ReadError] = []
    return list(read(path, on_error=errors.append, **options)), errors


def run(id: str, kind: str, inputs: Any, outputs: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "trace_id": "t",
        "run_type": kind,
        "inputs": inputs,
        "outputs": outputs,
        "parent_run_id": parent,
        **more,
    }


def test_fields_of_a_trace() -> None:
    door, gate = read(SAMPLE)
    call = {"name": "width", "arguments": {"of": "door"}, "id": "call_1"}
    assert [m.model_dump(exclude_none=True) for m in door.messages] == [
        {"role": "system", "content": "Measure, do not guess."},
        {"role": "user", "content": "How wide is the door?"},
        {"role": "assistant", "tool_calls": [call], "timestamp": "2026-01-01T00:00:02Z"},
        {
            "role": "tool",
            "content": "90 cm",
            "tool_call_id": "call_1",
            "name": "width",
            "timestamp": "2026-01-01T00:00:02.500000Z",
            "duration_s": 0.5,
        },
        {"role": "assistant", "content": "90 cm.", "timestamp": "2026-01-01T00:00:04Z"},
    ]
    assert [t.outcome for t in (door, gate)] == [1.0, 0.0] and door.id == "00000000-0000-0001-0000-000000000000"
    assert door.source and door.source.outcome_field == "feedback_stats.correctness.avg"
    assert door.tools == [{"type": "function", "function": {"name": "width", "parameters": {"type": "object"}}}]
    assert door.meta["model"] == "m-1" and door.meta["duration_s"] == 5.0
    assert door.meta["runs"] == {"chain": 1, "llm": 2, "tool": 1} and gate.messages[-1].content == "A metre."


@pytest.mark.parametrize("wrapped", [True, False])
def test_langchains_messages_and_runs_inside_runs(tmp_path: Path, wrapped: bool) -> None:
    def message(kind: str, **fields: Any) -> dict[str, Any]:
        return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}

    call = {"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}
    answer = {"generations": [[{"text": "", "message": message("AIMessage", content="", tool_calls=[call])}]]}
    llm = run("b", "llm", {"messages": [[message("HumanMessage", content="q")]]}, answer)
    told = {"output": message("ToolMessage", content="seven", tool_call_id="c", status="error")}
    root = run("a", "chain", {"input": "q"}, {}, child_runs=[llm, run("d", "tool", {"input": "{'x': 1}"}, told)])
    (found,), errors = traces(tmp_path, {"runs": [root]} if wrapped else [root])
    assert errors == [] and [m.role for m in found.messages] == ["user", "assistant", "tool"]
    assert found.messages[1].tool_calls and found.messages[1].tool_calls[0].arguments == {"x": 1}
    assert found.messages[2].content == "seven" and found.messages[2].model_dump()["is_error"] is True


def test_a_graphs_state_is_the_whole_conversation(tmp_path: Path) -> None:
    state = [{"type": "human", "content": "q"}, {"type": "ai", "content": "a"}, {"type": "human", "content": "and?"}]
    llm = run("b", "llm", {"messages": [["human", "q"]]}, {"role": "assistant", "content": "a"}, "a")
    (found,), _ = traces(tmp_path, [run("a", "chain", {}, {"messages": [*state, {"type": "ai", "content": "z"}]}), llm])
    assert [m.content for m in found.messages] == ["q", "a", "and?", "z"] and "other_conversations" not in found.meta


def test_a_trace_without_a_models_call_is_its_question_and_answer(tmp_path: Path) -> None:
    (found,), _ = traces(tmp_path, [run("a", "chain", {"question": "q"}, {"answer": "a"})])
    assert [(m.role, m.content) for m in found.messages] == [("user", "q"), ("assistant", "a")]
    _, (error,) = traces(tmp_path, [run("a", "chain", {"x": 1}, {"y": 2})])
    assert "no messages in 1 runs" in error.reason


def rated(trace: str, **stats: float) -> dict[str, Any]:
    feedback = {k: {"n": 1, "avg": v} for k, v in stats.items()}
    return run(trace, "chain", {"question": "q"}, {"answer": trace}) | {"trace_id": trace, "feedback_stats": feedback}


def test_of_several_keys_of_feedback_none_is_chosen(tmp_path: Path) -> None:
    runs = [rated("a", helpful=1.0, correct=0.0)]
    (found,), _ = traces(tmp_path, runs)
    fields = ["feedback_stats.helpful.avg", "feedback_stats.correct.avg"]
    assert found.outcome is None and found.meta["outcome_fields"] == fields
    assert traces(tmp_path, runs, outcome=fields[0])[0][0].outcome == 1.0


def test_a_one_is_no_success_where_the_key_has_a_five(tmp_path: Path) -> None:
    found, _ = traces(tmp_path, [rated("a", stars=1.0), rated("b", stars=5.0)])
    assert [t.outcome for t in found] == [None, None]
    single = [run(k, "chain", {"question": "q"}, {"answer": k}) | {"trace_id": k} for k in "ab"]
    found, _ = traces(tmp_path, [single[0] | {"feedback": [{"key": "ok", "score": True}]}, single[1]])
    assert [t.outcome for t in found] == [1.0, None]


def test_traces_are_found_by_parents_where_no_run_names_one(tmp_path: Path) -> None:
    runs = [
        run("b", "llm", {"messages": [["human", "q"]]}, {"output": "a"}, "a"),
        run("a", "chain", {"input": "q"}, {}),
    ]
    circle = [
        run("x", "chain", {"input": "q"}, {"output": "1"}, "y"),
        run("y", "chain", {"input": "q"}, {"output": "2"}, "x"),
    ]
    found, errors = traces(tmp_path, [{k: v for k, v in r.items() if k != "trace_id"} for r in [*runs, *circle]])
    assert errors == [] and [t.id for t in found] == ["a", "x"] and found[0].meta["lines"] == 2


def test_an_agent_inside_a_tool_is_not_the_run(tmp_path: Path) -> None:
    asked: list[Any] = [["human", "the tool's task"]]
    runs = [run("t", "chain", {"question": "q"}, {"answer": "a"}), run("tool", "tool", {"x": 1}, {"output": "o"}, "t")]
    runs += [run("inner", "chain", {}, {}, "tool")]
    for k in range(3):
        runs.append(run(f"i{k}", "llm", {"messages": list(asked)}, {"role": "assistant", "content": f"i{k}"}, "inner"))
        asked += [["ai", f"i{k}"], ["human", "go on"]]
    runs.append(run("l", "llm", {"messages": [["human", "q"]]}, {"role": "assistant", "content": "a"}, "t"))
    runs[0]["feedback_stats"] = {"correctness": {"n": 1, "avg": 1.0}}
    (found, below), _ = traces(tmp_path, runs)
    assert [m.content for m in found.messages] == ["q", "a"] and found.outcome == 1.0
    assert len(below.messages) == 6 and below.outcome is None and below.meta["parent"] == {"trace_id": found.id}
    (alone,), _ = traces(tmp_path, [r for r in runs if r["id"] != "l"])
    assert len(alone.messages) == 6


@pytest.mark.parametrize(
    ("key", "outcome"),
    [("correctness", 1.0), ("is_correct", 1.0), ("Answer Correctness", 1.0), ("user_score", 1.0), ("taskSuccess", 1.0)]
    + [(key, None) for key in ("hallucination", "toxicity", "latency", "incorrect", "format_score", "conciseness")],
)
def test_the_only_feedback_is_the_outcome_where_its_key_says_success(
    tmp_path: Path, key: str, outcome: float | None
) -> None:
    (found,), _ = traces(tmp_path, [rated("a", **{key: 1.0})])
    field = f"feedback_stats.{key}.avg"
    assert found.outcome == outcome and found.meta.get("outcome_fields") == (None if outcome else [field])
    assert traces(tmp_path, [rated("a", **{key: 1.0})], outcome=field)[0][0].outcome == 1.0
