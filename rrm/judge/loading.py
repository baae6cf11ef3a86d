"""Load a judge: a directory, shipped judge, hub id or server's model."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rrm.data.extras import needs
from rrm.data.pictures import ImageBudget
from rrm.engines.base import ChatEngine, TokenEngine
from rrm.engines.hf.base_model import base_path, default_device, default_dtype, named_damage
from rrm.engines.hf.hub import download
from rrm.engines.server_options import ServerOptions, addresses_of, filled, meant, public, saved
from rrm.engines.shipped_judges import DEFAULT, FILE, judge_folder, shipped
from rrm.errors import ConfigError, DownloadError, MissingExtra, RRMError
from rrm.judge.fast import INT8, int8_engine, takes_int8
from rrm.judge.judge_dir import JudgeSettings, base_of, content_hash, load_settings, settings_hash
from rrm.prompt.criteria import Criteria
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import CUT_VERSION, PROMPT_VERSION

if TYPE_CHECKING:
    from rrm.engines.int8 import Int8Engine
    from rrm.engines.openai import OpenAIEngine

log = logging.getLogger(__name__)
VISION = "vision:"  # prefix of a local vision-language model's folder or hub id
DTYPES = ("float32", "bfloat16", "float16")
REPLY, REPLY_EACH = 512, 128  # reply tokens to criteria: beside the answers, and for each


@dataclass(frozen=True)
class LoadOptions:
    """Options of `AgentRRM.from_pretrained`; None leaves a value to the judge."""

    settings: str | Path | None = None
    device: str | None = None
    dtype: str | None = None
    attn_implementation: str | None = None
    revision: str | None = None
    token: str | None = None
    batch_tokens: int | None = None
    transcript_tokens: int | None = None
    max_windows: int | None = None
    context: int | None = None
    max_new_tokens: int | None = None
    timeout_s: float | None = None
    concurrency: int | None = None
    criteria: Criteria | None = None
    server: ServerOptions | None = None
    images: int | None = None
    trust_remote_code: bool = False  # set by the caller, never by what is loaded

    @property
    def hub_token(self) -> str | None:
        # `$VARIABLE` is read from the environment
        return None if self.token is None else filled(self.token, "--token")

    def over(self, settings: JudgeSettings) -> JudgeSettings:
        names = ("transcript_tokens", "max_new_tokens", "max_windows")
        budgets: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.criteria is not None and settings.criteria is None:
            room = None if self.max_new_tokens else reply_tokens(self.criteria)
            budgets |= {"criteria": self.criteria, "max_new_tokens": self.max_new_tokens or room}
            budgets |= {"default_mode": settings.default_mode or "score"}
        return settings.model_copy(update={name: value for name, value in budgets.items() if value is not None})


@dataclass(frozen=True)
class Loaded:
    engine: TokenEngine | ChatEngine
    settings: JudgeSettings
    model: str
    model_hash: str | None
    prompter: Prompter | None = None  # of a local judge
    reader: Prompter | None = None  # renders for a server with the judge's own tokenizer, if its directory has one
    folder: Path | None = None
    dtype: str | None = None
    images: ImageBudget | None = None  # None: words replace pictures


def reply_tokens(criteria: Criteria) -> int:
    # a sentence and an answer per question, and text on the run
    return REPLY + REPLY_EACH * len(criteria.questions)


def load(model: str | None, options: LoadOptions) -> Loaded:
    """Load the judge that `model` names; raises RRMError if unusable, ConfigError for an unfit option."""
    if model is not None and model.startswith("openai:"):
        folder, _ = find_folder(str(options.settings), options, weights=False) if options.settings else (None, False)
        return _load_served(model, model, folder, options)
    if model is not None and model.startswith("command:"):
        return _load_command(model, options)
    if model is not None and model.startswith(VISION):
        return _load_vision(model, options)
    if model is not None and model.startswith("vllm:"):
        raise ConfigError(
            f"{public(model)!r:.120}: a judge is asked over openai:BASE_URL#model, vLLM's server too (openai:http://localhost:8000/v1#model); "
            "vllm: is for policies (rollout.engine)"
        )
    if options.settings is not None:
        raise ConfigError(f"--settings are for openai:BASE_URL#model; {model or 'the default judge'} brings its own")
    folder, from_hub = find_folder(model, options)
    settings = load_settings(folder)
    if settings.engine is not None:
        if from_hub:
            raise RRMError(
                f"{model} names a server ({_host(settings.engine)}), which would be sent your transcripts and your key. "
                f"Where you trust it: --model openai:BASE_URL#model --settings {model}"
            )
        return _load_served(settings.engine, model or DEFAULT, folder, options)
    return _load_local(folder, settings, model, options)


def find_folder(model: str | None, options: LoadOptions, *, weights: bool = True) -> tuple[Path, bool]:
    """Return a judge's directory and whether it came from the hub, with or without its weights.

    Raises RRMError if there is none, ConfigError for a revision of something not on the hub.
    """
    folder = shipped(DEFAULT) if model is None else judge_folder(model)
    if folder is not None:
        if options.revision is not None and options.settings is None:
            raise ConfigError(
                f"--revision {options.revision} is of a hub id; {model or 'the default judge'} is a folder"
            )
        return folder, False
    assert model is not None
    if (address := meant(model)) is not None:
        raise ConfigError(f"{model} is an address without http:// in front: write {address}")
    if "://" in model:
        raise ConfigError(
            f"{public(model)} is no address of a judge: write http://HOST:PORT of rrm serve, or openai:BASE_URL#model"
        )
    here = Path(model).expanduser()
    if model.count("/") > 1 or model.startswith((".", "/", "~")):
        raise RRMError(f"no judge at {model!r}: the directory does not exist")
    if str(here.parent) != "." and here.parent.is_dir() and options.revision is None:
        raise RRMError(
            f"no judge at {model!r}: the folder {str(here.parent)!r} is here and has no {here.name!r} in it. If you mean "
            "the hub's, say so with --revision main"
        )
    if "/" not in model and options.revision is None:
        raise RRMError(
            f"no judge {model!r}: neither a folder here nor a shipped judge. A model behind an API is openai:URL#{model}, for example "
            f"openai:https://api.openai.com/v1#{model}; one on the hub is OWNER/{model}"
        )
    try:
        folder = download(
            model, revision=options.revision, token=options.hub_token, weights=weights, code=options.trust_remote_code
        )
    except DownloadError as error:
        raise RRMError(f"no judge {model!r}: neither a directory nor a shipped judge, and {error}") from error
    return folder, True


def _load_served(spec: str, model: str, folder: Path | None, options: LoadOptions) -> Loaded:
    from rrm.engines.openai import OpenAIEngine

    for name in ("dtype", "attn_implementation", "batch_tokens"):
        if getattr(options, name) is not None:
            raise ConfigError(f"{name} is a local judge's; {model} runs on a server")
    server = _server_options(folder, options)
    how = {"timeout_s": options.timeout_s, "concurrency": options.concurrency, "options": server}
    engine = OpenAIEngine.from_spec(spec, **{k: v for k, v in how.items() if v is not None})
    model = public(model)  # a password in the address belongs into no row
    settings, reader = _served_parts(engine, folder, options)
    budget = ImageBudget(number=options.images) if options.images else None
    if budget is not None and settings.prompt_version == CUT_VERSION:
        raise ConfigError(
            f"--images are of prompt version {PROMPT_VERSION}; {settings.name} was made for {CUT_VERSION}"
        )
    if folder is None:
        return Loaded(engine, settings.model_copy(update={"name": model}), model, None, images=budget)
    addresses, name = addresses_of(spec)
    names = ",".join(saved(url)[0] for url in addresses)  # as it is saved: it is hashed, and on cards
    settings = settings.model_copy(update={"engine": f"openai:{names}#{name}"})
    return Loaded(engine, settings, model, settings_hash(settings), reader=reader, folder=folder, images=budget)


def _load_command(model: str, options: LoadOptions) -> Loaded:
    from rrm.engines.command import CommandEngine

    taken = ("timeout_s", "concurrency", "transcript_tokens", "max_windows", "max_new_tokens", "criteria")
    if unfit := [f.name for f in fields(options) if f.name not in taken and getattr(options, f.name) != f.default]:
        raise ConfigError(f"{', '.join(unfit)}: not of {model}, a program has settings of its own; leave that out")
    engine = CommandEngine(model.removeprefix("command:"), options.timeout_s or 60.0, options.concurrency or 8)
    own = JudgeSettings(name=engine.name, opening=False, prompt_version=PROMPT_VERSION, transcript_tokens=8192)
    return Loaded(engine, options.over(own), engine.name, None)


def _server_options(folder: Path | None, options: LoadOptions) -> ServerOptions | None:
    """Merge a server's options; raises ConfigError where they differ from the calibrated ones."""
    own = {} if folder is None else load_settings(folder).request
    if not own:
        return options.server
    server = options.server or ServerOptions()
    for name, value in own.items():
        chosen = getattr(server, name, value)
        if chosen is not None and chosen != value:
            raise ConfigError(
                f"{folder} was calibrated with {name} {value!r}, not {chosen!r}: leave out --{name.replace('_', '-')}, or calibrate it again"
            )
    try:
        return replace(server, **own)
    except TypeError as error:
        raise ConfigError(f"{folder}: {FILE} asks its server in a way that is not known: {', '.join(own)}") from error


