"""The scoring run: transcripts in, one JSON line each out, appended as judged, sorted in the end.

OUT.jsonl             rows: a `Feedback`, and `source` with the transcript's digest, which shows changed content
OUT.jsonl.run.json    what made the rows (judge, mode, samples, seed)
OUT.jsonl.lock        locked while a run writes (`rrm.data.output`)
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from rrm.data.feedback import OUTSIDE, Feedback, Mode, Reads, read_feedback
from rrm.data.output import RowFile
from rrm.data.progress import Readings, Show, progress_bar
from rrm.data.questions import question_of
from rrm.data.time_slices import beside, windows
from rrm.data.trajectory import Trajectory
from rrm.engines.cost import CostTracker
from rrm.errors import RRMError, ServerGone, SpendingLimit
from rrm.scoring.coverage import Coverage
from rrm.scoring.row_index import AGAIN, FAILED, RowFacts, RowIndex, failure_text
from rrm.scoring.unsupported_media import Unshown
from rrm.scoring.usage_totals import Spending

log = logging.getLogger(__name__)
# replies cut off before their score, and no others, after which a run stops: later ones would be cut too
GIVE_UP_TRUNCATED = 12


class ScoringJudge(Protocol):
    """Protocol of the judge that a run asks (`rrm.judge.agent_rrm.AgentRRM`)."""

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = ...,
        samples: int = ...,
        seed: int = ...,
        on_feedback: Callable[[Feedback], None] | None = ...,
    ) -> list[Feedback]:
        """Return one Feedback per trajectory; `on_feedback` gets each as soon as it is there."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return what decides the scores: `model`, `model_hash`, `prompt_version`, …"""
        ...

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = ...) -> list[Reads]:
        """Return what would be read of each transcript for so many judgements."""
        ...


@dataclass
class ScoreSummary:
    """Counts of a run; `rows == judged + resumed`: all inputs, unless it was stopped."""

    output: str
    rows: int = 0
    judged: int = 0
    resumed: int = 0  # rows of earlier runs
    statuses: dict[str, int] = field(default_factory=dict)  # of all rows, resumed ones included
    without_steps: int = 0  # inputs in which the agent never spoke: `unparsable`, not judged
    first_error: str | None = None  # reason of the first `judge_error`, of this run or else of resumed rows
    first_failure: str | None = None
    """Status, reason, low coverage of the first row without a score, of this run or else of resumed rows."""
    coverage: dict[str, Any] | None = None
    """`Coverage.found()` of all rows but unscored ones of which nothing was read; None: no row says."""
    unsupported_media: dict[str, Any] | None = None  # `Unshown.found()` of all inputs
    out_of_domain: dict[str, int] | None = None
    """Rows `outside` what the judge was measured on, of all `rows` that say; None: no row says."""
    unsure: dict[str, int] | None = None
    """The judge abstains on `steps` of `judged`: `out_of_domain`, or `in_band` (p_good in `unsure_band`)."""
    criteria: dict[str, dict[str, float | int]] | None = None
    """Question → `mean` value over scored rows that have one, and their count `rows`; None: no criteria."""
    usage: dict[str, Any] | None = None
    """`rrm.data.usage.Usage` of all rows, resumed ones included, each use once; None: no row says."""
    usage_now: dict[str, Any] | None = None  # of this run's rows
    score_sources: dict[str, int] | None = None  # this run's scores that are `expected` and `sampled`
    left_out: dict[str, int] | None = None  # parameter that the server refused → this run's rows
    stopped: str | None = None  # why the run ended early, and how to go on
    seconds: float = 0.0


