"""The ranking run: attempts in, one JSON line each out; a question's rows are written together, as soon as all of it is compared, and
nothing is compared twice.

Rows are those of `rrm score` with `rank` beside the relative score, so that `rrm choose --scores` and `rrm report` take them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.rank import Ranking, group_hash, position_bias, rank_groups
from rrm.judged import to_row
from rrm.output import WAY_OUT, Output, open_output
from rrm.questions import question_of
from rrm.trajectory import Trajectory

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
    """Compare the attempts at each question that `output` does not hold yet; returns the summary.

    Args:
        rows: attempts, all questions'; their ids are unique.
        size, both_orders, seed: as in `rrm.judge.rank.rank_groups`.
        overwrite: start afresh, dropping the rows of an earlier run.
        retry_errors: compare questions again that have a row with status `judge_error`.

    Raises:
        RRMError: an id occurs twice, no question has two attempts, the output belongs to other settings or to a running process, or
            a question has other attempts than when it was ranked.
    """
    groups = _groups(rows)
    made_by = {**judge.describe(), "command": "rank", "heat": size, "both_orders": both_orders, "seed": seed}
    summary: dict[str, Any] = {"output": str(output), "questions": len(groups), "rows": len(rows), "resumed": 0}
    statuses, rankings, failures = Counter[str](), list[Ranking](), list[str]()

    def keep(out: Output, batch: Sequence[Sequence[Trajectory]], number: int, ranking: Ranking) -> None:
        group, name = batch[number], group_hash(batch[number])
        made = [to_row(f, t) for f, t in zip(ranking.feedback, group, strict=True)]
        out.append({**row, "group": name} for row in made)
        rankings.append(ranking)
        statuses.update(f.status for f in ranking.feedback)
        failures.extend(f"{f.status}: {f.reason}" for f in ranking.feedback if f.score is None)

    with open_output(Path(output), made_by, overwrite=overwrite) as out:
        held = _held(out, groups, retry_errors)
        waiting = [group for group in groups.values() if group[0].id not in held]
        for t in rows:
            if t.id in held:
                statuses[held[t.id]] += 1
                summary["resumed"] += 1
        while waiting:
            batch = [waiting.pop(0)]
            while waiting and sum(map(len, batch)) + len(waiting[0]) <= TOGETHER:
                batch.append(waiting.pop(0))
            rank_groups(
                judge, batch, size=size, both_orders=both_orders, seed=seed, on_ranking=partial(keep, out, batch)
            )
    return {
        **summary,
        "statuses": dict(sorted(statuses.items())),
        "position_bias": position_bias(rankings),
        "first_failure": failures[0] if failures else None,
        "usage_now": None if judge.purse is None else judge.purse.usage.model_dump(),
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


def _held(out: Output, groups: dict[str, list[Trajectory]], retry_errors: bool) -> dict[str, str]:
    """id → status of the rows of questions that are ranked already; rows of others are dropped from the file.

    Raises:
        RRMError: a question has other attempts now.
    """
    found: dict[str, tuple[str, str]] = {}
    for number, row in out.rows():
        try:
            found[row["id"]] = (row["status"], row["group"])
        except (KeyError, TypeError) as error:
            raise RRMError(f"{out.path}:{number}: not a row of `rrm rank`; {WAY_OUT}") from error
    whole: dict[str, str] = {}
    for question, group in groups.items():
        name, held = group_hash(group), [found[t.id] for t in group if t.id in found]
        if any(of != name for _, of in held):
            raise RRMError(
                f"{out.path}: the attempts at {question!r} are others than those that were ranked, and relative scores are of all of them "
                f"together; {WAY_OUT}"
            )
        errors = retry_errors and any(status == "judge_error" for status, _ in held)
        if len(held) == len(group) and not errors:
            whole |= {t.id: found[t.id][0] for t in group}
    ids = {t.id for group in groups.values() for t in group}
    if any(id in ids and id not in whole for id in found):
        out.keep(lambda row: row["id"] not in ids or row["id"] in whole)
    return whole
