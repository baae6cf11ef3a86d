"""After training: export the judge, calibrate it, measure it, write its cards.

The judge's directory holds the adapter (bf16) or the whole weights, the tokenizer, `judge.json`, `evaluation.json` and
a model card; `merged/` beside it the merged safetensors of an adapter, for engines that take no adapter. An adapter over
weights that the run made itself (drills, a base made by a function) is merged: nobody could name its base.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.annotation import Annotation
from rrm.config import TrainConfig
from rrm.errors import RRMError
from rrm.feedback import Feedback, Mode
from rrm.imports import is_import_path
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import fit
from rrm.judge.card import HUB_NAMES, card_head
from rrm.judge.judge_dir import JudgeSettings, question_keys, save_settings
from rrm.labels import merged, truth_of
from rrm.seeds import derive_seed
from rrm.splits import question_of
from rrm.train.prepare import Run
from rrm.trajectory import Trajectory

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def in_place_when_whole(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to build in, which takes its place when the block ends well.

    A build that is stopped leaves what stood at `folder` as it was; a later one starts from nothing.
    """
    building, old = folder.with_name(f"{folder.name}.tmp"), folder.with_name(f"{folder.name}.old")
    if old.exists() and not folder.exists():
        old.rename(folder)  # stopped between the two renamings
    for left in (building, old):
        if left.exists():
            shutil.rmtree(left)
    yield building
    if folder.exists():
        folder.rename(old)
    building.rename(folder)
    if old.exists():
        shutil.rmtree(old)


def export(model: Any, run: Run, judge: Path, modes: Sequence[Mode], facts: dict[str, Any]) -> None:
    """Write a judge's directory (without calibration) and, for an adapter, `merged/` into the run's folder.

    Args:
        judge: the directory.
        modes: those it was trained in.
        facts: for the reader (`JudgeSettings.trained_on`).
    """
    import torch

    config, tokenizer = run.config, run.prompter.tokenizer
    is_adapter = hasattr(model, "merge_and_unload")
    if is_adapter and (config.drills.rows or is_import_path(config.model.base)):
        model, is_adapter = model.merge_and_unload(), False
    base = config.model.base if is_adapter else None
    settings = JudgeSettings(
        name=config.name,
        base=base,
        modes=list(modes),
        prompt_version=config.prompt_version,
        transcript_tokens=config.transcript_tokens,
        max_new_tokens=config.max_new_tokens,
        trained_on=facts,
        training_questions=question_keys(run.parts["train"]),
    )
    if not is_adapter:
        model.to(getattr(torch, config.model.dtype))  # trained in float32
    model.save_pretrained(str(judge), safe_serialization=True)
    if is_adapter:
        halve_adapter(judge / "adapter_model.safetensors")
        name_base(judge / "adapter_config.json", config.model.base)
        (judge / "README.md").unlink(missing_ok=True)
        with in_place_when_whole(run.folder / "merged") as merged:
            merged_model = model.merge_and_unload()
            merged_model.to(getattr(torch, config.model.dtype)).save_pretrained(str(merged), safe_serialization=True)
            tokenizer.save_pretrained(str(merged))
    tokenizer.save_pretrained(str(judge))
    save_settings(judge, settings)


