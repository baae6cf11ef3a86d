"""Judging over a ChatEngine: replies become Feedback, and every failure keeps its status.

| what came back | status |
|---|---|
| no reply after the retries (time-out, HTTP error, refused connection) | `judge_error` |
| the server refuses the key | none: `KeyRefused` is raised, since no other row would fare better |
| empty reply, no score, one that can be read in no way or in two (`rrm.judge.score_text`), asked for once more | `unparsable` |
| the server cannot take a prompt of this length (`TooLong`) | `too_long` |
| cut off by length before a complete score, or inside its thinking | `truncated` |

Where the server gives log-probabilities the score is Σ p(v)·v over the grid, else the number in the text.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rrm.data.annotation import Finding
from rrm.data.feedback import (
    CriterionAnswer,
    Feedback,
    JudgeInfo,
    Status,
    parse_findings,
)
from rrm.data.usage import Usage, total_of
from rrm.engines.base import ChatEngine, Reply, Request, SamplingParams
from rrm.errors import EngineError, RRMError, TooLong
from rrm.judge.expected_score import branch_logprobs, expected_score, with_opening
from rrm.judge.hallucinated_steps import cut_from_critique, cut_from_trace, said_of
from rrm.judge.repair import SCORE, Repair, is_repair, said_of_repair, with_repair
from rrm.judge.score_text import open_think, read_said, without_thoughts


@dataclass(frozen=True)
class ChatItem:
    """One transcript, rendered for a chat judge."""

    id: str
    """The trajectory's id; seeds derive from it."""
    messages: list[dict[str, str]]
    n_steps: int
    """Findings that speak of later steps are left out."""
    truncated_tokens: int = 0
    coverage: float | None = None
    """Share of the transcript's tokens that the messages show; None: not known."""
    opening: str = ""
    """Tag that opens the reply, put into the assistant's mouth: a trained judge's replies go on from there."""

    def request(self) -> list[dict[str, str]]:
        """The messages to send."""
        return [*self.messages, {"role": "assistant", "content": self.opening}] if self.opening else self.messages

    def opened(self, reply: Reply) -> Reply:
        """The reply with its opening tag in front, which a server that goes on from it does not repeat."""
        return with_opening(reply, self.opening)


@dataclass(frozen=True)
class Judgement:
    """What one reply says."""

    status: Status
    trace: str | None = None
    critique: str | None = None
    raw_score: float | None = None
    off_grid_mass: float | None = None
    """Set exactly where `raw_score` is an expectation over the grid."""
    said: float | None = None
    """The number in the text, where `raw_score` is an expectation."""
    reason: str | None = None
    coverage: float | None = None
    """Share of the transcript's tokens that was read for it; None: what the item says."""
    findings: tuple[Finding, ...] | None = None
    """What it says of the steps; None: what the critique says."""
    temperature: float | None = None
    """The reply was sampled at, where that is known and something was sampled."""
    criteria: Mapping[str, CriterionAnswer] | None = None
    """Of a judge with criteria: the answers that were read."""
    about: Mapping[str, Any] | None = None
    """What its row says in `judge`, beyond what is known before it is asked."""
    usage: Usage | None = None
    """What a server used for it."""


