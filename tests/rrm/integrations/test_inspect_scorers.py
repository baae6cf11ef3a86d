"""Inspect's scorer and Scout's scanner, run by the frameworks themselves."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="inspect_ai is not installed (pip install 'agent-rrm[inspect]')")

from chat_judge import ChatJudge
from inspect_ai import Task, eval, score
from inspect_ai.dataset import Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool

from reagent.lab.shipped import judge_folder
from rrm.data.trajectory import Trajectory
from rrm.integrations.inspect_scorer import agent_rrm
from rrm.judge.agent_rrm import AgentRRM
from rrm.readers import read


@tool
def search() -> Tool:
    async def execute(query: str) -> str:
        """Search the facts.

        Args:
            query: What to look for.
        """
        return f"{query} was born in London"

    return execute


def run(folder: Path, scorers: list[Any], samples: int = 2) -> Any:
    """An evaluation whose model calls the tool and then answers."""
    outputs = [
        output
        for i in range(samples)
        for output in (
            ModelOutput.for_tool_call("mockllm/model", "search", {"query": "Ada"}),
            ModelOutput.from_content("mockllm/model", "London" if i % 2 == 0 else "In Paris, I would say."),
        )
    ]
    for output in outputs:
        output.usage = ModelUsage()  # else it is counted, with a vocabulary from the network
    task = Task(
        dataset=[Sample(input=f"Where was Ada born? ({i})", target="London", id=f"s{i}") for i in range(samples)],
        solver=[use_tools(search()), generate()],
        scorer=scorers,
    )
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(task, model=model, log_dir=str(folder), display="none", max_samples=1)
    assert log.status == "success", log.error
    return log


def read_log(log: Any) -> dict[Any, Trajectory]:
    return {row.meta["sample_id"]: row for row in read(log.location) if isinstance(row, Trajectory)}


def test_the_score_is_that_of_the_log(judge: AgentRRM, tmp_path: Path) -> None:
    log = run(tmp_path, [agent_rrm(judge=str(judge_folder()), mode="full"), match()])
    rows = read_log(log)
    said = dict(zip(rows, judge.judge(list(rows.values()), mode="full"), strict=True))
    assert len(said) == 2
    for sample in read_eval_log(log.location).samples:
        found, direct = sample.scores["agent_rrm"], said[sample.id]
        assert found.value == pytest.approx(direct.score, abs=1e-6)
        assert found.explanation == direct.critique and found.answer == sample.output.completion
        assert found.metadata["status"] == "scored" and len(found.metadata["findings"]) == len(direct.findings)
        ids = {m.id for m in sample.messages}
        for link in found.metadata.get("scanner_references", []):
            assert link["id"] in ids and link["cite"] in found.explanation
    metrics = {s.name: s.metrics for s in log.results.scores}
    assert metrics["agent_rrm"]["mean"].value == pytest.approx(sum(f.score for f in said.values()) / 2, abs=1e-6)


def test_a_log_that_is_there_is_scored_alike(judge: AgentRRM, tmp_path: Path) -> None:
    log = run(tmp_path, [match()])
    rows = read_log(log)
    scored = score(log, agent_rrm(judge=judge, mode="score"), action="append", display="none")
    for sample in scored.samples:
        (direct,) = judge.judge([rows[sample.id]], mode="score")
        assert sample.scores["agent_rrm"].value == pytest.approx(direct.score, abs=1e-6)
        assert set(sample.scores) == {"match", "agent_rrm"}


def test_the_judge_that_ships_scores_as_the_command_does(tmp_path: Path, invoke: Any) -> None:
    from rrm.cli.score_cmd import command as rrm_score

    log = run(tmp_path / "logs", [agent_rrm(), match()])
    code, summary = invoke(rrm_score, log.location, "-o", tmp_path / "rows.jsonl")
    assert code == 0 and summary["statuses"] == {"scored": len(read_eval_log(log.location).samples)}
    found = {row["id"]: row for row in map(json.loads, (tmp_path / "rows.jsonl").read_text("ascii").splitlines())}
    names = {row.meta["sample_id"]: row.id for row in read(log.location) if isinstance(row, Trajectory)}
    for sample in read_eval_log(log.location).samples:
        said = sample.scores["agent_rrm"]
        assert said.value == pytest.approx(found[names[sample.id]]["score"], abs=1e-5)


def test_the_transcript_has_the_tools_and_the_judge_no_outcome(tmp_path: Path) -> None:
    seen: list[Trajectory] = []
    log = run(tmp_path, [match(), agent_rrm(judge=ChatJudge(on_window=seen.extend))])
    rows = read_log(log)
    for live in seen:
        logged = rows[live.meta["sample_id"]]
        assert live.tools == logged.tools and live.tools is not None
        assert [(m.role, m.text()) for m in live.messages] == [(m.role, m.text()) for m in logged.messages]
        assert live.digest == logged.digest and live.outcome is None and live.meta["reference"] == "London"


def test_a_failed_judgement_is_unscored_and_no_metric_counts_it(tmp_path: Path) -> None:
    seen: list[Trajectory] = []
    run(tmp_path / "a", [agent_rrm(judge=ChatJudge(on_window=seen.extend), mode="full")])
    down = next(t.id for t in seen if t.meta["sample_id"] == "s1")
    log = run(tmp_path / "b", [agent_rrm(judge=ChatJudge(down=(down,)), mode="full")])
    scores = {s.id: s.scores["agent_rrm"] for s in log.samples}
    assert scores["s1"].value != scores["s1"].value and scores["s1"].reason == "grader_failed"
    assert "server is down" in scores["s1"].explanation and scores["s1"].metadata["status"] == "judge_error"
    (result,) = log.results.scores
    assert result.metrics["mean"].value == pytest.approx(scores["s0"].value)
    assert (result.scored_samples, result.unscored_samples) == (1, 1)
    link = scores["s0"].metadata["scanner_references"][0]
    assert link["cite"] == "[step 1]" and link["id"] in {m.id for s in log.samples for m in s.messages}


def test_scout_scans_a_log(judge: AgentRRM, tmp_path: Path) -> None:
    scout = pytest.importorskip(
        "inspect_scout", reason="inspect_scout is not installed (pip install 'agent-rrm[scout]')"
    )
    scanner = runpy.run_path(str(Path(__file__).resolve().parents[3] / "examples" / "scout_scanner.py"))["agent_rrm"]
    log = run(tmp_path / "logs", [match()])
    status = scout.scan(
        scanners=[scanner(judge=str(judge_folder()), mode="full")],
        transcripts=scout.transcripts_from(str(tmp_path / "logs")),
        scans=str(tmp_path / "scans"),
        display="none",
        max_processes=1,
    )
    assert status.complete, status.errors
    frame = scout.scan_results_df(status.location).scanners["agent_rrm"]
    rows = read_log(log)
    by_id = {str(sample.uuid): rows[sample.id] for sample in log.samples}
    assert len(frame) == 2
    for _, line in frame.iterrows():
        row = by_id[line["transcript_id"]]
        (direct,) = judge.judge([row], mode="full")
        assert float(line["value"]) == pytest.approx(direct.score, abs=1e-6)
        assert bool(direct.findings) == ("[step" in str(line["message_references"]))
