"""What a judge reads of a transcript, as text: for people who ask why it said what it said."""

from __future__ import annotations

from dataclasses import dataclass

from rrm.prompt.characters import CHARACTERS_PER_TOKEN, CharacterTokenizer
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import CUT_VERSION, Tokenizer, render_transcript, shown_steps
from rrm.prompt.windows import Planner
from rrm.trajectory import Trajectory


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


def shown(
    trajectory: Trajectory,
    transcript_tokens: int,
    version: str,
    prompter: Prompter | None,
    max_windows: int | None = None,
) -> Shown:
    """What a judge of this budget and prompt version reads.

    Args:
        transcript_tokens: the judge's budget.
        prompter: with the judge's tokenizer; without one a token counts as four characters.
        max_windows: that are read at most, where there is no prompter, which knows it.
    """
    tokenizer: Tokenizer = CharacterTokenizer() if prompter is None else prompter.tokenizer
    scale = getattr(tokenizer, "ids_a_token", 1)
    if version == CUT_VERSION:
        rendered = render_transcript(trajectory, tokenizer, transcript_tokens * scale)
        size = len(tokenizer.encode(rendered.text, add_special_tokens=False))
        whole = size + rendered.truncated_tokens
        texts, sizes, steps = [rendered.text], [size], [tuple(sorted(shown_steps(rendered.text)))]
        return Shown(version, texts, [s // scale for s in sizes], steps, whole // scale, size / max(whole, 1))
    characters = transcript_tokens * CHARACTERS_PER_TOKEN
    planner = Planner(tokenizer, characters, max_windows=max_windows) if prompter is None else prompter.planner
    plan = planner.plan(trajectory, slots=False)
    readings = [plan.reading(i) for i in range(len(plan))]
    return Shown(
        version,
        [r.text for r in readings],
        [len(r.ids) // scale for r in readings],
        [r.steps for r in readings],
        plan.transcript_tokens // scale,
        plan.coverage,
    )
