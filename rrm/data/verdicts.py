"""Parser of verdicts as chat models write them: `[step 2] bad: …`, `**Step 2** – Good.`, a table row.

A critique is cut at its step anchors; each part's verdict is read from its head, ignoring case, markup and separators. A
word counts only by itself (`good:`, `(good)`, `good the search`), not as a description ("good query, wrong year"), a
request ("Correct the argument") or taken back ("good, but slow", "not bad"). `Steps 1-3: good` counts for each. An
unreadable verdict is `unclear`, never `bad`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rrm.data.annotation import Finding, Verdict

# spellings in lower case
VERDICTS: dict[str, Verdict] = {
    **dict.fromkeys(("good", "correct", "right", "great", "excellent", "✅", "✓", "✔", "👍"), "good"),
    **dict.fromkeys(("bad", "incorrect", "wrong", "poor", "❌", "✗", "✘", "👎"), "bad"),
    **dict.fromkeys(("not good", "not correct", "not right"), "bad"),
    "unclear": "unclear",
}

_SYMBOLS = "✅✓✔👍❌✗✘👎"
_VERDICT = (
    r"(?:(?:not\s+(?:good|correct|right)|unclear|good|correct|right|great|excellent|bad|incorrect|wrong|poor)"
    rf"(?!(?:[^\W_]|[/&+?%]|[-'’]\w))|[{_SYMBOLS}]\ufe0f?)"
)
_TAG = r"</?(?:b|strong|em|i|u|code|mark)>"
_MARKUP = rf"(?:[*_`~\"'“”‘’()\[\]{{}}]|{_TAG})"
_SEPARATORS = r":|=,.;!>→\-‐‑‒–—―−"
_GAP = rf"(?:[\s#•{_SEPARATORS}]|{_MARKUP})*+"
_BIDS = frozenset({"correct", "right"})  # also requests: a verdict only with a separator after it
_STEP = r"step\s*+(?:no\.?|number)?\s*+#?\s*+(?P<{name}>\d{{1,6}})(?![\w])"

_LEAD = rf"(?:[ \t#>+•·▪‣◦|\-–—]|{_MARKUP}|\d{{1,4}}[.)](?=[\s*_`(\[]))*+"
# `own`: at the head of a line, perhaps after its verdict; `inner`: in brackets inside a line
_ANCHOR = re.compile(
    rf"^(?P<lead>{_LEAD})(?:(?P<first>{_VERDICT})(?P<between>(?:[ \t{_SEPARATORS}]|{_MARKUP})++))?{_STEP.format(name='own')}"
    rf"(?P<closed>\s*+\])?|\[\s*+{_STEP.format(name='inner')}\s*+\]",
    re.IGNORECASE | re.MULTILINE,
)
_TO = r"(?:to|through|[-–—])"
_LIST = rf"\d{{1,6}}(?:\s*+(?:,\s*+and\b|and\b|,|&|{_TO})\s*+(?:steps?\s*+)?#?\d{{1,6}}){{1,20}}+(?![\w])"
# as `_ANCHOR`, for `Steps 1-3`, `Step 1-2` and `[step 1, 2]`
_SEVERAL = re.compile(
    rf"^(?P<lead>{_LEAD})(?:(?P<first>{_VERDICT})(?P<between>(?:[ \t{_SEPARATORS}]|{_MARKUP})++))?steps?\s*+#?(?P<own>{_LIST})"
    rf"(?P<closed>\s*+\])?|\[\s*+steps?\s*+#?(?P<inner>{_LIST})\s*+\]",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = re.compile(rf"(?:(?P<to>{_TO})\s*+(?:steps?\s*+)?#?)?(?P<step>\d+)", re.IGNORECASE)
SEVERAL = 50  # most steps that one anchor may name
# between the number and the colon: `Step 2 (search): good`
_ASIDE = re.compile(r"[ \t*_`]*+\((?P<inside>[^()\n]{1,40})\)(?=[ \t*_`]*+[:|–—-])")
_SPOKEN = re.compile(rf"(?<!\w){_VERDICT}", re.IGNORECASE)
_OPEN = re.compile(r"\[\s*$")
# after an unbracketed `Step 2` that heads a part; prose goes on with a word
_HEADED = re.compile(rf"[\s*_`)\]\"']*(?:[:|=.–—]|-(?!\d)|$|{_TAG})", re.MULTILINE)
_RANGE = re.compile(r"\s*(?:[-–.,]|to|and)\s*\d", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.;!?][\"')\]*_`]*\s*$")

NEAR = 200  # characters after an anchor that are searched: bounds the time
_HEAD = re.compile(
    rf"(?P<gap>{_GAP})(?:(?:verdict|assessment|rating|judge?ment|evaluation|label|quality)\b(?P<gap2>{_GAP}))?"
    rf"(?:(?:is|was)\b(?P<gap3>{_GAP}))?(?P<verdict>{_VERDICT})",
    re.IGNORECASE,
)
_INNER_HEAD = re.compile(
    rf"[ \t*_`]*+[:–—-]?[ \t*_`\"'“‘]*+{_VERDICT}[ \t*_`\"'”’]*+(?:[:–—|-]|[,;.]?\s*+(?:\Z|\[\s*+steps?\b))",
    re.IGNORECASE,
)
_CLOSED = re.compile(rf"(?:[*_`~]++(?=[\s{_SEPARATORS}]|\Z)|[)\]}}\"'”’]|{_TAG})++", re.IGNORECASE)
# words that begin a clause about the step: a bare `good` before one is a verdict
_CLAUSE = re.compile(r"(?:the|this|that|it|they|a|an|agent|because|since|as)\b", re.IGNORECASE)
# a sentence's first word: a bare `GOOD` before it is a verdict; `BAD REQUEST` is a name
_SENTENCE = re.compile(r"[A-Z](?![A-Z])")
_TAKEN_BACK = re.compile(
    r"[\s(*_`,]*+(?:but|and|or|nor|yet|to|though|although|however|if|mostly|partly|partially|somewhat)\b", re.IGNORECASE
)
# a verdict named as one, or in brackets or after an arrow at the very end
_LATER = (
    re.compile(
        rf"\b(?:verdict|assessment|judge?ment)\b[ \t*_`\"'(\[]*[:=–—-][ \t*_`\"'(\[]*(?P<verdict>{_VERDICT})",
        re.IGNORECASE,
    ),
    re.compile(rf"(?:[(\[]|→|[-=]>)[ \t*_`\"']*(?P<verdict>{_VERDICT})[\s*_`\"')\].!]*\Z", re.IGNORECASE),
)


def read_verdict(text: str, marked: bool = False) -> tuple[Verdict, str]:
    """Return the verdict of the text after an anchor, and the text without it (all of an `unclear` one).

    Args:
        marked: the anchor stood in markup, which may close after the verdict.
    """
    head = _HEAD.match(text)
    rest = _after(head, text, marked) if head else None
    if head and rest is not None:
        verdict = _meaning(head["verdict"])
        if head["verdict"][0] in _SYMBOLS and (word := _HEAD.match(rest)):  # `✅ Good: …`
            after = _after(word, rest, marked)
            if after is not None:
                return (verdict, _line(after)) if _meaning(word["verdict"]) == verdict else ("unclear", _line(text))
        return verdict, _line(rest)
    for pattern in _LATER:
        verdicts: set[Verdict] = {
            _meaning(m["verdict"]) for m in pattern.finditer(text) if not _goes_on(m["verdict"], text[m.end() :])
        }
        if len(verdicts) == 1:
            return verdicts.pop(), _line(text)
    return "unclear", _line(re.sub(r"^[*_`)\]]*\s*(?:[:|=.;–—-](?=\s|$))?", "", text))


def _meaning(spelling: str) -> Verdict:
    # a pattern that ignores case also takes letters that have no such lower case ("rİght"): those are not understood
    return VERDICTS.get(" ".join(spelling.lower().removesuffix("\ufe0f").split()), "unclear")


def _goes_on(word: str, rest: str) -> bool:
    """Return whether a verdict is taken back by the text after it, or is a verb: `correct the argument`."""
    return _TAKEN_BACK.match(rest) is not None or (word.lower() in _BIDS and re.match(r"[ \t]+\w", rest) is not None)


def _line(text: str) -> str:
    return " ".join(text.split())


def _after(head: re.Match[str], text: str, marked: bool) -> str | None:
    """Return the text after a verdict that stands by itself, else None."""
    before, word, rest = head["gap3"] or head["gap2"] or head["gap"], head["verdict"], text[head.end() :]
    opened = re.search(rf"{_MARKUP}\Z", before, re.IGNORECASE) is not None
    closed = _CLOSED.match(rest) if opened or marked else None
    rest = (rest[closed.end() :] if closed else rest).lstrip(" \t")
    if _TAKEN_BACK.match(rest):
        return None
    if re.match(rf"[{_SEPARATORS}]", rest):
        rest = rest.rstrip().removesuffix("|")[1:] if rest[0] == "|" else rest[1:]  # a row of a table
        rest = rest.lstrip(" \t")
        closed = _CLOSED.match(rest) if opened or marked else None
        return rest[closed.end() :] if closed else rest
    stands = not rest or rest[0] in "\n(" or closed
    if stands or word[0] in _SYMBOLS:
        return rest
    begins = _CLAUSE.match(rest) or (word.isupper() and _SENTENCE.match(rest))
    return rest if begins and word.lower() not in _BIDS else None


def read_findings(critique: str, n_steps: int) -> list[Finding]:
    """Parse the findings of a critique in order; steps outside 1 … n_steps are dropped."""
    parts = list(_anchors(critique))
    ends = [start for start, *_ in parts[1:]] + [len(critique)] * bool(parts)
    findings: list[Finding] = []
    for (_, end, listed, first, marked), stop in zip(parts, ends, strict=True):
        steps = named_steps(listed, n_steps)
        if not steps:
            continue
        verdict, text = read_verdict(critique[end:stop], marked)
        if first is not None:
            readable = _HEAD.match(critique[end:stop]) is not None and verdict != "unclear"
            verdict = first if not readable or verdict == first else "unclear"
        findings += [Finding(step=step, verdict=verdict, text=text) for step in steps]
    return findings


def anchors(critique: str) -> list[tuple[int, str]]:
    """Return (start, steps as written) of each part of a critique about steps."""
    return [(start, listed) for start, _, listed, _, _ in _anchors(critique)]


def named_steps(listed: str, n_steps: int) -> list[int]:
    """Parse `2`, `1-3` or `1, 3 and 4` into the run's steps, in order."""
    steps: list[int] = []
    last = 0
    for m in _NUMBER.finditer(listed):
        step = int(m["step"])
        first = last + 1 if m["to"] and last < step else step
        steps += range(max(first, 1), min(step, n_steps) + 1)
        last = step
    return list(dict.fromkeys(steps))[:SEVERAL]


