"""verl: the judge as `custom_reward_function`. Does not import verl.

Each of verl's `reward.num_workers` processes loads the judge: serve one that has weights. verl decodes replies without
special tokens; `rrm.integrations.verl_manager` has them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.integrations.loading import asker
from rrm.integrations.rows import messages_of, plain, tools_of
from rrm.judge.cached_judge import BatchJudge, JudgeQueue, by_content, first_finding
from rrm.readers.base import first_user_text
from rrm.readers.chat_text import reply_turns
from rrm.readers.messages import chat_messages
from rrm.readers.verl import reply_messages

# keys of `extra_info` with the prompt; verl's agent loops add `raw_prompt`
PROMPTS = ("raw_prompt", "prompt", "question", "problem")


def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    judge: str | BatchJudge | None = None,
    mode: Mode = "score",
    samples: int = 1,
    seed: int = 0,
    weight: float = 1.0,
    failed_score: float | None = None,
    judge_options: Mapping[str, Any] | None = None,
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
) -> dict[str, Any]:
    """Return a rollout's reward and the judge's columns, as verl's reward managers take them.

    The transcript is `extra_info["messages"]` if the agent spoke there, else the prompt (`PROMPTS`) and the reply. Concurrent
    calls (verl's `naive` manager) are judged in batches.

    Args:
        ground_truth: read only by a judge whose criteria allow the reference.
        extra_info: also `tools`: the agent's tools.
        judge, judge_options: as `rrm.integrations.loading.asker`.
        failed_score: reward of a failed judgement; None: an error.
        reward_router_address, reward_model_tokenizer: given by verl; not used.
    """
    asking = asker(judge, mode=mode, samples=samples, seed=seed, options=_plain(judge_options))
    feedback = asking.submit(as_trajectory(data_source, solution_str, ground_truth, extra_info)).result()
    return reward_of(feedback, weight, failed_score)


async def compute_score_async(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    judge: str | BatchJudge | None = None,
    mode: Mode = "score",
    samples: int = 1,
    seed: int = 0,
    weight: float = 1.0,
    failed_score: float | None = None,
    judge_options: Mapping[str, Any] | None = None,
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
) -> dict[str, Any]:
    """`compute_score` as a coroutine: rows in flight are judged in batches, without a thread for each."""
    trajectory = as_trajectory(data_source, solution_str, ground_truth, extra_info)
    asking: JudgeQueue = await asyncio.to_thread(
        asker, judge, mode=mode, samples=samples, seed=seed, options=_plain(judge_options)
    )
    return reward_of((await asking.ask_async([trajectory]))[0], weight, failed_score)


def as_trajectory(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> Trajectory:
    """Convert verl's arguments to a transcript named by its content; raises `RRMError`."""
    extra = dict(extra_info or {})
    try:
        messages = _listed(extra, "messages")
        if not any(m["role"] == "assistant" for m in messages):
            if not isinstance(solution_str, str):
                raise ValueError(f"the reply must be a text, got {type(solution_str).__name__}")
            prompt = messages or next((p for key in PROMPTS if (p := _listed(extra, key))), [])
            messages = [*prompt, *chat_messages(reply_messages(reply_turns(solution_str), 0), "reply")]
        tools = tools_of(extra.get("tools"), "tools")
    except ValueError as error:
        raise RRMError(f"verl's extra_info holds no transcript: {error}") from error
    if not any(m["role"] == "user" and m["content"] for m in messages):
        raise RRMError(
            f"verl's extra_info holds no prompt, and a judge must read the question: it is looked for in messages, {', '.join(PROMPTS)}. "
            "Put it there (data.return_raw_chat=True gives raw_prompt), or into the data set's extra_info"
        )
    meta = {"data_source": str(data_source)} | ({} if ground_truth is None else {"reference": plain(ground_truth)})
    return by_content(Trajectory(id="", task=first_user_text(messages), messages=messages, tools=tools, meta=meta))  # pyright: ignore[reportArgumentType]  # validated


def reward_of(feedback: Feedback, weight: float, failed_score: float | None) -> dict[str, Any]:
    """Return `score` and what verl logs beside it; raises `RRMError` without a score and `failed_score`."""
    if feedback.score is None and failed_score is None:
        why = f": {feedback.reason}" if feedback.reason else ""
        raise RRMError(
            f"the judge gave no score ({feedback.status}{why}), and verl cannot leave a row out: set reward_kwargs.failed_score "
            "to what such a row shall earn"
        )
    return {
        "score": failed_score if feedback.score is None else weight * feedback.score,
        "agent_rrm_score": math.nan if feedback.score is None else feedback.score,
        "agent_rrm_failed": float(feedback.score is None),
        "agent_rrm_status": feedback.status,
        "agent_rrm_finding": first_finding(feedback) or "",
    }


def _listed(extra: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [] if extra.get(key) is None else messages_of("user", extra[key], key)


def _plain(options: Any) -> dict[str, Any]:
    # also from a config object of OmegaConf's
    return {str(key): options[key] for key in options or ()}
