"""A reply to a judge's criteria becomes answers, and every way in which it is not one a typed failure that names the question.

| what came back | status |
|---|---|
| every question answered, one with a weight by a value | `scored` |
| a question without an answer, an answer that is not in its scale, two different answers to one question | `unparsable` |
| held to a schema: no JSON object, or text around it (but for its reasoning and a code fence) | `unparsable` |
| cut off by length before all was answered | `truncated` |
| every answer without a value ("not applicable") | `unparsable`: there is nothing to make a score of |

The answers that could be read are kept beside the failure. An answer is never guessed: `0.7 or so` and `true` are no numbers, and `7/10`
is one of a scale to 10 alone.
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
from rrm.judge.hallucinated_steps import cut_from_critique, said_of
from rrm.judge.score_text import open_think, outside_think
from rrm.prompt.criteria import TAG, Criteria, Question, plain

_FENCE = re.compile(r"\A```(?:json)?[ \t]*\n(.*)\n[ \t]*```\Z", re.DOTALL | re.IGNORECASE)
_OPEN = re.compile(rf"<{TAG}\s+name\s*=\s*[\"']?([A-Za-z][\w-]{{0,47}})[\"']?\s*>", re.IGNORECASE)
_CLOSE = re.compile(rf"</{TAG}\s*>", re.IGNORECASE)
_LINE = re.compile(r"^[ \t*_#>-]*(why|steps|answer)[ \t*_]*:[ \t*_]*", re.IGNORECASE | re.MULTILINE)
_TRUTH: dict[Any, str] = {True: "yes", "true": "yes", "1": "yes", False: "no", "false": "no", "0": "no"}
"""Answers of a program to a question of yes or no; 1 and 1.0 are True's key."""
_AROUND = " \t\n*_`\"'"
_MOST = 10**6
"""A step's number is below this."""
_QUOTED = 60
"""Characters of an answer that a message quotes."""


@dataclass
class _ReadAnswers:
    """What was found in a reply."""

    answers: dict[str, CriterionAnswer] = field(default_factory=dict)
    problem: str | None = None
    """The first one."""
    missing: bool = False
    """Whether that is an answer which did not come: a reply that was cut off may just not have got there."""
    made_up: set[int] = field(default_factory=set)
    """Steps that it speaks of and the run does not have."""
    trace: str | None = None
    critique: str | None = None

    def fail(self, problem: str, *, missing: bool = False) -> None:
        """Note a problem, unless there was one before it."""
        if self.problem is None:
            self.problem, self.missing = problem, missing


@dataclass(frozen=True)
class _Answer:
    """An answer as it was written."""

    said: Any
    why: Any = None
    steps: Any = None


