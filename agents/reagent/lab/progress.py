"""Progress of a run along its question's path."""

from dataclasses import dataclass, field

from reagent.lab.world import WorldQuestion


@dataclass
class Progress:
    question: WorldQuestion
    values: list[str] = field(default_factory=list)

    @property
    def subject(self) -> str:
        """The last value, or the question's start."""
        return self.values[-1] if self.values else self.question.start

    @property
    def relation(self) -> str | None:
        hop = len(self.values)
        return self.question.path[hop] if hop < len(self.question.path) else None

    @property
    def needed(self) -> str:
        """The next search (`boss of Lamar`), or `answer Lamar`."""
        return f"{self.relation} of {self.subject}" if self.relation else f"answer {self.subject}"
