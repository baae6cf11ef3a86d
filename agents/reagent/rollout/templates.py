"""Chat templates, extended token by token: an episode is never rendered again (DESIGN §3).

A rollout renders its prompt once. What follows a turn (its end, the observations, the next turn's opening) is the difference of two
renderings of a dummy conversation, whose assistant message is a marker. So templates that rewrite earlier turns when rendered again (Qwen3's
drops their thinking) cannot touch sampled tokens.

Families end turns in unlike ways, read off the renderings: by one token (ChatML, Llama 3, DeepSeek); by another one in an earlier turn than
in the last (GPT-OSS writes `<|end|>` where the policy said `<|return|>`); by the next message's opening, at which the engine stops (GLM)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reagent.rollout.template_options import options_problem
from rrm.errors import ConfigError, RRMError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = Sequence[Mapping[str, Any]]

_ASKED, _MARK = "qzxjvka", "qzxjvkw"
"""The dummies' words. No space (templates trim), no tag, nothing a template looks for."""
_USER: dict[str, Any] = {"role": "user", "content": _ASKED}
_OBSERVATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [{"role": "user", "content": "qzxjvkb"}],
    "tool": [
        {"role": "tool", "content": text, "name": "tool", "tool_call_id": "call_00001"}
        for text in ("qzxjvkc", "qzxjvkd")
    ],
}
_CONTROL = re.compile(
    r"<[|｜][^<>]*[|｜]>"
)  # DeepSeek's tokenizer does not call its control token `<｜User｜>` special
_OPENED = re.compile(r"<think>\s*\Z")
_LAST = 16  # tokens at a prompt's end that may hold `<think>` and a newline, letter by letter


@dataclass(frozen=True)
class AppendStyle:
    """The way a template appends messages of a role to an assistant's turn."""

    end: tuple[int, ...]
    """The end it writes behind that turn; empty where the next message's opening is the end."""
    after_a_call: bool  # it appends them only behind a message with tool calls (GPT-OSS)


