"""FSDP2 and DDP on two and on four processes do what one does: losses, metrics, evaluations, weights; runs go on to the bit where
they were stopped, also on another number of processes.

All spawned processes run the whole of `sharded_worker`: starting one costs more than what it computes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sharded_worker
import torch
from processes import ROOT, emptied, launch
from safetensors.torch import load_file
from sharded_worker import BF16, CASES, RUNS, UPDATES

MIXED = [case for case, changes in CASES.items() if changes.items() >= BF16.items()]
EXACT = [case for case in CASES if case not in MIXED]
LARGEST = ("ratio_deviation", "logprob_gap")
"""Figures that are one token's."""


def spawn(processes: int, *arguments: Path) -> None:
    """The worker in so many processes: four started by torchrun, two by accelerate with the shipped file.

    Args:
        arguments: the policy, a folder that is empty, and a folder of runs that others began, which is left as it was.
    """
    shipped = ROOT / "configs" / "accelerate" / "fsdp_8gpu.yaml"
    ways = {
        2: ["accelerate.commands.launch", "--config_file", shipped, "--num_processes", "2", "--main_process_port", "0"],
        4: ["torch.distributed.run", "--standalone", "--nproc-per-node", "4"],
    }
    policy, output, *begun = arguments
    handed = [output / "handed" for _ in begun]

    def prepare() -> None:
        emptied(output)
        for source, target in zip(begun, handed, strict=True):
            shutil.copytree(source, target)

    launch([*ways[processes], sharded_worker.__file__, policy, output, *handed], timeout=420, prepare=prepare)


