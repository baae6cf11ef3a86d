"""`rrm compare`: a blind sheet in a browser, and what its answers say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed.devtools import Chromium
from rrm.annotate.comparison_analysis import RaterAnswers, analyse, read_answers, sum_of_answers
from rrm.annotate.comparison_sheet import Key, make_sheet
from rrm.cli import compare_cmd
from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Message, Trajectory, write_jsonl
from rrm.errors import RRMError

Invoke = Callable[..., tuple[int, dict[str, Any]]]
HOSTILE = "</script><img src=x onerror=\"document.title='pwned'\"><!--<script> \u2028 \ud800"


def run(n: int) -> Trajectory:
    messages = [
        Message(role="user", content=f"Who was {n}?"),
        Message(role="assistant", content=f"It was {n}. {HOSTILE}"),
    ]
    return Trajectory(
        id=f"run/{n}", task=f"Who was {n}?", messages=messages, meta={"source": "even" if n % 2 == 0 else "odd"}
    )


def row(n: int, judge: str, text: str | None, **more: Any) -> dict[str, Any]:
    info = JudgeInfo(model=f"judge-{judge}", prompt_version="2", mode="critique")
    made = Feedback(id=f"run/{n}", status="scored", score=0.5, raw_score=0.5, critique=text, judge=info, **more)
    return made.model_dump() | {"source": {"file": "runs.jsonl", "line": n + 1, "digest": run(n).digest}}


def written(folder: Path, count: int = 40) -> None:
    """runs.jsonl, a.jsonl, b.jsonl; of two transcripts nothing can be compared."""
    write_jsonl(folder / "runs.jsonl", [run(n) for n in range(count + 2)])
    rows = {
        "a": [row(n, "a", f"[step 1] bad: names {n} {HOSTILE}") for n in range(count)] + [row(count, "a", "same"), row(count + 1, "a", "x")],
        "b": [row(n, "b", None, findings=[Finding(step=1, verdict="good", text=f"right {n}")]) for n in range(count)]
        + [row(count, "b", "same"), row(count + 1, "b", None)],
    }  # fmt: skip
    for name, of in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in of))


@pytest.fixture
def sheet(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> Key:
    """A sheet of forty transcripts in the current folder."""
    monkeypatch.chdir(tmp_path)
    written(tmp_path)
    code, summary = invoke(
        compare_cmd.command, "a.jsonl", "b.jsonl", "--sheet", "out.html", "--seed", 7, "--category", "source"
    )
    assert code == 0 and summary["items"] == 40 and summary["key"] == "out.key.json"
    assert summary["left_out"] == {"both say the same": 1, "one of them says nothing": 1}
    assert summary["without_category"] == 0
    return Key.model_validate(json.loads(Path("out.key.json").read_text()))


def test_a_sheet_does_not_say_whose_is_which(sheet: Key) -> None:
    page = Path("out.html").read_text()
    for secret in ("judge-a", "judge-b", "a.jsonl", "b.jsonl", "run/1", "seed", '"source"'):
        assert secret not in page, secret
    sides = [item.a for item in sheet.items.values()]
    assert sides.count("left") == 20 and sides != sorted(sides) and sheet.a == "a.jsonl (judge-a)"
    assert {item.category for item in sheet.items.values()} == {"even", "odd"}
    pairs = [(run(n), row(n, "a", f"A{n}"), row(n, "b", f"B{n}")) for n in range(9)]
    first, again, other = (make_sheet(pairs, ("a", "b"), seed=seed) for seed in (1, 1, 2))
    assert first == again and first[1].sheet != other[1].sheet
    assert len(make_sheet(pairs, ("a", "b"), seed=1, items=4)[0]) == 4


def test_a_category_that_no_transcript_has_is_refused_with_those_there_are(tmp_path: Path, invoke: Invoke) -> None:
    written(tmp_path, 4)
    runs = [run(n) for n in range(6)]
    for n in range(2):  # the sheet has four
        runs[n].meta = {"task": {"domain": f"d{n}"}, "tags": ["x"], "a\nb": 1}
    write_jsonl(tmp_path / "runs.jsonl", runs)
    sheet = tmp_path / "out.html"
    words = (tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--transcripts", tmp_path / "runs.jsonl", "--sheet", sheet)
    with pytest.raises(RRMError) as error:
        invoke(compare_cmd.command, *words, "--category", "sourse")
    assert str(error.value) == (
        "--category sourse: no transcript on the sheet has this field in its meta: there are a b, source, task.domain"
    )
    assert not sheet.exists()
    code, summary = invoke(compare_cmd.command, *words, "--category", "task.domain")
    assert code == 0 and (summary["items"], summary["without_category"]) == (4, 2)


def test_a_sheet_is_answered_from_the_keyboard_and_keeps_the_answers(
    sheet: Key, browser: Chromium, tmp_path: Path
) -> None:
    browser.events.clear()
    browser.send(
        "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"), eventsEnabled=True
    )
    address = (tmp_path / "out.html").as_uri()
    browser.open(address)
    browser.wait("document.getElementById('rates').open")
    browser.press("1")  # goes into the name: nothing is answered before somebody rates
    browser.press("Enter")
    browser.wait("document.getElementById('who').textContent === 'as 1'")
    other = "document.getElementById('other').click()"
    browser.evaluate(other)
    browser.send("Input.insertText", text="  Ann   Ö. ")
    browser.press("Enter")
    browser.wait("document.getElementById('title')")
    given = {}
    for n in range(1, 41):
        browser.wait(f"document.getElementById('place').textContent === '{n} of 40'")
        key = ("1", "2", "0")[n % 3]
        given[str(n)] = {"1": "left", "2": "right", "0": "tie"}[key]
        if n == 3:
            browser.press("Enter")  # nothing is left behind unawares
            browser.wait("document.getElementById('done').textContent.includes('no answer here yet')")
        browser.press(key)
        assert browser.evaluate("document.getElementById('place').textContent") == f"{n} of 40"  # it stays
        if n == 20:
            browser.open(address + "?again")  # the same tab, the same rater, the first without an answer
        else:
            browser.press("Enter")
    browser.wait("document.getElementById('done').textContent.startsWith('40 of 40')")
    browser.evaluate(other)
    browser.wait("document.getElementById('raters').textContent === 'Go on as Ann Ö.40 answered'")
    browser.send("Input.insertText", text="Bob")
    browser.press("Enter")
    browser.wait("document.getElementById('done').textContent.startsWith('0 of 40')")
    browser.press("1")
    browser.evaluate(other)
    browser.evaluate("[...document.querySelectorAll('#raters button')].at(0).click()")
    browser.wait("document.getElementById('done').textContent.startsWith('40 of 40')")
    assert (
        browser.evaluate("[document.title, document.querySelectorAll('img, iframe, main script').length].join()")
        == "Which critique is better?,0"
    )
    browser.press("e")
    saved = tmp_path / "saved" / "answers-Ann_Ö..json"
    browser.wait("document.getElementById('done').textContent.includes('saved as a file')")
    while not saved.exists():
        browser.evaluate("1")
    found = json.loads(saved.read_text())
    assert {**found, "checksum": ""} == {"sheet": sheet.sheet, "rater": "Ann Ö.", "answers": given, "checksum": ""}
    assert read_answers([saved], sheet)[0].answers == given
    bad = [e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    requests = {
        e["params"]["request"]["url"].split(":")[0]
        for e in browser.events
        if e["method"] == "Network.requestWillBeSent"
    }
    assert not bad and requests <= {"file", "data", "blob", "about"}


def answered(key: Key, rater: str, choose: Callable[[str, random.Random], str], sheet: str | None = None) -> Path:
    """A rater's file; `choose` says a, b, tie, or a side."""
    rng = random.Random(rater)
    other = {"left": "right", "right": "left"}
    side: dict[str, Callable[[Any], str]] = {"a": lambda item: item.a, "b": lambda item: other[item.a]}
    answers = {}
    for number, item in key.items.items():
        said = choose(number, rng)
        answers[number] = side[said](item) if said in side else said
    return returned(Path(f"answers-{rater}.json"), sheet or key.sheet, rater, answers)


