"""Shortens long observations to head, marker and tail within a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reagent.rollout.templates import TurnTemplate
from rrm.prompt.rendering import head_and_tail, water_fill

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MIN_OBSERVATION = 8  # tokens of observation an episode must have room for before a tool is run
_CHARS = 16  # characters a kept token may stand for; of a longer text only head and tail are tokenised


def shorten(text: str, keep: int, tokenizer: PreTrainedTokenizerBase) -> tuple[str, int]:
    """(head, marker and tail of a text in about `keep` tokens, how many tokens were cut).
    The head gets two thirds. Of a text far longer only both ends are tokenised; the number cut is then an estimate."""
    reach = max(keep, 64) * _CHARS
    ends = text if len(text) <= 2 * reach else text[:reach] + text[-reach:]
    ids = tokenizer.encode(ends, add_special_tokens=False)
    if len(ends) == len(text) and len(ids) <= keep:
        return text, 0
    room = max(keep - 2, 0)
    total = round(len(ids) * len(text) / len(ends))
    return head_and_tail(ids, room, tokenizer), max(total - room, 0)


def fit(
    template: TurnTemplate, observations: Sequence[dict[str, Any]], output_ids: Sequence[int], most: int, room: int
) -> tuple[list[int], list[dict[str, Any]], int]:
    """The suffix of a turn's observations, cut to fit.

    Args:
        output_ids: the turn as it was sampled.
        most: tokens of the observations' contents together; short ones leave their share to long ones.
        room: tokens the whole suffix may take, the template's own included.

    Returns:
        (suffix ids, the observations as the policy sees them, tokens cut). The ids exceed `room` only where the template's own tokens do.
    """
    messages = [dict(message) for message in observations]
    where = [i for i, m in enumerate(messages) if isinstance(m.get("content"), str)]
    texts = [template.disarm(messages[i]["content"]) for i in where]
    sizes = [len(template.tokenizer.encode(t[: most * _CHARS], add_special_tokens=False)) for t in texts]
    budget = most
    while True:
        pieces = [shorten(t, n, template.tokenizer) for t, n in zip(texts, water_fill(sizes, budget), strict=True)]
        for i, (text, _) in zip(where, pieces, strict=True):
            messages[i]["content"] = text
        cut = sum(lost for _, lost in pieces)
        ids = template.suffix(messages, output_ids)
        if len(ids) <= room or budget <= 0:
            return ids, messages, cut
        # What was shown is at most sum(sizes): start from it, so that every round takes something away.
        budget = max(min(budget, sum(sizes)) - (len(ids) - room), 0)
