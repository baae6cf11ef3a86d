"""Text as it is compared: the one normaliser, the one test for a leaked answer, and what the annotators cut texts with.

Answers are looked for as whole words in `normalise`d text; those in a script without spaces between words (Chinese, Thai, …, and
Korean, whose particles follow without one) wherever their letters stand. Two other forms exist because others defined them: SQuAD's official
one (`squad_normalise`), by which exact match and F1 are published, and numbers by value (`numbers`), as GSM8K is graded. A judge's
text leaks an answer in whichever of these forms a grader would take it.
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
YES_NO = frozenset({"yes", "no", "true", "false"})
"""Answers that any text holds by chance."""

_ARTICLES = frozenset({"a", "an", "the"})
STOP_WORDS = frozenset(
    """
    a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it
    its let me my no not now of on one or our out she should so than that the their them then there these they this
    to us use was we were what when where which who will with would you your
    """.split()  # noqa: SIM905 - a word list reads better as text
)
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_WORD = re.compile(r"(?:(?<![^\W_])-(?=\.?\d))?(?:[^\W_]+(?:\.\d+)?|\.\d+)")
"""A minus is a sign where no word stands before it: `-2`, `x=-2`, but `3-2` is two words. A point stays inside a number."""
_DECIMAL = re.compile(r"(-?)(\d*)\.(\d+)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s++(?=[A-Z\"'(\[`<])")
_SAME_SIGN = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2013\N{MINUS SIGN}", "-"),
        **dict.fromkeys("\u00d7\u2217\u22c5", "*"),
        **dict.fromkeys("\u00f7\u2215\N{FRACTION SLASH}", "/"),
        **{"\u2260": "!=", "\u2264": "<=", "\u2265": ">=", "\u21d2": "\u2192"},
    }
)
"""Signs that are written in several ways, as one; before accents are folded, which makes `=` of `≠`."""
_EMPHASIS = re.compile(r"(?<![^\W_])(?<![)\]}])(\*{1,3})(?=[^\s*])(.{1,200}?)(?<=[^\s*])\1(?![^\W_]|[*(\[{])")
"""Markdown's, not a product: `is **4**.`, but `2*3*4` and `(a)*(b)*(c)`."""
_MINUS = re.compile(r"\A\s*-[ \t]+(?=[$\\(]*\.?\d|[^\W\d_]\s*(?:\Z|[-+*/^=<>!]))")
"""Of a number or a letter of a formula: `- 5` is a list's item only beside others."""
_LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|[*+-]|>(?=[ \t]+[^\W\d_]{2}))[ \t]+", re.MULTILINE)
"""Markdown's: a heading, a list's item, a quotation (of words: `> 5` says more than `5`)."""
_THOUSANDS = re.compile(r"(?<=\d)(?<!(?<!\d)0),(?=\d{3}(?!\d))")
"""As `_DIGIT_COMMA`, but `0,100` is no number of thousands."""
_INTERVAL = re.compile(r"([\[(])([^\[\](),;]{1,60}[,;][^\[\](),;]{1,60})([\])])")
_RELATIONS = frozenset("=<>!\u2190\u2192\u2248\u2261")
_BOUNDS = frozenset({"inf", "infty", "infinity", "pi", "sqrt"})
_TOKEN = re.compile(
    rf"(?P<word>{_WORD.pattern})|(?P<sign>!=|[+#*/^=<>\u00ac\u00b1\u2190-\u22ff\u27e6\u27e7]+)|(?P<mark>[-!()\[\]{{}}])"
)
"""Words; signs that make another answer of the same words (`C++`, `1/2`, `x^2`, `√2`); marks that may be punctuation."""
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SQUAD_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_SPACES = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese, Korean: a word's end is not to be seen in the text."""
_SPACELESS = re.compile(f"[{_NO_SPACES}]")
_JOINED = re.compile(f"(?<=[{_NO_SPACES}]) | (?=[{_NO_SPACES}])")
_LETTER = rf"[^\W{_NO_SPACES}]"
"""A letter or digit of a script whose words stand apart."""
_MEETING = re.compile(rf"(?<=[{_NO_SPACES}])(?={_LETTER})|(?<={_LETTER})(?=[{_NO_SPACES}])")
_CURRENCY = "USD|EUR|GBP|JPY|CNY|RMB|INR|CHF|CAD|AUD|NZD|HKD|SGD|KRW|BRL|MXN|ZAR"
"""Codes that stand before a number without a space; any other letter there makes it part of a name (`GPT4`, `x2`)."""
_SIGNS = "$\u00a3\u00a5\uff04\uffe1\uffe5\u20a0-\u20cf"
"""Of currencies."""
_NO_SIGN = rf"(?<!{_LETTER})(?<!\.)(?<!\d[)\]}}%{_SIGNS}])"
"""Behind a number, also one in brackets or with a unit (`(20)-18`, `5%-10%`, `10\u20ac-\u20ac5`), a minus takes away, or says up to."""
_MINUS_SIGN = re.compile(rf"{_NO_SIGN}-(?:[A-Z]{{0,3}}\\?[{_SIGNS}]|{_CURRENCY}) ?(?=\.?\d)")
"""A minus before the sign or code of a currency: `-$`, `-US$`, TeX's `-\\$`, `-USD `."""
_NUMBER = re.compile(
    rf"(?:(?<!{_LETTER})(?<!\.)(?:{_NO_SIGN}[-+])?|(?<=(?<!{_LETTER})(?:{_CURRENCY})))"
    rf"(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{{1,3}}(?!\d))?"
)