def _served_parts(
    engine: OpenAIEngine, folder: Path | None, options: LoadOptions
) -> tuple[JudgeSettings, Prompter | None]:
    """Return a server judge's settings, fitted to its context, and its reader."""
    from rrm.judge.serving import fitted

    plain = JudgeSettings(opening=False, prompt_version=PROMPT_VERSION)
    own = plain if folder is None else load_settings(folder)
    check_criteria(own, options)
    settings = options.over(own)
    _check_windows(settings, options)
    chosen = folder is not None or options.transcript_tokens is not None
    tokenizer = None if folder is None else _own_tokenizer(folder, options)
    # a window counted in characters leaves room for texts whose tokens are shorter
    settings = fitted(settings, engine, context=options.context, chosen=chosen, exact=tokenizer is not None)
    return settings, _reader(tokenizer, settings)


def _check_windows(settings: JudgeSettings, options: LoadOptions) -> None:
    if options.max_windows is not None and settings.prompt_version == CUT_VERSION:
        raise ConfigError(
            f"max_windows is of prompt version {PROMPT_VERSION}; {settings.name} was made for version {CUT_VERSION}, which cuts a "
            "long transcript and reads it once"
        )


def check_criteria(settings: JudgeSettings, options: LoadOptions) -> None:
    """Refuse questions other than those a judge was trained or calibrated with."""
    if options.criteria is None:
        return
    if settings.criteria is not None and settings.criteria.hash != options.criteria.hash:
        raise ConfigError(
            f"{settings.name} has criteria of its own, {settings.criteria.identity}, and its calibration is of these: leave out "
            "--criteria, or name the model itself as openai:BASE_URL#model"
        )
    if settings.fixed_rubric:
        raise ConfigError(
            f"{settings.name} was trained to judge by its fixed rubric and can answer no other questions: leave out --criteria, or "
            "name a chat model that was not trained as a judge (--model openai:BASE_URL#model, or a folder with its weights)"
        )
    if settings.prompt_version == CUT_VERSION:
        raise ConfigError(f"criteria are of prompt version {PROMPT_VERSION}; {settings.name} is of {CUT_VERSION}")


