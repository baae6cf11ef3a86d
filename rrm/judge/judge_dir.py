"""A judge's directory: `judge.json` beside weights, an adapter, or just the server it is on.

    judge.json                 settings, calibration, hashes of the training questions (`JudgeSettings`)
    domain.json                the form of what it was measured on, which marks other transcripts (`rrm.judge.domain`)
    adapter_model.safetensors  and adapter_config.json, over `base`; or model.safetensors and config.json; or nothing
    tokenizer.json, …          with the chat template the judge is used with
    evaluation.json README.md  what was measured
    calibration.json, .jsonl   what `rrm calibrate` fitted, and the rows it used

A directory without weights names the server that has them: `"engine": "openai:http://host:8000/v1#model"`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from rrm.data.feedback import Mode
from rrm.data.jsonl import read_lines
from rrm.data.printing import describe
from rrm.engines.shipped_judges import FILE
from rrm.errors import RRMError
from rrm.judge.abstention import AgreementPromise, VerdictRule
from rrm.judge.calibration import Calibration
from rrm.prompt.criteria import Criteria
from rrm.prompt.rendering import PROMPT_VERSION, PROMPT_VERSIONS

log = logging.getLogger(__name__)
BLEND = ("blend", "default_blend")  # settings of older judges, which nothing reads
# by `rrm calibrate`: what was fitted, and the scores of the rows used
CALIBRATION_RECORD, CALIBRATION_SCORES = CALIBRATED = ("calibration.json", "calibration.jsonl")


class JudgeSettings(BaseModel):
    """The settings of `judge.json`: how a judge was trained and calibrated to judge."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    name: str = "judge"
    base: str | None = None  # base model of an adapter (`smollm2`, a hub id or a directory)
    base_revision: str | None = None  # branch, tag or commit of a base on the hub
    engine: str | None = None  # `openai:BASE_URL#model` of a judge whose weights are on a server
    opening: bool = True
    """The reply's first tag (`<think>`, `<critique>`, `<score>`) is in the prompt; not for chat models."""
    modes: list[Mode] = Field(default_factory=list)  # in which the judge was trained; empty: not recorded
    default_mode: Mode | None = None  # of `rrm score` where none is named; None: `full`
    threshold: float = Field(default=0.5, ge=0.0, le=1.0)
    """Mode `steps`: least calibrated p_good of a good step; only older judges differ from one half."""
    unsure_band: tuple[float, float] | None = None
    """`[low, high]`: the judge abstains on a step with low < p_good < high (`rrm.judge.abstention`)."""
    promise: AgreementPromise | None = None  # of verdicts on whole runs; None: rows have a score and no verdict
    prompt_version: str = PROMPT_VERSION
    """Rendering of transcripts (`rrm.prompt`): 1 cuts what exceeds the budget, 2 reads it in windows."""
    step_tokens: int | None = None
    """Prompt version 3: tokens of a step that are shown; a longer one loses its middle; null: all."""
    transcript_tokens: int = 2048
    max_new_tokens: int = 512
    # the server's options that vary answers (`ServerOptions.deciding`), as calibrated with
    request: dict[str, Any] = Field(default_factory=dict)
    # most windows read of a transcript, as calibrated with; None: all
    max_windows: int | None = Field(default=None, ge=1)
    grid: list[float] = Field(default_factory=lambda: [i / 10 for i in range(11)])
    calibration: Calibration = Field(default_factory=Calibration)
    # for the reader: data, rows, seed, command, versions, hardware
    trained_on: dict[str, Any] = Field(default_factory=dict)
    # for the reader, of each map that `rrm calibrate` fitted: rows, questions, label sources, samples, seed
    calibrated_on: dict[str, dict[str, Any]] = Field(default_factory=dict)
    criteria: Criteria | None = None  # a chat model's questions, instead of the fixed rubric
    # `rrm.data.questions.question_key` of each question it was trained on, so that an evaluation can report overlap
    training_questions: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _without_blend(cls, raw: Any, info: ValidationInfo) -> Any:
        """Drop older judges' settings of a blend with a lexical model; warn once where there was one."""
        if not isinstance(raw, dict):
            return raw
        if raw.get("blend") is not None:
            _tell_of_blend(str(info.context or raw.get("name", "judge")))
        return {key: value for key, value in raw.items() if key not in BLEND}

    @model_validator(mode="after")
    def _band_in_order(self) -> JudgeSettings:
        if self.unsure_band is not None and not 0.0 <= self.unsure_band[0] <= self.unsure_band[1] <= 1.0:
            raise ValueError(f"unsure_band must be [low, high] with 0 ≤ low ≤ high ≤ 1, not {list(self.unsure_band)}")
        return self

    @property
    def verdicts(self) -> VerdictRule:
        return VerdictRule(self.threshold, self.unsure_band)

    @property
    def fixed_rubric(self) -> bool:
        """True where it was trained or calibrated for the fixed rubric, and answers nothing else."""
        return self.criteria is None and bool(self.modes or self.trained_on or self.calibration != Calibration())


@lru_cache
def _tell_of_blend(judge: str) -> None:
    log.warning(
        "%s was made with a lexical model to blend its scores with, which is ignored: the scores are the judge's own",
        judge,
    )


