"""Ask a chat model the questions of criteria, about transcripts of any length.

Transcripts are rendered, disarmed and read in windows as in prompt version 2 (`rrm.prompt.windows`), except that the agent's
system prompt moves into our system message where the criteria allow it, else it is left out. Earlier readings write notes on
their steps; the last one gets these notes (an eighth of the window: bad steps first, then the latest) and answers all.

The first request, sent alone, shows whether the server enforces a JSON schema. If it is refused, or answered without a JSON
object, it and all later ones ask for tags. A single text refused with the schema is asked again without it, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from rrm.data.annotation import Finding
from rrm.data.feedback import Mode
from rrm.data.text import references
from rrm.data.trajectory import Trajectory
from rrm.data.usage import total_of
from rrm.engines.base import Reply, Request, SamplingParams
from rrm.errors import ConfigError, EngineError
from rrm.judge.answers import is_object, read_answers, read_notes
from rrm.judge.backends import ServerBackend, with_pictures
from rrm.judge.chat import Judgement, Repair, complete_all, read_reply, repair_notice
from rrm.judge.windowed import Ended, JudgeState, Take, WindowRequest, hear_in_rounds
from rrm.prompt.criteria import TAG, Criteria, answer_schema, beside_text, notes_text, system_text
from rrm.prompt.neutralise import neutralise, neutralise_special
from rrm.prompt.windows import Planner, WindowPlan

POLICY, REFERENCE = 0.25, 0.125  # most of a window for policy and reference, which lose their middle
NOTES = 0.125  # share of a window for notes of earlier readings
FREE = 300  # tokens of a system message that fit beside the budget (`rrm.judge.serving.RUBRIC`)
LEAST = 0.25  # share of a window that must be left for the transcript
UNFINISHED = "\n\nThe run goes on after the last step that you see: that the task is not done yet is no fault."
_NOTE_LINES = "Your notes on steps that you read before:\n"
_BLOCK = re.compile(rf"<(?=\s*+/?+\s*+{TAG}\b)", re.IGNORECASE)
_INSTRUCTORS = ("system", "developer")


@dataclass(frozen=True)
class ExtraContext:
    text: str
    saw_reference: bool
    cut: bool  # the policy or the reference was shortened


@dataclass(frozen=True)
class CriteriaBackend(ServerBackend):
    criteria: Criteria = field(kw_only=True)

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        # raises ConfigError if the questions leave too little room for a transcript
        bare = without_instructions(trajectory)
        longest = system_text(self.criteria, "full", structured=False, beside=self.beside(trajectory).text)
        taken = max(len(self.planner.encode(longest)) - FREE * self.planner.scale, 0)
        room = self.planner.budget - taken
        if room < LEAST * self.planner.budget:
            raise ConfigError(
                f"the criteria {self.criteria.name} take {taken // self.planner.scale} tokens of a window of "
                f"{self.planner.budget // self.planner.scale}: ask less, or raise --transcript-tokens (and the server's context)"
            )
        plan = self._planner(room).plan(bare, slots=False)
        if len(plan) > 1:
            plan = self._planner(room - int(self.planner.budget * NOTES)).plan(bare, slots=False)
        return plan, "critique"

    def beside(self, trajectory: Trajectory) -> ExtraContext:
        """Return a transcript's policy and reference answer, as far as the criteria allow them."""
        policy = policy_of(trajectory) if self.criteria.see_policy else None
        reference = "\n".join(references(trajectory.meta.get("reference"))) if self.criteria.see_reference else ""
        cut, texts = 0, []
        for text, share in ((policy, POLICY), (reference or None, REFERENCE)):
            if text is None:
                texts.append(None)
                continue
            clean = self.planner.clean(_disarmed(text.strip()))
            short, lost = self.planner.shortened(clean, int(self.planner.budget * share))
            texts.append(short.replace("<<<", "(((").replace(">>>", ")))"))
            cut += lost
        return ExtraContext(beside_text(*texts), bool(reference), cut > 0)

    def messages(self, ask: WindowRequest, *, structured: bool = False) -> list[dict[str, str]]:
        beside = self.beside(ask.chain.trajectory).text
        if ask.last:
            system = system_text(self.criteria, ask.mode, structured=structured, beside=beside)
        else:
            system = notes_text(self.criteria, beside)
        system += UNFINISHED if self.unfinished else ""
        content = self._notes(ask) + ask.chain.plan.reading(ask.number, ask.marks).text
        content = self.planner.clean(neutralise_special(_without_blocks(content)))
        messages = [{"role": "system", "content": system}, {"role": "user", "content": content}]
        return with_pictures(ask, messages if self.reader is None else self.reader.as_taken(messages))

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
        hear_in_rounds(self.ask, chains, params, ended)

    def ask(self, asks: Sequence[WindowRequest], params: SamplingParams, take: Take) -> None:
        self._in_tags([ask for ask in asks if not ask.last], params, take)
        waiting = [ask for ask in asks if ask.last]
        if self._takes_schema is None:
            self._in_tags(self._in_schema(waiting[:1], params, take), params, take)
            waiting = waiting[1:]
        if self._takes_schema is not False:
            waiting = self._in_schema(waiting, params, take)
        self._in_tags(waiting, params, take)

    # ---- inside ----

    def _planner(self, room: int) -> Planner:
        own = self.planner
        return Planner(own.tokenizer, room, own.clean, max_windows=own.max_windows)

    def _notes(self, ask: WindowRequest) -> str:
        """Return earlier notes within their room, in the steps' order; bad and then late steps come first."""
        chain, lines = ask.chain, dict[tuple[int, int], str]()
        room = int(self.planner.budget * NOTES) - len(self.planner.encode(_NOTE_LINES))

        def latest(steps: Iterable[int]) -> Iterator[tuple[int, int]]:
            # (step, number) of the last findings; more than `room` steps cannot fit
            for k in sorted(steps, reverse=True)[: max(room, 0)]:
                yield from ((k, i) for i in reversed(range(len(chain.findings[k]))))

        bad = [(k, i) for k, i in latest(chain.bad) if chain.findings[k][i].verdict == "bad"]
        for k, i in (*bad, *latest(chain.findings)):
            line = _note(chain.findings[k][i])
            size = len(self.planner.encode(line))
            if (k, i) not in lines and size <= room:
                lines[k, i], room = line, room - size
        return _NOTE_LINES + "".join(lines[i] for i in sorted(lines)) + "\n" if lines else ""

    def _in_schema(self, asks: Sequence[WindowRequest], params: SamplingParams, take: Take) -> list[WindowRequest]:
        """Ask with a JSON schema; returns the requests to repeat in tags."""
        again: list[WindowRequest] = []

        def ask_again(ask: WindowRequest, reply: Reply | EngineError) -> None:
            ask.chain.usage = total_of((ask.chain.usage, reply.usage))  # this was paid, too
            again.append(ask)

        def judge(ask: WindowRequest, reply: Reply | EngineError) -> None:
            if isinstance(reply, EngineError) and reply.kind == "schema":
                ask_again(ask, reply)
                return
            if isinstance(reply, Reply) and self._takes_schema is None and reply.text.strip():
                if is_object(reply):
                    self._remember(True)
                elif reply.stop_reason != "length":
                    self._remember(False)
                    ask_again(ask, reply)
                    return
            take(ask, self._read(ask, reply, structured=True))

        self._send(asks, params, True, judge)
        return again

    def _in_tags(self, asks: Sequence[WindowRequest], params: SamplingParams, take: Take) -> None:
        def judge(ask: WindowRequest, reply: Reply | EngineError) -> None:
            if isinstance(reply, Reply) and ask.last and self._takes_schema is None:
                self._remember(False)  # refused with a schema, and answered without
            take(ask, self._read(ask, reply, structured=False))

        self._send(asks, params, False, judge)

    @property
    def _takes_schema(self) -> bool | None:
        # whether the engine enforces a schema; None: not yet known
        return getattr(self.engine, "takes_schema", False)

    def _remember(self, takes: bool) -> None:
        engine: Any = self.engine
        engine.takes_schema = takes

    def _send(
        self,
        asks: Sequence[WindowRequest],
        params: SamplingParams,
        structured: bool,
        judge: Callable[[WindowRequest, Reply | EngineError], None],
    ) -> None:
        if not asks:
            return
        schema = answer_schema(self.criteria, asks[0].mode) if structured else None
        rows = [self.messages(ask, structured=structured) for ask in asks]
        sent = replace(params, json_schema=schema)
        keys, begins = [ask.key for ask in asks], [ask.number == 0 and ask.chain.sample == 0 for ask in asks]

        def problem(request: Request, reply: Reply) -> str | None:
            ask = asks[request.about]
            if structured and self._takes_schema is None and not is_object(reply):
                return None  # it holds no reply to a schema: the question is asked in tags
            judgement = self._read(ask, reply, structured=structured)
            unread = judgement.status == "unparsable" and len(judgement.criteria or ()) < len(self.criteria.questions)
            return judgement.reason if ask.last and unread else None

        repair = Repair(problem, "Answer every question again, all in the form that was asked for and nothing else.")
        complete_all(self.engine, rows, sent, keys, begins, lambda i, reply: judge(asks[i], reply), repair)

    def _read(self, ask: WindowRequest, reply: Reply | EngineError, *, structured: bool) -> Judgement:
        """Parse a reply; the last reading's also records how it was asked."""
        if isinstance(reply, EngineError):
            return read_reply(reply)
        n_steps = ask.chain.n_steps
        if not ask.last:
            return replace(read_notes(reply, n_steps), usage=reply.usage)
        judgement = read_answers(reply, self.criteria, ask.mode, n_steps, structured=structured)
        beside = self.beside(ask.chain.trajectory)
        about = {"answered_in": "schema" if structured else "tags", "saw_reference": beside.saw_reference}
        short = (
            "policy or reference were longer than their share of the window and lost their middle"
            if beside.cut
            else None
        )
        reason = "; ".join(filter(None, (judgement.reason, repair_notice(reply), short))) or None
        return replace(judgement, about=about, reason=reason, usage=reply.usage)


def _without_blocks(text: str) -> str:
    # a quoted answer block of the transcript would pass for the model's
    return _BLOCK.sub("(", text)


@lru_cache(maxsize=64)  # one policy is that of many transcripts
def _disarmed(text: str) -> str:
    return neutralise_special(_without_blocks(neutralise(text)))


def policy_of(trajectory: Trajectory) -> str | None:
    texts = [m.text().strip() for m in trajectory.prelude if m.role in _INSTRUCTORS]
    return "\n\n".join(filter(None, texts)) or None


def without_instructions(trajectory: Trajectory) -> Trajectory:
    """Return the transcript without its leading system prompt; later instructions stay."""
    first = len(trajectory.prelude)
    messages = [m for i, m in enumerate(trajectory.messages) if i >= first or m.role not in _INSTRUCTORS]
    return trajectory.model_copy(update={"messages": messages})


def _note(finding: Finding) -> str:
    return f"[step {finding.step}] {finding.verdict}: {neutralise(' '.join(finding.text.split()))}\n"
