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
    """How a GPU rounds the factors of float32 products (`high`, `tf32`, …); None where it does not."""
    import torch

    try:
        said = torch.get_float32_matmul_precision()
    except RuntimeError:  # asked for by the newer of torch's two ways, of which this one will not speak
        said = str(torch.backends.cuda.matmul.fp32_precision)
    return None if said in ("highest", "ieee", "none") else said


def _has(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
