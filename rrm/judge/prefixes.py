"""Judging runs that go on: a chat model is told so, and its scores mean something once they are calibrated on such runs."""

from __future__ import annotations

import copy

from rrm.data.feedback import Mode
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings


def of_prefixes(settings: JudgeSettings) -> bool:
    """Whether a judge's maps were fitted on runs that were cut at a step (`rrm calibrate --prefixes`)."""
    return any(facts.get("prefixes") for facts in settings.calibrated_on.values())


def of_unfinished(judge: AgentRRM) -> AgentRRM:
    """The same judge, asked of runs that go on.

    Raises:
        ConfigError: it was trained to judge: it has one rubric.
    """
    if not is_chat_model(judge):
        raise ConfigError(f"{judge.model} is no chat model on a server: runs that go on are judged as others are")
    other = copy.copy(judge)
    other.unfinished = True
    return other


def is_chat_model(judge: object) -> bool:
    """Whether a judge is a model on a server that was not trained to judge."""
    if not isinstance(judge, AgentRRM) or hasattr(judge, "address"):  # behind `rrm serve` nobody knows
        return False
    return judge.prompter is None and not judge.settings.modes


def lacks_prefixes(judge: object, mode: Mode) -> bool:
    """Whether a judge's scores of runs that go on mean nothing: a chat model's without a map for them."""
    known = isinstance(judge, AgentRRM) and of_prefixes(judge.settings) and judge.settings.calibration.covers(mode)
    return is_chat_model(judge) and not known


def prefix_of(trajectory: Trajectory, seed: int) -> Trajectory:
    """A run that is cut behind one of its steps but the last, drawn by seed and id; one of a single step as it is."""
    starts = [step.message_index for step in trajectory.steps[1:]]
    if not starts:
        return trajectory
    end = starts[derive_seed(seed, "prefix", trajectory.id) % len(starts)]
    return trajectory.model_copy(update={"messages": trajectory.messages[:end]})
