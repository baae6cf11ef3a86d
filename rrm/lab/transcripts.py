"""Scripted agents in lab worlds: transcripts that are clean or carry one planted fault, with labels by construction.

Every question lives in a world of its own (seed and question number name it), and has several attempts, so a split by
`question_id` shares no name. `meta` holds what the judge never sees: `reference, fault, fault_step, fault_kind_heldout,
recovered, hops, terse`.

The process score, on the grid 0.1:

    clean run, right answer                                             1.0
    right answer after a wasted step (repeated or malformed call)       0.8
    right answer after a corrected mistake (wrong search, misreading)   0.7
    wrong or no answer: 0.4 × share of the hops established, at most    0.3
    … and answered with a guess that nothing supports: 0.2 less, at least 0.0

A step's verdict is `bad` where the fault happens and where later steps build on it, `good` elsewhere: outcome and step
quality differ in recovered runs and in failing runs with good beginnings.

A trace (`rrm.lab.trace`) says of each step what was needed, given what had been found, and what the agent did: a judge
that writes it has both sides of its verdict before it. Half of the agents are terse, as the lab's policies are: a system
message that describes the tool, calls without a word, `Answer: …` at the end.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rrm.annotation import Annotation, Finding
from rrm.feedback import format_findings
from rrm.lab.score import failing_score
from rrm.lab.trace import TraceLine, trace_of
from rrm.lab.wordings import FINDING, QUESTION, SAY, TERSE_SYSTEM
from rrm.lab.world import (
    BAD_ARGUMENTS,
    RELATIONS,
    SEARCH_TOOL,
    TERSE_BAD_ARGUMENTS,
    TERSE_TOOL_ERROR,
    TOOL_ERROR,
    Question,
    World,
    make_question,
    make_world,
)
from rrm.seeds import derive_seed
from rrm.trajectory import Message, ToolCall, Trajectory

Split = Literal["train", "heldout"]
HOPS = (1, 2, 3, 4)
ATTEMPTS = 4
"""Attempts at each question."""
TOOL_ERROR_RATE = 0.1
CHECK_RATE = 0.15
CLEAN_RATE = 0.35
RECOVER_RATE = 0.45
TERSE_RATE = 0.5
SILENT_END_RATE = 0.5
"""How often a terse agent that repeats itself runs out of turns without an answer."""


@dataclass
class Run:
    """One attempt while it is played: what was said so far and what is to be said about it."""

    world: World
    question: Question
    rng: random.Random
    split: Split
    recover: bool
    terse: bool
    messages: list[Message] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    trace: list[TraceLine] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    """What was found of the question's path, hop by hop."""
    fault_step: int | None = None
    wrong_since: int | None = None
    """Step whose mistake the run still builds on."""
    read: str = ""
    """What the next message says it read in the last result."""
    next_bad: str | None = None
    """Finding of a fault that shows only in the next message (a misreading)."""
    next_good: tuple[str, str] | None = None
    """What the next search says, and its finding: a correction."""
    answer: str | None = None

    @property
    def step(self) -> int:
        """Number of the latest step."""
        return len(self.findings)

    @property
    def needed(self) -> str:
        """The next search of the question's path, or the answer, given what was found so far."""
        hop = len(self.found)
        if hop == len(self.question.path):
            return f"answer {self.found[-1]}"
        return f"{self.question.path[hop]} of {self.found[-1] if self.found else self.question.start}"

    @property
    def tool_error(self) -> str:
        """What a failing tool answers; terse agents' tools are those of `reagent`'s search environment."""
        return TERSE_TOOL_ERROR if self.terse else TOOL_ERROR

    def say(self, key: str, **parts: object) -> str:
        return "" if self.terse else self.rng.choice(SAY[key][self.split]).format(**parts)

    def finding(self, key: str, **parts: object) -> str:
        return self.rng.choice(FINDING[key]).format(**parts)

    def mark(self, good: bool, text: str) -> None:
        """Label the step that comes next."""
        if self.next_bad:
            text, good, self.next_bad = self.next_bad, False, None
        if not good and self.fault_step is None:
            self.fault_step = self.step + 1
        self.findings.append(Finding(step=self.step + 1, verdict="good" if good else "bad", text=text))
        self.trace.append(TraceLine(self.step, self.needed, good))

    def call(self, said: str, query: str, *, arguments: str | None = None, result: str | None = None) -> None:
        """One search call with its result. `arguments` overrides the JSON, `result` what the tool answers."""
        call_id = f"c{self.step}"
        content = f"{self.read} {said}".strip()
        self.read = ""
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
            if line.value is not None and query == self.needed:
                self.found.append(line.value)
        content = self.world.search(query) if result is None else result
        self.messages.append(Message(role="tool", content=content, tool_call_id=call_id, name="search"))

    def finish(self, said: str, answer: str) -> None:
        """The last message."""
        ending = f"Answer: {answer}" if self.terse else f"Final Answer: {answer}"
        self.messages.append(Message(role="assistant", content=" ".join(p for p in (self.read, said, ending) if p)))
        self.answer = self.trace[-1].answer = answer

    def read_value(self, subject: str, relation: str, value: str) -> str:
        """Let the next message begin with what was read."""
        self.read = self.say("read", rel=relation, a=subject, b=value)
        return value

    def look_up(self, hop: int, subject: str, *, said: str | None = None, finding: str | None = None) -> str:
        """A correct search for hop `hop` from `subject`, retried when the tool fails; returns the value it gives."""
        relation = self.question.path[hop]
        query = f"{relation} of {subject}"
        if self.next_good:
            (said, finding), self.next_good = self.next_good, None
        said = self.say("need", rel=relation, a=subject) if said is None else said
        if self.rng.random() < TOOL_ERROR_RATE:
            self._mark_hop(self.finding("tool_error"))
            self.call(said, query, result=self.tool_error)
            said, finding = self.say("retry"), finding or self.finding("retry")
        self._mark_hop(finding or self.finding("search"))
        self.call(said, query)
        value = self.world.value(subject, relation)
        assert value is not None, f"{subject} has no {relation}"
        return self.read_value(subject, relation, value)

    def _mark_hop(self, good_text: str) -> None:
        if self.wrong_since is None or self.next_bad:
            self.mark(True, good_text)
        else:
            self.mark(False, self.finding("follows", k=self.wrong_since))


