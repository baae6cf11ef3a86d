"""All that a server can do to a run at once, sixty-four requests in flight: it fails, throttles, is slow, talks garbage, and the run is
killed twice. Nothing is lost, nothing is judged twice, and money is counted once."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of, transcripts
from openai_server import Answer, completion, failure, serve
from test_server_runs import COST, USED, WHOLE, judge_at, killed, who

from rrm.scoring.run import score_file

ROWS = 120
BROKEN = {str(n) for n in range(0, ROWS, 17)}
"""Whose requests fail in the runs that are killed, whatever is tried."""
UNANSWERED = {"3", "90"}
"""Which are in flight when these are killed."""


class Troubled:
    """A server of one run. It charges for whole replies and for empty ones."""

    def __init__(self, seed: int, broken: bool) -> None:
        self.chance, self.broken, self.lock = random.Random(seed), broken, threading.Lock()
        self.sent, self.charged = Counter[str](), Counter[str]()
        self.kinds = Counter[str]()

    def __call__(self, n: int, body: dict[str, Any]) -> Answer:
        name = who(body)
        with self.lock:
            self.sent[name] += 1
            kind = self.kind(name)
            self.kinds[kind] += 1
            self.charged[name] += kind in ("whole", "slow", "empty")
        if kind == "slow":
            time.sleep(0.1)
        said = {"garbage": Answer(body=b"<html>busy</html>"), "dropped": Answer(drop=True), "never": Answer(hang=True)}
        said |= {"failed": failure(500), "throttled": failure(429, retry_after_ms="2")}
        return said.get(kind) or completion("" if kind == "empty" else WHOLE, usage=USED)

    def kind(self, name: str) -> str:
        """What becomes of a request: at most two troubles a row, unless it is one of those that always fail."""
        if self.broken and name in BROKEN:
            return "empty" if self.sent[name] == 1 else "failed"
        if self.broken and name in UNANSWERED:
            return "never"
        if self.sent[name] <= 2 and self.chance.random() < 0.4:
            troubles = ["failed", "throttled", "garbage", "dropped", "empty"]
            return self.chance.choice(troubles[: 6 - self.sent[name]])  # a last reply that is empty would be unparsable
        return "slow" if self.chance.random() < 0.1 else "whole"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process of its own without an import")
def test_kills_and_every_trouble_at_once_lose_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    kept, there, kinds = Counter[str](), dict[str, str](), Counter[str]()
    for seed, wanted in ((1, 45), (2, 85)):

        def late(wanted: int = wanted) -> bool:
            said = output.read_bytes() if output.exists() else b""
            return said.count(b"\n") >= wanted and b'"judge_error"' in said

        server = Troubled(seed, broken=True)
        left = killed(output, ROWS, server, late, max_retries=1)
        assert not {name for name in server.sent if f"t{name}" in there}, "a row that stood was asked about again"
        new = {row["id"]: row["status"] for row in left if row["id"] not in there}
        assert len(left) == len({row["id"] for row in left}) == len(there) + len(new) < ROWS
        kept += Counter({name: n for name, n in server.charged.items() if f"t{name}" in new})
        there, kinds = {**there, **new}, kinds + server.kinds
    failed = {id for id, status in there.items() if status != "scored"}
    assert failed

    last = Troubled(3, broken=False)
    with serve(last) as server:
        judge = judge_at(server.url, max_retries=3)
        summary = score_file(judge, transcripts(ROWS), output, retry_errors=True)
    kept, kinds = kept + last.charged, kinds + last.kinds
    assert {f"t{name}" for name in last.sent} == {f"t{n}" for n in range(ROWS)} - (there.keys() - failed)
    assert set(kinds) == {"whole", "slow", "empty", "garbage", "dropped", "never", "failed", "throttled"}

    rows = rows_of(output)
    assert [row["id"] for row in rows] == [f"t{n}" for n in range(ROWS)] and summary.statuses == {"scored": ROWS}
    for row in rows:
        charged = kept[row["id"][1:]]
        assert row["score"] == 0.5 and row["usage"]["prompt_tokens"] == 1000 * charged
        assert row["usage"]["cost"] == pytest.approx(COST * charged)
    assert summary.usage is not None and summary.usage["cost"] == pytest.approx(COST * kept.total())
    assert summary.usage_now is not None and summary.usage_now["cost"] == pytest.approx(COST * last.charged.total())
