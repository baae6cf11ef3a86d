"""Curves of all runs in the same axes, as SVG inside the page.

The page's policy forbids style attributes and foreign style elements, so matplotlib's styles become presentation attributes; ink takes the
page's text colour. No text from outside enters a drawing: colour and dashes tell runs apart, and the table of runs explains them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reagent.report.runs import RecordedRun, interval, number
from rrm.data.extras import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2f7dc4", "#d9772b", "#2b9d76", "#b85796", "#8a6fd1", "#a8811a", "#2f97a8", "#c94f4f")
"""Readable on the page's light and dark ground."""
DASHES = (None, "5 2.5", "1.5 2")
INK = "#010203"  # stands for the page's text colour until the drawing is done
WINDOW = 5  # updates in a running mean


GUARDED = "Success beside the judge's score"
GUARDED_TEXT = (
    "On held-out questions. Solid, dots: success. Dashed, squares: the mean score of the judge that pays (where it did not read the "
    "evaluations, the last updates' mean score, without squares). Dotted, triangles: the second judge's. Upright lines: a guard fired; "
    "the thick ones stopped the run. Dashed that leaves solid is a judge being gamed."
)
STAGED_TEXT = " Where a run's criteria change (table of runs), its judge's score jumps, and guards begin anew."


@dataclass(frozen=True)
class Panel:
    title: str
    text: str  # a description in words
    svg: str


def look(n: int) -> tuple[str, str | None]:
    """Colour and dashes of run n (from 0)."""
    return COLOURS[n % len(COLOURS)], DASHES[n // len(COLOURS) % len(DASHES)]


def held_out_points(run: RecordedRun, key: str = "success") -> list[tuple[float, float, float, float]]:
    """(episodes, figure, low, high) of each held-out evaluation; unknown bounds are the value itself."""
    points = []
    for row in run.evaluations:
        x, figures = number(row.get("episodes")), interval(row.get(key))
        if x is not None and figures is not None:
            value, low, high = figures
            points.append((x, value, value if low is None else low, value if high is None else high))
    return points


def draw(runs: Sequence[RecordedRun]) -> list[Panel]:
    """Success, reward and the judge's score over episodes; a drawing without any point is left out."""
    mean = f"Faint: each update. Strong: the mean of the last {WINDOW} updates."
    held_out = (
        "Points: success on held-out questions with its 95 % interval; where runs were evaluated after the same number "
        "of episodes, their points stand a little apart."
    )
    success = f"Share of first attempts that solved their training question. {mean} {held_out}"
    reward = f"Mean reward that the environment gave first attempts, without anything of the judge. {mean}"
    score = (
        f"Mean score, from 0 to 1, that the judge gave first attempts, in runs where it was asked. {mean} A score that rises while success "
        "does not is no progress."
    )
    curves = (
        ("Success", "episode/success", success),
        ("Environment reward", "episode/reward", reward),
        ("The judge's score", "feedback/score", score),
    )
    panels = []
    for title, key, text in curves:
        points = key == "episode/success" and any(map(held_out_points, runs))
        if points or any(run.series(key) for run in runs):
            panels.append(Panel(title, text if points else text.replace(f" {held_out}", ""), _panel(runs, key, title)))
    if any(run.fired or held_out_points(run, "score") for run in runs):
        staged = any(run.total("feedback/criteria_stage") for run in runs)
        text = GUARDED_TEXT + (STAGED_TEXT if staged else "")
        panels.append(Panel(GUARDED, text, _panel(runs, "guards", GUARDED)))
    return panels


def running_mean(values: Sequence[float], window: int = WINDOW) -> list[float]:
    """Mean of each value and those before it, `window` in all (fewer at the start)."""
    return [sum(recent := values[max(0, i + 1 - window) : i + 1]) / len(recent) for i in range(len(values))]


def _panel(runs: Sequence[RecordedRun], key: str, title: str) -> str:
    needs("plots", "a run's curve", "matplotlib")
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: Any = {"svg.hashsalt": "reagent report", "svg.fonttype": "path"}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(4.6, 3.1), layout="constrained")
        canvas = FigureCanvasSVG(figure)
        axes: Axes = figure.subplots()
        if key == "guards":
            _guarded(axes, runs)
        else:
            _lines(axes, runs, key)
        if key == "episode/success":
            _points(axes, runs)
        if key != "episode/reward":
            axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("episodes", color=INK, fontsize=9)
        axes.set_xlim(0, 1.04 * _widest(runs))
        axes.grid(color=INK, alpha=0.13, linewidth=0.7)
        axes.tick_params(colors=INK, labelsize=8.5, length=3)
        for side, spine in axes.spines.items():
            spine.set(color=INK, alpha=0.45, linewidth=0.8, visible=side in ("left", "bottom"))
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        del canvas
    return _for_page(out.getvalue(), key.replace("/", "-"), f"{title} over episodes")


