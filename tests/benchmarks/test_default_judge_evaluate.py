"""The default judge's evaluation: choices among attempts by hand, and the whole of it on small rows with a judge that knows."""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.default_judge import evaluate, scorers
from benchmarks.default_judge.attempts import best_of_n
from benchmarks.default_judge.drawing import Draw, draw, drawn, named, pairs_of, to_read
from benchmarks.default_judge.evaluate import evaluate_mode, pooled
from benchmarks.default_judge.said import Judged
from benchmarks.default_judge.scorers import Known, labels_of
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import Feedback, JudgeInfo, Reads
from rrm.data.output import write_lines
from rrm.data.trajectory import Message, Trajectory, write_jsonl
from rrm.judge.judge_dir import JudgeSettings


def attempt(
    id: str,
    question: str,
    outcome: float | None,
    *,
    source: str = "a",
    said: str = "look",
    agent: str = "x",
    part: str = "test",
) -> Trajectory:
    turns = [Message(role="assistant", content=said), Message(role="tool", content="ok")]
    last = Message(role="assistant", content="the answer is done")
    meta = {"source": source, "agent": agent, "part": part}
    messages = [Message(role="user", content=f"do {question}"), *turns, last]
    return Trajectory(id=id, task=f"do {question}", question_id=question, messages=messages, outcome=outcome, meta=meta)


# ---- attempts --------------------------------------------------------------------------------------------------------


def test_best_of_n_by_hand() -> None:
    rows, judge = [], []
    for q in range(12):  # one success in four; the judge finds it in nine questions of twelve
        for k in range(4):
            rows.append(attempt(f"{q}-{k}", f"q{q}", float(k == 0), said="look " * (k + 1)))
            judge.append(1.0 if k == (0 if q < 9 else 1) else 0.0)
    found = best_of_n(rows, {"judge": np.array(judge)}, 4, compare_answers=True, resamples=200, seed=0)
    assert found is not None
    assert (found["questions"], found["attempts"]) == (12, 48)
    values = {name: x["outcome"]["value"] for name, x in found["metrics"].items()}
    assert values == {
        "judge": 0.75, "longest": 0.0, "shortest": 1.0, "random": 0.25, "oracle": 1.0, "majority": 0.25, "weighted": 0.75,
    }  # fmt: skip
    assert found["differences"]["random"]["outcome"]["low"] > 0
    assert found["differences"]["oracle"]["outcome"]["value"] == -0.25
    of_two = best_of_n(rows, {"judge": np.array(judge)}, 2, compare_answers=False, resamples=50, seed=0)
    assert of_two is not None
    # a pair holds the success half the time
    assert of_two["metrics"]["oracle"]["outcome"]["value"] == pytest.approx(0.5)
    assert not {"majority", "weighted"} & of_two["metrics"].keys()
    assert best_of_n(rows, {"judge": np.array(judge)}, 5, compare_answers=False, resamples=50, seed=0) is None


# ---- the whole -------------------------------------------------------------------------------------------------------


class Knowing:
    """A judge that reads the label where it is told to, with noise."""

    def __init__(self, truth: dict[str, tuple[float | None, list[bool]]]) -> None:
        self.truth, self.calls, self.settings = truth, 0, JudgeSettings()

    def describe(self) -> dict[str, Any]:
        return {"model": "knowing"}

    def measure(self, trajectories: Any, mode: Any) -> list[Reads]:
        return [Reads(1, 1, 1.0) for _ in trajectories]

    def judge(
        self, trajectories: Any, *, mode: Any = "steps", samples: int = 1, seed: int = 0, on_feedback: Any
    ) -> Any:
        found = []
        for t in trajectories:
            self.calls += 1
            rng = np.random.default_rng(zlib.crc32(t.id.encode()))
            outcome, good = self.truth[t.id]
            raw = float(np.clip(0.5 + 0.2 * ((outcome or 0.0) - 0.5) + rng.normal(0, 0.05), 0.01, 0.99))
            findings = [
                Finding(step=k, verdict="good", p_good=float(np.clip(0.3 + 0.4 * g + rng.normal(0, 0.1), 0, 1)))
                for k, g in enumerate(good, 1)
            ]
            info = JudgeInfo(model="knowing", prompt_version="2", mode="score")
            found.append(Feedback(id=t.id, status="scored", score=raw, raw_score=raw, findings=findings, judge=info))
            on_feedback(found[-1])
        return found


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Knowing]:
    """Two sources with 20 test questions of four attempts, one held out whole; half of a run's steps are labelled."""
    rng = np.random.default_rng(0)
    rows, unseen, annotations, truth = [], [], [], {}
    for source in ("mint/math", "b", "tau_bench"):
        for q in range(60):
            for k in range(4):
                part = "unseen" if source == "tau_bench" else ("train", "calibration", "test")[q % 3]
                y = float(rng.random() < 0.5)
                said = ("well done now" if y else "oops an error") if rng.random() < 0.3 else f"looking around {k}"
                name = f"{source.replace('/', '-')}-{q}-{k}"
                t = attempt(name, f"{source}{q}", y, source=source, said=said, agent=["x", "held"][k == 3], part=part)
                (unseen if part == "unseen" else rows).append(t)
                good = [bool(rng.random() < 0.4), bool(y)]
                truth[name] = (y, good)
                if part != "unseen":
                    findings = [Finding(step=2, verdict="good" if good[1] else "bad")]
                    annotations.append(
                        Annotation(trajectory_id=name, digest=t.digest, findings=findings, annotator="r", kind="rules")
                    )
    folder = tmp_path / "data"
    folder.mkdir()
    write_jsonl(folder / "transcripts.jsonl", rows)
    write_jsonl(folder / "unseen.jsonl", unseen)
    write_lines(folder / "annotations.jsonl", [a.to_json() for a in annotations])
    return folder, Knowing(truth)


