"""verl's reward function and reward manager; the manager and the call by verl's own code where verl is installed."""

from __future__ import annotations

import asyncio
import importlib
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_judge import ChatJudge

from rrm.errors import RRMError
from rrm.integrations.verl import as_trajectory, compute_score, compute_score_async
from rrm.judge.agent_rrm import AgentRRM
from rrm.trajectory import Trajectory

REPLY = (
    '<think>look it up</think><tool_call>{"name": "search", "arguments": {"query": "Ada"}}</tool_call>\nuser\n'
    "<tool_response>\nAda was born in London\n</tool_response>\nassistant\nAnswer: London"
)
"""As verl decodes it: without the special tokens."""
PROMPT = [{"role": "user", "content": "Where was Ada born?"}]


def test_a_reply_becomes_its_turns() -> None:
    row = as_trajectory("qa", REPLY, "London", {"raw_prompt": np.array(PROMPT, dtype=object), "index": 3})
    assert [(m.role, m.text()) for m in row.messages] == [
        ("user", "Where was Ada born?"),
        ("assistant", ""),
        ("tool", "Ada was born in London"),
        ("assistant", "Answer: London"),
    ]
    call = row.messages[1]
    assert call.reasoning_content == "look it up" and call.tool_calls is not None
    assert call.tool_calls[0].arguments == {"query": "Ada"} and row.task == "Where was Ada born?"
    assert row.meta == {"data_source": "qa", "reference": "London"} and row.id == row.digest
    assert as_trajectory("qa", "42", None, {"question": "6 * 7?"}).messages[0].text() == "6 * 7?"
    assert [m.role for m in as_trajectory("qa", "42", None).messages] == ["assistant"]


def test_a_conversation_in_extra_info_is_taken_as_it_is() -> None:
    said = [*PROMPT, {"role": "assistant", "content": "In Paris."}]
    row = as_trajectory("qa", "left aside", None, {"messages": said, "tools": ["search"]})
    assert [m.text() for m in row.messages] == ["Where was Ada born?", "In Paris."]
    assert row.tools == [{"type": "function", "function": {"name": "search"}}]
    prompt = as_trajectory("qa", "In Rome.", None, {"messages": PROMPT})
    assert [m.text() for m in prompt.messages] == ["Where was Ada born?", "In Rome."]
    with pytest.raises(RRMError, match=r"extra_info holds no transcript: messages\[0\] has role 'robot'"):
        as_trajectory("qa", "", None, {"messages": [{"role": "robot"}, {"role": "assistant", "content": ""}]})


def test_the_score_is_the_judges(judge: AgentRRM, transcripts: list[Trajectory]) -> None:
    for row in transcripts[:3]:
        messages = [m.model_dump(exclude_none=True) for m in row.messages]
        extra = {"messages": messages, "tools": row.tools}
        found = compute_score("qa", "", None, extra, judge=judge, weight=2.0)
        (said,) = judge.judge([as_trajectory("qa", "", None, extra)], mode="score")
        assert said.score is not None and found["score"] == pytest.approx(2 * said.score, abs=1e-6)
        assert found["agent_rrm_failed"] == 0.0 and found["agent_rrm_status"] == "scored"
        again = asyncio.run(compute_score_async("qa", "", None, extra, judge=judge))
        assert again["score"] == pytest.approx(said.score, abs=1e-6)


def test_a_failure_has_a_price_or_is_an_error() -> None:
    down = as_trajectory("qa", REPLY, "London", {"raw_prompt": PROMPT}).id
    call = partial(compute_score, "qa", REPLY, "London", {"raw_prompt": PROMPT}, judge=ChatJudge(down=(down,)))
    with pytest.raises(RRMError, match=r"judge_error: .*server is down.*failed_score"):
        call()
    found = call(failed_score=-0.5)
    assert found["score"] == -0.5 and math.isnan(found["agent_rrm_score"]) and found["agent_rrm_failed"] == 1.0
    scored = compute_score("qa", REPLY, "London", judge=ChatJudge())
    assert scored.keys() == found.keys()


def test_rows_in_flight_are_judged_together() -> None:
    judge = ChatJudge()

    async def rows() -> list[dict[str, Any]]:
        calls = (compute_score_async("qa", f"reply {i}", None, judge=judge) for i in range(12))
        return await asyncio.gather(*calls)

    by_coroutine = asyncio.run(rows())
    assert len(judge.windows) < 12
    with ThreadPoolExecutor(12) as pool:
        by_thread = list(pool.map(lambda i: compute_score("qa", f"reply {i}", None, judge=judge), range(12)))
    assert by_thread == by_coroutine


