"""Where the page of a label file is: the same at every start, its owner's alone; and what a start that fails leaves."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from labelled_runs import begun, run, served

from rrm.annotate.label_address import PageAddress, address_file, keep_address, kept_address
from rrm.cli import label_cmd
from rrm.data.annotation import read_annotations
from rrm.data.trajectory import write_jsonl
from rrm.errors import RRMError

Invoke = Callable[..., tuple[int, dict[str, Any]]]


def test_a_killed_page_has_lost_nothing_and_goes_on(tmp_path: Path) -> None:
    runs = [run(n) for n in range(5)]
    write_jsonl(tmp_path / "runs.jsonl", runs)
    child, host, token = begun(tmp_path)
    connection = http.client.HTTPConnection(host, timeout=30)
    headers = {"Origin": f"http://{host}", "Content-Type": "application/json"}
    for n, t in enumerate(runs[:3]):
        act = {"action": f"action-{n}", "digest": t.digest, "change": {"field": "outcome", "value": "good"}}
        connection.request("POST", f"/{token}/act", json.dumps(act), headers)
        assert json.loads(connection.getresponse().read())["done"] == n + 1
    child.kill()
    child.communicate()
    assert [a.trajectory_id for a in read_annotations(tmp_path / "labels-ann.jsonl")] == ["run/0", "run/1", "run/2"]
    child, *again = begun(tmp_path)
    connection = http.client.HTTPConnection(host, timeout=30)
    assert again == [host, token]  # a tab that stayed open goes on
    connection.request("GET", f"/{token}/start")
    start = json.loads(connection.getresponse().read())
    assert (start["done"], start["total"], start["first"], start["rater"]) == (3, 5, 4, "ann")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    summary = json.loads(out.splitlines()[-1])
    assert (summary["done"], summary["transcripts"], summary["output"]) == (3, 5, "labels-ann.jsonl")


def test_an_address_is_kept_for_its_owner_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1)], labels) as first:
        file = address_file(labels)
        kept = kept_address(labels)
        assert kept == PageAddress(first.server_port, first.token) and kept and kept.url == first.address
        assert os.name == "nt" or file.stat().st_mode & 0o777 == 0o600
    with served([run(1)], labels) as again:
        assert again.address == first.address
    with socket.socket() as other:  # which hears from open tabs what the token is
        other.bind(("127.0.0.1", first.server_port))
        other.listen()
        with served([run(1)], labels) as moved:
            assert moved.server_port != first.server_port and moved.token != first.token
        assert f"port {first.server_port}, where this page was" in caplog.text
    if os.name != "nt":
        file.chmod(0o644)
        assert kept_address(labels) is None
    for broken in ("{", "[]", '{"port": 0, "token": "x"}', json.dumps({"port": 80, "token": "../" * 11}), "[" * 5000):
        file.unlink()
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as out:
            out.write(broken)
        assert kept_address(labels) is None
    with pytest.raises(RRMError, match="cannot write"):
        keep_address(tmp_path / "gone" / "labels.jsonl", PageAddress(80, "x" * 32))


def test_a_second_start_says_where_the_page_is(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("runs.jsonl"), [run(1)])
    with (
        served([run(1)], Path("labels-ann.jsonl")) as server,
        pytest.raises(RRMError, match=f"is being labelled at {server.address} by"),
    ):
        invoke(label_cmd.command, "runs.jsonl", "--rater", "ann")
    assert address_file(Path("labels-ann.jsonl")).exists()  # the first one's files are its own


def test_a_start_that_fails_leaves_nothing(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("runs.jsonl"), [run(1)])
    Path("empty.jsonl").write_text("")

    def left(*arguments: object) -> set[str]:
        before = set(os.listdir())
        with pytest.raises(RRMError):
            invoke(label_cmd.command, *arguments, "--rater", "ann")
        return set(os.listdir()) - before - {"labels-ann.errors.jsonl"}  # why lines could not be read

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert left("runs.jsonl", "--port", other.getsockname()[1]) == left("empty.jsonl") == set()
        with served([run(1)], Path("labels-ann.jsonl")) as server:
            server.labelling.journal.undo("action-1")
        assert left("runs.jsonl", "--port", other.getsockname()[1]) == set()
        assert Path("labels-ann.jsonl.journal").read_text() and address_file(Path("labels-ann.jsonl")).exists()
