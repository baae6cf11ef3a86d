"""What is logged of episodes, by hand."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from feedback_lab import make_episode

from reagent.feedback.judging import JudgingReport
from reagent.train.metrics import episode_metrics
from reagent.train.runlog import RunLog


def test_tokens_of_all_kinds_are_counted_of_the_mean_and_the_longest_episode() -> None:
    """Two of the prompt and one a turn; an observation adds its own."""
    short, long = make_episode([0.0]), make_episode([0.0, 0.0])
    long.turns[0] = replace(long.turns[0], observation_ids=[7, 8, 9])
    found = episode_metrics([short, long], "refined")
    assert (found["refined/tokens"], found["refined/longest_tokens"]) == (5.0, 7.0)
    assert math.isnan(episode_metrics([])["episode/longest_tokens"])


def test_the_summary_says_how_many_judgements_failed_and_of_what(tmp_path: Path) -> None:
    """It stood in the run's files alone, and there without the kinds."""
    updates: list[dict[str, int]] = [
        {"judged": 8, "failed": 3, "failed_unparsable": 2, "failed_judge_error": 1},
        {"judged": 8},
        {"judged": 8, "failed": 1, "failed_unparsable": 1},
    ]
    path: Any = tmp_path / "metrics.jsonl"
    rows = [JudgingReport(counts=Counter(counts)).figures() for counts in updates]
    path.write_text("".join(json.dumps({"update": n, **row}) + "\n" for n, row in enumerate(rows)))
    log: Any = SimpleNamespace(metrics=path)
    assert RunLog.judgements(log) == {"judged": 24, "failed": 4, "judge_error": 1, "unparsable": 3}
    path.write_text(json.dumps({"update": 0, "learned/rows": 4.0}) + "\n")
    assert RunLog.judgements(log) is None
