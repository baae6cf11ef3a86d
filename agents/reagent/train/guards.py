"""Guards: what tells that a judge is being gamed. Pure, over the metrics of updates and the rows of evaluations.

A policy that is paid by a judge learns what the judge likes, and a judge that is wrong somewhere is found out: its score rises, and
the agent is no better for it (Gao, Schulman, Hilton, "Scaling Laws for Reward Model Overoptimization", arXiv 2210.10760). A
`Check` is one condition of a guard (`reagent.train.monitor_conditions`); one that holds for `patience` looks running fires, once a spell. Where
there is nothing to look at, nothing is concluded, and no spell ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from reagent.train.alarms import Metrics, number
from reagent.train.build_feedback import MODES
from reagent.train.config import AgentConfig
from reagent.train.drop_detector import FEWEST, Score
from reagent.train.guard_settings import GuardConfig
from reagent.train.monitor_conditions import (
    FIRST_UPDATES,
    WINDOW,
    AuditorDisagrees,
    AuditorFalls,
    Check,
    Evaluation,
    KLGrows,
    Known,
    LengthDrifts,
    LiesOutside,
    ScoreDrifts,
    Seen,
    Source,
    SuccessFalls,
)
from rrm.errors import ConfigError

logger = logging.getLogger(__name__)


def middle(value: Any) -> float | None:
    """The value of `{value, low, high}`; None where there is none."""
    return number(value, "value") if isinstance(value, Mapping) else None


def between(before: Known, now: Known) -> Known:
    """Figures by task in the middle of two evaluations, of the tasks that both have: what a mean over the updates between them is
    compared with. Beside the later one alone a policy that learns would have a score that lags, and then seems to rise by itself."""
    if before is None or now is None:
        return None
    return {task: (before[task] + value) / 2 for task, value in now.items() if task in before} or None


@dataclass(frozen=True)
class Event:
    """A guard that fired."""

    guard: str
    action: Literal["warn", "stop"]
    update: int
    """The update, counted from 0, after which it did; −1 is before the first."""
    text: str
    """What was seen, and what it may mean."""

    def as_row(self, episodes: int) -> dict[str, Any]:
        """A line of guards.jsonl."""
        return {"update": self.update, "episodes": episodes, **{k: v for k, v in asdict(self).items() if k != "update"}}


@dataclass(frozen=True)
class Best:
    """The best evaluation so far, by what the judge that pays has no say in: of several noisy ones, so that it flatters. A value of
    one kind is not compared with one of the other: any success goes before any word of the auditor's."""

    update: int
    episodes: int
    by: Literal["success", "auditor"]
    value: float
    low: float | None = None
    high: float | None = None
    """With its 95 % interval over tasks."""


@dataclass
class HeldSince:
    """A check, and since when it holds."""

    check: Check
    settings: GuardConfig
    held: int = 0
    """Looks running at which the condition held."""
    text: str = ""

    def take(self, seen: Seen) -> bool:
        """Whether the guard fires at this look."""
        if seen is None:
            return False
        self.held, self.text = (self.held + 1, seen) if seen else (0, "")
        return self.held == self.settings.patience

    @property
    def stands(self) -> bool:
        """Whether it fired, and its condition holds still."""
        return self.held >= self.settings.patience

    def event(self, update: int) -> Event:
        """What is told of it."""
        action = "stop" if self.settings.action == "stop" else "warn"
        return Event(self.check.guard, action, update, f"guards.{self.check.guard}: {self.text}")


def _spells(config: AgentConfig, watched: bool) -> list[HeldSince]:
    guards = config.guards
    found: list[tuple[Check, GuardConfig]] = [(KLGrows(guards.kl), guards.kl)]
    if watched:
        found += [
            (SuccessFalls(guards.success), guards.success),
            (ScoreDrifts(guards.drift), guards.drift),
            (LengthDrifts(guards.length, "episode/action_tokens", "tokens"), guards.length),
            (LengthDrifts(guards.length, "episode/turns", "turns"), guards.length),
            (LiesOutside(guards.out_of_domain), guards.out_of_domain),
        ]
        for of in ("evaluations", "updates"):
            found += [(AuditorFalls(guards.auditor, of), guards.auditor)]
            found += [(AuditorDisagrees(guards.auditor, of), guards.auditor)]
    return [HeldSince(check, settings) for check, settings in found if settings.action != "none"]


