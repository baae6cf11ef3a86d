"""Templates: suffixes by hand, and a clear error for every template that cannot be extended."""

from __future__ import annotations

import pytest
from rollout_models import SEARCH, make_tokenizer

from reagent.rollout.observations import fit, shorten
from reagent.rollout.templates import LAB_TEMPLATE, TEMPLATES, TurnTemplate, template
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
    """For supervised warm starts: the mask of assistant tokens, calls included, in the form the parser reads."""
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
