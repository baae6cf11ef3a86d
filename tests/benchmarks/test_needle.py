"""The one line that decides is found in logs of any length, at any place, and nothing is found where it is not."""

from __future__ import annotations

import pytest

from benchmarks.needle import NEEDLE, make_log, measure, scripted_judge


def test_a_log_has_the_line_once_and_else_is_the_same() -> None:
    (ruined, step), (sound, none) = make_log(3000, 5, 0.6), make_log(3000, 5)
    assert none is None and step is not None
    text = [m.text() for m in ruined.messages]
    assert [m.text() for m in sound.messages] == [t.replace(f"{NEEDLE}\n", "").replace(f"\n{NEEDLE}", "") for t in text]
    assert NEEDLE in ruined.steps[step - 1].observations[0].text() and "".join(text).count(NEEDLE) == 1
    assert 0.9 < sum(map(len, text)) / 4 / 3000 < 1.2


@pytest.mark.parametrize(
    ("window", "tokens", "places", "most"),
    [
        (1024, 2_000, [0.0, 0.3, 0.41, 0.7, 0.999], 2.1),
        (1024, 20_000, [0.0, 0.35, 0.8], 2.1),
        (8192, 20_000, [0.0, 0.35, 0.999], 1.4),
        (8192, 200_000, [0.6], 1.4),
    ],
)
def test_it_is_found_at_every_place_without_alarms(window: int, tokens: int, places: list[float], most: float) -> None:
    found = measure(window, tokens, places, seed=3)
    assert (found.found, found.alarms, found.coverage) == (1.0, 0.0, pytest.approx(1.0))
    assert 1.0 <= found.read_per_token <= most


@pytest.mark.parametrize("mode", ["full", "score"])
def test_other_modes_find_it_too(mode: str) -> None:
    found = measure(1024, 6_000, [0.2, 0.9], mode=mode, seed=3)  # pyright: ignore[reportArgumentType]
    assert (found.found, found.alarms) == (1.0, 0.0)


def test_a_judge_that_cuts_does_not_find_it() -> None:
    """What is measured is the reading: the same replies over one shortened text miss the line."""
    log, _ = make_log(20_000, 3, 0.35)
    judge = scripted_judge(1024)
    judge.settings.prompt_version = "1"
    (feedback,) = judge.judge([log], mode="critique")
    assert feedback.score == 0.9 and feedback.coverage is not None and feedback.coverage < 0.1
