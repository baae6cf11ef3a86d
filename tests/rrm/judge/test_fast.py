"""Judges that are read in int8, and their verdicts."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.hf.engine import HFEngine
from rrm.engines.int8 import multiplies_exactly
from rrm.errors import ConfigError, EngineError, MissingExtra
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.fast import takes_int8
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter

RUN = Trajectory(
    id="a",
    task="find it",
    question_id="q",
    messages=[
        Message(role="user", content="find it"),
        Message(role="assistant", content="look here"),
        Message(role="tool", content="found"),
        Message(role="assistant", content="it is here"),
    ],
)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny judge of steps, with an empty cache."""
    monkeypatch.setenv("AGENT_RRM_CACHE", str(tmp_path / "cache"))
    tokenizer = build_lab_tokenizer(["Task step agent result is good bad. The run is earlier steps"] * 3, 400)
    model = build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0)
    settings = JudgeSettings(modes=["steps"], prompt_version="2", transcript_tokens=600)
    judge = AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, 600), settings=settings)
    return judge.save_pretrained(tmp_path / "judge")


def test_verdicts_alone_on_a_cpu_are_read_in_int8() -> None:
    assert takes_int8(None, "cpu", ["steps"], None) and takes_int8("int8", "cpu:0", ["steps"], None)
    for dtype, device, modes, attention in (
        ("float32", "cpu", ["steps"], None),
        (None, "cuda", ["steps"], None),
        (None, "cpu", ["full", "steps"], None),
        (None, "cpu", ["steps"], "eager"),
    ):
        assert not takes_int8(dtype, device, modes, attention)
    with pytest.raises(ConfigError, match="int8"):
        takes_int8("int8", "cuda", ["steps"], None)


def test_int8_says_nearly_what_float32_says(saved: Path) -> None:
    pytest.importorskip("openvino", reason="int8 needs openvino: pip install 'agent-rrm[fast]'")
    if not multiplies_exactly():
        pytest.skip("int8 products overflow on this processor")
    in_float = AgentRRM.from_pretrained(str(saved), device="cpu", dtype="float32")
    fast = AgentRRM.from_pretrained(str(saved), device="cpu")
    assert (in_float.dtype, fast.dtype) == ("float32", "int8") and in_float.model_hash == fast.model_hash
    (a,), (b,) = in_float.judge([RUN], mode="steps"), fast.judge([RUN], mode="steps")
    assert [f.p_good for f in b.findings] == pytest.approx([f.p_good for f in a.findings], abs=0.02)
    assert b.score == pytest.approx(a.score, abs=0.02) and b.findings != a.findings
    assert fast.save_pretrained(saved.parent / "again").is_dir()  # the weights it came from


def test_without_the_library_float32_and_a_notice_do(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rrm.data.extras._is_there", lambda module: module != "openvino")
    with caplog.at_level(logging.INFO, "rrm.data.progress"):
        judge = AgentRRM.from_pretrained(str(saved), device="cpu")
    assert judge.dtype == "float32" and caplog.text.count("agent-rrm[fast]") == 1
    caplog.clear()
    with caplog.at_level(logging.INFO, "rrm.data.progress"):
        AgentRRM.from_pretrained(str(saved), device="cpu", dtype="float32")
    assert "fast" not in caplog.text
    with pytest.raises(MissingExtra, match="fast"):
        AgentRRM.from_pretrained(str(saved), device="cpu", dtype="int8")


def test_a_graph_that_cannot_be_read_even_anew_gives_float32_and_a_notice(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    openvino = pytest.importorskip("openvino", reason="int8 needs openvino: pip install 'agent-rrm[fast]'")

    def half(graph: Any, path: Path, **how: Any) -> None:
        path.parent.mkdir()
        path.write_text("<net>")

    monkeypatch.setattr(openvino, "save_model", half)
    monkeypatch.setattr("rrm.engines.int8.multiplies_exactly", lambda: True)
    with caplog.at_level(logging.INFO, "rrm.data.progress"):
        judge = AgentRRM.from_pretrained(str(saved), device="cpu")
    assert judge.dtype == "float32" and caplog.text.count("steps are read in float32: OpenVINO: ") == 1
    with pytest.raises(EngineError, match=r"OpenVINO: .*model\.xml"):
        AgentRRM.from_pretrained(str(saved), device="cpu", dtype="int8")


def test_a_library_that_cannot_be_loaded_gives_float32_and_a_notice(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rrm.judge.fast.needs", lambda *names: None)
    monkeypatch.setitem(sys.modules, "rrm.engines.int8_graph", None)  # its import fails
    with caplog.at_level(logging.INFO, "rrm.data.progress"):
        assert AgentRRM.from_pretrained(str(saved), device="cpu").dtype == "float32"
    assert caplog.text.count("steps are read in float32: OpenVINO: ") == 1
    with pytest.raises(EngineError, match="OpenVINO: "):
        AgentRRM.from_pretrained(str(saved), device="cpu", dtype="int8")
