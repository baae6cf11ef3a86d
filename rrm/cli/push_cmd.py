"""`rrm push`: transcripts with labels and judgements to the Hugging Face hub, as a data set with a card."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

import typer

from rrm.cli import finish
from rrm.cli.reading import OUTCOME, counting, mapping_of, refuse_missing, refuse_overlap
from rrm.errors import ConfigError, RRMError
from rrm.report.dataset import Contents

log = logging.getLogger(__name__)


def command(
    inputs: list[str] = typer.Argument(..., metavar="IN…", help="Transcripts: files, folders or - (standard input)."),
    to: str = typer.Option(..., metavar="OWNER/NAME", help="The data set on the hub; made where it is not there yet."),
    licence: str | None = typer.Option(
        None,
        "--license",
        metavar="ID",
        help="Under which the rows may be used, as the hub writes it (cc-by-4.0); never guessed.",
    ),
    annotations: list[Path] = typer.Option([], metavar="ANN.jsonl", help="What `rrm annotate` wrote; repeatable."),
    scores: Path | None = typer.Option(None, metavar="SCORED.jsonl", help="What `rrm score -o` wrote."),
    public: bool = typer.Option(False, "--public", help="Anyone may read it; private by default."),
    redact: bool = typer.Option(False, "--redact", help="Replace what looks like a key or a password by [removed]."),
    keep_found: bool = typer.Option(
        False, "--keep-found", help="Push although something looks like a key or a password."
    ),
    meta: bool = typer.Option(True, help="Push what the sources say beside the transcripts."),
    dry_run: Path | None = typer.Option(
        None, "--dry-run", metavar="FOLDER", help="Write the data set to this new folder, and push nothing."
    ),
    format: str = typer.Option("auto", help="The transcripts' format."),
    map: list[str] = typer.Option([], "--map", metavar="FIELD=PATH", help="Where a field stands in any other JSON."),
    outcome: str | None = OUTCOME,
) -> None:
    """Publish transcripts with their labels and judgements as a data set (parquet, with a card).

    --dry-run refuses what the push would.
    A line that cannot be read stops it, and so does what looks like a key. Paths and servers of this machine are left out. The
    token is the hub's own (HF_TOKEN, or `hf auth login`).
    """
    from rrm.report.dataset_card import card, check_licence

    refuse_missing(inputs)
    for path in (*annotations, *([scores] if scores else [])):
        refuse_missing([str(path)])
    if redact and keep_found:
        raise ConfigError("--redact replaces what --keep-found keeps: choose one")
    if licence is None:
        raise ConfigError(
            "say under which licence others may use the rows: --license cc-by-4.0, or --license unknown where nobody has said"
        )
    named = check_licence(licence)
    _check_name(to)
    if dry_run is not None:
        if dry_run.exists():
            raise ConfigError(f"{dry_run} exists: --dry-run writes a new folder")
        refuse_overlap(inputs, dry_run)
    with tempfile.TemporaryDirectory(prefix="rrm-push-") as made:
        folder = Path(made) / "set"
        folder.mkdir()
        contents = _write(folder, inputs, annotations, scores, redact, meta, format, map, outcome)
        (folder / "README.md").write_text(card(contents, to, named), encoding="utf-8")
        if contents.found.counts and not redact and not keep_found:
            raise RRMError(
                f"nothing was {'pushed' if dry_run is None else 'written'}: {_found(contents)} look like keys or passwords:\n"
                f"{_places(contents)}\nReplace them with --redact, or say --keep-found where they are none"
            )
        address = None
        if dry_run is not None:
            dry_run.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder, dry_run)
        else:
            address = _push(folder, to, public)
    finish(
        {
            "command": "push",
            "to": to,
            "private": not public,
            "license": named,
            "rows": contents.rows,
            "labels": sum(counts["labels"] for counts in contents.annotators.values()),
            "judged": contents.statuses.total(),
            "found": dict(sorted(contents.found.counts.items())),
            "redacted": redact,
            "files": ["README.md", *contents.files],
            "folder": None if dry_run is None else str(dry_run),
            "pushed": address,
        }
    )


def _check_name(name: str) -> None:
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigError(f"--to {name!r}: {str(error).splitlines()[0]}") from error
    if name.count("/") != 1:
        raise ConfigError(f"--to {name!r}: write owner/name")


def _write(
    folder: Path,
    inputs: list[str],
    annotations: list[Path],
    scores: Path | None,
    redact: bool,
    meta: bool,
    format: str,
    map: list[str],
    outcome: str | None,
) -> Contents:
    """Read everything and write the rows."""
    from rrm.data.annotation import match, read_annotations
    from rrm.readers import read
    from rrm.report.dataset import write_rows
    from rrm.scoring.row_matching import ScoredRows

    judged = ScoredRows(scores)
    rows = counting(read(inputs, format=format, mapping=mapping_of(map), outcome=outcome), "reading")
    labels = {}
    if annotations:  # which labels are whose is known when all transcripts are
        rows = list(rows)
        matched = match(rows, read_annotations(*annotations))
        if complaint := matched.complaint():
            raise RRMError(f"nothing was pushed: {complaint}")
        labels = matched.by_id
    contents = write_rows(folder, rows, annotations=labels, feedback=judged.of, redact=redact, with_meta=meta)
    judged.check_whole()
    if strays := judged.rows.strays:
        log.warning(
            "%d of %d rows of %s are of no transcript here, and do not go", len(strays), len(judged.rows), scores
        )
    if not contents.rows:
        raise RRMError("nothing was pushed: there is no transcript in these inputs")
    return contents


def _push(folder: Path, name: str, public: bool) -> str:
    from rrm.engines.hf.hub import upload

    return upload(
        folder,
        name,
        private=not public,
        kind="dataset",
        guard=True,
        replaced="data/train-*.parquet",
        message="Upload transcripts with labels",
    )


def _places(contents: Contents) -> str:
    """A line each; never the key itself."""
    more = contents.found.counts.total() - len(contents.found.places)
    return "\n".join([*(f"  {place}" for place in contents.found.places), *([f"  and {more} more"] if more else [])])


def _found(contents: Contents) -> str:
    return ", ".join(f"{count} × {kind}" for kind, count in sorted(contents.found.counts.items()))
