"""`rrm label --choose` and `rrm estimate`, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from rrm.annotate.label import Change
from rrm.annotate.label_choice import choose_runs, keep_chosen, read_chosen
from rrm.annotate.label_pool import TranscriptPool
from rrm.annotate.label_server import Labelling, LabelServer
from rrm.cli.estimate_cmd import estimates_of
from rrm.cli.label_cmd import command as label_command
from rrm.data.annotation import Annotation, Finding
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, ReadError, RRMError


def run(k: int) -> Trajectory:
    answer = Message(role="assistant", content=f"answer {k}")
    return Trajectory(id=f"run-{k}", messages=[Message(role="user", content="?"), answer])


RUNS = [run(k) for k in range(60)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(t: Trajectory, score: float | None, file: str = "a") -> dict[str, Any]:
    return {"id": t.id, "score": score, "source": {"file": file, "format": "canonical", "digest": t.digest}}


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    return write(tmp_path / "scored.jsonl", [row(t, 0.8 if k % 3 else 0.3, "ab"[k % 2]) for k, t in enumerate(RUNS)])


def label(t: Trajectory, score: float, bad: str | None = None) -> dict[str, Any]:
    findings = [Finding(step=1, verdict="bad", text=bad)] if bad else [Finding(step=1, verdict="good")]
    made = Annotation(
        trajectory_id=t.id, digest=t.digest, score=score, findings=findings, annotator="ann", kind="human"
    )
    return made.model_dump(exclude_none=True)


def test_shares_and_kinds_by_group(tmp_path: Path, scored: Path, caplog: pytest.LogCaptureFixture) -> None:
    label_rows = [label(t, float(k % 3 > 0), None if k % 3 else "wrong_argument: hm") for k, t in enumerate(RUNS[:30])]
    labels = write(tmp_path / "labels.jsonl", [*label_rows, label(run(99), 1.0)])
    figures = estimates_of([scored], [labels], by="source.file")
    assert (figures["runs"], figures["labels"], figures["labels_of_other_runs"]) == (60, 30, 1)
    of = figures["groups"]["b"]
    assert of["succeeded"]["low"] < 2 / 3 < of["succeeded"]["high"]
    assert of["wrong_argument"]["value"] == of["has a bad step"]["value"] == pytest.approx(1 - of["succeeded"]["value"])
    assert set(of["succeeded"]["against_first"]) == {"value", "low", "high"}
    assert "drawn at random" in caplog.text and "1 labels are of no run here" in caplog.text


def test_chosen_runs_are_kept_and_their_chances_used(tmp_path: Path, scored: Path) -> None:
    scores = {t.digest: 0.5 if k < 20 else 0.01 for k, t in enumerate(RUNS)}
    kinds = dict.fromkeys(scores, "canonical")
    path = tmp_path / "labels.chosen.jsonl"
    with TranscriptPool(RUNS) as pool:
        chosen = keep_chosen(pool, path, scores, kinds, 20, 0)
        assert [item.digest for item in pool.items] == [one.digest for one in chosen] and len(pool) == 20
    with TranscriptPool(RUNS) as pool:
        assert keep_chosen(pool, path, {}, kinds, 20, 5) == chosen == read_chosen(path)  # what was chosen stays
    with (
        TranscriptPool(RUNS) as pool,
        pytest.raises(ConfigError, match="holds 20 runs chosen from 60, and now 30 of 60"),
    ):
        keep_chosen(pool, path, scores, kinds, 30, 0)
    with TranscriptPool(RUNS[:9]) as pool:
        assert len(choose_runs(pool, scores, {}, 20, 0)) == 9
    by = {t.digest: t for t in RUNS}
    labels = write(
        tmp_path / "labels.jsonl",
        [*(label(by[c.digest], 1.0) for c in chosen), label(RUNS[0], 1.0), label(RUNS[1], 1.0)],
    )
    figures = estimates_of([scored], [labels])
    assert figures["labels"] == 20 and figures["labels_not_chosen"] == len(
        {RUNS[0].digest, RUNS[1].digest} - {c.digest for c in chosen}
    )


def test_what_cannot_be_estimated_says_so(tmp_path: Path, scored: Path) -> None:
    labels = write(tmp_path / "labels.jsonl", [label(run(99), 1.0)])
    with pytest.raises(RRMError, match="No label matches a run"):
        estimates_of([scored], [labels])
    two = write(tmp_path / "two.jsonl", [label(t, 1.0) for t in RUNS[:2]])
    with pytest.raises(RRMError, match="takes two labels of a group's runs, and 2 labels are of 60 groups"):
        estimates_of([scored], [two], by="id")
    with pytest.raises(ConfigError, match="--by agent: no row has such a field"):
        estimates_of([scored], [labels], by="agent")
    with pytest.raises(ConfigError, match="no output of `rrm score`"):
        estimates_of([labels], [labels])


def test_choose_and_scores_go_together(scored: Path) -> None:
    app = typer.Typer()
    app.command()(label_command)
    result = CliRunner().invoke(app, [str(scored), "--choose", "5"])
    assert isinstance(result.exception, ConfigError) and "--choose N and --scores" in str(result.exception)


def test_what_the_labels_leave_out_is_said(tmp_path: Path, scored: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Unsure labels, steps labelled on bad runs alone, ids of no run, and runs that came after the choice went without a word."""
    path = tmp_path / "labels.chosen.jsonl"
    kinds = {t.digest: "canonical" for t in RUNS}
    with TranscriptPool(RUNS[:50]) as pool:
        chosen = keep_chosen(pool, path, {}, kinds, 20, 0)
    by = {t.digest: t for t in RUNS}
    label_rows = [label(by[c.digest], float(k < 10)) for k, c in enumerate(chosen[:15])]
    for annotation in label_rows[:10]:
        del annotation["findings"]
    by_hand = {"trajectory_id": "nobody", "score": 1.0, "annotator": "ann", "kind": "human"}
    figures = estimates_of([scored], [write(tmp_path / "labels.jsonl", [*label_rows, by_hand])])
    assert figures["without_a_label"] == {"succeeded": 5, "has a bad step": 15} and figures["labels_of_other_runs"] == 1
    for message in ("5 runs that were chosen have no label for 'succeeded'", "chosen from 50, and here are 60"):
        assert message in caplog.text


