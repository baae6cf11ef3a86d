"""A judge that is saved, loaded, on the hub or behind a server judges as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_hub import serve_hub
from openai_server import completion, serve
from peft import LoraConfig, get_peft_model
from travelling_judge import ROWS, SETTINGS, in_the_cache, scores, tiny

from rrm.config import DataConfig
from rrm.data.questions import question_hash, question_keys, seen_in_training
from rrm.data.splits import apply_split, make_split
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.openai import OpenAIEngine
from rrm.engines.scripted import ScriptedEngine
from rrm.errors import ConfigError, DownloadError, RRMError
from rrm.judge import loading, saving
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings, base_of, content_hash, load_settings, save_settings

# ---- save, load ----


def test_a_saved_judge_judges_alike(judge: AgentRRM, saved: Path) -> None:
    loaded = AgentRRM.from_pretrained(str(saved), device="cpu")
    assert loaded.settings == judge.settings
    assert scores(loaded) == pytest.approx(scores(judge))
    again = AgentRRM.from_pretrained(str(loaded.save_pretrained(saved.parent / "again")), device="cpu")
    assert again.model_hash == loaded.model_hash and scores(again) == scores(loaded)


def test_budgets_given_in_loading_are_saved_too(saved: Path) -> None:
    loaded = AgentRRM.from_pretrained(str(saved), device="cpu", max_transcript_tokens=99, max_new_tokens=33)
    settings = load_settings(loaded.save_pretrained(saved.parent / "smaller"))
    assert (settings.transcript_tokens, settings.max_new_tokens) == (99, 33)
    assert settings.calibration == SETTINGS.calibration and settings.modes == SETTINGS.modes


def adapter_over(base: Path, folder: Path) -> Path:
    """A judge directory with a random adapter over `base`."""
    model, tokenizer = tiny()
    torch.manual_seed(5)
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    get_peft_model(model, lora).save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    save_settings(folder, SETTINGS.model_copy(update={"base": str(base)}))
    return folder


def save_base(folder: Path, seed: int) -> Path:
    model, tokenizer = tiny(seed)
    model.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    return folder


def test_the_hash_of_an_adapter_covers_its_base(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", seed=0)
    judge = AgentRRM.from_pretrained(str(adapter_over(base, tmp_path / "judge")), device="cpu")
    before, scores_before = judge.model_hash, scores(judge)
    folder = judge.save_pretrained(tmp_path / "kept")
    assert (folder / "adapter_model.safetensors").is_file() and not (folder / "model.safetensors").exists()
    copied = AgentRRM.from_pretrained(str(folder), device="cpu")
    assert (copied.model_hash, scores(copied)) == (before, scores_before)
    save_base(base, seed=1)  # other weights under the same name: the same judge no longer
    other = AgentRRM.from_pretrained(str(tmp_path / "judge"), device="cpu")
    assert scores(other) != scores_before and other.model_hash != before


# ---- the hub ----


def test_a_hub_id_brings_its_calibration_budgets_and_modes(
    judge: AgentRRM, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = in_the_cache(saved, tmp_path / "cache", "org/judge", monkeypatch)
    loaded = AgentRRM.from_pretrained("org/judge", device="cpu")
    assert loaded.settings == SETTINGS and loaded.model == "org/judge"
    assert scores(loaded) == pytest.approx(scores(judge))
    pinned = AgentRRM.from_pretrained("org/judge", device="cpu", revision=commit)
    assert pinned.model_hash == loaded.model_hash == AgentRRM.from_pretrained(str(saved), device="cpu").model_hash
    with pytest.raises(RRMError, match="org/judge at v2"):
        AgentRRM.from_pretrained("org/judge", revision="v2")
    with pytest.raises(RRMError, match="no judge 'org/absent': neither a directory nor a shipped judge"):
        AgentRRM.from_pretrained("org/absent")


def test_a_pushed_judge_comes_back_from_the_hub(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = AgentRRM.from_pretrained(str(saved), device="cpu")
    (saved / "notes.txt").write_text("not the judge's")
    with serve_hub(monkeypatch, "org/judge") as hub:
        judge.push_to_hub("org/judge", token="hf_test")
    assert hub.keys == {"Bearer hf_test"} and "notes.txt" not in hub.files
    pushed = tmp_path / "pushed"
    pushed.mkdir()
    for name, data in hub.files.items():
        (pushed / name).write_bytes(data)
    in_the_cache(pushed, tmp_path / "cache", "org/judge", monkeypatch)
    loaded = AgentRRM.from_pretrained("org/judge", device="cpu")
    assert loaded.settings == SETTINGS and scores(loaded) == scores(judge)


def test_what_only_this_machine_has_is_not_pushed(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", seed=0)
    judge = AgentRRM.from_pretrained(str(adapter_over(base, tmp_path / "judge")), device="cpu")
    with pytest.raises(RRMError, match="nobody else could load it"):
        judge.push_to_hub("org/judge")
    judge.settings.base = "org/base"
    with pytest.raises(DownloadError, match="cannot write not//a//name on the hub"):
        judge.push_to_hub("not//a//name")


# ---- what reaches the loader, and what a row says ----


def test_dtype_and_attention_reach_the_loader(saved: Path) -> None:
    judge = AgentRRM.from_pretrained(str(saved), device="cpu", dtype="bfloat16", attn_implementation="eager")
    model: Any = judge.engine.model  # pyright: ignore[reportAttributeAccessIssue]
    assert model.dtype == torch.bfloat16 and model.config._attn_implementation == "eager"
    assert judge.judge(ROWS[:1], mode="score")[0].judge.dtype == judge.describe()["dtype"] == "bfloat16"
    with pytest.raises(ConfigError, match="dtype 'int7': choose one of float32"):
        AgentRRM.from_pretrained(str(saved), dtype="int7")
    with pytest.raises(ConfigError, match="--revision main is of a hub id"):
        AgentRRM.from_pretrained(str(saved), revision="main")
    with pytest.raises(ConfigError, match="dtype is a local judge's"):
        AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", dtype="float32")
    with pytest.raises(ConfigError, match=r"--settings are for openai:"):
        AgentRRM.from_pretrained(str(saved), settings=saved)


def test_a_row_says_budget_numbers_temperature_and_calibration(judge: AgentRRM) -> None:
    (feedback,) = judge.judge(ROWS[:1], mode="score")
    info = feedback.judge
    assert (info.transcript_tokens, info.max_new_tokens, info.temperature, info.calibrated) == (250, 24, None, True)
    (failed,) = judge.judge(ROWS[:1], mode="full")
    assert failed.score is None and failed.judge.calibrated is None
    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        chat = AgentRRM(OpenAIEngine(server.url, "m"))
        (single,), (two,) = chat.judge(ROWS[:1]), chat.judge(ROWS[:1], samples=2)
    assert (single.judge.temperature, two.judge.temperature, single.judge.calibrated) == (0.0, 0.7, False)


def test_a_mode_the_judge_was_not_trained_in_is_said(judge: AgentRRM, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        judge.judge(ROWS[:1], mode="critique")
    judge.judge(ROWS[:1], mode="score")
    warnings = [r.getMessage() for r in caplog.records if "not in critique" in r.getMessage()]
    assert len(warnings) == 1 and "trained in score, full" in warnings[0]


def test_training_questions_are_recognised_whatever_their_spelling() -> None:
    same = ROWS[0].model_copy(update={"id": "x", "question_id": None, "task": f"  {ROWS[0].task.upper()}!! "})
    other = same.model_copy(update={"id": "y", "task": f"{ROWS[0].task} And why?"})
    assert seen_in_training(SETTINGS.training_questions, [same, other]) == ["x"]
    assert seen_in_training(JudgeSettings().training_questions, ROWS) == []


def asked(name: str, question_id: str | None, task: str = "Fix the failing test.") -> Trajectory:
    messages = [Message(role="user", content=task), Message(role="assistant", content="done")]
    return Trajectory(id=name, task=task, question_id=question_id, messages=messages)


def test_tasks_of_one_text_and_several_ids_are_other_questions_as_in_the_split() -> None:
    """The held-out part of a judge's own data was all called seen where every task has the same words."""
    rows = [asked(str(i), f"repo-{i}") for i in range(10)]
    parts = apply_split(rows, make_split(rows, DataConfig(), 0))
    settings = JudgeSettings(training_questions=question_keys(parts["train"]))
    assert seen_in_training(settings.training_questions, parts["test"]) == []
    assert seen_in_training(settings.training_questions, parts["train"]) == [t.id for t in parts["train"]]
    assert seen_in_training(
        settings.training_questions, [asked("n", parts["train"][0].question_id, "In other words")]
    ) == ["n"]


