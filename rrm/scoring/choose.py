"""Choose one of several transcripts of each question, by a strategy of `rrm.evaluation.choosing`."""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rrm.data.feedback import Mode
from rrm.data.jsonl import read_lines
from rrm.data.printing import printable
from rrm.data.questions import question_hash, question_of
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import JUDGE
from rrm.evaluation.choosing import OF_ANSWERS, OF_SCORES, Attempts, grouped, measure, success_of
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.row_matching import MatchedRows, digest_of, match_rows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    transcripts: list[Trajectory]
    """One a question, by the first strategy; `meta` gets `chosen_by`, `judge_score` and `tied_with`."""
    figures: dict[str, Any]
    """Counts, draws by strategy (`tied`) and, with outcomes, `success` by strategy and `judge_minus` each."""


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
        scores: the judge's, one a transcript, None where it has none; for `judge` and `weighted`.
        seed: of ties and of the intervals' resamples.

    Raises:
        RRMError: as `check_choice`, or no transcript has a score.
    """
    check_choice(rows, strategies)
    if apart := _without_their_id(rows):
        log.warning(
            "%d of %d transcripts have no question id and ask what others ask under one (for example %s): they are chosen among by "
            "themselves; give all of them their `question_id`, or none",
            len(apart), len(rows), printable(apart[0].id, limit=80),
        )  # fmt: skip
    groups = grouped(rows, None if scores is None else {JUDGE: scores})
    several = [g for g in groups if len(g) > 1]
    if OF_SCORES & {*strategies} and scores is not None and all(s is None for s in scores):
        raise RRMError(
            "no transcript has a score, so that the judge chooses nothing: see the judge's failures with `rrm score`"
        )
    chosen = {name: [g.rows[g.choose(name, seed)] for g in groups] for name in strategies}
    by: dict[int, list[str]] = defaultdict(list)
    for name, places in chosen.items():
        for i in places:
            by[i].append(name)
    row_scores = [None] * len(rows) if scores is None else scores
    tied = {name: [_ties(g, rows, name) for g in groups] for name in strategies if name != "random"}
    ties = tied.get(strategies[0], [0] * len(groups))
    chosen_rows = [
        marked(rows[i], by[i], row_scores[i], tie) for i, tie in zip(chosen[strategies[0]], ties, strict=True)
    ]
    if drawn := sum(map(bool, ties)):
        log.warning(
            "in %d of %d questions with several attempts the best of them are alike by %s, and the choice is drawn (--seed)",
            drawn,
            len(several),
            strategies[0],
        )
    unscored = sum(s is None for s in row_scores) if scores is not None else None
    figures = {"questions": len(groups), "attempts": len(rows), "with_one_attempt": len(groups) - len(several)}
    figures |= {"unscored": unscored, "tied": {name: sum(map(bool, counts)) for name, counts in tied.items()}}
    return Choice(chosen_rows, {**figures, **_success(several, strategies, seed, resamples)})


def check_choice(rows: Sequence[Trajectory], strategies: Sequence[str]) -> None:
    """Check, before a judge is asked, that there are attempts to choose from.

    Raises:
        RRMError: no transcripts, neither ids nor tasks, no question with two attempts, or no outcome for the oracle.
    """
    if not rows:
        raise RRMError("there are no transcripts to choose from: see with `rrm check` what could be read of the input")
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


def _without_their_id(rows: Sequence[Trajectory]) -> list[Trajectory]:
    """Return transcripts without question id whose task has one in others (readers hash the task instead)."""
    by_text = [not t.question_id or t.question_id == question_hash(t.task or "") for t in rows]
    named = {t.task for t, nameless in zip(rows, by_text, strict=True) if t.task and not nameless}
    return [t for t, nameless in zip(rows, by_text, strict=True) if nameless and t.task in named]


def _ties(group: Attempts, rows: Sequence[Trajectory], strategy: str) -> int:
    """Count attempts of other content (for votes: of other answers) that tie with the strategy's best."""
    preference = group.preference(strategy)
    best: list[int] = np.flatnonzero(preference == preference.max()).tolist()
    if len(best) == 1:
        return 0
    answers = group.answers if strategy in OF_ANSWERS else [None] * len(group)
    return len({answers[i] or rows[group.rows[i]].digest for i in best}) - 1


