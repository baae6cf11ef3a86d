"""Versions and hardware that made a figure."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("torch", "transformers", "trl", "peft", "agent-rrm")


def environment() -> dict[str, Any]:
    """Return versions (of `PACKAGES`, where installed) and hardware, for records."""
    import torch

    on_gpu = torch.cuda.is_available()
    device = torch.cuda.get_device_name(0) if on_gpu else "cpu"
    products = _float32_products() if on_gpu else None
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES if _has(name)},
        "device": device,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        **({"float32_products": products} if products is not None else {}),
    }


def _float32_products() -> str | None:
    import torch

    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # asked for by the newer of torch's two ways, of which this one will not speak
        precision = str(torch.backends.cuda.matmul.fp32_precision)
    return None if precision in ("highest", "ieee", "none") else precision


def _has(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
