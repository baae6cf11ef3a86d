"""Each format, on small hand-made records whose right reading is known."""

from __future__ import annotations

import gzip
import itertools
import json
import types
from pathlib import Path
from typing import Any

import pytest
from log_rows import in_file, read_text, talk, turns

from rrm.data.questions import question_hash
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, ReadError
from rrm.prompt.rendering import agent_text
from rrm.readers import FORMATS, READERS, read, read_value, sniff
from rrm.readers.base import stem
from rrm.readers.mapping import get, parse_pairs
from rrm.readers.outcomes import as_outcome
from rrm.readers.react import action

ASK = {"role": "user", "content": "What is 6 x 7?"}
SAY = {"role": "assistant", "content": "42"}
CALL = {"id": "c1", "type": "function", "function": {"name": "calc", "arguments": '{"e": "6*7"}'}}


def one(folder: Path, record: Any, **options: Any) -> Trajectory:
    return in_file(folder / "runs.json", record, **options)


def arguments(message: Message) -> list[Any]:
    """Of the calls of a message."""
    return [call.arguments for call in message.tool_calls or []]


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
    with pytest.raises(ReadError, match=r"outcome|meta"):
        one(tmp_path, {"schema_version": 1, "id": "a", "messages": [ASK], **broken})


@pytest.mark.parametrize("given", ['{"e": "6*7"}', {"e": "6*7"}])
@pytest.mark.parametrize("as_text", [True, False])
def test_openai_arguments_and_tools_in_both_forms(tmp_path: Path, given: Any, as_text: bool) -> None:
    call = {**CALL, "function": {"name": "calc", "arguments": given}}
    tools = [{"type": "function", "function": {"name": "calc", "parameters": {}}}]
    messages = [
        ASK, {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"}, SAY,
    ]  # fmt: skip
    record = {"id": 7, "messages": messages, "tools": json.dumps(tools) if as_text else tools, "reward": 1}
    trajectory = one(tmp_path, record)
    calls = trajectory.messages[1].tool_calls
    assert calls and calls[0].name == "calc" and calls[0].arguments == {"e": "6*7"} and calls[0].id == "c1"
    assert trajectory.tools == tools and trajectory.outcome == 1.0 and trajectory.id == "7"
    assert [len(s.observations) for s in trajectory.steps] == [1, 0]


def test_malformed_arguments_stay_as_evidence(tmp_path: Path) -> None:
    for bad, as_read in (('{"e": 6*', '{"e": 6*'), ([1], "[1]"), (None, {}), (3, "3")):
        call = {"function": {"name": "calc", "arguments": bad}}
        trajectory = one(tmp_path, {"messages": [ASK, {"role": "assistant", "tool_calls": [call]}]})
        assert arguments(trajectory.messages[1]) == [as_read]


NO = "I cannot help with that."


@pytest.mark.parametrize("said", [
    {"content": None, "refusal": NO}, {"content": "", "refusal": NO}, {"content": [], "refusal": NO},
    {"content": [{"type": "refusal", "refusal": NO}]}, {"content": NO, "refusal": "other words"},
    {"content": NO, "refusal": None},
])  # fmt: skip
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
    turns_of_sharegpt = [{"from": "human", "value": "What is 6 x 7?"}, {"from": "gpt", "value": "42"}]
    sharegpt = one(tmp_path, {"conversations": turns_of_sharegpt})
    bare = one(tmp_path, [ASK, SAY])
    assert [m.model_dump() for m in trl.messages] == [m.model_dump() for m in sharegpt.messages]
    assert bare.question_id == trl.question_id == question_hash("what is  6 X 7?") and trl.outcome == 0.0
    assert bare.outcome is None


def test_preference_rows_say_what_to_do(tmp_path: Path) -> None:
    for options, advice in (({}, "--map messages=PATH"), ({"format": "openai"}, "--map messages=chosen")):
        with pytest.raises(ReadError, match=advice):
            one(tmp_path, {"chosen": [ASK, SAY], "rejected": [ASK, SAY]}, **options)


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
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "use calc", "signature": "s"}, {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "t1", "name": "calc", "input": {"e": "6*7"}},
                {"type": "tool_use", "id": "t2", "name": "calc", "input": {"e": "7*6"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "42"}]},
                {"type": "tool_result", "tool_use_id": "t2", "content": "boom", "is_error": True},
                {"type": "text", "text": "and?"},
            ]},
            {"role": "assistant", "content": [{"type": "text", "text": "42"}]},
        ],
    }  # fmt: skip
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


