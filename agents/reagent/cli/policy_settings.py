"""The config of `reagent eval` and `reagent probe`, made of MODEL, --policy, --task and the overrides."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from rrm.errors import ConfigError

if TYPE_CHECKING:
    from reagent.train.config import AgentConfig

log = logging.getLogger(__name__)
TASK = "task"  # the shipped config of `--task`
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[MODEL] [a.b=c]…", help="a folder or hub id, and overrides of the config")
]
Task = Annotated[str | None, typer.Option(help="what it is to do: gsm8k, hotpotqa, … (`reagent tasks` lists them)")]
Config = Annotated[
    str | None, typer.Option("--config", help="shipped name or a YAML file; default: lab, with --task the defaults")
]
Policy = Annotated[
    str | None, typer.Option(help="as MODEL, also a run's policy/ folder; default: policy.base of the config")
]


def policy_settings(
    words: list[str] | None, config: str | None, policy: str | None, task: str | None = None
) -> AgentConfig:
    """The config of a command line.

    Args:
        words: the model, a folder or hub id, may stand before the `a.b=c` overrides.
        config: a shipped name or a file; None: `lab`, or with a task the defaults.
        task: `environment.name`.

    Raises:
        ConfigError: two models are named, or a model alone.
    """
    from reagent.train.config import load_agent_config
    from reagent.train.export import written_dtype

    overrides = list(words or ())
    if overrides and "=" not in overrides[0]:
        model = overrides.pop(0)
        if policy is not None:
            raise ConfigError(f"two policies are named, {model} and --policy {policy}: name one")
        policy = model
        if task is None and config is None and not any(each.startswith("environment.") for each in overrides):
            raise ConfigError(f"say what {model} is to do: --task gsm8k (`reagent tasks` lists them), or --config FILE")
    named = [] if task is None else [f"environment.name={task}"]
    settings = load_agent_config(config or ("lab" if task is None else TASK), [*named, *overrides])
    if policy is not None:
        settings.policy.base, settings.warm_start.tasks = policy, 0
        if written_dtype(policy) == "float32" and settings.policy.dtype != "float32":
            log.warning(
                "%s was written in float32 and is played in it: in bfloat16 it would lose some of what was learned",
                policy,
            )
            settings.policy.dtype, settings.mixed_precision = "float32", "no"
    return settings
