"""Save a judge as its directory, and upload that to the hub."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol, cast

from rrm.data.output import files_when_whole
from rrm.engines.hf.hub import upload
from rrm.engines.server_options import saved
from rrm.engines.shipped_judges import FILE
from rrm.errors import RRMError
from rrm.judge.judge_dir import CALIBRATED, CONFIGS, JudgeSettings, base_of, own_code, save_settings

log = logging.getLogger(__name__)
# nothing else is copied beside `judge.json`, as a run's folder may hold anything
PACKAGE = (
    "*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "adapter_config.json",
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "chat_template.jinja",
    "evaluation.json", "README.md", "LICENSE*", "domain.json", *CALIBRATED,
)  # fmt: skip
KEPT = ("README.md", "LICENSE*")  # may be the target folder's own, and decide nothing
# of a judge whose weights are on a server
SMALL = (
    "tokenizer*", "special_tokens_map.json", "chat_template.jinja", "evaluation.json", "README.md", "domain.json",
    *CALIBRATED,
)  # fmt: skip


class SavableJudge(Protocol):
    engine: Any
    prompter: Any
    settings: JudgeSettings
    folder: Path | None


def save_judge(judge: SavableJudge, folder: Path) -> Path:
    """Write `folder` as loaded, with the server's name or weights; raises RRMError if it cannot."""
    settings = judge.settings
    base = local_base(judge)
    if base is not None and base == folder.expanduser().resolve():
        raise RRMError(f"{folder} holds the base of this judge: save it to a folder of its own")
    if judge.prompter is None:
        settings = settings.model_copy(
            update={"engine": f"openai:{_address(judge)}#{getattr(judge.engine, 'model', '')}"}
        )
    elif judge.folder is None:
        settings = settings.model_copy(update={"base": None})
        if not hasattr(getattr(judge.engine, "model", None), "save_pretrained"):
            raise RRMError(f"{type(judge.engine).__name__} holds no weights that could be saved")
    if judge.folder is not None and judge.folder.resolve() == folder.resolve():
        save_settings(folder, settings)  # its other files are there
        return folder
    # what another judge left there, its adapter or its shards, would be loaded with this one's files
    with files_when_whole(folder, [pattern for pattern in PACKAGE if pattern not in KEPT]) as building:
        if judge.folder is not None:
            served = judge.prompter is None
            _copy(judge.folder, building, SMALL if served else PACKAGE)
            for path in own_code(judge.folder, ("tokenizer_config.json",) if served else CONFIGS):
                shutil.copyfile(path, building / path.name)
        elif judge.prompter is not None:
            cast(Any, judge.engine).model.save_pretrained(str(building))
        if judge.prompter is not None and not (building / "tokenizer.json").is_file():
            judge.prompter.tokenizer.save_pretrained(str(building))
        save_settings(building, settings)
        _refuse_to_replace(folder, list(building.glob("*.py")))
    return folder


def _refuse_to_replace(folder: Path, code: list[Path]) -> None:
    # of a judge's folder only its own code may be replaced
    for path in code:
        there = folder / path.name
        if there.is_file() and there.read_bytes() != path.read_bytes() and there not in own_code(folder):
            raise RRMError(
                f"{there} is not this judge's code, which has a file of that name: save it to another folder"
            )


def local_base(judge: SavableJudge) -> Path | None:
    """Return the local folder with the weights under the judge's adapter, None if none."""
    if judge.folder is None or not (judge.folder / "adapter_config.json").is_file():
        return None
    base = Path(base_of(judge.folder, judge.settings)).expanduser()
    return base.resolve() if base.is_dir() else None


def push_judge(
    judge: SavableJudge,
    repo: str,
    *,
    token: str | None,
    private: bool | None,
    revision: str | None,
    commit_message: str,
) -> str:
    """Save and commit to the hub; returns the commit's address. Raises RRMError for a local base."""
    base = local_base(judge)
    if base is not None:
        raise RRMError(
            f"the judge's base {str(base)!r} is a folder of this machine, so nobody else could load it: put the base on the hub and "
            f"name it in {FILE}, or push the merged weights"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = save_judge(judge, Path(scratch) / "judge")
        return upload(folder, repo, token=token, private=private, revision=revision, message=commit_message)


def _address(judge: SavableJudge) -> str:
    """Return the server's address without possible secrets, which belong into no file."""
    url = getattr(judge.engine, "base_url", None)
    if url is None:
        raise RRMError(f"{type(judge.engine).__name__} is no server that another process could ask")
    addresses = [saved(item) for item in url.split(",")]
    if lacking := sorted({secret for _, some in addresses for secret in some}):
        log.warning(
            "%s has the server's address without %s, which may be secret: give the whole address to use it, "
            "--model 'openai:ADDRESS#MODEL' --settings DIR",
            FILE,
            ", ".join(lacking),
        )
    return ",".join(address for address, _ in addresses)


def _copy(source: Path, target: Path, patterns: tuple[str, ...]) -> None:
    for path in sorted({path for pattern in patterns for path in source.glob(pattern) if path.is_file()}):
        shutil.copyfile(path, target / path.name)
