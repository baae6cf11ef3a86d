"""OpenHands' events, field by field. The files are written by its own classes (`samples/make_openhands*.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import read, sniff

SAMPLES = Path(__file__).parent / "samples"
PIXEL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def said(run: Trajectory) -> list[dict[str, Any]]:
    left_out = {"timestamp", "extras"}
    return [{k: v for k, v in m.model_dump(exclude_none=True).items() if k not in left_out} for m in run.messages]


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "id": id}


def heard(id: str, name: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, "tool_call_id": id, "name": name, **more}


def test_events_up_to_0_62() -> None:
    (run,) = read(SAMPLES / "openhands.json")
    rm = {"command": "rm", "is_input": False, "blocking": False, "is_static": False, "hidden": False}
    assert said(run) == [
        {"role": "system", "content": "You are handy."},
        {"role": "user", "content": [{"type": "text", "text": "Count the lines of a.txt."}, PIXEL]},
        {"role": "assistant", "content": "I list the files.", "tool_calls": [call("c1", "execute_bash", command="ls")]},
        heard("c1", "execute_bash", "a.txt"),
        {
            "role": "assistant",
            "tool_calls": [
                call("c2", "execute_bash", command="wc a.txt"),
                call("c3", "execute_ipython_cell", code="1+1"),
            ],
        },
        heard("c2", "execute_bash", "3 a.txt"),
        heard("c3", "execute_ipython_cell", "2"),
        {"role": "assistant", "content": "I tidy up.", "tool_calls": [call("event_9", "run", **rm)]},
        heard("event_9", "run", "rm: missing operand", is_error=True),
        {"role": "assistant", "content": "There are 3 lines."},
        {"role": "assistant", "tool_calls": [call("c4", "finish", message="Done.")]},
    ]
    assert [m.timestamp for m in run.messages[:2]] == ["2026-01-02T03:04:00", "2026-01-02T03:04:01"]
    assert [e["id"] for e in run.meta["other_events"]] == [2, 11, 12]
    assert run.task == "Count the lines of a.txt." and run.outcome is None
    assert run.tools and run.tools[0]["function"]["name"] == "execute_bash"


def test_the_sdks_events() -> None:
    (run,) = read(SAMPLES / "openhands_sdk.json")
    parts = [{"type": "text", "text": "How many herons?"}, PIXEL, {"type": "text", "text": "Herons are grey."}]
    assert said(run) == [
        {"role": "system", "content": "You watch birds."},
        {"role": "user", "content": parts},
        {
            "role": "assistant",
            "content": "I think first.",
            "reasoning_content": "Two ways.",
            "tool_calls": [call("c1", "think", thought="Four, I believe."), call("c2", "think", thought="Or five.")],
        },
        heard("c1", "think", "Your thought has been logged."),
        heard("c2", "think", "Action rejected: No."),
        {"role": "assistant", "content": "I fly.", "tool_calls": [call("c3", "fly")]},
        heard("c3", "fly", "No tool 'fly'.", is_error=True),
        {"role": "user", "content": "It thought.", "name": "condenser"},
        {"role": "assistant", "tool_calls": [call("c4", "finish", message="Four.")]},
    ]
    assert [e["kind"] for e in run.meta["other_events"]] == ["PauseEvent", "Condensation"]
    assert run.tools and run.tools[0]["function"]["name"] == "think"


@pytest.mark.parametrize("name", ["openhands", "openhands_sdk"])
def test_a_file_or_a_line_an_event_is_the_same_run(name: str, tmp_path: Path) -> None:
    events = json.loads((SAMPLES / f"{name}.json").read_text())
    (whole,) = read(SAMPLES / f"{name}.json")
    folder = tmp_path / "conversation-7" / "events"
    folder.mkdir(parents=True)
    for k, event in enumerate(events):
        place = f"{k}.json" if name == "openhands" else f"event-{k:05d}-{event['id']}.json"
        (folder / place).write_text(json.dumps(event))
    (run,) = read(folder)
    assert said(run) == said(whole) and run.id == "conversation-7" and run.meta["lines"] == len(events)
    assert run.source and run.source.format == "openhands_events"
    lines = tmp_path / "log.jsonl"
    lines.write_text("".join(json.dumps(event) + "\n" for event in events))
    (run,) = read(lines)
    assert said(run) == said(whole)


def test_records_that_hold_a_history(tmp_path: Path) -> None:
    events = json.loads((SAMPLES / "openhands.json").read_text())
    path = tmp_path / "output.jsonl"
    record = {"instance_id": "django__django-1", "history": events, "test_result": {"report": {"resolved": True}}}
    path.write_text(json.dumps(record) + "\n" + json.dumps({**record, "history": [[events[1], events[13]]]}) + "\n")
    run, pairs = read(path)
    assert run.source and (run.outcome, run.source.outcome_field) == (1.0, "test_result.report.resolved")
    assert run.id == run.question_id == "django__django-1" == pairs.question_id
    assert [m.role for m in pairs.messages] == ["user", "assistant"]


def test_what_is_wrong_is_said_and_what_is_unknown_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    first = {"id": 0, "source": "user", "action": "message", "args": {"content": "q"}}
    odd = {"id": 1, "source": "agent", "kind": "NewEvent"}
    path.write_text(json.dumps([first, first, first, odd]))
    (run,) = read(path)
    assert run.meta["other_events"] == [odd] and len(run.messages) == 3
    path.write_text(json.dumps([first, first, first, 7]))
    with pytest.raises(ReadError, match="event 3 must be an object"):
        list(read(path))
    with pytest.raises(ReadError, match="no event of OpenHands"):
        path.write_text('{"a": 1}')
        list(read(path, format="openhands_events"))


def test_an_observation_without_a_cause_answers_no_call(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    asked: list[Any] = [{"source": "agent", "action": "run", "args": {"command": c}} for c in ("ls", "pwd")]
    seen = [{"source": "agent", "observation": "run", "content": "a.txt"}]
    path.write_text(json.dumps([*asked, *seen, {"source": "environment", "observation": "error", "content": "boom"}]))
    (run,) = read(path)
    assert [(m.name, m.tool_call_id) for m in run.messages[2:]] == [("run", None), ("environment", None)]


def test_pages_that_repeat_the_events_are_no_runs(tmp_path: Path) -> None:
    events = json.loads((SAMPLES / "openhands.json").read_text())
    events = events if isinstance(events, list) else events["history"]
    for folder in ("events", "event_cache"):
        (tmp_path / "s-1" / folder).mkdir(parents=True)
    for k, event in enumerate(events):
        (tmp_path / "s-1" / "events" / f"{k}.json").write_text(json.dumps(event))
    (tmp_path / "s-1" / "event_cache" / "0-3.json").write_text(json.dumps(events[:3]))
    assert [t.id for t in read(tmp_path)] == ["s-1"]
    assert len(list(read(tmp_path / "s-1" / "event_cache"))) == 1  # named, it is read


@pytest.mark.parametrize(
    "record",
    [
        {"id": 1, "observation": "seen", "content": "c"},
        {"id": "x", "action": "buy", "args": {}, "source": "shop", "messages": [{"role": "user", "content": "q"}]},
    ],
)
def test_records_that_only_look_like_events(record: Any) -> None:
    assert sniff(record) == ("openai" if "messages" in record else None)
