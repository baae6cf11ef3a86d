"""The GPU queue: limits, pieces, and one small item through `next`, `smoke`, `run` and `collect` with a real script."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks.gpu import pieces
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.items import QUEUE, load, plan, tree_bytes

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import argparse, json, pathlib
parser = argparse.ArgumentParser()
for name in ("base", "rows", "out", "run", "device", "resume"):
    parser.add_argument("--" + name)
parser.add_argument("--max-tokens", type=int)
parser.add_argument("--minutes", type=float)
given = parser.parse_args()
assert pathlib.Path(given.base, "model.safetensors").is_file()
rows = pathlib.Path(given.rows).read_text()
try:
    import trl
    hidden = False
except ModuleNotFoundError:
    hidden = True
seen = 10 + (json.loads(pathlib.Path(given.resume, given.run + ".state.json").read_text())["seen"] if given.resume else 0)
state = {"rows": rows, "device": given.device, "hidden": hidden, "seen": seen, "finished": seen >= given.max_tokens}
out = pathlib.Path(given.out)
(out / (given.run + ".state.json")).write_text(json.dumps(state))
with (out / (given.run + ".log.jsonl")).open("a") as log:
    log.write(str(seen) + "\\n")
for kind in ("adapter", "moments"):
    (out / (given.run + "." + kind + ".safetensors")).write_bytes(bytes(BYTES))
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one small item of two runs, the second of which needs two calls; it is the working directory."""
    import torch
    from safetensors.torch import save_file

    root = tmp_path / "repository"
    (root / "benchmarks/gpu").mkdir(parents=True)
    (root / "runs/base").mkdir(parents=True)
    (root / ".gitignore").write_text("/runs/\n")
    (root / "script.py").write_text(SCRIPT.replace("BYTES", str(750_000)))
    (root / "runs/rows.jsonl").write_text('{"row": 1}\n')
    save_file({"matrix": torch.randn(2000, 1200)}, root / "runs/base/model.safetensors")
    limits = yaml.safe_load((ROOT / QUEUE).read_text())["limits"] | {"up_mib": 3, "up_spare_mib": 1}
    item = {
        **{"name": "tiny", "purpose": "Try the queue.", "prediction": "It works.", "minutes": 1, "state": "waiting"},
        **{"result": "results/tiny.json", "script": "script.py", "inputs": ["base", "rows"]},
        "runs": {
            "a": "--base {base} --rows {rows} --max-tokens 10",
            "b": "--base {base} --rows {rows} --max-tokens 20",
        },
        "outputs": [
            f"{{run}}.{kind}" for kind in ("state.json", "log.jsonl", "adapter.safetensors", "moments.safetensors")
        ],
    }
    queue = {
        "limits": limits | {"back_mib": 8, "back_file_mib": 1, "command_minutes": 2.5},
        "absent": ["trl"],
        "smoke": {"minutes": 1, "seconds": 60, "arguments": []},
        "inputs": {"base": {"kind": "model", "path": "runs/base"}, "rows": {"path": "runs/rows.jsonl"}},
        "items": [item, item | {"name": "later"}],
    }
    (root / QUEUE).write_text("# kept\n" + yaml.safe_dump(queue, sort_keys=False))
    for command in ("init -q", "add .", "-c user.name=t -c user.email=t@t commit -qm start"):
        subprocess.run(["git", *shlex.split(command)], cwd=root, check=True)
    monkeypatch.chdir(root)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'agents'}")
    return root


