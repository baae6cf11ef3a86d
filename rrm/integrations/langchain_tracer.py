"""LangChain and LangGraph: a callback that records each run and judges it at its end."""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.errors import MissingExtra, ReadError
from rrm.integrations.loading import asker
from rrm.judge.cached_judge import BatchJudge
from rrm.readers import langsmith, read_value
from rrm.readers.left import PARENT

try:
    from langchain_core.load import Serializable, dumpd  # pyright: ignore[reportMissingImports]
    from langchain_core.tracers.base import BaseTracer  # pyright: ignore[reportMissingImports]
    from langchain_core.tracers.schemas import Run  # pyright: ignore[reportMissingImports]
except ImportError as missing:
    raise MissingExtra("the callback needs langchain-core: pip install 'agent-rrm[langchain]'") from missing

log = logging.getLogger(__name__)
KEPT = 1000
CHAT, MODEL = "chat_model", "llm"  # LangChain's run type of a chat model, and LangSmith's of any model
FIELDS = ("name", "run_type", "inputs", "outputs", "error", "extra")


@dataclass(frozen=True)
class JudgedTrace:
    run_id: str  # LangChain's
    trajectory: Trajectory
    feedback: Feedback


class AgentRRMTracer(BaseTracer):
    """Judge runs in another thread, in batches; a run without a model's message is left out.

    Args:
        judge, mode, samples, seed, options: as `rrm.integrations.loading.asker`.
        on_judged: is called with each, in the judge's thread.
        kept: how many of the last are held for `wait`.
    """

    def __init__(
        self,
        judge: str | BatchJudge | None = None,
        *,
        mode: Mode | None = None,
        samples: int = 1,
        seed: int = 0,
        options: dict[str, Any] | None = None,
        on_judged: Callable[[JudgedTrace], None] | None = None,
        kept: int = KEPT,
    ) -> None:
        super().__init__(_schema_format="original+chat")  # messages as they are, not one text of them
        self._asker = asker(judge, mode=mode, samples=samples, seed=seed, options=options)
        self._on_judged = on_judged
        self._asked: deque[tuple[str, Trajectory, Future[Feedback]]] = deque(maxlen=kept)
        self._adding = threading.Lock()

    def wait(self) -> list[JudgedTrace]:
        """Return all runs that ended since the last call, once they are judged; raises what the judge raised."""
        with self._adding:
            pending = list(self._asked)
            self._asked.clear()
        wait([future for _, _, future in pending])
        return [JudgedTrace(run, trajectory, future.result()) for run, trajectory, future in pending]

    def _persist_run(self, run: Run) -> None:
        for trajectory in trajectories(run):
            future = self._asker.submit(trajectory)
            with self._adding:
                self._asked.append((str(run.id), trajectory, future))
            if self._on_judged is not None:
                future.add_done_callback(partial(_hear, self._on_judged, str(run.id), trajectory))


def _hear(on_judged: Callable[[JudgedTrace], None], run: str, trajectory: Trajectory, done: Future[Feedback]) -> None:
    if not done.cancelled() and done.exception() is None:
        on_judged(JudgedTrace(run, trajectory, done.result()))


def trajectories(run: Run) -> list[Trajectory]:
    """Return a finished run's conversations, as the reader of LangSmith's exports does."""
    runs = flat(run, str(run.id))
    if not any(entry["run_type"] == MODEL for entry in runs):
        return []
    results = read_value(runs, f"run {run.id}", format=langsmith.NAME)
    for error in (entry for entry in results if isinstance(entry, ReadError)):
        log.info("not judged: %s", error)
    return [entry for entry in results if isinstance(entry, Trajectory) and entry.steps and PARENT not in entry.meta]


def flat(run: Run, trace: str) -> list[dict[str, Any]]:
    """Flatten a tree of runs to the list that LangSmith exports."""
    own = {name: plain(value) for name in FIELDS if (value := getattr(run, name, None)) is not None}
    own |= {
        "id": str(run.id),
        "trace_id": trace,
        "parent_run_id": str(run.parent_run_id) if run.parent_run_id else None,
    }
    own["run_type"] = MODEL if run.run_type == CHAT else run.run_type
    own |= {"start_time": run.start_time.isoformat(), "end_time": run.end_time.isoformat() if run.end_time else None}
    return [own, *(entry for child in run.child_runs for entry in flat(child, trace))]


def plain(value: Any) -> Any:
    # LangChain's objects as it writes them, others as their text
    return json.loads(
        json.dumps(value, default=lambda item: dumpd(item) if isinstance(item, Serializable) else str(item))
    )
