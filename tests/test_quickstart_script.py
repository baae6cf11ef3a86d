"""The quickstart trains an agent from the judge alone, and ends with runs that are worth a look."""

from __future__ import annotations

import re
from pathlib import Path

SCRIPT = (Path(__file__).resolve().parents[1] / "examples" / "quickstart.sh").read_text(encoding="utf-8")


def test_one_training_has_no_task_with_a_label() -> None:
    words = [word.strip("\"'") for line in SCRIPT.splitlines() for word in line.partition("#")[0].split()]
    assert any(re.fullmatch(r"environment\.label_share=0+(\.0*)?", word) for word in words)


def test_it_ends_with_good_and_bad_runs_picked_judged_and_shown() -> None:
    _, found, last = SCRIPT.rpartition("worth_seeing.py pick")
    assert found and all(word in last for word in ("rrm score", "--html", "worth_seeing.py look"))
