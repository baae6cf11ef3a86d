"""What the attempts of `smollm2_qa` read, and what earns within a question: why rewards teach what they teach."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.studies.smollm2_qa_data import holds
from reagent.env.task import Task
from rrm.data.trajectory import Trajectory
from rrm.evaluation.bootstrap import Ratio, bootstrap
from rrm.prompt.actions import final_answer

Told = dict[str, float | None]


def results(one: Trajectory) -> list[str]:
    """What its searches found, in their order."""
    return [message.text() for message in one.messages if message.tool_call_id is not None]


def did(one: Trajectory, task: Task) -> dict[str, bool]:
    """What could earn: to search twice, to find another passage then, to have read the answer, to say what was read."""
    found, answer = results(one), final_answer(one)
    return {
        "searched_twice": len(found) > 1,
        "found_another": len(set(found)) > 1,
        "read_the_answer": any(holds(text, task.answer or "") for text in found),
        "said_what_was_read": answer is not None and any(holds(text, answer[1]) for text in found),
    }


def reading(
    played: Sequence[Trajectory], tasks: Sequence[Task], reward: Callable[[Trajectory], float]
) -> dict[str, Any]:
    """Of one attempt a question: how many read a passage that holds the answer, what these and the others earn, and how many searches
    beyond the first find what was found. Empty of nothing."""
    by_id = {task.question_id: task for task in tasks}
    rows = [(did(one, by_id[str(one.question_id)]), reward(one)) for one in played]
    if not rows:
        return {}
    earned: dict[bool, list[float]] = {
        known: [f1 for done, f1 in rows if done["read_the_answer"] == known] for known in (True, False)
    }
    again = [not done["found_another"] for done, _ in rows if done["searched_twice"]]
    return {
        "questions": len(rows),
        "read": round(len(earned[True]) / len(rows), 4),
        "f1_of_these": round(mean(earned[True]), 4) if earned[True] else None,
        "f1_of_others": round(mean(earned[False]), 4) if earned[False] else None,
        "twice": len(again),
        "found_the_same": round(mean(again), 4) if again else None,
    }


def earns(
    played: Sequence[Trajectory], tasks: Sequence[Task], reward: Callable[[Trajectory], float]
) -> dict[str, dict[str, Any]]:
    """Of several attempts a question: for each thing that an attempt can do (`did`) the share that does it, and by how much those that do it
    earn more than the others at the same question (least squares with a constant a question), with an interval over questions."""
    by_id = {task.question_id: task for task in tasks}
    groups: dict[str, list[tuple[dict[str, bool], float]]] = defaultdict(list)
    for one in played:
        groups[str(one.question_id)].append((did(one, by_id[str(one.question_id)]), reward(one)))
    found: dict[str, dict[str, Any]] = {}
    for name in next(iter(groups.values()), [({}, 0.0)])[0][0]:
        above, below, share = [], [], []
        for rows in groups.values():
            x, y = (
                np.array(values, dtype=float) for values in zip(*((done[name], f1) for done, f1 in rows), strict=True)
            )
            above.append(float((x - x.mean()) @ (y - y.mean())))
            below.append(float((x - x.mean()) @ (x - x.mean())))
            share.extend(x)
        found[name] = {"share": round(mean(share), 4), "f1": _over_questions(above, below)}
    return found


def auroc_within(raw: Mapping[str, Sequence[Sequence[Any]]]) -> dict[str, Any]:
    """Of the scores, within questions, so that it does not matter which are hard: over all pairs of an attempt with an F1 of a half or more
    and one with less at the same question, the share in which the better one has the higher score (half of those that are level), with an
    interval over questions."""
    ahead, pairs = [], []
    for rows in raw.values():
        scored = [(score, f1 >= 0.5) for score, f1, *_ in rows if score is not None]
        good, bad = ([score for score, is_good in scored if is_good is kind] for kind in (True, False))
        ahead.append(sum((a > b) + (a == b) / 2 for a in good for b in bad))
        pairs.append(float(len(good) * len(bad)))
    counted = sum(n > 0 for n in pairs)
    return {**_over_questions(ahead, pairs), "pairs": int(sum(pairs)), "questions": counted}


def by_searches(played: Sequence[Trajectory]) -> dict[str, Told]:
    """Searches → attempts with so many: their number, mean score (of those that have one), and share that is exactly right."""
    found: dict[int, list[Trajectory]] = {}
    for one in played:
        found.setdefault(sum(len(message.tool_calls or ()) for message in one.messages), []).append(one)
    told: dict[str, Told] = {}
    for n, rows in sorted(found.items()):
        scores = [score for one in rows if (score := one.meta.get("judge_score")) is not None]
        right = mean(float(one.outcome or 0.0) for one in rows)
        told[str(n)] = {
            "attempts": len(rows),
            "score": round(mean(scores), 4) if scores else None,
            "em": round(right, 4),
        }
    return told


def _over_questions(above: Sequence[float], below: Sequence[float]) -> Told:
    """Σ above / Σ below with its interval; None of nothing."""
    if not sum(below):
        return {"value": None, "low": None, "high": None}
    found = bootstrap(Ratio(np.array(above), np.array(below)), len(above)).to_dict()
    return {key: value if value is None else round(value, 4) for key, value in found.items()}
