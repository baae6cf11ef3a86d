"""Runs as the Python API takes them: trajectories, lists of chat messages, or any one record that `rrm.readers` knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.readers import read_value


def as_trajectories(runs: Sequence[Any]) -> list[Trajectory]:
    """One trajectory for each run.

    Args:
        runs: each a Trajectory, a list of messages (OpenAI's dicts, or LangChain's objects), or a dict of a format that `rrm score` reads.

    Raises:
        RRMError: a run that cannot be read, or that holds several runs; names its place in the list.
    """
    if isinstance(runs, Mapping) or (len(runs) and isinstance(runs[0], Mapping) and "role" in runs[0]):
        raise RRMError("a list of runs is wanted, and this is one run: judge([messages])")
    return [run if isinstance(run, Trajectory) else _as_trajectory(run, place) for place, run in enumerate(runs)]


def _as_trajectory(run: Any, place: int) -> Trajectory:
    """One run in another form than a trajectory."""
    if not isinstance(run, Mapping):
        messages = [message if isinstance(message, Mapping) else _plain(message, place) for message in run]
        run = {"id": f"run-{place}", "messages": messages}
    read = read_value(dict(run), f"run-{place}")
    if len(read) != 1:
        raise RRMError(f"run {place} holds {len(read)} runs: give each as an item of its own")
    if not isinstance(read[0], Trajectory):
        raise RRMError(f"run {place} cannot be read: {read[0]}")
    return read[0]


def _plain(message: Any, place: int) -> dict[str, Any]:
    """A LangChain message as `messages_to_dict` would write it."""
    if not (hasattr(message, "type") and hasattr(message, "model_dump")):
        raise RRMError(
            f"run {place} holds a {type(message).__name__}, which is no message: dicts with role and content are"
        )
    return {"type": message.type, "data": message.model_dump()}
