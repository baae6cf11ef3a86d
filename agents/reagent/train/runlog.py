"""The logs of a run folder: metrics, sample episodes, evaluations, guards that fired, curves."""

import json
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reagent.rollout.episode import Episode
from reagent.train.alarms import Alarms, number
from reagent.train.best_policy import keep_best, kept_best
from reagent.train.export import gathered_weights
from reagent.train.guards import Event, Guards, middle
from reagent.train.launch import main_decides
from reagent.train.trainer import AgentTrainer

logger = logging.getLogger(__name__)
NOTHING_GRADED = (
    "guards.success and guards.drift have nothing to look at: no held-out task can be graded. Give environment.eval some tasks with "
    "answers, if there are any; guards.out_of_domain, guards.length, guards.kl and guards.auditor need none"
)
NOTHING_PLACED = (
    "guards.out_of_domain.action=stop has nothing to look at: the judge's server says of no attempt whether it lies outside of what it was measured on. One "
    "with a judge that rrm train made does (domain.json in its directory)"
)
SHOWN = {
    "episode/reward": "reward", "learned/reward": "learned_reward", "episode/success": "success", "kl": "kl",
    "entropy": "entropy", "episode/turns": "turns", "time/rollout_tokens_per_s": "rollout_tokens_per_s",
}  # fmt: skip
"""Metric → its name in the progress line."""


def progress_text(metrics: Mapping[str, Any]) -> str:
    """An update's progress line: known figures, and the learned reward where it differs."""
    values = {name: number(metrics, key) for key, name in SHOWN.items()}
    parts = {name: f"{value:.3g}" for name, value in values.items() if value is not None}
    if parts.get("learned_reward") == parts.get("reward"):
        parts.pop("learned_reward", None)
    return "  ".join(f"{name} {value}" for name, value in parts.items())


def keep_lines(path: Path, updates: int) -> None:
    """Drop lines of updates that a resumed run will make again (and a line cut short by a kill)."""
    if not path.is_file():
        return
    remaining, lines = [], path.read_bytes().splitlines()
    for i, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            if i < len(lines):
                logger.warning("%s:%d is no row and is left out: %.40r", path, i, line)
            continue
        if 0 < updates > row["update"]:  # a run that starts anew keeps nothing, nor what was before its first update
            remaining.append(line + b"\n")
    path.write_bytes(b"".join(remaining))


