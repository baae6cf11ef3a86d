"""A file that is written beside and renamed: whole or as it was, through links, and into what no file may replace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rrm.data.output import RowFile, file_when_whole, header_of, streams
from rrm.errors import RRMError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("linked", [False, True])
def test_an_error_leaves_what_stood_there_and_nothing_beside_it(tmp_path: Path, linked: bool) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    real, link = disk / "page.html", tmp_path / "link.html"
    link.symlink_to(real)
    path = link if linked else real
    with pytest.raises(KeyError), file_when_whole(path) as file:
        file.write("half")
        raise KeyError
    assert names(disk) == []
    with file_when_whole(path) as file:  # a link may name a file that is not there yet
        file.write("one\ntwo é\n")
    with pytest.raises(UnicodeEncodeError), file_when_whole(path, encoding="ascii") as file:
        file.write("é")
    assert real.read_bytes() == "one\ntwo é\n".encode() and names(disk) == ["page.html"] and link.is_symlink()
    with file_when_whole(path, errors="replace") as file:
        file.write("a\ud800")
    assert real.read_bytes() == b"a?" and names(disk) == ["page.html"]


def test_what_cannot_be_written_is_an_error_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    made: list[int] = []
    for path in (tmp_path / "gone" / "x", tmp_path / "file" / "x", tmp_path / "folder"):
        with pytest.raises(OSError), file_when_whole(path):
            made.append(1)
    assert made == [] and names(tmp_path) == ["file", "folder"] and (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(not Path("/dev/stdout").is_symlink(), reason="this system's /dev/stdout is no link")
def test_the_systems_own_links_are_written_to_and_stay(tmp_path: Path) -> None:
    """Standard output may be a file; renamed over it, what is written later would go into a file without a name."""
    write = "from pathlib import Path\nfrom rrm.data.output import file_when_whole\n" + (
        "with file_when_whole(Path('/dev/stdout')) as file: file.write('page')"
    )
    out = tmp_path / "out.html"
    with open(out, "wb") as stdout:
        before = os.fstat(stdout.fileno()).st_ino
        subprocess.run([sys.executable, "-c", write], stdout=stdout, check=True)
    assert out.read_text() == "page" and out.stat().st_ino == before and names(tmp_path) == ["out.html"]
    assert streams(Path("/dev/null")) and not streams(out)


def test_replaced_rows_come_back_also_where_the_file_is_gone_or_a_run_was_killed(tmp_path: Path) -> None:
    path, made_by = tmp_path / "rows.jsonl", {"seed": 1}
    with RowFile.open(path, made_by) as output:
        output.append([{"id": "a"}])
    before, held = path.read_bytes(), names(tmp_path)

    with pytest.raises(RRMError, match="refused"), RowFile.open(path, {"seed": 2}, overwrite=True):
        path.unlink()
        raise RRMError("refused")
    assert path.read_bytes() == before and header_of(path) == made_by and names(tmp_path) == held

    killed = (
        "import os, pathlib, sys\nfrom rrm.data.output import RowFile\n"
        "with RowFile.open(pathlib.Path(sys.argv[1]), {'seed': 2}, overwrite=True): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", killed, path], check=False).returncode == 9
    assert path.read_bytes() == b""
    with pytest.raises(RRMError, match="refused"), RowFile.open(path, {"seed": 3}, overwrite=True):
        raise RRMError("refused")
    assert path.read_bytes() == before and header_of(path) == made_by and names(tmp_path) == held

    with RowFile.open(path, {"seed": 2}, overwrite=True) as output:
        output.append([{"id": "b"}])
    assert path.read_bytes() == b'{"id": "b"}\n' and names(tmp_path) == held
