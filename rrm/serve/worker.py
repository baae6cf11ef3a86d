"""A process that holds a judge: `python -m rrm.serve.worker`, started by `rrm.serve.pool`, one job after the other.

    in    {"options": {…}}                                      once: `JudgeOptions`, by name, and `escalate`
    out   {"about": {…}} | {"failed": "why"}                    once
    in    {"job": 7, "what": "score", "how": {…}, "items": […]} items: transcripts, or groups of them to be compared
    out   {"job": 7, "at": 0, "row": {…}}                       one an item, in any order
    out   {"job": 7, "end": true} | {"job": 7, "error": "why", "refused": true, "at": "mode", "again": false}

Lines of JSON over pipes: no pickle, and nothing of a transcript is run. What a library prints goes to standard error.
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
SERVED = (
    "name", "modes", "default_mode", "threshold", "unsure_band", "prompt_version", "transcript_tokens", "max_new_tokens", "max_windows",
    "grid", "criteria",
)  # fmt: skip
"""Settings that clients are told: neither the server behind the judge nor the questions of its training."""
Tell = Callable[[dict[str, Any]], None]


def about(judge: AgentRRM) -> dict[str, Any]:
    """What a client is told of the judge (`rrm.serve.schemas.About`)."""
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
    """Does jobs with one judge.

    Args:
        judge: what judges.
        tell: takes each answer.
    """

    def __init__(self, judge: AgentRRM, tell: Tell) -> None:
        self.judge, self.tell = judge, tell

    def do(self, job: dict[str, Any]) -> None:
        """One job to its end, whatever becomes of it."""
        number, what = job["job"], job["what"]
        try:
            {"score": self._score, "rank": self._rank, "measure": self._measure}[what](job)
        except RRMError as error:
            apart = isinstance(error, EngineError | SpendingLimit)  # of the judge's own server, not of what was asked
            at = None if apart else "mode"
            again = isinstance(error, SpendingLimit)
            self.tell({"job": number, "error": str(error), "refused": True, "at": at, "again": again})
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
        places = {trajectory.id: at for at, trajectory in enumerate(rows)}

        def take(feedback: Feedback) -> None:
            row = feedback.model_dump(mode="json")
            self.tell({"job": job["job"], "at": places[feedback.id], "row": row})

        self._judge(how.get("out_of_domain")).judge(
            rows, mode=how["mode"], samples=how["samples"], seed=how["seed"], on_feedback=take
        )

    def _judge(self, out_of_domain: OutOfDomain | None) -> AgentRRM:
        """The judge, doing as the request says with what lies outside what it was measured on."""
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
        for at, reads in enumerate(self.judge.measure(rows, how["mode"], how["samples"])):
            self.tell({"job": job["job"], "at": at, "row": asdict(reads)})


def run(load: Callable[[Mapping[str, Any]], AgentRRM]) -> None:
    """Serve jobs until the input ends, or nobody hears the answers: what is judged or loaded then is left.

    Args:
        load: the judge, by the options that the pool was given.
    """
    answers: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what prints, prints there
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")

    def tell(said: dict[str, Any]) -> None:
        answers.write(json.dumps(said, allow_nan=False).encode() + b"\n")
        answers.flush()

    said = ahead(map(json.loads, os.fdopen(os.dup(0), "rb")))  # not sys.stdin, which Python closes while it is read
    try:
        for asked in said:
            try:
                judge = load(asked["options"])
            except (RRMError, ImportError, OSError, ValueError) as error:
                tell({"failed": str(error)})
                return
            tell({"about": about(judge)})
            worker = Worker(judge, tell)
            for job in said:
                worker.do(job)
    except BrokenPipeError:
        _leave()


def load_judge(options: Mapping[str, Any]) -> AgentRRM:
    """The judge of `JudgeOptions` by name; `escalate` beside them names a stronger one."""
    how = dict(options)
    escalate = how.pop("escalate", None)
    return JudgeOptions(**how).load_with(escalate)


def ahead(jobs: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The jobs, the next one read while one is done: more than a pipe holds has come when it is wanted. Where they end before what was read
    is done, the process ends: a server that lives waits for the answers."""
    read: queue.Queue[dict[str, Any] | None] = queue.Queue()

    def follow() -> None:
        try:
            for job in jobs:
                read.put(job)
            if read.unfinished_tasks:
                _leave()
        finally:
            read.put(None)

    threading.Thread(target=follow, name="rrm-jobs", daemon=True).start()
    for job in iter(read.get, None):
        yield job
        read.task_done()


def _leave() -> NoReturn:
    """End at once, whatever threads do: the server was killed."""
    os._exit(0)


if __name__ == "__main__":
    run(load_judge)
