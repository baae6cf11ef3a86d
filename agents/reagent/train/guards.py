"""Guards: signs that a judge is being gamed; pure functions of metrics and evaluations.

A policy learns what the judge likes, and a judge's errors are found out: its score rises and the agent is no better (Gao,
Schulman, Hilton, arXiv 2210.10760). A `Check` (`reagent.train.monitor_conditions`) that holds for `patience` looks running fires,
once a spell. Looks without data conclude nothing and end no spell."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from reagent.train.alarms import Metrics, number
from reagent.train.build_feedback import MODES
from reagent.train.config import AgentConfig
from reagent.train.drop_detector import FEWEST, Score
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
    return number(value, "value") if isinstance(value, Mapping) else None


def between(before: Known, now: Known) -> Known:
    """Figures by task in the middle of two evaluations, to compare with a mean of the updates between."""
    if before is None or now is None:
        return None
    return {task: (before[task] + value) / 2 for task, value in now.items() if task in before} or None


@dataclass(frozen=True)
class Event:
    guard: str
    action: Literal["warn", "stop"]
    update: int
    """The update, counted from 0, after which it did; −1 is before the first."""
    text: str

    def as_row(self, episodes: int) -> dict[str, Any]:
        return {"update": self.update, "episodes": episodes, **{k: v for k, v in asdict(self).items() if k != "update"}}


@dataclass(frozen=True)
class Best:
    """The best evaluation so far, by success, or else by the auditor; success goes first."""

    update: int
    episodes: int
    by: Literal["success", "auditor"]
    value: float
    low: float | None = None
    high: float | None = None


def _checks(config: AgentConfig, watched: bool) -> list[Check]:
    guards = config.guards
    checks: list[Check] = [KLGrows(guards.kl)]
    if watched:
        checks += [
            SuccessFalls(guards.success),
            ScoreDrifts(guards.drift),
            LengthDrifts(guards.length, "episode/action_tokens", "tokens"),
            LengthDrifts(guards.length, "episode/turns", "turns"),
            LiesOutside(guards.out_of_domain),
        ]
        for source in ("evaluations", "updates"):
            checks += [AuditorFalls(guards.auditor, source), AuditorDisagrees(guards.auditor, source)]
    return [check for check in checks if check.settings.action != "none"]


def check_guards(config: AgentConfig, *, audited: bool = False) -> None:
    """Refuse guards with `action: stop` that can never fire, and an auditor that pays. Raises ConfigError."""
    feedback, second = config.feedback, config.guards.auditor
    mode = MODES[feedback.mode]
    watched = mode.learns_from_judge(feedback)
    for name, lacking in _lacking(config, audited or second.judge is not None).items():
        unwatched = name != "kl" and not watched
        if getattr(config.guards, name).action == "stop" and (unwatched or lacking):
            unpaid = f"with feedback.mode={feedback.mode} (as it is set) nothing is learned from a judge"
            raise ConfigError(f"guards.{name}.action=stop can never stop anything: {unpaid if unwatched else lacking}")
    if second.judge is None or second.action == "none":
        return
    if not watched:
        logger.warning(
            "guards.auditor.judge=%s is not asked: with feedback.mode=%s (as it is set) nothing is learned from a judge",
            second.judge, feedback.mode,
        )  # fmt: skip
    elif (second.judge, second.judge_options, second.judge_mode, None, "judge") == (
        feedback.judge, feedback.judge_options, mode(feedback).judged_in, feedback.criteria, feedback.score_from,
    ):  # fmt: skip
        raise ConfigError(f"guards.auditor.judge={second.judge} is the judge that pays: it cannot disagree with itself")


def check_held_out(config: AgentConfig, graded: int) -> None:
    """Refuse guards of success with `action: stop` on too few `graded` tasks. Raises ConfigError."""
    guards, tasks = config.guards, config.environment.eval_tasks
    for name, settings in (("success", guards.success), ("drift", guards.drift)):
        if settings.action == "stop" and graded < FEWEST:
            raise ConfigError(
                f"guards.{name}.action=stop can never stop anything: {graded} of {tasks} held-out tasks have an answer to grade by, and "
                f"it takes {FEWEST}: give environment.eval tasks with answers, or guard by guards.auditor, guards.out_of_domain, guards.length or guards.kl, "
                "which need none"
            )


def check_placed(config: AgentConfig, says: bool | None) -> None:
    """Refuse `out_of_domain` with `action: stop` where the judge marks nothing. Raises ConfigError."""
    if config.guards.out_of_domain.action == "stop" and says is False:
        raise ConfigError(
            f"guards.out_of_domain.action=stop can never stop anything: feedback.judge={config.feedback.judge} does not say what it was measured on "
            "(one that rrm train makes does, by the domain.json in its directory)"
        )


def _lacking(config: AgentConfig, audited: bool) -> dict[str, str]:
    """Guard → why it can never fire before the last update; "" where it can."""
    guards, every, updates = config.guards, config.eval.every, config.max_updates
    stages = _stretches(config)
    evaluations = max(sum(n > 0 or guards.evaluate for n in stage if every and n % every == 0) for stage in stages)
    looks = max((len(stage) - 1) // WINDOW for stage in stages) if guards.auditor.share > 0 else 0
    where = "in any stage of feedback.criteria " if len(stages) > 1 else ""

    def few(needed: int) -> str:
        text = f"{evaluations} evaluations are made {where}before the last update (eval.every={every}, max_updates={updates})"
        needed += not guards.evaluate  # scores of updates stand between two evaluations
        return f"{text}, and it takes {needed}" if evaluations < needed else ""

    def short(needed: int) -> str:
        return "" if updates > needed else f"it takes more than max_updates={updates}"

    tasks = config.environment.eval_tasks
    untold = relative = ""
    if tasks < FEWEST:
        untold = f"{tasks} held-out tasks (environment.eval_tasks) prove nothing, and it takes {FEWEST}"
    if config.feedback.score_from == "rank":
        relative = "with feedback.score_from=rank the mean score is ½ whatever is learned, and never rises"
    length, kl, auditor = guards.length, guards.kl, guards.auditor
    unaudited = f"neither evaluations (guards.evaluate, eval.every) nor updates (share={auditor.share:g}) give it the looks it takes"
    return {
        "success": untold or few(1 + guards.success.patience),
        "drift": relative or untold or few(1 + guards.drift.patience),
        "length": short(FIRST_UPDATES + length.patience),
        "out_of_domain": short(guards.out_of_domain.patience),
        "kl": "set guards.kl.max, in nats a token" if kl.max is None else short(kl.patience),
        "auditor": "set guards.auditor.judge, a second judge" if not audited
        else "" if max(guards.evaluate * evaluations, looks) >= auditor.patience else unaudited,
    }  # fmt: skip


def _stretches(config: AgentConfig) -> list[range]:
    """Numbers of updates before the last one, by stage of the criteria."""
    ends = [stage.first for stage in config.feedback.stages] or [0]
    return [
        range(first, min(end, config.max_updates - 1) + 1)
        for first, end in zip(ends, [*ends[1:], config.max_updates], strict=True)
    ]


@dataclass
class Guards:
    """The guards of a run. `watched`: something a judge says is learned from."""

    config: AgentConfig
    watched: bool
    events: list[Event] = field(default_factory=list)
    best: Best | None = None

    def __post_init__(self) -> None:
        self._checks = _checks(self.config, self.watched)
        self._paid: list[float] = []
        self._before: tuple[Known, Known] = None, None
        self._update = -1
        self._stage = 0

    def observe(self, update: int, metrics: Metrics) -> list[Event]:
        """Add an update's metrics; return the guards that fire."""
        if self.config.feedback.stage_at(update) != self._stage:  # no evaluation stands between the two stages
            self._begin_stage(update, before=(None, None))
        own = number(metrics, "feedback/own_score")  # under feedback.recalibrate: by one map throughout
        if (score := number(metrics, "feedback/score") if own is None else own) is not None:
            self._paid.append(score)
        return self._take(update, [(check, check.update(update, metrics)) for check in self._checks])

    def evaluated(self, row: Mapping[str, Any]) -> list[Event]:
        """Add an evaluation, a row of eval.jsonl; return the guards that fire."""
        update: int = row["update"]
        score, source = self._score(row)
        success, auditor = now = row.get("by_task") or None, row.get("auditor_by_task") or None
        if source == "training":
            success, auditor = map(between, self._before, now)
        self._before = now
        evaluation = Evaluation(
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
        fired = self._take(update, [(check, check.evaluation(evaluation)) for check in self._checks])
        if self.config.feedback.stage_at(update + 1) != self._stage:
            self._begin_stage(update + 1, before=now)
            begun = replace(
                evaluation, success=now[0], score=row.get("next_score_by_task") or None, source="held-out", auditor=now[1], compared=None
            )  # fmt: skip
            for check in self._checks:
                check.evaluation(begun)  # the first of its stage, which those to come are compared with
        return fired

    def replay(self, updates: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> None:
        rows = [(row["update"], 0, row) for row in updates] + [(row["update"], 1, row) for row in evaluations]
        for update, evaluated, row in sorted(rows, key=lambda each: each[:2]):
            self.evaluated(row) if evaluated else self.observe(update, row)

    @property
    def standing(self) -> list[Event]:
        """The guards with `action: stop` whose condition holds now."""
        return [self._event(c) for c in self._checks if c.settings.action == "stop" and c.spell.stands]

    def _begin_stage(self, update: int, before: tuple[Known, Known]) -> None:
        """Begin a stage of criteria: compare nothing with scores from before."""
        self._stage, self._paid, self._before = self.config.feedback.stage_at(update), [], before
        for check in self._checks:
            check.begin_stage()

    def _score(self, row: Mapping[str, Any]) -> tuple[Score | None, Source]:
        """The judge's score: of the evaluation's episodes, else of the updates since the last one."""
        paid, self._paid = tuple(self._paid), []
        if held_out := row.get("score_by_task"):
            return held_out, "held-out"
        mean = middle(row.get("score"))
        return ((mean,), "held-out") if mean is not None else (paid or None, "training")

    def _event(self, check: Check) -> Event:
        return Event(check.guard, check.settings.action, self._update, f"guards.{check.guard}: {check.spell.text}")

    def _take(self, update: int, looks: Sequence[tuple[Check, Seen]]) -> list[Event]:
        self._update = update
        fired = [self._event(check) for check, text in looks if check.spell.take(update, text)]
        self.events += fired
        return fired