# ---- forms -----------------------------------------------------------------------------------------------------------


def normalise(text: str, *, articles: bool = False) -> str:
    """Words in one case joined by one space; accents folded, punctuation and thousands commas dropped, numbers as `-0.5`.

    Args:
        articles: keep a, an and the.
    """
    folded = text.casefold() if text.isascii() else _fold(text)
    words = _WORD.findall(_DIGIT_COMMA.sub("", folded))
    return " ".join(_plain(w) for w in words if articles or w not in _ARTICLES)


def _fold(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text.replace("\N{MINUS SIGN}", "-")).casefold()
    return "".join(c for c in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(c))


def _plain(word: str) -> str:
    """A decimal number without needless zeros: `1000.0` → `1000`, `.50` → `0.5`; any other word as it is."""
    number = _DECIMAL.fullmatch(word)
    if number is None:
        return word
    sign, whole, fraction = number.groups()
    return f"{sign}{whole or '0'}.{fraction}".rstrip("0").rstrip(".")


def answer_form(text: str) -> str:
    """A final answer as it is compared with other attempts' answers: where the forms are equal, so are the answers.

    `normalise`, but what alone tells answers apart stays: signs between words and `+` or `#` behind one (`x + 1`, `x ≤ 1`, `C++`),
    a minus and a factorial's `!` beside numbers and single letters (`x - 1`, `3!`, not `well-known!`), the square brackets of an
    interval, the brackets of a formula's part (`(1+2)*3`, `2^{n+1}`), and `a`, `an`, `the` where no longer word follows (`A`,
    `The`, `Vitamin A`, `A, B`). Markdown goes. An answer without a word is itself.
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
    for at, (token, sign) in enumerate(zip(tokens, signs, strict=True)):
        said = token.group()
        if token.lastgroup == "word":
            words.append(_plain(said))
        elif sign or at in grouping:
            form += _without_articles(words) + (said if sign else "(" if said in "([{" else ")")
            words = []
    form = (form + _without_articles(words)).lstrip("+#*/^=\u2192").rstrip("*/^=<>\u2192")
    return form or " ".join(text.split())


def _is_operand(word: str) -> bool:
    """Whether a word stands in formulas: a number, or a letter."""
    return any(c.isdigit() for c in word) or (len(word) == 1 and not _SPACELESS.match(word))


def _is_sign(before: re.Match[str] | None, mark: re.Match[str], after: re.Match[str] | None) -> bool:
    """Whether a mark is a minus or a factorial's, by the tokens around it: `x - 1`, `-x`, `A-`, `3!`."""
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
    """Where the brackets stand that hold a part of a formula together: with an operator inside, and one, or a word without a
    space, beside them. `(1+2)*3` and `sqrt{x+1}`; not `x = (1+2)`, `(x, -y)`, `Paris (in A+B)`."""

    def operator(at: int) -> bool:
        return signs[at] and not set(tokens[at].group()) <= _RELATIONS

    def joins(at: int, close: bool) -> bool:
        """Whether what stands there makes the bracket a part of something."""
        token = tokens[at]
        return operator(at) or (close and (token.lastgroup == "word" or token.group() in "()[]{}"))

    found, opened, operators = set[int](), list[tuple[int, int]](), 0
    for at, token in enumerate(tokens):
        operators += operator(at)
        if token.group() in "([{":
            opened.append((at, operators))
        elif token.group() in ")]}" and opened:
            start, before = opened.pop()
            power = at + 1 < len(tokens) and tokens[at + 1].group().startswith("^")
            minus = power and tokens[start + 1].group().startswith("-")  # `(-2)^2`, where it belongs to the number
            if (operators > before or minus) and (
                (start > 0 and joins(start - 1, tokens[start - 1].end() == tokens[start].start()))
                or (at + 1 < len(tokens) and joins(at + 1, tokens[at + 1].start() == token.end()))
            ):
                found |= {start, at}
    return found


