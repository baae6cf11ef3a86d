"""Run folders: a continuation must be of the same run, and a mistake leaves nothing behind."""

from __future__ import annotations

import pytest
import yaml

from rrm.config import TrainConfig
from rrm.errors import RRMError
from rrm.lab.transcripts import make_transcripts
from rrm.run_folder import check_folder, claim_folder
from rrm.train.run import FIXED, train
from rrm.trajectory import write_jsonl


def test_another_config_is_refused_and_named(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    check_folder(TrainConfig(max_new_tokens=7), tmp_path, FIXED)  # may change between a run and its continuation
    with pytest.raises(RRMError, match="another seed, model"):
        check_folder(TrainConfig.model_validate({"seed": 1, "model": {"base": "lab"}}), tmp_path, FIXED)
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]


def test_an_option_of_a_fixed_section_may_be_free(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    changed = TrainConfig.model_validate({"sft": {"epochs": 7.0}})
    with pytest.raises(RRMError, match="another sft"):
        check_folder(changed, tmp_path, FIXED)
    check_folder(changed, tmp_path, FIXED, free=["sft.epochs"])


def test_options_newer_than_the_run_stand_at_their_defaults(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    path = tmp_path / "config.yaml"
    tree = yaml.safe_load(path.read_text())
    del tree["sft"]["injection"]
    path.write_text(yaml.safe_dump(tree))
    check_folder(TrainConfig(), tmp_path, FIXED)
    with pytest.raises(RRMError, match="another sft"):
        check_folder(TrainConfig.model_validate({"sft": {"injection": 0.5}}), tmp_path, FIXED)


def test_options_since_removed_must_have_been_off(tmp_path) -> None:
    claim_folder(TrainConfig(), tmp_path)
    path = tmp_path / "config.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["sft"]["bygone"] = None
    path.write_text(yaml.safe_dump(tree))
    check_folder(TrainConfig(), tmp_path, FIXED)
    tree["sft"]["bygone"] = "agent"
    path.write_text(yaml.safe_dump(tree))
    with pytest.raises(RRMError, match="another sft"):
        check_folder(TrainConfig(), tmp_path, FIXED)


def test_a_mistaken_base_leaves_no_folder(tmp_path) -> None:
    rows = tmp_path / "rows.jsonl"
    write_jsonl(rows, (t for t, _ in make_transcripts(12, seed=0)))
    run = tmp_path / "run"
    tree = {"output_dir": str(run), "model": {"base": "./nowhere"}, "data": {"trajectories": [str(rows)]}}
    with pytest.raises(RRMError, match=r"'\./nowhere' does not exist"):
        train(TrainConfig.model_validate(tree))
    assert not run.exists()
