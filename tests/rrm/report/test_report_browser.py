"""The report page in a browser: nothing executes, and a keyboard works all of it."""

from __future__ import annotations

import csv
import io
import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from report_pages import HOSTILE, JUDGE, complaints, hostile_pair, opened, pair, parallel, shown_ids

from benchmarks.speed.devtools import Chromium
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.report import write_report


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
    assert shown_ids(browser)[:2] == ["run/0", "run/1"]  # the worst first
    assert browser.evaluate("document.querySelectorAll('.row').length") < 60  # only what is in view exists
    browser.evaluate("document.querySelector('[data-sort=score]').click()")
    assert shown_ids(browser)[:2] == ["run/99", "run/98"]
    browser.press("j")
    browser.press("Enter")
    browser.wait("location.hash === '#run%2F98?sort=-score'")
    browser.wait("document.querySelector('.finding.bad strong')?.textContent === 'Bad'")
    browser.press("Escape")
    browser.wait("document.getElementById('main').hidden")
    browser.evaluate("document.querySelector('[data-sort=score]').click()")

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


def test_a_result_that_the_log_does_not_have_is_said(browser: Chromium, tmp_path: Path) -> None:
    opened(browser, tmp_path / "report.html", [parallel()], "#parallel")
    browser.wait("document.querySelector('#step-1 .message.tool')")
    read = "[...document.querySelectorAll('#step-1 .message:not(.assistant)')].map((one) => one.innerText.split(/\\n+/).join(' ').toLowerCase())"
    assert browser.evaluate(read) == [
        "result of call 1 weather 3 degrees in the first",
        "user be quick.",
        "result of call 2 weather (no result)",
        "result of call 3 weather 25 degrees in the third",
    ]
    assert not complaints(browser)


def test_a_row_says_its_threshold(browser: Chromium, tmp_path: Path) -> None:
    """A step of 0.41 that is called good needs a word."""
    findings = [{"step": 1, "verdict": "good", "p_good": 0.41}, {"step": 2, "verdict": "bad", "p_good": 0.12}]
    judge = {**JUDGE, "mode": "steps", "calibrated": True, "threshold": 0.275}
    pairs = [pair(0, findings=findings, judge=judge), pair(1)]
    opened(browser, tmp_path / "report.html", pairs, "#run%2F0")
    browser.wait("document.querySelector('.strip')")
    said = lambda what: browser.evaluate(f"document.querySelector('{what}').textContent")  # noqa: E731
    assert "from 0.28 on it is called good" in said(".strip")
    details = said("details.judge")
    assert all(part in details for part in ("Calibratedyes", "Step is good from0.275"))
    browser.press("j")
    browser.wait("document.querySelector('.place .num')?.textContent === '2 of 2'")
    assert "Step is good from" not in said("details.judge")
    assert not complaints(browser)


def test_an_empty_report_says_so(browser: Chromium, tmp_path: Path) -> None:
    opened(browser, tmp_path / "report.html", [])
    assert "nothing was judged" in browser.evaluate("document.getElementById('empty').textContent")
    assert not complaints(browser)


def ended(outcomes: list[float | None], scores: list[float | None]) -> list[tuple[Trajectory, dict[str, Any]]]:
    """Rows with these outcomes and scores, all attempts at one question."""
    found = []
    for n, (outcome, score) in enumerate(zip(outcomes, scores, strict=True)):
        trajectory, row = pair(n, score=score, raw_score=score, status="judge_error" if score is None else "scored")
        trajectory.outcome = outcome
        found.append((trajectory, row))
    return found


