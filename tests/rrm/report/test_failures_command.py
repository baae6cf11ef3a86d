"""`rrm failures`: what goes wrong over many runs, as a user meets it."""

from __future__ import annotations

import json
import logging
import os
import pty
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from openai_server import completion, serve
from report_pages import HOSTILE, complaints
from typer.testing import CliRunner, Result

from benchmarks.speed.devtools import Chromium
from rrm.cli import failures_cmd
from rrm.data.feedback import Feedback
from rrm.data.mistakes import DESCRIPTIONS, MISTAKE_KINDS
from rrm.data.output import write_lines
from rrm.data.trajectory import Message, ToolCall, Trajectory, write_jsonl
from rrm.errors import RRMError
from rrm.evaluation.failure_counts import difference, share
from rrm.evaluation.failures import PROVABLE, failures_of, loops, texts_of
from rrm.prompt.canonical import CanonicalCall, CanonicalStep, canonical_step
from rrm.prompt.likely_kinds import likely_kinds
from rrm.prompt.rules import wasted_calls

TOOLS = [{"name": "search"}, {"name": "refund"}]


def feedback(t: Trajectory, *verdicts: tuple[int, str, str], status: str = "scored", **more: Any) -> dict[str, Any]:
    """A row of `rrm score`; verdicts are (step, verdict, text)."""
    findings = [dict(zip(("step", "verdict", "text"), verdict, strict=True)) for verdict in verdicts]
    judge = {"model": "small", "prompt_version": "3", "mode": "steps"}
    row = {"id": t.id, "status": status, "findings": findings, "judge": judge, "source": {"digest": t.digest}}
    return {**row, **more}


def run(n: int, *steps: tuple[str, str, str], end: str = "It is Kassel.", model: str = "a") -> Trajectory:
    """Steps are (words, query, result); a query `refund …` calls that tool."""
    messages = [Message(role="user", content=f"Which city is {n}? Never call refund.")]
    for words, query, result in steps:
        name = "refund" if query.startswith("refund") else "search"
        call = ToolCall(name=name, arguments={"query": query})
        messages += [Message(role="assistant", content=words, tool_calls=[call]), Message(role="tool", content=result)]
    messages.append(Message(role="assistant", content=end))
    return Trajectory(
        id=f"run-{n}", messages=messages, tools=TOOLS, meta={"model": model}, question_id=f"q{n}", outcome=float(n % 2)
    )


LOOK = ("I look\nit up.", "city", "It is Kassel, they say.")
REPEATS = (LOOK, LOOK, LOOK)
ASKS_WRONG = (("Hm.", "town", "Error: missing required argument 'city'"), LOOK)


def invoke(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(failures_cmd.command)
    return CliRunner().invoke(app, [str(a) for a in arguments])


def failures(runs: list[Trajectory], folder: Path, *options: object, name: str = "runs") -> tuple[Any, list[Any]]:
    """The summary and the rows."""
    write_jsonl(folder / f"{name}.jsonl", runs)
    out = folder / f"{name}-failures.jsonl"
    done = invoke(folder / f"{name}.jsonl", "-o", out, *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1]), [json.loads(line) for line in out.read_text().splitlines()]


def test_rules_say_what_where_how_often_and_show_it(tmp_path: Path) -> None:
    runs = [run(0, *REPEATS), run(1, *ASKS_WRONG, model="b"), run(2, LOOK), run(3, LOOK, model="b")]
    found, rows = failures(runs, tmp_path, "--model", "rules", "--by", "model", "--by", "tool")
    assert {kind: of["runs"] for kind, of in found["kinds"].items()} == {
        "repeat": 1, "malformed_call": 1, "invented_result": 0,
    }  # fmt: skip
    assert [row["first_step"] for row in rows] == [2, 1, None, None] and found["failing"]["value"] == 0.5
    assert found["by"]["model"]["b"]["kinds"]["malformed_call"]["of"] == 2 and "refund" not in found["by"]["tool"]
    assert found["calls"] == {"calls": 7, "identical": 2, "errored": 1, "never_used": 0}
    assert found["loops"] == [{"id": "run-0", "step": 1, "period": 1, "steps": 3}]
    (example,) = found["kinds"]["malformed_call"]["examples"]
    assert (example["step"], example["quote"]) == (1, "Error: missing required argument 'city'")
    assert found["kinds"]["repeat"]["examples"][0]["quote"] == "I look\nit up."


