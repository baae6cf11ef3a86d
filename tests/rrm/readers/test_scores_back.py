"""Scores back into the tools that the transcripts came from: evaluation events of a trace, scores of an Inspect sample."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from log_rows import SAMPLES, read_lines, talk
from typer.testing import CliRunner

from rrm.cli import convert_cmd
from rrm.data.annotation import own_annotations
from rrm.data.feedback import CriterionAnswer, Feedback, Finding, JudgeInfo, Ranked
from rrm.data.trajectory import Trajectory
from rrm.readers import read
from rrm.readers.exports import to_inspect, to_otel

ROOT = Path(__file__).resolve().parents[3]
JUDGE = JudgeInfo(model="m", prompt_version="7", mode="full", criteria="support ab12")
APP = typer.Typer(pretty_exceptions_enable=False)
APP.command("convert")(convert_cmd.command)
TRACE, SPAN = "b" + "0" * 30 + "1", "a" + "0" * 14 + "1"


def said(run: Trajectory, **more: Any) -> Feedback:
    known: dict[str, Any] = {"id": run.id, "status": "scored", "score": 0.8, "raw_score": 0.7, "critique": "Ask first."}
    return Feedback(**{**known, "judge": JUDGE, **more})


def scored(path: Path, *rows: tuple[Trajectory, Feedback]) -> Path:
    """A file as `rrm score` writes it."""
    lines = [json.dumps({**f.model_dump(), "source": {"digest": t.digest}}) + "\n" for t, f in rows]
    path.write_text("".join(lines))
    return path


def convert(*words: str | Path) -> Any:
    return CliRunner().invoke(APP, [str(word) for word in words])


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: pair["value"] for pair in attributes}


# ---- OpenTelemetry ----


def test_an_event_field_by_field() -> None:
    run = next(read(SAMPLES / "otel_otlp.json"))
    criteria = {
        "polite": CriterionAnswer(value=1.0, label="yes", why="It thanks."),
        "refund": CriterionAnswer(label="does not apply"),
    }
    found = [Finding(step=1, verdict="good", text="measures"), Finding(step=2, verdict="unclear")]
    (batch,) = to_otel(run, said(run, criteria=criteria, findings=found, coverage=1.0), 17)["resourceLogs"]
    assert batch["resource"] == {"attributes": [{"key": "service.name", "value": {"stringValue": "agent-rrm"}}]}
    (scope,) = batch["scopeLogs"]
    assert scope["scope"] == {"name": "agent_rrm"}
    whole, polite, refund = scope["logRecords"]
    for record in (whole, polite, refund):
        assert {k: v for k, v in record.items() if k != "attributes"} == {
            "timeUnixNano": "17", "observedTimeUnixNano": "17", "eventName": "gen_ai.evaluation.result",
            "traceId": TRACE, "spanId": SPAN,
        }  # fmt: skip
    about = {
        "agent_rrm.judge.model": {"stringValue": "m"}, "agent_rrm.judge.prompt_version": {"stringValue": "7"},
        "agent_rrm.judge.mode": {"stringValue": "full"}, "agent_rrm.judge.criteria": {"stringValue": "support ab12"},
    }  # fmt: skip
    lines = [{"stringValue": "[step 1] good: measures"}, {"stringValue": "[step 2] unclear"}]
    assert plain(whole["attributes"]) == about | {
        "gen_ai.evaluation.name": {"stringValue": "agent_rrm"}, "gen_ai.evaluation.score.value": {"doubleValue": 0.8},
        "gen_ai.evaluation.explanation": {"stringValue": "Ask first."}, "agent_rrm.raw_score": {"doubleValue": 0.7},
        "agent_rrm.coverage": {"doubleValue": 1.0}, "agent_rrm.findings": {"arrayValue": {"values": lines}},
    }  # fmt: skip
    assert plain(polite["attributes"]) == about | {
        "gen_ai.evaluation.name": {"stringValue": "agent_rrm.polite"},
        "gen_ai.evaluation.score.value": {"doubleValue": 1.0},
        "gen_ai.evaluation.score.label": {"stringValue": "yes"},
        "gen_ai.evaluation.explanation": {"stringValue": "It thanks."},
    }
    assert "gen_ai.evaluation.score.value" not in plain(refund["attributes"])


def test_a_failure_is_an_error_and_no_number() -> None:
    run = next(read(SAMPLES / "otel_otlp.json"))
    failed = said(run, status="judge_error", score=None, raw_score=None, critique=None, reason="the server said 500")
    record = to_otel(run, failed, 1)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    held = plain(record["attributes"])
    assert held["error.type"] == {"stringValue": "judge_error"} and "gen_ai.evaluation.score.value" not in held
    assert held["gen_ai.evaluation.explanation"] == {"stringValue": "the server said 500"}


def test_events_are_read_with_their_spans_and_are_no_outcome(tmp_path: Path) -> None:
    runs = list(read(SAMPLES / "otel_otlp.jsonl"))
    rows = scored(tmp_path / "scored.jsonl", (runs[0], said(runs[0])), (runs[1], said(runs[1], score=0.2)))
    os.utime(rows, ns=(5, 1_700_000_009_000_000_000))
    out = tmp_path / "events.jsonl"
    result = convert(SAMPLES / "otel_otlp.jsonl", "-o", out, "--to", "otel", "--scores", rows)
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["converted"], summary["without_score"], summary["unreadable"]) == (2, 1, 0)
    lines = out.read_text()
    assert '"timeUnixNano": "1700000009000000000"' in lines.splitlines()[0]
    both = tmp_path / "both.jsonl"
    both.write_text((SAMPLES / "otel_otlp.jsonl").read_text() + lines)
    back = list(read(both))
    assert [t.digest for t in back] == [t.digest for t in runs] and [t.outcome for t in back] == [None] * 3
    mine = {"score": 0.8, "explanation": "Ask first."}
    assert back[0].meta["evaluations"] == {"correctness": {"score": 1.0, "label": "pass"}, "agent_rrm": mine}
    assert back[1].meta["evaluations"]["agent_rrm"]["score"] == 0.2 and "evaluations" not in back[2].meta
    named = list(read(both, outcome="evaluations.agent_rrm.score?"))
    assert [t.outcome for t in named] == [0.8, 0.2, None]


def test_the_sdks_own_types_take_an_event() -> None:
    reason = "opentelemetry-proto is not installed"
    logs: Any = pytest.importorskip("opentelemetry.proto.logs.v1.logs_pb2", reason=reason)
    protobuf: Any = pytest.importorskip("google.protobuf.json_format", reason=reason)

    run = next(read(SAMPLES / "otel_otlp.json"))
    document = to_otel(run, said(run, critique="lone \ud800", findings=[Finding(step=1, verdict="bad")]), 17)
    found = protobuf.ParseDict(document, logs.LogsData())
    record = found.resource_logs[0].scope_logs[0].log_records[0]
    values = {pair.key: pair.value for pair in record.attributes}
    assert (record.event_name, record.time_unix_nano) == ("gen_ai.evaluation.result", 17)
    assert values["gen_ai.evaluation.score.value"].double_value == 0.8
    assert values["gen_ai.evaluation.explanation"].string_value == "lone ?"


@settings(deadline=None)
@given(
    st.one_of(st.none(), st.text(), st.integers(), st.just(TRACE)),
    st.one_of(st.none(), st.text(), st.integers(), st.just(SPAN)),
)
def test_only_hexadecimal_ids_are_written(trace: Any, span: Any) -> None:
    run = Trajectory.model_validate({"id": "r", "messages": [], "meta": {"trace_id": trace, "span_id": span}})
    try:
        document = to_otel(run, said(run), 1)
    except ValueError as error:
        assert "'r' (format unknown) has no meta." in str(error)
    else:
        record = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
        assert len(bytes.fromhex(record["traceId"])) == 16 and len(bytes.fromhex(record["spanId"])) == 8


# ---- Inspect ----


def test_a_score_field_by_field() -> None:
    run = next(read(SAMPLES / "inspect_two.json"))
    criteria = {"polite": CriterionAnswer(value=1.0, label="yes", why="It thanks.", steps=[2])}
    criteria["refund"] = CriterionAnswer(label="does not apply")
    line = to_inspect(run, said(run, criteria=criteria, findings=[Finding(step=2, verdict="bad", p_good=0.1)]))
    told = {"polite": {"value": 1.0, "label": "yes", "why": "It thanks.", "steps": [2]}}
    told["refund"] = {"label": "does not apply", "steps": []}
    metadata = {
        "status": "scored", "raw_score": 0.7, "findings": [{"step": 2, "verdict": "bad", "p_good": 0.1, "text": ""}],
        "criteria": told, "judge": JUDGE.model_dump(exclude_none=True),
    }  # fmt: skip
    assert line == {
        "log": str(SAMPLES / "inspect_two.json"), "eval_id": run.meta["eval_id"], "sample_id": "al", "epoch": 1,
        "scores": {
            "agent_rrm": {"value": 0.8, "answer": None, "explanation": "Ask first.", "metadata": metadata},
            "agent_rrm.polite": {
                **{"value": 1.0, "answer": "yes", "explanation": "It thanks."}, "metadata": {"steps": [2]},
            },
        },
    }  # fmt: skip


def test_a_failed_row_gets_no_score_and_is_counted(tmp_path: Path) -> None:
    al, bea, *_ = read(SAMPLES / "inspect_two.eval")
    failed = said(bea, status="unparsable", score=None, raw_score=None)
    rows = scored(tmp_path / "scored.jsonl", (al, said(al)), (bea, failed))
    out = tmp_path / "scores.jsonl"
    result = convert(SAMPLES / "inspect_two.eval", "-o", out, "--to", "inspect", "--scores", rows)
    summary = json.loads(result.stdout)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    found = {(line["sample_id"], line["epoch"]) for line in lines}
    assert ("al", 1) in found and "bea" not in {name for name, _ in found}
    assert summary["converted"] == len(lines) and summary["converted"] + summary["without_score"] == 4
    with pytest.raises(ValueError, match=r"'numbers:bea-epoch1' has no score: unparsable"):
        to_inspect(bea, failed)


def test_equal_transcripts_keep_their_own_rows(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    row = {"messages": talk("q", "a"), "sample_id": "s"}
    source.write_text("".join(json.dumps({"id": f"r{k}", "epoch": k, **row}) + "\n" for k in (1, 2)))
    one, two = read(source)
    assert one.digest == two.digest
    rows = scored(tmp_path / "scored.jsonl", (one, said(one, score=0.1)), (two, said(two, score=0.9)))
    out = tmp_path / "out.jsonl"
    assert convert(source, "-o", out, "--to", "inspect", "--scores", rows).exit_code == 0
    values = [json.loads(line)["scores"]["agent_rrm"]["value"] for line in out.read_text().splitlines()]
    assert values == [0.1, 0.9]


def test_inspect_takes_the_scores_and_gives_them_back(tmp_path: Path) -> None:
    reason = "inspect_ai is not installed: the scores cannot be put into a log of its own"
    inspect: Any = pytest.importorskip("inspect_ai.log", reason=reason)
    spec = importlib.util.spec_from_file_location("inspect_scores", ROOT / "examples" / "inspect_scores.py")
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    runs = list(read(SAMPLES / "inspect_two.eval"))
    lines = [to_inspect(run, said(run, score=k / 10)) for k, run in enumerate(runs)]
    log = inspect.read_eval_log(str(SAMPLES / "inspect_two.eval"))
    assert script.put(log, lines) == 4
    for out in (tmp_path / "judged.eval", tmp_path / "judged.json"):
        inspect.write_eval_log(log, str(out))
        again = inspect.read_eval_log(str(out))
        found = {(s.id, s.epoch): s.scores["agent_rrm"] for s in again.samples}
        assert [found[t.meta["sample_id"], t.meta["epoch"]].value for t in runs] == [0.0, 0.1, 0.2, 0.3]
        assert found["al", 1].explanation == "Ask first." and found["al", 1].metadata["judge"]["model"] == "m"
        back = list(read(out))
        assert [t.digest for t in back] == [t.digest for t in runs]
        assert [t.meta["outcome_fields"] for t in back] == [t.meta["outcome_fields"] for t in runs]
        assert [t.meta["scores"]["agent_rrm"]["value"] for t in back] == [0.0, 0.1, 0.2, 0.3]
    with pytest.raises(ValueError, match="none of 1 lines is of the evaluation"):
        script.put(log, [{**lines[0], "eval_id": "another"}])
    with pytest.raises(ValueError, match="no sample 'zoe' in epoch 1"):
        script.put(log, [{**lines[0], "sample_id": "zoe"}])


def test_a_judges_score_in_a_log_is_no_outcome(tmp_path: Path) -> None:
    log = json.loads((SAMPLES / "inspect_two.json").read_text())
    path = tmp_path / "log.json"
    for left, wanted in ((("match",), [1.0, 0.0, 1.0, 0.0]), ((), [None] * 4)):
        for sample in log["samples"]:
            sample["scores"] = {name: s for name, s in sample["scores"].items() if name in left}
            sample["scores"] |= {"agent_rrm": {"value": 0.5}, "agent_rrm.polite": {"value": 1.0}}
        path.write_text(json.dumps(log))
        runs = list(read(path))
        assert [t.outcome for t in runs] == wanted and all("outcome_fields" not in t.meta for t in runs)
    assert [t.outcome for t in read(path, outcome="scores.agent_rrm")] == [0.5] * 4


# ---- both ----


@pytest.mark.parametrize(
    ("form", "lacks"), [("otel", "meta.trace_id of 32"), ("inspect", "meta.sample_id and no meta.epoch")]
)
def test_another_formats_row_is_refused_by_name(tmp_path: Path, form: str, lacks: str) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(talk("q", "a")) + "\n")
    (run,) = read(source)
    rows = scored(tmp_path / "scored.jsonl", (run, said(run)))
    result = convert(source, "-o", out, "--to", form, "--scores", rows)
    assert result.exit_code == 1 and not out.exists()
    (error,) = map(json.loads, (tmp_path / "out.errors.jsonl").read_text().splitlines())
    assert (error["path"], error["line"]) == (str(source), 1)
    assert f"'in:1' (format openai) has no {lacks}" in error["reason"]


@pytest.mark.parametrize("form", ["otel", "inspect"])
def test_a_relative_score_has_a_name_of_its_own(form: str) -> None:
    run = next(read(SAMPLES / ("otel_otlp.json" if form == "otel" else "inspect_two.json")))
    ranked = said(run, rank=Ranked(position=2, n_compared=3, n_batches=1, group="g"))
    if form == "otel":
        document = to_otel(run, ranked, 1)
        held = plain(document["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["attributes"])
        assert held["gen_ai.evaluation.name"] == {"stringValue": "agent_rrm.rank"}
        assert held["agent_rrm.rank.position"] == {"intValue": "2"}
        assert held["agent_rrm.rank.n_compared"] == {"intValue": "3"}
    else:
        ((name, score),) = to_inspect(run, ranked)["scores"].items()
        assert name == "agent_rrm.rank" and score["metadata"]["rank"]["position"] == 2


@pytest.mark.parametrize("form", ["otel", "inspect"])
def test_scores_must_be_named_and_be_of_these_transcripts(tmp_path: Path, form: str) -> None:
    file = SAMPLES / ("otel_otlp.json" if form == "otel" else "inspect_two.json")
    out = tmp_path / "out.jsonl"
    assert "name the file that `rrm score -o` wrote" in str(convert(file, "-o", out, "--to", form).exception)
    other = Trajectory.model_validate({"id": "x", "messages": [{"role": "user", "content": "z"}]})
    rows = scored(tmp_path / "scored.jsonl", (other, said(other)))
    result = convert(file, "-o", out, "--to", form, "--scores", rows)
    assert "none of these transcripts" in str(result.exception) and not out.exists()


LABEL = {"score": 1.0, "annotator": "ann", "kind": "human", "weight": 1.0}
JUDGEMENT = {"status": "scored", "score": 0.5, "judge": {"model": "m", "prompt_version": "2", "mode": "score"}}


def back(folder: Path, meta: Any, **columns: Any) -> Trajectory:
    nested = {"messages": talk("How wide?", "90"), "meta": meta, "tools": None, **columns}
    row = {"schema_version": 1, "id": "r", "task": "How wide?", "file": "runs.jsonl", "line": 3, "format": "openai"}
    row |= {name: None if value is None else json.dumps(value) for name, value in nested.items()}
    ((run,), _) = read_lines(folder / "rows.jsonl", row)
    return run


def test_labels_judgement_and_source_come_back(tmp_path: Path) -> None:
    run = back(tmp_path, {"note": 1}, annotations=[LABEL], feedback=JUDGEMENT, tools=[{"name": "look"}])
    assert run.meta == {"note": 1, "annotations": [LABEL], "feedback": JUDGEMENT} and run.tools == [{"name": "look"}]
    assert run.source and (run.source.file, run.source.line, run.source.format) == ("runs.jsonl", 3, "openai")


@pytest.mark.parametrize("own", [{"stars": 5}, "great", ["up", "down"]])
def test_the_sources_own_feedback_stays_beside_a_judgement(tmp_path: Path, own: Any) -> None:
    run = back(tmp_path, {"feedback": own}, feedback=JUDGEMENT)
    assert run.meta == {"feedback": own, "agent_rrm": {"feedback": JUDGEMENT}}


@pytest.mark.parametrize("own", [{"topic": "x"}, "none", [{"score": 0.5, "by": "team"}, 3], []])
def test_annotations_that_are_no_labels_stay_beside_those_that_are(tmp_path: Path, own: Any) -> None:
    run = back(tmp_path, {"annotations": own}, annotations=[LABEL])
    labels, others = own_annotations(run)
    assert [(label.score, label.annotator) for label in labels] == [(1.0, "ann")]
    assert others == (len(own) if isinstance(own, list) else 0)
    assert run.meta["annotations"] == ([LABEL, *own] if isinstance(own, list) else own)


@pytest.mark.parametrize(("column", "value"), [("messages", "{"), ("meta", "[]"), ("messages", "3"), ("tools", "x")])
def test_a_broken_column_is_an_error_of_its_row(tmp_path: Path, column: str, value: str) -> None:
    row = {"schema_version": 1, "id": "r", "messages": "[]", "meta": "{}", column: value}
    runs, (error,) = read_lines(tmp_path / "rows.jsonl", row)
    assert runs == [] and column in error.reason