def _reader(tokenizer: Any, settings: JudgeSettings) -> Prompter | None:
    if tokenizer is None:
        return None
    return Prompter(
        tokenizer, settings.transcript_tokens, settings.prompt_version, settings.max_windows, settings.step_tokens
    )


def _own_tokenizer(folder: Path, options: LoadOptions) -> Any:
    # None if there is none; an adapter that reads slots may use its base's, by which they are found
    own = (folder / "tokenizer.json").is_file()
    settings = load_settings(folder)
    if not own and not ("steps" in settings.modes and (folder / "adapter_config.json").is_file()):
        return None
    try:
        needs("local", f"the tokenizer of {folder}", "transformers")
    except MissingExtra as error:
        log.warning("%s; until then a token counts as four characters, so long transcripts are cut elsewhere", error)
        return None
    return _tokenizer(folder if own else _base_folder(folder, settings, options, weights=False), options)


def _tokenizer(folder: Path, options: LoadOptions) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=options.trust_remote_code)
    except (OSError, ValueError) as error:
        raise RRMError(f"cannot load the tokenizer of {str(folder)!r}: {error}") from error


def load_reader(model: str | None, options: LoadOptions) -> tuple[JudgeSettings, Prompter | None]:
    """Return a judge's settings, and its prompter without weights (None: a server without a directory).

    Raises RRMError: no such judge."""
    if model is not None and model.startswith("command:"):
        return _load_command(model, options).settings, None
    served = model is not None and model.startswith("openai:")
    folder, from_hub = None, False
    if not served or options.settings is not None:
        folder, from_hub = find_folder(str(options.settings) if served else model, options, weights=False)
    # a server that a stranger's judge.json names is not asked for its context: it would be sent your key
    named = load_settings(folder).engine if folder is not None and not from_hub else None
    spec = model if served else named
    if spec is not None:
        from rrm.engines.openai import OpenAIEngine

        server = _server_options(folder, options)
        how = {} if server is None else {"options": server}
        return _served_parts(OpenAIEngine.from_spec(spec, **how), folder, options)
    assert folder is not None
    settings = options.over(load_settings(folder))
    _check_windows(settings, options)
    if settings.engine is not None or (folder / "tokenizer.json").is_file():
        return settings, _reader(_own_tokenizer(folder, options), settings)
    needs("local", f"the tokenizer of {model or 'the default judge'}", "transformers")
    tokenizer = _tokenizer(_base_folder(folder, settings, options), options)
    return settings, Prompter(
        tokenizer, settings.transcript_tokens, settings.prompt_version, settings.max_windows, settings.step_tokens
    )