def check_guards(config: AgentConfig, *, audited: bool = False) -> None:
    """Whether guards that are to stop a training could: one that never fires is worse than none.

    Args:
        audited: whether a second judge is there that the config need not name.

    Raises:
        ConfigError: a guard with `action: stop` has nothing to look at, or not often enough; or the second judge is the one that pays.
    """
    feedback, second = config.feedback, config.guards.auditor
    kind = MODES[feedback.mode]
    watched = kind.learns_from_judge(feedback)
    for name, lacking in _lacking(config, audited or second.judge is not None).items():
        unwatched = name != "kl" and not watched
        if getattr(config.guards, name).action == "stop" and (unwatched or lacking):
            said = (
                f"with feedback.mode={feedback.mode} (as it is set) nothing is learned from a judge"
                if unwatched
                else lacking
            )
            raise ConfigError(f"guards.{name}.action=stop can never stop anything: {said}")
    if second.judge is None or second.action == "none":
        return
    if not watched:
        logger.warning(
            "guards.auditor.judge=%s is not asked: with feedback.mode=%s (as it is set) nothing is learned from a judge",
            second.judge, feedback.mode,
        )  # fmt: skip
    elif (second.judge, second.judge_options, second.judge_mode, None, "judge") == (
        feedback.judge, feedback.judge_options, kind(feedback).judged_in, feedback.criteria, feedback.score_from,
    ):  # fmt: skip
        raise ConfigError(f"guards.auditor.judge={second.judge} is the judge that pays: it cannot disagree with itself")


def check_held_out(config: AgentConfig, graded: int) -> None:
    """Whether guards that are to stop a training, and look at held-out success, will see any.

    Args:
        graded: held-out tasks that anybody can grade.

    Raises:
        ConfigError: they are too few for `success` or `drift` with `action: stop` ever to fire.
    """
    guards, tasks = config.guards, config.environment.eval_tasks
    for name, settings in (("success", guards.success), ("drift", guards.drift)):
        if settings.action == "stop" and graded < FEWEST:
            raise ConfigError(
                f"guards.{name}.action=stop can never stop anything: {graded} of {tasks} held-out tasks have an answer to grade by, and "
                f"it takes {FEWEST}: give environment.eval tasks with answers, or guard by guards.auditor, guards.out_of_domain, guards.length or guards.kl, "
                "which need none"
            )


def check_placed(config: AgentConfig, says: bool | None) -> None:
    """Whether `guards.out_of_domain`, where it is to stop a training that a judge pays, will see anything.

    Args:
        says: whether that judge says of attempts if they lie outside of what it was measured on; None: not known.

    Raises:
        ConfigError: it does not.
    """
    if config.guards.out_of_domain.action == "stop" and says is False:
        raise ConfigError(
            f"guards.out_of_domain.action=stop can never stop anything: feedback.judge={config.feedback.judge} does not say what it was measured on "
            "(one that rrm train makes does, by the domain.json in its directory)"
        )


