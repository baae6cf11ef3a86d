"""Choosing at inference: the judge, or another strategy, takes one of several attempts at a task.

    figures, episodes = evaluate_chosen(config, ["judge", "majority"])

On graded tasks a strategy's success is its exact expectation (`rrm.evaluation.choosing`) at every number of attempts up to
`eval.samples`. With `retries` first attempts are also criticised and tried again, and the judge chooses among both; the
attempts that the same tokens buy are read off the exact curve.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, cast

import numpy as np

from reagent.env.env import ToolEnv
from reagent.env.gradability import Grading
from reagent.env.graders import Grader
from reagent.env.task import Task
from reagent.feedback.base import JudgedEpisode, as_judged, judgeable
from reagent.feedback.judging import JudgingReport, content_key
from reagent.feedback.modes import CritiqueFeedback
from reagent.rollout.attempts import plan
from reagent.rollout.episode import Episode
from reagent.tasks.environments import held_out_tasks
from reagent.train.build_feedback import AskedFor, make_feedback
from reagent.train.config import AgentConfig
from reagent.train.engine import close
from reagent.train.evaluate import EpisodeRunner, has_grade, load_player, mean_interval, question_of_task, summarise
from rrm.errors import ConfigError
from rrm.evaluation.baselines import transcript_length
from rrm.evaluation.bootstrap import JUDGE, by_questions, paired_bootstrap, too_few
from rrm.evaluation.choosing import (
    OF_SCORES,
    STRATEGIES,
    Attempts,
    as_compared,
    as_preference,
    expected_distinct,
    measure,
    success_of,
)
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.choose import marked

logger = logging.getLogger(__name__)
ALONE = ("none", "r", "process")
RETRY = "retry"


def check_choosing(config: AgentConfig, strategies: Sequence[str], retries: int) -> None:
    """Refuse configs with nothing to choose from. Raises ConfigError."""
    samples, mode = config.eval.samples, config.feedback.mode
    if samples < 2:
        raise ConfigError(
            f"eval.samples={samples}: choosing needs several attempts at a task; set eval.samples=8 eval.temperature=1"
        )
    if mode not in ALONE:
        raise ConfigError(
            f"feedback.mode={mode} plays second attempts, and --choose chooses among first ones: set feedback.mode=none; "
            "--retries compares it with second attempts at equal tokens"
        )
    if retries and (JUDGE not in strategies or retries > samples):
        raise ConfigError(
            f"--retries {retries} tries so many of the eval.samples={samples} first attempts at a task again and lets the "
            "judge choose: give --choose judge, and no more retries than eval.samples"
        )
    if config.eval.temperature == 0:
        logger.warning("eval.temperature=0: all attempts at a task are the same, unless its tools are not")


def asker_of(strategies: Sequence[str], retries: int) -> AskedFor:
    """The options of `reagent eval` that ask the judge."""
    option = f"--choose {','.join(name for name in strategies if name in OF_SCORES)}"
    others = ", ".join(name for name in STRATEGIES if name not in OF_SCORES)
    without = " and --retries" if retries else ""
    return AskedFor(
        option, f"leave {' and '.join(sorted(OF_SCORES))} out of --choose{without} ({others} need no judge)"
    )


def make_chooser(
    config: AgentConfig, player: EpisodeRunner, judge: AgentRRM | None = None, *, asker: AskedFor, **options: Any
) -> CritiqueFeedback:
    """The feedback that scores, criticises and retries attempts, in any `feedback.mode`. Raises RRMError."""
    refinement = config.feedback.refinement
    changes = {"mode": "c", "refinement": "critique" if refinement == "none" else refinement}
    chooser_config = config.model_copy(update={"feedback": config.feedback.model_copy(update=changes)})
    chooser = make_feedback(chooser_config, player.tokenizer, device=player.device, judge=judge, asker=asker, **options)
    return cast(CritiqueFeedback, chooser)


def attempts_of(
    episodes: Sequence[Episode], scores: Sequence[float | None] | None, is_graded: Callable[[Task], bool]
) -> list[Attempts]:
    """Episodes grouped by task, for strategies; unknown outcomes of graded tasks are no success.

    `scores`: the judge's, one an episode; None where no judge was asked."""
    places: dict[str, list[int]] = defaultdict(list)
    for i, e in enumerate(episodes):
        places[e.group_id].append(i)
    preference = None if scores is None else as_preference(scores)
    attempts = []
    for group, rows in places.items():
        tried = [episodes[i] for i in rows]
        graded = has_grade(tried, is_graded)
        attempts.append(
            Attempts(
                group,
                rows,
                np.array([transcript_length(e.trajectory) for e in tried], dtype=np.float64),
                [as_compared(e.answer) for e in tried],
                np.array([float(e.success or 0) if graded else np.nan for e in tried]),
                {} if preference is None else {JUDGE: preference[rows]},
                question_of_task(tried[0]),
            )
        )
    return attempts


