"""Judgements for the guards: the paying judge reads evaluations, a second one reads updates too.

Nothing here is learned from; each content is read once. The second judge's record is `auditor.jsonl`."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import gather_object

from reagent.feedback.base import FeedbackMode, as_judged, judgeable
from reagent.feedback.judging import Judging, JudgingReport, content_key
from reagent.rollout.episode import Episode
from reagent.train.build_feedback import check_judge, load_judge
from reagent.train.config import AgentConfig
from reagent.train.evaluate import mean_interval
from reagent.train.metrics import mean
from rrm.data.seeds import derive_seed
from rrm.judge.agent_rrm import AgentRRM

logger = logging.getLogger(__name__)
Scored = tuple[str, float, float]
"""(task, the paying judge's score, the second one's) of an attempt."""


def rank_correlation(rows: Sequence[Scored]) -> tuple[float | None, float]:
    """Spearman's, of two judges' scores within tasks, and its number of free comparisons.

    The mean over tasks weighs each by its attempts less one: unrelated rankings have mean 0 and variance 1/comparisons. Between
    tasks where none has several attempts. None of fewer than two comparisons."""
    from scipy.stats import spearmanr

    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for group, first, second in rows:
        groups[group].append((first, second))
    parts = list(groups.values())
    if all(len(pairs) == 1 for pairs in parts):
        parts = [[pair for pairs in parts for pair in pairs]]
    total, comparisons = 0.0, 0
    for first, second in (np.array(pairs).T for pairs in parts if pairs):
        if np.ptp(first) > 0 and np.ptp(second) > 0:
            free = len(first) - 1
            total += free * float(spearmanr(first, second).statistic)  # pyright: ignore[reportAttributeAccessIssue]
            comparisons += free
    return (total / comparisons if comparisons > 1 else None), float(comparisons)


def without_copies(episodes: Sequence[Episode], rows: Sequence[Scored | None]) -> list[Scored]:
    """The known rows, one of each content."""
    first: dict[tuple[str, str], Scored] = {}
    for episode, row in zip(episodes, rows, strict=True):
        if row is not None:
            first.setdefault((episode.group_id, content_key(episode.trajectory)), row)
    return list(first.values())


@dataclass
class AuditSample:
    scored: list[Scored]
    compared: list[Scored] = field(default_factory=list)
    """One of each content in `scored`."""
    attempts: int = 0
    tokens: int = 0
    problem: str | None = None


def _known(episode: Episode, first: float | None, second: float | None) -> Scored | None:
    return None if first is None or second is None else (episode.group_id, first, second)


@dataclass
class JudgeMonitor:
    config: AgentConfig
    feedback: FeedbackMode
    auditor: Judging | None = None
    rank: int = 0
    processes: int = 1
    _said_nothing: bool = False

    @property
    def learns(self) -> bool:
        """True where something that the judge says is learned from."""
        return self.feedback.has_judge and type(self.feedback).learns_from_judge(self.config.feedback)

    @property
    def evaluates(self) -> bool:
        """True where judges read evaluations, also one before the first update."""
        return self.learns and self.config.guards.evaluate and self.config.eval.every > 0

    def resume(self, update: int) -> None:
        if self.auditor is not None:
            self.auditor.resume(update)

    def evaluation(self, episodes: Sequence[Episode], update: int) -> dict[str, Any]:
        """Figures beside an evaluation's: `score` and `auditor`, with intervals, by task, and by success.

        `score` is by the criteria of the last `update` (−1 before the first), `next_score` by the next one's where they differ. All
        processes call this together, with all episodes."""
        if not self.evaluates:
            return {}
        report, mine = JudgingReport(), self.share_of(episodes)
        own = [episodes[i] for i in mine]
        first = self.feedback.scores(own, update, report)
        second = self._audited(own, update, report)
        now, after = (self.config.feedback.stage_at(number) for number in (update, update + 1))
        later = first if now == after else self.feedback.scores(own, update, report, by=update + 1)
        everyones = gather_object(list(zip(mine, first, second, later, strict=True)))
        scores = {i: (a, b) for i, a, b, _ in everyones}
        figures = _means(episodes, [scores[i][0] for i in range(len(episodes))], "score", self.config.seed)
        if isinstance(self.config.feedback.criteria, list):
            figures["criteria_stage"] = now
        if now != after:
            next_said = {i: score for i, _, _, score in everyones}
            figures |= _means(episodes, [next_said[i] for i in range(len(episodes))], "next_score", self.config.seed)
        figures["judge_tokens"] = sum(gather_object([report.counts["judge_tokens"]]))
        if self.auditor is not None:
            figures |= _means(episodes, [scores[i][1] for i in range(len(episodes))], "auditor", self.config.seed)
            both = [_known(e, *scores[i]) for i, e in enumerate(episodes)]
            figures["auditor_correlation"], figures["auditor_compared"] = rank_correlation(
                without_copies(episodes, both)
            )
            self._tell(sum(row is not None for row in both), len(episodes), report.problem)
        return figures

    def share_of(self, episodes: Sequence[Episode]) -> list[int]:
        """Indices of this process's episodes: those of every n-th task."""
        number = {group: n for n, group in enumerate(dict.fromkeys(e.group_id for e in episodes))}
        return [i for i, e in enumerate(episodes) if number[e.group_id] % self.processes == self.rank]

    def audit(self, played: Sequence[Episode], update: int) -> AuditSample:
        """Both judges on the guards' share of an update's first attempts; all processes call this together."""
        if self.auditor is None:
            return AuditSample([])
        firsts = [e for e in played if e.stage == "initial"]
        share = self.config.guards.auditor.share
        groups = list(dict.fromkeys(gather_object([e.group_id for e in firsts])))
        # by seed: tasks of one difficulty may stand at every fourth place; where an update has few tasks, some updates have one
        groups.sort(key=lambda g: derive_seed(self.config.seed, "audit", update, g))
        chosen = set(groups[: int((update + 1) * len(groups) * share) - int(update * len(groups) * share)])
        mine = [e for e in firsts if e.group_id in chosen]
        report, asked_again = JudgingReport(), JudgingReport()
        second = self._audited(mine, update, report)
        first = self.feedback.scores(mine, update, asked_again)
        both = [_known(e, a, b) for e, a, b in zip(mine, first, second, strict=True)]
        tokens = report.counts["judge_tokens"] + asked_again.counts["judge_tokens"]
        scored = [row for row in both if row is not None]
        return AuditSample(scored, without_copies(mine, both), len(mine), tokens, report.problem)

    def figures(self, audits: Sequence[AuditSample]) -> dict[str, float]:
        if self.auditor is None:
            return {}
        scored = [row for audit in audits for row in audit.scored]
        attempts = sum(audit.attempts for audit in audits)
        self._tell(len(scored), attempts, next((a.problem for a in audits if a.problem), None))
        correlation, compared = rank_correlation([row for audit in audits for row in audit.compared])
        return {
            "auditor/score": mean([second for _, _, second in scored]),
            "auditor/judge_score": mean([first for _, first, _ in scored]),
            "auditor/correlation": float("nan") if correlation is None else correlation,
            "auditor/compared": compared,
            "auditor/rows": float(len(scored)),
            "auditor/unscored": float(attempts - len(scored)),
            "auditor/judge_tokens": float(sum(audit.tokens for audit in audits)),
        }

    def _audited(self, episodes: Sequence[Episode], update: int, report: JudgingReport) -> list[float | None]:
        scores: list[float | None] = [None] * len(episodes)
        if self.auditor is None:
            return scores
        indices = [i for i, e in enumerate(episodes) if judgeable(e)]
        mode = self.config.guards.auditor.judge_mode
        judgements = self.auditor.ask([as_judged(episodes[i]) for i in indices], mode, update, report)
        for i, feedback in zip(indices, judgements, strict=True):
            scores[i] = feedback.score
        return scores

    def _tell(self, pairs: int, attempts: int, problem: str | None) -> None:
        """Warn once that the second judge is no guard."""
        if attempts and not pairs and not self._said_nothing:
            self._said_nothing = True
            logger.warning(
                "guards.auditor.judge=%s: of %d transcripts none has a score of both judges (%s): it guards nothing",
                self.config.guards.auditor.judge, attempts, problem or "no failure is known",
            )  # fmt: skip


