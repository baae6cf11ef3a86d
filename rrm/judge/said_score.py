"""Scores as chat models write them: read where only one reading is possible, and never guessed.

| a reply says (outside its thinking and its critique) | it is read as |
|---|---|
| `<score>0.8</score>`, `<score>0,8</score>`, `<score>0.8 (good work)</score>` | 0.8 |
| `8/10`, `4 out of 5`, `80%` in the place of a number | the share |
| a line `**Score:** 0.8`, a JSON object with `"score": 0.8`, in a fence or between words, nothing but a number | 0.8 |
| a number outside [0, 1] without its scale (`8`), a word, `0.8 or 0.9`, two scores that differ | nothing, and why |

A score in the thinking was tried out, and one in the critique is quoted: neither is the reply's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rrm.blocks import ParsedJudgement, contents, parse_judgement, parse_score

_BLOCK = re.compile(r"<score\s{0,9}>([^<]{0,200})</score\s{0,9}>", re.IGNORECASE)
_OPEN = re.compile(r"<score\s{0,9}>([^<]{0,200}?[^<.\s])\s{0,9}\Z", re.IGNORECASE)
_LABELLED = re.compile(
    r"^[ \t>*_#`-]*+(?:(?:final|overall|total)[ \t]++)?(?:score|rating)[ \t*_`]*+(?:\([^()\n]{0,40}\)[ \t*_`]*+)?"
    r"(?:(?::|=|\bis\b)[ \t]*+\n?|\n{1,2})([^\n]{1,200})$",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = r"\d{1,3}(?:\.\d{1,9})?|\.\d{1,9}|0,\d{1,9}|1,0{1,2}|[1-9],\d{1,2}"
_WRITTEN = re.compile(
    rf"(?P<number>{_NUMBER})(?:[ \t]*(?:/|out[ \t]of)[ \t]*(?P<of>\d{{1,3}})(?:[.,]0)?|(?P<percent>[ \t]*%))?"
    r"(?P<comment>[ \t]*\([^\d\n]*\)|[ \t]+[-–—][ \t][^\d\n]*|[,;:][ \t][^\d\n]*)?"
)
SCALES = (1, 5, 10, 100)
"""Denominators that a score may have."""
_AROUND = " \t\n*_`\"'“”"
_OBJECTS = 20
"""Opening braces at which a JSON object is looked for: a reply of nothing else is no judgement."""
_LONGEST = 200
"""Characters of a score with what is said of it: a model that repeats a digit for ever has lost its way."""
_QUOTED = 40
"""Characters of a score that a message quotes."""


def open_think(text: str) -> str:
    """Thinking models' chat templates open the reasoning in the prompt: the reply then only closes it."""
    close = text.find("</think>")
    return "<think>" + text if close >= 0 and "<think>" not in text[:close] else text


def outside_think(text: str) -> str:
    """The text without its reasoning: a score tried out there is no verdict, whether the block was closed or not."""
    return without_thoughts(text).partition("<think>")[0]


def without_thoughts(text: str) -> str:
    """The text without reasoning that was closed."""
    parts, at = list[str](), 0
    for start, end in contents(text, "think"):
        parts.append(text[at : start - len("<think>")])
        at = end + len("</think>")
    return "".join((*parts, text[at:]))


def own_text(text: str) -> str:
    """The text with line breaks in the place of its thoughts and critiques, as long as it was: what stands in it is the reply's own."""
    for tag in ("think", "critique"):
        parts, at = list[str](), 0
        for start, end in contents(text, tag):
            start, end = start - len(tag) - 2, end + len(tag) + 3
            parts += [text[at:start], "\n" * (end - start)]
            at = end
        text = "".join((*parts, text[at:]))
        if tag == "think" and (left := text.find("<think>")) >= 0:
            text = text[:left] + "\n" * (len(text) - left)
    return text


def score_blocks(text: str) -> list[re.Match[str]]:
    """Every `<score>…</score>` of the reply's own, well formed or not, whether its thinking was opened in the prompt or not."""
    closed = text.find("</think>")
    if closed >= 0 and "<think>" not in text[:closed]:
        closed += len("</think>")
        text = "\n" * closed + text[closed:]
    return list(_BLOCK.finditer(own_text(text)))


def read_number(written: Any) -> float:
    """The one number in [0, 1] that was written.

    Raises:
        ValueError: there is none, or it may be read in two ways; the message quotes it.
    """
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise ValueError(f"score {str(written)[:_QUOTED]!r} is not a number")
    text = str(written).strip(_AROUND)
    try:
        if len(text) <= _LONGEST:
            return parse_score(text)
        raise ValueError(f"score {text[:_QUOTED]!r} is not a number")
    except ValueError:
        found = _WRITTEN.fullmatch(text.rstrip("." + _AROUND))
        if found is None or (found["number"] == text and "," not in text):
            raise
    number, most = float(found["number"].replace(",", ".")), 100 if found["percent"] else int(found["of"] or 1)
    if most not in SCALES or 0.0 < number < 1.0 < most:
        raise ValueError(f"score {text[:_QUOTED]!r} can be read in more than one way")
    if number > most:
        raise ValueError(f"score {text[:_QUOTED]!r} lies outside [0, 1]")
    return number / most


def read_said(text: str, *, ended: bool) -> ParsedJudgement:
    """A chat model's reply, parsed.

    Args:
        text: with its thinking opened (`open_think`).
        ended: whether the model ended it, and not a limit: then its last tag need not be closed.
    """
    own, said = own_text(text), parse_judgement(outside_think(text))
    objects = list(_objects(own))
    blocks = _BLOCK.findall(own) or (_OPEN.findall(own) if ended else [])
    written: list[Any] = [*blocks, *(value for item in objects for value in item.values_of("score"))]
    others: list[Any] = [*_LABELLED.findall(own), *([] if written else [own])]
    found = [read_number(one) for one in (*written, *others) if _refusal(one) is None]
    problem = None
    if written and (refusal := _refusal(written[-1])):  # an earlier one may repeat what was asked for: 0.0 to 1.0
        problem = str(refusal)
    elif len(set(found)) > 1:
        problem = f"two scores that differ: {' and '.join(f'{score:g}' for score in dict.fromkeys(found))}"
    elif not found:
        problem = "no <score> block" if text.strip() else "empty reply"
    texts = {name: _text(objects, *keys) for name, keys in (("trace", ("trace", "think")), ("critique", ("critique",)))}
    return ParsedJudgement(
        trace=parse_judgement(text).trace or texts["trace"],
        critique=said.critique or texts["critique"],
        score=None if problem else found[0],
        problem=problem,
    )


def _refusal(written: Any) -> ValueError | None:
    try:
        read_number(written)
    except ValueError as error:
        return error
    return None


class _Pairs(dict[str, Any]):
    """A JSON object that knows all values of a key that stands twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._all = pairs

    def values_of(self, key: str) -> list[Any]:
        """In their order."""
        return [value for name, value in self._all if name == key]


def _objects(text: str) -> Iterator[_Pairs]:
    """The JSON objects with a score that stand in a text."""
    decoder, at = json.JSONDecoder(object_pairs_hook=_Pairs), 0
    for _ in range(_OBJECTS):
        if (at := text.find("{", at)) < 0:
            return
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(found, _Pairs) and "score" in found:
            yield found


def _text(objects: list[_Pairs], *keys: str) -> str | None:
    said = [item[key] for item in objects for key in keys if isinstance(item.get(key), str)]
    return said[-1].strip() or None if said else None
