"""Judging over a ChatEngine: replies become Feedback, and every failure keeps its status.

| reply | status |
|---|---|
| none after the retries (time-out, HTTP error, refused connection) | `judge_error`; a refused key raises |
| empty, or without one unambiguous score (`rrm.judge.score_text`), also when asked again | `unparsable` |
| the server cannot take a prompt of this length (kind `too_long`) | `too_long` |
| cut off by length before a complete score, or inside its thinking | `truncated` |

With log-probabilities the score is Σ p(v)·v over the grid, else the number in the text.
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
from rrm.errors import EngineError
from rrm.judge.expected_score import expected_score
from rrm.judge.hallucinated_steps import cut_from_critique, cut_from_trace, cut_notice
from rrm.judge.score_text import open_think, outside_think, parse_reply, without_thoughts
from rrm.prompt.prompter import GRID


@dataclass(frozen=True)
class TranscriptFacts:
    id: str
    n_steps: int  # findings on later steps are dropped
    truncated_tokens: int = 0


@dataclass(frozen=True)
class Judgement:
    status: Status
    trace: str | None = None
    critique: str | None = None
    raw_score: float | None = None
    off_grid_mass: float | None = None  # set exactly where `raw_score` is an expectation over the grid
    text_score: float | None = None  # number in the text, where `raw_score` is an expectation
    reason: str | None = None
    coverage: float | None = None  # share of the transcript's tokens that was read
    findings: tuple[Finding, ...] | None = None  # None: parse them from the critique
    temperature: float | None = None  # of the sampled reply, where known
    criteria: Mapping[str, CriterionAnswer] | None = None  # answers that could be read, of a judge with criteria
    about: Mapping[str, Any] | None = None  # further `judge` fields of the row
    usage: Usage | None = None


MOST = 4000  # last characters of an unreadable reply that are sent back
SCORE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"score": {"type": "number", "enum": list(GRID)}},
    "required": ["score"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Repair:
    """A second request for a reply that cannot be read.

    Args:
        problem: returns why a reply cannot be read; None: it can, or is not worth another request.
        form: the required form of the new reply.
        replaces_reply: the new reply replaces the old one; else only its score is taken.
    """

    problem: Callable[[Request, Reply], str | None]
    form: str
    schema: dict[str, Any] | None = None
    replaces_reply: bool = True


@dataclass(frozen=True)
class _Again:
    request: Request
    reply: Reply
    problem: str


def with_repair(engine: ChatEngine, answered: Answered, repair: Repair) -> Answered:
    """Wrap `answered` to ask once more for an unreadable reply; not for scripted engines."""
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
        quoted = outside_think(open_think(reply.text)).strip()[-MOST:] or "(nothing outside the reasoning)"
        prompt = f"Your reply cannot be read: {problem}. {repair.form}"
        messages = [*request.messages, {"role": "assistant", "content": quoted}, {"role": "user", "content": prompt}]
        about = _Again(request, reply, problem)
        return Request(messages, f"{request.key}/repair", begins=False, about=about, json_schema=repair.schema)

    return heard


def is_repair(request: Request) -> bool:
    return isinstance(request.about, _Again)


def repair_notice(reply: Reply) -> str | None:
    return reply.repaired and f"asked once more, as the first reply could not be read: {reply.repaired}"


def _joined(again: _Again, reply: Reply | EngineError, repair: Repair) -> Reply:
    first, usage = again.reply, total_of((again.reply.usage, reply.usage))
    if isinstance(reply, EngineError):
        return replace(first, usage=usage, repaired=f"{again.problem}; asked once more: {reply}")
    if repair.replaces_reply:
        return replace(reply, usage=usage, repaired=again.problem)
    parsed = parse_reply(open_think(first.text), ended=True)
    texts = ((parsed.trace, "think"), (parsed.critique, "critique"))
    prefix = "".join(f"<{tag}>{text}</{tag}>" for text, tag in texts if text)
    return replace(reply, text=prefix + outside_think(open_think(reply.text)), usage=usage, repaired=again.problem)


def score_problem(request: Request, reply: Reply) -> str | None:
    return parse_reply(open_think(reply.text), ended=True).problem


SCORE = Repair(
    score_problem,
    'Reply with nothing but the JSON object {"score": NUMBER}, the number from 0.0 to 1.0 with one decimal.',
    SCORE_SCHEMA,
    replaces_reply=False,
)


def sampled_as(engine: ChatEngine, params: SamplingParams) -> dict[str, Any]:
    # known once the server has answered
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
    """Pass every row's reply to `take`; a spending limit skips rows from one that `begins`."""

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
    """Combine judgements into one Feedback: mean score, texts of the judgement nearest to it (pure)."""
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
    scores = [(j.raw_score if expected or j.text_score is None else j.text_score) or 0.0 for j in scored]
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
    judgement: Judgement,
    info: JudgeInfo,
    raw: float | None,
    score: float | None,
    reason: str | None,
    usage: Usage | None,
) -> Feedback:
    trace, phantoms = (
        cut_from_trace(judgement.trace, item.n_steps) if judgement.trace else (judgement.trace, set[int]())
    )
    critique, more = (
        cut_from_critique(judgement.critique, item.n_steps) if judgement.critique else (judgement.critique, set[int]())
    )
    findings = (
        parse_findings(judgement.critique, item.n_steps) if judgement.findings is None else list(judgement.findings)
    )
    return Feedback(
        id=item.id,
        status=judgement.status,
        criteria=None if judgement.criteria is None else dict(judgement.criteria),
        score=score,
        raw_score=raw,
        trace=trace,
        critique=critique,
        findings=findings,
        truncated_tokens=item.truncated_tokens,
        coverage=judgement.coverage,
        usage=usage,
        judge=info.model_copy(update=dict(judgement.about)) if judgement.about else info,
        reason="; ".join(filter(None, (reason, cut_notice(phantoms | more)))) or None,
    )


def read_reply(reply: Reply | EngineError) -> Judgement:
    """Parse a reply into its judgement or typed failure (see the table at the top)."""
    if isinstance(reply, EngineError):
        return Judgement(
            "too_long" if reply.kind == "too_long" else "judge_error", reason=str(reply), usage=reply.usage
        )
    text = open_think(reply.text)
    parsed = parse_reply(text, ended=reply.stop_reason != "length")
    again = repair_notice(reply)
    if parsed.score is None:
        reason = _why_cut(reply, text) if parsed.cut else "; ".join(filter(None, (parsed.problem, again)))
        status: Status = "truncated" if parsed.cut else "unparsable"
        return Judgement(status, parsed.trace, parsed.critique, reason=reason, usage=reply.usage)
    expected = expected_score(reply, parsed.score)
    score, off_grid = expected or (parsed.score, None)
    text_score = parsed.score if expected else None
    return Judgement(
        "scored", parsed.trace, parsed.critique, score, off_grid, text_score, reason=again, usage=reply.usage
    )


def _why_cut(reply: Reply, text: str) -> str:
    thought = reply.usage.reasoning_tokens if reply.usage is not None else 0
    if "<think>" in without_thoughts(text) or (thought and not text.strip()):
        # all tries' tokens are counted together, so of one alone it is known how long it thought
        after = f" after {thought} tokens of it" if thought and reply.usage and reply.usage.requests == 1 else ""
        return f"cut off by length inside its thinking{after}: raise --thinking-tokens, or lower --reasoning-effort"
    return "cut off by length before a complete score"
