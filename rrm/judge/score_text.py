"""Scores as chat models write them: read where only one reading is possible, and never guessed.

| a reply says (outside its thinking and its critique) | it is read as |
|---|---|
| `<score>0.8</score>`, `<score>0,8</score>`, `<score>0.8 (good work)</score>` | 0.8 |
| `8/10`, `4 out of 5`, `80%` in the place of a number, `<score>8</score>/10` | the share |
| a line `**Score:** 0.8`, a JSON object with `"score": 0.8`, in a fence or between words, nothing but a number | 0.8 |
| a number outside [0, 1] without its scale (`8`), a 1 that may be the lowest of another scale, a word, `0.8 or 0.9`, two scores that differ | nothing, and why |
| a score of a step (under its heading, in an object with `"step"`, in a list), JSON that cannot be parsed, a line `Score: 0.8` amid a paragraph | nothing |

A score in the thinking was tried out, and one in the critique is quoted: neither is the reply's, whether the block was closed or not. What a
length limit may have cut in two is no number.
"""

from __future__ import annotations

import json
import re
from bisect import bisect
from typing import Any, NamedTuple

from rrm.data.blocks import ParsedJudgement, contents, parse_judgement, parse_score

_BLOCK = re.compile(
    r"<score\s{0,9}>([^<]{0,200})</score\s{0,9}>([ \t*_`]*+(?:/|%|out[ \t]of\b|[(–—-])[^\n<]{0,80})?", re.IGNORECASE
)
_TAG = re.compile(r"<(/?)score\b", re.IGNORECASE)
_OPEN = re.compile(r"<score\s{0,9}>([^<]{0,200}?[^<.\s])\s{0,9}\Z", re.IGNORECASE)
_LABELLED = re.compile(
    r"^[ \t*_#`-]*+(?:(?:final|overall|total)[ \t]++)?(?:score|rating)[ \t*_`]*+(?:\(([^()\n]{0,40})\)[ \t*_`]*+)?"
    r"(?:(?::|=|\bis\b)[ \t]*+\n?|\n{1,2})([^\n]{1,200})$",
    re.IGNORECASE | re.MULTILINE,
)
_LABEL_SCALE = re.compile(
    r"(?:[\s/–—-]|\d{1,3}(?:\.0)?|(?:to|from|out|of|on|a|scale|range|between|and|overall|final)\b)++", re.IGNORECASE
)
_HEADING = re.compile(
    r"^[ \t]*+(?:#{1,6}(?P<hash>[^\n]*)|\*\*(?P<bold>[^\n*]{1,80})\*\*:?[ \t]*$|(?P<line>[-*\d.)\t ]*+step[ \t]*+\d[^\n]*))",
    re.IGNORECASE | re.MULTILINE,
)
_STEP = re.compile(r"\bsteps?[ \t#]*+(?:\d|(?:one|two|three|four|five)\b)", re.IGNORECASE)
_FIGURE = re.compile(r"\d[.,]\d|\d[ \t]*+[/%]")
_UNIT = re.compile(
    r"(?:\bscale[ \t](?:of|from)[ \t])?\b0(?:\.0)?[ \t]?(?:-|–|to|and)[ \t]?1(?:\.0)?\b(?![.,/]?\d)(?:[ \t]scale)?",
    re.IGNORECASE,
)
_SCALE = re.compile(
    r"\b(?:scale|worst|lowest|minimum)\b|/\s?(?:5|10|100)\b|\b[01]\s?(?:-|–|to)\s?(?:5|10|100)\b"
    r"|\bof\s(?:a\s)?(?:possible\s|maximum\s)?(?:\d|five|ten|hundred)",
    re.IGNORECASE,
)
"""What says that a 1 may be the lowest of another scale, in a text without `_UNIT`."""
_INVERSE = re.compile(
    r"\b(?:(?:higher|larger|more)\s(?:is|means|=)\s(?:worse|bad)|(?:lower|smaller|less)\s(?:is|means|=)\s(?:better|good))\b",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:(?:score|rating)[ _]?)?(?:max(?:imum)?|scale|range|out[ _]?of|denominator|total|points)(?:[ _]?(?:score|rating|value|points))?",
    re.IGNORECASE,
)
_ALSO = re.compile(r"score|rating", re.IGNORECASE)
_PARTS = re.compile(r"steps?|criteria", re.IGNORECASE)
"""Keys of objects that hold the scores of parts."""
_BRACE = re.compile(r"""\{(?:[^{}"':\[]*+\}|[^{}"':\[\s]++(?=\{))?+|\[(?=\s*+\{)""")
"""What opens JSON, or, longer, what stands in braces in words: `{x}`, `{\\sqrt{`."""
_KEY = re.compile(r"score[\"']?\s?:", re.IGNORECASE)
_NUMBER = r"\d{1,3}(?:\.\d{1,9})?|\.\d{1,9}|0,\d{1,9}|1,0{1,2}|[1-9],\d{1,2}"
_WRITTEN = re.compile(
    rf"(?P<number>{_NUMBER})(?:[ \t]*(?:/|out[ \t]of)[ \t]*(?P<of>\d{{1,3}})(?:[.,]0)?|(?P<percent>[ \t]*%))?"
    r"(?P<comment>[ \t]*\([^\d\n]*\)|[ \t]+[-–—][ \t][^\d\n]*|[,;:][ \t][^\d\n]*)?"
)
SCALES = (1, 5, 10, 100)
"""Denominators that a score may have."""
_WAYS = "can be read in more than one way"
_MARKS = "`\"'“”"
_AROUND = " \t\n*_`\"'“”"
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
        if (left := text.find(f"<{tag}>")) >= 0:
            text = text[:left] + "\n" * (len(text) - left)
    return text


