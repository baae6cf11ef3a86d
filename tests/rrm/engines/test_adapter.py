"""An adapter is trained further only where it is what the settings make of this very base; and its questions are remembered."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from peft import IA3Config, LoraConfig, get_peft_model

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.lab.transcripts import make_transcripts
from rrm.config import BaseSettings, LoraSettings, TrainConfig
from rrm.data.questions import question_keys, seen_in_training
from rrm.data.trajectory import write_jsonl
from rrm.engines.hf.base_model import base_path, lora_config
from rrm.engines.shipped_judges import judge_folder
from rrm.errors import RRMError
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings
from rrm.judge.loading import LoadOptions, find_folder
from rrm.train.adapter import adapter_folder, checked_adapter, with_adapter
from rrm.train.export import export, model_card
from rrm.train.parent_judges import Earlier, earlier_of
from rrm.train.prepare import prepare

ROWS = [t for t, _ in make_transcripts(40, seed=3)]
TOKENIZER = build_lab_tokenizer([m.text() for t in ROWS for m in t.messages] + ["<score>0.1</score>"], 500)


def tiny(name: str = "base-A") -> Any:
    model = build_lab_model(TOKENIZER, hidden=32, layers=3, heads=2, seed=0)
    model.name_or_path = name
    return model


def build(trajectories: Sequence[Any], annotations: Any, *, seed: int) -> tuple[Any, Any]:
    """A base for a run's preparations."""
    return tiny(), TOKENIZER


def saved(folder: Path, config: Any = None) -> str:
    model = tiny()
    adapted = get_peft_model(model, config or lora_config(LoraSettings(), model))
    adapted.save_pretrained(str(folder), save_embedding_layers=False)  # no look-up of base-A
    return str(folder)


def lora(**more: Any) -> LoraConfig:
    usual = {"r": 16, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    return LoraConfig(**{**usual, **more})


SHAPES: list[dict[str, Any]] = [{}, {"layers_to_transform": [0]}, {"layers_to_transform": 1}, {"use_rslora": True}]
SHAPES += [{"rank_pattern": {"q_proj": 2}}, {"alpha_pattern": {"q_proj": 2}}, {"r": 4}]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_adapter_is_taken_with_its_own_shape_and_weights(tmp_path: Path, shape: dict[str, Any]) -> None:
    made = lora(init_lora_weights=False, **shape)
    model = with_adapter(tiny(), LoraSettings(init=saved(tmp_path, made), dropout=0.5), "base-A")
    from safetensors.torch import load_file

    config = model.peft_config["default"]
    assert config.lora_dropout == 0.5
    assert [config.r, config.alpha_pattern, config.use_rslora] == [made.r, made.alpha_pattern, made.use_rslora]
    trained = {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}
    saved_weights = load_file(tmp_path / "adapter_model.safetensors")
    assert trained.keys() == saved_weights.keys()
    assert all(bool((trained[name] == saved_weights[name]).all()) for name in saved_weights)


def test_lower_layers_of_an_adapter_stay_as_they_are(tmp_path: Path) -> None:
    model = with_adapter(tiny(), LoraSettings(init=saved(tmp_path, lora()), skip_layers=2), "base-A")
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained and all(".layers.2." in name for name in trained)


def test_an_adapter_that_is_no_lora_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    other = IA3Config(target_modules=["k_proj"], feedforward_modules=[], task_type="CAUSAL_LM")
    with pytest.raises(RRMError, match="no LoRA but IA3"):
        with_adapter(tiny(), LoraSettings(init=saved(tmp_path / "a", other)), "base-A")
    folder = Path(saved(tmp_path / "b", lora(r=4)))
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 8}))
    with pytest.raises(RRMError, match=r"lora_A\.weight is \(4, 32\) \(here \(8, 32\)\)"):
        with_adapter(tiny(), LoraSettings(init=str(folder)), "base-A")


def test_an_adapter_of_another_base_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LoraSettings(init=saved(tmp_path / "a"))
    with pytest.raises(RRMError, match=r"is over 'base-A', and model\.base is 'base-B'"):
        checked_adapter(settings, "base-B")
    save_settings(tmp_path / "a", JudgeSettings(base="HuggingFaceTB/SmolLM2-135M-Instruct"))
    assert checked_adapter(settings, "smollm2") == tmp_path / "a"  # one base, two names
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    save_settings(tmp_path / "a", JudgeSettings(base=str(tmp_path / "here")))
    assert checked_adapter(settings, "here") == tmp_path / "a"


def test_it_is_said_where_an_adapter_names_its_base(tmp_path: Path) -> None:
    settings = LoraSettings(init=saved(tmp_path))
    with pytest.raises(RRMError, match=r"name the place in its adapter_config\.json"):
        checked_adapter(settings, "base-B")
    save_settings(tmp_path, JudgeSettings(base="base-A"))
    with pytest.raises(RRMError, match=r"name the place in its judge\.json"):
        checked_adapter(settings, "base-B")
    save_settings(tmp_path, JudgeSettings(base="base-A", base_revision="v2"))
    with pytest.raises(RRMError, match=r"over 'base-A' at revision v2, and model\.base is what its main branch holds"):
        checked_adapter(settings, "base-A")


