"""Published sets of labelled runs. The rows are made up, after the schemas that the data cards and READMEs show: no set is here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
from log_rows import read_text, sent, talk
from typer.testing import CliRunner

from rrm.cli import annotate_cmd
from rrm.config import TrainConfig
from rrm.data.annotation import own_annotations, read_annotations
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.train import given_labels as given
from rrm.train.prepare import load_data

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command("annotate")(annotate_cmd.command)
RUBRIC = (
    "Judge the run.\n\n<think>\nAnalyse.\n</think>\n\n<critique>\nSum up.\n</critique>\n\n<score>\n0 to 1.\n</score>"
)
REPLY = "<think>\nIt looked once.\n</think>\n\n<critique>\nLook twice.\n</critique>\n\n<score>\n0.6\n</score>"
RUN = (
    "<think>I should look.</think>\n<tool_call>\n"
    '{"name": "look", "arguments": {"at": "door"}}\n</tool_call>\n<tool_response>\n90 cm\n</tool_response>\n'
    "<think>Clear.</think>\n<answer>\\boxed{90 cm}</answer>"
)


def judged(prompt: str, reply: str = REPLY, **more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": reply}], **more}


def read_rows(tmp_path: Path, *rows: Any) -> tuple[list[Trajectory], list[str]]:
    runs, errors = read_text(tmp_path / "rows.json", json.dumps(rows))
    return runs, [error.reason for error in errors]


# ---- Reagent-RRM ----

CALL = {"name": "look", "arguments": {"at": "door"}, "id": "call_1"}
MESSAGES = [
    {"role": "user", "content": "How wide is the door?"},
    {"role": "assistant", "reasoning_content": "I should look.", "tool_calls": [CALL]},
    {"role": "tool", "content": "90 cm", "tool_call_id": "call_1", "name": "look"},
    {"role": "assistant", "content": "<answer>\\boxed{90 cm}</answer>", "reasoning_content": "Clear."},
]


@pytest.mark.parametrize("heading", ["Agent Trajectory: ", "Reasoning trajectory:\n", "Agent's response:\n"])
@pytest.mark.parametrize("question", ["Original question:\n", "Question: "])
def test_prompt_and_reply_become_a_run_and_its_label(tmp_path: Path, heading: str, question: str) -> None:
    prompt = f"{RUBRIC}\n\n{question}How wide is the door?\n\n{heading}{RUN}"
    (run,), errors = read_rows(tmp_path, judged(prompt, source="doors", score=0.6))
    assert errors == [] and sent(run) == MESSAGES
    assert (run.id, run.task, run.outcome) == ("rows:1", "How wide is the door?", None)
    assert run.source and run.source.format == "judge_sft"
    label = {"score": 0.6, "trace": "It looked once.", "critique": "Look twice."}
    label |= {"annotator": "judge_sft", "kind": "llm"}
    assert run.meta == {"source": "doors", "score": 0.6, "annotations": [label], "rubric": RUBRIC}
    (annotation,), unusable = own_annotations(run)
    assert unusable == 0 and (annotation.digest, annotation.trajectory_id) == (run.digest, "rows:1")
    assert (annotation.score, annotation.trace, annotation.critique) == (0.6, "It looked once.", "Look twice.")


def test_lines_that_look_like_headings_are_none_beside_the_published_ones(tmp_path: Path) -> None:
    rubric = "You judge.\nQuestion: what the user asked comes below.\nYour trajectory: none."
    asked = "Describe.\nMy trajectory: fly\nThe agent's answer: yes"
    shown = "Question: which?\nA trajectory: that one.\nModel output:\nOriginal question: no\nDone."
    (one,), errors = read_rows(tmp_path, judged(f"{rubric}\nOriginal question:\n{asked}\nAgent Trajectory:\n{shown}"))
    assert errors == [] and one.meta["rubric"] == rubric and one.task == asked
    assert [m.text() for m in one.messages] == [asked, shown]
    (two,), errors = read_rows(tmp_path, judged(f"Judge.\nQuestion: {asked}\nAgent Trajectory:\n{shown}"))
    assert errors == [] and two.task == asked and two.messages[-1].text() == shown


@pytest.mark.parametrize(("prompt", "heading"), [
    ("Question: as\nQuestion: q\nAgent Trajectory: a", "Question:"),
    ("Original question: as\nOriginal question: q\nAgent Trajectory: a", "Original question:"),
    ("Original question: q\nAgent Trajectory: a\nAgent Trajectory: b", "Agent Trajectory:"),
    ("Question: My\nown trajectory: x\nReasoning trajectory: a", "own trajectory:"),
    ("Question: q\nAgent's response: a\nAgent's response: b", "Agent's response:"),
])  # fmt: skip
def test_a_prompt_with_two_such_headings_is_refused(tmp_path: Path, prompt: str, heading: str) -> None:
    runs, (reason,) = read_rows(tmp_path, judged(prompt))
    assert runs == [] and f"has 2 lines like {heading!r}" in reason


def test_a_rubric_in_a_turn_of_its_own_and_a_run_as_messages(tmp_path: Path) -> None:
    asked, *later = talk("How wide?", "I look.", "And?", "90")
    prompt = f"Question: How wide?\n\nAgent Trajectory: {json.dumps(later)}"
    chat = [{"role": "system", "content": RUBRIC}, *talk(prompt, REPLY)]
    (run,), errors = read_rows(tmp_path, {"messages": chat, "id": "r1"})
    assert errors == [] and run.id == "r1" and run.meta["rubric"] == RUBRIC
    assert sent(run) == [asked, *later]


def test_tools_that_the_question_declares(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    asked = f"You help.\n\n# Tools\n\n<tools>\n{json.dumps(tool)}\n</tools>\n\nHow wide?"
    (run,), _ = read_rows(tmp_path, judged(f"Original question:\n{asked}\n\nAgent Trajectory:\n{RUN}"))
    assert run.tools == [tool] and run.messages[0].text() == asked
    chat = f"<|im_start|>system\n{asked}<|im_end|>\n<|im_start|>user\nThe door?<|im_end|>\n<|im_start|>assistant\n{RUN}<|im_end|>"
    (run,), _ = read_rows(tmp_path, judged(f"Original question:\nx\n\nAgent Trajectory:\n{chat}"))
    assert run.tools is None and [m.role for m in run.messages] == ["system", "user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(("prompt", "reply", "why"), [
    ("Question: q\n\nit went well", REPLY, "names no transcript after its question"),
    ("Question: q\n\nAgent Trajectory:\n", REPLY, "nothing follows the prompt's heading 'Agent Trajectory:'"),
    ("Question: q\n\nAgent Trajectory: a", REPLY.replace("0.6", "6"), "score '6' lies outside [0, 1]"),
    ("Question: q\n\nAgent Trajectory: a", REPLY.replace("0.6", "high"), "score 'high' is not a number"),
    ("Question: q\n\nAgent Trajectory: <|im_start|>user\nx<|im_end|>", REPLY, "holds no turn of the agent"),
])  # fmt: skip
def test_what_cannot_be_parsed_is_refused_with_its_reason(tmp_path: Path, prompt: str, reply: str, why: str) -> None:
    runs, (reason,) = read_rows(tmp_path, judged(prompt, reply))
    assert runs == [] and why in reason and reason.endswith("(format judge_sft)")


def test_an_ordinary_chat_is_no_judges_prompt(tmp_path: Path) -> None:
    plain = judged("Question: q?", "An answer.")
    (run,), _ = read_rows(tmp_path, plain)
    assert run.source and run.source.format == "openai"


# ---- PRM800K ----


def option(text: str, rating: int | None, **more: Any) -> dict[str, Any]:
    return {"text": text, "rating": rating, "flagged": None, **more}


def step(*options: dict[str, Any], chosen: int | None = 0, human: Any = None) -> dict[str, Any]:
    return {"completions": list(options), "human_completion": human, "chosen_completion": chosen}


def solution(*steps: dict[str, Any], finish: str, **question: Any) -> dict[str, Any]:
    asked = {"problem": "What is 6 + 6?", "ground_truth_answer": "12", **question}
    labels = {"steps": list(steps), "total_time": 9, "finish_reason": finish}
    return {"labeler": "u-1", "generation": 9, "question": asked, "label": labels}


def test_phase_2_keeps_the_whole_solution_and_labels_to_its_first_error(tmp_path: Path) -> None:
    planned = ["I add.", "6 + 6 = 13.", "So 13."]
    rated = step(option("6 + 6 = 13.", -1), option("6 + 6 = 12.", 1), chosen=None)
    row = solution(step(option("I add.", 0)), rated, finish="found_error", pre_generated_steps=planned)
    (run,), errors = read_rows(tmp_path, row)
    assert errors == [] and [m.text() for m in run.messages] == ["What is 6 + 6?", *planned]
    assert run.outcome is None and run.meta["reference"] == "12" and run.meta["finish_reason"] == "found_error"
    assert run.meta["alternatives"] == [{"step": 2, "text": "6 + 6 = 12.", "rating": 1}]
    (label,), _ = own_annotations(run)
    assert (label.annotator, label.kind, label.score, label.critique) == ("labeler u-1", "human", None, None)
    assert [(f.step, f.verdict) for f in label.findings or ()] == [(1, "unclear"), (2, "bad")]


def test_phase_1_follows_what_was_chosen_and_knows_a_persons_words(tmp_path: Path) -> None:
    good = solution(step(option("no", -1), option("yes", 1), chosen=1), step(option("12", 1)), finish="solution")
    written = {"text": "By hand.", "rating": None, "source": "human", "flagged": False, "corrected_rating": None}
    first = step(option("no", -1), chosen=None, human=written)
    helped = solution(first, step(option("12", 1, flagged=True)), finish="solution")
    (one, two), errors = read_rows(tmp_path, good, helped)
    assert errors == [] and [m.text() for m in one.messages[1:]] == ["yes", "12"] and one.outcome == 1.0
    assert one.source and one.source.outcome_field == "label.finish_reason"
    assert [m.text() for m in two.messages[1:]] == ["By hand.", "12"] and two.outcome is None
    assert two.meta["written_by_hand"] == [1]
    assert [(f["step"], f["verdict"]) for f in two.meta["annotations"][0]["findings"]] == [(2, "unclear")]


def test_what_prm800k_cannot_have_is_refused(tmp_path: Path) -> None:
    rows = [
        solution(finish="give_up"), solution(step(option("a", 1), chosen=3), finish="solution"),
        solution(step(chosen=None), finish="give_up"), solution(step(option("a", 2)), finish="solution"),
    ]  # fmt: skip
    runs, errors = read_rows(tmp_path, *rows)
    assert runs == []
    assert [e.split(" (format")[0] for e in errors] == [
        "no step was labelled: `label.steps` is empty",
        "label.steps[0]: chosen_completion is 3, and there are 1 completions",
        "label.steps[0] has no completion with a text",
        "label.steps[0]: rating '2' is none of -1, 0, 1",
    ]


# ---- ProcessBench ----


def test_the_first_error_is_bad_and_nothing_is_said_of_what_follows(tmp_path: Path) -> None:
    row = {"id": "gsm8k-0", "generator": "m", "problem": "6 + 6?", "steps": ["a", "b", "c"]}
    wrong = {**row, "final_answer_correct": False, "label": 1}
    (one, two), errors = read_rows(tmp_path, wrong, {**row, "id": "x", "final_answer_correct": True, "label": -1})
    assert errors == [] and (one.id, one.task, one.outcome, two.outcome) == ("gsm8k-0", "6 + 6?", 0.0, 1.0)
    assert [m.text() for m in one.messages] == ["6 + 6?", "a", "b", "c"] and one.meta["agent"] == "m"
    first, second = ([(f.step, f.verdict) for f in own_annotations(run)[0][0].findings or ()] for run in (one, two))
    assert first == [(1, "good"), (2, "bad")] and second == [(1, "good"), (2, "good"), (3, "good")]
    assert one.question_id == two.question_id


@pytest.mark.parametrize(
    "more", [{"label": 3}, {"label": -2}, {"label": True}, {"label": "1"}, {"final_answer_correct": 1}]
)
def test_a_label_that_is_no_step_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    row = {"problem": "q", "steps": ["a", "b", "c"], "final_answer_correct": False, "label": 0, **more}
    runs, (reason,) = read_rows(tmp_path, row)
    assert runs == [] and next(iter(more)) in reason


# ---- labels that transcripts carry ----


def made(*labels: Any, **meta: Any) -> Trajectory:
    return Trajectory.model_validate(
        {"id": "r", "messages": talk("q", "a"), "meta": {"annotations": list(labels), **meta}}
    )


def test_an_entry_that_is_no_label_is_counted() -> None:
    good = {"annotator": "ann", "kind": "human", "score": 0.5}
    bad = [
        3, {"score": 0.5}, {**good, "score": 2}, {**good, "colour": 1},
        {**good, "findings": [{"step": 2, "verdict": "bad"}]},
    ]  # fmt: skip
    counts = Counter[str]()
    (label,) = given.annotate([made(good, *bad)], counts=counts)
    assert label.score == 0.5 and label.digest == made(good).digest
    assert counts["annotations_unusable"] == 5 and counts["annotated"] == 1
    none = Trajectory.model_validate({"id": "r", "messages": [], "meta": {"annotations": "none"}})
    assert own_annotations(none) == ([], 0)


def test_a_text_that_names_the_answer_is_dropped_and_the_rest_kept() -> None:
    findings = [{"step": 1, "verdict": "bad", "text": "it is Lisbon"}, {"step": 1, "verdict": "bad", "text": "hasty"}]
    label = {"annotator": "m", "kind": "llm", "score": 0.1, "critique": "The capital is Lisbon.", "findings": findings}
    counts = Counter[str]()
    (kept,) = given.annotate([made({**label, "trace": "It guessed."}, reference="Lisbon")], counts=counts)
    assert (kept.critique, kept.trace, kept.score) == (None, "It guessed.", 0.1)
    assert [f.text for f in kept.findings or ()] == ["hasty"] and counts["leaks_dropped"] == 2


def test_annotate_writes_them_and_train_takes_them(tmp_path: Path) -> None:
    prompt = f"{RUBRIC}\n\nOriginal question:\nHow wide?\n\nAgent Trajectory:\n{RUN}"
    rows, out = tmp_path / "rows.jsonl", tmp_path / "labels.jsonl"
    carried = [judged(prompt), solution(step(option("12", 1)), finish="solution")]
    rows.write_text("".join(json.dumps(row) + "\n" for row in carried))
    result = CliRunner().invoke(APP, [str(rows), "-o", str(out), "--annotator", "given"])
    assert result.exit_code == 0, result.output
    said, rated = read_annotations(out)
    assert (said.critique, said.score, rated.kind) == ("Look twice.", 0.6, "human")
    config = TrainConfig.model_validate({"data": {"trajectories": [str(rows)], "annotations": ["given"]}})
    runs, labels = load_data(config)
    assert {run.id: [a.score for a in labels[run.id]] for run in runs} == {"rows:1": [0.6], "rows:2": [None]}
    both = TrainConfig.model_validate({"data": {"trajectories": [str(rows)], "annotations": ["given", str(out)]}})
    assert [len(several) for several in load_data(both)[1].values()] == [2, 2]
    rows.write_text(json.dumps(talk("q", "a")) + "\n")
    with pytest.raises(RRMError, match="names 'given', and none of 1 transcripts carries a label"):
        load_data(config)
