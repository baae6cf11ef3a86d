"""Find a data set's faults before training: duplicates, balance, lengths, splits and leaks.

One pass, a few hundred bytes per trajectory. Near-duplicates are found by MinHash over five-word shingles of what was said
after the prompt (system prompts are left out: a shared policy would make every run look alike).
"""

from __future__ import annotations

import hashlib
import json
import statistics
import zlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from rrm.data.questions import question_hash
from rrm.data.text import YES_NO, contains_phrase, normalise
from rrm.data.trajectory import Trajectory
from rrm.readers.base import printable
from rrm.readers.formats import FileFormats
from rrm.readers.leaks import reveals_verdict
from rrm.readers.outcomes import OTHERS, RATING, Scales, as_outcome, proposed_path

SHINGLE = 5  # words
BANDS, ROWS = 16, 4  # 64 hashes; pairs of Jaccard similarity 0.8 meet in a band with probability 0.9998
NEAR = 0.8
"""Estimated Jaccard similarity of shingle sets from which transcripts are near-duplicates."""
MIN_SHINGLES = 20
"""Shorter transcripts are too alike by chance ("I do not know") to say anything."""
EXAMPLES = 5
MOST_FIELDS = 100  # of a record's objects, looked through for outcomes
_RNG = np.random.default_rng(20240607)
_A = _RNG.integers(1, 2**63, BANDS * ROWS, dtype=np.uint64) | np.uint64(1)
_B = _RNG.integers(0, 2**63, BANDS * ROWS, dtype=np.uint64)


@dataclass
class DataReport:
    """The findings; `splits` and the cross-split lists stay empty without a split."""

    rows: int = 0
    formats: dict[str, int] = field(default_factory=dict)
    files: FileFormats = field(default_factory=FileFormats)
    """Formats of each file's rows."""
    positive: int = 0
    negative: int = 0
    partial: int = 0
    unlabelled: int = 0
    outcome_fields: dict[str, int] = field(default_factory=dict)
    """field -> rows whose outcome was read from it"""
    unread_outcomes: dict[str, int] = field(default_factory=dict)
    """field -> rows without an outcome in which it could be one: `--outcome FIELD` reads it (`failed:1..0`: true is a failure)"""
    ratings: dict[str, list[float]] = field(default_factory=dict)
    """field -> [rows without an outcome in which it is a mark, lowest, highest]"""
    other_scales: dict[str, int] = field(default_factory=dict)
    """field -> rows in which it is a number outside [0, 1]"""
    other_scale_complaint: str | None = None
    """Set where outcomes were read from such a field: the data must not be used so."""
    questions: int = 0
    no_question: int = 0
    attempts_per_question: float = 0.0
    questions_with_both_labels: int = 0
    no_steps: int = 0
    with_calls: int = 0
    without_results: int = 0
    """Rows with calls in which no call has a result."""
    unsupported_media: dict[str, int] = field(default_factory=dict)
    """type of a message part that is no text (`image`) -> rows with one; judges see pictures at most"""
    steps: dict[str, float] = field(default_factory=dict)
    characters: dict[str, float] = field(default_factory=dict)
    repeated_ids: list[str] = field(default_factory=list)
    repeated_id_rows: int = 0
    duplicate_rows: int = 0
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """(id, id of the first with the same messages), the first few."""
    verdicts: int = 0
    """Messages in which the environment tells how the run was graded."""
    outcome_leak_rows: int = 0
    outcome_leaks: list[str] = field(default_factory=list)
    reference_in_tools_rows: int = 0
    reference_rows: int = 0
    splits: dict[str, dict[str, int]] = field(default_factory=dict)
    """split -> {questions listed, questions seen, rows, positive}; rows in no split under `(none)`."""
    questions_in_two_splits: list[str] = field(default_factory=list)
    same_question_text: list[tuple[str, str]] = field(default_factory=list)
    """Question ids of different splits whose text is the same."""
    near_duplicate_pairs: int = 0
    near_duplicates: list[tuple[str, str, float]] = field(default_factory=list)
    """(id, id, similarity) of transcripts in different splits, the first few."""

    @property
    def leaks(self) -> int:
        """Number of things that cross from one split into another; above 0 the data must not be used so."""
        return len(self.questions_in_two_splits) + len(self.same_question_text) + self.near_duplicate_pairs


