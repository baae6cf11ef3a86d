"""The report page: what it holds, that hostile transcripts stay text in it, and that a browser can work it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.speed.devtools import Chromium, find_chromium
from rrm.cli import report_cmd
from rrm.errors import RRMError
from rrm.report import write_report
from rrm.report.page import BLOCK_CHARS, embed_json
from rrm.report.rows import question
from rrm.trajectory import Message, ToolCall, Trajectory, write_jsonl

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


def test_every_row_is_in_the_page_with_its_score_steps_and_findings(tmp_path: Path) -> None:
    page = written(tmp_path, [pair(n, score=n / 10, raw_score=0.5) for n in range(7)], title="Seven & more")
    assert page.index["id"] == [f"run/{n}" for n in range(7)]
    assert page.index["score"] == [n / 10 for n in range(7)]
    assert page.index["steps"] == [2] * 7
    assert page.index["bad"] == [1] * 7 and page.index["good"] == [0] * 7
    length = len("Who was it?" + "I look it up." + "First look." + '{"query": "I look it up."}')
    assert page.index["chars"][0] == length + len("Result 0: I look it up." + "It was Ada.")
    first = page.details[0]
    assert [len(step.get("observations", [])) for step in first["steps"]] == [1, 0]
    assert first["steps"][0]["message"]["calls"] == [["search", [["query", "I look it up."]]]]
    assert first["findings"] == [[1, "bad", "Asks too little."]]
    probable = written(tmp_path, [pair(0, findings=[{"step": 1, "verdict": "good", "p_good": 0.75, "text": ""}])])
    assert probable.details[0]["findings"] == [[1, "good", "", 0.75]]
    assert "<h1>Seven &amp; more</h1>" in page.text


def test_the_share_that_was_read_is_in_the_list_where_rows_say_it(tmp_path: Path) -> None:
    page = written(tmp_path, [pair(0, coverage=1.0), pair(1, coverage=0.01234), pair(2)])
    assert page.index["coverage"] == [1.0, 0.012, None]


def test_a_transcript_outside_what_the_judge_was_measured_on_is_marked(tmp_path: Path) -> None:
    page = written(tmp_path, [pair(0, outside=True, outside_distance=2.5), pair(1, outside=False), pair(2)])
    assert page.index["outside"] == [True, False, None]
    assert [d.get("distance") for d in page.details] == [2.5, None, None]


def test_large_input_is_split_into_blocks_in_order(tmp_path: Path) -> None:
    page = written(tmp_path, [pair(n, text=f"{n} " + "x" * (BLOCK_CHARS // 8)) for n in range(20)])
    sizes = page.index["blocks"]
    assert len(sizes) > 3 and sum(sizes) == 20
    assert [d["steps"][0]["message"]["text"].split()[0] for d in page.details] == [str(n) for n in range(20)]


def test_the_same_rows_make_the_same_page(tmp_path: Path) -> None:
    assert written(tmp_path, [pair(1)]).text == written(tmp_path, [pair(1)]).text


def test_page_is_self_contained(tmp_path: Path) -> None:
    page = written(tmp_path, [pair(1, text="see https://example.org/x.png")])
    loading = {"src", "srcset", "data", "poster", "action", "formaction", "background", "style"}
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base", "audio", "video")
        assert not loading & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert style and "url(" not in style[1] and "@import" not in style[1]
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert policy and policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy


def test_the_policy_names_the_hash_of_the_script_and_the_style(tmp_path: Path) -> None:
    page = written(tmp_path, [pair(1)])
    style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert style
    for text in (page.scripts["app"], style[1]):
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in page.text


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


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_makes_no_tag_and_survives_unchanged(tmp_path: Path, text: str) -> None:
    plain = written(tmp_path, [hostile_pair(0, "plain")], title="plain")
    page = written(tmp_path, [hostile_pair(0, text)], title=text)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.index["id"] == [f"0 {text}"]
    assert page.details[0]["steps"][0]["message"]["text"] == text
    assert page.details[0]["findings"] == [[1, "good", text]]


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=3))
@settings(max_examples=60, deadline=None)
def test_embedded_json_has_no_character_html_reacts_to(value: list[str]) -> None:
    text = embed_json(value)
    assert text.isascii() and not set("<>&") & set(text)
    assert json.loads(text) == value


def test_unscored_rows_keep_their_reason_and_no_number(tmp_path: Path) -> None:
    statuses = ["unparsable", "truncated", "too_long", "judge_error"]
    rows = [pair(n, status=status, score=0.9, raw_score=0.9, reason=f"why {n}") for n, status in enumerate(statuses)]
    page = written(tmp_path, rows)
    assert page.index["status"] == statuses
    assert page.index["score"] == page.index["raw"] == [None] * 4
    assert page.index["note"] == [f"why {n}" for n in range(4)]
    assert [d["reason"] for d in page.details] == [f"why {n}" for n in range(4)]


def test_a_pipe_and_a_link_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe, link, real = tmp_path / "pipe", tmp_path / "link", tmp_path / "real.html"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text("utf-8")), daemon=True)
    reader.start()
    write_report([], pipe)
    assert pipe.is_fifo(), "a file renamed over /dev/full or /dev/stdout takes the device's place"
    reader.join(20)
    (page,) = heard
    real.write_text("old " * 1_000_000)
    link.symlink_to(real)
    write_report([], link)
    assert link.is_symlink() and real.read_text("utf-8") == page and page.startswith("<!doctype html>")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "pipe", "real.html"]


def test_no_rows_make_an_empty_page(tmp_path: Path) -> None:
    page = written(tmp_path, [])
    assert page.index["id"] == [] and page.index["blocks"] == []


def test_a_row_that_is_not_a_judgement_is_named_and_no_page_is_left(tmp_path: Path) -> None:
    with pytest.raises(RRMError, match=r"'run/1'.*judge.mode"):
        written(tmp_path, [pair(0), pair(1, judge={"model": "m", "prompt_version": "1"})])
    with pytest.raises(RRMError, match="score"):
        written(tmp_path, [pair(0, score=float("nan"))])
    assert not list(tmp_path.iterdir())


def test_the_question_is_the_first_user_message_where_the_task_is_a_label() -> None:
    trajectory, _ = pair(0)
    assert question(trajectory.model_copy(update={"task": "hotpotqa"})) == "Who was it?"
    assert question(trajectory.model_copy(update={"task": "Another question?"})) == "Another question?"
    assert question(Trajectory(id="x", task="label", messages=[])) == "label"


# The command


def test_report_command_matches_by_id_and_tells_what_is_missing(tmp_path: Path, invoke) -> None:
    pairs = [pair(n) for n in range(5)]
    half = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_jsonl(half[0], [t for t, _ in reversed(pairs[:2])])
    write_jsonl(half[1], [t for t, _ in pairs[2:4]])
    scored = tmp_path / "scored.jsonl"
    scored.write_text("".join(json.dumps(row) + "\n" for _, row in pairs[1:]))
    out = tmp_path / "report.html"
    code, summary = invoke(report_cmd.command, str(scored), "--transcripts", str(half[0]), str(half[1]), "-o", str(out))
    assert code == 1
    assert summary == {"report": str(out), "rows": 4, "without_transcript": 1, "transcripts_without_row": 1}
    page = Page(out)
    assert page.index["id"] == ["run/1", "run/2", "run/3", "run/4"]
    assert page.index["steps"] == [2, 2, 2, 0]


def test_report_command_reads_the_files_the_rows_name(tmp_path: Path, invoke) -> None:
    file, scored, out = tmp_path / "runs.jsonl", tmp_path / "scored.jsonl", tmp_path / "report.html"
    trajectory, row = pair(0)
    write_jsonl(file, [trajectory])
    scored.write_text(json.dumps({**row, "source": {"file": str(file), "line": 1}}))
    assert invoke(report_cmd.command, str(scored), "-o", str(out))[0] == 0
    scored.write_text(json.dumps({**row, "source": {"file": str(tmp_path / "gone.jsonl")}}))
    with pytest.raises(RRMError, match=r"gone\.jsonl.*--transcripts"):
        invoke(report_cmd.command, str(scored), "-o", str(out))
    scored.write_text("{broken")
    with pytest.raises(RRMError, match=r"scored\.jsonl:1: not JSON"):
        invoke(report_cmd.command, str(scored), "-o", str(out))


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if find_chromium() is None:
        pytest.skip("no chromium on this machine")
    with Chromium() as page:
        yield page


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


def test_nothing_in_a_transcript_executes(browser: Chromium, tmp_path: Path) -> None:
    pairs = [hostile_pair(n, text) for n, text in enumerate(HOSTILE)]
    opened(browser, tmp_path / "report.html", pairs)
    assert len(shown_ids(browser)) == len(HOSTILE)
    for n in range(len(HOSTILE)):
        browser.press("j" if n else "Enter")
        browser.wait(f"document.querySelector('.place .num')?.textContent === '{n + 1} of {len(HOSTILE)}'")
        browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        assert browser.evaluate("document.title") != "pwned"
        assert browser.evaluate("document.querySelectorAll('img, iframe, #main script, #main [onload], a').length") == 0
    said = browser.evaluate("document.querySelector('.step .message.assistant > .text').textContent")
    assert "onerror=alert(1)" in said
    assert not complaints(browser)


def test_list_sorts_filters_and_opens_from_the_keyboard(browser: Chromium, tmp_path: Path) -> None:
    pairs = [pair(n, score=n / 100, text="needle in here" if n == 7 else "hay") for n in range(100)]
    pairs.append(pair(100, status="judge_error", score=None, raw_score=None, findings=[], reason="HTTP 500"))
    opened(browser, tmp_path / "report.html", pairs)
    assert shown_ids(browser)[:2] == ["run/99", "run/98"]
    assert browser.evaluate("document.querySelectorAll('.row').length") < 60  # only what is in view exists
    browser.evaluate("document.querySelector('[data-sort=score]').click()")
    assert shown_ids(browser)[:2] == ["run/0", "run/1"]
    browser.press("j")
    browser.press("Enter")
    browser.wait("location.hash === '#run%2F1'")
    browser.wait("document.querySelector('.finding.bad strong')?.textContent === 'Bad'")
    browser.press("Escape")
    browser.wait("document.getElementById('main').hidden")

    browser.press("/")
    browser.send("Input.insertText", text="needle")
    browser.wait("tally.textContent === '1 of 101 transcripts'")
    assert shown_ids(browser) == ["run/7"]
    browser.evaluate("document.getElementById('clear').click()")

    browser.evaluate("document.querySelectorAll('.bin')[4].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert shown_ids(browser) == [f"run/{n}" for n in range(20, 25)]
    browser.evaluate("document.getElementById('clear').click()")
    browser.evaluate("document.querySelector('[data-status=judge_error]').click()")
    assert shown_ids(browser) == ["run/100 · HTTP 500"]
    assert not complaints(browser)


def test_an_address_opens_a_transcript_and_a_phone_shows_one_screen(browser: Chromium, tmp_path: Path) -> None:
    browser.resize(390, 844)
    opened(browser, tmp_path / "report.html", [pair(n) for n in range(3)], "#run%2F2/2")
    browser.wait("document.activeElement?.id === 'step-2'")
    assert browser.evaluate("getComputedStyle(document.getElementById('side')).display") == "none"
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    browser.evaluate("document.querySelector('.back').click()")
    browser.wait("document.getElementById('main').hidden")
    assert browser.evaluate("document.documentElement.scrollWidth") == 390
    assert len(shown_ids(browser)) == 3
    browser.resize(1280, 800)


def test_a_row_says_its_threshold_and_that_its_score_is_blended(browser: Chromium, tmp_path: Path) -> None:
    """A step of 0.41 that is called good, and a score that is not the judge's alone, need a word."""
    findings = [{"step": 1, "verdict": "good", "p_good": 0.41}, {"step": 2, "verdict": "bad", "p_good": 0.12}]
    judge = {**JUDGE, "mode": "steps", "calibrated": True, "threshold": 0.275}
    own = {"unblended_score": 0.31, "unblended_raw_score": 0.508}
    pairs = [pair(0, findings=findings, judge=judge | own), pair(1, findings=findings, judge=judge), pair(2)]
    opened(browser, tmp_path / "report.html", pairs, "#run%2F0")
    browser.wait("document.querySelector('.strip')")
    said = lambda what: browser.evaluate(f"document.querySelector('{what}').textContent")  # noqa: E731
    assert "from 0.28 on it is called good" in said(".strip")
    assert "blended with a lexical model, the judge alone says 0.31" in said(".headline")
    details = said("details.judge")
    assert all(part in details for part in ("Calibratedyes", "Score before blending0.310", "Step is good from0.275"))
    browser.press("j")
    browser.wait("document.querySelector('.place .num')?.textContent === '2 of 3'")
    assert "blend" not in said("article") and "from 0.28 on" in said(".strip")
    browser.press("j")
    browser.wait("document.querySelector('.place .num')?.textContent === '3 of 3'")
    assert "Step is good from" not in said("details.judge")
    assert not complaints(browser)


def test_an_empty_report_says_so(browser: Chromium, tmp_path: Path) -> None:
    opened(browser, tmp_path / "report.html", [])
    assert "nothing was judged" in browser.evaluate("document.getElementById('empty').textContent")
    assert not complaints(browser)
