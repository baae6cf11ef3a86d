"""The queue of items, its limits, and the calls that run an item on the other machine. queue.yaml explains the fields."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.gpu import pieces

QUEUE = Path("benchmarks/gpu/queue.yaml")
FOLDER = Path("runs/gpu")
"""Pieces, jobs and results; git ignores it."""
MIB = 1 << 20


class QueueError(Exception):
    """The queue cannot do what was asked; the message says why."""


@dataclass(frozen=True)
class Limits:
    """Limits of one call to the other machine."""

    up_mib: int
    up_spare_mib: int
    up_paths: int
    command_characters: int
    command_minutes: float
    back_mib: int
    back_files: int
    back_file_mib: int
    back_depth: int

    def check_call(self, call: dict[str, Any], root: Path, tree: int) -> None:
        """Raise QueueError where a call carries too much beside the `tree` bytes of the repository `root`."""
        total = tree + sum((root / path).stat().st_size for path in call["carry"])
        if total > self.up_mib * MIB:
            raise QueueError(f"{total:,} bytes up, {tree:,} of them the tree, are over {self.up_mib} MiB")
        if len(call["carry"]) > self.up_paths or len(call["command"]) > self.command_characters:
            raise QueueError(f"a call names too many paths, or its command is too long: {call}")

    def check_back(self, folder: Path) -> None:
        """Raise QueueError where a folder would not come back whole, with the file and the limit."""
        paths = [path for path in folder.rglob("*") if not path.is_dir()]
        for path in paths:
            name = path.relative_to(folder).as_posix()
            if not re.fullmatch(r"[A-Za-z0-9._/-]+", name):
                raise QueueError(f"{name!r} has characters beside letters, digits, '.', '_' and '-'")
            if name.count("/") > self.back_depth:
                raise QueueError(f"{name} lies more than {self.back_depth} folders deep")
            if path.is_symlink() or path.stat().st_size > self.back_file_mib * MIB:
                raise QueueError(f"{name} is a link, or larger than {self.back_file_mib} MiB")
        total = sum(path.stat().st_size for path in paths)
        if len(paths) > self.back_files or total > self.back_mib * MIB:
            raise QueueError(f"{len(paths)} files, {total:,} bytes: over {self.back_files} or {self.back_mib} MiB")


@dataclass(frozen=True)
class Item:
    """One thing to run: `runs` (name: arguments) go side by side on one GPU and promise the files `outputs` each."""

    name: str
    purpose: str
    prediction: str
    minutes: float
    state: str
    result: str
    script: str
    inputs: list[str]
    runs: dict[str, str]
    outputs: list[str]

    def promised(self) -> list[str]:
        """Names of the files that must come back, the most important first."""
        return [pattern.format(run=run) for pattern in self.outputs for run in self.runs]

    def resumes(self) -> bool:
        """Whether a second call can go on where the first one stopped."""
        return "{run}.moments.safetensors" in self.outputs


@dataclass(frozen=True)
class Queue:
    """The file queue.yaml."""

    limits: Limits
    absent: list[str]
    smoke: dict[str, Any]
    inputs: dict[str, dict[str, str]]
    items: list[Item]

    def item(self, name: str = "") -> Item:
        """The item of that name, or the first that waits; QueueError where there is none."""
        for item in self.items:
            if item.name == name or (not name and item.state == "waiting"):
                return item
        raise QueueError(f"no item {name!r}" if name else "no item waits")


def load(root: Path) -> Queue:
    """Read the queue of the repository `root`; QueueError where an item is not one that can run."""
    raw = yaml.safe_load((root / QUEUE).read_text("utf-8"))
    items = [Item(**item) for item in raw.pop("items")]
    queue = Queue(limits=Limits(**raw.pop("limits")), items=items, **raw)
    for item in items:
        if item.state not in ("waiting", "done", "failed") or not set(item.inputs) <= queue.inputs.keys():
            raise QueueError(f"item {item.name}: unknown state {item.state!r} or input in {item.inputs}")
        if item.minutes > queue.limits.command_minutes - 1.5:
            raise QueueError(f"item {item.name}: joining and packing need 1.5 minutes beside {item.minutes}")
    return queue


def set_state(root: Path, name: str, state: str) -> None:
    """Write an item's state into the queue's file, whose other lines stay as they are."""
    text = (root / QUEUE).read_text("utf-8")
    changed, count = re.subn(rf"(?ms)^( *- name: {re.escape(name)}$.*?^ +state: )\w+", rf"\g<1>{state}", text, count=1)
    if count != 1:
        raise QueueError(f"{QUEUE} has no line `state:` for {name}")
    (root / QUEUE).write_text(changed, "utf-8")


def states(folder: Path) -> dict[str, dict[str, Any]]:
    """The states that the runs wrote into `folder`, by the run's name; each says whether it is `finished`."""
    paths = {path.name.removesuffix(".state.json"): path for path in sorted(folder.glob("*.state.json"))}
    return {name: {"finished": True} | json.loads(path.read_text("utf-8")) for name, path in paths.items()}


