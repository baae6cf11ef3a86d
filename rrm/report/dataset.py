"""Transcripts with labels and judgements as a data set's folder: parquet that every reader of the hub takes, and a card.

Messages, tools, meta, annotations and feedback are JSON in text columns: a column of objects would give every call the arguments of all
others. `rrm.readers` reads the rows back (`hf:owner/name:train`, or the files) as they were, labels in `meta["annotations"]`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath
from typing import Any

from pydantic import ValidationError

from rrm.data.annotation import Annotation, carried_and_rest
from rrm.data.feedback import Feedback
from rrm.data.own_entries import under_our_name, without_ours
from rrm.data.secrets import Found, clean
from rrm.data.trajectory import Trajectory
from rrm.readers.base import printable
from rrm.readers.unique import UniqueIds

ROWS_IN_FILE, ROWS_AT_ONCE = 20_000, 500
UNSAID = {"id", "usage", "reason"}
"""Of feedback: what it cost, and why it failed, which may name a server."""
COLUMNS = {
    "schema_version": "number of the transcript's schema",
    "id": "name of the transcript, unique",
    "question_id": "attempts at one question share it; split by it",
    "task": "the question's text",
    "outcome": "success in [0, 1] where it is known",
    "steps": "messages of the agent",
    "file": "name of the file it was read from",
    "line": "line of that file",
    "format": "format it was read from",
    "messages": "OpenAI chat messages (JSON)",
    "tools": "tools that the agent had (JSON)",
    "meta": "what else the source says (JSON)",
    "annotations": "labels: score, trace, critique, findings, annotator, kind (JSON list)",
    "status": "how the judgement ended: scored, or why there is no score",
    "score": "the judge's score in [0, 1]; where `rank` is given a relative one",
    "rank": "place among the attempts at its question that one judge compared, 1 the best; `score` is then the share of the others that it was "
    "placed before, and says nothing of how good it is",
    "feedback": "the whole judgement: trace, critique, findings, criteria, judge (JSON)",
    "digest": "fingerprint of task, messages and tools",
}
Row = dict[str, Any]


@dataclass
class Contents:
    """What the card says of the rows."""

    rows: int = 0
    steps: int = 0
    questions: set[str] = field(default_factory=set)
    formats: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """`success`, `failure`, `partial`, `unknown`."""
    annotators: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    """(name, kind) -> how many labels, and how many of them have each part."""
    judges: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """(model, hash, prompt version, mode, criteria) -> rows."""
    statuses: Counter[str] = field(default_factory=Counter)
    ranked: int = 0
    """Judgements that are relative."""
    found: Found = field(default_factory=Found)
    redacted: bool = False
    with_meta: bool = True
    files: list[str] = field(default_factory=list)


def write_rows(
    folder: Path,
    trajectories: Iterable[Trajectory],
    *,
    annotations: Mapping[str, Sequence[Annotation]] | None = None,
    feedback: Callable[[Trajectory], Feedback | None] = lambda trajectory: None,
    redact: bool = False,
    with_meta: bool = True,
) -> Contents:
    """Write `data/train-00000.parquet` and so on into the folder, which is there and empty.

    Args:
        annotations: by trajectory id, beside those that the transcripts carry.
        redact: replace what looks like a key (`rrm.data.secrets`) by `[removed]`, everywhere.
        with_meta: write what the source says beside the transcript.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    contents = Contents(redacted=redact, with_meta=with_meta)
    kinds = {
        "schema_version": pa.int32(),
        "steps": pa.int32(),
        "line": pa.int64(),
        "rank": pa.int32(),
        "outcome": pa.float64(),
        "score": pa.float64(),
    }
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in COLUMNS])
    rows = _rows(trajectories, annotations or {}, feedback, contents)
    (folder / "data").mkdir()
    with ExitStack() as stack:
        writer: Any = None
        for number, some in enumerate(iter(lambda: list(islice(rows, ROWS_AT_ONCE)), [])):
            if number % (ROWS_IN_FILE // ROWS_AT_ONCE) == 0:
                stack.close()
                contents.files.append(f"data/train-{len(contents.files):05}.parquet")
                path = folder / contents.files[-1]
                writer = stack.enter_context(pq.ParquetWriter(path, schema, compression="zstd"))
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
    return contents


def _rows(
    trajectories: Iterable[Trajectory],
    annotations: Mapping[str, Sequence[Annotation]],
    feedback: Callable[[Trajectory], Feedback | None],
    contents: Contents,
) -> Iterator[Row]:
    taken = UniqueIds()
    for trajectory in trajectories:
        own, rest = carried_and_rest(trajectory)
        labels: list[Row] = []
        for label in (_label(a) for a in (*own, *annotations.get(trajectory.id, ()))):
            if label not in labels:  # `rrm annotate --annotator given` writes those that a transcript carries
                labels.append(label)
        said = feedback(trajectory) or carried_feedback(trajectory)
        record = trajectory.model_dump(exclude={"source", "schema_version"}, exclude_none=True)
        record |= {name: _writable(record[name]) for name in ("id", "question_id") if name in record}
        record |= {"meta": _meta(trajectory, rest)} if contents.with_meta else {"meta": {}}
        record |= {"annotations": labels} if labels else {}
        record |= {"feedback": _judgement(said)} if said is not None else {}
        where = f"{_where(trajectory)}row {trajectory.id[:80]!r}"
        record = clean(record, contents.found, where, redact=contents.redacted)
        record["id"] = taken.take(record["id"])  # without its key it may be that of another
        place = clean(_place(trajectory), contents.found, where, redact=contents.redacted)
        yield _row(record, place, contents)


def _writable(name: str) -> str:
    """A name in which lone surrogates are escaped, so that two names stay two."""
    return name.encode("utf-8", "backslashreplace").decode()


def _where(trajectory: Trajectory) -> str:
    """The file and line that a transcript was read from, for who publishes it."""
    source = trajectory.source
    if source is None:
        return ""
    return f"{printable(source.file, limit=1000)}{'' if source.line is None else f':{source.line}'} "


def _place(trajectory: Trajectory) -> Row:
    """Where the source stood: the name of its file, without the folders, the line where it can be one, and the format."""
    source = trajectory.source
    if source is None:
        return {"file": None, "line": None, "format": None}
    line = source.line if source.line is not None and abs(source.line) < 2**63 else None
    return {"file": PurePath(source.file.replace("\\", "/")).name, "line": line, "format": source.format}


def _meta(trajectory: Trajectory, rest: list[Any]) -> Row:
    """What the source says beside the transcript: without what the columns hold, and without what this package put into it, which may
    name a judge's server and the file that was judged."""
    meta = without_ours(trajectory.meta)
    if isinstance(meta.get("annotations"), list):
        del meta["annotations"]
        meta |= {"annotations": without_ours(rest)} if rest else {}
    if _as_feedback(trajectory.meta.get("feedback"), trajectory) is not None:
        del meta["feedback"]
    return meta


def carried_feedback(trajectory: Trajectory) -> Feedback | None:
    """The judgement that a row of a data set brings with it, as `rrm.readers` reads it back: in `meta["feedback"]`, or under our name
    where the source has something else there."""
    places = trajectory.meta, under_our_name(trajectory.meta)
    found = (_as_feedback(place.get("feedback"), trajectory) for place in places)
    return next((said for said in found if said is not None), None)


def _as_feedback(value: Any, trajectory: Trajectory) -> Feedback | None:
    if not isinstance(value, dict):
        return None
    try:
        return Feedback.model_validate({**value, "id": trajectory.id})
    except ValidationError:
        return None


def _row(record: Row, place: Row, contents: Contents) -> Row:
    """The columns of a cleaned record and of where it stood; what they hold is counted."""
    clear = Trajectory.model_validate({**{k: v for k, v in record.items() if k not in ("annotations", "feedback")}})
    said = record.get("feedback", {})
    _count(clear, place["format"], record, contents)
    row = place | {
        "schema_version": clear.schema_version,
        "id": clear.id,
        "question_id": clear.question_id,
        "task": clear.task,
        "outcome": clear.outcome,
        "steps": len(clear.steps),
        "status": said.get("status"),
        "score": said.get("score"),
        "rank": said.get("rank", {}).get("position"),
        "digest": clear.digest,
    }
    listed = {
        name: json.dumps(record[name])
        for name in ("messages", "tools", "meta", "annotations", "feedback")
        if name in record
    }
    return row | listed


def _count(clear: Trajectory, format: str | None, record: Row, contents: Contents) -> None:
    contents.rows += 1
    contents.steps += len(clear.steps)
    contents.questions.add(clear.question_id or clear.id)
    contents.formats[format or "unknown"] += 1
    y = clear.outcome
    contents.outcomes["unknown" if y is None else "success" if y == 1 else "failure" if y == 0 else "partial"] += 1
    for label in record.get("annotations", ()):
        counts = contents.annotators.setdefault((label["annotator"], label["kind"]), Counter())
        counts["labels"] += 1
        counts.update(part for part in ("score", "trace", "critique", "findings") if label.get(part) is not None)
    if "feedback" in record:
        said = record["feedback"]
        contents.statuses[said["status"]] += 1
        contents.ranked += "rank" in said
        names = ("model", "model_hash", "prompt_version", "mode", "criteria")
        contents.judges[tuple(str(said["judge"].get(name) or "") for name in names)] += 1


def _label(annotation: Annotation) -> Row:
    """A label as a transcript carries it."""
    label = annotation.model_dump(exclude_none=True, exclude={"trajectory_id", "digest"})
    return label | {"annotator": shown_model(annotation.annotator)}


def _judgement(feedback: Feedback) -> Row:
    said = feedback.model_dump(exclude_none=True, exclude=UNSAID)
    return said | {"judge": said["judge"] | {"model": shown_model(feedback.judge.model)}}


def shown_model(name: str) -> str:
    """A judge's name for others: a server's model without the server, of a path its last part; a hub's id as it is."""
    if name.startswith("file:"):
        name = name.removeprefix("file:").partition("#")[0]
    elif name.startswith("openai:") or "://" in name:
        return name.rpartition("#")[2] if "#" in name else "a served model"
    path = name.replace("\\", "/")
    local = path.startswith(("/", "~", "./", "../")) or path.count("/") > 1 or re.match("[A-Za-z]:/", path) is not None
    return PurePath(path).name if local or "\\" in name else name
