"""A chat engine over a model in this process: messages go through its chat template, as those of any user of it would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rrm.engines.base import Completion, Reply, SamplingParams, TokenEngine
from rrm.engines.sessions import open_session
from rrm.errors import EngineError, TooLong
from rrm.judge.local import TOO_LONG
from rrm.prompt.template import render

OnReply = Callable[[int, Reply | EngineError], None]


class TemplatedEngine:
    """A `ChatEngine` over a `TokenEngine`.

    Args:
        tokenizer: the model's, with the template it is used with (`rrm.prompt.template.set_template`).
    """

    takes_schema = False
    """Nothing holds what it writes to a form."""

    def __init__(self, engine: TokenEngine, tokenizer: Any) -> None:
        self.engine, self.tokenizer = engine, tokenizer

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        """One reply; `TooLong` where prompt and reply exceed the model's positions."""
        (reply,) = self.complete_many([messages], params, [key])
        if isinstance(reply, EngineError):
            raise reply
        return reply

    def complete_many(
        self,
        rows: Sequence[list[dict[str, str]]],
        params: SamplingParams,
        keys: Sequence[str],
        on_reply: OnReply | None = None,
    ) -> list[Reply | EngineError]:
        """A reply, or the error in its place, per row and in the rows' order; `on_reply` hears of each as it ends."""
        if len(set(keys)) != len(rows):
            raise EngineError(f"{len(rows)} rows need as many distinct keys, got {len(set(keys))}")
        found: dict[int, Reply | EngineError] = {}

        def take(row: int, reply: Reply | EngineError) -> None:
            found[row] = reply
            if on_reply is not None:
                on_reply(row, reply)

        room = getattr(self.engine, "max_positions", None)
        prompts = [self.tokenizer.encode(render(self.tokenizer, m), add_special_tokens=False) for m in rows]
        by_key = {key: row for row, key in enumerate(keys)}
        with open_session(self.engine, params) as session:
            for key, row in sorted(by_key.items(), key=lambda pair: len(prompts[pair[1]]), reverse=True):
                if room is not None and len(prompts[row]) + params.max_new_tokens > room:
                    take(row, TooLong(TOO_LONG))
                else:
                    session.submit(key, prompts[row])
            while not session.idle:
                for key, completion in session.step():
                    self.engine.release([key])
                    take(by_key[key], self._reply(completion))
        return [found[row] for row in range(len(rows))]

    def _reply(self, completion: Completion) -> Reply:
        text = self.tokenizer.decode(completion.ids, skip_special_tokens=True)
        return Reply(text, "length" if completion.stop_reason == "length" else "eos")
