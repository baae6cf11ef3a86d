"""verl's reward manager `agent_rrm`, which reads a rollout's tokens, special ones included.

`reward_kwargs` are those of `rrm.integrations.verl.compute_score`. A `custom_reward_function` gives R_env + weight · s, with
R_env logged as `own_score`: a gamed judge shows as a reward that rises alone. With this module in
VERL_USE_EXTERNAL_MODULES, `reward.reward_manager.name=agent_rrm` is enough.
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
    def __init__(self, config: Any, tokenizer: Any, compute_score: Any, *_: Any, **__: Any) -> None:
        super().__init__(config, tokenizer, compute_score)
        own = config.reward.get("custom_reward_function") or {}
        self.own = compute_score if own.get("path") else None
        self.settings = dict(config.reward.get("reward_kwargs") or {})

    async def run_single(self, data: Any) -> dict[str, Any]:
        """Return the reward of one rollout (of several sequences, the last), and what is logged."""
        item = data[-1:][0]
        fields = item.non_tensor_batch
        extra = {**(fields.get("extra_info") or {}), **(fields.get("tool_extra_fields") or {})}
        if "raw_prompt" in fields:
            extra["raw_prompt"] = fields["raw_prompt"]
        ids = item.batch["responses"]
        length = int(item.batch["attention_mask"][-ids.shape[-1] :].sum())
        ids = ids[:length].tolist()
        mask = item.batch["response_mask"][:length].tolist() if "response_mask" in item.batch.keys() else None  # noqa: SIM118
        row = {"data_source": fields["data_source"], "ground_truth": fields["reward_model"].get("ground_truth")}
        reply = await asyncio.to_thread(reply_text, self.tokenizer, ids, mask)
        judged = await compute_score_async(**row, solution_str=reply, extra_info=extra, **self.settings)
        earned: dict[str, Any] = {}
        if self.own is not None:
            text = await asyncio.to_thread(self.tokenizer.decode, ids, skip_special_tokens=True)
            own_reward = await _called(self.own, row | {"solution_str": text, "extra_info": extra})
            earned = dict(own_reward) if isinstance(own_reward, dict) else {"score": own_reward}
            judged |= {"score": earned["score"] + judged["score"], "own_score": earned["score"]}
        return {"reward_score": judged["score"], "reward_extra_info": {**earned, **judged}}


async def _called(function: Any, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    result = await asyncio.to_thread(lambda: function(**arguments))
    return await result if inspect.isawaitable(result) else result