def _lacking(config: AgentConfig, audited: bool) -> dict[str, str]:
    """By guard, what keeps it from ever firing before the last update; "" where nothing does."""
    guards, every, updates = config.guards, config.eval.every, config.max_updates
    stages = _stretches(config)
    evaluations = max(sum(n > 0 or guards.evaluate for n in stage if every and n % every == 0) for stage in stages)
    looks = max((len(stage) - 1) // WINDOW for stage in stages) if guards.auditor.share > 0 else 0
    where = "in any stage of feedback.criteria " if len(stages) > 1 else ""

    def few(wanted: int) -> str:
        made = f"{evaluations} evaluations are made {where}before the last update (eval.every={every}, max_updates={updates})"
        wanted += not guards.evaluate  # scores of updates stand between two evaluations
        return f"{made}, and it takes {wanted}" if evaluations < wanted else ""

    tasks = config.environment.eval_tasks
    untold = (
        f"{tasks} held-out tasks (environment.eval_tasks) prove nothing, and it takes {FEWEST}"
        if tasks < FEWEST
        else ""
    )
    relative = (
        "with feedback.score_from=rank the mean score is ½ whatever is learned, and never rises"
        if config.feedback.score_from == "rank"
        else ""
    )
    length, kl, auditor = guards.length, guards.kl, guards.auditor
    unaudited = f"neither evaluations (guards.evaluate, eval.every) nor updates (share={auditor.share:g}) give it the looks it takes"
    return {
        "success": untold or few(1 + guards.success.patience),
        "drift": relative or untold or few(1 + guards.drift.patience),
        "length": "" if updates > FIRST_UPDATES + length.patience else f"it takes more than max_updates={updates}",
        "out_of_domain": "" if updates > guards.out_of_domain.patience else f"it takes more than max_updates={updates}",
        "kl": "set guards.kl.max, in nats a token" if kl.max is None
        else "" if updates > kl.patience else f"it takes more than max_updates={updates}",
        "auditor": "set guards.auditor.judge, a second judge" if not audited
        else "" if max(guards.evaluate * evaluations, looks) >= auditor.patience else unaudited,
    }  # fmt: skip


def _stretches(config: AgentConfig) -> list[range]:
    """Numbers of updates made, before the last one, by stage of the criteria: scores are compared within one. What stands between two
    belongs to both."""
    ends = [stage.first for stage in config.feedback.stages] or [0]
    return [
        range(first, min(end, config.max_updates - 1) + 1)
        for first, end in zip(ends, [*ends[1:], config.max_updates], strict=True)
    ]


@dataclass
class Guards:
    """The guards of a run.

    Args:
        config: the run's.
        watched: whether anything a judge says is learned from.
    """

    config: AgentConfig
    watched: bool
    events: list[Event] = field(default_factory=list)
    """Those that fired, in order."""
    best: Best | None = None

    def __post_init__(self) -> None:
        self._spells = _spells(self.config, self.watched)
        self._paid: list[float] = []
        """The judge's mean score of each update since the last evaluation, which said this of"""
        self._before: tuple[Known, Known] = None, None
        """success, and of the auditor."""
        self._update = -1
        self._stage = 0
        """Of the criteria by which the judge pays (`feedback.criteria`)."""

    def observe(self, update: int, metrics: Metrics) -> list[Event]:
        """Take in an update's metrics; the guards that fire at it."""
        if self.config.feedback.stage_at(update) != self._stage:  # no evaluation stands between the two stages
            self._begin_stage(update, before=(None, None))
        own = number(metrics, "feedback/own_score")  # under feedback.recalibrate: by one map throughout
        if (score := number(metrics, "feedback/score") if own is None else own) is not None:
            self._paid.append(score)
        return self._take(update, [(spell, spell.check.update(update, metrics)) for spell in self._spells])

    def evaluated(self, row: Mapping[str, Any]) -> list[Event]:
        """Take in an evaluation, a row of eval.jsonl; the guards that fire at it."""
        update: int = row["update"]
        score, source = self._score(row)
        success, auditor = now = row.get("by_task") or None, row.get("auditor_by_task") or None
        if source == "training":
            success, auditor = map(between, self._before, now)
        self._before = now
        found = Evaluation(
            update=update,
            success=success,
            score=score,
            source=source,
            auditor=auditor,
            correlation=number(row, "auditor_correlation"),
            compared=number(row, "auditor_compared"),
        )
        by = "auditor" if middle(row.get("success")) is None else "success"
        value = middle(row.get(by))
        better = self.best is None or (by == "success", value) > (self.best.by == "success", self.best.value)
        if value is not None and better:
            low, high = (number(row[by], bound) for bound in ("low", "high"))
            self.best = Best(update, row.get("episodes", 0), by, value, low, high)
        fired = self._take(update, [(spell, spell.check.evaluation(found)) for spell in self._spells])
        if self.config.feedback.stage_at(update + 1) != self._stage:
            self._begin_stage(update + 1, before=now)
            begun = replace(
                found, success=now[0], score=row.get("next_score_by_task") or None, source="held-out", auditor=now[1], compared=None
            )  # fmt: skip
            for spell in self._spells:
                spell.check.evaluation(begun)  # the first of its stage, which those to come are compared with
        return fired

    def replay(self, updates: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> None:
        """Take in a run's rows so far, as they came: metrics.jsonl's and eval.jsonl's."""
        rows = [(row["update"], 0, row) for row in updates] + [(row["update"], 1, row) for row in evaluations]
        for update, evaluated, row in sorted(rows, key=lambda each: each[:2]):
            self.evaluated(row) if evaluated else self.observe(update, row)

    @property
    def standing(self) -> list[Event]:
        """The guards with `action: stop` whose condition holds now: reason enough to stop, or not to go on."""
        return [s.event(self._update) for s in self._spells if s.settings.action == "stop" and s.stands]

    def _begin_stage(self, update: int, before: tuple[Known, Known]) -> None:
        """From this update on the judge pays by other criteria, and nothing is compared with what it said before. What fired stands until
        a look says otherwise.

        Args:
            before: success, and the auditor's word, of an evaluation just before it.
        """
        self._stage, self._paid, self._before = self.config.feedback.stage_at(update), [], before
        for spell in self._spells:
            spell.check.begin_stage()

    def _score(self, row: Mapping[str, Any]) -> tuple[Score | None, Source]:
        """The judge's score and where it is from: the evaluation's episodes, else the updates since the last evaluation."""
        paid, self._paid = tuple(self._paid), []
        if held_out := row.get("score_by_task"):
            return held_out, "held-out"
        mean = middle(row.get("score"))
        return ((mean,), "held-out") if mean is not None else (paid or None, "training")

    def _take(self, update: int, seen: Sequence[tuple[HeldSince, Seen]]) -> list[Event]:
        self._update = update
        fired = [spell.event(update) for spell, what in seen if spell.take(what)]
        self.events += fired
        return fired
