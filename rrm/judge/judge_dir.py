"""A judge's directory, the one package of a judge: `judge.json` beside weights, an adapter, or just the server it is on.

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
BLEND = ("blend", "default_blend")
"""Settings of older judges, which nothing reads any more."""
CALIBRATED = ("calibration.json", "calibration.jsonl")
"""Written by `rrm calibrate`: what was fitted, and the rows used."""


class JudgeSettings(BaseModel):
    """Stored with the weights, so that a judge judges as it was trained to."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    name: str = "judge"
    base: str | None = None
    """Base model of an adapter (`smollm2`, a hub id or a directory); None where the weights are whole."""
    base_revision: str | None = None
    """Branch, tag or commit of a base on the hub."""
    engine: str | None = None
    """`openai:BASE_URL#model` of a judge whose weights are on a server; None where they are here."""
    opening: bool = True
    """Whether the reply's first tag (`<think>`, `<critique>` or `<score>`, by mode) is part of the prompt, as in training.
    False for a chat model that was never trained to judge."""
    modes: list[Mode] = Field(default_factory=list)
    """Modes the judge was trained in; empty: not recorded. Another one is said to be untried."""
    default_mode: Mode | None = None
    """The mode that `rrm score` uses where none is named; None: `full`."""
    threshold: float = Field(default=0.5, ge=0.0, le=1.0)
    """Mode `steps`: a step is good whose calibrated p_good is at least this; another value than one half is an older judge's."""
    unsure_band: tuple[float, float] | None = None
    """`[low, high]`: the judge abstains on a step with low < p_good < high (`rrm.judge.abstention`); null: on none for this reason."""
    promise: AgreementPromise | None = None
    """Of verdicts on whole runs; None: rows have a score and no verdict."""
    prompt_version: str = PROMPT_VERSION
    """How transcripts are rendered (`rrm.prompt`): 1 cuts what exceeds the budget, 2 reads it in windows."""
    step_tokens: int | None = None
    """Tokens of a step that are shown, in prompt version 3: a longer step loses its middle, and coverage says so; null: all."""
    transcript_tokens: int = 2048
    max_new_tokens: int = 512
    request: dict[str, Any] = Field(default_factory=dict)
    """How its server is asked, of what varies the answers (`ServerOptions.deciding`), of a judge that was calibrated so."""
    max_windows: int | None = Field(default=None, ge=1)
    """Windows read of a transcript at most, of a judge that was calibrated so; None: all."""
    grid: list[float] = Field(default_factory=lambda: [i / 10 for i in range(11)])
    calibration: Calibration = Field(default_factory=Calibration)
    trained_on: dict[str, Any] = Field(default_factory=dict)
    """Facts for the reader: data, rows, seed, command, versions, hardware."""
    calibrated_on: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Facts for the reader of each map that `rrm calibrate` fitted: rows, questions, where the labels are from, samples, seed."""
    criteria: Criteria | None = None
    """The questions that it answers, instead of the fixed rubric; of a chat model alone."""
    training_questions: list[str] = Field(default_factory=list)
    """`rrm.data.questions.question_key` of each question it was trained on, so that an evaluation can say when it meets one."""

    @model_validator(mode="before")
    @classmethod
    def _without_blend(cls, told: Any, info: ValidationInfo) -> Any:
        """Drop what older judges say of a blend with a lexical model; where there was one, that is said once."""
        if not isinstance(told, dict):
            return told
        if told.get("blend") is not None:
            _tell_of_blend(str(info.context or told.get("name", "judge")))
        return {key: value for key, value in told.items() if key not in BLEND}

    @model_validator(mode="after")
    def _band_in_order(self) -> JudgeSettings:
        if self.unsure_band is not None and not 0.0 <= self.unsure_band[0] <= self.unsure_band[1] <= 1.0:
            raise ValueError(f"unsure_band must be [low, high] with 0 ≤ low ≤ high ≤ 1, not {list(self.unsure_band)}")
        return self

    @property
    def verdicts(self) -> VerdictRule:
        """What it makes of a step's p_good."""
        return VerdictRule(self.threshold, self.unsure_band)

    @property
    def fixed_rubric(self) -> bool:
        """Whether it was trained, or calibrated, to judge one run by the fixed rubric, and can be asked nothing else."""
        return self.criteria is None and bool(self.modes or self.trained_on or self.calibration != Calibration())


