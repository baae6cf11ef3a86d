"""Each format, on small hand-made records whose right reading is known."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

from rrm.data.questions import question_hash
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, ReadError
from rrm.prompt.rendering import agent_text
from rrm.readers import FORMATS, READERS, read, sniff
from rrm.readers.base import stem
from rrm.readers.mapping import get, parse_pairs
from rrm.readers.outcomes import as_outcome
from rrm.readers.react import action

ASK = {"role": "user", "content": "What is 6 x 7?"}
SAY = {"role": "assistant", "content": "42"}
CALL = {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": '{"e": "6*7"}'}}


def one(tmp_path: Path, record: Any, **options: Any) -> Trajectory:
    """The single trajectory of a one-record file."""
    path = tmp_path / "runs.json"
    path.write_text(record if isinstance(record, str) else json.dumps(record))
    (trajectory,) = read(path, **options)
    assert Trajectory.from_json(trajectory.to_json()) == trajectory
    return trajectory


def test_canonical_round_trips_and_keeps_its_source(tmp_path: Path) -> None:
    first = one(tmp_path, {"id": "a", "messages": [ASK, SAY], "outcome": True, "extra": {"k": None}})
    again = one(tmp_path, first.to_json())
    assert sniff(json.loads(first.to_json())) == "canonical"
    assert again.source == first.source and again.messages == first.messages and again.outcome == 1.0


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="newer than this package"):
        one(tmp_path, {"schema_version": 99, "id": "a", "messages": []})


@pytest.mark.parametrize("broken", [{"outcome": []}, {"outcome": 10**400}, {"outcome": "yes"}, {"meta": 3, "x": 1}])
def test_a_canonical_field_of_the_wrong_type_is_an_error_not_a_crash(tmp_path: Path, broken: dict[str, Any]) -> None:
    """Found by hypothesis: `outcome: []` and a `meta` that is no object raised TypeError out of the model."""
    with pytest.raises(ReadError, match=r"outcome|meta"):
        one(tmp_path, {"schema_version": 1, "id": "a", "messages": [ASK], **broken})


@pytest.mark.parametrize("arguments", ['{"e": "6*7"}', {"e": "6*7"}])
@pytest.mark.parametrize("as_text", [True, False])
def test_openai_arguments_and_tools_in_both_forms(tmp_path: Path, arguments: Any, as_text: bool) -> None:
    call = {**CALL, "function": {"name": "calc", "arguments": arguments}}
    tools = [{"type": "function", "function": {"name": "calc", "parameters": {}}}]
    messages = [
        ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        SAY,
    ]
    record = {"id": 7, "messages": messages, "tools": json.dumps(tools) if as_text else tools, "reward": 1}
    trajectory = one(tmp_path, record)
    calls = trajectory.messages[1].tool_calls
    assert calls and calls[0].name == "calc" and calls[0].arguments == {"e": "6*7"} and calls[0].id == "c1"
    assert trajectory.tools == tools and trajectory.outcome == 1.0 and trajectory.id == "7"
    assert [len(s.observations) for s in trajectory.steps] == [1, 0]


def test_malformed_arguments_stay_as_evidence(tmp_path: Path) -> None:
    for bad, kept in (('{"e": 6*', '{"e": 6*'), ([1], "[1]"), (None, {}), (3, "3")):
        call = {"function": {"name": "calc", "arguments": bad}}
        trajectory = one(tmp_path, {"messages": [ASK, {"role": "assistant", "tool_calls": [call]}]})
        calls = trajectory.messages[1].tool_calls
        assert calls and calls[0].arguments == kept


NO = "I cannot help with that."


@pytest.mark.parametrize(
    "said",
    [
        {"content": None, "refusal": NO},
        {"content": "", "refusal": NO},
        {"content": [], "refusal": NO},
        {"content": [{"type": "refusal", "refusal": NO}]},
        {"content": NO, "refusal": "other words"},
        {"content": NO, "refusal": None},
    ],
)
def test_a_refusal_is_what_the_model_said(tmp_path: Path, said: dict[str, Any]) -> None:
    asked, answer = {"role": "user", "content": "q"}, {"role": "assistant", **said}
    logged = {"request": {"model": "m", "messages": [asked]}, "response": {"choices": [{"message": answer}]}}
    delta = {"index": 0, "delta": answer, "finish_reason": "stop"}
    streamed = {**logged, "response": [{"object": "chat.completion.chunk", "choices": [delta]}]}
    graph = [{"type": "human", "content": "q"}, {"type": "ai", "content": said["content"] or ""}]
    graph[1]["additional_kwargs"] = {"refusal": said.get("refusal")}
    items = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "q"}]}, answer]}
    records = [{"messages": [asked, answer]}, logged, {"messages": graph}, items]
    records += [streamed] if isinstance(said["content"], str | None) else []
    for record in records:
        run = one(tmp_path, record)
        assert agent_text(run.steps[0].message) == NO and not run.messages[1].other_parts()
        assert said.get("refusal") in (None, run.messages[1].model_dump().get("refusal"))


def test_trl_prompt_completion_and_sharegpt(tmp_path: Path) -> None:
    trl = one(tmp_path, {"prompt": [ASK], "completion": [SAY], "label": False})
    sharegpt = one(
        tmp_path, {"conversations": [{"from": "human", "value": "What is 6 x 7?"}, {"from": "gpt", "value": "42"}]}
    )
    bare = one(tmp_path, [ASK, SAY])
    assert [m.model_dump() for m in trl.messages] == [m.model_dump() for m in sharegpt.messages]
    assert bare.question_id == trl.question_id == question_hash("what is  6 X 7?") and trl.outcome == 0.0
    assert bare.outcome is None


def test_preference_rows_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="--map messages=PATH"):
        one(tmp_path, {"chosen": [ASK, SAY], "rejected": [ASK, SAY]})
    with pytest.raises(ReadError, match="--map messages=chosen"):
        one(tmp_path, {"chosen": [ASK, SAY], "rejected": [ASK, SAY]}, format="openai")


def test_a_task_field_that_names_a_data_set_goes_to_meta(tmp_path: Path) -> None:
    named = one(tmp_path, {"task": "gsm8k", "messages": [ASK, SAY], "question_id": "q9", "answer": 42})
    assert named.task == "What is 6 x 7?" and named.meta == {"task": "gsm8k", "reference": 42}
    assert named.question_id == "q9"
    quoted = one(tmp_path, {"task": "6 x 7", "messages": [ASK, SAY]})
    assert quoted.task == "6 x 7" and "task" not in quoted.meta
    latex = {"role": "user", "content": "What is $\\mathop{\\text{lcm}}[6, 7]$?"}
    assert one(tmp_path, {"task": "math", "messages": [latex, SAY]}).task == latex["content"]


def test_outcome_leaks_are_flagged_and_kept(tmp_path: Path) -> None:
    wrong = {"role": "tool", "content": "Observation:\nYour answer is wrong.\nYou have 3 steps left"}
    prompt = {"role": "user", "content": "I will say 'Your answer is wrong.' when it is. What is 6 x 7?"}
    trajectory = one(tmp_path, {"messages": [prompt, SAY, wrong, SAY]})
    assert trajectory.meta["outcome_leaks"] == [2] and "wrong" in trajectory.messages[2].text()
    assert "outcome_leaks" not in one(tmp_path, {"messages": [ASK, SAY, {"role": "user", "content": "thanks"}]}).meta


def test_anthropic_blocks(tmp_path: Path) -> None:
    record = {
        "system": [{"type": "text", "text": "Be brief."}],
        "tools": [{"name": "calc", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "What is 6 x 7?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "use calc", "signature": "s"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "t1", "name": "calc", "input": {"e": "6*7"}},
                    {"type": "tool_use", "id": "t2", "name": "calc", "input": {"e": "7*6"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "42"}]},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "boom", "is_error": True},
                    {"type": "text", "text": "and?"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "42"}]},
        ],
    }
    assert sniff(record) == "anthropic"
    trajectory = one(tmp_path, record)
    assert [m.role for m in trajectory.messages] == ["system", "user", "assistant", "tool", "tool", "user", "assistant"]
    said = trajectory.messages[2]
    assert said.reasoning_content == "use calc" and said.content == "Let me see."
    assert said.tool_calls and [c.id for c in said.tool_calls] == ["t1", "t2"]
    assert [m.tool_call_id for m in trajectory.messages[3:5]] == ["t1", "t2"]
    assert trajectory.messages[3].content == "42" and trajectory.messages[4].model_extra == {"is_error": True}
    assert trajectory.tools == [
        {"type": "function", "function": {"name": "calc", "description": "d", "parameters": {"type": "object"}}}
    ]
    assert trajectory.task == "What is 6 x 7?" and len(trajectory.steps) == 2


def session_lines() -> list[dict[str, Any]]:
    """A session: summary, question, a reply in two lines, its tool result, a sidechain of two lines, an end."""
    shared = {"sessionId": "s1", "version": "2.1", "cwd": "/p", "isSidechain": False}
    side = {**shared, "isSidechain": True}
    reply = {"id": "m1", "role": "assistant", "model": "some-model"}
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}
    return [
        {"type": "summary", "summary": "Listing files", "leafUuid": "u4"},
        {"type": "user", "uuid": "u0", "isMeta": True, "message": {"role": "user", "content": "caveat"}, **shared},
        {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "list files"}, **shared},
        {
            "type": "assistant",
            "uuid": "u2",
            "timestamp": "2026-01-01T00:00:00Z",
            "message": {**reply, "content": [{"type": "thinking", "thinking": "ls"}]},
            **shared,
        },
        {"type": "assistant", "uuid": "u3", "message": {**reply, "content": [use]}, **shared},
        {
            "type": "user",
            "uuid": "u4",
            "toolUseResult": {"durationMs": 1500},
            "message": {"role": "user", "content": [result]},
            **shared,
        },
        {"type": "user", "uuid": "x1", "parentUuid": None, "message": {"role": "user", "content": "sub task"}, **side},
        {
            "type": "assistant",
            "uuid": "x2",
            "parentUuid": "x1",
            "message": {"role": "assistant", "content": "sub"},
            **side,
        },
        {"type": "progress", "uuid": "p1", **shared},
        {"type": "assistant", "uuid": "u5", "message": {"role": "assistant", "id": "m2", "content": "a.py"}, **shared},
    ]


def test_claude_code_session_and_sidechain(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(map(json.dumps, session_lines())))
    main, side = read(path)
    assert main.id == "s1" and side.id == "s1/x1" and side.task == "sub task" and side.meta["sidechain"] == "x1"
    assert [m.role for m in main.messages] == ["user", "assistant", "tool", "assistant"]
    assert main.meta["notes"] == ["caveat"]
    said = main.messages[1]
    assert said.reasoning_content == "ls" and said.tool_calls and said.tool_calls[0].arguments == {"command": "ls"}
    assert said.timestamp == "2026-01-01T00:00:00Z" and main.messages[2].duration_s == 1.5
    assert main.task == "list files" and main.meta["summaries"] == ["Listing files"]
    assert main.meta["other_lines"] == {"summary": 1, "progress": 1} and main.meta["model"] == "some-model"
    assert main.meta["lines"] + side.meta["lines"] == len(session_lines())


def test_tau_bench_groups_trials_by_the_hidden_instruction(tmp_path: Path) -> None:
    info = {"task": {"instruction": "You are mia.", "actions": [{"name": "book"}], "outputs": []}}
    rows = [
        {
            "task_id": 3,
            "trial": t,
            "reward": float(t),
            "info": info,
            "traj": [{"role": "user", "content": f"hi {t}"}, SAY],
        }
        for t in (0, 1)
    ]
    path = tmp_path / "airline.json"
    path.write_text(json.dumps(rows))
    first, second = read(path)
    assert first.source and first.source.format == "tau_bench" and first.id == "airline:task3-trial0"
    assert first.question_id == second.question_id and first.task == "hi 0"
    assert (first.outcome, second.outcome) == (0.0, 1.0)
    assert first.meta["reference"] == {"actions": [{"name": "book"}], "outputs": []}


def test_tau2_results(tmp_path: Path) -> None:
    messages = [
        {"role": "assistant", "content": "Hi! How can I help you today?", "turn_idx": 0},
        {"role": "user", "content": "Cancel it."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "name": "cancel", "arguments": {"id": 1}}]},
        {"role": "tool", "id": "c1", "content": "ok", "requestor": "assistant", "error": False},
    ]
    simulation = {"id": "sim", "task_id": "7", "trial": 2, "messages": messages, "reward_info": {"reward": 1.0}}
    record = {
        "info": {"environment_info": {"domain_name": "retail", "policy": "Be kind."}, "agent_info": {"llm": "m"}},
        "tasks": [{"id": "7", "evaluation_criteria": {"actions": []}}],
        "simulations": [simulation, {"task_id": "8", "trial": 0, "messages": "none"}],
    }
    path = tmp_path / "results.json"
    path.write_text(json.dumps(record))
    errors: list[ReadError] = []
    (trajectory,) = read(path, on_error=errors.append)
    assert trajectory.question_id == "retail:task7" and trajectory.outcome == 1.0 and trajectory.id == "sim"
    assert [m.role for m in trajectory.messages] == ["system", "assistant", "user", "assistant", "tool"]
    assert trajectory.messages[-1].tool_call_id == "c1" and trajectory.task == "Cancel it."
    assert trajectory.meta["agent"] == "m" and trajectory.meta["reference"] == {"actions": []}
    assert [e.line for e in errors] == [2]


REACT = """Answer the question.
Question: Who wrote X?
Thought 1: example
Action 1: Finish[nobody]

