"""Mode `steps`: the probability that each step was good, and the score, read at slots in one prefill (DESIGN §4).

    p_good of a step   softmax over the two verdict tokens at its slot; of a step read in parts, `rrm.judge.abstention`
    raw score          the same at the slot of the run, at the end of the last reading

A server is asked to complete each prompt as far as a slot by one token (`/completions` with token ids, all slots of a reading in one
request), and what it says of that token are the verdict's probabilities. The prompts begin alike, so a server with a prefix cache
computes each token once. vLLM, llama.cpp and SGLang take token ids; a server of chat completions alone shows no slots.

A transcript that exceeds a window takes several readings, each of which is told what the judge found of earlier steps. So the
readings of one transcript come one after the other, and those of many transcripts together.

A judge that was trained in this mode and never wrote text answers `full` and `critique` from it: the trace is the exact digest
of what each step did, a finding says what the rules say of its step, or else how likely it is to be good. Nothing is made up. One
that was not trained in `score` either gives the same score there, without findings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, JudgeInfo, Mode, clear, format_findings
from rrm.data.time_slices import windows
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage, total_of
from rrm.engines.base import ChatEngine, Reply, Request, SamplingParams, TokenEngine, converse
from rrm.errors import EngineError, SpendingLimit, TooLong
from rrm.judge.abstention import VerdictRule, p_good_of_parts
from rrm.judge.calibration import Calibration
from rrm.judge.judge_request import JudgeRequest, OnReading
from rrm.judge.local import SLICE_ROWS, SLICE_SECONDS, TOO_LONG, fits
from rrm.prompt.prompter import Prompt, Prompter
from rrm.prompt.rules import check_steps, rules_trace
from rrm.prompt.windows import WindowPlan

TOP = 20
"""Alternatives a server is asked for at a slot: the most that vLLM gives by default."""
LEAST = -700.0
"""A lower log-probability counts as this: the exponential of both is nothing."""


@dataclass(frozen=True)
class WindowSlots:
    """A reading's slots."""

    p_good: Sequence[float]
    """Of good against bad at each, before calibration."""
    usage: Usage | None = None
    """What a server used for it."""


@dataclass(frozen=True)
class SlotAsk:
    """A reading whose slots are wanted."""

    key: str
    """Names it."""
    prompt: Prompt
    begins: bool
    """Whether it is the first of its transcript."""


Take = Callable[[int, WindowSlots | EngineError], None]
"""Hears of an ask by its number."""


class SlotReader(Protocol):
    """Reads slots."""

    @property
    def engine(self) -> Any:
        """Of the model; `max_positions`, where it has them, bound a prompt."""
        ...

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """Each ask's slots, or why there are none.

        Args:
            choices: the tokens of good and of bad.

        Raises:
            SpendingLimit: the money is spent: some asks that begin a transcript were left out.
        """
        ...


@dataclass(frozen=True)
class LocalSlots:
    """In a model here.

    Args:
        keep: whether the engine keeps each reading's keys and values under the ask's key, until it is told to release them.
    """

    engine: TokenEngine
    keep: bool = False

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """All in few forwards."""
        positions = [[slot.at for slot in ask.prompt.slots] for ask in asks]
        keys = [ask.key for ask in asks] if self.keep else None
        found = self.engine.choice_logprobs([ask.prompt.ids for ask in asks], positions, choices, keys)
        for number, logprobs in enumerate(found):
            take(number, WindowSlots([math.exp(good) for good, _ in logprobs]))


@dataclass(frozen=True)
class ServedSlots:
    """In a model behind a server.

    Args:
        decode: a token's text.
        timeout_s: of a request.
    """

    engine: ChatEngine
    decode: Callable[[int], str]
    timeout_s: float

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """A request a reading, many at once."""
        good, bad = ((f"token_id:{choice}", self.decode(choice)) for choice in choices)

        def answered(request: Request, reply: Reply | EngineError) -> None:
            if isinstance(reply, Reply):
                try:
                    found = [p_good(top, good, bad) for top in reply.top_logprobs or []]
                    take(request.about, WindowSlots(found, reply.usage))
                    return
                except EngineError as error:
                    error.usage = reply.usage
                    reply = error
            take(request.about, reply)

        def request(number: int, ask: SlotAsk) -> Request:
            ids = ask.prompt.ids
            prompts = [ids[: slot.at + 1] for slot in ask.prompt.slots]
            return Request([], ask.key, ask.begins, about=number, prompts=prompts)

        params = SamplingParams(max_new_tokens=1, top_logprobs=TOP, timeout_s=self.timeout_s)
        converse(self.engine, [request(number, ask) for number, ask in enumerate(asks)], params, answered)