def policy_tokens(episodes: Sequence[Episode]) -> int:
    """Tokens that the policy read and wrote: prompts, turns and observations, each once."""
    return sum(len(e.prompt_ids) + sum(len(t.output_ids) + len(t.observation_ids) for t in e.turns) for e in episodes)


def distinct_by_n(episodes: Sequence[Episode], samples: int) -> list[float]:
    """(samples + 1) expected distinct attempts among 0, 1, 2 … drawn: copies are judged once."""
    copies = Counter((e.group_id, content_key(as_judged(e))) for e in episodes if judgeable(e))
    return expected_distinct(copies.values(), samples)


@dataclass(frozen=True)
class Cost:
    policy: int
    judge: int
    distinct: Sequence[float]
    """Expected distinct attempts, from `distinct_by_n`; the judge's tokens are proportional."""

    def at(self, n: float) -> tuple[float, float]:
        """The policy's and the judge's tokens of n attempts a task, interpolated."""
        counts = np.arange(len(self.distinct))
        share = float(np.interp(n, counts, self.distinct)) / max(self.distinct[-1], 1e-9)
        return self.policy * n / float(counts[-1]), self.judge * share

    def attempts(self, tokens: float) -> float:
        """Attempts a task that take so many tokens; beyond all of them at their mean price."""
        costs = [sum(self.at(n)) for n in range(len(self.distinct))]
        if tokens > costs[-1]:
            return (len(costs) - 1) * tokens / max(costs[-1], 1e-9)
        return float(np.interp(tokens, costs, range(len(costs))))


def success_by_n(groups: Sequence[Attempts], strategies: Sequence[str], samples: int, seed: int) -> dict[str, Any]:
    """Attempts (2, 4, 8 … and all) → success by strategy, and the judge's lead; {} without graded tasks."""
    successes: dict[str, Any] = {}
    for n in sorted({*(2**k for k in range(1, samples.bit_length()) if 2**k < samples), samples}):
        measured = measure(groups, strategies, n=n, seed=seed)
        if measured is not None:
            successes[str(n)] = success_of(measured)
    return successes


@dataclass(frozen=True)
class FirstAttempts:
    episodes: list[Episode]
    scores: list[float | None]
    groups: list[Attempts]
    written: list[JudgedEpisode]
    """Judgements with the critiques of those to be tried again, the first of each task."""
    critique_report: JudgingReport
    score_report: JudgingReport
    rest_report: JudgingReport
    """Judging in the scores' mode: `score_report` of attempts to be retried, this of the others."""

    @property
    def judge_tokens(self) -> int:
        scored = self.score_report.counts["asked"] or not self.written
        return _tokens(self.score_report if scored else self.critique_report) + _tokens(self.rest_report)


@dataclass(frozen=True)
class Retried:
    figures: dict[str, Any]
    seconds: list[Episode]
    scores: list[float | None]
    chosen: set[str]
    report: JudgingReport


def _tokens(report: JudgingReport) -> int:
    return int(report.counts["judge_tokens"])


