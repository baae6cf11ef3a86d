"""Scores as chat models write them, read only where one reading is possible.

| text of the reply (outside its thinking and its critique) | read as |
|---|---|
| `<score>0.8</score>`, `<score>0,8</score>`, `<score>0.8 (good work)</score>` | 0.8 |
| `8/10`, `4 out of 5`, `80%` in the place of a number, `<score>8</score>/10` | the share |
| a line `**Score:** 0.8`, a JSON object with `"score": 0.8`, in a fence or between words, nothing but a number | 0.8 |
| a number outside [0, 1] without its scale (`8`), a 1 that may be the lowest of another scale, a word, `0.8 or 0.9`, two scores that differ | nothing, and why |
| a score of a step (under its heading, in an object with `"step"`, in a list), JSON that cannot be parsed, a line `Score: 0.8` amid a paragraph | nothing |

Scores in the thinking are tentative and those in the critique quoted: neither counts, closed or not. A number that a length
limit may have cut does not count.
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
# suggests that a 1 is the lowest of another scale, in a text without `_UNIT`
_SCALE = re.compile(
    r"\b(?:scale|worst|lowest|minimum)\b|/\s?(?:5|10|100)\b|\b[01]\s?(?:-|–|to)\s?(?:5|10|100)\b"
    r"|\bof\s(?:a\s)?(?:possible\s|maximum\s)?(?:\d|five|ten|hundred)",
    re.IGNORECASE,
)
_INVERSE = re.compile(
    r"\b(?:(?:higher|larger|more)\s(?:is|means|=)\s(?:worse|bad)|(?:lower|smaller|less)\s(?:is|means|=)\s(?:better|good))\b",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:(?:score|rating)[ _]?)?(?:max(?:imum)?|scale|range|out[ _]?of|denominator|total|points)(?:[ _]?(?:score|rating|value|points))?",
    re.IGNORECASE,
)
_ALSO = re.compile(r"score|rating", re.IGNORECASE)
_PARTS = re.compile(r"steps?|criteria", re.IGNORECASE)  # keys of objects with scores of parts
# opens JSON, or, longer, is in braces in words: `{x}`, `{\\sqrt{`
_BRACE = re.compile(r"""\{(?:[^{}"':\[]*+\}|[^{}"':\[\s]++(?=\{))?+|\[(?=\s*+\{)""")
_KEY = re.compile(r"score[\"']?\s?:", re.IGNORECASE)
_NUMBER = r"\d{1,3}(?:\.\d{1,9})?|\.\d{1,9}|0,\d{1,9}|1,0{1,2}|[1-9],\d{1,2}"
_WRITTEN = re.compile(
    rf"(?P<number>{_NUMBER})(?:[ \t]*(?:/|out[ \t]of)[ \t]*(?P<of>\d{{1,3}})(?:[.,]0)?|(?P<percent>[ \t]*%))?"
    r"(?P<comment>[ \t]*\([^\d\n]*\)|[ \t]+[-–—][ \t][^\d\n]*|[,;:][ \t][^\d\n]*)?"
)
SCALES = (1, 5, 10, 100)  # denominators that a score may have
_WAYS = "can be read in more than one way"
_MARKS = "`\"'“”"
_AROUND = " \t\n*_`\"'“”"
_LONGEST = 200  # characters of a score with its comment; longer: the model repeats itself
_QUOTED = 40  # characters of a score quoted in a message


def open_think(text: str) -> str:
    """Prepend `<think>` where the chat template opened it, so that the reply only closes it."""
    close = text.find("</think>")
    return "<think>" + text if close >= 0 and "<think>" not in text[:close] else text


def outside_think(text: str) -> str:
    return without_thoughts(text).partition("<think>")[0]


def without_thoughts(text: str) -> str:
    # closed ones only
    parts, position = list[str](), 0
    for start, end in contents(text, "think"):
        parts.append(text[position : start - len("<think>")])
        position = end + len("</think>")
    return "".join((*parts, text[position:]))


def own_text(text: str) -> str:
    """Replace thoughts and critiques by as many line breaks, keeping positions."""
    for tag in ("think", "critique"):
        parts, position = list[str](), 0
        for start, end in contents(text, tag):
            start, end = start - len(tag) - 2, end + len(tag) + 3
            parts += [text[position:start], "\n" * (end - start)]
            position = end
        text = "".join((*parts, text[position:]))
        if (left := text.find(f"<{tag}>")) >= 0:
            text = text[:left] + "\n" * (len(text) - left)
    return text


def score_blocks(text: str) -> list[re.Match[str]]:
    closed = text.find("</think>")
    if closed >= 0 and "<think>" not in text[:closed]:
        closed += len("</think>")
        text = "\n" * closed + text[closed:]
    return list(_BLOCK.finditer(own_text(text)))


def read_number(written: Any) -> tuple[float, int]:
    """Return the one number in [0, 1] that was written, and its scale.

    Raises ValueError, quoting it, if there is none or it is ambiguous.
    """
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise ValueError(f"score {str(written)[:_QUOTED]!r} is not a number")
    text = str(written).strip(_AROUND)
    try:
        if len(text) <= _LONGEST:
            return parse_score(text), 1
        raise ValueError(f"score {text[:_QUOTED]!r} is not a number")
    except ValueError:
        match = _WRITTEN.fullmatch(text.rstrip("." + _AROUND))
        if match is None or (match["number"] == text and "," not in text):
            raise
    number, most = float(match["number"].replace(",", ".")), 100 if match["percent"] else int(match["of"] or 1)
    comment = match["comment"] or ""
    other_scale = (
        (match["number"] == "1" and most == 1 and comment) or _SCALE.search(comment) or _INVERSE.search(comment)
    )
    if most not in SCALES or 0.0 < number < 1.0 < most or other_scale:
        raise ValueError(f"score {text[:_QUOTED]!r} {_WAYS}")
    if number > most:
        raise ValueError(f"score {text[:_QUOTED]!r} lies outside [0, 1]")
    return number / most, most


class ParsedReplyText(ParsedJudgement):
    cut: bool = False  # a length limit came before a complete score


class _Score(NamedTuple):
    start: int
    end: int
    value: float | None
    most: int
    refusal: str | None


def parse_reply(text: str, *, ended: bool) -> ParsedReplyText:
    """Parse a chat model's reply.

    Args:
        text: with its thinking opened (`open_think`).
        ended: the model ended it, not a limit; its last tag may then be unclosed.
    """
    own, outside = own_text(text), parse_judgement(outside_think(text))
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
        (entry for entry in written if not of_step(entry.start) and not _is_quoted(own, entry)),
        key=lambda entry: entry.start,
    )
    labelled = [m for m in _LABELLED.finditer(rest) if not of_step(m.start())]
    if not ended and labelled and not rest[labelled[-1].end() :].strip(_AROUND):
        labelled.pop()
    others = [_score(m.start(), m.end(), m[2], m[1]) for m in labelled]
    if ended and not written and not others:
        others = [_score(0, len(own), own)]
    readable = [entry for entry in (*written, *others) if entry.value is not None]
    # an earlier one that is no number may repeat what was asked for: 0.0 to 1.0
    refusals = [
        entry.refusal for entry in written if entry.refusal and (entry is written[-1] or _WAYS in entry.refusal)
    ]
    figure = max((m.end() for m in _FIGURE.finditer(rest)), default=0)
    values = list(dict.fromkeys(entry.value for entry in readable))
    problem = None
    if broken:
        problem = "JSON that cannot be parsed"
    elif half and not ended:
        problem = "an unclosed <score>"
    elif refusals:
        problem = refusals[-1]
    elif len(values) > 1:
        problem = f"two scores that differ: {' and '.join(f'{score:g}' for score in values)}"
    elif not readable:
        problem = (others[-1].refusal if labelled else None) or ("no <score> block" if text.strip() else "empty reply")
    elif not written and not any(_stands_alone(rest, entry, figure) for entry in reversed(readable)):
        problem = f"score {values[0]:g} stands amid other text"
    elif _INVERSE.search(rest) or (
        values == [1.0] and all(entry.most == 1 for entry in readable) and _SCALE.search(_UNIT.sub("", rest))
    ):
        problem = f"score {values[0]:g} {_WAYS}, as its scale may be another one"
    items = [item for _, item in objects]
    texts = {name: _text(items, *keys) for name, keys in (("trace", ("trace", "think")), ("critique", ("critique",)))}
    return ParsedReplyText(
        trace=parse_judgement(text).trace or texts["trace"],
        critique=outside.critique or texts["critique"],
        score=None if problem else values[0],
        problem=problem,
        cut=bool(problem) and not ended and (half or broken or not written),
    )


def _with_scale(block: re.Match[str]) -> str:
    after = block[2] or ""
    return block[1] + after if block[1].strip(_AROUND) == "1" or after.lstrip(_AROUND)[:1] in "/%oO" else block[1]


def _score(start: int, end: int, written: Any, about: str | _Pairs | None = None) -> _Score:
    """Parse a score; `about` is its label's brackets, or its JSON object."""
    try:
        value, most = read_number(written)
        if isinstance(about, _Pairs):
            about.check(value)
            if str(written) == "1" and any(
                _SCALE.search(_UNIT.sub("", text)) for text in about.values() if isinstance(text, str)
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
    before = text[max(text.rfind("\n", 0, score.start) + 1, score.start - _LONGEST) : score.start]
    after = text[score.end : score.end + _LONGEST].partition("\n")[0]
    return before[-1:] in _MARKS and after[:1] in _MARKS and bool(before and after and (before + after).strip(_AROUND))


def _stands_alone(text: str, line: _Score, figure: int) -> bool:
    # last, or first or a paragraph; the last figure of the text ends at `figure`
    above = text[max(line.start - _LONGEST, 0) : line.start].removesuffix("\n").rpartition("\n")[2].strip(_AROUND)
    below, _, after = text[line.end :].removeprefix("\n").partition("\n")
    if not below.strip(_AROUND) and not after.strip(_AROUND):
        return True
    alone = not below.strip(_AROUND) and (not above or above.startswith("#"))
    return figure <= line.end and (alone or (not text[: line.start].strip() and not below[:1].islower()))


class _StepHeadings:
    """Tests whether a position is under a step's heading, or a line that begins with a step."""

    def __init__(self, text: str) -> None:
        self._text, headings = text, list(_HEADING.finditer(text))
        self._lines = {m.end() for m in headings if m["line"]}
        self._heads = [m for m in headings if _is_heading(m)]
        self._starts = [m.start() for m in self._heads]

    def __call__(self, position: int) -> bool:
        begin = self._text.rfind("\n", 0, position) + 1
        under = bisect(self._starts, begin - 1) - 1
        line = _HEADING.match(self._text, begin, min(position, begin + _LONGEST))
        if line and _STEP.search(line[0]):
            return True
        return begin - 1 in self._lines or (under >= 0 and bool(_STEP.search(self._heads[under][0])))


def _is_heading(line: re.Match[str]) -> bool:
    # a marked line; a bold one of a step or with nothing after a colon; one that names only a step
    if line["bold"]:
        return bool(_STEP.search(line["bold"])) or not line["bold"].partition(":")[2].strip()
    return line["line"] is None or not any(map(str.isalpha, line["line"].lower().partition("step")[2]))


class _Pairs(dict[str, Any]):
    """A JSON object that keeps all values of a repeated key."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self._all = pairs

    def values_of(self, key: str) -> list[Any]:
        return [value for name, value in self._all if name == key]

    def check(self, score: float) -> None:
        """Raise ValueError if it names another scale, or, outside lists and parts, another score."""
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
    """Return the text with JSON as line breaks, its score objects with spans, and whether JSON is broken.

    Broken JSON with a score is taken to reach to the last closing bracket.
    """
    decoder, objects, parts = (
        json.JSONDecoder(object_pairs_hook=_Pairs, strict=False),
        list[tuple[tuple[int, int], _Pairs]](),
        list[str](),
    )
    position, broken = 0, False
    while (opening := _BRACE.search(text, position)) is not None:
        start, end = opening.span()
        parts.append(text[position:start])
        if end > start + 1:
            parts.append(opening[0])
        else:
            try:
                item, end = decoder.raw_decode(text, start)
                if isinstance(item, _Pairs) and "score" in item and "step" not in item:
                    objects.append(((start, end), item))
            except (ValueError, RecursionError):
                closing = "}" if text[start] == "{" else "]"
                end = text.rfind(closing, start) + 1
                if text.count(text[start], start, end) != text.count(closing, start, end) or not end:
                    end = len(text)
                broken = broken or bool(_KEY.search(text, start, end))
            parts.append("\n" * (end - start))
        position = end
    return "".join((*parts, text[position:])), objects, broken


def _text(objects: list[_Pairs], *keys: str) -> str | None:
    texts = [item[key] for item in objects for key in keys if isinstance(item.get(key), str)]
    return texts[-1].strip() or None if texts else None
