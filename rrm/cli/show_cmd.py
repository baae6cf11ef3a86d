"""`rrm show`: what a judge reads of a transcript."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from rrm.cli import finish
from rrm.cli.judge_options import JudgeOptions, with_judge_options
from rrm.cli.reading import OUTCOME, mapping_of, read_inputs
from rrm.cli.score_cmd import Modes, chosen_mode
from rrm.errors import RRMError
from rrm.readers.base import printable

if TYPE_CHECKING:
    from rrm.data.feedback import Mode
    from rrm.data.trajectory import Trajectory
    from rrm.judge.prompt_preview import Shown

# options that decide what is read; the others are of a model that runs
READERS = ["model", "settings", "revision", "token", "transcript_tokens", "trust_remote_code", "max_windows"]
READERS += ["context", "max_new_tokens"]


@partial(with_judge_options, only=READERS)
def command(
    runs: str = typer.Argument(..., metavar="RUNS", help="A file or folder of transcripts."),
    id: str | None = typer.Argument(None, metavar="[ID]", help="Which transcript; default: the first."),
    mode: Modes | None = typer.Option(
        None,
        help="What the judge would be asked for. Default: the judge's own, full where it names none.",
        show_default=False,
    ),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
    *,
    judge: JudgeOptions,
) -> None:
    """Print what a judge reads of a transcript: each reading's text, and how much of the whole that is.

    No model is run. A transcript longer than the judge's budget is read in windows by judges of prompt version 2, which are told
    what was found in earlier ones (not shown here); version 1 shows one shortened text. Where text is left out stands " … ", or
    how many steps are not listed.
    """
    from rrm.engines.scripted import ScriptedChatEngine
    from rrm.judge.agent_rrm import AgentRRM
    from rrm.judge.loading import LoadOptions, load_reader
    from rrm.judge.prompt_preview import shown

    if not Path(runs).exists():
        raise RRMError(f"no such file or folder: {runs}")
    settings, prompter = load_reader(judge.model, LoadOptions(**judge.how()))
    trajectory = find(read_inputs([runs], None, format=format, mapping=mapping_of(map), outcome=outcome), id, runs)
    served = settings.engine is not None or (judge.model or "").startswith("openai:")
    reads = AgentRRM(
        ScriptedChatEngine([]),  # not asked
        None if served else prompter,
        settings=settings,
        reader=prompter if served else None,
        max_windows=judge.max_windows,
    )
    judge_mode = cast("Mode", chosen_mode(mode, reads, Modes.full))
    preview = shown(reads, trajectory, judge_mode)
    for number, text in enumerate(preview.texts, 1):
        typer.echo(typer.style(heading(preview, number), bold=True))
        for line in text.splitlines():
            typer.echo(printable(line))
    finish(summary(trajectory, preview))


def find(trajectories: Any, id: str | None, runs: str) -> Trajectory:
    """Return the transcript of an id, or the first; raises `RRMError`, which names some."""
    ids: list[str] = []
    for trajectory in trajectories:
        if id is None or trajectory.id == id:
            return trajectory
        ids.append(trajectory.id)
    if not ids:
        raise RRMError(f"{runs} holds no transcript")
    examples = ", ".join(printable(name) for name in ids[:3])
    raise RRMError(f"{runs} holds no transcript {id!r}; there are {len(ids)}, e.g. {examples}")


def heading(preview: Shown, number: int) -> str:
    """`reading 2 of 5: steps 13 to 20, 1010 tokens`."""
    steps = preview.steps[number - 1]
    which = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}" if steps else "no step"
    return f"--- reading {number} of {len(preview.texts)}: {which}, {preview.tokens[number - 1]} tokens ---"


def summary(trajectory: Trajectory, preview: Shown) -> dict[str, Any]:
    """Return the fields of the JSON line."""
    return {
        "id": trajectory.id,
        "readings": len(preview.texts),
        "prompt_version": preview.version,
        "transcript_tokens": preview.transcript_tokens,
        "coverage": round(preview.coverage, 4),
        "steps": len(trajectory.steps),
        "steps_shown": len({k for steps in preview.steps for k in steps}),
    }
