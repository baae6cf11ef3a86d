"""LangChain and LangGraph: a callback that records each run as a transcript and has it judged at its end.

    judged = AgentRRMTracer(judge, mode="steps")
    agent.invoke({"messages": [("user", "…")]}, {"callbacks": [judged]})
    for row in judged.wait():
        print(row.feedback.score)

What is recorded is the tree of runs that LangSmith would be sent, and it is read as an export of LangSmith is, its name included: the score is that of
`rrm score` there.
Needs the extra `langchain`.
"""

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
CHAT, MODEL = "chat_model", "llm"
"""What LangChain calls a chat model's run, and LangSmith any model's."""
FIELDS = ("name", "run_type", "inputs", "outputs", "error", "extra")


@dataclass(frozen=True)
class JudgedTrace:
    """A run and what the judge said of it."""

    run_id: str
    """LangChain's own id of the run."""
    trajectory: Trajectory
    feedback: Feedback


class AgentRRMTracer(BaseTracer):
    """Hand it over as a callback. Runs are judged in another thread, all that have ended meanwhile in one batch.

    A run without a model's message has nothing to judge and is left out.

    Args:
        judge: as `AgentRRM.from_pretrained` takes it (None: the judge that ships with the package), or one that is loaded.
        mode: None: the one that the judge prefers, or `full`.
        samples: replies whose scores are averaged.
        options: further arguments of `AgentRRM.from_pretrained`.
        on_judged: hears of each, in the judge's thread.
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
        """All runs that have ended since this was asked last, once they are judged.

        Raises:
            RRMError: what the judge raised, where it did.
        """
        with self._adding:
            asked = list(self._asked)
            self._asked.clear()
        wait([future for _, _, future in asked])
        return [JudgedTrace(run, trajectory, future.result()) for run, trajectory, future in asked]

    def _persist_run(self, run: Run) -> None:
        """A run at the root has ended."""
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
    """A finished run's conversations, as the reader of LangSmith's exports has them."""
    runs = flat(run, str(run.id))
    if not any(one["run_type"] == MODEL for one in runs):
        return []
    found = read_value(runs, f"run {run.id}", format=langsmith.NAME)
    for error in (one for one in found if isinstance(one, ReadError)):
        log.info("not judged: %s", error)
    return [one for one in found if isinstance(one, Trajectory) and one.steps and PARENT not in one.meta]


def flat(run: Run, trace: str) -> list[dict[str, Any]]:
    """A tree of runs as the list that LangSmith exports: plain JSON."""
    own = {name: plain(value) for name in FIELDS if (value := getattr(run, name, None)) is not None}
    own |= {
        "id": str(run.id),
        "trace_id": trace,
        "parent_run_id": str(run.parent_run_id) if run.parent_run_id else None,
    }
    own["run_type"] = MODEL if run.run_type == CHAT else run.run_type
    own |= {"start_time": run.start_time.isoformat(), "end_time": run.end_time.isoformat() if run.end_time else None}
    return [own, *(one for child in run.child_runs for one in flat(child, trace))]


def plain(value: Any) -> Any:
    """As JSON: messages and other objects of LangChain's as it writes them, what is foreign to both as its text."""
    return json.loads(json.dumps(value, default=lambda one: dumpd(one) if isinstance(one, Serializable) else str(one)))
