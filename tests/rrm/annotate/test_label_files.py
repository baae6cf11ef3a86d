"""Label files that cannot be written, that were taken away, or that an earlier version began: nothing that was said is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from labelled_runs import ask, run, served

from rrm.annotate.label_journal import open_journal
from rrm.annotate.label_server import LabelServer
from rrm.data.annotation import read_annotations


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


def test_a_journal_of_the_first_version_says_what_it_said_then(tmp_path: Path) -> None:
    labels, digest = tmp_path / "labels.jsonl", run(1).digest

    def line(n: int, **what: object) -> str:
        of = {} if what.get("undo") else {"digest": digest, "trajectory_id": "run/1", "steps": 3, "change": what}
        return json.dumps({"action": f"old-{n}", "at": "2026-01-01T00:00:00.000+00:00", **(of or what)}) + "\n"

    said = [line(1, field="verdict", step=1, value="good"), line(2, field="category", step=1, value="unsafe")]
    said += [line(3, undo=True), line(4, field="category", step=2, value="gave up")]
    Path(f"{labels}.journal").write_text("".join(said))
    Path(f"{labels}.journal.run.json").write_text('{"fingerprint": {"command": "label", "rater": "ann"}}')

    def found() -> list[tuple[int, str, str]]:
        return [(f.step, f.verdict, f.text) for one in read_annotations(labels) for f in one.findings or ()]

    old = [(1, "good", ""), (2, "unclear", "gave up")]
    with served([run(1)], labels) as server:
        assert found() == old
        new = {"action": "action-1", "digest": digest, "change": {"field": "category", "step": 3, "value": "repeat"}}
        assert ask(server, "POST", f"/{server.token}/act", new)[0] == 200
    with open_journal(labels, "ann") as journal:
        assert found() == [*old, (3, "bad", "repeat")]
        assert journal.undo("action-2") and found() == old
        assert journal.undo("action-3") and found() == old[:1]
        assert journal.undo("action-4") and found() == [] and journal.undo("action-5") is None


def test_a_process_that_was_killed_before_it_wrote_the_labels_is_no_persons_edit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1)], labels) as server:
        assert sent(server, 1, "outcome", "good") == 200
        before = labels.read_bytes()
        assert sent(server, 2, "comment", "No.") == 200 and sent(server, 3, "outcome", "bad") == 200
        after = labels.read_bytes()
    labels.write_bytes(before)  # as a kill leaves it
    with served([run(1)], labels):
        assert labels.read_bytes() == after
    assert not caplog.text and not list(tmp_path.glob("*.before*"))
