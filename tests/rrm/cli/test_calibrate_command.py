"""`rrm calibrate`: what it reads, asks, writes and refuses."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from openai_server import Answer, Server, completion, failure, serve
from typer.testing import CliRunner

from rrm.cli import calibrate_cmd
from rrm.data.annotation import Annotation
from rrm.data.questions import question_keys
from rrm.data.trajectory import Message, Source, Trajectory, write_jsonl
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Platt
from rrm.judge.card import interval_text
from rrm.judge.domain import OutOfDomainDetector, fit_domain
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings


def row(n: int, won: bool | None, says: str, question: int) -> Trajectory:
    messages = [
        Message(role="user", content=f"Question {question}."),
        Message(role="assistant", content=f"{says} n{n}."),
    ]
    outcome = None if won is None else float(won)
    return Trajectory(
        id=f"r{n}", task=f"Question {question}.", question_id=f"q{question}", messages=messages, outcome=outcome
    )


def rows(count: int = 60) -> list[Trajectory]:
    """Three attempts at each question; who says well has won in four of five cases, who says ill in one of five."""
    return [row(n, (n % 2 == 0) != (n % 5 == 0), "well" if n % 2 == 0 else "ill", n // 3) for n in range(count)]


def grade(_: int, body: dict[str, Any]) -> Answer:
    """A model that is too sure of itself."""
    said = body["messages"][-1]["content"]
    return completion(f"<critique>[step 1] good: fine</critique><score>{'0.9' if 'well' in said else '0.6'}</score>")


def invoke(*args: object):
    app = typer.Typer()
    app.command()(calibrate_cmd.command)
    return CliRunner().invoke(app, [str(a) for a in args])


def calibrate(folder: Path, server: Server, data: Sequence[Trajectory], *options: object):
    write_jsonl(folder / "rows.jsonl", data)
    spec = f"openai:{server.url}#m"
    return invoke(folder / "rows.jsonl", "--model", spec, "-o", folder / "mine", "--resamples", 200, *options)


def test_a_server_becomes_a_directory_that_gives_calibrated_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with serve(grade) as server:
        done = calibrate(tmp_path, server, rows())
        assert done.exit_code == 0, done.output
        asked = len(server.requests)
        judge = AgentRRM.from_pretrained(str(tmp_path / "mine"))
        well, ill = judge.judge([row(900, None, "well", 900), row(901, None, "ill", 901)], mode="full")
    assert asked == 60
    assert (well.raw_score, ill.raw_score, well.judge.calibrated) == (0.9, 0.6, True)
    assert well.score == pytest.approx(0.8, abs=0.02) and ill.score == pytest.approx(0.2, abs=0.02)
    settings = load_settings(tmp_path / "mine")
    assert (settings.engine, settings.default_mode, settings.name) == (f"openai:{server.url}#m", "full", "mine")
    fitted = settings.calibration.modes["full"]
    assert isinstance(fitted, Platt) and fitted.reads == "score"  # what a chat model writes are grades
    assert settings.calibrated_on["full"]["labels"] == {"outcome:outcome": 60}
    record = json.loads((tmp_path / "mine" / "calibration.json").read_text())
    assert (record["rows"], record["questions"], record["folds"], record["statuses"]) == (60, 20, 5, {"scored": 60})
    assert record["before"]["auroc"]["value"] == pytest.approx(0.8, abs=0.01) and record["before"]["ece"][
        "value"
    ] == pytest.approx(0.25)
    assert (
        record["after"]["ece"]["value"] < 0.1 and record["after"]["brier"]["value"] < record["before"]["brier"]["value"]
    )
    assert record["difference"]["brier"]["high"] < 0
    used = [json.loads(line) for line in (tmp_path / "mine" / "calibration.jsonl").read_text().splitlines()]
    assert [u["id"] for u in used] == [f"r{n}" for n in range(60)]
    assert used[0]["raw_score"] == 0.9 and used[0]["label"] == 0.0 and used[0]["label_from"] == "outcome:outcome"
    texts = "".join(path.read_text() for path in (tmp_path / "mine").iterdir())
    assert "very-secret" not in texts and "Question 1" not in texts and "critique>" not in texts
    card = (tmp_path / "mine" / "README.md").read_text()
    assert "in mode full" in card and "60 from outcome:outcome" in card and "| ece | 0.250" in card
    brier = interval_text(record["difference"]["brier"])
    assert brier.startswith("-0.0") and f"after, difference {brier}\n" in done.stderr and f"| {brier} |" in card
    line = json.loads(done.stdout.strip().splitlines()[-1])
    assert (
        line["rows"] == 60
        and line["difference"] == record["difference"]
        and line["after"]["auroc"]["value"] == record["after"]["auroc"]["value"]
    )


def test_a_killed_calibration_asks_for_no_row_twice_and_nothing_is_written_over(tmp_path: Path) -> None:
    def dies(n: int, body: dict[str, Any]) -> Answer:
        return failure(401) if n >= 25 else grade(n, body)

    with serve(dies) as server:
        assert calibrate(tmp_path, server, rows(), "--concurrency", 1).exit_code != 0
    assert not (tmp_path / "mine").exists()
    rows_on_disk = (tmp_path / "mine.rows.jsonl").read_text().splitlines()
    assert len(rows_on_disk) == 25
    with serve(grade) as server:
        assert calibrate(tmp_path, server, rows()).exit_code == 0
        assert len(server.requests) == 35
        before = (tmp_path / "mine" / "judge.json").read_bytes()
        again = calibrate(tmp_path, server, rows())
        assert "is there already" in str(again.exception) and len(server.requests) == 35
    assert (tmp_path / "mine" / "judge.json").read_bytes() == before


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (rows(19), r"at least 20 rows with successes and failures; there are 19, .*; label more runs \(rrm label\)"),
        ([row(n, True, "well", n) for n in range(30)], "there are 30, 30 of them successes"),
        ([*rows(19), *(row(n, None, "well", n) for n in range(20, 50))], "30 transcripts have no label"),
    ],
)
def test_too_few_labels_or_one_class_are_refused_before_anything_is_asked(
    tmp_path: Path, data: list[Trajectory], why: str
) -> None:
    with serve(grade) as server:
        assert re.search(why, str(calibrate(tmp_path, server, data).exception))
        assert server.requests == [] and not (tmp_path / "mine").exists()


def test_few_labels_say_how_few_and_what_interval_they_leave(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serve(grade) as server:
        assert calibrate(tmp_path, server, rows(21)).exit_code == 0
    assert "21 labels (10 of success) of 7 questions" in caplog.text and "uncertain by up to" in caplog.text
    assert "whether the map makes scores better is unknown: too few questions or rows" in caplog.text
    record = json.loads((tmp_path / "mine" / "calibration.json").read_text())
    assert record["widest"] > 0.25 and record["folds"] == 5
    assert record["after"]["ece"]["value"] is not None and record["after"]["ece"]["low"] is None


def test_few_labels_move_the_map_that_there_is_and_grades_without_one_have_none(tmp_path: Path) -> None:
    """Forty labels say 0.8 and 0.2 of what the judge's map says 0.9 and 0.4: with twenty labels' weight on the map, two thirds of the way."""
    own = JudgeSettings(modes=["full"], opening=False)
    own.calibration.modes["full"] = present = Platt(a=1.0, b=0.0, rows=500)
    save_settings(tmp_path / "trained", own)

    def says(_: int, body: dict[str, Any]) -> Answer:
        well = "well" in body["messages"][-1]["content"]
        return completion(f"<critique>[step 1] good: fine</critique><score>{'0.9' if well else '0.4'}</score>")

    with serve(says) as server:
        done = calibrate(tmp_path, server, rows(40), "--settings", tmp_path / "trained")
        assert done.exit_code == 0, done.output
        plain = calibrate(tmp_path, server, rows(40), "-o", tmp_path / "grades")
        assert plain.exit_code == 0, plain.output
    record, grades = (json.loads((tmp_path / d / "calibration.json").read_text()) for d in ("mine", "grades"))
    fitted = load_settings(tmp_path / "mine").calibration.modes["full"]
    well, ill = ([t.outcome for t in rows(40) if says in t.messages[-1].text()] for says in ("well", "ill"))
    for raw, outcomes in ((0.9, well), (0.4, ill)):
        wanted = (sum(o or 0.0 for o in outcomes) / len(outcomes) * 40 + present(raw) * 20) / 60
        assert fitted(raw) == pytest.approx(wanted, abs=0.01)
    assert (record["prior_labels"], grades["prior_labels"]) == (20, 0)
    assert re.search(r"map of full: p = sigmoid\(\d\.\d{3} · logit\(raw\) [+-]\d\.\d{3}\), 40 labels", done.stderr)
    assert re.search(r"raw 0\.900 means 0\.8\d\d \[0\.\d{3}, 0\.\d{3}\]", done.stderr)
    assert record["widest"] < grades["widest"]  # it holds the map where the labels say little


def test_too_few_scores_of_enough_labels_are_refused_too(tmp_path: Path) -> None:
    def some(n: int, body: dict[str, Any]) -> Answer:
        return completion("I cannot say.") if n >= 18 else grade(n, body)

    with serve(some) as server:
        refused = calibrate(tmp_path, server, rows(30), "--concurrency", 1)
    assert "of 30 labelled rows: 18 scored, 12 unparsable; calibration needs at least 20 rows" in str(refused.exception)
    assert not (tmp_path / "mine").exists()


def test_a_map_that_gains_nothing_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def knows(_: int, body: dict[str, Any]) -> Answer:
        said = body["messages"][-1]["content"]
        return completion(
            f"<critique>[step 1] good: fine</critique><score>{'0.8' if 'well' in said else '0.2'}</score>"
        )

    with serve(knows) as server:
        assert calibrate(tmp_path, server, rows()).exit_code == 0
    assert (
        "the map makes scores worse out of fold: Brier score +0.004 [+0.000, +0.008]. Give more labels" in caplog.text
    )


def test_a_judge_that_tells_nothing_is_not_said_to_be_improved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its map gives every run about the rate of success, which makes every figure but the order's lower."""
    won = {n for n in range(96) if n % 8 in (0, 3)} | {2}
    data = [row(n, n in won, "well" if n % 2 == 0 else "ill", n // 3) for n in range(96)]
    with serve(grade) as server:
        done = calibrate(tmp_path, server, data)
        assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "mine" / "calibration.json").read_text())
    assert record["difference"]["ece"]["high"] < 0 and record["difference"]["brier"]["high"] < 0
    assert "this judge's scores are not shown to tell success from failure: AUROC 0.5" in caplog.text
    assert "This judge's scores are not shown to tell" in (tmp_path / "mine" / "README.md").read_text()
    assert json.loads(done.stdout.strip().splitlines()[-1])["no_order"] == record["no_order"] in caplog.text