def judged_rows(data: tuple[Path, Knowing], tmp_path: Path) -> tuple[scorers.Parts, Known, Judged]:
    folder, judge = data
    parts = scorers.load(folder)
    known = scorers.known(parts, folder, tmp_path / "work")
    said = Judged("score")
    for part in ("calibration", "test", "unseen"):
        for name, rows in named(parts[part]).items():
            said.add(judge, rows, tmp_path / f"{part}.{name.replace('/', '_')}.jsonl", 0)  # pyright: ignore
    return parts, known, said


def test_rows_come_back_with_their_part_and_step_labels(data: tuple[Path, Knowing], tmp_path: Path) -> None:
    parts, known, said = judged_rows(data, tmp_path)
    assert {part: len(rows) for part, rows in parts.items()} == {
        "train": 160, "calibration": 160, "test": 160, "unseen": 240,
    }  # fmt: skip
    row = parts["test"][0]
    assert labels_of(row) in ([None, "good"], [None, "bad"])
    assert labels_of(parts["unseen"][0]) is None
    assert set(known.outcomes[row.trajectory.id]) == {"tfidf_all", "tfidf_own", "agent", "length", "turns"}
    assert set(known.outcomes[parts["unseen"][0].trajectory.id]) == {"tfidf_all", "length", "turns"}
    assert all(len(p) == 2 for p in known.steps[row.trajectory.id].values())
    assert parts["train"][0].trajectory.id not in known.outcomes
    calls = data[1].calls
    again = judged_rows(data, tmp_path)
    assert data[1].calls == calls  # nothing was judged twice, and the baselines were kept
    assert again[1] == known and again[2].raw == said.raw
    assert said.raw["test.b.jsonl"]["rows"] == 80
    chosen = drawn(parts["test"], 20, 0, 0)
    assert len(chosen) == 20 and len({r.trajectory.question_id for r in chosen}) == 5


