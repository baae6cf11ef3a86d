"""The pictures of the documentation, drawn anew: the report in a headless Chromium, each under 100 kB.

    python -m benchmarks.pictures            # writes docs/pictures/; wants Chromium

Forty held-out lab runs judged by the lab judge (steps and scores of `full` mode), so the pictures say the same each time.
"""

from __future__ import annotations

import base64
import io
import tempfile
from pathlib import Path

from PIL import Image

from benchmarks.record import ROOT
from benchmarks.speed.devtools import Chromium
from reagent.lab.transcripts import make_transcripts
from rrm.judge.agent_rrm import AgentRRM
from rrm.report import write_report

RUNS, WIDTH, HEIGHT, MOST_BYTES = 40, 1300, 860, 100_000


def shot(browser: Chromium, name: str) -> None:
    """The page as it stands, in 256 colours; too many bytes are an error."""
    data = base64.b64decode(browser.send("Page.captureScreenshot", format="png")["data"])
    path = ROOT / "docs" / "pictures" / name
    Image.open(io.BytesIO(data)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    if (size := path.stat().st_size) > MOST_BYTES:
        raise SystemExit(f"{name} has {size:,} bytes")


def main() -> None:
    rows = [trajectory for trajectory, _ in make_transcripts(RUNS, seed=1000, split="heldout")]
    judged = zip(rows, AgentRRM.from_pretrained("lab").judge(rows), strict=True)
    pairs = [(t, {"id": t.id, **feedback.model_dump(mode="json"), "outcome": t.outcome}) for t, feedback in judged]
    with tempfile.TemporaryDirectory() as folder, Chromium(WIDTH, HEIGHT) as browser:
        report = Path(folder) / "report.html"
        write_report(pairs, report)
        browser.open(report.as_uri())
        browser.wait("document.querySelectorAll('.row').length > 3")
        shot(browser, "report.png")
        browser.press("j")
        browser.press("Enter")
        browser.wait("!document.getElementById('main').hidden && document.querySelector('.step')")
        shot(browser, "transcript.png")


if __name__ == "__main__":
    main()
