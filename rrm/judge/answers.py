"""Parse a reply to a judge's criteria into answers, or into a typed failure that names the question.

| reply | status |
|---|---|
| every question answered, one with a weight by a value | `scored` |
| a question without an answer, with two different ones, or with one outside its scale | `unparsable` |
| under a schema: no JSON object, or text around it (reasoning and a code fence are allowed) | `unparsable` |
| cut off by length before all was answered | `truncated` |
| every answer without a value ("not applicable"), so no score | `unparsable` |

Readable answers are kept beside a failure. Nothing is guessed: `0.7 or so` and `true` are no numbers, and `7/10` needs a
scale to 10.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rrm.data.feedback import CriterionAnswer, Mode, parse_findings, parse_judgement, parse_score
from rrm.data.verdicts import SEVERAL, named_steps
from rrm.engines.base import Reply
from rrm.judge.chat import Judgement
from rrm.judge.hallucinated_steps import cut_from_critique, cut_notice
from rrm.judge.score_text import open_think, outside_think
from rrm.prompt.criteria import TAG, Criteria, Question, plain

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n[ \t]*```\Z", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(rf"<{TAG}\s+name\s*=\s*[\"']?([A-Za-z][\w-]{{0,47}})[\"']?\s*>", re.IGNORECASE)
_CLOSE = re.compile(rf"</{TAG}\s*>", re.IGNORECASE)
_LINE = re.compile(r"^[ \t*_#>-]*(why|steps|answer)[ \t*_]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)
# programs' answers to a yes/no question; True's key also matches 1 and 1.0
_TRUTH: dict[Any, str] = {True: "yes", "true": "yes", "1": "yes", False: "no", "false": "no", "0": "no"}
_AROUND = " \t\n*_`\"'"
_MOST = 10**6  # bound of step numbers
_QUOTED = 60  # characters of an answer quoted in a message


@dataclass
class _ReadAnswers:
    answers: dict[str, CriterionAnswer] = field(default_factory=dict)
    problem: str | None = None  # the first one
    missing: bool = False  # `problem` is a missing answer, which a cut-off reply may not have reached
    made_up: set[int] = field(default_factory=set)  # steps mentioned that the run does not have
    trace: str | None = None
    critique: str | None = None

    def fail(self, problem: str, *, missing: bool = False) -> None:
        if self.problem is None:
            self.problem, self.missing = problem, missing


@dataclass(frozen=True)
class _Answer:
    answer: Any
    why: Any = None
    steps: Any = None


class _Object(dict[str, Any]):
    """A JSON object that remembers keys given twice with different values."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        super().__init__()
        self.twice = dict[str, tuple[Any, Any]]()
        for key, value in pairs:
            if key in self and self[key] != value:
                self.twice[key] = (self[key], value)
            self[key] = value


def read_answers(reply: Reply, criteria: Criteria, mode: Mode, n_steps: int, *, structured: bool) -> Judgement:
    """Parse a reply's answers (statuses: table at the top); text about steps beyond `n_steps` is cut."""
    text = open_think(reply.text)
    result = _ReadAnswers()
    if structured:
        _read_object(result, outside_think(text).strip(), criteria, n_steps)
    else:
        _read_blocks(result, outside_think(text), criteria, n_steps)
        parsed = parse_judgement(text)
        result.trace, result.critique = parsed.trace, parse_judgement(outside_think(text)).critique
    texts = {
        "trace": result.trace if mode == "full" else None,
        "critique": result.critique if mode != "score" else None,
        "criteria": result.answers,
    }
    phantoms = cut_notice(result.made_up)
    if result.problem is not None:
        cut = result.missing and reply.stop_reason == "length"
        problem = f"cut off by length: {result.problem}" if cut else result.problem
        return Judgement("truncated" if cut else "unparsable", reason=_joined(problem, phantoms), **texts)
    score = criteria.value(result.answers)
    if score is None:
        none = "no question that counts was answered with a value (all are not applicable), so there is no score"
        return Judgement("unparsable", reason=_joined(none, phantoms), **texts)
    return Judgement("scored", raw_score=score, reason=phantoms, **texts)


