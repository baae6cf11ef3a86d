"""How far a run has come along its question's path, and what it needs next."""

from dataclasses import dataclass, field

from reagent.lab.world import WorldQuestion


@dataclass
class Progress:
    """What was found of the path, hop by hop."""

    question: WorldQuestion
    found: list[str] = field(default_factory=list)

    @property
    def subject(self) -> str:
        """Who or what was found last; where the question starts before anything was."""
        return self.found[-1] if self.found else self.question.start

    @property
    def relation(self) -> str | None:
        """Relation of the next search; None where only the answer is missing."""
        hop = len(self.found)
        return self.question.path[hop] if hop < len(self.question.path) else None

    @property
    def needed(self) -> str:
        """The next search (`boss of Lamar`), or `answer Lamar`."""
        return f"{self.relation} of {self.subject}" if self.relation else f"answer {self.subject}"
