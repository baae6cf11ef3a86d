"""Two commands that write one file: the second is refused, whatever the command and by whatever name the file is called."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from rrm.cli.reading import ErrorLog, errors_path
from rrm.data.output import RowFile, file_when_whole, files_when_whole, folder_when_whole, write_lines
from rrm.data.trajectory import write_jsonl
from rrm.errors import ReadError, RRMError
from rrm.evaluation.evaluate import EvaluationReport
from rrm.scoring.sharding import merge

HOLD = (
    "import sys\nfrom pathlib import Path\nfrom rrm.data.output import file_when_whole, RowFile\n"
    "path = Path(sys.argv[2])\n"
    "with RowFile.open(path, {}) if sys.argv[1] == 'rows' else file_when_whole(path):\n"
    "    print('held', flush=True)\n    sys.stdin.read()\n"
)


@pytest.fixture
def hold() -> Iterator[Callable[[str, Path], None]]:
    """Have another process write a file (`rows` that it appends to, or a `whole` one) until the test ends."""
    held: list[Popen[str]] = []

    def begin(how: str, path: Path) -> None:
        held.append(Popen([sys.executable, "-c", HOLD, how, str(path)], stdin=PIPE, stdout=PIPE, text=True))
        assert held[-1].stdout is not None and held[-1].stdout.readline() == "held\n"

    yield begin
    for process in held:
        process.communicate()


def whole(path: Path) -> None:
    with file_when_whole(path) as file:
        file.write("other\n")


def rows(path: Path) -> None:
    with RowFile.open(path, {}):
        pass


WRITERS: dict[str, Callable[[Path], object]] = {
    "rows": rows,
    "a whole file": whole,
    "lines": lambda path: write_lines(path, ["other"]),
    "transcripts": lambda path: write_jsonl(path, []),
    "an evaluation": lambda path: EvaluationReport().save(path),
    "a merge": lambda path: merge([], path),
}


@pytest.mark.parametrize("writer", list(WRITERS))
@pytest.mark.parametrize("how", ["rows", "whole"])
def test_a_file_has_one_writer(tmp_path: Path, hold: Callable[[str, Path], None], how: str, writer: str) -> None:
    """Only `score` and its kin took a lock, and only from each other."""
    path = tmp_path / "out.jsonl"
    hold(how, path)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(RRMError, match=r"another run is writing .*out\.jsonl; wait for it, or choose another -o"):
        WRITERS[writer](path)
    assert sorted(os.listdir(tmp_path)) == before


def test_two_converts_to_one_output_do_not_mix(tmp_path: Path, hold: Callable[[str, Path], None]) -> None:
    """They shared OUT.part: six of six tries gave a mixed file and exit 0."""
    given, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    message = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    given.write_text(json.dumps({"id": "a", "messages": message}) + "\n")
    hold("whole", out)
    command = [sys.executable, "-m", "rrm", "convert", str(given), "-o", str(out)]
    refused = run(command, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 2 and "another run is writing" in refused.stderr and not out.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows locks what it reads")
def test_a_file_under_another_of_its_names_has_one_writer_too(
    tmp_path: Path, hold: Callable[[str, Path], None]
) -> None:
    """The lock was of the name alone: rows of two runs stood in one file."""
    path, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    hold("rows", path)  # a file that is made only now
    os.link(path, link)
    with pytest.raises(
        RRMError, match=r"another run is writing .*link\.jsonl under another of its names \(hard links\)"
    ):
        rows(link)


def test_a_folder_has_one_writer(tmp_path: Path, hold: Callable[[str, Path], None]) -> None:
    folder = tmp_path / "judge"
    hold("whole", folder)  # PATH.lock, as a folder's writer takes it
    for writing in (folder_when_whole(folder), files_when_whole(folder, [])):
        with pytest.raises(RRMError, match="another run is writing"), writing:
            pass


def test_no_lock_is_left_beside_a_whole_file_and_one_that_stood_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole(path)
    assert os.listdir(tmp_path) == ["out.jsonl"]
    path.unlink()
    rows(path)
    whole(path)
    assert "out.jsonl.lock" in os.listdir(tmp_path)


def test_a_refused_run_leaves_the_errors_of_the_one_that_writes(tmp_path: Path) -> None:
    """Until the first had an error the second wrote its own into OUT.errors.jsonl, and stayed to be told of the rows."""
    out = tmp_path / "out.jsonl"
    refused = pytest.raises(RRMError, match=r"another run is writing .*out\.errors\.jsonl")
    with ErrorLog(out) as first:
        with refused, ErrorLog(out) as second:
            second.add(ReadError("other.jsonl", 1, "not JSON"))
        assert not errors_path(out).exists()
        first.add(ReadError("in.jsonl", 1, "not JSON"))
        with refused, ErrorLog(out):
            pass
    assert os.listdir(tmp_path) == ["out.errors.jsonl"] and "in.jsonl" in errors_path(out).read_text()
    with ErrorLog(out):
        pass
    assert not os.listdir(tmp_path)
