"""Labels of any agent's run in a lab world, by replaying it: what was needed at each step, and what the agent did.

The scripted transcripts of `rrm.lab.transcripts` carry labels by construction. A trained policy's own runs do not; with
its world and question at hand they are labelled by the same rule, so that a judge can be measured, and trained, on them.
"""

from __future__ import annotations

import random
import re

from rrm.annotation import Annotation, Finding
from rrm.feedback import format_findings
from rrm.lab.score import failing_score
from rrm.lab.trace import TraceLine, trace_of
from rrm.lab.wordings import FINDING
from rrm.lab.world import Question, World
from rrm.seeds import derive_seed
from rrm.trajectory import Message, Trajectory

WASTE = ("repeated_call", "malformed", "needless")
_ANSWER = re.compile(r"Answer: *(\S.*)$")


class _Replay:
    """What was found and asked so far."""

    def __init__(self, world: World, question: Question, rng: random.Random) -> None:
        self.world, self.question, self.rng = world, question, rng
        self.found: list[str] = []
        self.asked: dict[str, int] = {}
        """Queries that brought a fact, and the step that first made each."""
        self.wrong_step: int | None = None
        self.answer: str | None = None
        self.wasted = self.misled = False

    @property
    def subject(self) -> str:
        return self.found[-1] if self.found else self.question.start

    @property
    def relation(self) -> str | None:
        """Relation of the next search; None where only the answer is missing."""
        hop = len(self.found)
        return self.question.path[hop] if hop < len(self.question.path) else None

    @property
    def needed(self) -> str:
        return f"{self.relation} of {self.subject}" if self.relation else f"answer {self.subject}"

    def step(self, number: int, message: Message, result: str) -> tuple[str, TraceLine]:
        """(finding, trace) of one step, whose first call is taken for all."""
        relation, subject = self.relation or "answer", self.subject
        line = TraceLine(number, self.needed, good=False)
        key, more = self._read(line, message, result)
        if line.good:
            self.wrong_step = None
        elif key in ("wrong_entity", "wrong_relation", "unsupported") and self.wrong_step is not None:
            key, more = "follows", {"k": self.wrong_step}
        elif self.wrong_step is None:
            self.wrong_step = number
        self.wasted |= key in WASTE
        self.misled |= not line.good and key not in WASTE
        if key == "unsupported" and relation == "answer":
            return "answers something else than was found; read the last result again", line
        return self.rng.choice(FINDING[key]).format(**{"a": subject, "rel": relation} | more), line

    def _read(self, line: TraceLine, message: Message, result: str) -> tuple[str, dict[str, object]]:
        """(key of the finding, its further parts); fills in the line."""
        if not message.tool_calls:
            stated = _ANSWER.search(message.text())
            self.answer = stated.group(1).strip().rstrip(".") if stated else None
            line.answer = self.answer or "unknown"
            line.good = line.needed == f"answer {self.answer}"
            if line.good:
                return "answer", {}
            if line.answer == "unknown":
                return "gave_up", {}
            early = self.relation is not None and self.answer == self.subject
            return "stops_early" if early else "unsupported", {}
        arguments = message.tool_calls[0].arguments
        query = arguments.get("query") if isinstance(arguments, dict) else None
        if not isinstance(query, str):
            line.failed = True
            return "malformed", {}
        line.query, before = query, self.asked.get(query)
        line.good = query == line.needed
        relation, _, asked = query.partition(" of ")
        line.failed = result.startswith("Error")
        if not line.failed:
            line.value = self.world.value(asked, relation)
        elif line.good:
            return "tool_error", {}
        if line.value is not None:
            self.asked.setdefault(query, line.step)
            if line.good:
                self.found.append(line.value)
                return "search", {}
        if self.relation is None and query == self.subject:
            line.good = True
            return "check", {}
        if before:
            advice = "answer now" if self.relation is None else f"search for {self.subject}'s {self.relation}"
            return "repeated_call", {"k": before, "next": advice}
        if self.relation is None:
            return "needless", {}
        if asked == self.subject:
            return "wrong_relation", {"other": relation}
        return "wrong_entity", {"c": asked or query}


def label(trajectory: Trajectory, world: World, question: Question) -> Annotation:
    """Findings, trace and process score of a run, as `rrm.lab.transcripts` would have labelled it.

    Args:
        trajectory: its steps call `search` with a `query`, or end in `Answer: …`.
        world, question: those the run was played on. The wording of findings is drawn by the run's id.
    """
    replay = _Replay(world, question, random.Random(derive_seed("label", trajectory.id)))
    findings: list[Finding] = []
    trace: list[TraceLine] = []
    for step in trajectory.steps:
        result = step.observations[0].text() if step.observations else ""
        text, line = replay.step(step.index, step.message, result)
        findings.append(Finding(step=step.index, verdict="good" if line.good else "bad", text=text))
        trace.append(line)
    if replay.answer == question.answer:
        score = 0.7 if replay.misled else 0.8 if replay.wasted else 1.0
    else:
        score = failing_score(len(replay.found), len(question.path), replay.answer, trajectory.messages)
    return Annotation(
        trajectory_id=trajectory.id,
        score=score,
        trace=trace_of(trace, question.path),
        critique=format_findings(findings),
        findings=findings,
        annotator="lab",
        kind="rules",
    )
