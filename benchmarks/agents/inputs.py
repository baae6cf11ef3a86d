"""What a cell's attempts are made from, by content: the same name may mean something else by the time a table goes on.

Files and folders are told by a hash, what lies on the hub by its commit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from reagent.tasks.base import Benchmark
from reagent.tasks.gaia import FOLDER_OPTIONS
from reagent.train.config import AgentConfig
from rrm.engines.hf.hub import commit_of
from rrm.errors import ReadError
from rrm.judge.judge_dir import content_hash
from rrm.readers.hub import HubSet, hub_set, is_hub

REVISION = "_revision"
"""Ends the names of what lies on the hub. None there: neither the hub nor its cache could be asked."""
QUESTIONS = f"questions{REVISION}"
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Inputs:
    """Looks at each input once: all cells of a table are made from the same."""

    _known: dict[tuple[str, ...], str | None] = field(default_factory=dict)

    def of(self, config: AgentConfig, benchmark: type[Benchmark]) -> dict[str, Any]:
        """What a config's episodes are made from, by name; of the critic and the judge, others know."""
        own = config.environment
        found = self._questions(questions_path(config, benchmark))
        for name in benchmark.read_options:
            if isinstance(path := own.eval.get(name), str) and Path(path).is_file():
                found[f"{name}_sha256"] = self._once("file", path, _file_hash)
        found |= self._policy(config.policy.base)
        if (corpus := _corpus(own.options)) is not None:
            found["corpus_sha256"] = self._once("file", str(corpus), _file_hash)
        tools = own.options.get("tool_options") or {}
        folders = {tool: (tools.get(tool) or {}).get(option) for tool, option in FOLDER_OPTIONS.items()}
        for name, folder in ({"files": own.options.get("files")} | folders).items():
            if isinstance(folder, str) and Path(folder).is_dir():
                found[f"{name}_sha256"] = self._once("folder", folder, _folder_hash)
        return found

    def pinned(self, path: str | None, commit: str | None = None) -> str | None:
        """A set on the hub at a commit, or at the one that was looked up; None of any other path, and where nobody knows the commit."""
        if (named := _on_hub(path)) is None or (
            commit := commit or self.commit(named.name, named.revision, "dataset")
        ) is None:
            return None
        return f"hf:{named.name}@{commit}{f'#{named.config}' if named.config else ''}:{named.split}"

    def commit(self, repo: str, revision: str | None, kind: Literal["model", "dataset"]) -> str | None:
        """As `commit_of`, asked once."""
        return self._once(f"{kind}@{revision or ''}", repo, lambda name: commit_of(name, revision=revision, kind=kind))

    def _questions(self, path: str | None) -> dict[str, Any]:
        if (named := _on_hub(path)) is not None:
            return {QUESTIONS: self.commit(named.name, named.revision, "dataset")}
        if path is not None and is_hub(path) and isinstance(local := hub_set(path), HubSet):
            path = local.name
        kind, look = ("file", _file_hash) if path is not None and Path(path).is_file() else ("folder", _folder_hash)
        known = path is not None and Path(path).exists()
        return {"questions_sha256": self._once(kind, str(path), look)} if known else {}

    def _policy(self, base: str) -> dict[str, Any]:
        if Path(base).is_dir():
            return {"policy_hash": self._once("policy", base, lambda folder: content_hash(Path(folder)))}
        if is_hub_id(base):
            return {f"policy{REVISION}": self.commit(base, None, "model")}
        return {}

    def _once(self, what: str, name: str, look: Callable[[str], str | None]) -> str | None:
        if (what, name) not in self._known:
            self._known[what, name] = look(name)
        return self._known[what, name]


def questions_path(config: AgentConfig, benchmark: type[Benchmark]) -> str | None:
    """Where a cell's questions come from; None where nothing says so."""
    given = config.environment.eval
    return given["path"] if given.get("path") is not None else benchmark.default_path(given.get("split", "heldout"))


def is_hub_id(name: str) -> bool:
    """Whether a policy's or judge's name can only be of a repository on the hub."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def _on_hub(path: str | None) -> HubSet | None:
    """The set on the hub that a path names; None of a file, of a folder that is named like a set, and of what is no name."""
    if path is None or not is_hub(path) or isinstance(named := hub_set(path), ReadError):
        return None
    return None if Path(named.name).is_dir() else named


def _corpus(options: Mapping[str, Any]) -> Path | None:
    """The file that says of which passages the index is that a method searches; None of one that searches none."""
    named = options.get("corpus") or ((options.get("tool_options") or {}).get("search") or {}).get("corpus")
    path = Path(named) / "corpus.json" if isinstance(named, str) else None
    return path if path is not None and path.is_file() else None


def _file_hash(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _folder_hash(folder: str) -> str:
    """Over the names and contents of all files in it."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    lines = "".join(f"{path.relative_to(folder).as_posix()}\n{_file_hash(str(path))}\n" for path in files)
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()[:16]