def score_blocks(text: str) -> list[re.Match[str]]:
    """Every `<score>…</score>` of the reply's own, well formed or not, whether its thinking was opened in the prompt or not."""
    closed = text.find("</think>")
    if closed >= 0 and "<think>" not in text[:closed]:
        closed += len("</think>")
        text = "\n" * closed + text[closed:]
    return list(_BLOCK.finditer(own_text(text)))


def read_number(written: Any) -> tuple[float, int]:
    """The one number in [0, 1] that was written, and the scale that it was written on.

    Raises:
        ValueError: there is none, or it may be read in two ways; the message quotes it.
    """
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise ValueError(f"score {str(written)[:_QUOTED]!r} is not a number")
    text = str(written).strip(_AROUND)
    try:
        if len(text) <= _LONGEST:
            return parse_score(text), 1
        raise ValueError(f"score {text[:_QUOTED]!r} is not a number")
    except ValueError:
        found = _WRITTEN.fullmatch(text.rstrip("." + _AROUND))
        if found is None or (found["number"] == text and "," not in text):
            raise
    number, most = float(found["number"].replace(",", ".")), 100 if found["percent"] else int(found["of"] or 1)
    comment = found["comment"] or ""
    other_scale = (
        (found["number"] == "1" and most == 1 and comment) or _SCALE.search(comment) or _INVERSE.search(comment)
    )
    if most not in SCALES or 0.0 < number < 1.0 < most or other_scale:
        raise ValueError(f"score {text[:_QUOTED]!r} {_WAYS}")
    if number > most:
        raise ValueError(f"score {text[:_QUOTED]!r} lies outside [0, 1]")
    return number / most, most


class ParsedReplyText(ParsedJudgement):
    """What a reply says."""

    cut: bool = False
    """Whether a length limit came before a complete score."""


class _Score(NamedTuple):
    """A score, read or refused, and where it stands in a text."""

    start: int
    end: int
    value: float | None
    most: int
    refusal: str | None


