"""What the training report's tests share: small run folders, judged transcripts, and a page's tags and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from reagent.report import write_page
from reagent.report.runs import RecordedRun
from rrm.data.trajectory import Message, ToolCall, Trajectory, write_jsonl

JUDGE = {"model": "judge", "prompt_version": "1", "mode": "full", "score_source": "expected"}
EVIL = "</style><script>document.title='pwned'</script><img src=x onerror=alert(1)>{{ 7*7 }}$x_{$ &lt; \ud800\x00"
"""Text that would run, load, template or break a page that does not escape it."""
VOID = {"meta", "br", "img", "path", "use"}
Command = Callable[..., tuple[int, dict[str, Any], str]]


class Page(HTMLParser):
    """A page's tags, its visible text, and its tables as rows of cells by the region's label; checks that tags nest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text("utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self._open: list[str] = []
        self._region = ""
        self.feed(self.source)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute twice in {tag}"
        self.tags.append((tag, found))
        if tag not in VOID:
            self._open.append(tag)
        if found.get("role") == "region":
            self._region = str(found["aria-label"])
        if tag == "tr":
            self.tables.setdefault(self._region, []).append([])
        if tag in ("td", "th"):
            self.tables[self._region][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.words.append(data)
        if "td" in self._open or "tr" in self._open:
            cells = self.tables[self._region][-1]
            if cells:
                cells[-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def row(self, region: str, n: int) -> dict[str, str]:
        """Row n (from 1) of a table by its column's head."""
        clean = [[" ".join(cell.split()) for cell in row] for row in self.tables[region]]
        return dict(zip(clean[0], clean[n], strict=True))


def page_of(folder: Path, runs: Sequence[RecordedRun], **options: Any) -> Page:
    """The report of these runs."""
    write_page(folder / "report.html", runs, **options)
    return Page(folder / "report.html")


def make_run(folder: Path, *, mode: str = "none", algorithm: str = "grpo", updates: int = 3, **config: Any) -> Path:
    """A small run folder, evaluated once at its end."""
    folder.mkdir(parents=True)
    tree = {"algorithm": algorithm, "seed": 0, "max_updates": 3, "environment": {"name": "search"}} | config
    (folder / "config.yaml").write_text(yaml.safe_dump(tree | {"feedback": {"mode": mode}}))
    rows = []
    for n in range(updates):
        row = {"update": n, "episodes": 64 * (n + 1), "episode/success": 0.25 * n, "episode/reward": 0.5 + 0.1 * n}
        times = {"time/rollout_s": 10.0, "time/update_s": 20.0, "time/judge_s": 6.0 if mode != "none" else 0.0}
        if mode != "none":
            judged = {"score": 0.5, "judge_tokens": 1000.0, "critiques": 16.0, "leaked_critiques": 1.0}
            row |= {f"feedback/{k}": v for k, v in judged.items()}
        rows.append(row | times)
    write_rows(folder / "metrics.jsonl", rows)
    hops = {str(h): {"value": v, "low": 0.0, "high": 1.0} for h, v in ((1, 1.0), (2, 0.5), (10, 0.125))}
    success = {"value": 0.745, "low": 0.68, "high": 0.805}
    results = {"update": updates - 1, "episodes": 64 * updates, "tasks": 200}
    write_rows(folder / "eval.jsonl", [results | {"success": success, "success_by_hops": hops}])
    return folder


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def transcript(question: str, outcome: float | None, *, id: str | None = None, text: str = "It was Ada.") -> Trajectory:
    """Two steps: a search, an answer."""
    call = ToolCall(name="search", arguments={"query": f"query {text}"})
    messages = [
        Message(role="user", content=f"Who was {question}?"),
        Message(role="assistant", content="I look it up.", reasoning_content=f"thought {text}", tool_calls=[call]),
        Message(role="tool", name="search", content=f"result {text}"),
        Message(role="assistant", content=text),
    ]
    task = f"Who was {question}?"
    return Trajectory(id=id or f"{question}/0", task=task, question_id=question, messages=messages, outcome=outcome)


def judged(t: Trajectory, score: float | None = 0.25, **row: Any) -> dict[str, Any]:
    """A row as `rrm score` writes it."""
    findings = [{"step": 1, "verdict": "bad", "text": f"asks too little of {t.question_id}"}]
    results = {"id": t.id, "status": "scored", "score": score, "raw_score": score, "findings": findings, "judge": JUDGE}
    return results | {"source": {"digest": t.digest}} | row


def files(folder: Path, name: str, outcomes: dict[str, float | None], **options: Any) -> tuple[str, Path, Path]:
    """A policy's transcripts and feedback, one attempt a question."""
    results = [transcript(question, outcome, text=f"{name} says", **options) for question, outcome in outcomes.items()]
    write_jsonl(folder / f"{name}.jsonl", results)
    return name, folder / f"{name}.jsonl", write_rows(folder / f"{name}.scored.jsonl", [judged(t) for t in results])
