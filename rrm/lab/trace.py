"""The lab's trace: what each step of a run needed, what it did, whether that was good, and what came of it.

    [step 1] plan mother, boss; needs mother of Kamon; asks mother of Kamon good: Lamar
    [step 2] needs boss of Lamar; asks friend of Lamar bad: Gavin
    [step 3] needs boss of Lamar; answers Gavin bad

Every part follows from what stands shortly before it, so that a small model can write it: the plan is the question's path
from its end, a need is the next of the plan for what was last found, a verdict compares the two searches beside it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TraceLine:
    """One step."""

    step: int
    needed: str
    """A search (`boss of Lamar`), or `answer Lamar` where nothing is missing."""
    good: bool
    query: str | None = None
    """What was searched; None for an answer and for a call that cannot be read."""
    answer: str | None = None
    value: str | None = None
    """What the search found."""
    failed: bool = False

    def text(self, path: tuple[str, ...]) -> str:
        """The line. `path`: the question's relations, which step 1 begins with."""
        plan = f"plan {', '.join(path)}; " if self.step == 1 else ""
        return f"[step {self.step}] {plan}needs {self.needed}; {self.did}"

    @property
    def did(self) -> str:
        """What was done, its verdict, and what came of it."""
        verdict = "good" if self.good else "bad"
        if self.answer is not None:
            return f"answers {self.answer} {verdict}"
        if self.query is None:
            return f"asks nothing {verdict}: error"
        result = "error" if self.failed else self.value
        return f"asks {self.query} {verdict}" + (f": {result}" if result else "")


def trace_of(lines: list[TraceLine], path: tuple[str, ...]) -> str:
    """The whole trace."""
    return "\n".join(line.text(path) for line in lines)