def test_what_the_judges_server_answered_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def some(n: int, body: dict[str, Any]) -> Answer:
        return failure(400, "no such adapter") if " n7." in body["messages"][-1]["content"] else grade(n, body)

    with serve(lambda n, body: failure(400, "no such adapter")) as server:
        refused = calibrate(tmp_path, server, rows())
        assert "60 judge_error; the first judge_error: " in str(refused.exception)
        assert "no such adapter" in str(refused.exception)
    with serve(some) as server:
        done = calibrate(tmp_path, server, rows(), "-o", tmp_path / "other")
    assert done.exit_code == 1 and "1 transcripts ended in judge_error (" in caplog.text
    assert "no such adapter" in json.loads(done.stdout.strip().splitlines()[-1])["first_error"]
    assert "no such adapter" in caplog.text.split("1 transcripts ended in judge_error")[1]


def test_scores_that_do_not_rise_with_the_labels_are_no_judge(tmp_path: Path) -> None:
    with serve(grade) as server:
        data = [t.model_copy(update={"outcome": 1.0 - (t.outcome or 0.0)}) for t in rows()]
        assert "raw scores fall as labels rise" in str(calibrate(tmp_path, server, data).exception)
    assert not (tmp_path / "mine").exists()


def test_questions_that_the_judge_was_trained_on_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = rows()
    with serve(grade) as server:
        own = JudgeSettings(opening=False, modes=["full"], training_questions=question_keys(data[:9]))
        save_settings(tmp_path / "trained", own)
        done = calibrate(tmp_path, server, data, "--settings", tmp_path / "trained")
        assert done.exit_code == 0, done.output
        assert len(server.requests) == 51
        refused = calibrate(tmp_path / "mine", server, data, "--settings", tmp_path / "trained", "--mode", "score")
    assert "9 of 60 labelled transcripts are of questions that this judge was trained on" in caplog.text
    record = json.loads((tmp_path / "mine" / "calibration.json").read_text())
    assert (record["rows"], record["left_out"]) == (51, {"unlabelled": 0, "trained_on": 9})
    assert load_settings(tmp_path / "mine").training_questions == own.training_questions
    assert "was trained in full, not in score" in str(refused.exception)


