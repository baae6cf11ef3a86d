"""Launches that cannot work are refused before anything is loaded, also where accelerate would ignore them."""

from __future__ import annotations

import pytest
from trainer_setup import settings

from reagent.train.launch import refuse_launch
from reagent.train.run import train
from rrm.errors import RRMError


@pytest.mark.parametrize(
    ("variable", "name"),
    [("ACCELERATE_USE_FSDP", "accelerate's FSDP plugin"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")],
)
def test_launches_that_shard_by_themselves_name_the_key(base, tmp_path, monkeypatch, variable: str, name: str) -> None:
    monkeypatch.setenv(variable, "true")
    for sharding in ("none", "fsdp"):
        with pytest.raises(RRMError, match=rf"launched with {name}.*--multi_gpu.*sharding=fsdp"):
            train(settings(base, tmp_path / "run", sharding=sharding))
    assert not (tmp_path / "run").exists()


def test_a_launch_is_read_from_the_environment() -> None:
    refuse_launch({"ACCELERATE_USE_FSDP": "false", "ACCELERATE_USE_CPU": "True", "WORLD_SIZE": "2", "MASTER_PORT": "1"})
    refuse_launch({}, "MULTI_GPU")
    with pytest.raises(RRMError, match="FSDP"):
        refuse_launch({}, "FSDP")
    with pytest.raises(RRMError, match="starts one process"):
        refuse_launch({"ACCELERATE_USE_CPU": "True", "MASTER_PORT": "1"})
