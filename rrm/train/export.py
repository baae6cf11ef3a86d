"""After training: export the judge, calibrate it, measure it, write its cards.

The judge's directory holds the adapter (bf16) or the whole weights, the tokenizer, `judge.json`, `evaluation.json` and
a model card; `merged/` beside it the merged safetensors of an adapter, for engines that take no adapter, with `judge.json` but for
calibration. An adapter over
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
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from rrm.annotation import Annotation
from rrm.config import CalibrationMethod, CalibrationSettings, TrainConfig
from rrm.errors import RRMError
from rrm.evaluation.bootstrap import JUDGE
from rrm.evaluation.metrics.localisation import step_labels
from rrm.evaluation.metrics.process import fit_threshold
from rrm.feedback import Feedback, Mode
from rrm.imports import is_import_path
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import P_GOOD, fit, fit_by_reading, half_of, key_of
from rrm.judge.card import HUB_NAMES, card_head
from rrm.judge.domain import fit_domain
from rrm.judge.judge_dir import JudgeSettings, save_settings
from rrm.labels import StepTarget, merged, truth_of
from rrm.prompt.rendering import CUT_VERSION
from rrm.questions import question_keys, question_of
from rrm.seeds import derive_seed
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
        with in_place_when_whole(run.folder / "merged") as merged:
            merged_model = model.merge_and_unload()
            merged_model.to(getattr(torch, config.model.dtype)).save_pretrained(str(merged), safe_serialization=True)
            tokenizer.save_pretrained(str(merged))
            save_settings(merged, settings.model_copy(update={"base": None}))  # whose questions a further run inherits
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


def describe_domain(judge: AgentRRM, folder: Path, run: Run) -> dict[str, Any]:
    """Write `domain.json` into the judge's folder, by which it marks transcripts unlike its own; what was fitted, for the card.

    With too few rows the judge stays without one, and the card says why.
    """
    try:
        domain = fit_domain(run.parts["train"], run.parts["calibration"], seed=run.config.seed)
    except RRMError as error:
        logger.warning("no transcript will be marked as outside what the judge was measured on: %s", error)
        return {"skipped": str(error)}
    size = domain.save(folder).stat().st_size
    judge.domain = domain
    marks = [domain.told(t)[0] for t in run.parts["test"]]
    return {
        "rows": domain.rows,
        "calibration_rows": domain.calibration_rows,
        "groups": {group.name: group.rows for group in domain.groups},
        "threshold": domain.threshold,
        "outside_of_test": sum(marks) / len(marks) if marks else None,
        "bytes": size,
    }


def calibrate(
    judge: AgentRRM,
    trajectories: Sequence[Trajectory],
    targets: Sequence[float],
    config: TrainConfig,
    judged: dict[Mode, list[Feedback]] | None = None,
    steps: Mapping[str, StepTarget] = MappingProxyType({}),
    steps_only: Sequence[Trajectory] = (),
) -> dict[str, Any]:
    """Fit the maps of each configured mode on calibration rows: of transcripts read at once, and where some are read in
    windows, of these (`key_of`). Returns what was fitted, by the maps' keys.

    Where raw scores do not rise with the labels, or a mode was not trained, it is left uncalibrated, and said so. `steps` comes
    first: what it finds is told to the later windows of `score`.

    Args:
        judged: takes each mode's feedback on the first rows, for whoever has further use for it.
        steps: labelled steps by trajectory id, for mode `steps`.
        steps_only: further rows, of which only steps are labelled.
    """
    found: dict[str, Any] = {}
    for mode in sorted(config.calibration.modes, key=lambda mode: mode != "steps"):
        if untrained(judge, mode):
            logger.warning("mode %s stays uncalibrated: the judge was trained on no row of it", mode)
            found[mode] = {"skipped": "trained on no row of this mode", "rows": 0}
            continue
        if mode == "steps":
            most = config.calibration.max_rows
            every = [*trajectories[:most], *steps_only[:most]]
            feedback, fitted_maps = calibrate_steps(
                judge, every, targets[:most], steps, config.calibration, config.seed
            )
            found |= fitted_maps
            if judged is not None:
                judged[mode] = feedback[: len(trajectories[:most])]
            continue
        most = config.calibration.max_rows if mode == "score" else config.calibration.sampled_rows
        rows, labels = trajectories[:most], targets[:most]
        feedback = judge.judge(rows, mode=mode, seed=config.seed)
        if judged is not None:
            judged[mode] = feedback
        in_windows = [judge.in_windows(t, mode) for t in rows]
        found |= _fitted_by_reading(judge, mode, rows, feedback, labels, in_windows, config.calibration.method)
    return found


def _fitted_by_reading(
    judge: AgentRRM,
    mode: Mode,
    rows: Sequence[Trajectory],
    feedback: Sequence[Feedback],
    labels: Sequence[float | None],
    in_windows: Sequence[bool],
    method: CalibrationMethod,
) -> dict[str, Any]:
    """Fit and keep a mode's maps (`rrm.judge.calibration.fit_by_reading`): what was fitted for transcripts read at once, and for
    those read in windows, where there are any; or why nothing was, were it that none of them was scored."""
    found: dict[str, Any] = {}
    scored = [
        (f.raw_score, y, many, question_of(t))
        for t, f, y, many in zip(rows, feedback, labels, in_windows, strict=True)
        if f.raw_score is not None and y is not None
    ]
    raw, known, windowed, questions = zip(*scored, strict=True) if scored else ((), (), (), ())
    fitted = fit_by_reading(raw, known, windowed, questions, method)
    kinds = {many for many, y in zip(in_windows, labels, strict=True) if y is not None} or {False}
    for many in (False, True):
        key = key_of(mode, many)
        judge.settings.calibration.modes.pop(key, None)
        if many in fitted.maps:
            judge.settings.calibration.modes[key] = fitted.maps[many]
            found[key] = fitted.maps[many].model_dump()
        elif many in kinds:
            logger.warning("%s stays uncalibrated: %s", key, fitted.lacking[many])
            found[key] = {"skipped": fitted.lacking[many], "rows": windowed.count(many)}
    return found


def calibrate_steps(
    judge: AgentRRM,
    rows: Sequence[Trajectory],
    targets: Sequence[float],
    steps: Mapping[str, StepTarget],
    settings: CalibrationSettings,
    seed: int,
) -> tuple[list[Feedback], dict[str, Any]]:
    """Mode `steps`: fit the threshold with the best MCC and the map of single steps' p_good, then the maps of the scores, of
    transcripts read at once and of those read in windows.

    What is found of earlier steps stands in later windows. So the threshold is chosen first, as a raw probability; transcripts of
    which a window would be told something else by it are read again; and the maps are fitted on what is said then, as it will be
    in use: a map rises (but for isotonic plateaus), so each step stays on its side of the threshold, whose calibrated value is
    stored.

    Args:
        targets: of the first rows; of the others only steps are known.

    Returns:
        The feedback, its findings before calibration, and what was fitted, by the maps' keys.
    """
    labels = [*targets, *[None] * (len(rows) - len(targets))]
    maps = judge.settings.calibration.modes
    for key in (P_GOOD, key_of("steps"), key_of("steps", windowed=True)):
        maps.pop(key, None)
    said = judge.judge(rows, mode="steps", seed=seed)
    in_windows = [judge.in_windows(t, "steps") for t in rows]
    found = {P_GOOD: _fitted(judge, P_GOOD, _step_pairs(rows, said, steps), settings.method)}
    if P_GOOD in maps:
        first = maps.pop(P_GOOD)  # until all is read, probabilities are compared raw
        pairs = _step_pairs(rows, said, steps)
        cut = judge.settings.threshold = _threshold(pairs, half_of(first))
        again = [i for i, windowed in enumerate(in_windows) if windowed and _turned(said[i], cut)]
        for i, feedback in zip(again, judge.judge([rows[i] for i in again], mode="steps", seed=seed), strict=True):
            said[i] = feedback
        if again:
            found[P_GOOD] = _fitted(judge, P_GOOD, _step_pairs(rows, said, steps), settings.method)
        maps.setdefault(P_GOOD, first)
        judge.settings.threshold = judge.settings.calibration.p_good(cut)
        found[P_GOOD] = maps[P_GOOD].model_dump() | {"threshold": judge.settings.threshold, "read_again": len(again)}
    return said, found | _fitted_by_reading(judge, "steps", rows, said, labels, in_windows, settings.method)


def _step_pairs(
    rows: Sequence[Trajectory], said: Sequence[Feedback], steps: Mapping[str, StepTarget]
) -> list[tuple[float, float]]:
    """(p_good, 1 where the step is good) of each labelled step that was read."""
    return [
        (finding.p_good, float(verdict == "good"))
        for t, feedback in zip(rows, said, strict=True)
        if t.id in steps
        for finding in feedback.findings
        if finding.p_good is not None and (verdict := steps[t.id].verdicts[finding.step - 1]) is not None
    ]


def _threshold(pairs: Sequence[tuple[float, float]], half: float) -> float:
    """The p_good from which a step is called good, before calibration (`process.fit_threshold`); the one that becomes one half (`half`),
    said so, where none tells good from bad."""
    try:
        return fit_threshold(np.array([p for p, _ in pairs]), np.array([y < 0.5 for _, y in pairs]), half).value
    except RRMError as error:
        logger.warning("verdicts are at one half: %s", error)
        return half


def _turned(feedback: Feedback, threshold: float) -> bool:
    """Whether some step would have another verdict by this threshold."""
    return any(f.p_good is not None and (f.verdict == "bad") != (f.p_good < threshold) for f in feedback.findings)


def _fitted(
    judge: AgentRRM, key: str, pairs: Sequence[tuple[float, float]], method: CalibrationMethod
) -> dict[str, Any]:
    """Fit and keep a judge's map; what was fitted, or why nothing was."""
    try:
        fitted = fit([raw for raw, _ in pairs], [y for _, y in pairs], method)
    except RRMError as error:
        logger.warning("%s stays uncalibrated: %s", key, error)
        return {"skipped": str(error), "rows": len(pairs)}
    judge.settings.calibration.modes[key] = fitted
    return fitted.model_dump()


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
    """The evaluation card: `score` and `steps` mode on `max_rows` of the test rows, `full` mode on `full_rows`, of whole
    questions. In mode `steps` rows of which only steps are labelled count too.

    Args:
        raters: each trajectory's annotations, by its id: scores and steps are measured against what `rrm eval` would
            measure them against.
    """
    from rrm.evaluation.evaluate import evaluate_feedback

    truths = {t.id: truth_of(t, merged(raters.get(t.id, ()))) for t in test}
    found: dict[str, Any] = {}
    rows = [t for t in test if truths[t.id] is not None]
    every, few = config.evaluation.max_rows, config.evaluation.full_rows
    plans: list[tuple[Mode, int]] = [("score", every), ("steps", every), ("full", few)]
    for mode, most in plans:
        if mode == "steps":
            rows = [t for t in test if truths[t.id] is not None or step_labels(t, raters.get(t.id, ()))]
        part = whole_questions([t for t in rows if mode == "steps" or truths[t.id] is not None], most, config.seed)
        if not part or untrained(judge, mode):
            continue
        feedback: list[Feedback] = judge.judge(part, mode=mode, seed=config.seed)
        verdicts = [step_labels(t, raters.get(t.id, ())) for t in part] if mode != "score" else None
        labels = [truths[t.id] for t in part]
        cut = {JUDGE: judge.settings.threshold}  # fitted on calibration questions
        found[mode] = dict(
            evaluate_feedback(part, feedback, labels, step_labels=verdicts, step_thresholds=cut, seed=config.seed)
        )
    return found