def append_line(path: Path, row: dict[str, Any]) -> None:
    """Append a JSON line; numbers that are not finite become null."""
    plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
    with open(path, "a", encoding="ascii") as out:
        out.write(json.dumps(plain) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def write_samples(path: Path, update: int, episodes: Sequence[Episode], count: int) -> None:
    first = [e for e in episodes if e.stage == "initial"]
    refined = [e for e in episodes if e.stage == "refined"]
    for e in [*first[:count], *refined[:count]]:
        row = json.loads(e.trajectory.to_json())
        figures = {"reward": e.reward, "turns": [[len(turn.output_ids), turn.reward] for turn in e.turns]}
        facts = {"attempt": e.attempt, "prompt_messages": e.prompt_messages, "ungraded": e.ungraded}
        append_line(path, {"update": update, "stage": e.stage, "status": e.status, **figures, **facts, **row})


def plot_curves(metrics: Path, evaluations: Path, target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    held_out = [json.loads(line) for line in evaluations.read_text().splitlines()] if evaluations.is_file() else []
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True)
    kl = "kl" if any(r.get("kl") is not None for r in rows) else "approx_kl"
    for axis, key in zip(axes.flat, ("episode/reward", "episode/success", kl, "entropy"), strict=True):
        points = [(r["update"], r[key]) for r in rows if r.get(key) is not None]
        if points:
            axis.plot(*zip(*points, strict=True), linewidth=1.2, label="training")
        axis.set_title(key, fontsize=10)
        axis.grid(alpha=0.3)
    for key, colour, name in (
        ("success", "tab:red", "held out"),
        ("score", "tab:gray", "judge's score"),
        ("auditor", "tab:olive", "auditor's score"),
    ):
        curve = [(r["update"], value) for r in held_out if (value := middle(r.get(key))) is not None]
        if curve:
            axes[0, 1].plot(*zip(*curve, strict=True), "o-", color=colour, markersize=4, label=name)
    if axes[0, 1].lines:  # without one answer there may be none
        axes[0, 1].legend(fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("update")
    # tight_layout would measure every text by drawing it: a third of the time
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.08, top=0.95, wspace=0.22, hspace=0.15)
    figure.savefig(target, dpi=120)
    plt.close(figure)


class RunLog:
    def __init__(self, folder: Path, trainer: AgentTrainer) -> None:
        self.trainer, self.main = trainer, trainer.accelerator.is_main_process
        self.metrics, self.episodes, self.eval, self.fired = (
            folder / f"{name}.jsonl" for name in ("metrics", "episodes", "eval", "guards")
        )
        self._best = folder / "best"
        self._looked = False
        self.last: dict[str, Any] = {}
        self.alarms = Alarms(trainer.config)
        self.guards = Guards(trainer.config, trainer.watch.learns)
        if self.main:
            for path in (self.metrics, self.episodes, self.eval, self.fired):
                keep_lines(path, trainer.update_index)
            for row in read_rows(self.metrics):
                self.alarms.observe(row["update"], row)
                self.last = row
            self.guards.replay(read_rows(self.metrics), self.evaluations())

    def update(self, metrics: dict[str, Any], episodes: Sequence[Episode]) -> str:
        """Record the update just made; returns a line for the progress bar."""
        update = self.trainer.update_index - 1
        self.last = {**metrics, "episodes": self.trainer.episodes_seen}
        self.trainer.accelerator.log(self.last, step=update)
        if self.main:
            append_line(self.metrics, {"update": update, **self.last})
            write_samples(self.episodes, update, episodes, self.trainer.config.sample_episodes)
            for text in self.alarms.observe(update, self.last):
                logger.warning("nothing may be learned: %s", text)
            self._tell(self.guards.observe(update, self.last))
            if not self._looked and self._unplaced():
                logger.warning(NOTHING_PLACED)
            self._looked = True
        return progress_text(self.last)

    def _unplaced(self) -> bool:
        """True where `guards.out_of_domain` is to stop the run and the judge marks nothing."""
        stops = self.trainer.watch.learns and self.trainer.config.guards.out_of_domain.action == "stop"
        return stops and bool(self.last.get("feedback/judged")) and not self.last.get("feedback/placed")

    def evaluated(self) -> bool:
        """True where the policy was evaluated after the last update, by the main process's files."""
        rows = self.evaluations()
        return main_decides(bool(rows) and rows[-1]["update"] == self.trainer.update_index - 1)

    def evaluation(self, figures: dict[str, Any]) -> None:
        """Record an evaluation after the last update, and keep the policy of the best one."""
        better = None
        if self.main:
            row = {"update": self.trainer.update_index - 1, "episodes": self.trainer.episodes_seen, **figures}
            looked_at = self.trainer.watch.learns and self.trainer.config.eval.every > 0
            if looked_at and middle(figures["success"]) is None and not self.evaluations():
                logger.warning(NOTHING_GRADED)
            append_line(self.eval, row)
            before = self.guards.best
            self._tell(self.guards.evaluated(row))
            better = None if self.guards.best == before else self.guards.best
        trainer = self.trainer
        watched = trainer.watch.learns and trainer.config.eval.every > 0
        if watched and trainer.config.guards.keep_best and (best := main_decides(better)) is not None:
            weights = gathered_weights(trainer) if trainer.sharded else None
            if self.main:
                keep_best(trainer.policy, trainer.tokenizer, self._best, best, weights)

    def stopped(self) -> list[str]:
        return main_decides(list(dict.fromkeys(event.guard for event in self.guards.standing)))

    def best(self) -> dict[str, Any] | None:
        best = self.guards.best
        if best is None:
            return None
        folder = kept_best(self.trainer.policy, self._best, best)
        return {**asdict(best), "policy": None if folder is None else str(folder)}

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            append_line(self.fired, event.as_row(self.trainer.episodes_seen))
            logger.warning("%s: %s", "stopping" if event.action == "stop" else "a guard fires", event.text)

    def judgements(self) -> dict[str, Any] | None:
        """Counts of judgements and failures in training; None without any."""
        counts: Counter[str] = Counter()
        for row in read_rows(self.metrics):
            counts.update(
                {key: int(row[key] or 0) for key in row if key.startswith(("feedback/judged", "feedback/failed"))}
            )
        judged, failed = counts.pop("feedback/judged", 0), counts.pop("feedback/failed", 0)
        failures = {key.removeprefix("feedback/failed_"): count for key, count in sorted(counts.items()) if count}
        return {"judged": judged, "failed": failed, **failures} if judged else None

    def evaluations(self) -> list[dict[str, Any]]:
        return read_rows(self.eval) if self.main else []
