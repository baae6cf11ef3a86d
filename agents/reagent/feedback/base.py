"""The interface between a trainer and feedback: `FeedbackMode.round` plays an update's attempts.

    round = feedback.round(update, feedback.attempts(tasks, start, count, group_size), play)
    metrics = feedback.report(update, every process's round.report)
    learn(round.rows, round.texts)

The trainer learns the rows with the rewards they carry, and the texts with their weights (modes: reagent.feedback.modes).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from reagent.env.task import Task
from reagent.feedback.judging import JudgeFailure, Judging, JudgingReport
from reagent.feedback.recalibration import Recalibration
from reagent.feedback.settings import FeedbackConfig
from reagent.feedback.shaping import weight_at
from reagent.feedback.stages import check_same
from reagent.feedback.texts import SFTRow, TextWriter
from reagent.rollout.attempts import Attempt, PromptHook, plan
from reagent.rollout.episode import Episode
from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, Mode, Status, clear
from rrm.data.trajectory import Message, Trajectory
from rrm.serve.client import RemoteJudge


class Play(Protocol):
    """Plays attempts with the policy as it stands; `prompt_messages`, `on_end`: as in `rollout`."""

    def __call__(
        self,
        attempts: Sequence[Attempt],
        *,
        prompt_messages: PromptHook | None = None,
        on_end: Callable[[Episode], None] | None = None,
    ) -> list[Episode]: ...


@dataclass
class Round:
    played: list[Episode]
    rows: list[Episode]
    texts: list[SFTRow] = field(default_factory=list)
    report: JudgingReport = field(default_factory=JudgingReport)


@dataclass(frozen=True)
class JudgedEpisode:
    episode: Episode
    feedback: Feedback | None
    own_score: float | None = None
    """The score by the judge's own calibration, before `feedback.recalibrate`."""

    @property
    def score(self) -> float | None:
        return None if self.feedback is None else self.feedback.score

    @property
    def policy_may_have_caused(self) -> bool:
        """True where the transcript may be why there is no score (`POLICY_FAILURES`)."""
        return self.score is None and self.feedback is not None and self.feedback.status in POLICY_FAILURES


POLICY_FAILURES: tuple[Status, ...] = ("unparsable", "truncated", "too_long")
"""Failed judgements that a policy can bring about by what it writes."""


def graded_row(judged: JudgedEpisode) -> list[tuple[float, float, float, float]]:
    """(raw, own, paid score, success) of a graded attempt; empty where one of them is unknown."""
    feedback, success = judged.feedback, judged.episode.success
    raw = None if feedback is None else feedback.raw_score
    if raw is None or judged.own_score is None or judged.score is None or success is None:
        return []
    return [(raw, judged.own_score, judged.score, float(success))]


POOR = 0.5
"""Mode `process`: a score below it means a fault, whether or not the judge names the turn."""


def judgeable(episode: Episode) -> bool:
    """True where the episode has a turn and its environment did not fail."""
    return bool(episode.turns) and (episode.ungraded or episode.reward is not None)


def as_judged(episode: Episode, first: Episode | None = None) -> Trajectory:
    """The attempt as the judge reads it: question, then the agent's own messages; step k is its k-th turn.

    A second attempt is shown without first attempt and critique, so that scores of both stages mean the same."""
    source = first or episode
    messages = [*_question(source.trajectory.messages[: source.prompt_messages]), *episode.own_messages]
    return episode.trajectory.model_copy(update={"messages": messages})


def _shown(judging: Judging, episode: Episode, first: Episode | None = None) -> Trajectory:
    """`as_judged`, with the reference answer where the criteria allow it and the task is graded."""
    trajectory, task = as_judged(episode, first), episode.task
    if not judging.sees_reference or task.answer is None or not task.graded:
        return trajectory
    return trajectory.model_copy(update={"meta": {**trajectory.meta, "reference": task.references}})


def _question(prompt: Sequence[Message]) -> list[Message]:
    """The prompt's system messages, and those from the first user message after its examples on."""
    turns = [i for i, message in enumerate(prompt) if message.role == "assistant"]
    if not turns:
        return list(prompt)
    start = next((i for i in range(turns[-1], len(prompt)) if prompt[i].role == "user"), len(prompt))
    return [m for i, m in enumerate(prompt) if i >= start or m.role in ("system", "developer")]


