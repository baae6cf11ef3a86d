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
from rrm.data.feedback import CriterionAnswer, Feedback, JudgeInfo, Status, parse_findings
from rrm.data.usage import Usage, total_of
from rrm.engines.base import Answered, ChatEngine, Reply, Request, SamplingParams, converse
from rrm.errors import EngineError, TooLong
from rrm.judge.expected_score import expected_score
from rrm.judge.hallucinated_steps import cut_from_critique, cut_from_trace, said_of
from rrm.judge.score_text import open_think, outside_think, read_said, without_thoughts
from rrm.prompt.prompter import GRID


@dataclass(frozen=True)
class TranscriptFacts:
    """What a row says of its transcript."""

    id: str
    n_steps: int
    """Findings that speak of later steps are left out."""
    truncated_tokens: int = 0


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
    """Share of the transcript's tokens that was read for it."""
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


MOST = 4000
"""Characters of the unreadable reply, its last ones, that are sent back."""
SCORE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"score": {"type": "number", "enum": list(GRID)}},
    "required": ["score"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Repair:
    """A second request for a reply that cannot be read."""

    problem: Callable[[Request, Reply], str | None]
    """Returns the reason why a reply cannot be read; None: it can be, or is not worth another request."""
    form: str
    """Says what to reply with."""
    schema: dict[str, Any] | None = None
    """Of the new reply, where the server can be held to one."""
    whole: bool = True
    """Whether the new reply takes the place of the old one; else its score alone, and the old one's texts stay."""


@dataclass(frozen=True)
class _Again:
    request: Request
    reply: Reply
    problem: str


def with_repair(engine: ChatEngine, answered: Answered, repair: Repair) -> Answered:
    """`answered`, which hears of an unreadable reply only once it was asked for again; at once where the engine is scripted."""
    if not getattr(engine, "asks_again", True):
        return answered

    def heard(request: Request, reply: Reply | EngineError) -> Request | None:
        if isinstance(request.about, _Again):
            return answered(request.about.request, _joined(request.about, reply, repair))
        if isinstance(reply, EngineError) or reply.stop_reason == "length" or not reply.text.strip():
            return answered(request, reply)
        problem = repair.problem(request, reply)
        if problem is None:
            return answered(request, reply)
        said = outside_think(open_think(reply.text)).strip()[-MOST:] or "(nothing outside the reasoning)"
        told = f"Your reply cannot be read: {problem}. {repair.form}"
        messages = [*request.messages, {"role": "assistant", "content": said}, {"role": "user", "content": told}]
        about = _Again(request, reply, problem)
        return Request(messages, f"{request.key}/repair", begins=False, about=about, json_schema=repair.schema)

    return heard


def is_repair(request: Request) -> bool:
    """Whether a request asks again for what could not be read."""
    return isinstance(request.about, _Again)


def said_of_repair(reply: Reply) -> str | None:
    """The reason that a row gives for a second request; None where there was none."""
    return reply.repaired and f"asked once more, as the first reply could not be read: {reply.repaired}"


def _joined(again: _Again, reply: Reply | EngineError, repair: Repair) -> Reply:
    first, usage = again.reply, total_of((again.reply.usage, reply.usage))
    if isinstance(reply, EngineError):
        return replace(first, usage=usage, repaired=f"{again.problem}; asked once more: {reply}")
    if repair.whole:
        return replace(reply, usage=usage, repaired=again.problem)
    said = read_said(open_think(first.text), ended=True)
    texts = ((said.trace, "think"), (said.critique, "critique"))
    kept = "".join(f"<{tag}>{text}</{tag}>" for text, tag in texts if text)
    return replace(reply, text=kept + outside_think(open_think(reply.text)), usage=usage, repaired=again.problem)


def score_problem(request: Request, reply: Reply) -> str | None:
    """The reason why a reply has no score."""
    return read_said(open_think(reply.text), ended=True).problem


SCORE = Repair(
    score_problem,
    'Reply with nothing but the JSON object {"score": NUMBER}, the number from 0.0 to 1.0 with one decimal.',
    SCORE_SCHEMA,
    whole=False,
)
"""Of a judge's score."""


def sampled_as(engine: ChatEngine, params: SamplingParams) -> dict[str, Any]:
    """What a row's `judge` says of how replies were sampled, known once the server has answered."""
    refused = getattr(engine, "refuses_temperature", False)
    return {"temperature": None, "left_out": ["temperature"]} if refused else {"temperature": params.temperature}


def complete_all(
    engine: ChatEngine,
    rows: Sequence[list[dict[str, str]]],
    params: SamplingParams,
    keys: Sequence[str],
    begins: Sequence[bool],
    take: Callable[[int, Reply | EngineError], None],
    repair: Repair,
) -> None:
    """Every row's reply through `take`: many at once where the engine can, else one after the other; one that cannot be read is asked for again.

    Args:
        begins: which rows begin a piece of work, which a spending limit leaves out whole.
    """

    def answered(request: Request, reply: Reply | EngineError) -> None:
        take(request.about, reply)

    requests = [Request(rows[i], key, begins[i], about=i) for i, key in enumerate(keys)]
    converse(engine, requests, params, with_repair(engine, answered, repair))


def combine(
    item: TranscriptFacts,
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
    item: TranscriptFacts,
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
        coverage=said.coverage,
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
