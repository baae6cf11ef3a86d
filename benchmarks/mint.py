"""MINT transcripts by the protocol: rows, labels and the committed split.

A row is cut at its first `<solution>…</solution>` (the environment's verdict comes after it), and y = the run succeeded
with exactly one proposal. Outcome rows are those without a critic. The split is by question: 40 % for test.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rrm.data import splits
from rrm.data.trajectory import Source, Trajectory

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "transcripts" / "mint"
SPLIT = Path(__file__).resolve().parent / "splits" / "mint.json"
FILES = ("hotpotqa", "gsm8k", "math", "theoremqa")


def cut_at_solution(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The messages up to and including the first proposal, or None where none was made."""
    for i, message in enumerate(messages):
        text = message.get("content") or ""
        start = text.find("<solution>") if message["role"] == "assistant" else -1
        if start >= 0:
            stop = text.find("</solution>", start)
            kept = text if stop < 0 else text[: stop + len("</solution>")]
            return [*messages[:i], {**message, "content": kept}]
    return None


def _trajectory(row: dict[str, Any], messages: list[dict[str, Any]], y: bool, path: Path, line: int) -> Trajectory:
    kept = {k: row[k] for k in ("agent", "critic", "reference", "finish", "critiques")}
    return Trajectory(
        id=row["id"],
        task=row["messages"][0]["content"],
        question_id=row["question_id"],
        messages=messages,  # pyright: ignore[reportArgumentType]
        outcome=float(y),
        meta={**kept, "dataset": row["task"]},
        source=Source(file=path.name, line=line, format="mint"),
    )


def rows(data: Path = DATA, *, critic: bool, proposals_only: bool = True) -> Iterator[Trajectory]:
    """Protocol rows with or without a critic, in file order.

    Args:
        critic: rows in which the agent read a critique after each turn, instead of those without.
        proposals_only: leave out rows in which nothing was proposed (y is trivially 0).
    """
    for name in FILES:
        path = data / f"{name}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                row = json.loads(line)
                if bool(row["critic"]) != critic:
                    continue
                messages = cut_at_solution(row["messages"])
                if messages is None and proposals_only:
                    continue
                y = bool(row["outcome"]) and row["actions"]["propose_solution"] == 1
                yield _trajectory(row, messages or row["messages"], y, path, number)


def load_split(path: Path = SPLIT) -> dict[str, list[str]]:
    """The committed split."""
    return splits.load_split(path)
