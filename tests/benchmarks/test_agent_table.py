"""The table of benchmarks × methods: what its cells hold, how it goes on after a kill, what it refuses, what fails by name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from multihop import hotpot_file
from table_setup import SMALL, judge, lines, mute

from benchmarks.agents.cells import Judges
from benchmarks.agents.methods import MethodSettings
from benchmarks.agents.run import Settings, main, plan_cells, run_table
from reagent.env.env import StepResult
from reagent.tasks.hotpotqa import HotpotQA
from rrm.data.output import differences
from rrm.data.trajectory import read_canonical
from rrm.engines.base import StopReason
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM


def test_every_method_in_one_table(settings: Settings) -> None:
    methods = ["direct", "naive_rag", "tool_call", "react", "reagent_c", "again=policy@" + settings.policy, "best_of_n"]
    asked = replace(settings, methods=methods, method=MethodSettings(samples=3), against="direct")
    summary = run_table(asked, {"j": judge()})
    assert (summary["cells"], summary["played"], summary["failed"]) == (7, 7, [])
    folder = settings.output / "hotpotqa"
    made = json.loads((settings.output / "table.json").read_text())
    rows = {row["label"]: row for row in made["rows"]}
    assert [*rows] == ["direct", "naive_rag", "tool_call", "react", "reagent_c", "again", "best_of_n"]
    episodes = {label: list(read_canonical(folder / label / "episodes.jsonl")) for label in rows}
    assert {label: len(found) for label, found in episodes.items()} == {
        "direct": 4, "naive_rag": 4, "tool_call": 4, "react": 4, "reagent_c": 8, "again": 4, "best_of_n": 12,
    }  # fmt: skip
    ids = [t.id for found in episodes.values() for t in found]
    assert len(set(ids)) == 40 and {i.split("/")[0] for i in ids} == {"hotpotqa"}
    assert {t.question_id for t in episodes["direct"]} == {t.question_id for t in episodes["best_of_n"]}
    same = [[m.text() for m in t.messages] for t in episodes["tool_call"]]
    assert same == [[m.text() for m in t.messages] for t in episodes["again"]]  # the same weights
    assert all("What a search for the question found" in t.messages[1].text() for t in episodes["naive_rag"])
    for label, row in rows.items():
        found = row["figures"]
        assert found["questions"] == 4 and found["left_out"] == {} and found["success"]["low"] is None
        assert found["judge"]["status"] == {"scored": len(episodes[label]) // (2 if label == "reagent_c" else 1)}
        scores = {r["id"]: r["score"] for r in lines(folder / label / "scored.jsonl")}
        assert scores.keys() == {t.id for t in episodes[label]}
        counted = [t.id for t in episodes[label] if label != "reagent_c" or "/refined/" in t.id]
        assert found["judge"]["mean"]["value"] == pytest.approx(sum(scores[i] for i in counted) / len(counted))
        assert ("minus" in row) == (label != "direct")
    first = {t.id for t in episodes["reagent_c"] if "/initial/" in t.id}
    assert len(first) == 4 and rows["reagent_c"]["figures"]["feedback/judged"] == 4
    assert rows["reagent_c"]["figures"]["first"]["turns"] == rows["tool_call"]["figures"]["turns"]
    again = [e for e in lines(folder / "reagent_c" / "attempts.jsonl") if e["stage"] == "refined"]
    assert all("Critique:\n[step 1] bad: look again" in e["trajectory"]["messages"][1]["content"] for e in again)
    assert [*rows["best_of_n"]["figures"]["choose"]["success"]] == ["judge", "majority", "random", "oracle"]
    page = (settings.output / "table.md").read_text()
    assert "## HotpotQA" in page and "– by majority" in page and "– first attempts" in page and "minus direct" in page
    assert len({line.count("|") for line in page.splitlines() if line.startswith("|")}) == 1
    assert "tool_call" in (settings.output / "report.html").read_text()


def test_cells_that_are_done_are_kept_and_others_are_added(settings: Settings) -> None:
    one = {"j": judge()}
    assert run_table(replace(settings, methods=["direct"]), one)["played"] == 1
    metrics = settings.output / "hotpotqa" / "direct" / "metrics.json"
    before = metrics.stat().st_mtime_ns
    summary = run_table(settings, one)
    assert (summary["played"], summary["kept"]) == (1, 1) and metrics.stat().st_mtime_ns == before
    assert len(json.loads((settings.output / "table.json").read_text())["rows"]) == 2
    calls = len(one["j"].engine.calls)  # type: ignore[union-attr]
    assert run_table(settings, one)["played"] == 0 and len(one["j"].engine.calls) == calls  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"limit": 3}, "direct was played with another config: limit was 4 and is 3; choose another -o"),
        ({"overrides": [*SMALL, "eval.temperature=0.5"]}, "eval.temperature was 0.0 and is 0.5"),
        ({"methods": ["direct=react"]}, "method was 'direct' and is 'react'"),
    ],
)
def test_another_config_is_refused_before_anything_is_played(
    settings: Settings, changes: dict[str, Any], said: str
) -> None:
    run_table(replace(settings, methods=["direct"], judge=None))
    before = (settings.output / "hotpotqa" / "direct" / "metrics.json").read_bytes()
    with pytest.raises(RRMError, match=said):
        run_table(replace(settings, judge=None, **{"methods": ["naive_rag", "direct"], **changes}))
    assert (settings.output / "hotpotqa" / "direct" / "metrics.json").read_bytes() == before
    assert not (settings.output / "hotpotqa" / "naive_rag" / "attempts.jsonl").exists()


def test_other_questions_or_weights_under_the_same_path_are_noticed(settings: Settings) -> None:
    run_table(replace(settings, methods=["direct"], judge=None))
    file = Path(settings.paths["hotpotqa"])
    file.write_text(file.read_text().replace("trade", "craft"))
    with pytest.raises(RRMError, match="questions_sha256 was"):
        run_table(replace(settings, methods=["direct"], judge=None))


def test_another_corpus_under_the_same_path_is_noticed(settings: Settings, tmp_path: Path) -> None:
    """A method without search knows nothing of it, and stays."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "corpus.json").write_text('{"sha256": "a"}')
    options: dict[str, dict[str, Any]] = {"hotpotqa": {"tools": []}}

    def made_by(method: str) -> dict[str, Any]:
        asked = replace(settings, corpora={"hotpotqa": str(corpus)}, options=options, methods=[method])
        ([cell], _) = plan_cells(asked, Judges("j", None, {}))
        return cell.made_by

    before = [made_by(method) for method in ("direct", "tool_call")]
    (corpus / "corpus.json").write_text('{"sha256": "b"}')
    changed = [differences(a, made_by(m)) for a, m in zip(before, ("direct", "tool_call"), strict=True)]
    assert changed[0] == [] and len(changed[1]) == 1 and changed[1][0].startswith("corpus_sha256 was")


