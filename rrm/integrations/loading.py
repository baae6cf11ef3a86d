"""Judges for frameworks whose config can only name one: loaded once a process."""

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
    """Return the process's one queue of a judge and mode; raises `ConfigError` for wrong options.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it (None: the default judge), or a loaded one.
        mode: None: the judge's preferred one, or `full`.
        samples: replies whose scores are averaged.
        options: further arguments of `AgentRRM.from_pretrained`, for a named judge: plain numbers, texts and lists.
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
    """A picklable `asker`: a named judge is loaded on the first call, once a process."""

    def __init__(
        self, judge: str | BatchJudge | None, *, mode: Mode = "score", samples: int = 1, seed: int = 0
    ) -> None:
        self._how: dict[str, Any] = {"mode": mode, "samples": samples, "seed": seed}
        self._judge = judge if judge is None or isinstance(judge, str) else JudgeQueue(judge, **self._how)

    def __call__(self) -> JudgeQueue:
        return self._judge if isinstance(self._judge, JudgeQueue) else asker(self._judge, **self._how)


def _load(name: str | None, options: dict[str, Any]) -> AgentRRM:
    try:
        key = (os.getpid(), json.dumps([name, options], sort_keys=True))
    except TypeError as error:
        raise ConfigError(f"the judge's options must be plain numbers, texts and lists: {error}") from error
    if key not in _LOADED:
        _LOADED[key] = AgentRRM.from_pretrained(name, **options)
    return _LOADED[key]
