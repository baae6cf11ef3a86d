"""The lab's trace: what each step of a run needed, what it did, what came of it, and whether that was good.

    [step 1] plan mother, boss; needs mother of Kamon; finds mother of Kamon is Lamar; good
    [step 2] needs boss of Lamar; finds friend of Lamar is Gavin; bad
    [step 3] needs boss of Lamar; answers Gavin; bad

Every part follows from what stands shortly before it, so that a small model can write it: the plan is the question's path
from its end, a need is the next of the plan for what was last found, a finding stands in the result as it stands here.
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
    again: bool = False
    """The same search found its fact before."""

    def text(self, path: tuple[str, ...]) -> str:
        """The line. `path`: the question's relations, which step 1 begins with."""
        plan = f"plan {', '.join(path)}; " if self.step == 1 else ""
        verdict = "good" if self.good else "bad"
        return f"[step {self.step}] {plan}needs {self.needed}; {self.did}; {verdict}"

    @property
    def did(self) -> str:
        """What was done and what came of it."""
        if self.answer is not None:
            return f"answers {self.answer}"
        if self.query is None:
            return "writes a broken call"
        if self.value is not None:
            return f"finds {self.query} is {self.value}" + (" again" if self.again else "")
        return f"asks {self.query}" + (": error" if self.failed else "")


def trace_of(lines: list[TraceLine], path: tuple[str, ...]) -> str:
    """The whole trace."""
    return "\n".join(line.text(path) for line in lines)
