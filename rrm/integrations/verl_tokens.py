"""A rollout's tokens as text, in which only special tokens look like special tokens.

A template's marks spelled in ordinary tokens are neutralised. With the response mask, sampled tokens (1) cannot form a
tool's turn, nor others (0) the model's. Without it, a template may turn marks in a tool's text into special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from rrm.prompt.neutralise import neutralise_control

BEGINS = ("<|im_start|>", "<|start_header_id|>")
ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>")
MARKS = (*BEGINS, "<|end_header_id|>", *ENDS)


def reply_text(tokenizer: Any, ids: Sequence[int], mask: Sequence[int] | None = None) -> str:
    """Return the reply's text, for `rrm.readers.chat_text.reply_turns`.

    Args:
        ids: (T,) of the response, without padding.
        mask: (T,) 1 where the model sampled the token; None: unknown.
    """
    vocabulary = tokenizer.get_vocab()
    marks = {vocabulary[mark]: mark for mark in MARKS if mark in vocabulary}
    if not marks:  # its template marks turns with plain text
        return tokenizer.decode(list(ids), skip_special_tokens=False)
    return "".join(_disarmed(_pieces(tokenizer, ids, mask, marks)))


Piece = tuple[str, bool, bool | None]  # text, is_mark, sampled by the model


def _pieces(tokenizer: Any, ids: Sequence[int], mask: Sequence[int] | None, marks: dict[int, str]) -> list[Piece]:
    """Split into marks and the text between them, also where the mask changes."""
    pieces: list[Piece] = []
    run: list[int] = []

    def end(sampled: bool | None) -> None:
        if run:
            pieces.append((tokenizer.decode(run, skip_special_tokens=False), False, sampled))
            run.clear()

    before: bool | None = None
    for position, token in enumerate(ids):
        sampled = None if mask is None else bool(mask[position])
        if token in marks or sampled != before:
            end(before)
        if token in marks:
            pieces.append((marks[token], True, sampled))
        else:
            run.append(int(token))
        before = sampled
    end(before)
    return pieces


def _disarmed(pieces: list[Piece]) -> list[str]:
    out: list[str] = []
    for position, (text, is_mark, sampled) in enumerate(pieces):
        if is_mark and (text not in BEGINS or sampled is None or _may_begin(pieces, position)):
            out.append(text)
        else:
            out.append(neutralise_control(text, ("tool_response",) if sampled else ()))
    return out


def _may_begin(pieces: list[Piece], position: int) -> bool:
    """Return whether a turn may begin here: not sampled, and its role fits its tokens' origin."""
    if pieces[position][2]:
        return False
    turn = list(takewhile(lambda piece: piece[0] not in (*BEGINS, *ENDS) or not piece[1], pieces[position + 1 :]))
    text = "".join(content for content, *_ in turn).replace("<|end_header_id|>", "\n", 1)
    role, _, content = text.partition("\n")
    return not content.strip() or any(sampled for *_, sampled in turn) == (role == "assistant")
