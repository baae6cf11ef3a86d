"""Find the mistakes of one run by kind, its loops and wasted calls, with quotes that occur in their step (`rrm failures`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rrm.data.annotation import Finding
from rrm.data.feedback import CriterionAnswer, Feedback, JudgeInfo, clear
from rrm.data.mistakes import DESCRIPTIONS, MISTAKE_KINDS
from rrm.data.questions import question_of
from rrm.data.trajectory import Step, Trajectory
from rrm.prompt.actions import makes_up_result
from rrm.prompt.canonical import CanonicalStep, canonical_step
from rrm.prompt.criteria import Criteria, parse_criteria
from rrm.prompt.likely_kinds import likely_kinds
from rrm.prompt.proven import proven_mistakes
from rrm.prompt.rules import wasted_calls
from rrm.scoring.label_estimates import field_of

Row = dict[str, Any]
MAX_QUOTE_CHARS, MIN_QUOTE_CHARS = 200, 3
"""Most and fewest characters of a quote."""
PRESENT = "yes"
PROVABLE = ("malformed_call", "repeat", "invented_result")
"""Kinds that rules find without a judge."""
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”")
_MODEL_NAMES = ("model", "agent", "model_name")
_ASK = (
    "A step is a mistake where a careful colleague who sees the run up to it, and nothing after it, would say: do not do that. Where "
    'two kinds fit, the first cause counts. For each "yes" name the first such step alone, and begin your sentence with words of '
    "that step, copied exactly, in double quotes."
)


def questions_of(categories: Mapping[str, str], where: str = "categories") -> Criteria:
    """Make the criteria by which a chat model names the mistakes of a run; raises `ConfigError` for invalid names."""
    ask = {
        name: {"ask": f"Is there a step that {text}?", "labels": {PRESENT: 0.0, "no": 1.0}}
        for name, text in categories.items()
    }
    return parse_criteria({"name": "failures", "instructions": _ASK, "questions": ask}, where)


def failures_of(
    trajectory: Trajectory,
    feedback: Feedback | None = None,
    categories: Mapping[str, str] = DESCRIPTIONS,  # pyright: ignore[reportArgumentType]
    by: Sequence[str] = (),
) -> Row:
    """Return a run's row: mistakes in order of steps, the kinds asked about, loops, calls, and the groups of `by`.

    Args:
        feedback: a judge's row; None: rules alone.
        by: `model`, `task`, `tool`, or a dotted path in `meta`.
    """
    raw = trajectory.steps
    steps = [canonical_step(step) for step in raw]
    proven: dict[int, Any] = {step.index: "invented_result" for step in raw if makes_up_result(step)}
    proven |= proven_mistakes(trajectory)
    tools = {k: sorted({call.name for call in step.calls}) for k, step in enumerate(steps, start=1)}
    counted = {k: mistake for k, mistake in proven.items() if mistake in categories}
    mistakes = [
        {"step": k, "kind": mistake, "by": "rules", "quote": own_quote(raw[k - 1], mistake)}
        for k, mistake in counted.items()
    ]
    quotes = {"checked": 0, "dropped": 0, "unplaced": 0}
    asked = asked_kinds(feedback, categories)
    if feedback is not None and feedback.status == "scored":
        mistakes += _judge_mistakes(trajectory, feedback, asked, counted, quotes)
    mistakes = sorted(({**m, "tools": tools[m["step"]]} for m in mistakes), key=lambda m: m["step"])
    source = trajectory.source
    return {
        "id": trajectory.id,
        "source": {**(source.model_dump(exclude_none=True) if source else {}), "digest": trajectory.digest},
        "question": question_of(trajectory),
        "groups": {field: groups_of(trajectory, field, tools) for field in by},
        "steps": len(raw),
        "asked": asked,
        "first_step": mistakes[0]["step"] if mistakes else None,
        "mistakes": mistakes,
        "loops": [dict(zip(("step", "period", "steps"), loop, strict=True)) for loop in loops(steps)],
        "calls": wasted_calls(trajectory, [k for k, mistake in proven.items() if mistake == "repeat"]),
        "quotes": quotes,
        "judge": None if feedback is None else _about(feedback),
    }


def asked_kinds(feedback: Feedback | None, categories: Collection[str]) -> list[str]:
    """Return the categories that a run was checked for: by rules, by answers, by verdicts on steps."""
    names = set[str](PROVABLE)
    if feedback is not None and feedback.status == "scored":
        answered = set(categories).intersection(feedback.criteria or ())
        names |= answered
        if feedback.small_judge is not None or (not answered and clear(feedback.findings)):
            names |= set(MISTAKE_KINDS)
    return [name for name in categories if name in names]


def _about(feedback: Feedback) -> dict[str, Any]:
    unsure = sum(finding.verdict == "unsure" for finding in feedback.findings)
    return {"model": feedback.judge.model, "status": feedback.status, "unsure_steps": unsure}


def as_feedback(row: Mapping[str, Any], feedback: Feedback | None, descriptions: Mapping[str, str]) -> Feedback:
    """Return a row as a judgement for the report: its mistakes as bad findings, and each kind as an answer."""
    info = JudgeInfo(model="rules", prompt_version="", mode="steps")
    own = feedback or Feedback(id=row["id"], status="scored", judge=info)
    named: dict[int, list[str]] = {}
    answers: dict[str, CriterionAnswer] = {}
    for m in row["mistakes"]:
        named.setdefault(m["step"], []).append(f"{m['kind']}: {m.get('why') or descriptions[m['kind']]}.")
        answer = answers.setdefault(m["kind"], CriterionAnswer(label=PRESENT, why=m["quote"]))
        answer.steps.append(m["step"])
    by_step = {f.step: f for f in own.findings}
    bad = [
        Finding(step=k, verdict="bad", p_good=by_step[k].p_good if k in by_step else None, text=text)
        for k, texts in named.items()
        for text in texts
    ]
    findings = sorted([*bad, *(f for f in own.findings if f.step not in named)], key=lambda f: f.step)
    return own.model_copy(update={"findings": findings, "criteria": answers or None})


def _judge_mistakes(
    trajectory: Trajectory, feedback: Feedback, asked: Collection[str], proven: Collection[int], quotes: dict[str, int]
) -> Iterator[Row]:
    """Yield the mistakes that a judge found: its answers by kind; its bad steps, or a small judge's, with likely kinds."""
    steps, named_steps = trajectory.steps, set(proven)
    answers = {name: a for name, a in (feedback.criteria or {}).items() if name in asked}
    for mistake, answer in answers.items():
        if answer.label == PRESENT and (named := _locate_answer(answer, steps, quotes)) and named["step"] not in proven:
            named_steps.add(named["step"])
            yield {**named, "kind": mistake, "by": "judge"}
    small = feedback.small_judge
    if answers and small is None:
        return
    decided = {f.step for f in clear(feedback.findings)}
    findings = [*feedback.findings, *(f for f in (small.findings if small else ()) if f.step not in decided)]
    bad = {f.step: f for f in findings if f.verdict == "bad" and f.step not in named_steps and f.step <= len(steps)}
    likely = likely_kinds(trajectory, bad.keys()) if bad else {}
    for k, finding in bad.items():
        name, _, why = finding.text.partition(":")
        mistake = name if name in asked else likely[k]
        if mistake in asked:
            details = {"p_good": finding.p_good, "why": why.strip() if name == mistake else None}
            quote = own_quote(steps[k - 1], mistake)
            yield {"step": k, "kind": mistake, "by": "judge" if name == mistake else "likely", "quote": quote} | {
                n: v for n, v in details.items() if v is not None
            }


