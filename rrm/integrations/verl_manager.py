"""A reward manager of verl's: `agent_rrm`, which reads a rollout's tokens, special ones included (`rrm.integrations.verl_tokens`).

    reward.reward_manager.source=importlib
    reward.reward_manager.module.path=pkg://rrm.integrations.verl_manager
    reward.reward_manager.name=AgentRRMRewardManager
    +reward.reward_kwargs.judge=openai:http://localhost:8000/v1#judge

With a `custom_reward_function` of your own the reward is its score plus the judge's: R_env + weight · s, and R_env is logged as
`own_score`, so that a judge that is gamed shows: the reward rises and that does not. `reward_kwargs` are the
keyword arguments of `rrm.integrations.verl.compute_score`. Importing this registers it; with VERL_USE_EXTERNAL_MODULES naming this
module, `reward.reward_manager.name=agent_rrm` is enough.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from rrm.errors import MissingExtra
from rrm.integrations.verl import compute_score_async
from rrm.integrations.verl_tokens import reply_text

try:
    from verl.experimental.reward_loop.reward_manager import register  # pyright: ignore[reportMissingImports]
    from verl.experimental.reward_loop.reward_manager.base import (  # pyright: ignore[reportMissingImports]
        RewardManagerBase,
    )
except ImportError as missing:
    raise MissingExtra("the reward manager needs verl: pip install 'agent-rrm[verl]'") from missing


@register("agent_rrm")
class AgentRRMRewardManager(RewardManagerBase):
    """Judges each rollout; beside a reward function of the user's own, where one is configured."""

    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, *_: Any, **__: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        own = config.reward.get("custom_reward_function") or {}
        self.own = compute_score if own.get("path") else None
        self.settings = dict(config.reward.get("reward_kwargs") or {})

    async def run_single(self, data: Any) -> dict[str, Any]:
        """The reward of one rollout (of several sequences that of the last), and what was said of it."""
        item = data[-1:][0]
        told = item.non_tensor_batch
        extra = {**(told.get("extra_info") or {}), **(told.get("tool_extra_fields") or {})}
        if "raw_prompt" in told:
            extra["raw_prompt"] = told["raw_prompt"]
        ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-ids.shape[-1] :].sum())
        ids = ids[:length].tolist()
        mask = item.batch["response_mask"][:length].tolist() if "response_mask" in item.batch.keys() else None  # noqa: SIM118
        row = {"data_source": told["data_source"], "ground_truth": told["reward_model"].get("ground_truth")}
        whole = await asyncio.to_thread(reply_text, self.tokenizer, ids, mask)
        said = await compute_score_async(**row, solution_str=whole, extra_info=extra, **self.settings)
        earned: dict[str, Any] = {}
        if self.own is not None:
            text = await asyncio.to_thread(self.tokenizer.decode, ids, skip_special_tokens=True)
            found = await _called(self.own, row | {"solution_str": text, "extra_info": extra})
            earned = dict(found) if isinstance(found, dict) else {"score": found}
            said |= {"score": earned["score"] + said["score"], "own_score": earned["score"]}
        return {"reward_score": said["score"], "reward_extra_info": {**earned, **said}}


async def _called(function: Any, arguments: dict[str, Any]) -> Any:
    """What a reward function gives; a plain one has a thread of its own."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    found = await asyncio.to_thread(lambda: function(**arguments))
    return await found if inspect.isawaitable(found) else found
