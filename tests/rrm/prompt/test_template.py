"""A judge over any base: its own end of a turn and template, no special token out of a transcript."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_server import completion, serve
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from reagent.lab.model import build_lab_tokenizer
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.openai import OpenAIEngine
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.neutralise import neutralise_special
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import CHAT_TEMPLATE, OPENINGS, render_transcript, rubric
from rrm.prompt.template import DATE, render, set_template, special_tokens

HEADERS = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content"
    " + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
TURNS = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<end_of_turn>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
THINKS = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
)
FAMILIES: dict[str, tuple[list[str], dict[str, Any], str]] = {
    # name: special tokens, tokenizer options, what ends a turn
    "headers": (
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", "chat_template": HEADERS},
        "<|eot_id|>",
    ),
    "turns": (
        ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<unk>"],
        {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "chat_template": TURNS},
        "<end_of_turn>",
    ),
    "inst": (
        ["<s>", "</s>", "<unk>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[gMASK]"],
        {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": INST},
        "</s>",
    ),
    "thinks": (
        ["<|end|>", "<|assistant|>", "<|user|>", "<|system|>"],
        {"eos_token": "<|end|>", "chat_template": THINKS},
        "<|end|>",
    ),
    "base": (["<eos>", "gMASK", "※"], {"eos_token": "<eos>"}, "<eos>"),
}


def make(family: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with a family's special tokens and template."""
    special, options, _ = FAMILIES[family]
    vocab = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def run(action: str, result: str = "fine") -> Trajectory:
    turns = zip(("user", "assistant", "tool"), ("a task", action, result), strict=True)
    messages = [Message.model_validate({"role": role, "content": content}) for role, content in turns]
    return Trajectory(id="t", task="a task", messages=messages)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_reply_ends_with_the_bases_own_end_of_turn(family: str) -> None:
    tokenizer = make(family)
    prompter = Prompter(tokenizer, 300)
    assert prompter.eos_token_id == tokenizer.convert_tokens_to_ids(FAMILIES[family][2])
    assert prompter.eos_token_id != tokenizer.unk_token_id
    reloaded = Prompter(tokenizer, 300)  # as a saved judge's tokenizer comes back
    assert reloaded.eos_token_id == prompter.eos_token_id
    assert reloaded.text(run("a"), "full") == prompter.text(run("a"), "full")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bases_own_template_holds_rubric_and_transcript(family: str) -> None:
    prompter = Prompter(make(family), 300)
    text, cut = prompter.text(run("I said so"), "score")
    assert rubric("score") in text and "[step 1]\nagent: I said so\nresult: fine" in text and cut == 0
    assert text.endswith(OPENINGS["score"]) and "<|im_start|>" not in text
    assert not text.removesuffix(OPENINGS["score"]).rstrip().endswith("<think>")  # the mode opens what it wants


@pytest.mark.parametrize("family", FAMILIES)
def test_a_transcript_that_quotes_the_rubric_does_not_stand_for_it(family: str) -> None:
    tokenizer = make(family)
    set_template(tokenizer)
    texts = {"system": "Judge it.", "user": "result: my rules say: Judge it."}
    messages = [{"role": role, "content": text} for role, text in texts.items()]
    assert render(tokenizer, messages).count("Judge it.") == 2


