"""Checks before a weight is loaded, the same for `reagent train` and its `--plan`."""

import logging
from pathlib import Path

from reagent.env.env import EnvFactory
from reagent.env.gradability import Grading
from reagent.env.task import Task
from reagent.feedback.stages import check_stages
from reagent.rollout.templates import template
from reagent.tasks.environments import make_environment
from reagent.train.build_feedback import MODES, check_judge
from reagent.train.check_feedback import check_labels
from reagent.train.checkpoint import checkpoints
from reagent.train.config import AgentConfig
from reagent.train.guards import check_guards, check_held_out
from reagent.train.launch import check_divides, check_lag
from rrm.train.run_folder import check_folder, saved_config

logger = logging.getLogger(__name__)

FIXED = (
    "seed",
    "algorithm",
    "environment",
    "policy",
    "rollout",
    "optim",
    "loss",
    "feedback",
    "mixed_precision",
    "warm_start",
)
"""Options that must not change between a run and its continuation,"""
FREE = (
    "feedback.max_failure_rate", "feedback.escalate.max_cost", "feedback.escalate.price", "feedback.escalate.timeout_s",
    "feedback.escalate.concurrency", "optim.microbatch_tokens", "optim.share_prefixes", "policy.gradient_checkpointing",
    "policy.export_dtype", "rollout.engine", "rollout.max_lag", "loss.importance_cap",
    "environment.options.tool_prompt",
)  # fmt: skip
"""but these may; a run of version 0.1 may keep its prompts (`tool_prompt=schema`)."""


def prepare(
    config: AgentConfig, processes: int, *, judged: bool = False, audited: bool = False
) -> tuple[EnvFactory, list[Task], list[Task]]:
    """(environment factory, training tasks, held-out tasks) of a config that can be trained.

    `judged`, `audited`: a judge, or a second one, is there that the config need not name. Raises ConfigError: the environment, its
    tasks, guards, judge, criteria or chat template do not fit; RRMError: tasks do not divide among processes."""
    check_guards(config, audited=audited)
    check_divides(config, processes)
    check_lag(config, processes)
    if config.policy.chat_template is not None:
        template(config.policy.chat_template)
    environment = make_environment(config.environment, seed=config.seed)
    check_labels(config.feedback, environment[0], environment[1])
    with Grading(environment[0]) as grading:
        check_held_out(config, sum(map(grading.is_graded, environment[2])))
    mode, second = MODES[config.feedback.mode], config.guards.auditor
    if mode.asks_judge(config.feedback):
        check_stages(config.feedback, config.max_updates)
        if not judged:
            check_judge(config.feedback, config.environment)
    if second.judge is not None and second.action != "none" and not audited and mode.learns_from_judge(config.feedback):
        settings = config.feedback.model_copy(update={"judge": second.judge})
        check_judge(settings, config.environment, "guards.auditor.judge")
    return environment


def with_horizon(config: AgentConfig) -> AgentConfig:
    folder = Path(config.output_dir)
    saved = folder / "config.yaml"
    if config.schedule_updates is not None or not saved.is_file() or not checkpoints(folder / "checkpoints"):
        return config
    before = saved_config(saved, AgentConfig)
    horizon = before.get("schedule_updates") or before.get("max_updates")
    if not isinstance(horizon, int) or horizon == config.max_updates:
        return config
    if config.optim.lr_schedule != "constant" and config.max_updates > horizon:
        logger.warning(
            "the learning rate falls to 0 at update %d, as this run began, and stays there: schedule_updates=%d stretches it, with a jump now",
            horizon, config.max_updates,
        )  # fmt: skip
    return config.model_copy(update={"schedule_updates": horizon})


def check_continues(config: AgentConfig, done: list[Path] | None = None) -> None:
    """Refuse another config than that of the folder's run. Raises RRMError. `done`: its checkpoints."""
    folder = Path(config.output_dir)
    if checkpoints(folder / "checkpoints") if done is None else done:
        check_folder(config, folder, FIXED, FREE)
