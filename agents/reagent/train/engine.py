"""The engine of rollouts (`rollout.engine`): this process, or vLLM servers that are sent the weights.

A server has other kernels, so three things are checked: that it began with the policy's weights (`check_agrees`), has those of
this update (by version, on every turn), and samples near the training forward (`rollout.engine.max_gap`)."""

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
    """The engine that the config names. Raises EngineError: a server is unreachable, or has other weights.

    `folder`: the run's, None where the policy is not trained. `shard_on`: where it will be sharded: `hf` computes there, on a copy."""
    settings = config.rollout.engine
    if not settings.is_remote:
        lags = folder is not None and config.rollout.max_lag
        engine_class = HFCopyEngine if lags or shard_on is not None else HFEngine
        hf_device = device if shard_on is None else str(shard_on)
        here = engine_class(policy.model, tokenizer, device=hf_device, exact_head=True, **settings.chosen)
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
    most, limit = engine.max_positions, config.rollout.max_episode_tokens
    if most is not None and most < limit:
        logger.warning(
            "%s has a context of %d tokens: episodes end there, not at rollout.max_episode_tokens=%d",
            public(config.rollout.engine.server) if config.rollout.engine.is_remote else config.policy.base, most, limit,
        )  # fmt: skip


class HFCopyEngine(HFEngine):
    """`hf` on a copy of the trained weights, for a policy that goes on learning or is sharded."""

    def __init__(self, model: Any, tokenizer: Any, **options: Any) -> None:
        common = {id(tensor): tensor for tensor in model.parameters() if not tensor.requires_grad}
        self._copy = copy.deepcopy(model, common).requires_grad_(False)
        super().__init__(self._copy, tokenizer, **options)

    def sync(self, model: Any, version: int) -> None:
        copy_whole(trained_parameters(model), dict(self._copy.named_parameters()))
        self.version = version


def check_agrees(engine: VLLMEngine, policy: Policy, tokenizer: Any, bound: float | None) -> float:
    """The largest mean difference of a server's log-probabilities from the policy's before training.

    The adapter is switched off. A restarted server is compared again (`VLLMEngine.expect`). Raises EngineError: above `bound`."""
    prompts = [tokenizer.encode(text, add_special_tokens=False) for text in PROBES]
    largest = 0.0
    for address in engine.addresses:
        generations = engine.generate(prompts, SamplingParams(max_new_tokens=PROBE_TOKENS, temperature=1.0), at=address)
        rows = [[*ids, *new.ids] for ids, new in zip(prompts, generations, strict=True)]
        spans = [Span(len(ids), len(row)) for ids, row in zip(prompts, rows, strict=True)]
        with policy.reference(None if hasattr(policy.model, "disable_adapter") else policy) as start, torch.no_grad():
            mine = HFEngine(start.model, tokenizer, exact_head=True).logprobs(rows, spans)
        gaps = [
            abs(a - b)
            for logprobs, new in zip(mine, generations, strict=True)
            for a, b in zip(logprobs, new.logprobs, strict=True)
        ]
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
    if isinstance(engine, SyncedEngine):
        engine.close()


def sync(engine: TokenEngine, policy: Policy, version: int, accelerator: Accelerator) -> None:
    """Send the policy's weights to the engine, on all processes, unless it has `version` (updates done)."""
    remote = engine if isinstance(engine, VLLMEngine) else None
    if not isinstance(engine, SyncedEngine) or engine.version == version:
        return
    if remote is not None:
        from accelerate.utils import broadcast_object_list

        weights = gathered(saved_tensors(policy), keep=accelerator.is_main_process) if is_divided(policy) else None
        result: list[Any] = [None]
        if accelerator.is_main_process:
            try:
                remote.sync(policy.model, version, weights)
                result = [remote.weights]
            except EngineError as error:
                result = [error]
        if accelerator.num_processes > 1:
            broadcast_object_list(result)
        if isinstance(result[0], EngineError):  # on all processes, or the others would wait for this one
            raise result[0]
        remote.weights = result[0]
        return
    engine.sync(policy.model, version)
