"""Evaluate a policy on held-out tasks: success with its interval, EM, F1, pass@k, turns, tool errors."""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase

from reagent.env.env import EnvFactory, ToolEnv
from reagent.env.gradability import Grading
from reagent.env.graders import Grader
from reagent.env.task import Task
from reagent.feedback.base import FeedbackMode
from reagent.rollout.attempts import Attempt, plan
from reagent.rollout.episode import Episode
from reagent.rollout.rollout import rollout
from reagent.tasks.environments import held_out_tasks, make_factory
from reagent.train.build_feedback import make_feedback
from reagent.train.config import AgentConfig
from reagent.train.engine import close, make_engine
from reagent.train.metrics import episode_metrics, mean, pass_at_k
from reagent.train.policy import load_policy, precision
from rrm.engines.base import TokenEngine
from rrm.evaluation.bootstrap import Interval, bootstrap, by_questions, too_few
from rrm.judge.agent_rrm import AgentRRM

logger = logging.getLogger(__name__)


def mean_interval(
    values: Sequence[float], rows: int, *, seed: int, questions: Sequence[str] | None = None
) -> dict[str, float | None]:
    """Mean of one value a task, with its 95 % interval over questions, where there are enough.

    `rows`: episodes in all. `questions`: of each task; tasks of one question are drawn together. None: all differ."""
    if not values:
        return Interval(None, None, None).to_dict()
    mean = by_questions(values, questions)
    count = len(mean.numerator)
    return bootstrap(mean, count, seed=seed).unless(too_few(count, rows)).to_dict()


def question_of_task(episode: Episode) -> str:
    return episode.task.question_id or episode.group_id


def without_interval(figures: Mapping[str, Any]) -> list[str]:
    """Names of the figures, nested as `success_by_hops.2`, with too few tasks for an interval."""
    names: list[str] = []
    for name, value in figures.items():
        if not isinstance(value, Mapping):
            continue
        if {"value", "low"} <= value.keys():
            names += [name] if value["value"] is not None and value["low"] is None else []
        else:
            names += [f"{name}.{inner}" for inner in without_interval(value)]
    return names


def mean_grade(episodes: Sequence[Episode], grade: Grader) -> float:
    graded = [e for e in episodes if e.task.answer is not None]
    return mean([grade(e.task, e.answer) if e.answer is not None else 0.0 for e in graded])


def summarise(
    episodes: Sequence[Episode],
    *,
    samples: int,
    seed: int,
    is_graded: Callable[[Task], bool] = lambda task: task.graded,
    metrics: Mapping[str, Grader] = ToolEnv.metrics,
) -> dict[str, Any]:
    """Figures of episodes, `samples` of each task; an unknown outcome counts as no success.

    Ungraded tasks are counted and have no success. Figures of nothing are None. `is_graded`: asked where all attempts failed."""
    tasks: dict[str, list[Episode]] = defaultdict(list)
    for e in episodes:
        tasks[e.group_id].append(e)  # a task that is there twice is two, as it was planned (`id`, `id#2`)
    by_task = {t: attempts for t, attempts in tasks.items() if has_grade(attempts, is_graded)}
    rates = {t: mean([float(e.success or 0) for e in attempts]) for t, attempts in by_task.items()}
    hops: dict[str, list[str]] = defaultdict(list)
    for t, attempts in by_task.items():
        if "hops" in attempts[0].task.meta:
            hops[str(attempts[0].task.meta["hops"])].append(t)

    def success(names: Collection[str]) -> dict[str, float | None]:
        asks = [question_of_task(by_task[t][0]) for t in names]
        return mean_interval([rates[t] for t in names], sum(len(by_task[t]) for t in names), seed=seed, questions=asks)

    counts = [sum(bool(e.success) for e in attempts) for attempts in by_task.values()]
    figures = {
        "tasks": len(tasks),
        "ungraded_tasks": len(tasks) - len(by_task),
        "samples": samples,
        "success": success(rates),
        "success_by_hops": {h: success(v) | {"tasks": len(v)} for h, v in sorted(hops.items())},
        **{name: mean_grade(episodes, grade) for name, grade in metrics.items()},
        "by_task": {t: rate for t, rate in rates.items()},
        "pass_at_k": {str(k): pass_at_k(counts, samples, k) if counts else None for k in sorted({1, samples})},
        **{k.removeprefix("episode/"): v for k, v in episode_metrics(episodes).items() if "hops" not in k and "success" not in k},
    }  # fmt: skip
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in figures.items()}


def has_grade(attempts: Sequence[Episode], is_graded: Callable[[Task], bool]) -> bool:
    """True where a task is graded, by one of its attempts: paid ones have a success or a failed grade."""
    if any(e.ungraded or (e.outcome_reward is not None and e.success is None and not e.grade_failed) for e in attempts):
        return False
    return any(e.success is not None for e in attempts) or is_graded(attempts[0].task)


