"""`rrm label --choose` and `rrm estimate`, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rrm.annotate.label_choice import choose_runs, keep_chosen, read_chosen
from rrm.annotate.label_pool import TranscriptPool
from rrm.cli.estimate_cmd import estimates_of
from rrm.data.annotation import Annotation, Finding
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, RRMError


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
    said = [label(t, float(k % 3 > 0), None if k % 3 else "wrong tool: hm") for k, t in enumerate(RUNS[:30])]
    labels = write(tmp_path / "labels.jsonl", [*said, label(run(99), 1.0)])
    found = estimates_of([scored], [labels], by="source.file")
    assert (found["runs"], found["labels"], found["labels_of_other_runs"]) == (60, 30, 1)
    of = found["groups"]["b"]
    assert of["succeeded"]["low"] < 2 / 3 < of["succeeded"]["high"]
    assert of["wrong tool"]["value"] == of["has a bad step"]["value"] == pytest.approx(1 - of["succeeded"]["value"])
    assert set(of["succeeded"]["against_first"]) == {"value", "low", "high"}
    assert "drawn at random" in caplog.text and "1 labels are of no run here" in caplog.text


def test_chosen_runs_are_kept_and_their_chances_used(tmp_path: Path, scored: Path) -> None:
    scores = {t.digest: 0.5 if k < 20 else 0.01 for k, t in enumerate(RUNS)}
    path = tmp_path / "labels.chosen.jsonl"
    with TranscriptPool(RUNS) as pool:
        chosen = keep_chosen(pool, path, scores, {}, 20, 0)
        assert [item.digest for item in pool.items] == [one.digest for one in chosen] and len(pool) == 20
    with TranscriptPool(RUNS) as pool:
        assert keep_chosen(pool, path, {}, {}, 20, 5) == chosen == read_chosen(path)  # what was chosen stays
    with (
        TranscriptPool(RUNS) as pool,
        pytest.raises(ConfigError, match="holds 20 runs chosen from 60, and now 30 of 60"),
    ):
        keep_chosen(pool, path, scores, {}, 30, 0)
    with TranscriptPool(RUNS[:9]) as pool:
        assert len(choose_runs(pool, scores, {}, 20, 0)) == 9
    by = {t.digest: t for t in RUNS}
    labels = write(
        tmp_path / "labels.jsonl",
        [*(label(by[c.digest], 1.0) for c in chosen), label(RUNS[0], 1.0), label(RUNS[1], 1.0)],
    )
    found = estimates_of([scored], [labels])
    assert found["labels"] == 20 and found["labels_not_chosen"] == len(
        {RUNS[0].digest, RUNS[1].digest} - {c.digest for c in chosen}
    )


def test_what_cannot_be_estimated_says_so(tmp_path: Path, scored: Path) -> None:
    labels = write(tmp_path / "labels.jsonl", [label(run(99), 1.0)])
    with pytest.raises(RRMError, match="no label is of one of these runs"):
        estimates_of([scored], [labels])
    with pytest.raises(ConfigError, match="--by agent: no row has such a field"):
        estimates_of([scored], [labels], by="agent")
    with pytest.raises(ConfigError, match="no output of `rrm score`"):
        estimates_of([labels], [labels])


def test_choose_and_scores_go_together(tmp_path: Path, scored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    import rrm.cli.label_cmd as module

    app = typer.Typer()
    app.command()(module.command)
    result = CliRunner().invoke(app, [str(scored), "--choose", "5"])
    assert isinstance(result.exception, ConfigError) and "--choose N and --scores" in str(result.exception)
