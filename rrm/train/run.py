"""`rrm train`: SFT, RL and calibration in one run folder; each finished stage is skipped when the command is repeated.

runs/judge/
  config.yaml  split.json  drills/ sft/ rl/ (checkpoints, done.json)  judge/ (what `--model` takes)  evaluation.json
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.annotation import Annotation, match, read_annotations
from rrm.config import TrainConfig
from rrm.engines.hf.host_memory import keep_freed_memory
from rrm.errors import ConfigError, RRMError
from rrm.imports import call, imported, is_import_path
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import save_settings
from rrm.prompt.prompter import Prompter
from rrm.provenance import environment
from rrm.readers import read
from rrm.run_folder import check_folder, claim_folder
from rrm.splits import apply_split, load_split, make_split
from rrm.train import export as finish
from rrm.train.data import batched
from rrm.train.sft import schedule, train_sft
from rrm.trajectory import Trajectory

logger = logging.getLogger(__name__)

FIXED = ("seed", "transcript_tokens", "model", "data", "drills", "sft")
"""Options that must not change between a run and its continuation."""
STAGES = ("drills", "sft", "rl")
"""Folders of the stages: where one exists, a run has begun, and goes on with the data and the split it began with."""


def merged(annotations: Sequence[Annotation]) -> Annotation:
    """One label of several: each part comes from the heaviest annotation that has it, the earliest of equal weight."""
    order = sorted(annotations, key=lambda a: -a.weight)
    parts: dict[str, Any] = {}
    for part in ("score", "trace", "critique"):
        owner = next((a for a in order if getattr(a, part) is not None), None)
        parts[part] = owner and getattr(owner, part)
        if part == "critique":
            parts["findings"] = owner and owner.findings
    return order[0].model_copy(update=parts)


def load_annotations(paths: Sequence[str], trajectories: Sequence[Trajectory]) -> dict[str, Annotation]:
    """One annotation by trajectory id, several of one trajectory `merged`.

    Raises:
        ReadError: naming file and line of what is no annotation.
        RRMError: an annotation that could be of two transcripts, or none that is of any.
    """
    matched = match(trajectories, read_annotations(*paths))
    if complaint := matched.complaint():
        if not matched.by_id:
            raise RRMError(f"{complaint}: annotate these very files (`rrm annotate`)")
        logger.warning("%s; they are not used", complaint)
    return {trajectory: merged(several) for trajectory, several in matched.by_id.items()}


def load_data(config: TrainConfig) -> tuple[list[Trajectory], dict[str, Annotation]]:
    """The configured transcripts and annotations: those of the files, then those `data.generate` makes.

    Raises:
        RRMError: nothing configured, or a file is missing.
    """
    data = config.data
    missing = [p for p in (*data.trajectories, *data.annotations) if not Path(p).exists()]
    if missing:
        raise RRMError(f"no such file: {', '.join(missing)} (data.trajectories / data.annotations)")
    trajectories = list(read(data.trajectories)) if data.trajectories else []
    annotations = load_annotations(data.annotations, trajectories)
    if data.generate is not None:
        options = {"options": data.generate_options, "options_key": "data.generate_options"}
        for trajectory, annotation in call(data.generate, "data.generate", seed=config.seed, **options):
            trajectories.append(trajectory)
            annotations.setdefault(annotation.trajectory_id, annotation)
    if not trajectories:
        raise RRMError(
            "no transcripts: set data.trajectories=[FILE…] (or data.generate=module:function that makes some)"
        )
    return trajectories, annotations


def data_digest(trajectories: Sequence[Trajectory], annotations: Mapping[str, Annotation]) -> dict[str, Any]:
    """How many transcripts and annotations there are, and a SHA-256 of all they say, in order."""
    digest = hashlib.sha256()
    for row in (*trajectories, *annotations.values()):
        digest.update(row.model_dump_json(exclude={"source"}).encode("utf-8", "surrogatepass"))
    return {"transcripts": len(trajectories), "annotations": len(annotations), "sha256": digest.hexdigest()}


def check_data(folder: Path, now: dict[str, Any]) -> None:
    """Refuse to go on with other data than the run in the folder began with: it would be tested on what it was trained on.

    Raises:
        RRMError: saying how many transcripts and annotations there were and are.
    """
    kept = folder / "data.json"
    before = json.loads(kept.read_text()) if kept.is_file() else now  # runs older than this record
    if before["sha256"] != now["sha256"]:
        raise RRMError(
            f"{folder} holds a run on other data: {before['transcripts']} transcripts and {before['annotations']} "
            f"annotations then, {now['transcripts']} and {now['annotations']} now, or the same number with other content. "
            "A continued run would be tested on what it was trained on: choose another output_dir=…, or give it the data it "
            "began with"
        )


def base_and_prompter(
    config: TrainConfig, trajectories: Sequence[Trajectory], annotations: Mapping[str, Annotation]
) -> tuple[Any, Prompter]:
    """The base model and its prompter; a base named `module:function` is built from seed, transcripts and annotations."""
    chosen = config.model
    if is_import_path(chosen.base):
        options = {"options": chosen.options, "options_key": "model.options"}
        model, tokenizer = call(chosen.base, "model.base", trajectories, annotations, seed=config.seed, **options)
    else:
        from rrm.models.base import load_model

        model, tokenizer = load_model(config.model)
    return model, Prompter(tokenizer, config.transcript_tokens)


def is_done(folder: Path) -> bool:
    """Whether a stage finished."""
    return (folder / "done.json").is_file()


def mark_done(folder: Path, facts: dict[str, Any]) -> None:
    """Record that a stage finished, and what it measured."""
    (folder / "done.json").write_text(json.dumps(facts, indent=1) + "\n")


def prepare(config: TrainConfig) -> tuple[Path, dict[str, list[Trajectory]], dict[str, Annotation], Any, Prompter]:
    """Folder, split transcripts, annotations, base model and prompter of a run.

    Raises:
        RRMError: the folder holds a run of another config.
    """
    folder = Path(config.output_dir)
    begun = [stage for stage in STAGES if (folder / stage).exists()]
    if begun:
        check_folder(config, folder, (*FIXED, "rl") if "rl" in begun else FIXED)
    trajectories, annotations = load_data(config)
    digest = data_digest(trajectories, annotations)
    if begun:
        check_data(folder, digest)
    if begun and (folder / "split.json").is_file():
        split = load_split(folder / "split.json")
    else:
        split = (
            load_split(config.data.split) if config.data.split else make_split(trajectories, config.data, config.seed)
        )
    parts = apply_split(trajectories, split)
    model, prompter = base_and_prompter(config, parts["train"], annotations)
    claim_folder(config, folder)
    (folder / "split.json").write_text(json.dumps(split, indent=1) + "\n")
    (folder / "data.json").write_text(json.dumps(digest) + "\n")
    return folder, parts, annotations, model, prompter


def run_drills(config: TrainConfig, folder: Path, model: Any, prompter: Prompter) -> Any:
    """Stage 0 of a model from scratch, or its saved result.

    Raises:
        ConfigError: `drills.generate` does not say what makes the rows.
    """
    stage, drills = folder / "drills", config.drills
    if is_done(stage):
        return load_trained(model, stage / "model")
    if drills.generate is None:
        raise ConfigError(f"drills.rows={drills.rows} needs drills.generate=module:function, which makes them")
    made = imported(drills.generate, "drills.generate")(prompter, drills.rows, config.seed)
    rows = batched(made, drills.batch_size, random.Random(config.seed))
    own = {"batch_size": drills.batch_size, "learning_rate": drills.learning_rate, "lora": None, "max_steps": None}
    settings = config.model_copy(update={"sft": config.sft.model_copy(update=own)})
    trained = train_sft(model, rows, prompter, settings, stage)
    trained.save_pretrained(str(stage / "model"), safe_serialization=True)
    mark_done(stage, {"rows": len(rows)})
    return trained


def run_sft(
    config: TrainConfig,
    folder: Path,
    parts: dict[str, list[Trajectory]],
    annotations: dict[str, Annotation],
    model: Any,
    prompter: Prompter,
) -> Any:
    """Stage 1, or its saved result."""
    stage = folder / "sft"
    if is_done(stage):
        return load_trained(model, stage / "model")
    rows = schedule(prompter, parts["train"], annotations, config.sft, config.seed)
    tokens = sum(len(r.prompt) + len(r.completion) for r in rows)
    logger.warning("sft: %d rows, %d tokens", len(rows), tokens)
    cut = sum(len(r.completion) > config.max_new_tokens for r in rows)
    if cut:
        logger.warning(
            "sft: %d targets are longer than max_new_tokens=%d: the judge will learn replies it cannot finish; raise it, or "
            "give shorter traces and critiques",
            cut,
            config.max_new_tokens,
        )
    trained = train_sft(model, rows, prompter, config, stage)
    trained.save_pretrained(str(stage / "model"), safe_serialization=True)
    mark_done(stage, {"rows": len(rows), "tokens": tokens})
    return trained


def load_trained(model: Any, path: Path) -> Any:
    """A stage's saved weights on the base: an adapter, or full weights."""
    if (path / "adapter_config.json").is_file():
        from peft import PeftModel

        return PeftModel.from_pretrained(model, str(path))
    return type(model).from_pretrained(str(path), dtype=model.dtype)


