"""What the tests of criteria in stages share: two files, a judge that answers what it is asked, and what it was asked on record."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import Any

from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM

SIMPLE = "name: simple\nquestions:\n  done: {ask: 'Done?', scale: yes_no}\n"
HARD = (
    "name: hard\nquestions:\n  done: {ask: 'Done?', scale: yes_no}\n  short: {ask: 'Short?', scale: unit, weight: 3}\n"
)


def files(folder: Path) -> tuple[str, str]:
    """The simple file and the hard one."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "simple.yaml", folder / "hard.yaml"
    for path, text in zip(paths, (SIMPLE, HARD), strict=True):
        path.write_text(text)
    return str(paths[0]), str(paths[1])


def staged(folder: Path, *firsts: int) -> list[dict[str, Any]]:
    """`feedback.criteria`: simple and hard in turn, from these updates on; `simple` from the first."""
    pair = files(folder)
    return [{"from": first, "file": pair[n % 2]} for n, first in enumerate((0, *firsts))]


def answer(messages: list[dict[str, str]], params: object = None, key: str = "") -> str:
    """To each question that is asked, by what is read alone."""
    read = zlib.crc32(messages[-1]["content"].encode())
    said = {"done": "yes" if read % 2 else "no", "short": f"{read % 11 / 10}"}
    asked = re.findall(r"^- (\w+): ", messages[0]["content"], re.MULTILINE)
    return "\n".join(
        f'<criterion name="{name}">\nwhy: w\nsteps: 1\nanswer: {said[name]}\n</criterion>' for name in asked
    )


def answering() -> AgentRRM:
    """A chat model as anybody would name it: it was asked no criteria yet."""
    return AgentRRM(ScriptedChatEngine(answer), model="answering")


def asked_by_update(folder: Path) -> dict[int, set[str]]:
    """Names of the criteria on record, by the update that they judged."""
    found: dict[int, set[str]] = {}
    for line in (folder / "judgements.jsonl").read_text().splitlines():
        row = json.loads(line)
        found.setdefault(row["update"], set()).add(row["feedback"]["judge"]["criteria"].split(" (")[0])
    return found
