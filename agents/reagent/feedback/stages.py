"""Stages of criteria: what a training's judge is asked, and from which update on (`feedback.criteria`).

Reagent (arXiv 2601.22154) begins with simple demands and adds harder ones as training goes on. The judge is one: a stage is a copy of it with
other questions, over the same engine. The stage is that of the update an episode is learned in, and follows from its number alone.
"""

import logging
from collections.abc import Sequence

from reagent.feedback.settings import CriteriaStage, FeedbackConfig
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.other_criteria import with_criteria
from rrm.prompt.criteria import Criteria, load_criteria

logger = logging.getLogger(__name__)


def named(settings: FeedbackConfig, number: int) -> str:
    """A stage in messages; of criteria without stages where they stand."""
    stages = settings.stages
    if number >= len(stages):
        return "the judge's own criteria"
    if isinstance(settings.criteria, str):
        return "feedback.criteria"
    return f"feedback.criteria, stage {number} (from update {stages[number].first}, {stages[number].file})"


def read_criteria(settings: FeedbackConfig) -> list[Criteria]:
    """The criteria of all stages; none where the judge is asked its own. Raises ConfigError: there is no such file, or it is wrong, naming
    the stage; or a stage asks what the one before it does."""
    found: list[Criteria] = []
    for number, stage in enumerate(settings.stages):
        try:
            criteria = load_criteria(stage.file)
        except (ConfigError, OSError) as error:  # OSError: a file that may not be read
            raise ConfigError(f"{named(settings, number)}: {error}") from error
        if found and found[-1].hash == criteria.hash:
            raise ConfigError(
                f"{named(settings, number)}: it asks what the stage before it does: leave it out, or name another file"
            )
        found.append(criteria)
    return found


def longest(asked: Sequence[Criteria]) -> Criteria | None:
    """Those whose reply takes most: with the room for them a judge can be asked all."""
    return max(asked, key=lambda criteria: len(criteria.questions), default=None)


def by_stage(judge: AgentRRM, settings: FeedbackConfig, asked: Sequence[Criteria]) -> list[AgentRRM]:
    """The judge as it is asked in each stage, with the same budgets in all; itself where it is asked its own. Raises ConfigError: it was
    trained, or calibrated, for other questions, naming the stage. `asked`: from `read_criteria`."""
    judges: list[AgentRRM] = []
    most = longest(asked)
    if most is None:
        return [judge]
    roomy = _asked(judge, settings, asked.index(most), most)
    for number, criteria in enumerate(asked):
        judges.append(_asked(roomy, settings, number, criteria))
    return judges


def _asked(judge: AgentRRM, settings: FeedbackConfig, number: int, criteria: Criteria) -> AgentRRM:
    try:
        return with_criteria(judge, criteria)
    except ConfigError as error:
        raise ConfigError(f"{named(settings, number)}: {error}") from error


def one_stage(settings: FeedbackConfig, who: str) -> None:
    """Refuse stages where no update says which holds. Raises ConfigError: there are several. `who`: what asks the judge there, for the
    message."""
    if len(settings.stages) > 1:
        raise ConfigError(
            f"feedback.criteria has {len(settings.stages)} stages, which are of the updates of `reagent train`, and {who} makes none: name "
            f"the criteria to judge by, as feedback.criteria={settings.stages[-1].file}"
        )


def check_stages(settings: FeedbackConfig, updates: int) -> None:
    """Read the criteria of all stages, and say which of them a training does not reach. Raises ConfigError: as `read_criteria`."""
    read_criteria(settings)
    late: list[CriteriaStage] = [stage for stage in settings.stages if stage.first >= updates]
    if late:
        logger.warning(
            "%s is not reached, nor is what follows it, with max_updates=%d",
            named(settings, settings.stages.index(late[0])), updates,
        )  # fmt: skip


def check_same(settings: FeedbackConfig, before: Sequence[str] | None, now: Sequence[str]) -> None:
    """Whether a run goes on with the questions that it began with: its config holds their files' names alone. Raises RRMError: it does not,
    naming the stage.

    Args:
        before, now: hashes by stage; None in checkpoints of earlier versions.
    """
    if before is None or list(before) == list(now):
        return
    changed = next((n for n, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), 0)
    raise RRMError(
        f"{named(settings, changed)}: the questions are no longer those that this run was judged by: put them back, or choose another "
        "output_dir"
    )
