"""Imports by name: optional packages, the extra that installs each, and functions named in a config."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rrm.errors import ConfigError, MissingExtra

# extra → its modules. `train` also brings those of `local`; `agents` those of `local` and `plots`
EXTRAS: dict[str, tuple[str, ...]] = {
    "local": ("torch", "transformers", "tokenizers", "safetensors", "peft", "accelerate", "gguf"),
    "fast": ("openvino",),
    "train": ("trl", "datasets"),
    "hub": ("datasets",),
    "plots": ("matplotlib",),
    "images": ("PIL",),
    "gym": ("gymnasium",),
    "inspect": ("inspect_ai",),
    "verl": ("verl",),
    "langchain": ("langchain", "langchain_core", "langgraph"),
    "openai-agents": ("agents",),
    "tasks": ("math_verify",),
    "tools": ("bm25s", "Stemmer", "openpyxl", "pypdf"),
    "mcp": ("mcp", "jsonschema", "referencing"),
    "serve": ("fastapi", "starlette", "uvicorn", "prometheus_client"),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
}

TRACKERS = ("tensorboard", "wandb", "trackio")


def needs(extra: str, subject: str, *modules: str) -> None:
    """Check that an extra's modules are installed, without importing them.

    Args:
        extra: its name in pyproject.toml.
        subject: what needs it, for the message.

    Raises:
        MissingExtra: naming the absent modules and the command that installs them.
    """
    absent = [module for module in modules if not _is_there(module)]
    if absent:
        raise MissingExtra(f"{subject} needs {', '.join(absent)}: pip install 'agent-rrm[{extra}]'")


def absent(extra: str) -> list[str]:
    return [module for module in EXTRAS[extra] if not _is_there(module)]


def needs_trackers(names: Sequence[str]) -> None:
    """Check that a config's trackers are installed, as `needs`; unknown names are left to accelerate."""
    for name in names:
        if name in TRACKERS:
            needs(name, f"report_to: {name}", name)


def explain(error: ModuleNotFoundError) -> MissingExtra | None:
    module = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    return MissingExtra(f"this needs {module}: pip install 'agent-rrm[{extra}]'") if extra else None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a finder may refuse by raising
        return False


_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")


def is_import_path(text: str) -> bool:
    return _PATH.fullmatch(text) is not None


def imported(path: str, key: str) -> Callable[..., Any]:
    """Import `module:function` of a config's `key`; raises `ConfigError`."""
    if not is_import_path(path):
        raise ConfigError(f"{key}: {path!r} is not of the form module:function")
    module, _, names = path.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for name in names.split("."):
            function = getattr(function, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}: {path!r} cannot be imported: {error}") from error
    if not callable(function):
        raise ConfigError(f"{key}: {path!r} is a {type(function).__name__}, not a function")
    return function


def call(path: str, key: str, *args: Any, options: Mapping[str, Any], options_key: str, **kwargs: Any) -> Any:
    """Call `module:function` with our arguments and the config's options.

    Raises:
        ConfigError: as `imported`; or the function does not take these options.
    """
    function = imported(path, key)
    try:
        inspect.signature(function).bind(*args, **{**options, **kwargs})
    except TypeError as error:
        raise ConfigError(f"{options_key}: {path} does not take these options: {error}") from error
    return function(*args, **{**options, **kwargs})
