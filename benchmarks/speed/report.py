"""How fast the HTML report is: opens a page of 10,000 transcripts in headless Chromium and works it.

    python -m benchmarks.speed.report [--rows 10000] [--loads 3] -o benchmarks/results/report.json

The transcripts are made of seeded words, the judgements are made up (nothing here measures a judge). Chromium draws in software, without a GPU. What is measured, as medians over loads:
    first_list_ms    navigation start to the first frame that shows list rows
    load_ms          navigation start to the load event (all transcripts parsed by then)
    frame_*_ms       time between frames while the list scrolls by 400 pixels a frame, end to end of 300 frames
    script_*_ms      time the list itself takes of such a frame
    search_ms        a search through the text of all transcripts
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed.devtools import Chromium
from benchmarks.speed.harness import finish, made, timed
from benchmarks.speed.steps import log
from rrm.data.trajectory import Trajectory
from rrm.report import write_report

JUDGE = {"model": "made-up", "prompt_version": "0", "mode": "full", "score_source": "expected"}
STATUSES = ("unparsable", "truncated", "too_long", "judge_error")

WATCH_FIRST_ROW = """
new MutationObserver((_, watch) => {
  if (!document.querySelector('.row')) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => { window.firstList = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
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
SEARCH = """
(async () => {
  const start = performance.now(), box = document.getElementById('search');
  box.value = 'result field';
  box.dispatchEvent(new Event('input'));
  const tally = document.getElementById('tally');
  while (/searching/.test(tally.textContent)) await new Promise(next => setTimeout(next, 5));
  return [performance.now() - start, tally.textContent];
})()
"""


def judged(rows: int, rng: random.Random) -> Iterator[tuple[Trajectory, dict[str, Any]]]:
    """`rows` transcripts of a few hundred words with made-up judgements."""
    for n in range(rows):
        trajectory = log(rng.randint(200, 900), n).model_copy(update={"outcome": float(rng.random() < 0.4)})
        status = "scored" if rng.random() < 0.95 else rng.choice(STATUSES)
        score = rng.betavariate(2, 3) if status == "scored" else None
        steps = [step.index for step in trajectory.steps if rng.random() < 0.4]
        verdicts = [(k, rng.choice(["good", "bad"])) for k in steps]
        findings = [{"step": k, "verdict": v, "text": f"Finding {rng.random()}."} for k, v in verdicts]
        critique = "\n".join(f"[step {f['step']}] {f['verdict']}: {f['text']}" for f in findings)
        row = {"id": trajectory.id, "status": status, "score": score, "raw_score": score, "reason": "made up"}
        yield trajectory, {**row, "critique": critique, "findings": findings, "judge": JUDGE}


def measure(page: Path) -> tuple[dict[str, float], str]:
    """One load of the page in a fresh browser, worked from first frame to search; the numbers and the browser's version."""
    with Chromium(1280, 800) as browser:
        version = browser.send("Browser.getVersion")["product"]
        browser.send("Page.addScriptToEvaluateOnNewDocument", source=WATCH_FIRST_ROW)
        browser.open(page.as_uri())
        browser.wait("window.firstList")
        load = browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        first = browser.evaluate("window.firstList")
        scroll = browser.evaluate(SCROLL)
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
        "search_ms": search,
    }
    return numbers, version


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, dest="out", help="benchmarks/results/report.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        written = timed(lambda: write_report(judged(args.rows, random.Random(args.seed)), page))
        measured = [measure(page) for _ in range(args.loads)]
        size = page.stat().st_size
    runs = [numbers for numbers, _ in measured]
    medians = {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}
    for name, value in medians.items():
        print(f"{name:20} {value:10.2f}   {', '.join(f'{run[name]:.1f}' for run in runs)}")
    found = {
        **made("report", args),
        **{"seed": args.seed, "rows": args.rows, "browser": measured[0][1]},
        **{"write_s": round(written.wall, 2), "page_mb": round(size / 1e6, 2)},
        **medians,
        "loads": [{name: round(value, 2) for name, value in run.items()} for run in runs],
    }
    finish(found, args.out)


if __name__ == "__main__":
    main()
