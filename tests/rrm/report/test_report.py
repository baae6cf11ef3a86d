"""The report page: what it holds, and that hostile transcripts stay text in it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_pages import HOSTILE, JUDGE, Page, hostile_pair, pair, parallel, written

from rrm.cli import report_cmd
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ReadError, RRMError
from rrm.prompt.rendering import observation_text
from rrm.report import write_report
from rrm.report.page import BLOCK_CHARS, embed_json
from rrm.report.rows import question


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
    page = written(tmp_path, [pair(0, out_of_domain=True, domain_distance=2.5), pair(1, outside=False), pair(2)])
    assert page.index["outside"] == [True, False, None]
    assert [d.get("distance") for d in page.details] == [2.5, None, None]


def test_outcome_question_times_and_the_worst_step_are_in_the_list(tmp_path: Path) -> None:
    pairs = [pair(n) for n in range(3)]
    findings = [{"step": 1, "verdict": "bad", "p_good": 0.25}, {"step": 2, "verdict": "good", "p_good": 0.5}]
    pairs[1][1]["findings"] = findings
    pairs[0][0].outcome, pairs[1][0].outcome = 1.0, 0.25
    pairs[1][0].question_id = "other"
    for at, message in enumerate(pairs[2][0].messages):
        message.timestamp = 100.0 + 2 * at
    index = written(tmp_path, pairs).index
    assert index["outcome"] == [1.0, 0.25, None]
    assert index["group"] == [0, 1, 0]
    assert index["lowest"] == [None, 0.25, None]
    assert index["seconds"] == [None, None, 6.0]


def test_results_stand_in_the_order_of_their_calls_as_the_judge_reads_them(tmp_path: Path) -> None:
    shown = written(tmp_path, [parallel()]).details[0]["steps"][0]["observations"]
    first, user, missing, last = shown
    assert (first["text"], user["role"], last["text"]) == ("3 degrees in the first", "user", "25 degrees in the third")
    assert missing == {"role": "tool", "missing": True, "name": "weather", "call": 2}
    assert (first["call"], last["call"], "call" in user) == (1, 3, False)
    read = observation_text(parallel()[0].steps[0]).splitlines()
    assert read == [
        "result: 3 degrees in the first",
        "user: Be quick.",
        "result: (no result)",
        "result: 25 degrees in the third",
    ]


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


def test_numbers_that_json_has_not_are_left_out(tmp_path: Path) -> None:
    """`json` reads NaN where a file has it; a page with it in would not open."""
    asked = {"extra_body": {"a": [float("nan"), 1.5]}}
    row = {"source": {"file": "a", "digest": float("inf")}, "judge": {**JUDGE, "request": asked}}
    (found,) = written(tmp_path, [pair(0, **row)]).details
    assert found["source"] == {"file": "a", "digest": None}
    assert found["judge"]["request"] == {"extra_body": {"a": [None, 1.5]}}


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


def test_a_judgement_stands_beside_what_was_judged_in_whichever_order_files_are_read(tmp_path: Path, invoke) -> None:
    """Two files whose ids are the same: each transcript had the other's verdict beside it."""
    files, scored, out = [tmp_path / f"{n}.jsonl" for n in range(2)], tmp_path / "scored.jsonl", tmp_path / "r.html"
    pairs = [pair(0, text=f"Looks into {n}.", critique=f"Looks into {n}.") for n in range(2)]
    for file, (trajectory, _) in zip(files, pairs, strict=True):
        write_jsonl(file, [trajectory])
    rows = [{**row, "id": f"run/0{'#2' * n}", "source": {"digest": t.digest}} for n, (t, row) in enumerate(pairs)]
    scored.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for named, lost in ((files, 0), (files[::-1], 0), (files[1:], 1)):
        code, summary = invoke(report_cmd.command, scored, "--transcripts", *named, "-o", out)
        assert (code, summary["without_transcript"]) == (lost, lost)
        shown = [d for d in Page(out).details if "steps" in d]
        assert len(shown) == 2 - lost
        assert [d["critique"] for d in shown] == [d["steps"][0]["message"]["text"] for d in shown]
    write_jsonl(files[0], [pair(0, text="Changed since.")[0]])
    code, summary = invoke(report_cmd.command, scored, "--transcripts", *files, "-o", out)
    assert (code, summary["without_transcript"], summary["transcripts_without_row"]) == (1, 1, 1)


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


@pytest.mark.parametrize("line", [b'{"id": "\xe9"}', b"[" * 100_000, b'{"id": 5}', b'"x"'])
def test_a_line_that_is_no_row_is_named(tmp_path: Path, invoke, line: bytes) -> None:
    scored = tmp_path / "scored.jsonl"
    scored.write_bytes(json.dumps(pair(0)[1]).encode() + b"\n" + line + b"\n")
    with pytest.raises(ReadError, match=r"scored\.jsonl:2: not"):
        invoke(report_cmd.command, str(scored), "-o", str(tmp_path / "report.html"))


@pytest.mark.parametrize("source", [{"file": 5}, {"file": ["a"]}, {"file": None}, [1], "a", 5])
def test_a_source_that_is_none_is_passed_over(tmp_path: Path, invoke, source: object) -> None:
    transcripts, scored, out = tmp_path / "runs.jsonl", tmp_path / "scored.jsonl", tmp_path / "report.html"
    write_jsonl(transcripts, [pair(1)[0]])
    scored.write_text(json.dumps({**pair(0)[1], "source": source}))
    code, summary = invoke(report_cmd.command, str(scored), "--transcripts", str(transcripts), "-o", str(out))
    assert code == 1 and summary["without_transcript"] == 1
    with pytest.raises(RRMError, match="names no transcript files: give the transcripts"):
        invoke(report_cmd.command, str(scored), "-o", str(out))
