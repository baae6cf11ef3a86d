"""Small text functions the annotators share: normalising, looking a phrase up, shortening by whole sentences."""

from __future__ import annotations

import re
import unicodedata

_ARTICLES = frozenset({"a", "an", "the"})
_STOP = frozenset(
    """
    a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it
    its let me my no not now of on one or our out she should so than that the their them then there these they this
    to us use was we were what when where which who will with would you your
    """.split()  # noqa: SIM905 - a word list reads better as text
)
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d{3})")
_WORD = re.compile(r"[^\W_]+(?:\.\d+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'(\[`<])")


def normalise(text: str) -> str:
    """Lower-case words joined by one space; accents folded, articles, punctuation and digit commas dropped."""
    folded = unicodedata.normalize("NFKD", _DIGIT_COMMA.sub("", text.lower()))
    folded = "".join(c for c in folded if not unicodedata.combining(c))
    words = (w.removesuffix(".0") for w in _WORD.findall(folded))
    return " ".join(w for w in words if w not in _ARTICLES)


def contains_phrase(normalised_text: str, normalised_phrase: str) -> bool:
    """Whether the phrase occurs as whole words; both sides come from `normalise`. An empty phrase never occurs."""
    return bool(normalised_phrase) and f" {normalised_phrase} " in f" {normalised_text} "


def content_words(text: str) -> set[str]:
    """The words that carry content: normalised, without function words and single letters (digits stay)."""
    return {w for w in normalise(text).split() if w not in _STOP and (len(w) > 1 or w.isdigit())}


def shorten(text: str, max_words: int = 25) -> str:
    """Whole sentences while they fit in `max_words`; the first is kept, cut at `max_words` only when it alone is longer.

    The cut prefers the last comma, semicolon or colon in the second half, so that a clause ends where the text does.
    """
    sentences = _SENTENCE_END.split(" ".join(text.split()))
    kept: list[str] = sentences[0].split(" ")
    for sentence in sentences[1:]:
        words = sentence.split(" ")
        if len(kept) + len(words) > max_words:
            break
        kept += words
    if len(kept) <= max_words:
        return " ".join(kept)
    kept = kept[:max_words]
    breaks = [i for i, w in enumerate(kept) if w[-1:] in ",;:" and i >= max_words // 2]
    if breaks:
        kept = kept[: breaks[-1] + 1]
    return " ".join(kept).rstrip(",;: ") + "."
