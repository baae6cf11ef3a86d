"""Several tabs of one rater: what one has not seen it does not contradict, and what could not be sent is sent by whoever comes next."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from labelled_runs import WAITING, ask, at, complaints, opened, run, saved, served

from benchmarks.speed.devtools import Chromium
from rrm.annotate import label_journal
from rrm.annotate.label_server import LabelServer
from rrm.data.annotation import read_annotations

TROUBLE = "document.getElementById('trouble').textContent"
DIGEST = run(1).digest


class Tab:
    """A tab of the page without a browser: it acts on what it was last told."""

    def __init__(self, server: LabelServer, name: str) -> None:
        self.server, self.name, self.acted = server, f"tab-{name}-of-the-page", 0
        self.look()

    def look(self) -> dict[str, Any]:
        """Load the first transcript."""
        item = json.loads(ask(self.server, "GET", f"/{self.server.token}/item/1")[2])
        self.seen, self.last = item["version"], item["last"]
        return item["said"]

    def act(self, learn: bool = True, **what: Any) -> int:
        """Send an action; the answer's status. `learn`: take note of the answer."""
        self.acted += 1
        body = {"action": f"{self.name}-{self.acted}", "page": self.name, "seen": self.seen, **what}
        status, _, answer = ask(self.server, "POST", f"/{self.server.token}/act", body)
        if learn and status == 200:
            self.seen = json.loads(answer)["version"]
        return status

    def outcome(self, value: str, **how: Any) -> int:
        return self.act(digest=DIGEST, change={"field": "outcome", "value": value}, **how)


def test_a_tab_does_not_contradict_what_it_has_not_seen(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1), run(2)], labels) as server:
        first, second = Tab(server, "one"), Tab(server, "two")
        assert first.outcome("good") == 200
        assert second.outcome("bad") == 409 and second.look()["outcome"] == "good"
        assert second.outcome("bad") == 200  # it has seen now what it contradicts
        assert first.outcome("good") == 409 and first.act(undo=True) == 409
        other = {"digest": run(2).digest, "change": {"field": "outcome", "value": "good"}}
        assert first.act(**other) == 200  # of another transcript
        assert second.act(digest=DIGEST, change={"field": "comment", "value": "No."}, learn=False) == 200
        assert second.outcome("bad", learn=False) == 200  # its own changes are no news to it
    with served([run(1), run(2)], labels) as server:  # and all that over a restart
        first.server = second.server = server
        assert first.outcome("good") == 409 and second.outcome("unsure") == 200
        assert first.look() == {"outcome": "unsure", "comment": "No.", "steps": {}}
        again = {"action": f"{second.name}-{second.acted}", "page": second.name, "seen": 0, "digest": DIGEST}
        again["change"] = {"field": "outcome", "value": "unsure"}
        assert first.act(undo=True, undoes=first.last["number"]) == 200
        assert ask(server, "POST", f"/{server.token}/act", again)[0] == 200  # sent twice: taken before, not stale


def test_an_undo_takes_back_what_its_tab_means_or_nothing(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1), run(2)], labels) as server:
        first, second = Tab(server, "one"), Tab(server, "two")
        assert first.outcome("good") == 200 and first.outcome("bad") == 200
        first.look()
        second.look()
        assert first.last == second.last == {"number": 2, "page": first.name, "n": 1}
        assert second.act(undo=True) == 409  # not its own, and it does not say which
        assert second.act(undo=True, undoes=2) == 200
        assert first.act(undo=True, undoes=2) == 409 and first.look()["outcome"] == "good"  # that is undone
        other = {"digest": run(2).digest, "change": {"field": "outcome", "value": "bad"}}
        assert second.act(**other) == 200
        assert first.act(undo=True, undoes=1) == 409 and first.act(undo=True, undoes=0) == 409
    said = Path(f"{labels}.journal").read_bytes()
    with served([run(1)], labels) as server:  # the last change is to a transcript that is not shown any more
        first.server = server
        first.look()
        assert first.last is not None and first.last["n"] is None
        assert first.act(undo=True, undoes=first.last["number"]) == 410
    assert Path(f"{labels}.journal").read_bytes() == said and len(read_annotations(labels)) == 2
    with served([run(1), run(2)], labels) as server:
        sent = [{"undo": True, "undoes": 1}, {"undo": True, "undoes": first.last["number"]}]
        body = [{"action": f"left-behind-{n}", "page": "another-page", **act} for n, act in enumerate(sent)]
        assert ask(server, "POST", f"/{server.token}/acts", body)[0] == 200
    assert Path(f"{labels}.journal").read_bytes() == said  # nothing behind the one that was refused


