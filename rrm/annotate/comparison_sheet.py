"""A blind sheet: what two judges said of the same transcripts, in one page that loads nothing, and its key in a file of its own.

Which side is whose is drawn for each transcript, half of them each way, and stands in the key alone: the page holds neither the judges' names nor the
seed. What a judge writes may still give it away; both sides have one layout, and scores stay out unless they are asked for.
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
"""That are named where no transcript has the category."""


class KeyItem(BaseModel):
    """What the sheet does not say of one transcript."""

    model_config = ConfigDict(extra="forbid")

    trajectory_id: str
    digest: str
    question: str
    category: str | None = None
    a: Side
    """Where the first judge stands."""


class Key(BaseModel):
    """What it takes to read the answers."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1, 2] = VERSION
    """1 had no checksum."""
    sheet: str
    """Hash of what the sheet shows: answers name it."""
    seed: int
    a: str
    """The first judge: file and model."""
    b: str
    items: dict[str, KeyItem]
    """By the number on the sheet."""
    left_out: dict[str, int]
    """Transcripts that are not on the sheet, by reason."""
    checksum: str = ""
    """Of all the rest (`sum_of_key`): a key that was edited is not taken for the one that was written."""


def checksum(value: Any) -> str:
    """SHA-256 of a value's JSON in ASCII, names sorted, no spaces; the sheet's own (sha256.js) gives the same of lists, numbers and text."""
    text = json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def sum_of_key(key: Key) -> str:
    """What its `checksum` is to be."""
    return checksum(key.model_dump(exclude={"checksum"}))


Pair = tuple[Trajectory, Mapping[str, Any], Mapping[str, Any] | None]
"""A transcript with the first judge's row and the second's."""


def make_sheet(
    pairs: Iterable[Pair],
    names: tuple[str, str],
    *,
    seed: int,
    items: int | None = None,
    category: str | None = None,
    scores: bool = False,
) -> tuple[list[dict[str, Any]], Key]:
    """What the sheet shows, in its order, and the key.

    Args:
        names: of the judges, for the key.
        items: at most so many transcripts, drawn by seed.
        category: dotted path in `meta` of what they are counted apart by.
        scores: show the scores as well.

    Raises:
        RRMError: there is nothing to compare, with the reasons; no transcript has the category; or a row is not one of `rrm score`.
    """
    left_out, shown = Counter[str](), list[tuple[Trajectory, dict[str, Any], dict[str, Any]]]()
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
            shown.append((trajectory, a, b))
    if not shown:
        why = ", ".join(f"{reason}: {count}" for reason, count in left_out.items())
        raise RRMError(f"no transcript has two critiques or findings to compare ({why or 'there are no rows'})")
    rng = random.Random(seed)
    rng.shuffle(shown)
    if items is not None and len(shown) > items:
        left_out["not drawn"] = len(shown) - items
        shown = shown[:items]
    if category is not None and all(_category(trajectory, category) is None for trajectory, _, _ in shown):
        raise RRMError(_no_category(category, [trajectory for trajectory, _, _ in shown]))
    sides: list[Side] = ["left", "right"] * (len(shown) // 2 + 1)
    sides = sides[: len(shown)] if rng.random() < 0.5 else sides[1 : len(shown) + 1]
    rng.shuffle(sides)
    made, room, known = list[dict[str, Any]](), Room(), dict[str, KeyItem]()
    for number, ((trajectory, a, b), side) in enumerate(zip(shown, sides, strict=True), 1):
        left, right = (a, b) if side == "left" else (b, a)
        made.append({"n": number, "view": transcript(trajectory, room), "left": left, "right": right})
        known[str(number)] = KeyItem(
            trajectory_id=trajectory.own_id,
            digest=trajectory.digest,
            question=question_of(trajectory),
            category=_category(trajectory, category),
            a=side,
        )
    text = json.dumps(made, ensure_ascii=True, sort_keys=True)
    sheet = hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
    key = Key(sheet=sheet, seed=seed, a=names[0], b=names[1], items=known, left_out=dict(left_out))
    return made, key.model_copy(update={"checksum": sum_of_key(key)})


def said(feedback: Feedback, scores: bool) -> dict[str, Any]:
    """What a side shows of a row: the critique, or where there is none the findings; empty where there is neither."""
    critique = (feedback.critique or "").strip()
    findings = [[f.step, f.verdict, f.text] for f in feedback.findings]
    shown: dict[str, Any] = {"critique": critique} if critique else {"findings": findings} if findings else {}
    if scores and feedback.score is not None:
        shown["score"] = round(feedback.score, 2)
    return shown


def write_sheet(made: list[dict[str, Any]], key: Key, page: Path, key_path: Path) -> None:
    """Write the page and its key, each whole or not at all; the key first, so that no page is without one."""
    template, parts = page_parts("rrm.annotate", "sheet.html.jinja", SCRIPTS, OWN_SCRIPTS, "sheet.css")
    with file_when_whole(key_path) as file:
        file.write(json.dumps(key.model_dump(), indent=1) + "\n")  # lone surrogates and all
    with file_when_whole(page) as file:
        file.writelines(
            template.generate(
                known=embed_json({"sheet": key.sheet, "items": len(made)}),
                items=(embed_json(item) for item in made),
                **parts,
            )
        )


def _category(trajectory: Trajectory, path: str | None) -> str | None:
    value: Any = trajectory.meta
    for name in path.split(".") if path else ():
        value = value.get(name) if isinstance(value, dict) else None
    return None if path is None or value is None or isinstance(value, dict | list) else str(value)


def _no_category(path: str, trajectories: Iterable[Trajectory]) -> str:
    """What is said where no transcript has a category: the fields that could be one."""
    names = Counter(name for trajectory in trajectories for name in _fields(trajectory.meta))
    first = sorted(names, key=lambda name: (-names[name], name))[:FIELDS]
    said = ", ".join(printable(name, 60) for name in first)
    there = f"there are {said}{', …' if len(names) > FIELDS else ''}" if names else "it holds no text or number"
    return f"--category {path}: no transcript on the sheet has this field in its meta: {there}"


def _fields(meta: Mapping[str, Any], above: str = "", depth: int = 3) -> Iterator[str]:
    """Dotted paths of the values in `meta` that `_category` takes."""
    for name, value in meta.items():
        if isinstance(value, dict):
            yield from _fields(value, f"{above}{name}.", depth - 1) if depth > 1 else ()
        elif value is not None and not isinstance(value, list):
            yield above + name
