"""What commit 39b3a1de wrote (tests/data/39b3a1de, README.md there) is read, resumed and hashed as it was, whatever is renamed since."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

import reagent.cli
import rrm.cli
from reagent.removed import REMOVED as REMOVED_OF_AGENTS
from reagent.tools import build
from reagent.train.config import load_agent_config
from rrm import AgentRRM, Trajectory
from rrm.config import load_config
from rrm.data.annotation import read_annotations
from rrm.data.feedback import read_feedback
from rrm.data.seeds import derive_seed
from rrm.engines.base import SamplingParams
from rrm.guard import read_audit
from rrm.removed import REMOVED, without_removed

OLD = Path(__file__).parent / "data" / "39b3a1de"
VALUES = json.loads((OLD / "values.json").read_text(encoding="utf-8"))
JUDGE = "--model judge --device cpu"
GONE_METRICS = {f"feedback/{name}" for name in ("lost_groups", "distillable", "distilled", "contexts", "no_context")}
"""Of features that are gone."""
Run = Callable[..., tuple[dict[str, Any], str]]


@pytest.fixture(autouse=True)
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the files, in which every command runs."""
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run(line, code=0)`: the command line in this process; its summary, and what it said on standard error on one line."""

    def command(line: str, code: int = 0) -> tuple[dict[str, Any], str]:
        argv = shlex.split(line)
        monkeypatch.setattr(sys, "argv", argv)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            {"rrm": rrm.cli, "reagent": reagent.cli}[argv[0]].main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.err
        printed = said.out.strip().splitlines()
        return json.loads(printed[-1]) if printed else {}, " ".join(said.err.split())

    return command


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def seal(folder: Path) -> None:
    """Write what a checkpoint has beside its files since: their sizes and sums."""
    facts = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in folder.iterdir()
    }
    (folder / "manifest.json").write_text(json.dumps({"files": facts}))


# ---- hashes and seeds ----


def test_hashes_and_digests_are_as_they_were() -> None:
    for place, (settings, _) in enumerate(VALUES["settings_hash"]):
        Path(f"judge-{place}").mkdir()
        Path(f"judge-{place}/judge.json").write_text(json.dumps(settings))
    # a server's judge is hashed by its settings alone
    served = [
        AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", settings=f"judge-{place}").model_hash
        for place in range(len(VALUES["settings_hash"]))
    ]
    assert served == [wanted for _, wanted in VALUES["settings_hash"]]
    assert AgentRRM.from_pretrained("judge", device="cpu").model_hash == VALUES["model_hash"]
    runs = [Trajectory.model_validate(row) for row in rows("transcripts.jsonl")]
    assert {one.id: one.digest for one in runs} == VALUES["digests"]


def test_seeds_and_samples_are_as_they_were() -> None:
    assert [derive_seed(*parts) for parts, _ in VALUES["derive_seed"]] == [seed for _, seed in VALUES["derive_seed"]]
    engine: Any = AgentRRM.from_pretrained("judge", device="cpu").engine
    wanted = VALUES["sampled"]
    found = engine.generate(wanted["rows"], SamplingParams(24, 1.0, seed=11), ["a", "b"])
    assert [list(one.ids) for one in found] == wanted["ids"] and [one.stop_reason for one in found] == wanted["stops"]


def test_the_lab_draws_the_same_transcripts_and_labels(run: Run) -> None:
    run("reagent lab transcripts -o again.jsonl --n 8 --seed 5 --hops 1,2 --annotations labels-again.jsonl")
    assert Path("again.jsonl").read_bytes() == Path("transcripts.jsonl").read_bytes()
    assert Path("labels-again.jsonl").read_bytes() == Path("annotated.jsonl").read_bytes()


# ---- outputs of rrm score ----


def test_rows_are_read() -> None:
    for name in ("score", "steps", "full", "lab", "whole"):
        given, found = rows(f"{name}.jsonl"), read_feedback(Path(f"{name}.jsonl"))
        for key in ("id", "status", "score", "raw_score", "critique", "trace", "reason"):
            assert [getattr(one, key) for one in found] == [one[key] for one in given], (name, key)
        assert [len(one.findings) for one in found] == [len(one["findings"]) for one in given]


def test_a_half_done_run_goes_on(run: Run) -> None:
    line = f"rrm score input.jsonl -o half.jsonl --mode score --seed 3 {JUDGE}"
    before = Path("half.jsonl").read_bytes().splitlines(keepends=True)[:2]
    # verdicts stand in these rows for transcripts outside the judge's domain too: the error names the option that goes on so
    assert "--out-of-domain keep goes on so" in run(line, 2)[1]
    line += " --out-of-domain keep"
    # the rules that mark steps are others since: nothing else of the header has changed
    only = re.search(
        r"rows made otherwise: the version of the checks by program was 3 and is (\d+); choose another -o",
        run(line, 2)[1],
    )
    assert only
    header = json.loads(Path("half.jsonl.run.json").read_text(encoding="utf-8"))
    header["fingerprint"]["rules"] = int(only[1])
    Path("half.jsonl.run.json").write_text(json.dumps(header))
    summary, _ = run(line, 1)  # 1: a line of the input is cut
    assert (summary["resumed"], summary["judged"]) == (2, 4)
    assert Path("half.jsonl").read_bytes().splitlines(keepends=True)[:2] == before
    assert [one["id"] for one in rows("half.jsonl")] == [one["id"] for one in rows("score.jsonl")]
    scores = [one["score"] for one in rows("score.jsonl")]
    assert [one["score"] for one in rows("half.jsonl")] == pytest.approx(scores, abs=1e-6)
    assert rows("half.errors.jsonl") == rows("score.errors.jsonl")


def test_shards_are_merged(run: Run) -> None:
    run("rrm merge shard2.jsonl shard1.jsonl -o merged.jsonl")
    assert rows("merged.jsonl") == rows("whole.jsonl")
    header = [json.loads(Path(f"{name}.jsonl.run.json").read_text()) for name in ("merged", "whole")]
    assert header[0] == header[1]


# ---- labels, comparisons, the guard's audit ----


def test_labels_are_read(run: Run) -> None:
    for name in ("rules", "annotated", "labels"):
        given, found = rows(f"{name}.jsonl"), read_annotations(f"{name}.jsonl")
        for key in ("trajectory_id", "score", "annotator"):
            assert [getattr(one, key) for one in found] == [one.get(key) for one in given], (name, key)
        assert [len(one.findings or ()) for one in found] == [len(one.get("findings") or ()) for one in given]
    assert "rules" in run("rrm annotate transcripts.jsonl -o rules.jsonl --annotator rules", 2)[1]


def test_the_journal_of_labels_is_read(run: Run) -> None:
    for name in ("", ".journal", ".journal.run.json"):
        other = Path(f"other.jsonl{name}")
        other.write_text(Path(f"labels.jsonl{name}").read_text().replace('"ann"', '"bob"'))
    summary, _ = run("rrm label --agreement labels.jsonl other.jsonl --transcripts transcripts.jsonl")
    assert summary["outcome"]["labels"] == {"good": 2, "bad": 2} and summary["steps"]["labels"] == {"good": 2, "bad": 2}
    assert summary["outcome"]["unsure"] == {
        "ann": 1,
        "bob": 1,
    }  # the journal alone says so; the last action was taken back


def test_answers_to_a_sheet_are_read_with_its_key(run: Run) -> None:
    run("rrm compare --analyse sheet.key.json answers-ann.json -o again.json --seed 1")
    assert json.loads(Path("again.json").read_text()) == json.loads(Path("compared.json").read_text())


def test_the_audit_of_a_guard_is_read(run: Run) -> None:
    found, given = list(read_audit("audit.jsonl")), rows("audit.jsonl")
    for key in ("run", "step", "verdict", "status", "score", "p_good"):
        assert [getattr(one, key) for one in found] == [one[key] for one in given], key
    assert Counter(one.verdict for one in found) == {"ask": 10, "continue": 10, "halt": 2}
    run(f"rrm guard transcripts.jsonl --audit again.jsonl --policy guard.yaml {JUDGE}")
    again = rows("again.jsonl")
    assert [(one["run"], one["step"], one["verdict"]) for one in again] == [
        (one["run"], one["step"], one["verdict"]) for one in given
    ]
    assert [one["score"] for one in again] == pytest.approx([one["score"] for one in given], abs=1e-6)


# ---- trainings ----


def resumed(run: Run, line: str, checkpoint: Path, caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """Go on from a checkpoint of before, which had no manifest: two are refused with advice, one is taken once it is sealed."""
    later = checkpoint.with_name(checkpoint.name.replace("1", "2"))
    shutil.copytree(checkpoint, later)
    assert "finish this run with that version, or name another output folder" in run(line, 2)[1]
    shutil.rmtree(later)
    seal(checkpoint)
    summary, _ = run(line)
    assert f"continuing from {checkpoint}" in caplog.text
    return summary


def test_the_training_of_a_judge_goes_on(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    line = "rrm train --config judge.yaml calibration.enabled=false evaluation.enabled=false"
    resumed(run, line, Path("judge-run/sft/checkpoint-1"), caplog)
    now, then = (load_file(f"{folder}/model.safetensors") for folder in ("judge-run/judge", "judge"))
    assert now.keys() == then.keys()
    assert max(float((now[name] - then[name]).abs().max()) for name in now) < 1e-6


def alike(a: Any, b: Any) -> bool:
    """Equal, numbers to rounding."""
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) if numbers else a == b


def test_the_training_of_an_agent_goes_on(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    line = "reagent train --config agent.yaml"
    first = Path("agent-run/metrics.jsonl").read_text(encoding="utf-8")
    summary = resumed(run, line, Path("agent-run/checkpoints/checkpoint-000001"), caplog)
    assert summary["updates"] == 2 and Path("agent-run/metrics.jsonl").read_text(encoding="utf-8").startswith(first)
    now, then = rows("agent-run/metrics.jsonl")[1], VALUES["second_update"]
    then = {name: value for name, value in then.items() if name not in GONE_METRICS}
    changed = {name: (value, now.get(name)) for name, value in then.items() if not alike(value, now.get(name))}
    assert not changed
    weights = load_file("agent-run/policy/model.safetensors")
    sums = {name: float(value.double().abs().sum()) for name, value in weights.items()}
    assert sums == pytest.approx(VALUES["trained_policy"], rel=1e-5)


def test_a_policy_plays_the_same(run: Run) -> None:
    options = "eval.temperature=1.0 eval.samples=2"
    run(f"reagent eval --config agent.yaml --policy policy -o again.json --transcripts again.jsonl {options}")
    said = [
        [(one["id"], [m["content"] for m in one["messages"] if m["role"] == "assistant"]) for one in rows(name)]
        for name in ("again.jsonl", "played.jsonl")
    ]
    assert said[0] == said[1] and len(said[0]) == 4
    found, given = (json.loads(Path(name).read_text()) for name in ("again.json", "played.json"))
    assert {name: found[name] for name in ("tasks", "turns", "tokens")} == {
        n: given[n] for n in ("tasks", "turns", "tokens")
    }


def test_a_corpus_is_searched() -> None:
    (search,) = build(["search"], {"search": {"corpus": "corpus", "k": 1}})
    found = {query: search(query=query) for query in ("Town 5", "\u6771\u4eac 5")}
    assert all("Town 5 lies on river 2" in text for text in found.values()), found


def leaves(tree: Any) -> Counter[str]:
    """Values of a config, whatever their keys are called: 1 is 1.0, null is nothing."""
    if isinstance(tree, dict | list):
        return sum((leaves(one) for one in (tree.values() if isinstance(tree, dict) else tree)), Counter())
    number = isinstance(tree, int | float) and not isinstance(tree, bool)
    return Counter() if tree is None else Counter([str(float(tree) if number else tree)])


@pytest.mark.parametrize("kind", ["agents", "rrm"])
def test_configs_are_read(kind: str) -> None:
    load, run = (load_agent_config, "agent") if kind == "agents" else (load_config, "judge")
    paths = [*sorted(Path("configs", kind).iterdir()), Path(f"{run}.yaml"), Path(f"{run}-run/config.yaml")]
    assert len(paths) == 8
    for path in paths:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        without_removed(given, {**REMOVED, **REMOVED_OF_AGENTS})  # features and keys that went since
        assert not leaves(given) - leaves(load(str(path)).model_dump(mode="json")), path