@dataclass
class Choosing:
    """An evaluation that chooses. `chooser`: None where no strategy asks the judge."""

    config: AgentConfig
    player: EpisodeRunner
    strategies: Sequence[str]
    chooser: CritiqueFeedback | None
    is_graded: Callable[[Task], bool]
    metrics: Mapping[str, Grader] = field(default_factory=lambda: ToolEnv.metrics)

    def evaluate(self, tasks: Sequence[Task], retries: int = 0) -> tuple[dict[str, Any], list[Episode]]:
        """Figures and episodes, second attempts last, with choices noted on the transcripts.

        Raises JudgeFailure: more judgements failed than `feedback.max_failure_rate` allows."""
        played = self.play(tasks, retries)
        episodes, scores = played.episodes, played.scores
        how = {"is_graded": self.is_graded, "metrics": self.metrics}
        figures = summarise(episodes, samples=self.config.eval.samples, seed=self.config.seed, **how)
        names = self._known(played.groups)
        chosen: dict[int, list[str]] = defaultdict(list)
        for group in played.groups:
            for name in names:
                chosen[group.rows[group.choose(name, self.config.seed)]].append(name)
        reports = [played.critique_report, played.score_report, played.rest_report]
        figures["choose"] = self._figures(played, names, chosen)
        if retries and self.chooser is not None:
            again = self.retry(played, self.chooser)
            figures["retry"] = again.figures
            episodes, scores, reports = [*episodes, *again.seconds], [*scores, *again.scores], [*reports, again.report]
            for i, e in enumerate(episodes):
                if e.key in again.chosen:
                    chosen[i].append(RETRY)
        if self.chooser is not None:
            figures |= self.chooser.report(None, reports)
        for i, (e, score) in enumerate(zip(episodes, scores, strict=True)):
            e.trajectory = marked(e.trajectory, chosen.get(i, ()), score)
        return figures, episodes

    def play(self, tasks: Sequence[Task], retries: int) -> FirstAttempts:
        episodes = self.player(plan(tasks, self.config.eval.samples))
        critique, score, rest = JudgingReport(), JudgingReport(), JudgingReport()
        scores: list[float | None] = [None] * len(episodes)
        written: list[JudgedEpisode] = []
        if self.chooser is not None:
            again = [i for i, e in enumerate(episodes) if e.attempt < retries]
            others = [i for i, e in enumerate(episodes) if e.attempt >= retries]
            if retries:
                mode = self.config.feedback.critique_mode
                written = self.chooser.judge([episodes[i] for i in again], mode, 0, critique)
            for places, report in ((again, score), (others, rest)):
                for i, value in zip(places, self._scored([episodes[i] for i in places], report), strict=True):
                    scores[i] = value
        groups = attempts_of(episodes, scores if self.chooser else None, self.is_graded)
        return FirstAttempts(episodes, scores, groups, written, critique, score, rest)

    def _scored(
        self, episodes: Sequence[Episode], report: JudgingReport, firsts: Sequence[Episode] = ()
    ) -> list[float | None]:
        if self.chooser is None or not episodes:
            return [None] * len(episodes)
        judged = self.chooser.judge(episodes, self.config.feedback.score_mode, 0, report, firsts)
        self.chooser.note_scores(judged, report, "refined_score" if firsts else "score")
        return [j.score for j in judged]

    def _known(self, groups: Sequence[Attempts]) -> list[str]:
        """The strategies that can choose here: the oracle needs outcomes."""
        if "oracle" in self.strategies and not any(g.known for g in groups):
            logger.warning("no task is graded: the oracle, which chooses by outcomes, is left out")
            return [name for name in self.strategies if name != "oracle"]
        return [*self.strategies]

    def _figures(
        self, played: FirstAttempts, names: Sequence[str], chosen: Mapping[int, Sequence[str]]
    ) -> dict[str, Any]:
        samples = self.config.eval.samples
        by_n = success_by_n(played.groups, names, samples, self.config.seed)
        summaries = {
            i: {"id": e.trajectory.id, "answer": e.answer, "score": score}
            for i, (e, score) in enumerate(zip(played.episodes, played.scores, strict=True))
        }
        return {
            "attempts": samples,
            "graded_tasks": sum(g.known for g in played.groups),
            **by_n.get(str(samples), {}),
            "policy_tokens": policy_tokens(played.episodes),
            "judge_tokens": played.judge_tokens,
            "by_n": by_n,
            "chosen": {
                g.question: {name: summaries[i] for i in g.rows for name in chosen.get(i, ())} for g in played.groups
            },
        }

    # ---- second attempts at equal tokens ----

    def retry(self, played: FirstAttempts, chooser: CritiqueFeedback) -> Retried:
        """Retry the criticised attempts; compare the judge's choice with first attempts of equal tokens."""
        report, firsts = JudgingReport(), [j.episode for j in played.written]
        critiques = chooser.texts_of(played.written, "critique", report)
        texts = chooser.shown(played.written, critiques, 0, report)
        seconds, before = chooser.refine(firsts, texts, lambda again, _, **hooks: self.player(again, **hooks), report)
        second_scores = self._scored(seconds, report, before)
        score_of = {e.key: s for e, s in zip(played.episodes, played.scores, strict=True)}
        tried = [*firsts, *seconds]
        both = attempts_of(tried, [*(score_of[e.key] for e in firsts), *second_scores], self.is_graded)
        spent = policy_tokens(tried)
        judge_tokens = _tokens(played.critique_report) + _tokens(played.score_report) + _tokens(report)
        distinct = distinct_by_n(played.episodes, self.config.eval.samples)
        alone = Cost(policy_tokens(played.episodes), played.judge_tokens, distinct)
        figures = at_equal_tokens(played.groups, both, alone.attempts(spent + judge_tokens), self.config)
        of_policy, of_judge = map(round, alone.at(figures["samples"]["attempts"]))
        figures["samples"] |= {"policy_tokens": of_policy, "judge_tokens": of_judge}
        figures |= {
            "retries": len(firsts) // max(len(both), 1),
            "first": self._mean_success(firsts),
            "second": self._mean_success(seconds),
            "policy_tokens": spent,
            "judge_tokens": judge_tokens,
        }
        chosen = {tried[g.rows[g.choose(JUDGE, self.config.seed)]].key for g in both}
        return Retried(figures, seconds, second_scores, chosen, report)

    def _mean_success(self, episodes: Sequence[Episode]) -> dict[str, float | None]:
        groups = [g for g in attempts_of(episodes, None, self.is_graded) if g.known]
        means = [float(g.outcomes.mean()) for g in groups]
        questions = [g.asked or g.question for g in groups]
        return mean_interval(means, sum(map(len, groups)), seed=self.config.seed, questions=questions)


