"""Text comparison: the one normaliser, the one test for leaked answers, and helpers of the annotators.

Answers are matched as whole words of `normalise`d text; in scripts without spaces (and Korean) as letters anywhere. Two
other forms follow published metrics: `squad_normalise` (SQuAD) and `numbers` (GSM8K). A leak in any of these forms counts.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import Any, Literal

from rrm.data.trajectory import Message, Trajectory

LeakClass = Literal["leak", "short_leak", "clean", "no_reference"]
YES_NO = frozenset({"yes", "no", "true", "false"})  # answers that any text may hold by chance

_ARTICLES = frozenset({"a", "an", "the"})
STOP_WORDS = frozenset(
    """
    a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it
    its let me my no not now of on one or our out she should so than that the their them then there these they this
    to us use was we were what when where which who will with would you your
    """.split()  # noqa: SIM905 - a word list reads better as text
)
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# a minus is a sign where no word stands before it: `-2`, `x=-2`, but `3-2` is two words
_WORD = re.compile(r"(?:(?<![^\W_])-(?=\.?\d))?(?:[^\W_]+(?:\.\d+)?|\.\d+)")
_DECIMAL = re.compile(r"(-?)(\d*)\.(\d+)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s++(?=[A-Z\"'(\[`<])")
# variants of signs; applied before accents are folded, which turns `≠` into `=`
_SAME_SIGN = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2013\N{MINUS SIGN}", "-"),
        **dict.fromkeys("\u00d7\u2217\u22c5", "*"),
        **dict.fromkeys("\u00f7\u2215\N{FRACTION SLASH}", "/"),
        **{"\u2260": "!=", "\u2264": "<=", "\u2265": ">=", "\u21d2": "\u2192"},
    }
)
# Markdown's, not a product: `is **4**.`, but `2*3*4` and `(a)*(b)*(c)`
_EMPHASIS = re.compile(r"(?<![^\W_])(?<![)\]}])(\*{1,3})(?=[^\s*])(.{1,200}?)(?<=[^\s*])\1(?![^\W_]|[*(\[{])")
# a minus before a number or a formula's letter; `- 5` is a list item only beside others
_MINUS = re.compile(r"\A\s*-[ \t]+(?=[$\\(]*\.?\d|[^\W\d_]\s*(?:\Z|[-+*/^=<>!]))")
# Markdown's heading, list item or quotation (of words: `> 5` is not one)
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|[*+-]|>(?=[ \t]+[^\W\d_]{2}))[ \t]+", re.MULTILINE)
# as `_DIGIT_COMMA`, but `0,100` is no number of thousands
_THOUSANDS = re.compile(r"(?<=\d)(?<!(?<!\d)0),(?=\d{3}(?!\d))")
_INTERVAL = re.compile(r"([\[(])([^\[\](),;]{1,60}[,;][^\[\](),;]{1,60})([\])])")
_RELATIONS = frozenset("=<>!\u2190\u2192\u2248\u2261")
_BOUNDS = frozenset({"inf", "infty", "infinity", "pi", "sqrt"})
# words; signs that distinguish answers of the same words (`C++`, `1/2`, `x^2`, `√2`); marks that may be punctuation
_TOKEN = re.compile(
    rf"(?P<word>{_WORD.pattern})|(?P<sign>!=|[+#*/^=<>\u00ac\u00b1\u2190-\u22ff\u27e6\u27e7]+)|(?P<mark>[-!()\[\]{{}}])"
)
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SQUAD_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
# Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese, Korean
_NO_SPACES = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_SPACELESS = re.compile(f"[{_NO_SPACES}]")
_JOINED = re.compile(f"(?<=[{_NO_SPACES}]) | (?=[{_NO_SPACES}])")
_LETTER = rf"[^\W{_NO_SPACES}]"  # a letter or digit of a script with spaces between words
_MEETING = re.compile(rf"(?<=[{_NO_SPACES}])(?={_LETTER})|(?<={_LETTER})(?=[{_NO_SPACES}])")
# codes that may touch a number; other letters there make it part of a name (`GPT4`, `x2`)
_CURRENCY = "USD|EUR|GBP|JPY|CNY|RMB|INR|CHF|CAD|AUD|NZD|HKD|SGD|KRW|BRL|MXN|ZAR"
_SIGNS = "$\u00a3\u00a5\uff04\uffe1\uffe5\u20a0-\u20cf"  # of currencies
# a minus after a number, with brackets or unit (`(20)-18`, `5%-10%`, `10€-€5`), subtracts or means "up to"
_NO_SIGN = rf"(?<!{_LETTER})(?<!\.)(?<!\d[)\]}}%{_SIGNS}])"
# a minus before a currency: `-$`, `-US$`, TeX's `-\\$`, `-USD `
_MINUS_SIGN = re.compile(rf"{_NO_SIGN}-(?:[A-Z]{{0,3}}\\?[{_SIGNS}]|{_CURRENCY}) ?(?=\.?\d)")
_NUMBER = re.compile(
    rf"(?:(?<!{_LETTER})(?<!\.)(?:{_NO_SIGN}[-+])?|(?<=(?<!{_LETTER})(?:{_CURRENCY})))"
    rf"(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{{1,3}}(?!\d))?"
)


# ---- forms -----------------------------------------------------------------------------------------------------------


def normalise(text: str, *, articles: bool = False) -> str:
    """Normalise text to words of one case joined by single spaces.

    Folds accents, drops punctuation, thousands commas and (unless `articles`) articles, writes numbers as `-0.5`.
    """
    folded = text.casefold() if text.isascii() else _fold(text)
    words = _WORD.findall(_DIGIT_COMMA.sub("", folded))
    return " ".join(_plain(w) for w in words if articles or w not in _ARTICLES)


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text.replace("\N{MINUS SIGN}", "-")).casefold()
    return "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))


def _plain(word: str) -> str:
    """Write a decimal number without needless zeros: `1000.0` → `1000`, `.50` → `0.5`; other words stay."""
    number = _DECIMAL.fullmatch(word)
    if number is None:
        return word
    sign, integer, fraction = number.groups()
    return f"{sign}{integer or '0'}.{fraction}".rstrip("0").rstrip(".")


def answer_form(text: str) -> str:
    """Normalise a final answer: equal forms are equal answers.

    As `normalise`, but keeps what distinguishes answers: signs between words and `+` or `#` after one (`x + 1`, `C++`), a minus
    or factorial beside numbers and single letters (`3!`, not `well-known!`), an interval's square brackets, grouping brackets
    (`(1+2)*3`, `2^{n+1}`), and articles before no longer word (`Vitamin A`, `A, B`). Drops Markdown.
    """
    plain = unicodedata.normalize("NFC", text).translate(_SAME_SIGN)
    if len(_LINE_MARK.findall(plain)) == 1:
        plain = _MINUS.sub("-", plain)
    plain = _EMPHASIS.sub(r"\2", _LINE_MARK.sub("", plain))
    plain = plain.replace("->", "\u2192").replace("=>", "\u2192")
    folded = (
        plain.casefold() if plain.isascii() else _fold(plain).replace("\N{FRACTION SLASH}", "/")
    )  # `½` folds to one
    folded = _INTERVAL.sub(_bounded, _THOUSANDS.sub("", _INTERVAL.sub(_parted, folded)))
    tokens = list(_TOKEN.finditer(folded))
    signs = [
        token.lastgroup == "sign" or _is_sign(before, token, after)
        for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False)
    ]
    grouping = _grouping(tokens, signs)
    form, words = "", list[str]()
    for position, (token, sign) in enumerate(zip(tokens, signs, strict=True)):
        piece = token.group()
        if token.lastgroup == "word":
            words.append(_plain(piece))
        elif sign or position in grouping:
            form += _without_articles(words) + (piece if sign else "(" if piece in "([{" else ")")
            words = []
    form = (form + _without_articles(words)).lstrip("+#*/^=\u2192").rstrip("*/^=<>\u2192")
    return form or " ".join(text.split())


def _is_operand(word: str) -> bool:
    return any(c.isdigit() for c in word) or (len(word) == 1 and not _SPACELESS.match(word))


def _is_sign(before: re.Match[str] | None, mark: re.Match[str], after: re.Match[str] | None) -> bool:
    """Recognise a minus or a factorial by the tokens around it: `x - 1`, `-x`, `A-`, `3!`."""
    follows = after is not None and (
        after.group()[0] in "([{\u221a\u221e" or (after.lastgroup == "word" and _is_operand(after.group()))
    )
    close = after is not None and after.start() == mark.end()
    behind = before is not None and (
        before.group() in ")]}" or (before.lastgroup == "word" and _is_operand(before.group()))
    )
    beside = before is not None and before.end() == mark.start()
    if mark.group() == "!":
        return behind and beside
    opens = before is None or before.lastgroup == "sign" or before.group() in "([{"
    return mark.group() == "-" and ((behind and (follows or (beside and not close))) or (opens and follows and close))


def _grouping(tokens: Sequence[re.Match[str]], signs: Sequence[bool]) -> set[int]:
    """Return the positions of grouping brackets: `(1+2)*3`, `sqrt{x+1}`; not `x = (1+2)`, `(x, -y)`."""

    def operator(position: int) -> bool:
        return signs[position] and not set(tokens[position].group()) <= _RELATIONS

    def joins(position: int, close: bool) -> bool:
        token = tokens[position]
        return operator(position) or (close and (token.lastgroup == "word" or token.group() in "()[]{}"))

    brackets, opened, operators = set[int](), list[tuple[int, int]](), 0
    for position, token in enumerate(tokens):
        operators += operator(position)
        if token.group() in "([{":
            opened.append((position, operators))
        elif token.group() in ")]}" and opened:
            start, before = opened.pop()
            power = position + 1 < len(tokens) and tokens[position + 1].group().startswith("^")
            minus = power and tokens[start + 1].group().startswith("-")  # `(-2)^2`, where it belongs to the number
            if (operators > before or minus) and (
                (start > 0 and joins(start - 1, tokens[start - 1].end() == tokens[start].start()))
                or (position + 1 < len(tokens) and joins(position + 1, tokens[position + 1].start() == token.end()))
            ):
                brackets |= {start, position}
    return brackets


def _parted(interval: re.Match[str]) -> str:
    # `[1,200]` is no thousand, `(1,000)` may be one
    opening, inside, closing = interval.groups()
    if re.search(r",0\d", inside) or not all(_is_operand(word) or word in _BOUNDS for word in _WORD.findall(inside)):
        return interval.group()
    return f"{opening}{inside.replace(',', ', ')}{closing}"


def _bounded(interval: re.Match[str]) -> str:
    """Mark an interval's square brackets as signs."""
    opening, inside, closing = interval.groups()
    if not all(_is_operand(word) or word in _BOUNDS for word in _WORD.findall(inside)):
        return interval.group()
    return f"{opening}{inside}{closing}".replace("[", "\u27e6").replace("]", "\u27e7")


