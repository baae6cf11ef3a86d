"""A rollout's tokens as text, in which only what was a special token looks like one.

A mark of the chat template that is spelled out in ordinary tokens is disarmed, so it begins or ends no turn. With verl's response mask what
the model sampled (1) cannot be a tool's turn either, and what it did not sample (0) cannot be the model's. Without the mask one case is
left: a template that tokenises a tool's text with its special tokens makes real ones of those that the text spells.
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
    """The reply, for `rrm.readers.chat_text.reply_turns`.

    Args:
        tokenizer: of transformers.
        ids: (T,) of the response, without padding.
        mask: (T,) 1 where the model sampled the token; None: not known.
    """
    vocabulary = tokenizer.get_vocab()
    marks = {vocabulary[mark]: mark for mark in MARKS if mark in vocabulary}
    if not marks:  # its template marks turns with plain text
        return tokenizer.decode(list(ids), skip_special_tokens=False)
    return "".join(_disarmed(_pieces(tokenizer, ids, mask, marks)))


Piece = tuple[str, bool, bool | None]
"""Text, whether it is a mark, and whether the model sampled it."""


def _pieces(tokenizer: Any, ids: Sequence[int], mask: Sequence[int] | None, marks: dict[int, str]) -> list[Piece]:
    """Marks alone, and what stands between them, parted where the mask changes."""
    pieces: list[Piece] = []
    run: list[int] = []

    def end(sampled: bool | None) -> None:
        if run:
            pieces.append((tokenizer.decode(run, skip_special_tokens=False), False, sampled))
            run.clear()

    before: bool | None = None
    for at, token in enumerate(ids):
        sampled = None if mask is None else bool(mask[at])
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
    for at, (text, is_mark, sampled) in enumerate(pieces):
        if is_mark and (text not in BEGINS or sampled is None or _may_begin(pieces, at)):
            out.append(text)
        else:
            out.append(neutralise_control(text, ("tool_response",) if sampled else ()))
    return out


def _may_begin(pieces: list[Piece], at: int) -> bool:
    """Whether a turn begins here: the model samples no beginning, and of a turn that it does not end the role says who speaks."""
    if pieces[at][2]:
        return False
    turn = list(takewhile(lambda piece: piece[0] not in (*BEGINS, *ENDS) or not piece[1], pieces[at + 1 :]))
    text = "".join(said for said, *_ in turn).replace("<|end_header_id|>", "\n", 1)
    role, _, said = text.partition("\n")
    return not said.strip() or any(sampled for *_, sampled in turn) == (role == "assistant")
