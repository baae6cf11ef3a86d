"""What judges say of episodes beside the training, for its guards: of evaluations the judge that pays, of both a second one.

Nothing here is learned from. Each content is read once (`reagent.feedback.judging`); the second judge's words are on record in
`auditor.jsonl`, as the first one's in `judgements.jsonl`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import gather_object

from reagent.feedback.base import Adapter, as_judged, judgeable
from reagent.feedback.build import check_judge, load_judge
from reagent.feedback.judging import Judging, Report
from reagent.rollout.episode import Episode
from reagent.train.config import AgentConfig
from reagent.train.evaluate import mean_interval
from reagent.train.metrics import mean
from rrm.evaluation.metrics.pairs import check_rows
from rrm.judge.agent_rrm import AgentRRM
from rrm.seeds import derive_seed

logger = logging.getLogger(__name__)


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's, of two judges' scores of the same rows; None of fewer than three rows, or where either is constant."""
    from scipy.stats import spearmanr

    first, second = np.asarray(a), np.asarray(b)
    check_rows(first=first, second=second)
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(spearmanr(first, second).statistic)  # pyright: ignore[reportAttributeAccessIssue]


@dataclass
class Audit:
    """One process's share of an update's first attempts, as both judges see them."""

    pairs: list[tuple[float, float]]
    """(the paying judge's score, the second one's) of each that both could read."""
    asked: int = 0
    tokens: int = 0
    problem: str | None = None


