"""ATIF, field by field. The file is written by Harbor's own models (`samples/README.md`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from log_rows import SAMPLES, in_file, read_lines, sent, talk
from typer.testing import CliRunner

from rrm.cli import convert_cmd
from rrm.data.feedback import Feedback, Finding, JudgeInfo
from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import atif, read, sniff
from rrm.readers.base import SourceItem
from rrm.readers.exports import to_atif
from rrm.readers.left import come_out_empty

SAMPLE = SAMPLES / "atif.json"
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "images/pond.png"}, "media_type": "image/png"}


def one(folder: Path, **fields: Any) -> Trajectory:
    own = {"schema_version": "ATIF-v1.2", "agent": {"name": "a", "version": "1"}}
    return in_file(folder / "run.dat", {**own, **fields})


def test_every_field_of_a_document() -> None:
    run, helper = read(SAMPLE)
    assert sent(run) == [
        {"role": "system", "content": "You watch birds.", "timestamp": "2026-01-02T03:04:05Z", "step_id": 1},
        {"role": "user", "content": [{"type": "text", "text": "How many herons are here?"}, IMAGE], "step_id": 2},
        {
            "role": "assistant", "content": "I look, and ask.", "reasoning_content": "Two ways to know.",
            "tool_calls": [
                {"name": "look", "arguments": {"at": "pond"}, "id": "c1"},
                {"name": "ask", "arguments": {"who": "counter"}, "id": "c2", "extra": {"retries": 1}},
            ],
            "timestamp": "2026-01-02T03:04:06Z", "step_id": 3, "model_name": "small-model", "reasoning_effort": "low",
            "metrics": {"prompt_tokens": 20, "completion_tokens": 9, "cost_usd": 0.001}, "llm_call_count": 1,
            "extra": {"note": "both"},
        },
        {"role": "tool", "content": [{"type": "text", "text": "A pond."}, IMAGE], "tool_call_id": "c1", "name": "look"},
        {
            "role": "tool", "content": "Four.", "tool_call_id": "c2", "name": "ask",
            "subagent_trajectory_ref": [{"trajectory_id": "helper-1"}], "extra": {"sure": True},
        },
        {"role": "system", "content": "The context was shortened.", "step_id": 4},
        {"role": "tool", "content": "Two messages left.", "name": "environment"},
        {"role": "assistant", "content": "Four herons.", "step_id": 5, "is_copied_context": False},
    ]  # fmt: skip
    assert run.id == "t-1" and run.task == "How many herons are here?" and run.tools == [LOOK]
    assert run.source and (run.outcome, run.source.outcome_field) == (1.0, "extra.reward")
    assert run.meta == {
        "schema_version": "ATIF-v1.8", "session_id": "s-1", "trajectory_id": "t-1",
        "agent": {"name": "watcher", "version": "2.1", "model_name": "small-model"}, "notes": "A made-up run.",
        "final_metrics": {"total_prompt_tokens": 20, "total_cost_usd": 0.001, "total_steps": 5},
        "extra": {"reward": 1.0}, "subagents": ["helper-1"],
    }  # fmt: skip
    assert helper.id == "helper-1" and helper.task == "Count the herons." and helper.outcome is None
    assert helper.meta["parent"] == {"trajectory_id": "t-1", "session_id": "s-1"} and len(helper.steps) == 1


def test_what_is_not_as_the_schema_has_it(tmp_path: Path) -> None:
    call = {"tool_call_id": 7, "function_name": "f", "arguments": "{broken"}
    step = {
        "source": "agent", "message": None, "tool_calls": [call], "observation": {"results": [{"source_call_id": "x"}]},
    }  # fmt: skip
    run = one(tmp_path, steps=[{"source": "user", "message": "q", "timestamp": 5, "odd": [1]}, step])
    assert sent(run) == [
        {"role": "user", "content": "q", "timestamp": "5", "odd": [1]},
        {"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{broken", "id": "7"}]},
        {"role": "tool", "tool_call_id": "x"},
    ]
    for wrong, reason in (
        ({"steps": [{"source": "robot", "message": ""}]}, r"steps\[0\].source is 'robot'; known: system, user, agent"),
        ({"steps": [7]}, r"steps\[0\] must be an object"),
        ({"steps": [{"source": "agent", "message": "", "tool_calls": 3}]}, "tool_calls must be a list"),
        ({"steps": [{"source": "agent", "message": "", "observation": []}]}, "a list of `results`"),
        ({"steps": []}, "no messages"),
    ):
        with pytest.raises(ReadError, match=reason):
            one(tmp_path, **wrong)


def test_the_outcome_only_where_an_extra_says_it(tmp_path: Path) -> None:
    steps = [{"source": "user", "message": "q"}]
    assert one(tmp_path, steps=steps, final_metrics={"extra": {"resolved": False}}).outcome == 0.0
    assert one(tmp_path, steps=steps, extra={"reward": 3}).outcome is None
    assert sniff({"schema_version": "ATIF", "steps": steps}) is None


JUDGE = JudgeInfo(model="m", prompt_version="7", mode="full")
APP = typer.Typer(pretty_exceptions_enable=False)
APP.command("convert")(convert_cmd.command)


def judged(run: Trajectory, *findings: Finding) -> Feedback:
    return Feedback(id=run.id, status="scored", score=0.8, raw_score=0.7, findings=list(findings), judge=JUDGE)


def made(*messages: dict[str, Any], **fields: Any) -> Trajectory:
    return Trajectory.model_validate({"id": "r", "messages": list(messages), **fields})


def again(document: dict[str, Any], folder: Path) -> Trajectory:
    return in_file(folder / "back.json", document)


def test_what_harbor_wrote_comes_back_field_by_field() -> None:
    expected = json.loads(SAMPLE.read_text())
    subagents = expected.pop("subagent_trajectories")
    run, helper = read(SAMPLE)
    document, sub = to_atif(run), to_atif(helper)
    ours = document["extra"].pop("agent_rrm")
    assert document == expected and ours["outcome"] == 1.0 and ours["meta"] == {"subagents": ["helper-1"]}
    assert sub["extra"].pop("agent_rrm")["meta"]["parent"] == {"trajectory_id": "t-1", "session_id": "s-1"}
    assert {**sub, "extra": {}} == {**subagents[0], "extra": {}}


def test_a_judges_figures_are_metrics_of_the_run_and_of_its_steps() -> None:
    run, _ = read(SAMPLE)
    findings = [
        Finding(step=1, verdict="good", p_good=0.9, text="asked"),
        Finding(step=2, verdict="bad"),
        Finding(step=9, verdict="bad"),
    ]
    document = to_atif(run, judged(run, *findings))
    assert document["final_metrics"]["total_steps"] == 5
    said = document["final_metrics"]["extra"]["agent_rrm"]
    assert (said["status"], said["score"], said["raw_score"], said["judge"]["model"]) == ("scored", 0.8, 0.7, "m")
    assert said["findings"] == [{"step": 9, "verdict": "bad", "text": ""}] and "id" not in said
    assert document["steps"][2]["metrics"] == {
        **{"prompt_tokens": 20, "completion_tokens": 9, "cost_usd": 0.001},
        "extra": {"agent_rrm": {"findings": [{"verdict": "good", "p_good": 0.9, "text": "asked"}]}},
    }
    assert document["steps"][4]["metrics"] == {"extra": {"agent_rrm": {"findings": [{"verdict": "bad", "text": ""}]}}}


def test_a_later_judge_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    run, _ = read(SAMPLE)
    first = to_atif(run, judged(run, Finding(step=1, verdict="bad"), Finding(step=2, verdict="bad")))
    back = again(first, tmp_path)
    second = to_atif(back, judged(back, Finding(step=2, verdict="good")))
    held = [s.get("metrics", {}).get("extra", {}).get("agent_rrm") for s in second["steps"]]
    assert held == [None, None, None, None, {"findings": [{"verdict": "good", "text": ""}]}]


def test_what_the_format_has_no_place_for_is_kept_and_comes_back(tmp_path: Path) -> None:
    run = made(
        {"role": "developer", "content": "Be brief.", "timestamp": 0},
        {"role": "user", "content": [{"type": "text", "text": "q"}, {"type": "input_file", "file_id": "f"}]},
        {
            "role": "assistant", "content": None,
            "tool_calls": [{"name": "f", "arguments": "{broken"}, {"name": "g", "id": "x", "arguments": {"a": 1}}],
            "timestamp": "yesterday", "odd": [1],
        },
        {"role": "user", "content": "Go on."},
        {"role": "tool", "tool_call_id": "x", "content": "late", "duration_s": 0.5},
        {"role": "tool", "tool_call_id": "gone", "content": None}, task="the task", question_id="q-7", outcome=0.25,
        meta={"agent": "a name", "metrics": 1, "extra": {"mine": 2}},
    )  # fmt: skip
    document = to_atif(run)
    system, user, agent, more = document["steps"]
    assert system == {
        **{"step_id": 1, "source": "system", "message": "Be brief.", "timestamp": "1970-01-01T00:00:00+00:00"},
        "extra": {"agent_rrm": {"role": "developer"}},
    }
    assert user["message"][1] == {"type": "text", "text": '{"type": "input_file", "file_id": "f"}'}
    assert agent["tool_calls"] == [
        {
            **{"tool_call_id": "call_3_1", "function_name": "f", "arguments": {}},
            "extra": {"agent_rrm": {"arguments": "{broken"}},
        },
        {"tool_call_id": "x", "function_name": "g", "arguments": {"a": 1}},
    ]
    assert agent["observation"]["results"] == [
        {"source_call_id": "x", "content": "late", "extra": {"agent_rrm": {"duration_s": 0.5}}}
    ]
    assert agent["extra"] == {"agent_rrm": {"odd": [1], "timestamp": "yesterday"}} and agent["message"] == ""
    assert more["observation"]["results"] == [{"extra": {"agent_rrm": {"tool_call_id": "gone"}}}]
    assert document["agent"] == {"name": "a name", "version": "unknown"}
    back = again(document, tmp_path)
    assert (back.id, back.task, back.question_id, back.outcome) == ("r", "the task", "q-7", 0.25)
    assert (back.messages[2].tool_calls or [])[0].arguments == "{broken"
    assert back.meta["metrics"] == 1 and back.meta["extra"] == {"mine": 2}
    assert to_atif(back)["steps"] == document["steps"]


TEXTS = st.sampled_from(["", "hi", " ", "a\nb", "\u2028", "\ud800 lone", "<b>&amp;</b>"]) | st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.sampled_from(["a", "extra", "agent_rrm"]), inside),
    max_leaves=4,
)
PARTS = st.sampled_from([
    {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
    {"type": "image_url", "image_url": {"url": "http://x/a.png", "detail": "low"}},
    {"type": "image_url", "image_url": "http://x/a.jpg", "media_type": "image/png"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}, "cache_control": {"type": "ephemeral"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}, "title": "t"},
    {"type": "audio", "source": {"path": "a.wav", "media_type": "audio/wav"}, "x": None},
    {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}, {"image_url": 3},
])  # fmt: skip
CALL_IDS = st.sampled_from(["c1", "c2", "call_2_1", "", "gone"])
CALLS = st.fixed_dictionaries(
    {"name": st.sampled_from(["f", "g", ""]), "arguments": st.sampled_from([{}, {"x": 1}, {"extra": {"y": 1}}, "", "{broken"])},
    optional={"id": CALL_IDS, "extra": VALUES, "status": VALUES, "agent_rrm": VALUES},
)  # fmt: skip
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool", "tool"])},
    optional={
        "content": st.none() | TEXTS | st.lists(PARTS, max_size=3),
        "reasoning_content": TEXTS,
        "tool_calls": st.lists(CALLS, max_size=3),
        "tool_call_id": CALL_IDS,
        "name": st.sampled_from(["f", "environment", ""]),
        "timestamp": st.sampled_from(["2024-01-01T00:00:00Z", 1700000000.25, 0, 1e300, "yesterday"]),
        "duration_s": st.sampled_from([0.5, 2]),
        **{name: VALUES for name in ("extra", "findings", "metrics", "step_id", "llm_call_count", "model_name", "is_copied_context", "odd", "is_error")},
    },
)  # fmt: skip


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(MESSAGES, min_size=1, max_size=6), st.booleans())
def test_every_run_comes_back_as_it_was_with_figures_and_without(messages: list[dict[str, Any]], scored: bool) -> None:
    assume(not come_out_empty(messages))  # such a document is refused: where its text stands is not known
    run = made(*messages, task="q", tools=[{"type": "function", "function": {"name": "f"}}])
    said = judged(run, Finding(step=1, verdict="bad"), Finding(step=2, verdict="good")) if scored else None
    document = json.loads(json.dumps(to_atif(run, said)))
    back = atif.parse(SourceItem(document, "f", 1))
    assert sent(back) == sent(run)
    assert back.digest == run.digest
    again = atif.parse(SourceItem(json.loads(json.dumps(to_atif(back, said))), "f", 1))
    assert again.digest == run.digest


def test_a_result_that_came_later_keeps_its_place(tmp_path: Path) -> None:
    run = made(
        {"role": "tool", "content": "before all"}, {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "slow", "arguments": {}, "id": "c1"}]},
        {"role": "user", "content": "any news?"}, {"role": "assistant", "content": "waiting"},
        {"role": "tool", "content": "done", "tool_call_id": "c1"}, {"role": "assistant", "content": "ok"},
    )  # fmt: skip
    document = to_atif(run)
    assert [r["content"] for r in document["steps"][2]["observation"]["results"]] == ["done"]  # as the format has it
    back = again(document, tmp_path)
    assert sent(back) == sent(run) and len(back.steps) == 3


def test_what_a_judge_found_is_read_back_and_changes_no_message(tmp_path: Path) -> None:
    run = made({"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "findings": [{"own": 1}]})
    back = again(to_atif(run, judged(run, Finding(step=1, verdict="bad"), Finding(step=4, verdict="good"))), tmp_path)
    assert back.digest == run.digest
    said = back.meta["final_metrics"]["extra"]["agent_rrm"]
    assert said["score"] == 0.8 and [(f["step"], f["verdict"]) for f in said["findings"]] == [(1, "bad"), (4, "good")]


def test_the_sources_own_words_under_our_name_come_back(tmp_path: Path) -> None:
    meta = {"extra": {"agent_rrm": {"question_id": "theirs"}, "mine": 1}}
    run = made(*talk("q", "a"), meta=meta, question_id="q1")
    back = again(to_atif(run), tmp_path)
    assert back.meta["extra"] == meta["extra"] and back.question_id == "q1"


def test_a_document_that_others_have_changed_is_read_as_it_stands(tmp_path: Path) -> None:
    run = made({"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "timestamp": 5})
    document = to_atif(run)
    assert "messages" in document["extra"]["agent_rrm"]
    document["steps"].append({"step_id": 3, "source": "user", "message": "why?"})
    assert [m.text() for m in again(document, tmp_path).messages] == ["q", "a", "why?"]


@pytest.mark.parametrize(("wrong", "reason"), [
    ({"edits": 3}, "must hold lists"), ({"edits": [[[0, "role"], "assistant"]]}, "may not change who spoke"),
    ({"edits": [[[0], None]]}, "may not change who spoke"),
    ({"edits": [[[7, "content"], "x"]]}, "there is no '7' to change"),
    ({"edits": [[[0, "content", 0], "x"]]}, "there is no '0' to change"),
    ({"edits": [[[True, "content"]]]}, "there is no 'True' to change"),
    ({"edits": [["content"]]}, r"a change is \[path\]"), ({"order": [0, 0]}, "each message once"),
    ({"order": [0, 2]}, "each message once"), ({"order": [0, [1]]}, "each message once"),
])  # fmt: skip
def test_changes_that_we_did_not_write_are_an_error(tmp_path: Path, wrong: dict[str, Any], reason: str) -> None:
    document = to_atif(made(*talk("q", "a")))
    held = document["extra"]["agent_rrm"]
    held["messages"] = {"of": held["messages"]["of"], **wrong}
    with pytest.raises(ReadError, match=f"extra.agent_rrm.messages.*{reason}"):
        again(document, tmp_path)


def test_a_documents_own_words_do_not_change_who_spoke(tmp_path: Path) -> None:
    document = to_atif(made(*talk("q", "a")))
    for step in document["steps"]:
        step["extra"] = {"agent_rrm": {"role": "developer" if step["source"] == "agent" else "assistant"}}
    assert [m.role for m in again(document, tmp_path).messages] == ["user", "assistant"]


def test_images_keep_their_place_or_become_text() -> None:
    def part(raw: dict[str, Any]) -> dict[str, Any]:
        return to_atif(made({"role": "user", "content": [raw]}))["steps"][0]["message"][0]

    def image(kind: str, path: str) -> dict[str, Any]:
        return {"type": "image", "source": {"media_type": kind, "path": path}}

    url = "data:image/webp;base64,AA=="
    assert part({"type": "image_url", "image_url": {"url": url}}) == image("image/webp", url)
    assert part({"type": "image_url", "image_url": "a/b.JPG?x=1"}) == image("image/jpeg", "a/b.JPG?x=1")
    source = {"type": "base64", "media_type": "image/png", "data": "AA"}
    assert part({"type": "image", "source": source}) == image("image/png", "data:image/png;base64,AA")
    other = {"type": "image_url", "image_url": {"url": "x.bmp"}}
    assert part(other) == {"type": "text", "text": json.dumps(other)}


def test_no_message_is_no_document() -> None:
    with pytest.raises(ValueError, match="one step at least"):
        to_atif(made())


def test_the_command(tmp_path: Path) -> None:
    source, scored, out = tmp_path / "in.jsonl", tmp_path / "scored.jsonl", tmp_path / "out.jsonl"
    (first, _), _ = read_lines(source, *({"id": f"r{k}", "messages": talk(f"q{k}", "a")} for k in range(2)))
    row = {**judged(first).model_dump(), "id": "other", "source": {"file": "x", "digest": first.digest}}
    scored.write_text(json.dumps(row) + "\n")

    def run(*more: str) -> Any:
        return CliRunner().invoke(APP, [str(source), "-o", str(out), *more])

    result = run("--to", "atif", "--scores", str(scored))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["scored"] == 1
    one, two = map(json.loads, out.read_text().splitlines())
    assert one["final_metrics"]["extra"]["agent_rrm"]["score"] == 0.8 and "final_metrics" not in two
    assert [t.id for t in read(out)] == ["r0", "r1"]
    assert "goes with --to atif" in str(run("--scores", str(scored)).exception)
    scored.write_text(json.dumps({**row, "source": None}) + "\n")
    before = out.read_text()
    assert "none of these transcripts" in str(run("--to", "atif", "--scores", str(scored)).exception)
    assert out.read_text() == before
