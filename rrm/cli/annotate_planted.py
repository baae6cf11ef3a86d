"""`rrm annotate --annotator planted`: copies of successful runs with a mistake each, and their labels."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from rrm.cli import finish
from rrm.cli.paths import ready_outputs
from rrm.cli.reading import ErrorLog, counting, read_inputs, refuse_overlap
from rrm.data.annotation import Annotation
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Planting:
    runs_output: Path | None
    kinds: tuple[str, ...]
    per_run: int
    seed: int
    changes_state: tuple[str, ...]


def write(
    inputs: list[str], output: Path, planting: Planting, reading: dict[str, Any], *, strict: bool, overwrite: bool
) -> None:
    """Read all runs, plant, and append what the two files do not hold yet.

    Raises:
        ConfigError: no `--runs-output`, or one that is an input or the output; an unknown kind or tool.
        RRMError: no run succeeded; a file of other settings or other runs.
    """
    from rrm.annotate import own_runs
    from rrm.annotate.output import LabelledDigests
    from rrm.data.output import RowFile

    runs_output = _checked(planting.runs_output, output, inputs)
    kinds, left_out = own_runs.chosen_kinds(planting.kinds, planting.changes_state)
    counts, planted = Counter[str](), Counter[str]()
    with ErrorLog(output) as errors:
        runs = own_runs.succeeded(counting(read_inputs(inputs, errors, strict=strict, **reading), "reading"), counts)
        own_runs.check_tools(runs, planting.changes_state)
        if left_out:
            log.warning(
                "%s are left out: --changes-state TOOL,… says which tools change something", ", ".join(left_out)
            )
        draws = (kinds, planting.per_run, planting.seed, planting.changes_state)
        made_by = {"annotator": "planted", "kinds": kinds, "per_run": planting.per_run, "seed": planting.seed}
        made_by |= {"changes_state": sorted(planting.changes_state), "runs": _digest(runs)}
        with (
            RowFile.open(runs_output, made_by, overwrite=overwrite) as copies,
            RowFile.open(output, made_by, overwrite=overwrite) as labels,
        ):
            there = {Trajectory.model_validate(row).digest for _, row in copies.rows()}
            labelled, by_digest = LabelledDigests(labels), dict[str, Annotation]()

            def made() -> Iterator[Trajectory]:
                for copy, label in own_runs.planted_copies(runs, *draws, counts=planted):
                    by_digest[copy.digest] = label
                    yield copy

            for copy in labelled.unlabelled(made()):
                if copy.digest not in there:  # a killed run may have written the copy and not its label
                    copies.append([copy.model_dump(exclude_none=True)])
                labelled.append([by_digest.pop(copy.digest)])
    without_place = planted.pop("without_place")
    finish(
        {
            "command": "annotate",
            "annotator": "planted",
            "output": str(output),
            "runs_output": str(runs_output),
            "transcripts": counts["transcripts"],
            "succeeded": counts["succeeded"],
            "repeated": counts["repeated"] + labelled.repeated,
            "annotations": labelled.written,
            "resumed": labelled.resumed,
            "without_place": without_place,
            "kinds": dict(sorted(planted.items())),
            "kinds_left_out": left_out,
            "unreadable": errors.count,
            "errors": errors.written_to,
        }
    )
    nothing = not labelled.written and not labelled.resumed
    if nothing:
        log.error("there is no annotation: no place for these kinds in %d runs that succeeded", len(runs))
    if errors.count or nothing:
        raise typer.Exit(1)


def _checked(runs_output: Path | None, output: Path, inputs: list[str]) -> Path:
    if runs_output is None:
        raise ConfigError("--annotator planted needs --runs-output RUNS.jsonl: the copies that the labels are of")
    refuse_overlap(inputs, runs_output)
    if runs_output.resolve() == output.resolve():
        raise ConfigError(f"--runs-output and -o are one file, {output}: name two")
    ready_outputs(runs_output)
    return runs_output


def _digest(runs: list[Trajectory]) -> str:
    """Hash all runs: a mistake planted in one is drawn from the others too."""
    return hashlib.sha256("".join(sorted(run.digest for run in runs)).encode()).hexdigest()[:16]