def test_loops_of_any_period_are_found_once() -> None:
    def of(letters: str) -> list[tuple[int, int, int]]:
        steps = [(letter, letter, f"result {letter}") for letter in letters]
        return loops([canonical_step(step) for step in run(0, *steps).steps[: len(letters)]])

    assert of("abcdef") == of("aab") == of("abcabd") == []
    assert of("xaaaay") == [(2, 1, 4)] and of("ababab") == [(1, 2, 6)] and of("xabcabcabcy") == [(2, 3, 9)]
    assert of("aabaab") == [(1, 3, 6)] and of("ababaaacdcd") == [(1, 2, 5), (5, 1, 3), (8, 2, 4)]


@pytest.mark.parametrize(
    ("steps", "end", "bad", "kind"),
    [
        ((LOOK, ("Again.", "city", "It is Fulda now.")), "Kassel", 2, "repeat"),
        ((LOOK, ("I pay back.", "refund 4", "done")), "Kassel", 2, "broken_instruction"),
        ((("Hm.", "town", "Error: the record is locked"),), "It is Kassel.", 2, "ignored_error"),
        ((LOOK,), "I could not find the city.", 2, "gave_up_early"),
        ((LOOK,), "Done: I have emailed the mayor.", 2, "unsupported_claim"),
        ((LOOK,), "Bonn", 2, "wrong_answer"),
    ],
)  # fmt: skip
def test_a_bad_step_gets_its_likely_kind(steps: Any, end: str, bad: int, kind: str) -> None:
    assert likely_kinds(run(0, *steps, end=end), {bad}) == {bad: kind}


def test_a_change_makes_a_call_new() -> None:
    """A call made again after a change was of the likely kind `repeat`."""
    booked = ToolCall(name="book", arguments={"seat": "4"})
    t = run(0, LOOK, ("", "", ""), ("Again.", "city", "It is Fulda now."))
    t.messages[3].tool_calls = [booked]
    assert likely_kinds(t, {3})[3] != "repeat"


def test_parallel_calls_are_wasted_by_their_own_results() -> None:
    """All calls of a step were errored where the first result reported an error, and none where a later one did."""
    calls = [ToolCall(id=f"c{n}", name="search", arguments={"query": str(n)}) for n in range(3)]
    results = [("c0", "Error: 404"), ("c1", "Kassel has 200,000 people"), ("c2", "Error: 404")]
    for order in (results, results[1:] + results[:1]):
        messages = [Message(role="tool", content=text, tool_call_id=id) for id, text in order]
        t = run(0).model_copy(
            update={"messages": [Message(role="assistant", tool_calls=calls), *messages, *run(0).messages[-1:]]}
        )
        assert wasted_calls(t, ()) == {"calls": 3, "identical": 0, "errored": 2, "never_used": 0}
        t.messages[1:4] = [message.model_copy(update={"tool_call_id": None}) for message in messages]
        assert wasted_calls(t, ())["errored"] == 2
        t.messages[1:4] = messages[:1]
        assert wasted_calls(t, ())["errored"] == (messages[0].content == "Error: 404")


@pytest.mark.parametrize(
    ("name", "result", "errored", "unused"),
    [
        ("edit", "written", 0, 0),
        ("refund", "ok", 0, 0),
        ("search", "Fulda lies south", 0, 1),
        ("bash", "Fulda lies south", 0, 1),
        ("status", "running", 0, 0),
        ("refund_v2", "Unknown function: refund_v2", 1, 0),
        ("refund", "1 validation error for refund\namount\n  Field required", 1, 0),
    ],
)
def test_calls_that_change_something_are_not_wasted(name: str, result: str, errored: int, unused: int) -> None:
    t = run(0, ("", "", result))
    t.messages[1].tool_calls = [ToolCall(name=name, arguments={"text": "x"})]
    assert wasted_calls(t, ()) == {"calls": 1, "identical": 0, "errored": errored, "never_used": unused}


