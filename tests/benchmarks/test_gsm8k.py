"""GSM8K for a small language model: its questions, demonstrations and config, and the study that runs it, on problems of our own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.studies import gsm8k as study
from benchmarks.studies.no_answer_key import LEARNING, Study
from benchmarks.studies.no_answer_key_figures import arm_of, as_digits
from reagent.env.task import read_tasks
from reagent.train.config import AgentConfig, load_agent_config


def problem(n: int, solution: str, answer: str) -> str:
    return json.dumps({"question": f"Problem {n}: how many jars?", "answer": f"{solution}\n#### {answer}"})


TWO = "He has 3*4=<<3*4=12>>12 jars.\nWith 5 more 12+5=<<12+5=17>>17."
ONE = "6*7=<<6*7=42>>42"
THREE = "<<1+1=2>>2 <<2+1=3>>3 <<3+1=4>>4"


def write(path: Path, rows: list[str]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write("".join(row + "\n" for row in rows))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    own = [problem(n, *((TWO, "17") if n % 2 else (ONE, "42"))) for n in range(study.OWN_HELD_OUT + 130)]
    write(folder / "train.jsonl.gz", [*own, problem(9001, THREE, "4"), problem(9002, "It is 9.", "9")])
    write(folder / "test.jsonl.gz", [problem(9003, TWO, "17"), problem(9004, THREE, "4")])
    return folder


def test_problems_have_one_or_two_operations(data: Path) -> None:
    (one,) = study.problems(data / "test.jsonl.gz")
    assert (one[0].answer, one[0].meta["operations"]) == ("17", 2) and one[1].startswith(TWO)


@pytest.mark.parametrize(
    ("solution", "answer", "turns"),
    [
        (TWO, "17", ["<calculator>3*4</calculator>", "<calculator>12+5</calculator>", "<answer>17</answer>"]),
        (ONE, "42", ["<calculator>6*7</calculator>", "<answer>42</answer>"]),
        ("<<6*7=42>>42, less one", "41", None),  # what follows is not calculated
        ("<<6*seven=42>>42", "42", None),
        ("42", "42", None),
        ("<<1+0=1>>" * 4, "1", None),  # more turns than an episode has
    ],
)
def test_each_calculation_becomes_a_call(tmp_path: Path, solution: str, answer: str, turns: list[str] | None) -> None:
    write(tmp_path / "one.jsonl.gz", [problem(1, solution, answer)])
    ((task, told),) = [(t, s) for t, s in all_of(tmp_path / "one.jsonl.gz")]
    made = study.script(study.FewOperations(), task, told)
    assert (made and [turn.text for turn in made]) == turns


def all_of(path: Path) -> list[tuple[Any, str]]:
    """As `problems`, with any number of operations."""
    return [(t, row.text("answer")) for row in study.read_rows(path) if (t := study.GSM8K.task_of(row)) is not None]


def test_a_demonstration_is_what_an_episode_shows(data: Path) -> None:
    (demo,) = study.demonstrations(study.problems(data / "test.jsonl.gz"))
    assert [m["content"] for m in demo.messages[2:]] == [
        "<calculator>3*4</calculator>", "<information>12</information>", "<calculator>12+5</calculator>",
        "<information>17</information>", "<answer>17</answer>",
    ]  # fmt: skip
    assert demo.train_on == [m["role"] == "assistant" for m in demo.messages]


def prepared(data: Path, runs: Path) -> AgentConfig:
    return study.prepare(study.parts(data, 10), [t for t, _ in study.problems(data / "test.jsonl.gz")], runs)


def test_no_question_is_demonstrated_played_and_held_out_at_once(data: Path, tmp_path: Path) -> None:
    assert prepared(data, tmp_path / "runs").gate.action == "off"  # all its runs begin with one policy
    files = {name: {t.id for t in read_tasks(tmp_path / "runs" / f"{name}.jsonl")} for name in ("held_out", "train")}
    assert {name: len(ids) for name, ids in files.items()} == {"held_out": study.OWN_HELD_OUT + 1, "train": 120}
    shown = {demo.task.id for demo in study.parts(data, 10)[2]}
    assert len(shown) == 10 and not shown & (files["held_out"] | files["train"])
    assert not files["held_out"] & files["train"]
    with pytest.raises(SystemExit, match="too few for 40"):
        study.parts(data, 40)


def test_the_study_without_an_answer_key_runs_it_from_its_config(data: Path, tmp_path: Path) -> None:
    """In its arms only what pays differs."""
    runs = tmp_path / "runs"
    made, file = prepared(data, runs), str(runs / "config.yaml")
    assert load_agent_config(file) == made and made.environment.eval_tasks == study.OWN_HELD_OUT + 1
    of = Study(runs, "/judge", ("feedback.score_mode=steps",), file)
    outcome, again, shuffled, judge, both = (load_agent_config(file, of.options(arm, 0)) for arm in LEARNING)
    assert outcome.algorithm == "grpo" and outcome.policy.base == str(runs / "warm") and outcome.max_updates >= 40
    assert [one.feedback.mode for one in (outcome, again, shuffled, judge, both)] == [
        "none",
        "none",
        "shuffled",
        "r",
        "r",
    ]
    assert (judge.environment.label_share, both.environment.label_share) == (
        0.0,
        1.0,
    ) and judge.feedback.judge == "/judge"
    assert again.seed == outcome.seed + 100
    other = {"feedback": True, "guards": True, "output_dir": True, "seed": True, "environment": {"label_share"}}
    alike = [one.model_dump(exclude=other) for one in (outcome, again, shuffled, judge, both)]  # pyright: ignore[reportArgumentType]
    assert all(one == alike[0] for one in alike)


def test_tasks_that_are_not_the_labs_are_in_the_order_of_their_ids() -> None:
    start, end = as_digits({"b": 0.0, "a": 1.0, "c": 0.0}), as_digits({"c": 1.0, "a": 1.0, "b": 0.0})
    assert (start, end) == ("100", "101")
    run = {"seed": 0, "labels": 1, "judge_tokens": 0, "minutes": 1.0}
    arm = arm_of(
        "judge", [run | {"evaluations": [{"update": 5, "episodes": 9, "success": end}]}], {"start": start}, lab=False
    )
    assert arm["success"]["value"] == pytest.approx(2 / 3) and arm["less_start"]["value"] == pytest.approx(1 / 3)
    assert "success_by_hops" not in arm