# ---- faults: each plays hop `hop` from `subject` with one mistake, and returns the value it goes on with ---------------
# None: the run is over.


def other(run: Run, kind: str, *excluded: str) -> str:
    return run.rng.choice([e for e in run.world.entities[kind] if e not in excluded])


def _after_wrong_search(run: Run, hop: int, subject: str, relation: str, searched: str) -> str:
    """Correct a wrong search at once, or go on with what it gave."""
    relation_needed, wrong_step = run.question.path[hop], run.step
    if run.recover:
        said = run.say("sorry_search", rel=relation_needed, a=subject)
        return run.look_up(hop, subject, said=said, finding=run.finding("recover", k=wrong_step))
    run.wrong_since = wrong_step
    value = run.world.value(searched, relation)
    assert value is not None
    return run.read_value(subject, relation_needed, value)


def wrong_entity(run: Run, hop: int, subject: str) -> str:
    """Searches the right relation of a wrong entity."""
    relation = run.question.path[hop]
    wrong = other(run, RELATIONS[relation][0], subject, run.question.answer)
    run.mark(False, run.finding("wrong_entity", a=subject, c=wrong, rel=relation))
    run.call(run.say("need", rel=relation, a=subject), f"{relation} of {wrong}")
    return _after_wrong_search(run, hop, subject, relation, wrong)


def wrong_relation(run: Run, hop: int, subject: str) -> str:
    """Searches another relation of the right entity."""
    relation = run.question.path[hop]
    other = run.rng.choice([r for r, kinds in RELATIONS.items() if kinds == RELATIONS[relation] and r != relation])
    run.mark(False, run.finding("wrong_relation", a=subject, other=other, rel=relation))
    run.call(run.say("need", rel=other, a=subject), f"{other} of {subject}")
    return _after_wrong_search(run, hop, subject, other, subject)


def _repeat(run: Run, hop: int, subject: str, value: str, first: int) -> None:
    relation = run.question.path[hop]
    last = hop == len(run.question.path) - 1
    advice = "answer now" if last else f"search for {value}'s {run.question.path[hop + 1]}"
    run.mark(False, run.finding("repeated_call", k=first, next=advice))
    run.call(run.say("again", rel=relation, a=subject), f"{relation} of {subject}")


def repeated_call(run: Run, hop: int, subject: str) -> str | None:
    """Repeats a call whose result is already there: once, or until it stops without an answer."""
    value = run.look_up(hop, subject)
    run.read, first = "", run.step
    _repeat(run, hop, subject, value, first)
    if run.recover:
        return run.read_value(subject, run.question.path[hop], value)
    for _ in range(run.rng.randint(1, 2)):
        _repeat(run, hop, subject, value, first)
    if run.terse and run.rng.random() < SILENT_END_RATE:
        return None
    run.mark(False, "stops without an answer after repeating itself")
    run.finish(run.say("give_up"), "unknown")
    return None


