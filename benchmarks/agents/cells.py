"""One cell of the table, a benchmark played by a method: planned, claimed, played, judged, measured.

TASK/LABEL/
  config.yaml      the whole config
  attempts.jsonl   episodes, token for token, appended as each ends (.run.json: what made them)
  episodes.jsonl   the same as canonical trajectories, for `rrm score` and `rrm report`
  judgements.jsonl critiques, where the method has second attempts
  scored.jsonl     what the first judge said of each transcript; what others said, scored-2.jsonl, …
  metrics.json     the figures: written last, in one move
  failure.json     in its place, what went wrong
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.agents.figures import Measure, method_figures
from benchmarks.agents.inputs import QUESTIONS, REVISION, Inputs, is_hub_id, questions_path
from benchmarks.agents.methods import Entry, Method
from benchmarks.agents.playing import Kept, play_method
from reagent.env.gradability import Grading
from reagent.env.task import Task
from reagent.feedback.judging import JudgeFailure
from reagent.rollout.attempts import Attempt
from reagent.rollout.episode import Episode
from reagent.tasks.base import Benchmark
from reagent.tasks.environments import find_environment, make_factory
from reagent.train.build_feedback import make_feedback
from reagent.train.config import AgentConfig
from reagent.train.evaluate import EpisodeRunner
from rrm.data.feedback import Feedback, Mode
from rrm.data.jsonl import read_lines
from rrm.data.output import RowFile, differences, file_when_whole, header_of
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.engines.hf.hub import commit_of
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import content_hash
from rrm.scoring.run import fingerprint_of, score_file
from rrm.train.run_folder import claim_folder, recorded

log = logging.getLogger(__name__)
ATTEMPTS, EPISODES = "attempts.jsonl", "episodes.jsonl"
JUDGEMENTS = "judgements.jsonl"
METRICS, FAILURE = "metrics.json", "failure.json"
CRITIC = "critic_hash"
DECISIVE = ("seed", "mixed_precision", "environment", "policy", "rollout", "eval")
"""Sections of a config that decide a cell's attempts; with second attempts `feedback`, too."""
MOST_UNSCORED = 0.2  # share of the attempts without a score, beyond which nothing is chosen by the judge


@dataclass(frozen=True)
class Judges:
    """Who judges; each is loaded when it is first needed.

    Args:
        judge: of all transcripts (`rrm score --model`); None: nobody.
        critic: writes the critiques of methods with second attempts; None: the judge. loaded: judges that are there already, by name.
        mode: what the judge writes; None: as `rrm score` has it, the judge's own, else `full`.
    """

    judge: str | None
    critic: str | None
    loaded: dict[str, AgentRRM]
    mode: Mode | None = None

    @property
    def critic_name(self) -> str | None:
        return self.critic or self.judge

    def hash_of(self, name: str | None) -> str | None:
        """Hash a judge's folder, or give its commit on the hub, looked at once; None of one that is neither, or is not known."""
        if name is not None and name not in self._hashes and (Path(name).is_dir() or is_hub_id(name)):
            self._hashes[name] = content_hash(Path(name)) if Path(name).is_dir() else commit_of(name)
        return self._hashes.get(name or "")

    @cached_property
    def _hashes(self) -> dict[str, str | None]:
        return {}

    def load(self, name: str) -> AgentRRM:
        """Give a judge by name, loaded once."""
        if name not in self.loaded:
            self.loaded[name] = AgentRRM.from_pretrained(None if name == "default" else name)
        return self.loaded[name]


