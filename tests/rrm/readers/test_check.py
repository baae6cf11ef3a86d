"""`rrm check`: each finding on data in which it was planted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from log_rows import talk
from rich.table import Table
from typer.testing import CliRunner

from rrm.cli import check_cmd, main
from rrm.cli.reading import refuse_missing
from rrm.cli.tables import print_table
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.readers.check import NEAR, check, minhash

APP = typer.Typer(pretty_exceptions_enable=False)
APP.command("check")(check_cmd.command)
WORDS = np.array([f"word{k}" for k in range(2_000)])


def prose(seed: int, words: int = 120) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def make(name: str, question: str, answer: str, outcome: float | None = 1.0, tool: str = "", **meta: Any) -> Trajectory:
    later = [{"role": "tool", "content": tool}, {"role": "assistant", "content": "so"}] if tool else []
    messages = [*talk(question, answer), *later]
    record = {"id": name, "task": question, "question_id": question[:2], "messages": messages, "outcome": outcome}
    return Trajectory.model_validate({**record, "meta": meta})


def test_counts_balance_and_lengths() -> None:
    rows = [
        make("a", "q1", "x" * 10), make("b", "q1", "y" * 30, 0.0, tool="z"), make("c", "q2", "w", None),
        make("d", "q3", "v", 0.5),
    ]  # fmt: skip
    report = check(rows)
    assert (report.rows, report.positive, report.negative, report.partial, report.unlabelled) == (4, 1, 1, 1, 1)
    assert (report.questions, report.questions_with_both_labels, report.attempts_per_question) == (3, 1, 1.33)
    assert report.steps["max"] == 2 and report.steps["mean"] == 1.25
    assert report.characters["min"] == 3 and report.characters["max"] == 2 + 30 + 1 + 2
    assert report.leaks == 0 and report.splits == {}


def test_duplicates_by_messages_and_by_id() -> None:
    again = make("a#2", "q1", "x", original_id="a")
    report = check([make("a", "q1", "x"), again, make("c", "q1", "other")])
    assert report.duplicate_rows == 1 and report.duplicates == [("a#2", "a")]
    assert report.repeated_id_rows == 1 and report.repeated_ids == ["a"]


def test_outcome_and_reference_in_the_text() -> None:
    rows = [
        make("a", "q1", "my answer", tool="Your answer is wrong.", reference="yes"),
        make("b", "q2", "look", tool="It was Seth MacFarlane, born 1973", reference="seth macfarlane!"),
        make("c", "q3", "look", tool="sethmacfarlane", reference=["Seth MacFarlane", 7]),
        make("d", "q4", "reward = True, I hope", tool="nothing", reference={"actions": []}),
    ]
    report = check(rows)
    assert report.outcome_leak_rows == 1 and report.outcome_leaks == ["a"]
    assert report.reference_rows == 2 and report.reference_in_tools_rows == 1


def test_minhash_estimates_jaccard() -> None:
    words = prose(0, 1_000).split()
    a, b = minhash(" ".join(words[:800])), minhash(" ".join(words[200:]))
    assert a is not None and b is not None and minhash("too short") is None and minhash("same " * 500) is None
    upper = minhash(" ".join(words[:800]).upper())
    assert upper is not None and np.array_equal(a, upper)
    truth = (600 - 4) / (1_000 - 4)  # shingles of five words in common, and in all
    assert abs(float(np.mean(a == b)) - truth) < 3 * np.sqrt(truth * (1 - truth) / len(a))


def test_leaks_across_splits() -> None:
    body = prose(1)
    near = " ".join([*body.split()[:-1], "different"])
    rows = [
        make("a", "q1 is asked", body), make("b", "q2 is asked", near),  # nearly a's transcript, in another split
        make("c", "q3 is asked", prose(2)), make("d", "q4 is asked", prose(3)), make("e", "q5 is asked", prose(4)),
    ]  # fmt: skip
    rows[3].task = "Q3 is  ASKED"  # the same words as c's question
    report = check(rows, {"train": ["q1", "q3", "q6"], "test": ["q2", "q4", "q6"]})
    assert report.questions_in_two_splits == ["q6"] and report.same_question_text == [("q3", "q4")]
    assert report.near_duplicate_pairs == 1 and report.leaks == 3
    ((first, second, similarity),) = report.near_duplicates
    assert {first, second} == {"a", "b"} and similarity >= NEAR
    assert report.splits["train"] == {"questions_listed": 3, "questions_seen": 2, "rows": 2, "positive": 2}
    assert report.splits["(none)"]["rows"] == 1
    inside = check(rows[:2], {"train": ["q1", "q2"], "test": []})
    assert inside.leaks == 0


def test_command_exit_codes_and_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, split = tmp_path / "data.jsonl", tmp_path / "split.json"
    write_jsonl(data, [make("a", "q1", "x"), make("b", "q2", "y", 0.0)])
    split.write_text(json.dumps({"train": ["q1"], "test": ["q2"]}))
    clean = CliRunner().invoke(APP, [str(data), "--split", str(split)])
    assert clean.exit_code == 0, clean.output
    result = json.loads(clean.stdout)  # nothing else goes into a pipe
    assert result["rows"] == 2 and result["leaks"] == 0 and result["unreadable"] == 0
    split.write_text(json.dumps({"train": ["q1", "q2"], "test": ["q2"]}))
    with monkeypatch.context() as patched:
        patched.setattr(check_cmd, "for_people", lambda: True)
        leaking = CliRunner().invoke(APP, [str(data), "--split", str(split)])
    assert leaking.exit_code == 1 and "LEAK" in leaking.stdout and '"leaks"' not in leaking.stdout
    data.write_text(data.read_text() + "[[broken\n")
    broken = CliRunner().invoke(APP, [str(data)])
    assert broken.exit_code == 1 and json.loads(broken.stdout.splitlines()[-1])["unreadable"] == 1


@pytest.mark.parametrize(("names", "said"), [
    (["empty.jsonl"], "error: no transcript could be read: "), (["empty"], "error: no transcript could be read: "),
    (["data.jsonl", "dato.jsonl"], "error: {0}/dato.jsonl: no such file or folder; did you mean {0}/data.jsonl?\n"),
])  # fmt: skip
def test_an_input_without_transcripts_is_one_line_and_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], names: list[str], said: str
) -> None:
    write_jsonl(tmp_path / "data.jsonl", [make("a", "q1", "x")])
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", ["rrm", "check", *(str(tmp_path / name) for name in names)])
    with pytest.raises(SystemExit) as stopped:
        main()
    printed = capsys.readouterr()
    assert stopped.value.code == 2 and said.format(tmp_path) in printed.err
    assert "dato.jsonl" not in names or (printed.out, printed.err) == ("", said.format(tmp_path))


def test_standard_input_and_the_hub_are_no_paths(tmp_path: Path) -> None:
    refuse_missing(["-", "hf:owner/name:train"])
    done = CliRunner().invoke(APP, ["-"], input=make("a", "q1", "x").to_json() + "\n")
    assert done.exit_code == 0 and json.loads(done.stdout.splitlines()[-1])["rows"] == 1


def test_errors_have_rows_of_their_own_and_no_line_is_wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = Path("data.jsonl")
    lines = [{f"key_{k}_{'long' * 10}": k for k in range(9)}, {"mesages": "[red]x"}, *[{"foo": k} for k in range(6)]]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert json.loads(CliRunner().invoke(APP, [str(data)]).stdout)["unreadable"] == 8
    monkeypatch.setattr(check_cmd, "for_people", lambda: True)
    done = CliRunner().invoke(APP, [str(data)])
    table = done.stdout.splitlines()
    assert done.exit_code == 1
    assert max(map(len, table)) == 160 and "processbench" not in "".join(table)
    cells = [[cell.strip() for cell in line.split("│")[1:4]] for line in table if line.startswith("│")]
    (first,) = [at for at, cell in enumerate(cells) if cell[0] == "unreadable"]
    after = next(at for at in range(first + 1, len(cells)) if cells[at][0])
    reasons = [note for _, _, note in cells[first:after]]
    assert cells[first][1] == "8" and reasons[-1] == "and 3 more"
    begun = [note for note in reasons if note.startswith(f"{data}:")]
    assert [int(note.removeprefix(f"{data}:").partition(":")[0]) for note in begun] == [1, 2, 3, 4, 5]
    assert "`mesages` may be its `messages`" in " ".join(reasons) and "…" in " ".join(reasons)  # the ninth key's


@pytest.mark.parametrize(("cells", "width"), [
    (["a" * 30] * 8, 8 * 30 + 25),  # many short ones: as wide as they are
    (["a", "b " * 400], 160), (["a" * 80, "b" * 81, "c" * 300], 80 * 3 + 10), (["a" * 20, "b" * 70], 97),
])  # fmt: skip
def test_only_long_cells_are_folded(cells: list[str], width: int, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(*["x"] * len(cells))
    table.add_row(*cells)
    print_table(table)
    lines = capsys.readouterr().out.splitlines()
    assert {len(line) for line in lines} == {width}
    columns = zip(*[[c.strip() for c in line.split("│")[1:-1]] for line in lines if line.startswith("│")], strict=True)
    assert ["".join(parts).replace(" ", "") for parts in columns] == [cell.replace(" ", "") for cell in cells]
