"""The config section `guards`: which guards watch a judge that is learned from, and when each fires."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from reagent.config_types import Count, Positive, Share
from reagent.feedback.settings import FeedbackJudgeOptions
from rrm.config import Section
from rrm.data.feedback import Mode as JudgeMode


class GuardConfig(Section):
    """What every guard has."""

    action: Literal["none", "warn", "stop"] = "warn"
    """`none` does not look; `stop` ends the training where the guard fires, with a checkpoint; exit code 3."""
    patience: Count = 1
    """Evaluations (updates, where the guard watches those) running that its condition must hold for."""


class SuccessGuard(GuardConfig):
    """Held-out success falls, by more than chance, and the judge does not see it."""

    drop: Positive = 0.05
    """How far success is below its best, means of one to eight evaluations, while the judge's mean score has not followed: by half of
    what it differs with success."""


class DriftGuard(GuardConfig):
    """The judge's mean score moves beyond what held-out success explains."""

    gap: Positive = 0.15
    """How much further than success the score has risen since the first evaluation; by more than chance, too."""


class LengthGuard(GuardConfig):
    """Episodes grow or shrink."""

    patience: Count = 3
    ratio: float = Field(default=2.0, gt=1, allow_inf_nan=False)
    """Mean action tokens, or turns, against those of the first three updates: above it, or below 1/ratio."""


class OutsideGuard(GuardConfig):
    """Attempts are unlike what the judge that pays was measured on."""

    share: float = Field(default=0.5, ge=0, lt=1, allow_inf_nan=False)
    """Of an update's judgements that say whether they are of such a one, above which it fires."""


class KLGuard(GuardConfig):
    """The policy leaves the one it started from."""

    patience: Count = 2
    max: Positive | None = None
    """Nats a token, of an update's sampled tokens while it learns from them (`kl`, by k3 where `loss.kl_coef` is 0: a forward of
    the start policy more an update); null: no limit."""


class AuditorGuard(GuardConfig):
    """A second judge, whose word pays nothing, disagrees with the first."""

    judge: str | None = None
    """As `feedback.judge`; another model, or another kind of judge, than the one that pays. null: none."""
    judge_options: FeedbackJudgeOptions = Field(default_factory=FeedbackJudgeOptions)
    judge_mode: JudgeMode = "score"
    share: Share = 0.25
    """Of an update's tasks, drawn by seed, whose first attempts it reads; of an evaluation's it reads all."""
    fall: Positive = 0.05
    """How far its mean score is below its best, by more than chance, while the first judge's has not followed."""
    min_correlation: float = Field(default=0.0, ge=-1, le=1)
    """Rank correlation of the two judges' scores, between attempts at one task where there are several, below which by more than chance
    they disagree."""


class GuardsConfig(Section):
    """Guards against a judge that is gamed (reagent.train.guards), where anything a judge says is learned from; `kl` in every mode. They change nothing in what is learned, and may be changed when a run is continued."""

    renamed: ClassVar = {"outside": "out_of_domain"}
    evaluate: bool = True
    """With `eval.every`: the policy is also evaluated before its first update, and the judge reads every evaluation."""
    keep_best: bool = True
    """Keep the policy of the best evaluation in `best/`."""
    success: SuccessGuard = Field(default_factory=SuccessGuard)
    drift: DriftGuard = Field(default_factory=DriftGuard)
    length: LengthGuard = Field(default_factory=LengthGuard)
    out_of_domain: OutsideGuard = Field(default_factory=OutsideGuard)
    kl: KLGuard = Field(default_factory=KLGuard)
    auditor: AuditorGuard = Field(default_factory=AuditorGuard)
