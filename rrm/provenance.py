"""Where a figure comes from: the versions and the hardware that made it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("torch", "transformers", "trl", "peft", "agent-rrm")


def environment() -> dict[str, Any]:
    """Versions (of `PACKAGES`, where installed) and hardware, for every record of a measurement or a training."""
    import torch

    on_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name(0) if on_gpu else "cpu"
    products = torch.get_float32_matmul_precision()  # "highest" but where TF32 was asked for
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES if _has(name)},
        "device": device,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        **({"float32_products": products} if on_gpu and products != "highest" else {}),
    }


def _has(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