def read_said(text: str, *, ended: bool) -> ParsedReplyText:
    """A chat model's reply, parsed.

    Args:
        text: with its thinking opened (`open_think`).
        ended: whether the model ended it, and not a limit: then its last tag need not be closed.
    """
    own, said = own_text(text), parse_judgement(outside_think(text))
    rest, objects, broken = _without_json(own)
    of_step = _StepHeadings(rest)
    written = [_score(m.start(), m.end(), _with_scale(m)) for m in _BLOCK.finditer(rest)]
    if not ended and written and written[-1][2:4] == (1.0, 1) and not rest[written[-1].end :].strip():
        written.pop()  # "/10" may have followed
    tags = _TAG.findall(rest)
    half = bool(tags) and not tags[-1]
    if ended:
        written += [_score(m.start(), m.end(), m[1]) for m in _OPEN.finditer(rest)]
    written += [_score(*span, value, item) for span, item in objects for value in item.values_of("score")]
    written = sorted(
        (one for one in written if not of_step(one.start) and not _is_quoted(own, one)), key=lambda one: one.start
    )
    labelled = [m for m in _LABELLED.finditer(rest) if not of_step(m.start())]
    if not ended and labelled and not rest[labelled[-1].end() :].strip(_AROUND):
        labelled.pop()
    others = [_score(m.start(), m.end(), m[2], m[1]) for m in labelled]
    if ended and not written and not others:
        others = [_score(0, len(own), own)]
    found = [one for one in (*written, *others) if one.value is not None]
    # an earlier one that is no number may repeat what was asked for: 0.0 to 1.0
    refusals = [one.refusal for one in written if one.refusal and (one is written[-1] or _WAYS in one.refusal)]
    figure = max((m.end() for m in _FIGURE.finditer(rest)), default=0)
    values = list(dict.fromkeys(one.value for one in found))
    problem = None
    if broken:
        problem = "JSON that cannot be parsed"
    elif half and not ended:
        problem = "an unclosed <score>"
    elif refusals:
        problem = refusals[-1]
    elif len(values) > 1:
        problem = f"two scores that differ: {' and '.join(f'{score:g}' for score in values)}"
    elif not found:
        problem = (others[-1].refusal if labelled else None) or ("no <score> block" if text.strip() else "empty reply")
    elif not written and not any(_stands_alone(rest, one, figure) for one in reversed(found)):
        problem = f"score {values[0]:g} stands amid other text"
    elif _INVERSE.search(rest) or (
        values == [1.0] and all(one.most == 1 for one in found) and _SCALE.search(_UNIT.sub("", rest))
    ):
        problem = f"score {values[0]:g} {_WAYS}, as its scale may be another one"
    items = [item for _, item in objects]
    texts = {name: _text(items, *keys) for name, keys in (("trace", ("trace", "think")), ("critique", ("critique",)))}
    return ParsedReplyText(
        trace=parse_judgement(text).trace or texts["trace"],
        critique=said.critique or texts["critique"],
        score=None if problem else values[0],
        problem=problem,
        cut=bool(problem) and not ended and (half or broken or not written),
    )


def _with_scale(block: re.Match[str]) -> str:
    """What stands in a block, and what is said of its scale right after it."""
    after = block[2] or ""
    return block[1] + after if block[1].strip(_AROUND) == "1" or after.lstrip(_AROUND)[:1] in "/%oO" else block[1]


def _score(start: int, end: int, written: Any, about: str | _Pairs | None = None) -> _Score:
    """A score at its place. `about`: its label's brackets, or its JSON object."""
    try:
        value, most = read_number(written)
        if isinstance(about, _Pairs):
            about.check(value)
            if str(written) == "1" and any(
                _SCALE.search(_UNIT.sub("", one)) for one in about.values() if isinstance(one, str)
            ):
                raise ValueError(f"score 1 {_WAYS}, as its object speaks of a scale")
        elif about and not (
            _LABEL_SCALE.fullmatch(about) and max(map(float, re.findall(r"\d+", about)), default=1) in (1, most)
        ):
            raise ValueError(f"score {written.strip(_AROUND)!r} of ({about}) {_WAYS}")
    except (ValueError, RecursionError) as error:
        return _Score(start, end, None, 1, str(error))
    return _Score(start, end, value, most, None)


def _is_quoted(text: str, score: _Score) -> bool:
    """Whether words stand around the quotation marks that it is written in."""
    before = text[max(text.rfind("\n", 0, score.start) + 1, score.start - _LONGEST) : score.start]
    after = text[score.end : score.end + _LONGEST].partition("\n")[0]
    return before[-1:] in _MARKS and after[:1] in _MARKS and bool(before and after and (before + after).strip(_AROUND))


def _stands_alone(text: str, line: _Score, figure: int) -> bool:
    """Whether a labelled line is the last one, or is the first one or a paragraph and no further figure (the last ends at `figure`)
    follows."""
    above = text[max(line.start - _LONGEST, 0) : line.start].removesuffix("\n").rpartition("\n")[2].strip(_AROUND)
    below, _, after = text[line.end :].removeprefix("\n").partition("\n")
    if not below.strip(_AROUND) and not after.strip(_AROUND):
        return True
    alone = not below.strip(_AROUND) and (not above or above.startswith("#"))
    return figure <= line.end and (alone or (not text[: line.start].strip() and not below[:1].islower()))


