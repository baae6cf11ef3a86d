"""The one interface between a trainer and feedback: `FeedbackMode.round` plays an update's attempts and says what to learn.

    round = feedback.round(update, feedback.attempts(tasks, start, count, group_size), play)
    metrics = feedback.report(update, every process's round.report)
    learn(round.rows, round.texts)

An adapter is a mode (reagent.feedback.modes). The trainer knows none of them: it plays what it is asked to play, learns
the rows with the rewards they carry, and the texts with their weights.
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
    """Plays attempts with the policy as it stands; episodes in their order."""

    def __call__(
        self,
        attempts: Sequence[Attempt],
        *,
        prompt_messages: PromptHook | None = None,
        on_end: Callable[[Episode], None] | None = None,
    ) -> list[Episode]:
        """`prompt_messages` and `on_end` as in `reagent.rollout.rollout.rollout`."""
        ...


@dataclass
class Round:
    """An update's episodes, and what is learned from them."""

    played: list[Episode]
    """Every episode, as it was played: first attempts, then second ones."""
    rows: list[Episode]
    """Those to learn from, with the feedback in their rewards."""
    texts: list[SFTRow] = field(default_factory=list)
    report: JudgingReport = field(default_factory=JudgingReport)


@dataclass(frozen=True)
class JudgedEpisode:
    """A first attempt and what the judge said of it."""

    episode: Episode
    feedback: Feedback | None
    """None where nothing was asked: the episode has no turn, or the environment failed."""
    own_score: float | None = None
    """The score by the judge's own calibration, before `feedback.recalibrate`."""

    @property
    def score(self) -> float | None:
        """s in [0, 1], None where there is none."""
        return None if self.feedback is None else self.feedback.score

    @property
    def policy_may_have_caused(self) -> bool:
        """Whether there is no score for something in the transcript: too long for the judge, or such that its reply could
        not be read, or did not end."""
        return self.score is None and self.feedback is not None and self.feedback.status in POLICY_FAILURES


POLICY_FAILURES: tuple[Status, ...] = ("unparsable", "truncated", "too_long")
"""Failed judgements that a policy can bring about by what it writes; a judge that cannot be reached is none of them."""


def graded_row(judged: JudgedEpisode) -> list[tuple[float, float, float, float]]:
    """(raw, own, paid score, success) of a graded attempt; none where one of them is unknown."""
    feedback, success = judged.feedback, judged.episode.success
    raw = None if feedback is None else feedback.raw_score
    if raw is None or judged.own_score is None or judged.score is None or success is None:
        return []
    return [(raw, judged.own_score, judged.score, float(success))]


POOR = 0.5
"""Mode `process`: a score below it speaks of a fault, whether or not the judge says of which turn."""


def judgeable(episode: Episode) -> bool:
    """Whether there is an attempt to judge: it has a turn, and the environment did not fail."""
    return bool(episode.turns) and (episode.ungraded or episode.reward is not None)


def as_judged(episode: Episode, first: Episode | None = None) -> Trajectory:
    """The attempt by itself, as the judge is shown it.

    A second attempt is shown after the question as the first one had it: without the first attempt and its critique,
    which would make scores of the two stages mean different things, and let a critique speak for itself. Examples in the
    prompt, turns that are not the agent's own, are left out: step k is the attempt's k-th turn.
    """
    asked = first or episode
    messages = [*_question(asked.trajectory.messages[: asked.prompt_messages]), *episode.own_messages]
    return episode.trajectory.model_copy(update={"messages": messages})


def _shown(judging: Judging, episode: Episode, first: Episode | None = None) -> Trajectory:
    """The same with the reference answer where the judge's criteria allow that, and the task is not held to have none
    (`environment.label_share`)."""
    shown, task = as_judged(episode, first), episode.task
    if not judging.sees_reference or task.answer is None or not task.graded:
        return shown
    return shown.model_copy(update={"meta": {**shown.meta, "reference": task.references}})


def _question(prompt: Sequence[Message]) -> list[Message]:
    """A prompt's messages without its examples: what comes after their last turn, from a user's message on, and the system's."""
    turns = [i for i, message in enumerate(prompt) if message.role == "assistant"]
    if not turns:
        return list(prompt)
    start = next((i for i in range(turns[-1], len(prompt)) if prompt[i].role == "user"), len(prompt))
    return [m for i, m in enumerate(prompt) if i >= start or m.role in ("system", "developer")]


