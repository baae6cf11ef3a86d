"""What a judge reads of a transcript, as text: for people who ask why it said what it said."""

from __future__ import annotations

from dataclasses import dataclass

from rrm.data.feedback import Mode
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.rendering import CharacterTokenizer


@dataclass(frozen=True)
class Shown:
    """The readings of a transcript, without rubric and template."""

    version: str
    texts: list[str]
    tokens: list[int]
    """Of each text."""
    steps: list[tuple[int, ...]]
    """That each text shows."""
    transcript_tokens: int
    """Of the whole transcript."""
    coverage: float
    """Share of the transcript's tokens that the readings show."""


def shown(judge: AgentRRM, trajectory: Trajectory, mode: Mode) -> Shown:
    """What a judge reads in a mode; its engine is not asked, so nothing is told of what it found.

    Raises:
        RRMError: the judge cannot be asked for the mode.
    """
    judge.abilities.check(mode)
    prompter = judge.prompter or judge.reader
    # without the judge's own tokenizer a token counts as four characters
    scale = getattr(CharacterTokenizer() if prompter is None else prompter.tokenizer, "ids_a_token", 1)
    plan, readings = judge.readings(trajectory, mode)
    return Shown(
        judge.prompt_version,
        [r.text for r in readings],
        [len(r.ids) // scale for r in readings],
        [r.steps for r in readings],
        plan.transcript_tokens // scale,
        plan.coverage,
    )
