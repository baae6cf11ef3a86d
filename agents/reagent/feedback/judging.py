"""Ask the judge in batches, each content once; record every judgement and count failures.

Judged transcripts are named by their content, so that seeds of sampled replies do not depend on who asked, or when. A
continued run reads the judgements of the updates it keeps back from `judgements.jsonl`."""

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


class JudgeFailure(RRMError): ...


def content_key(trajectory: Trajectory) -> str:
    """Key of what a judge reads: task, tools, and messages without ids, times and outcome."""
    messages = [
        [m.role, m.text(), m.reasoning_content or "", [[c.name, c.arguments_text()] for c in m.tool_calls or ()]]
        for m in trajectory.messages
    ]
    return _hash([trajectory.task, trajectory.tools or [], messages])


def key_under(criteria: str, content: str, reference: Any = None) -> str:
    """Key of a judgement by criteria of this hash. `content`: the `content_key`; `reference`: the answers that the judge reads."""
    return _hash([content, criteria, reference])


def _hash(value: Any) -> str:
    content = json.dumps(value, sort_keys=True, default=str)
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
    """Counts of a round's judgements; add up over rounds and processes."""

    counts: Counter[str] = field(default_factory=Counter)
    graded: list[tuple[float, float, float, float]] = field(default_factory=list)
    problem: str | None = None
    seconds: float = 0.0
    """Wall time spent judging, also while episodes were played."""

    def merge(self, other: JudgingReport) -> JudgingReport:
        counts = Counter(self.counts)
        counts.update(other.counts)
        return JudgingReport(
            counts, self.graded + other.graded, self.problem or other.problem, self.seconds + other.seconds
        )

    def figures(self) -> dict[str, float]:
        counts = self.counts
        if not any(counts.values()):
            return {}
        figures = {name: float(counts[name]) for name in SUMS}
        if counts["outside_n"]:  # of a judge that cannot say, a 0 would read as: all inside
            figures |= {"outside": float(counts["outside"]), "placed": float(counts["outside_n"])}
        figures |= {name: float(count) for name, count in counts.items() if name.startswith("failed_")}
        figures["failure_rate"] = counts["failed"] / max(counts["judged"], 1)
        for name in MEANS:
            if counts[f"{name}_n"]:
                figures[name] = counts[f"{name}_sum"] / counts[f"{name}_n"]
        return {f"feedback/{k}": v for k, v in figures.items()} | {"time/judge_s": self.seconds}


