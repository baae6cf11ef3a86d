"""The config section `feedback`: what an Agent-RRM's feedback does in training, and with which judge."""

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
"""Modes in which first attempts are judged."""


class AuxConfig(Section):
    """Mode `u`: weights of the mean negative log-likelihood, in nats a token, of the judge's texts given (q, o1)."""

    trace: float = Field(default=0.05, ge=0.0, allow_inf_nan=False)
    """0 turns it off, as below."""
    critique: float = Field(default=0.05, ge=0.0, allow_inf_nan=False)
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Of an update's first attempts, evenly spread, those whose texts are learned: attempts of one group differ little."""


class ProcessConfig(Section):
    """Mode `process`: what the judge's word on each turn adds to the turn's reward."""

    renamed: ClassVar = {"max_paid": "max_rewarded_steps"}
    pay: Literal["findings", "spread", "shaping"] = "findings"
    """`findings`: each finding on a turn, as below: turns earn more, and the sum differs from attempt to attempt. With Φ of a prefix,
    the attempt up to a turn's end:
    `spread`: λ·(Φ after the turn − Φ before it), the score s standing for the last Φ and 0 for the first: in sum λ·s, what mode `r`
    pays at the end.
    `shaping`: the same with 0 for the last as well, so in sum 0 whatever the policy does: the environment's optimum stays what it
    is (Ng, Harada and Russell 1999), and what nobody can grade teaches nothing. λ is `score_weight`."""
    judge_mode: JudgeMode | None = None
    """The judge's mode in which turns are judged; `steps` writes no text: one prefill. null: `critique_mode`, or for Φ `score_mode`.
    Φ under `steps` is the lowest p_good so far, one prefill an attempt; else the score of the prefix, a judgement a turn."""
    good: NotNegative = 0.05
    """`findings`: where a finding has a probability (`p_good`, the judge's mode `steps`) a good turn earns p · good and a bad one
    (1 − p) · bad: what is doubtful counts for less."""
    bad: float = Field(default=-0.05, le=0.0, allow_inf_nan=False)
    max_rewarded_steps: int | None = Field(default=4, ge=0)
    """Turns found good that an episode is paid for, and turns found bad that it pays for, the first ones of each: with more
    turns it earns no more. null pays for all."""


class FeedbackJudgeOptions(Section):
    """How the judge is run; null leaves it to the judge. As in `AgentRRM.from_pretrained`."""

    settings: str | None = None
    """With `openai:…`: the directory or hub id of the judge that the server serves, for its calibration and budgets."""
    revision: str | None = None
    """Of a hub id."""
    device: str | None = None
    """Of a judge in this process, as below; null: the policy's."""
    attn_implementation: str | None = None
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens held at once: memory."""
    max_transcript_tokens: int | None = Field(default=None, ge=1)
    max_new_tokens: int | None = Field(default=None, ge=1)
    """Of a reply."""
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Of a request to a server, as below."""
    concurrency: int | None = Field(default=None, ge=1)
    """Requests in flight at once."""
    out_of_domain: OutOfDomain | None = None
    """`unsure` (the default of a judge that is loaded here): of an attempt outside what the judge was measured on there is no verdict on a
    step, no critique and no trace; `keep`: these stay. The score is the same."""

    @property
    def chosen(self) -> dict[str, Any]:
        """Those that are set."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class EscalateConfig(Section):
    """A stronger judge for what `feedback.judge` is unsure of (`rrm.scoring.escalating`)."""

    model: str = Field(min_length=1)
    """The stronger judge's name, as `rrm score --escalate` takes it."""
    price: str | None = None
    """`IN,OUT[,CACHED]`, of a million tokens each."""
    max_cost: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """With a price: nothing more is asked once this process's judgements cost so much, those of a run that is gone on with included."""
    max_new_tokens: int | None = Field(default=None, ge=1)
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    concurrency: int | None = Field(default=None, ge=1)


class CriteriaStage(Section):
    """Criteria, and from when on they are asked."""

    first: int = Field(alias="from", ge=0, strict=True)
    """The first update that is judged by them, counted from 0; `from` in a config."""
    file: str = Field(min_length=1)
    """A file or a shipped name."""

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {"from": self.first, "file": self.file}


def _stage(number: int, given: Any) -> CriteriaStage:
    if not isinstance(given, dict | CriteriaStage):
        raise ValueError(f"stage {number} is no {{from: UPDATE, file: FILE}}")
    try:
        return CriteriaStage.model_validate(given)
    except ValidationError as error:
        raise ValueError("; ".join(explain(error, CriteriaStage, f"stage {number}").splitlines())) from error


