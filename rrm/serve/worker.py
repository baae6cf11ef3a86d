"""A process that holds a judge: `python -m rrm.serve.worker`, started by `rrm.serve.pool`.

    in    {"options": {…}}                                      once: `JudgeOptions`, by name, and `escalate`
    out   {"about": {…}} | {"failed": "why"}                    once
    in    {"job": 7, "what": "score", "how": {…}, "items": […]} items: transcripts, or groups of them to be compared
    out   {"job": 7, "at": 0, "row": {…}}                       one an item, in any order
    out   {"job": 7, "end": true} | {"job": 7, "error": "why", "refused": true, "at": "mode", "again": false}

Lines of JSON over pipes (no pickle), one job after the other. Libraries' prints go to standard error.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any, NoReturn

from rrm import __version__
from rrm.cli.judge_options import JudgeOptions
from rrm.data.annotation import OutOfDomain
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.errors import EngineError, RRMError, SpendingLimit
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.rank import Ranking, check_ranks, rank_groups

log = logging.getLogger(__name__)
# settings for clients: neither the server behind the judge nor the questions of its training
SERVED = (
    "name", "modes", "default_mode", "threshold", "unsure_band", "prompt_version", "transcript_tokens", "max_new_tokens", "max_windows",
    "grid", "criteria",
)  # fmt: skip
Tell = Callable[[dict[str, Any]], None]


def about(judge: AgentRRM) -> dict[str, Any]:
    """Describe the judge to clients (`rrm.serve.schemas.About`)."""
    settings = json.loads(judge.settings.model_dump_json(include=set(SERVED)))
    ranks = True
    try:
        check_ranks(judge)
    except RRMError:
        ranks = False
    return {
        "describe": judge.describe(),
        "settings": settings,
        "dtype": judge.dtype,
        "knows_domain": judge.domain is not None,
        "ranks": ranks,
        "version": __version__,
    }


class Worker:
    def __init__(self, judge: AgentRRM, tell: Tell) -> None:
        self.judge, self.tell = judge, tell

    def do(self, job: dict[str, Any]) -> None:
        number, task = job["job"], job["what"]
        try:
            {"score": self._score, "rank": self._rank, "measure": self._measure}[task](job)
        except RRMError as error:
            apart = isinstance(error, EngineError | SpendingLimit)  # of the judge's own server, not of what was asked
            path = None if apart else "mode"
            again = isinstance(error, SpendingLimit)
            self.tell({"job": number, "error": str(error), "refused": True, "at": path, "again": again})
        except BrokenPipeError:  # of `tell`: nobody hears any more
            raise
        except Exception as error:  # the pool tries the items one by one, and names the one that does it
            log.error("a job of %d failed", len(job["items"]), exc_info=True)
            self.tell({"job": number, "error": f"{type(error).__name__}: {error}", "refused": False})
        else:
            self.tell({"job": number, "end": True})

    def _score(self, job: dict[str, Any]) -> None:
        how = job["how"]
        rows = [Trajectory.model_validate(item) for item in job["items"]]
        places = {trajectory.id: number for number, trajectory in enumerate(rows)}

        def take(feedback: Feedback) -> None:
            row = feedback.model_dump(mode="json")
            self.tell({"job": job["job"], "at": places[feedback.id], "row": row})

        self._judge(how.get("out_of_domain")).judge(
            rows, mode=how["mode"], samples=how["samples"], seed=how["seed"], on_feedback=take
        )

    def _judge(self, out_of_domain: OutOfDomain | None) -> AgentRRM:
        """Return the judge with the request's handling of transcripts outside its domain."""
        if out_of_domain in (None, self.judge.out_of_domain):
            return self.judge
        other = copy.copy(self.judge)
        other.out_of_domain = out_of_domain
        return other

    def _rank(self, job: dict[str, Any]) -> None:
        how = job["how"]
        groups = [[Trajectory.model_validate(item) for item in group] for group in job["items"]]

        def take(number: int, ranking: Ranking) -> None:
            row = {name: getattr(ranking, name) for name in ("decided", "earlier", "tied", "both", "agreed", "turned")}
            row["usage"] = None if ranking.usage is None else ranking.usage.model_dump()
            row["feedback"] = [feedback.model_dump(mode="json") for feedback in ranking.feedback]
            self.tell({"job": job["job"], "at": number, "row": row})

        options = {"size": how["heat"], "both_orders": how["both_orders"], "seed": how["seed"]}
        rank_groups(self.judge, groups, on_ranking=take, **options)

    def _measure(self, job: dict[str, Any]) -> None:
        how = job["how"]
        rows = [Trajectory.model_validate(item) for item in job["items"]]
        for number, reads in enumerate(self.judge.measure(rows, how["mode"], how["samples"])):
            self.tell({"job": job["job"], "at": number, "row": asdict(reads)})


def run(load: Callable[[Mapping[str, Any]], AgentRRM]) -> None:
    """Serve jobs until the input ends, or nobody reads the answers: unfinished work is dropped."""
    answers: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what prints, prints there
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")

    def tell(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message, allow_nan=False).encode() + b"\n")
        answers.flush()

    messages = ahead(map(json.loads, os.fdopen(os.dup(0), "rb")))  # not sys.stdin, which Python closes while it is read
    try:
        for first in messages:
            try:
                judge = load(first["options"])
            except (RRMError, ImportError, OSError, ValueError) as error:
                tell({"failed": str(error)})
                return
            tell({"about": about(judge)})
            worker = Worker(judge, tell)
            for job in messages:
                worker.do(job)
    except BrokenPipeError:
        _leave()


def load_judge(options: Mapping[str, Any]) -> AgentRRM:
    """Load the judge of `JudgeOptions` by name; `escalate` names a stronger one."""
    how = dict(options)
    escalate = how.pop("escalate", None)
    return JudgeOptions(**how).load_with(escalate)


def ahead(jobs: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield jobs, reading the next while one is done; exits where they end before it is done."""
    waiting: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def follow() -> None:
        try:
            for job in jobs:
                waiting.put(job)
            if waiting.unfinished_tasks:
                _leave()
        finally:
            waiting.put(None)

    threading.Thread(target=follow, name="rrm-jobs", daemon=True).start()
    for job in iter(waiting.get, None):
        yield job
        waiting.task_done()


def _leave() -> NoReturn:
    os._exit(0)


if __name__ == "__main__":
    run(load_judge)
