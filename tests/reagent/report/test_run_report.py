"""The training report: what its tables hold, which transcripts it shows and that hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from report_runs import EVIL, Command, Page, files, judged, make_run, page_of, transcript, write_rows

from benchmarks.speed.devtools import Chromium, find_chromium
from reagent.report import read_policy, read_runs, write_page
from reagent.report.curves import COLOURS, draw, look, running_mean
from reagent.report.examples import JudgedAttempt, PolicyAttempts, choose, parse_policy
from rrm.data.trajectory import Message, ToolCall, Trajectory, write_jsonl
from rrm.errors import ConfigError, ReadError, RRMError

# ---- runs ----


def test_the_table_holds_each_runs_figures(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "none" / "seed0"),
        make_run(tmp_path / "u" / "seed0", mode="u", algorithm="ppo", updates=2, seed=4),
    ]
    (runs[0] / "done.json").write_text('{"seconds": 306.0}')
    page = page_of(tmp_path, read_runs(runs))
    assert page.row("Runs", 1) == {
        "run": "none/seed0", "feedback mode": "none", "algorithm": "grpo",
        "held-out success": "0.745 [0.680, 0.805]200 questions", "1 hop": "1.00", "2 hops": "0.50", "10 hops": "0.12",
        "episodes": "192", "updates": "3", "judge tokens": "–", "critiques (dropped)": "–", "minutes": "5.1",
        "environment": "search, seed 0", "files": "config.yaml metrics.jsonl eval.jsonl",
    }  # fmt: skip
    second = page.row("Runs", 2)
    assert (second["run"], second["feedback mode"], second["algorithm"]) == ("u/seed0", "u", "ppo")
    assert (second["episodes"], second["updates"], second["judge tokens"]) == ("128", "2 of 3", "2,000")
    assert second["critiques (dropped)"] == "32 (2)" and second["environment"] == "search, seed 4"
    assert second["minutes"] == "1.2*" and "Minutes of the updates alone" in page.text


def test_a_distillation_is_no_unfinished_run_of_its_configs_algorithm(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / name, mode="u", algorithm="ppo", max_updates=24, distil={"by": "judge"}, seed=seed)
        for seed, name in enumerate(("trained", "distilled"))
    ]
    folder = runs[1]
    write_rows(folder / "metrics.jsonl", [{"update": n, "nll": 0.5, "tokens": 10.0} for n in range(3)])
    write_rows(folder / "eval.jsonl", [{"update": n, "success": {"value": 0.25}, "tasks": 8} for n in (-1, 2)])
    write_rows(folder / "chosen.jsonl", [])
    (folder / "choice.json").write_text('{"keys": [], "scores": [], "tasks": 7, "judge_tokens": 4321}\n')
    for file_name, count in enumerate((3, 2)):
        write_rows(folder / f"episodes-{file_name:04d}.jsonl", [{}] * count)
    trained, distilled = read_runs(runs)
    assert distilled.setting != trained.setting
    row = page_of(tmp_path, [trained, distilled]).row("Runs", 2)
    cells = [row[name] for name in ("algorithm", "feedback mode", "updates", "episodes", "judge tokens")]
    assert cells == ["distil (by judge)", "none", "3", "5", "4,321"]
    assert row["held-out success"] == "0.2508 questions"
    for file_name in folder.glob("episodes-*"):
        file_name.unlink()
    assert read_runs([folder])[0].episodes is None
    (folder / "choice.json").write_text("{")
    with pytest.raises(ReadError, match=r"choice\.json: not JSON"):
        read_runs([folder])


def test_names_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / name) for name in ("a/x/seed0", "b/x/seed0", "b/x/seed1")]
    assert [r.name for r in read_runs(folders)] == ["a/x/seed0", "b/x/seed0", "seed1"]


def test_what_a_run_lacks_is_left_out_and_said(tmp_path: Path, run: Path) -> None:
    (run / "eval.jsonl").unlink()
    (run / "done.json").write_text("90.0")
    with open(run / "metrics.jsonl", "a") as out:
        out.write('{"update": 3, "epis')  # being written
    (recorded,) = read_runs([run])
    assert len(recorded.rows) == 3 and recorded.minutes == (1.5, True)
    page = page_of(tmp_path, [recorded])
    assert page.row("Runs", 1)["held-out success"] == "–"
    assert "1 of the runs has no held-out evaluation" in page.text
    assert "The judge" not in page.text.split("Curves")[0] and "Transcripts" not in page.text


def test_an_evaluation_before_the_end_says_when(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    write_rows(run / "eval.jsonl", [{"episodes": 64, "success": {"value": 0.5, "low": None, "high": None}}])
    assert page_of(tmp_path, read_runs([run])).row("Runs", 1)["held-out success"] == "0.500after 64 episodes"


@pytest.mark.parametrize(
    ("ungraded", "text"),
    [(0, "200 questions"), (180, "20 of 200 questions graded"), (200, "none of 200 questions graded")],
)
def test_success_is_said_of_the_questions_that_are_graded(tmp_path: Path, ungraded: int, text: str) -> None:
    run = make_run(tmp_path / "run")
    value = {"value": 0.5 if ungraded < 200 else None, "low": None, "high": None}
    write_rows(run / "eval.jsonl", [{"episodes": 192, "tasks": 200, "ungraded_tasks": ungraded, "success": value}])
    success = "–" if ungraded == 200 else "0.500"
    assert page_of(tmp_path, read_runs([run])).row("Runs", 1)["held-out success"] == success + text


def test_what_judges_read_for_the_guards_counts_as_judge_tokens(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", mode="r", updates=2)
    rows = [
        json.loads(line) | {"auditor/judge_tokens": 300.0} for line in (run / "metrics.jsonl").read_text().splitlines()
    ]
    write_rows(run / "metrics.jsonl", rows)
    write_rows(run / "eval.jsonl", [{"update": n, "tasks": 200, "judge_tokens": 5000} for n in (-1, 1)])
    assert read_runs([run])[0].judge_tokens == 2 * 1000 + 2 * 300 + 2 * 5000


def test_different_environments_are_pointed_out(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, environment={"name": name}) for name in ("search", "calculator")]
    assert "different environments ( calculator, search )" in page_of(tmp_path, read_runs(runs)).text


def test_numbers_that_are_none_are_no_figures(tmp_path: Path, run: Path) -> None:
    rows = [{"update": 0, "episodes": 64, "episode/success": None, "episode/reward": True, "time/update_s": "long"}]
    more = '{"update": 1, "episodes": 128, "episode/reward": NaN}\n'
    (run / "metrics.jsonl").write_text(json.dumps(rows[0]) + "\n" + more)
    write_rows(run / "eval.jsonl", [{"success": {"value": "high"}, "success_by_hops": [1]}])
    (recorded,) = read_runs([run])
    assert recorded.series("episode/reward") == [] and recorded.minutes == (None, False)
    assert draw([recorded]) == []
    assert 'id="curves"' not in page_of(tmp_path, [recorded]).source


# ---- curves ----


def test_curves_carry_every_run_and_repeat_to_the_byte(tmp_path: Path) -> None:
    runs = read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b", mode="u")])
    panels = draw(runs)
    assert [p.title for p in panels] == ["Success", "Environment reward", "The judge's score"]
    for panel in panels[:2]:
        assert COLOURS[0] in panel.svg and COLOURS[1] in panel.svg
    assert COLOURS[0] not in panels[2].svg and COLOURS[1] in panels[2].svg  # only run b asked a judge
    assert draw(runs) == panels
    everything = "".join(p.svg for p in panels)
    assert "style" not in everything and "metadata" not in everything and "currentColor" in everything
    ids = re.findall(r' id="([^"]+)"', everything)
    assert len(ids) == len(set(ids)) and set(re.findall(r'href="#([^"]+)"', everything)) <= set(ids)


def test_runs_beyond_the_colours_are_dashed() -> None:
    assert len({look(n) for n in range(24)}) == 24


def test_running_mean_is_of_the_last_values() -> None:
    assert running_mean([1.0, 2.0, 3.0, 4.0], window=2) == [1.0, 1.5, 2.5, 3.5]


# ---- the judge ----


def test_the_judges_figures_and_plot_are_shown(tmp_path: Path, run: Path, report: Command) -> None:
    figure = {"value": 0.7329, "low": 0.6941, "high": 0.7697}
    metrics = {
        "rows": 60, "scored_labelled": 58, "questions": 15, "status": {"scored": 58, "unparsable": 2},
        "metrics": {"judge": {"auroc": figure, "ece": figure, "ece_raw": figure, "new": figure}, "length": {"auroc": figure}},
        "steps": {"steps": 193, "metrics": {"judge": {"mcc": figure}, "all_bad": {"mcc": {"value": 0, "low": 0, "high": 0}}}},
        "format_validity": 0.975,
        "answer_leak": {"rate": 0.1, "leaks": 4, "rows": 40, "short_rate": None, "short_leaks": 0, "short_rows": 0},
        "judge": {"model": "/somewhere/deep/runs/lab/judge", "model_hash": "abc", "mode": "full"},
    }  # fmt: skip
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    png = b"\x89PNG\r\n\x1a\n" + b"picture"
    (tmp_path / "plot.png").write_bytes(png)
    page = tmp_path / "report.html"
    code, _, _ = report(run, "-o", page, "--judge", tmp_path / "metrics.json", "--reliability", tmp_path / "plot.png")
    parsed = Page(page)
    assert code == 0
    scores = parsed.tables["The judge's scores"]
    assert scores[0] == ["figure", "judge", "length alone"]
    assert [row[1:] for row in scores[1:]] == [
        ["0.733 [0.694, 0.770]", "0.733 [0.694, 0.770]"],
        ["0.733 [0.694, 0.770]", "–"],
        ["0.733 [0.694, 0.770]", "–"],
    ]
    assert parsed.tables["The judge's step verdicts"][1][1:] == ["0.733 [0.694, 0.770]", "0.000 [0.000, 0.000]"]
    assert "97.5 % of the replies" in parsed.text and "in 4 of 40 rows (10.0 %)" in parsed.text
    assert "58 scored, 2 unparsable" in parsed.text
    assert "Judge: lab/judge, abc, mode full ." in parsed.text and "/somewhere" not in parsed.source
    images = [attributes["src"] for tag, attributes in parsed.tags if tag == "img"]
    assert images == ["data:image/png;base64," + base64.b64encode(png).decode()]


# ---- transcripts ----


def test_examples_are_gained_then_lost_then_the_rest_in_file_order(tmp_path: Path) -> None:
    before = {"q0": 1.0, "q1": 1.0, "q2": 0.0, "q3": 0.0, "q4": 0.0, "q5": None, "only": 0.0}
    after = {"q5": 1.0, "q4": 1.0, "q3": 0.0, "q2": 1.0, "q1": 0.0, "q0": 1.0}
    policies = [read_policy(*files(tmp_path, "before", before)), read_policy(*files(tmp_path, "after", after))]
    choice = choose(policies, 6)
    assert [e.question for e in choice.examples] == [f"Who was q{n}?" for n in (2, 4, 1, 0, 3, 5)]
    counts = (choice.shared, choice.gained, choice.lost, choice.both, choice.neither, choice.unknown)
    assert counts == (6, 2, 1, 1, 1, 1)
    assert [e.question for e in choose(policies, 2).examples] == ["Who was q2?", "Who was q4?"]
    assert choose(policies[:1], 9).gained == 0 and choose(policies[:1], 9).shared == 7


def test_policies_stand_side_by_side_with_findings_under_their_steps(tmp_path, run, report) -> None:
    page = tmp_path / "report.html"
    policies = [files(tmp_path, "before", {"q": 0.0, "r": 1.0}), files(tmp_path, "after", {"q": 1.0, "r": 1.0})]
    options = [argument for name, *paths in policies for argument in ("--policy", f"{name}={paths[0]},{paths[1]}")]
    code, summary, _ = report(run, "-o", page, *options, "--examples", "1", "--title", "Mine")
    assert code == 0
    assert summary == {"report": str(page), "runs": ["one (none, grpo)"], "policies": ["before", "after"], "questions": 2, "examples": 1}  # fmt: skip
    parsed = Page(page)
    assert "<h1><bdi>Mine</bdi></h1>" in parsed.source
    assert parsed.row("Policies", 2) == {
        "policy": "after", "transcripts": "2", "success": "1.000", "mean score of successes": "0.250",
        "mean score of failures": "–", "without a score": "0",
    }  # fmt: skip
    left, right = parsed.source.split("<article>")[1:]
    assert ">failed<" in left and ">succeeded<" in right
    for side, name in ((left, "before"), (right, "after")):
        steps = side.split('<li class="step">')[1:]
        assert len(steps) == 2 and f"result {name} says" in steps[0] and "asks too little of q" in steps[0]
        assert f"{name} says" in steps[1] and "asks too little" not in steps[1]
        assert "judge&#39;s score 0.25" in side
    assert "after succeeds where before fails in 1 , the reverse in 0 , both succeed in 1" in parsed.text


def test_results_stand_in_the_order_of_their_calls(tmp_path: Path, run: Path) -> None:
    calls = [ToolCall(id=f"c{n}", name="look", arguments={"at": n}) for n in range(3)]
    answers = [Message(role="tool", tool_call_id=f"c{n}", content=f"thing {n}") for n in (2, 0)]
    message = Message(role="assistant", content="I look.", tool_calls=calls)
    messages = [Message(role="user", content="What is there?"), message, *answers]
    attempt = JudgedAttempt(Trajectory(id="p", task="What is there?", messages=messages, outcome=1.0), None)
    page = page_of(tmp_path, read_runs([run]), policies=[PolicyAttempts("one", [attempt], 0, 0)])
    (step,) = page.source.split('<li class="step">')[1:]
    labels = [f"result of call {n}: look" for n in (1, 2, 3)]
    order = [step.index(text) for text in (labels[0], "thing 0", labels[1], "(no result)", labels[2], "thing 2")]
    assert order == sorted(order)


def test_the_first_attempt_at_a_question_stands_for_it(tmp_path: Path, run: Path) -> None:
    attempts = [transcript("q", 0.0, id="q/0"), transcript("q", 1.0, id="q/1")]
    write_jsonl(tmp_path / "t.jsonl", attempts)
    scored = write_rows(tmp_path / "f.jsonl", [judged(t) for t in attempts])
    policy = read_policy("p", tmp_path / "t.jsonl", scored)
    assert policy.by_question["q"].trajectory.id == "q/0" and policy.by_question["q"].further == 1
    assert "The first of 2 attempts at this question." in page_of(tmp_path, read_runs([run]), policies=[policy]).text


def test_rows_that_match_nothing_or_another_text_are_counted(tmp_path: Path, run: Path) -> None:
    outcomes: dict[str, float | None] = {"q": 1.0, "r": 0.0}
    name, transcripts, feedback = files(tmp_path, "p", outcomes)
    rows = [json.loads(line) for line in feedback.read_text().splitlines()]
    rows[1]["source"]["digest"] = "0" * 16  # written on another policy's attempt at r
    write_rows(feedback, [*rows, rows[0] | {"id": "elsewhere"}])
    policy = read_policy(name, transcripts, feedback)
    assert (policy.unmatched, policy.mistaken) == (1, 1)
    assert [a.feedback is None for a in policy.attempts] == [False, True]
    text = page_of(tmp_path, read_runs([run]), policies=[policy]).text
    assert "p : 1 of the judge's rows matches no transcript." in text
    assert "p : 1 of the judge's rows was written on another text with the same id and is left out." in text
    assert "not judged" in text


def test_a_row_without_a_score_says_why_and_shows_no_number(tmp_path: Path, run: Path) -> None:
    t = transcript("q", 0.4)
    write_jsonl(tmp_path / "t.jsonl", [t])
    row = judged(t, 0.9, status="truncated", reason="ran out of room", findings=[], critique="All in all poor.", truncated_tokens=1200)  # fmt: skip
    write_rows(tmp_path / "f.jsonl", [row | {"trace": "It searches."}])
    text = page_of(
        tmp_path, read_runs([run]), policies=[read_policy("p", tmp_path / "t.jsonl", tmp_path / "f.jsonl")]
    ).text
    assert "no score: truncated (ran out of room)" in text and "0.9" not in text.split("side by side")[1]
    assert "All in all poor." in text and "It searches." in text and "did not see 1,200 tokens" in text
    assert "failed (outcome 0.40)" in text


def test_long_texts_are_folded_and_whole(tmp_path: Path, run: Path) -> None:
    long = "word " * 500 + "END"
    t = transcript("q", 1.0, text=long)
    write_jsonl(tmp_path / "t.jsonl", [t])
    write_rows(tmp_path / "f.jsonl", [judged(t)])
    source = page_of(
        tmp_path, read_runs([run]), policies=[read_policy("p", tmp_path / "t.jsonl", tmp_path / "f.jsonl")]
    ).source
    assert source.count('<details class="long">') == 4 and f"result {long}" in source


# ---- security ----


def hostile_page(folder: Path) -> Path:
    """A page with hostile text in every place that comes from outside (a folder's name can hold no slash or NUL)."""
    name = EVIL.replace("/", "").replace("\x00", "").replace("\ud800", "")
    run = make_run(folder / name, mode=EVIL[:-2], algorithm=EVIL[:-2], environment={"name": EVIL[:-2]})
    evaluation = {"success": {"value": 1, "low": 1, "high": 1}, "success_by_hops": {EVIL: {"value": 1}}}
    write_rows(run / "eval.jsonl", [evaluation])
    t = transcript(EVIL, 1.0, text=EVIL)
    t.messages[1].tool_calls = [ToolCall(name=EVIL, arguments=EVIL)]
    t.messages[2].name = EVIL
    write_jsonl(folder / "t.jsonl", [t])
    findings = [{"step": n, "verdict": "bad", "text": EVIL} for n in (1, 9)]
    write_rows(folder / "f.jsonl", [judged(t, critique=EVIL, trace=EVIL * 20, findings=findings)])
    metrics = {"metrics": {"judge": {"auroc": {"value": 1}}, EVIL: {}}, "judge": {"model": EVIL}, "status": {EVIL: 1}}
    (folder / "m.json").write_text(json.dumps(metrics))
    policy = read_policy(EVIL, folder / "t.jsonl", folder / "f.jsonl")
    path = folder / "report.html"
    write_page(path, read_runs([run]), judge=folder / "m.json", policies=[policy], title=EVIL)
    return path


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    page = Page(hostile_page(tmp_path))
    assert not {tag for tag, _ in page.tags} & {"script", "img", "iframe", "link", "object", "base"}
    assert sum(tag == "style" for tag, _ in page.tags) == 1
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on") or a == "style"]
    assert page.text.count("<script>document.title='pwned'</script>") > 15
    assert "49" not in page.text.split("Transcripts side by side")[1] and "{{ 7*7 }}" in page.text


def test_the_policy_names_the_style_and_nothing_else(tmp_path: Path, run: Path) -> None:
    page = page_of(tmp_path, read_runs([run]))
    policy = next(str(a["content"]) for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    style = re.search(r"<style>(.*?)</style>", page.source, re.DOTALL)
    assert style is not None
    digest_of = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; img-src data:; style-src 'sha256-{digest_of}'; base-uri 'none'")
    assert "script-src" not in policy and "unsafe" not in policy
    assert page.source.index("Content-Security-Policy") < page.source.index("<title>")
    assert not re.search(r"(src|href)=\"(?!data:|#|\./)", page.source)


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium here")
def test_a_browser_runs_nothing_and_scrolls_no_page_sideways(tmp_path: Path) -> None:
    path = hostile_page(tmp_path)
    with Chromium() as page:
        page.open(path.as_uri())
        for width in (390, 1400):
            page.resize(width, 900)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("document.title").startswith("</style><script>")
        assert page.evaluate("getComputedStyle(document.querySelector('.scroll')).overflowX") == "auto"
        assert not [e for e in page.events if e.get("method") == "Log.entryAdded"]  # nothing was refused or thrown


def test_the_same_inputs_make_the_same_page(tmp_path: Path, run: Path) -> None:
    name, transcripts, feedback = files(tmp_path, "p", {"q": 1.0})
    pages = []
    for n in range(2):
        policy = read_policy(name, transcripts, feedback)
        write_page(tmp_path / f"{n}.html", read_runs([run]), policies=[policy])
        pages.append((tmp_path / f"{n}.html").read_bytes())
    assert pages[0] == pages[1]


@pytest.mark.parametrize("text", ["p", "p=a.jsonl", "=a.jsonl,b.jsonl", "p=a,b,c", "p=,b", "p=a,", " =a,b"])
def test_a_malformed_policy_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write NAME=TRANSCRIPTS.jsonl,FEEDBACK.jsonl"):
        parse_policy(text)


def test_a_policys_name_may_hold_spaces() -> None:
    assert parse_policy("after RL = t.jsonl, f.jsonl") == ("after RL", Path("t.jsonl"), Path("f.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (["nowhere"], "nowhere is not a folder: give a run folder of `reagent train`"),
        (["."], "looked for config.yaml and metrics.jsonl, found no config.yaml and no metrics.jsonl"),
        (["half"], "found no metrics.jsonl"),
        (["empty"], "empty/metrics.jsonl is empty: the run has not finished its first update"),
        (["broken"], "broken/metrics.jsonl:1: not a row of metrics: no JSON object"),
        (["judgerun"], "config.yaml is no config of `reagent train`: it has no `algorithm`"),
        (["one", "./one/"], "is given twice"),
        (["one", "p=t.jsonl,f.jsonl"], "write --policy before each NAME="),
        (["one", "--judge", "gone.json"], "gone.json: cannot be opened: No such file"),
        (["one", "--judge", "t.jsonl"], "t.jsonl is not what `rrm eval -o` writes"),
        (["one", "--judge", "one/config.yaml"], "one/config.yaml: not JSON"),
        (["one", "--reliability", "gone.png"], "gone.png: cannot be opened"),
        (["one", "--reliability", "t.jsonl"], "t.jsonl is not a PNG"),
        (["one", "--policy", "p"], "--policy 'p': write NAME="),
        (["one", "--policy", "p=t.jsonl,f.jsonl", "--policy", "p=t.jsonl,f.jsonl"], "two policies are called 'p'"),
        (["one", "--policy", "p=gone.jsonl,f.jsonl"], "gone.jsonl: cannot be opened"),
        (["one", "--policy", "p=t.jsonl,gone.jsonl"], "gone.jsonl: cannot be opened"),
        (["one", "--policy", "p=f.jsonl,t.jsonl"], "f.jsonl:1: not a canonical trajectory"),
        (["one", "--policy", "p=nothing.jsonl,f.jsonl"], "nothing.jsonl has no transcripts"),
        (["one", "--policy", "p=twice.jsonl,f.jsonl"], "1 ids occur more than once, e.g. 'q/0'"),
        (["one", "--policy", "p=t.jsonl,other.jsonl"], "none of the 1 rows in other.jsonl matches a transcript"),
        (["one", "--policy", "p=t.jsonl,anotherstext.jsonl"], "1 of them have its ids but were written on other texts"),
        (["one", "--policy", "p=t.jsonl,noid.jsonl"], "not a row of `rrm score`: no text `id`"),
        (["one", "--policy", "p=t.jsonl,norow.jsonl"], "row 'q/0' is not an output row of `rrm score`: status"),
        (["one", "--policy", "p=t.jsonl,f.jsonl", "--policy", "o=u.jsonl,g.jsonl"], "no question was attempted by all of"),
        (["one", "--policy", "p=t.jsonl,report.html"], "report.html is one of the inputs"),
    ],
)  # fmt: skip
def test_errors_are_clear_and_leave_no_page(tmp_path, monkeypatch, report, arguments, error_text) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "half", "empty", "broken", "judgerun"):
        make_run(tmp_path / name)
    (tmp_path / "half" / "metrics.jsonl").unlink()
    (tmp_path / "empty" / "metrics.jsonl").write_text("\n")
    (tmp_path / "broken" / "metrics.jsonl").write_text("[1]\n{}\n")
    (tmp_path / "judgerun" / "config.yaml").write_text("model: {base: lab}\n")
    t, other = transcript("q", 1.0), transcript("other", 1.0)
    write_jsonl(tmp_path / "t.jsonl", [t])
    write_jsonl(tmp_path / "u.jsonl", [other])
    write_jsonl(tmp_path / "twice.jsonl", [t, t])
    (tmp_path / "nothing.jsonl").write_text("")
    write_rows(tmp_path / "f.jsonl", [judged(t)])
    write_rows(tmp_path / "g.jsonl", [judged(other)])
    write_rows(tmp_path / "other.jsonl", [judged(other)])
    write_rows(tmp_path / "anotherstext.jsonl", [judged(other) | {"id": t.id}])
    write_rows(tmp_path / "noid.jsonl", [{"status": "scored"}])
    write_rows(tmp_path / "norow.jsonl", [{"id": t.id}])
    code, out, error = report(*arguments, "-o", "report.html")
    assert code == 2 and not out and error.startswith("error: ") and error_text in error, error
    assert "Traceback" not in error
    assert not list(tmp_path.glob("report.html*"))


def test_a_page_that_cannot_be_written_is_an_error_and_an_old_page_stays(tmp_path: Path, run: Path) -> None:
    runs = read_runs([run])
    with pytest.raises(RRMError, match=r"cannot write .*report.html: No such file or directory"):
        write_page(tmp_path / "nowhere" / "report.html", runs)
    page = tmp_path / "report.html"
    page.write_text("old")
    with pytest.raises(RRMError, match="cannot be opened"):
        write_page(page, runs, judge=tmp_path / "gone.json")
    assert page.read_text() == "old" and not list(tmp_path.glob("*.part"))
    link = tmp_path / "link.html"
    link.symlink_to(page)
    write_page(link, runs)
    assert link.is_symlink() and page.read_text().startswith("<!doctype html>")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", page / "report.html"):
        with pytest.raises(RRMError, match="cannot write"):
            write_page(target, runs)
    assert not list(tmp_path.glob("*.part"))


def guarded(folder: Path, text: str = "the score moved, success did not") -> Path:
    """A run whose evaluations were judged, and that a guard stopped."""
    run = make_run(folder, mode="r")
    means = [{"value": v, "low": None, "high": None} for v in (0.3, 0.7, 0.2)]
    rows = [
        {"update": n, "episodes": 64 * (n + 1), "success": means[0], "score": means[1], "auditor": means[2]}
        for n in (-1, 2)
    ]
    write_rows(run / "eval.jsonl", rows)
    write_rows(run / "guards.jsonl", [
        {"update": -1, "episodes": 0, "guard": "auditor", "action": "warn", "text": "they part ways"},
        {"update": 1, "episodes": 128, "guard": "length", "action": "warn", "text": "longer"},
        {"update": 2, "episodes": 192, "guard": "drift", "action": "stop", "text": text},
    ])  # fmt: skip
    return run


def test_success_stands_beside_score_and_guards_that_fired_are_marked(tmp_path: Path) -> None:
    page = page_of(tmp_path, read_runs([guarded(tmp_path / "gamed"), make_run(tmp_path / "plain", mode="r")]))
    assert page.tables["Guards"] == [
        ["run", "guard", "it", "after update", "what it saw"],
        ["gamed", "auditor", "warned", "before the first", "they part ways"],
        ["gamed", "length", "warned", "1", "longer"],
        ["gamed", "drift", "stopped the run", "2", "the score moved, success did not"],
    ]
    assert "Success beside the judge's score" in page.text and "a judge being gamed" in page.text
    svg = next(p.svg for p in draw(read_runs([tmp_path / "gamed"])) if p.title.startswith("Success beside"))
    plain = next(p.svg for p in draw(read_runs([tmp_path / "gamed"])) if p.title == "Success")
    assert svg.count('stroke-opacity="0.55"') == 3 and plain.count('stroke-opacity="0.55"') == 0  # an upright line each


def test_without_judged_evaluations_success_stands_beside_scores_of_one_calibration(tmp_path: Path) -> None:
    """Under feedback.recalibrate `feedback/score` is of another map after each refit."""
    drawn = []
    for name, paid, own in (("refit", 0.9, 0.5), ("own", 0.5, None)):
        run = guarded(tmp_path / name)
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        more = {} if own is None else {"feedback/own_score": own}
        write_rows(run / "metrics.jsonl", [row | {"feedback/score": paid} | more for row in rows])
        rows = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
        write_rows(run / "eval.jsonl", [{k: v for k, v in row.items() if k != "score"} for row in rows])
        drawn.append(next(p.svg for p in draw(read_runs([run])) if p.title.startswith("Success beside")))
    assert drawn[0] == drawn[1]


def test_runs_without_guards_have_no_such_drawing(tmp_path: Path, run: Path) -> None:
    page = page_of(tmp_path, read_runs([run]))
    assert "Guards" not in page.tables and "Success beside" not in page.text


def test_what_a_guard_saw_is_text(tmp_path: Path) -> None:
    page = page_of(tmp_path, read_runs([guarded(tmp_path / "gamed", EVIL)]))
    assert "<script" not in page.source and "49" not in page.tables["Guards"][3][4]


def asked_criteria(folder: Path, criteria: Any, stage: float | None = None) -> Path:
    """A run whose judge was asked criteria, at last those of a stage."""
    run = make_run(folder, mode="r")
    tree = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(tree | {"feedback": {"mode": "r", "criteria": criteria}}))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    more = {"feedback/judged": 64.0} | ({} if stage is None else {"feedback/criteria_stage": stage})
    write_rows(run / "metrics.jsonl", [row | more for row in rows])
    rows = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
    write_rows(run / "eval.jsonl", [row | {"score": {"value": 0.5}} for row in rows])
    return run