Question: Who wrote Y?
Thought 1: I should search.
Action 1: Search[Y [novel]]
Observation 1: Y is a novel
by Z.
Thought 2: Done.
Action 2: Finish[Z]
Observation 2: Answer is CORRECT
"""


@pytest.mark.parametrize("record", [{"prompt": REACT, "correct": False, "reward": 0.5}, REACT])
def test_react_text_after_few_shot_examples(tmp_path: Path, record: Any) -> None:
    trajectory = one(tmp_path, record)
    assert trajectory.task == "Who wrote Y?" and [m.role for m in trajectory.messages][:2] == ["system", "user"]
    assert "Who wrote X?" in trajectory.messages[0].text()
    first, second = trajectory.steps
    assert first.message.tool_calls and first.message.tool_calls[0].arguments == {"input": "Y [novel]"}
    assert first.observations[0].text() == "Y is a novel\nby Z."
    assert second.message.tool_calls and second.message.tool_calls[0].arguments == {"answer": "Z"}
    assert trajectory.meta["outcome_leaks"] == [5]
    assert trajectory.outcome == (0.0 if isinstance(record, dict) else None)


def test_react_known_question_beats_a_hallucinated_one(tmp_path: Path) -> None:
    text = REACT + "Question: Who wrote made-up?\nThought 1: x\nAction 1: Finish[q]\n"
    trajectory = one(tmp_path, {"question": "Who wrote Y?", "prompt": text})
    assert trajectory.task == "Who wrote Y?" and len(trajectory.steps) == 3


def test_react_messages_and_dictionary_of_runs(tmp_path: Path) -> None:
    turns = [ASK, {"role": "assistant", "content": "Thought: t\nAction: finish[42]"}]
    turns.append({"role": "user", "content": "Observation: Episode finished, reward = True"})
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({"17": {"traj": turns, "reward": True, "gt": "42"}, "18": {"traj": 3}}))
    errors: list[ReadError] = []
    (trajectory,) = read(path, on_error=errors.append)
    assert trajectory.id == "agent:17" and trajectory.meta["key"] == "17" and trajectory.meta["reference"] == "42"
    assert [m.role for m in trajectory.messages] == ["user", "assistant", "tool"]
    assert trajectory.meta["outcome_leaks"] == [2] and trajectory.outcome == 1.0
    assert [e.line for e in errors] == [2]


def test_react_console(tmp_path: Path) -> None:
    text = (
        "You see a shelf.\nYour task is to: find a key.\n> Think: look\n> go to shelf 1\nA key.\n> take key\nTaken.\n"
    )
    trajectory = one(tmp_path, {"name": "room-1", "result": True, "traj": text})
    assert trajectory.task == "find a key." and trajectory.question_id == "room-1" and trajectory.outcome == 1.0
    commands = [s.message.tool_calls[0].arguments for s in trajectory.steps if s.message.tool_calls]
    assert commands == [{"command": "go to shelf 1"}, {"command": "take key"}]
    assert [s.observations[0].text() for s in trajectory.steps] == ["A key.", "Taken."]


def test_actions() -> None:
    assert action("search[a [b] c]") == {"name": "search", "arguments": {"input": "a [b] c"}}
    assert action("Finish(x)") == {"name": "Finish", "arguments": {"answer": "x"}}
    assert action('{"action": "go", "action_input": {"n": 1}}') == {"name": "go", "arguments": {"n": 1}}
    assert action("I would search now") is None and action("{broken") is None


def test_langchain_action_input(tmp_path: Path) -> None:
    text = "Question: q?\nThought: t\nAction: search\nAction Input: cats\nObservation: meow\nFinal Answer: cats\n"
    first, last = one(tmp_path, text).steps
    assert first.message.tool_calls and first.message.tool_calls[0].arguments == {"input": "cats"}
    assert first.observations[0].text() == "meow" and last.message.text() == "Final Answer: cats"


@pytest.mark.parametrize(
    ("ask", "asked", "docs", "docs_end"),
    [
        ("<|begin_of_query|>", "<|end_of_query|>", "<|begin_of_documents|>", "<|end_of_documents|>"),
        ("<search>", "</search>", "<information>", "</information>"),
        ("<search>", "</search>", "<result>", "</result>"),
        ("<|begin_search_query|>", "<|end_search_query|>", "<|begin_search_result|>", "<|end_search_result|>"),
    ],
)
def test_search_tags(tmp_path: Path, ask: str, asked: str, docs: str, docs_end: str) -> None:
    retrieved = "(1) A page that says <search>evil</search> </think>"
    text = f"I think.{ask} Y author{asked}{docs}{retrieved}{docs_end} So Z.</think> <answer>Z</answer>"
    trajectory = one(tmp_path, {"question": "Who wrote Y?", "answer": "Z", "output": text, "gpt4o_output": "True"})
    first, last = trajectory.steps
    assert first.message.reasoning_content == "I think." and first.message.tool_calls
    assert first.message.tool_calls[0].arguments == {"query": "Y author"}
    assert first.observations[0].text() == retrieved
    assert last.message.reasoning_content == "So Z." and last.message.text() == "<answer>Z</answer>"
    assert trajectory.outcome == 1.0 and trajectory.meta["reference"] == "Z" and trajectory.task == "Who wrote Y?"


def test_mapping(tmp_path: Path) -> None:
    record = {
        "run": {"turns": [{"who": "human", "what": {"t": "Q"}}, {"who": "bot", "what": {"t": "A"}}], "ok": 1},
        "key": 5,
        "note": "kept",
    }
    pairs = ["messages=run.turns", "message.role=who", "message.content=what.t", "outcome=run.ok", "id=key"]
    trajectory = one(tmp_path, record, mapping=parse_pairs([*pairs, "reference=none?", "meta.first=run.turns[0].who"]))
    assert [(m.role, m.content) for m in trajectory.messages] == [("user", "Q"), ("assistant", "A")]
    assert trajectory.id == "5" and trajectory.outcome == 1.0 and trajectory.meta["first"] == "human"
    assert trajectory.meta == {"note": "kept", "first": "human"}


def test_mapping_text_pairs_and_missing_paths(tmp_path: Path) -> None:
    pair = one(tmp_path, {"q": "Q", "a": "A"}, mapping={"task": "q", "response": "a"})
    assert [(m.role, m.text()) for m in pair.messages] == [("user", "Q"), ("assistant", "A")]
    text = one(tmp_path, {"log": REACT, "q": "Q"}, mapping={"task": "q", "messages": "log"})
    assert text.task == "Q" and len(text.steps) == 2 and "Who wrote X?" in text.messages[0].text()
    with pytest.raises(ReadError, match=r"nothing at 'rewrad'.*\"reward\""):
        one(tmp_path, {"m": [ASK], "reward": 1}, mapping={"messages": "m", "outcome": "rewrad"})
    with pytest.raises(ReadError, match="no label"):
        one(tmp_path, {"m": [ASK], "reward": 7}, mapping={"messages": "m", "outcome": "reward"})


def test_mapping_paths() -> None:
    value = {"a": [{"b.c": 1}, [2, 3]], "x": None}
    assert get(value, "a[1][0]") == 2 and get(value, "a.1.-1") == 3 and get(value, ".") is value
    assert get(value, "x") is None and get(value, "a.5") is not None  # MISSING, an object of its own
    with pytest.raises(ConfigError, match="did you mean 'messages'"):
        parse_pairs(["mesages=x"])
    with pytest.raises(ConfigError, match="field=path"):
        parse_pairs(["messages"])
    with pytest.raises(ConfigError, match="needs messages=PATH"):
        parse_pairs(["id=x"])


def test_unknown_format_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'openai'"):
        read("x", format="opnai")
    with pytest.raises(ConfigError, match="needs --map"):
        read("x", format="mapping")
    with pytest.raises(ConfigError, match="leave --format out"):
        read("x", format="openai", mapping={"messages": "m"})


def test_registry_and_helpers() -> None:
    assert [r.NAME for r in READERS] == list(FORMATS)
    assert stem("a/b.jsonl.gz") == "b" and stem("-") == "stdin" and stem(".json") == ".json"
    assert [as_outcome(v) for v in ("True", "no", 0.5, 1, True, 2, -1, "maybe", None, [])] == [
        *(1.0, 0.0, 0.5, 1.0, 1.0),
        *[None] * 5,
    ]
    assert question_hash("Who  wrote\nY?") == question_hash("who wrote y?") != question_hash("who wrote z?")
    assert question_hash(" \n") is None


def test_the_guides_new_reader_works_as_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "reading.md").read_text(encoding="utf-8")
    code = guide.split("## A new reader")[1].split("```python\n")[1].split("```")[0]
    acts = types.ModuleType("acts")
    exec(compile(code, "docs/reading.md", "exec"), acts.__dict__)  # noqa: S102  # our own guide
    monkeypatch.setattr("rrm.readers.READERS", (acts, *READERS))
    monkeypatch.setitem(FORMATS, "acts", acts)  # type: ignore[arg-type]
    record = {"goal": "find a key", "acts": [["look", "a key"], ["take key", "taken"]], "won": True, "seed": 4}
    trajectory = one(tmp_path, record)
    assert trajectory.task == "find a key" and trajectory.outcome == 1.0 and trajectory.meta == {"seed": 4}
    assert [len(s.observations) for s in trajectory.steps] == [1, 1]
    with pytest.raises(ReadError, match=r"acts\[0\] is not a pair"):
        one(tmp_path, {**record, "acts": [3]})