def perform(calls: list[dict], root: Path, machine: Path, out: Path) -> None:
    """Do as the other machine does: a copy of what git tracks, the carried files of each call, then its command."""
    out.mkdir()
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    (machine / "bin").mkdir(parents=True, exist_ok=True)
    (machine / "bin/python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (machine / "bin/python3").chmod(0o755)
    environment = os.environ | {"OUT": str(out), "PATH": f"{machine / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for call in calls:
        for name in [*tracked, *call["carry"]]:
            (machine / name).parent.mkdir(parents=True, exist_ok=True)
            (machine / name).write_bytes((root / name).read_bytes())
        job = [machine / name for name in call["carry"] if name.startswith("runs/gpu/jobs/")]
        for path in job:  # there is no GPU here
            path.write_text(path.read_text().replace('"cuda"', '"cpu"'))
        subprocess.run(call["command"], shell=True, cwd=machine, env=environment, check=True, timeout=120)


def test_an_item_goes_there_and_back_in_two_calls(root, tmp_path, capsys):
    main(["next"])
    calls = json.loads(capsys.readouterr().out)
    assert [call["timeout_s"] for call in calls] == [60, 150]
    assert all(sum((root / p).stat().st_size for p in call["carry"]) + tree_bytes(root) <= 3 << 20 for call in calls)
    perform(calls, root, tmp_path / "machine", tmp_path / "out")
    main(["collect", str(tmp_path / "out")])
    assert capsys.readouterr().out.startswith("tiny is waiting")  # run b has seen 10 of 20 tokens
    assert [item.state for item in load(root).items] == ["waiting", "waiting"]

    main(["next", "--have", "base", "--have", "rows"])
    again = json.loads(capsys.readouterr().out)
    assert [path.split("/")[2] for call in again for path in call["carry"]] == ["pieces", "jobs"]
    perform(again, root, tmp_path / "machine", tmp_path / "out2")
    main(["collect", str(tmp_path / "out2")])
    assert [item.state for item in load(root).items] == ["done", "waiting"]
    assert (root / QUEUE).read_text().startswith("# kept\n")
    record = json.loads((root / "results/tiny.json").read_text())
    assert {name: state["seen"] for name, state in record["runs"].items()} == {"a": 20, "b": 20}
    assert record["runs"]["a"]["rows"] == '{"row": 1}\n'
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True).stdout.strip()
    assert [call["commit"] for call in record["calls"]] == [head, head]
    assert "CPU cores" in record["calls"][0]["device"] and record["calls"][0]["versions"]["torch"]
    assert record["prediction"] == "It works." and record["state"] == "done"
    stored = root / "runs/gpu/results/tiny"
    assert record["files"] == {path.name: pieces.sha256(path) for path in stored.iterdir()}
    assert (stored / "b.log.jsonl").read_text() == "10\n20\n"
    assert (stored / "a.adapter.safetensors").stat().st_size == 750_000
    assert load(root).item().name == "later"


def test_a_failed_run_fails_the_item_and_leaves_its_console(root, tmp_path, capsys):
    (root / "script.py").write_text("raise SystemExit('the card is full')\n")
    calls = plan(load(root), load(root).item(), root, [])[1]
    with pytest.raises(subprocess.CalledProcessError):
        perform(calls, root, tmp_path / "machine", tmp_path / "out")
    main(["collect", str(tmp_path / "out")])
    assert "tiny is failed" in capsys.readouterr().out
    assert "the card is full" in (root / "runs/gpu/failed/tiny/a.console.txt").read_text()
    assert [item.state for item in load(root).items] == ["failed", "waiting"]


def test_a_run_that_cannot_go_on_must_finish(root, tmp_path, capsys):
    (root / QUEUE).write_text((root / QUEUE).read_text().replace("  - '{run}.moments.safetensors'\n", ""))
    perform(plan(load(root), load(root).item(), root, [])[1], root, tmp_path / "machine", tmp_path / "out")
    main(["collect", str(tmp_path / "out")])
    assert "tiny is failed" in (said := capsys.readouterr().out) and "b is not finished" in said and "a is" not in said


def test_a_model_comes_back_within_half_a_step(tmp_path):
    import torch
    from safetensors.torch import load_file, save_file

    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(300, 200, generator=generator) * torch.logspace(-4, 1, 300)[:, None]
    matrix[7] = 0
    weights = {"matrix": matrix.bfloat16(), "norm": torch.randn(200, generator=generator).bfloat16()}
    (tmp_path / "model").mkdir()
    save_file(weights, tmp_path / "model/model.safetensors")
    (tmp_path / "model/config.json").write_text("{}")
    manifest = pieces.pack(tmp_path / "model", tmp_path / "cut", 20_000, model=True)
    assert len(manifest["pieces"]) == 5 and max(piece["bytes"] for piece in manifest["pieces"]) == 20_000
    joined = pieces.join(manifest, tmp_path / "cut", tmp_path / "joined")
    back = load_file(joined / "model.safetensors")
    assert {weight.dtype for weight in back.values()} == {torch.bfloat16} and (
        joined / "config.json"
    ).read_text() == "{}"
    assert torch.equal(back["norm"], weights["norm"])
    groups = weights["matrix"].float().reshape(-1, 8)  # 200 columns have no more in common with 32
    error = (back["matrix"].float().reshape(-1, 8) - groups).abs()
    step = groups.abs().amax(-1, keepdim=True) / 127
    assert (error <= 0.51 * step + groups.abs() * 2**-8).all()
    assert error.mean() > 0  # it was quantised


def test_pieces_are_cut_once_and_an_altered_one_is_refused(tmp_path):
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/all.jsonl").write_bytes(os.urandom(50_000))
    manifest = pieces.pack(tmp_path / "rows", tmp_path / "cut", 20_000)
    first = tmp_path / "cut" / manifest["pieces"][0]["name"]
    before = first.stat().st_mtime_ns
    assert pieces.pack(tmp_path / "rows", tmp_path / "cut", 30_000) == manifest and first.stat().st_mtime_ns == before
    joined = pieces.join(manifest, tmp_path / "cut", tmp_path / "joined")
    assert (joined / "all.jsonl").read_bytes() == (tmp_path / "rows/all.jsonl").read_bytes()
    assert len(pieces.pack(tmp_path / "rows", tmp_path / "cut", 10_000)["pieces"]) == 6  # the tree has grown
    (tmp_path / "rows/all.jsonl").write_bytes(b"other")
    other = pieces.pack(tmp_path / "rows", tmp_path / "cut", 10_000)
    assert {p["name"] for p in other["pieces"]}.isdisjoint(p["name"] for p in manifest["pieces"])
    piece = tmp_path / "cut" / other["pieces"][0]["name"]
    piece.write_bytes(piece.read_bytes()[:-1] + b"x")
    with pytest.raises(pieces.PieceError, match="another checksum"):
        pieces.join(other, tmp_path / "cut", tmp_path / "again")
    piece.unlink()
    with pytest.raises(pieces.PieceError, match="is missing"):
        pieces.join(other, tmp_path / "cut", tmp_path / "again")


def test_the_queue_of_this_repository_is_whole():
    queue = load(ROOT)
    names = [item.name for item in queue.items]
    assert names[:3] == ["small", "small-folds", "base"] and names[-1] == "full"
    for item in queue.items:
        assert item.purpose and item.prediction and len(item.promised()) == len(set(item.promised()))
        for text in item.runs.values():
            text.format(**{name: name for name in item.inputs})
