"""The scoring run: transcripts in, one JSON line each out; append-only, resumable, nothing judged twice.

    OUT.jsonl             id, status, score, raw_score, trace, critique, findings, truncated_tokens, judge, reason, source
    OUT.jsonl.run.json    what made the rows (judge, mode, samples, seed)
    OUT.jsonl.lock        locked while a run writes (`rrm.output`)

Rows are appended a window at a time, so a killed run loses at most the window it was judging, which was not written.
`source` carries a digest of the transcript: a changed transcript under an old id is noticed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rrm.errors import RRMError
from rrm.feedback import Feedback, Mode
from rrm.output import WAY_OUT, Output, open_output
from rrm.trajectory import Trajectory

log = logging.getLogger(__name__)
FIRST_WINDOW = 32
"""Transcripts in the first window, until it is known how fast the judge is."""
WINDOW_SECONDS = 60.0
"""What a window should take: work a kill may cost, and how often progress is written."""


class Judge(Protocol):
    """What a scoring run needs of a judge (`rrm.judge.agent_rrm.AgentRRM` is one)."""

    def judge(
        self, trajectories: Sequence[Trajectory], *, mode: Mode = ..., samples: int = ..., seed: int = ...
    ) -> list[Feedback]:
        """One Feedback per trajectory."""
        ...

    def describe(self) -> dict[str, Any]:
        """What decides this judge's scores: `model`, `model_hash`, `prompt_version`, …"""
        ...

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: Mode) -> list[int]:
        """Prompt tokens of each transcript."""
        ...


@dataclass
class ScoreSummary:
    """What a run did; `rows == judged + resumed` is the number of inputs."""

    output: str
    rows: int = 0
    judged: int = 0
    resumed: int = 0
    """Rows that were in the output already."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Rows of each status, resumed ones included."""
    first_error: str | None = None
    """Reason of the first `judge_error` met in this run."""
    seconds: float = 0.0


def score_file(
    judge: Judge,
    inputs: Iterable[Trajectory],
    output: str | Path,
    *,
    mode: Mode = "full",
    samples: int = 1,
    seed: int = 0,
    chunk_size: int = 256,
    overwrite: bool = False,
    retry_errors: bool = False,
    settings: Mapping[str, Any] | None = None,
    total: int | None = None,
    progress: bool = True,
    give_up_after: int = 256,
) -> ScoreSummary:
    """Judge every input that `output` does not hold yet and append its row.

    Args:
        inputs: trajectories with unique ids, streamed; at most `chunk_size` are held at a time.
        chunk_size: largest window handed to the judge at once (it sorts a window by length).
        overwrite: start afresh, dropping the rows of an earlier run.
        retry_errors: judge rows with status `judge_error` again (the file is rewritten without them first).
        settings: anything else that decides the scores (token budget, …), compared on resume.
        total: number of inputs where known, for the time left.
        progress: show a progress bar on stderr where that is a terminal.
        give_up_after: stop after so many `judge_error` rows in a row: the server is gone or refuses the key.

    Raises:
        RRMError: the output belongs to other settings or to a running process, holds damaged rows, a transcript
            changed under its id, an id occurs twice, or the judge keeps failing.
    """
    fingerprint = {**judge.describe(), **(settings or {}), "mode": mode, "samples": samples, "seed": seed}
    summary, statuses, seen = ScoreSummary(str(output)), Counter[str](), set[str]()
    started, failing = time.monotonic(), 0
    with ExitStack() as stack:
        out = Judged(stack.enter_context(open_output(Path(output), fingerprint, overwrite=overwrite)), retry_errors)
        show = stack.enter_context(progress_bar(total, progress))

        def unjudged() -> Iterator[Trajectory]:
            for trajectory in inputs:
                if trajectory.id in seen:
                    raise RRMError(f"the id {trajectory.id!r} occurs twice in the input; ids must be unique")
                seen.add(trajectory.id)
                status = out.status_of(trajectory)
                if status is None:
                    yield trajectory
                else:
                    statuses[status] += 1
                    summary.resumed += 1

        for window in windows(unjudged(), chunk_size):
            rows = _judge_window(judge, window, mode, samples, seed)
            out.append(rows)
            summary.judged += len(rows)
            for row in rows:
                statuses[row["status"]] += 1
                failing = failing + 1 if row["status"] == "judge_error" else 0
                if failing and summary.first_error is None:
                    summary.first_error = row["reason"]
            show(summary.judged, summary.resumed)
            if failing >= give_up_after:
                raise RRMError(
                    f"the last {failing} transcripts all ended in judge_error: {rows[-1]['reason']}. Once that is "
                    "mended, run the same command with --retry-errors; what was judged is kept"
                )
    summary.rows, summary.statuses = len(seen), dict(sorted(statuses.items()))
    summary.seconds = round(time.monotonic() - started, 3)
    return summary


