"""What the report's tests share: judged transcripts, hostile ones, a page's parts, and a browser that opens it."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from benchmarks.speed.devtools import Chromium
from rrm.data.trajectory import Message, ToolCall, Trajectory
from rrm.report import write_report

JUDGE = {"model": "judge", "prompt_version": "1", "mode": "full", "score_source": "expected"}
HOSTILE = [
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "<svg onload=\"document.title='pwned'\">",
    "<!--<script>",
    "]]>--></title></style><iframe srcdoc=\"<script>parent.document.title='pwned'</script>\">",
    "{{ 7*7 }}{% raw %}${document.title='pwned'}`",
    "javascript:document.title='pwned'",
    "&lt;img src=x onerror=alert(1)&gt; \u2028\u2029 \x00 \ud800 \udfff \u202eevil",
]


def pair(
    n: int, *, text: str = "I look it up.", task: str = "Who was it?", **row: Any
) -> tuple[Trajectory, dict[str, Any]]:
    """A two-step transcript with a tool call, and its row."""
    call = ToolCall(name="search", arguments={"query": text})
    messages = [
        Message(role="user", content=task),
        Message(role="assistant", content=text, reasoning_content="First look.", tool_calls=[call]),
        Message(role="tool", name="search", content=f"Result {n}: {text}"),
        Message(role="assistant", content="It was Ada."),
    ]
    trajectory = Trajectory(id=f"run/{n}", task=task, messages=messages)
    finding = {"step": 1, "verdict": "bad", "text": "Asks too little."}
    scored = {"id": trajectory.id, "status": "scored", "score": 0.25, "raw_score": 0.375, "findings": [finding]}
    return trajectory, {**scored, "critique": "[step 1] bad: Asks too little.", "judge": JUDGE, **row}


def parallel() -> tuple[Trajectory, dict[str, Any]]:
    """Three calls at once, of which the last was answered first and the middle one never."""
    calls = [ToolCall(id=f"c{city[0]}", name="weather", arguments={"city": city}) for city in ("Oslo", "Lima", "Rome")]
    messages = [
        Message(role="user", content="Where is it warm?"),
        Message(role="assistant", content="I look at all three.", tool_calls=calls),
        Message(role="tool", tool_call_id="cR", content="25 degrees in the third"),
        Message(role="user", content="Be quick."),
        Message(role="tool", tool_call_id="cO", content="3 degrees in the first"),
        Message(role="assistant", content="In Rome."),
    ]
    row = {"id": "parallel", "status": "scored", "score": 0.75, "raw_score": 0.75, "judge": JUDGE}
    return Trajectory(id="parallel", task="Where is it warm?", messages=messages), row


class Page(HTMLParser):
    """Tags with their attributes in order, and the text of every script by its id."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self._script: str | None = None
        self.text = path.read_text("utf-8")
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = dict(attrs).get("id") or "app" if tag == "script" else None

    def handle_endtag(self, tag: str) -> None:
        self._script = None

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    @property
    def index(self) -> dict[str, Any]:
        return json.loads(self.scripts["index"])

    @property
    def details(self) -> list[dict[str, Any]]:
        lines: list[str] = []
        for k in range(len(self.index["blocks"])):
            lines += gzip.decompress(base64.b64decode(self.scripts[f"block-{k}"])).decode("ascii").split("\n")
        return [json.loads(line) for line in lines]


def written(tmp_path: Path, pairs: list[tuple[Trajectory, dict[str, Any]]], **options: Any) -> Page:
    path = tmp_path / "report.html"
    write_report(pairs, path, **options)
    return Page(path)


def hostile_pair(n: int, text: str) -> tuple[Trajectory, dict[str, Any]]:
    """The text in every field a transcript or a judge can write."""
    trajectory, row = pair(n, text=text, task=f"{text} {text}", critique=text, trace=text, reason=text)
    row["findings"] = [{"step": 1, "verdict": "good", "text": text}]
    row["source"] = {"file": text, "line": 1, "format": text}
    row["judge"] = {**JUDGE, "model": text}
    assert trajectory.messages[1].tool_calls
    trajectory.messages[1].tool_calls.append(ToolCall(name=text, arguments={text: [text, float("nan")]}))
    trajectory.messages[1].tool_calls.append(ToolCall(name=text, arguments=text))
    tools = [{"type": "function", "function": {"name": text, "description": text}}]
    renamed = trajectory.model_copy(update={"id": f"{n} {text}", "tools": tools, "question_id": text})
    return renamed, {**row, "id": renamed.id}


def opened(browser: Chromium, path: Path, pairs: list[tuple[Trajectory, dict[str, Any]]], hash: str = "") -> None:
    write_report(pairs, path)
    browser.events.clear()
    browser.open(path.as_uri() + hash)
    browser.wait("window.tally && tally.textContent")


def complaints(browser: Chromium) -> list[dict[str, Any]]:
    """Exceptions, policy violations and requests other than for the page itself."""
    bad = [e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    requests = [e for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    return bad + [e for e in requests if e["params"]["type"] != "Document"]


def shown_ids(browser: Chromium) -> list[str]:
    rows = "[...document.querySelectorAll('.row:not([hidden])')].sort((a, b) => a.ariaPosInSet - b.ariaPosInSet)"
    return browser.evaluate(f"{rows}.map(row => row.querySelector('.id').textContent)")
