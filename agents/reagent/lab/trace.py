"""The lab's trace: each step's deed, result, need and verdict.

    [step 1] plan mother, boss; asks: mother of Kamon is Lamar; needs mother of Kamon good
    [step 2] asks: friend of Lamar is Gavin; needs boss of Lamar bad
    [step 3] answers Gavin; needs boss of Lamar bad

Every part follows from what stands shortly before it, so that a small model can write it. The deed comes before the need:
the other way round, a small model writes the need twice and never looks.
"""

from dataclasses import dataclass


@dataclass
class TraceLine:
    step: int
    needed: str
    """A search (`boss of Lamar`), or `answer Lamar` where nothing is missing."""
    good: bool
    query: str | None = None
    """None for an answer and for a call that cannot be read."""
    answer: str | None = None
    value: str | None = None
    failed: bool = False

    def text(self, path: tuple[str, ...]) -> str:
        """The line. `path`: the question's relations, which step 1 begins with."""
        plan = f"plan {', '.join(path)}; " if self.step == 1 else ""
        return f"[step {self.step}] {plan}{self.did}; needs {self.needed} {'good' if self.good else 'bad'}"

    @property
    def did(self) -> str:
        if self.answer is not None:
            return f"answers {self.answer}"
        result = " fails" if self.failed else f" is {self.value}" if self.value else ""
        return f"asks: {self.query or 'nothing'}{result}"


def trace_of(lines: list[TraceLine], path: tuple[str, ...]) -> str:
    return "\n".join(line.text(path) for line in lines)
