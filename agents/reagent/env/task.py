"""A task: one question, and what an environment needs to set itself up and to grade the answer."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from rrm.data.output import write_lines
from rrm.data.printing import printable
from rrm.errors import ReadError


@dataclass(frozen=True)
class Task:
    """One question. `answer`, `aliases` and `meta` are for grading and reports, never for the policy."""

    id: str
    question: str
    answer: str | None = None
    """The reference answer. Without it the outcome is `ungraded`: a judge's score may be the only reward."""
    seed: int = 0
    """Sets up the environment: same task, same environment, in every attempt."""
    question_id: str | None = None  # groups tasks that ask the same question; splits are made by it
    meta: dict[str, Any] = field(default_factory=dict)
    """Keys that reports group by (`{"hops": 2}`), and `aliases`: further right answers."""
    graded: bool = True
    """Off: nobody grades it, though an environment may use its answer (`environment.label_share`)."""

    @property
    def references(self) -> list[str]:
        """All right answers; blank aliases are left out. Raises ValueError: the task has none."""
        if self.answer is None:
            raise ValueError(
                f"task {self.id!r} has no reference answer: give it one, grade by another function, or say in `is_graded` "
                "that nobody can"
            )
        return [self.answer, *(alias for alias in self.meta.get("aliases") or () if str(alias).strip())]


def as_task(row: Mapping[str, Any], default_id: str | None = None) -> Task:
    """A task from its JSON object (see `read_tasks`). Raises ValueError: a wrong or missing key or value."""
    if not isinstance(row, Mapping):
        raise ValueError(f'a task is an object, {{"question": …}}, got {_got(row)}')
    values: dict[str, Any] = dict(row)
    for key in ("id", "question_id"):
        if type(values.get(key)) is int:  # not a bool; as data sets number their rows
            values[key] = str(values[key])
    if default_id is not None:
        values.setdefault("id", default_id)
    keys = [field.name for field in fields(Task)]
    if unknown := [key for key in values if key not in keys]:
        raise ValueError(f"unknown key {printable(repr(unknown[0]), limit=80)}; the keys are {', '.join(keys)}")
    for key in ("id", "question"):
        if not isinstance(values.get(key), str):
            raise ValueError(
                f"`{key}` must be text, got {_got(values[key])}" if key in values else f"`{key}` is missing"
            )
    if not isinstance(answer := values.get("answer"), str | None):
        several = "; of several right ones the others go into `meta`, as `aliases`" if isinstance(answer, list) else ""
        raise ValueError(f"`answer` must be text, or null where nobody grades it, got {_got(answer)}{several}")
    if not isinstance(values.get("question_id"), str | None) or type(values.get("seed", 0)) is not int:
        raise ValueError("`question_id` must be text or null, and `seed` a whole number")
    if not isinstance(values.get("graded", True), bool) or not isinstance(meta := values.get("meta", {}), dict):
        raise ValueError("`graded` must be true or false, and `meta` an object")
    aliases = meta.get("aliases", [])
    if not isinstance(aliases, list | tuple) or not all(isinstance(alias, str) for alias in aliases):
        raise ValueError(f"`aliases` in `meta` must be a list of texts, got {_got(aliases)}")  # of a text, each letter
    return Task(**values)


def _got(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False, default=str), limit=80)


def write_tasks(path: str | Path, tasks: Iterable[Task]) -> int:
    """Write tasks as JSONL that `read_tasks` reads; returns how many."""
    return write_lines(path, (json.dumps(asdict(task)) for task in tasks))


def read_tasks(path: str | Path) -> list[Task]:
    """Read tasks from JSONL: `question` is required; other keys (`id`, `answer`, `seed`, …) are optional.
    Raises ReadError: no such file; a line that is no such object, has a blank question or answer; or two lines with one id."""
    tasks: list[Task] = []
    lines_of: dict[str, int] = {}
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")  # at no other character that a text may hold
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(str(path), None, f"tasks cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            task = as_task(json.loads(line), f"{Path(path).stem}:{number}")
            if not task.question.strip():
                raise ValueError("`question` is empty")
            if task.answer is not None and not task.answer.strip():
                raise ValueError("`answer` is empty: leave it out, or null, where nobody grades the task")
        except json.JSONDecodeError as error:
            raise ReadError(str(path), number, f"not a task, which is a JSON object on one line: {error}") from error
        except RecursionError as error:
            raise ReadError(str(path), number, "not a task: it is nested too deeply") from error
        except (ValueError, TypeError) as error:
            raise ReadError(str(path), number, f"not a task: {error}") from error
        if task.id in lines_of:
            raise ReadError(
                str(path),
                number,
                f"a second task with the id {task.id!r}, after line {lines_of[task.id]}: ids name tasks",
            )
        lines_of[task.id] = number
        tasks.append(task)
    return tasks
