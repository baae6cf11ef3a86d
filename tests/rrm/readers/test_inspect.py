"""Inspect's logs, as Inspect itself wrote them (samples/README.md), and what may be wrong with them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from log_rows import SAMPLES, read_text, talk

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers import inspect_ai, read
from rrm.readers.archive import Archive

KINDS = ("eval", "json")


def runs(kind: str, **options: Any) -> list[Trajectory]:
    return list(read(SAMPLES / f"inspect_two.{kind}", **options))


def log(tmp_path: Path, samples: list[Any], **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    """A `.json` log of these samples."""
    value = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m"}, "samples": samples}
    return read_text(tmp_path / "log.json", json.dumps(value), **options)


def sample(**more: Any) -> dict[str, Any]:
    return {"id": 1, "epoch": 1, "input": "6 x 7?", "target": "42", "messages": talk("6 x 7?", "42"), **more}


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_of_every_epoch_with_its_tools(kind: str) -> None:
    found = runs(kind)
    assert [t.id for t in found] == [f"numbers:{s}-epoch{e}" for e in (1, 2) for s in ("al", "bea")]
    for run in found:
        assert run.source and run.source.format == "inspect"
        assert [m.role for m in run.messages] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
        assert [m.name for m in run.messages if m.role == "tool"] == ["lookup", "divide"]
        assert [c.name for m in run.messages for c in m.tool_calls or []] == ["lookup", "divide"]
        assert [t["function"]["name"] for t in run.tools or []] == ["lookup", "divide"]
        calls = [c.id for m in run.messages for c in m.tool_calls or []]
        assert calls == [m.tool_call_id for m in run.messages if m.role == "tool"]
        assert all(m.duration_s is not None and m.timestamp for m in run.messages if m.role == "tool")


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_one_sample(kind: str) -> None:
    al, bea = runs(kind)[:2]
    picture = al.messages[1].content
    assert isinstance(picture, list) and picture[0] == {"type": "text", "text": "What is a quarter of Al's number?"}
    assert picture[1]["image_url"]["url"].startswith("data:image/gif;base64,R0lGOD")  # an attachment, unfolded
    assert al.task == "What is a quarter of Al's number?" and al.question_id == "numbers:al"
    assert al.messages[2].content == "Looking." and (al.messages[2].tool_calls or [])[0].arguments == {"name": "Al"}
    assert al.messages[3].content == "12" and al.messages[5].content == "3" and al.messages[6].content == "3"
    assert al.meta["reference"] == "3" and al.meta["agent"] == "mockllm/model" and al.meta["eval_task"] == "numbers"
    assert al.meta["metadata"] == {"level": 1} and al.meta["sample_id"] == "al" and al.meta["epoch"] == 1
    assert al.meta["events"]["tool"] == 2 and al.meta["stop_reason"] == "stop"
    failed = bea.messages[5].model_dump(exclude_none=True)
    assert failed["content"] == "division by zero" and failed["is_error"] is True
    assert failed["error"]["message"] == "division by zero" and bea.question_id != al.question_id


def test_both_kinds_of_log_hold_the_same_runs() -> None:
    def messages(kind: str) -> list[Any]:
        return [
            (t.id, m.role, m.content, [(c.name, c.arguments) for c in m.tool_calls or []])
            for t in runs(kind) for m in t.messages
        ]  # fmt: skip

    assert messages("eval") == messages("json")


@pytest.mark.parametrize("kind", KINDS)
def test_of_several_scorers_none_is_chosen_but_one_can_be_named(kind: str) -> None:
    assert [t.outcome for t in runs(kind)] == [None] * 4
    assert runs(kind)[0].meta["outcome_fields"] == ["scores.match", "scores.includes"]
    named = runs(kind, outcome="scores.match")
    assert [t.outcome for t in named] == [1.0, 0.0, 1.0, 0.0]
    assert named[0].source and named[0].source.outcome_field == "scores.match"
    with pytest.raises(ReadError, match=r"no outcome at 'scores\.none'"):
        runs(kind, outcome="scores.none")


@pytest.mark.parametrize(("value", "outcome"), [
    ("C", 1.0), ("I", 0.0), ("P", 0.5), ("N", 0.0), (0.25, 0.25), (True, 1.0), ("x", None), (3, None), ({"a": 1}, None),
])  # fmt: skip
def test_one_scorer_is_the_outcome(tmp_path: Path, value: Any, outcome: float | None) -> None:
    (run,), errors = log(tmp_path, [sample(scores={"grade": {"value": value}})])
    assert errors == [] and run.outcome == outcome
    assert run.source and run.source.outcome_field == (None if outcome is None else "scores.grade")


def test_a_one_is_no_success_on_a_scale_to_five(tmp_path: Path) -> None:
    marks = [sample(id=k, scores={"grade": {"value": k}}) for k in (1, 5)]
    assert [t.outcome for t in log(tmp_path, marks)[0]] == [None, None]


def test_a_sample_that_failed_before_its_first_message_keeps_its_question(tmp_path: Path) -> None:
    (run,), errors = log(tmp_path, [sample(messages=[], error={"message": "boom", "traceback": "…"})])
    assert errors == [] and [m.content for m in run.messages] == ["6 x 7?"] and run.steps == []
    assert run.meta["error"]["message"] == "boom"


def test_reasoning_and_a_tool_of_the_server(tmp_path: Path) -> None:
    use = {"type": "tool_use", "tool_type": "web_search", "id": "s", "name": "search"}
    use |= {"arguments": '{"q": "x"}', "result": "y"}
    parts = [{"type": "reasoning", "reasoning": "hm"}, use, {"type": "text", "text": "42"}]
    (run,), _ = log(tmp_path, [sample(messages=talk("q", parts))])
    call, result = run.messages[1:]
    assert (call.reasoning_content, call.content) == ("hm", "42") and call.tool_calls
    assert call.tool_calls[0].arguments == {"q": "x"} and (result.content, result.tool_call_id) == ("y", "s")


def test_attachments_cannot_unfold_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_ai, "MAX_UNFOLDED", 1000)
    messages = [{"role": "user", "content": "attachment://a"}] * 20
    _, (error,) = log(tmp_path, [sample(messages=messages, attachments={"a": "x" * 100})])
    assert "unfold to more than 1,000 characters" in error.reason
    (run,), _ = log(tmp_path, [sample(messages=[{"role": "user", "content": "attachment://gone"}])])
    assert run.messages[0].content == "attachment://gone"


def test_a_broken_sample_is_one_error_and_the_others_arrive(tmp_path: Path) -> None:
    found, errors = log(tmp_path, [sample(), 3, sample(messages="none"), sample(id=2)])
    assert [t.id for t in found] == ["t:1-epoch1", "t:2-epoch1"] and [e.line for e in errors] == [2, 3]


def test_a_log_that_was_cut_off_is_read_from_its_journal(tmp_path: Path) -> None:
    """Inspect writes the header last; before that there are the start and summaries of what is done."""
    with open(SAMPLES / "inspect_two.eval", "rb") as file, zipfile.ZipFile(tmp_path / "cut.eval", "w") as out:
        whole = Archive("whole", file)
        for name in whole.names:
            if name.startswith("_journal/") or name == "samples/bea_epoch_1.json":
                out.writestr(name, b"".join(whole.blocks(name)))
        out.writestr("samples/al_epoch_1.json", '{"id": "al", "epoch"')
    errors: list[ReadError] = []
    (run,) = read(tmp_path / "cut.eval", on_error=errors.append)
    assert run.id == "numbers:bea-epoch1" and run.meta["agent"] == "mockllm/model"
    (error,) = errors
    assert error.path.endswith("cut.eval!/samples/al_epoch_1.json") and "cut off" in error.reason


def test_sniffing_needs_the_marks() -> None:
    assert inspect_ai.sniff(sample()) and inspect_ai.sniff({"eval": {"task": "t"}, "samples": []})
    less = sample()
    del less["epoch"]
    assert not inspect_ai.sniff(less) and not inspect_ai.sniff([sample()])


def test_samples_of_one_input_and_several_targets_are_several_questions(tmp_path: Path) -> None:
    flags = [sample(id=k, input="Find the flag.", target=f"flag {k}", epoch=e) for k in (1, 2) for e in (1, 2)]
    found, _ = log(tmp_path, [*flags, sample(id=3), sample(id=4)])
    assert [t.question_id for t in found[:4]] == ["t:1", "t:1", "t:2", "t:2"]
    assert found[4].question_id == found[5].question_id != "t:3"  # one question under two ids
