"""Evaluating a policy on held-out tasks: success with an interval over questions, EM, F1, pass@k, turns, tool errors."""

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


def mean_interval(
    values: Sequence[float], rows: int, *, seed: int, questions: Sequence[str] | None = None
) -> dict[str, float | None]:
    """Mean of the values, one a task, with its 95 % interval over questions; without one of too few (`rrm.evaluation.bootstrap.too_few`),
    None of nothing.

    Args:
        rows: episodes that the values are means of, in all.
        questions: what each task asks; tasks that ask one question are drawn together. None: each another one.
    """
    if not values:
        return Interval(None, None, None).to_dict()
    mean = by_questions(values, questions)
    count = len(mean.numerator)
    return bootstrap(mean, count, seed=seed).unless(too_few(count, rows)).to_dict()


def question_of_task(episode: Episode) -> str:
    """What its task asks: some benchmarks ask one question in several ways, each a task."""
    return episode.task.question_id or episode.group_id


def without_interval(figures: Mapping[str, Any]) -> list[str]:
    """Names of the figures, nested ones as `success_by_hops.2`, that rest on too few tasks or episodes for an interval."""
    found: list[str] = []
    for name, value in figures.items():
        if not isinstance(value, Mapping):
            continue
        if {"value", "low"} <= value.keys():
            found += [name] if value["value"] is not None and value["low"] is None else []
        else:
            found += [f"{name}.{inner}" for inner in without_interval(value)]
    return found


def mean_grade(episodes: Sequence[Episode], grade: Grader) -> float:
    """Mean grade of the answers, 0 where none was given, over episodes of tasks with a reference; NaN without any."""
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
    """Figures of episodes, `samples` of each task; an episode without a known outcome counts as no success.

    Tasks that nobody can grade are counted (`ungraded_tasks`) and have no success: what there is of them is a judge's score
    (`feedback/score`) and the reward with it (`feedback/reward`). Figures of nothing are None.

    Args:
        is_graded: whether a task is graded, asked where every attempt at it failed: none of them can say.
        metrics: further figures of the answers, by name.
    """
    tasks: dict[str, list[Episode]] = defaultdict(list)
    for e in episodes:
        tasks[e.group_id].append(e)  # a task that is there twice is two, as it was planned (`id`, `id#2`)
    by_task = {t: found for t, found in tasks.items() if has_grade(found, is_graded)}
    rates = {t: mean([float(e.success or 0) for e in found]) for t, found in by_task.items()}
    hops: dict[str, list[str]] = defaultdict(list)
    for t, found in by_task.items():
        if "hops" in found[0].task.meta:
            hops[str(found[0].task.meta["hops"])].append(t)

    def success(names: Collection[str]) -> dict[str, float | None]:
        asks = [question_of_task(by_task[t][0]) for t in names]
        return mean_interval([rates[t] for t in names], sum(len(by_task[t]) for t in names), seed=seed, questions=asks)

    counts = [sum(bool(e.success) for e in found) for found in by_task.values()]
    found = {
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
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in found.items()}


def has_grade(attempts: Sequence[Episode], is_graded: Callable[[Task], bool]) -> bool:
    """Whether a task is graded: as one of its attempts says, a failed one not knowing. One that was paid, and of which the environment
    does not say whether that is a success, has none, but where its grade failed."""
    if any(e.ungraded or (e.outcome_reward is not None and e.success is None and not e.grade_failed) for e in attempts):
        return False
    return any(e.success is not None for e in attempts) or is_graded(attempts[0].task)


def shared(
    attempts: Sequence[Attempt], play: Callable[[Sequence[Attempt]], list[Episode]], accelerator: Accelerator | None
) -> list[Episode]:
    """Every attempt's episode, in their order, of which each process has played every n-th (tasks come sorted by kind)."""
    if accelerator is None or accelerator.num_processes == 1:
        return play(attempts)
    rank, processes = accelerator.process_index, accelerator.num_processes
    mine = list(range(rank, len(attempts), processes))
    played = play([attempts[i] for i in mine]) if mine else []
    everyones: list[tuple[int, Episode]] = gather_object(list(zip(mine, played, strict=True)))
    return [episode for _, episode in sorted(everyones, key=lambda pair: pair[0])]


@dataclass(frozen=True)
class EpisodeRunner:
    """Plays attempts with a policy as it stands, as the config's `rollout` and `eval` say, in its `mixed_precision`."""

    engine: TokenEngine
    tokenizer: PreTrainedTokenizerBase
    env_factory: EnvFactory
    """Makes a fresh environment for one episode."""
    config: AgentConfig
    temperature: float | None = None
    """In place of `eval.temperature`."""
    seed: int | None = None
    """In place of the config's."""
    here: str | None = None
    """The device of this process, where the engine is another's."""

    @property
    def device(self) -> str:
        """Where models of this process compute."""
        return self.here or str(getattr(self.engine, "device", "cpu"))

    def __call__(self, attempts: Sequence[Attempt], **hooks: Any) -> list[Episode]:
        """Episodes in the attempts' order; `hooks` as in `reagent.rollout.rollout.rollout`."""
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
    """The config's own policy, frozen, in its environment. Raises RRMError: the policy cannot be loaded; ConfigError: the environment
    cannot be made."""
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
    """Roll out `eval.samples` episodes of each task as the config's `rollout` and `eval` say, and summarise them. Raises JudgeFailure: more
    judgements failed than `feedback.max_failure_rate` allows.

    Args:
        player: plays the policy as it stands.
        feedback: what the policy is given between a first attempt and a second; the policy stays as it is.
        accelerator: of several processes that share the tasks and call this together, without feedback; each returns the
            figures of them all.

    Returns:
        figures of the first attempts, with `sampled_success` of further ones (`eval.sampled`), with feedback also `refined`, those of
        the second ones, and `feedback/…`; and the episodes of first and second attempts.
    """
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
        found = figures(first) | sampled | feedback.report(None, [round_.report])
        if refined:
            found["refined"] = figures(refined)
        return found, round_.played


def evaluate_config(config: AgentConfig, judge: AgentRRM | None = None) -> tuple[dict[str, Any], list[Episode]]:
    """`evaluate` with a config's own policy, environment, held-out tasks and feedback. Raises RRMError: the policy or the judge cannot be
    loaded; ConfigError: the environment or its tasks cannot be made. `judge`: in place of the config's `feedback.judge`."""
    tasks = held_out_tasks(config.environment)
    player = load_player(config)
    eos_ids = getattr(player.engine, "eos_ids", None)
    try:
        feedback = make_feedback(config, player.tokenizer, device=player.device, judge=judge, eos_ids=eos_ids)
        return evaluate(player, tasks, feedback)
    finally:
        close(player.engine)
