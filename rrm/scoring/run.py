"""The scoring run: transcripts in, one JSON line each out; append-only, resumable, nothing judged twice.

    OUT.jsonl             id, status, score, raw_score, trace, critique, findings, truncated_tokens, coverage, out_of_domain,
                          outside_distance, criteria, usage, judge, reason, source
    OUT.jsonl.run.json    what made the rows (judge, mode, samples, seed)
    OUT.jsonl.lock        locked while a run writes (`rrm.data.output`)

Each row is appended as soon as it is judged, so a killed run loses only what it was judging; once all are judged, rows stand in the order of
their inputs, however often the run was interrupted, and of whatever concurrency. What is held of a row are hashes (`rrm.scoring.ledger`). `source` carries a digest of the transcript: a changed transcript under an old id is noticed.
"""

from __future__ import annotations

import logging
import time
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from rrm.data.feedback import OUTSIDE, Feedback, Mode, Reads
from rrm.data.output import open_output
from rrm.data.progress import Readings, Show, progress_bar
from rrm.data.questions import question_of
from rrm.data.time_slices import beside, windows
from rrm.data.trajectory import Trajectory
from rrm.engines.cost import CostTracker
from rrm.errors import RRMError, ServerGone, SpendingLimit
from rrm.readers.unique import UniqueIds, key_of
from rrm.scoring.coverage import Coverage
from rrm.scoring.row_index import AGAIN, FAILED, RowIndex, failure_text
from rrm.scoring.unsupported_media import Unshown
from rrm.scoring.usage_totals import Spending

log = logging.getLogger(__name__)
GIVE_UP_TRUNCATED = 12
"""Rows after which a run stops whose replies were all cut off before their score: each is paid, and no later one would fare better."""


class ScoringJudge(Protocol):
    """What a scoring run needs of a judge (`rrm.judge.agent_rrm.AgentRRM` is one)."""

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = ...,
        samples: int = ...,
        seed: int = ...,
        on_feedback: Callable[[Feedback], None] | None = ...,
    ) -> list[Feedback]:
        """One Feedback per trajectory; `on_feedback` hears of each as soon as it is there."""
        ...

    def describe(self) -> dict[str, Any]:
        """What decides this judge's scores: `model`, `model_hash`, `prompt_version`, …"""
        ...

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = ...) -> list[Reads]:
        """What would be read of each transcript for so many judgements of it."""
        ...


@dataclass
class ScoreSummary:
    """What a run did; `rows == judged + resumed` is the number of inputs, unless it was stopped."""

    output: str
    rows: int = 0
    judged: int = 0
    resumed: int = 0
    """Rows that were in the output already."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Rows of each status, resumed ones included."""
    without_steps: int = 0
    """Inputs in which the agent never spoke: `unparsable`, no judge was asked."""
    first_error: str | None = None
    """Reason of the first `judge_error`, of this run or else of the rows that it resumed."""
    first_failure: str | None = None
    """Status and reason of the first row without a score, whatever its status, and what was read of it where that is little; of this run or
    else of the rows that it resumed."""
    coverage: dict[str, Any] | None = None
    """`Coverage.found` of the rows, scored or not, of this run and resumed ones alike: the share that was read, its `median`, and the `lowest`.
    Without those of which nothing was read and whose status says why. None where no row says."""
    unsupported_media: dict[str, Any] | None = None
    """`Unshown.found` of all rows: how many `transcripts` hold images or other parts that this judge is not shown, and the `parts` by kind."""
    out_of_domain: dict[str, int] | None = None
    """How many transcripts are `outside` what the judge was measured on, of how many `rows` that say; of this run and resumed ones
    alike. None where no row says."""
    unsure: dict[str, int] | None = None
    """How many `steps` the judge abstains on, of how many it `judged`, and why: `out_of_domain`, or `in_band` (p_good within its
    `unsure_band`). Of this run and resumed ones alike; None where it abstains on none."""
    criteria: dict[str, dict[str, float | int]] | None = None
    """By question: `mean` value of the rows with a score in which it has one, and how many these `rows` are; of this run and resumed
    ones alike. None without criteria."""
    usage: dict[str, Any] | None = None
    """What all rows of the output used of a server (`rrm.data.usage.Usage`), those of earlier runs included, each use once. None where
    no row says."""
    usage_now: dict[str, Any] | None = None
    """What this run's rows used."""
    score_sources: dict[str, int] | None = None
    """How many of this run's scores are `expected`, and how many `sampled`, where there are any."""
    left_out: dict[str, int] | None = None
    """Parameters that the server refused, each with how many of this run's rows it chose it for; None: none."""
    stopped: str | None = None
    """Why the run ended before its inputs did, and how to go on; None: it did not."""
    seconds: float = 0.0