# ---- with verl -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rollout() -> tuple[Any, Any]:
    """One rollout as verl's agent loop gives it to a reward manager, and its tokenizer."""
    pytest.importorskip("verl", reason="verl is not installed (pip install 'agent-rrm[verl]')")
    import torch
    from engine_models import make_tokenizer
    from verl import DataProto

    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    turns = REPLY.replace("\nuser\n", "<|im_end|>\n<|im_start|>user\n").replace(
        "\nassistant\n", "<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer(turns + "<|im_end|>", add_special_tokens=False)["input_ids"]
    pads = [0, 0, 0]
    batch = {
        "prompts": torch.tensor([[1, 2]]),
        "responses": torch.tensor([ids + pads]),
        "attention_mask": torch.tensor([[1, 1] + [1] * len(ids) + [0] * len(pads)]),
    }
    columns = {
        "data_source": np.array(["qa"], dtype=object),
        "reward_model": np.array([{"ground_truth": "London"}], dtype=object),
        "extra_info": np.array([{"index": 0}], dtype=object),
        "tool_extra_fields": np.array([{"raw_prompt": PROMPT}], dtype=object),
        "__num_turns__": np.array([4]),
    }
    return DataProto.from_dict(tensors=batch, non_tensors=columns), tokenizer


def config(**reward: Any) -> Any:
    OmegaConf = importlib.import_module("omegaconf").OmegaConf  # verl brings it

    manager = {"source": "register", "name": "naive", "module": {"path": None, "name": None}}
    return OmegaConf.create({"reward": {"reward_manager": manager, **reward}})


@pytest.mark.parametrize("name", ["compute_score", "compute_score_async"])
def test_verls_own_manager_calls_it(rollout: tuple[Any, Any], judge: AgentRRM, name: str) -> None:
    from verl.trainer.ppo.reward import load_reward_manager

    from reagent.lab.shipped import judge_folder

    data, tokenizer = rollout
    function = {
        "path": "pkg://rrm.integrations.verl",
        "name": name,
        "reward_kwargs": {"judge": str(judge_folder()), "weight": 2.0, "judge_options": {"batch_tokens": 8192}},
    }

    async def run() -> dict[str, Any]:
        return await load_reward_manager(config(custom_reward_function=function), tokenizer).run_single(data)

    found = asyncio.run(run())
    (said,) = judge.judge([as_trajectory("qa", REPLY, "London", {"raw_prompt": PROMPT})], mode="score")
    assert said.score is not None and found["reward_score"] == pytest.approx(2 * said.score, abs=1e-6)
    assert found["reward_extra_info"]["agent_rrm_status"] == "scored"


def test_the_registered_manager_reads_tokens(rollout: tuple[Any, Any], judge: AgentRRM, tmp_path: Path) -> None:
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.trainer.ppo.reward import load_reward_manager

    from reagent.lab.shipped import judge_folder

    data, tokenizer = rollout
    settings = config(reward_kwargs={"judge": str(judge_folder()), "weight": 0.5})
    settings.reward.reward_manager.source = "importlib"
    settings.reward.reward_manager.module.path = "pkg://rrm.integrations.verl_manager"
    settings.reward.reward_manager.name = "AgentRRMRewardManager"

    async def run(given: Any) -> dict[str, Any]:
        return await load_reward_manager(given, tokenizer).run_single(data)

    found = asyncio.run(run(settings))
    (said,) = judge.judge([as_trajectory("qa", REPLY, "London", {"raw_prompt": PROMPT})], mode="score")
    assert said.score is not None and found["reward_score"] == pytest.approx(0.5 * said.score, abs=1e-6)
    assert get_reward_manager_cls("agent_rrm").__name__ == "AgentRRMRewardManager"
    own = tmp_path / "own.py"
    own.write_text("def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return {'score': float(ground_truth in solution_str), 'tool_tags': solution_str.count('<|im_end|>')}\n")  # fmt: skip
    settings.reward.custom_reward_function = {"path": str(own), "name": "compute_score"}
    both = asyncio.run(run(settings))
    assert both["reward_score"] == pytest.approx(1.0 + 0.5 * said.score, abs=1e-6)
    extra = both["reward_extra_info"]
    assert extra["score"] == both["reward_score"] and extra["tool_tags"] == 0
    assert extra["agent_rrm_score"] == pytest.approx(said.score, abs=1e-6)
