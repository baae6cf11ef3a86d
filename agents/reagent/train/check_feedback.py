"""Checks before the first rollout: whether the tasks can teach anything."""

import logging
from collections.abc import Sequence

from reagent.env.env import EnvFactory
from reagent.env.gradability import Grading
from reagent.env.task import Task
from reagent.feedback.settings import FeedbackConfig
from reagent.train.build_feedback import MODES
from rrm.errors import ConfigError

logger = logging.getLogger(__name__)


def check_labels(settings: FeedbackConfig, env_factory: EnvFactory, tasks: Sequence[Task]) -> None:
    """Refuse tasks that teach nothing: neither a grade nor a judge's feedback is in the reward.

    Raises ConfigError: no task is graded and the mode pays for grades alone, or recalibrates on them; or an answer cannot be compared."""
    with Grading(env_factory) as grading:
        ungraded = sum(not grading.is_graded(t) for t in tasks)
        for task in tasks:
            try:
                grading.check(task)
            except ValueError as problem:
                raise ConfigError(f"environment: a training task cannot be graded: {problem}") from problem
    if settings.recalibrate is not None and ungraded == len(tasks):
        raise ConfigError(
            f"feedback.recalibrate fits on graded attempts, and none of the {len(tasks)} training tasks can be graded: give some an "
            "`answer`, raise environment.label_share, or set feedback.recalibrate=null"
        )
    if not ungraded or MODES[settings.mode].pays_feedback(settings):
        return
    setting, instead = why_nothing_is_paid(settings)
    if ungraded == len(tasks):
        raise ConfigError(
            f"none of the {len(tasks)} training tasks has an answer to grade by, and with {setting} (as it is set) the reward is nothing "
            f"but the grade: {instead}, or give the tasks an `answer`, or the environment a grader of its own (`grade`)"
        )
    logger.warning(
        "%d of %d training tasks have no answer to grade by: with %s they are played and teach nothing. To learn from a judge's "
        "feedback on them, %s",
        ungraded, len(tasks), setting, instead,
    )  # fmt: skip


def why_nothing_is_paid(settings: FeedbackConfig) -> tuple[str, str]:
    """(settings by which a judge's feedback is not in the reward, the remedy)."""
    mode, pay, paid = settings.mode, settings.process.pay, "set feedback.score_weight above 0"
    if mode in ("r", "u"):
        return f"feedback.mode={mode} and feedback.score_weight={settings.score_weight:g}", paid
    if mode != "process":
        return f"feedback.mode={mode}", "choose feedback.mode=r|u|process, whose reward is also a judge's"
    if pay == "shaping":
        return f"feedback.process.pay={pay}, which adds up to 0,", "choose feedback.process.pay=spread or findings"
    if pay == "spread":
        return f"feedback.process.pay={pay} and feedback.score_weight={settings.score_weight:g}", paid
    return "feedback.process.good=0 and bad=0", "set them, as 0.05 and -0.05"