def unfinished(folder: Path) -> list[str]:
    """The runs whose state in `folder` says that they are not finished."""
    return [name for name, state in states(folder).items() if not state["finished"]]


def git(root: Path, *arguments: str) -> str:
    """Run git in the folder `root` and return its output."""
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def tree_bytes(root: Path) -> int:
    """Bytes of the files that travel with every call: tracked ones, and those that git does not ignore."""
    names = set(git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")) - {""}
    return sum((root / name).lstat().st_size for name in names if (root / name).exists())


def plan(queue: Queue, item: Item, root: Path, have: list[str], **changes: Any) -> tuple[Path, list[dict[str, Any]]]:
    """Cut an item's inputs into pieces; returns its job file (with `changes`) and the calls that run it, the script's last.

    `have`: inputs that the other machine still holds. QueueError where an input is not there, or the tree leaves no room.
    """
    tree = tree_bytes(root)
    room = (queue.limits.up_mib - queue.limits.up_spare_mib) * MIB - tree
    if room < MIB:
        raise QueueError(f"the tree leaves {room:,} bytes for pieces: make it smaller")
    sources = {name: queue.inputs[name] for name in item.inputs}
    earlier = FOLDER / "results" / item.name
    if item.resumes() and unfinished(root / earlier):  # an earlier call did a part of it
        sources[f"{item.name}-resume"] = {"path": str(earlier)}
    job: dict[str, Any] = {key: getattr(item, key) for key in ("name", "script", "runs", "minutes")}
    job |= {
        "promised": item.promised(),
        "seconds": queue.limits.command_minutes * 60,
        "device": "cuda",
        "arguments": [],
        "inputs": {},
    }
    job |= {"commit": git(root, "rev-parse", "HEAD"), "changed": git(root, "status", "--porcelain").split("\n")}
    job |= changes
    groups: list[list[str]] = [[]]
    filled = 0
    for name, source in sources.items():
        path, folder = root / source["path"], FOLDER / "pieces" / name
        if not path.exists():
            raise QueueError(f"input {name} is not there: {path} ({source.get('how', 'an earlier result')})")
        job["inputs"][name] = pieces.pack(path, root / folder, room, source.get("kind") == "model")
        for piece in [] if name in have else job["inputs"][name]["pieces"]:
            if filled + piece["bytes"] > room or len(groups[-1]) == queue.limits.up_paths - 1:
                groups.append([])
                filled = 0
            groups[-1].append(str(folder / piece["name"]))
            filled += piece["bytes"]
    named = {name: str(root / source["path"]) for name, source in sources.items()}
    for part in [part for text in item.runs.values() for part in shlex.split(text) if "{" in part]:
        if not Path(part.format(**named)).exists():
            raise QueueError(f"{part} is not among the inputs: {part.format(**named)} is not there")
    path = FOLDER / "jobs" / f"{item.name}.json"
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(json.dumps(job) + "\n", "utf-8")
    calls = [{"command": "ls -l " + " ".join(group), "carry": group, "timeout_s": 60} for group in groups[:-1]]
    script = f'python3 -m benchmarks.gpu run {path} --out "$OUT"'
    calls.append({"command": script, "carry": [*groups[-1], str(path)], "timeout_s": int(job["seconds"])})
    for call in calls:
        queue.limits.check_call(call, root, tree)
    return path, calls
