"""Asking a chat model the questions of criteria, about transcripts of any length.

A transcript is rendered, disarmed and read in windows as by any judge of prompt version 2 (`rrm.prompt.windows`), but for its system
prompt: that stands in our system message where the criteria allow it, else nowhere. Every reading but the last is asked for notes on
its steps; the last one is given these notes, as many as an eighth of the window holds (of bad steps first, then the latest), above
its digest, and answers all questions.

Whether a server holds its replies to a JSON schema is found out with the first request, which is sent alone: refused, or answered by
something that is no JSON object, it is asked again in tags, and so are all that follow. A single text that is refused with the schema
is asked again without it, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from rrm.data.annotation import Finding
from rrm.data.feedback import Mode, Reads
from rrm.data.pictures import ImageBudget
from rrm.data.text import references
from rrm.data.trajectory import Trajectory
from rrm.data.usage import total_of
from rrm.engines.base import ChatEngine, Reply, Request, SamplingParams
from rrm.errors import ConfigError, EngineError, SchemaRefused
from rrm.judge.answers import is_object, read_answers, read_notes
from rrm.judge.chat import Judgement, complete_all, read_reply, sampled_as
from rrm.judge.repair import Repair, said_of_repair
from rrm.judge.text_backends import with_pictures
from rrm.judge.windowed import Ended, JudgeState, WindowRequest, hear_in_rounds, next_ask
from rrm.prompt.criteria import TAG, Criteria, answer_schema, beside_text, notes_text, system_text
from rrm.prompt.neutralise import neutralise, neutralise_special
from rrm.prompt.prompter import Prompter
from rrm.prompt.windows import Planner, WindowPlan

POLICY, REFERENCE = 0.25, 0.125
"""Shares of a window that the agent's policy and the reference answer take at most; what exceeds them loses its middle."""
NOTES = 0.125
"""Share of a window that the notes of earlier readings take."""
FREE = 300
"""Tokens of a system message for which the budget has room (`rrm.judge.serving.RUBRIC`)."""
LEAST = 0.25
"""Of a window that must be left for the transcript beside the questions."""
UNFINISHED = "\n\nThe run goes on after the last step that you see: that the task is not done yet is no fault."
_NOTE_LINES = "Your notes on steps that you read before:\n"
_BLOCK = re.compile(rf"<(?=\s*+/?+\s*+{TAG}\b)", re.IGNORECASE)
_INSTRUCTORS = ("system", "developer")


@dataclass(frozen=True)
class ExtraContext:
    """What a model reads beside a transcript."""

    text: str
    saw_reference: bool
    cut: bool
    """Whether the policy or the reference had to be shortened."""