@dataclass(frozen=True)
class Cell:
    """A benchmark, a method and a policy."""

    task: str
    entry: Entry
    method: Method
    config: AgentConfig  # as the method plays it
    folder: Path
    limit: int | None  # most questions
    judges: Judges
    inputs: Inputs = field(default_factory=Inputs)

    @property
    def name(self) -> str:
        """`TASK/LABEL`."""
        return f"{self.task}/{self.entry.label}"

    @cached_property
    def made_by(self) -> dict[str, Any]:
        """Everything that decides the attempts, by dotted names."""
        tree = recorded(self.config)
        tree["rollout"]["engine"] = tree["rollout"]["engine"]["server"]
        sections = [*DECISIVE, *(["feedback"] if self.method.headline == "refined" else [])]
        found = {"method": self.method.name, "limit": self.limit, **_flat({name: tree[name] for name in sections})}
        for unused in ("environment.train_tasks", "environment.eval_tasks", "environment.label_share"):
            del found[unused]
        found |= self.inputs.of(self.config, benchmark_of(self.config.environment.name))
        if self.method.headline == "refined" and (critic := self.judges.hash_of(self.judges.critic_name)) is not None:
            found[CRITIC] = critic
        return json.loads(json.dumps(found))

    @property
    def made_of(self) -> dict[str, Any]:
        """`made_by` as it is compared with what was played, and goes on: a commit that the hub does not say now, or did not say then, is
        taken as it stands in the record."""
        before, now = self._record(), self.made_by
        names = [name for name in (before | now if before else {}) if name.endswith(REVISION) or name == CRITIC]
        return now | {name: before.get(name) for name in names if None in (before.get(name), now.get(name))}

    def _record(self) -> dict[str, Any]:
        attempts = self.folder / ATTEMPTS
        return header_of(attempts) if attempts.is_file() and attempts.stat().st_size > 0 else {}

    def done(self) -> dict[str, Any] | None:
        """Its metrics, where they are those of this config and judge.

        Raises:
            RRMError: its attempts are those of another config.
        """
        before = self._record()
        if before and (changed := differences(before, self.made_of)):
            critic = before.get("feedback.judge")
            other = critic != self.made_by.get("feedback.judge")
            kept = f"--critic {critic} keeps its critiques, whoever is the judge; else " if other else ""
            raise RRMError(
                f"{self.folder} was played with another config: {'; '.join(changed)}; {kept}choose another -o, give the method "
                "another label, or delete the folder to play it again"
            )
        found = read_json(self.folder / METRICS)
        if found is None or [found["judge"], found["judge_mode"]] != [self.judges.judge, self.judges.mode]:
            return None
        judges = {found.get("judge_hash"), self.judges.hash_of(self.judges.judge)}
        return found if len(judges) == 1 or None in judges else None

    def questions(self) -> list[Task]:
        """The questions, `limit` of them drawn by the seed of `environment.eval`."""
        benchmark = benchmark_of(self.config.environment.name)
        options = {"split": "heldout", **self.config.environment.eval}
        pinned = self.inputs.pinned(questions_path(self.config, benchmark), self.made_of.get(QUESTIONS))
        options |= {} if pinned is None else {"path": pinned}
        seed = options.pop("seed", 0)
        count = len(benchmark.every_task(**options))
        count = count if self.limit is None else min(count, self.limit)
        return benchmark.make_tasks(count, seed, **options)


def benchmark_of(name: str) -> type[Benchmark]:
    """The benchmark of a name, or `module:Class`.

    Raises:
        ConfigError: no such benchmark, or an environment that is none.
    """
    found = find_environment(name)
    if not isinstance(found, type) or not issubclass(found, Benchmark):
        what = "the table takes those of `reagent tasks`, or a class of your own on Benchmark"
        raise ConfigError(f"{name} is no benchmark: {what}")
    return found


def play_cell(cell: Cell, load: Callable[[], EpisodeRunner], *, retry_errors: bool = False) -> dict[str, Any]:
    """Play what is left of a cell, judge it, and write its figures; returns them.

    Args:
        load: the cell's policy, asked for where there is something to play; environment and config are put in its place.
        retry_errors: attempts that the environment failed are played again.

    Raises:
        RRMError: a typed failure, after which the same command goes on.
    """
    started = time.monotonic()
    folder, config = cell.folder, cell.config
    if cell.method.asks_judge and cell.judges.critic_name is None:
        raise ConfigError(f"{cell.method.name} needs a judge: give --judge")
    if cell.method.headline == "chosen" and cell.judges.judge is None:
        raise ConfigError(f"{cell.method.name} is chosen by the judge's scores: give --judge")
    factory, tasks = make_factory(config.environment.name, **config.environment.options), cell.questions()
    with RowFile.open(folder / ATTEMPTS, cell.made_of) as output, Grading(factory) as grading:
        claim_folder(config, folder)

        def play(attempts: Sequence[Attempt], **hooks: Any) -> list[Episode]:
            return replace(load(), env_factory=factory, config=config)(attempts, **hooks)

        kept = Kept(play, output)
        if retry_errors and any(e.status == "env_error" for e in kept.held.values()):
            # the figures first: they would count as done
            for path in (folder / METRICS, *folder.glob("scored*.jsonl*")):
                path.unlink(missing_ok=True)
            kept.forget(lambda e: e.status == "env_error")
        try:
            played = play_method(config, kept, tasks, _feedback(cell, load))
        except JudgeFailure:
            (folder / JUDGEMENTS).unlink(missing_ok=True)  # or what could not be read stays on record
            raise
        transcripts = [_named(t, cell) for t in played.transcripts]
        write_jsonl(folder / EPISODES, transcripts)
        played_s = time.monotonic() - started
        scored, feedback = (None, None) if cell.judges.judge is None else judge_cell(cell, transcripts)
        if cell.method.headline == "chosen" and feedback is not None:
            _check_scored(feedback, transcripts)
        measure = Measure(grading, config.eval.samples, config.seed)
        figures = method_figures(played.episodes, cell.method.headline, measure, transcripts, feedback)
    judges = cell.judges
    found = {
        "task": cell.task,
        "label": cell.entry.label,
        "method": cell.method.name,
        "policy": config.policy.base,
        **{"judge": judges.judge, "judge_mode": judges.mode, "judge_hash": judges.hash_of(judges.judge)},
        "scored": scored and scored.name,
        "metric": benchmark_of(config.environment.name).metric,
        "figures": figures | played.feedback,
        "seconds": {"played": round(played_s, 2), "all": round(time.monotonic() - started, 2)},
    }
    write_whole(folder / METRICS, found)
    (folder / FAILURE).unlink(missing_ok=True)
    return found


