"""Judge the stored episodes of a training anew: its rewards and advantages under another judge.

run = read_run(folder)                       config.yaml, episodes.jsonl, judgements.jsonl
figures = rescore(run, judge, output)        `output`: rows of `rrm score`, resumed by content
"""

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reagent.algorithms.names import TOKEN_METHODS
from reagent.algorithms.registry import compute_advantages
from reagent.env.task import Task
from reagent.feedback.base import JudgedEpisode, as_judged, judgeable
from reagent.feedback.judging import JudgingReport, content_key, key_under
from reagent.feedback.modes import ScoreFeedback
from reagent.feedback.shaping import with_score
from reagent.rollout.batch import make_batch
from reagent.rollout.episode import Episode, Turn
from reagent.train.build_feedback import MODES
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.dynamic_sampling import compared
from reagent.train.judge_monitor import rank_correlation
from rrm.data.feedback import Feedback
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.scoring.run import judge_into

log = logging.getLogger(__name__)
Row = dict[str, Any]
JUDGEMENTS = re.compile(r"judgements(-\d+)?\.jsonl")
"""Files of judgements, one a process."""
CRITERIA = re.compile(r"\((\w+)\)$")
"""The hash in `JudgeInfo.criteria`."""


@dataclass(frozen=True)
class StoredEpisode:
    update: int
    episode: Episode
    """Its turns have their numbers of tokens and their rewards; the ids of the tokens are not stored."""
    shown: Trajectory
    """The transcript that the judge reads; its id is its content's key."""
    old: Feedback


@dataclass(frozen=True)
class StoredRun:
    folder: Path
    config: AgentConfig
    rows: list[StoredEpisode]
    played: int
    """Episodes of the whole training."""


@dataclass(frozen=True)
class RescoredEpisode:
    group: str
    old: Feedback
    new: Feedback
    rewards: tuple[float | None, float | None]
    """By the old judge and by the new one; None: unknown. Advantages likewise, one a turn."""
    advantages: tuple[Sequence[float] | None, Sequence[float] | None]

    @property
    def scored_now(self) -> bool:
        return self.old.score is None and self.new.score is not None


def read_run(folder: Path) -> StoredRun:
    """Read a run folder's stored episodes that its judge has judged.

    Raises ConfigError: no run folder, or rewards that are not R_env + λ·s; RRMError: no episode is stored."""
    if not (folder / "config.yaml").is_file() or not (folder / "metrics.jsonl").is_file():
        raise ConfigError(f"{folder} is no run folder of `reagent train`: it has no config.yaml and metrics.jsonl")
    config = load_agent_config(str(folder / "config.yaml"))
    feedback = config.feedback
    paid = feedback.mode in ("r", "u") and MODES[feedback.mode].pays_feedback(feedback)
    if not paid or feedback.score_from != "judge" or feedback.recalibrate is not None:
        raise ConfigError(
            f"{folder}: rewards are rescored where they are R_env + λ·s, that is feedback.mode=r or u with score_weight above 0, "
            f"score_from=judge and no recalibrate; this run has feedback.mode={feedback.mode}, score_weight={feedback.score_weight:g}, "
            f"score_from={feedback.score_from}" + (", recalibrate" if feedback.recalibrate else "")
        )
    path = folder / "episodes.jsonl"
    lines = _rows(path) if path.is_file() else []
    if not lines:
        raise RRMError(f"{folder} stores no episodes (episodes.jsonl): train with {all_stored(config)}")
    complete = [line for line in lines if "turns" in line]
    if len(complete) < len(lines):
        log.warning("%s: %d of %d episodes were stored without their turns, by an older version, and are left out", path, len(lines) - len(complete), len(lines))  # fmt: skip
    rows = _judged(folder, config, [(line["update"], _episode(line)) for line in complete])
    if not rows:
        raise RRMError(
            f"{folder}: judgements.jsonl has no judgement in mode {feedback.score_mode} of an episode stored with its turns (criteria that "
            "read the reference answer cannot be rescored)"
        )
    metrics = _rows(folder / "metrics.jsonl")
    return StoredRun(folder, config, rows, max((int(line.get("episodes") or 0) for line in metrics), default=0))