def test_tau_bench_groups_trials_by_the_hidden_instruction(tmp_path: Path) -> None:
    info = {"task": {"instruction": "You are mia.", "actions": [{"name": "book"}], "outputs": []}}
    rows = [{
        "task_id": 3, "trial": t, "reward": float(t), "info": info,
        "traj": [{"role": "user", "content": f"hi {t}"}, SAY],
    } for t in (0, 1)]  # fmt: skip
    (first, second), _ = read_text(tmp_path / "airline.json", json.dumps(rows))
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
    (trajectory,), errors = read_text(tmp_path / "results.json", json.dumps(record))
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
    assert arguments(first.message) == [{"input": "Y [novel]"}] and arguments(second.message) == [{"answer": "Z"}]
    assert first.observations[0].text() == "Y is a novel\nby Z." and trajectory.meta["outcome_leaks"] == [5]
    assert trajectory.outcome == (0.0 if isinstance(record, dict) else None)


def test_react_known_question_beats_a_hallucinated_one(tmp_path: Path) -> None:
    text = REACT + "Question: Who wrote made-up?\nThought 1: x\nAction 1: Finish[q]\n"
    trajectory = one(tmp_path, {"question": "Who wrote Y?", "prompt": text})
    assert trajectory.task == "Who wrote Y?" and len(trajectory.steps) == 3


def test_react_messages_and_dictionary_of_runs(tmp_path: Path) -> None:
    messages = talk(ASK["content"], "Thought: t\nAction: finish[42]", "Observation: Episode finished, reward = True")
    runs = {"17": {"traj": messages, "reward": True, "gt": "42"}, "18": {"traj": 3}}
    (trajectory,), errors = read_text(tmp_path / "agent.json", json.dumps(runs))
    assert trajectory.id == "agent:17" and trajectory.meta["key"] == "17" and trajectory.meta["reference"] == "42"
    assert [m.role for m in trajectory.messages] == ["user", "assistant", "tool"]
    assert trajectory.meta["outcome_leaks"] == [2] and trajectory.outcome == 1.0
    assert [e.line for e in errors] == [2]


def test_react_console(tmp_path: Path) -> None:
    steps = "> Think: look\n> go to shelf 1\nA key.\n> take key\nTaken.\n"
    text = f"You see a shelf.\nYour task is to: find a key.\n{steps}"
    trajectory = one(tmp_path, {"name": "room-1", "result": True, "traj": text})
    assert trajectory.task == "find a key." and trajectory.question_id == "room-1" and trajectory.outcome == 1.0
    commands = [arguments(s.message) for s in trajectory.steps]
    assert commands == [[{"command": "go to shelf 1"}], [{"command": "take key"}]]
    assert [s.observations[0].text() for s in trajectory.steps] == ["A key.", "Taken."]


def test_actions() -> None:
    assert action("search[a [b] c]") == {"name": "search", "arguments": {"input": "a [b] c"}}
    assert action("Finish(x)") == {"name": "Finish", "arguments": {"answer": "x"}}
    assert action('{"action": "go", "action_input": {"n": 1}}') == {"name": "go", "arguments": {"n": 1}}
    assert action("I would search now") is None and action("{broken") is None


def test_langchain_action_input(tmp_path: Path) -> None:
    text = "Question: q?\nThought: t\nAction: search\nAction Input: cats\nObservation: meow\nFinal Answer: cats\n"
    first, last = one(tmp_path, text).steps
    assert arguments(first.message) == [{"input": "cats"}]
    assert first.observations[0].text() == "meow" and last.message.text() == "Final Answer: cats"


@pytest.mark.parametrize(("ask", "asked", "docs", "docs_end"), [
    ("<|begin_of_query|>", "<|end_of_query|>", "<|begin_of_documents|>", "<|end_of_documents|>"),
    ("<search>", "</search>", "<information>", "</information>"), ("<search>", "</search>", "<result>", "</result>"),
    ("<|begin_search_query|>", "<|end_search_query|>", "<|begin_search_result|>", "<|end_search_result|>"),
])  # fmt: skip
def test_search_tags(tmp_path: Path, ask: str, asked: str, docs: str, docs_end: str) -> None:
    retrieved = "(1) A page that says <search>evil</search> </think>"
    text = f"I think.{ask} Y author{asked}{docs}{retrieved}{docs_end} So Z.</think> <answer>Z</answer>"
    trajectory = one(tmp_path, {"question": "Who wrote Y?", "answer": "Z", "output": text, "gpt4o_output": "True"})
    first, last = trajectory.steps
    assert first.message.reasoning_content == "I think." and arguments(first.message) == [{"query": "Y author"}]
    assert first.observations[0].text() == retrieved
    assert last.message.reasoning_content == "So Z." and last.message.text() == "<answer>Z</answer>"
    assert trajectory.outcome == 1.0 and trajectory.meta["reference"] == "Z" and trajectory.task == "Who wrote Y?"


def test_mapping(tmp_path: Path) -> None:
    said = [{"who": "human", "what": {"t": "Q"}}, {"who": "bot", "what": {"t": "A"}}]
    record = {"run": {"turns": said, "ok": 1}, "key": 5, "note": "kept"}
    pairs = ["messages=run.turns", "message.role=who", "message.content=what.t", "outcome=run.ok", "id=key"]
    trajectory = one(tmp_path, record, mapping=parse_pairs([*pairs, "reference=none?", "meta.first=run.turns[0].who"]))
    assert turns(trajectory) == [("user", "Q"), ("assistant", "A")]
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