def test_failures_are_typed_and_the_other_cells_are_played(settings: Settings) -> None:
    methods = ["reagent_c", "gone=direct@no/such/policy", "best_of_n", "direct", "naive_rag"]
    asked = replace(settings, tasks=["gsm8k", "hotpotqa"], methods=methods)
    gsm = settings.output.parent / "gsm.jsonl"
    gsm.write_text(
        "".join(
            json.dumps({"question": f"How much is {i} + 1?", "answer": f"<<{i}+1={i + 1}>>\n#### {i + 1}"}) + "\n"
            for i in range(4)
        )
    )
    summary = run_table(replace(asked, paths={**asked.paths, "gsm8k": str(gsm)}), {"j": mute()})
    assert summary["not_applicable"] == ["gsm8k/naive_rag"]
    assert summary["failed"] == [
        f"{task}/{label}" for task in ("gsm8k", "hotpotqa") for label in ("reagent_c", "gone", "best_of_n")
    ]
    rows = {
        (row["task"], row["label"]): row for row in json.loads((settings.output / "table.json").read_text())["rows"]
    }
    kinds = {name: row["failure"]["kind"] for name, row in rows.items() if "failure" in row}
    assert kinds["hotpotqa", "reagent_c"] == kinds["hotpotqa", "best_of_n"] == "JudgeFailure"
    assert (
        kinds["gsm8k", "naive_rag"] == "NotApplicable"
        and "no/such/policy" in rows["gsm8k", "gone"]["failure"]["message"]
    )
    assert all("figures" not in row for row in rows.values() if "failure" in row)
    direct = rows["hotpotqa", "direct"]["figures"]
    assert direct["success"]["value"] is not None  # the benchmark's own figures need no judge
    assert direct["judge"]["mean"]["value"] is None and direct["judge"]["status"] == {"unparsable": 4}
    assert "accuracy" in (settings.output / "table.md").read_text()


def test_second_attempts_without_critiques_are_played_again(settings: Settings) -> None:
    """A critic that could not be read leaves none of its second attempts behind."""
    asked = replace(settings, methods=["reagent_c"], judge=None, critic="c")
    assert run_table(asked, {"c": mute()})["failed"] == ["hotpotqa/reagent_c"]
    folder = settings.output / "hotpotqa" / "reagent_c"
    assert {row["stage"] for row in lines(folder / "attempts.jsonl")} == {"initial"} and not (
        folder / "metrics.json"
    ).exists()
    assert json.loads((folder / "failure.json").read_text())["kind"] == "JudgeFailure"
    assert run_table(asked, {"c": judge()})["failed"] == [] and not (folder / "failure.json").exists()
    seconds = [row for row in lines(folder / "attempts.jsonl") if row["stage"] == "refined"]
    assert len(seconds) == 4 and all("look again" in row["trajectory"]["messages"][1]["content"] for row in seconds)


class Flaky(HotpotQA):
    """Fails in one question while a file is there."""

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        if self.task is not None and self.task.id == "q1" and Path(os.environ["GONE"]).exists():
            raise OSError("the tool server is gone")
        return await super().step(text, stop_reason)


