"""The ranking run (`rrm rank`): attempts in, one JSON line each out; resumable.

A question's rows are written together, once all of it is compared: rows of `rrm score` with `rank` and a relative
score. The first of them holds the usage of the question's prompts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from rrm.data.output import WAY_OUT, RowFile
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.engines.cost import CostTracker
from rrm.errors import RRMError, SpendingLimit
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.rank import Ranking, group_hash, position_bias, rank_groups
from rrm.scoring.row_index import AGAIN, to_row
from rrm.scoring.unsupported_media import unsupported_media
from rrm.scoring.usage_totals import Spending

TOGETHER = 256  # attempts held as prompts at once


def rank_file(
    judge: AgentRRM,
    rows: Sequence[Trajectory],
    output: str | Path,
    *,
    size: int,
    both_orders: bool,
    seed: int,
    overwrite: bool = False,
    retry_errors: bool = False,
) -> dict[str, Any]:
    """Compare the attempts at each question that `output` does not hold yet; return the summary.

    Args:
        rows: attempts at all questions, with unique ids.
        size, both_orders, seed: as in `rrm.judge.rank.rank_groups`.
        overwrite: drop the rows of an earlier run.
        retry_errors: compare questions again that have a row whose status is in `AGAIN`.

    Raises:
        RRMError: an id twice, no question with two attempts, an output of other settings, other attempts or a running
            process.
    """
    groups = _groups(rows)
    made_by = {**judge.describe(), "command": "rank", "heat": size, "both_orders": both_orders, "seed": seed}
    summary: dict[str, Any] = {"output": str(output), "questions": len(groups), "rows": len(rows), "resumed": 0}
    statuses, rankings, failures = Counter[str](), list[Ranking](), list[str]()
    purse: CostTracker | None = judge.purse
    spending = Spending() if purse is None else Spending(purse.priced)
    stopped: str | None = None

    def keep(out: RowFile, batch: Sequence[Sequence[Trajectory]], number: int, ranking: Ranking) -> None:
        group, name = batch[number], group_hash(batch[number])
        out_rows = [{**to_row(f, t), "group": name} for f, t in zip(ranking.feedback, group, strict=True)]
        out.append([spending.paid(row, None if k else ranking.usage, False) for k, row in enumerate(out_rows)])
        rankings.append(ranking)
        statuses.update(f.status for f in ranking.feedback)
        failures.extend(f"{f.status}: {f.reason}" for f in ranking.feedback if f.score is None)

    with RowFile.open(Path(output), made_by, overwrite=overwrite) as out:
        ranked = _held(out, groups, retry_errors, spending)
        if purse is not None:
            purse.begin(spending.total, str(output))
        waiting = [group for group in groups.values() if group[0].id not in ranked]
        for t in rows:
            if t.id in ranked:
                statuses[ranked[t.id]] += 1
                summary["resumed"] += 1
        together = max(TOGETHER, size * getattr(judge.engine, "concurrency", 1))
        try:
            while waiting:
                batch = [waiting.pop(0)]
                while waiting and sum(map(len, batch)) + len(waiting[0]) <= together:
                    batch.append(waiting.pop(0))
                heard = partial(keep, out, batch)
                rank_groups(judge, batch, size=size, both_orders=both_orders, seed=seed, on_ranking=heard)
        except SpendingLimit as limit:
            stopped = str(limit)
        finally:
            spending.tidy(out)
        if set(ranked.values()) - {"scored"} and not failures:  # why stands in the rows of an earlier run
            failed = (row for _, row in out.rows() if row["id"] in ranked and row["status"] != "scored")
            failures += [f"{row['status']}: {row.get('reason')}" for row in islice(failed, 1)]
    used, now = spending.total, spending.now
    return {
        **summary,
        "statuses": dict(sorted(statuses.items())),
        "unsupported_media": unsupported_media(rows),
        "position_bias": position_bias(rankings),
        "first_failure": failures[0] if failures else None,
        "usage": None if used is None else used.model_dump(),
        "usage_now": None if now is None else now.model_dump(),
        "stopped": stopped,
    }


def _groups(rows: Sequence[Trajectory]) -> dict[str, list[Trajectory]]:
    """Group attempts by question; raises `RRMError` for doubled ids, and without two attempts at any."""
    twice = [id for id, n in Counter(t.id for t in rows).items() if n > 1]
    if twice:
        raise RRMError(f"two transcripts have the id {twice[0]!r}: give each its own")
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for t in rows:
        groups[question_of(t)].append(t)
    if rows and all(len(group) == 1 for group in groups.values()):
        raise RRMError(
            f"each of {len(rows)} questions has one transcript, and nothing is to be compared: attempts at one question must have "
            "one `question_id`, or one task text and none"
        )
    return dict(groups)


def _held(out: RowFile, groups: dict[str, list[Trajectory]], retry_errors: bool, spending: Spending) -> dict[str, str]:
    """Return id → status, of questions ranked in full. Other rows stay until replaced, for their usage.

    Raises:
        RRMError: a question has other attempts now, or a line is no row of `rrm rank`.
    """
    rows_by_id: dict[str, tuple[str, str]] = {}
    last: dict[str, int] = {}  # id → line of its last row
    question_by_id = {t.id: question for question, group in groups.items() for t in group}
    # question → ids of the rows written last, one after the other: a killed run may have left some
    together: dict[str, set[str]] = {}
    before: str | None = None
    for number, (id, status, name) in out.rows(itemgetter("id", "status", "group"), "a row of `rrm rank`"):
        rows_by_id[id], last[id] = (status, name), number
        question = question_by_id.get(id)
        if question is not None:
            if question != before or id in together[question]:
                together[question] = set()
            together[question].add(id)
        before = question
    complete: dict[str, str] = {}
    for question, group in groups.items():
        name, group_rows = group_hash(group), [rows_by_id[t.id] for t in group if t.id in rows_by_id]
        if any(row_group != name for _, row_group in group_rows):
            raise RRMError(
                f"{out.path}: the attempts at {question!r} are others than those that were ranked, and relative scores are of all of them "
                f"together; {WAY_OUT}"
            )
        alone = sum(bool(t.steps) for t in group) < 2  # nothing is asked, however often
        failed = (rows_by_id[t.id][0] in AGAIN for t in group if t.id in rows_by_id and t.steps)
        errors = retry_errors and not alone and any(failed)
        if len(together.get(question, ())) == len(group) and not errors:
            complete |= {t.id: rows_by_id[t.id][0] for t in group}
    again = question_by_id.keys() - complete.keys()
    for number, row in out.rows():
        try:
            spending.met(row, row["id"] in again or number != last[row["id"]])
        except ValueError as error:
            raise RRMError(f"{out.path}:{number}: {error}; {WAY_OUT}") from error
    spending.tidy(out)
    return complete