def test_a_judge_s_rows_are_taken_and_what_it_is_unsure_of_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [run(n, LOOK, end="Bonn") for n in range(3)]
    verdicts = [("bad", "", 0.1), ("bad", "gave_up_early: it says so", 0.0), ("unsure", "", 0.5)]
    judge = {"model": "small", "prompt_version": "3", "mode": "steps"}
    with open(tmp_path / "scored.jsonl", "w") as file:
        for t, (verdict, text, p) in zip(runs, verdicts, strict=True):
            finding = {"step": 2, "verdict": verdict, "text": text, "p_good": p}
            row = {"id": t.id, "status": "scored", "score": 0.2, "findings": [finding], "judge": judge}
            file.write(json.dumps({**row, "source": {"digest": t.digest}}) + "\n")
    found, rows = failures(runs, tmp_path, "--scores", tmp_path / "scored.jsonl")
    said = [[(m["kind"], m["by"], m["p_good"]) for m in row["mistakes"]] for row in rows]
    assert said == [[("wrong_answer", "likely", 0.1)], [("gave_up_early", "judge", 0.0)], []]
    assert found["unsure_runs"] == 1 and found["kinds"]["wrong_answer"]["examples"][0]["quote"] == "Bonn"
    (warning,) = [m for m in caplog.messages if "unsure steps" in m]
    assert "rrm score --out-of-domain keep" in warning and "rrm score --escalate" in warning  # --scores refuses both


