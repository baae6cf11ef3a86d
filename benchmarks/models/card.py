"""The card of a judge that ships: what it was measured on, sources left out first, what it learned from, and what it is not for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.bars.judge import CLAIMED
from benchmarks.models.sources import FOLDS

NOT_MEASURED = "not measured"
TITLES = {"small": "a small judge of agents' steps, for a CPU", "base": "a judge of agents' steps"}


def shown(figure: Any, digits: int = 2) -> str:
    """`0.71 [0.66, 0.75]`, `0.71`, or that it was not measured."""
    if isinstance(figure, Mapping):
        if figure.get("value") is None:
            return NOT_MEASURED
        low, high = figure.get("low"), figure.get("high")
        interval = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
        return f"{figure['value']:.{digits}f}{interval}"
    return NOT_MEASURED if figure is None else f"{figure:.{digits}f}"


def at(figures: Mapping[str, Any], path: str) -> Any:
    """The figure at a path of keys separated by dots; None where there is none."""
    found: Any = figures
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield from (f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def card(name: str, base: str, figures: Mapping[str, Any], data: Sequence[Mapping[str, Any]]) -> str:
    """The card as Markdown with the hub's front matter.

    Args:
        figures: of this judge, as benchmarks/results/judges.json has them.
        data: a row a source: source, runs, licence, made_by.
    """
    folds = [
        [
            ", ".join(FOLDS[fold]),
            shown(at(figures, f"folds.{fold}.auroc")),
            *(shown(at(figures, f"folds.{fold}.rivals.{rival}.auroc")) for rival in ("position", "tfidf")),
            shown(at(figures, f"folds.{fold}.error_f1")),
            shown(at(figures, f"folds.{fold}.first_error")),
        ]
        for fold in FOLDS
    ]
    calls = [
        [source, *(shown(at(figures, f"calls.{source}_{where}.auroc")) for where in ("abroad", "home"))]
        for source in ("tau", "workbench")
    ]
    claims = [[source, shown(at(figures, f"false_success.{source}.auroc"))] for source in CLAIMED]
    kinds = sorted((at(figures, "plants.per_kind") or {}).items(), key=lambda item: -(item[1]["judge"] or 0))
    sanity = at(figures, "sanity") or {}
    lines = [
        "---",
        "library_name: agent-rrm",
        "tags: [reward-model, process-reward-model, agents]",
        f"base_model: {base}",
        "license: apache-2.0",
        "---",
        "",
        f"# {name}: {TITLES[name]}",
        "",
        "It reads a whole transcript and gives each step the probability that it is no mistake, and the run a score in [0, 1].",
        "A mistake is one of [twelve kinds](../../../docs/labels.md); any other step is good.",
        "",
        "## Measured on sources that it never saw",
        "",
        "Each row is a judge trained in the same way without these sources. Position and TF-IDF were fitted on the same others.",
        "",
        *table(["left out", "AUROC of steps", "position", "TF-IDF", "error F1", "first error found"], folds),
        "",
        *table(["calls that change state, right or wrong", "left out", "new customers or templates"], calls),
        "",
        *table(["success claimed, not reached", "AUROC, left out"], claims),
        "",
        f"Sixty short runs written for this test: it finds {shown(sanity.get('recall'))} of the mistakes, calls"
        f" {shown(sanity.get('false_alarms'))} of the good steps bad, and leaves {sanity.get('flawless_clean', NOT_MEASURED)} of 30"
        " flawless runs without a bad verdict.",
        "",
        f"Calibration, left out: error {shown(at(figures, 'calibration.ece_balanced'))} where it is sure, which it is of"
        f" {shown(at(figures, 'calibration.coverage'))} of the steps; beyond what it knows it says `unsure`.",
        "",
        "Planted mistakes found at 0.10 false alarms, left out:",
        "",
        *table(["kind", "found", "rules alone"], [[k.replace("_", " "), shown(v["judge"]), shown(v["rules"])] for k, v in kinds]),
        "",
        "## Not for",
        "",
        "- decisions about people, and guards without a person behind them: many mistakes of meaning pass it (table above);",
        "- runs in other languages than English, and texts of another kind than agents' logs: it marks them `out_of_domain`;",
        "- comparing models on the benchmarks below: their questions and public runs are in its training data;",
        "- facts: it knows what stands in the transcript, and little else.",
        "",
        "## Trained on",
        "",
        "Public runs on questions of HotpotQA, 2WikiMultihopQA, GSM8K, TheoremQA, MMLU, HumanEval, MBPP, ALFWorld, Spider (InterCode),",
        "tau-bench, WorkBench, AgentDojo and StepShield, with labels from references, outcomes and rules, and planted mistakes.",
        "",
        *table(
            ["source", "runs", "licence", "runs made by"],
            [[row["source"], str(row["runs"]), row["licence"], row["made_by"]] for row in data],
        ),
        "",
    ]  # fmt: skip
    return "\n".join(lines)
