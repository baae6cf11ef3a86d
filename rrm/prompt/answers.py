"""The forms of a final answer that are recognised.

    a block       `<solution>x</solution>` (MINT), `<answer>x</answer>` (R1-Searcher, Search-R1), `<final_answer>x</final_answer>`
    a call        `finish(answer=x)`, `Action: Finish[x]` (ReAct), and `answer`, `submit`, `final_answer`
    a statement   `\\boxed{x}`; a line `Answer: x` or `Final Answer: x`, bold or not; `The answer is x`; `#### 42` (GSM8K)

A block and a call are actions. A statement is an answer where nothing else marks one.
"""

from __future__ import annotations

import re

ANSWER_TAGS = ("solution", "answer", "final_answer")
# lower case; tools with one argument, ReAct actions
ANSWER_CALLS = frozenset({"finish", "answer", "submit", "final_answer"})

_BOXED = re.compile(r"\\boxed\{((?:[^{}]++|\{[^{}]*+\})*+)\}")
_LINE = re.compile(
    r"""(?: ^[ \t>*_\#-]*+ (?:(?i:final)[ ])? (?i:answer) [*_]*+ : | Final[ ]Answer[*_]*+ : ) [*_]*+ \s*+ (\S[^\n]*)
    | (?:The|(?:[Ss]o|Thus|Therefore|Hence),?[ ]the)[ ](?:final[ ]|correct[ ])?answer[ ]is:?[ \t]*(\S[^\n]*)
    | ^\#\#\#\#[ \t]*([-+$]?\d[\d,.]*)[ \t]*$""",
    re.MULTILINE | re.VERBOSE,
)
# Markdown's emphasis, opened or closed; a `*` between spaces is a list's or a product's
_MARK = re.compile(r"(?<=[^\s*])\*{1,3}|\*{1,3}(?=[^\s*]|\Z)|(?<![\w_])_{1,3}(?=\w|\Z)|(?<=[^\s_])_{1,3}(?!\w)")
_EMPHASISED = re.compile(r"(\*{1,3}|_{1,3})(?=\S)(.+)(?<=\S)\1")


def stated_answer(text: str) -> str | None:
    """The last answer stated in plain text, or None; `\\boxed{}` takes precedence over lines."""
    if boxed := _BOXED.findall(text):
        return _unmarked("", boxed[-1])
    if not (lines := list(_LINE.finditer(text))):
        return None
    last = lines[-1]
    line = text.rfind("\n", 0, last.start()) + 1
    return _unmarked(text[line : last.start(last.lastindex or 0)], last[last.lastindex or 0])


def _unmarked(before: str, answer: str) -> str:
    """Strip full stop and Markdown's emphasis (open in `before`); unpaired `*`, `_` stay (`A*`, `x_`)."""
    answer = " ".join(answer.split())
    marks = _MARK.findall(before)
    opened = marks[-1] if len(marks) % 2 else ""
    while True:
        bare = answer.rstrip(".")
        if opened and bare.endswith(opened):
            bare, opened = bare.removesuffix(opened).rstrip(), ""
        elif (pair := _EMPHASISED.fullmatch(bare)) and pair[1] not in pair[2]:
            bare = pair[2]
        if bare == answer:
            return answer
        answer = bare
