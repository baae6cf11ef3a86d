"""Tables, counts and the JSON line of `rrm eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from rrm.cli.tables import print_table
from rrm.data.feedback import OUTSIDE
from rrm.readers.base import printable

if TYPE_CHECKING:
    from rrm.evaluation.evaluate import EvaluationReport

console = Console(stderr=True, highlight=False)


def _cell(interval: dict[str, Any] | None) -> str:
    if interval is None or interval["value"] is None:
        return "–"
    if interval["low"] is None:
        return f"{interval['value']:.3f} [too few]"
    return f"{interval['value']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def metrics_table(title: str, section: dict[str, Any]) -> Table:
    """Make a table of metrics by scorer; `*` marks a baseline the judge differs from with 95 % confidence."""
    table = Table(title=title, title_justify="left", caption="* the paired 95 % interval of judge − it excludes 0")
    scorers = list(section["metrics"])
    for name in ("metric", *scorers):
        table.add_column(name)
    for metric in section["metrics"]["judge"]:
        cells = []
        for scorer in scorers:
            gap = section["differences"].get(scorer, {}).get(metric)
            sure = gap is not None and gap["low"] is not None and (gap["low"] > 0 or gap["high"] < 0)
            cells.append(_cell(section["metrics"][scorer].get(metric)) + (" *" if sure else ""))
        table.add_row(metric, *cells)
    return table


def show(report: EvaluationReport, no_pairs: str | None) -> None:
    """Print the tables and counts on standard error; `no_pairs`: why no two attempts could be compared."""
    status = ", ".join(f"{n} {name}" for name, n in report["status"].items())
    console.print(f"{report['rows']} rows ({status}), {report['labelled']} labelled, {report['questions']} questions")
    print_table(metrics_table("score", report), stderr=True)
    if report["steps"] is not None:
        print_table(metrics_table(f"steps ({report['steps']['steps']} labelled)", report["steps"]), stderr=True)
    if report["step_scores"] is not None:
        title = f"probabilities of steps ({report['step_scores']['steps']} labelled)"
        print_table(metrics_table(title, report["step_scores"]), stderr=True)
    for name, why in report["baselines_left_out"].items():
        console.print(f"left out {name}: {why}", style="yellow")
    for name, counts in (report["outside"] or {}).items():
        if counts["outside"]:
            where = f" of {printable(name)}" if name else ""
            console.print(f"{counts['outside']} of {counts['rows']} transcripts{where} are {OUTSIDE}", style="yellow")
    if report["outcome_leak_rows"]:
        console.print(
            f"{report['outcome_leak_rows']} transcripts contain the environment's verdict, which the judge can read off: "
            "cut them before it; pair_accuracy_same_turns_no_leak leaves them out",
            style="yellow",
        )
    if report["format_validity"] is None and report["status"].get("scored"):
        console.print("format_validity is null: this judge writes no text, its score is read from probabilities")
    if no_pairs:
        console.print(
            "no pairs (attempts at one question with the same number of agent turns and different labels): " + no_pairs,
            style="yellow",
        )


def summary(report: EvaluationReport) -> dict[str, Any]:
    """Return the fields of the JSON line."""
    judge = report["metrics"]["judge"]
    keys = ("pair_accuracy_same_turns", "auroc", "best_of_n_gain", "brier", "ece")
    headline = {key: judge[key]["value"] if key in judge else None for key in keys}
    interval = [report.headline.low, report.headline.high]
    steps = report["steps"]["metrics"]["judge"] if report["steps"] else {}
    ranked = report["step_scores"]["metrics"]["judge"] if report["step_scores"] else {}
    return {
        "rows": report["rows"],
        "status": report["status"],
        "questions": report["questions"],
        **headline,
        "pair_accuracy_same_turns_interval": interval,
        "step_mcc": steps["mcc"]["value"] if steps else None,
        "step_auroc": ranked["auroc"]["value"] if ranked else None,
        "outside": sum(counts["outside"] for counts in report["outside"].values()) if report["outside"] else None,
        "format_validity": report["format_validity"],
        "answer_leak_rate": report["answer_leak"]["rate"],
    }
