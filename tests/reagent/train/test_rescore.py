"""`reagent rescore`: a training's stored episodes judged anew, against figures by hand and the training's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from feedback_lab import calls_of, configured, reply, score_of, scripted

from reagent.cli import COMMANDS
from reagent.feedback.base import as_judged
from reagent.feedback.judging import content_key
from reagent.train.rescore import RescoredEpisode, advantages, compare, read_run, rescore
from reagent.train.run import train
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.errors import ConfigError, RRMError

INFO = JudgeInfo(model="m", prompt_version="1", mode="score")


def broken(transcript: str) -> str:
    """Every third judgement cannot be read."""
    return "no judgement" if score_of(transcript) in (0.0, 0.3, 0.6, 0.9) else reply(transcript)


def opposite(transcript: str) -> str:
    return f"<think>t</think><critique>[step 1] good: c</critique><score>{1 - score_of(transcript):.1f}</score>"


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of 3 updates with 8 episodes of 4 tasks, all stored, whose judge failed on some."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    feedback = {
        "mode": "r",
        "score_mode": "full",
        "max_failure_rate": 1.0,
        "score_weight": 0.5,
        "score_schedule": "linear",
    }
    changes: dict[str, Any] = {"algorithm": "grpo", "sample_episodes": 8, "environment": {"label_share": 0.5}}
    train(configured(base, folder, "r", feedback=feedback, **changes), judge=scripted(broken))
    return folder


def test_the_same_judge_earns_what_the_training_paid(trained: Path, tmp_path: Path) -> None:
    judge, output = scripted(broken), tmp_path / "rows.jsonl"
    figures = rescore(read_run(trained), judge, output)
    metrics = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert (figures["rows"], figures["episodes"], figures["sign_changes"], figures["spearman"]) == (
        24,
        24,
        0,
        pytest.approx(1),
    )
    assert figures["failures"]["old"] == figures["failures"]["new"] == {"unparsable": figures["old_failures"]}
    assert 0 < figures["old_failures"] < 24 and figures["scored_now"] == 0
    for row, paid in zip(figures["updates"], metrics, strict=True):
        assert row["old_reward"] == row["new_reward"] == pytest.approx(paid["learned/reward"], abs=1e-6)
    asked = len(calls_of(judge))
    assert rescore(read_run(trained), judge, output) == figures and len(calls_of(judge)) == asked  # resumed
    assert {json.loads(line)["status"] for line in output.read_text().splitlines()} == {"scored", "unparsable"}


def test_only_failures_are_asked_again(trained: Path, tmp_path: Path) -> None:
    run, judge = read_run(trained), scripted(reply)
    figures = rescore(run, judge, tmp_path / "rows.jsonl", failures_only=True)
    failed = {row.shown.id for row in run.rows if row.old.score is None}
    assert figures["asked"] == len(calls_of(judge)) == len(failed)
    assert figures["scored_now"] == figures["old_failures"] > 0 == figures["new_failures"]
    assert figures["new_reward"] > figures["old_reward"]  # a failure had earned 0


def test_an_opposite_judge_turns_rankings_round(trained: Path, tmp_path: Path) -> None:
    figures = rescore(read_run(trained), scripted(opposite), tmp_path / "rows.jsonl")
    assert figures["spearman"] < 0.8 and figures["sign_changes"] > 0


def test_the_figures_by_hand() -> None:
    def row(group: str, old: float | None, new: float | None, rewards: Any, signs: Any) -> RescoredEpisode:
        feedbacks = [
            Feedback(id="i", status="unparsable" if score is None else "scored", score=score, judge=INFO)
            for score in (old, new)
        ]
        return RescoredEpisode(group, feedbacks[0], feedbacks[1], rewards, signs)

    rows = [
        row("a", 0.1, 0.9, (0.1, 0.9), ([-1.0, 0.0], [1.0, 0.0])), row("a", 0.2, 0.8, (0.2, 0.8), ([0.0], [0.5])),
        row("a", 0.3, 0.7, (0.3, 0.7), ([1.0, 1.0], [-1.5, 2.0])), row("b", None, 0.5, (0.0, 0.5), ([-1.0], [-1.0])),
        row("b", 0.4, None, (0.4, None), ([1.0], None)), row("b", 0.6, 0.6, (0.6, 0.6), ([0.0], [0.0])),
    ]  # fmt: skip
    assert compare(rows) == {
        "rows": 6, "old_failures": 1, "new_failures": 1, "scored_now": 1,
        "old_reward": pytest.approx(1.6 / 6), "new_reward": pytest.approx(3.5 / 5),
        "spearman": pytest.approx((2 * -1 + 1 * 1) / 3), "sign_changes": 3 / 5,
    }  # fmt: skip


@pytest.mark.parametrize(("algorithm", "expected"), [("rloo", [-3.0, 0.0, 3.0, None]), ("ppo", [-2.0, 0.0, 2.0, None])])
def test_advantages_by_hand(algorithm: str, expected: list[float | None], trained: Path) -> None:
    run = read_run(trained)
    config = run.config.model_copy(update={"algorithm": algorithm, "loss": run.config.loss.model_copy(update={"advantage_scale": "none"})})  # fmt: skip
    episodes = [row.episode for row in run.rows[:4]]
    for attempt, (episode, reward) in enumerate(zip(episodes, (1.0, 3.0, 5.0, None), strict=True)):
        episode.group_id, episode.attempt = "g", attempt
        episode.turns, episode.outcome_reward = [replace(episode.turns[0], reward=0.0)], reward
    assert advantages(config, episodes) == [None if a is None else [pytest.approx(a)] for a in expected]
    for episode, rewards in zip(episodes[:2], ((1.0, 0.0), (0.0, 4.0)), strict=True):  # rewards to go 1, 0 and 4, 4
        episode.turns = [replace(episode.turns[0], reward=reward) for reward in rewards]
        episode.outcome_reward = 0.0
    by_turn = config.model_copy(update={"loss": config.loss.model_copy(update={"credit": "turn"})})
    assert advantages(by_turn, episodes[:2]) == [pytest.approx([-3.0, -4.0]), pytest.approx([3.0, 4.0])]


def test_second_attempts_are_judged_without_the_first(base: Path, tmp_path: Path) -> None:
    feedback = {"mode": "u", "score_mode": "full", "aux": {"trace": 0.0, "critique": 0.0}}
    config = configured(
        base, tmp_path / "run", "u", feedback=feedback, algorithm="grpo", sample_episodes=8, max_updates=1
    )
    train(config, judge=scripted())
    run = read_run(tmp_path / "run")
    assert {row.episode.stage for row in run.rows} == {"initial", "refined"} and len(run.rows) == run.played
    for row in run.rows:
        first = next(r.episode for r in run.rows if (r.episode.group_id, r.episode.attempt, r.episode.stage) == (row.episode.group_id, row.episode.attempt, "initial"))  # fmt: skip
        assert row.shown.id == content_key(as_judged(row.episode, first))
    assert rescore(run, scripted(), tmp_path / "rows.jsonl")["spearman"] == pytest.approx(1)


def test_the_command_says_how_many_are_stored_and_resumes(
    trained: Path, tmp_path, reagent, monkeypatch, caplog
) -> None:
    from rrm.cli.judge_options import JudgeOptions

    judge, options = scripted(opposite), []
    monkeypatch.setattr(JudgeOptions, "load", lambda self: (options.append(self), judge)[1])
    lines = (trained / "episodes.jsonl").read_text().splitlines(keepends=True)
    folder = tmp_path / "some"
    folder.mkdir()
    for name in ("config.yaml", "metrics.jsonl", "judgements.jsonl"):
        (folder / name).write_bytes((trained / name).read_bytes())
    (folder / "episodes.jsonl").write_text("".join(lines[:6]))
    code, out, _ = reagent("rescore", folder, "--judge", "openai:http://h/v1#m", "--concurrency", "2")
    summary = json.loads(out)
    assert code == 0 and (options[0].model, options[0].concurrency) == ("openai:http://h/v1#m", 2)
    assert (summary["rows"], summary["episodes"]) == (6, 24) and summary["output"] == str(
        folder / "rescored-openai-http-h-v1-m.jsonl"
    )
    assert (
        "6 of 24 episodes are stored and judged, and advantages compare these alone; a training with sample_episodes=8 stores all"
        in caplog.text
    )
    asked = len(calls_of(judge))
    again = reagent("rescore", folder, "--judge", "openai:http://h/v1#m")
    assert json.loads(again[1]) == summary and len(calls_of(judge)) == asked
    monkeypatch.setattr("reagent.cli.rescore_cmd.for_people", lambda: True)
    code, out, _ = reagent("rescore", folder, "--judge", "openai:http://h/v1#m")
    assert "6 of 24 episodes" in out and "sign changes" in out and out.count("→") > 3


def test_what_cannot_be_rescored_is_refused(trained: Path, base: Path, tmp_path, reagent) -> None:
    with pytest.raises(ConfigError, match="no run folder of `reagent train`"):
        read_run(tmp_path)
    code, _, error = reagent("rescore", tmp_path / "nowhere", "--judge", "small")
    assert code == 2 and "is no run folder" in error and "rescore" in COMMANDS
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.yaml", "metrics.jsonl"):
        (bare / name).write_bytes((trained / name).read_bytes())
    with pytest.raises(RRMError, match=r"stores no episodes.*sample_episodes=8"):
        read_run(bare)
    old = [{k: v for k, v in json.loads(line).items() if k != "turns"} for line in (trained / "episodes.jsonl").open()]
    (bare / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in old))
    with pytest.raises(RRMError, match="stored with its turns"):
        read_run(bare)
    (bare / "episodes.jsonl").write_bytes((trained / "episodes.jsonl").read_bytes() + b'{"cut off')
    with pytest.raises(RRMError, match="no judgement in mode full"):
        read_run(bare)
    (bare / "config.yaml").write_text((trained / "config.yaml").read_text().replace("mode: r\n", "mode: none\n"))
    with pytest.raises(ConfigError, match=r"R_env \+ λ·s.*feedback\.mode=none"):
        read_run(bare)
    reading: Any = SimpleNamespace(criteria=SimpleNamespace(see_reference=True, identity="c (1)"))
    with pytest.raises(ConfigError, match="read the reference answer"):
        rescore(read_run(trained), reading, tmp_path / "rows.jsonl")