def _count(judgements: Sequence[Feedback], report: JudgingReport) -> None:
    for feedback in judgements:
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
        later: (update, judge) pairs, rising: who judges from that update on (`feedback.criteria` with stages).
    """

    def __init__(
        self, judge: AgentRRM, *, seed: int, record: Path | None = None, later: Sequence[tuple[int, AgentRRM]] = ()
    ) -> None:
        self.judge, self.seed, self.record = judge, seed, record
        self.known: dict[tuple[str, Mode], Feedback] = {}
        self._said: set[str] = set()
        self._later = [(first, Judging(other, seed=seed, record=record)) for first, other in later]
        for _, other in self._later:
            other.known, other._said = self.known, self._said  # what is asked is part of a judgement's key

    def at(self, update: int) -> Judging:
        """The judging of an update's stage; all share one memory."""
        return next((other for first, other in reversed(self._later) if first <= update), self)

    @property
    def criteria(self) -> list[str]:
        everyone = [self, *(other for _, other in self._later)]
        stages = [getattr(judging.judge, "criteria", None) for judging in everyone]
        return [criteria.hash for criteria in stages if criteria is not None]

    def resume(self, update: int) -> None:
        """Read back the judgements made before `update`, and drop the later ones from the record."""
        self.known.clear()
        if self.record is None or not self.record.is_file():
            return
        lines, paid, lost = [], list[Usage | None](), list[Usage | None]()
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
                lines.append(line + "\n")
                if feedback.status != "judge_error":
                    self.known[row["key"], row["mode"]] = feedback
        purse = getattr(self.judge, "purse", None)
        if purse is not None:
            if (spent := total_of(lost)) is not None:
                dropped.write_text(spent.model_dump_json(), encoding="ascii")
            purse.begin(total_of([*paid, *lost]), str(self.record))
        self.record.write_text("".join(lines), encoding="ascii")

    def ask(self, trajectories: Sequence[Trajectory], mode: Mode, update: int, report: JudgingReport) -> list[Feedback]:
        """One Feedback a trajectory; a failure is asked again only where the judge could not be reached."""
        keys = [self.key(t) for t in trajectories]
        fresh = {
            key: t.model_copy(update={"id": key})
            for key, t in zip(keys, trajectories, strict=True)
            if (key, mode) not in self.known
        }
        report.counts["judged"] += len(keys)
        if fresh:
            self._ask(fresh, mode, update, report)
        feedback = [
            self.known[key, mode].model_copy(update={"id": t.id}) for key, t in zip(keys, trajectories, strict=True)
        ]
        for key in set(keys):
            if self.known[key, mode].status == "judge_error":
                del self.known[key, mode]
        self._look_at(feedback, report)
        return feedback

    @property
    def sees_reference(self) -> bool:
        criteria = getattr(self.judge, "criteria", None)
        return criteria is not None and criteria.see_reference

    def key(self, trajectory: Trajectory) -> str:
        criteria, key = getattr(self.judge, "criteria", None), content_key(trajectory)
        if criteria is None:
            return key
        return key_under(criteria.hash, key, trajectory.meta.get("reference") if criteria.see_reference else None)

    def rank(self, groups: Sequence[Sequence[Trajectory]], update: int, report: JudgingReport) -> list[list[Feedback]]:
        """Relative scores within each group (`rrm.judge.rank`)."""
        from rrm.judge.rank import rank_groups

        keys = [[self.key(t) for t in group] for group in groups]
        names = [[f"{_hash(['rank', *sorted(group)])}-{key}" for key in group] for group in keys]
        cached = [all((name, "score") in self.known for name in group) for group in names]
        fresh = [i for i, is_cached in enumerate(cached) if not is_cached]
        report.counts["judged"] += sum(map(len, groups))
        if fresh:
            started = time.perf_counter()
            rankings = rank_groups(self.judge, [groups[i] for i in fresh], seed=self.seed)
            pairs = [
                pair
                for i, ranking in zip(fresh, rankings, strict=True)
                for pair in zip(names[i], ranking.feedback, strict=True)
            ]
            self._note(pairs, "score", update)
            report.counts["asked"] += len(pairs)
            report.counts["judge_tokens"] += sum(
                self.judge.count_tokens([t for i in fresh for t in groups[i]], "score")
            )
            report.seconds += time.perf_counter() - started
        judgements = [
            [self.known[name, "score"].model_copy(update={"id": t.id}) for name, t in zip(*pair, strict=True)]
            for pair in zip(names, groups, strict=True)
        ]
        for name in {name for group in names for name in group}:
            if self.known[name, "score"].status == "judge_error":
                del self.known[name, "score"]
        self._look_at([feedback for group in judgements for feedback in group], report)
        return judgements

    @contextmanager
    def ahead(self, mode: Mode, update: int, report: JudgingReport) -> Iterator[Callable[[Trajectory], None]]:
        """Judge trajectories given to the yielded function in a thread, where the judge is on a server."""
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

    def _look_at(self, judgements: Sequence[Feedback], report: JudgingReport) -> None:
        """Count failures and out-of-domain marks, and warn once of the latter."""
        _count(judgements, report)
        marks = [int(feedback.out_of_domain) for feedback in judgements if feedback.out_of_domain is not None]
        if any(marks) and "outside" not in self._said:
            self._said.add("outside")
            outside_of(marks)

    def _ask(self, fresh: Mapping[str, Trajectory], mode: Mode, update: int, report: JudgingReport) -> None:
        started = time.perf_counter()
        counters = getattr(self.judge.engine, "counters", None)
        before = counters.prefilled + counters.decoded if counters else 0
        judgements = self.judge.judge(list(fresh.values()), mode=mode, seed=self.seed)
        self._note(list(zip(fresh, judgements, strict=True)), mode, update)  # before anything else may fail
        if counters:
            tokens = counters.prefilled + counters.decoded - before
        else:
            written = sum((len(f.trace or "") + len(f.critique or "")) // CHARACTERS_PER_TOKEN for f in judgements)
            tokens = sum(self.judge.count_tokens(list(fresh.values()), mode)) + written
        report.counts["asked"] += len(judgements)
        report.counts["judge_tokens"] += tokens
        report.seconds += time.perf_counter() - started

    def _note(self, pairs: Sequence[tuple[str, Feedback]], mode: Mode, update: int) -> None:
        for key, feedback in pairs:
            self.known[key, mode] = feedback
        if self.record is not None:
            self.record.parent.mkdir(parents=True, exist_ok=True)
            with open(self.record, "a", encoding="ascii") as out:
                for key, feedback in pairs:
                    row = {"update": update, "key": key, "mode": mode, "feedback": feedback.model_dump()}
                    out.write(json.dumps(row) + "\n")