def is_object(reply: Reply) -> bool:
    try:
        return isinstance(_load(outside_think(open_think(reply.text)).strip()), dict)
    except (ValueError, RecursionError):
        return False


def read_notes(reply: Reply, n_steps: int) -> Judgement:
    """Parse the step notes of a reading before the last; `unparsable` without any."""
    text = outside_think(open_think(reply.text))
    critique = parse_judgement(text).critique or text.replace("<critique>", "").replace("</critique>", "").strip()
    if parse_findings(critique, n_steps):
        return Judgement("scored", critique=critique)
    cut = reply.stop_reason == "length"
    return Judgement("truncated" if cut else "unparsable", reason="no note on a step" if critique else "empty reply")


def _joined(*parts: str | None) -> str | None:
    return "; ".join(filter(None, parts)) or None


# ---- a JSON object ----


def _load(body: str) -> Any:
    fenced = _FENCE.match(body)
    return json.loads(fenced[1] if fenced else body, object_pairs_hook=_Object)


def _read_object(result: _ReadAnswers, body: str, criteria: Criteria, n_steps: int) -> None:
    names = list(criteria.questions)
    first = next((name for name in names if f'"{name}"' not in body), names[-1])
    try:
        loaded = _load(body)
    except (ValueError, RecursionError) as error:
        around = "{" in body and not body.startswith(("{", "```"))
        why = "text stands around the JSON object" if around else f"the reply is no whole JSON object ({_brief(error)})"
        result.fail(f"no answer to {first!r}: {why if body else 'empty reply'}", missing=True)
        return
    answers = loaded.get("answers") if isinstance(loaded, dict) else None
    if not isinstance(answers, _Object):
        result.fail(f"no answer to {first!r}: the reply has no object `answers`", missing=True)
        return
    if isinstance(loaded, _Object) and "answers" in loaded.twice:
        result.fail(f"no answer to {names[0]!r} alone: `answers` stands in the reply twice, with different values")
        return
    result.trace, result.critique = _text(loaded.get("trace")), _text(loaded.get("critique"))
    for name, question in criteria.questions.items():
        item = answers.get(name)
        if name in answers.twice:
            result.fail(f"two different answers to {name!r}")
        elif name not in answers:
            result.fail(f"no answer to {name!r}", missing=True)
        elif not isinstance(item, _Object) or "answer" not in item:
            result.fail(f"no answer to {name!r}: not an object with an `answer`", missing=True)
        elif "answer" in item.twice:
            result.fail(f"two different answers to {name!r}: {_quoted(item.twice['answer'])}")
        else:
            _take(result, name, question, _Answer(item["answer"], item.get("why"), item.get("steps")), n_steps)


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _brief(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:100]


# ---- tags ----


def _read_blocks(result: _ReadAnswers, text: str, criteria: Criteria, n_steps: int) -> None:
    blocks: dict[str, list[_Answer]] = {}
    opened = list(_OPEN.finditer(text))
    for number, tag in enumerate(opened):
        end = opened[number + 1].start() if number + 1 < len(opened) else len(text)
        body = text[tag.end() : end]
        if close := _CLOSE.search(body):  # an open block may have been cut off inside its answer
            blocks.setdefault(tag[1], []).append(_read_block(body[: close.start()]))
    for name, question in criteria.questions.items():
        written = blocks.get(name, [])
        answers = [block for block in written if block.answer is not None]
        if not answers:
            why = ": its block has no line `answer: …`" if written else "" if text.strip() else ": empty reply"
            result.fail(f"no answer to {name!r}{why}", missing=not written)
        elif len({plain(block.answer) for block in answers}) > 1:
            result.fail(f"two different answers to {name!r}: {_quoted([block.answer for block in answers])}")
        else:
            _take(result, name, question, answers[-1], n_steps)


