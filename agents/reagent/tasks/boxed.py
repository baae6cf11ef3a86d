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
MOST_CHARS = 2000
"""A longer answer is no final answer, and is wrong."""
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*")
_DOLLARS = re.compile(r"\A[\s$]++|(?:(?<![\s$])|(?<=\\\$))(?:\s|(?<!\\)\$)++\Z")
"""Around a formula; `\\$` is a currency's."""
_BOLD = re.compile(r"\*\*(.+)\*\*", re.DOTALL)
_INTEGER = re.compile(r"[-+]?\d{1,30}")


def last_boxed(text: str) -> str | None:
    r"""What the last `\boxed{…}` holds (`\boxed 5` holds a word); "" where its brace is never closed, None without a box."""
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return None
    at = boxes[-1].end()
    if not text.startswith("{", at):
        word = re.match(r"[^\s$.,;]+(?:[.,]\d+)*", text[at:])
        return word[0] if word else ""
    depth, position = 0, at
    while position < len(text):
        if text[position] == "\\":
            position += 2  # an escaped brace is a brace of the answer
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[at + 1 : position].strip()
        position += 1
    return ""


def boxed_equal(task: Task, answer: str) -> float:
    r"""1.0 where the last `\boxed{}` of the answer, or without one all of it, equals a reference as math-verify compares; else 0.0.

    Raises:
        ValueError: math-verify cannot read the reference; MissingExtra: it is not installed.
    """
    found = last_boxed(answer)
    said = _unboxed(answer) if found is None else found
    return float(any(same_answer(reference, said) for reference in task.references))


def _unboxed(answer: str) -> str:
    """An answer without a box, out of its emphasis and without the full stop that math-verify would read into a formula."""
    plain = answer.strip()
    bold = _BOLD.fullmatch(plain)
    return (bold[1].strip() if bold else plain).removesuffix(".")


def same_answer(reference: str, said: str) -> bool:
    """Whether two LaTeX texts are one answer. Raises ValueError: the reference cannot be read."""
    if not said or len(said) > MOST_CHARS:
        return False
    plain, wanted = (_DOLLARS.sub("", text) for text in (said, reference))
    if plain == wanted:
        return True
    if _INTEGER.fullmatch(plain) and _INTEGER.fullmatch(wanted):  # `073` of AIME is 73
        return int(plain) == int(wanted)
    return worker().equal(wanted, plain)


class MathWorker(LineWorker):
    """The process that compares."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        path = os.pathsep.join(filter(None, sys.path[1:]))
        program = Path(__file__).with_name("math_worker.py")
        super().__init__(program, timeout_s, "-P", env=os.environ | {"PYTHONPATH": path})

    def equal(self, reference: str, said: str) -> bool:
        """Whether they are equal; not, where that took too long or too much memory. Raises ValueError: the reference cannot be read;
        MissingExtra: math-verify is not installed."""
        needs("tasks", "comparing mathematical answers", "math_verify")
        try:
            reply = self.ask({"reference": reference, "answer": said})
        except OSError:
            log.warning(
                "an answer of %d characters could not be compared within its limits: it counts as wrong", len(said)
            )
            return False
        if reply == "unreadable":
            raise ValueError(f"math-verify reads nothing in the reference {reference[:200]!r}")
        return reply == "equal"


worker = cache(MathWorker)
"""This process's one."""
