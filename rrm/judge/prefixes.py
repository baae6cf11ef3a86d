"""Judging runs that continue; a chat model's scores of them need a calibration on such runs."""

from __future__ import annotations

import copy

from rrm.data.feedback import Mode
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings


def of_prefixes(settings: JudgeSettings) -> bool:
    # `rrm calibrate --prefixes`
    return any(facts.get("prefixes") for facts in settings.calibrated_on.values())


def of_unfinished(judge: AgentRRM) -> AgentRRM:
    """Return the judge, told that runs continue; raises ConfigError if it was trained to judge."""
    if not is_chat_model(judge):
        raise ConfigError(f"{judge.model} is no chat model on a server: runs that go on are judged as others are")
    other = copy.copy(judge)
    other.unfinished = True
    return other


def is_chat_model(judge: object) -> bool:
    # on a server, not trained to judge
    if not isinstance(judge, AgentRRM) or hasattr(judge, "address"):  # behind `rrm serve` nobody knows
        return False
    return judge.prompter is None and not judge.settings.modes


def lacks_prefixes(judge: object, mode: Mode) -> bool:
    """Return whether a judge is a chat model without a map for runs that continue."""
    covered = isinstance(judge, AgentRRM) and of_prefixes(judge.settings) and judge.settings.calibration.covers(mode)
    return is_chat_model(judge) and not covered


def prefix_of(trajectory: Trajectory, seed: int) -> Trajectory:
    """Cut a run behind a step before its last, drawn by seed and id; a run of one step stays."""
    starts = [step.message_index for step in trajectory.steps[1:]]
    if not starts:
        return trajectory
    end = starts[derive_seed(seed, "prefix", trajectory.id) % len(starts)]
    return trajectory.model_copy(update={"messages": trajectory.messages[:end]})
