"""Parts of a policy in files, written by one process; several: reagent/train/test_sharded.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rrm.errors import RRMError
from rrm.train.fsdp import is_complete, reshard, write_shard


@pytest.mark.parametrize("rank", [0, 1])
def test_a_tensor_that_is_whole_is_no_processs_part(tmp_path: Path, rank: int) -> None:
    tensors = {"step": torch.tensor(3.0), "layer.weight": torch.ones(4, 2)}
    with pytest.raises(RRMError, match=r"1 tensor\(s\) are not divided among the processes, e\.g\. 'layer\.weight'"):
        write_shard(tensors, tmp_path, rank, 2)
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_the_first_processs_and_one_process_writes_all(tmp_path: Path) -> None:
    for rank in range(2):
        write_shard({"step": torch.tensor(3.0)}, tmp_path, rank, 2)
    files = [load_file(path) for path in sorted(tmp_path.iterdir())]
    assert files == [{"step": torch.tensor(3.0)}, {}] and is_complete(tmp_path, 2)
    write_shard({"layer.weight": torch.ones(4, 2)}, tmp_path, 0, 1)
    assert load_file(tmp_path / "shard-00001-of-00001.safetensors")["layer.weight"].shape == (4, 2)


def test_a_model_that_was_never_divided_has_nothing_to_let_go() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    before = dict(model.named_parameters())
    reshard(model)
    assert {name: id(p) for name, p in model.named_parameters()} == {name: id(p) for name, p in before.items()}
