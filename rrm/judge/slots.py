"""Where slots are read: in a model here, or in one behind a server.

A server is asked to complete each prompt as far as a slot by one token (`/completions` with token ids, all slots of a reading in one
request), and what it says of that token are the verdict's probabilities. The prompts begin alike, so a server with a prefix cache
computes each token once. vLLM, llama.cpp and SGLang take token ids; a server of chat completions alone shows no slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rrm.data.usage import Usage
from rrm.engines.base import ChatEngine, Reply, Request, SamplingParams, TokenEngine, converse
from rrm.errors import EngineError
from rrm.prompt.prompter import Prompt

TOP = 20
"""Alternatives a server is asked for at a slot: the most that vLLM gives by default."""
LEAST = -700.0
"""A lower log-probability counts as this: the exponential of both is nothing."""


@dataclass(frozen=True)
class WindowSlots:
    """A reading's slots."""

    p_good: Sequence[float]
    """Of good against bad at each, before calibration."""
    usage: Usage | None = None
    """What a server used for it."""


@dataclass(frozen=True)
class SlotAsk:
    """A reading whose slots are wanted."""

    key: str
    """Names it."""
    prompt: Prompt
    begins: bool
    """Whether it is the first of its transcript."""


Take = Callable[[int, WindowSlots | EngineError], None]
"""Hears of an ask by its number."""


class SlotReader(Protocol):
    """Reads slots."""

    @property
    def engine(self) -> Any:
        """Of the model; `max_positions`, where it has them, bound a prompt."""
        ...

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """Each ask's slots, or why there are none.

        Args:
            choices: the tokens of good and of bad.

        Raises:
            SpendingLimit: the money is spent: some asks that begin a transcript were left out.
        """
        ...


@dataclass(frozen=True)
class LocalSlots:
    """In a model here.

    Args:
        keep: whether the engine keeps each reading's keys and values under the ask's key, until it is told to release them.
    """

    engine: TokenEngine
    keep: bool = False

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """All in few forwards."""
        positions = [[slot.at for slot in ask.prompt.slots] for ask in asks]
        keys = [ask.key for ask in asks] if self.keep else None
        found = self.engine.choice_logprobs([ask.prompt.ids for ask in asks], positions, choices, keys)
        for number, logprobs in enumerate(found):
            take(number, WindowSlots([math.exp(good) for good, _ in logprobs]))


@dataclass(frozen=True)
class ServedSlots:
    """In a model behind a server.

    Args:
        decode: a token's text.
        timeout_s: of a request.
    """

    engine: ChatEngine
    decode: Callable[[int], str]
    timeout_s: float

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """A request a reading, many at once."""
        good, bad = ((f"token_id:{choice}", self.decode(choice)) for choice in choices)

        def answered(request: Request, reply: Reply | EngineError) -> None:
            if isinstance(reply, Reply):
                try:
                    found = [p_good(top, good, bad) for top in reply.top_logprobs or []]
                    take(request.about, WindowSlots(found, reply.usage))
                    return
                except EngineError as error:
                    error.usage = reply.usage
                    reply = error
            take(request.about, reply)

        def request(number: int, ask: SlotAsk) -> Request:
            ids = ask.prompt.ids
            prompts = [ids[: slot.at + 1] for slot in ask.prompt.slots]
            return Request([], ask.key, ask.begins, about=number, prompts=prompts)

        params = SamplingParams(max_new_tokens=1, top_logprobs=TOP, timeout_s=self.timeout_s)
        converse(self.engine, [request(number, ask) for number, ask in enumerate(asks)], params, answered)


def p_good(top: dict[str, float], good: Sequence[str], bad: Sequence[str]) -> float:
    """The probability of good against bad among a token's alternatives; one that is not listed is below all that are.

    Args:
        top: log-probabilities by the token's name.
        good, bad: names that the two may have.

    Raises:
        EngineError: neither is listed, or one is and nothing below it: of the other nothing is known then.
    """
    top = {name: max(value, LEAST) for name, value in top.items()}
    said = [next((top[name] for name in names if name in top), None) for names in (good, bad)]
    if said == [None, None]:
        what = (
            f"of the {len(top)} likeliest tokens at a slot neither is a verdict"
            if top
            else "it says no log-probabilities"
        )
        raise EngineError(f"the server's model reads no slots: {what}; check that it serves this judge's weights")
    least = min(top.values())
    if None in said and least in said:
        raise EngineError(
            f"of the {len(top)} likeliest tokens at a slot the last is one verdict, and the other is not among them, so that nothing is known of "
            f"it: let the server give {TOP} log-probabilities"
        )
    first, second = (least if logprob is None else logprob for logprob in said)
    return 1.0 / (1.0 + math.exp(second - first))
