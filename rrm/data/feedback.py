"""Feedback: a judge's result for one trajectory, and the parser of its text.

Format of the text (compatible with Agent-RRM, arXiv 2601.22154, §3):

    <think>step-by-step analysis</think><critique>[step 2] bad: what to fix</critique><score>0.7</score>
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field

from rrm.data.annotation import Finding, OutOfDomain, Verdict
from rrm.data.blocks import ParsedJudgement as ParsedJudgement
from rrm.data.blocks import parse_judgement as parse_judgement
from rrm.data.blocks import parse_score as parse_score
from rrm.data.jsonl import read_lines
from rrm.data.usage import Usage
from rrm.data.verdicts import read_findings

# `full`: trace, critique, score; `critique`: no trace; `score`: no text; `steps`: each step's p_good and the score, no text
Mode = Literal["full", "critique", "score", "steps"]
OUTSIDE = "outside what this judge was measured on"  # text for a row with `out_of_domain`
Status = Literal["scored", "unparsable", "truncated", "too_long", "judge_error"]

_ANCHOR = re.compile(r"\[step (\d{1,6})\][ \t]*(?:(good|bad)[ \t]*:)?[ \t]*(.*?)(?=\[step \d{1,6}\]|\Z)", re.DOTALL)


class CriterionAnswer(BaseModel):
    """A judge's answer to one question of its criteria (`rrm.prompt.criteria`)."""

    value: float | None = Field(default=None, ge=0.0, le=1.0)  # in [0, 1]; None: not applicable
    label: str | None = None  # the scale's word; None for a number
    why: str | None = None
    steps: list[int] = Field(default_factory=list)  # they count from 1


class Ranked(BaseModel):
    """Rank of an attempt among those at its question (`rrm.judge.rank`)."""

    # 1 is best; equal scores share a position
    position: int = Field(ge=1, validation_alias=AliasChoices("position", "place"))
    n_compared: int = Field(ge=2, validation_alias=AliasChoices("n_compared", "among"))
    # prompts; 0 where all attempts are equal
    n_batches: int = Field(ge=0, validation_alias=AliasChoices("n_batches", "heats"))
    group: str  # hash over all attempts' contents: the score is relative to them


class ImagesRead(BaseModel):
    shown: int = Field(ge=0)
    of: int = Field(ge=1)  # pictures in the transcript
    # counts of the others by reason; a placeholder text replaced them
    left_out: dict[str, int] = Field(default_factory=dict)


class JudgeInfo(BaseModel):
    """Everything needed to reproduce a score."""

    model: str  # directory, hub id or `openai:URL#model`
    model_hash: str | None = None
    prompt_version: str
    mode: Mode
    seed: int = 0
    # `expected`: Σ p(v)·v over the grid; `sampled`: the number in the text (a server without log-probabilities)
    score_source: Literal["expected", "sampled"] | None = None
    off_grid_mass: float | None = None  # probability outside the grid values, before renormalisation
    transcript_tokens: int | None = None  # budget of the rendered transcript
    max_new_tokens: int | None = None  # of a reply
    dtype: str | None = None  # of the computation; None for a server
    temperature: float | None = None  # None: nothing was sampled (local `score` mode), or the server chose
    left_out: list[str] | None = None  # parameters that the server refused, such as `temperature`
    # other request parameters that change answers (`reasoning_effort`, `extra_body`, `thinking_tokens`)
    request: dict[str, Any] | None = None
    calibrated: bool | None = None  # False: `score` is `raw_score`; None without a score
    # a step is good from this `p_good` on; None without `p_good`, and in older rows
    threshold: float | None = Field(default=None, ge=0.0, le=1.0)
    # the judge abstains where `p_good` lies strictly between these; None: never
    unsure_band: tuple[float, float] | None = None
    # handling of transcripts outside the judge's domain (`rrm score --out-of-domain`); None: it cannot tell
    out_of_domain: OutOfDomain | None = None
    # a run is good from a score of this on, bad from 1 − this down, else unsure (`rrm calibrate --agreement`); None: no promise
    least_sure: float | None = None
    criteria: str | None = None  # name and hash of the criteria; None: the fixed rubric
    answered_in: Literal["schema", "tags"] | None = None  # format of the answers to criteria
    # whether the judge read the reference answer: its texts must then not reach an agent
    saw_reference: bool | None = None
    samples: int = 1
    score_std: float | None = None  # of the raw scores over `samples`; None for one sample


