"""Mode `steps`: each step's probability of being good, and the score, read at slots (DESIGN §4).

    p_good of a step   softmax over the two verdict tokens at its slot; for a step in parts see `rrm.judge.abstention`
    raw score          the same at the run's slot, at the end of the last reading

A server completes each prompt up to a slot by one token (`/completions` with token ids, all slots of a reading in one
request). vLLM, llama.cpp and SGLang take token ids; chat completions alone give no slots.

A judge trained only in this mode answers `full` and `critique` from it: the trace is the exact digest of each step, a finding
the rules' text or its probability. One not trained in `score` gives the same score there, without findings.
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
from rrm.errors import EngineError, SpendingLimit
from rrm.judge.abstention import VerdictRule, p_good_of_parts
from rrm.judge.calibration import Calibration
from rrm.judge.judge_request import JudgeRequest, OnReading
from rrm.judge.local import SLICE_ROWS, SLICE_SECONDS, excess, too_long
from rrm.prompt.prompter import Prompt, Prompter
from rrm.prompt.rules import check_steps, rules_trace
from rrm.prompt.windows import WindowPlan

TOP = 20  # alternatives requested at a slot: vLLM's default limit
LEAST = -700.0  # floor of log-probabilities, whose exponential is zero


@dataclass(frozen=True)
class WindowSlots:
    p_good: Sequence[float]  # of good against bad at each, before calibration
    usage: Usage | None = None


@dataclass(frozen=True)
class SlotAsk:
    key: str
    prompt: Prompt
    begins: bool  # it is the first of its transcript


Take = Callable[[int, WindowSlots | EngineError], None]  # called with the ask's number


class SlotReader(Protocol):
    @property
    def engine(self) -> Any:
        # its `max_positions`, if any, bound a prompt
        ...

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """Pass each ask's slots or error to `take`; `choices` are the tokens of good and of bad.

        Raises SpendingLimit after leaving out some asks that begin a transcript.
        """
        ...


@dataclass(frozen=True)
class LocalSlots:
    """Read slots in a local model; with `keep` it keeps an ask's keys and values until released."""

    engine: TokenEngine
    keep: bool = False

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        positions = [[slot.at for slot in ask.prompt.slots] for ask in asks]
        keys = [ask.key for ask in asks] if self.keep else None
        choice_logprobs = self.engine.choice_logprobs([ask.prompt.ids for ask in asks], positions, choices, keys)
        for number, logprobs in enumerate(choice_logprobs):
            take(number, WindowSlots([math.exp(good) for good, _ in logprobs]))


@dataclass(frozen=True)
class ServedSlots:
    """Read slots on a server; `decode` returns a token's text."""

    engine: ChatEngine
    decode: Callable[[int], str]
    timeout_s: float

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        good, bad = ((f"token_id:{choice}", self.decode(choice)) for choice in choices)

        def answered(request: Request, reply: Reply | EngineError) -> None:
            if isinstance(reply, Reply):
                try:
                    probabilities = [p_good(top, good, bad) for top in reply.top_logprobs or []]
                    take(request.about, WindowSlots(probabilities, reply.usage))
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
    """Return the probability of good against bad; an unlisted one is below all listed.

    `top` has log-probabilities by the token's name; `good` and `bad` are possible names. Raises EngineError if neither is
    listed, or only one, with nothing below it.
    """
    top = {name: max(value, LEAST) for name, value in top.items()}
    logprobs = [next((top[name] for name in names if name in top), None) for names in (good, bad)]
    if logprobs == [None, None]:
        reason = (
            f"of the {len(top)} likeliest tokens at a slot neither is a verdict"
            if top
            else "it says no log-probabilities"
        )
        raise EngineError(f"the server's model reads no slots: {reason}; check that it serves this judge's weights")
    least = min(top.values())
    if None in logprobs and least in logprobs:
        raise EngineError(
            f"of the {len(top)} likeliest tokens at a slot the last is one verdict, and the other is not among them, so that nothing is known of "
            f"it: let the server give {TOP} log-probabilities"
        )
    first, second = (least if logprob is None else logprob for logprob in logprobs)
    return 1.0 / (1.0 + math.exp(second - first))


@dataclass
class SlotReadings:
    p_good: dict[int, float] = field(default_factory=dict)  # by step, of the readings so far
    outcome: float | None = None  # None until the last reading
    usage: Usage | None = None

    def take(self, prompt: Prompt, p_good: Sequence[float]) -> None:
        for slot, p in zip(prompt.slots, p_good, strict=True):
            if slot.step is None:
                self.outcome = p
            else:
                self.p_good[slot.step] = p_good_of_parts((p, self.p_good.get(slot.step, p)))


@dataclass(frozen=True)
class UnreadableTranscript:
    why: EngineError
    usage: Usage | None


@dataclass(frozen=True)
class StepScores:
    slots: SlotReadings
    coverage: float
    truncated_tokens: int
    windowed: bool  # several readings, or incomplete