def test_a_name_means_one_judge_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_folder("default", LoadOptions())[0] == adapter_folder("default") == judge_folder("default")
    monkeypatch.chdir(tmp_path)
    assert judge_folder("default") != Path("default") and judge_folder("nobody/has-it") is None
    saved(tmp_path / "default" / "judge")
    save_settings(tmp_path / "default" / "judge", JudgeSettings())  # a run's folder
    assert find_folder("default", LoadOptions())[0] == adapter_folder("default") == Path("default/judge")
    with pytest.raises(RRMError, match="'default' is an adapter: name its base"):
        base_path("default")


def config(folder: Path, seed: int, **more: Any) -> TrainConfig:
    write_jsonl(folder / "rows.jsonl", ROWS)
    data = {"trajectories": [str(folder / "rows.jsonl")], "calibration_share": 0.3, "test_share": 0.3}
    own = {"cpu": True, "seed": seed, "output_dir": str(folder / f"run{seed}"), "transcript_tokens": 100, "data": data}
    return TrainConfig.model_validate({**own, "model": {"base": f"{__name__}:build"}, **more})


def test_rows_of_questions_the_first_judge_knew_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = prepare(config(tmp_path, 0))
    assert first.seen_in_training == {}
    adapter = saved(tmp_path / "adapter")
    save_settings(Path(adapter), JudgeSettings(training_questions=question_keys(first.parts["train"])))
    caplog.clear()
    second = prepare(config(tmp_path, 1, sft={"lora": {"init": adapter}}))
    keys = load_settings(Path(adapter)).training_questions
    wanted = {part: len(seen_in_training(keys, second.parts[part])) for part in ("calibration", "test")}
    assert second.seen_in_training == wanted and sum(wanted.values()) > 0
    rows = {part: len(second.parts[part]) for part in wanted}
    said = f"{wanted['test']} of {rows['test']} test rows and {wanted['calibration']} of {rows['calibration']} calibration rows"
    assert said in caplog.text
    card = model_card(JudgeSettings(), {"questions_known_before": second.seen_in_training})
    assert f"{wanted['test']} of the test rows are of questions that the judge it goes on from" in card
    assert "flatter" not in model_card(JudgeSettings(), {"questions_known_before": {"calibration": 1, "test": 0}})


def test_questions_are_inherited_from_merged_weights_too(tmp_path: Path) -> None:
    run = prepare(config(tmp_path, 0))
    base = tiny(str(tmp_path / "base"))
    base.config.save_pretrained(str(tmp_path / "base"))
    run.config = run.config.model_copy(update={"model": BaseSettings(base=str(tmp_path / "base"))})
    adapted = get_peft_model(base, lora(init_lora_weights=False))
    export(adapted, run, run.folder / "judge", ["score"], {})
    keys = question_keys(run.parts["train"])
    merged = load_settings(run.folder / "merged")
    assert merged.training_questions == keys and merged.base is None and merged.transcript_tokens == 100
    further = TrainConfig.model_validate({"model": {"base": str(run.folder / "merged")}, "sft": {"enabled": False}})
    assert earlier_of(further) == Earlier(questions=keys)
    (run.folder / "merged" / "judge.json").unlink()  # as runs left it that are older
    assert earlier_of(further) == Earlier(questions=keys)
    save_settings(run.folder / "judge", JudgeSettings())
    assert earlier_of(further) == Earlier(silent=[str(run.folder / "judge")])
    assert earlier_of(TrainConfig.model_validate({"model": {"base": str(tmp_path)}})) == Earlier()


def test_what_a_run_began_with_is_kept(tmp_path: Path) -> None:
    adapter = saved(tmp_path / "adapter")
    save_settings(Path(adapter), JudgeSettings(training_questions=["0123456789abcdef"]))
    settings = config(tmp_path, 1, sft={"lora": {"init": adapter}})
    first = prepare(settings)
    (first.folder / "sft").mkdir()
    shutil.rmtree(adapter)
    again = prepare(settings)
    assert first.earlier == again.earlier == Earlier(questions=["0123456789abcdef"])
    export(tiny(), again, again.folder / "judge", ["score"], {})
    assert "0123456789abcdef" in load_settings(again.folder / "judge").training_questions


def test_a_first_judge_that_names_no_questions_is_said_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    adapter = saved(tmp_path / "adapter")
    save_settings(Path(adapter), JudgeSettings())
    with caplog.at_level(logging.WARNING):
        assert prepare(config(tmp_path, 1, sft={"lora": {"init": adapter}})).seen_in_training == {}
    assert "does not name the questions it was trained on" in caplog.text


def test_a_wrong_start_is_known_before_data_and_weights(tmp_path: Path) -> None:
    run = config(tmp_path, 0, sft={"lora": {"init": "nowhere"}})
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(RRMError, match="'nowhere' holds no adapter"):
        prepare(run)
    (tmp_path / "adapter_config.json").write_text(json.dumps([]))
    (tmp_path / "adapter_model.safetensors").touch()
    with pytest.raises(RRMError, match="no LoRA but list"):
        prepare(run.model_copy(update={"sft": run.sft.model_copy(update={"lora": LoraSettings(init=str(tmp_path))})}))
    with pytest.raises(ValueError, match=r"sft\.lora\.init with drills\.rows"):
        config(tmp_path, 0, sft={"lora": {"init": "nowhere"}}, drills={"rows": 4})
