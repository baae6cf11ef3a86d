"""Configs: pydantic models read from YAML, found by name or path, with `a.b=c` overrides."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rrm.data.printing import nearest, printable
from rrm.errors import ConfigError
from rrm.removed import REMOVED, Removed, without_removed

C = TypeVar("C", bound=BaseModel)
FINDING_NOISE = 0.2  # default of `sft.finding_noise`
Sharding = Literal["none", "fsdp"]
CalibrationMethod = Literal["platt", "platt_score", "isotonic"]


log = logging.getLogger(__name__)


@cache
def _say_renamed(old: str, new: str) -> None:
    log.warning("config key %s is called %s now; the old name goes with version 0.3", old, new)


class Section(BaseModel):
    """Base of every section: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")
    removed: ClassVar[Mapping[str, Removed]] = {}  # of a config: dotted key → what replaces it
    # keys of version 0.1 → today's; a file may hold either, of both the later counts
    renamed: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _with_new_names(cls, value: Any) -> Any:
        for key in cls.renamed.keys() & value.keys() if isinstance(value, dict) else ():
            _say_renamed(key, cls.renamed[key])
        return {cls.renamed.get(k, k): v for k, v in value.items()} if isinstance(value, dict) else value


class BaseSettings(Section):
    """A base model and how it is loaded."""

    base: str = "smollm2"
    """`smollm2` (fetched once), a directory, or a hub id."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    attn_implementation: str = "sdpa"
    trust_remote_code: bool = False


class ModelConfig(BaseSettings):
    """The judge's base model. `base` may also be a shipped judge, all of whose weights are trained, or a
    `module:function` of (training trajectories, annotations by id, seed=…, **options) → model and tokenizer."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of a `module:function` base."""


class DataConfig(Section):
    """Sources of the rows. Parts are sets of questions, never of rows."""

    trajectories: list[str] = Field(default_factory=list)
    """Files of transcripts, beside what `generate` makes."""
    outcome: str | None = None
    """Their field that says how a run ended (`?` at its end: some have none), as `rrm check --outcome`."""
    annotations: list[str] = Field(default_factory=list)
    """Files of `rrm annotate`; `given`: labels that the transcripts carry (PRM800K and the like)."""
    target: Literal["outcome", "annotation", "blend"] = "outcome"
    """Score target: `outcome` or `annotation`, each with the other as fallback, or a `blend` of both."""
    blend: float = Field(default=0.5, ge=0.0, le=1.0)
    """Weight of the outcome: blend · outcome + (1 − blend) · score, where there are both."""
    generate: str | None = None
    """`module:function` of (seed, **generate_options): returns pairs of `Trajectory` and `Annotation`."""
    generate_options: dict[str, Any] = Field(default_factory=dict)
    split: str | None = None
    """JSON of question ids: `train`, `calibration`, `test`, optional `held_out_agents`;
    null: a seeded split by question, saved in the run folder."""
    calibration_share: float = Field(default=0.1, ge=0.0, le=1.0)
    test_share: float = Field(default=0.2, ge=0.0, le=1.0)


class MixConfig(Section):
    """Share of rows per epoch in each mode; rows without annotation only serve `score`."""

    score: float = Field(default=1.0, ge=0.0, le=1.0)
    critique: float = Field(default=0.0, ge=0.0, le=1.0)
    full: float = Field(default=0.0, ge=0.0, le=1.0)
    steps: float = Field(default=0.0, ge=0.0, le=1.0)
    """Rows with an outcome, or with findings that say good or bad."""


class LossWeights(Section):
    """Weight of a row of each mode in the loss; all 1: a mode's share of gradient is its share of rows."""

    score: float = Field(default=1.0, ge=0.0)
    critique: float = Field(default=1.0, ge=0.0)
    full: float = Field(default=1.0, ge=0.0)
    steps: float = Field(default=1.0, ge=0.0)
    outcome: float = Field(default=1.0, ge=0.0)
    """Weight of the outcome slot of a `steps` row, against 1 for all its step slots."""


class LoraSettings(Section):
    """LoRA (2106.09685) on the named linear layers."""

    r: int = Field(default=16, gt=0)
    alpha: int = Field(default=32, gt=0)
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    target_modules: str | list[str] = "all-linear"
    skip_layers: int = Field(default=0, ge=0)
    """Layers from the bottom without adapter (with `init`: whose adapter stays as it is); the backward pass
    ends above them."""
    init: str | None = None
    """Adapter to train further, with its own rank, alpha, layers and modules: a folder of a judge or adapter
    over the same base, or a shipped judge."""


