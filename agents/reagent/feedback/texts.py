"""Imitation of the judge's texts on the policy's first attempts: Reagent-U's loss (2601.22154, §4.3).

A row is the attempt as it was played, a request, and the judge's text, of which the text and its end are learned. Per kind the
loss is its weight times the mean negative log-likelihood, in nats a token, over the optimiser step on all processes."""

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
REQUESTS: dict[TextKind, str] = {
    "trace": "What happened in this attempt, step by step?",
    "critique": "What was good and bad about this attempt, step by step?",
}


@dataclass(frozen=True)
class SFTRow:
    ids: list[int]
    start: int
    """The text's first token (≥ 1): what stands before is context."""
    kind: TextKind
    weight: float

    @property
    def tokens(self) -> int:
        return len(self.ids) - self.start


@dataclass(frozen=True)
class TextBatch:
    """A micro-batch: (B, T) each, padded on the right."""

    input_ids: Tensor
    masks: dict[TextKind, Tensor]
    """Per kind, bool: the tokens to learn."""
    weights: Tensor
    """float32: weight of a token's negative log-likelihood, 0 off the masks."""

    @property
    def mask(self) -> Tensor:
        return torch.stack(list(self.masks.values())).any(0)


class TextWriter:
    """Makes rows of at most `longest` tokens in the policy's chat template."""

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
        """The row that teaches `text` after `episode`, without control tokens; None where it is too long."""
        context = episode.prompt_ids + [i for t in episode.turns for i in (*t.output_ids, *t.observation_ids)]
        context += self.template.suffix([{"role": "user", "content": REQUESTS[kind]}], episode.turns[-1].output_ids)
        ids = [*context, *self.template.reply(neutralise_control(text.strip()))]
        return SFTRow(ids, len(context), kind, weight) if len(ids) <= self.longest else None


def token_counts(rows: Sequence[SFTRow]) -> Tensor:
    """(2,) float: tokens to learn of each of `TEXT_KINDS`."""
    return torch.tensor([float(sum(r.tokens for r in rows if r.kind == text_kind)) for text_kind in TEXT_KINDS])


def split_minibatches(
    rows: Sequence[SFTRow], index: int, parts: int, before: Mapping[TextKind, int] | None = None
) -> list[SFTRow]:
    """The rows of minibatch `index`, each kind dealt evenly after `before` rows of earlier processes."""
    return [
        row
        for text_kind in TEXT_KINDS
        for i, row in enumerate([r for r in rows if r.kind == text_kind], before[text_kind] if before else 0)
        if i % parts == index
    ]


def text_batches(rows: Sequence[SFTRow], denominators: Mapping[str, float], budget: int) -> list[TextBatch]:
    """Micro-batches within `budget` tokens, padding included. `denominators`: tokens per kind of the step."""
    if not rows:
        return []
    lengths = torch.tensor([len(row.ids) for row in rows])
    batches = []
    for index in microbatches(lengths, range(len(rows)), budget):
        shape = len(index), int(lengths[index].max())
        input_ids, weights = torch.zeros(shape, dtype=torch.long), torch.zeros(shape)
        masks: dict[TextKind, Tensor] = {text_kind: torch.zeros(shape, dtype=torch.bool) for text_kind in TEXT_KINDS}
        for number, row in enumerate(rows[i] for i in index):
            input_ids[number, : len(row.ids)] = torch.tensor(row.ids)
            masks[row.kind][number, row.start : len(row.ids)] = True
            weights[number, row.start : len(row.ids)] = row.weight / denominators[row.kind]
        batches.append(TextBatch(input_ids, masks, weights))
    return batches
