"""An adapter from a config: its mode, its judge, its record in the run folder."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from reagent.feedback.base import Adapter
from reagent.feedback.judging import Judging
from reagent.feedback.modes import (
    CritiqueFeedback,
    NoFeedback,
    PlaceboFeedback,
    ProcessFeedback,
    RetryFeedback,
    ScoreFeedback,
    UnifiedFeedback,
)
from reagent.feedback.settings import ModeName
from reagent.feedback.texts import TextWriter
from reagent.train.config import AgentConfig
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.seeds import derive_seed

MODES: dict[ModeName, type[Adapter]] = {
    "none": NoFeedback,
    "c": CritiqueFeedback,
    "r": ScoreFeedback,
    "u": UnifiedFeedback,
    "process": ProcessFeedback,
    "retry": RetryFeedback,
    "placebo": PlaceboFeedback,
}


def make_feedback(
    config: AgentConfig,
    tokenizer: Any,
    *,
    device: str,
    judge: AgentRRM | None = None,
    folder: Path | None = None,
    rank: int = 0,
    positions: int | None = None,
    eos_ids: Collection[int] | None = None,
) -> Adapter:
    """The adapter of `feedback.mode`. A judge is loaded only where the mode asks one.

    Args:
        tokenizer: the policy's.
        device: for a judge in this process.
        judge: in place of `feedback.judge`.
        folder: the run folder, for `judgements.jsonl`; None keeps no record.
        rank: of this process; each keeps a record of its own.
        positions: most tokens the policy takes, for auxiliary rows.
        eos_ids: at which its turns end, for those rows as well; default the tokenizer's.

    Raises:
        RRMError: the judge cannot be loaded.
    """
    settings = config.feedback
    kind = MODES[settings.mode]
    judging = writer = None
    if kind.asks_judge(settings):
        record = folder / ("judgements.jsonl" if rank == 0 else f"judgements-{rank}.jsonl") if folder else None
        judging = Judging(
            judge or _load(settings.judge, device),
            seed=derive_seed(config.seed, "judge"),
            record=record,
        )
    if kind.writes_texts(settings):
        longest = config.rollout.max_episode_tokens * 2
        writer = TextWriter(tokenizer, min(longest, positions or longest), eos_ids)
    return kind(settings, judging=judging, writer=writer, updates=config.max_updates, seed=config.seed)


def _load(name: str, device: str) -> AgentRRM:
    try:
        return AgentRRM.from_pretrained(name, device=device)
    except RRMError as error:
        raise RRMError(f"feedback.judge={name}: {error}") from error