def test_rows_without_a_score_are_no_rows_of_the_map(tmp_path: Path) -> None:
    def some(n: int, body: dict[str, Any]) -> Answer:
        return (
            completion("I cannot say.") if re.search(r" n[3-6]\.", body["messages"][1]["content"]) else grade(n, body)
        )

    with serve(some) as server:
        assert calibrate(tmp_path, server, rows()).exit_code == 0
    record = json.loads((tmp_path / "mine" / "calibration.json").read_text())
    assert record["statuses"] == {"scored": 56, "unparsable": 4} and record["rows"] == 56
    with serve(lambda n, body: completion("I cannot say.")) as server:
        refused = calibrate(tmp_path, server, rows(), "-o", tmp_path / "other")
    assert "of 60 labelled rows: 60 unparsable" in str(refused.exception) and not (tmp_path / "other").exists()


def test_labels_come_from_named_fields_and_annotations(tmp_path: Path) -> None:
    data = [t.model_copy(update={"source": Source(file="f", line=1, outcome_field="info.won")}) for t in rows()]
    unlabelled = [t.model_copy(update={"outcome": None}) for t in data[:6]]
    notes = [
        Annotation(trajectory_id=t.id, digest=t.digest, score=t.outcome, annotator="ann", kind="human")
        for t in data[:6]
    ]
    (tmp_path / "notes.jsonl").write_text("".join(n.model_dump_json(exclude_none=True) + "\n" for n in notes))
    with serve(grade) as server:
        done = calibrate(
            tmp_path, server, [*unlabelled, *data[6:]], "--annotations", tmp_path / "notes.jsonl", "--samples", 1
        )
    assert done.exit_code == 0, done.output
    facts = load_settings(tmp_path / "mine").calibrated_on["full"]
    assert facts["labels"] == {"annotation:ann": 6, "outcome:info.won": 54}