def refused(run: Run, said: str, query: str, broken: str) -> None:
    """A call whose arguments are no JSON, as the tool sees it."""
    if run.terse:
        broken = f'{{"name": "search", "arguments": {broken}'
    run.call(said, query, arguments=broken, result=TERSE_BAD_ARGUMENTS if run.terse else BAD_ARGUMENTS)


def malformed(run: Run, hop: int, subject: str) -> str | None:
    """Writes arguments that are not JSON: corrected, or followed by giving up."""
    relation = run.question.path[hop]
    query = f"{relation} of {subject}"
    whole = json.dumps({"query": query})
    broken = run.rng.choice([whole[:-1], whole[:-2], whole.replace('"query"', "query"), query])
    text = run.finding("malformed", a=subject, rel=relation)
    run.mark(False, text)
    refused(run, run.say("need", rel=relation, a=subject), query, broken)
    wrong_step = run.step
    if run.recover:
        said = run.say("sorry_arguments")
        return run.look_up(hop, subject, said=said, finding=run.finding("recover", k=wrong_step))
    run.mark(False, run.finding("gave_up", a=subject, rel=relation))
    run.finish(run.say("give_up"), "unknown")
    return None


def _assume(run: Run, hop: int, subject: str, wrong: str, finding: str) -> None:
    """Go on with a wrong value; `finding` is of the step that first does. A recovering run searches once with it."""
    run.next_bad = finding
    run.read_value(subject, run.question.path[hop], wrong)
    run.wrong_since = run.step + 1
    if run.recover:
        run.look_up(hop + 1, wrong)
        run.read, run.wrong_since = "", None


def misread(run: Run, hop: int, subject: str) -> str:
    """Takes the object of another fact from the result; a recovering run reads it again."""
    relation = run.question.path[hop]
    value = run.look_up(hop, subject)
    facts = run.world.find(f"{relation} of {subject}")
    wrong = next(f.object for f in facts if f.relation == relation and f.subject != subject)
    if wrong == value:
        wrong = other(run, RELATIONS[relation][1], value, subject)
    first = run.step
    _assume(run, hop, subject, wrong, run.finding("misread", k=first, rel=relation, a=subject))
    if not run.recover:
        return wrong
    run.next_good = run.say("sorry_read", rel=relation, a=subject), run.finding("recover", k=first + 1)
    return value


def ignored_error(run: Run, hop: int, subject: str) -> str:
    """Goes on with a made-up value after the tool failed; a recovering run searches again."""
    relation = run.question.path[hop]
    run.mark(True, run.finding("tool_error"))
    run.call(run.say("need", rel=relation, a=subject), f"{relation} of {subject}", result=run.tool_error)
    wrong = other(run, RELATIONS[relation][1], run.question.values[hop], subject)
    first = run.step
    _assume(run, hop, subject, wrong, run.finding("ignored_error", k=first))
    if not run.recover:
        return wrong
    said = run.say("sorry_read", rel=relation, a=subject)
    return run.look_up(hop, subject, said=said, finding=run.finding("recover", k=first + 1))


def unsupported(run: Run, hop: int, subject: str) -> None:
    """Answers with a guess instead of searching on."""
    relation = run.question.path[hop]
    guess = other(run, RELATIONS[run.question.path[-1]][1], run.question.answer, subject)
    run.mark(False, run.finding("unsupported", a=subject, rel=relation))
    run.finish(run.say("guess"), guess)


def gave_up(run: Run, hop: int, subject: str) -> None:
    """Gives up although the next search was open."""
    relation = run.question.path[hop]
    run.mark(False, run.finding("gave_up", a=subject, rel=relation))
    run.finish(run.say("give_up"), "unknown")


def stops_early(run: Run, hop: int, subject: str) -> None:
    """Answers with the value of the hop before the last."""
    relation = run.question.path[hop]
    run.mark(False, run.finding("stops_early", a=subject, rel=relation))
    run.finish(run.say("done"), subject)


Fault = Callable[[Run, int, str], str | None]
TRAIN_FAULTS: tuple[Fault, ...] = (
    wrong_entity,
    repeated_call,
    misread,
    malformed,
    unsupported,
    gave_up,
    wrong_relation,
)
HELDOUT_FAULTS: tuple[Fault, ...] = (stops_early, ignored_error)
"""Never in training data: a judge that finds these has learned more than the list above."""
_WASTE = frozenset({"repeated_call", "malformed"})


def process_score(run: Run, fault: str | None) -> float:
    """The score of the module's docstring."""
    if run.answer == run.question.answer:
        return 1.0 if fault is None else 0.8 if fault in _WASTE else 0.7
    return failing_score(len(run.found), len(run.question.path), run.answer, run.messages)


