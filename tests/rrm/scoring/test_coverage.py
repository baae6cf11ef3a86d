"""How much was read of each transcript: what the summary says, whom a warning names, and what it advises to whom."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_judge import ChatJudge, transcripts

from rrm.judge.judge_dir import JudgeSettings
from rrm.scoring.coverage import Coverage
from rrm.scoring.run import score_file


def of(*shares: float) -> Coverage:
    found = Coverage()
    for at, share in enumerate(shares):
        found.add(f"t{at}", share)
    return found


def test_the_lowest_are_named_and_few_are_held() -> None:
    assert Coverage().found() is None
    found = of(1.0, 0.2, 0.95).found()
    assert found == {"median": 0.95, "below_0.9": 1, "below_0.5": 1, "rows": 3, "lowest": {"t1": 0.2}}
    many = of(*(n % 50 / 50 for n in range(10_000)))
    said = many.found()
    assert said and list(said["lowest"].items()) == [("t0", 0.0), ("t50", 0.0), ("t100", 0.0)]
    assert said["below_0.5"] == 5000 and len(many._least) == 3


def test_one_long_run_among_short_ones_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The median said nothing of it."""
    of(1.0, 0.6, 1.0).report({})
    assert not caplog.messages
    of(1.0, 0.31, 1.0, 0.124, 1.0).report({"prompt_version": "2"})
    (said,) = caplog.messages
    assert "100% of the median transcript (2 of 5 below 90%, 2 below half; least of 't3' 12%, 't1' 31%)" in said
    assert "take a judge that reads long runs to their end" in said


@pytest.mark.parametrize(
    ("about", "said", "unsaid"),
    [
        ({"prompt_version": "1"}, "take a judge of prompt version 2, which reads long runs to their end", "--context"),
        ({"prompt_version": "2"}, "--context", "version 2"),  # it was told to be replaced by one of version 2
        ({"prompt_version": "2", "max_windows": 4}, "raise --max-windows, here 4, or leave it out", "version 2"),
    ],
)
def test_low_coverage_is_warned_of_with_what_helps_this_judge(
    about: dict[str, Any], said: str, unsaid: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert of(0.5).report(about) and said in caplog.text and unsaid not in caplog.text


@pytest.mark.parametrize(
    "about", [{"prompt_version": "1"}, {"prompt_version": "2"}, {"prompt_version": "2", "max_windows": 4}]
)
def test_who_asks_rrm_serve_is_told_to_whom_options_are_said(
    about: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The client refuses each of them."""
    of(0.5).report(about, SimpleNamespace(address="http://h", settings=JudgeSettings(modes=["score"])))
    (said,) = caplog.messages
    options = said.split("--")[1:]
    assert options and all(option.partition(" ")[2].startswith("to rrm serve") for option in options)


def test_a_judge_of_steps_is_not_told_to_be_one(caplog: pytest.LogCaptureFixture) -> None:
    of(0.5).report({"prompt_version": "2"}, SimpleNamespace(settings=JudgeSettings(modes=["score", "steps"])))
    assert "--context" in caplog.text and "rrm serve" not in caplog.text
    assert "trained in" not in caplog.text and "one window" not in caplog.text


def test_a_scoring_run_names_rows_of_this_run_and_resumed_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Skims(ChatJudge):
        def judge(self, trajectories: Any, *, on_feedback: Any = None, **options: Any) -> Any:
            def skimmed(feedback: Any) -> None:
                share = 0.1 if feedback.id in ("t1", "t4") else 1.0
                on_feedback(feedback.model_copy(update={"coverage": share}))

            return super().judge(trajectories, on_feedback=skimmed, **options)

    caplog.set_level(logging.WARNING)
    score_file(Skims(), transcripts(3), tmp_path / "out.jsonl")
    caplog.clear()
    summary = score_file(Skims(), transcripts(6), tmp_path / "out.jsonl")
    assert summary.resumed == 3 and summary.coverage and summary.coverage["lowest"] == {"t1": 0.1, "t4": 0.1}
    assert "2 below half; least of 't1' 10%, 't4' 10%" in caplog.text


def test_a_run_of_which_little_was_read_is_named_although_it_has_no_score(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing was read the status says why, and a larger budget would not mend it."""
    shares = {
        "t1": ("unparsable", 0.0045),
        "t2": ("judge_error", 0.0),
        "t3": ("too_long", 0.0),
        "t4": ("truncated", 0.93),
    }

    class Fails(ChatJudge):
        def judge(self, trajectories: Any, *, on_feedback: Any = None, **options: Any) -> Any:
            def failed(feedback: Any) -> None:
                status, share = shares.get(feedback.id, ("scored", 1.0))
                lacks = {} if status == "scored" else {"score": None, "raw_score": None, "reason": "no score"}
                on_feedback(feedback.model_copy(update={"status": status, "coverage": share, **lacks}))

            return super().judge(trajectories, on_feedback=failed, **options)

    caplog.set_level(logging.WARNING)
    for _ in range(2):  # judged, and resumed
        caplog.clear()
        summary = score_file(Fails(), transcripts(5), tmp_path / "out.jsonl")
        assert summary.coverage == {
            "median": 0.93, "below_0.9": 1, "below_0.5": 1, "rows": 3, "lowest": {"t1": 0.0045}
        }  # fmt: skip
        assert "least of 't1' 0.45%" in caplog.text
        assert summary.first_failure == "unparsable: no score (0.45% of the transcript was read)"
    assert summary.resumed == 5