def test_outcomes_sort_filter_and_show_where_the_judge_disagrees(browser: Chromium, tmp_path: Path) -> None:
    pairs = ended([1.0, 0.0, 0.4, None, 1.0, 0.0], [0.9, 0.8, 0.1, 0.7, 0.3, None])
    opened(browser, tmp_path / "report.html", pairs)
    cells = "[...document.querySelectorAll('.cell b')].map(cell => cell.textContent)"
    assert browser.evaluate(cells) == ["1", "1", "1", "1"]
    assert "50.0 % of 4 transcripts" in browser.evaluate("agreed.textContent")
    assert browser.evaluate("document.querySelector('.figures').textContent").endswith("Successes40.0 % of 5")
    browser.evaluate("document.querySelector('[data-sort=outcome]').click()")
    assert shown_ids(browser) == ["run/0", "run/4", "run/2", "run/1", "run/5", "run/3"]
    browser.evaluate("document.querySelector('.cell[data-outcome=failure].disagree').click()")
    assert shown_ids(browser) == ["run/1"]
    assert browser.evaluate("[outcome.value, judged.value].join()") == "failure,disagree"
    browser.evaluate("document.querySelector('.cell[data-outcome=failure].disagree').click()")
    browser.evaluate("sort.value = 'apart true'; sort.dispatchEvent(new Event('change'))")
    assert shown_ids(browser)[:4] == ["run/1", "run/4", "run/2", "run/0"]
    browser.evaluate("from.value = 0.85; from.dispatchEvent(new Event('input'))")
    assert browser.evaluate(cells) == ["1", "0", "1", "2"]
    assert not complaints(browser)


def test_the_address_holds_search_filters_and_order(browser: Chromium, tmp_path: Path) -> None:
    pairs = ended([1.0, 0.0, 0.0, None], [0.9, 0.8, 0.7, 0.6])
    path = tmp_path / "report.html"
    asked = "?q=result&outcome=failure&judged=disagree&min=0.75&sort=-steps&nonsense=1&findings=hasOwnProperty"
    opened(browser, path, pairs, f"#{asked}")
    browser.wait("tally.textContent === '1 of 4 transcripts'")
    assert shown_ids(browser) == ["run/1"]
    assert (
        browser.evaluate("[search.value, min.value, sort.value, verdict.value].join()") == "result,0.75,steps true,any"
    )
    browser.press("Enter")
    browser.wait("location.hash === '#run%2F1?q=result&outcome=failure&judged=disagree&min=0.75&sort=-steps'")
    browser.evaluate("outcome.value = 'any'; outcome.dispatchEvent(new Event('change'))")
    browser.wait("location.hash === '#run%2F1?q=result&judged=disagree&min=0.75&sort=-steps'")
    browser.evaluate("clear.click()")
    browser.wait("location.hash === '#run%2F1?sort=-steps'")
    browser.evaluate("location.hash = '#?judged=agree'")
    browser.wait("tally.textContent === '1 of 4 transcripts' && document.getElementById('main').hidden")
    browser.evaluate("history.back()")
    browser.wait("tally.textContent === '4 transcripts' && !document.getElementById('main').hidden")
    assert not complaints(browser)


def test_a_timeline_stands_where_a_transcript_has_times(browser: Chromium, tmp_path: Path) -> None:
    pairs = [pair(0), pair(1)]
    for at, message in zip((0.0, 2.0, 62.0, 63.0), pairs[0][0].messages, strict=True):
        message.timestamp = 1000.0 + at
    opened(browser, tmp_path / "report.html", pairs, "#run%2F0")
    browser.wait("document.querySelector('.timeline')")
    said = browser.evaluate("document.querySelector('.timeline summary').textContent")
    assert said == "Timeline1 m 03 s in all: agent 3.0 s, tools 1 m 00 s. The longest is step 1, search, with 1 m 00 s."
    labels = "[...document.querySelectorAll('.time-step')].map(line => line.getAttribute('aria-label'))"
    assert browser.evaluate(labels) == [
        "Step 1: agent 2.0 s, search 1 m 00 s, from 0.0 s on",
        "Step 2: agent 1.0 s, from 1 m 02 s on",
    ]
    browser.press("j")
    browser.wait("document.querySelector('.place .num')?.textContent === '2 of 2'")
    assert browser.evaluate("document.querySelector('.timeline')") is None
    assert not complaints(browser)


