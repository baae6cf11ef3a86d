"""AgentTrainer: roll out, compute advantages, update, for all algorithms.

    round     = feedback.round(attempts, play)                token-exact rollouts, and what feedback adds to them
    learner   = learn(round.rows, round.texts, …)             reagent.train.learner: advantages, passes, minibatches, steps

Every process keeps the whole model (data parallel over tasks), or a shard of it (`sharding: fsdp`). All randomness derives
from (seed, update, task, sample), never from a global generator.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object

from reagent.env.env import Environment
from reagent.env.task import Task
from reagent.feedback.base import Play, Round
from reagent.rollout.attempts import Attempt
from reagent.rollout.episode import Episode
from reagent.train.build_feedback import make_feedback
from reagent.train.checkpoint import OTHERS_S, load_checkpoint, save_checkpoint, save_sharded, wait_for
from reagent.train.config import AgentConfig
from reagent.train.dynamic_sampling import DynamicSampler, SamplingStats
from reagent.train.engine import sync
from reagent.train.evaluate import EpisodeRunner
from reagent.train.guards import check_placed
from reagent.train.judge_monitor import make_watch
from reagent.train.launch import check_lag
from reagent.train.learner import Learner
from reagent.train.metrics import episode_metrics, learned_metrics
from reagent.train.policy import Policy
from reagent.train.rollout_prefetcher import RolloutPrefetcher
from rrm.data.seeds import derive_seed
from rrm.engines.base import TokenEngine
from rrm.engines.hf.host_memory import freed_memory
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM


class AgentTrainer(Learner):
    """Trains a policy on an environment. Raises RRMError: a loss that is not finite; JudgeFailure.

    Args:
        tasks: training tasks, used in order and again from the start.
        folder: the run folder; checkpoints go to `checkpoints/` in it.
        engine: rolls the policy out, on the weights being trained.
        judge, auditor: in place of the config's `feedback.judge` and `guards.auditor.judge`.
    """

    def __init__(
        self,
        config: AgentConfig,
        policy: Policy,
        tokenizer: Any,
        env_factory: Callable[[], Environment],
        tasks: Sequence[Task],
        folder: Path,
        *,
        engine: TokenEngine,
        accelerator: Accelerator,
        judge: AgentRRM | None = None,
        auditor: AgentRRM | None = None,
    ) -> None:
        super().__init__(config, policy, folder, accelerator)
        self.tokenizer, self.env_factory, self.tasks, self.engine = tokenizer, env_factory, tasks, engine
        self.feedback = make_feedback(
            config,
            tokenizer,
            device=str(accelerator.device),
            judge=judge,
            folder=folder,
            rank=accelerator.process_index,
            positions=getattr(engine, "max_positions", None),
            eos_ids=getattr(engine, "eos_ids", None),
            trains=True,
        )
        self.watch = make_watch(
            config,
            self.feedback,
            device=str(accelerator.device),
            folder=folder,
            auditor=auditor,
            rank=accelerator.process_index,
            processes=accelerator.num_processes,
        )
        if self.watch.learns:
            check_placed(config, self.feedback.marks_outside)
        check_lag(config, accelerator.num_processes)
        rollouts = config.rollout
        self.dynamic: DynamicSampler | None = None
        if rollouts.dynamic_sampling:
            self.dynamic = DynamicSampler(
                self.feedback,
                rollouts.tasks_per_update,
                rollouts.group_size,
                rollouts.dynamic_sampling,
                config.loss.credit == "turn",
                accelerator,
            )
        self._drawn: SamplingStats | None = None
        self.ahead = RolloutPrefetcher()
        self.episodes_seen = 0
        self.kept_update = 0
        self.tasks_drawn = 0
        self.interruptible: Callable[[], AbstractContextManager[Any]] = nullcontext

    # ---- checkpoints ----

    def save(self, *, together: bool = True) -> Path | None:
        """Save a checkpoint; `together`: wait for the other processes (not after an error)."""
        if together:
            self.accelerator.wait_for_everyone()
        if not (self.sharded or self.accelerator.is_main_process):
            return None
        state = {
            "episodes": self.episodes_seen,
            "tasks_drawn": self.tasks_drawn,
            "algorithm": self.config.algorithm,
            "seed": self.config.seed,
            "feedback": self.feedback.state(),
        }
        folder = self.folder / "checkpoints"
        if not self.sharded:
            saved = save_checkpoint(folder, self.update_index, self.policy, self.optimizer, state)
            self.kept_update = self.update_index
            return saved
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        saved = save_sharded(folder, self.update_index, self.policy, self.optimizer, state, rank=rank, ranks=ranks)
        self.kept_update = self.update_index
        if together:
            self.accelerator.wait_for_everyone()
        else:
            wait_for(saved, OTHERS_S)
        return saved

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint. Raises RRMError: it is another run's, or another policy's."""
        state = load_checkpoint(path, self.policy, self.optimizer)
        if state["algorithm"] != self.config.algorithm or state["seed"] != self.config.seed:
            raise RRMError(
                f"{path} was made with algorithm={state['algorithm']} seed={state['seed']}; choose another output_dir"
            )
        self.update_index, self.episodes_seen = state["update"], state["episodes"]
        self.kept_update = self.update_index
        self.tasks_drawn = state.get("tasks_drawn", self.update_index * self.config.rollout.tasks_per_update)
        self.begin(state.get("feedback", {}))

    def begin(self, feedback: dict[str, Any]) -> None:
        self.feedback.restore(self.update_index, feedback)
        self.watch.resume(self.update_index)

    def sync(self) -> float:
        """Send the policy's weights to the engine; returns the seconds that took."""
        begun = time.perf_counter()
        sync(self.engine, self.policy, self.update_index, self.accelerator)
        return time.perf_counter() - begun

    def player(self, **changes: Any) -> EpisodeRunner:
        here = str(self.accelerator.device)
        return EpisodeRunner(self.engine, self.tokenizer, self.env_factory, self.config, here=here, **changes)

    # ---- one update ----

    def attempts(self, update: int) -> list[Attempt]:
        """This process's share of an update's first attempts: whole groups, planned by all alike."""
        count, size = self.config.rollout.tasks_per_update, self.config.rollout.group_size
        everyones = self.feedback.attempts(self.tasks, update * count, count, size)
        share = len(everyones) // self.accelerator.num_processes
        start = self.accelerator.process_index * share
        return everyones[start : start + share]

    def play(self, attempts: Sequence[Attempt], *, update: int, **hooks: Any) -> list[Episode]:
        seed, temperature = derive_seed(self.config.seed, "rollout", update), self.config.rollout.temperature
        return self.player(temperature=temperature, seed=seed)(attempts, **hooks)

    def round(self, update: int, play: Callable[..., list[Episode]] | None = None) -> Round:
        self.sync()
        return self._round(update, partial(play or self.play, update=update))

    def _round(self, update: int, play: Play) -> Round:
        if self.dynamic is None:
            return self.feedback.round(update, self.attempts(update), play)
        round_, self._drawn = self.dynamic.round(update, self.tasks, self.tasks_drawn, play)
        return round_

    def collect(self, update: int) -> list[Episode]:
        return self.round(update).rows

    def timed_round(self, update: int, check: Callable[[], None] = lambda: None) -> tuple[Round, float]:
        """An update's round on the engine's weights, and the seconds at play."""
        seconds = 0.0

        def play(attempts: Sequence[Attempt], **hooks: Any) -> list[Episode]:
            nonlocal seconds
            begun = time.perf_counter()
            on_end = hooks.pop("on_end", None)

            def ended(episode: Episode) -> None:
                check()
                if on_end is not None:
                    on_end(episode)

            check()
            episodes = self.play(attempts, update=update, on_end=ended, **hooks)
            seconds += time.perf_counter() - begun
            return episodes

        return self._round(update, play), seconds

    @contextmanager
    def whole_or_undone(self) -> Iterator[None]:
        """Undo an update's changes to the feedback's state where the update fails."""
        before = self.feedback.state()
        try:
            yield
        except BaseException:
            self.feedback.rewind(before)
            raise

    def update(self, *, run_ahead: bool = False) -> tuple[dict[str, float], list[Episode]]:
        """One round: episodes, advantages, optimiser steps. Returns metrics and the episodes.

        `time/sync_s`, `time/rollout_s`, `time/judge_s` and `time/update_s` are seconds of this process that do not overlap;
        `time/judge_busy_s` is all judging, on all processes. Of a round played ahead `time/rollout_s` is the wait for it, and
        `time/rollout_busy_s` its playing. `run_ahead`: play the next update's round while this one is learned."""
        started, syncing = time.perf_counter(), 0.0
        with self.interruptible():
            taken = self.ahead.take(self.update_index)
            if taken is None:
                syncing = self.sync()
                round_, busy = self.timed_round(self.update_index)
                playing = busy
            else:
                round_, busy, playing = taken
            audit = self.watch.audit(round_.played, self.update_index)
        judged = time.perf_counter() - started - syncing - playing
        with self.whole_or_undone():
            figures = self.feedback.report(self.update_index, gather_object([round_.report]))
            figures |= self.watch.figures(gather_object([audit]))
            everyones: list[Episode] = gather_object(round_.played)
            if run_ahead:
                syncing += self.sync()
                self.ahead.start(self.update_index + 1, partial(self.timed_round, self.update_index + 1))
            learning = time.perf_counter()
            metrics = self.learn(round_.rows, round_.texts)
            done = time.perf_counter()
        freed_memory.give_back()
        self.update_index += 1
        self.tasks_drawn += self.config.rollout.tasks_per_update if self._drawn is None else self._drawn.tasks
        self.episodes_seen += len(everyones)
        tokens = sum(len(turn.output_ids) for e in everyones for turn in e.turns)
        metrics |= learned_metrics(gather_object([(e.group_id, e.reward, e.turn_rewards) for e in round_.rows]))
        metrics |= {} if self._drawn is None else self._drawn.figures()
        metrics |= episode_metrics([e for e in everyones if e.stage == "initial"])
        refined = [e for e in everyones if e.stage == "refined"]
        if refined:
            metrics |= episode_metrics(refined, "refined")
        if "time/judge_s" in figures:
            figures |= {"time/judge_busy_s": figures["time/judge_s"], "time/judge_s": judged}
        metrics |= figures | {
            "processes": self.accelerator.num_processes,
            "time/sync_s": syncing,
            "time/rollout_s": playing,
            "time/rollout_busy_s": busy,
            "time/update_s": done - learning,
            "time/total_s": time.perf_counter() - started,
            "time/rollout_tokens_per_s": tokens / max(busy, 1e-9),
            "time/update_tokens_per_s": tokens / max(done - learning, 1e-9),
        }
        return metrics, round_.played
