"""Scoring as a Ray Data job.

    runs = ray.data.from_items([{"path": path} for path in paths]).flat_map(read_runs)
    rows = unjudged(runs.repartition(target_num_rows_per_block=64), "out").map_batches(
        JudgeRuns, fn_constructor_kwargs={"judge": "judges/mine"}, compute=ActorPoolStrategy(size=2), batch_size=64
    )
    rows.write_json("out")
    collect("out", "scored.jsonl")

A row has `key` (a hash of file, id and content), `status`, `score` and `line`, which `rrm score` would write. The same job, run again,
judges what has no row in the folder yet; a folder is of one judge. All nodes must see the paths. `rrm score` and `rrm merge` do not go on
with the collected file.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rrm.data.feedback import Mode
from rrm.data.output import write_lines
from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.readers import read
from rrm.scoring.row_index import AGAIN, to_row

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
        seen: Counter[str] = Counter()
        distinct: list[Trajectory] = []  # two files may give one id to two runs
        for key, run in runs.items():
            seen[run.id] += 1
            distinct.append(run if seen[run.id] == 1 else run.model_copy(update={"id": f"{run.id} {key}"}))
        judged = dict(zip(runs, self._judge.judge(distinct, **self._how), strict=True))
        rows: dict[str, list[Any]] = {"key": [], "status": [], "score": [], "line": []}
        for key, error in zip(batch["key"], batch["error"], strict=True):
            feedback = judged.get(key)
            rows["key"].append(key)
            rows["status"].append(UNREADABLE if feedback is None else feedback.status)
            rows["score"].append(None if feedback is None else feedback.score)
            rows["line"].append(
                error if feedback is None else json.dumps(to_row(feedback, runs[key]) | {"id": runs[key].id})
            )
        return rows


def unjudged(runs: Any, folder: str | Path, *, retry_errors: bool = False) -> Any:
    """Leave out the rows of a Ray data set whose key has a row in a folder of earlier jobs.

    Args:
        retry_errors: keep those that `rrm score --retry-errors` judges again, and what could not be read.
    """
    done = {
        int(row["key"], 16)
        for row in stored_rows(folder)
        if not (retry_errors and row["status"] in {*AGAIN, UNREADABLE})
    }
    if not done:
        return runs
    judged = np.array(sorted(done), dtype=np.uint64)

    def is_new(batch: Mapping[str, Any]) -> dict[str, Any]:
        asked = np.array([int(key, 16) for key in batch["key"]], dtype=np.uint64)
        return {name: column[~np.isin(asked, judged)] for name, column in batch.items()}

    return runs.map_batches(is_new)


def collect(folder: str | Path, output: str | Path) -> dict[str, int]:
    """Write the rows of a folder as `rrm score` does; returns the count by status, of all jobs of the folder.

    A repeated id gets `#2`, `#3`, …. What could not be read stands in OUTPUT.errors.jsonl. Of runs that were judged again a row that did
    not fail counts. Raises RRMError: rows of two judges or modes, or of two contents of one run (its file changed between jobs)."""
    rows: dict[str, dict[str, Any]] = {}
    for row in stored_rows(folder):
        if row["key"] not in rows or row["status"] not in AGAIN:
            rows[row["key"]] = row
    judges: set[tuple[str, ...]] = set()
    places: set[tuple[str, str]] = set()
    lines: list[str] = []
    ids: Counter[str] = Counter()
    readable = [json.loads(row["line"]) for row in rows.values() if row["status"] != UNREADABLE]
    for line in sorted(readable, key=lambda line: (str(line["source"].get("file")), line["source"].get("line") or 0)):
        judges.add(tuple(str(line["judge"].get(name)) for name in ("model", "model_hash", "mode")))
        place = (str(line["source"].get("file")), line["id"])
        if place in places:
            raise RRMError(
                f"{folder}: {place[0]} changed between jobs: {place[1]!r} has two rows; judge it into another folder"
            )
        places.add(place)
        ids[line["id"]] += 1
        lines.append(json.dumps(line | ({"id": f"{line['id']}#{ids[line['id']]}"} if ids[line["id"]] > 1 else {})))
    if len(judges) > 1:
        named = "; ".join(" ".join(judge) for judge in sorted(judges))
        raise RRMError(f"{folder} holds rows of {len(judges)} judges ({named}): give each its own folder")
    write_lines(Path(output), lines)
    unreadable = [json.dumps({"error": row["line"]}) for row in rows.values() if row["status"] == UNREADABLE]
    if unreadable:
        write_lines(Path(output).with_suffix(".errors.jsonl"), unreadable)
    return dict(Counter(row["status"] for row in rows.values()))


def stored_rows(folder: str | Path) -> Iterator[dict[str, Any]]:
    """Read the rows that jobs wrote into a folder, file by file; a last line that was cut off is left out.

    Raises RRMError: another line is no row."""
    for path in sorted(Path(folder).glob("*.json")):
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    if line.endswith("\n"):
                        raise RRMError(f"{path}:{number} is no row of a Ray job: {error}") from error