def at_equal_tokens(
    alone: Sequence[Attempts], both: Sequence[Attempts], count: float, config: AgentConfig
) -> dict[str, Any]:
    """Compare the judge's choice in both stages (`success`) with as many tokens of first ones (`samples`).

    `alone`: `eval.samples` first attempts a task; `count` of them, a mixture where fractional, take the tokens of `both`."""
    samples = config.eval.samples
    if count > samples:
        logger.warning(
            "second attempts took the tokens of %.1f first attempts a task, and there are %d: they are compared with all of "
            "these, which had fewer tokens; set eval.samples=%d or more", count, samples, ceil(count)
        )  # fmt: skip
    n = min(max(count, 1.0), float(samples))
    low, fraction = floor(n), n - floor(n)
    pairs = [(a, b) for a, b in zip(alone, both, strict=True) if a.known and b.known]
    figures: dict[str, Any] = {"success": mean_interval([], 0, seed=0), "samples": {"attempts": n, "wanted": count}}
    if not pairs:
        return figures
    first = [
        (1 - fraction) * a.expected(JUDGE, low) + (fraction * a.expected(JUDGE, low + 1) if fraction else 0.0)
        for a, _ in pairs
    ]
    second, question_ids = [b.expected(JUDGE) for _, b in pairs], [a.asked or a.question for a, _ in pairs]
    questions, rows = len(set(question_ids)), sum(len(b) for _, b in pairs)
    difference = paired_bootstrap(
        by_questions(second, question_ids), by_questions(first, question_ids), questions, seed=config.seed
    )
    drawn: dict[str, Any] = {"seed": config.seed, "questions": question_ids}
    figures["success"] = mean_interval(second, rows, **drawn)
    figures["samples"]["success"] = mean_interval(first, sum(len(a) for a, _ in pairs), **drawn)
    few = too_few(questions, rows)
    return figures | {"minus_samples": difference.unless(few).to_dict()}


def evaluate_chosen(
    config: AgentConfig, strategies: Sequence[str], *, retries: int = 0, judge: AgentRRM | None = None
) -> tuple[dict[str, Any], list[Episode]]:
    """`reagent eval --choose`: figures of `summarise` with `choose` (and `retry`), and the episodes.

    `strategies`: of `rrm.evaluation.choosing.STRATEGIES`. `retries`: first attempts of each task that are also tried again.
    `meta.chosen_by` of a transcript names its strategies, `meta.judge_score` is its score. Raises ConfigError: as
    `check_choosing`; RRMError: a policy or judge cannot be loaded; JudgeFailure: too many judgements failed."""
    check_choosing(config, strategies, retries)
    tasks = held_out_tasks(config.environment)
    player = load_player(config)
    try:
        asks = OF_SCORES & {*strategies}
        chooser = make_chooser(config, player, judge, asker=asker_of(strategies, retries)) if asks else None
        with Grading(player.env_factory) as grading:
            return Choosing(config, player, strategies, chooser, grading.is_graded, grading.metrics).evaluate(
                tasks, retries
            )
    finally:
        close(player.engine)
