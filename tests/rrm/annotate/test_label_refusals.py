"""What the page does with what was not taken, with keys and comments while a transcript is on its way, and without storage."""

from __future__ import annotations

from pathlib import Path

from labelled_runs import at, complaints, opened, run, saved, served

from benchmarks.speed.devtools import Chromium
from rrm.annotate.label import Change
from rrm.annotate.label_journal import open_journal
from rrm.annotate.label_store import PageState
from rrm.data.annotation import read_annotations

TROUBLE, HINT, TEXT, SAVED = (
    f"document.getElementById('{name}').{what}"
    for name, what in (
        ("trouble", "textContent"),
        ("hint", "textContent"),
        ("comment-text", "value"),
        ("saved", "textContent"),
    )
)
BLOCKED = """for (const name of ["localStorage", "sessionStorage"])
  Object.defineProperty(window, name, { get() { throw new DOMException("blocked", "SecurityError"); } });"""


def commented(browser: Chromium, text: str) -> None:
    """A comment on the step, by the keyboard: text is inserted past the queue of keys, so each waits for what was before it."""
    dialog = "document.getElementById('comment').open"
    browser.press("c")
    browser.wait(f"{dialog} && {TEXT} === ''")
    browser.send("Input.insertText", text=text)
    browser.wait(f"{TEXT} === '{text}'")
    browser.press("Enter")
    browser.wait(f"!{dialog}")


def test_every_comment_that_was_refused_is_offered_again_and_enter_goes_on(browser: Chromium, tmp_path: Path) -> None:
    labels, t = tmp_path / "labels.jsonl", run(1)
    with served([t, run(2)], labels) as server:
        opened(browser, server.address)
    commented(browser, "First.")
    browser.press("n")
    browser.wait("document.querySelector('#step-2[aria-current]') !== null")
    commented(browser, "Second.")
    browser.wait(f"{TROUBLE}.includes('2 actions not saved yet')")
    with open_journal(labels, "ann") as journal:  # what another tab said meanwhile
        journal.change(
            "other-tab-1", t.digest, t.id, 3, Change(field="outcome", value="bad"), PageState("another-tab", 0)
        )
    with served([t, run(2)], labels) as server:
        for text in ("First.", "Second."):
            browser.wait(f"document.getElementById('comment').open && {TEXT} === '{text}'")
            if text == "First.":
                saved(browser)
                assert browser.evaluate(TROUBLE).count("Not taken: another tab") == 2
            browser.press("Enter")
        saved(browser)
        browser.wait(f"!document.getElementById('comment').open && {SAVED} === 'Saved'")
        assert [one.comment for one in server.labelling.journal.said(t.digest).steps.values()] == ["First.", "Second."]
        with server.labelling._lock:
            journal = server.labelling.journal
            journal.change(
                "other-tab-2", t.digest, t.id, 3, Change(field="comment", value="No."), PageState("other-tab", 9)
            )
        browser.press("1")
        browser.wait(f"{TROUBLE}.includes('Not taken')")
        saved(browser)
        browser.press("Enter")  # done by what the other tab said
        at(browser, 2)
        assert browser.evaluate(TROUBLE) == ""


def test_undo_in_a_tab_shows_first_what_another_tab_said(browser: Chromium, tmp_path: Path) -> None:
    other, labels = run(2), tmp_path / "labels.jsonl"
    with served([run(1), other], labels) as server:
        opened(browser, server.address)
        browser.press("1")
        saved(browser)
        with server.labelling._lock:
            bad, journal = Change(field="outcome", value="bad"), server.labelling.journal
            journal.change("other-tab-1", other.digest, other.id, 3, bad, PageState("another-tab", 0))
        browser.press("z")
        at(browser, 2)
        browser.wait(f"{TROUBLE}.includes('Not undone') && document.querySelector('#outcome .bad[aria-pressed=true]')")
        saved(browser)
        assert [one.score for one in read_annotations(labels)] == [1.0, 0.0]
        for place in (2, 1):
            browser.press("z")
            at(browser, place)
            browser.wait("!document.querySelector('#outcome [aria-pressed=true]')")
        saved(browser)
    assert read_annotations(labels) == []


def test_nothing_is_said_of_the_wrong_transcript_while_another_is_on_its_way(browser: Chromium, tmp_path: Path) -> None:
    runs, labels = [run(1), run(2)], tmp_path / "labels.jsonl"
    with served(runs, labels) as server:
        opened(browser, server.address)
        with server.labelling._lock:  # it does not answer
            browser.press("j")
            browser.press("1")
            assert "is on its way" in browser.evaluate(HINT)
        at(browser, 2)
        browser.press("k")
        at(browser, 1)
        browser.press("1")
        browser.press("j")
        at(browser, 2)
        saved(browser)
        with server.labelling._lock:
            browser.press("z")  # goes back to the first
            browser.press("c")
            browser.send("Input.insertText", text="Of the second.")
        at(browser, 1)
        browser.press("Enter")
        saved(browser)
        assert not complaints(browser, server.address)
        said = [server.labelling.journal.said(t.digest) for t in runs]
    assert said[0].outcome is None and not said[0].steps and said[1].steps[1].comment == "Of the second."


def test_a_browser_that_keeps_nothing_labels_all_the_same(browser: Chromium, tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"
    script = browser.send("Page.addScriptToEvaluateOnNewDocument", source=BLOCKED)["identifier"]
    try:
        with served([run(1), run(2)], labels) as server:
            opened(browser, server.address)
            browser.press("b")
            commented(browser, "Asks again.")
            browser.press("2")
            assert "keeps nothing" in browser.evaluate(HINT)
            browser.wait(f"{SAVED} === 'Saved'")
            browser.press("Enter")
            at(browser, 2)
            assert not complaints(browser, server.address)
    finally:
        browser.send("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    (found,) = read_annotations(labels)
    assert found.score == 0.0 and [f.text for f in found.findings or ()] == ["Asks again."]