class Watch:
    """Asks judges for the guards.

    Args:
        config: the run's.
        feedback: the run's; it holds the judge that pays, if any.
        auditor: the second judge; None without.
        rank, processes: of this process, and how many there are.
    """

    def __init__(
        self,
        config: AgentConfig,
        feedback: Adapter,
        *,
        auditor: Judging | None = None,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        self.config, self.feedback, self.auditor = config, feedback, auditor
        self.rank, self.processes = rank, processes
        self.pays = feedback.has_judge and type(feedback).pays_feedback(config.feedback)
        self._said_nothing = False

    @property
    def evaluates(self) -> bool:
        """Whether the policy is evaluated before its first update, and judges read evaluations."""
        return self.pays and self.config.guards.evaluate and self.config.eval.every > 0

    def resume(self, update: int) -> None:
        """Read back what the second judge said before `update`."""
        if self.auditor is not None:
            self.auditor.resume(update)

    def evaluation(self, episodes: Sequence[Episode], update: int) -> dict[str, Any]:
        """What is added to an evaluation's figures: `score` and `auditor`, means with their intervals over tasks (a failed
        judgement that is paid for counts as what it is paid), of successes and failures apart, and how many have none.

        Args:
            episodes: all of them, on every process; all processes call this together.
            update: the last one made, −1 before the first.
        """
        if not self.evaluates:
            return {}
        report, mine = Report(), list(range(self.rank, len(episodes), self.processes))
        own = [episodes[i] for i in mine]
        first = self.feedback.scores(own, update, report)
        second = self._audited(own, update, report)
        everyones = gather_object(list(zip(mine, first, second, strict=True)))
        said = {i: (a, b) for i, a, b in everyones}
        found = _means(episodes, [said[i][0] for i in range(len(episodes))], "score", self.config.seed)
        found["judge_tokens"] = sum(gather_object([report.counts["judge_tokens"]]))
        if self.auditor is not None:
            found |= _means(episodes, [said[i][1] for i in range(len(episodes))], "auditor", self.config.seed)
            both = [(a, b) for a, b in said.values() if a is not None and b is not None]
            found["auditor_correlation"] = rank_correlation([a for a, _ in both], [b for _, b in both])
            self._tell(len(both), len(episodes), report.problem)
        return found

    def audit(self, played: Sequence[Episode], update: int) -> Audit:
        """Both judges on the guards' share of an update's first attempts; all processes call this together."""
        if self.auditor is None:
            return Audit([])
        firsts = [e for e in played if e.stage == "initial"]
        share, everyones = self.config.guards.auditor.share, gather_object([e.key for e in firsts])
        chosen = {key for n, key in enumerate(everyones) if int((n + 1) * share) > int(n * share)}
        mine = [e for e in firsts if e.key in chosen]
        report = Report()
        second = self._audited(mine, update, report)
        first = self.feedback.scores(mine, update, Report())
        pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
        return Audit(pairs, len(mine), report.counts["judge_tokens"], report.problem)

    def figures(self, audits: Sequence[Audit]) -> dict[str, float]:
        """An update's `auditor/…` metrics, of all processes' audits in order."""
        if self.auditor is None:
            return {}
        pairs = [pair for audit in audits for pair in audit.pairs]
        first, second = [a for a, _ in pairs], [b for _, b in pairs]
        asked = sum(audit.asked for audit in audits)
        self._tell(len(pairs), asked, next((a.problem for a in audits if a.problem), None))
        correlation = rank_correlation(first, second)
        return {
            "auditor/score": mean(second),
            "auditor/judge_score": mean(first),
            "auditor/correlation": float("nan") if correlation is None else correlation,
            "auditor/rows": float(len(pairs)),
            "auditor/unscored": float(asked - len(pairs)),
            "auditor/judge_tokens": float(sum(audit.tokens for audit in audits)),
        }

    def _audited(self, episodes: Sequence[Episode], update: int, report: Report) -> list[float | None]:
        """The second judge's scores, None where there is none."""
        found: list[float | None] = [None] * len(episodes)
        if self.auditor is None:
            return found
        asked = [i for i, e in enumerate(episodes) if judgeable(e)]
        mode = self.config.guards.auditor.judge_mode
        said = self.auditor.ask([as_judged(episodes[i]) for i in asked], mode, update, report)
        for i, feedback in zip(asked, said, strict=True):
            found[i] = feedback.score
        return found

    def _tell(self, pairs: int, asked: int, problem: str | None) -> None:
        """Say once that the second judge is no guard."""
        if asked and not pairs and not self._said_nothing:
            self._said_nothing = True
            logger.warning(
                "guards.auditor.judge=%s: of %d transcripts none has a score of both judges (%s): it guards nothing",
                self.config.guards.auditor.judge, asked, problem or "no failure is known",
            )  # fmt: skip


def _means(episodes: Sequence[Episode], scores: Sequence[float | None], name: str, seed: int) -> dict[str, Any]:
    """A judge's mean score, apart by success, and how many episodes have none."""
    by_task: dict[str, list[float]] = defaultdict(list)
    apart: dict[bool, list[float]] = {True: [], False: []}
    for e, score in zip(episodes, scores, strict=True):
        if score is None:
            continue
        by_task[e.group_id].append(score)
        if e.success is not None:
            apart[e.success].append(score)
    return {
        name: mean_interval([mean(found) for found in by_task.values()], seed=seed),
        f"{name}_success": mean(apart[True]) if apart[True] else None,
        f"{name}_failure": mean(apart[False]) if apart[False] else None,
        f"{name}_unscored": sum(score is None for score in scores),
    }


def make_watch(
    config: AgentConfig,
    feedback: Adapter,
    *,
    device: str,
    folder: Path,
    auditor: AgentRRM | None = None,
    rank: int = 0,
    processes: int = 1,
) -> Watch:
    """The watch of a config. The second judge is loaded only where a judge's feedback is part of the reward.

    Args:
        device: for a judge in this process.
        folder: the run folder, for `auditor.jsonl`.
        auditor: in place of `guards.auditor.judge`.

    Raises:
        RRMError: the second judge cannot be loaded, or cannot read the environment.
    """
    guard = config.guards.auditor
    judging = None
    pays = feedback.has_judge and type(feedback).pays_feedback(config.feedback)
    if guard.action != "none" and pays and (auditor or guard.judge):
        if auditor is None and guard.judge is not None:
            second = {"judge": guard.judge, "judge_options": guard.judge_options}
            settings = config.feedback.model_copy(update=second)
            check_judge(settings, config.environment, "guards.auditor.judge")
            auditor = load_judge(settings, device, "guards.auditor.judge")
        assert auditor is not None
        record = folder / ("auditor.jsonl" if rank == 0 else f"auditor-{rank}.jsonl")
        judging = Judging(auditor, seed=derive_seed(config.seed, "auditor"), record=record)
    return Watch(config, feedback, auditor=judging, rank=rank, processes=processes)
