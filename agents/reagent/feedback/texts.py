"""What a policy learns by imitation: the judge's texts of its own first attempts.

`trace` and `critique` are the auxiliary loss of Reagent-U: the attempt token by token as it was played, a request, and the
judge's text, of which only the text and its end are learned (arXiv 2601.22154, §4.3; the paper's published code has no such loss).

Per kind the loss is its weight times the mean negative log-likelihood, in nats a token, over the tokens of the optimiser step on
all processes; the temperature is 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from reagent.rollout.batch import microbatches
from reagent.rollout.episode import Episode
from reagent.rollout.templates import TurnTemplate
from rrm.prompt.neutralise import neutralise_control

TextKind = Literal["trace", "critique"]
TEXT_KINDS: tuple[TextKind, ...] = get_args(TextKind)
"""What a judge writes."""
REQUESTS: dict[TextKind, str] = {
    "trace": "What happened in this attempt, step by step?",
    "critique": "What was good and bad about this attempt, step by step?",
}


@dataclass(frozen=True)
class SFTRow:
    """One text to learn."""

    ids: list[int]
    start: int
    """Where the text begins (≥ 1): what stands before is context, what follows is learned."""
    kind: TextKind
    weight: float

    @property
    def tokens(self) -> int:
        """Tokens to learn."""
        return len(self.ids) - self.start


@dataclass(frozen=True)
class TextBatch:
    """A micro-batch: (B, T) each, padded on the right."""

    input_ids: Tensor
    masks: dict[TextKind, Tensor]
    """Per kind, bool: the tokens to learn."""
    weights: Tensor
    """float32: what a token's negative log-likelihood counts in the loss, 0 off the masks."""

    @property
    def mask(self) -> Tensor:
        """The tokens to learn, of any kind."""
        return torch.stack(list(self.masks.values())).any(0)


class TextWriter:
    """Makes rows in the policy's chat template.

    Args:
        tokenizer: the policy's.
        longest: most tokens of a row; longer ones are not made.
        eos_ids: at which its turns end; default the tokenizer's.
        options: further arguments of the chat template, as in the rollouts.
    """

    def __init__(
        self,
        tokenizer: Any,
        longest: int,
        eos_ids: Collection[int] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer, self.longest = tokenizer, longest
        self.template = TurnTemplate(tokenizer, eos_ids=eos_ids, options=options)

    def row(self, episode: Episode, text: str, kind: TextKind, weight: float) -> SFTRow | None:
        """The row that teaches `text` after `episode`; None where it would be too long.

        The text is the judge's, who read what anybody wrote: nothing in it may be a control token.
        """
        context = episode.prompt_ids + [i for t in episode.turns for i in (*t.output_ids, *t.observation_ids)]
        context += self.template.suffix([{"role": "user", "content": REQUESTS[kind]}], episode.turns[-1].output_ids)
        ids = [*context, *self.template.reply(neutralise_control(text.strip()))]
        return SFTRow(ids, len(context), kind, weight) if len(ids) <= self.longest else None


def token_counts(rows: Sequence[SFTRow]) -> Tensor:
    """(2,) float: tokens to learn of each of `TEXT_KINDS`; summed over processes they are the denominators."""
    return torch.tensor([float(sum(r.tokens for r in rows if r.kind == kind)) for kind in TEXT_KINDS])


def split_minibatches(
    rows: Sequence[SFTRow], part: int, parts: int, before: Mapping[TextKind, int] | None = None
) -> list[SFTRow]:
    """The rows of one of `parts` minibatches, each kind dealt evenly.

    Args:
        before: per kind, rows of the processes before this one, which are dealt first.
    """
    return [
        row
        for kind in TEXT_KINDS
        for i, row in enumerate([r for r in rows if r.kind == kind], before[kind] if before else 0)
        if i % parts == part
    ]


def text_batches(rows: Sequence[SFTRow], denominators: Mapping[str, float], budget: int) -> list[TextBatch]:
    """Micro-batches within `budget` tokens, padding included (a longer row stands alone).

    Args:
        denominators: per kind, tokens to learn in the whole optimiser step.
    """
    if not rows:
        return []
    lengths = torch.tensor([len(row.ids) for row in rows])
    found = []
    for index in microbatches(lengths, range(len(rows)), budget):
        shape = len(index), int(lengths[index].max())
        input_ids, weights = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
        masks: dict[TextKind, Tensor] = {kind: torch.zeros(shape, dtype=torch.bool) for kind in TEXT_KINDS}
        for at, row in enumerate(rows[i] for i in index):
            input_ids[at, : len(row.ids)] = torch.tensor(row.ids)
            masks[row.kind][at, row.start : len(row.ids)] = True
            weights[at, row.start : len(row.ids)] = row.weight / denominators[row.kind]
        found.append(TextBatch(input_ids, masks, weights))
    return found
