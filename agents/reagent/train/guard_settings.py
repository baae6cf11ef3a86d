"""The config section `guards`: guards of a judge that is learned from."""

from typing import ClassVar, Literal

from pydantic import Field

from reagent.config_types import Count, Positive, Share
from reagent.feedback.settings import FeedbackJudgeOptions
from rrm.config import Section
from rrm.data.feedback import Mode as JudgeMode


class GuardConfig(Section):
    action: Literal["none", "warn", "stop"] = "warn"
    """`none`: off; `stop` ends the training with a checkpoint and exit code 3."""
    patience: Count = 1
    """Evaluations (or updates) running that the condition must hold for."""


class SuccessGuard(GuardConfig):
    """Held-out success falls by more than chance, and the judge does not see it."""

    drop: Positive = 0.05
    """Fall of success below its best (means of one to eight evaluations) that the score has not followed."""


class DriftGuard(GuardConfig):
    """The judge's mean score moves beyond what held-out success explains."""

    gap: Positive = 0.15
    """Rise of the score beyond success since the first evaluation; by more than chance, too."""


class LengthGuard(GuardConfig):
    """Episodes grow or shrink."""

    patience: Count = 3
    ratio: float = Field(default=2.0, gt=1, allow_inf_nan=False)
    """Mean action tokens, or turns, against the first three updates': above it, or below 1/ratio."""


class OutsideGuard(GuardConfig):
    """Attempts are unlike those that the paying judge was measured on."""

    share: float = Field(default=0.5, ge=0, lt=1, allow_inf_nan=False)
    """Largest share of out-of-domain attempts among an update's marked judgements."""


class KLGuard(GuardConfig):
    """The policy leaves the one it started from."""

    patience: Count = 2
    max: Positive | None = None
    """Nats a token, of an update's sampled tokens (`kl`, by k3 where `loss.kl_coef` is 0); null: no limit."""


class AuditorGuard(GuardConfig):
    """A second judge, which pays nothing, disagrees with the first."""

    judge: str | None = None
    """Auditing judge, named like `feedback.judge`, of another model or kind than that; null: none."""
    judge_options: FeedbackJudgeOptions = Field(default_factory=FeedbackJudgeOptions)
    judge_mode: JudgeMode = "score"
    share: Share = 0.25
    """Share of an update's tasks, by seed, whose first attempts it reads; of an evaluation it reads all."""
    fall: Positive = 0.05
    """Fall of its mean score below its best, by more than chance, that the first judge's has not followed."""
    min_correlation: float = Field(default=0.0, ge=-1, le=1)
    """Least rank correlation of the judges' scores within tasks, by more than chance."""


class GuardsConfig(Section):
    """Guards against a gamed judge (reagent.train.guards); `kl` in every mode.
    They change nothing in what is learned, and may be changed when a run is continued."""

    renamed: ClassVar = {"outside": "out_of_domain"}
    evaluate: bool = True
    """Evaluate also before the first update (if `eval.every`); the judge reads every evaluation."""
    keep_best: bool = True
    """Keep the policy of the best evaluation in `best/`."""
    success: SuccessGuard = Field(default_factory=SuccessGuard)
    drift: DriftGuard = Field(default_factory=DriftGuard)
    length: LengthGuard = Field(default_factory=LengthGuard)
    out_of_domain: OutsideGuard = Field(default_factory=OutsideGuard)
    kl: KLGuard = Field(default_factory=KLGuard)
    auditor: AuditorGuard = Field(default_factory=AuditorGuard)