def _load_local(folder: Path, settings: JudgeSettings, model: str | None, options: LoadOptions) -> Loaded:
    """Load a judge with an in-process engine; an adapter is merged into its base."""
    if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json", FILE)):
        raise RRMError(
            f"no judge in {folder}: it has no config.json, adapter_config.json or {FILE}; rrm train makes one"
        )
    needs("local", "a judge whose weights run in this process", "torch", "transformers")
    import torch

    from rrm.engines.hf.engine import HFEngine
    from rrm.engines.hf.host_memory import keep_freed_memory

    _check_windows(settings, options)
    check_criteria(settings, options)
    if options.images:
        raise ConfigError(
            f"{model or 'the default judge'} reads text alone: leave out --images, or name a vision-language model (vision:FOLDER, or one "
            "on a server, openai:BASE_URL#model)"
        )
    _check_local(model or "the default judge", options)
    if options.dtype not in (None, INT8, *DTYPES):
        raise ConfigError(f"dtype {options.dtype!r}: choose one of {', '.join((*DTYPES, INT8))}")
    device = options.device or default_device()
    if device.startswith("cpu"):
        keep_freed_memory()
    number = getattr(torch, options.dtype) if options.dtype in DTYPES else default_dtype(device)
    batch: dict[str, Any] = {"max_batch_tokens": options.batch_tokens} if options.batch_tokens else {}

    def in_float() -> tuple[HFEngine, Any, str]:
        weights, tokenizer, hashed = load_weights(folder, model, settings, number, options)
        return HFEngine(weights.eval(), tokenizer, device=device, **batch), tokenizer, hashed

    fast: tuple[Int8Engine, str] | None = None
    tokenizer: Any = None
    if takes_int8(options.dtype, device, settings.modes, options.attn_implementation):
        folders = _weight_folders(folder, settings, options)
        tokenizer = _tokenizer(folder if (folder / "tokenizer.json").is_file() else folders[-1], options)
        fast = int8_engine(
            folders,
            tokenizer,
            lambda: load_weights(folder, model, settings, torch.float32, options)[0].eval(),
            lambda: in_float()[0],
            required=options.dtype == INT8,
        )
    engine, tokenizer, hashed = in_float() if fast is None else (fast[0], tokenizer, fast[1])
    settings = options.over(settings)
    prompter = Prompter(
        tokenizer, settings.transcript_tokens, settings.prompt_version, settings.max_windows, settings.step_tokens
    )
    dtype = INT8 if fast else str(number).removeprefix("torch.")
    return Loaded(engine, settings, model or DEFAULT, hashed, prompter, folder=folder, dtype=dtype)