def returned(path: Path, sheet: str, rater: str, answers: dict[str, Any]) -> Path:
    """A file as the sheet saves it."""
    made = RaterAnswers(sheet=sheet, rater=rater, answers=answers)
    made.checksum = sum_of_answers(made)
    path.write_text(made.model_dump_json())
    return path


def test_answers_are_read_with_the_key(sheet: Key, invoke: Invoke, capsys: pytest.CaptureFixture[str]) -> None:
    ann = answered(sheet, "ann", lambda n, rng: "tie" if int(n) % 10 == 0 else "a" if rng.random() < 0.8 else "b")
    bob = answered(sheet, "bob", lambda n, rng: "left")
    code, summary = invoke(compare_cmd.command, "--analyse", "out.key.json", ann, bob, "-o", "figures.json")
    found = json.loads(Path("figures.json").read_text())
    assert code == 0 and summary["output"] == "figures.json" and {**found, "output": "figures.json"} == summary
    of_ann, of_bob = found["by_rater"]["ann"], found["by_rater"]["bob"]
    assert of_ann["ties"] == 4 and of_ann["answers"] == 40 and of_ann["a_wins"] + of_ann["b_wins"] == 36
    assert (
        of_ann["win_rate_a"]["value"] == pytest.approx((of_ann["a_wins"] + 2) / 40)
        and of_ann["win_rate_a"]["low"] > 0.5
    )
    assert of_bob["left"] == {"value": 1.0, "low": 1.0, "high": 1.0} and of_bob["a_wins"] == of_bob["b_wins"] == 20
    assert of_ann["left"]["low"] < 0.5 < of_ann["left"]["high"]
    assert found["agreement"]["units"] == 40 and found["agreement"]["alpha"]["value"] < 0.4
    assert {name: of["answers"] for name, of in found["by_category"].items()} == {"even": 40, "odd": 40}
    few = analyse(sheet, [RaterAnswers(sheet=sheet.sheet, rater="c", answers={"1": "left"})])
    assert (few["answered"], few["win_rate_a"]["low"], few["agreement"]["units"]) == (1, None, 0)