def calibrated_questions(folder: Path | None) -> list[str]:
    """Read the `rrm.data.questions.question_key`s of a judge's calibration rows; ReadError if damaged."""
    path = folder and folder / CALIBRATION_SCORES
    if path is None or not path.is_file():
        return []

    def question_in(line: str) -> str:
        row = json.loads(line)
        if not isinstance(row, dict) or not isinstance(row.get("question"), str):
            raise ValueError("it names no question")
        return row["question"]

    return sorted(set(read_lines(path, question_in, "a row of `rrm calibrate`")))


def load_settings(folder: Path) -> JudgeSettings:
    """Read a judge's settings, defaults for a plain model; RRMError where invalid or of another version."""
    path = folder / FILE
    if not path.is_file():
        return JudgeSettings()
    try:
        settings = JudgeSettings.model_validate_json(path.read_text(encoding="utf-8"), context=str(path))
    except ValidationError as error:
        raise RRMError(f"{path}: not a judge's settings: {describe(error)}") from error
    if settings.prompt_version not in PROMPT_VERSIONS:
        raise RRMError(
            f"{path}: trained with prompt version {settings.prompt_version}, this knows {', '.join(PROMPT_VERSIONS)}: "
            "train it again, or install the version of agent-rrm it was made with"
        )
    return settings


def save_settings(folder: Path, settings: JudgeSettings) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(settings.model_dump_json(indent=1) + "\n", encoding="utf-8")


# files that decide a judge's scores, beside `judge.json`, its own code and its replies' end tokens
DECISIVE = (
    "*.safetensors", "config.json", "adapter_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt",
)  # fmt: skip
CONFIGS = ("config.json", "tokenizer_config.json")
_CODE = re.compile(r"([\w-]+)\.\w+")
_BESIDE = re.compile(r"^[^\S\n]*+(?:from|import)[^\S\n]++\.(\w+)", re.MULTILINE)
# settings that decide no score
FOR_THE_READER = {"name", "default_mode", "trained_on", "calibrated_on", "training_questions"}
# settings that older judges were hashed without, with the values that change nothing for them
LATER: dict[str, Any] = {
    "threshold": 0.5,
    "unsure_band": None,
    "promise": None,
    "step_tokens": None,
    "criteria": None,
    "max_windows": None,
    "request": {},
}


def base_of(folder: Path, settings: JudgeSettings) -> str:
    """Return an adapter's base, by judge.json, else adapter_config.json; RRMError where none is named."""
    config = folder / "adapter_config.json"
    try:
        base = settings.base or json.loads(config.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (ValueError, AttributeError) as error:
        raise RRMError(f"{config}: not an adapter's settings: {error}") from error
    if not isinstance(base, str) or not base:
        raise RRMError(f"{folder}: an adapter without its base: name it as `base` in {FILE}")
    return base


def content_hash(*folders: Path) -> str:
    """Hash the first folder's weights and settings, and its base's weights, to 12 hex digits."""
    digest = hashlib.sha256()
    for number, folder in enumerate(folders):
        for path in sorted({path for pattern in DECISIVE for path in folder.glob(pattern)} | set(own_code(folder))):
            digest.update(f"{number}/{path.name}\n{_file_hash(path)}\n".encode())
        if (folder / "generation_config.json").is_file():
            ends = _read_json(folder / "generation_config.json").get("eos_token_id")
            if ends != _read_json(folder / "config.json").get("eos_token_id"):  # else they are hashed with config.json
                digest.update(f"{number}/ends\n{json.dumps(ends)}\n".encode())
        if number == 0 and (folder / FILE).is_file():
            digest.update(settings_hash(load_settings(folder)).encode())
    return digest.hexdigest()[:12]


def own_code(folder: Path, configs: Sequence[str] = CONFIGS) -> list[Path]:
    """List the Python files that transformers runs: those in an `auto_map`, and their relative imports.

    Raises RRMError: a config is not JSON."""
    waiting: list[str] = []
    for config in configs:
        named = _read_json(folder / config).get("auto_map") or {}
        for entry in named.values() if isinstance(named, dict) else [named]:
            for name in entry if isinstance(entry, list) else [entry]:
                match = _CODE.fullmatch(name) if isinstance(name, str) else None  # `org/repo--…` lies elsewhere
                waiting += [match[1]] if match else []
    files: set[Path] = set()
    while waiting:
        path = folder / f"{waiting.pop()}.py"
        if path.is_file() and path not in files:
            files.add(path)
            waiting += _BESIDE.findall(path.read_text(encoding="utf-8", errors="replace"))
    return sorted(files)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise RRMError(f"{path}: not JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def settings_hash(settings: JudgeSettings) -> str:
    """Hash the settings that decide scores; 12 hex digits."""
    values = settings.model_dump(mode="json", exclude=FOR_THE_READER)
    text = json.dumps({k: v for k, v in values.items() if k not in LATER or LATER[k] != v}, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:12]


def _file_hash(path: Path) -> str:
    """Return a file's SHA-256, which the hub's cache has as the name of weights."""
    real = path.resolve()
    if real.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", real.name):
        return real.name
    stat = real.stat()
    return _read_hash(real, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_hash(path: Path, size: int, modified_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
