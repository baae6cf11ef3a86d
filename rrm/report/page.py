"""Write the page: the index first, so that the list is on screen early, then the transcripts.

  head      a Content-Security-Policy: nothing loads, and only this page's own script and style run
  index     JSON, one column per field, parsed at once: ~400 bytes a transcript
  blocks    the transcripts: JSON lines, gzipped in blocks of ~256 KiB, base64; unpacked when opened or searched

Transcripts are hostile data. They enter the page as escaped JSON inside `<script type="application/json">` or as base64, and the
script inserts them with `textContent` alone; the policy's Trusted Types make any other way an exception.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import IO, Any

import jinja2
from markupsafe import Markup

from rrm.data.feedback import Feedback
from rrm.data.output import file_when_whole
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.report.guarded import AuditRows, watched
from rrm.report.images import Room
from rrm.report.rows import detail, index_entry, text_length, to_feedback

BLOCK_CHARS = 256 * 1024
LIST_SCRIPTS = (
    "dom.js",
    "store.js",
    "query.js",
    "list.js",
    "overview.js",
    "agreement.js",
    "comparison.js",
    "failures.js",
)
SCRIPTS = (
    *LIST_SCRIPTS,
    "timeline.js",
    "guard.js",
    "message.js",
    "detail.js",
    "align.js",
    "attempts.js",
    "address.js",
    "filters.js",
    "export.js",
    "app.js",
)
Second = Callable[[Trajectory, dict[str, Any]], dict[str, Any] | None]
TEXTS = {"trace": None, "critique": None, "criteria": None}
"""Fields that are not kept in memory to the end."""
STYLES = ("style.css", "views.css")
COLUMNS = (
    "id",
    "task",
    "status",
    "score",
    "raw",
    "outcome",
    "group",
    "steps",
    "chars",
    "seconds",
    "good",
    "bad",
    "lowest",
    "coverage",
    "outside",
    "weak",
    "unsure",
    "verdict",
    "criteria",
    "note",
)


def write_report(
    pairs: Iterable[tuple[Trajectory, dict[str, Any]]],
    path: str | Path,
    *,
    title: str = "Agent-RRM report",
    second: Second | None = None,
    audit: AuditRows | None = None,
    failures: dict[str, Any] | None = None,
) -> None:
    """Write one self-contained HTML page of judged transcripts, whole or not at all.

    Args:
        pairs: each trajectory with its output row of `rrm score`; read once. Another row raises RRMError.
        second: finds another judge's row on the same text, for comparison (`rrm.report.comparison`).
        audit: a guard's verdicts on the runs (`rrm.report.guarded`).
        failures: figures of `rrm.evaluation.failure_counts`, shown above the list.
    """
    with tempfile.TemporaryFile("w+", encoding="ascii") as spool:
        index = {**_spool_blocks(pairs, spool, second, audit), "failures": failures}
        spool.seek(0)
        with file_when_whole(Path(path)) as page:
            page.writelines(_render(title, index, spool))


def embed_json(value: Any) -> Markup:
    """Return JSON in ASCII without `<`, `>` and `&`, safe inside `<script type="application/json">`."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _spool_blocks(
    pairs: Iterable[tuple[Trajectory, dict[str, Any]]], spool: IO[str], second: Second | None, audit: AuditRows | None
) -> dict[str, Any]:
    """Write the transcripts' blocks to `spool`, a line of base64 each; return the index."""
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    sizes: list[int] = []
    block: list[str] = []
    size, room = 0, Room()
    compared: list[tuple[str, int, float | None, Feedback, Feedback | None]] = []
    relative = False
    for trajectory, row in pairs:
        feedback = to_feedback(row)
        relative |= feedback.rank is not None
        of_other = None if second is None else second(trajectory, row)
        other = None if of_other is None else to_feedback(of_other)
        if second is not None:
            bare = feedback.model_copy(update=TEXTS), other and other.model_copy(update=TEXTS)
            compared.append((question_of(trajectory), len(trajectory.steps), trajectory.outcome, *bare))
        for name, value in index_entry(trajectory, feedback, text_length(trajectory)).items():
            columns[name].append(value)
        guard = None if audit is None else watched(audit.of(trajectory))
        view = detail(trajectory, feedback, row.get("source"), room, other, guard)
        block.append(json.dumps(view, ensure_ascii=True, allow_nan=False))
        size += len(block[-1])
        if size >= BLOCK_CHARS:
            spool.write(_pack(block))
            sizes.append(len(block))
            block, size = [], 0
    if block:
        spool.write(_pack(block))
        sizes.append(len(block))
    questions = list(dict.fromkeys(name for answers in columns["criteria"] for name in answers or ()))
    # by place, not by name: ten thousand rows share one list of names
    columns["criteria"] = [a and [a.get(name) for name in questions] for a in columns["criteria"]]
    codes: dict[str, int] = {}
    columns["group"] = [codes.setdefault(name, len(codes)) for name in columns["group"]]
    index = {**columns, "questions": questions, "blocks": sizes, "relative": relative}
    if second is None:
        return index
    from rrm.report.comparison import ComparedTranscript, compare_judges

    index["second"] = [None if other is None else other.score for *_, other in compared]
    return {**index, "comparison": compare_judges([ComparedTranscript(*fields) for fields in compared])}


def _pack(lines: list[str]) -> str:
    """Pack JSON lines as one line of base64 of gzip (mtime 0: the same rows give the same page)."""
    return base64.b64encode(gzip.compress("\n".join(lines).encode("ascii"), 6, mtime=0)).decode("ascii") + "\n"


def _render(title: str, index: dict[str, Any], spool: IO[str]) -> Iterator[str]:
    template, parts = page_parts("rrm.report", "page.html.jinja", SCRIPTS)
    return template.generate(
        title=title.encode("utf-8", "replace").decode("utf-8"),
        index=embed_json(index),
        **parts,
        blocks=(line.rstrip("\n") for line in spool),
    )


def page_parts(
    room: str, template: str, scripts: Sequence[str], own: Sequence[str] = (), style: str | None = None
) -> tuple[jinja2.Template, dict[str, str]]:
    """Return a page's template, and `style` and `script` (the report's files, then `own`) with hashes."""
    report, here = resources.files("rrm.report"), resources.files(room)
    texts = [report.joinpath(name).read_text("utf-8") for name in scripts]
    texts += [here.joinpath(name).read_text("utf-8") for name in own]
    script = '"use strict";\n(() => {\n' + "\n".join(texts) + "})();\n"
    styles = [report.joinpath(name).read_text("utf-8") for name in STYLES]
    css = "\n".join([*styles, *([here.joinpath(style).read_text("utf-8")] if style else [])])
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    parts = {
        "style": Markup(css),
        "style_hash": csp_hash(css),
        "script": Markup(script),
        "script_hash": csp_hash(script),
    }
    return environment.from_string(here.joinpath(template).read_text("utf-8")), parts


def csp_hash(text: str) -> str:
    """Return the source by which a Content-Security-Policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
