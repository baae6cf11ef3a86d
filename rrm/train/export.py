"""After training: export the judge, measure it, write its cards.

The judge's directory holds adapter (bf16) or whole weights, tokenizer, `judge.json`, `evaluation.json` and a model card; `merged/`
an adapter's merged safetensors, uncalibrated. An adapter over weights that the run made itself is merged: its base has no name.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.config import TrainConfig
from rrm.data.annotation import Annotation
from rrm.data.extras import is_import_path
from rrm.data.feedback import Feedback, Mode
from rrm.data.labels import merged, truth_of
from rrm.data.localisation import step_labels
from rrm.data.output import folder_when_whole
from rrm.data.questions import question_keys, question_of
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import JUDGE
from rrm.evaluation.fit_calibration import untrained
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.card import HUB_NAMES, calibrated, card_head
from rrm.judge.domain import fit_domain
from rrm.judge.judge_dir import JudgeSettings, save_settings
from rrm.prompt.rendering import CANONICAL_VERSION, CUT_VERSION
from rrm.train.prepare import TrainingRun

logger = logging.getLogger(__name__)


def export(model: Any, run: TrainingRun, judge: Path, modes: Sequence[Mode], facts: dict[str, Any]) -> None:
    """Write a judge's directory without calibration; of an adapter also `merged/` in the run's folder."""
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
        default_mode=config.default_mode or ("steps" if "steps" in modes and "full" not in modes else None),
        prompt_version=config.prompt_version,
        transcript_tokens=config.transcript_tokens,
        max_new_tokens=config.max_new_tokens,
        trained_on=facts,
        training_questions=sorted({*question_keys(run.parts["train"]), *run.earlier.questions}),
    )
    if not is_adapter:
        model.to(getattr(torch, config.model.dtype))  # trained in float32
    model.save_pretrained(str(judge), safe_serialization=True)
    if is_adapter:
        halve_adapter(judge / "adapter_model.safetensors")
        name_base(judge / "adapter_config.json", config.model.base)
        (judge / "README.md").unlink(missing_ok=True)
        with folder_when_whole(run.folder / "merged") as merged:
            merged_model = model.merge_and_unload()
            merged_model.to(getattr(torch, config.model.dtype)).save_pretrained(str(merged), safe_serialization=True)
            tokenizer.save_pretrained(str(merged))
            save_settings(merged, settings.model_copy(update={"base": None}))  # whose questions a further run inherits
    tokenizer.save_pretrained(str(judge))
    save_settings(judge, settings)


def halve_adapter(path: Path) -> None:
    # float32 → bfloat16, in which its base computes
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in load_file(str(path)).items()}
    save_file(tensors, str(path), metadata={"format": "pt"})


def name_base(path: Path, base: str) -> None:
    # by its public name, not by this machine's cache folder
    tree = json.loads(path.read_text())
    tree["base_model_name_or_path"] = HUB_NAMES.get(base, base)
    path.write_text(json.dumps(tree, indent=1) + "\n")


def describe_domain(judge: AgentRRM, folder: Path, run: TrainingRun) -> dict[str, Any]:
    """Write `domain.json` (marks transcripts unlike its own), if rows suffice; returns facts for the card."""
    try:
        version = 2 if judge.prompt_version == CANONICAL_VERSION else 1
        domain = fit_domain(run.parts["train"], run.parts["calibration"], seed=run.config.seed, version=version)
    except RRMError as error:
        logger.warning("no transcript will be marked as outside what the judge was measured on: %s", error)
        return {"skipped": str(error)}
    size = domain.save(folder).stat().st_size
    judge.domain = domain
    marks = [domain.flag(t)[0] for t in run.parts["test"]]
    return {
        "rows": domain.rows,
        "calibration_rows": domain.calibration_rows,
        "groups": {group.name: group.rows for group in domain.groups},
        "threshold": domain.threshold,
        "outside_of_test": sum(marks) / len(marks) if marks else None,
        "bytes": size,
    }


def whole_questions(rows: Sequence[Trajectory], most: int, seed: int) -> list[Trajectory]:
    """Draw questions with all their attempts (metrics compare these), `most` rows at most."""
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
    judge: AgentRRM, test: Sequence[Trajectory], raters: Mapping[str, Sequence[Annotation]], config: TrainConfig
) -> dict[str, Any]:
    """The evaluation card: `score` and `steps` on `max_rows` test rows, `full` on `full_rows`.

    Args:
        raters: annotations by trajectory id; scores and steps are measured against them as in `rrm eval`.
    """
    from rrm.evaluation.evaluate import evaluate_feedback

    truths = {t.id: truth_of(t, merged(raters.get(t.id, ()))) for t in test}
    reports: dict[str, Any] = {}
    rows = [t for t in test if truths[t.id] is not None]
    every, few = config.evaluation.max_rows, config.evaluation.full_rows
    plans: list[tuple[Mode, int]] = [("score", every), ("steps", every), ("full", few)]
    for mode, most in plans:
        if mode == "steps":
            rows = [t for t in test if truths[t.id] is not None or step_labels(t, raters.get(t.id, ()))]
        sample = whole_questions([t for t in rows if mode == "steps" or truths[t.id] is not None], most, config.seed)
        if not sample or untrained(judge, mode):
            continue
        feedback: list[Feedback] = judge.judge(sample, mode=mode, seed=config.seed)
        verdicts = [step_labels(t, raters.get(t.id, ())) for t in sample] if mode != "score" else None
        labels = [truths[t.id] for t in sample]
        cut = {JUDGE: judge.settings.threshold}  # fitted on calibration questions
        reports[mode] = dict(
            evaluate_feedback(sample, feedback, labels, step_labels=verdicts, step_thresholds=cut, seed=config.seed)
        )
    return reports


def model_card(settings: JudgeSettings, card: Mapping[str, Any]) -> str:
    writes = not settings.modes or {"critique", "full"} & {*settings.modes}
    says = (
        "writes a trace, a critique anchored to steps and"
        if writes
        else "gives the probability that each step was good and"
    )
    reads = "" if settings.prompt_version == CUT_VERSION else "; longer transcripts are read in windows of as many"
    lines = [
        "---", *card_head(settings.base or settings.trained_on.get("base")), "---", "",
        f"# {settings.name}", "",
        f"A reasoning reward model for agents: reads a transcript, {says} a",
        f"score in [0, 1]. {calibrated(settings)}", "",
        f"Base: {settings.base or 'none (whole weights)'}. Transcript budget: {settings.transcript_tokens} tokens{reads}.", "",
        "## Trained on", "", "```json", json.dumps(settings.trained_on, indent=1), "```", "", "## Measured", "",
        "| mode | rows | metric | value | 95 % interval |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for mode, report in card.items():
        if not isinstance(report, Mapping) or "metrics" not in report:
            continue
        for name, estimate in report["metrics"]["judge"].items():
            if estimate["value"] is None:
                continue
            value, low, high = ("–" if estimate[k] is None else f"{estimate[k]:.3f}" for k in ("value", "low", "high"))
            lines.append(f"| {mode} | {report['rows']} | {name} | {value} | {low} – {high} |")
    if known_rows := card.get("questions_known_before", {}).get("test"):
        lines += [
            "",
            f"{known_rows} of the test rows are of questions that the judge it goes on from was trained on: the figures flatter it.",
        ]
    lines += ["", "Scores on data unlike the training data are not calibrated; measure with `rrm eval` first.", ""]
    return "\n".join(lines)


def write_card(folder: Path, settings: JudgeSettings, card: Mapping[str, Any]) -> None:
    (folder / "evaluation.json").write_text(json.dumps(card, indent=1) + "\n")
    (folder / "README.md").write_text(model_card(settings, card), encoding="utf-8")