def test_an_id_of_two_runs_labels_neither_and_a_content_counts_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The second file's run of the id was read as `run-0#2`, and a table's label went to the first."""
    rows = [row(t, 0.5) for t in RUNS] + [row(run(99), 0.5) | {"id": "run-0#2"}, row(RUNS[5], 0.5) | {"id": "again"}]
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\nrun-0,1\nrun-1,1\nrun-2,0\n")
    figures = estimates_of([write(tmp_path / "rows.jsonl", rows)], [labels])
    assert (figures["runs"], figures["labels"], figures["labels_of_other_runs"]) == (61, 2, 1)
    assert "1 rows have the content of another row" in caplog.text


def test_groups_are_compared_with_the_first_alone(tmp_path: Path, scored: Path) -> None:
    labels = write(tmp_path / "labels.jsonl", [label(RUNS[k], 1.0) for k in range(5)])
    rows = [row(t, 0.5, "c" if k == 0 else "ab"[k % 2]) for k, t in enumerate(RUNS)]
    groups = estimates_of([write(tmp_path / "rows.jsonl", rows)], [labels], by="source.file")["groups"]
    assert list(groups) == ["c", "b", "a"] and "succeeded" not in groups["c"]  # one label is no interval
    assert not any("against_first" in groups[name]["succeeded"] for name in "ab")


def test_the_most_frequent_kinds_are_estimated(tmp_path: Path, scored: Path) -> None:
    """Comments without a category are kinds too: with 35 of them, those late in the alphabet were cut."""
    texts = [f"a comment {k}" for k in range(40)] + ["wrong tool: hm"] * 20
    figures = estimates_of(
        [scored], [write(tmp_path / "l.jsonl", [label(t, 0.0, texts[k]) for k, t in enumerate(RUNS)])]
    )
    assert figures["groups"][str(scored)]["wrong tool"]["value"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("rows", [[{"score": 0.5, "source": {"digest": "0"}}], [{"id": "a", "score": "0.5"}], [[1]]])
def test_rows_of_another_form_are_named(tmp_path: Path, rows: list[Any]) -> None:
    with pytest.raises(ReadError, match="not a row of `rrm score`"):
        estimates_of([write(tmp_path / "rows.jsonl", rows)], [write(tmp_path / "labels.jsonl", [])])


def test_a_choice_from_runs_that_were_not_scored_is_refused_before_anyone_labels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, kinds = tmp_path / "labels.chosen.jsonl", {RUNS[0].digest: "canonical"}
    with TranscriptPool(RUNS) as pool, pytest.raises(ConfigError, match="no row of these transcripts"):
        keep_chosen(pool, path, {}, {"other": "canonical"}, 5, 0)
    with TranscriptPool(RUNS) as pool:
        keep_chosen(pool, path, {}, kinds, 5, 0)
    assert "no row of 59 of 60 transcripts" in caplog.text
    path.write_text(path.read_text().replace('"chance": 0', '"chance": 3'))
    with pytest.raises(ReadError, match=r"its chance is not in \(0, 1\]"):
        read_chosen(path)


@pytest.mark.parametrize("outcome", ["good", "unsure"])
def test_it_estimates_when_the_page_ends(
    outcome: str, tmp_path: Path, scored: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where every label was unsure, the session ended in an error without its summary."""

    def label_all(server: LabelServer, poll_interval: float) -> None:
        journal = server.labelling.journal
        for k, item in enumerate(server.labelling.pool.items):
            journal.change(f"a{k}", item.digest, item.id, 1, Change(field="outcome", value=outcome))
        raise KeyboardInterrupt

    monkeypatch.setattr(LabelServer, "serve_forever", label_all)
    monkeypatch.setattr(Labelling, "summary", lambda self: {"done": 5})
    ended: list[dict[str, Any]] = []
    monkeypatch.setattr("rrm.cli.label_cmd.finish", ended.append)
    write(tmp_path / "runs.jsonl", [json.loads(t.to_json()) for t in RUNS])
    app = typer.Typer()
    app.command()(label_command)
    options = ["--choose", "5", "--scores", str(scored), "-o", str(tmp_path / "labels.jsonl"), "--rater", "ann"]
    result = CliRunner().invoke(app, [str(tmp_path / "runs.jsonl"), *options])
    assert result.exit_code == 0, result.exception
    if outcome == "good":
        assert ended[0]["estimates"]["labels"] == 5
    else:
        assert "estimates" not in ended[0] and "no estimate: No label matches a run" in caplog.text
