"""Logs of command-line agents: Claude Code, Codex and Gemini CLI, as their documentation and public sessions show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from log_rows import WIDER, lines, one, rows


def session(kind: str, *blocks: Any, reply: str | None = None, **more: Any) -> dict[str, Any]:
    """A line of a Claude Code session."""
    replied = {"id": reply, "usage": {"output_tokens": len(blocks)}} if reply else {}
    message = {"role": kind, "content": list(blocks), **replied}
    return {"type": kind, "uuid": "u", "sessionId": "s", "message": message, **more}


def use(id: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": given}


def gave(id: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": text}


def test_a_reply_of_claude_code_is_one_message_id_wherever_its_blocks_stand(tmp_path: Path) -> None:
    said = {"type": "text", "text": "I count."}
    again = [said, use("t1", p=1)]
    (found,) = lines(tmp_path, [
        say("user", "Read both."), say("assistant", "I cou", reply="m1"), session("assistant", said, reply="m1"),
        session("assistant", *again, reply="m1"), session("user", gave("t1", "one")),
        session("assistant", use("t2", p=2), reply="m1"), session("user", gave("t2", "two")),
        session("assistant", *again, reply="m1"), say("assistant", "Both are read.", reply="m2"),
    ])  # fmt: skip
    assert rows(found) == [
        ("user", "Read both.", "", []), ("assistant", "I count.", "", [("Read", 1, "t1"), ("Read", 2, "t2")]),
        ("tool", "one", "t1", []), ("tool", "two", "t2", []), ("assistant", "Both are read.", "", []),
    ]  # fmt: skip
    assert found.messages[1].model_dump()["id"] == "m1" and "left_behind" not in found.meta


def say(kind: str, text: str, **more: Any) -> dict[str, Any]:
    return session(kind, {"type": "text", "text": text}, **more)


def test_a_session_and_its_sidechain(tmp_path: Path) -> None:
    thought = session("assistant", {"type": "thinking", "thinking": "ls"}, reply="m1", timestamp="2026-01-01T00:00:00Z")
    thought["message"]["model"] = "some-model"
    values = [
        {"type": "summary", "summary": "Listing files", "leafUuid": "u4"}, say("user", "caveat", isMeta=True),
        say("user", "list files"), thought, session("assistant", use("t1", command="ls"), reply="m1"),
        session("user", gave("t1", "a.py"), toolUseResult={"durationMs": 1500}),
        say("user", "sub task", isSidechain=True) | {"uuid": "x1", "parentUuid": None},
        say("assistant", "sub", isSidechain=True) | {"uuid": "x2", "parentUuid": "x1"},
        {"type": "progress", "uuid": "p1", "sessionId": "s"}, say("assistant", "a.py", reply="m2"),
    ]  # fmt: skip
    main, side = lines(tmp_path, values)
    assert rows(main) == [
        ("user", "list files", "", []), ("assistant", "ls", "", [("Read", "ls", "t1")]), ("tool", "a.py", "t1", []),
        ("assistant", "a.py", "", []),
    ]  # fmt: skip
    assert main.id == "s" and side.id == "s/x1" and side.task == "sub task" and side.meta["sidechain"] == "x1"
    assert main.messages[1].timestamp == "2026-01-01T00:00:00Z" and main.messages[2].duration_s == 1.5
    assert main.task == "list files" and main.meta["summaries"] == ["Listing files"] and len(main.meta["notes"]) == 1
    assert main.meta["other_lines"] == {"summary": 1, "progress": 1} and main.meta["model"] == "some-model"
    assert main.meta["lines"] + side.meta["lines"] == len(values)


def chained(*held: dict[str, Any], **parents: str | None) -> list[dict[str, Any]]:
    """The lines of a session, u1, u2, … of which each follows the one before, but for those that `parents` names."""
    return [
        {**line, "uuid": f"u{k}", "parentUuid": parents.get(f"u{k}", f"u{k - 1}" if k > 1 else None)}
        for k, line in enumerate(held, 1)
    ]


def test_what_the_user_took_back_is_no_part_of_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (found,) = lines(
        tmp_path,
        chained(
            say("user", "Mend the logout."), say("assistant", "I mend the logout.", reply="m0"),
            say("user", "Mend the login."), session("assistant", use("t1", p=1), reply="m1"),
            session("assistant", use("t2", p=2), reply="m1"), session("user", gave("t1", "one")),
            session("user", gave("t2", "two")),
            {"type": "system", "sessionId": "s", "content": "compacted", "logicalParentUuid": "u7"},
            say("user", "Summary: the bug is in auth.py.", isCompactSummary=True),
            say("assistant", "It is mended.", reply="m2"), say("user", "No, that is wrong."),
            say("assistant", "I look again.", reply="m3"), say("user", "Run the tests."),
            say("assistant", "9 passed.", reply="m4"), u3=None, u6="u4", u7="u5", u8=None, u13="u10",
        ),
    )  # fmt: skip
    assert found.task == "Mend the login."
    assert [(m.role, m.text()) for m in found.messages] == [
        ("user", "Mend the login."), ("assistant", ""), ("tool", "one"), ("tool", "two"),
        ("system", "Summary: the bug is in auth.py."), ("assistant", "It is mended."), ("user", "Run the tests."),
        ("assistant", "9 passed."),
    ]  # fmt: skip
    assert found.messages[4].model_dump()["is_summary"] is True
    back = [message["content"][0]["text"] for message in found.meta["taken_back"]]
    assert back == ["Mend the logout.", "I mend the logout.", "No, that is wrong.", "I look again."]
    assert "4 messages that were taken back are in no run" in caplog.text and "left_behind" not in found.meta


def test_sessions_without_a_tree_have_no_branches(tmp_path: Path) -> None:
    said = [say("user", "a"), say("assistant", "b", reply="m1"), say("user", "c"), say("assistant", "d", reply="m2")]
    for tree in (chained(*said, u2=None, u3=None, u4=None), said):
        (found,) = lines(tmp_path, tree)
        assert [m.text() for m in found.messages] == ["a", "b", "c", "d"] and "taken_back" not in found.meta


def test_what_claude_code_says_itself_is_no_step_and_no_word_of_the_users(tmp_path: Path) -> None:
    broke = say("assistant", "API Error: 500 overloaded", reply="x", isApiErrorMessage=True)
    broke["message"]["model"] = "<synthetic>"
    (found,) = lines(tmp_path, [
        say("user", "Caveat: what follows is of local commands.", isMeta=True),
        say("user", "<command-name>/clear</command-name>"), say("user", "Mend the login."), broke,
        say("assistant", "I load the skill.", reply="m1"), say("user", "The skill says: run the tests.", isMeta=True),
        say("assistant", "Done.", reply="m2"), broke,
    ])  # fmt: skip
    assert [(m.role, m.text()) for m in found.messages] == [
        ("user", "Mend the login."), ("assistant", "I load the skill."), ("system", "The skill says: run the tests."),
        ("assistant", "Done."),
    ]  # fmt: skip
    assert found.task == "Mend the login." and found.meta["errors"] == ["API Error: 500 overloaded"] * 2
    assert len(found.meta["notes"]) == 2 and "model" not in found.meta and "left_behind" not in found.meta
    (alone,) = lines(tmp_path, [say("user", "<command-name>/clear</command-name>")])
    assert [m.role for m in alone.messages] == ["system"] and not alone.steps


@pytest.mark.parametrize("requests", [False, True])
def test_a_gateway_gives_every_reply_one_id(tmp_path: Path, requests: bool) -> None:
    def reply(k: int, *blocks: Any) -> dict[str, Any]:
        return session("assistant", *blocks, reply="msg_0", **({"requestId": f"r{k}"} if requests else {}))

    said = {"type": "text", "text": "Both are read."}
    (found,) = lines(tmp_path, [
        say("user", "Read both."), reply(1, {"type": "text", "text": "I read."}), reply(1, use("t1", p=1)),
        session("user", gave("t1", "one")), reply(2, {"type": "text", "text": "I read."}, use("t2", p=2)),
        reply(2, use("t3", p=3)), session("user", gave("t2", "two")), session("user", gave("t3", "three")),
        *([] if requests else [reply(3, said)]),
    ])  # fmt: skip
    assert rows(found)[:6] == [
        ("user", "Read both.", "", []), ("assistant", "I read.", "", [("Read", 1, "t1")]), ("tool", "one", "t1", []),
        ("assistant", "I read.", "", [("Read", 2, "t2"), ("Read", 3, "t3")]), ("tool", "two", "t2", []),
        ("tool", "three", "t3", []),
    ]  # fmt: skip
    assert rows(found)[6:] == ([] if requests else [("assistant", "Both are read.", "", [])])


def test_what_claude_code_prints(tmp_path: Path) -> None:
    def line(kind: str, *blocks: Any, under: str | None = None, reply: str | None = None) -> dict[str, Any]:
        held = session(kind, *blocks, reply=reply)
        return {"type": kind, "session_id": "s", "message": held["message"], "parent_tool_use_id": under}

    main, below = lines(tmp_path, [
        {"type": "system", "subtype": "init", "session_id": "s", "model": "m", "tools": ["Read", "Task"]},
        line("assistant", {"type": "thinking", "thinking": "Look."}, reply="m1"),
        line("assistant", use("t1", p=1), reply="m1"),
        line("assistant", {"type": "text", "text": "I look inside."}, under="t1", reply="m2"),
        line("user", gave("t1", "one")),
        {"type": "result", "subtype": "success", "session_id": "s", "total_cost_usd": 0.5, "num_turns": 1},
    ])  # fmt: skip
    assert rows(main) == [("assistant", "Look.", "", [("Read", 1, "t1")]), ("tool", "one", "t1", [])]
    assert main.meta["results"] == [{"subtype": "success", "total_cost_usd": 0.5, "num_turns": 1}] and main.tools
    assert main.question_id == "s" and below.id == "s/t1" and below.meta["parent"] == {"session_id": "s"}


def test_codexs_sessions_and_what_it_prints(tmp_path: Path) -> None:
    def at(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload}

    def call(id: str, of: str) -> dict[str, Any]:
        return at("response_item", type="function_call", name="width", arguments=json.dumps({"of": of}), call_id=id)

    def output(id: str, text: str, code: int) -> dict[str, Any]:
        held = json.dumps({"output": text, "metadata": {"exit_code": code, "duration_seconds": 0.5}})
        return at("response_item", type="function_call_output", call_id=id, output=held)

    def message(role: str, text: str) -> dict[str, Any]:
        return at("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])

    head = at("session_meta", id="one", cwd="/w")
    stored = [
        head, message("user", "<environment_context>a folder</environment_context>"), message("user", WIDER[0][1]),
        at(
            "response_item", type="reasoning", summary=[{"type": "summary_text", "text": WIDER[1][1]}],
            encrypted_content="g",
        ),
        *(call("c1", "door"), call("c2", "gate")), *(output("c1", WIDER[2][1], 0), output("c2", WIDER[3][1], 1)),
        *(message("assistant", WIDER[4][1]), call("c3", "gateway")),
        at("response_item", type="function_call_output", call_id="c3", output=WIDER[5][1]),
        message("assistant", WIDER[6][1]),
        at("event_msg", type="token_count", info={"total_token_usage": {"input_tokens": 9}}),
        at("session_meta", id="two", forked_from_id="one"), message("user", "Once more."),
    ]  # fmt: skip
    first = lines(tmp_path, stored[:-2])[0]
    assert rows(first)[1:] == WIDER and first.task == WIDER[0][1] and first.id == "one"
    assert first.meta["usage"] == {"input_tokens": 9} and first.messages[4].duration_s == 0.5
    other = [at("session_meta", id="other"), message("user", "Another.")]
    assert [t.id for t in lines(tmp_path, [*stored[:-2], *other])] == ["one", "other"]
    again = [stored[-2], head, *stored[1:]]
    assert [t.id for t in lines(tmp_path, again[:-2])] == ["two"], "a fork repeats its parent's head behind its own"

    def item(**fields: Any) -> dict[str, Any]:
        return {"type": "item.completed", "item": fields}

    printed = [
        {"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"},
        item(id="i0", type="reasoning", text="Look."),
        {"type": "item.started", "item": {"id": "i1", "type": "command_execution", "command": "ls"}},
        item(id="i1", type="command_execution", command="ls", aggregated_output="a.txt", exit_code=2, status="failed"),
        item(
            id="i2", type="mcp_tool_call", server="s", tool="f", arguments={"x": 1},
            result={"content": [{"type": "text", "text": "r"}]},
        ),
        {"type": "item.started", "item": {"id": "i3", "type": "web_search", "query": "q"}},
        item(id="i4", type="agent_message", text="Done."), {"type": "turn.completed", "usage": {"input_tokens": 9}},
        {"type": "turn.failed", "error": {"message": "the stream broke"}},
    ]  # fmt: skip
    (found,) = lines(tmp_path, printed)
    assert rows(found) == [
        ("assistant", "Look.", "", [("shell", "ls", "i1")]), ("tool", "a.txt", "i1 failed", []),
        ("assistant", "", "", [("s.f", 1, "i2")]), ("tool", "r", "i2", []), ("assistant", "Done.", "", []),
        ("assistant", "", "", [("web_search", "q", "i3")]),
    ]  # fmt: skip
    assert found.meta["usage"] == {"input_tokens": 9} and found.meta["trouble"] == [
        {"error": {"message": "the stream broke"}}
    ]


def gemini(id: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"id": id, "timestamp": "2026-01-01T00:00:00Z", "type": kind, "content": content, **more}


def test_geminis_sessions_in_both_forms_and_its_api(tmp_path: Path) -> None:
    def call(id: str, of: str, text: str, **more: Any) -> dict[str, Any]:
        answer = {"functionResponse": {"id": id, "name": "width", "response": {"output": text}}}
        return {"id": id, "name": "width", "args": {"of": of}, "result": [answer], "status": "success", **more}

    both = [call("c1", "door", WIDER[2][1]), call("c2", "gate", WIDER[3][1], status="error")]
    thoughts = [{"description": WIDER[1][1]}]
    messages = [
        gemini("1", "user", [{"text": WIDER[0][1]}]),
        gemini("2", "gemini", "", thoughts=thoughts, toolCalls=both, tokens={"input": 9}, model="m"),
        gemini("3", "gemini", WIDER[4][1], toolCalls=[call("c3", "gateway", WIDER[5][1])]),
        gemini("4", "info", "The file was saved."),
        gemini("5", "gemini", WIDER[6][1]),
    ]
    head = {"sessionId": "s", "projectHash": "p"}
    whole = one({**head, "messages": messages})
    assert rows(whole) == WIDER and whole.id == "s" and whole.meta["notes"][0]["content"] == "The file was saved."
    wrong = gemini("9", "user", "Never mind that.")
    (told,) = lines(
        tmp_path, [head, messages[0], gemini("2", "gemini", ""), *messages[1:4], wrong, {"$rewindTo": "9"}, messages[4]]
    )
    assert rows(told) == WIDER and told.meta["usage"] == {"input": 9} and told.meta["lines"] == 9
    assert [m["content"] for m in told.meta["taken_back"]] == ["Never mind that."] and "left_behind" not in told.meta

    def part(id: str, of: str) -> dict[str, Any]:
        return {"functionCall": {"id": id, "name": "width", "args": {"of": of}}}

    def answer(id: str, text: str, key: str = "result") -> dict[str, Any]:
        return {"functionResponse": {"id": id, "name": "width", "response": {key: text}}}

    contents = [
        {"role": "user", "parts": [{"text": WIDER[0][1]}]},
        {"role": "model", "parts": [{"text": WIDER[1][1], "thought": True}, part("c1", "door"), part("c2", "gate")]},
        {"role": "user", "parts": [answer("c1", WIDER[2][1]), answer("c2", WIDER[3][1], "error")]},
        {"role": "model", "parts": [{"text": WIDER[4][1]}, part("c3", "gateway")]},
        {"role": "user", "parts": [answer("c3", WIDER[5][1])]},
        {"role": "model", "parts": [{"text": WIDER[6][1]}]},
    ]
    assert rows(one({"contents": contents})) == WIDER and rows(one(contents)) == WIDER
    events = [{"author": ("user", "boss")[c["role"] == "model"], "invocationId": "i", "content": c} for c in contents]
    adk = one({"id": "s", "appName": "a", "events": [*events, {**events[-1], "partial": True}], "state": {"k": 1}})
    assert rows(adk) == WIDER and adk.meta["partial_events"] == 1 and adk.messages[-1].name == "boss"
