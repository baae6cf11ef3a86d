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

    def step(self, number: int, message: Message, result: str) -> tuple[bool, str, str]:
        """(good, finding, trace) of one step, whose first call is taken for all."""
        needed, relation, subject = self.needed, self.relation or "answer", self.subject
        parts = {"a": subject, "rel": relation}
        good, key, did, more = self._read(number, message, result)
        trace = f"[step {number}] needs {needed}; {did}"
        if good:
            self.wrong_step = None
        elif key in ("wrong_entity", "wrong_relation", "unsupported") and self.wrong_step is not None:
            key, more = "follows", {"k": self.wrong_step}
        elif self.wrong_step is None:
            self.wrong_step = number
        self.wasted |= key in WASTE
        self.misled |= not good and key not in WASTE
        if key == "unsupported" and relation == "answer":
            return good, "answers something else than was found; read the last result again", trace
        return good, self.rng.choice(FINDING[key]).format(**parts | more), trace

    def _read(self, number: int, message: Message, result: str) -> tuple[bool, str, str, dict[str, object]]:
        """(good, key of the finding, what was done, further parts of the finding)."""
        needed = self.needed
        if not message.tool_calls:
            stated = _ANSWER.search(message.text())
            self.answer = stated.group(1).strip().rstrip(".") if stated else None
            did = f"answers {self.answer or 'unknown'}"
            if needed == f"answer {self.answer}":
                return True, "answer", did, {}
            if self.answer in (None, "unknown"):
                return False, "gave_up", did, {}
            early = self.relation is not None and self.answer == self.subject
            return False, "stops_early" if early else "unsupported", did, {}
        arguments = message.tool_calls[0].arguments
        query = arguments.get("query") if isinstance(arguments, dict) else None
        if not isinstance(query, str):
            return False, "malformed", "writes a broken call; gets an error", {}
        before = self.asked.get(query)
        did = f"asks {query}" + (" again" if before else "")
        if result.startswith("Error"):
            return (
                query == needed,
                "tool_error" if query == needed else "wrong_relation",
                f"{did}; gets an error",
                {"other": query},
            )
        relation, _, asked = query.partition(" of ")
        value = self.world.value(asked, relation)
        if value is not None:
            self.asked.setdefault(query, number)
            did += f"; gets {value}"
        if query == needed and value is not None:
            self.found.append(value)
            return True, "search", did, {}
        if self.relation is None and query == self.subject:
            return True, "check", did, {}
        if before:
            advice = "answer now" if self.relation is None else f"search for {self.subject}'s {self.relation}"
            return False, "repeated_call", did, {"k": before, "next": advice}
        if self.relation is None:
            return False, "needless", did, {}
        if asked == self.subject:
            return False, "wrong_relation", did, {"other": relation}
        return False, "wrong_entity", did, {"c": asked or query}


def label(trajectory: Trajectory, world: World, question: Question) -> Annotation:
    """Findings, trace and process score of a run, as `rrm.lab.transcripts` would have labelled it.

    Args:
        trajectory: its steps call `search` with a `query`, or end in `Answer: …`.
        world, question: those the run was played on. The wording of findings is drawn by the run's id.
    """
    replay = _Replay(world, question, random.Random(derive_seed("label", trajectory.id)))
    findings: list[Finding] = []
    trace: list[str] = []
    for step in trajectory.steps:
        result = step.observations[0].text() if step.observations else ""
        good, text, line = replay.step(step.index, step.message, result)
        findings.append(Finding(step=step.index, verdict="good" if good else "bad", text=text))
        trace.append(line)
    if replay.answer == question.answer:
        score = 0.7 if replay.misled else 0.8 if replay.wasted else 1.0
    else:
        score = failing_score(len(replay.found), len(question.path), replay.answer, trajectory.messages)
    return Annotation(
        trajectory_id=trajectory.id,
        score=score,
        trace="\n".join(trace),
        critique=format_findings(findings),
        findings=findings,
        annotator="lab",
        kind="rules",
    )
