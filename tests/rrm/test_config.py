"""Configs: found by name, overridden, and honest about mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rrm
from rrm.cli import train_cmd
from rrm.config import config_folder, load_config, set_key
from rrm.data.import_paths import call, imported, is_import_path
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


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("sft.lr", "nearest valid key: sft.learning_rate"),  # its initials, and not sft.lora
        ("out", "nearest valid key: output_dir"),
        ("epochs", "nearest valid key: sft.epochs"),  # of another section, and not report_to
        ("lora.r", "nearest valid key: sft.lora"),
        ("learning_rate", "nearest valid key: drills.learning_rate or sft.learning_rate or rl.learning_rate"),
        ("rl.xyzzy", "the keys here are enabled, max_steps, "),
        ("xyzzy", "the keys here are name, seed, "),
    ],
)
def test_an_unknown_key_is_told_what_was_meant_or_what_there_is(key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown key '{key.removesuffix('.r')}'; {said}"):
        load_config("lab", [f"{key}=1"])


def test_an_address_that_is_left_out_is_no_section() -> None:
    assert load_config("lab", ["model.base=mine:"]).model.base == "mine:"
    assert load_config("lab", ["data.generate_options=a: 1"]).data.generate_options == {"a": 1}
    assert load_config("lab", ["data.generate_options={'a:1': null, b: null}"]).data.generate_options == {
        "a:1": None,
        "b": None,
    }
    with pytest.raises(ConfigError, match=r"'a:1' is a key without a value: write \{a: 1\}, with a space"):
        load_config("lab", ["data.generate_options={b: 2, a:1}"])
    tree: dict = {}
    set_key(tree, "b=&all [*all]")  # a value that holds itself: was a RecursionError
    assert tree["b"][0] is tree["b"]
    for within in ("{b: {a:1}}", "{b: [{a:1}]}"):  # was None under a key that nobody reads
        with pytest.raises(ConfigError, match="'a:1' is a key without a value"):
            load_config("lab", [f"data.generate_options={within}"])


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


def test_the_core_names_no_lab() -> None:
    """Where a config wants the lab's data or model it says so; `rrm` knows neither it nor the package it lies in."""
    source = Path(rrm.__file__).parent
    files = [path for path in source.rglob("*.py") if "configs" not in path.relative_to(source).parts]
    named = [str(path) for path in files if re.search(r"\blab\b|\blab_|reagent", path.read_text(encoding="utf-8"))]
    assert len(files) > 80 and named == []


def test_train_without_a_config_lists_them() -> None:
    with pytest.raises(ConfigError, match=r"--config NAME.*lab, quickstart, qwen3-8b, smollm2"):
        train_cmd.command([], None)


def build(rows, annotations, *, seed, width=3):
    return rows, annotations, seed, width


def test_functions_named_in_a_config_are_called_with_its_options() -> None:
    path, key = f"{__name__}:build", {"options_key": "model.options"}
    assert call(path, "model.base", [1], {}, seed=7, options={"width": 5}, **key) == ([1], {}, 7, 5)
    with pytest.raises(ConfigError, match=r"model\.options: .*build does not take these options: .*'widht'"):
        call(path, "model.base", [1], {}, seed=7, options={"widht": 5}, **key)


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("nowhere.at_all:build", "cannot be imported: No module named 'nowhere'"),
        ("rrm.config:nothing", "cannot be imported: module 'rrm.config' has no attribute 'nothing'"),
        ("rrm.config:__doc__", "is a str, not a function"),
        ("rrm.config", "not of the form module:function"),
    ],
)
def test_functions_that_are_not_there_are_named_with_their_key(path: str, match: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.generate: .*{match}"):
        imported(path, "data.generate")


@pytest.mark.parametrize("base", ["Qwen/Qwen3-8B", "smollm2", "./judge", r"C:\models\mine", "openai:http://x/v1#m"])
def test_other_bases_are_no_functions(base: str) -> None:
    assert not is_import_path(base)


@pytest.mark.parametrize(
    "override",
    [
        "sft.batch_size=0", "sft.epochs=-1", "sft.mix.full=1.5", "sft.loss_weights.score=-1", "sft.learning_rate=-1e-4",
        "rl.num_generations=1", "rl.temperature=0", "data.test_share=2", "data.blend=-0.1", "transcript_tokens=0",
    ],
)  # fmt: skip
def test_numbers_have_bounds(override: str) -> None:
    with pytest.raises(ConfigError, match=rf"command line: {override.partition('=')[0]}: .* \(got "):
        load_config("smollm2", [override])


def test_a_key_is_read_by_the_name_that_an_older_version_gave_it(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("sft: {injection: 0.25, short_first: 0.5, claim_injection_share: 0.125}\n")
    sft = load_config(str(tmp_path / "old.yaml"), ["sft.mark_noise=0.0", "sft.finding_noise=0.5"]).sft
    assert (sft.claim_injection_share, sft.short_first_share, sft.finding_noise) == (0.125, 0.5, 0.5)