def calibrated(settings: JudgeSettings) -> str:
    """One sentence: in which modes scores are calibrated, however transcripts are read in them."""
    covers = settings.calibration.covers
    modes: list[str] = []
    for mode in get_args(Mode):
        if covers(mode) or covers(mode, windowed=True):
            modes.append(
                mode if covers(mode) else f"{mode} (of transcripts read in windows, as all were that it was fitted on)"
            )
    if not modes:
        return "Its scores are not calibrated."
    said = f"Scores are calibrated in mode {' and '.join(modes)}" + (", in no other." if len(modes) < 4 else ".")
    return said + (" So is the probability of each step." if P_GOOD in settings.calibration.modes else "")


def model_card(settings: JudgeSettings, card: Mapping[str, Any]) -> str:
    """The judge's README: what it is, what it was trained on, what it measured."""
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
        for name, found in report["metrics"]["judge"].items():
            if found["value"] is None:
                continue
            value, low, high = ("–" if found[k] is None else f"{found[k]:.3f}" for k in ("value", "low", "high"))
            lines.append(f"| {mode} | {report['rows']} | {name} | {value} | {low} – {high} |")
    if known := card.get("questions_known_before", {}).get("test"):
        lines += [
            "",
            f"{known} of the test rows are of questions that the judge it goes on from was trained on: the figures flatter it.",
        ]
    lines += ["", "Scores on data unlike the training data are not calibrated; measure with `rrm eval` first.", ""]
    return "\n".join(lines)


def write_card(folder: Path, settings: JudgeSettings, card: Mapping[str, Any]) -> None:
    """`evaluation.json` and the model card."""
    (folder / "evaluation.json").write_text(json.dumps(card, indent=1) + "\n")
    (folder / "README.md").write_text(model_card(settings, card), encoding="utf-8")