class SmallJudge(BaseModel):
    """Verdicts of a cascade's small judge (`rrm.scoring.cascade`)."""

    findings: list[Finding] = Field(default_factory=list)


class Feedback(BaseModel):
    """One judgement. `score` (calibrated) and `raw_score` are None unless `status == "scored"`."""

    id: str
    status: Status
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    raw_score: float | None = Field(default=None, ge=0.0, le=1.0)
    trace: str | None = None
    critique: str | None = None
    findings: list[Finding] = Field(default_factory=list)
    criteria: dict[str, CriterionAnswer] | None = None
    """Answers by question name, also of rows without a score; None without criteria."""
    rank: Ranked | None = None
    """The attempts that a relative score was compared with."""
    truncated_tokens: int = 0
    """Transcript tokens beyond the judge's budget."""
    coverage: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share of the transcript's text tokens that the judge read; None in older rows."""
    verdict: Verdict | None = None
    """Verdict on the whole run, by a judge calibrated with `--agreement` (`judge.least_sure`)."""
    images: ImagesRead | None = None
    """Counts of pictures; `coverage` counts text only."""
    out_of_domain: bool | None = Field(default=None, validation_alias=AliasChoices("out_of_domain", "outside"))
    """True: the transcript's form is unlike the judge's training data; None: it cannot tell."""
    domain_distance: float | None = Field(
        default=None, ge=0.0, validation_alias=AliasChoices("domain_distance", "outside_distance")
    )
    """Distance to the nearest training transcripts, in thresholds: above 1 is outside."""
    usage: Usage | None = None
    """A server's usage for this row, failed tries included."""
    judge: JudgeInfo
    small_judge: SmallJudge | None = Field(default=None, exclude=True)
    """Of an escalated row; read only."""
    reason: str | None = None
    """The error, where not `scored`; else samples that failed, steps that were invented, or verdicts that contradict the score."""

    @property
    def abstains(self) -> bool:
        """True where the judge gives no verdicts because the transcript is out of domain."""
        return bool(self.out_of_domain) and self.judge.out_of_domain == "unsure"

    @classmethod
    def from_json(cls, line: str) -> Feedback:
        return cls.model_validate(json.loads(line))


@dataclass(frozen=True)
class Reads:
    # of all prompts, once where a local model reads one for several samples; for a server's slots, the prompt up to each
    tokens: int
    readings: int  # replies or scores of all samples
    coverage: float  # share of the transcript's tokens in the prompts
    # upper bound without repeated replies, one a slot; None: the judge's server limit for each reply
    written: int | None = None


def parse_findings(critique: str | None, n_steps: int) -> list[Finding]:
    """Parse the verdicts of a critique in any spelling.

    Unreadable ones are `unclear`; other steps than 1 … n_steps are dropped; several findings on one step are all kept.
    """
    return read_findings(critique, n_steps) if critique else []


def written_findings(critique: str, n_steps: int) -> list[Finding]:
    """Parse `[step k] good|bad: text` strictly, for rewards; an anchor without a verdict is `unclear`."""
    lines: list[tuple[int, Verdict, str]] = [
        (int(k), verdict or "unclear", text) for k, verdict, text in _ANCHOR.findall(critique)
    ]
    return [Finding(step=k, verdict=v, text=" ".join(text.split())) for k, v, text in lines if 1 <= k <= n_steps]


def format_findings(findings: Iterable[Finding]) -> str:
    return "\n".join(f"[step {f.step}] {f.verdict}: {f.text}" for f in findings)


def clear(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.decided]


def read_feedback(path: Path) -> list[Feedback]:
    """Read the rows of `rrm score`; of a repeated id the last counts."""
    rows = read_lines(path, Feedback.from_json, "a row of `rrm score`")
    return list({row.id: row for row in rows}.values())
