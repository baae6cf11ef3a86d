"""A small judge, and the directory it was saved in."""

from __future__ import annotations

from pathlib import Path

import pytest
from travelling_judge import SETTINGS, tiny

from rrm.engines.hf.engine import HFEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.prompter import Prompter


@pytest.fixture(scope="module")
def judge() -> AgentRRM:
    model, tokenizer = tiny()
    return AgentRRM(
        HFEngine(model, tokenizer),
        Prompter(tokenizer, 250, SETTINGS.prompt_version),
        settings=SETTINGS.model_copy(deep=True),
    )


@pytest.fixture
def saved(judge: AgentRRM, tmp_path: Path) -> Path:
    return judge.save_pretrained(tmp_path / "saved")