class TurnTemplate:
    """A tokenizer's chat template as a prompt and suffixes.

    Args:
        tokenizer: with a `chat_template`.
        tools: JSON schemas for the template's `tools`; None where the messages describe them.
        eos_ids: the ids at which the engine ends a turn; default the tokenizer's eos.
        options: further arguments of the template (`{"enable_thinking": False}`).

    Raises:
        RRMError: no template, one that changes earlier text when messages are appended or ends a turn with another token than the
            engine, or an option that it never reads.
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
            raise RRMError(
                "the tokenizer has no chat template: set tokenizer.chat_template, or name one of "
                f"reagent.rollout.templates ({', '.join(TEMPLATES)})"
            )
        self.tokenizer, self.tools, self.options = tokenizer, tools or None, dict(options or {})
        own = tokenizer.eos_token_id
        self.eos_ids = frozenset(eos_ids if eos_ids is not None else [own] if isinstance(own, int) else [])
        control = {i: str(t) for i, t in tokenizer.added_tokens_decoder.items() if t.special or _CONTROL.match(str(t))}
        self._control_ids = frozenset(control) | {*tokenizer.all_special_ids}
        self._special = _any_of({*control.values(), *tokenizer.all_special_tokens})
        self._stops = _any_of(map(str, tokenizer.convert_ids_to_tokens(sorted(self.eos_ids))))
        source = self._source()
        self._refused: dict[str, str] = {}
        self._ways: dict[str, AppendStyle] = {}
        for role in _OBSERVATIONS:
            style = self._way(role)
            if isinstance(style, AppendStyle):
                self._ways[role] = style
            else:
                self._refused[role] = style
        if not self._ways:
            raise RRMError(
                f"this chat template cannot be extended turn by turn: {self._refused['user']}{self._advice()}"
            )
        named = {i for i in self.eos_ids if str(tokenizer.convert_ids_to_tokens(i)) in source}
        self.end_ids = frozenset(named | {way.end[-1] for way in self._ways.values() if way.end} & self.eos_ids)
        """The engine's ends that this template knows: a turn that ends with another one lacks its end."""
        self.end_id, self._lead = self._reply()

    def prompt(self, messages: Messages) -> list[int]:
        """Ids of the messages, tools, and the first turn's opening.
        Raises RRMError: messages the template refuses, or tools that nothing in the prompt names."""
        import jinja2

        try:
            text = self._render(self._disarmed(messages))
        except (jinja2.TemplateError, TypeError) as error:
            roles = [message.get("role") for message in messages]
            raise RRMError(f"the chat template cannot render messages of the roles {roles}: {error}") from error
        names = [str(tool.get("function", tool).get("name")) for tool in self.tools or ()]
        missing = [name for name in names if name not in text]
        if missing:
            raise RRMError(
                f"nothing in the prompt names the tool {missing[0]!r}: this chat template does not show tools; let the "
                "messages describe them (environment.options.tool_prompt=schema or brief)"
            )
        return self._encode(text)

    def suffix(self, observations: Messages, output_ids: Sequence[int]) -> list[int]:
        """Ids that follow a turn: its end (unless the policy wrote it), the observations, the next opening.
        A turn that ends with another token (a user's `<|user|>` in front of a tool's result) keeps it, and the whole suffix follows. Raises
        RRMError: an observation of a role the template cannot append. `output_ids`: the turn as it was sampled."""
        roles = [str(message.get("role")) for message in observations] or [*self._ways][:1]
        for role in roles:
            if role in self._refused:
                raise RRMError(
                    f"this chat template cannot append a {role} message: {self._refused[role]}{self._advice(role)}"
                )
        way = next((self._ways[r] for r in roles if r in self._ways), next(iter(self._ways.values())))
        messages = self._disarmed(observations)
        after_a_call = way.after_a_call and bool(messages)
        ids = self._encode(self._tail(self._render([*self._dummy(after_a_call, messages), *messages]), after_a_call))
        if not way.end:
            return ids[1:] if ids[:1] == [*output_ids[-1:]] and ids[0] in self.eos_ids else ids
        return ids[len(way.end) :] if self.ended(output_ids) and (*ids[: len(way.end)],) == way.end else ids

    def ended(self, output_ids: Sequence[int]) -> bool:
        """Tell whether a turn's last token is an end of turn that this template knows."""
        return bool(output_ids) and output_ids[-1] in self.end_ids

    def opened(self, prompt_ids: Sequence[int]) -> str:
        """The text that a prompt opens for the turn to close: `<think>` (DeepSeek-R1's opening), or nothing."""
        match = _OPENED.search(str(self.tokenizer.decode([*prompt_ids[-_LAST:]], skip_special_tokens=False)))
        return match[0] if match else ""

    def reply(self, text: str) -> list[int]:
        """Ids of a turn with this answer alone: the way from an opening to a final answer, the text, the end."""
        return [*self._encode(self._lead), *self._encode(self.disarm(text)), self.end_id]

    # ---- how ----

    def _way(self, role: str) -> AppendStyle | str:
        """The style in which messages of a role are appended, or why they cannot be."""
        style = self._check(role, False)
        if isinstance(style, AppendStyle) or role != "tool" or "user" not in self._ways:
            return style
        again = self._check(role, True)
        return again if isinstance(again, AppendStyle) or again == style else f"{style}; after a tool call: {again}"

    def _check(self, role: str, after_a_call: bool) -> AppendStyle | str:
        import jinja2

        observations = _OBSERVATIONS[role]
        dummy = self._dummy(after_a_call, observations)
        try:
            plain, extended = self._render(dummy, opening=False), self._render([*dummy, *observations])
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            return f"it fails on the roles {[m['role'] for m in (*dummy, *observations)]}: {error}"
        if plain.count(_MARK) != 1 or extended.count(_MARK) != 1:
            return "it does not show an earlier assistant message as it was written"
        behind = self._tail(extended, after_a_call)
        if any(m["content"] not in behind for m in observations):
            return f"it does not show what a {role} message says"
        # What differs between user and assistant is the assistant's own opening (Qwen3 writes empty thoughts there).
        common = os.path.commonprefix([text[: text.index(_MARK)] for text in (plain, extended)])  # noqa: RUF071
        if _ASKED not in common:
            return "appended messages change what stands before the assistant's turn (tools or system text that moves?)"
        end = self._end(self._tail(plain, after_a_call), behind)
        if isinstance(end, str):
            return end
        if self._encode(extended) != self._encode(extended.removesuffix(behind)) + self._encode(behind):
            return "the tokenizer joins a turn's last token with what follows; its end of turn must be a special token"
        return AppendStyle(end, after_a_call)

    def _end(self, plain: str, behind: str) -> tuple[int, ...] | str:
        last, ids = self._encode(plain), self._encode(behind)
        if not plain.strip():
            return () if ids[0] in self.eos_ids else self._unstopped(behind)
        length = self._first_end(last)
        if not length:
            return self._unstopped(plain)
        if last[:length] == ids[:length]:
            return (*ids[:length],)
        # one control token stands for another: `<|return|>`, which ends all, is `<|end|>` once the next `<|start|>` follows
        after = next((i for i in ids[1:] if str(self.tokenizer.decode([i])).strip()), None)
        if length == 1 and {ids[0], after} <= self._control_ids:
            return (ids[0],)
        return (
            "it ends a turn in another way once something follows" if self._first_end(ids) else self._unstopped(behind)
        )

    def _unstopped(self, text: str) -> str:
        names = self.tokenizer.convert_ids_to_tokens(sorted(self.eos_ids))
        return (
            f"it ends a turn by {text[:40]!r}, where the engine stops only at {names}; set tokenizer.eos_token, or add the token "
            "to the model's generation_config.eos_token_id"
        )

    def _reply(self) -> tuple[int, str]:
        """(the token that ends a final answer, the text between a turn's opening and it)."""
        way = next(iter(self._ways.values()))
        plain, opening = self._render(self._dummy(), opening=False), self._render([_USER])
        last = self._encode(self._tail(plain))
        end = (
            last[self._first_end(last) - 1]
            if way.end
            else self._encode(self._tail(self._render([*self._dummy(), _USER])))[0]
        )
        head = plain[: plain.index(_MARK)]
        lead = head.removeprefix(opening) if head.startswith(opening) else ""
        if self._special.search(lead):  # GPT-OSS's channel; not Qwen3's empty thoughts
            return end, lead
        return end, "\n</think>\n\n" if _OPENED.search(opening) else ""

    def _advice(self, role: str = "user") -> str:
        vocabulary = self.tokenizer.get_vocab()
        fitting = [
            name for name, text in TEMPLATES.items()
            if all(token in vocabulary for token in _CONTROL.findall(text)) and self._stops.search(text)
        ]  # fmt: skip
        if fitting:
            return f" (policy.chat_template: {' or '.join(fitting)} would do, by the tokenizer's tokens)"
        parsers = " (environment.options.parser=react or search_tags gives results as user messages)"
        return parsers if role == "tool" and "user" in self._ways else ""

    def _source(self) -> str:
        source = self.tokenizer.get_chat_template(tools=self.tools)  # pyright: ignore[reportArgumentType]
        problem = options_problem(source, self.options) if self.options else None
        if problem:
            raise RRMError(f"rollout.template_options: {problem}")
        return source

    def _dummy(self, after_a_call: bool = False, observations: Messages = ()) -> list[dict[str, Any]]:
        """A user's and an assistant's message; `after_a_call`: with the calls that the observations answer."""
        if not after_a_call:
            return [_USER, {"role": "assistant", "content": _MARK}]
        calls = [
            {"id": m.get("tool_call_id"), "type": "function", "function": {"name": m.get("name"), "arguments": _MARK}}
            for m in observations[:1]
        ]
        return [_USER, {"role": "assistant", "content": "", "tool_calls": calls}]

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

    def _tail(self, text: str, after_a_call: bool = False) -> str:
        """The text behind the marker; after a call, from the turn's end on."""
        tail = text[text.index(_MARK) + len(_MARK) :]
        match = self._stops.search(tail) if after_a_call else None
        return tail[match.start() :] if match else tail

    def _first_end(self, ids: Sequence[int]) -> int:
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

        def name(message: Mapping[str, Any]) -> dict[str, Any]:
            return {"name": self.disarm(message["name"])} if isinstance(message.get("name"), str) else {}

        return [{**m, "content": content(m.get("content")), **name(m)} for m in messages]


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(t) for t in sorted({*tokens}, key=len, reverse=True) if t) or r"(?!)")


def template(name: str) -> str:
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
"""`rrm.prompt.rendering.CHAT_TEMPLATE` with tools in the system message, results in the role `tool`."""

CHATML_TEMPLATE = (
    _SYSTEM + "{%- for message in messages[first:] %}"
    "{%- if message.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ message.content or '' }}"
    + _CALLS
    + "{{ '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"
    + _TOOL_RESPONSES
    + "{%- else %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    + _OPENING
)
"""Template like Qwen2.5's: neighbouring results share one user turn, in `<tool_response>` tags."""

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
"""Template like Qwen3's: assistant turns before the last user message lose their thoughts."""

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
"""Template like Llama 3's: headers, results under the role `ipython`, no newline between turns."""

TEMPLATES = {"lab": LAB_TEMPLATE, "chatml": CHATML_TEMPLATE, "thinking": THINKING_TEMPLATE, "llama3": LLAMA3_TEMPLATE}
"""Names for `policy.chat_template`, where a tokenizer's own template has no tools."""