class FeedbackMode(ABC):
    """Base of the modes.

    Args:
        settings: the config section.
        judging: None in modes that ask no judge.
        writer: puts the judge's texts into the policy's template; None in modes without.
        updates: over which λ's schedule runs.
    """

    gathers = False
    """Whether a round's processes wait for each other."""

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
        """Whether the mode, with these settings, needs a judge."""
        return True

    @classmethod
    def pays_feedback(cls, settings: FeedbackConfig) -> bool:
        """Whether, with these settings, a judge's feedback is part of the reward, or chooses what is learned: episodes that
        nobody can grade teach something then."""
        return False

    @classmethod
    def asks_texts(cls, settings: FeedbackConfig) -> bool:
        """Whether the policy is shown, or learns, what the judge writes."""
        return False

    @classmethod
    def writes_texts(cls, settings: FeedbackConfig) -> bool:
        """Whether the mode, with these settings, puts texts of the judge into the policy's template: auxiliary rows, prompts."""
        return False

    @classmethod
    def learns_from_judge(cls, settings: FeedbackConfig) -> bool:
        """Whether anything that a judge says is learned from, with these settings: it pays, it chooses attempts, or its texts teach."""
        return cls.asks_judge(settings) and (cls.pays_feedback(settings) or cls.writes_texts(settings))

    @abstractmethod
    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        """Play first attempts, and what the mode adds to them."""

    # ---- what is asked of it besides ----

    def attempts(self, tasks: Sequence[Task], start: int, count: int, group_size: int) -> list[Attempt]:
        """First attempts at the `count` tasks from number `start` on, again from the first where they are used up."""
        return plan([tasks[i % len(tasks)] for i in range(start, start + count)], group_size)

    def report(self, update: int | None, reports: Sequence[JudgingReport]) -> dict[str, float]:
        """The round's figures, from the reports of all processes in order; refits the judge's calibration. Raises JudgeFailure: more
        judgements failed than `max_failure_rate` allows. `update`: None in an evaluation."""
        whole = JudgingReport()
        for one in reports:
            whole = whole.merge(one)
        self._check(update, whole)
        found = whole.figures()
        if update is not None and self._judging is not None and isinstance(self.settings.criteria, list):
            found["feedback/criteria_stage"] = float(self.settings.stage_at(update))
        if self.recalibration is not None and update is not None:
            found |= self.recalibration.observe(whole.graded)
            if self.settings.stage_at(update + 1) != self.settings.stage_at(update):
                self.recalibration.begin_stage()  # before anything of the next update is judged
        return found

    def weight(self, update: int) -> float:
        """λ at an update."""
        return weight_at(update, self.updates, self.settings.score_weight, self.settings.score_schedule)

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        found: dict[str, Any] = {} if self.recalibration is None else {"recalibration": self.recalibration.state()}
        asked = [] if self._judging is None else self._judging.criteria
        return found | ({"criteria": asked} if asked else {})

    def restore(self, update: int, state: dict[str, Any]) -> None:
        """Continue after `update` updates from a checkpoint's `state`. Raises RRMError: the files of criteria ask other questions than when
        it was made."""
        if self._judging is not None:
            check_same(self.settings, state.get("criteria"), self._judging.criteria)
            self._judging.resume(update)
        self.rewind(state)

    def rewind(self, state: dict[str, Any]) -> None:
        """Recalibration as it was when `state` was taken: what an update moved on is undone where the update fails."""
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
        """Play attempts; a judge over a server reads each in `mode` as soon as it ends. `firsts`: of second attempts, the first ones by the
        second ones' `Episode.key`."""
        if self._judging is None:
            return play(attempts, **hooks)
        judging = self._judging.at(update)
        with judging.ahead(mode, update, report) as take:

            def ended(episode: Episode) -> None:
                if judgeable(episode):
                    take(_shown(judging, episode, firsts[episode.key] if firsts is not None else None))

            return play(attempts, on_end=ended, **hooks)

    def judging_at(self, update: int) -> Judging:
        """Who judges an update."""
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
        """What the judge says of each episode.

        Args:
            firsts: the first attempts of second ones, in the same order.
            by: the update whose criteria are asked; None: this one's.
        """
        judging = self.judging_at(update if by is None else by)
        asked = [i for i, e in enumerate(episodes) if judgeable(e)]
        shown = [_shown(judging, episodes[i], firsts[i] if firsts else None) for i in asked]
        said = dict(zip(asked, judging.ask(shown, mode, update, report), strict=True))
        return [self._judged(e, said.get(i)) for i, e in enumerate(episodes)]

    def ranked(
        self, episodes: Sequence[Episode], update: int, report: JudgingReport, *, by: int | None = None
    ) -> list[JudgedEpisode]:
        """First attempts with relative scores; without one where no other attempt at the task could be judged. `by` as in `judge`."""
        judging = self.judging_at(update if by is None else by)
        groups: dict[str, list[int]] = {}
        for i, episode in enumerate(episodes):
            if judgeable(episode):
                groups.setdefault(episode.group_id, []).append(i)
        asked = [places for places in groups.values() if len(places) > 1]
        found = judging.rank([[_shown(judging, episodes[i]) for i in places] for places in asked], update, report)
        said = {
            i: f for places, several in zip(asked, found, strict=True) for i, f in zip(places, several, strict=True)
        }
        return [self._judged(e, said.get(i)) for i, e in enumerate(episodes)]

    def _judged(self, episode: Episode, said: Feedback | None) -> JudgedEpisode:
        """With its score as it is paid, and by the judge's own calibration."""
        if said is None:
            return JudgedEpisode(episode, None)
        return JudgedEpisode(episode, self.recalibrated(said), said.score)

    def recalibrated(self, said: Feedback) -> Feedback:
        """A judgement with its score by the map in force; as it is without `feedback.recalibrate`."""
        return said if self.recalibration is None else self.recalibration.apply(said)

    @property
    def has_judge(self) -> bool:
        """Whether a judge was made for it."""
        return self._judging is not None

    @property
    def marks_outside(self) -> bool | None:
        """Whether its judge says of attempts if they lie outside of what it was measured on; None: nobody knows before it is asked."""
        judge = None if self._judging is None else self._judging.judge
        return None if judge is None or isinstance(judge, RemoteJudge) else judge.domain is not None

    @property
    def judged_in(self) -> Mode:
        """The judge's mode in which first attempts get their scores."""
        return self.settings.score_mode

    def scores(
        self, episodes: Sequence[Episode], update: int, report: JudgingReport, *, by: int | None = None
    ) -> list[float | None]:
        """What the reward would take for s of each, by the judge's own calibration, for those who watch: scores of different maps
        (`feedback.recalibrate`) cannot be compared. Nothing is learned of it, and nothing counted. `by` as in `judge`."""
        judged = self.judge(episodes, self.judged_in, update, report, by=by)
        return [self.paid_score(one, JudgingReport()) if one.score is None else one.own_score for one in judged]

    def note_scores(self, judged: Sequence[JudgedEpisode], report: JudgingReport, stage: str = "score") -> None:
        """Count scores, apart by success (does the judge rise while success falls?)."""
        for one in judged:
            if one.score is None:
                continue
            success = one.episode.success
            apart = [] if success is None else [f"{stage}_{'success' if success else 'failure'}"]
            for name in (stage, *apart):
                report.counts[f"{name}_sum"] += one.score  # pyright: ignore[reportArgumentType]
                report.counts[f"{name}_n"] += 1
            if self.recalibration is not None and stage == "score" and one.own_score is not None:
                report.counts["own_score_sum"] += one.own_score  # pyright: ignore[reportArgumentType]
                report.counts["own_score_n"] += 1
            if self.recalibration is not None and one.episode.success is not None and not one.episode.ungraded:
                report.graded += graded_row(one)

    def paid_score(self, judged: JudgedEpisode, report: JudgingReport) -> float | None:
        """What the reward takes for s: the score, or `failure_reward` where the policy may have kept it from being given."""
        if not judged.policy_may_have_caused or self.settings.failure_reward is None:
            return judged.score
        report.counts["floored"] += 1
        return self.settings.failure_reward

    def paid_findings(self, judged: JudgedEpisode, report: JudgingReport) -> list[Finding] | None:
        """What the reward takes for findings: the judge's; where the policy may have kept it from judging, and that has a
        price (`failure_reward`), every turn bad; None where there is no judgement.

        A poor score for which no turn is to blame is paid for by every turn that is not found good: neither silence nor one
        praised turn frees an attempt. With a good score there may be nothing to find, and nothing is paid. A turn on which the judge
        abstains is paid nothing.
        """
        turns, floor = len(judged.episode.turns), self.settings.failure_reward
        found: list[Finding] = []
        if judged.score is not None and judged.feedback is not None:
            found = judged.feedback.findings
            said = {f.verdict for f in clear(found) if f.step <= turns}
            report.counts["without_finding"] += not said
            if floor is None or "bad" in said or judged.score >= POOR:
                return found
        elif not judged.policy_may_have_caused or floor is None:
            return None
        report.counts["floored"] += 1
        spared = {f.step for f in found if f.verdict in ("good", "unsure")}
        return [*found, *(Finding(step=k, verdict="bad") for k in range(1, turns + 1) if k not in spared)]

    def note_rewards(self, rows: Sequence[Episode], report: JudgingReport) -> None:
        """Count rewards with the feedback in them: all that is known of episodes that nobody can grade."""
        known = [row.reward for row in rows if row.reward is not None]
        report.counts["reward_sum"] += sum(known)  # pyright: ignore[reportArgumentType]
        report.counts["reward_n"] += len(known)

    def _check(self, update: int | None, whole: JudgingReport) -> None:
        judged, failed = whole.counts["judged"], whole.counts["failed"]
        allowed = self.settings.max_failure_rate
        if judged and failed / judged > allowed:
            how = ", ".join(f"{k.removeprefix('failed_')} {n}" for k, n in sorted(whole.counts.items()) if k.startswith("failed_"))  # fmt: skip
            raise JudgeFailure(
                f"{'evaluation' if update is None else f'update {update}'}: {failed} of {judged} judgements failed ({how}), "
                f"more than feedback.max_failure_rate={allowed} allows; for example: {whole.problem}. "
                + (
                    "Use another feedback.judge, or allow more failures"
                    if update is None
                    else "See judgements.jsonl in the run folder; use another feedback.judge in another output_dir, or allow "
                    "more failures: their rows are left out of the loss"
                )
            )