def run_rl(
    config: TrainConfig,
    folder: Path,
    parts: dict[str, list[Trajectory]],
    annotations: dict[str, Annotation],
    model: Any,
    prompter: Prompter,
) -> Any:
    """Stage 2, or its saved result."""
    from rrm.train.rl import gate, train_rl

    stage = folder / "rl"
    if is_done(stage):
        return load_trained(model, stage / "model")
    share = gate(model, prompter, parts["calibration"], config.rl)
    trained = train_rl(model, parts["train"], annotations, prompter, config, stage)
    trained.save_pretrained(str(stage / "model"), safe_serialization=True)
    mark_done(stage, {"steps": config.rl.max_steps, "format_validity_before": share})
    return trained


def run_finish(
    config: TrainConfig,
    folder: Path,
    parts: dict[str, list[Trajectory]],
    annotations: dict[str, Annotation],
    model: Any,
    prompter: Prompter,
) -> dict[str, Any]:
    """Export, stage 3 (calibration) and the evaluation card; returns the card's headline figures."""
    facts = {
        "seed": config.seed,
        "rows": {part: len(rows) for part, rows in parts.items()},
        "stages": [name for name in ("sft", "rl", "calibration") if getattr(config, name).enabled],
        **environment(),
    }
    judge_folder = finish.export(model, prompter, config, folder, facts)
    judge = AgentRRM.from_pretrained(str(judge_folder), device="cpu" if config.cpu else None)
    card: dict[str, Any] = {"trained_on": facts}
    if config.calibration.enabled:
        rows = [t for t in parts["calibration"] if finish.label_of(t, annotations) is not None]
        random.Random(config.seed).shuffle(rows)
        labels = [finish.label_of(t, annotations) or 0.0 for t in rows]
        card["calibration"] = finish.calibrate(judge, rows, labels, config)
        save_settings(judge_folder, judge.settings)
    if config.evaluation.enabled:
        test = list(parts["test"])
        random.Random(config.seed).shuffle(test)
        card |= finish.measure(judge, test, annotations, config)
    finish.write_card(judge_folder, judge.settings, card)
    return card


def train(config: TrainConfig) -> dict[str, Any]:
    """Run the configured stages and return the summary the CLI prints."""
    import torch
    from transformers import set_seed

    if config.threads:
        torch.set_num_threads(config.threads)
    set_seed(config.seed)
    if is_import_path(config.model.base):
        # a large model's many sizes of block would pile up: there jemalloc serves better (docs/training.md)
        keep_freed_memory()
    folder, parts, annotations, model, prompter = prepare(config)
    if config.drills.rows:
        model = run_drills(config, folder, model, prompter)
    if config.sft.enabled:
        model = run_sft(config, folder, parts, annotations, model, prompter)
    if config.rl.enabled:
        model = run_rl(config, folder, parts, annotations, model, prompter)
    card = run_finish(config, folder, parts, annotations, model, prompter)
    headline = {
        f"{mode}/{name}": None if found["value"] is None else round(found["value"], 4)
        for mode in ("score", "full")
        for name, found in card.get(mode, {}).get("metrics", {}).get("judge", {}).items()
    }
    return {
        "output_dir": str(folder),
        "judge": str(folder / "judge"),
        "calibration": card.get("calibration"),
        **headline,
    }
