"""The lab's judge, small and trained, and a transcript or two that it has not seen."""

from __future__ import annotations

import pytest

from reagent.lab.shipped import judge_folder
from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM


@pytest.fixture(scope="package")
def judge() -> AgentRRM:
    return AgentRRM.from_pretrained(str(judge_folder()))


@pytest.fixture(scope="package")
def transcripts() -> list[Trajectory]:
    return [t for t, _ in make_transcripts(6, seed=11)]