def _parted(found: re.Match[str]) -> str:
    """Two numbers in brackets with a space behind their comma: `[1,200]` is no number of thousands, `(1,000)` may be one."""
    opening, inside, closing = found.groups()
    if re.search(r",0\d", inside) or not all(_is_operand(word) or word in _BOUNDS for word in _WORD.findall(inside)):
        return found.group()
    return f"{opening}{inside.replace(',', ', ')}{closing}"


def _bounded(found: re.Match[str]) -> str:
    """An interval with its square brackets marked as signs; anything else in brackets as it is."""
    opening, inside, closing = found.groups()
    if not all(_is_operand(word) or word in _BOUNDS for word in _WORD.findall(inside)):
        return found.group()
    return f"{opening}{inside}{closing}".replace("[", "\u27e6").replace("]", "\u27e7")


def _without_articles(words: list[str]) -> str:
    """The words without articles: those that another word follows, `a` only where that is longer than a letter."""
    kept = []
    for word, follows in zip_longest(words, words[1:]):
        if word not in _ARTICLES or not follows or (word == "a" and len(follows) == 1):
            kept.append(word)
    return " ".join(kept)


def squad_normalise(text: str) -> str:
    """SQuAD's normalisation (Rajpurkar et al. 2016, arXiv 1606.05250, official evaluation script): lower case, without
    punctuation and the articles a, an, the, single spaces.

    Not `normalise`, because published EM and F1 are of this form: it joins "U.S.A." to "usa" and keeps accents.
    """
    return " ".join(_SQUAD_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def numbers(text: str) -> list[float]:
    """The numbers in a text: `1,234.5`, `-3`, `.5`, `2e3`; units, currency signs and codes (`$18`, `USD18`, `-$18`, `-US$18`) and a percent sign are ignored.

    A point divides decimals and a comma thousands, as in English: `1.250,50` is two numbers.
    """
    signed = _MINUS_SIGN.sub("-", text.replace("\N{MINUS SIGN}", "-"))
    return [float(found.replace(",", "")) for found in _NUMBER.findall(signed)]


def same_number(one: float, other: float) -> bool:
    """Equal to a relative 1e-6 of the second."""
    return abs(one - other) <= 1e-6 * max(abs(other), 1e-9)


class PhraseText:
    """Normalised text, to look for phrases in; the forms that this takes are made once.

    Args:
        normalised: from `normalise`.
    """

    def __init__(self, normalised: str) -> None:
        self.normalised = normalised

    @cached_property
    def _parted(self) -> str:
        """A space wherever a script without spaces meets another, and at both ends."""
        return f" {_MEETING.sub(' ', self.normalised)} "

    @cached_property
    def _together(self) -> str:
        return _joined(self.normalised)

    @cached_property
    def words(self) -> frozenset[str]:
        """Its words. A phrase that `whole_words` divides occurs only where all of its words are among them."""
        return frozenset(self._parted.split())

    def contains(self, phrase: str) -> bool:
        """Whether a normalised phrase occurs as whole words, as `contains_phrase` says."""
        if not _SPACELESS.search(phrase):
            return bool(phrase) and f" {phrase} " in self._parted
        joined = _joined(phrase)
        if joined not in self._together:  # the search for its ends is slow
            return False
        before = rf"(?<!{_LETTER})" if re.match(_LETTER, joined[0]) else ""
        after = rf"(?!{_LETTER})" if re.match(_LETTER, joined[-1]) else ""
        return re.search(before + re.escape(joined) + after, self._together) is not None


def whole_words(phrase: str) -> list[str]:
    """The words of a normalised phrase; none of one in a script without spaces, which is looked for letter by letter."""
    return [] if _SPACELESS.search(phrase) else phrase.split()


_words = lru_cache(maxsize=8)(PhraseText)


def contains_phrase(normalised_text: str, normalised_phrase: str) -> bool:
    """Whether the phrase occurs as whole words; both sides come from `normalise`. An empty phrase never occurs.

    In a script without spaces there are none: there the letters are looked for, but not inside a number or a Latin word; and
    where a text changes between such a script and another, a word ends.
    """
    return _words(normalised_text).contains(normalised_phrase)


@lru_cache(maxsize=8)
def _joined(normalised: str) -> str:
    """Normalised text without the spaces beside letters of a script that has none; Korean syllables whole again."""
    return _JOINED.sub("", unicodedata.normalize("NFC", normalised))


def content_words(text: str) -> set[str]:
    """The words that carry content: normalised, without function words and single letters (digits stay)."""
    return {w for w in normalise(text).split() if w not in STOP_WORDS and (len(w) > 1 or w.isdigit())}


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


# ---- leaks -----------------------------------------------------------------------------------------------------------


def message_text(message: Message) -> str:
    """Everything one message says: thoughts, text, and tool calls with their arguments."""
    calls = [f"{call.name} {call.arguments_text()}" for call in message.tool_calls or []]
    return "\n".join(part for part in (message.reasoning_content, message.text(), *calls) if part)


def transcript_text(trajectory: Trajectory) -> str:
    """Everything the task, the agent and its tools said: what an answer that a judge names may have come from."""
    return "\n".join([trajectory.task, *map(message_text, trajectory.messages)])


def references(value: Any) -> list[str]:
    """A `meta["reference"]` as the texts that all count as the answer: each of a list of texts, otherwise the one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    forms = value if isinstance(value, list) and all(isinstance(v, str) for v in value) else [value]
    return [str(form) for form in forms if form is not None and str(form).strip()]


class _Searched:
    """A text that answers are looked for in, each of its forms made once, when it is needed."""

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
        """Whether the text has words, or a number, that a grader takes for the reference."""
        value = numbers(reference)
        if len(value) == 1 and not re.search(r"[^\W\d]", reference):
            return any(same_number(n, value[0]) for n in self.numbers)
        if not normalise(reference):  # an answer "A" or "The" is nothing but an article
            return contains_phrase(self.all_words, normalise(reference, articles=True))
        joined = squad_normalise(reference)
        return contains_phrase(self.words, normalise(reference)) or contains_phrase(self.squad, joined)


_searched = lru_cache(maxsize=8)(_Searched)  # a transcript is asked about once per finding, and per reply in training


def answer_leak(said: str, reference: Any, transcript: str) -> LeakClass:
    """Whether a judge gave the answer away: what it said holds an answer that occurs nowhere in the transcript.

    Args:
        said: trace, critique or a finding.
        reference: text, number, or a list of texts that all count as the answer.
        transcript: everything the agent, its tools and the task said (`transcript_text`).

    Returns:
        `short_leak` for yes/no-like answers and those of one or two characters, which occur by chance.
    """
    answers = references(reference)
    if not answers:
        return "no_reference"
    leaked = [answer for answer in answers if _searched(said).holds(answer)]
    if not leaked or any(_searched(transcript).holds(answer) for answer in answers):
        return "clean"
    return "short_leak" if all(map(is_short, leaked)) else "leak"


def is_short(answer: str) -> bool:
    """Whether an answer is yes/no-like or at most two characters long: found in a text by chance.

    Two characters of a script without spaces are a word, one is not.
    """
    form = _joined(normalise(answer, articles=True))
    return len(form) <= (1 if _SPACELESS.search(form) else 2) or form in YES_NO or form in ("none", "unknown")


def leaks(said: str, answers: Sequence[str], transcript: str, *, yes_no: bool = False) -> bool:
    """Whether a text must be dropped: it names one of the answers although the transcript has none of them.

    Short answers count, for a filter may drop one text too many.

    Args:
        yes_no: yes, no and their like count too; otherwise they are no answers here.
    """
    sought = [answer for answer in answers if yes_no or normalise(answer) not in YES_NO]
    return answer_leak(said, sought, transcript) in ("leak", "short_leak")