@pytest.fixture(scope="module")
def one(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process, this one, writes."""
    output = tmp_path_factory.mktemp("one")
    torch.set_num_threads(1)
    sharded_worker.run(base, output)
    return output


@pytest.fixture(scope="module")
def four(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("four")
    spawn(4, base, output)
    return output


@pytest.fixture(scope="module")
def two(base: Path, one: Path, four: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes write; in `handed/` the runs that four sharded ones began, and one that one process began unsharded."""
    output = tmp_path_factory.mktemp("two")
    begun = tmp_path_factory.mktemp("begun")
    for kind in RUNS:
        shutil.copytree(four / f"{kind}-handed", begun / f"{kind}-handed")
    shutil.copytree(one / "full-handed", begun / "full-whole")
    spawn(2, base, output, begun)
    return output


@pytest.fixture(params=["two", "four"])
def several(request: pytest.FixtureRequest) -> tuple[int, Path]:
    """(processes, what they wrote)."""
    return {"two": 2, "four": 4}[request.param], request.getfixturevalue(request.param)


def found(folder: Path, case: str, sharding: str) -> list[dict[str, Any]]:
    """What each process wrote, by rank."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{case}-{sharding}-[0-9].json"))]


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
@pytest.mark.parametrize("case", EXACT)
@pytest.mark.timeout(900)
def test_processes_make_the_steps_of_one(one: Path, several: tuple[int, Path], case: str, sharding: str) -> None:
    processes, folder = several
    (whole,), shares = found(one, case, "none"), found(folder, case, sharding)
    assert [(s["processes"], s["sharded"]) for s in shares] == [(processes, sharding == "fsdp")] * processes
    for update, expected in enumerate(whole["updates"]):
        assert sum(s["updates"][update]["rows"] for s in shares) == expected["rows"]
        for share in shares:
            assert share["updates"][update]["metrics"] == pytest.approx(expected["metrics"], rel=1e-5, abs=1e-5)
    theirs, mine = (load_file(path / f"{case}-{how}.safetensors") for path, how in ((one, "none"), (folder, sharding)))
    assert theirs.keys() == mine.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=2e-5, msg=name)


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.timeout(900)
def test_processes_make_the_steps_of_one_in_bfloat16(one: Path, several: tuple[int, Path], case: str) -> None:
    """Up to its rounding: of the same rows in other company bfloat16 makes other numbers, and Adam other steps. Under DDP the company
    is the same."""
    processes, folder = several
    (whole,), plain, shares = found(one, case, "none"), found(folder, case, "none"), found(folder, case, "fsdp")
    assert [(s["processes"], s["sharded"]) for s in shares] == [(processes, True)] * processes
    for share, other in zip(shares, plain, strict=True):
        for update, expected in zip(share["updates"], other["updates"], strict=True):
            first = update is share["updates"][0]
            assert update["metrics"] == pytest.approx(expected["metrics"], rel=1e-4, abs=1e-4 if first else 0.05)
            assert update["metrics"]["logprob_gap"] > 1e-3  # of episodes that were played in float32
        (mine, *_), (theirs, *_) = share["updates"], whole["updates"]
        sums = [{k: v for k, v in one["metrics"].items() if k not in LARGEST} for one in (mine, theirs)]
        assert sums[0] == pytest.approx(sums[1], rel=5e-3, abs=2e-3)
    alone, ddp, mine = (
        load_file(path / f"{case}-{how}.safetensors")
        for path, how in ((one, "none"), (folder, "none"), (folder, "fsdp"))
    )
    assert alone.keys() == ddp.keys() == mine.keys()
    for name, weight in mine.items():
        trained = case == "bf16" or "lora_" in name
        assert weight.dtype == ddp[name].dtype == (torch.float32 if trained else torch.bfloat16), name
        assert float((weight - ddp[name]).abs().mean()) < 5e-5, name  # steps are of 1e-3
        assert trained or torch.equal(weight, alone[name]), name


def test_the_cases_try_what_they_are_there_for(base: Path, one: Path) -> None:
    start = load_file(base / "model.safetensors")
    for case in CASES:
        (whole,) = found(one, case, "none")
        last = whole["updates"][UPDATES - 1]["metrics"]
        weights = load_file(one / f"{case}-none.safetensors")
        moved = [w for n, w in weights.items() if "lora_B" in n] if "lora" in CASES[case].get("policy", {}) else []
        moved += [weights[f"model.{n}"] - w for n, w in start.items() if f"model.{n}" in weights]
        assert max(float(m.abs().max()) for m in moved) > 1e-4, case
        assert ("kl" in last) == ("kl_coef" in CASES[case].get("loss", {})), case
        assert ("value_loss" in last) == (CASES[case]["algorithm"] == "ppo"), case
        assert ("trace_nll" in last) == (case == "texts"), case


# ---- whole runs ----


def lines(path: Path) -> list[dict[str, Any]]:
    """A run's rows without what another number of processes changes."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/") and k != "processes"} for row in rows]


def weights_of(folder: Path, kind: str) -> dict[str, torch.Tensor]:
    """The exported policy's and the best one's, and an exported adapter's."""
    adapter = "adapter/adapter_model.safetensors" if kind == "lora" else "model.safetensors"
    names = {"policy/model.safetensors", f"policy/{adapter}", f"best/{adapter}"}
    return {f"{name}:{key}": value for name in names for key, value in load_file(folder / name).items()}


def assert_same_run(expected: Path, mine: Path, kind: str, *, exact: bool = False) -> None:
    for name in ("metrics", "eval"):
        theirs, rows = lines(expected / f"{name}.jsonl"), lines(mine / f"{name}.jsonl")
        assert len(rows) == len(theirs) == (3 if name == "metrics" else 4)
        if exact:
            assert rows == theirs
        for row, other in zip(rows, theirs, strict=True):
            assert row.keys() == other.keys()
            for key, value in other.items():
                assert row[key] == (pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(value, float) else value), (
                    key
                )
    theirs, weights = weights_of(expected, kind), weights_of(mine, kind)
    assert theirs.keys() == weights.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=0 if exact else 2e-5, msg=name)


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.timeout(900)
def test_a_sharded_run_is_evaluated_kept_and_exported_as_one_is(one, several, kind) -> None:
    processes, folder = several
    assert_same_run(one / f"{kind}-straight", folder / f"{kind}-straight", kind)
    (kept,) = (folder / f"{kind}-straight" / "checkpoints").iterdir()
    shards = sorted(path.name for path in kept.glob("shard-*"))
    assert shards == [f"shard-{i + 1:05d}-of-{processes:05d}.safetensors" for i in range(processes)]
    sizes = [(kept / name).stat().st_size for name in shards]
    assert max(sizes) < 1.2 * min(sizes) or kind == "lora"  # four rows of an adapter's matrix to a process


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.timeout(900)
def test_a_sharded_run_that_was_stopped_goes_on_to_the_bit(several: tuple[int, Path], kind: str) -> None:
    """All processes failed in a forward, with layers gathered, and each wrote its part without the others."""
    _, folder = several
    assert_same_run(folder / f"{kind}-straight", folder / f"{kind}-stopped", kind, exact=True)
    before = [path.name for path in (folder / f"{kind}-handed" / "checkpoints").iterdir()]
    assert before == ["checkpoint-000001"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "kind"), [("full-handed", "full"), ("lora-handed", "lora"), ("full-whole", "full")])
def test_two_sharded_processes_go_on_where_others_stopped(one: Path, two: Path, name: str, kind: str) -> None:
    """Four sharded ones, or a single one that held all."""
    assert_same_run(one / f"{kind}-straight", two / "handed" / name, kind)


@pytest.mark.timeout(900)
def test_one_process_goes_on_where_four_sharded_ones_stopped(base: Path, one: Path, four: Path, tmp_path: Path) -> None:
    shutil.copytree(four / "full-handed", tmp_path / "run")
    sharded_worker.whole_run(sharded_worker.run_config(base, tmp_path / "run", "full", "none"))
    assert_same_run(one / "full-straight", tmp_path / "run", "full")
