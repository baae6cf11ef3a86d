"""A blind sheet: two judges' words on the same transcripts in one page, and its key in another file.

Sides are drawn for each transcript, half of them each way. The page holds neither the judges' names nor the seed.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rrm.data.feedback import Feedback
from rrm.data.output import file_when_whole
from rrm.data.printing import printable
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.report.images import Room
from rrm.report.page import embed_json, page_parts
from rrm.report.rows import to_feedback, transcript

VERSION = 2
Side = Literal["left", "right"]
SCRIPTS = ("dom.js", "message.js")
OWN_SCRIPTS = ("sha256.js", "sheet.js")
FIELDS = 12


class KeyItem(BaseModel):
    model_config = ConfigDict(extra="forbid")

    trajectory_id: str
    digest: str
    question: str
    category: str | None = None
    a: Side
    """The first judge's side."""


class Key(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1, 2] = VERSION
    """1 had no checksum."""
    sheet: str
    """Hash of the sheet's content, named in answers."""
    seed: int
    a: str
    b: str
    items: dict[str, KeyItem]
    left_out: dict[str, int]
    """Transcripts that are not on the sheet, by reason."""
    checksum: str = ""


def checksum(value: Any) -> str:
    """Compute SHA-256 of a value's JSON (ASCII, sorted, no spaces), as sha256.js does."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def sum_of_key(key: Key) -> str:
    """Compute the `checksum` that a key should have."""
    return checksum(key.model_dump(exclude={"checksum"}))


Pair = tuple[Trajectory, Mapping[str, Any], Mapping[str, Any] | None]


def make_sheet(
    pairs: Iterable[Pair],
    names: tuple[str, str],
    *,
    seed: int,
    items: int | None = None,
    category: str | None = None,
    scores: bool = False,
) -> tuple[list[dict[str, Any]], Key]:
    """Make the sheet's items, in order, and the key; `names` are the judges'.

    Args:
        items: at most so many transcripts, drawn by seed.
        category: dotted path in `meta` by which figures are split.

    Raises:
        RRMError: there is nothing to compare; no transcript has the category; or a row is not one of `rrm score`.
    """
    left_out, compared = Counter[str](), list[tuple[Trajectory, dict[str, Any], dict[str, Any]]]()
    for trajectory, row_a, row_b in pairs:
        if row_b is None:
            left_out["judged by one alone"] += 1
            continue
        a, b = (said(to_feedback(dict(row)), scores) for row in (row_a, row_b))
        if not a or not b:
            left_out["one of them says nothing"] += 1
        elif a == b:
            left_out["both say the same"] += 1
        else:
            compared.append((trajectory, a, b))
    if not compared:
        why = ", ".join(f"{reason}: {count}" for reason, count in left_out.items())
        raise RRMError(f"no transcript has two critiques or findings to compare ({why or 'there are no rows'})")
    rng = random.Random(seed)
    rng.shuffle(compared)
    if items is not None and len(compared) > items:
        left_out["not drawn"] = len(compared) - items
        compared = compared[:items]
    if category is not None and all(_category(trajectory, category) is None for trajectory, _, _ in compared):
        raise RRMError(_no_category(category, [trajectory for trajectory, _, _ in compared]))
    sides: list[Side] = ["left", "right"] * (len(compared) // 2 + 1)
    sides = sides[: len(compared)] if rng.random() < 0.5 else sides[1 : len(compared) + 1]
    rng.shuffle(sides)
    entries, room, key_items = list[dict[str, Any]](), Room(), dict[str, KeyItem]()
    for number, ((trajectory, a, b), side) in enumerate(zip(compared, sides, strict=True), 1):
        left, right = (a, b) if side == "left" else (b, a)
        entries.append({"n": number, "view": transcript(trajectory, room), "left": left, "right": right})
        key_items[str(number)] = KeyItem(
            trajectory_id=trajectory.own_id,
            digest=trajectory.digest,
            question=question_of(trajectory),
            category=_category(trajectory, category),
            a=side,
        )
    text = json.dumps(entries, ensure_ascii=True, sort_keys=True)
    sheet = hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
    key = Key(sheet=sheet, seed=seed, a=names[0], b=names[1], items=key_items, left_out=dict(left_out))
    return entries, key.model_copy(update={"checksum": sum_of_key(key)})


def said(feedback: Feedback, scores: bool) -> dict[str, Any]:
    """Return a side's content: the critique, else the findings; empty where there is neither."""
    critique = (feedback.critique or "").strip()
    findings = [[f.step, f.verdict, f.text] for f in feedback.findings]
    side: dict[str, Any] = {"critique": critique} if critique else {"findings": findings} if findings else {}
    if scores and feedback.score is not None:
        side["score"] = round(feedback.score, 2)
    return side


def write_sheet(entries: list[dict[str, Any]], key: Key, page: Path, key_path: Path) -> None:
    """Write the key, then the page, each whole or not at all."""
    template, parts = page_parts("rrm.annotate", "sheet.html.jinja", SCRIPTS, OWN_SCRIPTS, "sheet.css")
    with file_when_whole(key_path) as file:
        file.write(json.dumps(key.model_dump(), indent=1) + "\n")  # lone surrogates and all
    with file_when_whole(page) as file:
        file.writelines(
            template.generate(
                known=embed_json({"sheet": key.sheet, "items": len(entries)}),
                items=(embed_json(item) for item in entries),
                **parts,
            )
        )


def _category(trajectory: Trajectory, path: str | None) -> str | None:
    value: Any = trajectory.meta
    for name in path.split(".") if path else ():
        value = value.get(name) if isinstance(value, dict) else None
    return None if path is None or value is None or isinstance(value, dict | list) else str(value)


def _no_category(path: str, trajectories: Iterable[Trajectory]) -> str:
    names = Counter(name for trajectory in trajectories for name in _fields(trajectory.meta))
    first = sorted(names, key=lambda name: (-names[name], name))[:FIELDS]
    fields = ", ".join(printable(name, 60) for name in first)
    there = f"there are {fields}{', …' if len(names) > FIELDS else ''}" if names else "it holds no text or number"
    return f"--category {path}: no transcript on the sheet has this field in its meta: {there}"


def _fields(meta: Mapping[str, Any], above: str = "", depth: int = 3) -> Iterator[str]:
    """Yield dotted paths of the values in `meta` that `_category` takes."""
    for name, value in meta.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{above}{name}.", depth - 1) if depth > 1 else ()
        elif value is not None and not isinstance(value, list):
            yield above + name