def _fault_hop(fault: Fault, hops: int, recover: bool, rng: random.Random) -> int:
    """At which hop a fault can happen: the last for `stops_early`, not the last where it needs a later hop to show."""
    if fault is stops_early:
        return hops - 1
    if recover and fault in (misread, ignored_error):
        return rng.randrange(hops - 1)
    return rng.randrange(hops)


def _play(run: Run, fault: Fault | None, at: int) -> None:
    value: str | None = run.question.start
    for hop in range(len(run.question.path)):
        value = fault(run, hop, value) if fault and hop == at else run.look_up(hop, value)
        if value is None:
            return
    if run.rng.random() < CHECK_RATE and not run.next_bad:
        said = run.say("check", b=value)
        run._mark_hop(run.finding("check"))
        run.call(said, value)
    run._mark_hop(run.finding("answer"))
    run.finish("" if run.read else run.say("done"), value)


def _draw_fault(split: Split, hops: int, rng: random.Random) -> tuple[Fault | None, bool]:
    """A fault, or None for a clean run, and whether the run recovers from it."""
    if rng.random() < CLEAN_RATE:
        return None, False
    pool = TRAIN_FAULTS if split == "train" or rng.random() < 0.5 else HELDOUT_FAULTS
    fault = rng.choice([f for f in pool if f is not stops_early or hops > 1])
    can_recover = fault not in (unsupported, gave_up, stops_early) and (
        hops > 1 or fault not in (misread, ignored_error)
    )
    return fault, can_recover and rng.random() < RECOVER_RATE


def _attempt(world: World, question: Question, split: Split, rng: random.Random) -> tuple[Run, Fault | None]:
    """Play one attempt; one whose mistake ends in the right answer by accident is drawn again."""
    hops = len(question.path)
    while True:
        fault, recover = _draw_fault(split, hops, rng)
        run = Run(world, question, rng, split, recover, rng.random() < TERSE_RATE)
        _play(run, fault, _fault_hop(fault, hops, recover, rng) if fault else 0)
        if (run.answer == question.answer) == (fault is None or recover):
            return run, fault


def question_of(question_id: str, hops: Sequence[int] = HOPS) -> tuple[World, Question, random.Random]:
    """World and question of an id, and the generator that plays the attempts at it. `hops` as in `make_transcripts`."""
    rng = random.Random(derive_seed("lab", question_id, *hops))
    world = make_world(rng.getrandbits(63))
    return world, make_question(world, rng.choice(list(hops)), rng), rng


def make_transcripts(
    n: int, *, seed: int, split: Split = "train", hops: Sequence[int] = HOPS
) -> list[tuple[Trajectory, Annotation]]:
    """`n` labelled transcripts, `ATTEMPTS` to a question.

    Args:
        n: how many.
        seed: names the worlds; different seeds share no world, and a longer list begins with the shorter one.
        split: `train`, or `heldout` for wordings, and in half of the faulty runs fault kinds, that `train` never has.
        hops: hop counts to draw from.
    """
    rows: list[tuple[Trajectory, Annotation]] = []
    for number in range(-(-n // ATTEMPTS)):
        question_id = f"lab-{split}-{seed}-{number}"
        world, question, rng = question_of(question_id, hops)
        task = rng.choice(QUESTION[split]).format(phrase=question.phrase)
        for attempt in range(ATTEMPTS):
            run, fault = _attempt(world, question, split, rng)
            rows.append(_row(run, fault, task, question_id, attempt))
    return rows[:n]


def trajectory_of(run: Run, task: str, name: str, question_id: str) -> Trajectory:
    """A played run as a transcript."""
    system = [Message(role="system", content=TERSE_SYSTEM)] if run.terse else []
    return Trajectory(
        id=name,
        task=task,
        question_id=question_id,
        messages=[*system, Message(role="user", content=task), *run.messages],
        tools=[SEARCH_TOOL],
        outcome=float(run.answer == run.question.answer),
        meta={"reference": run.question.answer, "hops": len(run.question.path), "terse": run.terse},
    )


def _row(run: Run, fault: Fault | None, task: str, question_id: str, attempt: int) -> tuple[Trajectory, Annotation]:
    name = getattr(fault, "__name__", None)
    trajectory = trajectory_of(run, task, f"{question_id}-{attempt}", question_id)
    trajectory.meta.update(
        fault=name,
        fault_step=run.fault_step,
        fault_kind_heldout=fault in HELDOUT_FAULTS,
        recovered=fault is not None and trajectory.outcome == 1.0,
    )
    annotation = Annotation(
        trajectory_id=trajectory.id,
        score=process_score(run, name),
        trace=trace_of(run.trace, run.question.path),
        critique=format_findings(run.findings),
        findings=run.findings,
        annotator="lab",
        kind="rules",
    )
    return trajectory, annotation
