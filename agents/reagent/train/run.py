"""`reagent train`: a run folder, the loop around `AgentTrainer.update`, logs, curves, resume.

runs/agent/
  config.yaml      the config
  metrics.jsonl    one line an update; keys under `time/` are wall-clock, `logprob_gap…` rounding, all others repeat to the bit
  episodes.jsonl   sample transcripts of each update, canonical trajectories with their rewards
  eval.jsonl       held-out evaluations
  judgements.jsonl the judge's, where feedback asks one (auditor.jsonl: the second one's)
  guards.jsonl     guards that fired
  best/            the policy of the best evaluation, where guards watch
  curves.png       reward, success, KL, entropy over updates
  probe.json       figures of the untrained policy (`gate`)
  checkpoints/     resumable states
  warm/            the policy that demonstrations have taught (`warm_start`)
  policy/          the trained policy: safetensors (adapter or whole), tokenizer"""

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import set_seed

from reagent.env.task import Task
from reagent.train.alarms import number
from reagent.train.checkpoint import PREFIX, checkpoints, drop_partial, restore_logs
from reagent.train.config import AgentConfig
from reagent.train.engine import close, make_engine
from reagent.train.evaluate import evaluate
from reagent.train.export import export_policy
from reagent.train.launch import is_sharded, main_decides, main_does, make_accelerator
from reagent.train.monitor_conditions import after
from reagent.train.policy import load_policy
from reagent.train.prepare import check_continues, prepare, with_horizon
from reagent.train.probe import probe
from reagent.train.runlog import RunLog, plot_curves
from reagent.train.signals import Stopping
from reagent.train.trainer import AgentTrainer
from reagent.train.warm_start import split_tasks, warm_started
from rrm.data.output import file_when_whole
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.train.checkpoints import full_disk_named, newest_whole
from rrm.train.run_folder import claim_folder, recorded, sole_writer

logger = logging.getLogger(__name__)


def build(
    config: AgentConfig,
    *,
    judge: AgentRRM | None = None,
    auditor: AgentRRM | None = None,
    accelerator: Accelerator | None = None,
) -> tuple[AgentTrainer, list[Task]]:
    """A config's trainer and held-out tasks; the arguments replace what the config names.

    Raises RRMError: a policy or judge cannot be loaded; ConfigError: like `reagent.train.prepare.prepare`."""
    folder = Path(config.output_dir)
    accelerator = accelerator or make_accelerator(config, folder)
    env_factory, train_tasks, eval_tasks = prepare(
        config, accelerator.num_processes, judged=judge is not None, audited=auditor is not None
    )
    train_tasks, shown = split_tasks(train_tasks, config.warm_start)
    if shown:
        warm = main_does(lambda: warm_started(config, env_factory, shown), accelerator.is_main_process)
        config = config.model_copy(update={"policy": warm})
        set_seed(config.seed)  # as in a run that finds it taught
    policy, tokenizer = load_policy(
        config.policy, with_values=config.algorithm == "ppo", entropy_gradient=config.loss.entropy_coef != 0
    )
    sharded = is_sharded(config, accelerator)
    if not sharded:
        policy.to(accelerator.device)
    engine = make_engine(config, policy, tokenizer, folder=folder, shard_on=accelerator.device if sharded else None)
    try:
        trainer = AgentTrainer(
            config, policy, tokenizer, env_factory, train_tasks, folder, engine=engine, accelerator=accelerator,
            judge=judge, auditor=auditor,
        )  # fmt: skip
    except BaseException:
        close(engine)
        raise
    return trainer, eval_tasks