def test_rows_that_were_not_judged_are_asked_for_alone_as_the_message_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(n: int, body: dict[str, Any]) -> Answer:
        return failure(400) if body["messages"][-1]["content"].rstrip().endswith(" n7.") else grade(n, body)

    with serve(fails) as server:
        assert calibrate(tmp_path, server, rows()).exit_code == 1
    assert f") and are not in the maps; without {tmp_path / 'mine'}" in caplog.text
    shutil.rmtree(tmp_path / "mine")
    with serve(grade) as server:
        spec = f"openai:{server.url}#m"
        made_by = tmp_path / "mine.rows.jsonl.run.json"
        made_by.write_text(re.sub(r"openai:[^\"]*", spec, made_by.read_text()))  # the server has another port now
        assert calibrate(tmp_path, server, rows()).exit_code == 0
        assert len(server.requests) == 1


def test_a_calibrated_judge_is_calibrated_again_in_another_mode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(grade) as server:
        assert calibrate(tmp_path, server, rows(), "--max-windows", 3).exit_code == 0
        write_jsonl(tmp_path / "rows.jsonl", rows())
        given = [tmp_path / "rows.jsonl", "--model", tmp_path / "mine", "--mode", "score", "-o", tmp_path / "both"]
        done = invoke(*given, "--resamples", 200, "--method", "isotonic")
        assert done.exit_code == 0, done.output
    assert "60 of 60 rows are of questions that the judge's earlier maps were fitted on" in caplog.text
    both = load_settings(tmp_path / "both")
    assert set(both.calibration.modes) == set(both.calibrated_on) == {"full", "score"}
    assert (both.default_mode, both.max_windows, both.calibration.modes["score"].method) == ("score", 3, "isotonic")
    assert (tmp_path / "both" / "README.md").read_text().count("## Calibrated on labels") == 1
    assert AgentRRM.from_pretrained(str(tmp_path / "both")).max_windows == 3