def flaky(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Settings]:
    """The file while which is there a question of three fails, and a table of these."""
    gone, name = tmp_path / "gone", "test_agent_table:Flaky"
    gone.touch()
    monkeypatch.setenv("GONE", str(gone))
    path = hotpot_file(tmp_path, 3)
    return gone, replace(settings, tasks=[name], methods=["direct"], paths={name: str(path)}, limit=None)


def test_attempts_that_the_environment_failed_are_counted_and_played_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, asked = flaky(settings, tmp_path, monkeypatch)

    def figures(again: bool = False) -> tuple[int, dict[str, Any]]:
        played = run_table(replace(asked, retry_errors=again), {"j": judge()})["played"]
        return played, json.loads((settings.output / "test_agent_table-Flaky" / "direct" / "metrics.json").read_text())[
            "figures"
        ]

    played, first = figures()
    assert played == 1 and first["left_out"] == {"env_error": 1} and first["questions"] == 3
    assert first["by_question"]["success"].keys() == {"q0", "q2"} and first["judge"]["status"] == {"scored": 2}
    assert "1 env_error" in (settings.output / "table.md").read_text()
    gone.unlink()
    assert figures()[0] == 0
    played, again = figures(again=True)
    assert played == 1 and again["left_out"] == {} and again["by_question"]["success"].keys() == {"q0", "q1", "q2"}
    assert again["judge"]["status"] == {"scored": 3} and figures(again=True)[0] == 0


def test_a_retry_that_was_stopped_leaves_no_old_figures(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would stand beside new transcripts, and the cell would count as done."""
    gone, asked = flaky(settings, tmp_path, monkeypatch)
    run_table(asked, {"j": judge()})
    gone.unlink()

    def stop(*_: object) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_table(replace(asked, retry_errors=True), {"j": AgentRRM(ScriptedChatEngine(stop), model="scripted")})
    summary = run_table(asked, {"j": judge()})
    assert (summary["played"], summary["kept"], summary["failed"]) == (1, 0, [])
    [row] = json.loads((settings.output / "table.json").read_text())["rows"]
    assert row["figures"]["left_out"] == {} and row["figures"]["judge"]["status"] == {"scored": 3}


KILLING = '''
import os, signal
from pathlib import Path
from reagent.tasks.hotpotqa import HotpotQA

class Killing(HotpotQA):
    """Kills the process in the second cell, once two of its attempts have ended."""
    async def step(self, text, stop_reason="eos"):
        kept, marker = Path(os.environ["KEPT"]), Path(os.environ["MARKER"])
        if not marker.exists() and kept.is_file() and len(kept.read_bytes().splitlines()) >= 2:
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(text, stop_reason)
'''


def test_a_killed_run_goes_on_within_the_cell(policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "killing.py").write_text(KILLING)
    path = hotpot_file(tmp_path, 6)
    monkeypatch.syspath_prepend(tmp_path)
    command = [
        "--policy", str(policy), "--tasks", "killing:Killing", "--path", f"killing:Killing={path}", "--judge", "none",
        "--methods", "direct,tool_call", "--options", "killing:Killing={tools: []}", *SMALL, "eval.temperature=1",
        "rollout.engine={server: hf, max_batch_tokens: 700}", "-o",
    ]  # fmt: skip
    out = tmp_path / "table"
    cells = out / "killing-Killing"
    monkeypatch.setenv("KEPT", str(cells / "tool_call" / "attempts.jsonl"))
    monkeypatch.setenv("MARKER", str(tmp_path / "killed"))
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    killed = subprocess.run(
        [sys.executable, "-m", "benchmarks.agents.run", *command, str(out)], env=env, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    kept = (cells / "tool_call" / "attempts.jsonl").read_bytes()
    assert 2 <= kept.count(b"\n") < 6 and not (cells / "tool_call" / "metrics.json").exists()
    done = (cells / "direct" / "metrics.json").stat().st_mtime_ns
    assert main([*command, str(out)]) == 0
    assert (cells / "tool_call" / "attempts.jsonl").read_bytes().startswith(kept)
    assert (cells / "direct" / "metrics.json").stat().st_mtime_ns == done
    assert main([*command, str(tmp_path / "whole")]) == 0  # never interrupted
    for cell in ("direct", "tool_call"):
        found, whole = ((folder / "killing-Killing" / cell) for folder in (out, tmp_path / "whole"))
        both = [
            sorted((e["group_id"], [t["output_ids"] for t in e["turns"]]) for e in lines(f / "attempts.jsonl"))
            for f in (found, whole)
        ]
        assert both[0] == both[1] and len(both[0]) == 6
        assert [t.id for t in read_canonical(found / "episodes.jsonl")] == [
            t.id for t in read_canonical(whole / "episodes.jsonl")
        ]
        a, b = (json.loads((f / "metrics.json").read_text())["figures"] for f in (found, whole))
        assert a == b
