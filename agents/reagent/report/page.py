"""The report page: every cell a string made here, then one template.

Transcripts, tool results, the judge's text and run names are hostile. The template escapes them, and the page's Content-Security-Policy lets
no script run and nothing load but `data:` images."""

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reagent.report.curves import draw, look
from reagent.report.differences import ArmDifference, differences
from reagent.report.examples import Example, JudgedAttempt, PolicyAttempts, choose
from reagent.report.runs import RecordedRun, interval, links, number, read_json
from rrm.data.output import file_when_whole
from rrm.data.trajectory import Message, Step, ToolCall
from rrm.errors import ReadError, RRMError
from rrm.prompt.rendering import answers

LONG = 700  # longer texts are folded
GLIMPSE = 120  # characters of a folded text that are shown
NONE = "–"
SCORES = {
    "pair_accuracy_same_turns": "Pair accuracy: of two attempts at a question with as many turns and different outcomes, "
    "how often the better one has the higher score. 0.5 is chance.",
    "pair_accuracy_same_question": "The same, whatever the number of turns.",
    "auroc": "AUROC: the same over all pairs of a success and a failure, also of different questions. 0.5 is chance.",
    "ece_raw": "ECE before calibration: how far scores lie from the share of successes at that score. 0 is best.",
    "ece": "ECE after calibration.",
    "brier_raw": "Brier score before calibration: mean squared error of the score. 0 is best.",
    "brier": "Brier score after calibration.",
}
STEPS = {
    "mcc": "MCC: correlation of the judge's step verdicts with the labels. 0 is chance, 1 is best.",
    "macro_f1": "Macro-F1 over good and bad steps.",
    "f1_bad": "F1 on bad steps.",
}
OTHERS = {
    "judge": "judge", "length": "length alone", "tfidf": "TF-IDF", "agent": "agent's name", "all_bad": "every step bad",
    "position_only": "position alone", "shuffled": "another transcript's findings",
}  # fmt: skip
PNG = b"\x89PNG\r\n\x1a\n"


def write_page(
    path: str | Path,
    runs: Sequence[RecordedRun],
    *,
    judge: str | Path | None = None,
    reliability: str | Path | None = None,
    policies: Sequence[PolicyAttempts] = (),
    title: str = "Agent training report",
    examples: int = 6,
) -> dict[str, Any]:
    """Write one self-contained HTML page, as a whole or not at all (`rrm.data.output.file_when_whole`).

    Args:
        runs: at least one; they share every drawing's axes.
        judge: metrics as `rrm eval -o` writes them.
        reliability: a PNG, as `rrm eval --plot` draws it.
        policies: with transcripts side by side, in order; the first is "before", the last "after".
        examples: most questions whose transcripts are shown.

    Returns:
        the summary, for the command's JSON line.

    Raises:
        RRMError: a file that is missing or not what it should be, or a page that cannot be written.
    """
    choice = choose(policies, examples) if policies else None
    style = _asset("style.css")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.from_string(_asset("page.html.jinja")).render(
        title=title,
        style=Markup(style),
        style_hash="sha256-" + base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii"),
        table=_runs_table(runs, Path(path)),
        differences=[_difference_row(difference) for difference in differences(runs)],
        fired=[_fired(run, row) for run in runs for row in run.fired],
        panels=[{"title": p.title, "text": p.text, "svg": Markup(p.svg)} for p in draw(runs)],
        judge=None if judge is None else _judge(Path(judge)),
        reliability=None if reliability is None else _image(Path(reliability)),
        policies=[_policy_row(policy) for policy in policies],
        choice=choice,
        examples=[_example(e, policies) for e in choice.examples] if choice else [],
    )
    _write(Path(path), page)
    return {
        "report": str(path),
        "runs": [run.label for run in runs],
        "policies": [policy.name for policy in policies],
        "questions": choice.shared if choice else 0,
        "examples": len(choice.examples) if choice else 0,
    }


def _asset(name: str) -> str:
    return resources.files("reagent.report").joinpath(name).read_text("utf-8")


