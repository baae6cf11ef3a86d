"""Write facts about each step that a program can check, as a line of the prompt (version 3).

    noted: same call as step 2, same result          the calls stand in an earlier step as well
    noted: no tool Refund; lacks order_id             against the tools that the run had on offer
    noted: nowhere before: 41, Baker                  values in calls and answers that no task, result or user has named
    noted: step 3 failed; calls so far: find, refund  where a step makes no call

A fact is not a verdict: a program may ask for a status twice, and a sum is nowhere before it is computed. Facts use the whole run before
the step, also where the judge's window does not show it. They use nothing after the step.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from rrm.data.trajectory import Trajectory
from rrm.prompt.canonical import CanonicalCall, CanonicalStep, canonical_step
from rrm.prompt.failures import error_of
from rrm.prompt.neutralise import neutralise_canonical
from rrm.prompt.rendering import on_one_line

CODE = frozenset({"python", "bash", "code", "sql"})  # calls whose argument is a program: its names are its own
MOST, LONGEST = 4, 24  # values or names listed, and characters of one
_WORD = re.compile(r"[^\W_](?:[\w@.,+'’:/#-]{0,80}[^\W_])?")
_PATH, _PART = re.compile(r"[/,:#]+"), re.compile(r"[^\w.]+|\.(?!\d)")  # between the parts of a word
_SQL = re.compile(r"\s*(?:select|insert|update|delete|with|create|alter)\b", re.IGNORECASE)
# not compared: an agent computes dates and times from words such as `next Friday at ten`
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:T.*)?|\d\d?:\d\d(?::\d\d)?")
_SENTENCE = re.compile(r"(?:^|[.!?:\n*>\"“(-])\s*$")


def facts(trajectory: Trajectory) -> list[str]:
    """Return one line for each step, empty where there is no fact. Time is linear in the run's length."""
    offered = dict(_offered(trajectory))
    words_before = words_in(" ".join([trajectory.task, *(m.text() for m in trajectory.prelude)]))
    latest: dict[str, tuple[int, tuple[tuple[str, str], ...]]] = {}
    calls, failed, lines = Counter[str](), 0, list[str]()
    for number, step in enumerate(map(canonical_step, trajectory.steps), start=1):
        notes = list[str]()
        key = json.dumps([[c.name, c.arguments] for c in step.calls], sort_keys=True, default=str)
        if step.calls and key in latest:
            before, returned = latest[key]
            notes.append(f"same call as step {before}, {'same' if returned == step.returns else 'other'} result")
        notes += [fault for call in step.calls for fault in _against(call, offered)]
        new = list(dict.fromkeys(word for word in values_in_step(step) if plain_word(word) not in words_before))
        if new:
            more = f" and {len(new) - MOST} more" if len(new) > MOST else ""
            notes.append(f"nowhere before: {', '.join(word[:LONGEST] for word in new[:MOST])}{more}")
        if not step.calls:
            notes += [f"step {failed} failed"] if failed and failed == number - 1 else []
            notes.append(f"calls so far: {_listed(calls)}")
        lines.append(neutralise_canonical(on_one_line("; ".join(notes))))
        if step.calls:
            latest[key] = (number, step.returns)
        calls.update(call.name for call in step.calls)
        failed = number if any(label == "result" and error_of(text) for label, text in step.returns) else failed
        for _, text in step.returns:
            words_before |= words_in(text)
    return lines


def _offered(trajectory: Trajectory) -> Iterator[tuple[str, tuple[frozenset[str], frozenset[str]] | None]]:
    """Yield each tool's name with its (parameters, required parameters), or None without a schema."""
    for tool in trajectory.tools or []:
        inner = tool["function"] if isinstance(tool.get("function"), dict) else tool
        schema = inner.get("parameters") or inner.get("input_schema")
        properties = schema.get("properties") if isinstance(schema, dict) else None
        required = schema.get("required") if isinstance(schema, dict) else None
        complete = isinstance(properties, dict) and isinstance(required, list)
        yield (
            str(inner.get("name")),
            (frozenset(map(str, properties)), frozenset(map(str, required))) if complete else None,  # pyright: ignore[reportArgumentType]
        )


def _against(call: CanonicalCall, offered: dict[str, tuple[frozenset[str], frozenset[str]] | None]) -> Iterator[str]:
    name = call.name[:LONGEST]
    if call.malformed:
        yield f"{name} is malformed"
    if not offered or "None" in offered or (call.name not in offered and call.name in CODE):
        return
    if call.name not in offered:
        yield f"no tool {name}"
        return
    schema = offered[call.name]
    if schema is None or isinstance(call.arguments, str):
        return
    properties, required = schema
    if missing := sorted(required - call.arguments.keys()):
        yield f"{name} lacks {', '.join(word[:LONGEST] for word in missing[:MOST])}"
    if properties and (foreign := sorted(call.arguments.keys() - properties)):
        yield f"{name} has no {', '.join(word[:LONGEST] for word in foreign[:MOST])}"


def values_in_step(step: CanonicalStep) -> Iterator[str]:
    """Yield numbers, ids, addresses and names in a step's calls and in its answer."""
    texts = [_text(call) for call in step.calls if call.name not in CODE]
    texts += [step.answer] if step.answer is not None else [] if step.calls else [step.thought]
    for text in texts:
        for match in _WORD.finditer(text):
            word = match.group()
            digits = any(c.isdigit() for c in word) and len(word) > 1
            begins = _SENTENCE.search(text[max(match.start() - 3, 0) : match.start()])
            name = word[0].isupper() and len(word) > 2 and not begins
            if (digits and not _DATE.fullmatch(word)) or "@" in word or (name and not _SQL.match(text)):
                yield word


def _text(call: CanonicalCall) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    return "\n".join(
        v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, default=str) for v in call.arguments.values()
    )


def words_in(text: str) -> set[str]:
    words = set[str]()
    for match in _WORD.finditer(text):
        word = match.group()
        words.add(plain_word(word))
        if not word.isalnum():
            for between in (_PATH, _PART):
                words.update(plain_word(piece) for piece in between.split(word) if piece)
    return words


def plain_word(word: str) -> str:
    """Normalise a word: lower case, no possessive, thousands' separators or trailing zeros of a decimal."""
    word = word.lower().removesuffix("'s").removesuffix("’s")
    if word[0].isdigit():
        word = word.replace(",", "")
        word = word.rstrip("0").rstrip(".") if re.fullmatch(r"\d+\.\d*0+", word) else word
    return word


def _listed(calls: Counter[str]) -> str:
    named = [
        f"{name[:LONGEST]} {count}" if count > 1 else name[:LONGEST] for name, count in calls.most_common(2 * MOST)
    ]
    return ", ".join(named) or "none"