def _means(episodes: Sequence[Episode], scores: Sequence[float | None], name: str, seed: int) -> dict[str, Any]:
    by_task: dict[str, list[float]] = defaultdict(list)
    apart: dict[bool, list[float]] = {True: [], False: []}
    for e, score in zip(episodes, scores, strict=True):
        if score is None:
            continue
        by_task[e.group_id].append(score)
        if e.success is not None:
            apart[e.success].append(score)
    means = {task: mean(values) for task, values in by_task.items()}
    return {
        name: mean_interval(list(means.values()), sum(map(len, by_task.values())), seed=seed),
        f"{name}_by_task": means,
        f"{name}_success": mean(apart[True]) if apart[True] else None,
        f"{name}_failure": mean(apart[False]) if apart[False] else None,
        f"{name}_unscored": sum(score is None for score in scores),
    }


def make_watch(
    config: AgentConfig,
    feedback: FeedbackMode,
    *,
    device: str,
    folder: Path,
    auditor: AgentRRM | None = None,
    rank: int = 0,
    processes: int = 1,
) -> JudgeMonitor:
    """The monitor of a config. Raises RRMError: the second judge cannot be loaded, or read the tasks."""
    guard = config.guards.auditor
    watch = JudgeMonitor(config, feedback, rank=rank, processes=processes)
    if guard.action != "none" and watch.learns and (auditor or guard.judge):
        if auditor is None and guard.judge is not None:
            second = {"judge": guard.judge, "judge_options": guard.judge_options, "criteria": None, "escalate": None}
            settings = config.feedback.model_copy(update=second)
            check_judge(settings, config.environment, "guards.auditor.judge")
            auditor = load_judge(settings, device, "guards.auditor.judge")
        assert auditor is not None
        record = folder / ("auditor.jsonl" if rank == 0 else f"auditor-{rank}.jsonl")
        watch.auditor = Judging(auditor, seed=derive_seed(config.seed, "auditor"), record=record)
    return watch
