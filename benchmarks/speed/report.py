"""How fast the HTML report is: opens a page of 10,000 transcripts in headless Chromium and works it.

    python -m benchmarks.speed.report [--rows 10000] [--data ../shared/data/transcripts] [--loads 3]

The transcripts are MINT's where the data folder is present, made from seeded words otherwise; the judgements are made up
(nothing here measures a judge). Chromium draws in software, without a GPU. What is measured, as medians over loads:
    first_list_ms    navigation start to the first frame that shows list rows
    load_ms          navigation start to the load event (all transcripts parsed by then)
    frame_*_ms       time between frames while the list scrolls by 400 pixels a frame, end to end of 300 frames
    script_*_ms      time the list itself takes of such a frame
    open_ms          opening a transcript whose block is still packed, to its first frame
    sort_ms          a change of order, to its first frame
    search_ms        a search through the text of all transcripts
    *_cpu_ms         processor time of the page's main thread: whole load, and per scrolled frame. It grows far
                     less than the others when the machine is busy with something else
Last line: one JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed.devtools import Chromium
from rrm.data.trajectory import Message, Trajectory
from rrm.report import write_report

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "transcripts"
JUDGE = {"model": "made-up", "prompt_version": "0", "mode": "full", "score_source": "expected"}
STATUSES = ("unparsable", "truncated", "too_long", "judge_error")

WATCH_FIRST_ROW = """
new MutationObserver((_, watch) => {
  if (!document.querySelector('.row')) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.firstList = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
AFTER_FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
SCROLL = """
new Promise(done => {
  const list = document.getElementById('list'), frames = [], scripts = [];
  let last = 0, n = 0;
  const tick = now => {
    if (last) frames.push(now - last);
    last = now;
    if (n++ === 300) return done({ frames, scripts });
    const start = performance.now();
    list.scrollTop = (n * 400) % (list.scrollHeight - list.clientHeight);
    list.dispatchEvent(new Event('scroll'));
    scripts.push(performance.now() - start);
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
})
"""
OPEN = """
(async () => {
  const start = performance.now();
  location.hash = '#~%d';
  while (!document.querySelector('.transcript')) await new Promise(next => setTimeout(next));
  await AFTER_FRAME;
  return performance.now() - start;
})()
""".replace("AFTER_FRAME", AFTER_FRAME)
SORT = f"""
(async () => {{
  const start = performance.now();
  document.querySelector('[data-sort=id]').click();
  await {AFTER_FRAME};
  return performance.now() - start;
}})()
"""
SEARCH = """
(async () => {
  const start = performance.now(), box = document.getElementById('search');
  box.value = 'the answer';
  box.dispatchEvent(new Event('input'));
  const tally = document.getElementById('tally');
  while (/searching/.test(tally.textContent)) await new Promise(next => setTimeout(next, 5));
  return [performance.now() - start, tally.textContent];
})()
"""


def mint(folder: Path) -> Iterator[Trajectory]:
    """MINT's transcripts, as they are stored."""
    for name in ("math", "hotpotqa", "gsm8k", "theoremqa"):
        with gzip.open(folder / "mint" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                yield Trajectory(id=row["id"], question_id=row["question_id"], messages=row["messages"])


def made_up(rng: random.Random) -> Iterator[Trajectory]:
    """Endless transcripts of random words, about as long as MINT's."""
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]

    def text(n: int) -> str:
        return " ".join(rng.choices(words, k=n))

    n = 0
    while True:
        messages = [Message(role="user", content=text(30))]
        for _ in range(rng.randint(2, 5)):
            messages += [Message(role="assistant", content=text(90)), Message(role="tool", content=text(80))]
        yield Trajectory(id=f"made-up-{n}", messages=messages)
        n += 1


def judged(
    trajectories: Iterator[Trajectory], rows: int, rng: random.Random
) -> Iterator[tuple[Trajectory, dict[str, Any]]]:
    """`rows` transcripts with made-up judgements; ids are numbered, so that none stands twice."""
    for n, trajectory in zip(range(rows), trajectories, strict=False):
        trajectory.id = f"{n}-{trajectory.id}"
        trajectory.outcome = float(rng.random() < 0.4)
        status = "scored" if rng.random() < 0.95 else rng.choice(STATUSES)
        score = rng.betavariate(2, 3) if status == "scored" else None
        findings = [
            {"step": step.index, "verdict": rng.choice(["good", "bad"]), "text": f"Made-up finding {rng.random():.3f}."}
            for step in trajectory.steps
            if rng.random() < 0.4
        ]
        critique = "\n".join(f"[step {f['step']}] {f['verdict']}: {f['text']}" for f in findings)
        row = {"id": trajectory.id, "status": status, "score": score, "raw_score": score, "reason": "made up"}
        yield trajectory, {**row, "critique": critique, "findings": findings, "judge": JUDGE}


def measure(page: Path, rows: int) -> tuple[dict[str, float], str]:
    """One load of the page in a fresh browser, worked from first frame to search; the numbers and the browser's version."""
    with Chromium(1280, 800) as browser:
        version = browser.send("Browser.getVersion")["product"]
        browser.send("Performance.enable", timeDomain="threadTicks")
        browser.send("Page.addScriptToEvaluateOnNewDocument", source=WATCH_FIRST_ROW)
        browser.open(page.as_uri())
        browser.wait("window.firstList")
        load = browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        first = browser.evaluate("window.firstList")
        loaded = main_thread_ms(browser)
        scroll = browser.evaluate(SCROLL)
        scrolled = main_thread_ms(browser)
        sort = browser.evaluate(SORT)
        opened = browser.evaluate(OPEN % (rows // 2))
        in_document = browser.evaluate("document.querySelectorAll('.row').length")
        browser.press("Escape")
        search, tally = browser.evaluate(SEARCH)
        if "of" not in tally:
            raise RuntimeError(f"the search did not end as expected: {tally!r}")
    frames, scripts = sorted(scroll["frames"]), sorted(scroll["scripts"])
    numbers = {
        "first_list_ms": first,
        "load_ms": load,
        "frame_median_ms": statistics.median(frames),
        "frame_p95_ms": frames[int(0.95 * len(frames))],
        "frame_max_ms": frames[-1],
        "frames_over_34ms": sum(frame > 34 for frame in frames),
        "script_median_ms": statistics.median(scripts),
        "script_p95_ms": scripts[int(0.95 * len(scripts))],
        "load_cpu_ms": loaded,
        "frame_cpu_ms": (scrolled - loaded) / len(frames),
        "open_ms": opened,
        "sort_ms": sort,
        "search_ms": search,
        "rows_in_document": in_document,
    }
    return numbers, version


def main_thread_ms(browser: Chromium) -> float:
    """Processor time the page's main thread has used, in milliseconds."""
    metrics = {m["name"]: m["value"] for m in browser.send("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"] * 1000


def main() -> None:
    """Make the page, load it `--loads` times, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--data", type=Path, default=DATA, help="folder that holds mint/*.jsonl.gz")
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "-o", "--output", type=Path, help="also write the result here, as benchmarks/results/report.json"
    )
    options = parser.parse_args()

    rng = random.Random(options.seed)
    real = (options.data / "mint").is_dir()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        start = time.perf_counter()
        write_report(judged(mint(options.data) if real else made_up(rng), options.rows, rng), page)
        written = time.perf_counter() - start
        measured = [measure(page, options.rows) for _ in range(options.loads)]
        size = page.stat().st_size
    runs, version = [numbers for numbers, _ in measured], measured[0][1]
    medians = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    for name, value in medians.items():
        print(f"{name:20} {value:10.2f}   {', '.join(f'{run[name]:.1f}' for run in runs)}")
    result = {
        "benchmark": "report",
        "command": f"python -m benchmarks.speed.report --rows {options.rows} --loads {options.loads} --seed {options.seed}",
        "commit": record.commit(),
        "seed": options.seed,
        "rows": options.rows,
        "transcripts": "mint" if real else "made up",
        "machine": f"{record.hardware()}, no GPU; load {os.getloadavg()[0]:.1f} at the end",
        "browser": version,
        "write_s": round(written, 2),
        "page_mb": round(size / 1e6, 2),
        **medians,
        "loads": [{name: round(value, 2) for name, value in run.items()} for run in runs],
    }
    if options.output:
        record.write(options.output, result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
