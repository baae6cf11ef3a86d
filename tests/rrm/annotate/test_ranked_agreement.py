"""The self-annotator keeps both outcomes, however harsh its judge; the LLM annotator reads a whole transcript."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from openai_server import Answer, completion, serve

from rrm.annotate import llm, self_
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.openai import OpenAIEngine


def run(id: str, question: str, outcome: float) -> Trajectory:
    said = [Message(role="user", content=question), Message(role="assistant", content=f"I say {id}")]
    return Trajectory(id=id, task=question, question_id=question, messages=said, outcome=outcome)


class Harsh:
    """Gives good runs 0.4 and failed ones 0.1: it knows them apart, and no score reaches one half."""

    def sample(self, trajectories: Sequence[Trajectory], *, k: int, **how: Any) -> list[list[Feedback]]:
        info = JudgeInfo(model="j", prompt_version="2", mode="score")
        scores = [0.4 if t.outcome else 0.1 for t in trajectories]
        return [
            [Feedback(id=t.id, status="scored", score=s + i / 100, judge=info) for i in range(k)]
            for t, s in zip(trajectories, scores, strict=True)
        ]


def kept(rows: list[Trajectory]) -> set[str]:
    counts = Counter[str]()
    found = self_.annotate(rows, Harsh(), model="j", k=2, mode="score", counts=counts)
    return {a.trajectory_id for a in found}


def test_both_outcomes_are_kept_by_rank_and_by_base_rate() -> None:
    """Of two good and six failed runs the six were kept, none of the good ones: a judge is trained to say no."""
    mixed = [run(f"a{i}", "one question", float(i == 0)) for i in range(4)]
    apart = [run(f"b{i}", f"question {i}", float(i == 0)) for i in range(4)]
    assert kept(mixed) == {t.id for t in mixed} and kept(apart) == {t.id for t in apart}
    assert kept([run("c", "alone", 0.0)]) == {"c"} and kept([run("c", "alone", 1.0)]) == set()


def test_bars_are_the_others_median_else_the_share_of_good_runs() -> None:
    rows = [run("a", "q", 1.0), run("b", "q", 0.0), run("c", "other", 0.0), run("d", "none", 1.0)]
    info = JudgeInfo(model="j", prompt_version="2", mode="score")

    def said(*scores: float) -> list[Feedback]:
        return [Feedback(id="x", status="scored", score=s, judge=info) for s in scores]

    judged = [said(0.6), said(0.1, 0.2, 0.6), said(0.3), []]
    # three failed runs' worth of four below: 1 of 5 scores is a good run's, so the bar lies between the 4th and the 5th
    assert self_.bars(rows, judged) == [0.2, 0.6, 0.6, 0.6]
    assert self_.bars([rows[2]], [said(0.3)]) == [0.5]


def test_the_llm_annotator_reads_all_of_a_long_transcript() -> None:
    """By prompt version 1: what exceeded 6,000 tokens was cut out of one prompt, and never labelled."""
    steps = [
        m
        for k in range(30)
        for m in (Message(role="assistant", content=f"look {k}"), Message(role="user", content=f"row {k} " * 60))
    ]
    whole = Trajectory(id="long", task="find it", messages=[Message(role="user", content="find it"), *steps])

    def answer(n: int, body: dict[str, Any]) -> Answer:
        shown = body["messages"][1]["content"]
        lines = "\n".join(f"[step {k}] good: seen" for k in range(1, 31) if f"look {k - 1}\n" in shown)
        return completion(f"<think>t</think><critique>{lines}</critique><score>0.5</score>")

    with serve(answer) as server:
        (label,) = llm.annotate([whole], OpenAIEngine(server.url, "m"), model="m", transcript_tokens=600)
    assert len(server.requests) > 3 and [f.step for f in label.findings or []] == list(range(1, 31))
    assert all(llm.INSTRUCTION in body["messages"][0]["content"] for body in server.requests)
