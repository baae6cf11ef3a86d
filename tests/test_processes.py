"""How tests start process groups: an abort in native code is tried once more and told, and nothing else is."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import NoReturn

import pytest
from processes import emptied, launch

STARTED = ["torch.distributed.run", "--standalone", "--nproc-per-node", 1]


def worker(folder: Path, aborts: int, said: str = "terminate called") -> list[object]:
    """A worker that counts its starts in a file, and leaves a half-written one whenever it aborts."""
    script = folder / "worker.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "starts, output = map(pathlib.Path, sys.argv[1:])\n"
        "starts.write_text(starts.read_text() + 'x' if starts.exists() else 'x')\n"
        "assert not list(output.iterdir())\n"
        "(output / 'part').touch()\n"
        f"if len(starts.read_text()) <= {aborts}:\n"
        f"    os.write(2, {said.encode()!r})\n"
        "    os.abort()\n"
    )
    return [*STARTED, script, folder / "starts", folder / "output"]


def test_an_abort_is_tried_once_more_in_fresh_folders(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="native code aborted a rank"):
        launch(worker(tmp_path, 1), timeout=100, prepare=lambda: emptied(tmp_path / "output"))
    assert (tmp_path / "starts").read_text() == "xx"


def test_what_aborts_twice_fails(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="native code aborted a rank"),
        pytest.raises(AssertionError, match="terminate called"),
    ):
        launch(worker(tmp_path, 2), timeout=100, prepare=lambda: emptied(tmp_path / "output"))
    assert (tmp_path / "starts").read_text() == "xx"


def test_a_collective_that_met_another_is_not_tried_again(tmp_path: Path) -> None:
    said = "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?"
    with pytest.raises(AssertionError, match="collective mismatch"):
        launch(worker(tmp_path, 1, said), timeout=100, prepare=lambda: emptied(tmp_path / "output"))
    assert (tmp_path / "starts").read_text() == "x"


def test_an_error_of_python_is_not_tried_again(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\nraise SystemExit('wrong')\n")
    with pytest.raises(AssertionError, match="wrong"):
        launch([*STARTED, script], timeout=100)
    assert (tmp_path / "starts").read_text() == "x"


def test_a_try_that_is_given_up_leaves_no_rank(tmp_path: Path) -> None:
    """A test that took too long left its ranks at work: their launcher alone was killed."""
    script, pid = tmp_path / "worker.py", tmp_path / "pid"
    script.write_text(
        "import os, pathlib, signal, sys\n"
        "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "os.kill(int(sys.argv[2]), signal.SIGUSR1)\n"
        "signal.pause()\n"
    )

    def give_up(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, give_up)
    try:
        with pytest.raises(KeyboardInterrupt):
            launch([*STARTED, script, pid, os.getpid()], timeout=100)
    finally:
        signal.signal(signal.SIGUSR1, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
