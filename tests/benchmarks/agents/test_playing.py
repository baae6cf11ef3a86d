"""Playing that can be stopped, and what the attempts come to, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rollout_models import make_model, make_tokenizer

from benchmarks.agents.figures import Measure, difference, judge_figures, method_figures
from benchmarks.agents.playing import Kept
from reagent.env.env import ToolEnv
from reagent.env.gradability import Grading
from reagent.env.task import Task
from reagent.rollout.episode import Episode, Stage, Turn
from reagent.rollout.rollout import Attempt, plan, rollout
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.output import RowFile
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine
from rrm.errors import RRMError

NOTHING = {"value": None, "low": None, "high": None}


class Stopped(BaseException):
    """What a kill is to the code: nothing catches it."""


def test_a_stopped_play_goes_on_where_it_was(tmp_path: Path) -> None:
    tokenizer = make_tokenizer("lab")
    engine = HFEngine(make_model(tokenizer), tokenizer)
    asked: list[str] = []

    def play(attempts: list[Attempt], **hooks: Any) -> list[Episode]:
        asked.extend(a.key for a in attempts)
        params = SamplingParams(max_new_tokens=12, temperature=1.0)
        return rollout(engine, tokenizer, ToolEnv, attempts, params=params, **hooks)

    attempts = plan([Task(f"t{i}", "Who? " * (i + 1), "x") for i in range(5)], 2)
    whole = play(attempts)
    path, ended = tmp_path / "a.jsonl", []

    def stop(episode: Episode) -> None:
        ended.append(episode.key)
        if len(ended) == 4:
            raise Stopped

    asked.clear()
    with pytest.raises(Stopped), RowFile.open(path, {"n": 1}) as output:
        Kept(play, output)(attempts, on_end=stop)
    with open(path, "ab") as file:
        file.write(b'{"half of a li')
    asked.clear()
    with RowFile.open(path, {"n": 1}) as output:
        kept, heard = Kept(play, output), list[str]()
        found = kept(attempts, on_end=lambda e: heard.append(e.key))
        assert sorted([*ended, *asked]) == sorted(a.key for a in attempts) == sorted(heard) and len(asked) == 6
        assert [e.key for e in found] == [e.key for e in whole]
        assert [[t.output_ids for t in e.turns] for e in found] == [[t.output_ids for t in e.turns] for e in whole]
        asked.clear()
        assert kept(attempts) == found and not asked
        assert kept.forget(lambda e: e.group_id == "t1") == 2
        kept(attempts)
        assert asked == ["t1/initial/0", "t1/initial/1"]
    path.write_text('{"task": 1}\n')
    with RowFile.open(path, {"n": 1}) as output, pytest.raises(RRMError, match=r"a\.jsonl:1: not an episode"):
        Kept(play, output)


# ---- figures -----------------------------------------------------------------------------------------------------------


def episode(
    q: int,
    answer: str | None,
    *,
    number: int = 0,
    stage: Stage = "initial",
    status: Any = "finished",
    reference: str = "x y",
) -> Episode:
    """An attempt of one turn that gives this answer; None: it was cut at its limit."""
    failed = status == "env_error"
    success = None if failed else answer == reference
    turn = Turn([1, 2], [-0.1, -0.1], [], 0.0, "eos", {"answer": answer} if answer else {})
    text = [Message(role="user", content=f"q{q}"), Message(role="assistant", content=f"{stage} {number} {answer}")]
    trajectory = Trajectory(
        id=f"{q}/{stage}/{number}", task=f"q{q}", question_id=f"q{q}", messages=text, outcome=None if failed else float(bool(success))
    )  # fmt: skip
    return Episode(
        Task(f"q{q}", f"q{q}", reference), [5, 6, 7], [] if failed else [turn], None if failed else float(bool(success)), status,
        None, success, f"q{q}", stage, trajectory, number, 1,
    )  # fmt: skip


def scored(e: Episode, score: float | None) -> Feedback:
    info = JudgeInfo(model="m", mode="score", seed=0, prompt_version="2")
    status = "unparsable" if score is None else "scored"
    return Feedback(id=e.trajectory.id, status=status, score=score, raw_score=score, judge=info)


def figures(
    episodes: list[Episode], headline: Any, scores: list[float | None] | None = None, samples: int = 1
) -> dict[str, Any]:
    feedback = None if scores is None else [scored(e, s) for e, s in zip(episodes, scores, strict=True)]
    with Grading(ToolEnv) as grading:
        return method_figures(
            episodes, headline, Measure(grading, samples, 0), [e.trajectory for e in episodes], feedback
        )


def test_unknown_outcomes_are_no_numbers() -> None:
    rows = [episode(0, "x y"), episode(1, "x"), episode(2, None), episode(3, "x y", status="env_error")]
    found = figures(rows, "initial")
    assert found["success"] == {"value": pytest.approx(1 / 3), "low": None, "high": None}  # of three known questions
    assert found["exact_match"]["value"] == pytest.approx(1 / 3) and found["f1"]["value"] == pytest.approx(
        (1 + 2 / 3) / 3
    )
    assert (found["questions"], found["left_out"]) == (4, {"env_error": 1}) and found["judge"] is None
    assert found["by_question"]["success"] == {"q0": 1.0, "q1": 0.0, "q2": 0.0}
    assert found["policy_tokens"] == pytest.approx((3 * 5 + 3) / 4, abs=0.06)
    every = figures([episode(0, "x y", status="env_error")], "initial")
    assert every["success"] == NOTHING and every["f1"] == NOTHING and every["left_out"] == {"env_error": 1}


def test_enough_questions_have_an_interval() -> None:
    found = figures([episode(q, "x y" if q % 2 else "z") for q in range(24)], "initial")
    assert (
        found["success"]["value"] == 0.5 and 0.2 < found["success"]["low"] < 0.4 < 0.6 < found["success"]["high"] < 0.8
    )


def test_tasks_that_ask_one_question_are_drawn_together() -> None:
    """As BFCL's four categories: what is right in all of a question's tasks, or in none, is known no better than of one of them."""

    def asked(q: int, kind: str) -> Episode:
        e = episode(q, "x y" if q % 3 else "z")
        task, said = replace(e.task, id=f"{kind}_{q}", question_id=f"q{q}"), e.trajectory
        said = said.model_copy(update={"id": f"{kind}/{said.id}"})
        return replace(e, task=task, group_id=task.id, trajectory=said)

    once = [asked(q, "base") for q in range(30)]
    four = [asked(q, kind) for kind in ("base", "miss_func", "miss_param", "long_context") for q in range(30)]
    one, all_four = figures(once, "initial"), figures(four, "initial")
    for name in ("success", "exact_match", "f1"):
        assert all_four[name] == pytest.approx(one[name])
    assert "asked_alike" not in one and all_four["asked_alike"]["miss_func_3"] == "q3" and all_four["tasks"] == 120
    scores: list[float | None] = [0.5] * 120
    assert figures(four, "chosen", scores)["success"] == pytest.approx(one["success"])
    chosen, alone = (figures(rows, "chosen", scores[: len(rows)])["choose"] for rows in (four, once))
    assert chosen["success"].keys() == {"judge", "majority", "random", "oracle"} and alone["success"]["oracle"]["low"]
    for way, found in chosen["success"].items():
        assert found == pytest.approx(alone["success"][way])
    zero = dict.fromkeys(all_four["by_question"]["success"], 0.0)
    minus = difference(all_four["by_question"]["success"], zero, 0, all_four["asked_alike"])
    alone = difference(one["by_question"]["success"], dict.fromkeys(one["by_question"]["success"], 0.0), 0)
    assert minus["questions"] == 120 and {**minus, "questions": 30} == pytest.approx(alone)
    few = figures([e for e in four if int(e.group_id.rpartition("_")[2]) < 8], "initial")
    assert few["success"]["value"] is not None and few["success"]["low"] is None  # eight questions, of 32 tasks


def test_second_attempts_are_the_figures_of_reagent_c() -> None:
    firsts = [episode(0, "z"), episode(1, "x y"), episode(2, "z")]
    seconds = [
        episode(0, "x y", stage="refined"),
        episode(1, "x y", stage="refined"),
        episode(2, None, stage="refined", status="env_error"),
    ]
    found = figures([*firsts, *seconds], "refined")
    assert (found["success"]["value"], found["first"]["success"]["value"]) == (
        1.0,
        0.5,
    )  # both of the same two questions
    assert found["left_out"] == {"env_error": 1}


def test_what_the_judge_chooses_beside_majority_random_and_oracle() -> None:
    rows = [episode(0, a, number=i) for i, a in enumerate(["x y", "z", "z", "x"])]
    rows += [episode(1, a, number=i) for i, a in enumerate(["x y", "x y", "z", "x y"])]
    found = figures(rows, "chosen", [0.9, 0.1, 0.1, None, 0.2, 0.3, 0.8, 0.8], samples=4)
    # the judge takes the first attempt at q0, and at q1 the third or the fourth, which it scores alike
    assert found["success"]["value"] == pytest.approx((1 + 0.5) / 2) and found["f1"]["value"] == pytest.approx(
        (1 + 0.5) / 2
    )
    assert found["by_question"]["success"] == {"q0": 1.0, "q1": 0.5}
    chosen = {name: value["value"] for name, value in found["choose"]["success"].items()}
    assert chosen == {"judge": 0.75, "majority": 0.5, "random": 0.5, "oracle": 1.0}
    assert found["attempts"]["success"]["value"] == 0.5 and [*found["choose"]["by_n"]] == ["2", "4"]


def test_the_judge_against_the_outcome_by_hand() -> None:
    rows = [episode(0, "x y"), episode(1, "z"), episode(2, "z"), episode(3, "x y", status="env_error")]
    said = {e.trajectory.id: scored(e, s) for e, s in zip(rows, [0.8, 0.9, None, 0.5], strict=True)}
    found = judge_figures([e.trajectory for e in rows], said, 0)
    assert found["mean"]["value"] == pytest.approx((0.8 + 0.9 + 0.5) / 3) and found["mean"]["low"] is None
    assert found["brier"]["value"] == pytest.approx((0.04 + 0.81) / 2) and found["auroc"]["value"] == 0.0
    assert found["status"] == {"scored": 3, "unparsable": 1} and (found["coverage"], found["outside"]) == (None, None)
    said["0/initial/0"] = said["0/initial/0"].model_copy(update={"coverage": 0.5, "out_of_domain": True})
    marked = judge_figures([e.trajectory for e in rows], said, 0)
    assert (marked["coverage"], marked["outside"]) == (0.5, 1)
    alike = judge_figures([rows[1].trajectory], said, 0)
    assert alike["auroc"]["value"] is None  # one outcome alone


def test_differences_are_paired_by_question() -> None:
    a, b = {"q1": 1.0, "q2": 0.5, "q3": 0.0}, {"q2": 0.0, "q3": 0.5, "q4": 1.0}
    found = difference(a, b, 0)
    assert (found["value"], found["low"], found["questions"]) == (0.0, None, 2)
    many = difference({str(i): 1.0 for i in range(30)}, {str(i): float(i % 2) for i in range(30)}, 0)
    assert many["value"] == 0.5 and 0.3 < many["low"] < many["high"] < 0.7
    assert difference({"a": 1.0}, {"b": 1.0}, 0)["value"] is None