class DrillSettings(Section):
    """Stage 0, for a model from scratch: rows of a function of yours, every weight trained."""

    generate: str | None = None
    """`module:function`, called with (prompter, rows, seed); returns `rrm.train.data.TrainingRow`s."""
    rows: int = Field(default=0, ge=0)
    batch_size: int = Field(default=64, gt=0)
    learning_rate: float = Field(default=1e-3, ge=0.0)


class FollowSettings(Section):
    """Further rows, made of `full` ones, in batches of their own."""

    rows: str
    """`module:function` of (prompter, trajectory, annotation, rng); returns a `TrainingRow`, or None."""
    share: float = Field(default=0.5, ge=0.0, le=1.0)
    """Share of the `full` rows that come once more this way."""


class SFTSettings(Section):
    """Stage 1: supervised fine-tuning with TRL's SFTTrainer."""

    renamed: ClassVar = {
        "short_first": "short_first_share",
        "injection": "claim_injection_share",
        "follow": "consistency_rows",
        "mark_noise": "finding_noise",
    }
    enabled: bool = True
    epochs: int = Field(default=3, gt=0)
    max_steps: int | None = Field(default=None, gt=0)
    """Stop, and anneal the learning rate, after so many updates instead of at the last row."""
    learning_rate: float = Field(default=5e-4, ge=0.0)
    batch_size: int = Field(default=8, gt=0)
    gradient_accumulation_steps: int = Field(default=2, gt=0)
    warmup_ratio: float = Field(default=0.05, ge=0.0, le=1.0)
    weight_decay: float = Field(default=0.0, ge=0.0)
    max_grad_norm: float = Field(default=1.0, ge=0.0)
    lora: LoraSettings | None = Field(default_factory=LoraSettings)
    """null trains every weight."""
    mix: MixConfig = Field(default_factory=MixConfig)
    loss_weights: LossWeights = Field(default_factory=LossWeights)
    balance: float | None = Field(default=None, gt=0.0)
    """Rows of a (question, steps) group's larger class kept per row of the smaller, drawn each epoch;
    null: all. In a balanced group neither question nor length predicts the label."""
    short_first_share: float = Field(default=0.0, ge=0.0)
    """Above 0, short rows tend to come earlier in epoch 1 (1: strongly), for a model from scratch."""
    claim_injection_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of score rows with a sentence that claims a random verdict: such claims must not pay."""
    consistency_rows: FollowSettings | None = None
    """`full` rows that come once more, changed by a function of yours."""
    finding_noise: float = Field(default=FINDING_NOISE, ge=0.0, le=1.0)
    """Share of marks on earlier steps that later windows' rows turn over: nearly a small judge's errors.
    0 where its own findings will be right: then a mark alone can decide."""
    save_steps: int = Field(default=100, gt=0)
    gradient_checkpointing: bool = False
    compile: bool = False
    """torch.compile each decoder layer: a third faster on a CPU after half a minute; needs a C++ compiler."""


class RLSettings(Section):
    """Stage 2: RL with TRL's GRPOTrainer; reward = agreement + format + anchoring − leak."""

    enabled: bool = False
    max_steps: int = Field(default=60, gt=0)
    prompts_per_step: int = Field(default=8, gt=0)
    num_generations: int = Field(default=8, ge=2)
    learning_rate: float = Field(default=2e-5, ge=0.0)
    beta: float = Field(default=0.02, ge=0.0)
    temperature: float = Field(default=1.0, gt=0.0)
    max_completion_length: int = Field(default=256, gt=0)
    mode: Literal["full", "critique"] = "full"
    gate_format: float = Field(default=0.95, ge=0.0, le=1.0)
    """Share of valid replies on held-out rows below which stage 2 does not start."""
    gate_rows: int = Field(default=64, gt=0)
    save_steps: int = Field(default=20, gt=0)


class CalibrationSettings(Section):
    """Stage 3: calibration, per mode, on the calibration questions."""

    enabled: bool = True
    method: CalibrationMethod = "platt"
    """`platt_score`: where scores are grades rather than probabilities (`rrm.judge.calibration`)."""
    modes: list[Literal["full", "critique", "score", "steps"]] = Field(default_factory=lambda: ["score"])
    max_rows: int = Field(default=1000, ge=0)
    """Most rows judged in `score` and `steps` mode."""
    sampled_rows: int = Field(default=200, ge=0)
    """Most rows judged in `full` and `critique` mode, which write text."""


class EvaluationSettings(Section):
    """The card saved with the model."""

    enabled: bool = True
    max_rows: int = Field(default=2000, ge=0)
    full_rows: int = Field(default=100, ge=0)
    """Rows also judged in `full` mode, for format validity, step localisation and leaks."""


