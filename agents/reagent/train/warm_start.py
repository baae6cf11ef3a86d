"""Warm start: a policy learns the answers of some training tasks before reinforcement learning (`warm_start`).

The loss is the mean negative log-likelihood, in nats a token, of the turn that answers. The result, an adapter merged, is
`<output_dir>/warm`: training begins from it, and KL is measured to it."""

import json
import logging
import random
from collections.abc import Sequence
from pathlib import Path

import torch

from reagent.env.env import EnvFactory, ToolEnv
from reagent.env.task import Task
from reagent.rollout.templates import TurnTemplate
from reagent.train.config import AgentConfig, PolicyConfig, WarmStartConfig
from reagent.train.export import export
from reagent.train.policy import load_policy, precision
from rrm.data.output import file_when_whole
from rrm.data.seeds import derive_seed
from rrm.errors import ConfigError

logger = logging.getLogger(__name__)
CARD = "warm.json"


def split(tasks: list[Task], settings: WarmStartConfig) -> tuple[list[Task], list[Task]]:
    """(tasks to play, tasks whose answers are shown). Raises ConfigError: none is left to play."""
    if settings.tasks >= len(tasks):
        raise ConfigError(f"warm_start.tasks={settings.tasks} leaves none of {len(tasks)} training tasks to play")
    played = len(tasks) - settings.tasks
    return tasks[:played], tasks[played:]


def warm_started(config: AgentConfig, env_factory: EnvFactory, shown: Sequence[Task]) -> PolicyConfig:
    """The policy to begin from, taught if it was not before; the config's own without a warm start.

    Raises ConfigError: an environment or task without an answer to show."""
    folder, settings = Path(config.output_dir) / "warm", config.warm_start
    if not shown:
        return config.policy
    if not (folder / CARD).is_file():
        _teach(config, env_factory, shown, folder)
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    if card["settings"] != settings.model_dump():
        raise ConfigError(f"{folder} was made with warm_start={card['settings']}: choose another output_dir")
    return config.policy.model_copy(update={"base": str(folder)})


def _teach(config: AgentConfig, env_factory: EnvFactory, shown: Sequence[Task], folder: Path) -> None:
    settings, env = config.warm_start, env_factory()
    policy, tokenizer = load_policy(config.policy, with_values=False)
    device = "cpu" if config.cpu or not torch.cuda.is_available() else "cuda"
    policy.to(device)
    template, rows = TurnTemplate(tokenizer, options=config.rollout.template_options), list[tuple[list[int], int]]()
    for task in shown:
        if not isinstance(env, ToolEnv) or task.answer is None:
            raise ConfigError("warm_start shows answers: it needs tasks with one, in a ToolEnv")
        prompt = template.prompt(env.reset(task))
        rows.append(([*prompt, *template.reply(env.parser.render_turn(answer=task.answer))], len(prompt)))
    optimizer = torch.optim.AdamW((p for p in policy.parameters() if p.requires_grad), lr=settings.learning_rate)
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
            torch.nn.utils.clip_grad_norm_(policy.parameters(), config.optim.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss)
    export(policy, tokenizer, folder, config)
    with file_when_whole(folder / CARD) as file:  # last: without it the policy is taught again
        file.write(json.dumps({"settings": settings.model_dump(), "nll": [losses[0], losses[-1]]}) + "\n")
    logger.info("warm start: %d answers, from %.3f to %.3f nats a token", len(rows), losses[0], losses[-1])