def _read_block(body: str) -> _Answer:
    # the last line of each; differing answers are joined, which fits no scale
    matches = list(_LINE.finditer(body))
    fields: dict[str, list[str]] = {}
    for number, match in enumerate(matches):
        end = matches[number + 1].start() if number + 1 < len(matches) else len(body)
        fields.setdefault(match[1].lower(), []).append(body[match.end() : end].strip())
    answers = list(dict.fromkeys(fields.get("answer", [])))
    return _Answer(" / ".join(answers) if answers else None, *(fields.get(key, [None])[-1] for key in ("why", "steps")))


# ---- one answer ----


def _take(result: _ReadAnswers, name: str, question: Question, answer: _Answer, n_steps: int) -> None:
    try:
        label, value = answer_of(question, answer.answer)
    except ValueError as error:
        result.fail(f"the answer to {name!r} is not in its scale: {error}")
        return
    why, gone = _why(answer.why, n_steps)
    steps, more = _steps(answer.steps, n_steps)
    result.made_up |= gone | more
    result.answers[name] = CriterionAnswer(value=value, label=label, why=why, steps=steps)


def answer_of(question: Question, answer: Any) -> tuple[str | None, float | None]:
    """Return (label, value) of an answer as written.

    Raises ValueError, quoting it, if it is not in the question's scale.
    """
    allowed = question.described()
    if question.scale == "yes_no" and isinstance(answer, str | int | float):
        answer = _TRUTH.get(answer.strip(_AROUND + ".").casefold() if isinstance(answer, str) else answer, answer)
    if question.levels and isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    if isinstance(answer, bool) or answer is None or not isinstance(answer, str | int | float):
        raise ValueError(f"{_quoted([answer])} where {allowed} was asked for")
    if isinstance(answer, int | float) and question.of_numbers:
        if not 0.0 <= answer <= 1.0:  # nor is NaN
            raise ValueError(f"{str(answer)[:_QUOTED]} lies outside [0, 1]")
        return None, float(answer)
    text = str(answer)
    if question.levels:  # 4/5, of a scale to 5
        text = re.sub(rf"(?<!\s)\s*+(?:/|out of)\s*+{question.levels[-1]}\s*+\Z", "", text.strip(_AROUND))
    for form in (text.strip(), text.strip(_AROUND), text.strip(_AROUND + ".")):
        for label, value in question.answers.items():
            if plain(form) == plain(label):
                return label, value
    if not question.of_numbers:
        raise ValueError(f"{_quoted([text])} where {allowed} was asked for")
    return None, parse_score(text.strip(_AROUND))


def _why(text: Any, n_steps: int) -> tuple[str | None, set[int]]:
    """Return the reason on one line without lines on missing steps, and these steps."""
    if not isinstance(text, str):
        return None, set()
    why, gone = cut_from_critique(" ".join(text.split()), n_steps)
    return why or None, gone


def _steps(listed: Any, n_steps: int) -> tuple[list[int], set[int]]:
    """Return (steps of the run, others) from a list of numbers, or from `3, 4` or `2-5`."""
    if isinstance(listed, str):
        numbers = {int(k) for k in re.findall(r"(?<!\d)\d{1,6}(?!\d)", listed)}
        return named_steps(listed, n_steps), {k for k in numbers if not 1 <= k <= n_steps}
    entries = listed if isinstance(listed, list) else []
    integers = (k for k in entries if isinstance(k, int) and not isinstance(k, bool))
    numbers = [k for k in dict.fromkeys(integers) if abs(k) < _MOST]
    inside = [k for k in numbers if 1 <= k <= n_steps]
    return inside[:SEVERAL], {k for k in numbers if not 1 <= k <= n_steps}


def _quoted(values: Iterable[Any]) -> str:
    plainly = (
        value if isinstance(value, str | int | float | None) else f"a JSON {type(value).__name__}" for value in values
    )
    return " and ".join(json.dumps(value)[:_QUOTED] for value in plainly)