def all_stored(config: AgentConfig) -> str:
    """The option that stores every episode of such a run."""
    rollouts = config.rollout
    return f"sample_episodes={rollouts.tasks_per_update * rollouts.group_size * (1 + rollouts.dynamic_sampling)}"


def _rows(path: Path) -> list[Row]:
    """Rows of a run folder's file; a last line that a kill cut off is left out."""
    *whole, cut = path.read_text(encoding="utf-8").split("\n")
    if cut:
        log.warning("%s ends in a line that was cut off; it is left out", path)
    return [json.loads(line) for line in whole]


def _episode(line: Row) -> Episode:
    trajectory = Trajectory.model_validate({k: v for k, v in line.items() if k in Trajectory.model_fields})
    group, turns = trajectory.meta["group_id"], [Turn([0] * n, [0.0] * n, [], reward) for n, reward in line["turns"]]
    return Episode(
        task=Task(group, trajectory.task),
        prompt_ids=[],
        turns=turns,
        outcome_reward=None if line["reward"] is None else line["reward"] - sum(turn.reward for turn in turns),
        status=line["status"],
        error=None,
        success=None,
        group_id=group,
        stage=line["stage"],
        trajectory=trajectory,
        attempt=line["attempt"],
        prompt_messages=line["prompt_messages"],
        ungraded=line["ungraded"],
    )


def _judged(folder: Path, config: AgentConfig, episodes: Sequence[tuple[int, Episode]]) -> list[StoredEpisode]:
    """The episodes with what the judge was shown of them, and its judgement then; without those it has none of."""
    judgements: dict[str, list[tuple[int, Feedback]]] = defaultdict(list)
    for path in (path for path in sorted(folder.iterdir()) if JUDGEMENTS.fullmatch(path.name)):
        for line in _rows(path):
            if line["mode"] == config.feedback.score_mode:
                judgements[line["key"]].append((line["update"], Feedback.model_validate(line["feedback"])))
    names = {feedback.judge.criteria or "" for of_key in judgements.values() for _, feedback in of_key}
    criteria = [match[1] for name in names if (match := CRITERIA.search(name))]
    firsts = {(update, e.group_id, e.attempt): e for update, e in episodes if e.stage == "initial"}
    rows: list[StoredEpisode] = []
    for update, episode in episodes:
        first = firsts.get((update, episode.group_id, episode.attempt))
        if first is None or not judgeable(episode):
            continue
        shown = as_judged(episode, None if episode is first else first)
        key = content_key(shown)
        keys = [key, *(key_under(name, key) for name in criteria)]
        past = [pair for key in keys for pair in judgements.get(key, ()) if pair[0] <= update]
        if past:
            old = max(past, key=lambda pair: pair[0])[1]
            rows.append(StoredEpisode(update, episode, shown.model_copy(update={"id": key}), old))
    return rows


def rescore(run: StoredRun, judge: AgentRRM, output: Path, *, failures_only: bool = False) -> dict[str, Any]:
    """Figures in all and by update, and the judge's rows in `output`.

    `failures_only`: the others keep their judgement. Raises as `judge_into`; ConfigError: criteria that need the reference answer."""
    criteria = getattr(judge, "criteria", None)
    if criteria is not None and criteria.see_reference:
        raise ConfigError(f"criteria {criteria.identity} read the reference answer, which episodes.jsonl does not hold")
    asked = {row.shown.id: row.shown for row in run.rows if row.old.score is None or not failures_only}
    seed, mode = derive_seed(run.config.seed, "judge"), run.config.feedback.score_mode
    judged = judge_into(output, judge, list(asked.values()), mode=mode, seed=seed) if asked else []
    new = {feedback.id: feedback for feedback in judged}
    by_update: dict[int, list[tuple[StoredEpisode, Feedback]]] = defaultdict(list)
    for row in run.rows:
        keeps = failures_only and row.old.score is not None
        by_update[row.update].append((row, row.old if keeps else new[row.shown.id]))
    rescored = {update: _rescored(run.config, update, pairs) for update, pairs in by_update.items()}
    everything = [row for rows in rescored.values() for row in rows]
    return {
        "run": str(run.folder),
        "judge": judge.describe()["model"],
        "old_judge": run.config.feedback.judge,
        "episodes": run.played,
        "asked": len(asked),
        **compare(everything),
        "failures": {
            name: dict(sorted(Counter(f.status for f in feedbacks if f.score is None).items()))
            for name, feedbacks in (("old", [r.old for r in everything]), ("new", [r.new for r in everything]))
        },
        "output": str(output),
        "updates": [{"update": update, **compare(rows)} for update, rows in sorted(rescored.items())],
    }


