"""Runs that end early: what they keep, and that they go on to the bit."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from feedback_lab import PaidEnv, configured, read, reply, same_run, scripted
from trainer_setup import settings

from reagent.env.task import Task
from reagent.feedback.judging import JudgeFailure
from reagent.train.checkpoint import checkpoints
from reagent.train.config import AgentConfig
from reagent.train.run import train
from reagent.train.signals import Stopping
from reagent.train.trainer import AgentTrainer
from rrm.errors import EngineError, RRMError
from rrm.train.run_folder import sole_writer


class SignalEnv(PaidEnv):
    """Sends this process a signal when its n-th episode begins: a signal comes from without, whenever it likes."""

    begun: ClassVar[int] = 0
    at: ClassVar[int] = -1
    number: ClassVar[signal.Signals] = signal.SIGTERM

    def reset(self, task: Task) -> list[dict[str, Any]]:
        messages = super().reset(task)
        SignalEnv.begun += 1
        if SignalEnv.begun == SignalEnv.at:
            os.kill(os.getpid(), SignalEnv.number)
        return messages


def config(base: Path, output: Path, **changes: Any) -> AgentConfig:
    """Three updates of 8 episodes, no checkpoint asked for before the end; 4 held-out episodes."""
    torch.set_num_threads(1)
    return settings(
        base, output, save_every=100, max_updates=3, environment={"name": "test_stopping:SignalEnv"}, **changes
    )


def arm(monkeypatch: pytest.MonkeyPatch, at: int, number: signal.Signals = signal.SIGTERM) -> None:
    monkeypatch.setattr(SignalEnv, "begun", 0)
    monkeypatch.setattr(SignalEnv, "at", at)
    monkeypatch.setattr(SignalEnv, "number", number)


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    train(config(base, folder))
    return folder


@pytest.mark.parametrize(
    ("at", "kept"),
    [(8 + 3, 1), (24 + 2, 3)],  # while the second update plays, and in the evaluation after the last
)
def test_sigterm_leaves_a_checkpoint_from_which_the_run_goes_on(base, tmp_path, monkeypatch, whole, at, kept) -> None:
    arm(monkeypatch, at)
    with pytest.raises(SystemExit) as stopped:
        train(config(base, tmp_path))
    assert stopped.value.code == 128 + signal.SIGTERM
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == [f"checkpoint-{kept:06d}"]
    assert len(read(tmp_path / "metrics.jsonl")) == kept and not (tmp_path / "policy").exists()
    arm(monkeypatch, -1)
    train(config(base, tmp_path))
    same_run(tmp_path, whole)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # as it was


def test_ctrl_c_does_too(base, tmp_path, monkeypatch) -> None:
    arm(monkeypatch, 8 + 3, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(config(base, tmp_path))
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["checkpoint-000001"]


def test_a_signal_between_an_updates_steps_waits_for_the_update(base, tmp_path, monkeypatch, whole) -> None:
    step = AgentTrainer.step

    def signalled(self: AgentTrainer, *args: Any, **more: Any) -> Any:
        result = step(self, *args, **more)
        if self.update_index == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(AgentTrainer, "step", signalled)
        train(config(base, tmp_path))
    assert [path.name for path in checkpoints(tmp_path / "checkpoints")] == ["checkpoint-000002"]
    train(config(base, tmp_path))
    same_run(tmp_path, whole)


def test_an_error_leaves_a_checkpoint(base, tmp_path) -> None:
    judgements: list[str] = []

    def say(text: str) -> str | Exception:
        judgements.append(text)
        return reply(text) if len(judgements) <= 12 else EngineError("connection refused")

    expected = configured(base, tmp_path, "r", save_every=100, max_updates=4)
    with pytest.raises(JudgeFailure):
        train(expected, judge=scripted(say))
    (kept,) = checkpoints(tmp_path / "checkpoints")
    done = json.loads((kept / "state.json").read_text())["update"]
    assert done == len(read(tmp_path / "metrics.jsonl")) > 0


def test_an_error_amid_an_updates_steps_keeps_no_half_learned_weights(base, tmp_path, monkeypatch) -> None:
    step = AgentTrainer.step

    def broken(self: AgentTrainer, *args: Any, **more: Any) -> Any:
        result = step(self, *args, **more)
        if self.update_index == 1:
            raise OSError("no space left on device")
        return result

    monkeypatch.setattr(AgentTrainer, "step", broken)
    with pytest.raises(OSError, match="no space"):
        train(config(base, tmp_path))
    assert checkpoints(tmp_path / "checkpoints") == []


def test_a_checkpoint_that_cannot_be_written_leaves_the_older_one_and_the_error(
    base, tmp_path, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The part of a sharded policy that an error left gathered, say."""
    save, learn = AgentTrainer.save, AgentTrainer.learn

    def refused(self: AgentTrainer, *, together: bool = True) -> Any:
        if not together:
            raise RRMError("2 tensor(s) are not divided")
        return save(self, together=together)

    def fails(self: AgentTrainer, *given: Any) -> Any:
        if self.update_index == 3:
            raise MemoryError
        return learn(self, *given)

    monkeypatch.setattr(AgentTrainer, "save", refused)
    monkeypatch.setattr(AgentTrainer, "learn", fails)
    with pytest.raises(MemoryError):
        train(settings(base, tmp_path, save_every=2, max_updates=4))
    assert "update 3 is not kept: 2 tensor(s) are not divided" in caplog.text
    assert "goes on from" in caplog.text and str(tmp_path / "checkpoints" / "checkpoint-000002") in caplog.text


def test_another_optimiser_is_refused_and_less_memory_is_not(base, tmp_path) -> None:
    train(settings(base, tmp_path, max_updates=1))
    with pytest.raises(RRMError, match="another optim"):
        train(settings(base, tmp_path, max_updates=2, optim={"learning_rate": 1e-5}))
    summary = train(settings(base, tmp_path, max_updates=2, optim={"microbatch_tokens": 512}))
    assert summary["updates"] == 2


def test_a_second_ctrl_c_is_not_waited_with() -> None:
    with pytest.raises(KeyboardInterrupt), Stopping() as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopping.asked == signal.SIGINT  # noted, and nothing raised yet
        os.kill(os.getpid(), signal.SIGINT)


def test_a_folder_that_another_process_writes_into_is_left_alone(base, tmp_path) -> None:
    folder = tmp_path / "run"
    with sole_writer(folder), pytest.raises(RRMError, match="another process is writing a run"):
        train(config(base, folder))
    assert not folder.exists()
