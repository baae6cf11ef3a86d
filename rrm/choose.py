"""One transcript a question out of several, whatever framework the agents ran in.

The judge is asked for each content once; strategies and their figures are those of `rrm.evaluation.choosing`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rrm.errors import RRMError
from rrm.evaluation.bootstrap import JUDGE
from rrm.evaluation.choosing import Attempts, grouped, measure, success_of
from rrm.feedback import Mode
from rrm.jsonl import read_lines
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.blended import Blended
from rrm.questions import question_of
from rrm.trajectory import Trajectory


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what it was chosen from."""

    transcripts: list[Trajectory]
    """One a question, as the first strategy chooses; `meta.chosen_by` names every strategy that chose it, `meta.judge_score`
    is its score."""
    figures: dict[str, Any]
    """`questions`, `attempts`, `unscored`, and where outcomes are known `success` of each strategy over the
    `graded_questions`, and `judge_minus` each other one; null where none is known."""


def choose(
    rows: Sequence[Trajectory],
    strategies: Sequence[str],
    scores: Sequence[float | None] | None = None,
    *,
    seed: int = 0,
    resamples: int = 10_000,
) -> Choice:
    """Choose one transcript of each question.

    Args:
        strategies: of `rrm.evaluation.choosing.STRATEGIES`; the first one's choice is returned.
        scores: the judge's, one a transcript, None where it has none; for the strategy `judge`.
        seed: of ties, and of the intervals' resamples.

    Raises:
        RRMError: as `check_choice`, or no score for the judge.
    """
    check_choice(rows, strategies)
    groups = grouped(rows, None if scores is None else {JUDGE: scores})
    several = [g for g in groups if len(g) > 1]
    if JUDGE in strategies and scores is not None and all(s is None for s in scores):
        raise RRMError(
            "no transcript has a score, so that the judge chooses nothing: see the judge's failures with `rrm score`"
        )
    chosen = {name: [g.rows[g.choose(name, seed)] for g in groups] for name in strategies}
    by: dict[int, list[str]] = defaultdict(list)
    for name, places in chosen.items():
        for i in places:
            by[i].append(name)
    held = [None] * len(rows) if scores is None else scores
    transcripts = [marked(rows[i], by[i], held[i]) for i in chosen[strategies[0]]]
    unscored = sum(s is None for s in held) if scores is not None else None
    figures = {"questions": len(groups), "attempts": len(rows), "with_one_attempt": len(groups) - len(several)}
    return Choice(transcripts, {**figures, "unscored": unscored, **_success(several, strategies, seed, resamples)})


def check_choice(rows: Sequence[Trajectory], strategies: Sequence[str]) -> None:
    """Whether there is something to choose from, and by; before a judge is asked.

    Raises:
        RRMError: neither question ids nor tasks, no question with two attempts, or no outcome for the oracle.
    """
    if not any(t.question_id or t.task for t in rows):
        raise RRMError(
            f"none of {len(rows)} transcripts has a question id or a task, so that none are known to be attempts at one question: "
            "give `question_id` in the file, or say where it stands (--map question_id=PATH)"
        )
    questions = {question_of(t) for t in rows}
    if len(questions) == len(rows):
        raise RRMError(
            f"each of {len(rows)} questions has one transcript, and nothing is to be chosen: attempts at one question must "
            "have one `question_id`, or one task text and none"
        )
    if "oracle" in strategies and all(t.outcome is None for t in rows):
        raise RRMError(
            "the oracle chooses by outcomes, and no transcript has one: give --outcome FIELD, or leave it out"
        )


def marked(trajectory: Trajectory, by: Sequence[str], score: float | None) -> Trajectory:
    """The transcript with who chose it (`meta.chosen_by`), and its score (`meta.judge_score`), where it has one."""
    meta = {**trajectory.meta, "chosen_by": [*by]}
    return trajectory.model_copy(update={"meta": meta if score is None else {**meta, "judge_score": score}})


def _success(groups: Sequence[Attempts], strategies: Sequence[str], seed: int, resamples: int) -> dict[str, Any]:
    """What the strategies' choices are worth, over the questions with several attempts whose outcomes are all known."""
    measured = measure(groups, strategies, seed=seed, resamples=resamples)
    if measured is None:
        return {"graded_questions": 0, "success": None, "judge_minus": None}
    return {"graded_questions": measured["questions"], **success_of(measured)}


def judge_scores(
    judge: AgentRRM | Blended, rows: Sequence[Trajectory], mode: Mode, seed: int = 0
) -> list[float | None]:
    """The judge's score of each transcript, None where it has none; equal contents are judged once."""
    distinct = {t.digest: t for t in reversed(rows)}  # the first of each, in the end
    asked = [t.model_copy(update={"id": digest}) for digest, t in reversed(distinct.items())]
    said = {f.id: f.score for f in judge.judge(asked, mode=mode, seed=seed)}
    return [said[t.digest] for t in rows]


def read_scores(path: str | Path, rows: Sequence[Trajectory]) -> list[float | None]:
    """The scores that `rrm score -o` wrote of transcripts; None for those without a row or a score.

    A row is of the transcript with its digest, whatever its id: files read in another order have other ids. Where several are,
    it is that with its id too; a row without a digest is of the one with its id.

    Raises:
        ReadError: a line that is no row of `rrm score`. RRMError: two rows of one transcript, a row without a digest of an id
        that several transcripts have, a row of other content, or no row of any of them.
    """
    found: dict[tuple[str, str | None], float | None] = {}
    for id, score, digest in read_lines(path, _score_row, "a row of `rrm score`"):
        if (id, digest) in found:
            raise RRMError(f"{path}: two rows of {id!r}; `rrm score` writes one of each")
        found[id, digest] = score
    by_content = {digest: (id, digest) for id, digest in found if digest is not None}
    here, times = {t.digest for t in rows}, Counter(t.id for t in rows)
    changed = {id for id, digest in found if digest is not None and digest not in here}

    def row_of(t: Trajectory) -> tuple[str, str | None] | None:
        if (t.id, t.digest) in found or t.digest in by_content:
            return (t.id, t.digest) if (t.id, t.digest) in found else by_content[t.digest]
        if t.id in changed:
            raise RRMError(
                f"{path} holds a judgement of {t.id!r}, but that transcript has changed since: judge it again"
            )
        if (t.id, None) not in found:
            return None
        if times[t.id] > 1:
            raise RRMError(
                f"{path}: the row of {t.id!r} could be of {times[t.id]} transcripts, as it says no digest of its content: judge "
                "them with `rrm score`, which does"
            )
        return (t.id, None)

    places = [row_of(t) for t in rows]
    if not any(places):
        raise RRMError(
            f"{path} holds {len(found)} rows and none of these {len(rows)} transcripts (ids like "
            f"{next(iter(found), (None,))[0]!r} against {rows[0].id if rows else None!r}): was another file judged?"
        )
    return [None if place is None else found[place] for place in places]


def _score_row(line: str) -> tuple[str, float | None, str | None]:
    """(id, score, digest) of a row."""
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or "score" not in row:
        raise ValueError("it needs an `id` and a `score`")
    score, source = row["score"], row.get("source")
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
        raise ValueError(f"a score is a number from 0 to 1, or null, got {score!r}")
    digest = source.get("digest") if isinstance(source, dict) else None
    return row["id"], None if score is None else float(score), digest if isinstance(digest, str) else None
