"""Feedback: what a judge says of one trajectory, and the parser of the judge's own text.

The text a judge writes (compatible with the Agent-RRM of arXiv 2601.22154, §3):

    <think>step-by-step analysis</think><critique>[step 2] bad: what to fix</critique><score>0.7</score>

Only a judge's continuation is ever parsed, never a transcript. A failure keeps its status and is never a number.
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

Mode = Literal["full", "critique", "score", "steps"]
"""What a judge gives: `full` trace, critique, score; `critique` without the trace; `score` alone; `steps` the probability that
each step was good, and the score, without a word of text."""
OUTSIDE = "outside what this judge was measured on"
"""What is said of a row that is marked `out_of_domain`."""
Status = Literal["scored", "unparsable", "truncated", "too_long", "judge_error"]

_ANCHOR = re.compile(r"\[step (\d{1,6})\][ \t]*(?:(good|bad)[ \t]*:)?[ \t]*(.*?)(?=\[step \d{1,6}\]|\Z)", re.DOTALL)


class CriterionAnswer(BaseModel):
    """A judge's answer to one question of its criteria (`rrm.prompt.criteria`)."""

    value: float | None = Field(default=None, ge=0.0, le=1.0)
    """What it counts in the score; None: it has no value (not applicable)."""
    label: str | None = None
    """The answer as the scale has it; None where it is a number."""
    why: str | None = None
    steps: list[int] = Field(default_factory=list)
    """Those it speaks of, from 1."""


class Ranked(BaseModel):
    """How an attempt came out among the attempts at its question (`rrm.judge.rank`). Older rows say `place`, `among` and `heats`."""

    position: int = Field(ge=1, validation_alias=AliasChoices("position", "place"))
    """1 the best; those with equal scores share one."""
    n_compared: int = Field(ge=2, validation_alias=AliasChoices("n_compared", "among"))
    """Attempts that were placed."""
    n_batches: int = Field(ge=0, validation_alias=AliasChoices("n_batches", "heats"))
    """Prompts that placed it; 0 where all attempts have equal contents."""
    group: str
    """Hash over the contents of all attempts: with others the score would be another."""


class ImagesRead(BaseModel):
    """What a judge was shown of a transcript's pictures."""

    shown: int = Field(ge=0)
    of: int = Field(ge=1)
    """How many the transcript holds."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """Those that were not shown, by reason; words stood in their places."""


class JudgeInfo(BaseModel):
    """Everything needed to reproduce a score."""

    model: str
    """Directory, hub id or `openai:URL#model`, with a content hash where the weights are local."""
    model_hash: str | None = None
    prompt_version: str
    mode: Mode
    seed: int = 0
    score_source: Literal["expected", "sampled"] | None = None
    """`expected`: Σ p(v)·v over the grid; `sampled`: the number in the text (a server without log-probabilities)."""
    off_grid_mass: float | None = None
    """Probability the model put on anything but a grid value, before renormalisation."""
    transcript_tokens: int | None = None
    """Budget of the rendered transcript, in tokens."""
    max_new_tokens: int | None = None
    """Most tokens of a reply."""
    dtype: str | None = None
    """Numbers the weights are computed in; None for a server."""
    temperature: float | None = None
    """The reply was sampled at; None where nothing was sampled (`score` mode of a local judge) or the server chose."""
    left_out: list[str] | None = None
    """Parameters that the server refuses and chose itself: `temperature`, where 0 was asked for and replies may vary; None: none."""
    request: dict[str, Any] | None = None
    """What else was asked of a server that varies its answers (`reasoning_effort`, `extra_body`, `thinking_tokens`); None: nothing."""
    calibrated: bool | None = None
    """Whether `score` was calibrated for this mode, or is `raw_score` as it is; None without a score."""
    threshold: float | None = Field(default=None, ge=0.0, le=1.0)
    """A step is called good from this `p_good` on; None where no finding has one (and in rows of an older version)."""
    unsure_band: tuple[float, float] | None = None
    """The judge abstains on a step whose `p_good` lies strictly between these; None: on none for this reason."""
    out_of_domain: OutOfDomain | None = None
    """What becomes of verdicts on a transcript outside what it was measured on (`rrm score --out-of-domain`); None: it cannot tell."""
    criteria: str | None = None
    """Name and hash of the criteria whose questions were asked; None: the fixed rubric."""
    answered_in: Literal["schema", "tags"] | None = None
    """Of criteria: how the answers came, by JSON schema or in tags."""
    saw_reference: bool | None = None
    """Whether the judge read the reference answer: its texts must then reach no agent. None as in rows of a fixed rubric: no."""
    samples: int = 1
    score_std: float | None = None
    """Standard deviation of the raw scores over `samples`, None for one sample."""


class Feedback(BaseModel):
    """One judgement. `score` and `raw_score` are None unless `status == "scored"`."""

    id: str
    """The trajectory's id."""
    status: Status
    score: float | None = Field(default=None, ge=0.0, le=1.0)
    """Calibrated score in [0, 1]."""
    raw_score: float | None = Field(default=None, ge=0.0, le=1.0)
    """The score before calibration."""
    trace: str | None = None
    critique: str | None = None
    findings: list[Finding] = Field(default_factory=list)
    criteria: dict[str, CriterionAnswer] | None = None
    """The answers by the question's name, those that were read of a row without a score, too; None without criteria."""
    rank: Ranked | None = None
    """Of a relative score, which says nothing of how good an attempt is: among whom it was placed."""
    truncated_tokens: int = 0
    """Transcript tokens the judge did not see (budget)."""
    coverage: float | None = Field(default=None, ge=0.0, le=1.0)
    """Share of the transcript's tokens of text that the judge read, 1 for all; None where that is not known (rows of an older version)."""
    images: ImagesRead | None = None
    """Of a transcript with pictures: which of them the judge saw; coverage counts text alone."""
    out_of_domain: bool | None = Field(default=None, validation_alias=AliasChoices("out_of_domain", "outside"))
    """`outside` in older rows. Whether the transcript's form is unlike all that the judge was trained on (`rrm.judge.domain`): what was measured of the judge
    says nothing of such a row. None: the judge has no `domain.json`, or there is no step."""
    domain_distance: float | None = Field(
        default=None, ge=0.0, validation_alias=AliasChoices("domain_distance", "outside_distance")
    )
    """How far it is from the nearest training transcripts, in thresholds: above 1 is outside."""
    usage: Usage | None = None
    """What a server used for this row, tries that failed included; None: no server was asked (and rows of an older version)."""
    judge: JudgeInfo
    reason: str | None = None
    """What went wrong, where the status is not `scored`; of a scored row: samples that failed, steps that were made up."""

    @property
    def abstains(self) -> bool:
        """Whether the judge gives no verdict on any step, as the transcript is outside what it was measured on."""
        return bool(self.out_of_domain) and self.judge.out_of_domain == "unsure"

    @classmethod
    def from_json(cls, line: str) -> Feedback:
        """A row of `rrm score`, lone surrogates and all; `ValueError` on a line that is none."""
        return cls.model_validate(json.loads(line))