def test_a_run_counts_for_the_kinds_it_was_asked_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Runs without a judgement counted as free of each kind."""
    runs = [run(n, LOOK, end="Bonn") for n in range(5)]
    no = {"label": "no"}
    rows = [
        feedback(runs[0], (2, "bad", "")),
        feedback(runs[1], (2, "unsure", "")),
        feedback(runs[2], (2, "bad", ""), status="judge_error"),
        feedback(runs[3], criteria={"wrong_answer": no, "other": no}),
        feedback(runs[4], criteria={"wrong_answer": no}, small_judge={"findings": []}),
    ]
    write_lines(tmp_path / "scored.jsonl", map(json.dumps, rows))
    asked = [failures_of(t, Feedback.model_validate(row))["asked"] for t, row in zip(runs, rows, strict=True)]
    rules = [kind for kind in MISTAKE_KINDS if kind in PROVABLE]
    assert asked[0] == asked[4] == list(MISTAKE_KINDS) and asked[1] == asked[2] == rules
    assert asked[3] == [*rules, "wrong_answer"] and failures_of(runs[0])["asked"] == rules

    scored = ("--scores", tmp_path / "scored.jsonl")
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text("wrong_answer: is wrong\nrude: is rude\n")
    write_jsonl(tmp_path / "runs.jsonl", runs)
    with caplog.at_level(logging.WARNING):
        done = invoke(tmp_path / "runs.jsonl", *scored, "--categories", kinds)
    found = json.loads(done.stdout.splitlines()[-1])
    assert {kind: (of["runs"], of["of"]) for kind, of in found["kinds"].items()} == {"wrong_answer": (1, 3)}
    assert found["not_asked"] == ["rude"] and "no run was asked about rude" in caplog.text


def test_a_proven_mistake_of_a_kind_left_out_hides_no_other(tmp_path: Path) -> None:
    rude = feedback(run(0, *ASKS_WRONG), (1, "bad", "repeat: it says so"))
    told = failures_of(run(0, *ASKS_WRONG), Feedback.model_validate(rude), {"repeat": "does it again"})
    assert [(m["step"], m["kind"], m["by"]) for m in told["mistakes"]] == [(1, "repeat", "judge")]
    assert told["calls"]["errored"] == 1


def test_a_small_judge_s_mistakes_stay_beside_answers() -> None:
    t = run(0, LOOK, LOOK, ("Again.", "town", "It is Fulda now."), end="Bonn")
    answers = {"rude": {"label": "yes", "steps": [1]}, "leak": {"label": "yes", "steps": [], "why": '"nowhere"'}}
    own = [{"step": k, "verdict": v} for k, v in ((1, "bad"), (2, "bad"), (3, "unsure"), (4, "bad"))]
    row = feedback(t, criteria=answers, small_judge={"findings": own})
    kinds = {**DESCRIPTIONS, "rude": "is rude", "leak": "leaks"}
    told = failures_of(t, Feedback.model_validate(row), kinds)
    assert [(m["step"], m["kind"], m["by"]) for m in told["mistakes"]] == [
        (1, "rude", "judge"), (2, "repeat", "rules"), (4, "wrong_answer", "likely"),
    ]  # fmt: skip
    assert told["quotes"] == {"checked": 1, "dropped": 1, "unplaced": 1}
    row["findings"] = [{"step": 4, "verdict": "good"}]  # the stronger judge's verdict
    assert [m["step"] for m in failures_of(t, Feedback.model_validate(row), kinds)["mistakes"]] == [1, 2]
    assert "small_judge" not in Feedback.model_validate(row).model_dump()


def test_a_chat_judge_s_quotes_must_stand_in_their_step(tmp_path: Path) -> None:
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text("rude: is rude to the user\nleak: shows a password\n")

    def reply(n: int, body: Any) -> Any:
        true = "run-0" in json.dumps(body) or "city is 0" in json.dumps(body)
        rude = {"why": f'"{"I look it up." if true else "Shut up."}" is rude', "steps": [1], "answer": "yes"}
        none = {"why": "nothing", "steps": [], "answer": "no"}
        return completion(json.dumps({"answers": {"rude": rude, "leak": none}}))

    with serve(reply) as server:
        judge = ("--model", f"openai:{server.url}#m", "--categories", kinds)
        found, rows = failures([run(0, LOOK), run(1, LOOK)], tmp_path, *judge, "--html", tmp_path / "r.html")
        asked = len(server.requests)
        failures([run(0, LOOK), run(1, LOOK)], tmp_path, *judge)
        assert len(server.requests) == asked  # goes on from its own rows
    assert found["quotes"] == {"checked": 2, "dropped": 1, "unplaced": 0} and found["kinds"]["rude"]["runs"] == 2
    assert [row["mistakes"][0]["quote"] for row in rows] == ["I look\nit up.", None]
    assert [one["id"] for one in found["kinds"]["rude"]["examples"]] == ["run-0"] and found["kinds"]["leak"][
        "runs"
    ] == 0


def test_every_quote_stands_in_its_step() -> None:
    long = "word " * 90
    runs = [
        run(n, (text, text, text), (text, text, text), end=text) for n, text in enumerate([*HOSTILE, long, "x" * 999])
    ]
    judge = {"model": "m", "prompt_version": "3", "mode": "steps"}
    quoted = 0
    for t in runs:
        findings = [{"step": step.index, "verdict": "bad"} for step in t.steps]
        row = failures_of(
            t, Feedback.model_validate({"id": t.id, "status": "scored", "findings": findings, "judge": judge})
        )
        for m in row["mistakes"]:
            quoted += m["quote"] is not None
            assert m["quote"] is None or any(m["quote"] in text for text in texts_of(t.steps[m["step"] - 1]))
    assert quoted >= len(runs)


def test_two_sets_are_compared(tmp_path: Path) -> None:
    before = [run(n, *(REPEATS if n < 2 else (LOOK,))) for n in range(40)]
    now = [run(n, *(REPEATS if n < 20 else (LOOK,))) for n in range(40)]
    failures(before, tmp_path, "--model", "rules", name="before")
    found, _ = failures(now, tmp_path, "--model", "rules", "--against", tmp_path / "before-failures.jsonl", name="now")
    changes = found["against"]
    assert changes["repeat"]["value"] == 0.45 and changes["repeat"]["low"] > 0.2 and next(iter(changes)) == "repeat"
    assert changes["malformed_call"]["low"] < 0 < changes["malformed_call"]["high"]


def test_only_kinds_asked_in_both_sets_are_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Kinds that only the second set was asked about were reported as grown."""
    runs = [run(n, LOOK, end="Bonn") for n in range(9)]
    failures(runs, tmp_path, "--model", "rules", name="before")
    write_lines(tmp_path / "scored.jsonl", (json.dumps(feedback(t, (2, "bad", ""))) for t in runs))
    options = ("--scores", tmp_path / "scored.jsonl", "--against", tmp_path / "before-failures.jsonl")
    with caplog.at_level(logging.WARNING):
        found, rows = failures(runs, tmp_path, *options, "--html", tmp_path / "r.html")
    assert found["against"].keys() == set(PROVABLE) and found["kinds"]["wrong_answer"]["runs"] == 9
    (warning,) = [m for m in caplog.messages if "leaves out" in m]
    assert warning.count(",") == 8 and "wrong_answer" in warning
    for row in rows:
        del row["asked"]
    write_lines(tmp_path / "old.jsonl", map(json.dumps, rows))
    error = invoke(tmp_path / "runs.jsonl", "--model", "rules", "--against", tmp_path / "old.jsonl").exception
    assert isinstance(error, RRMError) and "run rrm failures again" in str(error)


