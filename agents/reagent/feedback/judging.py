"""Asking the judge: in batches, each content once, with every judgement on record and failures counted.

A judgement depends on what the judge reads alone: the judged transcript is named by its content, so that the seeds of
sampled replies do not depend on who asked, or when. `judgements.jsonl` keeps every one: a run that is continued reads
back those of the updates it keeps, and has the numbers it would have had.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage, total_of
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN
from rrm.scoring.run import outside_of


class JudgeFailure(RRMError):
    """Too many judgements failed; the message says how, and what to do."""


def content_key(trajectory: Trajectory) -> str:
    """Names what a judge reads of a trajectory: task, tools, and messages without ids, times and outcome."""
    messages = [
        [m.role, m.text(), m.reasoning_content or "", [[c.name, c.arguments_text()] for c in m.tool_calls or ()]]
        for m in trajectory.messages
    ]
    return _hash([trajectory.task, trajectory.tools or [], messages])


def _hash(said: Any) -> str:
    content = json.dumps(said, sort_keys=True, default=str)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:24]


SUMS = (
    "judged", "asked", "failed", "floored", "without_finding", "judge_tokens", "critiques", "traces",
    "leaked_critiques", "leaked_traces", "without_critique", "long_texts", "no_room",
)  # fmt: skip
MEANS = (
    "reward", "score", "own_score", "score_success", "score_failure", "refined_score", "refined_score_success",
    "refined_score_failure",
)  # fmt: skip


@dataclass
class JudgingReport:
    """What a round says of its judgements; adds up over rounds and processes (`merge`)."""

    counts: Counter[str] = field(default_factory=Counter)
    """Sums: judgements by what came of them, tokens, scores."""
    graded: list[tuple[float, float, float, float]] = field(default_factory=list)
    """(raw score, the judge's own score, the score as it was paid, success) of graded attempts, for `feedback.recalibrate`."""
    problem: str | None = None
    """One failure's reason."""
    seconds: float = 0.0
    """Wall time spent judging, also while episodes were played."""

    def merge(self, other: JudgingReport) -> JudgingReport:
        """The two together."""
        counts = Counter(self.counts)
        counts.update(other.counts)
        return JudgingReport(
            counts, self.graded + other.graded, self.problem or other.problem, self.seconds + other.seconds
        )

    def figures(self) -> dict[str, float]:
        """As metrics, `feedback/…`; nothing where nothing was asked and nothing refined."""
        counts = self.counts
        if not any(counts.values()):
            return {}
        found = {name: float(counts[name]) for name in SUMS}
        if counts["outside_n"]:  # of a judge that cannot say, a 0 would read as: all inside
            found |= {"outside": float(counts["outside"]), "placed": float(counts["outside_n"])}
        found |= {name: float(count) for name, count in counts.items() if name.startswith("failed_")}
        found["failure_rate"] = counts["failed"] / max(counts["judged"], 1)
        for name in MEANS:
            if counts[f"{name}_n"]:
                found[name] = counts[f"{name}_sum"] / counts[f"{name}_n"]
        return {f"feedback/{k}": v for k, v in found.items()} | {"time/judge_s": self.seconds}


def _count(found: Sequence[Feedback], report: JudgingReport) -> None:
    for feedback in found:
        if feedback.out_of_domain is not None:  # a judge that says where it was measured
            report.counts["outside_n"] += 1
            report.counts["outside"] += feedback.out_of_domain
        if feedback.score is None:
            report.counts["failed"] += 1
            report.counts[f"failed_{feedback.status}"] += 1
            report.problem = report.problem or feedback.reason or feedback.status


class Judging:
    """A judge with a memory.

    Args:
        judge: any Agent-RRM, in process or over a server.
        seed: of sampled replies.
        record: file that keeps the judgements; None keeps them in memory only.
        later: (update, judge) pairs, rising: who judges from that update on, over the same engine (`feedback.criteria` with stages).
    """

    def __init__(
        self, judge: AgentRRM, *, seed: int, record: Path | None = None, later: Sequence[tuple[int, AgentRRM]] = ()
    ) -> None:
        self.judge, self.seed, self.record = judge, seed, record
        self.known: dict[tuple[str, Mode], Feedback] = {}
        self._said: set[str] = set()
        """What was warned of; stages of a judge say it once between them."""
        self._later = [(first, Judging(other, seed=seed, record=record)) for first, other in later]
        for _, other in self._later:
            other.known, other._said = self.known, self._said  # what is asked is part of a judgement's key

    def at(self, update: int) -> Judging:
        """The one whose judge an update has; all have one memory."""
        return next((other for first, other in reversed(self._later) if first <= update), self)

    @property
    def criteria(self) -> list[str]:
        """Hashes of the criteria by stage; nothing where the judge has none."""
        everyone = [self, *(other for _, other in self._later)]
        found = [getattr(one.judge, "criteria", None) for one in everyone]
        return [criteria.hash for criteria in found if criteria is not None]

    def resume(self, update: int) -> None:
        """Read back the judgements made before `update`, and drop the later ones from the record."""
        self.known.clear()
        if self.record is None or not self.record.is_file():
            return
        kept, paid, lost = [], list[Usage | None](), list[Usage | None]()
        dropped = self.record.with_suffix(
            ".dropped.json"
        )  # usage of the rows that earlier resumes dropped: it was paid
        if dropped.is_file():
            lost.append(Usage.model_validate_json(dropped.read_bytes()))
        for line in self.record.read_text(encoding="ascii").splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # cut short by a kill
                continue
            feedback = Feedback.model_validate(row["feedback"])
            made_again = not 0 < update > row["update"]  # a run that starts anew keeps nothing
            (lost if made_again else paid).append(feedback.usage)
            if not made_again:
                kept.append(line + "\n")
                if feedback.status != "judge_error":
                    self.known[row["key"], row["mode"]] = feedback
        purse = getattr(self.judge, "purse", None)
        if purse is not None:
            if (spent := total_of(lost)) is not None:
                dropped.write_text(spent.model_dump_json(), encoding="ascii")
            purse.begin(total_of([*paid, *lost]), str(self.record))
        self.record.write_text("".join(kept), encoding="ascii")

    def ask(self, trajectories: Sequence[Trajectory], mode: Mode, update: int, report: JudgingReport) -> list[Feedback]:
        """One Feedback a trajectory, in order; counts go to `report`.

        A failure counts each time it is met, and is not asked for again unless the judge could not be reached.
        """
        keys = [self.key(t) for t in trajectories]
        fresh = {
            key: t.model_copy(update={"id": key})
            for key, t in zip(keys, trajectories, strict=True)
            if (key, mode) not in self.known
        }
        report.counts["judged"] += len(keys)
        if fresh:
            self._ask(fresh, mode, update, report)
        found = [
            self.known[key, mode].model_copy(update={"id": t.id}) for key, t in zip(keys, trajectories, strict=True)
        ]
        for key in set(keys):
            if self.known[key, mode].status == "judge_error":
                del self.known[key, mode]
        self._look_at(found, report)
        return found

    @property
    def sees_reference(self) -> bool:
        """Whether its criteria let the judge read the reference answer."""
        criteria = getattr(self.judge, "criteria", None)
        return criteria is not None and criteria.see_reference

    def key(self, trajectory: Trajectory) -> str:
        """Names what this judge reads of a trajectory, and what it is asked."""
        criteria, key = getattr(self.judge, "criteria", None), content_key(trajectory)
        if criteria is None:
            return key
        seen = trajectory.meta.get("reference") if criteria.see_reference else None
        return _hash([key, criteria.hash, seen])

    def rank(self, groups: Sequence[Sequence[Trajectory]], update: int, report: JudgingReport) -> list[list[Feedback]]:
        """Relative scores of attempts, those of a group compared with each other (`rrm.judge.rank`); counts go to `report`."""
        from rrm.judge.rank import rank_groups

        keys = [[self.key(t) for t in group] for group in groups]
        names = [[f"{_hash(['rank', *sorted(group)])}-{key}" for key in group] for group in keys]
        known = [all((name, "score") in self.known for name in group) for group in names]
        fresh = [i for i, found in enumerate(known) if not found]
        report.counts["judged"] += sum(map(len, groups))
        if fresh:
            started = time.perf_counter()
            said = rank_groups(self.judge, [groups[i] for i in fresh], seed=self.seed)
            pairs = [
                pair
                for i, ranking in zip(fresh, said, strict=True)
                for pair in zip(names[i], ranking.feedback, strict=True)
            ]
            self._note(pairs, "score", update)
            report.counts["asked"] += len(pairs)
            report.counts["judge_tokens"] += sum(
                self.judge.count_tokens([t for i in fresh for t in groups[i]], "score")
            )
            report.seconds += time.perf_counter() - started
        found = [
            [self.known[name, "score"].model_copy(update={"id": t.id}) for name, t in zip(*pair, strict=True)]
            for pair in zip(names, groups, strict=True)
        ]
        for name in {name for group in names for name in group}:
            if self.known[name, "score"].status == "judge_error":
                del self.known[name, "score"]
        self._look_at([feedback for group in found for feedback in group], report)
        return found

    @contextmanager
    def ahead(self, mode: Mode, update: int, report: JudgingReport) -> Iterator[Callable[[Trajectory], None]]:
        """Judge while others still play: what is given to the function yielded is judged by a thread, as many at once as
        have come together; on leaving all of it is, and `ask` finds it.

        Only over a server. A judge in this process shares its processor with the policy, and judges in whole batches.
        """
        if self.judge.prompter is not None:
            yield lambda trajectory: None
            return
        waiting: SimpleQueue[Trajectory] = SimpleQueue()

        def drain() -> None:
            fresh: dict[str, Trajectory] = {}
            while not waiting.empty():
                trajectory = waiting.get()
                key = self.key(trajectory)
                if (key, mode) not in self.known:
                    fresh[key] = trajectory.model_copy(update={"id": key})
            if fresh:
                self._ask(fresh, mode, update, report)

        with ThreadPoolExecutor(1, thread_name_prefix="judge") as thread:
            jobs: list[Future[None]] = []

            def take(trajectory: Trajectory) -> None:
                waiting.put(trajectory)
                jobs.append(thread.submit(drain))

            yield take
        for job in jobs:
            job.result()

    def _look_at(self, found: Sequence[Feedback], report: JudgingReport) -> None:
        """Count what failed and what is foreign to the judge, and say once that something is."""
        _count(found, report)
        marks = [int(feedback.out_of_domain) for feedback in found if feedback.out_of_domain is not None]
        if any(marks) and "outside" not in self._said:
            self._said.add("outside")
            outside_of(marks)

    def _ask(self, fresh: Mapping[str, Trajectory], mode: Mode, update: int, report: JudgingReport) -> None:
        started = time.perf_counter()
        counters = getattr(self.judge.engine, "counters", None)
        before = counters.prefilled + counters.decoded if counters else 0
        said = self.judge.judge(list(fresh.values()), mode=mode, seed=self.seed)
        self._note(list(zip(fresh, said, strict=True)), mode, update)  # before anything else may fail
        if counters:
            tokens = counters.prefilled + counters.decoded - before
        else:
            written = sum((len(f.trace or "") + len(f.critique or "")) // CHARACTERS_PER_TOKEN for f in said)
            tokens = sum(self.judge.count_tokens(list(fresh.values()), mode)) + written
        report.counts["asked"] += len(said)
        report.counts["judge_tokens"] += tokens
        report.seconds += time.perf_counter() - started

    def _note(self, pairs: Sequence[tuple[str, Feedback]], mode: Mode, update: int) -> None:
        """Remember judgements by their keys, and put them on record."""
        for key, feedback in pairs:
            self.known[key, mode] = feedback
        if self.record is not None:
            self.record.parent.mkdir(parents=True, exist_ok=True)
            with open(self.record, "a", encoding="ascii") as out:
                for key, feedback in pairs:
                    row = {"update": update, "key": key, "mode": mode, "feedback": feedback.model_dump()}
                    out.write(json.dumps(row) + "\n")