def fingerprint_of(
    judge: ScoringJudge,
    *,
    mode: Mode = "full",
    samples: int = 1,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that decides the rows of `score_file`."""
    return {**judge.describe(), **(settings or {}), "mode": mode, "samples": samples, "seed": seed}


def score_file(
    judge: ScoringJudge,
    inputs: Iterable[Trajectory],
    output: str | Path,
    *,
    mode: Mode = "full",
    samples: int = 1,
    seed: int = 0,
    chunk_size: int = 256,
    overwrite: bool = False,
    retry_errors: bool | Collection[str] = False,
    settings: Mapping[str, Any] | None = None,
    total: int | None = None,
    progress: bool = True,
    give_up_after: int = 256,
    warn: bool = True,
) -> ScoreSummary:
    """Judge every input that `output` does not hold yet and append its row.

    Args:
        inputs: trajectories with unique ids, streamed; at most `chunk_size` are held at a time.
        chunk_size: largest window handed to the judge at once (it sorts a window by length).
        overwrite: start afresh, dropping the rows of an earlier run.
        retry_errors: judge rows again that have one of these statuses (the file is rewritten without them in the end); True: any that may
            bring a score then, `judge_error`, `unparsable` and `truncated`.
        settings: anything else that decides the scores (token budget, …), compared on resume.
        total: number of inputs where known, for the time left.
        progress: a progress bar on stderr where that is a terminal, else a line of the log every half minute.
        give_up_after: stop after so many `judge_error` rows in a row: the server is gone or refuses the key.
        warn: of inputs that hold no text alone, are read in part or are outside what the judge was measured on; a command that judges the same
            inputs several times says it once.

    Raises:
        RRMError: the output belongs to other settings or to a running process, holds damaged rows, a transcript
            changed under its id, an id occurs twice, or the judge keeps failing.
        ServerGone: the judge is behind an address where nobody answers any more; what was judged is kept, the rest has no row.
    """
    fingerprint = fingerprint_of(judge, mode=mode, samples=samples, seed=seed, settings=settings)
    summary, statuses, seen, keys = ScoreSummary(str(output)), Counter[str](), UniqueIds(), array("Q")
    resumed, unshown = (
        Counter[str](),
        Unshown(getattr(judge, "images", None) is not None),
    )  # apart: a server's inputs are read in a thread of their own
    started = time.monotonic()
    with ExitStack() as stack:
        again = AGAIN if retry_errors is True else frozenset(retry_errors or ())
        empty = (lambda row: row.get("status") in again) if again else None
        rows = stack.enter_context(open_output(Path(output), fingerprint, overwrite=overwrite, empty=empty))
        purse: CostTracker | None = getattr(judge, "purse", None)
        out = RowIndex(rows, again, Spending() if purse is None else Spending(purse.priced))
        if purse is not None:
            purse.begin(out.spending.total, str(output))
            stack.callback(lambda: out.spending.keep_unrowed(rows, purse.usage))  # after what a stop cancels
        stack.callback(out.tidy)
        show = stack.enter_context(progress_bar(total, progress))

        def unjudged() -> Iterator[Trajectory]:
            for trajectory in inputs:
                if trajectory.id in seen:
                    raise RRMError(f"the id {trajectory.id!r} occurs twice in the input; ids must be unique")
                seen.take(trajectory.id)
                keys.append(key_of(trajectory.id))
                summary.without_steps += not trajectory.steps
                unshown.add(trajectory)
                status = out.status_of(trajectory)
                if status is None:
                    yield trajectory
                else:
                    resumed[status] += 1
                    summary.resumed += 1
                    taking.cover(trajectory.id, status, out.coverage_of(trajectory))
                    taking.place(out.out_of_domain(trajectory), *out.verdicts_of(trajectory))
                    taking.answers.add(status, out.values_of(trajectory))

        abstains = fingerprint.get("out_of_domain") == "unsure"
        taking = RowWriter(out, summary, statuses, show, give_up_after, abstains)
        try:
            how: dict[str, Any] = {"mode": mode, "samples": samples, "seed": seed, "on_feedback": taking.take}
            how |= {"on_reading": taking.read} if getattr(judge, "tells_readings", False) else {}
            how |= {"stop_when_gone": True} if getattr(judge, "stops_when_gone", False) else {}
            streams = getattr(judge, "streams", None)
            if streams is not None and streams(mode):
                rows_in = beside(unjudged(), question_of, chunk_size)
                cast(Any, judge).judge_stream(taking.expecting(rows_in), **how)
                taking.settle()
            else:
                for window in windows(unjudged(), chunk_size):
                    taking.expect(window)
                    judge.judge(window, **how)
                    taking.settle()
            out.tell_strays(np.array(keys, dtype=np.uint64))
            out.put_in_order(np.array(keys, dtype=np.uint64))
        except SpendingLimit as limit:
            summary.stopped = str(limit)
        except ServerGone as gone:
            raise ServerGone(f"{gone}. {_to_go_on(summary, statuses[FAILED], total, output)}") from gone
        except KeyboardInterrupt:
            kept = summary.judged + summary.resumed
            log.warning(
                "interrupted: %d rows are kept in %s (%d of this run); run the same command again to go on",
                kept,
                output,
                summary.judged,
            )
            raise
        if set(resumed) - {"scored"}:  # why stands in the rows of an earlier run
            error, failure = out.first_reasons(seen)
            summary.first_error, summary.first_failure = summary.first_error or error, summary.first_failure or failure
    summary.rows = len(keys) if summary.stopped is None else summary.judged + summary.resumed
    summary.statuses = dict(sorted((statuses + resumed).items()))
    summary.usage, summary.usage_now = (
        None if usage is None else usage.model_dump() for usage in (out.spending.total, out.spending.now)
    )
    summary.coverage = taking.coverage.report(judge.describe(), judge) if warn else taking.coverage.found()
    summary.unsupported_media = unshown.report() if warn else unshown.found()
    summary.out_of_domain = outside_of(taking.marks, warn=warn)
    summary.unsure = unsure_of(taking.verdicts, warn=warn)
    summary.criteria = taking.answers.means()
    summary.left_out, summary.score_sources = dict(taking.left_out) or None, dict(taking.sources) or None
    if warn and len(taking.sources) > 1:
        log.warning(
            "%d scores are expectations over the grid and %d the numbers that the model wrote (judge.score_source): they differ in spread",
            taking.sources["expected"],
            taking.sources["sampled"],
        )
    summary.seconds = round(time.monotonic() - started, 3)
    return summary


def _to_go_on(summary: ScoreSummary, failed: int, total: int | None, output: str | Path) -> str:
    """What stands where a server went away in the middle of a run, failed rows apart, and how to go on."""
    rows, of = summary.judged + summary.resumed, "" if total is None else f" of {total}"
    apart = f", {failed} of them judge_error, which --retry-errors judges again" if failed else ""
    kept = (
        f"{rows}{of} rows are kept in {output} ({summary.judged} of this run{apart})" if rows else "nothing was judged"
    )
    return f"{kept}; once it answers, run the same command again to go on"


def outside_of(marks: Sequence[int], *, warn: bool = True) -> dict[str, int] | None:
    """The summary of `outside`; warns where there are any. None for no row."""
    if not marks:
        return None
    outside = sum(marks)
    if outside and warn:
        log.warning(
            "%d of %d transcripts are %s: their format, tools or length are unlike its training data, so neither its accuracy nor "
            "its calibration is known there; measure it on labelled ones of yours with rrm eval",
            outside,
            len(marks),
            OUTSIDE,
        )
    return {"outside": outside, "rows": len(marks)}


def unsure_of(verdicts: Mapping[str, int], *, warn: bool = True) -> dict[str, int] | None:
    """The summary of `unsure`; warns where there are any. None for none."""
    unsure = verdicts["out_of_domain"] + verdicts["in_band"]
    if not unsure:
        return None
    if warn:
        reasons = {
            "out_of_domain": f"in transcripts {OUTSIDE} (--out-of-domain keep gives their verdicts)",
            "in_band": "with a probability within the judge's unsure_band",
        }
        why = ", ".join(f"{verdicts[name]} {said}" for name, said in reasons.items() if verdicts[name])
        log.warning("%d of %d steps are unsure, neither good nor bad: %s", unsure, verdicts["judged"], why)
    return {"steps": unsure, **{name: verdicts[name] for name in ("judged", "out_of_domain", "in_band")}}


class CriteriaSummary:
    """Sums up the answers to criteria."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}

    def add(self, status: str, values: Mapping[str, float | None] | None) -> None:
        """Count one row's values; of a row without a score none."""
        if status != "scored" or values is None:
            return
        for name, value in values.items():
            total, rows = self._sums.get(name, (0.0, 0))
            self._sums[name] = (total, rows) if value is None else (total + value, rows + 1)

    def means(self) -> dict[str, dict[str, float | int]] | None:
        """What the summary says; a question that has a value nowhere has no mean."""
        told: dict[str, dict[str, float | int]] = {
            name: {"mean": round(total / rows, 4), "rows": rows} if rows else {"rows": 0}
            for name, (total, rows) in self._sums.items()
        }
        return told or None


class RowWriter:
    """Takes a window's feedback as it comes: matched by id, written, counted, shown; stops where nothing answers any more."""

    def __init__(
        self,
        out: RowIndex,
        summary: ScoreSummary,
        statuses: Counter[str],
        show: Show,
        give_up_after: int,
        abstains: bool,
    ) -> None:
        """`abstains`: whether the judge does so outside what it was measured on."""
        self.abstains = abstains
        self.out, self.summary, self.statuses, self.show = out, summary, statuses, show
        self.give_up_after, self.failing = give_up_after, 0
        self.waiting: dict[str, Trajectory] = {}
        self.coverage = Coverage()
        """Of all rows but those without a score of which nothing was read."""
        self.marks = bytearray()
        """Whether a row is outside what the judge was measured on, of the rows that say."""
        self.verdicts = Counter[str]()
        """Steps `judged`, and those that the judge abstains on, by why."""
        self.left_out, self.sources = Counter[str](), Counter[str]()
        self.scored = False
        """Whether any row has a score, of this run and of resumed ones."""
        self.answers = CriteriaSummary()
        self.readings: dict[str, Readings] = {}
        """Of the transcripts under way that take several."""

    def cover(self, id: str, status: str, coverage: float | None) -> None:
        """Note what was read for a row. Where that is nothing and there is no score, the status says why: no larger budget would mend it."""
        self.scored |= status == "scored"
        if coverage is not None and (coverage > 0 or status == "scored"):
            self.coverage.add(id, coverage)

    def place(self, out_of_domain: bool | None, findings: int, unsure: int) -> None:
        """Note whether a row is outside what the judge was measured on, and how many of its findings are unsure."""
        if out_of_domain is not None:
            self.marks.append(out_of_domain)
        self.verdicts["judged"] += findings
        self.verdicts["out_of_domain" if out_of_domain and self.abstains else "in_band"] += unsure

    def expect(self, window: Sequence[Trajectory]) -> None:
        """The transcripts whose feedback comes next."""
        self.waiting = {t.id: t for t in window}

    def expecting(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """The transcripts, each expected from when it is handed over."""
        for trajectory in trajectories:
            self.waiting[trajectory.id] = trajectory
            yield trajectory

    def read(self, id: str, readings: int) -> None:
        """Count a reading of a transcript that takes so many."""
        self.readings[id] = (self.readings.get(id, (0, 0))[0] + 1, readings)
        self._show()

    def _show(self) -> None:
        under_way = list(self.readings.values())
        windows = sum(done for done, _ in under_way), sum(of for _, of in under_way)
        self.show(self.summary.judged, self.summary.resumed, windows, self.statuses[FAILED])

    def take(self, feedback: Feedback) -> None:
        """Write one row."""
        trajectory = self.waiting.pop(feedback.id, None)
        if trajectory is None:
            raise RRMError(f"the judge returned a row for {feedback.id!r}, which it was not asked about (any more)")
        self.readings.pop(feedback.id, None)
        self.out.append(feedback, trajectory)
        self.summary.judged += 1
        self.statuses[feedback.status] += 1
        self.cover(feedback.id, feedback.status, feedback.coverage)
        verdicts = [finding.verdict for finding in feedback.findings]
        self.place(feedback.out_of_domain, len(verdicts), verdicts.count("unsure"))
        for name in feedback.judge.left_out or ():
            self.left_out[name] += 1
        if feedback.score is not None and feedback.judge.score_source:
            self.sources[feedback.judge.score_source] += 1
        answers = feedback.criteria
        self.answers.add(feedback.status, None if answers is None else {name: a.value for name, a in answers.items()})
        if feedback.score is None and self.summary.first_failure is None:
            self.summary.first_failure = failure_text(feedback.status, feedback.reason, feedback.coverage)
        self.failing = self.failing + 1 if feedback.status == FAILED else 0
        if self.failing:
            self.summary.first_error = self.summary.first_error or feedback.reason
        self._show()
        if not self.scored and self.statuses["truncated"] == self.summary.judged >= GIVE_UP_TRUNCATED:
            raise RRMError(
                f"the first {self.summary.judged} replies all ended before their score ({feedback.reason}), and so would the others: raise "
                "--thinking-tokens where the model thinks first (4000, say), else --max-new-tokens, or lower --reasoning-effort, and run the "
                "command with --retry-errors; what was judged is kept"
            )
        if self.failing >= self.give_up_after:
            raise RRMError(
                f"the last {self.failing} transcripts all ended in judge_error: {feedback.reason}. Once that is "
                "mended, run the same command with --retry-errors; what was judged is kept"
            )

    def settle(self) -> None:
        """Check that nothing was lost."""
        if self.waiting:
            raise RRMError(
                f"the judge returned no row for {len(self.waiting)} transcripts; missing: {list(self.waiting)[:5]}"
            )
