"""What a Ray job's workers make and `collect` writes, without Ray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import RRMError
from rrm.integrations.ray import JudgeRuns, collect, read_runs

RUNS = [run for run, _ in make_transcripts(6, seed=1)]


def files(folder: Path) -> list[Path]:
    """Two files of three runs, whose ids are those of the first."""
    same = [run.model_copy(update={"id": first.id}) for run, first in zip(RUNS[3:], RUNS[:3], strict=True)]
    for name, runs in (("a.jsonl", RUNS[:3]), ("b.jsonl", same)):
        write_jsonl(folder / name, runs)
    return [folder / "a.jsonl", folder / "b.jsonl"]


def judged(paths: list[Path], mode: Any = "score") -> list[dict[str, Any]]:
    rows = [row for path in paths for row in read_runs({"path": str(path)})]
    batch = {name: np.array([row[name] for row in rows], dtype=object) for name in rows[0]}
    made = JudgeRuns("lab", mode=mode, options={"max_new_tokens": 8})(batch)
    return [dict(zip(made, values, strict=True)) for values in zip(*made.values(), strict=True)]


def store(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_equal_ids_of_two_files_are_judged_together_and_numbered(tmp_path: Path) -> None:
    rows = judged(files(tmp_path), "full")  # a text is sampled for each id
    assert [json.loads(row["line"])["id"] for row in rows] == [run.id for run in RUNS[:3]] * 2
    store(tmp_path / "out", "1.json", rows)
    collect(tmp_path / "out", tmp_path / "scored.jsonl")
    ids = [json.loads(line)["id"] for line in (tmp_path / "scored.jsonl").read_text().splitlines()]
    assert ids == [*(run.id for run in RUNS[:3]), *(f"{run.id}#2" for run in RUNS[:3])]


def test_a_folder_of_two_judges_or_of_a_file_that_changed_is_refused(tmp_path: Path) -> None:
    path = files(tmp_path)[0]
    before = judged([path])
    changed: list[Trajectory] = [run.model_copy(update={"task": "another"}) for run in RUNS[:1]]
    write_jsonl(path, [*changed, *RUNS[1:3]])
    store(tmp_path / "out", "1.json", before)
    store(tmp_path / "out", "2.json", judged([path])[:1])
    with pytest.raises(RRMError, match="changed between jobs"):
        collect(tmp_path / "out", tmp_path / "scored.jsonl")
    store(tmp_path / "two", "1.json", before[:1])
    store(tmp_path / "two", "2.json", judged([path], "full")[1:])
    with pytest.raises(RRMError, match="2 judges"):
        collect(tmp_path / "two", tmp_path / "scored.jsonl")


def test_a_cut_off_last_line_is_judged_again_and_a_foreign_one_is_named(tmp_path: Path) -> None:
    rows = judged(files(tmp_path)[:1])
    store(tmp_path / "out", "1.json", rows)
    file = tmp_path / "out" / "1.json"
    file.write_text(file.read_text()[:-40])
    assert collect(tmp_path / "out", tmp_path / "scored.jsonl") == {"scored": 2}
    file.write_text("[1,\n" + json.dumps(rows[0]) + "\n")
    with pytest.raises(RRMError, match=r"1\.json:1 is no row"):
        collect(tmp_path / "out", tmp_path / "scored.jsonl")
