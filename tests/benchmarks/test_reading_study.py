"""The study of a language model that learns to read: whose passages are found, and which figures follow from answers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.studies.reading import collect, titled_passages, two_wiki

CORPUS = [
    {"title": "Lenz Bridge", "text": "The Lenz bridge was built by Ana Büki in 1904."},
    {"title": "Ana Büki", "text": "Ana Büki was born in Galați."},
    {"title": "Lenz", "text": "A village."},
    *({"title": f"Other {k}", "text": "Nothing."} for k in range(9)),
]
QUESTIONS = [
    {"question": "Where was the builder of Lenz Bridge born?", "answer": "Galați"},
    {"question": "Where did the builder of Lenz Bridge die?", "answer": "Wien"},  # in no passage that is found
    {"question": "Is Lenz Bridge in the same country as Ana Büki?", "answer": "yes"},
]


def test_passages_are_those_named_and_those_they_name(tmp_path: Path) -> None:
    for name, rows in (("corpus_6119", CORPUS), ("dev_questions_touching_corpus", QUESTIONS)):
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
    first, second = two_wiki(tmp_path)
    assert [title for title, _ in first["supporting_facts"]] == ["Lenz Bridge", "Ana Büki"]
    assert second["answer"] == "yes" and len(first["context"]) >= 4
    assert titled_passages("ana büki's bridge, the lenz-bridge", {"lenz bridge": 0, "ana büki": 1, "lenz": 2}) == [1, 0]


def test_gains_are_paired_by_question(tmp_path: Path) -> None:
    def put(path: Path, value: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value) + "\n")

    for name in ("questions", "train", "held_out"):
        put(tmp_path / f"{name}.jsonl", {})
    put(tmp_path / "start" / "probe.json", {"greedy": 0.25})
    asked = [f"q{k}" for k in range(8)]
    put(tmp_path / "start" / "greedy.json", {"by_task": dict.fromkeys(asked, 0.0) | {"q0": 1.0, "q1": 1.0}})
    row = {"update": 0, "time/rollout_tokens_per_s": 10.0, "time/rollout_busy_s": 3.0, "time/total_s": 7.0}
    for arm, right in (("grpo", 6), ("control", 2)):
        folder = tmp_path / arm / "seed0"
        put(folder / "metrics.jsonl", row)
        put(
            tmp_path / arm / "seed0.begun.json",
            {"seconds": 9.0, "options": ["output_dir=here", "seed=0"], "commits": ["c"]},
        )
        put(folder / "greedy.json", {"by_task": {name: float(k < right) for k, name in enumerate(reversed(asked))}})
    study_record = collect(tmp_path, ("grpo", "control", "rft"))
    greedy = study_record["gains"]["greedy"]
    assert greedy["start"] == 0.25 and greedy["grpo"]["success"] == [0.75] and "rft" not in greedy
    assert greedy["grpo"]["less_start"]["value"] == greedy["grpo"]["less_control"]["value"] == pytest.approx(0.5)
    (run,) = study_record["arms"]["grpo"]
    assert (run["answers"]["greedy"], run["options"], run["tokens"]) == ("00111111", ["seed=0"], 30)
    assert study_record["seconds_an_update"] == 7.0 and not run["done"]
