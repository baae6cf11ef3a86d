"""How agents write their final answer: the one list of the forms that are known.

    a block       `<solution>x</solution>` (MINT), `<answer>x</answer>` (R1-Searcher, Search-R1), `<final_answer>x</final_answer>`
    a call        `finish(answer=x)`, `Action: Finish[x]` (ReAct), and `answer`, `submit`, `final_answer`
    a statement   `\\\\boxed{x}`; a line `Answer: x` or `Final Answer: x`, bold or not; `The answer is x`; `#### 42` (GSM8K)

A block and a call are actions: the environment takes them. A statement is an answer where nothing else marks one.
"""

from __future__ import annotations

import re

ANSWER_TAGS = ("solution", "answer", "final_answer")
ANSWER_CALLS = frozenset({"finish", "answer", "submit", "final_answer"})
"""Names in lower case, of tools with one argument and of ReAct actions."""

_BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
_LINE = re.compile(
    r"""(?: ^[ \t>*_\#-]*+ (?:(?i:final)[ ])? (?i:answer) [*_]*+ : | Final[ ]Answer[*_]*+ : ) [*_]*+ \s*+ (\S[^\n]*)
    | (?:The|(?:[Ss]o|Thus|Therefore|Hence),?[ ]the)[ ](?:final[ ]|correct[ ])?answer[ ]is:?[ \t]*(\S[^\n]*)
    | ^\#\#\#\#[ \t]*([-+$]?\d[\d,.]*)[ \t]*$""",
    re.MULTILINE | re.VERBOSE,
)


def stated_answer(text: str) -> str | None:
    """The last answer stated in plain text, or None. What stands in `\\boxed{}` goes before what a line states."""
    matches = _BOXED.findall(text) or [a or b or c for a, b, c in _LINE.findall(text)]
    return " ".join(matches[-1].split()).rstrip(".*_") if matches else None
