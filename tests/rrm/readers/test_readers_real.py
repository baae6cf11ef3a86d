"""The public transcripts: every file readable with `--format auto`, with the right task, question, label and leaks."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from rrm.data.trajectory import Trajectory
from rrm.readers import read

FILES = [  # file, rows, format, successes (counted from the files' own label fields), rows whose text tells the verdict
    ("fireact/ft_gpt_3_5_turbo_0613_prince.json.gz", 441, "react", 183, 441),
    ("fireact/llama_models_lora_llama_2_13.json.gz", 474, "react", 156, 474),
    ("fireact/llama_models_lora_llama_2_7b.json.gz", 475, "react", 121, 475),
    ("knowagent/KnowAgentALFWorld_llama-2-13b_D0.jsonl.gz", 510, "react", 134, 0),
    ("knowagent/KnowAgentHotpotQA_llama-2-13b_D0.jsonl.gz", 500, "react", 132, 494),
    ("r1_searcher/2wiki_qwen.jsonl.gz", 495, "search_tags", 321, 0),
    ("r1_searcher/hotpotqa_qwen.jsonl.gz", 476, "search_tags", 356, 0),
    ("tau_bench/gpt-4o-airline.json.gz", 200, "tau_bench", 84, 0),
]


@pytest.mark.parametrize(("name", "rows", "form", "successes", "leaks"), FILES)
def test_every_row(shared_data: Path, name: str, rows: int, form: str, successes: int, leaks: int) -> None:
    found = list(read(shared_data / "transcripts" / name))
    assert len(found) == rows and {t.source.format for t in found if t.source} == {form}
    assert sum(t.outcome or 0 for t in found) == successes and all(t.outcome is not None for t in found)
    assert sum(bool(t.meta.get("outcome_leaks")) for t in found) == leaks
    assert all(t.task and t.question_id and t.steps for t in found)
    assert len({t.id for t in found}) == rows
    for t in found[:20]:
        assert Trajectory.from_json(t.to_json()).messages == t.messages


@pytest.mark.parametrize("name", ["hotpotqa", "gsm8k", "math", "theoremqa"])
def test_mint_keeps_message_indices(shared_data: Path, name: str) -> None:
    """`critiques[i].after_message` points into messages, so the reader must not move them."""
    path = shared_data / "transcripts" / "mint" / f"{name}.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        raw = [json.loads(line) for line in itertools.islice(lines, 200)]
    found = list(itertools.islice(read(path), 200))
    for record, t in zip(raw, found, strict=True):
        assert t.id == record["id"] and t.question_id == record["question_id"] and t.outcome == record["outcome"]
        assert [m.text() for m in t.messages] == [m["content"] for m in record["messages"]]
        assert t.task == record["messages"][0]["content"] and t.meta["task"] == name
        assert t.meta["reference"] == record["reference"] and t.meta["agent"] == record["agent"]
        wrong = [i for i, m in enumerate(record["messages"]) if "Your answer is wrong" in m["content"]]
        assert t.meta.get("outcome_leaks", []) == [i for i in wrong if record["messages"][i]["role"] == "tool"]


def test_attempts_at_one_question_meet_across_sources(shared_data: Path) -> None:
    """FireAct's three agents and R1-Searcher were asked some of the same HotpotQA questions."""
    folder = shared_data / "transcripts"
    ids = {name: {t.question_id for t in read(folder / name)} for name, *_ in FILES if "fireact" in name}
    first, second, third = ids.values()
    assert len(second & third) > 400 and len(first & second) > 400
    searcher = {t.question_id for t in read(folder / "r1_searcher" / "hotpotqa_qwen.jsonl.gz")}
    assert len(first & searcher) == 20
    assert len({t.question_id for t in read(folder / "tau_bench")}) == 50