def test_a_file_that_came_back_twice_counts_once(sheet: Key, invoke: Invoke, caplog: pytest.LogCaptureFixture) -> None:
    ann = answered(sheet, "ann", lambda n, rng: "a")
    Path("again.json").write_text(ann.read_text())
    _, summary = invoke(compare_cmd.command, "--analyse", "out.key.json", ann, "again.json")
    assert summary["answers"] == 40 and list(summary["by_rater"]) == ["ann"]
    assert "again.json holds the same answers by 'ann' as answers-ann.json: counted once" in caplog.text


def test_a_sheet_fits_a_telephone(sheet: Key, browser: Chromium, tmp_path: Path) -> None:
    browser.resize(390, 844)
    try:
        browser.open((tmp_path / "out.html").as_uri())
        browser.wait("document.getElementById('rates')")
        browser.evaluate("sessionStorage.clear()")  # as a tab of its own
        browser.open((tmp_path / "out.html").as_uri() + "?other")
        browser.wait("document.getElementById('rates')?.open")
        browser.send("Input.insertText", text="Cy")
        browser.press("Enter")
        browser.wait("document.getElementById('title')")
        wide = "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length"
        assert browser.evaluate(f"[innerWidth, {wide}]") == [390, 0]
        tops = "[...document.querySelectorAll('.side-of')].map((e) => e.getBoundingClientRect().top)"
        left, right = browser.evaluate(tops)
        assert left < right  # one under the other
        place, at = "document.getElementById('place').textContent", []
        for button in ("#next", "#choice button", "#next", "#back", "#forth", "#forth"):  # without a keyboard
            browser.evaluate(f"document.querySelector('{button}').click()")
            at.append(browser.evaluate(place).split()[0])
        assert at == ["1", "1", "2", "1", "2", "3"]
    finally:
        browser.resize(1280, 800)


