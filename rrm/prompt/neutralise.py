"""Disarm transcript text: nothing in it opens or closes a block of the judge's prompt or reply.

Three families have their brackets swapped for round ones: the judge's tags (`<score>` becomes `(score)`), chat-template
control tokens (`<|im_end|>` becomes `(|im_end|)`) and step markers (`[step 3]` becomes `(step 3)`). Labels at the start of a
line (`result: 42` in an agent's words) become `(result) 42`; within a line and on a text's first line they stay.
Look-alikes count too: matching runs on a skeleton without compatibility forms, homoglyphs, HTML entities and invisible
characters, with an index back to the original text. All other text stays as it is.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_LOOK_ALIKES = {
    "a": "аαɑ",
    "b": "ЬьƄƅᏏ",
    "c": "сϲⅽᴄ",
    "d": "ԁⅾ",
    "e": "еεҽᴇ",
    "h": "һʜ",
    "i": "іιɩɪⅰ",
    "k": "кκᴋ",
    "n": "ոɴ",
    "o": "оοσᴏօ",
    "p": "рρᴘ",
    "q": "ԛ",
    "r": "гʀᴦ",
    "s": "ѕꜱ",
    "t": "тτᴛ",
    "u": "υսᴜ",
    "w": "ԝաᴡ",
    "(": "❨❪⟮⦅⸨﴾",
    ")": "❩❫⟯⦆⸩﴿",
    "<": "‹〈⟨❮❬《«≺˂ᐸ",
    ">": "›〉⟩❯❭》»≻˃ᐳ",
    "/": "⁄∕⧸",
    "|": "ǀ∣│┃",
    "[": "【〔⟦",
    "]": "】〕⟧",
    ":": "∶꞉ː׃",
}
_HOMOGLYPHS = {odd: plain for plain, odds in _LOOK_ALIKES.items() for odd in odds}
# An ampersand may itself be escaped, any number of times: `&amp;lt;`.
_ENTITY = re.compile(r"&(?:amp;|#38;|#[xX]26;)*(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,12});?")


def _spaced(word: str) -> str:
    return r"[\s.\-_*]{0,2}".join(word)


_TAGS = "|".join(_spaced(w) for w in ("think", "critique", "score"))
# Possessive quantifiers (`*+`) keep a match linear: `<` and a hundred thousand spaces must not stall a judge.
_CONTROL = (
    re.compile(r"<\s*+\|[^|\n<>]{0,64}(?:\|\s*+>?|>)"),
    re.compile(
        r"<\s*+/?\s*+s\s*+>|<\s*+<\s*+/?\s*+sys\s*+>\s*+>|\[\s*+/?\s*+inst\s*+\]|<\s*+(?:start|end)_of_turn\s*+>"
    ),
    re.compile(r"<\s*+(?:endoftext|eos|bos|pad|unk)\s*+>"),
    # StarCoder's and SmolLM2's special tokens
    re.compile(r"<(?:repo_?name|file_sep|filename|gh_stars|issue_\w{5,7}|jupyter_\w{4,6}|empty_output)>"),
)
# special tokens of one model family or another, for text whose tokenizer is not known
_MODELS_OWN = (
    # Mistral's and GLM's, BERT's
    re.compile(
        r"\[\s*+/?\s*+(?:tool_(?:calls|results|content)|available_tools|system_prompt|modelsettings|model_settings|args|call_id"
        r"|img(?:_break|_end)?|audio|begin_audio|transcribe|prefix|middle|suffix|think|[gs]?mask|cls|sep|pad|unk|eop|sop)\s*+\]"
    ),
    # Gemma's and GLM's; not `<tool_call>`, which is a word of many agents' prompts and no special token where it is a token
    re.compile(
        r"<\s*+/?\s*+(?:(?:start|end)_of_(?:image|audio|video|text|speech|role)|(?:image|audio)_soft_token|sop|eop|mask|cls|sep"
        r"|unused\d{1,4})\s*+>"
    ),
)
_PATTERNS = (
    re.compile(rf"<\s*+[/\\]?\s*+(?:{_TAGS})\b[^<>\n]{{0,40}}>?|<\s*+[/\\]\s*+(?:{_TAGS})"),
    re.compile(r"\|\s*+>"),
    *_CONTROL,
    re.compile(r"\[\s*+step\s*+#?\s*+\d{1,9}\s*+\]?"),
)
_BREAK = r"\n\r\x85\u2028\u2029"
# begins a line as `rrm.prompt.rendering` begins its own; groups: the word and the character that ends it
_LABEL = re.compile(
    rf"(?<=[{_BREAK}])[ \t]*+(?:(?P<label>task|tools|agent|result|user|instructions)\s*+(?P<colon>:)"
    r"|(?P<call>call)(?P<blank>[ \t])(?=[^\s{]{1,80}[ \t]*+\{))"
)
# the same for `rrm.prompt.canonical`, and results as frameworks begin them
_CANONICAL_LABEL = re.compile(
    rf"(?<=[{_BREAK}])[ \t]*+(?:(?P<label>task|tools|agent|result|user|answer|noted|instructions|observation(?:[ \t]\d{{1,9}})?)\s*+(?P<colon>:)"
    rf"|(?P<call>call)(?P<blank>[ \t])(?=[^:({{{_BREAK}]{{0,200}}[:({{]))"
)
_FILL = r"(?:[^\w()]|_)*+"
# the digest's mark `(bad)` (`rrm.prompt.windows`), which in a tool's name would pass for the judge's finding; nothing else may
# stand between its brackets: `OSError(bad file)` is no mark
_MARK = re.compile(rf"\({_FILL}[\W_]{{0,4}}+{_spaced('bad')}{_FILL}(?:[\W_]{{0,4}}?\)|[\W_]{{0,4}}\Z)")
_ROUND = {"<": "(", ">": ")", "[": "(", "]": ")"}
_BRACKET = re.compile(r"[<>\[\]]")
_ROUND_ONE = re.compile(r"[()]")
_AWAY = {"(": "", ")": ""}  # for brackets that are round already
ROUNDS = 16  # of swaps, before every bracket is swapped: markers nested deeper stand in no honest text


def _skeleton(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Fold look-alikes; returns the skeleton and each character's span [start, stop) in `text`."""
    chars: list[str] = []
    spans: list[tuple[int, int]] = []
    i = 0
    while i < len(text):
        stop, piece = i + 1, text[i]
        if piece == "&" and (entity := _ENTITY.match(text, i)):
            decoded = html.unescape(entity.group())
            while (again := html.unescape(decoded)) != decoded:
                decoded = again
            if decoded != entity.group():
                stop, piece = entity.end(), decoded
        if len(piece) == 1 and piece.isascii():
            folded = piece.lower()
        else:
            folded = "".join(
                _HOMOGLYPHS.get(c, c).lower()
                for c in unicodedata.normalize("NFKD", "".join(_HOMOGLYPHS.get(c, c) for c in piece))
                if unicodedata.category(c) not in ("Cf", "Mn", "Me")
            )
        for c in folded:
            chars.append(c)
            spans.append((i, stop))
        i = stop
    return "".join(chars), spans


