"""A judge that brings its own code: saved with it, hashed with it, read with it where that is trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from travelling_judge import SETTINGS, scores, tiny

from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import content_hash, own_code, save_settings


@pytest.fixture
def judge_folder(tmp_path: Path, own_modules: None) -> Path:
    """A judge whose model class comes with its folder, in two files, beside a script of its owner."""
    folder = tmp_path / "whole"
    model, tokenizer = tiny()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_settings(folder, SETTINGS)
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "own", "architectures": ["OwnLM"]}
    config["auto_map"] = {"AutoConfig": "kinds.OwnConfig", "AutoModelForCausalLM": "own.OwnLM"}
    (folder / "config.json").write_text(json.dumps(config))
    config_name, name = type(model.config).__name__, type(model).__name__
    (folder / "kinds.py").write_text(
        f"from transformers import {config_name}\nclass OwnConfig({config_name}):\n    model_type = 'own'\n"
    )
    (folder / "own.py").write_text(
        f"from transformers import {name}\nfrom .kinds import OwnConfig\n"
        f"class OwnLM({name}):\n    config_class = OwnConfig\n"
    )
    (folder / "run.py").write_text("KEY = 'secret'\n")
    return folder


def test_its_code_is_saved_with_it_and_nobodys_script_is_touched(judge_folder: Path, tmp_path: Path) -> None:
    judge = AgentRRM.from_pretrained(str(judge_folder), device="cpu", trust_remote_code=True)
    target = tmp_path / "target"
    target.mkdir()
    (target / "run.py").write_text("mine")
    judge.save_pretrained(target)
    assert {p.name for p in target.glob("*.py")} == {"kinds.py", "own.py", "run.py"}
    assert (target / "run.py").read_text() == "mine"
    again = AgentRRM.from_pretrained(str(target), device="cpu", trust_remote_code=True)
    assert again.model_hash == judge.model_hash and scores(again) == scores(judge)
    judge.save_pretrained(target)  # over its own code
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "own.py").write_text("mine")
    with pytest.raises(RRMError, match=r"own\.py is not this judge's code"):
        judge.save_pretrained(taken)
    assert [p.name for p in taken.iterdir()] == ["own.py"] and (taken / "own.py").read_text() == "mine"


def test_the_hash_covers_its_code_and_where_its_replies_end(judge_folder: Path) -> None:
    before = content_hash(judge_folder)
    (judge_folder / "run.py").write_text("KEY = 'other'\n")
    generation = json.loads((judge_folder / "generation_config.json").read_text())
    (judge_folder / "generation_config.json").write_text(
        json.dumps(generation | {"transformers_version": "9", "top_k": 3})
    )
    assert content_hash(judge_folder) == before
    (judge_folder / "generation_config.json").write_text(json.dumps(generation | {"eos_token_id": [2, 5]}))
    ends = content_hash(judge_folder)
    (judge_folder / "kinds.py").write_text((judge_folder / "kinds.py").read_text() + "# other\n")
    assert len({before, ends, content_hash(judge_folder)}) == 3


def test_only_code_in_the_folder_itself_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "x.py").write_text("")
    for name in ("../x.C", "org/repo--x.C", "x", 3, None):
        (tmp_path / "in" / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": name}}))
        assert own_code(tmp_path / "in") == []
    (tmp_path / "in" / "config.json").write_text("{")
    with pytest.raises(RRMError, match=r"config.json: not JSON"):
        own_code(tmp_path / "in")


def test_a_served_judges_tokenizer_may_have_code_that_is_trusted(saved: Path, tmp_path: Path) -> None:
    """It was asked about on the terminal, whatever the loader had said."""
    config = json.loads((saved / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": [None, "words.OwnTokenizer"]}}
    (saved / "tokenizer_config.json").write_text(json.dumps(config))
    (saved / "words.py").write_text(
        "from transformers import PreTrainedTokenizerFast\nclass OwnTokenizer(PreTrainedTokenizerFast):\n    pass\n"
    )
    server = "openai:http://127.0.0.1:9/v1#m"
    with pytest.raises(RRMError, match="trust_remote_code"):
        AgentRRM.from_pretrained(server, settings=saved)
    judge = AgentRRM.from_pretrained(server, settings=saved, trust_remote_code=True)
    assert judge.reader is not None and type(judge.reader.tokenizer).__name__ == "OwnTokenizer"
    assert [p.name for p in judge.save_pretrained(tmp_path / "served").glob("*.py")] == ["words.py"]