@pytest.mark.parametrize(("asked", "advice"), [
    ("mesages=x", "did you mean 'messages'"), ("messages", "field=path"), ("id=x", "needs messages=PATH"),
    ({"format": "opnai"}, "did you mean 'openai'"), ({"format": "mapping"}, "needs --map"),
    ({"format": "openai", "mapping": {"messages": "m"}}, "leave --format out"),
])  # fmt: skip
def test_a_wrong_pair_or_format_says_what_to_write(asked: str | dict[str, Any], advice: str) -> None:
    with pytest.raises(ConfigError, match=advice):
        parse_pairs([asked]) if isinstance(asked, str) else read("x", **asked)


def test_registry_and_helpers() -> None:
    assert [r.NAME for r in READERS] == list(FORMATS)
    assert stem("a/b.jsonl.gz") == "b" and stem("-") == "stdin" and stem(".json") == ".json"
    assert [as_outcome(v) for v in ("True", "no", 0.5, 1, True)] == [1.0, 0.0, 0.5, 1.0, 1.0]
    assert [as_outcome(v) for v in (2, -1, "maybe", None, [])] == [None] * 5
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


FILES = [  # file, rows, format, successes (counted from the files' own label fields), rows whose text tells the verdict
    ("fireact/ft_gpt_3_5_turbo_0613_prince.json.gz", 441, "react", 183, 441),
    ("fireact/llama_models_lora_llama_2_13.json.gz", 474, "react", 156, 474),
    ("fireact/llama_models_lora_llama_2_7b.json.gz", 475, "react", 121, 475),
    ("knowagent/KnowAgentALFWorld_llama-2-13b_D0.jsonl.gz", 510, "react", 134, 0),
    ("knowagent/KnowAgentHotpotQA_llama-2-13b_D0.jsonl.gz", 500, "react", 132, 494),
    ("r1_searcher/2wiki_qwen.jsonl.gz", 495, "search_tags", 321, 0),
    ("r1_searcher/hotpotqa_qwen.jsonl.gz", 476, "search_tags", 356, 0),
    ("tau_bench/gpt-4o-airline.json.gz", 200, "tau_bench", 84, 0),
]


@pytest.mark.parametrize(("name", "rows", "form", "successes", "leaks"), FILES)
def test_every_row(shared_data: Path, name: str, rows: int, form: str, successes: int, leaks: int) -> None:
    found = list(read(shared_data / "transcripts" / name))
    assert len(found) == rows and {t.source.format for t in found if t.source} == {form}
    assert sum(t.outcome or 0 for t in found) == successes and all(t.outcome is not None for t in found)
    assert sum(bool(t.meta.get("outcome_leaks")) for t in found) == leaks
    assert all(t.task and t.question_id and t.steps for t in found)
    assert len({t.id for t in found}) == rows
    for t in found[:20]:
        assert Trajectory.from_json(t.to_json()).messages == t.messages


@pytest.mark.parametrize("name", ["hotpotqa", "gsm8k", "math", "theoremqa"])
def test_mint_keeps_message_indices(shared_data: Path, name: str) -> None:
    """`critiques[i].after_message` points into messages, so the reader must not move them."""
    path = shared_data / "transcripts" / "mint" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        raw = [json.loads(line) for line in itertools.islice(lines, 200)]
    found = list(itertools.islice(read(path), 200))
    for record, t in zip(raw, found, strict=True):
        assert t.id == record["id"] and t.question_id == record["question_id"] and t.outcome == record["outcome"]
        assert [m.text() for m in t.messages] == [m["content"] for m in record["messages"]]
        assert t.task == record["messages"][0]["content"] and t.meta["task"] == name
        assert t.meta["reference"] == record["reference"] and t.meta["agent"] == record["agent"]
        wrong = [i for i, m in enumerate(record["messages"]) if "Your answer is wrong" in m["content"]]
        assert t.meta.get("outcome_leaks", []) == [i for i in wrong if record["messages"][i]["role"] == "tool"]


def test_attempts_at_one_question_meet_across_sources(shared_data: Path) -> None:
    """FireAct's three agents and R1-Searcher were asked some of the same HotpotQA questions."""
    folder = shared_data / "transcripts"
    ids = {name: {t.question_id for t in read(folder / name)} for name, *_ in FILES if "fireact" in name}
    first, second, third = ids.values()
    assert len(second & third) > 400 and len(first & second) > 400
    searcher = {t.question_id for t in read(folder / "r1_searcher" / "hotpotqa_qwen.jsonl.gz")}
    assert len(first & searcher) == 20
    assert len({t.question_id for t in read(folder / "tau_bench")}) == 50