def test_criteria_are_calibrated_and_stay_with_the_directory(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ninstructions: Judge the run.\nquestions:\n  done:\n    ask: Was it done?\n    scale: unit\n"
    )

    def answers(_: int, body: dict[str, Any]) -> Answer:
        value = 0.9 if "well" in body["messages"][-1]["content"] else 0.6
        given = {"done": {"answer": value, "why": "so it was", "steps": [1]}}
        return completion(json.dumps({"answers": given}))

    with serve(answers) as server:
        done = calibrate(tmp_path, server, rows(), "--criteria", tmp_path / "mine.yaml")
        assert done.exit_code == 0, done.output
        judge = AgentRRM.from_pretrained(str(tmp_path / "mine"))
        assert judge.criteria is not None and judge.criteria.name == "mine" and judge.settings.default_mode == "score"
        (found,) = judge.judge([row(900, None, "well", 900)], mode="score")
    assert (found.raw_score, found.judge.calibrated) == (0.9, True) and found.score == pytest.approx(0.8, abs=0.02)
    assert f"asked the questions of {judge.criteria.identity}" in (tmp_path / "mine" / "README.md").read_text()


def test_the_server_is_asked_as_it_was_calibrated(tmp_path: Path) -> None:
    options = ["--temperature", 0.3, "--reasoning-effort", "low", "--header", "X-Key=sk-in-a-header"]
    with serve(grade) as server:
        assert calibrate(tmp_path, server, rows(), *options).exit_code == 0
        AgentRRM.from_pretrained(str(tmp_path / "mine")).judge([row(900, None, "well", 900)], mode="full")
        assert [server.requests[i][k] for i in (0, -1) for k in ("temperature", "reasoning_effort")] == [0.3, "low"] * 2
        given = [tmp_path / "rows.jsonl", "--model", tmp_path / "mine", "-o", tmp_path / "other"]
        refused = invoke(*given, "--temperature", 0.9)
    assert load_settings(tmp_path / "mine").request == {"temperature": 0.3, "reasoning_effort": "low"}
    assert "was calibrated with temperature 0.3, not 0.9: leave out --temperature" in str(refused.exception)
    assert "sk-in-a-header" not in "".join(path.read_text() for path in (tmp_path / "mine").iterdir())


@pytest.mark.parametrize("with_settings", [False, True])
def test_a_password_in_the_address_is_in_no_file_and_in_no_hash(tmp_path: Path, with_settings: bool) -> None:
    write_jsonl(tmp_path / "rows.jsonl", rows())
    save_settings(tmp_path / "given", JudgeSettings(name="given", opening=False))
    options = ["--settings", tmp_path / "given"] if with_settings else []
    with serve(grade) as server:
        spec = f"openai:{server.url}?api-version=2&key=s3cretquery#m".replace("http://", "http://ann:s3cretword@")
        done = invoke(tmp_path / "rows.jsonl", "--model", spec, "-o", tmp_path / "mine", "--resamples", 100, *options)
        assert done.exit_code == 0, done.output
        assert server.keys[0].startswith("Basic ")
        hashes = {
            AgentRRM.from_pretrained(
                f"openai:{server.url}#m".replace("http://", f"http://{user}@"), settings=tmp_path / "given"
            ).model_hash
            for user in ("ann:s3cretword", "bob:other")
        }
        saved = load_settings(tmp_path / "mine")
        assert AgentRRM.from_pretrained(str(tmp_path / "mine")).settings == saved
    assert len(hashes) == 1  # else a row's hash would let a password be guessed
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all("s3cret" not in path.read_text() for path in files)
    assert f"the model of openai:{server.url}?api-version=2#m, asked the" in (tmp_path / "mine/README.md").read_text()


