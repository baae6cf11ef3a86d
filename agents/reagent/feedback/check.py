"""What can be known of a training before its first rollout: whether its tasks can teach anything, and its judge read it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from reagent.env.env import EnvFactory
from reagent.env.grading import Grading
from reagent.env.task import Task
from reagent.feedback.build import MODES
from reagent.feedback.settings import FeedbackConfig
from rrm.errors import ConfigError

logger = logging.getLogger(__name__)


def check_labels(settings: FeedbackConfig, env_factory: EnvFactory, tasks: Sequence[Task]) -> None:
    """Whether the training tasks can teach anything: a grade of them, or a judge's feedback, is part of the reward.

    Raises:
        ConfigError: no task can be graded, and the mode pays for grades alone, or the judge was to be recalibrated on grades; or
            a task's answer is none that the grader can compare with: every attempt at it would fail.
    """
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
    if ungraded == len(tasks):
        raise ConfigError(
            f"none of the {len(tasks)} training tasks has an answer to grade by, and with feedback.mode={settings.mode} "
            "(as it is set) the reward is nothing but the grade: choose feedback.mode=r|u|process, whose reward is also a "
            "judge's, or give the tasks an `answer`, or the environment a grader of its own (`grade`)"
        )
    logger.warning(
        "%d of %d training tasks have no answer to grade by: with feedback.mode=%s they are played and teach nothing; "
        "feedback.mode=r|u|process learns from a judge's feedback on them",
        ungraded, len(tasks), settings.mode,
    )  # fmt: skip