def windows(items: Iterable[Trajectory], largest: int) -> Iterator[list[Trajectory]]:
    """Lists of consecutive items, sized after the time the caller took for the one before (about a minute each)."""
    window: list[Trajectory] = []
    size = min(FIRST_WINDOW, largest)
    for item in items:
        window.append(item)
        if len(window) == size:
            started = time.monotonic()
            yield window
            factor = WINDOW_SECONDS / max(time.monotonic() - started, 1e-3)
            size, window = max(1, min(largest, int(size * min(factor, 4.0)))), []
    if window:
        yield window


def _judge_window(judge: Judge, window: list[Trajectory], mode: Mode, samples: int, seed: int) -> list[dict[str, Any]]:
    """Rows of one window in its order, matched by id."""
    feedback = {f.id: f for f in judge.judge(window, mode=mode, samples=samples, seed=seed)}
    lost = [t.id for t in window if t.id not in feedback]
    if lost or len(feedback) != len(window):
        raise RRMError(f"the judge returned {len(feedback)} rows for {len(window)} transcripts; missing: {lost[:5]}")
    return [to_row(feedback[t.id], t) for t in window]


def to_row(feedback: Feedback, trajectory: Trajectory) -> dict[str, Any]:
    """An output row: the feedback, and where its transcript came from."""
    source = trajectory.source.model_dump() if trajectory.source else {}
    return {**feedback.model_dump(), "source": {**source, "digest": trajectory.digest}}


class Judged:
    """The rows an output holds, by id, and an append to them."""

    def __init__(self, output: Output, retry_errors: bool) -> None:
        """Read the rows that stand; `retry_errors` drops those with status `judge_error` from the file.

        Raises:
            RRMError: a line that is no row of a scoring run, or a second one of an id.
        """
        self._output, self._done = output, dict[str, tuple[str, str]]()
        """id → (status, digest)."""
        for number, row in output.rows():
            try:
                key, value = row["id"], (row["status"], row["source"]["digest"])
            except (KeyError, TypeError) as error:
                raise RRMError(f"{output.path}:{number}: not a row of `rrm score`; {WAY_OUT}") from error
            if key in self._done:
                raise RRMError(f"{output.path}:{number}: a second row of {key!r}; {WAY_OUT}")
            self._done[key] = value
        failed = {key for key, (status, _) in self._done.items() if status == "judge_error"}
        if retry_errors and failed:
            output.keep(lambda row: row["id"] not in failed)
            self._done = {key: value for key, value in self._done.items() if key not in failed}
            log.warning("%s: %d transcripts that ended in judge_error are judged again", output.path, len(failed))

    def status_of(self, trajectory: Trajectory) -> str | None:
        """The status of a trajectory's row, None where it has none yet.

        Raises:
            RRMError: the row is of other content.
        """
        if trajectory.id not in self._done:
            return None
        status, known = self._done[trajectory.id]
        if known != trajectory.digest:
            raise RRMError(
                f"{self._output.path} holds a judgement of {trajectory.id!r}, but that transcript has changed since; "
                f"{WAY_OUT}"
            )
        return status

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Append rows, which a kill does not undo."""
        self._output.append(rows)


@contextmanager
def progress_bar(total: int | None, wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """Yields `show(judged, resumed)`: a bar with rate and time left on stderr, nothing where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not wanted or not console.is_terminal:
        yield lambda judged, resumed: None
        return
    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
    started = time.monotonic()
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("judging", total=total, pace="")

        def show(judged: int, resumed: int) -> None:
            rate = judged / max(time.monotonic() - started, 1e-9)  # resumed rows cost nothing and say nothing
            bar.update(task, completed=judged + resumed, pace=pace_text(rate, total, judged + resumed))

        yield show


def pace_text(rate: float, total: int | None, done: int) -> str:
    """`3.2/s, 0:05:12 left`."""
    text = f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"
    if total is None or rate <= 0:
        return text
    minutes, seconds = divmod(round(max(total - done, 0) / rate), 60)
    return f"{text}, {minutes // 60}:{minutes % 60:02d}:{seconds:02d} left"
