"""The config section `feedback`: the judge in training, and how its feedback is used."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError, field_validator, model_serializer, model_validator

from reagent.config_types import NotNegative
from rrm.config import Section, explain
from rrm.data.annotation import OutOfDomain
from rrm.data.feedback import Mode as JudgeMode

ModeName = Literal["none", "c", "r", "u", "process", "retry", "placebo", "shuffled"]
Refinement = Literal["critique", "retry", "placebo", "none"]
SCORED: tuple[ModeName, ...] = ("c", "r", "u", "process", "placebo")


class AuxConfig(Section):
    """Mode `u`: weights of the mean NLL, in nats a token, of the judge's texts given (q, o1); 0: off."""

    trace: float = Field(default=0.05, ge=0.0, allow_inf_nan=False)
    critique: float = Field(default=0.05, ge=0.0, allow_inf_nan=False)
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Share of an update's first attempts, evenly spread, whose texts are learned."""


class ProcessConfig(Section):
    """Mode `process`: what the judge's verdict on each turn adds to the turn's reward."""

    renamed: ClassVar = {"max_paid": "max_rewarded_steps"}
    pay: Literal["findings", "spread", "shaping"] = "findings"
    """`findings`: each finding on a turn, as below. With Φ of the attempt up to a turn's end:
    `spread`: λ·(Φ after the turn − Φ before it), 0 for the first Φ, the score s for the last: λ·s in sum, as mode `r`.
    `shaping`: the same with 0 for the last, so 0 in sum: the environment's optimum stays (Ng, Harada and Russell 1999)."""
    judge_mode: JudgeMode | None = None
    """The judge's mode in which turns are judged. null: `critique_mode`, or for Φ `score_mode`.
    Φ under `steps` is the lowest p_good so far, one prefill an attempt; else the score of the prefix, a judgement a turn."""
    good: NotNegative = 0.05
    """`findings`: with a probability (`p_good`, mode `steps`) a turn earns p · good, or (1 − p) · bad."""
    bad: float = Field(default=-0.05, le=0.0, allow_inf_nan=False)
    max_rewarded_steps: int | None = Field(default=4, ge=0)
    """Good turns, and bad ones, that are paid in an episode, the first of each; null: all."""


class FeedbackJudgeOptions(Section):
    """Options of the judge, as in `AgentRRM.from_pretrained`; null leaves them to it."""

    settings: str | None = None
    """Directory or hub id of the judge served at `openai:…`, for its calibration and budgets."""
    revision: str | None = None
    device: str | None = None
    """Device of a judge in this process; null, here and in the next two keys: the policy's."""
    attn_implementation: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    batch_tokens: int | None = Field(default=None, ge=1)
    max_transcript_tokens: int | None = Field(default=None, ge=1)
    max_new_tokens: int | None = Field(default=None, ge=1)
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    concurrency: int | None = Field(default=None, ge=1)
    out_of_domain: OutOfDomain | None = None
    """`unsure` (default): no step verdicts, critique or trace out of domain; `keep`: keep them."""

    @property
    def chosen(self) -> dict[str, Any]:
        return {name: value for name, value in self.model_dump().items() if value is not None}


class EscalateConfig(Section):
    """A stronger judge for attempts that `feedback.judge` is unsure of (`rrm.scoring.escalating`)."""

    model: str = Field(min_length=1)
    price: str | None = None
    """`IN,OUT[,CACHED]`, of a million tokens each."""
    max_cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Cost (needs `price`) after which nothing more is asked; earlier runs in this folder count."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    concurrency: int | None = Field(default=None, ge=1)


class CriteriaStage(Section):
    """Criteria, and the update from which they are asked."""

    first: int = Field(alias="from", ge=0, strict=True)
    """First update that is judged by them, counted from 0; `from` in a config."""
    file: str = Field(min_length=1)
    """A file or a shipped name."""

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {"from": self.first, "file": self.file}


def _stage(number: int, value: Any) -> CriteriaStage:
    if not isinstance(value, dict | CriteriaStage):
        raise ValueError(f"stage {number} is no {{from: UPDATE, file: FILE}}")
    try:
        return CriteriaStage.model_validate(value)
    except ValidationError as error:
        raise ValueError("; ".join(explain(error, CriteriaStage, f"stage {number}").splitlines())) from error


class RecalibrateConfig(Section):
    """The judge's calibration, refitted on graded attempts (`reagent.feedback.recalibration`)."""

    rows: int = Field(default=512, ge=10)
    """The last graded attempts with a score that are fitted on."""
    min_rows: int = Field(default=64, ge=10)
    """Fitting begins with so many, and"""
    min_each: int = Field(default=8, ge=1)
    """so many successes, and failures."""

    @model_validator(mode="after")
    def _room_for_both(self) -> RecalibrateConfig:
        if self.rows < max(self.min_rows, 2 * self.min_each):
            raise ValueError(
                f"feedback.recalibrate.rows={self.rows} can never hold min_rows={self.min_rows} and min_each="
                f"{self.min_each} of both outcomes: raise rows"
            )
        return self


