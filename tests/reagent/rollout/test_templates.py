"""Templates: suffixes by hand, and a clear error for every template that cannot be extended."""

from __future__ import annotations

import json
from typing import Any

import pytest
from families import FAMILIES, Family, as_json, source, stop_ids, tokenizer_of
from rollout_models import SEARCH, Echo, make_model, make_tokenizer
from transformers import PreTrainedTokenizerFast

from reagent.env.task import Task
from reagent.lab.search_env import SearchEnv
from reagent.rollout.episode import Episode
from reagent.rollout.observations import fit, shorten
from reagent.rollout.rollout import rollout
from reagent.rollout.template_options import options_of
from reagent.rollout.templates import LAB_TEMPLATE, TEMPLATES, TurnTemplate, template
from reagent.train.config import RolloutConfig, load_agent_config
from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine, eos_ids_of
from rrm.engines.scripted import ScriptedEngine
from rrm.errors import ConfigError, RRMError
from rrm.prompt.rendering import CHAT_TEMPLATE

TOOL = [{"role": "tool", "content": "a"}, {"role": "tool", "content": "b"}]
SUFFIXES = {
    "lab": "\n<|im_start|>tool\na<|im_end|>\n<|im_start|>tool\nb<|im_end|>\n<|im_start|>assistant\n",
    "chatml": "\n<|im_start|>user\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\n",
    "llama3": "<|start_header_id|>ipython<|end_header_id|>\n\na<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\nb"
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
}
SUFFIXES["thinking"] = SUFFIXES["chatml"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_suffixes_by_hand(name: str) -> None:
    tokenizer = make_tokenizer(name)
    turns = TurnTemplate(tokenizer)
    end = "<|eot_id|>" if name == "llama3" else "<|im_end|>"
    assert tokenizer.decode(turns.suffix(TOOL, [turns.end_id])) == SUFFIXES[name]
    assert tokenizer.decode(turns.suffix(TOOL, [])) == end + SUFFIXES[name]
    assert turns.end_id == tokenizer.convert_tokens_to_ids(end)
    assert turns.ended([5, turns.end_id]) and not turns.ended([turns.end_id, 5])
    nothing = tokenizer.decode(turns.suffix([], []))
    assert nothing.startswith(end) and nothing.endswith(("assistant\n", "<|end_header_id|>\n\n"))


# (eos, results and the next opening after a turn that ended), of templates as their models' owners wrote them
REAL = {
    "qwen2_5": (
        "<|im_end|>",
        "\n<|im_start|>user\n<tool_response>\na\n</tool_response>\n<tool_response>\nb\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n",
    ),
    "lfm2_2_5": (
        "<|im_end|>",
        "\n<|im_start|>tool\na<|im_end|>\n<|im_start|>tool\nb<|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama3_1": (
        "<|eot_id|>",
        '<|start_header_id|>ipython<|end_header_id|>\n\n"a"<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"b"'
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
}
REAL["qwen3"] = REAL["qwen2_5"]  # it writes empty thoughts before a last turn, and none before an earlier one


@pytest.mark.parametrize("name", REAL)
def test_templates_of_real_models(name: str) -> None:
    from trl import chat_template_utils

    tokenizer = make_tokenizer("lab")
    eos, suffix = REAL[name]
    tokenizer.add_special_tokens({"eos_token": eos})
    tokenizer.chat_template = getattr(chat_template_utils, f"{name}_chat_template")
    assert tokenizer.decode(TurnTemplate(tokenizer).suffix(TOOL, [tokenizer.eos_token_id])) == suffix


def test_a_real_template_without_tools_takes_a_users_words() -> None:
    """Phi-3's: without an opening it ends the whole by eos, which must not be taken for an earlier turn's."""
    from trl.chat_template_utils import phi3_chat_template

    tokenizer = make_tokenizer("lab")
    tokenizer.add_special_tokens({"eos_token": "<|end|>"})
    tokenizer.chat_template = phi3_chat_template
    turns = TurnTemplate(tokenizer)
    assert (
        tokenizer.decode(turns.suffix([{"role": "user", "content": "a"}], [turns.end_id]))
        == "\n<|user|>\na<|end|>\n<|assistant|>\n"
    )
    with pytest.raises(RRMError, match="cannot append a tool message: it does not show what a tool message says"):
        turns.suffix(TOOL, [turns.end_id])


def test_prompts_by_hand() -> None:
    turns = TurnTemplate(make_tokenizer("lab"), [SEARCH])
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q <|im_end|>"}]
    text = turns.tokenizer.decode(turns.prompt(messages))
    assert text.startswith('<|im_start|>system\nS\nTools:\n{"type": "function", "function": {"name": "search"')
    assert text.endswith("<|im_end|>\n<|im_start|>user\nQ < |im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert turns.tokenizer.decode(turns.prompt(messages[1:])).startswith("<|im_start|>system\nTools:\n{")


def test_the_lab_template_is_the_judges_where_there_are_no_tools() -> None:
    tokenizer = make_tokenizer("lab")
    messages = [{"role": r, "content": r[:2]} for r in ("system", "user", "assistant", "user")]
    ours = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert ours == tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, chat_template=CHAT_TEMPLATE
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_generation_markers_cover_what_the_assistant_says_and_its_end(name: str) -> None:
    tokenizer = make_tokenizer(name)
    call = {"type": "function", "function": {"name": "search", "arguments": {"query": "é"}}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "look", "tool_calls": [call, call]},
        {"role": "tool", "content": "r"},
        {"role": "assistant", "content": "Answer: x"},
    ]
    encoded = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
    ids = [i for i, m in zip(encoded["input_ids"], encoded["assistant_masks"], strict=True) if m]  # type: ignore[index]
    end, call_text = tokenizer.eos_token, '<tool_call>{"name": "search", "arguments": {"query": "é"}}</tool_call>'
    assert tokenizer.decode(ids) == f"look\n{call_text}\n{call_text}{end}Answer: x{end}"


MOVES = (
    "{% for m in messages %}{% if m.role == 'user' and (loop.last or loop.index == messages | length - 1) %}"
    "{{ 'TOOLS ' }}{% endif %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
)
BAD = {
    "forgets": (
        LAB_TEMPLATE.replace("message.content or ''", "'(said)'"),
        "does not show an earlier assistant message",
    ),
    "deaf": (
        LAB_TEMPLATE.replace("{{ message.content + '<|im_end|>' }}", "{{ message.role + '<|im_end|>' }}"),
        "does not show what a user message says",
    ),
    "moves": (MOVES, "change what stands before the assistant's turn"),
    "endless": (LAB_TEMPLATE.replace("'<|im_end|>'", "'<end>'"), "where the engine stops only at"),
    "refuses": ("{{ raise_exception('only one turn') }}", "only one turn"),
    "changes its end": (
        "{% for m in messages %}{{ m.role + m.content + (',' if not loop.last and m.role == 'assistant' else '') }}"
        "{{ '<|im_end|>' }}{% endfor %}",
        "ends a turn in another way",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_templates_that_cannot_be_extended(name: str) -> None:
    tokenizer = make_tokenizer("lab")
    tokenizer.chat_template, error = BAD[name]
    with pytest.raises(RRMError, match=error):
        TurnTemplate(tokenizer)


def test_what_else_is_said_clearly() -> None:
    tokenizer = make_tokenizer("lab")
    tokenizer.chat_template = None
    with pytest.raises(RRMError, match=r"has no chat template: .* \(lab, chatml, thinking, llama3\)"):
        TurnTemplate(tokenizer)
    tokenizer.chat_template = LAB_TEMPLATE.replace(
        "{%- for message", "{%- for message in messages if message.role == 'tool' %}{{ raise_exception('no tools') }}"
        "{% endfor %}{%- for message", 1,
    )  # fmt: skip
    turns = TurnTemplate(tokenizer)  # it can still be extended by user messages
    assert turns.suffix([{"role": "user", "content": "x"}], [turns.end_id])
    with pytest.raises(RRMError, match=r"cannot append a tool message: .*no tools"):
        turns.suffix(TOOL, [turns.end_id])
    with pytest.raises(RRMError, match="cannot render"):
        turns.prompt([{"role": "tool", "content": "x"}])
    with pytest.raises(ConfigError, match="no chat template 'lama'"):
        template("lama")


# ---- observations ----


def test_shorten_keeps_head_and_tail() -> None:
    tokenizer = make_tokenizer("lab")
    text = "".join(chr(97 + i % 26) for i in range(900))
    assert shorten(text, 1000, tokenizer) == (text, 0)
    shortened, cut = shorten(text, 32, tokenizer)
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert cut == len(ids) - 30
    head, tail = shortened.split(" … ")
    assert text.startswith(head) and text.endswith(tail) and 2 * len(tail) <= len(head) + 2
    long, cut = shorten(text * 1000, 32, tokenizer)
    assert long == shortened and cut == pytest.approx(1000 * len(ids), rel=0.05)
    assert "\ufffd" not in shorten("é€" * 200, 20, tokenizer)[0]


def test_fit_takes_no_more_than_there_is_room_for() -> None:
    turns = TurnTemplate(make_tokenizer("lab"))
    observations = [{"role": "tool", "content": "short"}, {"role": "tool", "content": "abcdefgh " * 100}]
    uncut, fitted, cut = fit(turns, observations, [turns.end_id], 10_000, 10_000)
    assert (fitted, cut, uncut) == (observations, 0, turns.suffix(observations, [turns.end_id]))
    for room in (len(uncut), len(uncut) - 1, 200, 60, 40):
        ids, fitted, cut = fit(turns, observations, [turns.end_id], 10_000, room)
        assert room - 20 < len(ids) <= room and (cut > 0) == (room < len(uncut)) and fitted[0]["content"] == "short"
    least = len(turns.suffix([{**m, "content": ""} for m in observations], [turns.end_id]))
    assert len(fit(turns, observations, [turns.end_id], 100, 5)[0]) >= least  # then the episode ends


LONG = {"max_turns": 6, "max_episode_tokens": 20_000, "max_observation_tokens": 2_000}
PARAMS = SamplingParams(max_new_tokens=400)
REAL_FAMILIES = [name for name, family in FAMILIES.items() if family.real]
TOOL_MESSAGES, USER = [{"role": "tool", "content": "r", "name": "search"}], [{"role": "user", "content": "u"}]


def speaks(tokenizer: PreTrainedTokenizerFast, family: Family, turns: list[str]) -> ScriptedEngine:
    """An engine that says these texts, stops included."""
    ids = [tokenizer.encode(turn, add_special_tokens=False) for turn in turns]
    return ScriptedEngine(ids, eos_token_id=tokenizer.eos_token_id, eos_ids=stop_ids(tokenizer, family))  # type: ignore[arg-type]


def play(family: Family, tokenizer: PreTrainedTokenizerFast) -> tuple[Episode, list[str], ScriptedEngine]:
    """(a two-hop task of the lab, solved after a turn that says nothing; the turns' texts; the engine)."""
    (task,) = SearchEnv.make_tasks(1, 0, hops=2)
    plan = SearchEnv.plan(task)
    first = plan.move(0, plan.start)
    queries = [str(move.call.arguments["query"]) for move in (first, plan.move(1, first.value))]  # type: ignore[index]
    turns = [family.call.format(q=as_json(query), t=query) for query in queries]
    if family.thoughts[0] and "Hm." not in family.call:  # thoughts that the opening opened
        turns[0] = "Hm.\n</think>\n\n" + turns[0] if family.opening.endswith("\n") else "Hm.</think>" + turns[0]
    turns += [family.nothing, family.answer.format(t=task.answer)]
    engine = speaks(tokenizer, family, turns)
    tool_prompt = "template" if family.shows_tools else "schema"
    episode = rollout(
        engine, tokenizer, lambda: SearchEnv(parser=family.parser, tool_prompt=tool_prompt), [task], params=PARAMS,
        template_options=family.options, **LONG,
    )[0]  # fmt: skip
    return episode, turns, engine


def messages(family: Family, episode: Episode, texts: list[str]) -> list[dict[str, Any]]:
    """The transcript as the family's template takes it."""
    result, turns = [], iter(texts)
    for message in episode.trajectory.messages:
        dumped = message.model_dump(
            exclude_none=True, include={"role", "content", "reasoning_content", "tool_calls", "name"}
        )
        if message.role == "assistant" and not family.knows_calls:
            text = next(turns)
            dumped = {"role": "assistant", "content": text.removesuffix(family.stops[0])}
        elif message.role == "assistant":
            if "reasoning_content" in dumped:
                dumped["thinking"] = dumped["reasoning_content"]
            if message.tool_calls:
                dumped["tool_calls"] = [
                    {"type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                    for c in message.tool_calls
                ]
        result.append(dumped)
    return result


def exact(family: Family, tokenizer: PreTrainedTokenizerFast) -> None:
    episode, texts, engine = play(family, tokenizer)
    assert (episode.success, len(episode.turns)) == (True, 4), episode.error

    def ids(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    # by hand: what the environment said in the template's frame, around what was sampled
    results = [m.text() for m in episode.trajectory.messages if m.role == "tool"]
    (question,) = [m.text() for m in episode.trajectory.messages[2:] if m.role == "user"]
    assert len(results) == 2 and "neither a call nor an answer" in question
    expected = [family.result.format(r=r, j=as_json(r)) + family.opening_after_tool for r in results]
    expected.append(family.asked.format(u=question) + family.opening)
    assert tokenizer.decode(episode.prompt_ids).endswith(family.opening)
    for turn, text, follows in zip(episode.turns, texts, [*expected, ""], strict=True):
        assert turn.output_ids == ids(text) and turn.stop_reason == "eos"
        assert turn.observation_ids == ids(follows)

    # each prompt starts with all that is held, and is what the template renders of all messages so far
    prompts = [row for row, _, _ in engine.calls]
    all_messages = messages(family, episode, texts)
    turn_at = [i for i, message in enumerate(all_messages) if message["role"] == "assistant"]
    tools = SearchEnv().tools if family.shows_tools else None
    for k, prompt in enumerate(prompts):
        context = prompts[k - 1] + episode.turns[k - 1].output_ids if k else []
        assert prompt[: len(context)] == context
        text = str(tokenizer.apply_chat_template(
            all_messages[: turn_at[k]], tools=tools, add_generation_prompt=True, tokenize=False, **family.options
        ))  # fmt: skip
        own = tokenizer.decode(prompt)
        assert family.rewrites(own) == text
        if own == text:  # nothing rewritten: the ids are those of the whole rendering
            assert prompt == ids(text)
    # thoughts stay as they were sampled, and the judge reads them
    flat = episode.flatten().input_ids.tolist()
    assert flat == [*prompts[-1], *episode.turns[-1].output_ids]
    thoughts = [m.reasoning_content for m in episode.trajectory.messages if m.role == "assistant"]
    assert thoughts == list(family.thoughts)
    decoded = tokenizer.decode(flat[len(episode.prompt_ids) :])
    assert all(decoded.count(thought) == family.thoughts.count(thought) for thought in family.thoughts if thought)
    calls = [[c.name for c in m.tool_calls or ()] for m in episode.trajectory.messages if m.role == "assistant"]
    assert calls == [["search"], ["search"], [], []]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rollout_of_the_lab_is_token_exact(name: str) -> None:
    exact(FAMILIES[name], tokenizer_of(FAMILIES[name]))


@pytest.mark.parametrize("name", REAL_FAMILIES)
def test_a_rollout_of_the_lab_is_token_exact_in_the_real_vocabulary(name: str) -> None:
    tokenizer = tokenizer_of(FAMILIES[name], real=True)
    ids = {"<|eot_id|>": 128009, "<|im_end|>": 151645, "<｜User｜>": 128803, "<｜tool▁sep｜>": 128814}
    assert all(tokenizer.convert_tokens_to_ids(t) == i for t, i in ids.items() if t in tokenizer.get_vocab())
    assert len(tokenizer.encode("The answer is here.", add_special_tokens=False)) == 5
    exact(FAMILIES[name], tokenizer)


# ---- how turns end ----


def suffixes(name: str, text: str) -> tuple[str, str]:
    """(what follows such a turn before a tool's result, and before a user's message)."""
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family)
    template = TurnTemplate(tokenizer, eos_ids=stop_ids(tokenizer, family), options=family.options)
    last = tokenizer.encode(text, add_special_tokens=False)
    return tokenizer.decode(template.suffix(TOOL_MESSAGES, last)), tokenizer.decode(template.suffix(USER, last))


def test_a_turn_may_end_by_any_stop_that_the_template_knows() -> None:
    said_by_tool = '<|start|>functions.search to=assistant<|channel|>commentary<|message|>"r"<|end|><|start|>assistant'
    said_by_user = "<|start|>user<|message|>u<|end|><|start|>assistant"
    assert suffixes("gpt-oss", "a<|call|>") == suffixes("gpt-oss", "a<|return|>") == (said_by_tool, said_by_user)
    # cut, or ended by a token that is no end of a turn: the template's own end comes first
    for text in ("a", "", "a<|endoftext|>"):
        assert suffixes("gpt-oss", text) == ("<|call|>" + said_by_tool, "<|end|>" + said_by_user)
    head = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    for text, end in (
        ("a<|eot_id|>", ""), ("a<|eom_id|>", ""), ("a", "<|eot_id|>"), ("a<|end_of_text|>", "<|eot_id|>"),
    ):  # fmt: skip
        assert suffixes("llama3.1", text) == (
            f'{end}<|start_header_id|>ipython<|end_header_id|>\n\n"r"<|eot_id|>{head}',
            f"{end}<|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>{head}",
        )


def test_the_next_messages_opening_may_be_the_end() -> None:
    tool, user = "\n<tool_response>\nr\n</tool_response><|assistant|>", "\nu<|assistant|>"
    assert suffixes("glm4.5", "a<|observation|>") == (tool, "<|user|>" + user)
    assert suffixes("glm4.5", "a<|user|>") == ("<|observation|>" + tool, user)
    for text in ("a", "a<|endoftext|>"):
        assert suffixes("glm4.5", text) == ("<|observation|>" + tool, "<|user|>" + user)


@pytest.mark.parametrize(
    ("name", "stops", "says"),
    [
        ("gpt-oss", ["<|return|>"], "<|call|>"),
        ("gpt-oss", ["<|call|>"], "<|return|>"),
        ("glm4.5", ["<|endoftext|>"], "<|user|>"),
        ("glm4.5", ["<|endoftext|>", "<|user|>"], "<|observation|>"),
        ("llama3.1", ["<|end_of_text|>"], "<|eot_id|>"),
    ],
)
def test_an_engine_that_does_not_stop_where_turns_end_is_named(name: str, stops: list[str], says: str) -> None:
    tokenizer = tokenizer_of(FAMILIES[name])
    eos = [tokenizer.convert_tokens_to_ids(s) for s in stops]
    with pytest.raises(RRMError, match=r"the engine stops only at .*generation_config.eos_token_id") as error:
        TurnTemplate(tokenizer, eos_ids=eos).suffix(TOOL_MESSAGES, [])  # type: ignore[arg-type]
    assert says in str(error.value)


@pytest.mark.parametrize("end", ["<|call|>", "<|return|>"])
def test_an_engine_takes_its_stops_from_the_generation_config(end: str) -> None:
    family = FAMILIES["gpt-oss"]
    tokenizer = tokenizer_of(family)
    model = make_model(tokenizer, eos_bias=0.0)
    end_id = tokenizer.convert_tokens_to_ids(end)
    model.lm_head.bias.data[end_id] = 4.0
    model.generation_config.eos_token_id = stop_ids(tokenizer, family)
    assert eos_ids_of(model, tokenizer) == set(stop_ids(tokenizer, family))
    engine = HFEngine(model, tokenizer)
    params = SamplingParams(max_new_tokens=40, temperature=1.0, seed=3)
    (episode,) = rollout(engine, tokenizer, Echo, [Task("t", "Who?", meta={"turns": 3})], params=params)
    ended = [t for t in episode.turns if t.output_ids[-1] == end_id]
    assert ended and all(t.stop_reason == "eos" for t in ended)
    for turn in ended[:-1]:  # the stop is not written again
        assert tokenizer.decode(turn.observation_ids[:1]) == "<|start|>"


def test_the_end_that_is_taught_is_the_one_the_engine_stops_at() -> None:
    """For supervised texts: in GPT-OSS a final answer has a channel, and ends by `<|return|>`; R1's opening opens thoughts."""
    expected = {
        "gpt-oss": "<|channel|>final<|message|>Good.<|return|>", "glm4.5": "Good.<|user|>", "qwen3": "Good.<|im_end|>",
        "deepseek r1": "\n</think>\n\nGood.<｜end▁of▁sentence｜>", "llama3.1": "Good.<|eot_id|>",
        "deepseek v3.1": "Good.<｜end▁of▁sentence｜>",
    }  # fmt: skip
    for name, text in expected.items():
        tokenizer = tokenizer_of(FAMILIES[name])
        template = TurnTemplate(tokenizer, eos_ids=stop_ids(tokenizer, FAMILIES[name]))
        assert tokenizer.decode(template.reply("Good.")) == text


# ---- thoughts that a prompt opens ----


def test_thoughts_that_the_opening_opened_are_no_answer() -> None:
    """R1 writes `<think>` in the opening: a turn that never closes it has thought, not answered, and a call in it is none."""
    family = FAMILIES["deepseek r1"]
    tokenizer = tokenizer_of(family)
    call = family.call.format(q='"boss"', t="boss")
    engine = speaks(tokenizer, family, ["Answer: x" + call, "Never.\n</think>\n\nAnswer: no" + family.stops[0]])
    (task,) = SearchEnv.make_tasks(1, 0, hops=1)
    (episode,) = rollout(engine, tokenizer, lambda: SearchEnv(parser="deepseek"), [task], params=PARAMS, **LONG)
    first, second = (m for m in episode.trajectory.messages if m.role == "assistant")
    assert first.tool_calls is None and (first.reasoning_content or "").startswith("Answer: x")
    assert (second.reasoning_content, second.content) == ("Never.", "Answer: no")
    assert episode.turns[0].info["malformed"] == 1 and "<think>" not in tokenizer.decode(episode.turns[0].output_ids)


# ---- options ----


@pytest.mark.parametrize(
    ("template", "reads"),
    [
        ("qwen3", {"enable_thinking"}), ("glm4moe", {"enable_thinking"}),
        ("gptoss", {"builtin_tools", "model_identity", "reasoning_effort"}), ("llama3", set()),
        ("llama3_1", {"builtin_tools", "custom_tools", "date_string", "tools_in_user_message"}),
        ("llama3_2", {"custom_tools", "date_string", "tools_in_user_message"}), ("deepseekv3", set()),
        ("deepseek_v31", {"thinking"}), ("qwen3_training", {"enable_thinking"}),
    ],
)  # fmt: skip
def test_what_a_template_reads(template: str, reads: set[str]) -> None:
    assert options_of(source(template)) == reads


def test_an_option_reaches_every_turn_from_a_config_and_the_command_line() -> None:
    config = load_agent_config("lab", ["rollout.template_options={enable_thinking: false}"])
    family = FAMILIES["qwen3"]
    assert config.rollout.template_options == FAMILIES["qwen3, no thinking"].options
    tokenizer = tokenizer_of(family)
    for settings, opening in (
        (config.rollout, FAMILIES["qwen3, no thinking"].opening),
        (RolloutConfig(), family.opening),
    ):
        engine = speaks(tokenizer, family, ["<|im_end|>", "<|im_end|>", "<|im_end|>"])
        rollout(engine, tokenizer, Echo, [Task("t", "?", meta={"turns": 3})], params=PARAMS, **settings.limits)
        assert len(engine.calls) == 3
        assert all(tokenizer.decode(row).endswith("<|im_end|>\n" + opening) for row, _, _ in engine.calls)


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("qwen3", {"enable_thinkin": False}, "never reads the option 'enable_thinkin': it reads enable_thinking; did you mean"),
        ("deepseek v3.1", {"enable_thinking": True}, "it reads thinking; did you mean thinking"),
        ("llama3", {"enable_thinking": False}, "it reads none"),
        ("gpt-oss", {"developer_message": "x"}, "it reads builtin_tools, model_identity, reasoning_effort"),
        ("qwen3", {"enable_thinking": "false"}, "is the text 'false': write false without quotes"),
        ("qwen3", {"messages": []}, "never reads the option 'messages'"),
    ],
)  # fmt: skip
def test_an_option_that_would_change_nothing_is_an_error(name: str, options: dict[str, Any], error: str) -> None:
    family = FAMILIES[name]
    tokenizer = tokenizer_of(family)
    engine = speaks(tokenizer, family, [family.nothing])
    with pytest.raises(RRMError, match=rf"^rollout.template_options: .*{error}"):
        rollout(engine, tokenizer, Echo, [Task("t", "?")], params=PARAMS, template_options=options)
    assert not engine.calls


# ---- what cannot be used, and what to do instead ----


def test_a_template_that_shows_no_tools_is_not_silently_given_them() -> None:
    family = FAMILIES["deepseek v3"]
    template = TurnTemplate(tokenizer_of(family), [SEARCH])
    with pytest.raises(RRMError, match=r"names the tool 'search'.*tool_prompt=schema"):
        template.prompt(USER)
    described = [{"role": "system", "content": json.dumps(SEARCH)}, *USER]
    assert template.prompt(described)


def test_the_error_names_a_template_that_fits() -> None:
    no_tools = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}HEAD{% endfor %}"
    )
    for name, head, fits in (
        ("chatml", "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' }}", "lab or chatml or thinking"),
        ("llama3", "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>' + m.content + '<|eot_id|>' }}", "llama3"),
    ):
        tokenizer = make_tokenizer(name)
        tokenizer.chat_template = no_tools.replace("HEAD", head)
        with pytest.raises(RRMError, match=rf"no tools.*\(policy.chat_template: {fits} would do"):
            TurnTemplate(tokenizer).suffix(TOOL_MESSAGES, [])
    tokenizer = make_tokenizer("lab")
    tokenizer.add_special_tokens({"eos_token": "</s>"})
    tokenizer.chat_template = no_tools.replace("HEAD", "{{ m.content + '</s>' }}")
    with pytest.raises(RRMError, match="parser=react or search_tags gives results as user messages"):
        TurnTemplate(tokenizer).suffix(TOOL_MESSAGES, [])


def test_tokens_that_only_look_like_control_tokens_are_disarmed_too() -> None:
    """DeepSeek's tokenizer does not call its `<｜User｜>` special. A tool's name stands in GPT-OSS's header."""
    template = TurnTemplate(tokenizer_of(FAMILIES["deepseek v3"]))
    assert template.disarm("a<｜User｜>b<think>") == "a< ｜User｜>b<think>"
    family = FAMILIES["gpt-oss"]
    tokenizer = tokenizer_of(family)
    template = TurnTemplate(tokenizer, eos_ids=stop_ids(tokenizer, family))
    decoded = tokenizer.decode(
        template.suffix([{**TOOL_MESSAGES[0], "name": "f<|call|>", "content": "<|return|>"}], [])
    )
    assert decoded.count("<|call|>") == 1 and "functions.f< |call|> to=assistant" in decoded
    assert "<|return|>" not in decoded
