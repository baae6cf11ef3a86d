"""The mixture on the public transcripts themselves: sides, leaks, and the base rates their README gives."""

from __future__ import annotations

import gzip
import re
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks import mint
from benchmarks.default_judge import mixture, sources
from benchmarks.default_judge.sources import Example
from benchmarks.default_judge.split import mint_split

VERDICTS = {
    "mint": r"Your answer is (?:wrong|correct)",
    "intercode": r"\breward\b *[:=]|\b(?:\d+ )?tests? (?:passed|failed)|passed all tests",
    "agentdojo": r"\butility\b *[:=]|Episode finished",
    "reflexion": r"Answer is (?:IN)?CORRECT|Episode finished",
    "fireact": r"Episode finished|reward *=",
    "knowagent": r"Answer is (?:IN)?CORRECT|Episode finished",
    "tau_bench": r"\breward\b *[:=]",
    "r1_searcher": r"gpt4o_output|Your answer is",
}
"""Source → what its environment says of the outcome. (What an agent dreams up, or has its own code print, is no verdict.)"""


@pytest.fixture(scope="module")
def rows(shared_data: Path) -> list[Example]:
    return sources.load(shared_data)


@pytest.fixture(scope="module")
def parts(rows: list[Example]) -> dict[str, list[Example]]:
    return mixture.by_part(rows, mixture.load_split())


def test_no_question_stands_on_two_sides(parts: dict[str, list[Example]]) -> None:
    sides: dict[str, set[str]] = defaultdict(set)
    for part, mine in parts.items():
        for row in mine:
            for key in row.keys:
                sides[key].add(part)
    shared = {key: found for key, found in sides.items() if len(found) > 1}
    assert all(
        found == {"test", "unseen"} for found in shared.values()
    )  # held-out sources share questions with test only


def test_no_environment_tells_a_verdict(rows: list[Example]) -> None:
    patterns = {source: re.compile(pattern, re.IGNORECASE) for source, pattern in VERDICTS.items()}
    leaking = [
        (row.source, row.trajectory.id, said[0])
        for row in rows
        for step in row.trajectory.steps
        for m in step.observations
        if (said := patterns[re.split("_more|_critic|/", row.source)[0]].search(m.text()))
    ]
    assert leaking == []


def test_the_phrases_are_those_of_the_whole_records(shared_data: Path) -> None:
    """Where the verdicts stand before the cut, they are found: the check above can fail."""
    folder = shared_data / "transcripts"
    whole = {
        "fireact": folder / "fireact" / "llama_models_lora_llama_2_7b.json.gz",
        "knowagent": folder / "knowagent" / "KnowAgentHotpotQA_llama-2-13b_D0.jsonl.gz",
        "mint": shared_data / "transcripts_more" / "mint_more.jsonl.gz",
    }
    for source, path in whole.items():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            assert re.search(VERDICTS[source], lines.read(2_000_000)), source


def test_absent_results_do_not_tell_a_steps_reward(rows: list[Example]) -> None:
    """In ALFWorld's whole runs a graded step without a result had earned 1, and with one 0: as rows, none has a result."""
    for row in rows:
        if row.source == "mint_more/alfworld":
            assert row.steps().keys() == {len(row.trajectory.steps)}
            assert not row.trajectory.steps[-1].observations


def test_labels_have_the_base_rates_of_the_readme(rows: list[Example]) -> None:
    outcomes: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.trajectory.outcome is not None:
            outcomes[row.source.split("/")[0] if row.source.startswith(("mint/", "intercode")) else row.source].append(
                row.trajectory.outcome
            )
    found = {name: (len(y), round(100 * sum(y) / len(y))) for name, y in outcomes.items()}
    assert (
        found.items()
        >= {
            "mint": (6137, 25),
            "intercode": (1879, 47),  # the agent ends the episode
            "mint_more/mbpp": (1284, 31),
            "mint_more/humaneval": (1294, 33),
            "mint_more/mmlu": (1494, 43),
            "agentdojo": (1227, 42),
            "reflexion": (378, 16),
        }.items()
    )
    assert not any(
        row.trajectory.outcome is not None for row in rows if "critic" in row.source or "alfworld" in row.source
    )
    critic = [good for row in rows if row.source.startswith("mint_critic") for good in row.steps().values()]
    assert 1 - sum(critic) / len(critic) == pytest.approx(0.78, abs=0.01)


def test_mints_test_questions_stay_test_and_held_out_agents_are_not_learned_from(
    parts: dict[str, list[Example]],
) -> None:
    committed = mixture.load_split()
    assert set(mint_split(mint.SPLIT)["test"]) <= set(committed["test"])
    assert set(mint_split(mint.SPLIT)["held_out_agents"]) <= set(committed["held_out_agents"])
    held_out = set(committed["held_out_agents"])
    assert not any(r.trajectory.meta["agent"] in held_out for r in parts["train"] + parts["calibration"])
    assert any(r.source.startswith("intercode") and r.trajectory.meta["agent"] in held_out for r in parts["test"])


def test_no_source_dominates_and_every_one_has_each_part(parts: dict[str, list[Example]], rows: list[Example]) -> None:
    built = mixture.build(rows, mixture.load_split(), seed=0)
    counts: dict[str, int] = defaultdict(int)
    for row in built["train"]:
        counts[row.source] += 1
    assert max(counts.values()) <= 0.12 * len(built["train"])
    for part in ("train", "calibration", "test"):
        assert {r.source for r in built[part]} == counts.keys()
    assert {r.source.split("/")[0] for r in built["unseen"]} == set(sources.UNSEEN)
    assert len(built["test"]) == len(parts["test"])
