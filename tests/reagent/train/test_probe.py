"""Whether rewards can teach a policy its tasks, measured before it is trained (`reagent probe`, `gate`)."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainer_setup import settings

from reagent.cli import probe_cmd
from reagent.env.task import Task
from reagent.rollout.episode import Episode, Turn
from reagent.train import run
from reagent.train.config import load_agent_config
from reagent.train.probe import Probe, measured
from reagent.train.run import build, check_gate, train
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import RRMError

GOOD = Probe(100, 8, greedy=0.4, sampled=0.4, best=0.6, live_groups=0.6, truncated=0.0, malformed=0.0, turn_tokens=9.0)


def episode(task: str, success: bool | None, reward: float | None, turn: dict[str, Any] | None = None) -> Episode:
    messages = [Message(role="user", content="?"), Message(role="assistant", content="!")]
    made = Turn([1, 2], [-1.0, -1.0], [], 0.0, **(turn or {}))
    told = Trajectory(id=task, task="?", messages=messages)
    found = Episode(Task(task, "?", "a"), [1], [made], reward, "finished", None, False, task, "initial", told)
    return replace(found, success=success)


def test_figures_by_hand() -> None:
    """a: 1 of 4 right; b: none, all alike; c: nobody can grade it."""
    sampled = [episode("a", k == 0, float(k == 0)) for k in range(4)]
    sampled += [episode("b", False, 0.0) for _ in range(4)] + [episode("c", None, None) for _ in range(4)]
    found = measured(sampled, [episode("a", True, 1.0), episode("b", False, 0.0), episode("c", None, None)], 4)
    assert (found.tasks, found.greedy, found.sampled, found.best, found.live_groups) == (3, 0.5, 0.125, 0.5, 0.5)
    assert found.turn_tokens == 2.0 and found.malformed == 0.0 and found.learnable is False


def test_greedy_decoding_is_measured_on_the_tasks_that_samples_are() -> None:
    sampled = [episode(task, k == 0, float(k == 0)) for task in "ab" for k in range(4)]
    sampled += [episode("c", None, None) for _ in range(4)]  # an environment that failed in each
    found = measured(sampled, [episode("a", True, 1.0), episode("b", None, None), episode("c", True, 1.0)], 4)
    assert (found.greedy, found.best) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"sampled": 0.19}, "demonstrations first"),
        ({"sampled": 0.61}, "harder tasks"),
        ({"live_groups": 0.59}, "rollout.group_size"),
        ({"best": 0.54}, "little for rewards to find"),
        ({"truncated": 0.11}, "rollout.max_new_tokens"),
        ({"malformed": 0.21}, "environment.options.parser"),
    ],
)
def test_each_bound_names_what_to_change(changed: dict[str, float], said: str | None) -> None:
    found = replace(GOOD, **changed)
    assert found.learnable is (said is None)
    assert (said or "learnable: sampled success 0.40 (greedy 0.40, best of 8 0.60)") in found.verdict


def test_tasks_that_nobody_can_grade_say_nothing() -> None:
    found = measured([episode("c", None, None)] * 2, [episode("c", None, None)], 2)
    assert found.learnable is None and "give some of them an answer" in found.verdict
    assert "why their environment fails" in found.verdict  # of an attempt that failed so success is unknown, too
    assert json.loads(json.dumps(found.figures(), allow_nan=False))["sampled"] is None


def test_a_training_measures_first_and_is_the_same_without(base: Path, tmp_path: Path) -> None:
    gate = {"tasks": 4, "samples": 2}
    with pytest.raises(RRMError, match="gate=warn trains all the same"):
        train(settings(base, tmp_path / "stopped", gate={"action": "stop", **gate}))
    runs = {
        name: settings(base, tmp_path / name, max_updates=1, gate=gate | {"action": name}) for name in ("warn", "off")
    }
    for config in runs.values():
        train(config)
    said = json.loads((tmp_path / "warn" / "probe.json").read_text())
    assert (said["tasks"], said["samples"]) == (4, 2) and said["verdict"].startswith("hardly learnable")
    assert not (tmp_path / "off" / "probe.json").exists()
    lines = [json.loads((tmp_path / name / "metrics.jsonl").read_text()) for name in runs]
    warned, off = ({k: v for k, v in line.items() if not k.startswith("time/")} for line in lines)
    gaps = [{k: one.pop(k) for k in [*one] if k.startswith("logprob_gap")} for one in (warned, off)]
    assert (
        warned == off
    )  # to the bit, but for what decoding rounds otherwise in another batch: tools answer when they do
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-6)


def test_tasks_that_a_judge_alone_pays_are_no_reason_to_stop(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, _ = build(settings(base, tmp_path, gate={"action": "stop"}))
    for found, stops in (
        (replace(GOOD, sampled=float("nan")), False),
        (GOOD, False),
        (replace(GOOD, sampled=0.0), True),
    ):
        monkeypatch.setattr(run, "probe", lambda *_, found=found: (found, []))
        with pytest.raises(RRMError) if stops else nullcontext():
            check_gate(trainer)


@pytest.mark.parametrize("written", ["gate=off", "gate.action=off", "gate={action: off}"])
def test_the_gate_is_off_as_yaml_reads_it(written: str) -> None:
    assert load_agent_config("smollm2", [written]).gate.action == "off"


def test_the_command(base: Path, tmp_path: Path, invoke) -> None:
    options = [
        f"policy.base={base}",
        "environment.train.hops=[1]",
        "rollout.max_turns=2",
        "gate.tasks=3",
        "gate.samples=2",
    ]
    code, summary = invoke(probe_cmd.command, *options, "--transcripts", tmp_path / "played.jsonl")
    assert (code, summary["learnable"], summary["tasks"]) == (3, False, 3)
    assert len((tmp_path / "played.jsonl").read_text().splitlines()) == 3 * (2 + 1)
