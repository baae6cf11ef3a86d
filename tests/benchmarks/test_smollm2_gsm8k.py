"""The study of SmolLM2 on GSM8K: its questions, demonstrations, arms and figures, on problems of our own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.studies import smollm2_gsm8k as study
from benchmarks.studies import smollm2_gsm8k_figures as told_by
from reagent.env.task import read_tasks
from reagent.train.config import load_agent_config


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


def test_no_question_is_demonstrated_played_and_held_out_at_once(data: Path, tmp_path: Path) -> None:
    counts = study.prepare(data, tmp_path / "runs", 10)
    assert counts == {"held_out": study.OWN_HELD_OUT + 1, "train": 120, "test": 1}
    files = {name: {t.id for t in read_tasks(tmp_path / "runs" / f"{name}.jsonl")} for name in ("held_out", "train")}
    shown = {demo.task.id for demo in study._parts(data, 10)[2]}
    assert len(shown) == 10 and not shown & (files["held_out"] | files["train"])
    assert not files["held_out"] & files["train"]
    with pytest.raises(SystemExit, match="too few for 40"):
        study.prepare(data, tmp_path / "other", 40)


def test_the_training_is_paid_by_outcomes_alone(data: Path, tmp_path: Path) -> None:
    made = study.Study(tmp_path / "runs", study.prepare(data, tmp_path / "runs", 10))
    config = load_agent_config("smollm2", made.options("grpo", 0))
    assert config.algorithm == "grpo" and config.max_updates >= 40 and config.feedback.mode == "none"
    assert config.environment.eval_tasks == study.OWN_HELD_OUT + 1 and config.environment.options == {}
    wide, control = (load_agent_config("smollm2", made.options(arm, 0)) for arm in ("wide", "wide-shuffled"))
    assert wide.rollout.tasks_per_update == 32 and (wide.feedback.mode, control.feedback.mode) == ("none", "shuffled")
    other = {"name", "output_dir", "feedback"}
    assert wide.model_dump(exclude=other) == control.model_dump(exclude=other)
    filled = load_agent_config("smollm2", made.options("filled", 0))
    assert filled.rollout.dynamic_sampling == 6 and filled.loss.advantage_scale == "none"
    assert filled.optim == config.optim.model_copy(update={"microbatch_tokens": 1024, "share_prefixes": True})
    alike = {"rollout": config.rollout, "loss": config.loss, "optim": config.optim, "output_dir": config.output_dir}
    assert filled.model_copy(update=alike) == config


def answered(correct: list[int]) -> list[dict[str, Any]]:
    return [
        {"id": f"q{n:03d}", "correct": float(c), "answer": "1", "calls": 2, "malformed": 0, "tokens": 20}
        for n, c in enumerate(correct)
    ]


def run(correct: list[int], seed: int = 0) -> dict[str, Any]:
    return {"seed": seed, "by": "evaluate", "rows": answered(correct)}


def test_figures_by_hand() -> None:
    start = [run([1, 0, 0, 0] * 10)]
    found = told_by.figures({told_by.START: start, "grpo": [run([1, 1, 0, 0] * 10), run([1, 0, 0, 1] * 10, 1)]})
    assert found["start"]["success"]["value"] == 0.25 and found["grpo"]["by_seed"] == [0.5, 0.5]
    assert found["grpo"]["less_start"]["value"] == 0.25 and found["grpo"]["less_start"]["low"] > 0
    assert found["grpo"]["less_start_by_seed"][0]["value"] == 0.25 and "less_start" not in found["start"]
    assert "less_start_over_seeds" not in found["grpo"] and told_by.figures({}) == {}
    assert (found["grpo"]["solved_anew_by_seed"], found["grpo"]["lost_by_seed"]) == ([10, 10], [0, 0])
    wide = [run([1, 1, 0, 0] * 10, seed) for seed in range(3)]
    told = told_by.figures({told_by.START: start, "wide": wide, "wide-shuffled": [run([1, 0, 0, 0] * 10)]})["wide"]
    assert told["less_control"]["value"] == 0.25 and told["less_start_over_seeds"]["value"] == 0.25
    surer = told_by.figures({told_by.START: start, "grpo": [run([1, 1, 0, 0] * 10)]}, [run([1, 1, 1, 0] * 10)])
    assert surer["grpo"]["less_start"]["value"] == 0.25 and surer["grpo"][told_by.LESS_GREEDY]["value"] == -0.25
    assert told_by.LESS_GREEDY not in surer["start"] and told_by.LESS_GREEDY not in found["grpo"]
    with pytest.raises(ValueError, match="same questions"):
        told_by.figures({told_by.START: start}, [{"seed": 0, "rows": answered([1, 0, 0, 0] * 11)[4:]}])
    with pytest.raises(ValueError, match="same questions"):  # paired by their places they were level
        told_by.figures({told_by.START: start, "grpo": [{"seed": 0, "rows": answered([1, 0, 0, 0] * 11)[4:]}]})


def test_both_ways_stand_in_a_row() -> None:
    greedy = {told_by.START: [run([1, 0, 0, 0] * 10)], "grpo": [run([1, 1, 0, 0] * 10)]}
    sampled = {told_by.START: [run([0, 0, 0, 1] * 10)]}
    record = {
        "figures": told_by.figures(greedy),
        told_by.SAMPLED: {"figures": told_by.figures(sampled, greedy[told_by.START])},
    }
    head, start, grpo = told_by.both_ways(record, lambda found: f"{found['value']:.2f}")
    assert len(head) == len(start) == len(grpo) == 8
    assert start == ["`start`", "0.25", "–", "–", "0.25", "–", "–", "–"]
    assert grpo == ["`grpo`", "–", "–", "–", "0.50", "0.25", "+0.250", "–"]


def test_a_run_whose_machine_was_gone_is_known_by_its_last_evaluation(tmp_path: Path) -> None:
    last = {"update": study.UPDATES - 1, "by_task": {"q001": 0.0, "q000": 1.0}}
    (tmp_path / "eval.jsonl").write_text(
        json.dumps({"update": 19, "by_task": {"q000": 0.0}}) + "\n" + json.dumps(last) + "\n"
    )
    found = told_by.answered(tmp_path, 2, study.UPDATES)
    assert found["rows"] == [{"id": "q000", "correct": 1.0}, {"id": "q001", "correct": 0.0}]
    told = told_by.figures({told_by.START: [run([0, 0])], "grpo": [{"seed": 0, **found}]})
    assert told["grpo"]["less_start"]["value"] == 0.5 and "calls" not in told["grpo"] and told["start"]["calls"] == 2
    assert told_by.answered(tmp_path, 3, study.UPDATES) == {}  # not all questions
    (tmp_path / "eval.jsonl").write_text(json.dumps({**last, "update": 19}) + "\n")
    assert told_by.answered(tmp_path, 2, study.UPDATES) == {}  # not the last
    (tmp_path / "held_out.json").write_text(json.dumps(answered([1, 1])))
    assert told_by.answered(tmp_path, 2, study.UPDATES) == {"by": "evaluate", "rows": answered([1, 1])}
    assert told_by.answered(tmp_path, 3, study.UPDATES) == {}


def test_what_is_there_is_collected(data: Path, tmp_path: Path) -> None:
    made = study.Study(tmp_path / "runs", study.prepare(data, tmp_path / "runs", 10))
    (made.runs / told_by.START).mkdir()
    (made.runs / told_by.START / "held_out.json").write_text(
        json.dumps(answered([1, 0, 0] * (made.counts["held_out"] // 3)))
    )
    found = study.collect(made)
    assert found["warm"] is None and found["trainings"] == {} and list(found["figures"]) == [told_by.START]
    assert "sampled" not in found and json.dumps(found, allow_nan=False)
    rows = answered([1] + [0] * (made.counts["held_out"] - 1))
    (made.runs / told_by.START / "sampled.json").write_text(json.dumps(rows))
    sampled = study.collect(made)["sampled"]
    assert sampled["temperature"] == 1 and sampled["answered"] == {told_by.START: [{"seed": 0, "by": "evaluate"}]}
    assert sampled["figures"][told_by.START]["success"]["value"] == round(1 / len(rows), 4)


def test_questions_are_answered_greedily_and_as_attempts_are_sampled(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = study.Study(tmp_path / "runs", study.prepare(data, tmp_path / "runs", 10)), dict[str, float]()

    def call(arguments: list[str], log: Path, module: str) -> None:
        overrides = [one for one in arguments if not one.startswith("-") and "=" in one]
        asked[log.stem] = load_agent_config("smollm2", overrides).eval.temperature

    monkeypatch.setattr(study, "call", call)
    made.evaluate(tmp_path, tmp_path / "policy")
    training = load_agent_config("smollm2", made.options("grpo", 0)).rollout.temperature
    assert asked == {"held_out": 0.0, "sampled": training}
    (tmp_path / "held_out.json").write_text("[]")
    asked.clear()
    made.evaluate(tmp_path, tmp_path / "policy")
    assert asked == {"sampled": training}  # what is done is not repeated