@lru_cache
def _tell_of_blend(judge: str) -> None:
    log.warning(
        "%s was made with a lexical model to blend its scores with, which is ignored: the scores are the judge's own",
        judge,
    )


def calibrated_questions(folder: Path | None) -> list[str]:
    """The questions (`rrm.data.questions.question_key`) of the rows that `rrm calibrate` fitted a judge's maps on; none where it did not.

    Raises:
        ReadError: a line of its record is damaged.
    """
    path = folder and folder / CALIBRATED[1]
    if path is None or not path.is_file():
        return []

    def question_in(line: str) -> str:
        row = json.loads(line)
        if not isinstance(row, dict) or not isinstance(row.get("question"), str):
            raise ValueError("it names no question")
        return row["question"]

    return sorted(set(read_lines(path, question_in, "a row of `rrm calibrate`")))


def load_settings(folder: Path) -> JudgeSettings:
    """The settings in a judge's directory; defaults for a plain model directory.

    Raises:
        RRMError: the file is there but not valid, or was written for another prompt version.
    """
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
    """Write `judge.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(settings.model_dump_json(indent=1) + "\n", encoding="utf-8")


DECISIVE = (
    "*.safetensors", "config.json", "adapter_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt",
)  # fmt: skip
"""Files that decide a judge's scores, beside `judge.json`, its own code and where its replies end (`content_hash`)."""
CONFIGS = ("config.json", "tokenizer_config.json")
_CODE = re.compile(r"([\w-]+)\.\w+")
_BESIDE = re.compile(r"^[^\S\n]*+(?:from|import)[^\S\n]++\.(\w+)", re.MULTILINE)
FOR_THE_READER = {"name", "default_mode", "trained_on", "calibrated_on", "training_questions"}
"""What `judge.json` says that decides no score."""
LATER: dict[str, Any] = {
    "threshold": 0.5,
    "unsure_band": None,
    "promise": None,
    "step_tokens": None,
    "criteria": None,
    "max_windows": None,
    "request": {},
}
"""Settings that older judges were hashed without, and the values that change nothing for them."""


def base_of(folder: Path, settings: JudgeSettings) -> str:
    """What an adapter is over: as its judge.json says, else as its adapter_config.json does.

    Raises:
        RRMError: neither names a base.
    """
    config = folder / "adapter_config.json"
    try:
        base = settings.base or json.loads(config.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (ValueError, AttributeError) as error:
        raise RRMError(f"{config}: not an adapter's settings: {error}") from error
    if not isinstance(base, str) or not base:
        raise RRMError(f"{folder}: an adapter without its base: name it as `base` in {FILE}")
    return base


def content_hash(*folders: Path) -> str:
    """Twelve hex digits over what decides a judge's scores: its own folder's weights and settings, and its base's weights."""
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
    """The Python files that a model or tokenizer brings along: those that an `auto_map` names, and what they import from
    beside themselves. Other scripts in the folder are the user's; transformers runs none of them.

    Raises:
        RRMError: a config that is not JSON.
    """
    waiting: list[str] = []
    for config in configs:
        named = _read_json(folder / config).get("auto_map") or {}
        for entry in named.values() if isinstance(named, dict) else [named]:
            for name in entry if isinstance(entry, list) else [entry]:
                found = _CODE.fullmatch(name) if isinstance(name, str) else None  # `org/repo--…` lies elsewhere
                waiting += [found[1]] if found else []
    files: set[Path] = set()
    while waiting:
        path = folder / f"{waiting.pop()}.py"
        if path.is_file() and path not in files:
            files.add(path)
            waiting += _BESIDE.findall(path.read_text(encoding="utf-8", errors="replace"))
    return sorted(files)


def _read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty where there is no such file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise RRMError(f"{path}: not JSON: {error}") from error
    return found if isinstance(found, dict) else {}


def settings_hash(settings: JudgeSettings) -> str:
    """Twelve hex digits over a judge's settings, where its weights are not ours to see."""
    told = settings.model_dump(mode="json", exclude=FOR_THE_READER)
    said = json.dumps({k: v for k, v in told.items() if k not in LATER or LATER[k] != v}, sort_keys=True)
    return hashlib.sha256(said.encode("ascii")).hexdigest()[:12]


def _file_hash(path: Path) -> str:
    """A file's SHA-256. The hub's cache stores weights under theirs, so those need not be read."""
    real = path.resolve()
    if real.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{64}", real.name):
        return real.name
    stat = real.stat()
    return _read_hash(real, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_hash(path: Path, size: int, modified_ns: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