@pytest.mark.parametrize(
    ("criteria", "text"),
    [
        ("tool-use", ", criteria tool-use"),
        ([{"from": 0, "file": "a.yaml"}, {"from": 8, "file": "b.yaml"}], ", criteria a.yaml, from update 8 b.yaml"),
        ([{"from": 0, "file": "<b>a"}], ", criteria <b>a"),
        (None, ""),
        ([3, None], ""),
    ],
)
def test_the_table_says_which_criteria_judged(tmp_path: Path, criteria: Any, text: str) -> None:
    page = page_of(tmp_path, read_runs([asked_criteria(tmp_path / "run", criteria)]))
    assert page.row("Runs", 1)["environment"] == f"search, seed 0{text}" and "<b>a" not in page.source


def test_a_drawing_of_scores_says_that_criteria_changed(tmp_path: Path) -> None:
    stages = [{"from": 0, "file": "a.yaml"}, {"from": 2, "file": "b.yaml"}]
    for name, stage, changed in (("first", 0.0, False), ("second", 1.0, True)):
        (panel,) = [p for p in draw(read_runs([asked_criteria(tmp_path / name, stages, stage)])) if "beside" in p.title]
        assert ("its judge's score jumps, and guards begin anew" in panel.text) == changed


def test_criteria_of_a_run_that_asked_no_judge_are_not_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    tree = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(tree | {"feedback": {"mode": "none", "criteria": "tool-use"}}))
    assert [recorded.criteria for recorded in read_runs([run])] == [None]
