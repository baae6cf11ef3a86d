"""What a judge's directory holds beside weights: `judge.json` (settings, calibration, training facts)."""

from __future__ import annotations

import hashlib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rrm.errors import RRMError
from rrm.judge.calibration import Calibration
from rrm.prompt.rendering import PROMPT_VERSION

FILE = "judge.json"
JUDGES = "rrm.judges"
"""Entry point group under which packages name the judges they ship."""
ASSETS = Path(__file__).resolve().parents[1] / "assets"


def shipped(name: str) -> Path:
    """Directory of a judge that an installed package ships: `default` is ours, others come by entry point.

    A package names its judges under `[project.entry-points."rrm.judges"]`, each a function that returns a directory.

    Raises:
        RRMError: nothing installed ships a judge of that name; names those there are.
    """
    if name == "default":
        folder = ASSETS / name
    else:
        found = {point.name: point for point in entry_points(group=JUDGES)}
        if name not in found:
            raise RRMError(f"no judge named {name!r} is installed; there are {', '.join(['default', *sorted(found)])}")
        folder = Path(found[name].load()())
    if not (folder / FILE).is_file():
        raise RRMError(f"this installation has no {name} judge; name one with --model")
    return folder


def is_shipped(name: str) -> bool:
    """Whether an installed package ships a judge of that name."""
    return name == "default" or any(point.name == name for point in entry_points(group=JUDGES))


class JudgeSettings(BaseModel):
    """Stored with the weights, so that a judge judges as it was trained to."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    name: str = "judge"
    base: str | None = None
    """Base model of an adapter (`smollm2`, a hub id or a directory); None where the weights are whole."""
    prompt_version: str = PROMPT_VERSION
    transcript_tokens: int = 2048
    max_new_tokens: int = 512
    grid: list[float] = Field(default_factory=lambda: [i / 10 for i in range(11)])
    calibration: Calibration = Field(default_factory=Calibration)
    trained_on: dict[str, Any] = Field(default_factory=dict)
    """Facts for the reader: data, rows, seed, command, versions, hardware."""


def load_settings(folder: Path) -> JudgeSettings:
    """The settings in a judge's directory; defaults for a plain model directory.

    Raises:
        RRMError: the file is there but not valid, or was written for another prompt version.
    """
    path = folder / FILE
    if not path.is_file():
        return JudgeSettings()
    try:
        settings = JudgeSettings.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise RRMError(f"{path}: not a judge's settings: {error}") from error
    if settings.prompt_version != PROMPT_VERSION:
        raise RRMError(
            f"{path}: trained with prompt version {settings.prompt_version}, this is {PROMPT_VERSION}: "
            "train it again, or install the version of agent-rrm it was made with"
        )
    return settings


def save_settings(folder: Path, settings: JudgeSettings) -> None:
    """Write `judge.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(settings.model_dump_json(indent=1) + "\n", encoding="utf-8")


def content_hash(folder: Path) -> str:
    """Twelve hex digits over the weights and `judge.json`: names exactly this judge."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob(FILE)]):
        digest.update(path.name.encode())
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()[:12]
