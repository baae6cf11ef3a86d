"""Every bar of the judge: what, measured, wanted, pass or fail. Studies are read from benchmarks/results/*.json.

    python -m benchmarks.accept_1            (exit code 1 if a bar is missed)

Each results file names the command, seed, versions and hardware that made it. The bars that are tests (failure paths,
garbage readers, kill and resume) are run here, unless `--no-run` is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.acceptance import ROOT, Bar, interval, load, main, missing, suite_bars

SUITES = {
    "garbage made by hypothesis: no crash, every line accounted for": "tests/rrm/readers/test_readers_garbage.py",
    "SIGKILL at random points, resumed: the same rows": "tests/rrm/test_score_resume.py",
    "every judge failure path ends in its status": "tests/rrm/judge/test_failure_paths.py",
}


def timing_bars() -> Iterator[Bar]:
    """Quickstart and tests."""
    found = load("timings")
    for what, key, most in (
        ("make quickstart (with the agent's training)", "quickstart_s", 600),
        ("make test", "test_s", 600),
    ):
        if found is None or key not in found:
            yield missing(what, f"≤ {most} s", "timings")
        else:
            yield Bar(
                f"{what}, two cores, after installation", f"{found[key]:.0f} s", f"≤ {most} s", found[key] <= most
            )


HEADLINE = "pair_accuracy_same_turns"


def headline_bars(report: dict[str, Any], where: str, *, decides: bool) -> Iterator[Bar]:
    """The protocol's figures of one report."""
    judge = report["metrics"]["judge"]
    yield Bar(f"MINT same-question-and-turns pairs, {where}", interval(judge[HEADLINE]), "reported", None)
    for name in ("tfidf", "agent", "length"):
        gap, base = report["differences"][name][HEADLINE], report["metrics"][name][HEADLINE]["value"]
        ok = gap["low"] > 0 if name == "tfidf" and decides else None
        wanted = "low end > 0" if ok is not None else "aim > 0" if name != "length" else "reported"
        yield Bar(f"  judge − {name} ({base:.3f}), paired", interval(gap), wanted, ok)
    yield Bar("  same question, any turns", interval(judge["pair_accuracy_same_question"]), "reported", None)
    yield Bar("  AUROC", interval(judge["auroc"]), "reported", None)
    yield Bar("  ECE, calibrated", interval(judge["ece"]), "≤ 0.05 (moonshot)", None)


def mint_bars() -> Iterator[Bar]:
    """Real transcripts: the five folds decide where they were measured, else the shipped judge's split."""
    folds, found = load("folds_mint"), load("judge_mint")
    whole = folds is not None and len(folds["folds"]) == 5
    if whole and folds is not None:
        yield from headline_bars(folds["all"], "5-fold", decides=True)
    if found is None or "score" not in found["parts"]:
        yield missing("MINT pair accuracy", "judge − TF-IDF: interval above 0", "judge_mint")
        return
    yield from headline_bars(found["parts"]["score"]["all"], "one split, the shipped judge", decides=not whole)
    for part in ("seen_agents", "unseen_agents"):
        mine = found["parts"]["score"][part]["metrics"]["judge"]
        shown = f"pairs {interval(mine[HEADLINE])}, AUROC {interval(mine['auroc'])}"
        yield Bar(f"  {part.replace('_', ' ')}", shown, "reported", None)
    for source, report in found["parts"].get("sources", {}).items():
        mine, length = report["metrics"]["judge"], report["metrics"]["length"]
        shown = f"AUROC {interval(mine['auroc'])}, length {length['auroc']['value']:.3f}"
        yield Bar(f"  never trained on: {source}", shown, "reported", None)
    yield from critique_bars(found["parts"].get("critiques"))


