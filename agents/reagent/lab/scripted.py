"""A scripted agent's run while it is played: its messages and each step's label.

Half of the agents are terse, as the lab's policies are: a system message that describes the tool, calls without a word,
`Answer: …` at the end."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from reagent.lab.progress import Progress
from reagent.lab.trace import TraceLine
from reagent.lab.wordings import FINDING, SAY, TERSE_SYSTEM
from reagent.lab.world import (
    BAD_ARGUMENTS,
    SEARCH_TOOL,
    TERSE_BAD_ARGUMENTS,
    TERSE_TOOL_ERROR,
    TOOL_ERROR,
    World,
    WorldQuestion,
    make_question,
    make_world,
)
from rrm.data.annotation import Finding
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Message, ToolCall, Trajectory

Split = Literal["few", "train", "heldout"]
"""Wordings, and kinds of fault: `few` is `train` with fewer wordings."""
HOPS = (1, 2, 3, 4)
ATTEMPTS = 4
TOOL_ERROR_RATE = 0.1
TERSE_RATE = 0.5


def question_of(question_id: str, hops: Sequence[int] = HOPS) -> tuple[World, WorldQuestion, random.Random]:
    """World and question of an id, and the generator that plays the attempts at it."""
    rng = random.Random(derive_seed("lab", question_id, *hops))
    world = make_world(rng.getrandbits(63))
    return world, make_question(world, rng.choice(list(hops)), rng), rng


@dataclass
class ScriptedRun:
    world: World
    question: WorldQuestion
    rng: random.Random
    split: Split
    recover: bool
    terse: bool
    messages: list[Message] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    trace: list[TraceLine] = field(default_factory=list)
    fault_step: int | None = None
    wrong_since: int | None = None
    """Step whose mistake the run still builds on."""
    reading: str = ""
    next_bad: str | None = None
    """Finding of a fault that shows only in the next message (a misreading)."""
    next_good: tuple[str, str] | None = None
    """Text of the next search, and its finding: a correction."""
    answer: str | None = None
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = Progress(self.question)

    @property
    def step(self) -> int:
        return len(self.findings)

    @property
    def tool_error(self) -> str:
        return TERSE_TOOL_ERROR if self.terse else TOOL_ERROR

    def say(self, key: str, **parts: object) -> str:
        return "" if self.terse else self.rng.choice(SAY[key][self.split]).format(**parts)

    def finding(self, key: str, **parts: object) -> str:
        return self.rng.choice(FINDING[key]).format(**parts)

    def mark(self, good: bool, text: str) -> None:
        if self.next_bad:
            text, good, self.next_bad = self.next_bad, False, None
        if not good and self.fault_step is None:
            self.fault_step = self.step + 1
        self.findings.append(Finding(step=self.step + 1, verdict="good" if good else "bad", text=text))
        self.trace.append(TraceLine(self.step, self.progress.needed, good))

    def call(self, phrase: str, query: str, *, arguments: str | None = None, result: str | None = None) -> None:
        """One search call with its result. `arguments` overrides the JSON, `result` the tool's answer."""
        call_id = f"c{self.step}"
        content = f"{self.reading} {phrase}".strip()
        self.reading = ""
        parsed = {"query": query} if arguments is None else arguments
        self.messages.append(
            Message(
                role="assistant", content=content, tool_calls=[ToolCall(name="search", arguments=parsed, id=call_id)]
            )
        )
        line, (relation, _, subject) = self.trace[-1], query.partition(" of ")
        line.query, line.failed = query if arguments is None else None, result is not None
        if result is None:
            line.value = self.world.value(subject, relation)
            if line.value is not None and query == self.progress.needed:
                self.progress.values.append(line.value)
        content = self.world.search(query) if result is None else result
        self.messages.append(Message(role="tool", content=content, tool_call_id=call_id, name="search"))

    def finish(self, phrase: str, answer: str) -> None:
        ending = f"Answer: {answer}" if self.terse else f"Final Answer: {answer}"
        self.messages.append(
            Message(role="assistant", content=" ".join(p for p in (self.reading, phrase, ending) if p))
        )
        self.answer = self.trace[-1].answer = answer

    def read_value(self, subject: str, relation: str, value: str) -> str:
        self.reading = self.say("read", rel=relation, a=subject, b=value)
        return value

    def look_up(self, hop: int, subject: str, *, phrase: str | None = None, finding: str | None = None) -> str:
        """A correct search for hop `hop` from `subject`, retried when the tool fails; returns its value."""
        relation = self.question.path[hop]
        query = f"{relation} of {subject}"
        if self.next_good:
            (phrase, finding), self.next_good = self.next_good, None
        phrase = self.say("need", rel=relation, a=subject) if phrase is None else phrase
        if self.rng.random() < TOOL_ERROR_RATE:
            self.mark_hop(self.finding("tool_error"))
            self.call(phrase, query, result=self.tool_error)
            phrase, finding = self.say("retry"), finding or self.finding("retry")
        self.mark_hop(finding or self.finding("search"))
        self.call(phrase, query)
        value = self.world.value(subject, relation)
        assert value is not None, f"{subject} has no {relation}"
        return self.read_value(subject, relation, value)

    def mark_hop(self, good_text: str) -> None:
        if self.wrong_since is None or self.next_bad:
            self.mark(True, good_text)
        else:
            self.mark(False, self.finding("follows", k=self.wrong_since))

    def other(self, entity_type: str, *excluded: str) -> str:
        return self.rng.choice([e for e in self.world.entities[entity_type] if e not in excluded])

    def refused(self, phrase: str, query: str, broken: str) -> None:
        if self.terse:
            broken = f'{{"name": "search", "arguments": {broken}'
        self.call(phrase, query, arguments=broken, result=TERSE_BAD_ARGUMENTS if self.terse else BAD_ARGUMENTS)

    def trajectory(self, task: str, question_id: str, attempt: int) -> Trajectory:
        system = [Message(role="system", content=TERSE_SYSTEM)] if self.terse else []
        return Trajectory(
            id=f"{question_id}-{attempt}",
            task=task,
            question_id=question_id,
            messages=[*system, Message(role="user", content=task), *self.messages],
            tools=[SEARCH_TOOL],
            outcome=float(self.answer == self.question.answer),
            meta={"reference": self.question.answer, "hops": len(self.question.path), "terse": self.terse},
        )