def fingerprint_of(
    judge: ScoringJudge,
    *,
    mode: Mode = "full",
    samples: int = 1,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
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
    """Judge every input that `output` does not hold yet, and append its row.

    Args:
        inputs: trajectories with unique ids, streamed.
        chunk_size: most trajectories held, and handed to the judge (which sorts them by length), at once.
        overwrite: drop the rows of an earlier run.
        retry_errors: statuses whose rows are judged again (and dropped in the end); True: those of `AGAIN`.
        settings: anything else that decides the scores (token budget, …), compared on resume.
        total: number of inputs, for the time left.
        progress: a bar on a terminal, else a line of the log every half minute.
        give_up_after: stop after so many `judge_error` rows in a row.
        warn: log warnings of media, coverage and domain.

    Raises:
        RRMError: other settings, a running process, damaged rows, changed content, an id twice, or all judgements fail.
        ServerGone: the judge's server answers no more; what was judged is kept.
    """
    fingerprint = fingerprint_of(judge, mode=mode, samples=samples, seed=seed, settings=settings)
    summary, statuses, ids = ScoreSummary(str(output)), Counter[str](), dict[str, None]()
    resumed = Counter[str]()  # apart: a server's inputs are read in a thread of their own
    unshown = Unshown(getattr(judge, "images", None) is not None)
    started = time.monotonic()
    with ExitStack() as stack:
        again = AGAIN if retry_errors is True else frozenset(retry_errors or ())
        empty = (lambda row: row.get("status") in again) if again else None
        rows = stack.enter_context(RowFile.open(Path(output), fingerprint, overwrite=overwrite, empty=empty))
        purse: CostTracker | None = getattr(judge, "purse", None)
        out = RowIndex(rows, again, Spending() if purse is None else Spending(purse.priced))
        if purse is not None:
            purse.begin(out.spending.total, str(output))
            stack.callback(lambda: out.spending.keep_unrowed(rows, purse.usage))  # after what a stop cancels
        stack.callback(out.tidy)
        show = stack.enter_context(progress_bar(total, progress))

        def unjudged() -> Iterator[Trajectory]:
            for trajectory in inputs:
                if trajectory.id in ids:
                    raise RRMError(f"the id {trajectory.id!r} occurs twice in the input; ids must be unique")
                ids[trajectory.id] = None
                summary.without_steps += not trajectory.steps
                unshown.add(trajectory)
                row = out.find(trajectory)
                if row is None:
                    yield trajectory
                else:
                    resumed[row.status] += 1
                    summary.resumed += 1
                    taking.note(trajectory.id, row)

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
            out.tell_strays(ids)
            out.put_in_order(ids)
        except SpendingLimit as limit:
            summary.stopped = str(limit)
        except ServerGone as gone:
            raise ServerGone(f"{gone}. {_to_go_on(summary, statuses[FAILED], total, output)}") from gone
        except KeyboardInterrupt:
            done = summary.judged + summary.resumed
            log.warning(
                "interrupted: %d rows are kept in %s (%d of this run); run the same command again to go on",
                done,
                output,
                summary.judged,
            )
            raise
        if set(resumed) - {"scored"}:  # why stands in the rows of an earlier run
            error, failure = out.first_reasons(ids)
            summary.first_error, summary.first_failure = summary.first_error or error, summary.first_failure or failure
    summary.rows = len(ids) if summary.stopped is None else summary.judged + summary.resumed
    summary.statuses = dict(sorted((statuses + resumed).items()))
    summary.usage, summary.usage_now = (
        None if usage is None else usage.model_dump() for usage in (out.spending.total, out.spending.now)
    )
    summary.coverage = taking.coverage.report(judge.describe(), judge) if warn else taking.coverage.found()
    summary.unsupported_media = unshown.report() if warn else unshown.found()
    summary.out_of_domain = outside_of(taking.marks, warn=warn)
    summary.unsure = unsure_of(taking.verdicts, warn=warn)
    summary.criteria = taking.means() or None
    summary.left_out, summary.score_sources = dict(taking.left_out) or None, dict(taking.sources) or None
    if warn and len(taking.sources) > 1:
        log.warning(
            "%d scores are expectations over the grid and %d the numbers that the model wrote (judge.score_source): they differ in spread",
            taking.sources["expected"],
            taking.sources["sampled"],
        )
    summary.seconds = round(time.monotonic() - started, 3)
    return summary


def judge_into(path: Path, judge: ScoringJudge, rows: Sequence[Trajectory], **how: Any) -> list[Feedback]:
    """Judge rows through a resumable file; raises as `score_file`, and `SpendingLimit`."""
    done = score_file(judge, rows, path, total=len(rows), retry_errors=(FAILED,), **how)
    if done.stopped is not None:
        raise SpendingLimit(f"{path}: {done.stopped}")
    by_id = {feedback.id: feedback for feedback in read_feedback(path)}
    return [by_id[t.id] for t in rows]


def _to_go_on(summary: ScoreSummary, failed: int, total: int | None, output: str | Path) -> str:
    """Describe what a run whose server went away has kept, and how to go on."""
    rows, of_total = summary.judged + summary.resumed, "" if total is None else f" of {total}"
    apart = f", {failed} of them judge_error, which --retry-errors judges again" if failed else ""
    progress = (
        f"{rows}{of_total} rows are kept in {output} ({summary.judged} of this run{apart})"
        if rows
        else "nothing was judged"
    )
    return f"{progress}; once it answers, run the same command again to go on"


def outside_of(marks: Sequence[int], *, warn: bool = True) -> dict[str, int] | None:
    """Summarise `outside`, with a warning; None: no row says."""
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
    """Summarise `unsure`, with a warning; None: no step is."""
    unsure = verdicts["out_of_domain"] + verdicts["in_band"]
    if not unsure:
        return None
    if warn:
        reasons = {
            "out_of_domain": f"in transcripts {OUTSIDE} (--out-of-domain keep gives their verdicts)",
            "in_band": "with a probability within the judge's unsure_band",
        }
        why = ", ".join(f"{verdicts[name]} {text}" for name, text in reasons.items() if verdicts[name])
        log.warning("%d of %d steps are unsure, neither good nor bad: %s", unsure, verdicts["judged"], why)
    return {"steps": unsure, **{name: verdicts[name] for name in ("judged", "out_of_domain", "in_band")}}


class RowWriter:
    """Writes and counts feedback as it comes; stops the run where the judge keeps failing."""

    def __init__(
        self,
        out: RowIndex,
        summary: ScoreSummary,
        statuses: Counter[str],
        show: Show,
        give_up_after: int,
        abstains: bool,
    ) -> None:
        self.abstains = abstains  # outside what it was measured on, the judge says `unsure`
        self.out, self.summary, self.statuses, self.show = out, summary, statuses, show
        self.give_up_after, self.failing = give_up_after, 0
        self.waiting: dict[str, Trajectory] = {}
        self.coverage = Coverage()  # of all rows but unscored ones of which nothing was read
        self.marks = bytearray()  # a flag for each row that says: outside what the judge was measured on
        self.verdicts = Counter[str]()  # steps `judged`, and those abstained on by reason
        self.left_out, self.sources = Counter[str](), Counter[str]()
        self.scored = False  # any row has a score, resumed ones included
        # question of the criteria → sum of values and count, of scored rows
        self.answers: dict[str, tuple[float, int]] = {}
        self.readings: dict[str, Readings] = {}  # of transcripts under way that take several

    def note(self, id: str, row: RowFacts) -> None:
        """Count a row of any run; the coverage leaves out unscored ones of which nothing was read."""
        scored = row.status == "scored"
        self.scored |= scored
        if row.coverage is not None and (row.coverage > 0 or scored):
            self.coverage.add(id, row.coverage)
        if row.out_of_domain is not None:
            self.marks.append(row.out_of_domain)
        self.verdicts["judged"] += row.findings
        self.verdicts["out_of_domain" if row.out_of_domain and self.abstains else "in_band"] += row.unsure
        for name, value in ((row.values or {}) if scored else {}).items():
            total, rows = self.answers.get(name, (0.0, 0))
            self.answers[name] = (total, rows) if value is None else (total + value, rows + 1)

    def means(self) -> dict[str, dict[str, float | int]]:
        return {
            name: {"mean": round(total / rows, 4), "rows": rows} if rows else {"rows": 0}
            for name, (total, rows) in self.answers.items()
        }

    def expect(self, window: Sequence[Trajectory]) -> None:
        self.waiting = {t.id: t for t in window}

    def expecting(self, trajectories: Iterable[Trajectory]) -> Iterator[Trajectory]:
        """Pass transcripts through, each expected once it is handed over."""
        for trajectory in trajectories:
            self.waiting[trajectory.id] = trajectory
            yield trajectory

    def read(self, id: str, readings: int) -> None:
        """Count one of `readings` that a transcript takes."""
        self.readings[id] = (self.readings.get(id, (0, 0))[0] + 1, readings)
        self._show()

    def _show(self) -> None:
        under_way = list(self.readings.values())
        windows = sum(done for done, _ in under_way), sum(total for _, total in under_way)
        self.show(self.summary.judged, self.summary.resumed, windows, self.statuses[FAILED])

    def take(self, feedback: Feedback) -> None:
        trajectory = self.waiting.pop(feedback.id, None)
        if trajectory is None:
            raise RRMError(f"the judge returned a row for {feedback.id!r}, which it was not asked about (any more)")
        self.readings.pop(feedback.id, None)
        self.note(feedback.id, self.out.append(feedback, trajectory))
        self.summary.judged += 1
        self.statuses[feedback.status] += 1
        for name in feedback.judge.left_out or ():
            self.left_out[name] += 1
        if feedback.score is not None and feedback.judge.score_source:
            self.sources[feedback.judge.score_source] += 1
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
        if self.waiting:
            raise RRMError(
                f"the judge returned no row for {len(self.waiting)} transcripts; missing: {list(self.waiting)[:5]}"
            )