class FeedbackConfig(Section):
    """Feedback in training and evaluation. λ and o1, o2 as in arXiv 2601.22154, §4."""

    mode: ModeName = "none"
    """`none`; `c` critique, `r` score, `u` both and the judge's texts; `process` findings as turn rewards.
    Controls: `retry`, `placebo` of `c`, without a critique or with another task's; `shuffled` of `none`, rewards dealt anew."""
    judge: str = "lab"
    """Judge, named as for `rrm score --model`: `lab` (search lab only), `default`, directory, hub id, `openai:URL#model`."""
    judge_options: FeedbackJudgeOptions = Field(default_factory=FeedbackJudgeOptions)
    escalate: EscalateConfig | None = None
    criteria: str | list[CriteriaStage] | None = None
    """Questions for a chat judge instead of the fixed rubric (`rrm.prompt.criteria`): file or shipped one.
    s is the weighted mean of its answers; a missing one, or one off its scale, is a failed judgement. Stages of a training:
    `[{from: 0, file: simple.yaml}, {from: 8, file: hard.yaml}]`; update 8 and those after it are judged by the second."""
    score_from: Literal["judge", "rank"] = "judge"
    """`rank` (mode `r`): s compares the attempts at one task (`rrm.judge.rank`), with a mean of ½."""
    score_mode: JudgeMode = "score"
    """The judge's mode for scores in rewards: `score` is one prefill; `full` reasons before it scores."""
    critique_mode: Literal["critique", "full"] = "critique"
    """The judge's mode for critiques; mode `u` with `aux.trace` always takes `full`."""
    score_weight: NotNegative = 0.3
    """λ of R_env + λ·s, s in [0, 1]. 0: the judge pays nothing."""
    failure_reward: float | None = Field(default=0.0, ge=-1.0, le=1.0)
    """s of a failed judgement that the policy may have caused (unreadable reply, transcript too long).
    Mode `process`: every turn then counts as bad; with a score below ½ and no bad finding, each turn not found good. null, and
    where the judge could not be reached: the reward is unknown, and the row left out."""
    score_schedule: Literal["constant", "linear"] = "constant"
    """`linear`: λ falls to 0 at max_updates."""
    refinement: Refinement = "critique"
    """Modes `c` and `u`: what a second attempt reads; `none` (mode `u`): there is no second attempt."""
    train_initial: bool = True
    """Modes `c`, `retry`, `placebo`: also learn from first attempts."""
    critique_chars: int = Field(default=1000, ge=50)
    """Longest critique in a second attempt's prompt, in characters."""
    aux: AuxConfig = Field(default_factory=AuxConfig)
    process: ProcessConfig = Field(default_factory=ProcessConfig)
    recalibrate: RecalibrateConfig | None = None
    """`{}` refits the judge's calibration on graded episodes (`environment.label_share`); null: off."""
    max_failure_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Training stops where a larger share of an update's judgements fails."""

    @field_validator("criteria", mode="before")
    @classmethod
    def _file_or_stages(cls, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        if not isinstance(value, list) or not value:
            raise ValueError("name a file, or stages as [{from: 0, file: simple.yaml}, {from: 8, file: hard.yaml}]")
        stages = [_stage(number, stage) for number, stage in enumerate(value)]
        if stages[0].first:
            raise ValueError(
                f"stage 0 is from {stages[0].first}, so that the updates before it have no criteria: from: 0"
            )
        for number, (before, now) in enumerate(pairwise(stages), 1):
            if now.first <= before.first:
                raise ValueError(
                    f"stage {number} is from {now.first}, and the stage before it from {before.first}: each begins later"
                )
        return stages

    @model_validator(mode="after")
    def _fits_the_mode(self) -> FeedbackConfig:
        if self.recalibrate is not None and self.mode not in SCORED:
            raise ValueError(
                f"feedback.recalibrate needs the judge's scores, which feedback.mode={self.mode} never asks for: "
                f"choose one of {', '.join(SCORED)}, or set feedback.recalibrate=null"
            )
        if self.score_from == "rank" and (self.mode != "r" or self.recalibrate):
            wrong = f"mode={self.mode}" if self.mode != "r" else "recalibrate"
            raise ValueError(
                f"feedback.score_from=rank gives relative scores of first attempts, which feedback.{wrong} has no use for: set "
                "feedback.score_from=judge, or take feedback.mode=r without recalibrate"
            )
        if self.escalate is not None and (self.recalibrate is not None or self.criteria is not None):
            wrong = "criteria" if self.recalibrate is None else "recalibrate"
            raise ValueError(f"feedback.{wrong} is of one judge's answers: leave it out, or feedback.escalate")
        if self.mode == "c" and self.refinement == "none":
            raise ValueError(
                "feedback.mode=c is a second attempt: set feedback.refinement=critique, or feedback.mode=none"
            )
        if self.process.pay == "findings" and self.process.judge_mode == "score":
            raise ValueError("feedback.process.judge_mode=score has no findings: choose critique, full or steps")
        return self

    @property
    def stages(self) -> list[CriteriaStage]:
        if isinstance(self.criteria, str):
            return [CriteriaStage.model_validate({"from": 0, "file": self.criteria})]
        return self.criteria or []

    def stage_at(self, update: int) -> int:
        return max((number for number, stage in enumerate(self.stages) if stage.first <= update), default=0)
