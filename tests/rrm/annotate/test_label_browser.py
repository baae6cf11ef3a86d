"""The labelling page in a browser: by the keyboard alone, by touch alone, and by both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from labelled_runs import at, complaints, opened, reloaded, run, saved, served

from benchmarks.speed.devtools import Chromium
from rrm.data.annotation import read_annotations
from rrm.data.trajectory import Message, Trajectory

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
        assert [f.text for f in label.findings or ()] == ["", "malformed_call" if n % 10 == 0 else ""]
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
            browser.press("b")
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
        browser.press("u")
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
        for _ in range(2):
            browser.press("z")
            saved(browser)
        browser.press("z")
        browser.wait("document.getElementById('hint').textContent === 'Nothing to undo'")
        saved(browser)
        assert read_annotations(labels) == [] and not complaints(browser, server.address)


def test_enter_stays_where_something_is_left_to_say_and_a_comment_waits_for_a_verdict(
    browser: Chromium, tmp_path: Path
) -> None:
    labels, said = tmp_path / "labels.jsonl", "document.getElementById('hint').textContent"
    with served([run(1), run(2)], labels, ask="both") as server:
        opened(browser, server.address)
        browser.press("Enter")
        assert "No outcome yet" in browser.evaluate(said)
        browser.press("1")
        saved(browser)
        browser.press("c")
        browser.send("Input.insertText", text="Looks it up.")
        browser.press("Enter")
        browser.wait("document.querySelector('#said-1 .unsaid')")
        saved(browser)
        assert [(a.score, a.findings) for a in read_annotations(labels)] == [(1.0, None)]
        browser.press("n")
        browser.press("g")
        browser.press("f")
        assert browser.evaluate(said).startswith("Step 2 is good")
        assert not browser.evaluate("document.getElementById('categories').open")
        saved(browser)
        browser.press("Enter")
        assert browser.evaluate(said) == "No verdict yet on 2 steps; j goes on without"
        browser.wait("document.getElementById('step-1').hasAttribute('aria-current')")
        browser.press("f")
        browser.press("4")
        browser.wait("document.querySelector('#step-1.bad .tag')?.textContent === 'repeat'")
        assert not browser.evaluate("document.querySelector('.unsaid')")
        browser.press("z")  # one action: verdict and category go together
        browser.wait("document.querySelector('#step-1:not(.bad) .unsaid') && !document.querySelector('.tag')")
        browser.press("G")
        saved(browser)
        browser.press("Enter")
        at(browser, 2)
        assert not complaints(browser, server.address)
    (found,) = read_annotations(labels)
    assert [(f.step, f.verdict, f.text) for f in found.findings or ()] == [
        (1, "good", "Looks it up."),
        (2, "good", ""),
        (3, "good", ""),
    ]


def test_long_results_and_pictures_of_the_task_are_shown(browser: Chromium, tmp_path: Path) -> None:
    lines = "\n".join(f"line {n}" for n in range(1, 201))
    long = run(1)
    long.messages[2] = Message(role="tool", name="search", content=lines)
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    asked = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}},
    ]
    picture = Trajectory(
        id="p", task="", messages=[Message(role="user", content=asked), Message(role="assistant", content="A dot.")]
    )
    shown = "document.querySelector('#step-1 .tool .text').innerText"
    with served([long, picture], tmp_path / "labels.jsonl") as server:
        opened(browser, server.address)
        assert "line 12" in browser.evaluate(shown) and "line 13" not in browser.evaluate(shown)
        browser.press("e")
        end = browser.evaluate(shown)
        assert "line 12\n" in end and end.endswith("line 200") and "line 100\n" not in end and "characters …" in end
        browser.press("m")
        assert browser.evaluate(shown) == lines
        browser.press("e")  # which is in view
        assert browser.evaluate(shown) == lines
        assert "No text here" in browser.evaluate("document.getElementById('hint').textContent")
        browser.press("m")
        assert browser.evaluate(shown).strip().endswith("line 12")
        browser.press("n")
        browser.press("m")
        assert "Nothing is cut short in step 2" in browser.evaluate("document.getElementById('hint').textContent")
        browser.press("j")
        at(browser, 2)
        browser.wait("document.querySelector('header > .picture')?.naturalWidth === 1")
        assert not browser.evaluate("document.querySelector('.prelude').open")
        assert not complaints(browser, server.address)


@pytest.fixture
def telephone(browser: Chromium) -> Iterator[Chromium]:
    """The browser as wide as a telephone, with a finger for a pointer."""
    browser.resize(390, 844)
    browser.send("Emulation.setTouchEmulationEnabled", enabled=True)
    yield browser
    browser.send("Emulation.setTouchEmulationEnabled", enabled=False)
    browser.resize(1280, 800)


def tapped(browser: Chromium, id: str) -> None:
    """Touch the middle of an element, which must be what stands there and large enough for a finger."""
    box = f"(document.getElementById('{id}').scrollIntoView({{block: 'center'}}), document.getElementById('{id}').getBoundingClientRect().toJSON())"
    at = browser.evaluate(box)
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    assert at["height"] >= 40 and at["width"] >= 40 and at["x"] >= 0 and at["right"] <= 390, (id, at)
    assert browser.evaluate(f"document.elementFromPoint({x}, {y}).closest('button').id") == id
    browser.send("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    browser.send("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])


def buttons(browser: Chromium) -> list[str]:
    """What a screen reader calls the buttons, in their order."""
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    return [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == "button"]


def test_on_a_telephone_all_is_said_commented_and_undone_without_a_key(telephone: Chromium, tmp_path: Path) -> None:
    browser, labels = telephone, tmp_path / "labels.jsonl"
    shown = "document.getElementById('comment').open"
    with served([run(1), run(2)], labels, ask="both") as server:
        opened(browser, server.address)
        assert {"Comment on step 1", "Comment on step 3", "Comment on the run", "Undo the last change"} <= {
            *buttons(browser)
        }
        assert "What was wrong with step 2" not in buttons(browser)  # nothing was yet
        tapped(browser, "step-2-bad")
        tapped(browser, "wrong-2")
        browser.wait("document.getElementById('categories').open")
        tapped(browser, "categories-leave")
        browser.wait("!document.getElementById('categories').open")
        tapped(browser, "comment-2")
        browser.wait(f"{shown} && document.activeElement.id === 'comment-text'")
        assert browser.evaluate("document.getElementById('comment-title').textContent") == "Comment on step 2"
        browser.send("Input.insertText", text="Asks twice.")
        tapped(browser, "comment-keep")
        browser.wait("document.querySelector('#said-2 .note')?.textContent === 'Asks twice.'")
        tapped(browser, "comment-run")
        browser.wait(f"{shown} && document.getElementById('comment-title').textContent === 'Comment on the run'")
        browser.send("Input.insertText", text="By chance.")
        tapped(browser, "comment-leave")
        browser.wait(f"!{shown}")
        tapped(browser, "comment-run")
        browser.wait(f"{shown} && !document.getElementById('comment-text').value")
        browser.send("Input.insertText", text="By luck.")
        tapped(browser, "comment-keep")
        tapped(browser, "run-good")
        tapped(browser, "run-bad")
        tapped(browser, "undo")
        browser.wait("document.querySelector('#outcome .good[aria-pressed=true]')")
        saved(browser)
        tapped(browser, "forth")
        at(browser, 2)
        assert not complaints(browser, server.address)
    (found,) = read_annotations(labels)
    assert (found.score, found.critique) == (1.0, "By luck.\n[step 2] bad: Asks twice.")
    assert [(f.step, f.verdict, f.text) for f in found.findings or ()] == [(2, "bad", "Asks twice.")]


def test_buttons_leave_the_keys_where_they_were(browser: Chromium, tmp_path: Path) -> None:
    focused = "document.activeElement.id"
    with served([run(1), run(2)], tmp_path / "labels.jsonl") as server:
        opened(browser, server.address)
        browser.press("n")  # step 2 has the focus
        browser.press("g")
        clicked(browser, "comment-3")
        browser.wait("document.getElementById('comment').open")
        clicked(browser, "comment-leave")
        browser.wait("!document.getElementById('comment').open")
        assert browser.evaluate(focused) == "step-2"
        browser.press("u")  # of the step whose comment was opened
        browser.wait("document.querySelector('#step-3.unclear')")
        clicked(browser, "undo")
        browser.wait("!document.querySelector('#step-3.unclear')")
        browser.press(" ")
        saved(browser)
        assert browser.evaluate(focused) == "step-2" and browser.evaluate(
            "Boolean(document.querySelector('#step-2.good'))"
        )
        browser.evaluate("document.getElementById('run-bad').focus()")
        browser.press("Enter")
        browser.wait("document.querySelector('#run-bad[aria-pressed=true]')")
        saved(browser)
        assert browser.evaluate(focused) == "run-bad"  # drawn anew, it is where a keyboard or a screen reader was
        browser.evaluate("document.activeElement.blur()")
        browser.press("Enter")
        at(browser, 2)
        assert not complaints(browser, server.address)


def clicked(browser: Chromium, id: str) -> None:
    """Press what stands where the middle of an element is."""
    box = f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])(document.getElementById('{id}').getBoundingClientRect())"
    x, y = browser.evaluate(box)
    for kind in ("mousePressed", "mouseReleased"):
        browser.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def test_on_a_telephone_one_gets_from_run_to_run_and_the_keys_leave_room(telephone: Chromium, tmp_path: Path) -> None:
    browser = telephone
    wide = "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length"
    sizes = "['back', 'forth'].map((id) => document.getElementById(id).getBoundingClientRect())"
    with served([run(n) for n in range(1, 4)], tmp_path / "labels.jsonl") as server:
        opened(browser, server.address)
        assert browser.evaluate(f"[innerWidth, {wide}]") == [390, 0]
        assert browser.evaluate(f"{sizes}.every(({{width, height}}) => width >= 40 && height >= 40)")
        names = "['back', 'forth'].map((id) => document.getElementById(id).ariaLabel)"
        assert browser.evaluate(names) == ["Previous transcript", "Next transcript"]
        for id, n in (("forth", 2), ("forth", 3), ("back", 2), ("back", 1)):
            clicked(browser, id)
            at(browser, n)
        clicked(browser, "back")
        browser.wait("document.getElementById('hint').textContent === 'This is the first transcript'")
        clicked(browser, "forth")
        at(browser, 2)
        browser.wait("!document.getElementById('hint').textContent")
        clicked(browser, "help-open")
        browser.wait("document.getElementById('help').open")
        keys = "Math.max(...[...document.querySelectorAll('#help dt')].map((e) => e.offsetWidth))"
        assert browser.evaluate(f"{keys} / document.querySelector('#help .keys').offsetWidth") < 0.4
        assert browser.evaluate(wide) == 0
        clicked(browser, "help-close")
        browser.wait("!document.getElementById('help').open")
        assert not complaints(browser, server.address)


def test_on_a_telephone_one_gets_to_the_next_run_that_is_not_done(telephone: Chromium, tmp_path: Path) -> None:
    browser, labels = telephone, tmp_path / "labels.jsonl"
    said = "document.getElementById('hint').textContent"
    with served([run(n) for n in range(1, 5)], labels) as server:
        opened(browser, server.address)
        assert "Next open transcript: this one is done" in buttons(browser)
        tapped(browser, "next-open")  # what is left to say, by the names of buttons
        assert browser.evaluate(said) == "No outcome yet: good, bad or unsure; › goes on without"
        tapped(browser, "forth")
        at(browser, 2)
        assert not browser.evaluate(said)
        tapped(browser, "run-bad")
        tapped(browser, "back")
        at(browser, 1)
        tapped(browser, "run-good")
        tapped(browser, "next-open")  # over the one that is done
        at(browser, 3)
        tapped(browser, "run-unsure")
        tapped(browser, "next-open")
        at(browser, 4)
        tapped(browser, "run-good")
        tapped(browser, "next-open")
        browser.wait(f"{said} === 'All are done'")
        assert not complaints(browser, server.address)
    # in the order in which they were said; who is unsure gives no label
    assert [(a.trajectory_id, a.score) for a in read_annotations(labels)] == [
        ("run/2", 0.0), ("run/1", 1.0), ("run/4", 1.0),
    ]  # fmt: skip