def _locate_answer(answer: CriterionAnswer, steps: Sequence[Step], quotes: dict[str, int]) -> Row | None:
    """Return the step of an answer and its quote, if that stands there; None without a step."""
    why = answer.why or ""
    quoted = next((a or b for a, b in _QUOTED.findall(why) if len(a or b) >= MIN_QUOTE_CHARS), None)
    k = next((k for k in answer.steps if 1 <= k <= len(steps)), None)
    quote = None
    if quoted is not None:
        places = range(1, len(steps) + 1) if k is None else (k,)
        k, quote = next(((n, text) for n in places if (text := find_quote(quoted, steps[n - 1]))), (k, None))
        quotes["checked"] += 1
    quotes["dropped"] += quoted is not None and quote is None
    quotes["unplaced"] += k is None
    return None if k is None else {"step": k, "quote": quote, "why": why[: 2 * MAX_QUOTE_CHARS]}


# ---- quotes ----------------------------------------------------------------------------------------------------------


def texts_of(step: Step) -> list[str]:
    """Return a step's texts: words, calls with their values, results; then all as a judge reads them."""
    message, read = step.message, canonical_step(step)
    calls = message.tool_calls or []
    values = [v for call in calls if isinstance(call.arguments, dict) for v in call.arguments.values()]
    return [
        message.text(),
        message.reasoning_content or "",
        *(call.arguments_text() for call in calls),
        *(v for v in values if isinstance(v, str)),
        *(call.name for call in calls),
        *(m.text() for m in step.observations),
        read.action_text,
        read.return_text,
    ]


