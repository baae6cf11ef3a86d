"""Replace the criteria of a loaded judge."""

from __future__ import annotations

import copy

from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import load_settings
from rrm.judge.loading import LoadOptions, check_criteria
from rrm.prompt.criteria import Criteria


def with_criteria(judge: AgentRRM, criteria: Criteria) -> AgentRRM:
    """Return the judge with other questions over the same engine.

    A judge that answers criteria keeps its budgets, so windows stay the same; one with the fixed rubric gets reply tokens for
    these questions. Raises ConfigError if it was trained or calibrated with its questions, or is behind `rrm serve`.
    """
    if hasattr(judge, "address"):
        raise ConfigError(f"{judge.model}: the criteria of a judge behind `rrm serve` are said where it is served")
    plain = judge.settings.model_copy(update={"criteria": None})
    check_criteria(plain if judge.folder is None else load_settings(judge.folder), LoadOptions(criteria=criteria))
    reply = None if judge.criteria is None else judge.settings.max_new_tokens
    other = copy.copy(judge)
    other.settings = LoadOptions(criteria=criteria, max_new_tokens=reply).over(plain)
    return other
