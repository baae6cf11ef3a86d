"""Two processes do what one does: the same episodes, losses and metrics, and the same weights after each step.

`accelerate launch --cpu --num_processes 2` starts a single process unless mpirun is configured, without a word;
`--multi_gpu` starts two, which a config with `cpu: true` keeps on the CPU (gloo). So the number is checked first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import distributed_worker
import pytest
import torch
from distributed_worker import CASES, UPDATES
from processes import emptied, launch
from safetensors.torch import load_file


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
    processes = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"]
    settled = ["--mixed_precision", "no", "--dynamo_backend", "no"]
    started = ["accelerate.commands.launch", *processes, *settled]
    launch([*started, distributed_worker.__file__, base, output], timeout=280, prepare=lambda: emptied(output))
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
    # in both stages
    assert whole["updates"][0]["metrics"]["unknown_rows"] == (2 if case in ("unified", "placebo") else 1)
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
    assert moved > 1e-4  # two steps of the learning rate, or more
    for name, weight in expected.items():
        torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=1e-5, msg=name)
        assert torch.equal(mine[name], others[name]), name


def test_which_groups_are_learned_does_not_hang_on_how_many_processes_sample(one: Path, two: Path) -> None:
    """One may be left without a group: it takes part in the others' steps with a row that nothing is learned from."""
    (whole,), shares = read(one, "dynamic"), read(two, "dynamic")
    rows = [[keys for share in shares for keys in share["learned"][update]] for update in range(UPDATES)]
    assert [sorted(keys) for keys in rows] == [sorted(keys) for keys in whole["learned"]]
    skipped = ("time/", "processes", "ungraded_rows")
    for share in shares:
        for mine, expected in zip(share["metrics"], whole["metrics"], strict=True):
            kept = [{k: v for k, v in one.items() if not k.startswith(skipped)} for one in (mine, expected)]
            assert kept[0] == pytest.approx(kept[1], rel=1e-5, abs=1e-5, nan_ok=True)
            assert 2 <= mine["sampling/differing"] < mine["sampling/groups"] == mine["sampling/tasks"]
    expected = load_file(one / "dynamic-0.safetensors")
    mine, others = (load_file(two / f"dynamic-{rank}.safetensors") for rank in range(2))
    for name, weight in expected.items():
        torch.testing.assert_close(mine[name], weight, rtol=1e-5, atol=1e-5, msg=name)
        assert torch.equal(mine[name], others[name]), name


def test_processes_may_make_unlike_numbers_of_forwards(one: Path, two: Path) -> None:
    for folder, processes in ((one, 1), (two, 2)):
        assert [share["summed"] for share in read(folder, "dynamic")] == [[0, processes, 2 * processes]] * processes


def test_a_folder_that_is_taken_is_refused_on_every_process(two: Path) -> None:
    said = read(two, "refused")
    assert len(said) == 2 and all("another process is writing a run" in one for one in said)


# ---- a whole run: an adapter, minibatches, evaluation, resume ----


def lines(path: Path) -> list[dict[str, Any]]:
    """A run's rows without what another number of processes changes."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith("time/") and k != "processes"} for row in rows]


def test_two_processes_log_and_evaluate_a_run_as_one_does(one: Path, two: Path) -> None:
    for name in ("metrics", "eval"):
        expected, found = (lines(folder / "run" / f"{name}.jsonl") for folder in (one, two))
        assert [row["update"] for row in found] == [0, 1]
        for mine, theirs in zip(found, expected, strict=True):
            assert mine.keys() == theirs.keys()
            for key, value in theirs.items():
                assert mine[key] == (pytest.approx(value, rel=1e-4, abs=1e-5) if isinstance(value, float) else value), (
                    key
                )
    assert {row["tasks"] for row in lines(two / "run" / "eval.jsonl")} == {5}
    assert any(row["episode/zero_variance_groups"] < 1 for row in lines(one / "run" / "metrics.jsonl"))


def test_two_processes_that_stopped_learn_the_adapter_that_one_does(base: Path, one: Path, two: Path) -> None:
    expected, found = (load_file(folder / "run" / "policy" / "model.safetensors") for folder in (one, two))
    start = load_file(base / "model.safetensors")
    moved = max(float((expected[name] - weight).abs().max()) for name, weight in start.items())
    assert moved > 1e-5 and (two / "run" / "checkpoints" / "checkpoint-000001").is_dir()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=0.02 * moved, msg=name)


def test_two_processes_never_play_the_same_episode(one: Path, two: Path) -> None:
    whole, mine = (lines(folder / "run" / "episodes.jsonl") for folder in (one, two))
    first = [row for row in whole if row["update"] == 0]
    assert len({row["id"] for row in first}) == len(first) == 8
    assert sum(row["update"] == 0 for row in mine) == 4  # the main process's share
    assert lines(two / "run" / "metrics.jsonl")[0]["episode/reward"] == pytest.approx(
        sum(row["reward"] for row in first) / 8
    )