def marked(trajectory: Trajectory, by: Sequence[str], score: float | None, tied: int = 0) -> Trajectory:
    """Copy a transcript, with `chosen_by`, `judge_score` and `tied_with` in its `meta`."""
    meta = {**trajectory.meta, "chosen_by": [*by], **({"tied_with": tied} if tied else {})}
    return trajectory.model_copy(update={"meta": meta if score is None else {**meta, "judge_score": score}})


def _success(groups: Sequence[Attempts], strategies: Sequence[str], seed: int, resamples: int) -> dict[str, Any]:
    """Measure the choices on questions with several attempts whose outcomes are all known."""
    measured = measure(groups, strategies, seed=seed, resamples=resamples)
    if measured is None:
        return {"graded_questions": 0, "success": None, "judge_minus": None}
    return {"graded_questions": measured["questions"], **success_of(measured)}


def judge_scores(judge: AgentRRM, rows: Sequence[Trajectory], mode: Mode, seed: int = 0) -> list[float | None]:
    """Score each transcript, equal contents once; None, and a warning, where the judge fails."""
    distinct = {t.digest: t for t in reversed(rows)}  # the first of each, in the end
    batch = [t.model_copy(update={"id": digest}) for digest, t in reversed(distinct.items())]
    feedback = {f.id: f for f in judge.judge(batch, mode=mode, seed=seed)}
    failed = [t for t in rows if feedback[t.digest].score is None]
    if failed:
        statuses = Counter(feedback[t.digest].status for t in failed)
        log.warning(
            "the judge has no score for %d of %d transcripts (%s); %s, for example: %s",
            len(failed), len(rows), ", ".join(f"{status} {n}" for status, n in sorted(statuses.items())), printable(failed[0].id, limit=80),
            printable(feedback[failed[0].digest].reason or "no reason is given"),
        )  # fmt: skip
    return [feedback[t.digest].score for t in rows]


def read_scores(path: str | Path, rows: Sequence[Trajectory]) -> list[float | None]:
    """Read scores from rows of `rrm score`, as `match_rows`; None without a row or a score.

    Raises:
        ReadError: a line that is no row of `rrm score`. RRMError: two rows of one transcript, or as `match_rows`.
    """
    rated = list(read_lines(path, _score_row, "a row of `rrm score`"))
    twice = [key for key, times in Counter((id, digest) for _, id, digest in rated).items() if times > 1]
    if twice:
        raise RRMError(f"{path}: two rows of {twice[0][0]!r}; `rrm score` writes one of each")
    matched = match_rows(MatchedRows(rated), rows, path)
    why = Counter("no row" if row is None else row.status for row in matched if row is None or row.score is None)
    if why:
        first = next(i for i, row in enumerate(matched) if row is None or row.score is None)
        row = matched[first]
        log.warning(
            "%s has no score for %d of %d attempts (%s); %s, for example: %s",
            path, why.total(), len(rows), ", ".join(f"{status} {n}" for status, n in sorted(why.items())), printable(rows[first].id, limit=80),
            "it has no row: score it too" if row is None else printable(row.reason or "no reason is given"),
        )  # fmt: skip
    return [None if row is None else row.score for row in matched]


@dataclass(frozen=True)
class _Rated:
    score: float | None
    status: str
    reason: str | None


def _score_row(line: str) -> tuple[_Rated, str, str | None]:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("id"), str) or "score" not in row:
        raise ValueError("it needs an `id` and a `score`")
    score = row["score"]
    if score is not None and (isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1):
        raise ValueError(f"a score is a number from 0 to 1, or null, got {score!r}")
    status, reason = str(row.get("status") or "no score"), row.get("reason")
    rated = _Rated(None if score is None else float(score), status, reason if isinstance(reason, str) else None)
    return rated, row["id"], digest_of(row)