def _write(path: Path, page: str) -> None:
    """Write the page; lone surrogates, which UTF-8 has not, become question marks."""
    try:
        with file_when_whole(path, errors="replace") as file:
            file.write(page)
    except OSError as error:
        raise RRMError(f"cannot write {path}: {error.strerror}") from error


# ---- runs ----


def _runs_table(runs: Sequence[RecordedRun], page: Path) -> dict[str, Any]:
    last = [run.evaluations[-1] if run.evaluations else {} for run in runs]
    hops = sorted({h for row in last for h in _by_hops(row)}, key=lambda h: (not h.isdigit(), len(h), h))
    critiques = any(run.total("feedback/critiques") for run in runs)
    rows = []
    for n, (run, evaluation) in enumerate(zip(runs, last, strict=True)):
        colour, dashes = look(n)
        by_hops = _by_hops(evaluation)
        minutes, complete = run.minutes
        rows.append(
            {
                "colour": colour,
                "dashes": dashes,
                "name": run.name,
                "links": links(run, page),
                "mode": run.mode,
                "algorithm": run.algorithm,
                "setting": f"{run.environment}, seed {run.seed}" + (f", criteria {run.criteria}" if run.criteria else ""),
                "episodes": _count(run.episodes),
                "updates": _count(len(run.rows)) + (f" of {run.planned:,}" if run.planned not in (None, len(run.rows)) else ""),
                "success": _interval(evaluation.get("success")),
                "evaluated": _evaluated(run, evaluation),
                "hops": [_interval(by_hops.get(h), digits=2, bounds=False) for h in hops],
                "judge_tokens": _count(run.judge_tokens),
                "critiques": _critiques(run),
                "minutes": NONE if minutes is None else f"{minutes:.1f}" + ("" if complete else "*"),
            }
        )  # fmt: skip
    return {
        "rows": rows,
        "hops": [f"{h} hop" if h == "1" else f"{h} hops" for h in hops],
        "critiques": critiques,
        "partial_minutes": any(run.minutes[0] is not None and not run.minutes[1] for run in runs),
        "environments": sorted({run.environment for run in runs}),
        "unevaluated": sum(not run.evaluations for run in runs),
    }


def _difference_row(difference: ArmDifference) -> dict[str, Any]:
    seeds = (len(difference.first.runs), len(difference.other.runs))
    return {
        "other": difference.other.name,
        "first": difference.first.name,
        "questions": _count(difference.questions),
        "seeds": " / ".join(map(str, seeds)),
        "one_seed": min(seeds) == 1,
        "first_success": NONE if difference.first_success is None else f"{difference.first_success:.3f}",
        "other_success": NONE if difference.other_success is None else f"{difference.other_success:.3f}",
        "gap": _interval(difference.gap.to_dict()),
        "says": difference.says,
    }


def _fired(run: RecordedRun, row: dict[str, Any]) -> dict[str, str]:
    """A guard that fired, as a row of its table."""
    update = number(row.get("update"))
    return {
        "run": run.name,
        "guard": str(row.get("guard", NONE)),
        "action": {"stop": "stopped the run", "warn": "warned"}.get(str(row.get("action")), NONE),
        "when": NONE if update is None else "before the first" if update < 0 else f"{update:,.0f}",
        "text": str(row.get("text", "")),
    }


def _critiques(run: RecordedRun) -> str:
    written, dropped = run.total("feedback/critiques"), run.total("feedback/leaked_critiques")
    return f"{_count(written)} ({_count(dropped or 0)})" if written else NONE


def _by_hops(evaluation: dict[str, Any]) -> dict[str, Any]:
    by_hops = evaluation.get("success_by_hops")
    return by_hops if isinstance(by_hops, dict) else {}


def _evaluated(run: RecordedRun, evaluation: dict[str, Any]) -> list[str]:
    """Numbers of questions and graded ones, and of episodes where that was not the end."""
    tasks, episodes = number(evaluation.get("tasks")), number(evaluation.get("episodes"))
    ungraded = number(evaluation.get("ungraded_tasks")) or 0.0
    parts = [] if tasks is None else [f"{tasks:,.0f} questions"]
    if tasks is not None and ungraded:
        graded = f"{tasks - ungraded:,.0f}" if tasks > ungraded else "none"
        parts = [f"{graded} of {tasks:,.0f} questions graded"]
    if episodes is not None and episodes != run.episodes:
        parts.append(f"after {episodes:,.0f} episodes")
    return parts