def halve_adapter(path: Path) -> None:
    """Store an adapter in bfloat16: half the size, and what its base computes in."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in load_file(str(path)).items()}
    save_file(tensors, str(path), metadata={"format": "pt"})


def name_base(path: Path, base: str) -> None:
    """Name an adapter's base by its public name, not by this machine's cache folder."""
    tree = json.loads(path.read_text())
    tree["base_model_name_or_path"] = HUB_NAMES.get(base, base)
    path.write_text(json.dumps(tree, indent=1) + "\n")


def calibrate(
    judge: AgentRRM,
    trajectories: Sequence[Trajectory],
    targets: Sequence[float],
    config: TrainConfig,
    judged: dict[Mode, list[Feedback]] | None = None,
) -> dict[str, Any]:
    """Fit one map per configured mode on calibration rows; returns what was fitted, by mode.

    A mode whose raw scores do not rise with the labels, or that was not trained, is left uncalibrated, and said so.

    Args:
        judged: takes each mode's feedback on the first rows, for whoever has further use for it.
    """
    found: dict[str, Any] = {}
    for mode in config.calibration.modes:
        if untrained(judge, mode):
            logger.warning("mode %s stays uncalibrated: the judge was trained on no row of it", mode)
            found[mode] = {"skipped": "trained on no row of this mode", "rows": 0}
            continue
        most = config.calibration.max_rows if mode == "score" else config.calibration.sampled_rows
        rows, labels = trajectories[:most], targets[:most]
        feedback = judge.judge(rows, mode=mode, seed=config.seed)
        if judged is not None:
            judged[mode] = feedback
        kept = [(f.raw_score, y) for f, y in zip(feedback, labels, strict=True) if f.raw_score is not None]
        try:
            fitted = fit([raw for raw, _ in kept], [y for _, y in kept], config.calibration.method)
        except RRMError as error:
            logger.warning("mode %s stays uncalibrated: %s", mode, error)
            found[mode] = {"skipped": str(error), "rows": len(kept)}
            continue
        judge.settings.calibration.modes[mode] = fitted
        found[mode] = fitted.model_dump()
    return found


def untrained(judge: AgentRRM, mode: Mode) -> bool:
    """Whether the judge is known to have had no row of the mode: what it writes there says nothing of it."""
    return bool(judge.settings.modes) and mode not in judge.settings.modes


def whole_questions(rows: Sequence[Trajectory], most: int, seed: int) -> list[Trajectory]:
    """At most `most` rows, by questions drawn at random, each with all its attempts: a metric compares these.

    Of a question that alone has more, its first `most`.
    """
    groups: dict[str, list[Trajectory]] = {}
    for t in rows:
        groups.setdefault(question_of(t), []).append(t)
    questions = sorted(groups)
    random.Random(derive_seed(seed, "questions")).shuffle(questions)
    chosen: list[Trajectory] = []
    for question in questions:
        if len(chosen) + len(groups[question]) <= most:
            chosen += groups[question]
    return chosen or (groups[questions[0]][:most] if questions else [])


def measure(
    judge: AgentRRM,
    test: Sequence[Trajectory],
    raters: Mapping[str, Sequence[Annotation]],
    config: TrainConfig,
) -> dict[str, Any]:
    """The evaluation card: `score` mode on `max_rows` of the test rows, `full` mode on `full_rows`, of whole questions.

    Args:
        raters: each trajectory's annotations, by its id: scores and steps are measured against what `rrm eval` would
            measure them against.
    """
    from rrm.evaluation.evaluate import evaluate_feedback
    from rrm.evaluation.metrics.localisation import step_labels

    truths = {t.id: truth_of(t, merged(raters.get(t.id, ()))) for t in test}
    found: dict[str, Any] = {}
    rows = [t for t in test if truths[t.id] is not None]
    plans: list[tuple[Mode, int]] = [("score", config.evaluation.max_rows), ("full", config.evaluation.full_rows)]
    for mode, most in plans:
        part = whole_questions(rows, most, config.seed)
        if not part or untrained(judge, mode):
            continue
        feedback: list[Feedback] = judge.judge(part, mode=mode, seed=config.seed)
        verdicts = [step_labels(t, raters.get(t.id, ())) for t in part] if mode == "full" else None
        labels = [truths[t.id] for t in part]
        found[mode] = dict(evaluate_feedback(part, feedback, labels, step_labels=verdicts, seed=config.seed))
    return found


def calibrated(settings: JudgeSettings) -> str:
    """One sentence: in which modes scores are calibrated."""
    modes = list(settings.calibration.modes)
    if not modes:
        return "Its scores are not calibrated."
    return f"Scores are calibrated in mode {' and '.join(modes)}" + (", in no other." if len(modes) < 3 else ".")


def model_card(settings: JudgeSettings, card: Mapping[str, Any]) -> str:
    """The judge's README: what it is, what it was trained on, what it measured."""
    lines = [
        "---", *card_head(settings.base or settings.trained_on.get("base")), "---", "",
        f"# {settings.name}", "",
        "A reasoning reward model for agents: reads a transcript, writes a trace, a critique anchored to steps and a",
        f"score in [0, 1]. {calibrated(settings)}", "",
        f"Base: {settings.base or 'none (whole weights)'}. Transcript budget: {settings.transcript_tokens} tokens.", "",
        "## Trained on", "", "```json", json.dumps(settings.trained_on, indent=1), "```", "", "## Measured", "",
        "| mode | rows | metric | value | 95 % interval |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for mode, report in card.items():
        if not isinstance(report, Mapping) or "metrics" not in report:
            continue
        for name, found in report["metrics"]["judge"].items():
            value, low, high = ("–" if found[k] is None else f"{found[k]:.3f}" for k in ("value", "low", "high"))
            lines.append(f"| {mode} | {report['rows']} | {name} | {value} | {low} – {high} |")
    lines += ["", "Scores on data unlike the training data are not calibrated; measure with `rrm eval` first.", ""]
    return "\n".join(lines)


def write_card(folder: Path, settings: JudgeSettings, card: Mapping[str, Any]) -> None:
    """`evaluation.json` and the model card."""
    (folder / "evaluation.json").write_text(json.dumps(card, indent=1) + "\n")
    (folder / "README.md").write_text(model_card(settings, card), encoding="utf-8")
