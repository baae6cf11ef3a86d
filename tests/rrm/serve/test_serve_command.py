"""`rrm serve` as people run it: a real judge, a client that is `rrm score`, a stop that answers what was taken."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rrm.cli import main

STEPS = ("Look it up.", "It is in the second drawer.", "Answer: two")


def write(path: Path, n: int) -> Path:
    rows = [
        {"id": f"r{k}", "messages": [{"role": "user", "content": f"Question {k}?"}, *({"role": "assistant", "content": s} for s in STEPS[: 1 + k % 3])]}
        for k in range(n)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rrm(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of a command in this process."""
    monkeypatch.setattr(sys, "argv", ["rrm", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_a_served_judge_gives_the_rows_of_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = write(tmp_path / "runs.jsonl", 12)
    command = [sys.executable, "-m", "rrm", "serve", "--model", "lab", "--port", "0", "--device", "cpu", "--batch", "5"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "RRM_API_KEY": "k3y"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stderr is not None and server.stdout is not None
        try:
            said = next(found for line in server.stderr if (found := re.search(r"on (http://127\.0\.0\.1:\d+)", line)))
            threading.Thread(target=server.stderr.read, daemon=True).start()
            monkeypatch.setenv("RRM_API_KEY", "k3y")
            out = {name: tmp_path / f"{name}.jsonl" for name in ("there", "here")}
            ask = ["score", str(runs), "--mode", "score", "-o"]
            assert rrm(monkeypatch, *ask, str(out["there"]), "--model", said[1]) == 0
        finally:
            server.send_signal(signal.SIGTERM)
            told = json.loads(server.stdout.read().splitlines()[-1])
            assert server.wait(60) == 0
    assert told["scored"] == 12 and told["requests"] >= 2
    assert rrm(monkeypatch, *ask, str(out["here"]), "--model", "lab", "--device", "cpu") == 0
    there, here = ([json.loads(line) for line in path.read_text().splitlines()] for path in out.values())
    for one, two in zip(there, here, strict=True):
        assert (
            abs(one.pop("score") - two.pop("score")) < 1e-5 and abs(one.pop("raw_score") - two.pop("raw_score")) < 1e-5
        )
        for row in (one, two):
            row["judge"].pop("off_grid_mass")
        assert one == two
    made = [json.loads(path.with_name(path.name + ".run.json").read_text()) for path in out.values()]
    assert made[0] == made[1]  # a run begun here may be finished there


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "put a key into the environment's RRM_API_KEY"),
        (["--model", "http://localhost:1"], "is served already"),
        (["--open", "--host", "no.such.host.invalid"], "nothing can listen on"),
        (["--model", "./nowhere"], "no judge at"),
    ],
)
def test_what_cannot_be_served(
    words: list[str], said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RRM_API_KEY", raising=False)
    assert rrm(monkeypatch, "serve", "--port", "0", *words) == 2
    assert said in " ".join(capfd.readouterr().err.split())


def test_a_wrong_address_says_what_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = write(tmp_path / "runs.jsonl", 1)
    assert rrm(monkeypatch, "score", str(runs), "-o", str(tmp_path / "o.jsonl"), "--model", "http://x:1#gpt") == 2
    assert "openai:BASE_URL#model" in " ".join(capsys.readouterr().err.split())