def p_good(top: dict[str, float], good: Sequence[str], bad: Sequence[str]) -> float:
    """The probability of good against bad among a token's alternatives; one that is not listed is below all that are.

    Args:
        top: log-probabilities by the token's name.
        good, bad: names that the two may have.

    Raises:
        EngineError: neither is listed, or one is and nothing below it: of the other nothing is known then.
    """
    top = {name: max(value, LEAST) for name, value in top.items()}
    said = [next((top[name] for name in names if name in top), None) for names in (good, bad)]
    if said == [None, None]:
        what = (
            f"of the {len(top)} likeliest tokens at a slot neither is a verdict"
            if top
            else "it says no log-probabilities"
        )
        raise EngineError(f"the server's model reads no slots: {what}; check that it serves this judge's weights")
    least = min(top.values())
    if None in said and least in said:
        raise EngineError(
            f"of the {len(top)} likeliest tokens at a slot the last is one verdict, and the other is not among them, so that nothing is known of "
            f"it: let the server give {TOP} log-probabilities"
        )
    first, second = (least if logprob is None else logprob for logprob in said)
    return 1.0 / (1.0 + math.exp(second - first))


@dataclass
class SlotReadings:
    """What the slots of one transcript said, before calibration."""

    p_good: dict[int, float] = field(default_factory=dict)
    """By the steps read so far."""
    outcome: float | None = None
    """None until the last reading."""
    usage: Usage | None = None
    """What a server used so far."""

    def take(self, prompt: Prompt, p_good: Sequence[float]) -> None:
        """Add a reading's slots: the probability of good at each."""
        for slot, p in zip(prompt.slots, p_good, strict=True):
            if slot.step is None:
                self.outcome = p
            else:
                self.p_good[slot.step] = p_good_of_parts((p, self.p_good.get(slot.step, p)))


@dataclass(frozen=True)
class UnreadableTranscript:
    """One transcript that could not be read."""

    why: EngineError
    usage: Usage | None
    """What a server used for it all the same."""


@dataclass(frozen=True)
class StepScores:
    """One transcript as it was read."""

    said: SlotReadings
    coverage: float
    truncated_tokens: int
    windowed: bool
    """In more than one reading, or not whole."""


def judge_steps(
    reader: SlotReader, prompter: Prompter, trajectories: Sequence[Trajectory], wanted: JudgeRequest, rule: VerdictRule
) -> list[Feedback]:
    """Each transcript's slots as its Feedback; `rule` makes verdicts of calibrated p_good."""
    calibration, done = wanted.calibration, dict[int, Feedback]()

    def take(row: int, read: StepScores | UnreadableTranscript) -> None:
        done[row] = to_feedback(trajectories[row], read, wanted.info, wanted.mode, calibration, rule)
        wanted.tell([done[row]])

    read_steps(
        reader, prompter, trajectories, lambda raw: calibration.p_good(raw) < rule.threshold, take, wanted.on_reading
    )
    return [done[row] for row in range(len(trajectories))]


def read_steps(
    reader: SlotReader,
    prompter: Prompter,
    trajectories: Sequence[Trajectory],
    is_bad: Callable[[float], bool],
    on_row: Callable[[int, StepScores | UnreadableTranscript], None],
    on_reading: OnReading | None = None,
) -> None:
    """Read each transcript's slots; those of like length together, longest first, in slices of about `SLICE_SECONDS`.

    Args:
        is_bad: whether a step of this raw probability is called bad in later readings.
        on_row: hears of each row as soon as it is read, or why it could not be.
        on_reading: as in `JudgeRequest`.

    Raises:
        SpendingLimit: a server's money is spent: what was begun was read to its end, the rest was not begun.
    """
    plans = [prompter.plan(trajectory, "steps") for trajectory in trajectories]
    order = sorted(range(len(plans)), key=lambda i: plans[i].transcript_tokens, reverse=True)
    for rows in windows(order, max(len(order), 1), first=SLICE_ROWS, seconds=SLICE_SECONDS):
        slice_ = {i: (trajectories[i].id, plans[i]) for i in rows}
        for i, said in _read_slice(reader, prompter, slice_, is_bad, on_reading):
            plan = plans[i]
            cut = plan.transcript_tokens - plan.shown_tokens
            on_row(
                i,
                said if isinstance(said, UnreadableTranscript) else StepScores(said, plan.coverage, cut, plan.windowed),
            )


