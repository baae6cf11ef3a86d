r"""Answers in `\boxed{}`: the last one of a text, compared with the reference by math-verify.

math-verify is not made for what an agent may write: it looks at the first box of several in some orders, its time limit works in a
main thread alone, and sympy computes what it reads (`9^{9^{9^9}}`). So the last box is cut out here, and the comparison runs in
a process of its own (`reagent.tasks.math_worker`) with limits of time and memory; what exceeds them is wrong.
"""

import logging
import os
import re
import sys
from functools import cache
from pathlib import Path

from reagent.env.task import Task
from reagent.tools.line_worker import LineWorker
from rrm.data.extras import needs

log = logging.getLogger(__name__)
TIMEOUT_S = 10.0
MOST_CHARS = 2000  # a longer answer is no final answer, and is wrong
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_DOLLARS = re.compile(r"\A[\s$]++|(?:(?<![\s$])|(?<=\\\$))(?:\s|(?<!\\)\$)++\Z")
"""Around a formula; `\\$` is a currency's."""
_BOLD = re.compile(r"\*\*(.+)\*\*", re.DOTALL)
_INTEGER = re.compile(r"[-+]?\d{1,30}")


def last_boxed(text: str) -> str | None:
    r"""The text in the last `\boxed{…}` or `\boxed 5`; "" where a brace is missing, None without a box."""
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    start = boxes[-1].end()
    if not text.startswith("{", start):
        word = re.match(r"[^\s$.,;]+(?:[.,]\d+)*", text[start:])
        return word[0] if word else ""
    depth, position = 0, start
    while position < len(text):
        if text[position] == "\\":
            position += 2  # an escaped brace is a brace of the answer
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start + 1 : position].strip()
        position += 1
    return ""


def boxed_equal(task: Task, answer: str) -> float:
    r"""1.0 where the answer's last `\boxed{}`, or all of it, equals a reference by math-verify, else 0.0.
    Raises ValueError: math-verify cannot read the reference; MissingExtra: it is not installed."""
    boxed = last_boxed(answer)
    final = _unboxed(answer) if boxed is None else boxed
    return float(any(same_answer(reference, final) for reference in task.references))


def _unboxed(answer: str) -> str:
    """An answer without a box, emphasis and full stop, which math-verify would read into a formula."""
    plain = answer.strip()
    bold = _BOLD.fullmatch(plain)
    return (bold[1].strip() if bold else plain).removesuffix(".")


def same_answer(reference: str, answer: str) -> bool:
    """Tell whether two LaTeX texts are one answer. Raises ValueError: the reference cannot be read."""
    if not answer or len(answer) > MOST_CHARS:
        return False
    plain, expected = (_DOLLARS.sub("", text) for text in (answer, reference))
    if plain == expected:
        return True
    if _INTEGER.fullmatch(plain) and _INTEGER.fullmatch(expected):  # `073` of AIME is 73
        return int(plain) == int(expected)
    return worker().equal(expected, plain)


class MathWorker(LineWorker):
    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        path = os.pathsep.join(filter(None, sys.path[1:]))
        program = Path(__file__).with_name("math_worker.py")
        super().__init__(program, timeout_s, "-P", env=os.environ | {"PYTHONPATH": path})

    def equal(self, reference: str, answer: str) -> bool:
        """Compare; False where that took too long or too much memory.
        Raises ValueError: the reference cannot be read; MissingExtra: math-verify is not installed."""
        needs("tasks", "comparing mathematical answers", "math_verify")
        try:
            reply = self.ask({"reference": reference, "answer": answer})
        except OSError:
            log.warning(
                "an answer of %d characters could not be compared within its limits: it counts as wrong", len(answer)
            )
            return False
        if reply == "unreadable":
            raise ValueError(f"math-verify reads nothing in the reference {reference[:200]!r}")
        return reply == "equal"


worker = cache(MathWorker)
