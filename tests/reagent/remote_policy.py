"""A stand-in for vLLM that samples for real: from a policy of the tests, with the adapters that it was told to load."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine

sys.path.append(str(Path(__file__).parents[1] / "rrm"))
from vllm_server import VLLMServer, serve_vllm

CONTEXT = 1024


class _Policy:
    """Samples as the server's weights of a name would."""

    def __init__(self, base: Path) -> None:
        self.base, self.tokenizer = base, AutoTokenizer.from_pretrained(base)
        self.engines: dict[str, HFEngine] = {}

    def engine(self, folder: str | None, whole: str | None) -> HFEngine:
        """With an adapter's folder, or all weights of one in place of the model's."""
        name = folder or whole or ""
        if name not in self.engines:
            model: Any = AutoModelForCausalLM.from_pretrained(whole or self.base, dtype=torch.float32)
            model = model if folder is None else PeftModel.from_pretrained(model, folder)
            self.engines[name] = HFEngine(model.eval(), self.tokenizer, exact_head=True)
        return self.engines[name]


@contextmanager
def serve_policy(base: Path, shift: Callable[[str], float] = lambda name: 0.0) -> Iterator[VLLMServer]:
    """A server that was started with the policy in a folder.

    Args:
        shift: by the weights' name, what its log-probabilities are off by.
    """
    policy, lock = _Policy(base), threading.Lock()
    with serve_vllm() as server:
        inner = server.reply

        def reply(path: str, body: dict[str, Any]) -> tuple[int, Any]:
            status, said = inner(path, body)
            if path == "/v1/models":
                said["data"][0] |= {"max_model_len": CONTEXT, "root": str(base)}
            if "stop_token_ids" in body and status == 200:
                name = body["model"]
                params = SamplingParams(body["max_tokens"], body["temperature"], seed=body.get("seed") or 0)
                with lock:
                    (new,) = policy.engine(server.adapters.get(name), server.whole).generate([body["prompt"]], params)
                said["choices"][0] |= {
                    "token_ids": new.ids,
                    "logprobs": {"token_logprobs": [value + shift(name) for value in new.logprobs]},
                    "finish_reason": "length" if new.stop_reason == "length" else "stop",
                }
            return status, said

        server.reply = reply  # pyright: ignore[reportAttributeAccessIssue]
        yield server