@dataclass(frozen=True)
class CriteriaAsker:
    """Asks a chat engine, for all readings of a round at once where it can (`rrm.judge.windowed.Backend`).

    Args:
        planner: divides transcripts, with the tokenizer of the model or in characters; its budget is the whole window's.
        reader: with the model's tokenizer, where there is one and the model is on a server.
    """

    criteria: Criteria
    engine: ChatEngine
    planner: Planner
    reader: Prompter | None
    images: ImageBudget | None = None
    """What it is shown of pictures; None: words in their places."""
    unfinished: bool = False
    """Whether runs go on after what is shown."""

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        """How a transcript is read, and what its earlier readings are asked for.

        Raises:
            ConfigError: the questions leave too little room for a transcript.
        """
        shown = without_instructions(trajectory)
        longest = system_text(self.criteria, "full", structured=False, beside=self.beside(trajectory).text)
        taken = max(len(self.planner.encode(longest)) - FREE * self.planner.scale, 0)
        room = self.planner.budget - taken
        if room < LEAST * self.planner.budget:
            raise ConfigError(
                f"the criteria {self.criteria.name} take {taken // self.planner.scale} tokens of a window of "
                f"{self.planner.budget // self.planner.scale}: ask less, or raise --transcript-tokens (and the server's context)"
            )
        plan = self._planner(room).plan(shown, slots=False)
        if len(plan) > 1:
            plan = self._planner(room - int(self.planner.budget * NOTES)).plan(shown, slots=False)
        return plan, "critique"

    def measure(self, trajectory: Trajectory, mode: Mode, samples: int) -> Reads:
        """What is read of a transcript, a request for each reading of each sample; tokens without notes, estimated in characters
        where there is no tokenizer."""
        chain = JudgeState(trajectory, *self.plan(trajectory, mode), mode=mode)
        asks = [next_ask(chain, number) for number in range(len(chain.plan))]
        contents = [m["content"] for ask in asks for m in self.messages(ask, structured=False)]
        tokens = sum(len(self.planner.encode(text)) for text in contents) // self.planner.scale
        return Reads(tokens * samples, len(asks) * samples, chain.plan.coverage)

    def sampled(self, params: SamplingParams) -> dict[str, Any]:
        """`rrm.judge.chat.sampled_as`."""
        return sampled_as(self.engine, params)

    def beside(self, trajectory: Trajectory) -> ExtraContext:
        """The policy and the reference answer of a transcript, as far as the criteria allow them."""
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

    def messages(self, ask: WindowRequest, *, structured: bool) -> list[dict[str, str]]:
        """A reading as it is sent."""
        beside = self.beside(ask.chain.trajectory).text
        if ask.last:
            told = system_text(self.criteria, ask.mode, structured=structured, beside=beside)
        else:
            told = notes_text(self.criteria, beside)
        told += UNFINISHED if self.unfinished else ""
        content = self._notes(ask) + ask.chain.plan.reading(ask.number, ask.marks).text
        content = self.planner.clean(neutralise_special(_without_blocks(content)))
        messages = [{"role": "system", "content": told}, {"role": "user", "content": content}]
        return with_pictures(ask, messages if self.reader is None else self.reader.as_taken(messages))

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
        """Ask for the readings of all, round by round."""
        hear_in_rounds(self, chains, params, ended)

    def ask(
        self, asks: Sequence[WindowRequest], params: SamplingParams, take: Callable[[WindowRequest, Judgement], None]
    ) -> None:
        """What each reading says, through `take` as it comes."""
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
        """What earlier readings noted, of bad steps first, then of the latest, within its room; in the steps' order."""
        chain, kept = ask.chain, dict[tuple[int, int], str]()
        room = int(self.planner.budget * NOTES) - len(self.planner.encode(_NOTE_LINES))

        def latest(steps: Iterable[int]) -> Iterator[tuple[int, int]]:
            """Step and number of the last findings on these; more than there are ids would not fit."""
            for k in sorted(steps, reverse=True)[: max(room, 0)]:
                yield from ((k, i) for i in reversed(range(len(chain.findings[k]))))

        bad = [(k, i) for k, i in latest(chain.bad) if chain.findings[k][i].verdict == "bad"]
        for k, i in (*bad, *latest(chain.findings)):
            line = _note(chain.findings[k][i])
            size = len(self.planner.encode(line))
            if (k, i) not in kept and size <= room:
                kept[k, i], room = line, room - size
        return _NOTE_LINES + "".join(kept[i] for i in sorted(kept)) + "\n" if kept else ""

    def _in_schema(
        self, asks: Sequence[WindowRequest], params: SamplingParams, take: Callable[[WindowRequest, Judgement], None]
    ) -> list[WindowRequest]:
        """Ask with a JSON schema; returns those that are to be asked in tags."""
        again: list[WindowRequest] = []

        def ask_again(ask: WindowRequest, reply: Reply | EngineError) -> None:
            ask.chain.usage = total_of((ask.chain.usage, reply.usage))  # this was paid, too
            again.append(ask)

        def judge(ask: WindowRequest, reply: Reply | EngineError) -> None:
            if isinstance(reply, SchemaRefused):
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

    def _in_tags(
        self, asks: Sequence[WindowRequest], params: SamplingParams, take: Callable[[WindowRequest, Judgement], None]
    ) -> None:
        def judge(ask: WindowRequest, reply: Reply | EngineError) -> None:
            if isinstance(reply, Reply) and ask.last and self._takes_schema is None:
                self._remember(False)  # refused with a schema, and answered without
            take(ask, self._read(ask, reply, structured=False))

        self._send(asks, params, False, judge)

    @property
    def _takes_schema(self) -> bool | None:
        """Whether the engine holds replies to a schema; None: not found out yet."""
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
            found = self._read(ask, reply, structured=structured)
            unread = found.status == "unparsable" and len(found.criteria or ()) < len(self.criteria.questions)
            return found.reason if ask.last and unread else None

        repair = Repair(problem, "Answer every question again, all in the form that was asked for and nothing else.")
        complete_all(self.engine, rows, sent, keys, lambda i, reply: judge(asks[i], reply), begins, repair=repair)

    def _read(self, ask: WindowRequest, reply: Reply | EngineError, *, structured: bool) -> Judgement:
        """What a reply says; of the last reading with how it was asked."""
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
        reason = "; ".join(filter(None, (judgement.reason, said_of_repair(reply), short))) or None
        return replace(judgement, about=about, reason=reason, usage=reply.usage)


def _without_blocks(text: str) -> str:
    """A transcript's own answer blocks, disarmed: one that the model quotes would pass for its answer."""
    return _BLOCK.sub("(", text)


@lru_cache(maxsize=64)  # one policy is that of many transcripts
def _disarmed(text: str) -> str:
    return neutralise_special(_without_blocks(neutralise(text)))


def policy_of(trajectory: Trajectory) -> str | None:
    """What the agent was told before its first message, as its system prompt; None where there is none."""
    told = [m.text().strip() for m in trajectory.prelude if m.role in _INSTRUCTORS]
    return "\n\n".join(filter(None, told)) or None


def without_instructions(trajectory: Trajectory) -> Trajectory:
    """The transcript without its system prompt, which stands apart; what the agent is told later stays in its place."""
    first = len(trajectory.prelude)
    kept = [m for i, m in enumerate(trajectory.messages) if i >= first or m.role not in _INSTRUCTORS]
    return trajectory.model_copy(update={"messages": kept})


def _note(finding: Finding) -> str:
    """A note's line: the judge's own words, of what anybody wrote."""
    return f"[step {finding.step}] {finding.verdict}: {neutralise(' '.join(finding.text.split()))}\n"