class _StepHeadings:
    """Which places of a text stand under a step's heading, or in or under a line that begins with a step."""

    def __init__(self, text: str) -> None:
        self._text, found = text, list(_HEADING.finditer(text))
        self._lines = {m.end() for m in found if m["line"]}
        self._heads = [m for m in found if _is_heading(m)]
        self._starts = [m.start() for m in self._heads]

    def __call__(self, at: int) -> bool:
        begin = self._text.rfind("\n", 0, at) + 1
        under = bisect(self._starts, begin - 1) - 1
        line = _HEADING.match(self._text, begin, min(at, begin + _LONGEST))
        if line and _STEP.search(line[0]):
            return True
        return begin - 1 in self._lines or (under >= 0 and bool(_STEP.search(self._heads[under][0])))


def _is_heading(line: re.Match[str]) -> bool:
    """A marked line; a bold one that is a step's or says nothing after a colon; one that names nothing but a step."""
    if line["bold"]:
        return bool(_STEP.search(line["bold"])) or not line["bold"].partition(":")[2].strip()
    return line["line"] is None or not any(map(str.isalpha, line["line"].lower().partition("step")[2]))


class _Pairs(dict[str, Any]):
    """A JSON object that knows all values of a key that stands twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._all = pairs

    def values_of(self, key: str) -> list[Any]:
        """In their order."""
        return [value for name, value in self._all if name == key]

    def check(self, score: float) -> None:
        """
        Raises:
            ValueError: it names another scale, or, outside lists and the parts' objects, another score.
        """
        for name, value in self._all:
            if value and _INVERSE.search(name.replace("_", " ")):
                raise ValueError(f"score {score:g} {_WAYS}: {name!r}")
            if isinstance(value, _Pairs) and not _PARTS.fullmatch(name):
                value.check(score)
            elif isinstance(value, bool) or not isinstance(value, str | int | float):
                continue
            elif _BOUND.fullmatch(name):
                if any(float(number) not in (0, 1) for number in re.findall(r"\d+(?:\.\d+)?", str(value))):
                    raise ValueError(f"score {score:g} is on another scale: {name!r} is {str(value)[:_QUOTED]!r}")
            elif _ALSO.search(name):
                other = _score(0, 0, value)
                if other.value != score and (other.value is not None or not isinstance(value, str)):
                    raise ValueError(f"two scores that differ: {score:g} and {name!r} {str(value)[:_QUOTED]!r}")


def _without_json(text: str) -> tuple[str, list[tuple[tuple[int, int], _Pairs]], bool]:
    """(the text with line breaks in the place of its JSON, the objects with the reply's score and their places, whether JSON with a
    score cannot be parsed: it is taken to reach as far as the last closing bracket, and nothing in it is known)."""
    decoder, found, parts = (
        json.JSONDecoder(object_pairs_hook=_Pairs, strict=False),
        list[tuple[tuple[int, int], _Pairs]](),
        list[str](),
    )
    at, broken = 0, False
    while (opening := _BRACE.search(text, at)) is not None:
        start, end = opening.span()
        parts.append(text[at:start])
        if end > start + 1:
            parts.append(opening[0])
        else:
            try:
                item, end = decoder.raw_decode(text, start)
                if isinstance(item, _Pairs) and "score" in item and "step" not in item:
                    found.append(((start, end), item))
            except (ValueError, RecursionError):
                closing = "}" if text[start] == "{" else "]"
                end = text.rfind(closing, start) + 1
                if text.count(text[start], start, end) != text.count(closing, start, end) or not end:
                    end = len(text)
                broken = broken or bool(_KEY.search(text, start, end))
            parts.append("\n" * (end - start))
        at = end
    return "".join((*parts, text[at:])), found, broken


def _text(objects: list[_Pairs], *keys: str) -> str | None:
    said = [item[key] for item in objects for key in keys if isinstance(item.get(key), str)]
    return said[-1].strip() or None if said else None
