"""Which judges are read in int8, and what they say then."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.engines.hf.engine import HFEngine
from rrm.errors import ConfigError, MissingExtra
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.fast import takes_int8
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter
from rrm.trajectory import Message, Trajectory

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
    whole = AgentRRM.from_pretrained(str(saved), device="cpu", dtype="float32")
    fast = AgentRRM.from_pretrained(str(saved), device="cpu")
    assert (whole.dtype, fast.dtype) == ("float32", "int8") and whole.model_hash == fast.model_hash
    (a,), (b,) = whole.judge([RUN], mode="steps"), fast.judge([RUN], mode="steps")
    assert [f.p_good for f in b.findings] == pytest.approx([f.p_good for f in a.findings], abs=0.02)
    assert b.score == pytest.approx(a.score, abs=0.02) and b.findings != a.findings
    assert fast.save_pretrained(saved.parent / "again").is_dir()  # the weights it came from


def test_without_the_library_float32_and_a_notice_do(
    saved: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rrm.extras._is_there", lambda module: module != "openvino")
    with caplog.at_level(logging.INFO, "rrm.progress"):
        judge = AgentRRM.from_pretrained(str(saved), device="cpu")
    assert judge.dtype == "float32" and caplog.text.count("agent-rrm[fast]") == 1
    caplog.clear()
    with caplog.at_level(logging.INFO, "rrm.progress"):
        AgentRRM.from_pretrained(str(saved), device="cpu", dtype="float32")
    assert "fast" not in caplog.text
    with pytest.raises(MissingExtra, match="fast"):
        AgentRRM.from_pretrained(str(saved), device="cpu", dtype="int8")
