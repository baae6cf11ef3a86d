"""The wheel works outside the checkout: configs by name, and a judgement by the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reagent.lab.judge_base import build
from reagent.lab.transcripts import make_transcripts
from rrm.cli import COMMANDS
from rrm.config import TrainConfig
from rrm.data.labels import LabelCounts
from rrm.data.trajectory import write_jsonl
from rrm.engines.hf.engine import HFEngine
from rrm.prompt.prompter import Prompter
from rrm.train.export import export
from rrm.train.prepare import TrainingRun

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The built wheel, unpacked into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    wheel = next(folder.glob("*.whl"))
    target = folder / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True, text=True)
    return target


def rrm(site: Path, cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command line with nothing of the checkout on the path."""
    env = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    program = "import rrm, sys; assert 'site' in rrm.__file__, rrm.__file__; from rrm.cli import main; main()"
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_score_from_the_wheel(site: Path, tmp_path: Path) -> None:
    pairs = make_transcripts(4, seed=1)
    write_jsonl(tmp_path / "in.jsonl", [t for t, _ in pairs])
    config = TrainConfig.model_validate({"model": {"base": "reagent.lab.judge_base:build"}})
    trajectories, annotations = [t for t, _ in pairs], {a.trajectory_id: a for _, a in pairs}
    model, tokenizer = build(trajectories, annotations, seed=0, hidden_size=32, layers=1, heads=2)
    parts = {"train": trajectories, "calibration": [], "test": []}
    run = TrainingRun(
        config=config,
        folder=tmp_path / "run",
        parts=parts,
        annotations=annotations,
        targets={},
        labels=LabelCounts(),
        model=model,
        prompter=Prompter(tokenizer, 300),
        shared_texts={},
        raters={},
        step_targets={},
    )
    export(HFEngine(model, tokenizer).model, run, tmp_path / "run" / "judge", ["score"], {"seed": 0})
    done = rrm(site, tmp_path, "score", "in.jsonl", "--model", "run", "-o", "out.jsonl", "--mode", "score")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {r["id"] for r in rows} == {t.id for t, _ in pairs}
    assert all(r["status"] == "scored" and 0 <= r["score"] <= 1 for r in rows)
    assert json.loads(done.stdout.splitlines()[-1])["judged"] == 4


def test_configs_are_found_by_name_and_mistakes_are_explained(site: Path, tmp_path: Path) -> None:
    done = rrm(site, tmp_path, "train", "--config", "lab", "sft.epoch=2")
    assert done.returncode == 2
    assert "nearest valid key: sft.epochs" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_lists_every_command(site: Path, tmp_path: Path) -> None:
    done = rrm(site, tmp_path, "--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert name in done.stdout


def test_the_wheel_holds_the_labs_files_and_says_that_it_is_typed(site: Path) -> None:
    for name in ("rrm/py.typed", "reagent/py.typed", "rrm/configs/rrm/lab.yaml", "rrm/assets/small/judge.json"):
        assert (site / name).is_file(), name
    for part in ("policy", "reflective", "judge"):
        assert (site / "reagent" / "lab" / "assets" / part / "model.safetensors").is_file()
    metadata = next(site.glob("*.dist-info"))
    assert "[rrm.judges]\nlab = reagent.lab.shipped:judge_folder" in (metadata / "entry_points.txt").read_text()
    assert not (site / "tests").exists() and not (site / "benchmarks").exists()
