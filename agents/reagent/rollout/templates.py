"""Chat templates, extended token by token: an episode is never rendered again from its text (DESIGN §3).

A rollout renders its prompt once. What follows a turn (its end, the observations, the next turn's opening) is the
difference of two renderings of a dummy conversation, whose assistant message is a marker: all that stands behind the
marker is the suffix. So templates that rewrite earlier turns when rendered again (Qwen3's drops their thinking) cannot
touch what was sampled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rrm.errors import ConfigError, RRMError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = Sequence[Mapping[str, Any]]

_ASKED, _MARK = "qzxjvka", "qzxjvkw"
"""What the dummy user and the dummy assistant say. No space (templates trim), no tag, nothing a template looks for."""
_DUMMY: list[dict[str, Any]] = [{"role": "user", "content": _ASKED}, {"role": "assistant", "content": _MARK}]
_OBSERVATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [{"role": "user", "content": "qzxjvkb"}],
    "tool": [
        {"role": "tool", "content": text, "name": "tool", "tool_call_id": "call_00001"}
        for text in ("qzxjvkc", "qzxjvkd")
    ],
}


class ChatTemplateError(RRMError):
    """A chat template that cannot be extended turn by turn, or a tokenizer that does not fit its template."""


class TurnTemplate:
    """A tokenizer's chat template as a prompt and suffixes.

    Args:
        tokenizer: with a `chat_template`.
        tools: JSON schemas for the template's `tools`; None where the messages describe them.
        eos_ids: the ids at which the engine ends a turn; default the tokenizer's eos.
        options: further arguments of the template (`{"enable_thinking": False}`).

    Raises:
        ChatTemplateError: no template, one that changes what came before when messages are appended, or one that ends a
            turn with another token than the engine.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        tools: list[dict[str, Any]] | None = None,
        *,
        eos_ids: Collection[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if not tokenizer.chat_template:
            raise ChatTemplateError(
                "the tokenizer has no chat template: set tokenizer.chat_template, or name one of "
                f"reagent.rollout.templates ({', '.join(TEMPLATES)})"
            )
        self.tokenizer, self.tools, self.options = tokenizer, tools or None, dict(options or {})
        own = tokenizer.eos_token_id
        self.eos_ids = frozenset(eos_ids if eos_ids is not None else [own] if isinstance(own, int) else [])
        special = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special} | {
            *tokenizer.all_special_tokens
        }
        self._special = re.compile("|".join(re.escape(t) for t in sorted(special, key=len, reverse=True)) or r"(?!)")
        self._refused: dict[str, str] = {}
        for role, observations in _OBSERVATIONS.items():
            problem = self._check(observations)
            if problem:
                self._refused[role] = problem
        if len(self._refused) == len(_OBSERVATIONS):
            raise ChatTemplateError(f"this chat template cannot be extended turn by turn: {self._refused['user']}")

    def prompt(self, messages: Messages) -> list[int]:
        """Ids of the messages, tools, and the first turn's opening.

        Raises:
            ChatTemplateError: messages the template refuses.
        """
        import jinja2

        try:
            return self._encode(self._render(self._disarmed(messages)))
        except (jinja2.TemplateError, TypeError) as error:
            roles = [message.get("role") for message in messages]
            raise ChatTemplateError(
                f"the chat template cannot render messages of the roles {roles}: {error}"
            ) from error

    def suffix(self, observations: Messages, ended: bool) -> list[int]:
        """Ids that follow a turn: its end (unless the policy wrote it: `ended`), the observations, the next opening.

        Raises:
            ChatTemplateError: an observation of a role the template cannot append.
        """
        for message in observations:
            problem = self._refused.get(str(message.get("role")))
            if problem:
                raise ChatTemplateError(f"this chat template cannot append a {message['role']} message: {problem}")
        ids = self._encode(self._tail(self._render([*_DUMMY, *self._disarmed(observations)])))
        return ids[self._end(ids) :] if ended else ids

    def ended(self, output_ids: Sequence[int]) -> bool:
        """Whether a turn's last token is the end of turn that this template writes."""
        return output_ids[-1] == self.end_id

    # ---- how ----

    def _check(self, observations: Messages) -> str | None:
        """Why observations cannot be appended, or None. Sets `end_id`."""
        import jinja2

        try:
            plain, extended = self._render(_DUMMY, opening=False), self._render([*_DUMMY, *observations])
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            return f"it fails on the roles {[m['role'] for m in (*_DUMMY, *observations)]}: {error}"
        if plain.count(_MARK) != 1 or extended.count(_MARK) != 1:
            return "it does not show an earlier assistant message as it was written"
        if any(m["content"] not in self._tail(extended) for m in observations):
            return f"it does not show what a {observations[0]['role']} message says"
        # What differs between user and assistant is the assistant's own opening (Qwen3 writes empty thoughts there).
        common = os.path.commonprefix([text[: text.index(_MARK)] for text in (plain, extended)])  # noqa: RUF071
        if _ASKED not in common:
            return "appended messages change what stands before the assistant's turn (tools or system text that moves?)"
        tail, ids = self._encode(self._tail(plain)), self._encode(self._tail(extended))
        end = self._end(ids)
        for text in (plain, extended):
            if not self._end(self._encode(self._tail(text))):
                names = self.tokenizer.convert_ids_to_tokens(sorted(self.eos_ids))
                shown = self._tail(text)[:40]
                return f"it ends a turn by {shown!r}, where the engine stops only at {names}; set tokenizer.eos_token"
        if tail[:end] != ids[:end]:
            return "it ends a turn in another way once something follows"
        cut = extended.index(_MARK) + len(_MARK)
        if self._encode(extended) != self._encode(extended[:cut]) + ids:
            return "the tokenizer joins a turn's last token with what follows; its end of turn must be a special token"
        self.end_id = ids[end - 1]
        return None

    def _render(self, messages: Messages, opening: bool = True) -> str:
        return self.tokenizer.apply_chat_template(  # pyright: ignore[reportReturnType]
            [dict(m) for m in messages],
            tools=self.tools,  # pyright: ignore[reportArgumentType]
            add_generation_prompt=opening,
            tokenize=False,
            **self.options,
        )

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    @staticmethod
    def _tail(text: str) -> str:
        return text[text.index(_MARK) + len(_MARK) :]

    def _end(self, ids: Sequence[int]) -> int:
        """Position after the first end of turn; 0 for none."""
        return next((i + 1 for i, token in enumerate(ids) if token in self.eos_ids), 0)

    def disarm(self, text: str) -> str:
        """Text in which nothing is a special token: no tool result, task or critique may open or close a turn."""
        text = text if text.isascii() else text.encode("utf-8", "replace").decode()  # lone surrogates
        return self._special.sub(lambda m: f"{m[0][0]} {m[0][1:]}", text)

    def _disarmed(self, messages: Messages) -> list[dict[str, Any]]:
        def content(value: Any) -> Any:
            if isinstance(value, str):
                return self.disarm(value)
            if isinstance(value, list):
                return [{**p, "text": self.disarm(p["text"])} if isinstance(p.get("text"), str) else p for p in value]
            return "" if value is None else value

        return [{**message, "content": content(message.get("content"))} for message in messages]