class FeedbackMode(ABC):
    """Base of the modes; `updates`: over which λ's schedule runs."""

    gathers = False
    """True where a round's processes wait for each other."""

    def __init__(
        self,
        settings: FeedbackConfig,
        *,
        judging: Judging | None = None,
        writer: TextWriter | None = None,
        updates: int = 1,
        seed: int = 0,
    ) -> None:
        self.settings, self.updates, self.seed = settings, updates, seed
        self._judging, self._writer = judging, writer
        self.recalibration = Recalibration(settings.recalibrate) if settings.recalibrate else None

    @classmethod
    def asks_judge(cls, settings: FeedbackConfig) -> bool:
        return True

    @classmethod
    def pays_feedback(cls, settings: FeedbackConfig) -> bool:
        """True where feedback is part of the reward, so that ungraded episodes teach something."""
        return False

    @classmethod
    def asks_texts(cls, settings: FeedbackConfig) -> bool:
        """True where the policy reads or learns the judge's texts."""
        return False

    @classmethod
    def writes_texts(cls, settings: FeedbackConfig) -> bool:
        """True where texts of the judge go into the policy's template: auxiliary rows."""
        return False

    @classmethod
    def learns_from_judge(cls, settings: FeedbackConfig) -> bool:
        """True where the judge's feedback pays, chooses attempts, or teaches texts."""
        return cls.asks_judge(settings) and (cls.pays_feedback(settings) or cls.writes_texts(settings))

    @abstractmethod
    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round: ...

    # ---- what is asked of it besides ----

    def attempts(self, tasks: Sequence[Task], start: int, count: int, group_size: int) -> list[Attempt]:
        return plan([tasks[i % len(tasks)] for i in range(start, start + count)], group_size)

    def report(self, update: int | None, reports: Sequence[JudgingReport]) -> dict[str, float]:
        """Merge all processes' reports into metrics (`update` None: an evaluation); refit the calibration.

        Raises JudgeFailure: more judgements failed than `max_failure_rate` allows."""
        total = JudgingReport()
        for report in reports:
            total = total.merge(report)
        self._check(update, total)
        figures = total.figures()
        if update is not None and self._judging is not None and isinstance(self.settings.criteria, list):
            figures["feedback/criteria_stage"] = float(self.settings.stage_at(update))
        if self.recalibration is not None and update is not None:
            figures |= self.recalibration.observe(total.graded)
            if self.settings.stage_at(update + 1) != self.settings.stage_at(update):
                self.recalibration.begin_stage()  # before anything of the next update is judged
        return figures

    def weight(self, update: int) -> float:
        return weight_at(update, self.updates, self.settings.score_weight, self.settings.score_schedule)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = {} if self.recalibration is None else {"recalibration": self.recalibration.state()}
        criteria = [] if self._judging is None else self._judging.criteria
        return state | ({"criteria": criteria} if criteria else {})

    def restore(self, update: int, state: dict[str, Any]) -> None:
        """Continue from a checkpoint's `state`. Raises RRMError: the criteria's questions have changed."""
        if self._judging is not None:
            check_same(self.settings, state.get("criteria"), self._judging.criteria)
            self._judging.resume(update)
        self.rewind(state)

    def rewind(self, state: dict[str, Any]) -> None:
        if self.recalibration is not None and "recalibration" in state:
            self.recalibration.restore(state["recalibration"])

    # ---- for the modes ----

    def play(
        self,
        play: Play,
        attempts: Sequence[Attempt],
        mode: Mode,
        update: int,
        report: JudgingReport,
        firsts: Mapping[str, Episode] | None = None,
        **hooks: Any,
    ) -> list[Episode]:
        """Play attempts; a judge on a server reads each as it ends. `firsts`: by the seconds' `Episode.key`."""
        if self._judging is None:
            return play(attempts, **hooks)
        judging = self._judging.at(update)
        with judging.ahead(mode, update, report) as take:

            def ended(episode: Episode) -> None:
                if judgeable(episode):
                    take(_shown(judging, episode, firsts[episode.key] if firsts is not None else None))

            return play(attempts, on_end=ended, **hooks)

    def judging_at(self, update: int) -> Judging:
        if self._judging is None:
            raise ValueError(f"feedback.mode={self.settings.mode} was made without a judge")
        return self._judging.at(update)

    def judge(
        self,
        episodes: Sequence[Episode],
        mode: Mode,
        update: int,
        report: JudgingReport,
        firsts: Sequence[Episode] = (),
        *,
        by: int | None = None,
    ) -> list[JudgedEpisode]:
        """Judge episodes. `firsts`: of second attempts, in order; `by`: the update whose criteria are asked."""
        judging = self.judging_at(update if by is None else by)
        indices = [i for i, e in enumerate(episodes) if judgeable(e)]
        trajectories = [_shown(judging, episodes[i], firsts[i] if firsts else None) for i in indices]
        feedback = dict(zip(indices, judging.ask(trajectories, mode, update, report), strict=True))
        return [self._judged(e, feedback.get(i)) for i, e in enumerate(episodes)]

    def ranked(
        self, episodes: Sequence[Episode], update: int, report: JudgingReport, *, by: int | None = None
    ) -> list[JudgedEpisode]:
        """First attempts with relative scores, where another attempt at the task could be judged."""
        judging = self.judging_at(update if by is None else by)
        groups: dict[str, list[int]] = {}
        for i, episode in enumerate(episodes):
            if judgeable(episode):
                groups.setdefault(episode.group_id, []).append(i)
        compared = [places for places in groups.values() if len(places) > 1]
        rankings = judging.rank([[_shown(judging, episodes[i]) for i in places] for places in compared], update, report)
        feedback = {
            i: f
            for places, several in zip(compared, rankings, strict=True)
            for i, f in zip(places, several, strict=True)
        }
        return [self._judged(e, feedback.get(i)) for i, e in enumerate(episodes)]

    def _judged(self, episode: Episode, feedback: Feedback | None) -> JudgedEpisode:
        if feedback is None:
            return JudgedEpisode(episode, None)
        return JudgedEpisode(episode, self.recalibrated(feedback), feedback.score)

    def recalibrated(self, feedback: Feedback) -> Feedback:
        return feedback if self.recalibration is None else self.recalibration.apply(feedback)

    @property
    def has_judge(self) -> bool:
        return self._judging is not None

    @property
    def marks_outside(self) -> bool | None:
        """True where the judge marks out-of-domain attempts; None: unknown before it is asked."""
        judge = None if self._judging is None else self._judging.judge
        return None if judge is None or isinstance(judge, RemoteJudge) else judge.domain is not None

    @property
    def judged_in(self) -> Mode:
        return self.settings.score_mode

    def scores(
        self, episodes: Sequence[Episode], update: int, report: JudgingReport, *, by: int | None = None
    ) -> list[float | None]:
        """Scores as paid, by the judge's own calibration, for monitors; nothing is counted."""
        judged = self.judge(episodes, self.judged_in, update, report, by=by)
        return [self.paid_score(j, JudgingReport()) if j.score is None else j.own_score for j in judged]

    def note_scores(self, judged: Sequence[JudgedEpisode], report: JudgingReport, stage: str = "score") -> None:
        for j in judged:
            if j.score is None:
                continue
            success = j.episode.success
            apart = [] if success is None else [f"{stage}_{'success' if success else 'failure'}"]
            for name in (stage, *apart):
                report.counts[f"{name}_sum"] += j.score  # pyright: ignore[reportArgumentType]
                report.counts[f"{name}_n"] += 1
            if self.recalibration is not None and stage == "score" and j.own_score is not None:
                report.counts["own_score_sum"] += j.own_score  # pyright: ignore[reportArgumentType]
                report.counts["own_score_n"] += 1
            if self.recalibration is not None and j.episode.success is not None and not j.episode.ungraded:
                report.graded += graded_row(j)

    def paid_score(self, judged: JudgedEpisode, report: JudgingReport) -> float | None:
        """The score, or `failure_reward` where the policy may have caused the failure."""
        if not judged.policy_may_have_caused or self.settings.failure_reward is None:
            return judged.score
        report.counts["floored"] += 1
        return self.settings.failure_reward

    def paid_findings(self, judged: JudgedEpisode, report: JudgingReport) -> list[Finding] | None:
        """The findings that the reward pays; None where there is no judgement.

        With `failure_reward` set, every turn is bad where the policy may have caused the failure, and each turn not found good is
        bad where a poor score has no bad finding. Turns on which the judge abstains are paid nothing."""
        turns, floor = len(judged.episode.turns), self.settings.failure_reward
        findings: list[Finding] = []
        if judged.score is not None and judged.feedback is not None:
            findings = judged.feedback.findings
            verdicts = {f.verdict for f in clear(findings) if f.step <= turns}
            report.counts["without_finding"] += not verdicts
            if floor is None or "bad" in verdicts or judged.score >= POOR:
                return findings
        elif not judged.policy_may_have_caused or floor is None:
            return None
        report.counts["floored"] += 1
        spared = {f.step for f in findings if f.verdict in ("good", "unsure")}
        return [*findings, *(Finding(step=k, verdict="bad") for k in range(1, turns + 1) if k not in spared)]

    def note_rewards(self, rows: Sequence[Episode], report: JudgingReport) -> None:
        rewards = [row.reward for row in rows if row.reward is not None]
        report.counts["reward_sum"] += sum(rewards)  # pyright: ignore[reportArgumentType]
        report.counts["reward_n"] += len(rewards)

    def _check(self, update: int | None, total: JudgingReport) -> None:
        judged, failed = total.counts["judged"], total.counts["failed"]
        allowed = self.settings.max_failure_rate
        if judged and failed / judged > allowed:
            how = ", ".join(f"{k.removeprefix('failed_')} {n}" for k, n in sorted(total.counts.items()) if k.startswith("failed_"))  # fmt: skip
            raise JudgeFailure(
                f"{'evaluation' if update is None else f'update {update}'}: {failed} of {judged} judgements failed ({how}), "
                f"more than feedback.max_failure_rate={allowed} allows; for example: {total.problem}. "
                + (
                    "Use another feedback.judge, or allow more failures"
                    if update is None
                    else "See judgements.jsonl in the run folder; use another feedback.judge in another output_dir, or allow "
                    "more failures: their rows are left out of the loss"
                )
            )
