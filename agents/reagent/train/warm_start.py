"""Warm start: a policy learns the answers of some training tasks before reinforcement learning (`warm_start`).

The loss is the mean negative log-likelihood, in nats a token, of the turn that answers. The result, an adapter merged, is
`<output_dir>/warm`: training begins from it, and KL is measured to it."""

import hashlib
import json
import logging
import math
import random
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import set_seed

from reagent.env.env import EnvFactory, ToolEnv
from reagent.env.task import Task
from reagent.rollout.templates import TurnTemplate
from reagent.train.config import AgentConfig, PolicyConfig, WarmStartConfig
from reagent.train.export import export
from reagent.train.policy import load_policy, precision
from rrm.data.output import file_when_whole
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError, RRMError

logger = logging.getLogger(__name__)
TAUGHT = "warm.json"
ADAPTER_RATE, WHOLE_RATE = 5e-4, 2e-5
"""Learning rates of an adapter and of whole weights."""


def split_tasks(tasks: list[Task], settings: WarmStartConfig) -> tuple[list[Task], list[Task]]:
    """Hold back the last graded tasks to be taught: (tasks to play, tasks to teach). Their questions are never played.

    Raises ConfigError: too few have an answer, or none is left to play."""
    if not settings.tasks:
        return tasks, []
    graded = [task for task in tasks if task.graded and task.answer is not None]
    if settings.tasks > len(graded):
        raise ConfigError(
            f"warm_start.tasks={settings.tasks} shows answers, and {len(graded)} of {len(tasks)} training tasks have one that "
            "environment.label_share leaves visible"
        )
    shown = graded[-settings.tasks :]
    questions = {task.question_id or task.id for task in shown}
    played = [task for task in tasks if (task.question_id or task.id) not in questions]
    if not played:
        raise ConfigError(f"warm_start.tasks={settings.tasks} leaves none of {len(tasks)} training tasks to play")
    return played, shown


def warm_started(config: AgentConfig, env_factory: EnvFactory, shown: Sequence[Task]) -> PolicyConfig:
    """Teach the policy unless the folder holds it; return the config's policy with that folder as `base`.

    The run's record keeps the caller's config: the same command must find the same policy.

    Raises ConfigError: the folder holds one that was taught otherwise, or an environment shows no answers."""
    folder = Path(config.output_dir) / "warm"
    if not shown:
        return config.policy
    identity = taught_from(config, shown)
    if not (folder / TAUGHT).is_file():
        _teach(config, env_factory, shown, folder, identity)
    card = json.loads((folder / TAUGHT).read_text(encoding="utf-8"))
    if wrong := [name for name, value in identity.items() if card.get("taught", {}).get(name) != value]:
        raise ConfigError(f"{folder} was taught with other {', '.join(wrong)}: choose another output_dir, or delete it")
    return config.policy.model_copy(update={"base": str(folder)})


def taught_from(config: AgentConfig, shown: Sequence[Task]) -> dict[str, Any]:
    """Settings and tasks that decide what is taught."""
    tasks = json.dumps([asdict(task) for task in shown], sort_keys=True, default=str)
    return {
        "warm_start": config.warm_start.model_dump(mode="json"),
        "policy": config.policy.model_dump(mode="json"),
        "environment": [config.environment.name, json.loads(json.dumps(config.environment.options, default=str))],
        "seed": config.seed,
        "mixed_precision": config.mixed_precision,
        "tasks": hashlib.sha256(tasks.encode()).hexdigest(),
    }


def _teach(
    config: AgentConfig, env_factory: EnvFactory, shown: Sequence[Task], folder: Path, identity: dict[str, Any]
) -> None:
    settings, env = config.warm_start, env_factory()
    set_seed(derive_seed(config.seed, "warm_start") % 2**32)  # the same policy by `probe` and by `train`
    policy, tokenizer = load_policy(config.policy, with_values=False)
    device = "cpu" if config.cpu or not torch.cuda.is_available() else "cuda"
    policy.to(device)
    template, rows = TurnTemplate(tokenizer, options=config.rollout.template_options), list[tuple[list[int], int]]()
    for task in shown:
        if not isinstance(env, ToolEnv) or task.answer is None:
            raise ConfigError("warm_start shows answers: it needs tasks with one, in a ToolEnv")
        prompt = template.prompt(env.reset(task))
        rows.append(([*prompt, *template.reply(env.parser.render_turn(answer=task.answer))], len(prompt)))
    rate = settings.learning_rate
    if rate is None:
        rate = WHOLE_RATE if config.policy.lora is None else ADAPTER_RATE
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=config.optim.weight_decay)
    losses: list[float] = []
    for epoch in range(settings.epochs):
        random.Random(derive_seed(config.seed, "warm_start", epoch)).shuffle(rows)
        for start in range(0, len(rows), settings.batch_size):
            batch = rows[start : start + settings.batch_size]
            tokens, loss = sum(len(ids) - prompt for ids, prompt in batch), 0.0
            for ids, prompt in batch:
                mask = torch.arange(len(ids), device=device)[None] >= prompt
                with precision(config.mixed_precision, device):
                    nll = -policy(torch.tensor([ids], device=device), mask).logprobs.sum() / tokens
                nll.backward()
                loss += float(nll.detach())
            norm = float(torch.nn.utils.clip_grad_norm_(trained, config.optim.max_grad_norm))
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise RRMError(f"warm start: loss {loss}, gradient norm {norm}: set warm_start.learning_rate lower")
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss)
    gap = export(policy, tokenizer, folder, config)
    if not math.isfinite(gap):
        raise RRMError("warm start: the taught policy has no finite probabilities: set warm_start.learning_rate lower")
    with file_when_whole(folder / TAUGHT) as file:  # last: without it the policy is taught again
        file.write(json.dumps({"taught": identity, "nll": [losses[0], losses[-1]]}) + "\n")
    logger.info("warm start: %d answers, from %.3f to %.3f nats a token", len(rows), losses[0], losses[-1])
