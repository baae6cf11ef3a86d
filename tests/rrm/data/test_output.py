"""What a command writes: files that are whole or as they were, how far it is, and where it ran."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from agent_runs import run
from openai_server import completion, serve

from rrm.data import progress
from rrm.data.output import RowFile, file_when_whole, header_of, streams
from rrm.data.progress import pace_text, progress_bar
from rrm.data.provenance import environment
from rrm.engines.openai import OpenAIEngine
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.scoring.run import score_file


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
    for path in (tmp_path / "gone" / "x", tmp_path / "file" / "x", tmp_path / "folder"):
        with pytest.raises(OSError), file_when_whole(path):
            raise AssertionError("the block was entered")
    assert names(tmp_path) == ["file", "folder"] and (tmp_path / "file").read_text() == "kept"


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

    def refused_run(seed: int, *, removes: bool = False) -> None:
        with pytest.raises(RRMError, match="refused"), RowFile.open(path, {"seed": seed}, overwrite=True):
            if removes:
                path.unlink()
            raise RRMError("refused")
        assert path.read_bytes() == before and header_of(path) == made_by and names(tmp_path) == file_names

    with RowFile.open(path, made_by) as output:
        output.append([{"id": "a"}])
    before, file_names = path.read_bytes(), names(tmp_path)
    refused_run(2, removes=True)
    killed = (
        "import os, pathlib, sys\nfrom rrm.data.output import RowFile\n"
        "with RowFile.open(pathlib.Path(sys.argv[1]), {'seed': 2}, overwrite=True): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", killed, path], check=False).returncode == 9
    assert path.read_bytes() == b""
    refused_run(3)
    with RowFile.open(path, {"seed": 2}, overwrite=True) as output:
        output.append([{"id": "b"}])
    assert path.read_bytes() == b'{"id": "b"}\n' and names(tmp_path) == file_names


@pytest.mark.parametrize(
    ("rate", "total", "done", "text"),
    [(3.2, 100, 36, "3.2/s, 0:00:20 left"), (0.5, 4000, 400, "30.0/min, 2:00:00 left"), (2.0, None, 5, "2.0/s")],
)
def test_pace(rate: float, total: int | None, done: int, text: str) -> None:
    assert pace_text(rate, total, done) == text


def test_a_terminal_shows_the_windows_of_what_is_under_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar(1, True) as show:
        show(0, 0, (12, 310), 0)
    text = capsys.readouterr().err
    assert "windows 12/310" in text and "failed" not in text
    with progress_bar(3, True) as show:
        show(3, 0, (0, 0), 2)
    text = capsys.readouterr().err
    assert "windows" not in text and ", 2 failed" in text


def test_the_log_tells_windows_while_one_long_transcript_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "rrm.data.progress")
    settings = JudgeSettings(opening=False, prompt_version="2", transcript_tokens=400)
    turns = [text for k in range(40) for text in (f"look at number {k} in the store once more", "nothing at all " * 3)]
    with serve(lambda n, body: completion("<critique>[step 1] good: x</critique><score>0.5</score>")) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), settings=settings)
        score_file(judge, [run(*turns)], tmp_path / "out.jsonl", mode="critique", samples=2, total=1)
        windows = len(server.requests)
    lines = [r.getMessage() for r in caplog.records if r.name == "rrm.data.progress"]
    assert windows >= 4
    assert lines[:-1] == [f"judged 0 of 1, 0.0/min, windows {k}/{windows}" for k in range(1, windows + 1)]
    assert lines[-1].startswith("judged 1 of 1, ") and "windows" not in lines[-1]


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")


@pytest.mark.parametrize(("precision", "rounding"), [("highest", None), ("high", "high")])
@pytest.mark.usefixtures("a_gpu")
def test_a_record_of_a_gpu_says_where_products_of_float32_were_rounded(
    monkeypatch: pytest.MonkeyPatch, precision: str, rounding: str | None
) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    assert environment().get("float32_products") == rounding and environment()["device"] == "a GPU"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "float32_products" not in environment()


@pytest.mark.parametrize(("precision", "rounding"), [("tf32", "tf32"), ("ieee", None)])
@pytest.mark.usefixtures("a_gpu")
def test_the_newer_way_to_ask_for_them_is_understood(
    monkeypatch: pytest.MonkeyPatch, precision: str, rounding: str | None
) -> None:
    """With it torch's older question raises."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = precision
    try:
        assert environment().get("float32_products") == rounding
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert "float32_products" not in environment()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
