"""What rolls a policy out (`rollout.engine`): this process (on the policy itself, or on a copy that may lag), or vLLM's servers
that are sent its weights.

An engine elsewhere has other kernels and may have another precision, so three things are not taken on trust: that it was started
with the policy's weights (`check_agrees`, before the first row), that it has those of this update (their version is asked for by
name, and stands on every turn), and that what it samples from is still what the update learns about (`rollout.engine.max_gap`).
"""

import copy
import logging
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from reagent.train.config import AgentConfig
from reagent.train.policy import Policy, saved_tensors
from rrm.engines.base import SamplingParams, Span, SyncedEngine, TokenEngine
from rrm.engines.hf.engine import HFEngine, eos_ids_of
from rrm.engines.server_options import public
from rrm.engines.vllm import VLLMEngine
from rrm.errors import EngineError
from rrm.train.fsdp import copy_whole, gathered, is_divided, trained_parameters

logger = logging.getLogger(__name__)
ADAPTERS = "adapters"
"""Folder of a run in which the versions of its policy lie that a server is to load."""
PROBES = ("The agent searches for the town, reads what was found, and gives its answer: 42.", "def add(a, b):", "Once")
PROBE_TOKENS = 16


def make_engine(
    config: AgentConfig,
    policy: Policy,
    tokenizer: Any,
    *,
    folder: Path | None = None,
    device: str | None = None,
    shard_on: torch.device | None = None,
) -> TokenEngine:
    """The engine that the config names, on the policy's weights. Raises EngineError: a server that cannot be reached, or speaks with other
    weights.

    Args:
        folder: the run's; None: the policy is not trained here, and a server was started with it.
        device: where `hf` computes; None: where the policy is.
        shard_on: the device on which the policy, whole as yet, will be divided among processes: `hf` computes there, on a copy.
    """
    settings = config.rollout.engine
    if not settings.is_remote:
        lags = folder is not None and config.rollout.max_lag
        kind = HFCopyEngine if lags or shard_on is not None else HFEngine
        place = device if shard_on is None else str(shard_on)
        here = kind(policy.model, tokenizer, device=place, exact_head=True, **settings.chosen)
        warn_of_context(here, config)
        return here
    if device is not None:
        policy.to(device)
    engine = VLLMEngine(
        settings.server,
        eos_ids=eos_ids_of(policy.model, tokenizer),
        vocabulary=int(policy.model.get_input_embeddings().num_embeddings),
        adapters=None if folder is None else folder / ADAPTERS,
        seen_as=settings.adapters,
        whole=folder is not None and not hasattr(policy.model, "peft_config"),
        dtype=torch.bfloat16 if config.mixed_precision == "bf16" else None,
        timeout_s=settings.timeout_s,
        patience_s=settings.patience_s,
    )
    try:
        warn_of_context(engine, config)
        check_agrees(engine, policy, tokenizer, settings.max_start_gap)
    except BaseException:
        engine.close()
        raise
    return engine


def warn_of_context(engine: HFEngine | VLLMEngine, config: AgentConfig) -> None:
    """Say where episodes end before the config's limit: what is cut there is learned from as unsolved."""
    most, limit = engine.max_positions, config.rollout.max_episode_tokens
    if most is not None and most < limit:
        logger.warning(
            "%s has a context of %d tokens: episodes end there, not at rollout.max_episode_tokens=%d",
            public(config.rollout.engine.server) if config.rollout.engine.is_remote else config.policy.base, most, limit,
        )  # fmt: skip


class HFCopyEngine(HFEngine):
    """`hf` on a copy of what is trained, which keeps the weights it was sent last while the policy takes steps, or is divided among
    processes: none of them could sample a token of that alone.

    What is frozen (the model below an adapter) both have in common; of a policy divided afterwards the copy alone has it whole. `model`:
    the policy's; the other arguments as `HFEngine` has them.
    """

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        common = {id(tensor): tensor for tensor in model.parameters() if not tensor.requires_grad}
        self._copy = copy.deepcopy(model, common).requires_grad_(False)
        super().__init__(self._copy, tokenizer, **options)

    def sync(self, model: Any, version: int) -> None:
        """Sample from these weights from the next row on; nothing may be at play."""
        copy_whole(trained_parameters(model), dict(self._copy.named_parameters()))
        self.version = version


def check_agrees(engine: VLLMEngine, policy: Policy, tokenizer: Any, bound: float | None) -> float:
    """The mean difference between the servers' log-probabilities and the policy's before training, of what they say after a text;
    the largest of theirs, as each may have been started with something else.

    An adapter is switched off: a new one changes nothing, and a server does not have it yet. A server that is started again later is
    compared again (`VLLMEngine.expect`). Raises EngineError: one's is above `bound`.
    """
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in PROBES]
    largest = 0.0
    for address in engine.addresses:
        said = engine.generate(prompts, SamplingParams(max_new_tokens=PROBE_TOKENS, temperature=1.0), at=address)
        rows = [[*ids, *new.ids] for ids, new in zip(prompts, said, strict=True)]
        spans = [Span(len(ids), len(row)) for ids, row in zip(prompts, rows, strict=True)]
        with policy.reference(None if hasattr(policy.model, "disable_adapter") else policy) as start, torch.no_grad():
            mine = HFEngine(start.model, tokenizer, exact_head=True).logprobs(rows, spans)
        gaps = [abs(a - b) for one, new in zip(mine, said, strict=True) for a, b in zip(one, new.logprobs, strict=True)]
        gap = sum(gaps) / len(gaps)
        if bound is not None and not gap <= bound:
            raise EngineError(
                f"the server's {engine.model} at {address} and the policy differ by {gap:.3f} nats a token "
                f"(rollout.engine.max_start_gap={bound:g}): start it with the policy's own weights (policy.base), in the precision it "
                "is trained in"
            )
        logger.info("the server at %s and the policy differ by %.5f nats a token", address, gap)
        largest = max(largest, gap)
        if bound is not None:
            engine.expect(rows, spans, mine, bound)
    return largest


def close(engine: TokenEngine) -> None:
    """Leave servers as they were found; whoever made an engine closes it."""
    if isinstance(engine, SyncedEngine):
        engine.close()


def sync(engine: TokenEngine, policy: Policy, version: int, accelerator: Accelerator) -> None:
    """Have rows sampled from the policy as it stands, on all processes; it does nothing where they are already. `version`: updates done."""
    remote = engine if isinstance(engine, VLLMEngine) else None
    if not isinstance(engine, SyncedEngine) or engine.version == version:
        return
    if remote is not None:
        from accelerate.utils import broadcast_object_list

        weights = gathered(saved_tensors(policy), keep=accelerator.is_main_process) if is_divided(policy) else None
        told: list[Any] = [None]
        if accelerator.is_main_process:
            try:
                remote.sync(policy.model, version, weights)
                told = [remote.weights]
            except EngineError as error:
                told = [error]
        if accelerator.num_processes > 1:
            broadcast_object_list(told)
        if isinstance(told[0], EngineError):  # on all processes, or the others would wait for this one
            raise told[0]
        remote.weights = told[0]
        return
    engine.sync(policy.model, version)
