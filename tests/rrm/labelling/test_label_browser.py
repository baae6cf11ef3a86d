"""The labelling page in a browser, by the keyboard alone."""

from __future__ import annotations

from pathlib import Path

from labelled_runs import at, complaints, opened, reloaded, run, saved, served

from benchmarks.speed.devtools import Chromium
from rrm.annotation import read_annotations

OUTCOMES = {"1": 1.0, "2": 0.0, "3": None}


def test_a_hundred_runs_are_labelled_and_a_reload_loses_nothing(browser: Chromium, tmp_path: Path) -> None:
    runs = [run(n) for n in range(1, 101)]
    labels = tmp_path / "labels.jsonl"
    keys = [("1", "2", "3")[n % 3] for n in range(100)]
    with served(runs, labels) as server:
        opened(browser, server.address)
        for n, key in enumerate(keys, 1):
            at(browser, n)
            browser.press("g")  # step 1
            browser.press("n")
            browser.press("b" if n % 2 else "u")  # step 2
            if n % 10 == 0:
                browser.press("f")
                browser.press("3")
            browser.press(key)
            if n in (25, 50):  # in the middle of a transcript, while actions may still be on their way
                reloaded(browser)
                at(browser, n)
            if n < 100:
                browser.press("Enter")
        saved(browser)
        browser.wait("document.getElementById('done').textContent === '100 of 100 done'")
        assert not complaints(browser, server.address)
    found = read_annotations(labels)
    assert [a.trajectory_id for a in found] == [t.id for t in runs]
    assert [a.score for a in found] == [OUTCOMES[key] for key in keys]
    for n, label in enumerate(found, 1):
        second = "bad" if n % 2 else "unclear"
        assert [(f.step, f.verdict) for f in label.findings or ()] == [(1, "good"), (2, second)]
        assert [f.text for f in label.findings or ()] == ["", "malformed call" if n % 10 == 0 else ""]
        assert (label.annotator, label.kind, label.digest) == ("ann", "human", runs[n - 1].digest)


HOSTILE = [
    "</script><script>document.title='pwned'</script>",
    "<img src=x onerror=\"document.title='pwned'\">",
    "<!--<script> ]]> {{ 7*7 }} ${document.title='pwned'} \u2028 \x00 \ud800 \u202eevil",
]


def test_nothing_in_a_transcript_or_a_comment_executes(browser: Chromium, tmp_path: Path) -> None:
    runs = [run(n, text=text).model_copy(update={"task": text, "id": text}) for n, text in enumerate(HOSTILE)]
    with served(runs, tmp_path / "labels.jsonl") as server:
        opened(browser, server.address)
        for n in range(1, len(runs) + 1):
            at(browser, n)
            browser.press("c")
            browser.send("Input.insertText", text=HOSTILE[1])
            browser.press("Enter")
            browser.wait("document.querySelector('#said-1 .note')")
            browser.press("1")
            assert browser.evaluate("document.querySelectorAll('img, iframe, main script, main a').length") == 0
            assert browser.evaluate("document.title") == "Label transcripts"
            browser.press("j")
        saved(browser)
        assert not complaints(browser, server.address)
    found = read_annotations(tmp_path / "labels.jsonl")
    assert [a.trajectory_id for a in found] == HOSTILE
    assert "onerror" in (found[0].findings or [])[0].text


def test_a_comment_half_written_comes_back_and_what_was_said_is_undone(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1), run(2)], labels) as server:
        opened(browser, server.address)
        browser.press("n")
        browser.press("c")
        browser.send("Input.insertText", text="Asks the")
        reloaded(browser)
        browser.wait(
            "document.getElementById('comment').open && document.getElementById('comment-text').value === 'Asks the'"
        )
        assert browser.evaluate("document.getElementById('comment-title').textContent") == "Comment on step 2"
        browser.send("Input.insertText", text=" same again")
        browser.press("Enter")
        browser.wait("document.querySelector('#said-2 .note')?.textContent === 'Asks the same again'")
        browser.press("2")
        browser.press("j")
        at(browser, 2)
        browser.press("1")
        browser.press("G")
        saved(browser)
        browser.wait("document.querySelectorAll('.step.good').length === 3")
        for waits in (
            "document.querySelectorAll('.step.good').length === 0",
            "!document.querySelector('#outcome [aria-pressed=true]')",
        ):
            browser.press("z")
            browser.wait(waits)
        browser.press("z")  # of the other transcript, which it goes back to
        at(browser, 1)
        browser.wait("!document.querySelector('#outcome [aria-pressed=true]')")
        saved(browser)
        assert [(a.trajectory_id, a.score) for a in read_annotations(labels)] == [("run/1", None)]
        browser.press("z")
        saved(browser)
        browser.press("z")
        browser.wait(
            "document.getElementById('saved').textContent === 'Nothing to undo' || document.getElementById('saved').textContent === 'Saved'"
        )
        saved(browser)
        assert read_annotations(labels) == [] and not complaints(browser, server.address)


def test_two_tabs_and_a_server_that_was_away_lose_nothing(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    with served([run(1), run(2)], labels) as server:
        opened(browser, server.address)
        frame = f"fetch({server.address + 'act'!r}, {{method: 'POST', headers: {{'Content-Type': 'application/json'}}, body: JSON.stringify({{action: 'other-tab', digest: {run(1).digest!r}, change: {{field: 'verdict', step: 1, value: 'bad'}}}})}}).then((r) => r.status)"
        assert browser.evaluate(frame) == 200  # as another tab of the page says it
        browser.press("1")
        saved(browser)
        browser.wait(
            "document.querySelector('#step-1.bad') && document.querySelector('#outcome .good[aria-pressed=true]')"
        )
        port = server.server_port
    with served([run(1), run(2)], labels, port=port) as server:  # the same place, another token
        browser.press("2")
        browser.wait("!document.getElementById('trouble').hidden")
        assert browser.evaluate("JSON.parse(sessionStorage.getItem('rrm-label-actions')).length") == 1
        opened(browser, server.address)
        saved(browser)
        at(browser, 2)  # the first is done
        browser.press("k")
        at(browser, 1)
        browser.wait("document.querySelector('#outcome .bad[aria-pressed=true]')")
    (found,) = read_annotations(labels)
    assert found.score == 0.0 and [(f.step, f.verdict) for f in found.findings or ()] == [(1, "bad")]
