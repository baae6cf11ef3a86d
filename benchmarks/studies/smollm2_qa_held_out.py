"""A policy of `smollm2_qa` on a file of questions, greedily, a row a question:

python -m benchmarks.studies.smollm2_qa_held_out --policy DIR --output rows.json [a.b=c …]        (config: smollm2)
"""

from __future__ import annotations

from typing import Any

from benchmarks.studies.smollm2 import answer_held_out, calls, said
from reagent.env.graders import exact_match, f1_closed
from reagent.env.task import Task
from reagent.rollout.episode import Episode


def f1_of(task: Task, answer: str | None) -> float:
    """F1 of an answer, 0 where there is none."""
    return 0.0 if answer is None else round(f1_closed(task, answer), 4)


def row(episode: Episode) -> dict[str, Any]:
    """What is recorded of a question."""
    answer = episode.answer
    return {
        **said(episode),
        "source": episode.task.meta["source"],
        "em": 0.0 if answer is None else exact_match(episode.task, answer),
        "f1": f1_of(episode.task, answer),
        "searches": calls(episode),
    }


if __name__ == "__main__":
    answer_held_out(__doc__, row, ("em", "f1", "searches", "tokens"))
