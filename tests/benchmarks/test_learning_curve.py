"""The learning curve: nothing is measured on a question with a label, and few runs measure nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.models.sources import LabelledRun
from benchmarks.studies import learning_curve as study
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory


def runs(n: int) -> list[LabelledRun]:
    """Two runs a question: one says that it is done, and is."""
    made = []
    for i in range(n):
        good = i % 2
        messages = [
            {"role": "user", "content": f"task {i // 2}"},
            {"role": "assistant", "content": f"{'done' if good else 'failed'} it all"},
        ]
        t = Trajectory.model_validate(
            {"id": f"r{i}", "question_id": f"q{i // 2}", "messages": messages, "outcome": good}
        )
        made.append(LabelledRun(t, "workbench", f"q{i // 2}", (good,)))
    return made


def row(run: LabelledRun, score: float) -> Feedback:
    finding = {"step": 1, "verdict": "good", "p_good": score}
    judge = {"model": "m", "prompt_version": "2", "mode": "steps"}
    fields = {"id": run.trajectory.id, "status": "scored", "score": score, "raw_score": score}
    return Feedback.model_validate(fields | {"findings": [finding], "judge": judge})


def test_each_scorer_is_measured_on_other_questions() -> None:
    mine = runs(100)
    judge = {run.trajectory.id: row(run, 0.4 + 0.2 * run.labels[0]) for run in mine if run.labels[0] is not None}
    untrained = study.one_draw(mine, {"judge": judge}, 0, 1)
    assert untrained and untrained["test"] == 100 and untrained["judge"]["auroc"] == untrained["judge"]["steps"] == 1
    assert untrained["tfidf"]["auroc"] == 0.5 and "why" in untrained["tfidf"]
    learned = study.one_draw(mine, {"judge": judge}, 31, 1)
    assert learned and learned["test"] == 68, "the other run of the last question is left out"
    assert learned["tfidf"]["auroc"] == learned["tfidf"]["steps"] == 1
    assert learned["judge"]["brier"] < untrained["judge"]["brier"]
    assert study.one_draw(mine, {"judge": judge}, 70, 1) is None


def test_pieces_and_rows_make_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = runs(90)
    monkeypatch.setattr(study, "all_runs", lambda: {"workbench": mine, "tau": runs(4)})
    study.draw(tmp_path)
    assert sum(len((tmp_path / f"workbench.{i}.jsonl").read_text().splitlines()) for i in range(2)) == 90
    for i, part in enumerate((mine[:50], mine[50:])):
        lines = [row(run, 0.9 if run.succeeded else 0.1).model_dump_json() for run in part]
        (tmp_path / f"workbench.{i}.scored.jsonl").write_text("\n".join(lines) + "\n")
    found = study.figures(tmp_path)
    assert found["sources"]["tau"] == {"runs": 0, "questions": 0}
    assert found["sources"]["workbench"].keys() == {"runs", "questions", "0", "30"}
    assert found["measured_at_30"] == ["workbench"] and json.dumps(found)