def test_a_base_with_chatml_reads_what_it_always_read() -> None:
    tokenizer = build_lab_tokenizer(["<score>0.1</score> critique think a task fine"], 400)
    text = render_transcript(run("[gMASK] <start_of_image>"), tokenizer, 300).text
    messages = [{"role": "system", "content": rubric("full")}, {"role": "user", "content": text}]
    tokenizer.chat_template = CHAT_TEMPLATE
    expected = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) + "<think>"
    prompter = Prompter(tokenizer, 300, "1")
    assert prompter.text(run("[gMASK] <start_of_image>"), "full")[0] == expected
    assert prompter.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_a_prompt_does_not_change_with_the_day() -> None:
    tokenizer = make("headers")
    today = "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b') %}{% endif %}"
    tokenizer.chat_template = today + "{{ date_string }}|" + HEADERS
    for _ in range(2):  # as the base's, and as the saved judge's
        assert Prompter(tokenizer, 300).text(run("a"), "score")[0].startswith(f"{DATE}|")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_judge_behind_a_server_is_asked_in_the_roles_it_was_trained_in(family: str) -> None:
    tokenizer = make(family)
    prompter = Prompter(tokenizer, 300)
    trained, _ = prompter.text(run("a"), "score")
    with serve(lambda n, body: completion("0.7</score>")) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), settings=JudgeSettings(opening=True), reader=prompter)
        assert judge.judge([run("a")], mode="score")[0].score == 0.7
    (request,) = server.requests
    assert request["chat_template_kwargs"] == {"enable_thinking": False}
    # what the server makes of the request; its template raises, or drops the rubric, where it has no system role
    sent = tokenizer.apply_chat_template(
        request["messages"], tokenize=False, continue_final_message=True, **request["chat_template_kwargs"]
    )
    assert isinstance(sent, str) and rubric("score") in sent
    assert sent.replace("[/INST] <", "[/INST]<") == trained


def test_a_tokenizer_that_can_end_nothing_is_refused() -> None:
    tokenizer = make("base")
    tokenizer.eos_token = None
    with pytest.raises(RRMError, match=r"set tokenizer\.eos_token"):
        Prompter(tokenizer, 300)


def specials_in(prompter: Prompter, trajectory: Trajectory) -> list[int]:
    ids, special = prompter.prompt(trajectory, "full").ids, set(special_tokens(prompter.tokenizer).values())
    return [i for i in ids if i in special]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("where", ["agent", "tool"])
def test_no_special_token_comes_out_of_a_transcript(family: str, where: str) -> None:
    prompter = Prompter(make(family), 2000)
    expected = specials_in(prompter, run("harmless", "harmless"))
    for token in special_tokens(prompter.tokenizer):
        nested = f"a{token}b{token[:1]}{token}{token[1:]}{token[: len(token) // 2]}{token}{token[len(token) // 2 :]}"
        attack = run(nested) if where == "agent" else run("a", nested)
        assert specials_in(prompter, attack) == expected, token


@given(st.data())
def test_no_mixture_of_pieces_makes_a_special_token(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(sorted(FAMILIES)))
    prompter = PROMPTERS.setdefault(family, Prompter(make(family), 2000))
    tokens = sorted(special_tokens(prompter.tokenizer))
    pieces = st.sampled_from([*tokens, *(t[:2] for t in tokens), *(t[2:] for t in tokens), *"<>[] x"])
    text = "".join(data.draw(st.lists(pieces, max_size=12)))
    assert specials_in(prompter, run(text)) == specials_in(prompter, run("x"))


PROMPTERS: dict[str, Prompter] = {}


def test_a_server_is_sent_no_special_token_of_a_common_family() -> None:
    tokens = ["[TOOL_CALLS]", "<start_of_image>", "[gMASK]", "[/INST]", "<|eot_id|>", "<｜User｜>", "[AVAILABLE_TOOLS]"]
    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        AgentRRM(OpenAIEngine(server.url, "m")).judge([run(" ".join(tokens), "[1, 2] <b>bold</b> [INFO] [ERROR]")])
    (request,) = server.requests
    sent = request["messages"][1]["content"]
    assert not [t for t in tokens if t in sent] and "(TOOL_CALLS)" in sent
    assert "[1, 2] <b>bold</b> [INFO] [ERROR]" in sent and "[step 1]\nagent:" in sent
    assert neutralise_special(sent) == sent


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_transcript_that_is_cut_is_not_warned_of(
    version: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = build_lab_tokenizer(["<score>0.1</score> critique think a task fine good bad"], 400)
    text, most = "fine " * 3000, tokenizer.model_max_length
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    run = Trajectory(id="long", task="t", messages=[Message(role="assistant", content=text)])
    prompt = Prompter(tokenizer, 200, version).prompt(run, "score")
    assert prompt.truncated_tokens > most and not caplog.messages
    tokenizer.save_pretrained(str(tmp_path))
    saved = PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    assert saved.model_max_length == most
    saved.encode(text)
    assert "longer than the specified maximum" in caplog.text
