"""The text that a judge reads of a transcript."""

from __future__ import annotations

from dataclasses import dataclass

from rrm.data.feedback import Mode
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.rendering import CharacterTokenizer


@dataclass(frozen=True)
class Shown:
    version: str
    texts: list[str]
    tokens: list[int]  # of each text
    steps: list[tuple[int, ...]]  # in each text
    transcript_tokens: int  # of the complete transcript
    coverage: float  # share of the transcript's tokens that the readings show


def shown(judge: AgentRRM, trajectory: Trajectory, mode: Mode) -> Shown:
    """Return a judge's readings before any finding; raises RRMError for an unsupported mode."""
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