class _Object(dict[str, Any]):
    """A JSON object that remembers which keys were given twice with different values."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        super().__init__()
        self.twice = dict[str, tuple[Any, Any]]()
        for key, value in pairs:
            if key in self and self[key] != value:
                self.twice[key] = (self[key], value)
            self[key] = value


def read_answers(reply: Reply, criteria: Criteria, mode: Mode, n_steps: int, *, structured: bool) -> Judgement:
    """What a reply answers (see the table at the top).

    Args:
        n_steps: of the run; what is said of other steps is cut.
        structured: whether it was to follow the schema; else it is in tags.
    """
    text = open_think(reply.text)
    found = _ReadAnswers()
    if structured:
        _read_object(found, outside_think(text).strip(), criteria, n_steps)
    else:
        _read_blocks(found, outside_think(text), criteria, n_steps)
        parsed = parse_judgement(text)
        found.trace, found.critique = parsed.trace, parse_judgement(outside_think(text)).critique
    said = {
        "trace": found.trace if mode == "full" else None,
        "critique": found.critique if mode != "score" else None,
        "criteria": found.answers,
    }
    phantoms = said_of(found.made_up)
    if found.problem is not None:
        cut = found.missing and reply.stop_reason == "length"
        problem = f"cut off by length: {found.problem}" if cut else found.problem
        return Judgement("truncated" if cut else "unparsable", reason=_joined(problem, phantoms), **said)
    score = criteria.value(found.answers)
    if score is None:
        none = "no question that counts was answered with a value (all are not applicable), so there is no score"
        return Judgement("unparsable", reason=_joined(none, phantoms), **said)
    return Judgement("scored", raw_score=score, reason=phantoms, **said)


def is_object(reply: Reply) -> bool:
    """Whether a reply is one JSON object, as a server that was given a schema sends it."""
    try:
        return isinstance(_load(outside_think(open_think(reply.text)).strip()), dict)
    except (ValueError, RecursionError):
        return False


def read_notes(reply: Reply, n_steps: int) -> Judgement:
    """What a reading that is not the last one notes of its steps; `unparsable` where it speaks of none."""
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


def _read_object(found: _ReadAnswers, body: str, criteria: Criteria, n_steps: int) -> None:
    names = list(criteria.questions)
    first = next((name for name in names if f'"{name}"' not in body), names[-1])
    try:
        loaded = _load(body)
    except (ValueError, RecursionError) as error:
        around = "{" in body and not body.startswith(("{", "```"))
        why = "text stands around the JSON object" if around else f"the reply is no whole JSON object ({_brief(error)})"
        found.fail(f"no answer to {first!r}: {why if body else 'empty reply'}", missing=True)
        return
    answers = loaded.get("answers") if isinstance(loaded, dict) else None
    if not isinstance(answers, _Object):
        found.fail(f"no answer to {first!r}: the reply has no object `answers`", missing=True)
        return
    if isinstance(loaded, _Object) and "answers" in loaded.twice:
        found.fail(f"no answer to {names[0]!r} alone: `answers` stands in the reply twice, with different values")
        return
    found.trace, found.critique = _text(loaded.get("trace")), _text(loaded.get("critique"))
    for name, question in criteria.questions.items():
        item = answers.get(name)
        if name in answers.twice:
            found.fail(f"two different answers to {name!r}")
        elif name not in answers:
            found.fail(f"no answer to {name!r}", missing=True)
        elif not isinstance(item, _Object) or "answer" not in item:
            found.fail(f"no answer to {name!r}: not an object with an `answer`", missing=True)
        elif "answer" in item.twice:
            found.fail(f"two different answers to {name!r}: {_quoted(item.twice['answer'])}")
        else:
            _take(found, name, question, _Answer(item["answer"], item.get("why"), item.get("steps")), n_steps)


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _brief(error: Exception) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)[:100]


# ---- tags ----


def _read_blocks(found: _ReadAnswers, text: str, criteria: Criteria, n_steps: int) -> None:
    blocks: dict[str, list[_Answer]] = {}
    opened = list(_OPEN.finditer(text))
    for number, tag in enumerate(opened):
        end = opened[number + 1].start() if number + 1 < len(opened) else len(text)
        body = text[tag.end() : end]
        if close := _CLOSE.search(body):  # an open block may have been cut off inside its answer
            blocks.setdefault(tag[1], []).append(_read_block(body[: close.start()]))
    for name, question in criteria.questions.items():
        written = blocks.get(name, [])
        answers = [block for block in written if block.said is not None]
        if not answers:
            why = ": its block has no line `answer: …`" if written else "" if text.strip() else ": empty reply"
            found.fail(f"no answer to {name!r}{why}", missing=not written)
        elif len({plain(block.said) for block in answers}) > 1:
            found.fail(f"two different answers to {name!r}: {_quoted([block.said for block in answers])}")
        else:
            _take(found, name, question, answers[-1], n_steps)


def _read_block(body: str) -> _Answer:
    """The last `why`, `steps` and `answer` of a block; two answers that differ stay two, which no scale has."""
    places = list(_LINE.finditer(body))
    said: dict[str, list[str]] = {}
    for number, place in enumerate(places):
        end = places[number + 1].start() if number + 1 < len(places) else len(body)
        said.setdefault(place[1].lower(), []).append(body[place.end() : end].strip())
    answers = list(dict.fromkeys(said.get("answer", [])))
    return _Answer(" / ".join(answers) if answers else None, *(said.get(key, [None])[-1] for key in ("why", "steps")))


# ---- one answer ----


def _take(found: _ReadAnswers, name: str, question: Question, answer: _Answer, n_steps: int) -> None:
    try:
        label, value = answer_of(question, answer.said)
    except ValueError as error:
        found.fail(f"the answer to {name!r} is not in its scale: {error}")
        return
    why, gone = _why(answer.why, n_steps)
    steps, more = _steps(answer.steps, n_steps)
    found.made_up |= gone | more
    found.answers[name] = CriterionAnswer(value=value, label=label, why=why, steps=steps)


def answer_of(question: Question, said: Any) -> tuple[str | None, float | None]:
    """(label, value) of an answer as it was written.

    Raises:
        ValueError: it is not in the question's scale; the message quotes it and says what is.
    """
    allowed = question.described()
    if question.scale == "yes_no" and isinstance(said, str | int | float):
        said = _TRUTH.get(said.strip(_AROUND + ".").casefold() if isinstance(said, str) else said, said)
    if question.levels and isinstance(said, float) and said.is_integer():
        said = int(said)
    if isinstance(said, bool) or said is None or not isinstance(said, str | int | float):
        raise ValueError(f"{_quoted([said])} where {allowed} was asked for")
    if isinstance(said, int | float) and question.of_numbers:
        if not 0.0 <= said <= 1.0:  # nor is NaN
            raise ValueError(f"{str(said)[:_QUOTED]} lies outside [0, 1]")
        return None, float(said)
    text = str(said)
    if question.levels:  # 4/5, of a scale to 5
        text = re.sub(rf"(?<!\s)\s*+(?:/|out of)\s*+{question.levels[-1]}\s*+\Z", "", text.strip(_AROUND))
    for form in (text.strip(), text.strip(_AROUND), text.strip(_AROUND + ".")):
        for label, value in question.answers.items():
            if plain(form) == plain(label):
                return label, value
    if not question.of_numbers:
        raise ValueError(f"{_quoted([text])} where {allowed} was asked for")
    return None, parse_score(text.strip(_AROUND))


def _why(said: Any, n_steps: int) -> tuple[str | None, set[int]]:
    """The reason on one line, without what it says of steps that do not exist."""
    if not isinstance(said, str):
        return None, set()
    why, gone = cut_from_critique(" ".join(said.split()), n_steps)
    return why or None, gone


def _steps(said: Any, n_steps: int) -> tuple[list[int], set[int]]:
    """(steps of the run, others) of a list of numbers, or of `3, 4` or `2-5`."""
    if isinstance(said, str):
        numbers = {int(k) for k in re.findall(r"(?<!\d)\d{1,6}(?!\d)", said)}
        return named_steps(said, n_steps), {k for k in numbers if not 1 <= k <= n_steps}
    given = said if isinstance(said, list) else []
    whole = (k for k in given if isinstance(k, int) and not isinstance(k, bool))
    numbers = [k for k in dict.fromkeys(whole) if abs(k) < _MOST]
    kept = [k for k in numbers if 1 <= k <= n_steps]
    return kept[:SEVERAL], {k for k in numbers if not 1 <= k <= n_steps}


def _quoted(said: Iterable[Any]) -> str:
    plainly = (one if isinstance(one, str | int | float | None) else f"a JSON {type(one).__name__}" for one in said)
    return " and ".join(json.dumps(one)[:_QUOTED] for one in plainly)