def _without_articles(words: list[str]) -> str:
    """Drop articles that another word follows; `a` only where that is longer than a letter."""
    remaining = []
    for word, follows in zip_longest(words, words[1:]):
        if word not in _ARTICLES or not follows or (word == "a" and len(follows) == 1):
            remaining.append(word)
    return " ".join(remaining)


def squad_normalise(text: str) -> str:
    """Normalise as SQuAD's official script does (Rajpurkar et al. 2016, arXiv 1606.05250), for EM and F1.

    Unlike `normalise` it joins "U.S.A." to "usa" and keeps accents.
    """
    return " ".join(_SQUAD_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def numbers(text: str) -> list[float]:
    """Parse numbers (`1,234.5`, `-3`, `.5`, `2e3`), ignoring units, currencies and percent signs."""
    signed = _MINUS_SIGN.sub("-", text.replace("\N{MINUS SIGN}", "-"))
    return [float(number.replace(",", "")) for number in _NUMBER.findall(signed)]


def same_number(number: float, other: float) -> bool:
    return abs(number - other) <= 1e-6 * max(abs(other), 1e-9)


class PhraseText:
    """Text from `normalise` to search for phrases, with cached forms."""

    def __init__(self, normalised: str) -> None:
        self.normalised = normalised

    @cached_property
    def _parted(self) -> str:
        # a space wherever a script without spaces meets another, and at both ends
        return f" {_MEETING.sub(' ', self.normalised)} "

    @cached_property
    def _together(self) -> str:
        return _joined(self.normalised)

    @cached_property
    def words(self) -> frozenset[str]:
        # a phrase that `whole_words` divides occurs only where all of its words are among them
        return frozenset(self._parted.split())

    def contains(self, phrase: str) -> bool:
        if not _SPACELESS.search(phrase):
            return bool(phrase) and f" {phrase} " in self._parted
        joined = _joined(phrase)
        if joined not in self._together:  # the search for its ends is slow
            return False
        before = rf"(?<!{_LETTER})" if re.match(_LETTER, joined[0]) else ""
        after = rf"(?!{_LETTER})" if re.match(_LETTER, joined[-1]) else ""
        return re.search(before + re.escape(joined) + after, self._together) is not None


def whole_words(phrase: str) -> list[str]:
    """Split a normalised phrase; [] in a script without spaces, which is matched by letters."""
    return [] if _SPACELESS.search(phrase) else phrase.split()


_words = lru_cache(maxsize=8)(PhraseText)


def contains_phrase(normalised_text: str, normalised_phrase: str) -> bool:
    """Search for a phrase as whole words; both sides from `normalise`. An empty phrase never occurs.

    In a script without spaces letters match anywhere but inside a number or a Latin word; a change of script ends a word.
    """
    return _words(normalised_text).contains(normalised_phrase)


@lru_cache(maxsize=8)
def _joined(normalised: str) -> str:
    """Remove spaces beside letters of scripts without them, and compose Korean syllables."""
    return _JOINED.sub("", unicodedata.normalize("NFC", normalised))


def content_words(text: str) -> set[str]:
    """Return the normalised words, without function words and single letters (digits stay)."""
    return {w for w in normalise(text).split() if w not in STOP_WORDS and (len(w) > 1 or w.isdigit())}


def shorten(text: str, max_words: int = 25) -> str:
    """Keep whole sentences up to `max_words`; a longer first one is cut, at a clause's end where possible."""
    sentences = _SENTENCE_END.split(" ".join(text.split()))
    shortened: list[str] = sentences[0].split(" ")
    for sentence in sentences[1:]:
        words = sentence.split(" ")
        if len(shortened) + len(words) > max_words:
            break
        shortened += words
    if len(shortened) <= max_words:
        return " ".join(shortened)
    shortened = shortened[:max_words]
    breaks = [i for i, w in enumerate(shortened) if w[-1:] in ",;:" and i >= max_words // 2]
    if breaks:
        shortened = shortened[: breaks[-1] + 1]
    return " ".join(shortened).rstrip(",;: ") + "."


# ---- leaks -----------------------------------------------------------------------------------------------------------


def message_text(message: Message) -> str:
    calls = [f"{call.name} {call.arguments_text()}" for call in message.tool_calls or []]
    return "\n".join(piece for piece in (message.reasoning_content, message.text(), *calls) if piece)


def transcript_text(trajectory: Trajectory) -> str:
    return "\n".join([trajectory.task, *map(message_text, trajectory.messages)])


def references(value: Any) -> list[str]:
    """Return the accepted answers of a `meta["reference"]`: each of a list of texts, else the one value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    forms = value if isinstance(value, list) and all(isinstance(v, str) for v in value) else [value]
    return [str(form) for form in forms if form is not None and str(form).strip()]


class _Searched:
    """A text to search for answers, with cached forms."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> str:
        return normalise(self.text)

    @cached_property
    def all_words(self) -> str:
        return normalise(self.text, articles=True)

    @cached_property
    def squad(self) -> str:
        return squad_normalise(self.text)

    @cached_property
    def numbers(self) -> list[float]:
        return numbers(self.text)

    def holds(self, reference: str) -> bool:
        value = numbers(reference)
        if len(value) == 1 and not re.search(r"[^\W\d]", reference):
            return any(same_number(n, value[0]) for n in self.numbers)
        if not normalise(reference):  # an answer "A" or "The" is nothing but an article
            return contains_phrase(self.all_words, normalise(reference, articles=True))
        joined = squad_normalise(reference)
        return contains_phrase(self.words, normalise(reference)) or contains_phrase(self.squad, joined)


_searched = lru_cache(maxsize=8)(_Searched)  # a transcript is asked about once per finding, and per reply in training


def answer_leak(text: str, reference: Any, transcript: str) -> LeakClass:
    """Classify whether a judge's text holds an answer that occurs nowhere in the transcript.

    Args:
        reference: as `references`.
        transcript: from `transcript_text`.

    Returns:
        `short_leak` for answers that occur by chance (`is_short`).
    """
    answers = references(reference)
    if not answers:
        return "no_reference"
    leaked = [answer for answer in answers if _searched(text).holds(answer)]
    if not leaked or any(_searched(transcript).holds(answer) for answer in answers):
        return "clean"
    return "short_leak" if all(map(is_short, leaked)) else "leak"


def is_short(answer: str) -> bool:
    """Recognise answers found by chance: yes/no-like or of two characters (one without spaces)."""
    form = _joined(normalise(answer, articles=True))
    return len(form) <= (1 if _SPACELESS.search(form) else 2) or form in YES_NO or form in ("none", "unknown")


def leaks(text: str, answers: Sequence[str], transcript: str, *, yes_no: bool = False) -> bool:
    """Return whether a text names an answer, short ones included, that the transcript lacks.

    Args:
        yes_no: whether yes, no and the like count as answers.
    """
    sought = [answer for answer in answers if yes_no or normalise(answer) not in YES_NO]
    return answer_leak(text, sought, transcript) in ("leak", "short_leak")