def judge_steps(
    reader: SlotReader, prompter: Prompter, trajectories: Sequence[Trajectory], request: JudgeRequest, rule: VerdictRule
) -> list[Feedback]:
    """Return each transcript's Feedback from its slots; `rule` maps calibrated p_good to verdicts."""
    calibration, done = request.calibration, dict[int, Feedback]()

    def take(row: int, result: StepScores | UnreadableTranscript) -> None:
        done[row] = to_feedback(trajectories[row], result, request.info, request.mode, calibration, rule)
        request.tell([done[row]])

    read_steps(
        reader, prompter, trajectories, lambda raw: calibration.p_good(raw) < rule.threshold, take, request.on_reading
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
    """Read each transcript's slots, longest first, in slices of about `SLICE_SECONDS`.

    `is_bad` maps a step's raw probability to its mark in later readings; `on_row` is called with each row as soon as it is read
    or failed. Raises SpendingLimit at the limit, once the transcripts that were begun are read.
    """
    plans = [prompter.plan(trajectory, "steps") for trajectory in trajectories]
    order = sorted(range(len(plans)), key=lambda i: plans[i].transcript_tokens, reverse=True)
    for rows in windows(order, max(len(order), 1), first=SLICE_ROWS, seconds=SLICE_SECONDS):
        slice_ = {i: (trajectories[i].id, plans[i]) for i in rows}
        for i, slots in _read_slice(reader, prompter, slice_, is_bad, on_reading):
            plan = plans[i]
            cut = plan.transcript_tokens - plan.shown_tokens
            on_row(
                i,
                slots
                if isinstance(slots, UnreadableTranscript)
                else StepScores(slots, plan.coverage, cut, plan.windowed),
            )


def _read_slice(
    reader: SlotReader,
    prompter: Prompter,
    named: Mapping[int, tuple[str, WindowPlan]],
    is_bad: Callable[[float], bool],
    on_reading: OnReading | None,
) -> Iterator[tuple[int, SlotReadings | UnreadableTranscript]]:
    # yields each transcript after its last reading
    so_far, number, limit = {i: SlotReadings() for i in named}, 0, None
    left, bad = list(named), {i: dict[int, bool]() for i in named}
    while left:
        prompts = {i: prompter.reading(named[i][1], number, "steps", bad[i]) for i in left}
        chosen = [i for i in left if excess(reader.engine, prompts[i], "steps", 0) <= 0]
        yield from (
            (i, UnreadableTranscript(too_long(reader.engine, len(prompts[i].ids), 0), so_far[i].usage))
            for i in left
            if i not in chosen
        )
        asks = [SlotAsk(f"{named[i][0]}/reading{number + 1}", prompts[i], number == 0) for i in chosen]
        results: dict[int, WindowSlots | EngineError] = {}
        try:
            reader.read(asks, prompter.choices, results.__setitem__)
        except SpendingLimit as reached:
            limit = reached
        number, left = number + 1, []
        for i, slots in ((chosen[k], results[k]) for k in sorted(results)):
            so_far[i].usage = total_of((so_far[i].usage, slots.usage))
            if on_reading is not None and len(named[i][1]) > 1:
                on_reading(named[i][0], len(named[i][1]))
            if isinstance(slots, EngineError):
                yield i, UnreadableTranscript(slots, so_far[i].usage)
                continue
            so_far[i].take(prompts[i], slots.p_good)
            spoken_of = {slot.step for slot in prompts[i].slots}
            bad[i] |= {step: True for step, p in so_far[i].p_good.items() if step in spoken_of and is_bad(p)}
            if number == len(named[i][1]):
                yield i, so_far[i]
            else:
                left.append(i)
    if limit is not None:
        raise limit


def to_feedback(
    trajectory: Trajectory,
    result: StepScores | UnreadableTranscript,
    info: JudgeInfo,
    mode: Mode,
    calibration: Calibration,
    rule: VerdictRule,
) -> Feedback:
    """Return calibrated Feedback; `mode` is `steps`, or one that the judge answers from its slots."""
    if isinstance(result, UnreadableTranscript):
        return Feedback(
            id=trajectory.id,
            status="too_long" if result.why.kind == "too_long" else "judge_error",
            coverage=0.0,
            usage=result.usage,
            judge=info.model_copy(update={"calibrated": None}),
            reason=str(result.why),
        )
    assert result.slots.outcome is not None  # its slot ends the last reading
    raw = min(max(result.slots.outcome, 0.0), 1.0)
    calibrated = calibration.covers("steps", windowed=result.windowed)
    findings = [] if mode == "score" else findings_of(result.slots.p_good, calibration, rule)
    texts: dict[str, Any] = {}
    if mode in ("full", "critique"):
        findings = with_texts(findings, trajectory)
        texts["critique"] = format_findings(clear(findings)) or None
    if mode == "full":
        texts["trace"] = rules_trace(trajectory) or None
    return Feedback(
        id=trajectory.id,
        status="scored",
        score=calibration.apply("steps", raw, windowed=result.windowed),
        raw_score=raw,
        findings=findings,
        truncated_tokens=result.truncated_tokens,
        coverage=result.coverage,
        usage=result.slots.usage,
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
    sure = {step: min(max(calibration.p_good(p), 0.0), 1.0) for step, p in sorted(p_good.items())}
    return [Finding(step=k, verdict=rule(p), p_good=p) for k, p in sure.items()]


def with_texts(findings: Sequence[Finding], trajectory: Trajectory) -> list[Finding]:
    """Add each finding's text: the rules' where they agree, else its probability."""
    ruled = {finding.step: finding for finding in check_steps(trajectory)[0]}

    def text(finding: Finding) -> str:
        rule = ruled.get(finding.step)
        if rule is not None and rule.verdict == finding.verdict:
            return rule.text
        return f"good with probability {finding.p_good:.2f}"

    return [finding.model_copy(update={"text": text(finding)}) for finding in findings]