def _read_slice(
    reader: SlotReader,
    prompter: Prompter,
    named: Mapping[int, tuple[str, WindowPlan]],
    is_bad: Callable[[float], bool],
    on_reading: OnReading | None,
) -> Iterator[tuple[int, SlotReadings | UnreadableTranscript]]:
    """Reading after reading of these transcripts; each is yielded after its last."""
    said, number, limit = {i: SlotReadings() for i in named}, 0, None
    left, bad = list(named), {i: dict[int, bool]() for i in named}
    while left:
        prompts = {i: prompter.reading(named[i][1], number, "steps", bad[i]) for i in left}
        asked = [i for i in left if fits(reader.engine, prompts[i], "steps", 0)]
        yield from ((i, UnreadableTranscript(TooLong(TOO_LONG), said[i].usage)) for i in left if i not in asked)
        asks = [SlotAsk(f"{named[i][0]}/reading{number + 1}", prompts[i], number == 0) for i in asked]
        found: dict[int, WindowSlots | EngineError] = {}
        try:
            reader.read(asks, prompter.choices, found.__setitem__)
        except SpendingLimit as reached:
            limit = reached
        number, left = number + 1, []
        for i, slots in ((asked[k], found[k]) for k in sorted(found)):
            said[i].usage = total_of((said[i].usage, slots.usage))
            if on_reading is not None and len(named[i][1]) > 1:
                on_reading(named[i][0], len(named[i][1]))
            if isinstance(slots, EngineError):
                yield i, UnreadableTranscript(slots, said[i].usage)
                continue
            said[i].take(prompts[i], slots.p_good)
            spoken_of = {slot.step for slot in prompts[i].slots}
            bad[i] |= {step: True for step, p in said[i].p_good.items() if step in spoken_of and is_bad(p)}
            if number == len(named[i][1]):
                yield i, said[i]
            else:
                left.append(i)
    if limit is not None:
        raise limit


def to_feedback(
    trajectory: Trajectory,
    read: StepScores | UnreadableTranscript,
    info: JudgeInfo,
    mode: Mode,
    calibration: Calibration,
    rule: VerdictRule,
) -> Feedback:
    """What was read as Feedback: calibrated, with a finding for each step, and with text where `mode` asks for it.

    Args:
        mode: `steps`, or `score`, `critique` or `full` of a judge that reads these from its slots.
        rule: makes verdicts of calibrated p_good.
    """
    if isinstance(read, UnreadableTranscript):
        return Feedback(
            id=trajectory.id,
            status="too_long" if isinstance(read.why, TooLong) else "judge_error",
            coverage=0.0,
            usage=read.usage,
            judge=info.model_copy(update={"calibrated": None}),
            reason=str(read.why),
        )
    assert read.said.outcome is not None  # its slot ends the last reading
    raw = min(max(read.said.outcome, 0.0), 1.0)
    calibrated = calibration.covers("steps", windowed=read.windowed)
    findings = [] if mode == "score" else findings_of(read.said.p_good, calibration, rule)
    texts: dict[str, Any] = {}
    if mode in ("full", "critique"):
        findings = with_texts(findings, trajectory)
        texts["critique"] = format_findings(clear(findings)) or None
    if mode == "full":
        texts["trace"] = rules_trace(trajectory) or None
    return Feedback(
        id=trajectory.id,
        status="scored",
        score=calibration.apply("steps", raw, windowed=read.windowed),
        raw_score=raw,
        findings=findings,
        truncated_tokens=read.truncated_tokens,
        coverage=read.coverage,
        usage=read.said.usage,
        judge=info.model_copy(
            update={
                "score_source": "expected",
                "calibrated": calibrated,
                "threshold": rule.threshold if findings else None,
                "unsure_band": rule.unsure_band if findings else None,
            }
        ),
        **texts,
    )


def findings_of(p_good: Mapping[int, float], calibration: Calibration, rule: VerdictRule) -> list[Finding]:
    """One finding a step that was read, in the steps' order."""
    sure = {step: min(max(calibration.p_good(p), 0.0), 1.0) for step, p in sorted(p_good.items())}
    return [Finding(step=k, verdict=rule(p), p_good=p) for k, p in sure.items()]


def with_texts(findings: Sequence[Finding], trajectory: Trajectory) -> list[Finding]:
    """The findings in words: the rules' where they agree on the step, else its probability."""
    ruled = {finding.step: finding for finding in check_steps(trajectory)[0]}

    def text(finding: Finding) -> str:
        rule = ruled.get(finding.step)
        if rule is not None and rule.verdict == finding.verdict:
            return rule.text
        return f"good with probability {finding.p_good:.2f}"

    return [finding.model_copy(update={"text": text(finding)}) for finding in findings]