class RecalibrateConfig(Section):
    """The judge's calibration, fitted anew on graded attempts as training goes on (`reagent.feedback.recalibration`)."""

    rows: int = Field(default=512, ge=10)
    """Of the last graded attempts that have a score; the older ones are another agent's."""
    min_rows: int = Field(default=64, ge=10)
    """So many there must be before anything is fitted, and"""
    min_each: int = Field(default=8, ge=1)
    """so many successes, and failures; until then the judge's own calibration stands."""

    @model_validator(mode="after")
    def _room_for_both(self) -> RecalibrateConfig:
        if self.rows < max(self.min_rows, 2 * self.min_each):
            raise ValueError(
                f"feedback.recalibrate.rows={self.rows} can never hold min_rows={self.min_rows} and min_each="
                f"{self.min_each} of both outcomes: raise rows"
            )
        return self


class FeedbackConfig(Section):
    """Feedback in training and evaluation; `mode` alone switches it. λ and o1, o2 as in arXiv 2601.22154, §4."""

    mode: ModeName = "none"
    """`none`; `c` critique, `r` score, `u` both and the judge's texts; `process` findings as turn rewards; `retry` and
    `placebo`, the controls of `c`: a second attempt without a critique, or with another task's; `shuffled`, that of `none`: rewards
    dealt anew among the attempts at a task."""
    judge: str = "lab"
    """What `rrm score --model` takes: `lab`, `default`, a directory, a hub id, `openai:BASE_URL#model`. `lab` reads runs of the
    search lab alone."""
    judge_options: FeedbackJudgeOptions = Field(default_factory=FeedbackJudgeOptions)
    escalate: EscalateConfig | None = None
    criteria: str | list[CriteriaStage] | None = None
    """Questions that a chat judge answers instead of the fixed rubric, a file or a shipped name (`rrm.prompt.criteria`): s is then the
    weighted mean of its answers, and an answer that is missing or not in its scale a failed judgement. Or stages of a training,
    `[{from: 0, file: simple.yaml}, {from: 8, file: hard.yaml}]`: update 8 and those after it are judged by the second."""
    score_from: Literal["judge", "rank"] = "judge"
    """`rank` (mode `r`): s is relative, a chat judge's comparison of the attempts at one task (`rrm.judge.rank`). The scores of a
    group average to ½, so that the reward says nothing of how good a group is."""
    score_mode: JudgeMode = "score"
    """The judge's mode in which scores for rewards are read: `score` is one prefill; `full` reasons before it scores."""
    critique_mode: Literal["critique", "full"] = "critique"
    """The judge's mode in which critiques are written; mode `u` with `aux.trace` always takes `full`, which has a trace."""
    score_weight: NotNegative = 0.3
    """λ of R_env + λ·s, s in [0, 1]. 0: the judge pays nothing."""
    failure_reward: float | None = Field(default=0.0, ge=-1.0, le=1.0)
    """What stands for s where a judgement failed for something the policy may have caused (the reply could not be read or did
    not end, the transcript was too long): an attempt that confuses its judge earns no more than a bad one. Mode `process`:
    every turn then counts as bad, and with a score below ½ for which no turn is found bad, each that is not found good. The
    score itself stays unknown. null, and where the judge could not be reached: the
    reward is unknown, and the row left out."""
    score_schedule: Literal["constant", "linear"] = "constant"
    """`linear`: λ falls to 0 at max_updates."""
    refinement: Refinement = "critique"
    """Modes `c` and `u`: what a second attempt is shown beside the first; `none` (mode `u`): there is no second attempt."""
    train_initial: bool = True
    """Modes `c`, `retry`, `placebo`: also learn from first attempts."""
    critique_chars: int = Field(default=1000, ge=50)
    """Of the critique as a second attempt is shown it: a judge may write more than `rollout.max_episode_tokens` leaves room for."""
    aux: AuxConfig = Field(default_factory=AuxConfig)
    process: ProcessConfig = Field(default_factory=ProcessConfig)
    recalibrate: RecalibrateConfig | None = None
    """`{}` refits the judge's calibration on the episodes that the environment grades (`environment.label_share`); null: its own
    calibration stands."""
    max_failure_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Training stops where more of an update's judgements fail, whatever `failure_reward` makes of them."""

    @field_validator("criteria", mode="before")
    @classmethod
    def _file_or_stages(cls, given: Any) -> Any:
        if given is None or isinstance(given, str):
            return given
        if not isinstance(given, list) or not given:
            raise ValueError("name a file, or stages as [{from: 0, file: simple.yaml}, {from: 8, file: hard.yaml}]")
        stages = [_stage(number, one) for number, one in enumerate(given)]
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
        """The criteria by the update from which on they are asked; a file alone is one stage."""
        if isinstance(self.criteria, str):
            return [CriteriaStage.model_validate({"from": 0, "file": self.criteria})]
        return self.criteria or []

    def stage_at(self, update: int) -> int:
        """The number of the stage, from 0, that an update is judged in; what comes before the first update is of stage 0."""
        return max((number for number, stage in enumerate(self.stages) if stage.first <= update), default=0)