def shared(
    attempts: Sequence[Attempt], play: Callable[[Sequence[Attempt]], list[Episode]], accelerator: Accelerator | None
) -> list[Episode]:
    """Every attempt's episode, in order; each process plays every n-th (tasks come sorted by kind)."""
    if accelerator is None or accelerator.num_processes == 1:
        return play(attempts)
    rank, processes = accelerator.process_index, accelerator.num_processes
    mine = list(range(rank, len(attempts), processes))
    played = play([attempts[i] for i in mine]) if mine else []
    everyones: list[tuple[int, Episode]] = gather_object(list(zip(mine, played, strict=True)))
    return [episode for _, episode in sorted(everyones, key=lambda pair: pair[0])]


@dataclass(frozen=True)
class EpisodeRunner:
    """Plays attempts with a policy as the config's `rollout`, `eval` and `mixed_precision` say."""

    engine: TokenEngine
    tokenizer: PreTrainedTokenizerBase
    env_factory: EnvFactory
    config: AgentConfig
    temperature: float | None = None
    seed: int | None = None
    """Both in place of the config's."""
    here: str | None = None

    @property
    def device(self) -> str:
        return self.here or str(getattr(self.engine, "device", "cpu"))

    def __call__(self, attempts: Sequence[Attempt], **hooks: Any) -> list[Episode]:
        """Episodes in order; `hooks` as in `reagent.rollout.rollout.rollout`."""
        settings = self.config.rollout
        temperature = self.config.eval.temperature if self.temperature is None else self.temperature
        with precision(self.config.mixed_precision, self.device):
            return rollout(
                self.engine,
                self.tokenizer,
                self.env_factory,
                attempts,
                params=settings.sampling(
                    seed=self.config.seed if self.seed is None else self.seed, temperature=temperature
                ),
                **hooks,
                **settings.limits,
            )


def load_player(config: AgentConfig) -> EpisodeRunner:
    """The config's own policy, frozen, in its environment. Raises RRMError, ConfigError."""
    import torch

    if config.threads:
        torch.set_num_threads(config.threads)
    env_factory = make_factory(config.environment.name, **config.environment.made_with)
    policy, tokenizer = load_policy(config.policy, with_values=False, trained=False)
    device = "cpu" if config.cpu or not torch.cuda.is_available() else "cuda"
    engine = make_engine(config, policy, tokenizer, device=device)
    return EpisodeRunner(engine, tokenizer, env_factory, config, here=device)


def evaluate(
    player: EpisodeRunner,
    tasks: Sequence[Task],
    feedback: FeedbackMode | None = None,
    accelerator: Accelerator | None = None,
) -> tuple[dict[str, Any], list[Episode]]:
    """Roll out `eval.samples` episodes of each task, and summarise them.

    Figures are those of first attempts, with `sampled_success` of further ones (`eval.sampled`), and with feedback `refined`, of
    second ones, and `feedback/…`. `accelerator`: of processes that share the tasks, without feedback. Raises JudgeFailure: more
    judgements failed than `feedback.max_failure_rate` allows."""
    config = player.config
    attempts, samples = plan(tasks, config.eval.samples), config.eval.samples
    with Grading(player.env_factory) as grading:
        figures = partial(
            summarise, samples=samples, seed=config.seed, is_graded=grading.is_graded, metrics=grading.metrics
        )
        sampled: dict[str, Any] = {}
        if config.eval.sampled and not (player.temperature or config.eval.temperature):
            hot = replace(player, temperature=config.rollout.temperature)
            played = shared(plan(tasks, config.eval.sampled), hot, accelerator)
            sampled = {
                "sampled_success": summarise(
                    played, samples=config.eval.sampled, seed=config.seed, is_graded=grading.is_graded
                )["success"]
            }
        if feedback is None:
            episodes = shared(attempts, player, accelerator)
            return figures(episodes) | sampled, episodes
        round_ = feedback.round(0, attempts, player)
        first = [e for e in round_.played if e.stage == "initial"]
        refined = [e for e in round_.played if e.stage == "refined"]
        result = figures(first) | sampled | feedback.report(None, [round_.report])
        if refined:
            result["refined"] = figures(refined)
        return result, round_.played


def evaluate_config(config: AgentConfig, judge: AgentRRM | None = None) -> tuple[dict[str, Any], list[Episode]]:
    """`evaluate` with a config's own policy, tasks and feedback. Raises RRMError, ConfigError."""
    if config.warm_start.tasks:
        logger.warning(
            "the policy is played as it was before its warm start: name the taught one by --policy OUTPUT/warm"
        )
    tasks = held_out_tasks(config.environment)
    player = load_player(config)
    eos_ids = getattr(player.engine, "eos_ids", None)
    try:
        feedback = make_feedback(config, player.tokenizer, device=player.device, judge=judge, eos_ids=eos_ids)
        return evaluate(player, tasks, feedback)
    finally:
        close(player.engine)