def test_long_runs_of_many_short_loops_are_read_in_seconds() -> None:
    letter = random.Random(0).choice
    runs = [["a"] * 3000, [letter("ab") for _ in range(3000)]]
    for letters in runs:
        steps = [CanonicalStep("", (CanonicalCall(name, {}),), None, ()) for name in letters]
        began = time.process_time()
        found = loops(steps)
        assert found and time.process_time() - began < 2


def test_intervals() -> None:
    alone = share([True] * 15 + [False] * 133, [str(n) for n in range(148)])
    assert (alone.low, alone.high) == pytest.approx((0.0624, 0.1605), abs=1e-4)  # Newcombe 1998a, Wilson
    alike = share([True] * 40 + [False] * 40, [str(n // 8) for n in range(80)])  # ten questions, all attempts alike
    nine = 1.96 * (0.25 / 9 + 1.96**2 / 4 / 81) ** 0.5 / (1 + 1.96**2 / 9)
    assert alike.high - alike.low == pytest.approx(2 * nine, abs=1e-3)  # 80 runs say as much as nine
    assert share([False] * 10, list("abcdefghij")).high == pytest.approx(0.2775, abs=1e-4)
    # no effect can be estimated: as many runs as questions
    assert share([False] * 80, [str(n // 8) for n in range(80)]).high == pytest.approx(0.2775, abs=1e-4)
    assert share([True] * 80, [str(n // 8) for n in range(80)]).low == pytest.approx(1 - 0.2775, abs=1e-4)
    one = share([True] * 5 + [False] * 5, ["q"] * 10)
    assert one.value == 0.5 and one.low < 0.1 and one.high > 0.9
    apart = difference(
        share([True] * 48 + [False] * 32, [str(n) for n in range(80)]),
        share([True] * 56 + [False] * 14, [str(n) for n in range(70)]),
    )
    assert (apart["low"], apart["high"]) == pytest.approx((0.0524, 0.3339), abs=1e-3)  # Newcombe 1998b, 56/70 − 48/80


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--model", "rules", "--by", "colour"), "--by colour: no run has such a field; model, task and tool are known"),
        (("--model", "rules", "--escalate", "openai:http://x#m"), "leave out one of the two"),
        (("--categories", "kinds.yaml"), "only a chat judge knows 'repeet'; did you mean repeat?"),
        (("--categories", "list.yaml", "--model", "rules"), "expected keys such as"),
        (("--criteria", "tool-use"), "give yours as --categories"),
        (("--scores", "runs.jsonl", "--model", "lab"), "leave out --model"),
        (("--scores", "runs.jsonl"), "a row of `rrm score`"),
        (("--against", "runs.jsonl", "--model", "rules"), "not a row of `rrm failures`"),
        (("--against", "none.jsonl", "--model", "rules"), "none.jsonl"),
    ],
)  # fmt: skip
def test_bad_input_is_named_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl("runs.jsonl", [run(0, LOOK)])
    Path("kinds.yaml").write_text("repeet: does it again\n")
    Path("list.yaml").write_text("- a\n")
    error = invoke("runs.jsonl", "-o", "out.jsonl", *options).exception
    assert isinstance(error, RRMError) and says in str(error) and "\n" not in str(error)
    assert not Path("out.jsonl").exists()


def test_a_terminal_gets_a_table_without_control_characters(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "runs.jsonl", [run(0, ("\x1b[2Jevil", "a", "b"), ("\x1b[2Jevil", "a", "b"))])
    command = [sys.executable, "-m", "rrm", "failures", "runs.jsonl", "-o", "out.jsonl", "--model", "rules"]
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, cwd=tmp_path, env=env)
    os.close(theirs)
    said = os.read(ours, 10_000).decode()
    assert done.returncode == 0 and "repeat" in said and r"\x1b[2Jevil" in said
    assert (
        "\x1b" not in said
        and "100.0%" in said
        and "1 of 1" in said
        and "runs with it" in said
        and "mistakes without a step: 0" in said
        and "{" not in said
    )


def test_a_bar_leads_to_the_step_and_nothing_executes(browser: Chromium, tmp_path: Path) -> None:
    runs = [run(n, *((text, "a", text),) * 3) for n, text in enumerate(HOSTILE)] + [run(99, LOOK)]
    failures(runs, tmp_path, "--model", "rules", "--html", tmp_path / "r.html", "--by", "tool")
    browser.open((tmp_path / "r.html").as_uri())
    browser.wait("document.querySelector('.kind')")
    assert browser.evaluate("document.querySelectorAll('.kind > summary .whisker').length") == 1
    fills = "Array.from(document.querySelectorAll('.kind .fill'), (bar) => bar.style.width)"
    assert browser.evaluate(fills) == [f"{100 * round(len(HOSTILE) / (len(HOSTILE) + 1), 4):g}%"] * 2  # of 0 to 100 %
    assert browser.evaluate("document.querySelectorAll('.kind-names .axis').length") == 2
    names = "Array.from(document.querySelectorAll('.kind-names'), (line) => line.textContent)"
    assert [line.split("interval")[1] for line in browser.evaluate(names)] == [
        "runs with itfirst step, median", "of runscommonest mistake",
    ]  # fmt: skip
    shown = "Array.from(document.querySelectorAll('.filters .field:not([hidden])'), (field) => field.firstElementChild?.textContent ?? '')"
    assert "Kind" in browser.evaluate(shown) and "Score" not in browser.evaluate(shown)
    assert browser.evaluate("getComputedStyle(judged.closest('label')).display") == "none"
    assert browser.evaluate("sort.value") == "bad true" and "Scored" not in browser.evaluate("list.textContent")
    assert browser.evaluate("Array.from(answer.options, (option) => option.text)") == ["any", "repeat"]
    asked = f"{len(HOSTILE)} of {len(HOSTILE) + 1} runs"
    assert asked in browser.evaluate("document.querySelector('.kind > summary').textContent")
    browser.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    browser.evaluate("document.querySelector('.clearest > p .link').click()")
    browser.wait(f"tally.textContent === '{len(HOSTILE)} of {len(HOSTILE) + 1} transcripts'")
    browser.evaluate("document.querySelector('.clearest ol .link').click()")
    browser.wait("document.activeElement.id === 'step-2'")
    assert "repeat: makes the same call again" in browser.evaluate(
        "document.querySelector('#step-2 .finding').textContent"
    )
    assert browser.evaluate("document.title") != "pwned" and not complaints(browser)


def test_what_a_small_judge_is_unsure_of_a_chat_judge_names(tmp_path: Path) -> None:
    answers = {kind: {"why": "", "steps": [], "answer": "no"} for kind in MISTAKE_KINDS}
    answers["wrong_answer"] = {"why": '"Bonn" is not what came back', "steps": [2], "answer": "yes"}
    with serve(lambda n, body: completion(json.dumps({"answers": answers}))) as server:
        judge = ("--model", "small", "--escalate", f"openai:{server.url}#m")
        found, rows = failures([run(0, LOOK, end="Bonn")], tmp_path, *judge)
        assert len(server.requests) == 1
    assert [(m["step"], m["kind"], m["by"], m["quote"]) for m in rows[0]["mistakes"]] == [
        (2, "wrong_answer", "judge", "Bonn")
    ]
    assert found["unsure_runs"] == 0
