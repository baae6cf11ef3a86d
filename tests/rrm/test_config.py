"""Configs: found by name, overridden, and honest about mistakes."""

from __future__ import annotations

import pytest

from rrm.config import config_folder, load_config
from rrm.errors import ConfigError


def test_every_shipped_config_loads() -> None:
    names = sorted(p.stem for p in (config_folder() / "rrm").glob("*.yaml"))
    assert {"lab", "quickstart", "qwen3-8b", "smollm2"} <= set(names)
    for name in names:
        assert load_config(name).name == name


def test_overrides_are_read_as_yaml() -> None:
    config = load_config("lab", ["sft.learning_rate=1e-4", "sft.lora=null", "data.trajectories=[a.jsonl, b.jsonl]"])
    assert config.sft.learning_rate == 1e-4
    assert config.sft.lora is None
    assert config.data.trajectories == ["a.jsonl", "b.jsonl"]


def test_unknown_key_names_key_and_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'sft.learning_rte'.*nearest valid key: sft.learning_rate"):
        load_config("lab", ["sft.learning_rte=1"])


def test_unknown_key_in_a_file_names_the_file(tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("sft:\n  lora: {rank: 8}\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml: unknown key 'sft\.lora\.rank'"):
        load_config(str(path))


def test_wrong_type_names_key_and_value() -> None:
    with pytest.raises(ConfigError, match=r"sft\.epochs.*'many'"):
        load_config("lab", ["sft.epochs=many"])


@pytest.mark.parametrize(
    ("name", "overrides", "match"),
    [
        ("labb", [], "did you mean 'lab'"),
        ("lab", ["sft.epochs"], "not of the form key=value"),
        ("lab", ["seed.x=1"], "'seed' is no section"),
    ],
)
def test_other_mistakes(name, overrides, match) -> None:
    with pytest.raises(ConfigError, match=match):
        load_config(name, overrides)


def test_broken_yaml_names_the_file(tmp_path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("sft: [1,")
    with pytest.raises(ConfigError, match=r"broken\.yaml: not readable as YAML"):
        load_config(str(path))
