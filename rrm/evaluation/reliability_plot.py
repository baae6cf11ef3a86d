from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.data.extras import needs


def plot_reliability(bins: Mapping[str, Sequence[Mapping[str, Any]]], path: str | Path, *, title: str = "") -> None:
    """Write a PNG with one panel per entry of `bins` (`EvaluationReport["reliability"]`)."""
    needs("plots", "a reliability diagram", "matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(bins), 4.6), layout="constrained")
    FigureCanvasAgg(figure)  # no display and no global pyplot state
    panels = figure.subplots(1, len(bins), squeeze=False)[0]
    names = {"raw": "before calibration", "calibrated": "after calibration"}
    for axes, (name, rows) in zip(panels, bins.items(), strict=True):
        total = sum(row["count"] for row in rows) or 1
        error = sum(row["count"] / total * abs(row["score"] - row["label"]) for row in rows)
        axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=1)
        axes.plot([r["score"] for r in rows], [r["label"] for r in rows], marker="o", color="#2563a8", zorder=2)
        for row in rows:
            position = (row["score"], row["label"])
            axes.annotate(
                str(row["count"]), position, textcoords="offset points", xytext=(5, -11), fontsize=7, color="0.35"
            )
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="mean score of the bin", ylabel="mean label of the bin")
        axes.set_aspect("equal")
        axes.set_title(f"{names.get(name, name)}: ECE {error:.3f}", fontsize=10)
    if title:
        figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=120, format="png")