def template(name: str) -> str:
    """The chat template of a name.

    Raises:
        ConfigError: no such name.
    """
    if name not in TEMPLATES:
        raise ConfigError(f"no chat template {name!r}; there are {', '.join(TEMPLATES)}")
    return TEMPLATES[name]


_CALLS = (
    "{%- for call in message.tool_calls or [] %}{% set f = call.function if call.function is defined else call %}"
    "{% set a = f.arguments if f.arguments is string else f.arguments | tojson %}"
    "{{ ('\n' if message.content or not loop.first else '') + '<tool_call>' + '{\"name\": ' + (f.name | tojson)"
    " + ', \"arguments\": ' + a + '}</tool_call>' }}{% endfor %}"
)
_SYSTEM = (
    "{%- set first = 1 if messages and messages[0].role == 'system' else 0 %}"
    "{%- if first or tools %}{{ '<|im_start|>system\n' + (messages[0].content if first else '') }}"
    "{%- if tools %}{{ ('\n' if first else '') + 'Tools:' }}{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}"
    "{% endif %}{{ '<|im_end|>\n' }}{% endif %}"
)
_OPENING = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
_TOOL_RESPONSES = (
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.first or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
)

LAB_TEMPLATE = (
    _SYSTEM + "{%- for message in messages[first:] %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.role == 'assistant' %}{% generation %}{{ message.content or '' }}"
    + _CALLS
    + "{{ '<|im_end|>' }}{% endgeneration %}{% else %}{{ message.content + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
    + _OPENING
)
"""`rrm.prompt.rendering.CHAT_TEMPLATE` with tools: their schemas end the system message, a result is a turn of the role `tool`."""

CHATML_TEMPLATE = (
    _SYSTEM + "{%- for message in messages[first:] %}"
    "{%- if message.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ message.content or '' }}"
    + _CALLS
    + "{{ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    + _TOOL_RESPONSES
    + "{%- else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    + _OPENING
)
"""ChatML in the manner of Qwen2.5: neighbouring results share one user turn, each in `<tool_response>` tags."""

THINKING_TEMPLATE = (
    _SYSTEM + "{%- set ns = namespace(query=-1) %}{%- for message in messages %}"
    "{%- if message.role == 'user' %}{% set ns.query = loop.index0 %}{% endif %}{% endfor %}"
    "{%- for message in messages[first:] %}{%- if message.role == 'assistant' %}"
    "{%- set text = message.content or '' %}"
    "{%- if loop.index0 + first < ns.query %}{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{- '<|im_start|>assistant\n' }}{% generation %}{{ text }}"
    + _CALLS
    + "{{ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    + _TOOL_RESPONSES
    + "{%- else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    + _OPENING
)
"""The same in the manner of Qwen3: of assistant turns before the last user message only what follows `</think>` is shown."""

LLAMA3_TEMPLATE = (
    "{%- set first = 1 if messages and messages[0].role == 'system' else 0 %}"
    "{%- macro head(role) %}{{ '<|start_header_id|>' + role + '<|end_header_id|>\n\n' }}{% endmacro %}"
    "{{- '<|begin_of_text|>' }}{% if first or tools %}{{ head('system') + (messages[0].content | trim if first else '') }}"
    "{%- if tools %}{{ ('\n' if first else '') + 'Tools:' }}{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}"
    "{% endif %}{{ '<|eot_id|>' }}{% endif %}"
    "{%- for message in messages[first:] %}{{ head('ipython' if message.role == 'tool' else message.role) }}"
    "{%- if message.role == 'assistant' %}{% generation %}{{ (message.content or '') | trim }}"
    + _CALLS
    + "{{ '<|eot_id|>' }}{% endgeneration %}{% else %}{{ (message.content | trim) + '<|eot_id|>' }}{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}{{ head('assistant') }}{% endif %}"
)
"""In the manner of Llama 3: headers, results under the role `ipython`, no newline between turns."""

TEMPLATES = {"lab": LAB_TEMPLATE, "chatml": CHATML_TEMPLATE, "thinking": THINKING_TEMPLATE, "llama3": LLAMA3_TEMPLATE}
"""Templates to name in a config (`policy.chat_template`), for tokenizers whose own has no tools."""