def test_what_nobody_can_mean_is_refused_with_a_reason(tmp_path: Path) -> None:
    with served([run(1)], tmp_path / "labels.jsonl") as server:
        tab = Tab(server, "one")
        assert tab.act(digest=DIGEST, change={"field": "verdict", "step": 1, "value": "good"}) == 200
        wrong = {"digest": DIGEST, "change": {"field": "category", "step": 1, "value": "gave_up_early"}}
        status, _, answer = ask(server, "POST", f"/{server.token}/act", {"action": "action-1", **wrong})
        assert status == 400 and "step 1 is good, so nothing was wrong" in json.loads(answer)["error"]
        assert tab.act(digest=DIGEST, change={"field": "step_comment", "step": 2, "value": "Hm."}) == 200
        assert server.labelling.summary()["comments_without_verdict"] == 1
        assert tab.look()["steps"]["1"] == {"verdict": "good", "category": None, "comment": ""}


def test_a_page_that_closes_waits_for_the_action_under_way_and_takes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, begun, may_end = tmp_path / "labels.jsonl", threading.Event(), threading.Event()
    file_when_whole = label_journal.file_when_whole

    @contextmanager
    def slow(path: Path, **how: Any) -> Iterator[Any]:
        with file_when_whole(path, **how) as file:
            if threading.current_thread() is not threading.main_thread():
                begun.set()
                may_end.wait(10)
            yield file

    def act(tab: Tab, value: str) -> None:
        with suppress(ConnectionError, http.client.HTTPException):  # the page hangs up
            tab.outcome(value)

    with served([run(1)], labels) as server:
        tabs = [Tab(server, "one"), Tab(server, "two")]
        monkeypatch.setattr(label_journal, "file_when_whole", slow)
        threads = [threading.Thread(target=act, args=sent) for sent in zip(tabs, ("good", "bad"), strict=True)]
        threads[0].start()
        assert begun.wait(10)
        threads[1].start()  # waits behind the first
        threading.Timer(0.3, may_end.set).start()
    for thread in threads:
        thread.join()
    assert [found.score for found in read_annotations(labels)] == [1.0]
    with served([run(1)], labels) as server:
        assert Tab(server, "one").look()["outcome"] == "good"


def test_a_stale_tab_says_so_and_shows_how_things_stand(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1), run(2)], labels) as server:
        opened(browser, server.address)
        other = Tab(server, "two")
        assert other.outcome("bad") == 200
        browser.press("1")
        browser.wait(f"{TROUBLE}.includes('another tab of this page has changed this transcript since')")
        browser.wait("document.querySelector('#outcome .bad[aria-pressed=true]')")
        saved(browser)
        assert read_annotations(labels)[0].score == 0.0
        assert other.look() and other.act(digest=DIGEST, change={"field": "verdict", "step": 1, "value": "bad"}) == 200
        browser.press("c")
        browser.send("Input.insertText", text="Worth keeping")
        browser.press("Enter")
        browser.wait("document.querySelector('#step-1.bad') && document.getElementById('comment').open")
        assert browser.evaluate("document.getElementById('comment-text').value") == "Worth keeping"
        browser.press("Enter")
        browser.wait("document.querySelector('#said-1 .note')?.textContent === 'Worth keeping'")
        browser.press("1")
        saved(browser)
        assert browser.evaluate(TROUBLE) == ""
        refusals = [e for e in complaints(browser, server.address) if "409" not in json.dumps(e)]
        assert not refusals
    (found,) = read_annotations(labels)
    assert found.score == 1.0 and [f.text for f in found.findings or ()] == ["Worth keeping"]


def test_an_open_tab_goes_on_by_itself_and_a_closed_one_left_its_work(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1), run(2)], labels) as server:
        opened(browser, server.address)
        browser.press("1")
        saved(browser)
    browser.press("2")
    browser.press("g")
    browser.wait(f"{TROUBLE}.includes('2 actions not saved yet')")
    assert browser.evaluate(WAITING) == 2
    with served([run(1), run(2)], labels) as server:
        saved(browser)
        browser.wait("document.getElementById('trouble').hidden")
    (found,) = read_annotations(labels)
    assert found.score == 0.0 and [(f.step, f.verdict) for f in found.findings or ()] == [(1, "good")]
    browser.press("b")
    browser.press("3")
    browser.wait(f"{TROUBLE}.includes('2 actions not saved yet')")
    browser.open("about:blank#closed")
    with served([run(1), run(2)], labels) as server:
        opened(browser, server.address)
        saved(browser)
        at(browser, 2)  # the first is done
        browser.press("k")
        at(browser, 1)
        browser.wait(
            "document.querySelector('#step-1.bad') && document.querySelector('#outcome .unsure[aria-pressed=true]')"
        )
        browser.press("u")
        saved(browser)
        assert browser.evaluate(TROUBLE) == ""
        browser.press("2")
    browser.open("about:blank#closed")
    with served([run(2)], labels) as server:  # the same file, other transcripts
        opened(browser, server.address)
        browser.wait(f"{WAITING} === 0 || {TROUBLE}.includes('stays in this browser')")
    (found,) = read_annotations(labels)
    assert [(f.step, f.verdict) for f in found.findings or ()] == [(1, "unclear")]