def judge_chat(
    engine: ChatEngine,
    items: Sequence[ChatItem],
    *,
    info: JudgeInfo,
    params: SamplingParams,
    samples: int = 1,
    calibrate: Callable[[float], float] | None = None,
    on_feedback: Callable[[Feedback], None] | None = None,
) -> list[Feedback]:
    """Judge rendered transcripts over a chat engine; one Feedback per item, in order.

    Args:
        info: model, hash, prompt version and mode; seed, samples and the score's source are filled in here.
        params: `top_logprobs > 0` asks for the expected score; `seed` is the run's.
        samples: replies per transcript; the score is their mean, the texts are those of the one nearest to it.
        calibrate: raw score → score in [0, 1]; None keeps the raw score.
        on_feedback: called once per item as its last reply arrives (engines that answer many rows at once).
    """
    if samples < 1 or (samples > 1 and params.temperature <= 0):
        raise RRMError(f"samples={samples} needs samples ≥ 1, and a temperature > 0 where it is more than one")
    info = info.model_copy(update={"seed": params.seed})
    replies: list[dict[int, Reply | EngineError]] = [{} for _ in items]
    done: dict[int, Feedback] = {}

    def take(index: int, reply: Reply | EngineError) -> None:
        row, sample = divmod(index, samples)
        replies[row][sample] = reply
        if len(replies[row]) == samples:
            in_order = [replies[row][k] for k in range(samples)]
            # known by now: a server refuses it before it answers
            asked = info.model_copy(update=sampled_as(engine, params))
            done[row] = to_feedback(items[row], in_order, asked, calibrate)
            if on_feedback is not None:
                on_feedback(done[row])

    rows = [item.request() for item in items for _ in range(samples)]
    keys = [item.id if k == 0 else f"{item.id}/sample{k}" for item in items for k in range(samples)]
    begins = [k == 0 for _ in items for k in range(samples)]
    complete_all(engine, rows, params, keys, take, begins, lambda index: items[index // samples].opening, SCORE)
    return [done[row] for row in range(len(items))]


def sampled_as(engine: ChatEngine, params: SamplingParams) -> dict[str, Any]:
    """What a row's `judge` says of how replies were sampled, known once the server has answered."""
    refused = getattr(engine, "refuses_temperature", False)
    return {"temperature": None, "left_out": ["temperature"]} if refused else {"temperature": params.temperature}


def complete_all(
    engine: ChatEngine,
    rows: Sequence[list[dict[str, str]]],
    params: SamplingParams,
    keys: Sequence[str],
    take: Callable[[int, Reply | EngineError], None],
    begins: Sequence[bool] | None = None,
    opening: Callable[[int], str] = lambda row: "",
    repair: Repair | None = None,
) -> None:
    """Every row's reply through `take`: many at once where the engine can, else one after the other.

    Args:
        begins: which rows begin a piece of work, which a spending limit leaves out whole; default: all.
        opening: what is put into the mouth of a row's reply, of which the expected score is wanted; empty: nothing, or it is not.
        repair: how a reply that cannot be read is asked for again, where nothing is put into its mouth; None: it is not.
    """

    def answered(request: Request, reply: Reply | EngineError) -> None:
        take(request.about, reply)

    found = enumerate(zip(rows, keys, strict=True))
    requests = [Request(messages, key, begins is None or begins[i], about=i) for i, (messages, key) in found]
    hear = (
        answered
        if repair is None
        else with_repair(engine, answered, unopened(repair, lambda request: opening(request.about)))
    )
    branch_logprobs(
        engine, requests, params, hear, lambda request: "" if is_repair(request) else opening(request.about)
    )


def unopened(repair: Repair, opening: Callable[[Request], str]) -> Repair:
    """The repair of replies into whose mouth nothing is put: a judge that was trained to go on from there knows no talk."""
    return replace(repair, problem=lambda request, reply: None if opening(request) else repair.problem(request, reply))


def to_feedback(
    item: ChatItem,
    replies: Sequence[Reply | EngineError],
    info: JudgeInfo,
    calibrate: Callable[[float], float] | None = None,
) -> Feedback:
    """The replies to one transcript as its Feedback (pure)."""
    return combine(
        item, [read_reply(r if isinstance(r, EngineError) else item.opened(r)) for r in replies], info, calibrate
    )


def combine(
    item: ChatItem,
    judgements: Sequence[Judgement],
    info: JudgeInfo,
    calibrate: Callable[[float], float] | None = None,
) -> Feedback:
    """One Feedback of one or more judgements: the scores' mean, and the texts of the judgement nearest to it (pure)."""
    usage = total_of(j.usage for j in judgements)
    scored = [j for j in judgements if j.raw_score is not None]
    failed = [j for j in judgements if j.raw_score is None]
    if not scored:
        first = failed[0]
        unscored = {"samples": len(judgements), "calibrated": None, **_temperature(first)}
        return _feedback(item, first, info.model_copy(update=unscored), None, None, first.reason, usage)
    masses = [j.off_grid_mass for j in scored if j.off_grid_mass is not None]
    expected = len(masses) == len(scored)
    # a mean is of one kind: of expectations, or of numbers that were said
    scores = [(j.raw_score if expected or j.said is None else j.said) or 0.0 for j in scored]
    mean = statistics.fmean(scores)
    nearest = scored[min(range(len(scored)), key=lambda i: abs(scores[i] - mean))]
    info = info.model_copy(
        update={
            "samples": len(scored),
            "score_std": statistics.stdev(scores) if len(scores) > 1 else None,
            "score_source": "expected" if expected else "sampled",
            "off_grid_mass": statistics.fmean(masses) if expected else None,
            **_temperature(nearest),
        }
    )
    gone = f"{len(failed)} of {len(judgements)} samples gave no score ({failed[0].reason})" if failed else None
    reason = "; ".join(filter(None, (gone, nearest.reason))) or None
    return _feedback(item, nearest, info, mean, mean if calibrate is None else calibrate(mean), reason, usage)


def _temperature(judgement: Judgement) -> dict[str, float]:
    return {} if judgement.temperature is None else {"temperature": judgement.temperature}


def _feedback(
    item: ChatItem,
    said: Judgement,
    info: JudgeInfo,
    raw: float | None,
    score: float | None,
    reason: str | None,
    usage: Usage | None,
) -> Feedback:
    trace, phantoms = cut_from_trace(said.trace, item.n_steps) if said.trace else (said.trace, set[int]())
    critique, more = cut_from_critique(said.critique, item.n_steps) if said.critique else (said.critique, set[int]())
    findings = parse_findings(said.critique, item.n_steps) if said.findings is None else list(said.findings)
    coverage = item.coverage if said.coverage is None else said.coverage
    if said.coverage is None and coverage is not None and said.status in ("judge_error", "too_long"):
        coverage = 0.0
    return Feedback(
        id=item.id,
        status=said.status,
        criteria=None if said.criteria is None else dict(said.criteria),
        score=score,
        raw_score=raw,
        trace=trace,
        critique=critique,
        findings=findings,
        truncated_tokens=item.truncated_tokens,
        coverage=coverage,
        usage=usage,
        judge=info.model_copy(update=dict(said.about)) if said.about else info,
        reason="; ".join(filter(None, (reason, said_of(phantoms | more)))) or None,
    )


def read_reply(reply: Reply | EngineError) -> Judgement:
    """What one reply says, or why it says nothing (see the table at the top)."""
    if isinstance(reply, EngineError):
        return Judgement(
            "too_long" if isinstance(reply, TooLong) else "judge_error", reason=str(reply), usage=reply.usage
        )
    text = open_think(reply.text)
    parsed = read_said(text, ended=reply.stop_reason != "length")
    again = said_of_repair(reply)
    if parsed.score is None:
        reason = _why_cut(reply, text) if parsed.cut else "; ".join(filter(None, (parsed.problem, again)))
        status: Status = "truncated" if parsed.cut else "unparsable"
        return Judgement(status, parsed.trace, parsed.critique, reason=reason, usage=reply.usage)
    expected = expected_score(reply, parsed.score)
    score, off_grid = expected or (parsed.score, None)
    said = parsed.score if expected else None
    return Judgement("scored", parsed.trace, parsed.critique, score, off_grid, said, reason=again, usage=reply.usage)


def _why_cut(reply: Reply, text: str) -> str:
    """What a reply that was cut off by length had come to."""
    thought = reply.usage.reasoning_tokens if reply.usage is not None else 0
    if "<think>" in without_thoughts(text) or (thought and not text.strip()):
        # all tries' tokens are counted together, so of one alone it is known how long it thought
        after = f" after {thought} tokens of it" if thought and reply.usage and reply.usage.requests == 1 else ""
        return f"cut off by length inside its thinking{after}: raise --thinking-tokens, or lower --reasoning-effort"
    return "cut off by length before a complete score"
