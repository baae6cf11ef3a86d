"""A run's folder: its `config.yaml`, and the refusal to continue a run under another config.

`check_folder` precedes loading the model, `claim_folder` follows, so that a mistake leaves no empty folder; `sole_writer` encloses
both. Addresses of servers are stored without users, passwords and queries.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from rrm.config import Section
from rrm.data.output import drafted
from rrm.data.plain_yaml import plain_yaml
from rrm.engines.server_options import public
from rrm.errors import ConfigError, RRMError
from rrm.removed import without_removed

logger = logging.getLogger(__name__)
LOCK = ".lock"
SPECS = ("openai:", "vllm:")  # prefixes of a server's model name


def recorded(config: BaseModel) -> dict[str, Any]:
    # as it may be kept and sent to trackers: without passwords in addresses
    return _without_secrets(config.model_dump(mode="json"))


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return public(value) if isinstance(value, str) and value.startswith(SPECS) else value


def saved_config(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    """A saved config as this version would dump it, or unchanged where it is no config of this version.

    Removed options are left out where they were null (off), or said what this version does. ConfigError if it is no YAML.
    """
    try:
        tree = plain_yaml(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not a config that a run wrote: {error}") from error
    if isinstance(tree, dict) and issubclass(model, Section):
        without_removed(tree, model.removed)
    try:
        model.model_validate(tree)
    except ValidationError as error:
        for problem in error.errors():
            if problem["type"] != "extra_forbidden" or problem["input"] is not None:
                return tree
            section = tree
            for key in problem["loc"][:-1]:
                section = section[key]
            del section[problem["loc"][-1]]
    return recorded(model.model_validate(tree))


def read_record(path: Path) -> dict[str, Any]:
    """Read a JSON object from a run's folder; RRMError if damaged."""
    try:
        record = json.loads(path.read_bytes())
    except ValueError as error:
        raise _damaged(path, error) from error
    if not isinstance(record, dict):
        raise _damaged(path, "no JSON object")
    return record


def _damaged(path: Path, why: object) -> RRMError:
    return RRMError(
        f"{path} is damaged ({why}): bring it back from a copy, or choose another output_dir=… to begin anew"
    )


def check_folder(config: BaseModel, folder: Path, fixed: Sequence[str], free: Sequence[str] = ()) -> None:
    """Check that `folder` belongs to a run of the same config in `fixed` sections but `free` options.

    Raises:
        RRMError: naming what differs.
    """
    saved = folder / "config.yaml"
    if not saved.is_file():
        return
    before, now = saved_config(saved, type(config)), recorded(config)
    for *sections, option in (name.split(".") for name in free):
        for tree in (before, now):
            for section in sections:
                tree = tree.get(section) if isinstance(tree, dict) else None
            if isinstance(tree, dict):
                tree.pop(option, None)
    changed = [k for k in fixed if before.get(k) != now[k]]
    if changed:
        raise RRMError(
            f"{folder} holds a run with another {', '.join(changed)}: "
            "choose another output_dir=…, or delete it to start again"
        )


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock the folder (`.lock`) against other processes until the block or the process ends.

    Folders that got nothing else are removed. RRMError if another process has it, or it cannot be written into.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=0)
    try:
        new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise RRMError(
            f"another process is writing a run into {folder}: wait until it has ended (one that was told to stop finishes its update first), or "
            "choose another output_dir=…"
        ) from error
    except (OSError, NotImplementedError) as error:
        if not os.access(folder, os.W_OK) or not os.path.isdir(folder):
            raise RRMError(f"cannot write a run into {folder}: {error}") from error
        logger.warning(
            "%s: no lock can be had (%s): nothing keeps another process from writing into it, too", folder, error
        )
    try:
        yield
    finally:
        with suppress(OSError):
            if new_folders and [path.name for path in folder.iterdir()] == [LOCK]:
                (folder / LOCK).unlink()  # while it is held: who has opened it meanwhile finds it gone
        lock.release()
        with suppress(OSError):  # the first that is not empty
            for path in new_folders:
                path.rmdir()


def claim_folder(config: BaseModel, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with drafted(folder / "config.yaml") as draft:  # other processes may be reading it
        draft.write_text(yaml.safe_dump(recorded(config), sort_keys=False), encoding="utf-8")
