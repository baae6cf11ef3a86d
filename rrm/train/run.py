"""`rrm train`: SFT, RL and calibration in one run folder; finished stages are skipped.

runs/judge/
  config.yaml  split.json  drills/ sft/ rl/ (checkpoints, done.json)  judge/ (what `--model` takes)  evaluation.json
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

from rrm.config import TrainConfig
from rrm.data.extras import imported, is_import_path
from rrm.data.feedback import Mode
from rrm.data.labels import step_targets_of, truth_of
from rrm.data.output import file_when_whole, folder_when_whole
from rrm.data.provenance import environment
from rrm.engines.hf.base_model import named_damage
from rrm.engines.hf.host_memory import keep_freed_memory
from rrm.errors import ConfigError, RRMError
from rrm.evaluation.fit_calibration import calibrate
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import save_settings
from rrm.train import export as finish
from rrm.train.checkpoints import damage, full_disk_named, seal
from rrm.train.data import batched
from rrm.train.prepare import TrainingRun, prepare
from rrm.train.ranks import check_launch, is_main, on_main, wait
from rrm.train.run_folder import read_record, sole_writer
from rrm.train.sft import schedule, train_sft

logger = logging.getLogger(__name__)


def is_done(folder: Path) -> bool:
    return (folder / "done.json").is_file()


def keep_stage(run: TrainingRun, trained: Any, stage: Path, facts: dict[str, Any]) -> Any:
    """Save a stage's weights, then its `done.json`; every process goes on with the model."""
    if is_main(run.config.cpu):
        trained.save_pretrained(str(stage / "model"), safe_serialization=True)
        seal(stage / "model")
        with file_when_whole(stage / "done.json") as file:
            file.write(json.dumps(facts, indent=1) + "\n")
    wait(run.config.cpu)
    return trained


def load_trained(model: Any, path: Path) -> Any:
    """Load a stage's saved weights on the base, an adapter or full weights; RRMError if they are damaged."""
    if (problem := damage(path)) is not None:
        raise RRMError(
            f"{path} is not used: {problem}. Bring it back from a copy, or delete {path.parent / 'done.json'} to go on from the stage's "
            "newest whole checkpoint"
        )
    with named_damage(path):
        if (path / "adapter_config.json").is_file():
            from peft import PeftModel

            if isinstance(model, PeftModel):  # of the stage before: its adapter was trained further
                model.load_adapter(str(path), str(model.active_adapter))
                return model
            return PeftModel.from_pretrained(model, str(path))
        return type(model).from_pretrained(str(path), dtype=model.dtype)


def run_drills(run: TrainingRun, model: Any) -> Any:
    """Stage 0 of a model from scratch, or its saved result; ConfigError without `drills.generate`."""
    config, stage, drills = run.config, run.folder / "drills", run.config.drills
    if is_done(stage):
        return load_trained(model, stage / "model")
    if drills.generate is None:
        raise ConfigError(f"drills.rows={drills.rows} needs drills.generate=module:function, which makes them")
    drill_rows = imported(drills.generate, "drills.generate")(run.prompter, drills.rows, config.seed)
    rows = batched(drill_rows, drills.batch_size, random.Random(config.seed))
    own = {"batch_size": drills.batch_size, "learning_rate": drills.learning_rate, "lora": None, "max_steps": None}
    settings = config.model_copy(update={"sft": config.sft.model_copy(update=own)})
    return keep_stage(run, train_sft(model, rows, run.prompter, settings, stage), stage, {"rows": len(rows)})


def run_sft(run: TrainingRun, model: Any) -> Any:
    """Stage 1, or its saved result."""
    config, stage = run.config, run.folder / "sft"
    if is_done(stage):
        return load_trained(model, stage / "model")
    rows = schedule(run.prompter, run.parts["train"], run.targets, config.sft, config.seed, run.step_targets)
    tokens = sum(len(r.prompt) + len(r.completion) for r in rows)
    cut = sum(len(r.completion) > config.max_new_tokens for r in rows)
    if is_main(config.cpu):
        logger.warning("sft: %d rows, %d tokens", len(rows), tokens)
    if cut and is_main(config.cpu):
        logger.warning(
            "sft: %d targets are longer than max_new_tokens=%d: the judge will learn replies it cannot finish; raise it, or "
            "give shorter traces and critiques",
            cut,
            config.max_new_tokens,
        )
    trained = train_sft(model, rows, run.prompter, config, stage)
    modes = dict(Counter(row.mode for row in rows))
    return keep_stage(run, trained, stage, {"rows": len(rows), "tokens": tokens, "modes": modes})