def test_what_does_not_belong_to_the_key_is_refused(sheet: Key, invoke: Invoke) -> None:
    def refused(why: str, *arguments: object) -> None:
        with pytest.raises(RRMError, match=why):
            invoke(compare_cmd.command, *arguments)

    ann = answered(sheet, "ann", lambda n, rng: "a")
    with_key = ("--analyse", "out.key.json")
    refused("answers the sheet other", *with_key, answered(sheet, "bob", lambda n, rng: "a", sheet="other"))
    given = json.loads(ann.read_text())
    returned(Path("copy.json"), sheet.sheet, "ann", {"1": "tie"})
    refused("both by 'ann'", *with_key, ann, "copy.json")
    Path("edited.json").write_text(ann.read_text().replace('"1":', '"99":'))
    refused("'99', which is not on the sheet", *with_key, "edited.json")
    turned = {"left": "right", "right": "left"}
    for change in (
        {"rater": "bob"},
        {"answers": {n: turned[c] if n == "7" else c for n, c in given["answers"].items()}},
        {"answers": {n: c for n, c in given["answers"].items() if n != "7"}},
    ):
        Path("edited.json").write_text(json.dumps({**given, **change}))
        refused("edited.json was changed since the sheet saved it", *with_key, "edited.json")
    Path("edited.json").write_text(json.dumps({**given, "checksum": ""}))
    refused("edited.json has no checksum: ask 'ann'", *with_key, "edited.json")
    key = json.loads(Path("out.key.json").read_text())
    Path("same.key.json").write_text(json.dumps(key, sort_keys=True))
    assert invoke(compare_cmd.command, "--analyse", "same.key.json", ann)[0] == 0
    key["items"]["7"]["a"] = turned[key["items"]["7"]["a"]]
    Path("edited.key.json").write_text(json.dumps(key))
    refused("edited.key.json: was changed since", "--analyse", "edited.key.json", ann)
    Path("old.key.json").write_text(json.dumps({**key, "version": 1, "checksum": ""}))
    refused("key of an earlier version", "--analyse", "old.key.json", ann)
    for text in ("{", "[]", '{"sheet": "x"}', ann.read_text().replace('"left"', '"LEFT"'), "[" * 100_000):
        Path("broken.json").write_text(text)
        refused("not a file of answers", *with_key, "broken.json")
    refused("not the key of a sheet", "--analyse", ann, ann)
    returned(Path("none.json"), sheet.sheet, "z", {})
    refused("no answer", *with_key, "none.json")
    refused("may be out", "a.jsonl", "b.jsonl", "--sheet", "out.html")
    refused("say --sheet", "a.jsonl", "b.jsonl")
    refused("compares two files", "a.jsonl", "--sheet", "new.html")
    refused("does not hold rows", "a.jsonl", "runs.jsonl", "--sheet", "new.html")
    refused("goes with --sheet", *with_key, ann, "--items", 3)
    write_jsonl(Path("others.jsonl"), [run(n).model_copy(update={"id": f"x{n}"}) for n in range(50, 53)])
    few = ("a.jsonl", "b.jsonl", "--sheet", "new.html", "--transcripts", "others.jsonl")
    refused(r"none of the 42 rows of a\.jsonl is of a transcript in others\.jsonl", *few)
    refused("both say the same: 42", "a.jsonl", "a.jsonl", "--sheet", "new.html")
    assert not Path("new.html").exists() and not Path("new.key.json").exists()
