"""Attempts that are foreign to the judge are counted, and said once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest

from reagent.feedback.judging import Judging, JudgingReport
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Message, Trajectory

INFO = JudgeInfo(model="far", prompt_version="1", mode="score")


class Far:
    """A judge that knows no attempt which says "far", and cannot tell of one that says "unknown"."""

    engine = prompter = criteria = None

    def judge(self, trajectories: Sequence[Trajectory], mode: str, seed: int) -> list[Feedback]:
        marks = {"far": True, "near": False, "unknown": None}
        return [
            Feedback(
                id=t.id, judge=INFO, status="scored", score=0.5, raw_score=0.5,
                out_of_domain=marks[t.messages[-1].text()],
            )
            for t in trajectories
        ]  # fmt: skip

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: str) -> list[int]:
        return [1 for _ in trajectories]


def attempts(*text: str) -> list[Trajectory]:
    return [
        Trajectory(id=f"a{n}", task=f"{n}?", messages=[Message(role="user", content="?"), Message(role="assistant", content=one)])
        for n, one in enumerate(text)
    ]  # fmt: skip


def test_they_are_counted_each_time_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    judging = Judging(cast(Any, Far()), seed=0)
    with caplog.at_level(logging.WARNING):
        rounds = (("unknown", None), ("near unknown", 0), ("far near far unknown", 2), ("far near", 1))
        for said, outside in ((words.split(), outside) for words, outside in rounds):
            report = JudgingReport()
            judging.ask(attempts(*said), "score", 0, report)
            assert report.figures().get("feedback/outside") == outside
            told = sum(word != "unknown" for word in said)
            assert report.figures().get("feedback/placed") == (told or None)
            assert report.figures()["feedback/judged"] == len(said)
    (warned,) = [one.getMessage() for one in caplog.records]
    assert warned.startswith("2 of 3 transcripts are outside what this judge was measured on")


def test_counts_of_processes_add_up() -> None:
    one, other = JudgingReport(), JudgingReport()
    for report, said in ((one, ("far", "near")), (other, ("far", "far"))):
        Judging(cast(Any, Far()), seed=0).ask(attempts(*said), "score", 0, report)
    figures = one.merge(other).figures()
    assert (figures["feedback/outside"], figures["feedback/placed"]) == (3, 4)


def test_stages_of_one_judge_say_it_once(caplog: pytest.LogCaptureFixture) -> None:
    judging = Judging(cast(Any, Far()), seed=0, later=[(1, cast(Any, Far()))])
    with caplog.at_level(logging.WARNING):
        for update in (0, 1):
            judging.at(update).ask(attempts("far"), "score", update, JudgingReport())
            judging.known.clear()
    assert len(caplog.records) == 1
