"""`given`: labels that came with the data.

- `meta["critiques"]` as in MINT-bench: `[{after_message, text, good}]`, `after_message` an index into `messages`. An opening
  ("This is GOOD.", "This is INCORRECT.") becomes the finding's verdict, else `good` does.
- `meta["annotations"]`, complete annotations (`rrm.data.annotation.own_annotations`).
- any other field of `meta` through a mapping: `{"score": "judge.score", "trace": "analysis", …}` (dotted paths).

A finding that names the reference answer although the transcript does not would teach the judge to leak; it is dropped and counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from rrm.data.annotation import Annotation, Finding, Verdict, critiques_of, own_annotations
from rrm.data.feedback import clear, format_findings
from rrm.data.printing import describe
from rrm.data.text import leaks, references, shorten, transcript_text
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.prompt.neutralise import neutralise
from rrm.prompt.rules import rules_trace

FIELDS = ("score", "trace", "critique", "findings", "annotator")
_VERDICT = re.compile(
    r"\s*This is (NOT GOOD|NOT CORRECT|INCORRECT|BAD|WRONG|GOOD|CORRECT|GREAT)\b[.!:,]?\s*", re.IGNORECASE
)
_GOOD = frozenset({"GOOD", "CORRECT", "GREAT"})
_EMPTY_OPENING = re.compile(
    r"(?:The assistant's|Your|The|This) [\w' ]{0,40}?(?:is|are|was|were) (?:still |again |also )*(?:not correct|incorrect|wrong|not good)\.\s++"
    r"(?=\S)"
)
_NOTHING = frozenset({"", "not given", "none", "n/a"})


def split_verdict(text: str, good: bool | None = None) -> tuple[Verdict | None, str]:
    """A critique's verdict and the rest of its text; the opening takes precedence over `good`."""
    opening = _VERDICT.match(text)
    if opening:
        return ("good" if opening[1].upper() in _GOOD else "bad"), text[opening.end() :].strip()
    if good is None:
        return None, text.strip()
    return ("good" if good else "bad"), text.strip()


def critiques_to_findings(
    trajectory: Trajectory, *, max_words: int = 25, counts: Counter[str] | None = None
) -> list[Finding]:
    """`meta["critiques"]` as findings in step order, shortened, without leaks and empty openings.

    `counts` gains `findings`, `leaks_dropped`, and `critiques_unusable` (empty, no verdict, or on no step).
    """
    counts = Counter() if counts is None else counts
    transcript, findings = transcript_text(trajectory), []
    for critique in critiques_of(trajectory):
        verdict, text = split_verdict(critique.text, critique.good)
        text = _EMPTY_OPENING.sub("", text, count=1) if _EMPTY_OPENING.match(text) else text
        text = neutralise(shorten(re.sub(r"\[step (\d+)\]", r"step \1", text), max_words))
        if critique.step is None or verdict is None or text.lower().strip(" .") in _NOTHING:
            counts["critiques_unusable"] += 1
        elif leaks(text, references(trajectory.meta.get("reference")), transcript):
            counts["leaks_dropped"] += 1
        else:
            counts["findings"] += 1
            findings.append(Finding(step=critique.step, verdict=verdict, text=text))
    return sorted(findings, key=lambda f: f.step)


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _mapped(trajectory: Trajectory, fields: Mapping[str, str]) -> dict[str, Any]:
    unknown = sorted(set(fields) - set(FIELDS))
    if unknown:
        raise ConfigError(f"cannot map {', '.join(unknown)}: an annotation's fields are {', '.join(FIELDS)}")
    values = {name: _at(trajectory.meta, path) for name, path in fields.items()}
    return {name: value for name, value in values.items() if value is not None}


def taken(trajectory: Trajectory, counts: Counter[str] | None = None) -> Iterator[Annotation]:
    """Annotations in a transcript, without texts that leak a reference answer; adds to `counts`."""
    counts = Counter() if counts is None else counts
    annotations, unusable = own_annotations(trajectory)
    if unusable:
        counts["annotations_unusable"] += unusable
    answers = references(trajectory.meta.get("reference")) if annotations else []
    transcript = transcript_text(trajectory) if answers else ""
    for annotation in annotations:
        texts = {"trace": annotation.trace, "critique": annotation.critique}
        bad = {name for name, text in texts.items() if text and answers and leaks(text, answers, transcript)}
        findings = [f for f in annotation.findings or () if not (answers and leaks(f.text, answers, transcript))]
        counts["leaks_dropped"] += len(bad) + len(annotation.findings or ()) - len(findings)
        counts["annotated"] += 1
        clean = {name: None for name in bad} | ({"findings": findings} if annotation.findings is not None else {})
        yield annotation.model_copy(update=clean)


def annotate(
    trajectories: Iterable[Trajectory],
    *,
    fields: Mapping[str, str] | None = None,
    max_words: int = 25,
    with_trace: bool = False,
    counts: Counter[str] | None = None,
) -> Iterator[Annotation]:
    """Yield one annotation for each labelled trajectory, or its complete ones.

    Args:
        fields: annotation field → dotted path in `meta`.
        max_words: length of a finding's text.
        with_trace: write the neutral trace of `rules` where the data has none.
        counts: gains `annotated`, `without_label`, `annotations_unusable` and the counts of `critiques_to_findings`.

    Raises:
        RRMError: a mapped value does not fit (a score outside [0, 1]), naming the trajectory.
    """
    counts = Counter() if counts is None else counts
    for trajectory in trajectories:
        if carried := list(taken(trajectory, counts)):
            yield from carried
            continue
        values = _mapped(trajectory, fields or {})
        critic = trajectory.meta.get("critic")
        findings = critiques_to_findings(trajectory, max_words=max_words, counts=counts)
        if findings and "findings" not in values and "critique" not in values:
            values |= {"findings": findings, "critique": format_findings(clear(findings))}
        if not values and trajectory.outcome is None:
            counts["without_label"] += 1
            continue
        if with_trace and "trace" not in values:
            values["trace"] = rules_trace(trajectory) or None
        values = {"annotator": str(critic or "given"), **values}
        try:
            annotation = Annotation(
                trajectory_id=trajectory.own_id, digest=trajectory.digest, kind="llm" if critic else "human", **values
            )
        except ValidationError as error:
            raise RRMError(f"trajectory {trajectory.id}: a given label does not fit: {describe(error)}") from error
        counts["annotated"] += 1
        yield annotation