def trained_modes(run: TrainingRun) -> list[Mode]:
    """The modes of all training rows, in the order of `rrm.data.feedback.Mode`."""
    done = run.folder / "sft" / "done.json"
    modes = set(read_record(done).get("modes", ())) if run.config.sft.enabled and done.is_file() else set()
    if run.config.rl.enabled:
        modes.add(run.config.rl.mode)
    return [mode for mode in get_args(Mode) if mode in modes]


def run_rl(run: TrainingRun, model: Any) -> Any:
    """Stage 2, or its saved result. The main process checks the gate; all go on, or none."""
    from rrm.train.rl import gate, train_rl

    config, stage = run.config, run.folder / "rl"
    if is_done(stage):
        return load_trained(model, stage / "model")
    share = on_main(lambda: gate(model, run.prompter, run.parts["calibration"], config.rl), config.cpu)
    trained = train_rl(model, run.parts["train"], run.targets, run.prompter, config, stage)
    return keep_stage(run, trained, stage, {"steps": config.rl.max_steps, "format_validity_before": share})


def run_finish(run: TrainingRun, model: Any) -> dict[str, Any]:
    """Export, stage 3 (calibration), evaluation, in a folder that appears when complete; returns the card."""
    config = run.config
    facts = {
        "base": config.model.base,
        "seed": config.seed,
        "rows": {name: len(rows) for name, rows in run.parts.items()},
        "labels": run.labels.as_dict(),
        "stages": [name for name in ("sft", "rl", "calibration") if getattr(config, name).enabled],
        **environment(),
    }
    with folder_when_whole(run.folder / "judge") as building:
        finish.export(model, run, building, trained_modes(run), facts)
        judge = AgentRRM.from_pretrained(
            str(building), device="cpu" if config.cpu else None, trust_remote_code=config.model.trust_remote_code
        )
        card: dict[str, Any] = {"trained_on": facts, "question_texts_in_training": run.shared_texts}
        if run.seen_in_training:
            card["questions_known_before"] = run.seen_in_training
        card["domain"] = finish.describe_domain(judge, building, run)
        if config.calibration.enabled:
            calibration_rows = run.parts["calibration"]
            rows = [t for t in calibration_rows if truth_of(t, run.annotations.get(t.id)) is not None]
            random.Random(config.seed).shuffle(rows)
            labels = [truth_of(t, run.annotations.get(t.id)) or 0.0 for t in rows]
            steps = step_targets_of(calibration_rows, run.raters) if "steps" in config.calibration.modes else {}
            chosen = {t.id for t in rows}
            steps_only = [t for t in calibration_rows if t.id in steps and t.id not in chosen]
            random.Random(config.seed).shuffle(steps_only)
            card["calibration"] = calibrate(
                judge, rows, labels, config.calibration, config.seed, steps=steps, steps_only=steps_only
            )
            save_settings(building, judge.settings)
        if config.evaluation.enabled:
            card |= finish.measure(judge, run.parts["test"], run.raters, config)
        finish.write_card(building, judge.settings, card)
    return card


def train(config: TrainConfig) -> dict[str, Any] | None:
    """Run the configured stages; returns the CLI's summary, None in every process but the main one.

    Raises:
        ConfigError: sharded weights, or processes that cannot train together (`rrm.train.ranks.check_launch`).
    """
    import torch
    from transformers import set_seed

    check_launch(config.cpu)
    if config.threads:
        torch.set_num_threads(config.threads)
    set_seed(config.seed)
    if is_import_path(config.model.base):
        # a large model's many sizes of block would pile up: there jemalloc serves better (docs/training.md)
        keep_freed_memory()
    with full_disk_named(Path(config.output_dir)), ExitStack() as stack:
        on_main(lambda: stack.enter_context(sole_writer(Path(config.output_dir))), config.cpu)
        run = prepare(config)
        wait(
            config.cpu
        )  # no process begins a stage, and so makes its folder, while another still looks whether there is one
        model = run.model
        if config.drills.rows:
            model = run_drills(run, model)
        if config.sft.enabled:
            model = run_sft(run, model)
        if config.rl.enabled:
            model = run_rl(run, model)
        if not is_main(config.cpu):
            return None
        card = run_finish(run, model)
    headline = {
        f"{mode}/{name}": None if estimate["value"] is None else round(estimate["value"], 4)
        for mode in ("score", "steps", "full")
        for name, estimate in card.get(mode, {}).get("metrics", {}).get("judge", {}).items()
    }
    return {
        "output_dir": str(run.folder),
        "judge": str(run.folder / "judge"),
        "calibration": card.get("calibration"),
        **headline,
    }
