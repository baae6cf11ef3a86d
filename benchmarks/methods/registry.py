"""The methods by name, and how a row of the table is named: `METHOD`, `METHOD@POLICY`, `LABEL=METHOD@POLICY`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from benchmarks.methods.base import Method
from benchmarks.methods.best_of_n import BestOfN
from benchmarks.methods.direct import Direct
from benchmarks.methods.naive_rag import NaiveRag
from benchmarks.methods.react import React
from benchmarks.methods.reagent_c import ReagentC
from benchmarks.methods.tool_call import ToolCall, TrainedPolicy
from rrm.data.printing import nearest
from rrm.errors import ConfigError

METHODS: dict[str, type[Method]] = {
    method.name: method for method in (Direct, NaiveRag, ToolCall, React, ReagentC, TrainedPolicy, BestOfN)
}
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    label: str
    method: type[Method]
    policy: str | None
    """In place of the table's own."""


def find_method(name: str) -> type[Method]:
    """The method of a name.

    Raises:
        ConfigError: no such method.
    """
    if name not in METHODS:
        near = nearest(name, METHODS)
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"no method {name!r}; there are {', '.join(METHODS)}{hint}")
    return METHODS[name]


def entries_of(given: Sequence[str]) -> list[Entry]:
    """The rows that are asked for, each `METHOD`, `METHOD@POLICY` or `LABEL=METHOD@POLICY`.

    Raises:
        ConfigError: no such method, `policy` without one, a label that is no name of a folder, or two of one label.
    """
    found: list[Entry] = []
    for text in given:
        before, at, policy = text.partition("@")
        label, equals, name = before.rpartition("=")
        method = find_method(name)
        if at and not policy:
            raise ConfigError(f"{text!r}: after @ comes a policy, a directory or a hub id")
        if name == "policy" and not policy:
            raise ConfigError("the method policy plays a trained policy: write policy@runs/NAME/policy")
        label = label if equals else _label(name, policy)
        if not _LABEL.fullmatch(label):
            raise ConfigError(f"{text!r}: a label is of letters, digits, dots, dashes and underscores, not {label!r}")
        if any(entry.label == label for entry in found):
            raise ConfigError(f"two methods are labelled {label!r}: write LABEL={name}{at}{policy} with another label")
        found.append(Entry(label, method, policy or None))
    return found


def _label(name: str, policy: str) -> str:
    """Of an entry that has none: the method, and the last telling part of the policy's path."""
    parts = [part for part in PurePath(policy).parts if part not in ("policy", "/", "runs")]
    return f"{name}-{re.sub('[^A-Za-z0-9._-]', '-', parts[-1])}" if parts else name
