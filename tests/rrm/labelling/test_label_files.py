"""Label files that cannot be written, that were taken away, or that an earlier version began: nothing that was said is lost."""

from __future__ import annotations

import json
from pathlib import Path

from labelled_runs import ask, run, served

from rrm.annotation import read_annotations
from rrm.labelling.server import LabelServer


def sent(server: LabelServer, n: int, field: str, value: str) -> int:
    """Status of an action on the first run."""
    act = {"action": f"action-{n}", "digest": run(1).digest, "change": {"field": field, "value": value}}
    return ask(server, "POST", f"/{server.token}/act", act)[0]


def test_labels_that_cannot_be_written_are_not_called_saved_and_are_written_later(tmp_path: Path) -> None:
    labels, blocks = tmp_path / "labels.jsonl", tmp_path / "labels.jsonl.part"
    with served([run(1)], labels) as server:
        blocks.mkdir()  # where the file is written before it takes its name
        act = {"action": "action-1", "digest": run(1).digest, "change": {"field": "outcome", "value": "good"}}
        status, _, body = ask(server, "POST", f"/{server.token}/act", act)
        assert (
            status == 507 and "cannot write" in json.loads(body)["error"] and str(labels) in json.loads(body)["error"]
        )
        assert sent(server, 1, "outcome", "good") == 507  # it is in the journal, not in the labels
        blocks.rmdir()
        assert sent(server, 1, "outcome", "good") == 200 and read_annotations(labels)[0].score == 1.0
        blocks.mkdir()
        assert sent(server, 2, "outcome", "bad") == 507
        blocks.rmdir()
    assert read_annotations(labels)[0].score == 0.0  # at the end at the latest
    assert len(Path(f"{labels}.journal").read_bytes().splitlines()) == 2
    with served([run(1)], labels):
        labels.unlink()
    assert read_annotations(labels)[0].score == 0.0