def test_everything_is_measured_of_a_judge_that_knows(data: tuple[Path, Knowing], tmp_path: Path) -> None:
    parts, known, said = judged_rows(data, tmp_path)
    cut = evaluate.thresholds(parts["calibration"], said, known)
    assert 0.3 < cut["judge"] < 0.7
    found = evaluate.measure(parts["test"], said, known, cut, resamples=200, seed=0)
    json.dumps(found, allow_nan=False)
    assert set(found["metrics"]) >= {"judge", "tfidf_all", "tfidf_own", "agent", "length", "turns"}
    assert found["metrics"]["judge"]["pair_accuracy_same_turns"]["value"] > 0.9
    assert found["differences"]["tfidf_all"]["pair_accuracy_same_turns"]["low"] > 0
    assert found["step_scores"]["metrics"]["judge"]["mcc"]["value"] > 0.6
    assert set(found["step_scores"]["metrics"]) >= {"judge", "all_bad", "position", "rules", "tfidf_all", "tfidf_own"}
    tests = named(parts["test"])
    together = pooled(tests, said, known, least=10, resamples=200, seed=0)
    alone = [evaluate.measure(rows, said, known, cut, resamples=100, seed=0)["metrics"] for rows in tests.values()]
    mean = np.mean([m["judge"]["pair_accuracy_same_turns"]["value"] for m in alone])
    assert together["metrics"]["judge"]["pair_accuracy_same_turns"]["value"] == pytest.approx(mean)
    assert together["sources"] == ["b", "mint/math"]
    assert together["pairs"] == {name: pairs_of(rows) for name, rows in tests.items()}
    assert pooled(tests, said, known, least=10**6, resamples=200, seed=0)["sources"] == []
    # a draw of some pairs has a vote by what there is to draw from
    voting = pooled(tests, said, known, least=10**6, held_out={"b": 10**6, "c": 10**7}, resamples=200, seed=0)
    assert voting["sources"] == ["b"] and voting["pairs"]["b"] == pairs_of(tests["b"])
    strange = pooled(named(parts["unseen"]), said, known, least=0, resamples=200, seed=0)
    assert strange["metrics"]["judge"]["auroc"]["low"] > 0.5
    # six successes of one source had no AUROC, and so there was no mean
    won = [row for row in parts["unseen"] if (row.trajectory.outcome or 0.0) >= 0.5][:6]
    found = pooled({**named(parts["unseen"]), "won": won}, said, known, least=0, resamples=200, seed=0)
    assert found["undefined"] == {"won": "6 rows of one outcome"} and found["metrics"] == strange["metrics"]
    # nor did one of which nothing was scored count as measured
    assert strange["unscored"] == {}
    for row in won:
        del said.feedback[row.trajectory.id]
    found = pooled({"won": won}, said, known, least=0, resamples=200, seed=0)
    assert found["unscored"] == {"won": 6} and not found["undefined"] and not found["metrics"]
    said = judged_rows(data, tmp_path)[2]
    chosen = evaluate.attempts(parts, said, known, resamples=100, seed=0)
    assert chosen["tau_bench"]["4"]["questions"] == 60
    assert chosen["mint"]["8"] is None
    assert chosen["mint"]["4"]["differences"]["random"]["outcome"]["low"] > 0
    assert "majority" in chosen["mint_answers"]["4"]["metrics"] and "majority" not in chosen["mint"]["4"]["metrics"]


def test_pair_accuracy_is_of_the_draw_in_pairs_and_the_rest_of_the_draw_by_question(
    data: tuple[Path, Knowing], tmp_path: Path
) -> None:
    folder, judge = data
    whole = scorers.load(folder)
    known = scorers.known(whole, folder, tmp_path / "work")
    held_out = {name: pairs_of(rows) for name, rows in named(whole["test"]).items()}
    parts, paired = draw(whole, Draw(limits={"": 40}, attempts={"": 2}, pairs={"": 60}))
    split = tmp_path / "split.json"
    split.write_text(
        json.dumps({"train": [], "calibration": [], "test": [], "unseen": [], "held_out_agents": ["held"]})
    )
    args = argparse.Namespace(seed=0, resamples=100, least_pairs=40, split=split)
    found = evaluate_mode(judge, "score", parts, paired, held_out, known, args, tmp_path)  # pyright: ignore
    json.dumps(found, allow_nan=False)
    read = to_read(parts, paired)
    assert judge.calls == sum(map(len, read.values())) == len({r.trajectory.id for rows in read.values() for r in rows})
    assert found["pooled"]["sources"] == ["b", "mint/math"]
    assert found["pooled"]["pairs"] == {name: pairs_of(rows) for name, rows in named(paired).items()}
    for name, rows in {**named(parts["test"]), "home": parts["test"]}.items():
        of = found["sources"][name]
        assert of["rows"] == len(rows)
        assert of["positive_rate"] == pytest.approx(np.mean([r.trajectory.outcome or 0.0 for r in rows]))
        assert 0.0 < of["ece_floor"] < 0.3
        two = of["in_pairs"]
        assert two["pairs"] > of["pairs"]["pair_accuracy_same_turns"]
        assert set(two["metrics"]["judge"]) >= {"pair_accuracy_same_turns"} and "auroc" not in two["metrics"]["judge"]
        assert set(two["metrics"]) >= {"judge", "tfidf_all"} and "ece" not in two["metrics"]["judge"]
    together = found["pooled"]["metrics"]["judge"]["pair_accuracy_same_turns"]["value"]
    alone = [
        found["sources"][n]["in_pairs"]["metrics"]["judge"]["pair_accuracy_same_turns"]["value"]
        for n in ("b", "mint/math")
    ]
    assert together == pytest.approx(np.mean(alone))