def _calibrated(folder: Path, server: Server, data: Sequence[Trajectory]) -> tuple[OutOfDomainDetector, dict[str, Any]]:
    """The domain and the record of a judge that was measured on runs with calls alone, once it is calibrated on these rows."""
    known = [
        row(n, None, "x", n).model_copy(
            update={
                "messages": [
                    Message(role="user", content="call"),
                    *[Message(role="assistant", content="<a>\n1.\n")] * 3,
                ]
            }
        )
        for n in range(60)
    ]
    save_settings(folder / "trained", JudgeSettings(opening=False, modes=["full"]))
    fit_domain(known[:30], known[30:]).save(folder / "trained")
    assert calibrate(folder, server, data, "--settings", folder / "trained").exit_code == 0
    return OutOfDomainDetector.load(folder / "mine"), json.loads((folder / "mine" / "calibration.json").read_text())[
        "domain"
    ]


def test_the_domain_widens_to_the_rows_that_the_judge_is_calibrated_on(tmp_path: Path) -> None:
    with serve(grade) as server:
        domain, said = _calibrated(tmp_path, server, rows())
    assert said["rows"] == said["outside_before"] == 60 and said["outside"] <= 3
    assert [group.name for group in domain.groups] == ["", "mine"] and not domain.flag(row(99, None, "well", 99))[0]


def test_the_domain_stays_where_the_labels_show_no_order(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def nearly(n: int, body: dict[str, Any]) -> Answer:
        """Hardly better than chance."""
        number = int(re.findall(r" n(\d+)\.", body["messages"][-1]["content"])[0])
        return completion(f"<critique>[step 1] good: fine</critique><score>0.{number * 7 % 10}</score>")

    data = [row(n, n % 2 == 0 if n % 10 else n % 20 == 0, "well", n // 3) for n in range(60)]
    with serve(nearly) as server:
        domain, said = _calibrated(tmp_path, server, data)
    assert len(domain.groups) == 1 and said["skipped"] and "stay as far outside" in caplog.text


def test_a_promise_of_agreement_gives_runs_verdicts(tmp_path: Path) -> None:
    """Three attempts at each of 120 questions, told apart without a mistake."""
    data = [row(n, n % 2 == 0, "well" if n % 2 == 0 else "ill", n) for n in range(120)]
    with serve(grade) as server:
        result = calibrate(tmp_path, server, data, "--agreement", "0.8")
        assert result.exit_code == 0, result.output
        record = json.loads((tmp_path / "mine" / "calibration.json").read_text())["promise"]
        assert record["coverage"] == record["agreed"] == 1.0 and record["labels"] == 120
        judge = AgentRRM.from_pretrained(str(tmp_path / "mine"))
        verdicts = [(found.verdict, found.judge.least_sure) for found in judge.judge(data[:2])]
        assert verdicts == [("good", record["least_sure"]), ("bad", record["least_sure"])]
        judge.settings.promise = judge.settings.promise and judge.settings.promise.model_copy(
            update={"least_sure": 1.0}
        )
        assert judge.judge(data[:1])[0].verdict == "unsure"
        again = invoke(
            tmp_path / "rows.jsonl", "--model", tmp_path / "mine", "-o", tmp_path / "other", "--resamples", 200
        )
        assert again.exit_code == 0 and load_settings(tmp_path / "other").promise is None  # of other maps


def test_a_promise_takes_enough_questions(tmp_path: Path) -> None:
    with serve(grade) as server:
        result = calibrate(tmp_path, server, rows(), "--agreement", "0.9")
    record = json.loads((tmp_path / "mine" / "calibration.json").read_text())["promise"]
    assert result.exit_code == 0 and record == {"skipped": "a promise takes labels of 100 questions, and there are 20"}
    assert load_settings(tmp_path / "mine").promise is None