# ---- the judge ----


def _judge(path: Path) -> dict[str, Any]:
    """The main figures of `rrm eval`'s JSON as tables."""
    report = read_json(path)
    try:
        metrics = report["metrics"]
        metrics["judge"].items()
    except (AttributeError, KeyError, TypeError) as error:
        raise RRMError(f"{path} is not what `rrm eval -o` writes: it has no metrics of a judge") from error
    steps = report.get("steps")
    info = report.get("judge")
    return {
        "model": _model(info if isinstance(info, dict) else {}),
        "rows": _count(report.get("rows")),
        "scored": _count(report.get("scored_labelled")),
        "questions": _count(report.get("questions")),
        "scores": _scorers(metrics, SCORES),
        "steps": _scorers(steps["metrics"], STEPS) if isinstance(steps, dict) and "metrics" in steps else None,
        "labelled_steps": _count(steps.get("steps")) if isinstance(steps, dict) else NONE,
        "facts": _facts(report),
    }


def _model(info: dict[str, Any]) -> str:
    """The judge's name; of a folder's path the last two parts."""
    model = str(info.get("model") or "")
    if os.path.isabs(model):
        model = "/".join(Path(model).parts[-2:])
    named = [name for name in (model, str(info.get("model_hash") or "")) if name]
    mode = [f"mode {info['mode']}"] if info.get("mode") else []
    return ", ".join(named + mode)


def _scorers(metrics: Any, descriptions: dict[str, str]) -> dict[str, Any] | None:
    """One row a metric that the judge has, one column a scorer; None without any."""
    tables = {str(who): figures for who, figures in metrics.items() if isinstance(figures, dict)}
    rows = [
        {"text": text, "cells": [_interval(tables[who].get(key)) for who in tables]}
        for key, text in descriptions.items()
        if interval(tables.get("judge", {}).get(key)) is not None
    ]
    return {"head": [OTHERS.get(who, who) for who in tables], "rows": rows} if rows else None


def _facts(report: dict[str, Any]) -> list[str]:
    """Leaks, format and statuses in sentences."""
    facts = []
    if (valid := number(report.get("format_validity"))) is not None:
        facts.append(f"{100 * valid:.1f} % of the replies it wrote have every part they were asked for.")
    leak = report.get("answer_leak")
    if isinstance(leak, dict):
        for key, wording in (("", "answers"), ("short_", "answers that are short or a plain yes or no")):
            leaks, rows = number(leak.get(f"{key}leaks")), number(leak.get(f"{key}rows"))
            if leaks is not None and rows:
                facts.append(
                    f"It gave away an answer that the transcript does not contain in {leaks:,.0f} of {rows:,.0f} rows "
                    f"({100 * leaks / rows:.1f} %) with known {wording}."
                )
    status = report.get("status")
    if isinstance(status, dict) and set(status) - {"scored"}:
        facts.append("Rows by status: " + ", ".join(f"{_count(n)} {name}" for name, n in status.items()) + ".")
    return facts


