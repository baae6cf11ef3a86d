"""Progress of a run: a bar on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# logs every `PROGRESS_SECONDS` where no terminal shows a bar; the command line lets INFO through
progress_log = logging.getLogger("rrm.data.progress")
PROGRESS_SECONDS = 30.0
Readings = tuple[int, int]  # done, total
Show = Callable[[int, int, Readings, int], None]  # (rows judged, rows resumed, readings, failed)


@contextmanager
def progress_bar(total: int | None, show_progress: bool) -> Iterator[Show]:
    """Yield `show(judged, resumed, windows, failed)`: a bar where stderr is a terminal, else log lines."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    started = last_logged = time.monotonic()

    def pace(judged: int, resumed: int, windows: Readings, failed: int) -> str:
        rate = judged / max(time.monotonic() - started, 1e-9)  # resumed rows cost nothing and say nothing
        within = f", windows {windows[0]}/{windows[1]}" if windows[1] else ""
        apart = f", {failed} failed" if failed else ""
        return pace_text(rate, total, judged + resumed) + within + apart

    def say(judged: int, resumed: int, windows: Readings, failed: int) -> None:
        nonlocal last_logged
        if show_progress and time.monotonic() - last_logged >= PROGRESS_SECONDS:
            last_logged = time.monotonic()
            out_of = "" if total is None else f" of {total}"
            progress_log.info("judged %d%s, %s", judged + resumed, out_of, pace(judged, resumed, windows, failed))

    if not show_progress or not console.is_terminal:
        yield say
        return
    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("judging", total=total, pace="")

        def show(judged: int, resumed: int, windows: Readings, failed: int) -> None:
            bar.update(task, completed=judged + resumed, pace=pace(judged, resumed, windows, failed))

        yield show


def pace_text(rate: float, total: int | None, done: int) -> str:
    text = f"{rate:.1f}/s" if rate >= 1 else f"{rate * 60:.1f}/min"
    if total is None or rate <= 0:
        return text
    minutes, seconds = divmod(round(max(total - done, 0) / rate), 60)
    return f"{text}, {minutes // 60}:{minutes % 60:02d}:{seconds:02d} left"