def _anchors(critique: str) -> Iterator[tuple[int, int, str, Verdict | None, bool]]:
    """Yield (start, end, steps, verdict before, in markup) of each part about steps."""
    several = {m.start(): m for m in _SEVERAL.finditer(critique)}
    matches = [*several.values(), *(m for m in _ANCHOR.finditer(critique) if m.start() not in several)]
    matches.sort(key=re.Match.start)
    bracketed = any(m["closed"] and _OPEN.search(m["lead"]) for m in matches if m["own"])
    for m in matches:
        aside = _ASIDE.match(critique, m.end())
        end = aside.end() if aside and not _SPOKEN.search(aside["inside"]) else m.end()
        after = critique[end : end + NEAR]
        if m["inner"]:
            ended = _SENTENCE_END.search(critique[max(0, m.start() - 20) : m.start()]) is not None
            if ended or _INNER_HEAD.match(after):
                yield m.start(), end, m["inner"], None, False
            continue
        first = _meaning(m["first"]) if m["first"] and not _bids(m["first"], m["between"]) else None
        lead = m["between"] or m["lead"]
        in_brackets = bool(m["closed"]) and lead.rstrip().endswith("[")
        heads = not bracketed and bool(aside or _HEADED.match(after)) and not _RANGE.match(after)
        if in_brackets or first or heads or (not _RANGE.match(after) and _verdict_follows(after)):
            yield m.start(), end, m["own"], first, re.search(r"[*_`~<]", m["lead"]) is not None


def _bids(word: str, between: str) -> bool:
    """Recognise a word before a step as a request: `Correct [step 2] by …`."""
    return word.lower() in _BIDS and re.search(rf"[{_SEPARATORS}]|[*_`)]", between) is None


def _verdict_follows(after: str) -> bool:
    head = _HEAD.match(after)
    return head is not None and _after(head, after, marked=True) is not None
