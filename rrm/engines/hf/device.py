"""Where a model runs, and in which numbers: one place that knows what each kind of device can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def default_device() -> str:
    """`cuda` or `mps` where there is one, else `cpu`."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def default_dtype(device: str) -> torch.dtype:
    """bfloat16 on an accelerator, float32 on a CPU, where scores then do not depend on the batch."""
    import torch

    return torch.float32 if device == "cpu" else torch.bfloat16


def widest_float(device: str | torch.device) -> torch.dtype:
    """float64, or float32 on Apple's `mps`, which has no float64: asking for it there is a TypeError."""
    import torch

    return torch.float32 if str(device).partition(":")[0] == "mps" else torch.float64
