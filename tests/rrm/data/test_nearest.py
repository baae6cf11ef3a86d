"""What was meant: names that are spelt nearly alike, and none that only share an ending."""

from __future__ import annotations

import pytest

from rrm.data.printing import nearest, nearest_file

FORMATS = ("openai", "anthropic", "langchain", "openhands", "swe_agent", "react")
FILES = ("ann.jsonl", "runs.jsonl", "runs.parquet", "scored.jsonl", "README.md")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("opanai", "openai"),
        ("OpenAI", "openai"),
        ("langchian", "langchain"),
        ("agent", "swe_agent"),
        ("swe", None),
        ("chat", None),
        ("", None),
    ],
)
def test_only_near_names_are_meant(name: str, meant: str | None) -> None:
    assert nearest(name, FORMATS) == meant


def test_a_word_of_a_longer_name_is_near() -> None:
    assert nearest("enable_thinking", ["thinking"]) == "thinking" and nearest("memory", ["memory_mb"]) == "memory_mb"
    assert nearest("of", ["out_of_place"]) is None and nearest("x", []) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("runz.jsonl", "runs.jsonl"),
        ("run.jsonl", "runs.jsonl"),
        ("runs.parq", "runs.parquet"),
        ("runs.json", "runs.jsonl"),
        ("absent.jsonl", None),  # was ann.jsonl
        ("labels.jsonl", None),
    ],
)
def test_an_ending_in_common_makes_no_file_near(name: str, meant: str | None) -> None:
    assert nearest_file(name, FILES) == meant