def critique_bars(report: dict[str, Any] | None) -> Iterator[Bar]:
    """Critiques against GPT-4's step labels."""
    if report is None:
        yield missing("critiques", "MCC above every baseline", "judge_mint")
        return
    steps = report["steps"]
    judge = steps["metrics"]["judge"]
    for name in ("mcc", "macro_f1"):
        others = {k: v[name]["value"] for k, v in steps["metrics"].items() if k != "judge" and name in v}
        wanted = "above " + ", ".join(f"{k} {v:.3f}" for k, v in others.items())
        ok = all(judge[name]["value"] > v for v in others.values())
        yield Bar(f"step localisation, {name}", interval(judge[name]), wanted, ok)
    rate, leaks = report["format_validity"], report["answer_leak"]["rate"] or 0.0
    yield Bar("format validity, full mode", f"{rate:.1%}", "≥ 99 %", rate >= 0.99)
    yield Bar("answer leaks in trace or critique", f"{leaks:.2%}", "≤ 1 %", leaks <= 0.01)


def stage_bars() -> Iterator[Bar]:
    """What each stage brings."""
    found = load("lab_stages")
    if found is None:
        yield missing("each stage earns its place (lab)", "in full", "lab_stages")
        return
    for stage, sets in found["stages"].items():
        full, score = sets["fresh"]["full"], sets["fresh"]["score"]
        rate = full["format_validity"] or 0.0
        metrics, mse = score["metrics"]["judge"], full["process"]["mse"]
        shown = (
            f"valid {rate:.0%}, planted step {full['planted']['named_step']:.0%}, false alarms "
            f"{full['planted']['false_alarms']:.0%}, AUROC {metrics['auroc']['value']:.3f}, "
            f"Brier {metrics['brier']['value']:.3f}, process MSE {'none scored' if mse is None else f'{mse:.3f}'}"
        )
        yield Bar(f"lab judge, {stage}", shown, "reported", None)


def speed_bars() -> Iterator[Bar]:
    """Judging speed."""
    found = load("judge_speed")
    wants = (("score_over_full", "`score` ÷ `full`, transcripts/s", 10.0), ("full_over_plain", "`full` ÷ plain generate loop", 1.5),
             ("score_over_plain", "`score` ÷ plain forward loop", 1.5))  # fmt: skip
    for key, what, least in wants:
        if found is None:
            yield missing(what, f"≥ {least}×", "judge_speed")
        else:
            ratio = found["ratios"][key]
            yield Bar(what, f"{ratio:.2f}×", f"≥ {least}×", ratio >= least)


def adversarial_bars() -> Iterator[Bar]:
    """Attacks."""
    found = load("adversarial_default")
    if found is None:
        yield missing("adversarial suite", "mean |Δ| beyond benign ≤ 0.05", "adversarial_default")
        return
    yield Bar("attack transcripts", str(found["cases"]), "≥ 40", found["cases"] >= 40)
    escaped = found["escapes"] + found["echoes"]
    yield Bar("verdicts parsed from transcript text (escapes, echoes)", str(escaped), "0", escaped == 0)
    shown = f"{found['excess']:.3f} (attack {found['attack']:.3f}, benign {found['benign']:.3f})"
    yield Bar("mean |Δ score| beyond benign text", shown, "≤ 0.05", found["excess"] <= 0.05)
    yield Bar("flips across 0.5 (attack, benign)", f"{found['flips']}, {found['benign_flips']}", "reported", None)


def adapter_bar() -> Bar:
    """The shipped adapter."""
    path = ROOT / "rrm" / "assets" / "small"
    size = sum(p.stat().st_size for p in path.glob("adapter_model*.safetensors")) / 1e6
    return Bar("default judge's adapter, shipped", f"{size:.1f} MB", "≤ 15 MB", 0 < size <= 15)


def bars(run: bool = True) -> list[Bar]:
    """All of them; tests that are bars only where they are run."""
    return [
        *timing_bars(),
        *mint_bars(),
        *stage_bars(),
        *speed_bars(),
        *adversarial_bars(),
        adapter_bar(),
        *suite_bars(SUITES, run),
    ]


if __name__ == "__main__":
    main(__doc__, bars)
