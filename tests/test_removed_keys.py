"""Config keys that are gone: an error that says since when and what replaces them, but for runs that recorded what is done anyway."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from reagent.train.config import AgentConfig, load_agent_config
from rrm.config import Section, TrainConfig, _paths, load_config
from rrm.errors import ConfigError, RRMError
from rrm.train.run_folder import check_folder, claim_folder, saved_config

Load = Callable[..., Section]
TABLES: list[tuple[Load, type[Section]]] = [(load_config, TrainConfig), (load_agent_config, AgentConfig)]
CASES = [pytest.param(load, model, key, id=key) for load, model in TABLES for key in model.removed]


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def other(still: Any) -> Any:
    """A value by which something would change."""
    if isinstance(still, dict):
        return {name: value + 0.5 for name, value in still.items()}
    return {bool: lambda: not still, str: lambda: f"not {still}", type(None): lambda: 7}.get(
        type(still), lambda: still + 1
    )()


@pytest.mark.parametrize(("load", "model", "key"), CASES)
def test_a_key_that_is_gone_says_since_when_and_what_replaces_it(
    load: Load, model: type[Section], key: str, tmp_path: Path
) -> None:
    gone, path = model.removed[key], tmp_path / "mine.yaml"
    assert key not in set(_paths(model))
    said = re.escape(f"key {key!r} is gone since {gone.since}: {gone.instead}")
    for value in (other(gone.still), gone.still):
        with pytest.raises(ConfigError, match=f"^command line: {said}$"):
            load("lab", [f"{key}={json.dumps(value)}"])
    path.write_text(yaml.safe_dump(nested(key, other(gone.still))))
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: {said}$"):
        load(str(path))


@pytest.mark.parametrize(("load", "model", "key"), CASES)
def test_a_run_goes_on_that_recorded_what_is_done_anyway_and_no_other(
    load: Load, model: type[Section], key: str, tmp_path: Path
) -> None:
    overrides = ["feedback.recalibrate={}", "feedback.mode=r"] if model is AgentConfig else []
    now, saved, section = load("lab", overrides), tmp_path / "config.yaml", key.partition(".")[0]
    claim_folder(now, tmp_path)
    recorded, still = yaml.safe_load(saved.read_text()), model.removed[key].still
    *above, name = key.split(".")
    holds = recorded
    for part in above:
        holds = holds[part]
    for value in (None, {**still, "unused": 1} if isinstance(still, dict) else still):
        holds[name] = value
        saved.write_text(yaml.safe_dump(recorded))
        assert load(str(saved)).model_dump() == now.model_dump()
        assert saved_config(saved, model) == now.model_dump(mode="json")
        check_folder(now, tmp_path, [section])
    holds[name] = other(still)
    saved.write_text(yaml.safe_dump(recorded))
    with pytest.raises(RRMError, match=f"another {section}"):
        check_folder(now, tmp_path, [section])


@pytest.mark.parametrize(("load", "model", "key"), CASES)
def test_what_replaces_a_key_is_there(load: Load, model: type[Section], key: str) -> None:
    """Keys and constants that the sentence names; a constant is the value that the key had."""
    gone, keys = model.removed[key], set(_paths(model))
    sections = "|".join(model.model_fields)
    for named in re.findall(rf"\b(?:{sections})\.[a-z_.]*[a-z]", re.sub("`.*?`", "", gone.instead)):
        assert named in keys, named
    for path in re.findall(r"`([a-z_.]+\.[A-Z_]+)`", gone.instead):
        module, _, name = path.rpartition(".")
        value = getattr(import_module(module), name)
        assert value == gone.still or gone.still in value.values()
