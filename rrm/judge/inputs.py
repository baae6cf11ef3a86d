"""Runs of the Python API: trajectories, lists of chat messages, or records that `rrm.readers` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.readers import read_value


def as_trajectories(runs: Iterable[Any]) -> list[Trajectory]:
    """Convert each run to a trajectory.

    A run is a Trajectory, a list of messages (OpenAI's dicts, or LangChain's objects), or a dict of a format that `rrm score`
    reads. Raises RRMError, naming the index, for a run that cannot be read or holds several.
    """
    one = isinstance(runs, Trajectory | Mapping | str)
    runs = [] if one else list(runs)
    if one or (runs and isinstance(runs[0], Mapping) and "role" in runs[0]):
        raise RRMError("a list of runs is wanted, and this is one run: judge([messages])")
    return [run if isinstance(run, Trajectory) else _as_trajectory(run, index) for index, run in enumerate(runs)]


def _as_trajectory(run: Any, index: int) -> Trajectory:
    if isinstance(run, str) or not isinstance(run, Iterable):
        raise RRMError(f"run {index} is a {type(run).__name__}: a Trajectory, a list of messages or a dict is")
    if not isinstance(run, Mapping):
        messages = [message if isinstance(message, Mapping) else _plain(message, index) for message in run]
        run = {"id": f"run-{index}", "messages": messages}
    items = read_value(dict(run), f"run-{index}")
    if len(items) != 1:
        raise RRMError(f"run {index} holds {len(items)} runs: give each as an item of its own")
    if not isinstance(items[0], Trajectory):
        raise RRMError(f"run {index} cannot be read: {items[0]}")
    return items[0]


def _plain(message: Any, index: int) -> dict[str, Any]:
    """Return a LangChain message as `messages_to_dict` writes it."""
    if not (hasattr(message, "type") and hasattr(message, "model_dump")):
        raise RRMError(
            f"run {index} holds a {type(message).__name__}, which is no message: dicts with role and content are"
        )
    return {"type": message.type, "data": message.model_dump()}
