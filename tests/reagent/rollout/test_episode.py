"""Episode: its arrays by hand, and its round trip through JSON lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reagent.env.task import Task
from reagent.rollout.episode import Episode, Turn, jsonable, read_episodes, write_episodes
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ReadError


def episode(outcome: float | None = 1.0) -> Episode:
    turns = [
        Turn([10, 11], [-0.5, -0.25], [12, 13, 14], 0.5, "eos", {"tool_calls": 1}),
        Turn([15, 2, 2], [-1.0, -2.0, -3.0], [], -0.125, "length", {"answer": "é\ud800", "grade": 1.0}),
    ]
    messages = [Message(role="user", content="?"), Message(role="assistant", content="x\u2028y")]
    return Episode(
        task=Task("t", "?", "a", 7, "q", {"hops": 2}),
        prompt_ids=[1, 2],
        turns=turns,
        outcome_reward=outcome,
        status="finished",
        error=None,
        success=True,
        group_id="t",
        stage="refined",
        trajectory=Trajectory(id="t/0", messages=messages, outcome=1.0),
        attempt=3,
    )


def test_the_arrays_by_hand() -> None:
    flat = episode().flatten()
    assert flat.input_ids.tolist() == [1, 2, 10, 11, 12, 13, 14, 15, 2, 2]
    assert flat.action_mask.tolist() == [False] * 2 + [True] * 2 + [False] * 3 + [True] * 3  # 2 in the prompt is none
    assert flat.turn_index.tolist() == [-1, -1, 0, 0, 0, 0, 0, 1, 1, 1]
    assert flat.token_rewards.tolist() == [0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0.875]
    assert flat.rollout_logprobs.tolist() == [0, 0, -0.5, -0.25, 0, 0, 0, -1, -2, -3]
    dtypes = [a.dtype for a in vars(flat).values()]
    assert dtypes == [np.int64, np.bool_, np.int64, np.float32, np.float32]


def test_rewards_and_the_unknown_outcome() -> None:
    assert episode().reward == 1.375 and episode(0.0).reward == 0.375
    unknown = episode(None)
    assert unknown.reward is None  # never 0
    assert unknown.flatten().token_rewards.tolist()[-1] == -0.125
    assert episode().answer == "é\ud800"


def test_a_turn_needs_a_logprob_for_each_id() -> None:
    for ids, logprobs in (([], []), ([1], []), ([1], [0.0, 0.0])):
        with pytest.raises(ValueError, match="a turn needs sampled ids"):
            Turn(ids, logprobs, [])


def test_the_round_trip_loses_nothing(tmp_path: Path) -> None:
    episodes = [episode(), episode(None)]
    path = tmp_path / "episodes.jsonl"
    assert write_episodes(path, episodes) == 2
    assert len(path.read_text("ascii").splitlines()) == 2  # U+2028 and lone surrogates are escaped
    assert list(read_episodes(path)) == episodes


@pytest.mark.parametrize("line", ["no json", "[]", "{}", '{"task": {}, "turns": [], "trajectory": {}}'])
def test_a_line_that_is_no_episode_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(episode().to_json() + "\n" + line + "\n")
    with pytest.raises(ReadError, match=r"e\.jsonl:2: not an episode"):
        list(read_episodes(path))


def test_numbers_without_a_word_in_json_are_refused_or_spelled() -> None:
    bad = episode()
    bad.turns[0].reward = float("nan")
    with pytest.raises(ValueError, match="JSON"):
        bad.to_json()
    odd = {1: (np.float32(0.5), {2}), "n": float("inf"), "o": object, "b": np.bool_(True)}
    assert jsonable(odd) == {"1": [0.5, [2]], "n": "inf", "o": "<class 'object'>", "b": True}
