"""The ranking run: attempts in, one JSON line each out; a question's rows are written together, as soon as all of it is compared, and
nothing is compared twice.

Rows are those of `rrm score` with `rank` beside the relative score, so that `rrm choose --scores` and `rrm report` take them. What a
question's prompts used of a server stands in the first of its rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from rrm.data.output import WAY_OUT, Output, open_output
from rrm.data.questions import question_of
from rrm.data.trajectory import Trajectory
from rrm.engines.cost import CostTracker
from rrm.errors import RRMError, SpendingLimit
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.rank import Ranking, group_hash, position_bias, rank_groups
from rrm.scoring.row_index import AGAIN, to_row
from rrm.scoring.unsupported_media import unsupported_media
from rrm.scoring.usage_totals import Spending

TOGETHER = 256
"""Attempts that are held as prompts at once."""


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
    """Compare the attempts at each question that `output` does not hold yet; returns the summary (`stopped` by a limit of money: why).

    Args:
        rows: attempts, all questions'; their ids are unique.
        size, both_orders, seed: as in `rrm.judge.rank.rank_groups`.
        overwrite: start afresh, dropping the rows of an earlier run.
        retry_errors: compare questions again that have a row without a place that may get one (`judge_error`, `unparsable`, `truncated`).

    Raises:
        RRMError: an id occurs twice, no question has two attempts, the output belongs to other settings or to a running process, or
            a question has other attempts than when it was ranked.
    """
    groups = _groups(rows)
    made_by = {**judge.describe(), "command": "rank", "heat": size, "both_orders": both_orders, "seed": seed}
    summary: dict[str, Any] = {"output": str(output), "questions": len(groups), "rows": len(rows), "resumed": 0}
    statuses, rankings, failures = Counter[str](), list[Ranking](), list[str]()
    purse: CostTracker | None = judge.purse
    spending = Spending() if purse is None else Spending(purse.priced)
    stopped: str | None = None

    def keep(out: Output, batch: Sequence[Sequence[Trajectory]], number: int, ranking: Ranking) -> None:
        group, name = batch[number], group_hash(batch[number])
        made = [{**to_row(f, t), "group": name} for f, t in zip(ranking.feedback, group, strict=True)]
        out.append([spending.paid(row, None if k else ranking.usage, False) for k, row in enumerate(made)])
        rankings.append(ranking)
        statuses.update(f.status for f in ranking.feedback)
        failures.extend(f"{f.status}: {f.reason}" for f in ranking.feedback if f.score is None)

    with open_output(Path(output), made_by, overwrite=overwrite) as out:
        held = _held(out, groups, retry_errors, spending)
        if purse is not None:
            purse.begin(spending.total, str(output))
        waiting = [group for group in groups.values() if group[0].id not in held]
        for t in rows:
            if t.id in held:
                statuses[held[t.id]] += 1
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
        if set(held.values()) - {"scored"} and not failures:  # why stands in the rows of an earlier run
            failed = (row for _, row in out.rows() if row["id"] in held and row["status"] != "scored")
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
    """Attempts by their question."""
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


def _held(out: Output, groups: dict[str, list[Trajectory]], retry_errors: bool, spending: Spending) -> dict[str, str]:
    """id → status of the rows of questions that are ranked already. Rows of a question that is ranked again stay until others take their
    place: they say what was spent on it.

    Raises:
        RRMError: a question has other attempts now, or a row that is none.
    """
    found: dict[str, tuple[str, str]] = {}
    last: dict[str, int] = {}
    """The line of an id's last row."""
    asked = {t.id: question for question, group in groups.items() for t in group}
    together: dict[str, set[str]] = {}
    """By question, the ids of the rows that were written last, one after the other: a run may have been killed between two."""
    before: str | None = None
    for number, row in out.rows():
        try:
            id, name = row["id"], row["group"]
            found[id], last[id] = (row["status"], name), number
        except (KeyError, TypeError) as error:
            raise RRMError(f"{out.path}:{number}: not a row of `rrm rank`; {WAY_OUT}") from error
        question = asked.get(id)
        if question is not None:
            if question != before or id in together[question]:
                together[question] = set()
            together[question].add(id)
        before = question
    whole: dict[str, str] = {}
    for question, group in groups.items():
        name, held = group_hash(group), [found[t.id] for t in group if t.id in found]
        if any(of != name for _, of in held):
            raise RRMError(
                f"{out.path}: the attempts at {question!r} are others than those that were ranked, and relative scores are of all of them "
                f"together; {WAY_OUT}"
            )
        alone = sum(bool(t.steps) for t in group) < 2  # nothing is asked, however often
        failed = (found[t.id][0] in AGAIN for t in group if t.id in found and t.steps)
        errors = retry_errors and not alone and any(failed)
        if len(together.get(question, ())) == len(group) and not errors:
            whole |= {t.id: found[t.id][0] for t in group}
    again = asked.keys() - whole.keys()
    for number, row in out.rows():
        try:
            spending.met(row, row["id"] in again or number != last[row["id"]])
        except ValueError as error:
            raise RRMError(f"{out.path}:{number}: {error}; {WAY_OUT}") from error
    spending.tidy(out)
    return whole