@dataclass
class _State:
    report: DataReport
    split_of: dict[str, str]
    scales: Scales = field(default_factory=Scales)
    flags: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    """field -> rows without an outcome in which it is false, true"""
    ids: set[int] = field(default_factory=set)
    bodies: dict[int, str] = field(default_factory=dict)
    labels: dict[str, set[float]] = field(default_factory=lambda: defaultdict(set))
    steps: list[int] = field(default_factory=list)
    characters: list[int] = field(default_factory=list)
    text_home: dict[str, str] = field(default_factory=dict)
    bands: dict[tuple[int, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    signed: list[tuple[str, str, np.ndarray]] = field(default_factory=list)
    questions: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def check(trajectories: Iterable[Trajectory], split: dict[str, list[str]] | None = None) -> DataReport:
    """Look at every trajectory once.

    Args:
        trajectories: e.g. `rrm.readers.read(paths)`.
        split: split name -> question ids; enables the cross-split checks.
    """
    homes: dict[str, list[str]] = defaultdict(list)
    for name, ids in (split or {}).items():
        for question in dict.fromkeys(ids):
            homes[question].append(name)
    state = _State(DataReport(), {question: names[0] for question, names in homes.items()})
    report = state.report
    report.questions_in_two_splits = sorted(q for q, names in homes.items() if len(names) > 1)
    for name, ids in (split or {}).items():
        report.splits[name] = {"questions_listed": len(set(ids)), "questions_seen": 0, "rows": 0, "positive": 0}
    for trajectory in trajectories:
        _count(state, trajectory)
        state.scales.add(trajectory)
        _duplicates(state, trajectory)
        _leaks(state, trajectory)
        if split is not None:
            _across(state, trajectory)
    report.unread_outcomes |= {proposed_path(name): sum(n) for name, n in state.flags.items() if all(n)}
    report.other_scales = dict(+state.scales.off)
    report.other_scale_complaint = state.scales.complaint()
    report.questions = len(state.labels)
    report.questions_with_both_labels = sum(len(y) > 1 for y in state.labels.values())
    if report.questions:
        report.attempts_per_question = round((report.rows - report.no_question) / report.questions, 2)
    report.steps, report.characters = _quantiles(state.steps), _quantiles(state.characters)
    return report


def _count(state: _State, trajectory: Trajectory) -> None:
    report, y = state.report, trajectory.outcome
    for media in {printable(media, 40) for message in trajectory.messages for media in message.other_parts()}:
        report.unsupported_media[media] = report.unsupported_media.get(media, 0) + 1
    report.rows += 1
    report.files.add(trajectory)
    name = str(trajectory.source.format) if trajectory.source else "unknown"
    report.formats[name] = report.formats.get(name, 0) + 1
    if y is None:
        report.unlabelled += 1
        meta = trajectory.meta
        within = {
            f"{key}.{name}": v for key, inner in meta.items() if isinstance(inner, dict) for name, v in inner.items()
        }
        for key, value in [*meta.items(), *islice(within.items(), MOST_FIELDS)]:
            if key in OTHERS and as_outcome(value) is not None:
                report.unread_outcomes[key] = report.unread_outcomes.get(key, 0) + 1
            elif isinstance(value, bool):
                state.flags[key][value] += 1
            elif isinstance(value, int | float) and RATING.search(key):
                n, low, high = report.ratings.get(key, [0, value, value])
                report.ratings[key] = [n + 1, min(low, value), max(high, value)]
    else:
        read_from = (trajectory.source and trajectory.source.outcome_field) or "outcome"
        report.outcome_fields[read_from] = report.outcome_fields.get(read_from, 0) + 1
    report.positive += y == 1
    report.negative += y == 0
    report.partial += y is not None and 0 < y < 1
    if trajectory.question_id is None:
        report.no_question += 1
    else:
        state.labels[trajectory.question_id].update([] if y is None else [y])
    steps = len(trajectory.steps)
    report.no_steps += steps == 0
    calling = [step for step in trajectory.steps if step.message.tool_calls]
    report.with_calls += bool(calling)
    report.without_results += bool(calling) and not any(step.observations for step in calling)
    state.steps.append(steps)
    state.characters.append(sum(len(m.text()) + len(m.reasoning_content or "") for m in trajectory.messages))


def _duplicates(state: _State, trajectory: Trajectory) -> None:
    """Count repeated ids (readers add `#2` and keep the original in meta) and repeated messages."""
    report, name = state.report, str(trajectory.meta.get("original_id", trajectory.id))
    key = _hash(name)
    if key in state.ids:
        report.repeated_id_rows += 1
        _example(report.repeated_ids, name)
    state.ids.add(key)
    calls = [[(c.name, c.arguments_text()) for c in m.tool_calls or []] for m in trajectory.messages]
    content = [(m.role, m.text(), m.reasoning_content, c) for m, c in zip(trajectory.messages, calls, strict=True)]
    body = _hash(json.dumps(content))
    if body in state.bodies:
        report.duplicate_rows += 1
        _example(report.duplicates, (trajectory.id, state.bodies[body]))
    state.bodies.setdefault(body, trajectory.id)


def _leaks(state: _State, trajectory: Trajectory) -> None:
    """Count the environment's verdicts after the agent's first message, and references in tools' results."""
    report = state.report
    heard = [m for step in trajectory.steps for m in step.observations]
    verdicts = sum(reveals_verdict(m.text()) for m in heard)
    report.verdicts += verdicts
    if verdicts:
        report.outcome_leak_rows += 1
        _example(report.outcome_leaks, trajectory.id)
    answers = trajectory.meta.get("reference")
    answers = [v for v in (answers if isinstance(answers, list) else [answers]) if isinstance(v, str | int | float)]
    texts = [normalise(str(v)) for v in answers if not isinstance(v, bool)]
    references = [r for r in texts if len(r) > 2 and r not in YES_NO]
    if references:
        report.reference_rows += 1
        tools = [normalise(m.text()) for m in heard if m.role == "tool"]
        report.reference_in_tools_rows += any(contains_phrase(text, r) for text in tools for r in references)


def _across(state: _State, trajectory: Trajectory) -> None:
    """Count what is in this trajectory's split and also in another."""
    report, question = state.report, trajectory.question_id
    home = state.split_of.get(question, "") if question is not None else ""
    row = report.splits.setdefault(
        home or "(none)", {"questions_listed": 0, "questions_seen": 0, "rows": 0, "positive": 0}
    )
    row["rows"] += 1
    row["positive"] += trajectory.outcome == 1
    if question is not None and question not in state.questions[home]:
        state.questions[home].add(question)
        row["questions_seen"] += 1
    if not home or question is None:
        return
    text = question_hash(trajectory.task)
    if text is not None:
        other = state.text_home.setdefault(text, question)
        pair = (other, question)
        if state.split_of[other] != home and pair not in report.same_question_text:
            report.same_question_text.append(pair)
    _near(state, trajectory, home)


def _near(state: _State, trajectory: Trajectory, home: str) -> None:
    """Count earlier transcripts of other splits whose signature is close."""
    messages = [m for m in trajectory.messages if m.role not in ("system", "developer")]
    signature = minhash(" ".join(f"{m.text()} {m.reasoning_content or ''}" for m in messages))
    if signature is None:
        return
    index = len(state.signed)
    state.signed.append((trajectory.id, home, signature))
    candidates = set[int]()
    for band in range(BANDS):
        bucket = state.bands[band, _hash(signature[band * ROWS : (band + 1) * ROWS].tobytes())]
        candidates.update(bucket)
        if len(bucket) < 1000:  # a bucket of a thousand has shown what it can; beyond, the pass would be quadratic
            bucket.append(index)
    for other in sorted(candidates):
        name, other_home, other_signature = state.signed[other]
        similarity = float(np.mean(signature == other_signature))
        if other_home != home and similarity >= NEAR:
            state.report.near_duplicate_pairs += 1
            _example(state.report.near_duplicates, (trajectory.id, name, round(similarity, 3)))


def minhash(text: str) -> np.ndarray | None:
    """Return the (64,) uint64 MinHash of five-word shingles; None for fewer than 20 distinct ones."""
    words = text.casefold().split()
    if len(words) < SHINGLE + MIN_SHINGLES - 1:
        return None
    codes = np.fromiter((zlib.crc32(w.encode("utf-8", "surrogatepass")) for w in words), np.uint64, len(words))
    shingles = np.zeros(len(words) - SHINGLE + 1, np.uint64)
    for i in range(SHINGLE):  # a polynomial in wrapping 64-bit arithmetic
        shingles = shingles * np.uint64(0x9E3779B97F4A7C15) + codes[i : i + len(shingles)]
    shingles = np.unique(shingles)
    if len(shingles) < MIN_SHINGLES:
        return None
    shingles ^= shingles >> np.uint64(29)
    signature = np.full(BANDS * ROWS, np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(shingles), 4096):  # (64, block): bounded however long the transcript is
        block = shingles[start : start + 4096]
        mixed = _A[:, None] * block[None, :] + _B[:, None]
        signature = np.minimum(signature, (mixed ^ (mixed >> np.uint64(32))).min(axis=1))
    return signature


def _quantiles(values: list[int]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    levels = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {k: ordered[round(q * (len(ordered) - 1))] for k, q in levels.items()} | {
        "mean": round(statistics.fmean(values), 2)
    }


def _hash(value: str | bytes) -> int:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


def _example(examples: list[Any], value: Any) -> None:
    if len(examples) < EXAMPLES:
        examples.append(value)
