"""Two processes do what one does: the same episodes, losses and metrics, and the same weights after each step.

`accelerate launch --cpu --num_processes 2` starts a single process unless mpirun is configured, without a word;
`--multi_gpu` starts two, which a config with `cpu: true` keeps on the CPU (gloo). So the number is checked first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import distributed_worker
import pytest
import torch
from distributed_worker import CASES
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def one(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process, this one, writes."""
    output = tmp_path_factory.mktemp("one")
    torch.set_num_threads(1)
    distributed_worker.run(base, output)
    return output


@pytest.fixture(scope="module")
def two(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes write."""
    output = tmp_path_factory.mktemp("two")
    launch = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"]
    settled = ["--mixed_precision", "no", "--dynamo_backend", "no"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "accelerate.commands.launch",
            *launch,
            *settled,
            distributed_worker.__file__,
            base,
            output,
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "agents"), str(ROOT)]),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return output


def read(folder: Path, case: str) -> list[dict[str, Any]]:
    """What each process wrote, by rank."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{case}-*.json"))]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_share_the_tasks_and_play_the_same_episodes(one: Path, two: Path, case: str) -> None:
    (whole,), shares = read(one, case), read(two, case)
    assert [s["processes"] for s in shares] == [2, 2] and whole["processes"] == 1
    assert all(update["turns"] > len(update["episodes"]) for update in whole["updates"])
    for update, expected in enumerate(whole["updates"]):
        mine, others = (s["updates"][update]["episodes"] for s in shares)
        assert mine | others == expected["episodes"] and not mine.keys() & others.keys()
        groups = [{key.rpartition("/")[0] for key in share} for share in (mine, others)]
        assert not groups[0] & groups[1], "a group is compared within one process"


@pytest.mark.parametrize("case", CASES)
def test_two_processes_log_what_one_does(one: Path, two: Path, case: str) -> None:
    (whole,), shares = read(one, case), read(two, case)
    assert whole["updates"][0]["metrics"]["unknown_rows"] == (2 if case == "unified" else 1)  # in both stages
    assert ("trace_nll" in whole["updates"][0]["metrics"]) == (case == "unified")
    for share in shares:
        for update, expected in zip(share["updates"], whole["updates"], strict=True):
            assert update["metrics"] == pytest.approx(expected["metrics"], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_two_processes_make_the_steps_of_one(base: Path, one: Path, two: Path, case: str) -> None:
    expected = load_file(one / f"{case}-0.safetensors")
    mine, others = (load_file(two / f"{case}-{rank}.safetensors") for rank in range(2))
    start = load_file(base / "model.safetensors")
    moved = max(float((expected[f"model.{name}"] - weight).abs().max()) for name, weight in start.items())
    assert moved > 1e-4  # two steps of the learning rate
    for name, weight in expected.items():
        torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=1e-5, msg=name)
        assert torch.equal(mine[name], others[name]), name
