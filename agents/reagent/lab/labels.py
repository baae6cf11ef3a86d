"""Label any agent's run in a lab world by replaying it: the needed deed at each step, and the agent's.

Labels follow the rule of the scripted transcripts (`reagent.lab.transcripts`)."""

import random
import re

from reagent.lab.progress import Progress
from reagent.lab.score import process_score
from reagent.lab.trace import TraceLine, trace_of
from reagent.lab.wordings import FINDING
from reagent.lab.world import World, WorldQuestion
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import format_findings
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Message, Trajectory

_ANSWER = re.compile(r"Answer: *+(\S.{0,400}+)$")


class _Replay:
    def __init__(self, world: World, question: WorldQuestion, rng: random.Random) -> None:
        self.world, self.rng, self.progress = world, rng, Progress(question)
        self.asked: dict[str, int] = {}
        """Queries that brought a fact, and the step that first made each."""
        self.wrong_step: int | None = None
        self.answer: str | None = None
        self.faults: set[str] = set()

    def step(self, number: int, message: Message, result: str) -> tuple[str, TraceLine]:
        """(finding, trace) of one step, by its first call."""
        relation, subject = self.progress.relation or "answer", self.progress.subject
        line = TraceLine(number, self.progress.needed, good=False)
        key, more = self._read(line, message, result)
        if line.good:
            self.wrong_step = None
        elif key in ("wrong_entity", "wrong_relation", "unsupported") and self.wrong_step is not None:
            key, more = "follows", {"k": self.wrong_step}
        elif self.wrong_step is None:
            self.wrong_step = number
        if not line.good:
            self.faults.add(key)
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
            early = self.progress.relation is not None and self.answer == self.progress.subject
            return "stops_early" if early else "unsupported", {}
        arguments = message.tool_calls[0].arguments
        query = arguments.get("query") if isinstance(arguments, dict) else None
        if not isinstance(query, str):
            line.failed = True
            return "malformed", {}
        line.query, before = query, self.asked.get(query)
        line.good = query == line.needed
        relation, _, entity = query.partition(" of ")
        line.failed = result.startswith("Error")
        if not line.failed:
            line.value = self.world.value(entity, relation)
        elif line.good:
            return "tool_error", {}
        if line.value is not None:
            self.asked.setdefault(query, line.step)
            if line.good:
                self.progress.values.append(line.value)
                return "search", {}
        if self.progress.relation is None and query == self.progress.subject:
            line.good = True
            return "check", {}
        if before:
            further = f"search for {self.progress.subject}'s {self.progress.relation}"
            return "repeated_call", {"k": before, "next": further if self.progress.relation else "answer now"}
        if self.progress.relation is None:
            return "needless", {}
        if entity == self.progress.subject:
            return "wrong_relation", {"other": relation}
        return "wrong_entity", {"c": entity or query}


def label(trajectory: Trajectory, world: World, question: WorldQuestion) -> Annotation:
    """Findings, trace and process score of a run; its id draws their wording.

    `trajectory`: its steps call `search` with a `query`, or end in `Answer: …`. `world`, `question`: those of the run."""
    replay = _Replay(world, question, random.Random(derive_seed("label", trajectory.id)))
    findings: list[Finding] = []
    trace: list[TraceLine] = []
    for step in trajectory.steps:
        result = step.observations[0].text() if step.observations else ""
        text, line = replay.step(step.index, step.message, result)
        findings.append(Finding(step=step.index, verdict="good" if line.good else "bad", text=text))
        trace.append(line)
    return Annotation(
        trajectory_id=trajectory.id,
        score=process_score(replay.progress, replay.answer, replay.faults, trajectory.messages),
        trace=trace_of(trace, question.path),
        critique=format_findings(findings),
        findings=findings,
        annotator="lab",
        kind="rules",
    )