def test_lists_and_words_are_aligned_by_what_they_share(browser: Chromium) -> None:
    script = resources.files("rrm.report").joinpath("align.js").read_text("utf-8")

    def run(expression: str) -> Any:
        return browser.evaluate(f"(() => {{ {script}; return {expression}; }})()")

    assert run("lines(['a', 'b', 'c', 'd'], ['a', 'x', 'c', 'd'])") == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert run("lines(['a', 'c'], ['a', 'b', 'c'])") == [[0, 0], [None, 1], [1, 2]]
    assert run("lines(['a', 'b', 'c', 'e'], ['b', 'd', 'e'])") == [[0, None], [1, 0], [2, 1], [3, 2]]
    assert run("lines([], ['a'])") == [[None, 0]] and run("lines([], [])") == []
    assert run("wordChanges('book the cheap flight', 'book one flight')") == [
        [["book", True], [" the cheap", False], [" flight", True]],
        [["book", True], [" one", False], [" flight", True]],
    ]
    assert run("wordChanges('', 'a')") == [[], [["a", False]]]
    assert run("wordChanges('a'.repeat(9000), 'b')") is None
    lengths = "[common(Array(3000).fill('a'), Array(3000).fill('b')).length, common(['x'], ['y']).length]"
    assert run(lengths) == [0, 0]  # too many to compare: none in common is said, and at once


def test_attempts_at_one_question_stand_side_by_side(browser: Chromium, tmp_path: Path) -> None:
    pairs = [pair(n, text="I look it up.") for n in range(3)]
    pairs[0][0].outcome, pairs[1][0].outcome, pairs[2][0].outcome = 0.0, 0.0, 1.0
    answer = pairs[2][0].messages[3]
    pairs[2][0].messages[3] = answer.model_copy(update={"content": "It was Grace."})
    pairs.append(pair(3, task="Another question altogether?"))
    opened(browser, tmp_path / "report.html", pairs, "#run%2F0")
    browser.wait("document.querySelector('.attempts')")
    assert browser.evaluate("document.querySelectorAll('.attempts tbody tr').length") == 3
    browser.evaluate("document.querySelector('.side-by-side').click()")
    browser.wait("document.querySelector('.beside')")
    assert browser.evaluate("location.hash") == "#run%2F0?with=run%2F2"  # the one that ended otherwise
    marked = "[...document.querySelectorAll('.pair del, .pair ins')].map(el => el.localName + el.textContent)"
    assert browser.evaluate(marked) == ["del 0:", "ins 2:", "del Ada.", "ins Grace."]
    browser.press("n")
    assert browser.evaluate("document.activeElement.dataset.n") == "0"
    browser.press("n")
    assert browser.evaluate("document.activeElement.dataset.n") == "1"
    browser.press("Escape")
    browser.wait("location.hash === '#run%2F0' && document.querySelector('.steps')")
    browser.evaluate("location.hash = '#run%2F3?with=run%2F1'")  # attempts at different questions are not compared
    browser.wait("document.querySelector('.place .num')?.textContent === '4 of 4' && document.querySelector('.steps')")
    assert browser.evaluate("document.querySelector('.attempts')") is None
    assert not complaints(browser)


def named(n: int, name: str, **row: Any) -> tuple[Trajectory, dict[str, Any]]:
    trajectory, made = pair(n, **row)
    return trajectory.model_copy(update={"id": name}), {**made, "id": name}


def test_a_step_is_not_another_transcript_s_id(browser: Chromium, tmp_path: Path) -> None:
    opened(browser, tmp_path / "report.html", [named(0, "a"), named(1, "a/1"), named(2, "what?/9")], "#a")
    shown = "document.querySelector('.facts .mono')?.textContent"
    browser.wait(f"{shown} === 'a'")
    browser.press("n")
    browser.wait("document.activeElement?.id === 'step-1'")
    assert browser.evaluate(f"[location.hash, {shown}].join()") == "#a/1,a"
    browser.evaluate("location.hash = '#a%2F1'")
    browser.wait(f"{shown} === 'a/1'")
    browser.evaluate("location.hash = '#what?/9'")  # by hand
    browser.wait(f"{shown} === 'what?/9'")
    assert not complaints(browser)


