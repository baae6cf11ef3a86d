"""Transcripts end before the environment tells the verdict, and keep an outcome only where it is still theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rrm.cli import annotate_cmd, convert_cmd, score_cmd
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.readers import read
from rrm.readers.check import check
from rrm.readers.leaks import cut_verdicts


def run(*turns: str, outcome: float | None = 1.0, role: str = "tool") -> Trajectory:
    """A task, then agent and environment in turn."""
    roles = ["user"] + ["assistant", role] * len(turns)
    messages = [
        {"role": r, "content": text} for r, text in zip(roles, ("Your answer is wrong. Why?", *turns), strict=False)
    ]
    return Trajectory.model_validate(
        {"id": "t", "messages": messages, "outcome": outcome, "meta": {"outcome_leaks": [2], "agent": "a"}}
    )


def texts(trajectory: Trajectory) -> list[str]:
    return [m.text() for m in trajectory.messages[1:]]


def test_a_run_without_a_verdict_is_left_as_it_is() -> None:
    whole = run("search", "nothing about grades", "done")
    assert cut_verdicts(whole) is whole
    assert cut_verdicts(whole.model_copy(update={"messages": []})).messages == []


def test_the_verdict_and_all_after_it_go_and_what_stood_before_it_stays() -> None:
    cut = cut_verdicts(run("<solution>4</solution>", "Observation:\nYour answer is wrong.", "sorry", outcome=0.0))
    assert texts(cut) == ["<solution>4</solution>"] and cut.meta == {"agent": "a", "cut_at": 2}
    cut = cut_verdicts(run("run", "Out: 7\nOnce more. Now: your answer is wrong.\nTry again", "sorry", outcome=0.0))
    assert texts(cut) == ["run", "Out: 7\nOnce more."]
    assert check([cut]).verdicts == 0


@pytest.mark.parametrize(
    ("verdict", "more", "outcome", "kept"),
    [
        ("Your answer is wrong.", ("again",), 0.0, 0.0),
        ("Your answer is wrong.", ("again", "Your answer is correct."), 1.0, None),  # it succeeded later
        ("Your answer is wrong.", (), 1.0, 1.0),  # nothing came later: the run is the same
        ("Your answer is correct.", ("thanks",), 1.0, 1.0),
        ("Episode finished, reward = True", ("thanks",), 1.0, 1.0),
        ("reward: 0.5", ("again",), 1.0, None),
        ("reward: 0.0", ("again",), 0.0, 0.0),
        ("reward = 1.0", ("again",), 1.0, 1.0),
        ("your score is 7 of 10", ("again",), 1.0, None),
        ("Your answer is wrong.", ("again",), None, None),
    ],
)
def test_the_outcome_stays_where_it_is_still_the_runs(
    verdict: str, more: tuple[str, ...], outcome: float | None, kept: float | None
) -> None:
    cut = cut_verdicts(run("act", verdict, *more, outcome=outcome))
    assert cut.outcome == kept and texts(cut) == ["act"]
    assert cut.meta.get("whole_outcome") == (outcome if kept is None else None)


def test_convert_cuts_on_demand_and_counts(tmp_path: Path, invoke) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_jsonl(data, [run("a", "ok", "b"), run("a", "Your answer is wrong.", "b", "Your answer is correct.")])
    summary = invoke(convert_cmd.command, data, "-o", out, "--cut-verdicts")[1]
    assert (summary["converted"], summary["cut"], summary["outcomes_unknown_after_cut"]) == (2, 1, 1)
    assert [texts(t) for t in read([out])] == [["a", "ok", "b"], ["a"]]
    assert "cut" not in invoke(convert_cmd.command, data, "-o", out)[1]
    assert check(read([out])).verdicts == 2 and check(read([out])).outcome_leak_rows == 1


def test_commands_read_the_outcome_from_a_named_field(tmp_path: Path, invoke) -> None:
    data, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    row = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "label": "yes"}
    data.write_text(json.dumps(row) + "\n")
    assert invoke(convert_cmd.command, data, "-o", out, "--outcome", "label")[0] == 0
    assert [t.outcome for t in read([out])] == [1.0]
    labels = tmp_path / "labels.jsonl"
    summary = invoke(annotate_cmd.command, data, "-o", labels, "--annotator", "given", "--outcome", "label")[1]
    assert summary["annotations"] == 1
    code, summary = invoke(
        annotate_cmd.command, data, "-o", labels, "--annotator", "given", "--outcome", "won", "--overwrite"
    )
    assert code == 1 and summary["unreadable"] == 1
    code, summary = invoke(
        score_cmd.command, data, "--model", "openai:http://127.0.0.1:9#m", "--dry-run", "--outcome", "won"
    )
    assert code == 1 and summary["unreadable"] == 1
