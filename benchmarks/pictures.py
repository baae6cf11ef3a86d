"""The pictures of the documentation, drawn anew: the report in a headless Chromium, and the curves of the study without an answer key, each under 200 kB.

    python -m benchmarks.pictures            # writes docs/pictures/ and docs/report.png; wants Chromium

Forty held-out lab runs judged by the lab judge (steps and scores of `full` mode), so the pictures say the same each time.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.record import RESULTS
from benchmarks.speed.devtools import Chromium
from reagent.lab.transcripts import make_transcripts
from rrm.judge.agent_rrm import AgentRRM
from rrm.report import write_report

DOCS = Path(__file__).resolve().parents[1] / "docs"
WIDTH, HEIGHT = 1300, 860
MOST = 200_000
"""Bytes of a picture."""
CURVES = ("no_answer_key.png",)


def page(path: Path, runs: int) -> None:
    """A report of lab runs that were judged by the lab judge."""
    rows = [trajectory for trajectory, _ in make_transcripts(runs, seed=1000, split="heldout")]
    judge = AgentRRM.from_pretrained("lab")
    pairs = []
    for trajectory, feedback in zip(rows, judge.judge(rows), strict=True):
        row = feedback.model_dump(mode="json")
        pairs.append((trajectory, {"id": trajectory.id, **row, "outcome": trajectory.outcome}))
    write_report(pairs, path)


def shot(browser: Chromium, path: Path) -> None:
    """The page as it stands, with 256 colours at most where that keeps it small."""
    data = base64.b64decode(browser.send("Page.captureScreenshot", format="png")["data"])
    save(Image.open(io.BytesIO(data)).convert("RGB"), path)


def save(picture: Image.Image, path: Path) -> None:
    """Write a PNG, with fewer colours until it is small.

    Raises:
        ValueError: it stays too large with sixteen.
    """
    for colours in (None, 256, 128, 64, 32, 16):
        out = io.BytesIO()
        (picture if colours is None else picture.quantize(colours, dither=Image.Dither.NONE)).save(
            out, "PNG", optimize=True
        )
        if out.tell() <= MOST:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(out.getvalue())
            return
    raise ValueError(f"{path.name} has {out.tell()} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", type=Path, default=DOCS / "pictures", help="folder")
    parser.add_argument("--runs", type=int, default=40, help="runs of the report")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Chromium(WIDTH, HEIGHT) as browser:
        report = Path(folder) / "report.html"
        page(report, args.runs)
        browser.open(report.as_uri())
        browser.wait("document.querySelectorAll('.row').length > 3")
        shot(browser, args.out / "report.png")
        browser.evaluate("document.querySelector('[data-sort=score]').click()")  # the worst first
        browser.press("j")
        browser.press("Enter")
        browser.wait("!document.getElementById('main').hidden && document.querySelector('.step')")
        shot(browser, args.out / "transcript.png")
    for name in CURVES:
        save(Image.open(RESULTS / name).convert("RGB"), args.out / name)
    print(json.dumps({path.name: path.stat().st_size for path in sorted(args.out.glob("*.png"))}))


if __name__ == "__main__":
    main()