def test_a_bin_shows_all_that_it_counts(browser: Chromium, tmp_path: Path) -> None:
    scores = [0.151, 0.19995, 0.1999999, 0.2, 0.21]
    opened(browser, tmp_path / "report.html", [pair(n, score=s, raw_score=s) for n, s in enumerate(scores)])
    browser.evaluate("document.querySelectorAll('.bin')[3].dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert browser.evaluate("document.querySelectorAll('.bin')[3].ariaLabel") == "Scores 0.15 to 0.20: 3 transcripts"
    assert shown_ids(browser) == ["run/0", "run/1", "run/2"]


def test_many_attempts_are_drawn_when_they_are_asked_for(browser: Chromium, tmp_path: Path) -> None:
    opened(browser, tmp_path / "report.html", [pair(n, task="hotpotqa train") for n in range(250)], "#run%2F0")
    browser.wait("document.querySelector('.attempts')")
    lines = "document.querySelectorAll('.attempts tbody tr').length"
    assert browser.evaluate(lines) == 0
    browser.evaluate("document.querySelector('.attempts').open = true")
    browser.wait(f"{lines} === 100")
    more = "document.querySelector('.attempts .scroll > button')"
    assert browser.evaluate(f"{more}.textContent") == "Show 100 more of 150"
    browser.evaluate(f"{more}.click(); {more}.click()")
    assert browser.evaluate(f"[{lines}, {more}.hidden]") == [250, True]


def test_what_a_row_cost_and_its_place_are_shown_and_exported(browser: Chromium, tmp_path: Path) -> None:
    usage = {"requests": 2, "prompt_tokens": 1500, "cached_tokens": 400, "completion_tokens": 70, "reasoning_tokens": 0}
    usage |= {"unreported": 0, "cost": 0.00123}
    rank = {"position": 2, "n_compared": 3, "n_batches": 1, "group": "abc"}
    opened(browser, tmp_path / "report.html", [pair(0, usage=usage, rank=rank), pair(1)], "#run%2F0")
    browser.wait("document.querySelector('.verdict')")
    said = browser.evaluate("document.querySelector('.verdict').textContent")
    assert "Used2 requests, 1,500 tokens read (400 of them cached), 70 written, cost 0.00123" in said
    assert "Place 2 of 3 attempts at its question: the score is relative" in said
    browser.evaluate(CATCH)
    browser.evaluate("document.getElementById('export-jsonl').click()")
    browser.wait("window.exported")
    first, second = (json.loads(line) for line in browser.evaluate("window.exported").splitlines())
    assert (first["usage"], first["rank"], second["usage"], second["rank"]) == (usage, rank, None, None)
    assert Feedback.model_validate(first).usage is not None
    assert not complaints(browser)


CATCH = """
URL.createObjectURL = (blob) => { window.exported = blob.text(); return "blob:caught"; };
HTMLAnchorElement.prototype.click = function () { window.named = this.download; };
"""


def test_what_is_filtered_is_exported_in_its_order(browser: Chromium, tmp_path: Path) -> None:
    findings = [{"step": 1, "verdict": "bad", "p_good": 0.25, "text": "Asks too little."}]
    pairs = [pair(n, score=n / 10, raw_score=0.5, findings=findings, trace="It asks.") for n in range(10)]
    for n, text in enumerate(["=cmd|' /C calc'!A0", '\t+1,"2"', " -2", "@SUM(1)", "\x01=1", "fine; really"]):
        trajectory, row = pair(n, task=text + " asked?", score=round(0.9 + n / 100, 2), raw_score=0.5)
        name = f"=hostile {n}"
        pairs.append((trajectory.model_copy(update={"id": name, "outcome": 1.0}), {**row, "id": name}))
    opened(browser, tmp_path / "report.html", pairs)
    browser.evaluate(CATCH)
    browser.evaluate("min.value = 0.9; min.dispatchEvent(new Event('input'))")
    browser.evaluate("document.getElementById('export-csv').click()")
    text = browser.evaluate("window.exported")
    lines = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [line["id"] for line in lines] == ["run/9"] + [f"'=hostile {n}" for n in range(6)]
    assert not [cell for line in lines for cell in line.values() if cell[:1] in ("=", "+", "-", "@", "\t", " ", "\x01")]
    assert (
        lines[-1]["outcome"] == "1"
        and float(lines[-1]["score"]) == pytest.approx(0.95)
        and lines[-1]["judge_and_outcome"] == "agree"
    )
    assert browser.evaluate("window.named") == "transcripts.csv"

    browser.evaluate("window.exported = null; document.getElementById('export-jsonl').click()")
    browser.wait("window.exported")
    found = [json.loads(line) for line in browser.evaluate("window.exported").splitlines()]
    assert [row["id"] for row in found] == [line["id"].removeprefix("'") for line in lines]
    by_id = {row["id"]: row for row in found}
    read = Feedback.model_validate(by_id["run/9"])
    assert (read.score, read.raw_score, read.trace) == (0.9, 0.5, "It asks.")
    assert [f.model_dump() for f in read.findings] == findings
    assert by_id["=hostile 0"]["outcome"] == 1.0
    assert not complaints(browser)


FOCUSED = """(() => {
  const el = document.activeElement, style = getComputedStyle(el);
  if (el === document.body) return null;
  const row = el.id === 'list' ? getComputedStyle(el.querySelector('.row.active')) : style;
  const mark = el.closest('.bin') ? getComputedStyle(el.querySelector('.hit')).stroke !== 'none' : style.outlineStyle !== 'none' || row.boxShadow !== 'none';
  const name = el.getAttribute('aria-label') || el.labels?.[0]?.textContent || el.textContent;
  const box = el.getBoundingClientRect();
  return [el.id || el.className.baseVal || el.className || el.localName, mark, name.trim().length > 0, box.width > 0 && box.right <= innerWidth + 1];
})()"""


def tabbed(browser: Chromium, most: int = 80) -> list[list[Any]]:
    """[what, focus visible, has a name, inside the window] of everything that Tab reaches until the focus leaves the page."""
    found: list[list[Any]] = []
    for _ in range(most):
        browser.press("Tab")
        at = browser.evaluate(FOCUSED)
        if at is None or (found and at[0] == found[0][0] == "help-open"):
            return found
        found.append(at)
    raise AssertionError(f"the focus never left: {found[-5:]}")


@pytest.mark.parametrize("width", [1400, 390])
def test_tab_reaches_everything_and_shows_where_it_is(browser: Chromium, tmp_path: Path, width: int) -> None:
    browser.resize(width, 844)
    pairs = ended([1.0, 0.0, 0.4, None], [0.9, 0.8, 0.1, None])
    for at, message in enumerate(pairs[0][0].messages):
        message.timestamp = 1000.0 + at
    opened(browser, tmp_path / "report.html", pairs)
    if width < 700:
        browser.evaluate("document.getElementById('unfold').click()")
    browser.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    found = tabbed(browser)
    names = [name for name, *_ in found]
    wanted = [
        "help-open",
        "from",
        "bin",
        "search",
        "verdict",
        "min",
        "max",
        "outcome",
        "judged",
        "sort",
        "export-csv",
        "export-jsonl",
    ]
    assert [name for name in names if name in wanted] == wanted
    assert sum("cell" in name for name in names) == 4 and names.count("chip") == 2 and names[-1] == "list"
    assert all(seen and named and inside for _, seen, named, inside in found), found

    browser.evaluate("location.hash = '#run%2F0'")
    browser.wait("document.querySelector('.steps') && document.activeElement?.id === 'main'")
    found = tabbed(browser)
    names = [name for name, *_ in found]
    for part in ("quiet", "time-step", "link side-by-side", "pill", "anchor", "scroll"):
        assert any(part in name for name in names), (part, names)
    assert all(seen and named and inside for _, seen, named, inside in found), found
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    browser.press("Escape")
    browser.wait("document.activeElement?.id === 'list'")
    browser.resize(1280, 800)
    assert not complaints(browser)


def test_relative_scores_are_held_against_no_outcome_and_no_grade(browser: Chromium, tmp_path: Path) -> None:
    def placed(n: int) -> tuple[Trajectory, dict[str, Any]]:
        rank = {"position": n + 1, "n_compared": 2, "n_batches": 1, "group": "0"}
        trajectory, row = pair(n, score=1.0 - n, rank=rank)
        return trajectory.model_copy(update={"outcome": 1.0 - n}), row

    pairs, path = [placed(n) for n in range(2)], tmp_path / "report.html"
    write_report(pairs, path, second=lambda t, row: pair(0)[1] | {"id": t.id})
    browser.events.clear()
    browser.open(path.as_uri() + "#?sort=-gap")
    browser.wait("window.tally && tally.textContent")
    shown = "document.getElementById('%s').innerText"
    assert "These scores are relative" in browser.evaluate(shown % "relative")
    assert "The scores of A are relative" in browser.evaluate(shown % "relative-judges")
    said = browser.evaluate("document.body.innerText")
    assert "MEAN OF B − A" not in said.upper() and "Pair accuracy, same question" in said and "AUROC" not in said
    assert browser.evaluate("document.querySelectorAll('.cell').length") == 0
    assert not complaints(browser)


def test_no_table_sticks_out_of_a_phones_screen(browser: Chromium, tmp_path: Path) -> None:
    pairs = ended([1.0] * 6, [0.1] * 6)  # with the mark of an outcome that differs: as wide as a row gets
    named = [(t.model_copy(update={"id": f"a-long-name-of/{n}"}), row) for n, (t, row) in enumerate(pairs)]
    named = [(t, row | {"id": t.id}) for t, row in named]
    write_report(named, tmp_path / "report.html", second=lambda t, row: row | {"score": 0.5})
    browser.resize(320, 844)
    browser.events.clear()
    browser.open((tmp_path / "report.html").as_uri() + "#a-long-name-of%2F1")
    browser.wait("document.querySelectorAll('.attempts tbody tr').length")
    wide = "[...document.querySelectorAll('table, .attempts button')].map((t) => Math.round(t.getBoundingClientRect().right))"
    assert max(browser.evaluate(wide)) <= 304 and browser.evaluate("document.documentElement.scrollWidth") == 320
    browser.resize(1280, 800)
    assert not complaints(browser)


def test_a_tick_is_green_from_one_half_on_and_unsure_steps_are_counted(browser: Chromium, tmp_path: Path) -> None:
    """A step that passed a threshold of 0.28 with a probability of 0.38 had the tick of a sure one."""
    verdicts = [("good", 0.38), ("good", 0.9), ("unsure", 0.6)]
    pairs = [pair(n, findings=[{"step": 1, "verdict": v, "p_good": p}]) for n, (v, p) in enumerate(verdicts)]
    opened(browser, tmp_path / "report.html", pairs)
    marks = "[...document.querySelectorAll('.row .marks')].map(one => one.querySelector('svg').classList[1])"
    assert browser.evaluate(marks) == ["icon-weak", "icon-good", "icon-unsure"]
    assert "2 good, 1 unsure" in browser.evaluate("document.querySelector('.figures').textContent")
    browser.press("Enter")
    browser.wait("document.querySelector('.finding.weak strong')?.textContent === 'Good by the threshold'")
