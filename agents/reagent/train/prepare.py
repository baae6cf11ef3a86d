"""What a training refuses before a weight is loaded, in one place for `reagent train` and its `--plan`: what the one accepts, so does the other."""

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

FIXED = ("seed", "algorithm", "environment", "policy", "rollout", "optim", "loss", "feedback", "mixed_precision")
"""Options that must not change between a run and its continuation."""
FREE = (
    "feedback.max_failure_rate", "feedback.escalate.max_cost", "feedback.escalate.price", "feedback.escalate.timeout_s",
    "feedback.escalate.concurrency", "optim.microbatch_tokens", "optim.share_prefixes", "policy.gradient_checkpointing",
    "policy.export_dtype", "rollout.engine", "rollout.max_lag", "loss.importance_cap",
    "environment.options.tool_prompt",
)  # fmt: skip
"""Those of them that may: what a run stopped at may be allowed it, or given less memory; and a run of version 0.1 may
keep its prompts (`tool_prompt=schema`)."""


def prepare(
    config: AgentConfig, processes: int, *, judged: bool = False, audited: bool = False
) -> tuple[EnvFactory, list[Task], list[Task]]:
    """(environment factory, training tasks, held-out tasks) of a config that can be trained, as far as that is known without weights.

    Args:
        processes: that share the tasks.
        judged, audited: whether a judge, and a second one, is there that the config need not name.

    Raises:
        ConfigError: an environment or tasks that cannot be made, or teach nothing; guards that could never do what they are asked to; a
        judge that cannot read the environment; criteria that are wrong; no such chat template; processes that would wait for each other;
        RRMError: tasks that do not divide among processes.
    """
    check_guards(config, audited=audited)
    check_divides(config, processes)
    check_lag(config, processes)
    if config.policy.chat_template is not None:
        template(config.policy.chat_template)
    found = make_environment(config.environment, seed=config.seed)
    check_labels(config.feedback, found[0], found[1])
    with Grading(found[0]) as grading:
        check_held_out(config, sum(map(grading.is_graded, found[2])))
    mode, second = MODES[config.feedback.mode], config.guards.auditor
    if mode.asks_judge(config.feedback):
        check_stages(config.feedback, config.max_updates)
        if not judged:
            check_judge(config.feedback, config.environment)
    if second.judge is not None and second.action != "none" and not audited and mode.learns_from_judge(config.feedback):
        settings = config.feedback.model_copy(update={"judge": second.judge})
        check_judge(settings, config.environment, "guards.auditor.judge")
    return found


def with_horizon(config: AgentConfig) -> AgentConfig:
    """The config with the schedules' horizon of the run in its folder, where there is one that goes on and the config names none."""
    folder = Path(config.output_dir)
    saved = folder / "config.yaml"
    if config.schedule_updates is not None or not saved.is_file() or not checkpoints(folder / "checkpoints"):
        return config
    before = saved_config(saved, AgentConfig)
    horizon = before.get("schedule_updates") or before.get("max_updates")
    if not isinstance(horizon, int) or horizon == config.max_updates:
        return config
    if config.optim.lr_schedule == "linear" and config.max_updates > horizon:
        logger.warning(
            "the learning rate falls to 0 at update %d, as this run began, and stays there: schedule_updates=%d stretches it, with a jump now",
            horizon, config.max_updates,
        )  # fmt: skip
    return config.model_copy(update={"schedule_updates": horizon})


def check_continues(config: AgentConfig, done: list[Path] | None = None) -> None:
    """Whether the run in the config's folder, if there is one, may go on with this config. Raises RRMError: as
    `rrm.train.run_folder.check_folder`. `done`: its checkpoints, where they are known."""
    folder = Path(config.output_dir)
    if checkpoints(folder / "checkpoints") if done is None else done:
        check_folder(config, folder, FIXED, FREE)
