"""Stages of criteria: the judge's questions by update, after Reagent (arXiv 2601.22154)."""

import logging
from collections.abc import Sequence

from reagent.feedback.settings import CriteriaStage, FeedbackConfig
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.other_criteria import with_criteria
from rrm.prompt.criteria import Criteria, load_criteria

logger = logging.getLogger(__name__)


def named(settings: FeedbackConfig, number: int) -> str:
    stages = settings.stages
    if number >= len(stages):
        return "the judge's own criteria"
    if isinstance(settings.criteria, str):
        return "feedback.criteria"
    return f"feedback.criteria, stage {number} (from update {stages[number].first}, {stages[number].file})"


def read_criteria(settings: FeedbackConfig) -> list[Criteria]:
    """The criteria of all stages. Raises ConfigError: a file is missing or wrong, or repeats a stage."""
    result: list[Criteria] = []
    for number, stage in enumerate(settings.stages):
        try:
            criteria = load_criteria(stage.file)
        except (ConfigError, OSError) as error:  # OSError: a file that may not be read
            raise ConfigError(f"{named(settings, number)}: {error}") from error
        if result and result[-1].hash == criteria.hash:
            raise ConfigError(
                f"{named(settings, number)}: it asks what the stage before it does: leave it out, or name another file"
            )
        result.append(criteria)
    return result


def longest(stages: Sequence[Criteria]) -> Criteria | None:
    """The criteria with the longest reply."""
    return max(stages, key=lambda criteria: len(criteria.questions), default=None)


def by_stage(judge: AgentRRM, settings: FeedbackConfig, stages: Sequence[Criteria]) -> list[AgentRRM]:
    """The judge by stage, with the same budgets. Raises ConfigError: it was trained for other questions."""
    judges: list[AgentRRM] = []
    most = longest(stages)
    if most is None:
        return [judge]
    roomy = _asked(judge, settings, stages.index(most), most)
    for number, criteria in enumerate(stages):
        judges.append(_asked(roomy, settings, number, criteria))
    return judges


def _asked(judge: AgentRRM, settings: FeedbackConfig, number: int, criteria: Criteria) -> AgentRRM:
    try:
        return with_criteria(judge, criteria)
    except ConfigError as error:
        raise ConfigError(f"{named(settings, number)}: {error}") from error


def one_stage(settings: FeedbackConfig, who: str) -> None:
    """Refuse stages where there are no updates. Raises ConfigError. `who`: the asker, for the message."""
    if len(settings.stages) > 1:
        raise ConfigError(
            f"feedback.criteria has {len(settings.stages)} stages, which are of the updates of `reagent train`, and {who} makes none: name "
            f"the criteria to judge by, as feedback.criteria={settings.stages[-1].file}"
        )


def check_stages(settings: FeedbackConfig, updates: int) -> None:
    read_criteria(settings)
    late: list[CriteriaStage] = [stage for stage in settings.stages if stage.first >= updates]
    if late:
        logger.warning(
            "%s is not reached, nor is what follows it, with max_updates=%d",
            named(settings, settings.stages.index(late[0])), updates,
        )  # fmt: skip


def check_same(settings: FeedbackConfig, before: Sequence[str] | None, now: Sequence[str]) -> None:
    """Refuse a resumed run whose questions (hashes by stage) have changed. Raises RRMError."""
    if before is None or list(before) == list(now):
        return
    changed = next((n for n, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), 0)
    raise RRMError(
        f"{named(settings, changed)}: the questions are no longer those that this run was judged by: put them back, or choose another "
        "output_dir"
    )