def _weight_folders(folder: Path, settings: JudgeSettings, options: LoadOptions) -> list[Path]:
    adapter = (folder / "adapter_config.json").is_file()
    return [folder, _base_folder(folder, settings, options)] if adapter else [folder]


def _check_local(name: str, options: LoadOptions) -> None:
    own = {"timeout": options.timeout_s, "concurrency": options.concurrency, "context": options.context}
    names = [option for option, value in own.items() if value is not None]
    names += [] if options.server is None else options.server.given
    if names:
        listed = ", ".join(option.replace("_", "-") for option in names)
        raise ConfigError(
            f"{listed}: such options are a server's; {name} runs in this process: leave that out, or name a server (openai:BASE_URL#model; timeout and "
            "concurrency also go with http://HOST:PORT of rrm serve)"
        )


def _load_vision(model: str, options: LoadOptions) -> Loaded:
    needs("images", "a vision-language judge in this process", "torch", "transformers", "PIL")
    import torch

    from rrm.engines.hf.vision import load_vision

    _check_local(model, options)
    unfit = {
        "settings": options.settings,
        "attn_implementation": options.attn_implementation,
        "batch_tokens": options.batch_tokens,
    }
    if names := [name for name, value in unfit.items() if value is not None]:
        raise ConfigError(
            f"{', '.join(names)}: not of {model}, which runs in this process and was not trained to judge"
        )
    name = model.removeprefix(VISION)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = download(name, revision=options.revision, token=options.hub_token, code=options.trust_remote_code)
    if options.dtype is not None and options.dtype not in DTYPES:
        raise ConfigError(f"dtype {options.dtype!r}: choose one of {', '.join(DTYPES)}")
    device = options.device or default_device()
    number = getattr(torch, options.dtype) if options.dtype else default_dtype(device)
    settings = options.over(JudgeSettings(name=model, opening=False, prompt_version=PROMPT_VERSION))
    engine = load_vision(folder, device=device, dtype=number, trust_remote_code=options.trust_remote_code)
    limit = 8 if options.images is None else options.images
    budget = ImageBudget(number=limit, decode=True) if limit else None
    dtype = str(number).removeprefix("torch.")
    return Loaded(engine, settings, model, content_hash(folder), dtype=dtype, images=budget)


def load_weights(
    folder: Path, model: str | None, settings: JudgeSettings, dtype: Any, options: LoadOptions
) -> tuple[Any, Any, str]:
    """Return (model, tokenizer, hash over both folders); an adapter is merged into its float32 base, then cast.

    Raises RRMError: nothing there can be loaded."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    adapter = (folder / "adapter_config.json").is_file()
    source = _base_folder(folder, settings, options) if adapter else folder
    own_tokenizer = (folder / "tokenizer.json").is_file()
    # False, not None: transformers would ask on a terminal, and wait
    how: dict[str, Any] = {"trust_remote_code": options.trust_remote_code}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder if own_tokenizer else source), **how)
        if options.attn_implementation:
            how["attn_implementation"] = options.attn_implementation
        # whole weights load in their final type; a merge in bfloat16 would round the adapter away
        import torch

        with named_damage(source):
            weights = AutoModelForCausalLM.from_pretrained(
                str(source), dtype=torch.float32 if adapter else dtype, use_safetensors=True, **how
            )
    except (OSError, ValueError, ImportError) as error:  # ImportError: an attention that is not installed
        raise RRMError(f"cannot load the judge {model or str(source)!r}: {error}") from error
    if adapter:
        from peft import PeftModel

        with named_damage(folder):
            weights = PeftModel.from_pretrained(weights, str(folder)).merge_and_unload().to(dtype)
    return weights, tokenizer, content_hash(folder, source) if adapter else content_hash(folder)


def _base_folder(folder: Path, settings: JudgeSettings, options: LoadOptions, *, weights: bool = True) -> Path:
    base = base_path(base_of(folder, settings))
    if Path(base).is_dir():
        return Path(base)
    return download(
        base, revision=settings.base_revision, token=options.hub_token, weights=weights, code=options.trust_remote_code
    )


def _host(spec: str) -> str:
    try:
        hosts = [urlsplit(url).hostname for url in addresses_of(spec)[0]]
    except ConfigError:
        hosts = []
    return ", ".join(host for host in hosts if host) or "of no readable name"
