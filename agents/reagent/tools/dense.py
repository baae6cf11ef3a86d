"""Embeddings of passages: mean pooling over the last layer, unit length, brute-force inner products."""

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reagent.tools.passages import Embed, Passages, searched
from rrm.data.extras import needs
from rrm.errors import ConfigError

_BATCH = 64


@dataclass(frozen=True)
class DenseSettings:
    """The model that embeds, and its prefixes."""

    model: str
    """A folder or a hub id, loaded with transformers' AutoModel; none of its own code is run."""
    query_prefix: str = ""  # for a query, e.g. `query: ` (E5).
    passage_prefix: str = ""
    max_tokens: int = 512


class MeanPooling:
    """Texts → the mean of their tokens' last hidden states, in eval mode, on the CPU unless moved.
    Safe from several threads: one at a time uses the model."""

    def __init__(self, settings: DenseSettings) -> None:
        needs("local", "embedding passages", "torch", "transformers")
        from transformers import AutoModel, AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(settings.model)
            self.model = AutoModel.from_pretrained(settings.model, use_safetensors=True).eval()
        except (OSError, ValueError) as error:
            (why, *_) = str(error).splitlines() or [type(error).__name__]
            raise ConfigError(
                f"no embedding model {settings.model!r}: neither a folder with one in safetensors nor one on the hub that can be "
                f"reached ({why})"
            ) from error
        self.max_tokens, self.lock = settings.max_tokens, threading.Lock()
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        import torch

        with self.lock, torch.inference_mode():
            rows = self.tokenizer(
                list(texts), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
            ).to(self.model.device)
            hidden = self.model(input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]).last_hidden_state
            mask = rows["attention_mask"].unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
            mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
            return mean.float().cpu().numpy()


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; a row of zeros stays."""
    vectors = np.asarray(vectors, dtype=np.float32)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(length == 0, 1, length)


def write_dense(folder: Path, passages: Passages, settings: DenseSettings, embed: Embed | None) -> dict[str, Any]:
    """Write `dense.npy`, batch by batch, and return its description for `corpus.json`."""
    embed = embed or MeanPooling(settings)
    out: np.ndarray | None = None
    for first in range(0, len(passages), _BATCH):
        texts = [searched(passages[i]) for i in range(first, min(first + _BATCH, len(passages)))]
        vectors = unit(embed([settings.passage_prefix + text for text in texts]))
        if out is None:
            shape = (len(passages), vectors.shape[1])
            out = np.lib.format.open_memmap(folder / "dense.npy", mode="w+", dtype=np.float32, shape=shape)
        out[first : first + len(texts)] = vectors
    assert out is not None  # a corpus has passages
    out.flush()
    return asdict(settings) | {"dimensions": out.shape[1]}
