"""Scoring as a Ray Data job.

    runs = ray.data.from_items([{"path": path} for path in paths]).flat_map(read_runs)
    rows = unjudged(runs.repartition(target_num_rows_per_block=64), "out").map_batches(
        JudgeRuns, fn_constructor_kwargs={"judge": "judges/mine"}, compute=ActorPoolStrategy(size=2), batch_size=64
    )
    rows.write_json("out")
    collect("out", "scored.jsonl")

A row has `key` (a hash of file, id and content), `status`, `score` and `line`, which `rrm score` would write. The same job, run again,
judges what has no row in the folder yet. All nodes must see the paths.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rrm.data.feedback import Mode
from rrm.data.output import write_lines
from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.judge.agent_rrm import AgentRRM
from rrm.readers import read
from rrm.scoring.row_index import FAILED, to_row

UNREADABLE = "unreadable"
"""Status of what could not be read; the reason stands in `line`."""


def read_runs(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the runs of the file `row["path"]`, of any format that `rrm score` reads: key, transcript (JSON) and error of each."""
    errors: list[ReadError] = []
    runs = [
        {"key": _key(row["path"], run.id, run.digest), "transcript": run.to_json(), "error": ""}
        for run in read([row["path"]], on_error=errors.append)
    ]
    reasons = [str(error) for error in errors]
    return runs + [{"key": _key(reason), "transcript": "", "error": reason} for reason in reasons]


def _key(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class JudgeRuns:
    """A class for `map_batches` over rows of `read_runs`; each actor loads the judge once.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it; None: the default judge.
        mode: default: the judge's own.
        options: further arguments of `AgentRRM.from_pretrained`.
    """

    def __init__(
        self,
        judge: str | None = None,
        *,
        mode: Mode | None = None,
        samples: int = 1,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._judge = AgentRRM.from_pretrained(judge, **(options or {}))
        self._how: dict[str, Any] = {"mode": mode, "samples": samples, "seed": seed}

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Judge a batch; a failure has its status, no score, and its reason in `line`."""
        runs = {
            key: Trajectory.model_validate_json(transcript)
            for key, transcript, error in zip(batch["key"], batch["transcript"], batch["error"], strict=True)
            if not error
        }
        judged = dict(zip(runs, self._judge.judge(list(runs.values()), **self._how), strict=True))
        rows: dict[str, list[Any]] = {"key": [], "status": [], "score": [], "line": []}
        for key, error in zip(batch["key"], batch["error"], strict=True):
            feedback = judged.get(key)
            rows["key"].append(key)
            rows["status"].append(UNREADABLE if feedback is None else feedback.status)
            rows["score"].append(None if feedback is None else feedback.score)
            rows["line"].append(error if feedback is None else json.dumps(to_row(feedback, runs[key])))
        return rows


def unjudged(runs: Any, folder: str | Path, *, retry_errors: bool = False) -> Any:
    """Leave out the rows of a Ray data set whose key has a row in a folder of earlier jobs.

    Args:
        retry_errors: keep those whose judgement failed.
    """
    done = {
        int(row["key"], 16)
        for row in stored_rows(folder)
        if not (retry_errors and row["status"] in (FAILED, UNREADABLE))
    }
    if not done:
        return runs
    judged = np.array(sorted(done), dtype=np.uint64)

    def is_new(batch: Mapping[str, Any]) -> dict[str, Any]:
        asked = np.array([int(key, 16) for key in batch["key"]], dtype=np.uint64)
        return {name: column[~np.isin(asked, judged)] for name, column in batch.items()}

    return runs.map_batches(is_new)


def collect(folder: str | Path, output: str | Path) -> dict[str, int]:
    """Write the rows of a folder as `rrm score` does, and OUTPUT.errors.jsonl of what could not be read; returns the count by status.

    Of runs that were judged again the last row counts that did not fail."""
    rows: dict[str, dict[str, Any]] = {}
    for row in stored_rows(folder):
        if row["key"] not in rows or row["status"] != FAILED:
            rows[row["key"]] = row
    counts: dict[str, int] = {}
    for row in rows.values():
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    unreadable = [row for row in rows.values() if row["status"] == UNREADABLE]
    write_lines(Path(output), (row["line"] for row in rows.values() if row["status"] != UNREADABLE))
    if unreadable:
        errors = Path(output).with_suffix(".errors.jsonl")
        write_lines(errors, (json.dumps({"error": row["line"]}) for row in unreadable))
    return counts


def stored_rows(folder: str | Path) -> Iterator[dict[str, Any]]:
    """Read the rows that jobs wrote into a folder, file by file."""
    for path in sorted(Path(folder).glob("*.json")):
        with open(path, encoding="utf-8") as lines:
            yield from map(json.loads, lines)