def _rescored(
    config: AgentConfig, update: int, pairs: Sequence[tuple[StoredEpisode, Feedback]]
) -> list[RescoredEpisode]:
    """An update's rows under both judges. `pairs`: a row, and the new judgement of it."""
    mode = ScoreFeedback(config.feedback, updates=config.horizon)

    def earned(episode: Episode, feedback: Feedback) -> Episode:
        score = mode.paid_score(JudgedEpisode(episode, feedback), JudgingReport())
        return with_score(episode, score, mode.weight(update))

    old = [earned(row.episode, row.old) for row, _ in pairs]
    new = [earned(row.episode, feedback) for row, feedback in pairs]
    credit = zip(advantages(config, old), advantages(config, new), strict=True)
    if config.rollout.dynamic_sampling:  # groups without a difference were not learned
        learned = set(compared(old, per_turn=config.loss.credit == "turn")[1])
        credit = [pair if e.group_id in learned else (None, None) for e, pair in zip(old, credit, strict=True)]
    return [
        RescoredEpisode(f"{update} {row.episode.group_id}", row.old, feedback, (before.reward, after.reward), advantage)
        for (row, feedback), before, after, advantage in zip(pairs, old, new, credit, strict=True)
    ]


def advantages(config: AgentConfig, episodes: Sequence[Episode]) -> list[list[float] | None]:
    """Each row's advantages, one a turn; None where its reward is unknown.

    By GRPO where the algorithm needs values or log-probabilities, which are not stored."""
    batch = make_batch(episodes)
    result = compute_advantages(
        "grpo" if config.algorithm in TOKEN_METHODS else config.algorithm,
        batch.token_rewards, batch.action_mask, batch.turn_index, batch.group,
        known=batch.known, attempt=batch.attempt, stage=batch.stage,
        scale=config.loss.advantage_scale, use_whitening=config.loss.whiten, per_turn=config.loss.credit == "turn",
    )  # fmt: skip

    def by_turn(row: int) -> list[float]:
        turns = batch.turn_index[row][batch.action_mask[row]]
        values = result.advantages[row][batch.action_mask[row]]
        return [float(values[turns == turn][-1]) for turn in turns.unique()]

    return [by_turn(row) if batch.known[row] else None for row in range(len(episodes))]


def compare(rows: Sequence[RescoredEpisode]) -> dict[str, Any]:
    """Figures of rows: failures, mean rewards, their rank correlation within groups, and the share of turns whose advantage changes its sign
    (−, 0, +), of those where it is not 0 under both."""
    known = [(row.group, *row.rewards) for row in rows]
    both = [(old, new) for old, new in (row.advantages for row in rows) if old is not None and new is not None]
    turns = [(_sign(a), _sign(b)) for old, new in both for a, b in zip(old, new, strict=True) if a or b]
    return {
        "rows": len(rows),
        "old_failures": sum(row.old.score is None for row in rows),
        "new_failures": sum(row.new.score is None for row in rows),
        "scored_now": sum(row.scored_now for row in rows),
        "old_reward": _mean([row.rewards[0] for row in rows]),
        "new_reward": _mean([row.rewards[1] for row in rows]),
        "spearman": rank_correlation([(g, a, b) for g, a, b in known if a is not None and b is not None])[0],
        "sign_changes": _mean([float(a != b) for a, b in turns]),
    }


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
