"""A judge for a framework whose config can only name it: loaded once a process, whoever asks for it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from typing import Any

from rrm.data.feedback import Mode
from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.cached_judge import BatchJudge, JudgeQueue

_LOADED: dict[tuple[int, str], AgentRRM] = {}
_ASKERS: dict[tuple[Any, ...], tuple[BatchJudge, JudgeQueue]] = {}
_LOCK = threading.Lock()


def asker(
    judge: str | BatchJudge | None = None,
    *,
    mode: Mode | None = "score",
    samples: int = 1,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> JudgeQueue:
    """The process's one asker of a judge in a mode.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it (None: the judge that ships with the package), or one that is loaded.
        mode: None: the one that the judge prefers, or `full`.
        options: further arguments of `AgentRRM.from_pretrained`: plain numbers, texts and lists.

    Raises:
        ConfigError: options for a judge that is loaded, or one that is no plain value; RRMError: no such judge.
    """
    if judge is not None and not isinstance(judge, str) and options:
        raise ConfigError("options are for a judge that is named; this one is loaded")
    with _LOCK:
        loaded = _load(judge, dict(options or {})) if judge is None or isinstance(judge, str) else judge
        chosen: Mode = mode or getattr(getattr(loaded, "settings", None), "default_mode", None) or "full"
        key = (os.getpid(), id(loaded), chosen, samples, seed)
        if key not in _ASKERS:
            # with the judge itself, so that the id stays its own
            _ASKERS[key] = loaded, JudgeQueue(loaded, mode=chosen, samples=samples, seed=seed)
        return _ASKERS[key][1]


class LazyAsker:
    """An asker that goes to other processes as what it was made of: a named judge is loaded where it is first asked, once a process.

    Args:
        judge: as `asker` takes it; one that is loaded has a queue of its own.
    """

    def __init__(
        self, judge: str | BatchJudge | None, *, mode: Mode = "score", samples: int = 1, seed: int = 0
    ) -> None:
        self._how: dict[str, Any] = {"mode": mode, "samples": samples, "seed": seed}
        self._judge = judge if judge is None or isinstance(judge, str) else JudgeQueue(judge, **self._how)

    def __call__(self) -> JudgeQueue:
        """The asker.

        Raises:
            RRMError: no such judge.
        """
        return self._judge if isinstance(self._judge, JudgeQueue) else asker(self._judge, **self._how)


def _load(name: str | None, options: dict[str, Any]) -> AgentRRM:
    try:
        key = (os.getpid(), json.dumps([name, options], sort_keys=True))
    except TypeError as error:
        raise ConfigError(f"the judge's options must be plain numbers, texts and lists: {error}") from error
    if key not in _LOADED:
        _LOADED[key] = AgentRRM.from_pretrained(name, **options)
    return _LOADED[key]