class TrainConfig(Section):
    """Config of `rrm train`."""

    removed = REMOVED
    name: str = "judge"
    seed: int = 0
    output_dir: str = "runs/judge"
    transcript_tokens: int = Field(default=448, gt=0)
    """Token budget of a rendered transcript (version 2: of a window); stored with the judge."""
    prompt_version: Literal["1", "2", "3"] = "2"
    """Rendering: 1 cuts what exceeds the budget, 2 reads it in windows (`rrm.prompt.windows`)."""
    max_new_tokens: int = Field(default=256, gt=0)
    default_mode: Literal["full", "critique", "score", "steps"] | None = None
    """Mode of `rrm score`, unless named; null: `steps` if trained in that and not in `full`, else `full`."""
    report_to: list[str] = Field(default_factory=list)
    """Trackers by accelerate's names: tensorboard, wandb, trackio."""
    cpu: bool = False
    sharding: Sharding = "none"
    """Split of SFT and drills among processes: `none`: each has the whole model (DDP); `fsdp`: each a part
    of weights, gradients and optimiser state (FSDP2, docs/training.md). The losses are the same."""
    threads: int | None = Field(default=None, gt=0)
    model: ModelConfig = Field(default_factory=ModelConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    drills: DrillSettings = Field(default_factory=DrillSettings)
    sft: SFTSettings = Field(default_factory=SFTSettings)
    rl: RLSettings = Field(default_factory=RLSettings)
    calibration: CalibrationSettings = Field(default_factory=CalibrationSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)

    @model_validator(mode="after")
    def _slots_need_windows(self) -> TrainConfig:
        if self.sft.mix.steps and self.prompt_version == "1":
            raise ValueError("sft.mix.steps needs prompt_version 2: version 1 has no slots for verdicts")
        return self

    @model_validator(mode="after")
    def _only_sft_is_sharded(self) -> TrainConfig:
        if self.sharding == "fsdp" and self.rl.enabled:
            raise ValueError(
                "sharding=fsdp with rl.enabled: the RL stage samples in every process from the whole model. Set rl.enabled=false, or "
                "sharding=none with sft.lora"
            )
        if self.sharding == "fsdp" and self.sft.compile:
            raise ValueError("sharding=fsdp with sft.compile: compiled layers are not divided; set sft.compile=false")
        return self

    @model_validator(mode="after")
    def _an_adapter_is_of_its_base(self) -> TrainConfig:
        if self.drills.rows and self.sft.lora is not None and self.sft.lora.init is not None:
            raise ValueError(
                "sft.lora.init with drills.rows: the drills change the base that the adapter was trained over"
            )
        return self


def config_folder() -> Path:
    """Return the folder of shipped configs: inside the wheel, or the checkout's `configs/`."""
    packaged = Path(__file__).parent / "configs"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[1] / "configs"


def config_names(package: str = "rrm") -> list[str]:
    return sorted(p.stem for p in (config_folder() / package).glob("*.yaml"))


def find_config(name: str, package: str = "rrm") -> Path:
    """Find a config by path or shipped name (`smollm2` → configs/rrm/smollm2.yaml); raises `ConfigError`."""
    if Path(name).is_file():
        return Path(name)
    folder = config_folder() / package
    path = folder / f"{name}.yaml"
    if path.is_file():
        return path
    names = config_names(package)
    near = nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else ""
    raise ConfigError(f"no config {name!r}: not a file, and the shipped ones are {', '.join(names)}{hint}")


def _valid_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    named = False
    for segment in path:
        if named:  # a name of the user's, in a mapping of sections
            named = False
            continue
        field = model.model_fields.get(str(segment))
        if field is None:
            return []
        named = get_origin(field.annotation) is dict
        if (section := _section(field.annotation)) is None:
            return []
        model = section
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the section that a key holds, one or several; None: it holds values."""
    inner = [a for a in (annotation, *getattr(annotation, "__args__", ())) if isinstance(a, type)]
    return next((a for a in inner if issubclass(a, BaseModel)), None)


def _paths(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield every dotted key, except inside lists and mappings."""
    for name, field in model.model_fields.items():
        yield above + name
        section = _section(field.annotation)
        if section is not None and get_origin(field.annotation) not in (dict, list):
            yield from _paths(section, f"{above}{name}.")


def _nearest(model: type[BaseModel], path: tuple[str | int, ...]) -> str:
    """Suggest up to three keys: one shortened (`lr`), the same name elsewhere, or the nearest spelling."""
    *above, name = map(str, path)
    beside = _valid_keys(model, path[:-1])
    short = [k for k in beside if len(name) > 1 and name in (k[: len(name)], "".join(w[:1] for w in k.split("_")))]
    here = [".".join([*above, k]) for k in short or filter(None, [nearest(name, beside)])]
    keys = list(_paths(model))
    leaves = [k.rpartition(".")[2] for k in keys]
    same = [k for k, leaf in zip(keys, leaves, strict=True) if leaf == name]
    alike = nearest(name, leaves)
    elsewhere = same or [k for k, leaf in zip(keys, leaves, strict=True) if leaf == alike]
    matches = here if short or not same else same
    return " or ".join((matches or elsewhere)[:3])


def explain(error: ValidationError, model: type[BaseModel], where: str) -> str:
    """Explain a config's errors, a line each: `where: key: why`, with the nearest or the replacing key."""
    lines, removed = [], model.removed if issubclass(model, Section) else {}
    for problem in error.errors():
        key = ".".join(str(p) for p in problem["loc"])
        if problem["type"] == "extra_forbidden" and (gone := removed.get(key)):
            lines.append(f"{where}: key {key!r} is gone since {gone.since}: {gone.instead}")
        elif problem["type"] == "extra_forbidden":
            near = _nearest(model, problem["loc"])
            beside = ", ".join(_valid_keys(model, problem["loc"][:-1]))
            hint = f"nearest valid key: {near}" if near else f"the keys here are {beside}" if beside else ""
            lines.append(f"{where}: unknown key {key!r}" + (f"; {hint}" if hint else ""))
        else:
            # of a rule between keys the input is a whole section: its text names the values that matter
            rule = problem["type"] == "value_error" and isinstance(problem["input"], dict | BaseModel)
            got = "" if rule else f" (got {printable(repr(problem['input']), limit=200)})"
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(": ".join(filter(None, (where, key, message))) + got)
    return "\n".join(lines)


def set_key(tree: dict[str, Any], override: str) -> None:
    """Apply one `a.b=c` override in place, its value read as YAML; raises `ConfigError`."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"override {override!r} is not of the form key=value (e.g. sft.epochs=2)")
    *parents, last = key.split(".")
    node = tree
    for parent in parents:
        if node.get(parent) is None:
            node[parent] = {}
        node = node[parent]
        if not isinstance(node, dict):
            raise ConfigError(f"override {override!r}: {parent!r} is no section")
    try:
        node[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: value is not YAML: {error}") from error
    if isinstance(node[last], dict) and text.endswith(":"):
        node[last] = text  # `vllm:` is a name without its address, and no section
    for name in _without_value(node[last]):
        if not any(name + end in text for end in "'\":"):  # neither quoted nor given null
            meant = name.replace(":", ": ", 1)
            raise ConfigError(
                f"override {override!r}: {name!r} is a key without a value: write {{{meant}}}, with a space"
            )
    # YAML 1.1 reads 1e-4 as text
    if isinstance(node[last], str):
        try:
            node[last] = float(node[last])
        except ValueError:
            node[last] = node[last]


def _without_value(value: Any) -> Iterator[str]:
    """Yield keys with a colon and no value: `{a:1}` is one. YAML's anchors may make a value hold itself."""
    waiting, visited = [value], set[int]()
    while waiting:
        if not isinstance(node := waiting.pop(), dict | list) or id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, dict):
            yield from (str(key) for key, item in node.items() if item is None and ":" in str(key))
        waiting.extend(node.values() if isinstance(node, dict) else node)


def read_config(path: Path, model: type[C], overrides: Sequence[str] = ()) -> C:
    """Read a YAML file as `model` and apply overrides.

    Raises:
        ConfigError: unreadable YAML, unknown key (with the nearest valid one), or a value of the wrong type.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {error}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected a mapping of sections, found {type(tree).__name__}")
    if issubclass(model, Section):
        without_removed(tree, model.removed)
    try:
        model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, model, str(path))) from error
    return overridden(tree, model, overrides)


def overridden(tree: dict[str, Any], model: type[C], overrides: Sequence[str]) -> C:
    """Build `model` from sections and overrides; raises `ConfigError` as `read_config`."""
    for override in overrides:
        set_key(tree, override)
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(explain(error, model, "command line")) from error


def load_config(name: str, overrides: Sequence[str] | None = None) -> TrainConfig:
    """Read a judge's config by name or path, with overrides; raises `ConfigError` as `read_config`."""
    return read_config(find_config(name), TrainConfig, overrides or ())