def _disarm_once(
    text: str,
    patterns: Sequence[re.Pattern[str]],
    labels: re.Pattern[str] | None = None,
    away: re.Pattern[str] | None = None,
) -> str:
    """One round: make brackets round in matches of `patterns`, drop them in matches of `away`."""
    skeleton, spans = _skeleton(text)
    swaps: dict[int, tuple[int, str]] = {}
    for match in labels.finditer(skeleton) if labels else ():
        word, ending = ("label", "colon") if match["label"] else ("call", "blank")
        first, last = spans[match.start(word)], spans[match.start(ending)]
        swaps[first[0]] = (first[1], "(" + text[first[0] : first[1]])
        swaps[last[0]] = (last[1], ")" if match["label"] else ") ")
    for pattern, instead in (*((p, _ROUND) for p in patterns), *([(away, _AWAY)] if away else [])):
        for match in pattern.finditer(skeleton):
            for k in range(match.start(), match.end()):
                if skeleton[k] in instead:
                    start, stop = spans[k]
                    swaps[start] = (stop, instead[skeleton[k]])
    if not swaps:
        return text
    out: list[str] = []
    position = 0
    for start in sorted(swaps):
        stop, replacement = swaps[start]
        if start < position:
            continue
        out += (text[position:start], replacement)
        position = stop
    return "".join(out) + text[position:]


def _clean(text: str) -> str:
    """Replace lone surrogates by U+FFFD, and C0 controls except tab and newline by blanks."""
    text = text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", " ", text)


def _disarm(
    text: str, patterns: Sequence[re.Pattern[str]], labels: re.Pattern[str] | None = None, mark: bool = False
) -> str:
    """Clean, then swap brackets to a fixed point: a swap may leave a new marker behind (`<<score>score>`)."""
    text = _clean(text)
    first, away = ("<[|&(", _MARK) if mark else ("<[|&", None)
    if text.isascii() and not any(c in text for c in first) and not (labels and labels.search(text.lower())):
        return text
    for _ in range(ROUNDS):
        if (disarmed := _disarm_once(text, patterns, labels, away)) == text:
            return text
        text = disarmed
    # nested so deep by intention: a round each would take time in the square of the length, so nothing is left to nest
    text = _disarm_once(text, (_BRACKET,), labels)
    return _disarm_once(text, (), away=_ROUND_ONE) if mark else text


def neutralise(text: str) -> str:
    """Disarm `text`; idempotent, and the identity on text without markers."""
    return _disarm(text, _PATTERNS, _LABEL)


def neutralise_canonical(text: str) -> str:
    """`neutralise`, and disarm the labels that only version 3 writes."""
    return _disarm(text, _PATTERNS, _CANONICAL_LABEL)


def neutralise_digest(text: str) -> str:
    """`neutralise` a line of the digest, and turn its mark `(bad)` into `bad`."""
    return _disarm(text, _PATTERNS, _LABEL, mark=True)


@lru_cache(maxsize=64)
def _control_and(tags: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    if not tags:
        return _CONTROL
    names = "|".join(re.escape(tag) for tag in tags)
    return (*_CONTROL, re.compile(rf"<\s*+/?\s*+(?:{names})\s*+>"))


def neutralise_control(text: str, tags: Sequence[str] = ()) -> str:
    """Disarm only chat-template control tokens and the named tags, for results that a policy reads."""
    return _disarm(text, _control_and(tuple(tags)))


def neutralise_special(text: str) -> str:
    """Disarm special tokens of common model families; our own step markers, labels and tags stay."""
    return _disarm(text, (*_CONTROL, *_MODELS_OWN))
