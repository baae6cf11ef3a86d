"""Zip archives: told by their first bytes, read like a folder; damaged, locked or made to burst they are an error."""

from __future__ import annotations

import io
import json
import sys
import types
import zipfile
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_rows import talk

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import archive, read
from rrm.readers.archive import Archive


def run(name: str) -> str:
    return json.dumps({"id": name, "messages": talk(f"question {name}", "answer")})


def packed(members: dict[str, str | bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return out.getvalue()


def collect(path: Path | str) -> tuple[list[Trajectory], list[ReadError]]:
    errors: list[ReadError] = []
    return list(read([path], on_error=errors.append)), errors


def read_zip(tmp_path: Path, data: bytes, name: str = "runs.zip") -> tuple[list[Trajectory], list[ReadError]]:
    (tmp_path / name).write_bytes(data)
    return collect(tmp_path / name)


FOLDER: dict[str, str | bytes] = {
    "b/two.jsonl": f"{run('2')}\n{run('3')}\n", "a.json": run("1"), "notes.md": "# no data", "__MACOSX/a.json": "x",
    "b/.hidden.json": "x",
}  # fmt: skip


@pytest.mark.parametrize("name", ["runs.zip", "runs.json", "runs", "runs.bin"])
@pytest.mark.parametrize("how", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zipped_folder_is_read_like_a_folder(tmp_path: Path, name: str, how: int) -> None:
    runs, errors = read_zip(tmp_path, packed(FOLDER, how), name)
    assert errors == [] and [t.id for t in runs] == ["1", "2", "3"]
    assert [(t.source.file, t.source.line) for t in runs if t.source] == [
        (f"{tmp_path / name}!/a.json", None if runs[0].source and runs[0].source.line is None else 1),
        (f"{tmp_path / name}!/b/two.jsonl", 1),
        (f"{tmp_path / name}!/b/two.jsonl", 2),
    ]


def test_of_a_folder_archives_of_data_files_are_read_and_others_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "runs.zip").write_bytes(packed(FOLDER))
    (tmp_path / "model.npz").write_bytes(packed({"weights.npy": b"\0" * 9}))
    (tmp_path / "cut.eval").write_bytes(packed(FOLDER)[:-30])
    (tmp_path / "cut.npz").write_bytes(packed(FOLDER)[:-30])
    caplog.set_level("INFO")
    runs, errors = collect(tmp_path)
    assert len(runs) == 3 and [Path(e.path).name for e in errors] == ["cut.eval"]
    assert "2 files are not data files and were left out: cut.npz, model.npz" in caplog.text
    assert "3 files are not data files and were left out: __MACOSX/a.json, b/.hidden.json, notes.md" in caplog.text


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(packed(FOLDER))))
    runs, errors = collect("-")
    assert errors == [] and len(runs) == 3 and runs[0].source and runs[0].source.file == "-!/a.json"


def zstd_packed(data: bytes) -> bytes:
    """A stored member of zstd bytes, declared as method 93, as Inspect writes them."""
    raw = pa.compress(data, codec="zstd", asbytes=True)
    made = bytearray(packed({"a.json": raw}, zipfile.ZIP_STORED))
    central = made.rindex(b"PK\x01\x02")
    for at, method, checksum, size in ((0, 8, 14, 22), (central, 10, 16, 24)):
        made[at + method : at + method + 2] = archive.ZSTD.to_bytes(2, "little")
        made[at + checksum : at + checksum + 4] = zlib.crc32(data).to_bytes(4, "little")
        made[at + size : at + size + 4] = len(data).to_bytes(4, "little")
    return bytes(made)


def test_members_packed_by_zstd(tmp_path: Path) -> None:
    runs, errors = read_zip(tmp_path, zstd_packed(run("1").encode()))
    assert errors == [] and [t.id for t in runs] == ["1"]
    damaged = bytearray(zstd_packed(run("1").encode()))
    damaged[60] ^= 255
    assert read_zip(tmp_path, bytes(damaged))[0] == [] and read_zip(tmp_path, bytes(damaged))[1]


def locked() -> bytes:
    made = bytearray(packed({"a.json": run("1")}))
    made[6] |= 1
    made[made.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(made)


def miscounted() -> bytes:
    """A member whose bytes are not those of its checksum."""
    made = bytearray(packed({"a.json": run("1")}, zipfile.ZIP_STORED))
    made[made.index(b"question")] ^= 1
    return bytes(made)


@pytest.mark.parametrize(("data", "reason"), [
    (packed({}), "a zip archive without data files"), (packed({"a.txt": ""}), "the file is empty"),
    (packed({"a.md": "x"}), "a zip archive without data files"),
    (packed({"a.json": packed({"b.json": run("1")})}), "a zip archive inside another file"),
    (packed(FOLDER)[:-40], "cannot be opened (cut off? fetch it again)"),
    (locked(), "is encrypted: unpack the archive"), (miscounted(), "cannot be unpacked: Bad CRC-32"),
])  # fmt: skip
def test_what_cannot_be_read_is_said(tmp_path: Path, data: bytes, reason: str) -> None:
    runs, (error,) = read_zip(tmp_path, data)
    assert runs == [] and reason in error.reason


def test_a_damaged_member_leaves_the_others(tmp_path: Path) -> None:
    made = bytearray(packed({"a.json": run("1"), "b.json": run("2")}, zipfile.ZIP_STORED))
    made[made.index(b"question 1")] ^= 1
    runs, (error,) = read_zip(tmp_path, bytes(made))
    assert [t.id for t in runs] == ["2"] and error.path.endswith("!/a.json")


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed({"a.json": b" " * 3_000_000, "b.json": run("2")})
    monkeypatch.setattr(archive, "MAX_MEMBER", 1 << 20)
    runs, (error,) = read_zip(tmp_path, bomb)
    assert [t.id for t in runs] == ["2"] and "unpacks to more than 1 MiB: not read" in error.reason
    monkeypatch.setattr(archive, "MAX_MEMBER", 1 << 30)
    monkeypatch.setattr(archive, "FREE", 1 << 20)
    monkeypatch.setattr(archive, "MAX_RATIO", 100)
    runs, errors = read_zip(tmp_path, bomb)
    assert runs == [] and all("a bomb, not read" in e.reason for e in errors) and len(errors) == 2


def test_names_that_point_elsewhere_are_only_names(tmp_path: Path) -> None:
    runs, _ = read_zip(tmp_path, packed({"../../up.json": run("1"), "/etc/a\n\x1b.json": run("2")}))
    assert [t.source.file.isprintable() for t in runs if t.source] == [True, True]
    assert [p.name for p in tmp_path.iterdir()] == ["runs.zip"]
    assert Archive("x", io.BytesIO(packed({"a": ""}).replace(b"a", b"/"))).names == []


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_archives_with_bytes_changed_or_cut(data: st.DataObject) -> None:
    how = data.draw(
        st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 93])
    )
    made = bytearray(zstd_packed(run("1").encode()) if how == 93 else packed(FOLDER, how))
    for _ in range(data.draw(st.integers(1, 3))):
        made[data.draw(st.integers(0, len(made) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(made[: data.draw(st.integers(len(made) - 40, len(made)))])
    try:
        opened = Archive("x.zip", io.BytesIO(cut))
    except ValueError as error:
        assert "cannot be opened" in str(error)
        return
    for name in opened.names:
        try:
            b"".join(opened.blocks(name))
        except ValueError as error:
            assert "zip member" in str(error)
