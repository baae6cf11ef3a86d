"""A loaded judge with other criteria: what answers stays as it is, and so does all that is known of it."""

from __future__ import annotations

import copy

from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import load_settings
from rrm.judge.loading import LoadOptions, check_criteria
from rrm.prompt.criteria import Criteria


def with_criteria(judge: AgentRRM, criteria: Criteria) -> AgentRRM:
    """The judge with other questions, over the same engine: nothing is loaded, nor a server connected to, a second time.

    A judge that answers criteria keeps its budgets, so that transcripts are read in the same windows whatever is asked; of one that judges
    by the fixed rubric a reply gets the tokens that the questions may take.

    Raises:
        ConfigError: it was trained or calibrated with the questions that it has, or `rrm serve` has it.
    """
    if hasattr(judge, "address"):
        raise ConfigError(f"{judge.model}: the criteria of a judge behind `rrm serve` are said where it is served")
    plain = judge.settings.model_copy(update={"criteria": None})
    check_criteria(plain if judge.folder is None else load_settings(judge.folder), LoadOptions(criteria=criteria))
    reply = None if judge.criteria is None else judge.settings.max_new_tokens
    found = copy.copy(judge)
    found.settings = LoadOptions(criteria=criteria, max_new_tokens=reply).over(plain)
    return found
