"""The chat form of a judge's base: its template, its end of a turn, and its special tokens.

| the base has | template | a reply ends with |
|---|---|---|
| `<|im_start|>` and `<|im_end|>` as tokens (Qwen, SmolLM2) | ours, ChatML without an injected system prompt | `<|im_end|>` |
| a chat template of its own (Llama, Gemma, Mistral, Phi) | its own | the special token that stands behind an assistant's turn |
| neither (a base model) | role names in plain text | its end-of-text token |

The template is stored with the judge's tokenizer, so a judge is used in the form it was trained in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError

from rrm.errors import RRMError
from rrm.prompt.neutralise import ROUNDS
from rrm.prompt.rendering import CHAT_TEMPLATE

START, END = "<|im_start|>", "<|im_end|>"
# for bases that were never taught a chat form
PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ':\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + eos_token }}{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}"
)
# for templates that write today's date: a judge's prompt must not change from day to day
DATE = "1 January 2025"
_NO_CLOCK = "{% macro strftime_now(form) %}" + DATE + "{% endmacro %}"
_SAID = "kept apart by this"
_OPEN_THINK = re.compile(r"<think>\s*\Z")
_SWAP = str.maketrans("<>[]", "()()")


def set_template(tokenizer: Any) -> int:
    """Give the tokenizer its judge's chat template; returns the id that ends a reply.

    Raises:
        RRMError: no token ends a turn, and the tokenizer names no end of text.
    """
    if _is_token(tokenizer, START) and _is_token(tokenizer, END):
        tokenizer.chat_template = CHAT_TEMPLATE
        return tokenizer.convert_tokens_to_ids(END)
    if not tokenizer.chat_template:
        first = tokenizer("a")["input_ids"][:1]
        opens = tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id]
        tokenizer.chat_template = ("{{ bos_token }}" if opens else "") + PLAIN_TEMPLATE
    if "strftime_now" in tokenizer.chat_template and not tokenizer.chat_template.startswith(_NO_CLOCK):
        tokenizer.chat_template = _NO_CLOCK + tokenizer.chat_template
    end = _end_of_turn(tokenizer)
    if end is None:
        raise RRMError(
            f"{getattr(tokenizer, 'name_or_path', '') or 'the tokenizer'}: no special token ends an assistant's turn and there "
            "is no eos_token: set tokenizer.eos_token, or choose a base that has one"
        )
    return end


def _is_token(tokenizer: Any, text: str) -> bool:
    ids = tokenizer.encode(text, add_special_tokens=False)
    return len(ids) == 1 and ids[0] != tokenizer.unk_token_id and tokenizer.convert_tokens_to_ids(text) == ids[0]


def _end_of_turn(tokenizer: Any) -> int | None:
    """The first special token behind an assistant's words, else the end of text."""
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _SAID}]
    try:
        text = _render(tokenizer, talk, add_generation_prompt=False)
    except TemplateError:  # it wants another conversation than this: only the end of text is known
        return tokenizer.eos_token_id
    _, separator, after = text.rpartition(_SAID)
    special = set(special_tokens(tokenizer).values())
    endings = [i for i in tokenizer.encode(after, add_special_tokens=False) if i in special] if separator else []
    return endings[0] if endings else tokenizer.eos_token_id


def _render(tokenizer: Any, messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
    return tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=add_generation_prompt, enable_thinking=False
    )


def render(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    """The messages as text that a reply's opening follows, without a template's open reasoning block."""
    text = _render(tokenizer, as_taken(tokenizer, messages), add_generation_prompt=True)
    return _OPEN_THINK.sub("", text)


def as_taken(tokenizer: Any, messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """The messages in the template's roles; without a system role the rubric heads the user's turn."""
    if messages[0]["role"] != "system" or _has_system_role(tokenizer, tokenizer.chat_template):
        return messages
    return [{"role": "user", "content": "\n\n".join(m["content"] for m in messages)}]


@lru_cache(maxsize=16)
def _has_system_role(tokenizer: Any, template: str) -> bool:
    # asked with texts of our own: a transcript may quote the rubric, which then seems to be in the prompt
    probe = [{"role": "system", "content": _SAID}, {"role": "user", "content": "a"}]
    try:
        return _SAID in _render(tokenizer, probe, add_generation_prompt=True)
    except TemplateError:
        return False


def special_tokens(tokenizer: Any) -> dict[str, int]:
    added = {str(token): i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | {str(t): tokenizer.convert_tokens_to_ids(t) for t in tokenizer.all_special_tokens}


class SpecialTokenEscaper:
    """Disarms a tokenizer's own special tokens in data: `[TOOL_CALLS]` becomes `(TOOL_CALLS)`.

    Args:
        also: further texts to disarm, special to the tokenizer or not, such as a sign that a processor looks for.
    """

    def __init__(self, tokenizer: Any, also: Iterable[str] = ()) -> None:
        self._tokenizer = tokenizer
        added = {str(token): i for i, token in tokenizer.added_tokens_decoder.items()}
        tokens = special_tokens(tokenizer)
        also = frozenset(also)
        self._ids = frozenset([*tokens.values(), *(added[t] for t in also & added.keys())])
        longest_first = sorted((t for t in also.union(tokens) if t.strip()), key=len, reverse=True)
        self._tokens = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        # matched after the tokenizer has folded case or width, so the text alone does not show them
        self._folded = any(
            (t.special or str(t) in also) and t.normalized for t in tokenizer.added_tokens_decoder.values()
        )

    def __call__(self, text: str) -> str:
        """Disarm the text; idempotent."""
        swapped = 0
        for _ in range(ROUNDS):  # a swap may leave another token behind
            text, swapped = self._tokens.subn(lambda match: _disarmed(match.group()), text)
            if not swapped:
                break
        if (swapped or self._folded) and self._ids & set(self._tokenizer.encode(text, add_special_tokens=False)):
            text = text.translate(_SWAP)
        return text


def _disarmed(token: str) -> str:
    # without brackets: split by a blank; a single character becomes a dot
    swapped = token.translate(_SWAP)
    if swapped != token:
        return swapped
    return f"{token[0]} {token[1:]}" if len(token) > 1 else "."
