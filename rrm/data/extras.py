"""Optional packages: which extra of the distribution installs each, and a clear error where one is absent.

Judging through a server, reading, checking, converting, measuring and reporting need none of them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from rrm.errors import MissingExtra

EXTRAS: dict[str, tuple[str, ...]] = {
    "local": ("torch", "transformers", "tokenizers", "safetensors", "peft", "accelerate", "gguf"),
    "fast": ("openvino",),
    "train": ("trl", "datasets"),
    "hub": ("datasets",),
    "plots": ("matplotlib",),
    "images": ("PIL",),
    "gym": ("gymnasium",),
    "inspect": ("inspect_ai",),
    "scout": ("inspect_scout",),
    "verl": ("verl",),
    "verifiers": ("verifiers",),
    "openenv": ("openenv",),
    "langchain": ("langchain", "langchain_core", "langgraph"),
    "openai-agents": ("agents",),
    "tasks": ("math_verify",),
    "tools": ("bm25s", "Stemmer", "openpyxl", "pypdf"),
    "mcp": ("mcp", "jsonschema", "referencing", "httpx2"),
    "serve": ("fastapi", "starlette", "uvicorn", "prometheus_client"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}
"""Extra → the modules it is for. `train` also brings those of `local`, `agents` those of `local` and `plots`."""

TRACKERS = ("tensorboard", "wandb", "trackio")


def needs(extra: str, what: str, *modules: str) -> None:
    """Check, before work begins, that what an extra installs is there. Nothing is imported.

    Args:
        extra: its name in pyproject.toml.
        what: what needs it, as the message's subject.
        modules: those that are needed.

    Raises:
        MissingExtra: naming the modules that are absent and the command that installs them.
    """
    absent = [module for module in modules if not _is_there(module)]
    if absent:
        raise MissingExtra(f"{what} needs {', '.join(absent)}: pip install 'agent-rrm[{extra}]'")


def absent(extra: str) -> list[str]:
    """The modules of an extra that are not installed. Nothing is imported."""
    return [module for module in EXTRAS[extra] if not _is_there(module)]


def needs_trackers(names: Sequence[str]) -> None:
    """Check that the trackers a config reports to are installed; those we have no extra for are accelerate's to refuse.

    Raises:
        MissingExtra: as `needs`.
    """
    for name in names:
        if name in TRACKERS:
            needs(name, f"report_to: {name}", name)


def explain(error: ModuleNotFoundError) -> MissingExtra | None:
    """What to install for a module that was not found, None where no extra has it."""
    module = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    return MissingExtra(f"this needs {module}: pip install 'agent-rrm[{extra}]'") if extra else None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a finder may refuse by raising
        return False
