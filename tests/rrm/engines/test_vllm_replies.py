"""What vLLM 0.32 sent, word for word but for ids and texts: all its fields, most of them null."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai_server import Answer, failure, serve

from rrm.data.usage import Usage
from rrm.engines.base import Reply, Request, SamplingParams
from rrm.engines.openai import OpenAIEngine
from rrm.errors import EngineError

NULLS: dict[str, Any] = {"prompt_logprobs": None, "prompt_token_ids": None, "kv_transfer_params": None, "metrics": None}
COUNTED = {"prompt_tokens": 37, "total_tokens": 39, "completion_tokens": 2, "prompt_tokens_details": None}
MESSAGE: dict[str, Any] = {
    "role": "assistant", "content": "0\n", "refusal": None, "annotations": None, "audio": None, "function_call": None,
    "reasoning": None,
}  # fmt: skip
FIRST = {"token": "0", "logprob": -0.6542901396751404, "bytes": [48]}
SECOND = {"token": "\n", "logprob": -2.832486152648926, "bytes": [10]}
CHAT = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "base",
    "choices": [{
        "index": 0, "message": MESSAGE,
        "logprobs": {"content": [{**FIRST, "top_logprobs": [FIRST, SECOND]}, {**SECOND, "top_logprobs": [SECOND]}]},
        "finish_reason": "length", "stop_reason": None, "token_ids": None, "routed_experts": None,
    }],
    "service_tier": None, "system_fingerprint": "vllm-0.32.0-1", "usage": {**COUNTED, "completion_tokens_details": None}, **NULLS,
}  # fmt: skip
NEXT = {
    "id": "cmpl-1", "object": "text_completion", "created": 1, "model": "base",
    "choices": [
        {
            "index": index, "text": text,
            "logprobs": {"text_offset": [0], "token_logprobs": [best], "tokens": [name], "top_logprobs": [{name: best, "token_id:357": -2.5}]},
            "finish_reason": "length", "stop_reason": None, "token_ids": None, "prompt_logprobs": None,
        }
        for index, (text, name, best) in enumerate([(" impact", "token_id:1645", -0.5), (" the", "token_id:260", -1.9)])
    ],
    "usage": {"prompt_tokens": 5, "total_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": None}, **NULLS,
}  # fmt: skip
PARAMS = SamplingParams(max_new_tokens=2, top_logprobs=2, timeout_s=20)
ASK = [{"role": "user", "content": "q"}]


def test_a_chat_completion() -> None:
    with serve(lambda n, body: Answer(body=json.dumps(CHAT).encode())) as server:
        found = OpenAIEngine(server.url, "base").complete(ASK, PARAMS)
    top = [{"0": -0.6542901396751404, "\n": -2.832486152648926}, {"\n": -2.832486152648926}]
    used = Usage(requests=1, prompt_tokens=37, completion_tokens=2)
    assert found == Reply("0\n", "length", top, ["0", "\n"], used)


def test_the_tokens_after_prompts() -> None:
    said: list[Reply | EngineError] = []
    with serve(lambda n, body: Answer(body=json.dumps(NEXT).encode())) as server:
        request = Request([], "k", prompts=[[504, 7156], [504, 7156, 282]])
        OpenAIEngine(server.url, "base").converse([request], PARAMS, lambda asked, reply: said.append(reply))
    top = [{"token_id:1645": -0.5, "token_id:357": -2.5}, {"token_id:260": -1.9, "token_id:357": -2.5}]
    used = Usage(requests=1, prompt_tokens=5, completion_tokens=2)
    assert said == [Reply("token_id:1645token_id:260", "length", top, ["token_id:1645", "token_id:260"], used)]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("This model's maximum context length is 1024 tokens. However, your prompt contains 1100 input tokens, which", "too_long"),
        ("This model's maximum context length is 1024 tokens. However, your prompt contains 15050 characters (more than", "too_long"),
        ("Requested sample logprobs of 20, which is greater than max allowed: 5 (parameter=logprobs, value=20)", "failed"),
        ("Token id 99999 is out of vocabulary", "failed"),
    ],
)  # fmt: skip
def test_prompts_that_are_refused_are_asked_for_once(message: str, kind: str) -> None:
    """There is no other form of such a request: without log-probabilities it would say nothing."""
    said: list[Reply | EngineError] = []
    with serve(lambda n, body: failure(400, message)) as server:
        request = Request([], "k", prompts=[[5]])
        OpenAIEngine(server.url, "base").converse([request], PARAMS, lambda asked, reply: said.append(reply))
    (error,) = said
    assert isinstance(error, EngineError) and error.kind == kind and message in str(error) and len(server.requests) == 1


def test_a_schema_that_it_cannot_hold_a_reply_to() -> None:
    with serve(lambda n, body: failure(400, "Grammar error: Invalid type: wat")) as server:
        engine = OpenAIEngine(server.url, "base")
        with pytest.raises(EngineError, match="Invalid type", check=lambda error: error.kind == "schema"):
            engine.complete(ASK, SamplingParams(json_schema={"type": "wat"}, timeout_s=20))
    assert engine.takes_schema is False
