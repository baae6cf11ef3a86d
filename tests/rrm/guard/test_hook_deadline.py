"""A hook whose judge hangs: the agent gets a failed judgement in time."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hooking import Claude

from rrm.cli import guard_cmd
from rrm.guard import AuditRow, Guard, read_audit
from rrm.guard.timeouts import Deadline
from rrm.serve import address

sys.path.append(str(Path(__file__).parents[1] / "serve"))  # cut_server

from cut_server import cutting


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of each time."""
    for module, name, value in (
        (guard_cmd, "HOOK_PATIENCE_S", 0.05),
        (guard_cmd, "HOOK_TIMEOUT_S", 0.45),
        (address, "LEAST_S", 0.05),
        (address, "LOOK_S", 0.05),
    ):
        monkeypatch.setattr(module, name, value)


def called(url: str, where: Path) -> AuditRow:
    """The audit's row of a call that was to be judged there."""
    claude = Claude(Path("-"), where, "--set", "on_failure=halt")
    claude.arguments[claude.arguments.index("--model") + 1] = url
    code, answer = claude.call()
    assert code == 0 and answer["continue"] is False
    (row,) = read_audit(claude.audit)
    assert (row.verdict, row.status) == ("halt", "judge_error")
    return row


def test_a_server_that_hangs_is_asked_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        row = called(url, tmp_path)
        silent.settimeout(0.0)
        connections = 0
        with suppress(BlockingIOError):
            while True:
                silent.accept()[0].close()
                connections += 1
    assert connections == 1 and f"no judge: nothing came from {url} for 0.05 s" in (row.reason or "")


@pytest.mark.parametrize(("all_s", "waited"), [(50.0, "0.45 s"), (3.0, "")])
def test_a_server_that_hangs_at_a_row_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_s: float, waited: str
) -> None:
    """Within the time of a row, and what is left of the hook's own."""
    monkeypatch.setattr(guard_cmd, "HOOK_S", all_s)
    monkeypatch.setattr(guard_cmd, "HOOK_TIMEOUT_S", 0.45 if waited else 45.0)
    monkeypatch.setattr(guard_cmd, "HOOK_PATIENCE_S", 5.0)
    over = threading.Event()

    def hang(connection: socket.socket, body: Any) -> None:
        over.wait(60)

    with cutting([hang]) as server:
        try:
            row = called(server.url, tmp_path)
        finally:
            over.set()
    assert f"nothing came from {server.url} for {waited}" in (row.reason or "")
    assert [path for path, _ in server.asked] == ["/v1/score"] and row.seconds < 3.0


def test_any_other_judge_is_left_behind(tmp_path: Path) -> None:
    """A process of its own: it ends, whatever its threads wait for."""
    claude = Claude(Path("-"), tmp_path)
    claude.write("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}])
    claude.write("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "files"}])
    hook = {"hook_event_name": "Stop", "session_id": "s1", "transcript_path": str(claude.path), "cwd": "/"}
    code = "import rrm.cli.guard_cmd as g; g.HOOK_S = 0.5; from rrm.cli import main; main()"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        model = f"openai:http://127.0.0.1:{silent.getsockname()[1]}/v1#m"
        words = ["guard", "--audit", str(claude.audit), "--model", model, "--set", "on_failure=halt"]
        run = subprocess.run(
            [sys.executable, "-c", code, *words], input=json.dumps(hook), capture_output=True, text=True, timeout=300
        )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"suppressOutput": True}  # it has stopped anyway
    (row,) = read_audit(claude.audit)
    assert row.status == "judge_error" and "not done within the 0.5 s" in (row.reason or "")


def test_a_judgement_that_comes_too_late_stands_nowhere(tmp_path: Path) -> None:
    over, begun = threading.Event(), threading.Event()

    class Slow:
        model = "slow"

        def judge(self, *_: Any, **__: Any) -> Any:
            begun.set()
            over.wait(60)
            raise AssertionError("nobody hears it")

    deadline = Deadline(0.2)
    with Guard(Slow(), audit=tmp_path / "a.jsonl", deadline=deadline).session(task="x", run="r") as session:
        verdict = session.observe({"role": "assistant", "content": "done"})
    assert begun.is_set() and deadline.late and verdict.status == "judge_error"
    over.set()
    assert "no judgement: it was not done within the 0.2 s" in (verdict.reason or "")
    assert [row.status for row in read_audit(tmp_path / "a.jsonl")] == ["judge_error"]


def test_what_is_in_time_is_returned_or_raised() -> None:
    deadline = Deadline(60.0)
    assert deadline.within(lambda: 3) == 3 and not deadline.late
    with pytest.raises(ZeroDivisionError):
        deadline.within(lambda: 1 // 0)
    over = threading.Event()
    with pytest.raises(TimeoutError, match="not done within the 0 s"):
        Deadline(0.0).within(lambda: over.wait(60))
    over.set()