def _widest(runs: Sequence[RecordedRun]) -> float:
    """Most episodes of any drawn run: the drawings share their axis."""
    return float(max((run.episodes or 0 for run in runs if run.distillation is None), default=0) or 1)


def _lines(axes: Axes, runs: Sequence[RecordedRun], key: str) -> None:
    for n, run in enumerate(runs):
        series = run.series(key)
        if not series:
            continue
        colour, dashes = look(n)
        style: Any = "-" if dashes is None else (0, tuple(float(length) for length in dashes.split()))
        x, y = [p[0] for p in series], [p[1] for p in series]
        axes.plot(x, y, color=colour, linewidth=0.9, alpha=0.35)
        axes.plot(x, running_mean(y), color=colour, linewidth=1.8, linestyle=style, marker="." if len(x) == 1 else "")


def _points(axes: Axes, runs: Sequence[RecordedRun]) -> None:
    for n, run in enumerate(runs):
        points = held_out_points(run)
        if not points:
            continue
        apart = min(0.02, 0.08 / len(runs)) * (n - (len(runs) - 1) / 2) * _widest(runs)
        x, y = [p[0] + apart for p in points], [p[1] for p in points]
        bars = [[max(0.0, v - low) for _, v, low, _ in points], [max(0.0, high - v) for _, v, _, high in points]]
        axes.errorbar(x, y, yerr=bars, fmt="o", markersize=4.5, color=look(n)[0], elinewidth=1.2, capsize=2.5, zorder=4)


def _guarded(axes: Axes, runs: Sequence[RecordedRun]) -> None:
    """Draw each run's held-out success, judges' scores, and where guards fired."""
    for n, run in enumerate(runs):
        colour = look(n)[0]
        scores = [(x, y) for x, y, _, _ in held_out_points(run, "score")]
        series = run.series("feedback/own_score") or run.series("feedback/score")  # by one map, as guards see it
        drawn = [
            ([(x, y) for x, y, _, _ in held_out_points(run)], "-", "o"),
            (scores or [(x, y) for (x, _), y in zip(series, running_mean([y for _, y in series]), strict=True)], "--", "s"),
            ([(x, y) for x, y, _, _ in held_out_points(run, "auditor")], ":", "^"),
        ]  # fmt: skip
        for points, line, marker in drawn:
            if points:
                held_out = marker != "s" or bool(scores)
                x, y = [p[0] for p in points], [p[1] for p in points]
                axes.plot(
                    x, y, color=colour, linestyle=line, linewidth=1.5, marker=marker if held_out else "", markersize=4
                )
        for event in run.fired:
            if (x := number(event.get("episodes"))) is not None:
                stop = event.get("action") == "stop"
                axes.axvline(x, color=colour, linewidth=2.4 if stop else 0.9, alpha=0.55)


_GONE = re.compile(r"<metadata>.*?(?:</metadata>|\Z)|<style[^<>]*+>.*?(?:</style>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL)


def _for_page(svg: str, name: str, label: str) -> str:
    """A drawing of matplotlib's as an element of the page: no styles, ids of its own, scaled by the page."""
    svg = svg[svg.index("<svg") :]
    svg = _GONE.sub("", svg)
    svg = re.sub(r' style="([^"]*)"', lambda match: _attributes(match[1]), svg)
    used = {*re.findall(r'href="#([^"]+)"', svg), *re.findall(r"url\(#([^()]++)\)", svg)}
    svg = re.sub(r' id="([^"]+)"', lambda match: f' id="{name}-{match[1]}"' if match[1] in used else "", svg)
    svg = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', svg).replace("url(#", f"url(#{name}-")
    svg = svg.replace(INK, "currentColor")
    size = re.search(r'viewBox="[^"]*"', svg)
    start = f'<svg class="chart" {size[0] if size else ""} role="img" aria-label="{label}" stroke-linejoin="round">'
    return re.sub(r"<svg[^<>]*+>", start, svg, count=1).strip()


def _attributes(style: str) -> str:
    """`fill: none; stroke: red` as ` fill="none" stroke="red"`."""
    pairs = [pair.partition(":") for pair in style.split(";") if pair.strip()]
    return "".join(f' {key.strip()}="{value.strip()}"' for key, _, value in pairs)