def test_a_question_without_an_id_of_its_own_on_one_side_is_known_by_its_text() -> None:
    named, bare = asked("a", "repo-1"), asked("b", None)
    derived = asked("c", question_hash(bare.task))
    for learned, met in ((named, bare), (named, derived), (bare, named), (derived, named), (derived, bare)):
        assert seen_in_training(question_keys([learned]), [met]) == [met.id]


# ---- what decides a judge ----


def test_an_adapter_without_a_judges_settings_is_put_on_its_own_base(tmp_path: Path) -> None:
    """A plain peft folder over another base was put on the default one."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = folder / "adapter_config.json"
    config.write_text(json.dumps({"base_model_name_or_path": "org/other"}))
    assert base_of(folder, JudgeSettings()) == "org/other"
    assert base_of(folder, JudgeSettings(base="mine")) == "mine"
    for nothing in ("{}", '{"base_model_name_or_path": null}', "[]", "{"):
        config.write_text(nothing)
        with pytest.raises(RRMError, match=r"base|settings"):
            base_of(folder, JudgeSettings())


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json", "vocab.json", "tokenizer.model"])
def test_the_hash_covers_what_changes_the_prompt(tmp_path: Path, name: str) -> None:
    save_settings(tmp_path, JudgeSettings())
    (tmp_path / name).write_text("{}")
    before = content_hash(tmp_path)
    (tmp_path / name).write_text('{"other": 1}')
    assert content_hash(tmp_path) != before


def test_the_hash_leaves_out_what_only_a_reader_needs(tmp_path: Path) -> None:
    save_settings(tmp_path, JudgeSettings())
    before = content_hash(tmp_path)
    save_settings(tmp_path, JudgeSettings(name="x", trained_on={"note": "typo"}, training_questions=["a"]))
    assert content_hash(tmp_path) == before
    save_settings(tmp_path, JudgeSettings(transcript_tokens=99))
    assert content_hash(tmp_path) != before


def test_a_folder_that_held_another_judge_holds_only_this_one(judge: AgentRRM, saved: Path, tmp_path: Path) -> None:
    """The old adapter_config.json and shards were loaded with the new weights."""
    for number, source in enumerate((judge, AgentRRM.from_pretrained(str(saved), device="cpu"))):
        used = tmp_path / str(number)
        used.mkdir()
        (used / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "x"}')
        (used / "model-00001-of-00002.safetensors").write_bytes(b"old")
        (used / "notes.txt").write_text("mine")
        source.save_pretrained(used)
        assert not (used / "adapter_config.json").exists() and not list(used.glob("model-0*"))
        assert (used / "notes.txt").read_text() == "mine"
        assert scores(AgentRRM.from_pretrained(str(used), device="cpu")) == scores(judge)


def test_saving_into_its_own_folder_or_its_bases_destroys_nothing(saved: Path, tmp_path: Path) -> None:
    here = AgentRRM.from_pretrained(str(saved), device="cpu")
    here.save_pretrained(saved)
    assert scores(AgentRRM.from_pretrained(str(saved), device="cpu")) == scores(here)
    base = save_base(tmp_path / "base", seed=0)
    over = AgentRRM.from_pretrained(str(adapter_over(base, tmp_path / "adapter")), device="cpu")
    with pytest.raises(RRMError, match="holds the base"):
        over.save_pretrained(base)
    assert (base / "model.safetensors").is_file()


def test_the_base_of_a_plain_peft_folder_is_neither_deleted_nor_left_behind(tmp_path: Path) -> None:
    """Without a judge.json only adapter_config.json names the base."""
    base = save_base(tmp_path / "base", seed=0)
    plain = adapter_over(base, tmp_path / "plain")
    (plain / "judge.json").unlink()
    named = json.loads((plain / "adapter_config.json").read_text()) | {"base_model_name_or_path": str(base)}
    (plain / "adapter_config.json").write_text(json.dumps(named))
    judge = AgentRRM.from_pretrained(str(plain), device="cpu")
    assert judge.settings.base is None
    before = {path.name: path.read_bytes() for path in base.iterdir()}
    with pytest.raises(RRMError, match="holds the base"):
        judge.save_pretrained(base)
    assert {path.name: path.read_bytes() for path in base.iterdir()} == before
    with pytest.raises(RRMError, match="is a folder of this machine"):
        judge.push_to_hub("org/judge")


def test_a_save_that_fails_leaves_the_folder_as_it_was(
    judge: AgentRRM, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    weightless = AgentRRM(ScriptedEngine([]), judge.prompter)
    stopped = AgentRRM(judge.engine, judge.prompter)

    def disk_full(*_: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(saving, "save_settings", disk_full)
    for target in (saved, tmp_path / "new"):
        with pytest.raises(RRMError, match="ScriptedEngine holds no weights"):
            weightless.save_pretrained(target)
        with pytest.raises(OSError, match="No space"):
            stopped.save_pretrained(target)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    assert not (tmp_path / "new").exists()


def test_a_mistyped_folder_is_not_asked_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--model runs/judgee` asked the hub, with retries, before it said that there is none."""
    asked_for: list[str] = []
    monkeypatch.setattr(loading, "download", lambda repo, **_: asked_for.append(repo) or tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(RRMError, match="'runs' is here and has no 'judgee'"):
        AgentRRM.from_pretrained("runs/judgee")
    assert asked_for == []
    loading.find_folder("runs/judgee", loading.LoadOptions(revision="main"))
    loading.find_folder("org/judge", loading.LoadOptions())
    assert asked_for == ["runs/judgee", "org/judge"]