def find_quote(quote: str, step: Step) -> str | None:
    """Return the step's own words that a quote repeats, ignoring whitespace; None where the step lacks them."""
    words = quote[: 2 * MAX_QUOTE_CHARS].strip("… \t\n").split()
    if not words:
        return None
    pattern = re.compile(r"\s++".join(map(re.escape, words)))
    return next((m[0] for text in texts_of(step) if (m := pattern.search(text))), None)


def own_quote(step: Step, mistake: str) -> str | None:
    """Return the words of a step that show it: of a malformed call its result, else words, else the call."""
    texts = texts_of(step)
    results = [m.text() for m in step.observations] if mistake == "malformed_call" else []
    quote = next((text.strip() for text in [*results, *texts] if len(text.strip()) >= MIN_QUOTE_CHARS), "")
    if len(quote) > MAX_QUOTE_CHARS:
        quote = (
            quote[:MAX_QUOTE_CHARS].rsplit(maxsplit=1)[0] if " " in quote[:MAX_QUOTE_CHARS] else quote[:MAX_QUOTE_CHARS]
        )
    return find_quote(quote, step)


# ---- loops and groups ------------------------------------------------------------------------------------------------


def loops(steps: Sequence[CanonicalStep]) -> list[tuple[int, int, int]]:
    """Return (first step, period, steps) of maximal stretches where steps repeat with a period: two rounds or more, three for period 1."""
    codes: dict[Any, int] = {}
    keys = [(tuple(c.text for c in s.calls) or s.thought, s.answer, s.returns) for s in steps]
    codes_in_order = np.array([codes.setdefault(key, len(codes)) for key in keys])
    stretches: list[tuple[int, int, int]] = []
    for period in range(1, len(keys) // 2 + 1 if len(codes) < len(keys) else 0):
        equal_after_period = np.concatenate([[False], codes_in_order[period:] == codes_in_order[:-period], [False]])
        bounds = np.flatnonzero(np.diff(equal_after_period.astype(np.int8))).reshape(-1, 2)
        for start, end in bounds[bounds[:, 1] - bounds[:, 0] >= max(period, 2)].tolist():
            if not any(s - 1 <= start and end + period <= s - 1 + n for s, _, n in stretches):
                stretches.append((start + 1, period, end - start + period))
    return sorted(stretches)


def groups_of(trajectory: Trajectory, field: str, tools: Mapping[int, Sequence[str]]) -> list[str]:
    """Return a run's values of a field: its tools, else one, or none where the run does not say."""
    if field == "tool":
        return sorted({name for names in tools.values() for name in names})
    if field == "task":
        return [question_of(trajectory)]
    fields = trajectory.meta | trajectory.model_dump(include={"outcome", "source", "meta"})
    values = (field_of(fields, path) for path in (_MODEL_NAMES if field == "model" else (field,)))
    return [str(value) for value in values if value is not None and not isinstance(value, dict | list)][:1]
