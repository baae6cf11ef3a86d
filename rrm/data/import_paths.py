"""Functions named in a config: `module:function`, of this package, another one, or the user's own.

So a config can ask for data or a model that this package knows nothing of.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from rrm.errors import ConfigError

_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*")


def is_import_path(text: str) -> bool:
    """Whether the text reads `module:function` (a hub id, a folder or `C:\\…` does not)."""
    return _PATH.fullmatch(text) is not None


def imported(path: str, key: str) -> Callable[..., Any]:
    """The function behind `module:function`.

    Args:
        key: the config's key, for the message.

    Raises:
        ConfigError: not of that form, or nothing callable of that name can be imported.
    """
    if not is_import_path(path):
        raise ConfigError(f"{key}: {path!r} is not of the form module:function")
    module, _, names = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{key}: {path!r} cannot be imported: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}: {path!r} is a {type(found).__name__}, not a function")
    return found


def call(path: str, key: str, *args: Any, options: Mapping[str, Any], options_key: str, **kwargs: Any) -> Any:
    """Call the function behind `module:function` with our arguments and the config's options.

    Raises:
        ConfigError: as `imported`; or the function takes no such options, which are named.
    """
    function = imported(path, key)
    try:
        inspect.signature(function).bind(*args, **{**options, **kwargs})
    except TypeError as error:
        raise ConfigError(f"{options_key}: {path} does not take these options: {error}") from error
    return function(*args, **{**options, **kwargs})
