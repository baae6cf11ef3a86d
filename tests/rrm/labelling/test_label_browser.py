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
