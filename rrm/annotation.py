"""Annotation: a training label for one trajectory. Several may stand for one trajectory."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from rrm.jsonl import read_lines

Verdict = Literal["good", "bad"]


class Finding(BaseModel):
    """What was good or bad about one step (k counts from 1)."""

    step: int = Field(ge=1)
    verdict: Verdict
    text: str = ""


class Annotation(BaseModel):
    """A label: who said it, of what kind, and what was said. Empty parts are simply not trained on."""

    trajectory_id: str
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    """Process quality in [0, 1]. Where absent the trajectory's outcome is the score target."""
    trace: str | None = None
    critique: str | None = None
    findings: list[Finding] | None = None
    annotator: str
    """Name of the person, model or rule set that wrote it."""
    kind: Literal["human", "llm", "rules", "self"]
    weight: float = Field(default=1.0, ge=0.0)


def read_annotations(path: str | Path) -> dict[str, list[Annotation]]:
    """A file's annotations by trajectory id, in file order.

    Raises:
        ReadError: as `rrm.jsonl.read_lines`.
    """
    found: dict[str, list[Annotation]] = defaultdict(list)
    for annotation in read_lines(path, lambda line: Annotation.model_validate(json.loads(line)), "an annotation"):
        found[annotation.trajectory_id].append(annotation)
    return dict(found)