def train(config: AgentConfig, judge: AgentRRM | None = None, auditor: AgentRRM | None = None) -> dict[str, Any]:
    """Run or continue a training; returns the summary the CLI prints.

    An early end leaves a checkpoint: the same call goes on there. `stopped_by` names guards, which stop it again until changed.
    `judge`, `auditor`: in place of the config's. Raises RRMError: another run's folder, a policy or judge that cannot be
    loaded, or a loss that is not finite."""
    import torch

    if config.threads:
        torch.set_num_threads(config.threads)
    set_seed(config.seed)
    config = with_horizon(config)
    folder = Path(config.output_dir)
    accelerator = make_accelerator(config, folder)
    with full_disk_named(folder), ExitStack() as stack:
        main_does(lambda: stack.enter_context(sole_writer(folder)), accelerator.is_main_process)
        if accelerator.is_main_process:
            drop_partial(folder / "checkpoints")
        done: list[Path] = main_decides(checkpoints(folder / "checkpoints"))
        check_continues(config, done)
        newest = main_does(lambda: newest_whole(done), accelerator.is_main_process)
        trainer, eval_tasks = build(config, judge=judge, auditor=auditor, accelerator=accelerator)
        try:
            return _train(trainer, config, eval_tasks, newest)
        finally:
            close(trainer.engine)


def _train(
    trainer: AgentTrainer, config: AgentConfig, eval_tasks: Sequence[Task], checkpoint: Path | None
) -> dict[str, Any]:
    """Train. The folder records `config`, the caller's: the trainer's own names what a warm start made as `policy.base`."""
    folder, accelerator = trainer.folder, trainer.accelerator
    if accelerator.is_main_process:
        claim_folder(config, folder)
    if checkpoint is not None:
        trainer.resume(checkpoint)
        if accelerator.is_main_process:
            restore_logs(checkpoint, folder)
    else:
        trainer.begin({})
        check_gate(trainer)
    log = RunLog(folder, trainer)
    accelerator.init_trackers("reagent", config=flat(recorded(config)))
    with Stopping() as stopping:
        trainer.interruptible = stopping.at_once
        try:
            stopped = _updates(trainer, eval_tasks, log, stopping)
        except BaseException as error:
            keep_checkpoint(trainer, error)
            raise
        finally:
            trainer.ahead.drop()  # after the checkpoint: it may wait for as long as a launcher does before it kills
    best, finished = log.best(), trainer.update_index >= config.max_updates
    export_gap = export_policy(trainer, folder / "policy") if finished else None
    accelerator.end_training()  # processes part here
    if accelerator.is_main_process:
        plot_curves(log.metrics, log.eval, folder / "curves.png")
    evaluations, warnings = log.evaluations(), log.alarms.summary()
    for text in warnings if accelerator.is_main_process else ():
        logger.warning("in this run, nothing may have been learned: %s", text)
    if stopped and accelerator.is_main_process:
        logger.warning(how_to_go_on(stopped, trainer.update_index, best))
    return {
        "output_dir": str(folder),
        "policy": str(folder / "policy") if finished else None,
        "export_gap": export_gap,
        "updates": trainer.update_index,
        "episodes": trainer.episodes_seen,
        "reward": number(log.last, "episode/reward"),
        "learned_reward": number(log.last, "learned/reward"),
        "untrained_success": evaluations[0]["success"] if evaluations and evaluations[0]["update"] < 0 else None,
        "held_out_success": evaluations[-1]["success"] if evaluations else None,
        "sampled_success": evaluations[-1].get("sampled_success") if evaluations else None,
        "best": best,
        "judgements": log.judgements(),
        "warnings": warnings,
        "guards": [event.text for event in log.guards.events],
        "stopped_by": stopped,
    }


def check_gate(trainer: AgentTrainer) -> None:
    """Measure the untrained policy, unless no task is graded, and write `probe.json`.

    Raises RRMError: with `gate.action=stop`, a policy that can hardly learn."""
    gate = trainer.config.gate
    if gate.action == "off" or not trainer.config.environment.label_share:
        return
    trainer.sync()
    play = trainer.player()
    result, _ = probe(play, trainer.tasks, gate, trainer.accelerator)
    if trainer.accelerator.is_main_process:
        with file_when_whole(trainer.folder / "probe.json") as file:
            file.write(json.dumps(result.figures(), indent=1) + "\n")
        logger.log(logging.INFO if result.learnable else logging.WARNING, "before training: %s", result.verdict)
    if gate.action == "stop" and result.learnable is False:
        raise RRMError(f"{result.verdict}. gate=warn trains all the same")


