"""`rrm choose`, as a user meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from openai_server import completion, serve

from reagent.lab.transcripts import make_transcripts
from rrm.cli import main
from rrm.data.output import write_lines
from rrm.data.trajectory import Message, Trajectory, read_canonical, write_jsonl
from rrm.errors import RRMError
from rrm.scoring.choose import read_scores


@pytest.fixture
def rrm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs `rrm` with arguments in this process; (exit code, the JSON line, standard error on one line)."""

    def run(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:
        monkeypatch.setattr(sys, "argv", ["rrm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        return int(stopped.value.code or 0), json.loads(said.out or "{}"), " ".join(said.err.split())

    return run


def attempt(question: str | None, k: int, outcome: float | None, answer: str = "done") -> Trajectory:
    messages = [
        Message(role="user", content=f"do {question}"),
        *(Message(role="assistant", content="look"), Message(role="tool", content="ok " * (k + 1))),
        Message(role="assistant", content=answer),
    ]
    return Trajectory(
        id=f"{question}/{k}", task=f"do {question}", question_id=question, messages=messages, outcome=outcome
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Twelve questions of three attempts, the last of which is right; its scores, right for nine of them; one unscored."""
    rows = [attempt(f"q{q}", k, float(k == 2), answer=f"answer {min(k, 1)}") for q in range(12) for k in range(3)]
    write_jsonl(tmp_path / "runs.jsonl", rows)
    scored = []
    for t in rows:
        question, k = t.id.split("/")
        best = "2" if int(question[1:]) < 9 else "0"
        score = None if t.id == "q0/1" else 0.9 if k == best else 0.1
        scored.append({"id": t.id, "status": "scored", "score": score, "source": {"digest": t.digest}})
    write_lines(tmp_path / "scored.jsonl", map(json.dumps, scored))
    return tmp_path / "runs.jsonl", tmp_path / "scored.jsonl"


def test_one_transcript_a_question_by_the_judge(rrm, files, tmp_path) -> None:
    runs, scored = files
    out = tmp_path / "chosen.jsonl"
    code, said, error = rrm(
        "choose", runs, "--scores", scored, "--by", "judge,longest,random", "--by", "oracle", "-o", out
    )
    assert code == 0, error
    chosen = list(read_canonical(out))
    assert [t.id for t in chosen] == [f"q{q}/{2 if q < 9 else 0}" for q in range(12)]
    assert chosen[0].meta["judge_score"] == 0.9 and {"judge", "longest", "oracle"} <= {*chosen[0].meta["chosen_by"]}
    assert "longest" not in chosen[11].meta["chosen_by"]
    assert (said["questions"], said["attempts"], said["unscored"], said["by"]) == (12, 36, 1, "judge")
    values = {name: found["value"] for name, found in said["success"].items()}
    assert values == pytest.approx({"judge": 0.75, "longest": 1.0, "random": 1 / 3, "oracle": 1.0})
    assert said["judge_minus"]["random"]["low"] > 0 and said["judge_minus"]["longest"]["value"] == -0.25


def test_ties_are_said_where_a_draw_decides(rrm, tmp_path, caplog) -> None:
    rows = [attempt(q, k, None, answer=f"answer {k % 2}") for q in "abc" for k in range(4)]
    rows.append(rows[0].model_copy(update={"id": "a/4"}))  # the same run twice is no choice
    write_jsonl(tmp_path / "runs.jsonl", rows)
    best = {"a/0", "a/4", "b/0", "b/3", "b/1", "c/2"}
    scored = [{"id": t.id, "score": 0.9 if t.id in best else 0.1, "source": {"digest": t.digest}} for t in rows]
    write_lines(tmp_path / "scored.jsonl", map(json.dumps, scored))
    out = tmp_path / "chosen.jsonl"
    options = ("--scores", tmp_path / "scored.jsonl", "--by", "judge,majority,longest,random", "-o", out)
    code, said, error = rrm("choose", tmp_path / "runs.jsonl", *options)
    assert code == 0, error
    assert said["tied"] == {"judge": 1, "majority": 2, "longest": 0}  # a: answer 0 three times, of four runs
    assert [t.meta.get("tied_with") for t in read_canonical(out)] == [None, 2, None]
    assert "in 1 of 3 questions with several attempts the best of them are alike by judge" in caplog.text
    options = ("--scores", tmp_path / "scored.jsonl", "--by", "weighted", "-o", tmp_path / "voted.jsonl")
    code, said, error = rrm("choose", tmp_path / "runs.jsonl", *options)
    assert code == 0, error
    # answer 1 of b has 0.9 + 0.9 against 0.9 + 0.1; its two runs are as good, and say the same
    assert {t.id for t in read_canonical(tmp_path / "voted.jsonl")} & {"b/1", "b/3"} and said["tied"] == {"weighted": 0}


def test_without_outcomes_it_chooses_and_says_no_success(rrm, tmp_path) -> None:
    write_jsonl(tmp_path / "runs.jsonl", [attempt("q", k, None, answer="ab"[k > 0]) for k in range(3)])
    code, said, error = rrm("choose", tmp_path / "runs.jsonl", "--by", "majority", "-o", tmp_path / "chosen.jsonl")
    assert code == 0, error
    assert said["success"] is None and said["graded_questions"] == 0
    assert next(t.id for t in read_canonical(tmp_path / "chosen.jsonl")) in ("q/1", "q/2")


def test_a_judge_is_asked_for_each_content_once(rrm, tmp_path) -> None:
    write_jsonl(tmp_path / "runs.jsonl", [t for t, _ in make_transcripts(8, seed=0)])
    arguments = ("choose", tmp_path / "runs.jsonl", "--model", "lab", "-o", tmp_path / "chosen.jsonl")
    code, said, error = rrm(*arguments, "--by", "judge,oracle")
    assert code == 0, error
    chosen = list(read_canonical(tmp_path / "chosen.jsonl"))
    assert len(chosen) == said["questions"] == 2 and all(0 <= t.meta["judge_score"] <= 1 for t in chosen)
    assert said["success"]["judge"]["value"] <= said["success"]["oracle"]["value"]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([("q", 0, 1.0), ("r", 0, 0.0)], ["--by", "longest"], "each of 2 questions has one transcript"),
        (
            [("q", 0, None), ("q", 1, None)],
            ["--by", "oracle"],
            "the oracle chooses by outcomes, and no transcript has one",
        ),
        (
            [("q", 0, 1.0), ("q", 1, 0.0)],
            ["--by", "best"],
            "no strategy 'best' of choosing; there are judge, weighted, majority",
        ),
        ([("q", 0, 1.0), ("q", 1, 0.0)], ["--by", "longest", "--model", "lab"], "scores are for --by judge"),
        ([("q", 0, 1.0), ("q", 1, 0.0)], ["--by", "longest", "--mode", "steps"], "leave out --mode"),
    ],
)
def test_what_cannot_be_chosen_is_an_error(rrm, tmp_path, rows, options, said) -> None:
    write_jsonl(tmp_path / "runs.jsonl", [attempt(*row) for row in rows])
    code, out, error = rrm("choose", tmp_path / "runs.jsonl", *options, "-o", tmp_path / "chosen.jsonl")
    assert code == 2 and not out and said in error
    assert not (tmp_path / "chosen.jsonl").exists()


@pytest.mark.parametrize("text", ["", "{\n"])
def test_an_input_of_no_transcripts_is_said(rrm, tmp_path, caplog, text: str) -> None:
    (tmp_path / "runs.jsonl").write_text(text)
    code, out, error = rrm("choose", tmp_path / "runs.jsonl", "--by", "longest", "-o", tmp_path / "chosen.jsonl")
    assert code == 2 and not out and "there are no transcripts to choose from" in error and "question id" not in error
    assert ("not JSON" in caplog.text) is bool(text) and not (tmp_path / "chosen.jsonl").exists()


def test_transcripts_without_question_ids_are_refused(rrm, tmp_path) -> None:
    rows = [attempt(None, k, 1.0).model_copy(update={"task": "", "id": str(k)}) for k in range(2)]
    write_jsonl(tmp_path / "runs.jsonl", rows)
    code, _, error = rrm("choose", tmp_path / "runs.jsonl", "--by", "longest", "-o", tmp_path / "chosen.jsonl")
    assert code == 2 and "none of 2 transcripts has a question id" in error


def test_attempts_without_question_ids_go_together_by_their_task(rrm, tmp_path) -> None:
    runs = tmp_path / "runs.jsonl"
    tasks = ["Fix it", "Fix it", "Another"]
    rows = [attempt(None, k, None).model_copy(update={"id": str(k), "task": task}) for k, task in enumerate(tasks, 1)]
    write_jsonl(runs, rows)
    code, said, error = rrm("choose", runs, "--by", "longest", "-o", tmp_path / "chosen.jsonl")
    assert code == 0, error
    assert [t.id for t in read_canonical(tmp_path / "chosen.jsonl")] == ["2", "3"] and said["questions"] == 2


def test_scores_are_of_contents_where_files_share_their_ids(rrm, tmp_path) -> None:
    kept = {}
    for name, score in (("one", 0.9), ("two", 0.2)):
        row = attempt("q", len(name), None, answer=name).model_copy(update={"id": "0"})
        write_jsonl(tmp_path / f"{name}.jsonl", [row])
        kept[name] = {"id": "0", "score": score, "source": {"digest": row.digest}}
    write_lines(tmp_path / "scored.jsonl", [json.dumps(kept[name]) for name in ("two", "one")])
    for order in (("one", "two"), ("two", "one")):  # the second file's id becomes 0#2
        files = [tmp_path / f"{name}.jsonl" for name in order]
        code, _, error = rrm(
            "choose", *files, "--scores", tmp_path / "scored.jsonl", "-o", tmp_path / "c.jsonl", "--overwrite"
        )
        assert code == 0, error
        (chosen,) = read_canonical(tmp_path / "c.jsonl")
        assert chosen.messages[-1].text() == "one" and chosen.meta["judge_score"] == 0.9


def test_a_row_that_could_be_of_two_transcripts_is_refused(tmp_path) -> None:
    rows = [attempt("q", 0, None, answer=said).model_copy(update={"id": "0"}) for said in ("one", "two")]
    path = tmp_path / "scored.jsonl"
    path.write_text('{"id": "0", "score": 0.5}\n')
    with pytest.raises(RRMError, match="the row of '0' could be of 2 transcripts"):
        read_scores(path, rows)
    assert read_scores(path, rows[:1]) == [0.5]
    rated = [{"id": "0", "score": s, "source": {"digest": t.digest}} for t, s in zip(rows, (0.1, 0.9), strict=True)]
    write_lines(path, map(json.dumps, rated))
    assert read_scores(path, rows) == [0.1, 0.9]
    unread = attempt("q", 0, None, answer="three").model_copy(update={"id": "0"})
    assert read_scores(path, [*rows, unread]) == [0.1, 0.9, None]
    with pytest.raises(RRMError, match="'0', but that transcript has changed since"):
        read_scores(path, [rows[0], unread])


def test_scores_of_other_transcripts_are_refused(rrm, files, tmp_path) -> None:
    runs, scored = files
    lines = scored.read_text().splitlines()
    command = ("choose", runs, "--scores", tmp_path / "other.jsonl", "-o", tmp_path / "chosen.jsonl")
    for changed, said in (
        (
            [line.replace('"id": "q', '"id": "x').replace('"digest": "', '"digest": "0') for line in lines],
            "holds 36 rows and none of these 36 transcripts",
        ),
        (
            [lines[0].replace('"digest": "', '"digest": "0'), *lines[1:]],
            "that transcript has changed since: judge it again",
        ),
        ([*lines, lines[0]], "two rows of 'q0/0'"),
        (['{"id": "q0/0", "score": true}'], "a score is a number from 0 to 1, or null, got True"),
        (["[1]"], "it needs an `id` and a `score`"),
    ):
        write_lines(tmp_path / "other.jsonl", changed)
        code, _, error = rrm(*command)
        assert code == 2 and said in error, error


def test_what_stands_is_not_written_over_unasked(rrm, files, tmp_path) -> None:
    runs, scored = files
    out = tmp_path / "new" / "chosen.jsonl"
    command = ("choose", runs, "--scores", scored, "-o", out)
    assert rrm(*command)[0] == 0
    before = out.read_bytes()
    code, _, error = rrm("choose", runs, "--by", "longest", "-o", out)
    assert code == 2 and "holds transcripts already; choose another -o, or --overwrite" in error
    assert out.read_bytes() == before
    assert rrm("choose", runs, "--by", "longest", "-o", out, "--overwrite")[0] == 0 and out.read_bytes() != before


def test_why_attempts_have_no_score_is_said(rrm, files, tmp_path, caplog) -> None:
    """Nothing was: an error asked for another command, and where some had scores the rest fell out without a word."""

    def answer(
        number: int, body: Any
    ) -> Any:  # a reply that cannot be read is asked for once more, and is no better then
        again = "cannot be read" in body["messages"][-1]["content"]
        return completion("I am a teapot" if number < 3 or again else "<score>0.4</score>")

    with serve(answer) as server:
        code, said, _ = rrm("choose", files[0], "--model", f"openai:{server.url}#m", "-o", tmp_path / "out.jsonl")
    assert code == 0 and 0 < said["unscored"] <= 3
    assert (
        f"the judge has no score for {said['unscored']} of 36 transcripts (unparsable {said['unscored']}); q"
        in caplog.text
    )


def test_an_attempt_that_lost_its_question_id_is_said(rrm, files, tmp_path, caplog) -> None:
    """It made a question of its own, and a second row of the same question in what was chosen."""
    rows = [
        attempt("q", 0, None),
        attempt("q", 1, None),
        attempt("q", 2, None).model_copy(update={"question_id": None}),
    ]
    write_jsonl(tmp_path / "lost.jsonl", rows)
    _, said, _ = rrm("choose", tmp_path / "lost.jsonl", "--by", "longest", "-o", tmp_path / "out.jsonl")
    assert (
        said["questions"] == 2
        and "1 of 3 transcripts have no question id and ask what others ask under one" in caplog.text
    )
    caplog.clear()
    rrm("choose", files[0], "--by", "longest", "-o", tmp_path / "all.jsonl")
    assert "have no question id" not in caplog.text


def test_scores_that_are_missing_are_told_with_their_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`unscored: 2`, exit 0, and not a word on how many and why."""
    rows = [
        Trajectory(
            id=f"r{i}",
            task="q",
            question_id="q",
            messages=[Message(role="user", content="q"), Message(role="assistant", content=f"{i}")],
        )
        for i in range(3)
    ]
    path = tmp_path / "scored.jsonl"
    said = [
        {"id": "r0", "status": "judge_error", "score": None, "reason": "HTTP 500"},
        {"id": "r1", "status": "scored", "score": 0.4},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in said))
    assert read_scores(path, rows) == [None, 0.4, None]
    assert "has no score for 2 of 3 attempts (judge_error 1, no row 1); r0, for example: HTTP 500" in caplog.text
