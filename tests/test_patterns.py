"""Every regular expression of both packages reads 100 kB of what makes one explode within a second."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patterns import Found, patterns_of, texts_for, whole_texts

from reagent.env.parsers.base import stated
from reagent.tools import deny
from rrm.engines import hidden
from rrm.prompt.proven import call_is_wrong
from rrm.readers import chat_text, leaks, react

ROOT = Path(__file__).parents[1]
_BEGIN, _END = chat_text._FAMILIES["<|start_header_id|>"]
_SPECIAL = [re.escape("<|im_end|>") + "|" + re.escape("<｜end▁of▁sentence｜>")]
_SECRET = [hidden._spelt(character, True) for character in "sk-a.b/c"]
SAMPLES = {
    "rrm.data.pictures:parts": [r"\[image (\d{1,6}) 0f3a\]"],
    "rrm.engines.hidden:_compiled": _SECRET,
    "rrm.engines.hidden:_without": [f"(?=({''.join(_SECRET)}))"],
    "rrm.evaluation.failures:find_quote": [r"look\s++it\s++up"],
    "rrm.judge.answers:answer_of": [r"(?<!\s)\s*+(?:/|out of)\s*+5\s*+\Z"],
    "rrm.prompt.neutralise:_control_and": [r"<\s*+/?\s*+(?:a|note)\s*+>"],
    "rrm.prompt.template:__init__": _SPECIAL,
    "rrm.readers.chat_text:_marked": [
        _BEGIN,
        f"{_END}{chat_text._PADS}{_BEGIN}",
        f"{_END}(?:{_END}|{chat_text._PADS})" + r"\Z",
    ],
    "rrm.data.text:contains": [r"(?<!\w)東京(?!\w)"],
    "reagent.env.parsers.search_tags:__init__": ["<(/?)(search|answer)>"],
    "reagent.rollout.templates:_any_of": _SPECIAL,
    "reagent.tools.deny:__init__": [deny._pattern("example.org"), deny._pattern("example.org/a/b")],
}
"""Patterns that are made of a call's own words, as they come out for some."""
PATTERNS, UNKNOWN = patterns_of({"rrm": ROOT / "rrm", "reagent": ROOT / "agents" / "reagent"}, SAMPLES)
SMALL, SIZE = 6_000, 100_000


class Late(Exception):
    """A pattern that looks on."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Stop what takes more of the processor's time; a pattern asks for signals as it backtracks."""

    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def seconds_of(found: Found, text: str) -> float:
    """Processor seconds of all that the source does with a pattern, on one text."""
    began = time.process_time()
    try:
        with within(1.0):
            found.run(text)
    except Late:
        return float("inf")
    return time.process_time() - began


def test_every_pattern_was_found() -> None:
    """Those that a call puts together of what it was given have a sample."""
    assert not UNKNOWN
    assert len(PATTERNS) > 280
    assert {leaks.VERDICT, leaks._LABEL_ONLY, react.CALL} <= {found.pattern for found in PATTERNS}


@pytest.mark.parametrize("found", PATTERNS, ids=lambda found: found.where)
def test_a_pattern_reads_100_kb_within_a_second(found: Found) -> None:
    """On blanks, line breaks, and what it begins with, repeats and chooses between.

    `reveals_verdict` took two minutes of 3,000 line breaks, `_PRINT_ONLY` for ever of thirty prints, an answer's pattern 40 s of 100 kB of them.
    """
    for text in [*texts_for(found.pattern, SMALL), *whole_texts(found.pattern, SIZE)]:
        most = 1.0 if len(text) == SIZE else 0.03  # a hundred times the time of a hundredth, were it the square
        took = min(seconds_of(found, text) for _ in range(2)) if (once := seconds_of(found, text)) > most else once
        assert took <= most, (found.pattern.pattern, text[:60], text[-20:], len(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Observation: Answer is CORRECT", True),
        ("Observation:\nAnswer is CORRECT.", True),
        ("  ** The solution is correct", False),
        ("> Solution is incorrect **\nnext", True),
        ("the answer is correct", False),
        ("\n" * 3000 + "Answer is correct\n", True),
        ((" " * 80 + "\n") * 50, False),
    ],
)
def test_a_verdict_on_a_line_of_its_own_is_found_at_once(text: str, said: bool) -> None:
    """A blank screen of 50 lines took 3.8 s."""
    with within(0.1):
        assert leaks.reveals_verdict(text) is said


def test_what_stood_around_a_verdict_is_told_from_its_label() -> None:
    assert leaks._LABEL_ONLY.fullmatch("  Observation 2: \n --")
    assert leaks._LABEL_ONLY.fullmatch("Observation:") and leaks._LABEL_ONLY.fullmatch(" \n ")
    assert not leaks._LABEL_ONLY.fullmatch("Observation: it rains")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("So\n  Answer: 42  \n\n", "42"),
        ("final answer :\t Paris, France\nAnswer: Rome", "Rome"),
        ("The answer: 5", "The answer: 5"),
        ("Answer:\n42", "Answer:\n42"),
        ("\n" * 100_000, "\n" * 100_000),
    ],
)
def test_the_last_answer_line_is_read_at_once(text: str, answer: str) -> None:
    """A turn of 100 kB of line breaks took 40 s."""
    with within(0.5):
        assert stated(text) == answer


def test_a_result_of_blank_lines_says_nothing_of_its_call() -> None:
    with within(0.1):
        assert not call_is_wrong("x" + "\n" * 3000 + "x")
    assert call_is_wrong("unknown tool") and not call_is_wrong('  File "a.py", line 1\nSyntaxError: invalid syntax')