def how_to_go_on(stopped: Sequence[str], update: int, best: dict[str, Any] | None) -> str:
    changes = " ".join(f"guards.{name}.action=warn" for name in stopped)
    advice = ""
    if best is not None:
        between = "" if best["low"] is None else f" [{best['low']:.3f}, {best['high']:.3f}]"
        where = f"the policy of the best evaluation ({after(best['update'])}, {best['by']} {best['value']:.3f}{between}) is "
        advice = where + (f"in {best['policy']}; " if best["policy"] else "not kept; ")
    return (
        f"stopped by a guard ({', '.join(stopped)}) after {update} updates, with a checkpoint: {advice}"
        f"the same command stops here again, and goes on with {changes}, or with other bounds of that guard"
    )


def _updates(trainer: AgentTrainer, eval_tasks: Sequence[Task], log: RunLog, stopping: Stopping) -> list[str]:
    """All updates still to be made, with evaluations and checkpoints; returns the guards that stopped it."""
    config = trainer.config
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), disable=not trainer.accelerator.is_main_process) as progress:
        bar = progress.add_task("training", total=config.max_updates, completed=trainer.update_index)
        while True:
            stopping.check()
            finished = trainer.update_index >= config.max_updates
            # asked for before an update, not after one: a run stopped in its evaluation makes it when it goes on
            due = finished or _due(config.eval.every, trainer.update_index)
            if not trainer.update_index:
                due = config.eval.first or (due and trainer.watch.evaluates)
            if due and not log.evaluated():
                with stopping.at_once():
                    trainer.sync()
                    figures, episodes = evaluate(trainer.player(), eval_tasks, accelerator=trainer.accelerator)
                    figures |= trainer.watch.evaluation(episodes, trainer.update_index - 1)
                log.evaluation(figures)
            if finished:
                return []  # there is nothing left to stop
            stopped = log.stopped()
            if stopped and trainer.update_index:
                trainer.save()
            if stopped:
                return stopped
            metrics, episodes = trainer.update(run_ahead=_runs_ahead(trainer))
            text = log.update(metrics, episodes)
            trainer.consistent = True
            progress.update(bar, advance=1, description=text)
            if trainer.update_index == config.max_updates or _due(config.save_every, trainer.update_index):
                trainer.save()


def _due(every: int, updates: int) -> bool:
    return bool(every) and updates % every == 0


def _runs_ahead(trainer: AgentTrainer) -> bool:
    """True where nothing between the next update and the one after needs the weights of then."""
    config, after = trainer.config, trainer.update_index + 1
    between = after >= config.max_updates or _due(config.eval.every, after) or _due(config.save_every, after)
    return config.rollout.max_lag > 0 and not between


def keep_checkpoint(trainer: AgentTrainer, error: BaseException) -> None:
    """Save a checkpoint at an early end, where the weights are those of a complete update."""
    main = trainer.accelerator.is_main_process
    if not (main or trainer.sharded):
        return
    folder = trainer.folder / "checkpoints"
    if trainer.consistent and trainer.update_index > trainer.kept_update:
        try:
            trainer.save(together=False)
        except RRMError as problem:  # what ended the run is to be seen, not this
            logger.warning("update %d is not kept: %s", trainer.update_index, problem)
    # of a sharded policy there is none where another process could not write its part
    done = [path for path in checkpoints(folder) if path.name <= f"{PREFIX}{trainer.update_index:06d}"]
    if done and main:
        how = type(error).__name__
        logger.warning(
            "stopped (%s) after update %d; the same command goes on from %s", how, trainer.update_index, done[-1]
        )


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = value if isinstance(value, int | float | str | bool) else str(value)
    return out
