"""Configs of run folders and cards of judges hold no aliases: a few lines of them stand for gigabytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reagent.report.runs import _config
from rrm.config import BaseSettings
from rrm.data.plain_yaml import plain_yaml
from rrm.errors import ConfigError
from rrm.judge.card import front_matter
from rrm.train.run_folder import saved_config

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


def test_an_alias_is_refused_and_the_rest_is_read() -> None:
    assert plain_yaml("a: [1, true, null]\nb: {c: d}\n") == {"a": [1, True, None], "b": {"c": "d"}}
    with pytest.raises(yaml.YAMLError, match="an alias"):
        plain_yaml(BOMB)


def test_a_run_folders_config_is_no_bomb(tmp_path: Path) -> None:
    """`rrm train --resume` and `reagent report` of a folder took ten thousand million values for nine lines."""
    path = tmp_path / "config.yaml"
    path.write_text(BOMB + "algorithm: {}\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: not a config that a run wrote"):
        saved_config(path, BaseSettings)
    with pytest.raises(ConfigError, match="an alias"):
        _config(path)
    path.write_text("base: m\n")
    assert saved_config(path, BaseSettings)["base"] == "m"


def test_a_card_is_no_bomb() -> None:
    assert front_matter(f"---\n{BOMB}---\nText") == {}
    assert front_matter("---\nlicense: mit\n---\nText") == {"license": "mit"}
