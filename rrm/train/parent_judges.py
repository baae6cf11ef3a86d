"""The judges that a run goes on from, and their training questions.

Looked up once, as the run begins, and kept in its folder: later the earlier judge may lie elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from rrm.config import TrainConfig
from rrm.data.extras import is_import_path
from rrm.data.trajectory import Trajectory
from rrm.engines.hf.hub import download
from rrm.engines.shipped_judges import FILE, judge_folder
from rrm.errors import DownloadError
from rrm.judge.judge_dir import load_settings
from rrm.train.adapter import checked_adapter
from rrm.train.run_folder import read_record

logger = logging.getLogger(__name__)
KEPT = "earlier.json"


class Earlier(BaseModel):
    questions: list[str] = []  # `rrm.data.questions.question_key` of their training questions, where named
    silent: list[str] = []  # judges that name none


def earlier_of(config: TrainConfig) -> Earlier:
    """Training questions of the judges that the run goes on from."""
    keys_by_folder = {folder: load_settings(folder).training_questions for folder in _begins_with(config)}
    questions = sorted({key for keys in keys_by_folder.values() for key in keys})
    return Earlier(questions=questions, silent=[str(folder) for folder, keys in keys_by_folder.items() if not keys])


def kept_earlier(folder: Path) -> Earlier | None:
    path = folder / KEPT
    return Earlier.model_validate(read_record(path)) if path.is_file() else None


def _begins_with(config: TrainConfig) -> list[Path]:
    folders = [_base_judge(config.model.base)]
    lora = config.sft.lora if config.sft.enabled else None
    if lora is not None and lora.init is not None:
        folders.append(checked_adapter(lora, config.model.base))
    return [folder for folder in folders if folder is not None and (folder / FILE).is_file()]


def _base_judge(base: str) -> Path | None:
    if base == "smollm2" or is_import_path(base):
        return None
    folder = judge_folder(base)
    if folder is None:
        try:
            return download(base, weights=False)
        except DownloadError as error:
            logger.warning("whether %s is a judge, and on which questions trained, cannot be seen: %s", base, error)
            return None
    if (folder / FILE).is_file():
        return folder
    beside = folder.parent / "judge"  # a run's merged weights, from before these had settings of their own
    return beside if folder.name == "merged" else folder


def warn_of_met(earlier: Earlier, parts: Mapping[str, Sequence[Trajectory]], met: Mapping[str, int]) -> None:
    """Warn of calibration and test rows whose questions the earlier judge knows, or may know."""
    if earlier.silent:
        logger.warning(
            "%s does not name the questions it was trained on: whether the run is measured on some of them, nobody can say",
            " and ".join(earlier.silent),
        )
    if any(met.values()):
        logger.warning(
            "%d of %d test rows and %d of %d calibration rows are of questions that the judge it goes on from was trained on: the "
            "figures flatter it; give it the split it was trained with (data.split)",
            *(n for name in ("test", "calibration") for n in (met[name], len(parts[name]))),
        )