def judge_cell(cell: Cell, transcripts: Sequence[Trajectory]) -> tuple[Path, list[Feedback]]:
    """The file of the judge's rows, and its word on each transcript that has a step, appended row by row."""
    judge = cell.judges.load(str(cell.judges.judge))
    mode = cell.judges.mode or getattr(getattr(judge, "settings", None), "default_mode", None) or "full"
    spoken = [t for t in transcripts if t.steps]
    path = _rows_of(cell.folder, fingerprint_of(judge, mode=mode))
    score_file(judge, spoken, path, mode=mode, retry_errors=True, progress=False)
    by_id = {f.id: f for f in read_lines(path, Feedback.model_validate_json, "a row of `rrm score`")}
    return path, [by_id[t.id] for t in spoken if t.id in by_id]


def scored_path(folder: Path, metrics: Mapping[str, Any]) -> Path | None:
    """The rows that a cell's figures are of; None where nobody judged."""
    return None if metrics["judge"] is None else folder / metrics.get("scored", "scored.jsonl")  # one judge, before


def _rows_of(folder: Path, made_by: Mapping[str, Any]) -> Path:
    """The file of rows that were made so; where there is none, the first name that is free. Rows of other judges stay: they
    took long, or money, and are shown again when their judge is."""
    wanted = json.loads(json.dumps(made_by))
    paths = (folder / ("scored.jsonl" if number == 1 else f"scored-{number}.jsonl") for number in count(1))
    return next(p for p in paths if not p.exists() or not p.stat().st_size or not differences(header_of(p), wanted))


def write_whole(path: Path, value: Mapping[str, Any]) -> None:
    """JSON that stands there whole or not at all."""
    with file_when_whole(path) as file:
        file.write(json.dumps(value, indent=1, allow_nan=False) + "\n")


def _feedback(cell: Cell, load: Callable[[], EpisodeRunner]) -> Any:
    """What gives second attempts their critiques; None without such."""
    name = cell.judges.critic_name
    if cell.method.headline != "refined" or name is None:
        return None
    player = load()
    eos_ids = getattr(player.engine, "eos_ids", None)
    critic = cell.judges.load(name)
    own = {"device": player.device, "judge": critic, "folder": cell.folder, "eos_ids": eos_ids}
    return make_feedback(cell.config, player.tokenizer, **own)


def _check_scored(feedback: Sequence[Feedback], transcripts: Sequence[Trajectory]) -> None:
    """Refuse to choose where the judge has too few scores: JudgeFailure, naming the first."""
    failed = [f for f in feedback if f.score is None]
    if failed and len(failed) > MOST_UNSCORED * len(transcripts):
        why = failed[0].reason or failed[0].status
        raise JudgeFailure(f"{len(failed)} of {len(transcripts)} attempts have no score to choose by, the first: {why}")


def _named(transcript: Trajectory, cell: Cell) -> Trajectory:
    """With an id that no other cell has, and what played it."""
    meta = {**transcript.meta, "benchmark": cell.task, "method": cell.entry.label}
    return transcript.model_copy(update={"id": f"{cell.name}/{transcript.id}", "meta": meta})


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        nested = isinstance(value, Mapping) and value
        found |= _flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def read_json(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