def _image(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error
    if not data.startswith(PNG):
        raise RRMError(f"{path} is not a PNG: give the file that `rrm eval --plot` draws")
    return "data:image/png;base64," + base64.b64encode(data).decode("ascii")


# ---- transcripts ----


def _policy_row(policy: PolicyAttempts) -> dict[str, Any]:
    decided = [a for a in policy.attempts if a.success is not None]
    return {
        "name": policy.name,
        "attempts": _count(len(policy.attempts)),
        "success": f"{sum(bool(a.success) for a in decided) / len(decided):.3f}" if decided else NONE,
        "unscored": _count(sum(_score_of(a) is None for a in policy.attempts)),
        "mean_success": _mean_score([a for a in decided if a.success]),
        "mean_failure": _mean_score([a for a in decided if not a.success]),
        "unmatched": policy.unmatched,
        "mistaken": policy.mistaken,
    }


def _score_of(attempt: JudgedAttempt) -> float | None:
    return attempt.feedback.score if attempt.feedback is not None else None


def _mean_score(attempts: Sequence[JudgedAttempt]) -> str:
    scores = [score for a in attempts if (score := _score_of(a)) is not None]
    return f"{sum(scores) / len(scores):.3f}" if scores else NONE


def _example(example: Example, policies: Sequence[PolicyAttempts]) -> dict[str, Any]:
    columns = [_attempt(policy.name, attempt) for policy, attempt in zip(policies, example.attempts, strict=True)]
    return {"question": _text(example.question), "attempts": columns}


def _attempt(policy: str, attempt: JudgedAttempt) -> dict[str, Any]:
    trajectory, feedback = attempt.trajectory, attempt.feedback
    findings = feedback.findings if feedback else []
    steps = trajectory.steps
    outcome = trajectory.outcome
    result = {None: "outcome unknown", True: "succeeded", False: "failed"}[attempt.success]
    return {
        "policy": policy,
        "result": result + (f" (outcome {outcome:.2f})" if outcome not in (None, 0.0, 1.0) else ""),
        "kind": {None: "unknown", True: "good", False: "bad"}[attempt.success],
        "score": _score(attempt),
        "notes": _notes(attempt),
        "given": [_message(m) for m in trajectory.prelude],
        "steps": [
            {
                "number": step.index,
                "message": _message(step.message),
                "observations": [_observation(step, call, m) for call, m in answers(step)],
                "findings": [{"verdict": f.verdict, "text": f.text} for f in findings if f.step == step.index],
            }
            for step in steps
        ],
        "elsewhere": [
            {"verdict": f.verdict, "text": f"[step {f.step}] {f.text}"} for f in findings if f.step > len(steps)
        ],
        "critique": _text(feedback.critique) if feedback and feedback.critique and not findings else None,
        "trace": _text(feedback.trace) if feedback and feedback.trace else None,
    }


def _score(attempt: JudgedAttempt) -> str:
    feedback = attempt.feedback
    if feedback is None:
        return "not judged"
    if feedback.score is None:
        return f"no score: {feedback.status}" + (f" ({feedback.reason})" if feedback.reason else "")
    if feedback.raw_score is None or feedback.raw_score == feedback.score:
        return f"judge's score {feedback.score:.2f}"
    return f"judge's score {feedback.score:.2f} ({feedback.raw_score:.2f} before calibration)"


def _notes(attempt: JudgedAttempt) -> list[str]:
    notes = []
    if attempt.further:
        notes.append(f"The first of {attempt.further + 1} attempts at this question.")
    if attempt.feedback is not None and attempt.feedback.truncated_tokens:
        notes.append(f"The judge did not see {attempt.feedback.truncated_tokens:,} tokens of it.")
    return notes


def _message(message: Message) -> dict[str, Any]:
    return {
        "role": f"{message.role} {message.name}" if message.name else message.role,
        "text": _text(message.text()),
        "reasoning": _text(message.reasoning_content or ""),
        "calls": [_call(call) for call in message.tool_calls or []],
    }


def _observation(step: Step, call: int | None, message: Message | None) -> dict[str, Any]:
    """A call's result, named where calls were made at once. `message` of None: the log does not have it."""
    row = {"role": "tool", "missing": True} if message is None else {**_message(message), "missing": False}
    if call is not None:
        row["role"] = f"result of call {call + 1}: {(step.message.tool_calls or [])[call].name}"
    return row


def _call(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": _text(call.arguments_text())}


def _text(text: str) -> dict[str, Any]:
    """A text, and a glimpse of it where it is long enough to be folded."""
    glimpse = " ".join(text[: GLIMPSE * 4].split())[:GLIMPSE] + "…" if len(text) > LONG else None
    return {"whole": text, "glimpse": glimpse, "length": f"{len(text):,}"}


# ---- figures ----


def _interval(value: Any, digits: int = 3, bounds: bool = True) -> str:
    """`0.745 [0.680, 0.805]`."""
    parts = interval(value)
    if parts is None:
        return NONE
    middle, low, high = parts
    if not bounds or low is None or high is None:
        return f"{middle:.{digits}f}"
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _count(value: Any) -> str:
    figure = number(value)
    return NONE if figure is None else f"{figure:,.0f}"
