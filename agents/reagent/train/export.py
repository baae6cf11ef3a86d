"""Export the trained policy as a directory that `policy.base` takes again."""

import json
import logging
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from reagent.train.config import AgentConfig, PolicyConfig
from reagent.train.policy import Policy, load_policy, precision, saved_tensors
from reagent.train.trainer import AgentTrainer
from rrm.train.fsdp import copy_whole, gathered, trained_parameters

logger = logging.getLogger(__name__)
PROBES = (
    "The agent searches for the town, reads what was found, and gives its answer: 42.",
    "def add(a, b):\n    return a + b",
    "Once upon a time there was a question that nobody could answer.",
)
MOST = 0.05
"""Nats a token: 16 bits in a forward differ by about half as much; more is a warning."""


def gathered_weights(trainer: AgentTrainer) -> dict[str, Tensor]:
    return gathered(saved_tensors(trainer.policy), keep=trainer.accelerator.is_main_process)


def export_policy(trainer: AgentTrainer, folder: Path) -> float | None:
    """`export` by the main process; of a sharded policy all gather it."""
    policy, config = trainer.policy, trainer.config
    if trainer.sharded:
        tensors = gathered(trained_parameters(policy), keep=trainer.accelerator.is_main_process)
        if trainer.accelerator.is_main_process:
            policy, _ = load_policy(config.policy, with_values=policy.value_head is not None)
            copy_whole(tensors, dict(policy.named_parameters()))
    if not trainer.accelerator.is_main_process:
        return None
    return export(policy, trainer.tokenizer, folder, config)


def export(policy: Policy, tokenizer: Any, folder: Path, config: AgentConfig | None = None) -> float:
    """Write the trained policy (unusable afterwards) as a directory that `policy.base` takes.

    An adapter is merged in float32. Returns the mean difference of log-probabilities, in nats a token of `PROBES`."""
    config = config or AgentConfig()
    policy.sharing = None
    trained = _probed(policy, tokenizer, config.mixed_precision)
    dtype = config.policy.dtype if config.policy.export_dtype == "base" else "float32"
    model = policy.model
    if hasattr(model, "merge_and_unload"):
        model.save_pretrained(str(folder / "adapter"), safe_serialization=True)
        model = model.to("cpu", torch.float32).merge_and_unload()
    model = model.to("cpu", getattr(torch, dtype))
    model.save_pretrained(str(folder), safe_serialization=True)
    tokenizer.save_pretrained(str(folder))
    again = PolicyConfig(base=str(folder), dtype=dtype, trust_remote_code=config.policy.trust_remote_code)
    written, _ = load_policy(again, with_values=False, trained=False)
    gap = float((trained - _probed(written, tokenizer, "no")).abs().mean())
    logger.log(
        logging.WARNING if not gap <= MOST else logging.INFO,
        "The exported policy (%s, %s) matches the trained one within %.5f nats a token.", folder, dtype, gap,
    )  # fmt: skip
    return gap


@torch.no_grad()
def _probed(policy: Policy, tokenizer: Any, mixed: Literal["no", "bf16"]) -> Tensor:
    device, logprobs = next(policy.parameters()).device, list[torch.Tensor]()
    for text in PROBES:
        ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)], device=device)
        mask = torch.arange(ids.shape[1], device=device)[None] > 0
        with precision(mixed, device):
            logprobs.append(policy(ids, mask).logprobs[mask].float().cpu())
    return torch.cat(logprobs)


def written_dtype(folder: str) -> str | None:
    path = Path(folder) / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return config.get("dtype") or config.get("torch_dtype")
