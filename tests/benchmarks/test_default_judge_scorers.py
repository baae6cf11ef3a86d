"""What the baselines say is kept for the rows it was said of."""

from __future__ import annotations

from pathlib import Path

from benchmarks.default_judge.scorers import FILES, SAME, Known, add_same_rows
from benchmarks.default_judge.sources import Example
from rrm.data.trajectory import Message, Trajectory


def test_the_same_words_are_learned_anew_of_other_data(tmp_path: Path) -> None:
    """Scores were kept by the rows' ids alone: those of other texts passed for them, and other rows had none."""
    found: list[dict[str, float]] = []
    for n, words in enumerate((("alpha", "beta"), ("beta", "alpha"))):
        train = [example(f"r{i}", words[i % 2], float(i % 2)) for i in range(20)]
        parts = {"train": train, "test": [example("a", "alpha", 1.0), example("b" if n else "c", "beta", 0.0)]}
        for name in FILES:
            (tmp_path / name).write_text(f"{words} {name}")
        known = Known({row.trajectory.id: {} for row in parts["test"]}, {})
        add_same_rows(known, parts, {row.trajectory.id for row in train}, tmp_path, tmp_path)
        found.append({id: scores[SAME] for id, scores in known.outcomes.items()})
    assert found[0]["a"] < 0.5 < found[1]["a"] and set(found[1]) == {"a", "b"}


def example(id: str, said: str, outcome: float) -> Example:
    messages = [Message(role="user", content="q"), Message(role="assistant", content=f"{said} it is")]
    return Example(Trajectory(id=id, task="q", outcome=outcome, messages=messages, meta={"source": "s"}), None, ())