@dataclass(frozen=True)
class Reads:
    """What a judge reads of one transcript."""

    tokens: int
    """Of all its prompts together, as often as they are read: a prompt that a model here reads for several samples at once counts
    once; what later windows are told differs from sample to sample. A server's slots: the prompt as far as each."""
    readings: int
    """Replies or scores that are asked for, of all samples."""
    coverage: float
    """Share of the transcript's tokens that they show."""
    written: int | None = None
    """Tokens that are written at most where no reply is asked for twice, a slot counted as one; None: as many a reply as the judge asks a server for."""


def parse_findings(critique: str | None, n_steps: int) -> list[Finding]:
    """What a judge's critique says of each step, however it spells it (see `rrm.data.verdicts`).

    A verdict that cannot be read is `unclear`. Anchors to steps that do not exist (k < 1 or k > n_steps) are left out; of
    several lines on a step all are kept.
    """
    return read_findings(critique, n_steps) if critique else []


def written_findings(critique: str, n_steps: int) -> list[Finding]:
    """The lines in exactly the form that judges are trained to write, `[step k] good|bad: text`; for their rewards.

    An anchor without such a verdict is `unclear`.
    """
    found: list[tuple[int, Verdict, str]] = [
        (int(k), verdict or "unclear", text) for k, verdict, text in _ANCHOR.findall(critique)
    ]
    return [Finding(step=k, verdict=v, text=" ".join(text.split())) for k, v, text in found if 1 <= k <= n_steps]


def format_findings(findings: Iterable[Finding]) -> str:
    """One anchored line a finding, `[step k] verdict: text`: what judges are trained to write, and `parse_findings` reads."""
    return "\n".join(f"[step {f.step}] {f.verdict}: {f.text}" for f in findings)


def clear(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that say good or bad: what is unclear or unsure is not passed on as a label."""
    return [f for f in findings if f.decided]


def read_feedback(path: Path) -> list[Feedback]:
    """The rows of `rrm score`; of a row judged again (an id twice) the last counts."""
    rows = read_lines(path, Feedback.from_json, "a row of `rrm score`")
    return list({row.id: row for row in rows}.values())
