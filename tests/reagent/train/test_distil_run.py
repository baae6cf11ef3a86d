"""One round of learning from what was chosen: the loss by hand, the round without a label, and runs that end early."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from feedback_lab import TURNS, calls_of, configured, read, reply, scripted
from test_stopping import SignalEnv, arm
from transformers import AutoModelForCausalLM

from reagent.feedback.base import as_judged
from reagent.feedback.judging import content_key
from reagent.rollout.episode import read_episodes
from reagent.train import distil as module
from reagent.train.checkpoint import checkpoints
from reagent.train.config import AgentConfig
from reagent.train.distil import Distilling, SFTLearner, distil, rows_of_step, steps_of
from reagent.train.launch import make_accelerator
from reagent.train.learner import Learner
from reagent.train.policy import load_policy
from rrm.data.trajectory import read_canonical
from rrm.errors import EngineError, RRMError
from rrm.train.run_folder import sole_writer


def config(base: Path, output: Path, **changes: Any) -> AgentConfig:
    """Three attempts at each of six tasks that nobody grades; three steps a pass, two passes."""
    changes["distil"] = {"tasks": 6, "samples": 3, "batch_episodes": 2, "temperature": 1.0, **changes.get("distil", {})}
    changes["environment"] = {
        "name": "test_stopping:SignalEnv",
        "label_share": 0.0,
        **TURNS,
        **changes.get("environment", {}),
    }
    return configured(base, output, "none", **{"save_every": 100, **changes})


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three parts of two tasks; no signal."""
    torch.set_num_threads(1)
    monkeypatch.setattr(module, "PART", 2)
    arm(monkeypatch, -1)


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run that nothing stopped, and its summary."""
    folder = tmp_path_factory.mktemp("whole")
    before, module.PART = module.PART, 2
    SignalEnv.begun, SignalEnv.at = 0, -1
    try:
        return folder, distil(config(base, folder), judge=scripted())
    finally:
        module.PART = before


def imitator_of(base: Path, folder: Path, **changes: Any) -> SFTLearner:
    settings = config(base, folder, **changes)
    policy, _ = load_policy(settings.policy, with_values=False)
    return SFTLearner(settings, policy, folder, make_accelerator(settings, folder))


# ---- the loss ----


def test_a_pass_takes_every_episode_once_in_an_order_of_its_own() -> None:
    assert (steps_of(7, 3, 2), steps_of(6, 3, 1), steps_of(1, 16, 2)) == (6, 2, 2)
    steps = [rows_of_step(step, 7, 3, seed=0) for step in range(6)]
    for a_pass in (steps[:3], steps[3:]):
        assert sorted(i for rows in a_pass for i in rows) == [*range(7)] and {len(rows) for rows in a_pass} == {2, 3}
    assert steps[:3] != steps[3:] and steps != [rows_of_step(step, 7, 3, seed=1) for step in range(6)]


def test_the_loss_is_the_mean_over_sampled_tokens_alone(base, tmp_path, whole) -> None:
    """Of every token the policy wrote, at temperature 1; nothing of prompts and observations. By hand, gradients too."""
    episodes = list(read_episodes(whole[0] / "episodes-0000.jsonl"))[:4]
    assert any(t.observation_ids for e in episodes for t in e.turns)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    total, tokens = torch.zeros(()), 0
    for e in episodes:
        ids, at = list(e.prompt_ids), []
        for turn in e.turns:
            at += range(len(ids), len(ids) + len(turn.output_ids))
            ids += [*turn.output_ids, *turn.observation_ids]
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
        total = total - sum((logprobs[i - 1, ids[i]] for i in at), torch.zeros(()))
        tokens += len(at)
    (total / tokens).backward()
    expected = {name: p.grad for name, p in model.named_parameters()}
    for budget in (100000, 300):  # however it is cut into micro-batches
        imitator = imitator_of(base, tmp_path, optim={"microbatch_tokens": budget, "max_grad_norm": float("inf")})
        kept: dict[str, torch.Tensor] = {}
        step = imitator.ddp_optimizer.step

        def watched(
            *args: Any, of: SFTLearner = imitator, into: dict[str, torch.Tensor] = kept, then: Any = step
        ) -> None:
            into |= {name: p.grad.clone() for name, p in of.policy.model.named_parameters()}
            then(*args)

        imitator.ddp_optimizer.step = watched
        figures = imitator.imitate_episodes(episodes, "here")
        assert figures["tokens"] == tokens and figures["nll"] == pytest.approx(float(total.detach()) / tokens, abs=1e-5)
        for name, gradient in expected.items():
            assert gradient is not None and torch.allclose(kept[name], gradient, atol=1e-5), name


# ---- a round ----


def test_a_round_needs_no_label(whole) -> None:
    folder, summary = whole
    assert (summary["tasks"], summary["attempts"], summary["learned"], summary["labels"]) == (6, 18, 6, 0)
    assert summary["attempts_success"] is None and summary["learned_success"] is None
    assert summary["steps"] == 6 and summary["nll"][1] < summary["nll"][0]
    chosen = list(read_canonical(folder / "chosen.jsonl"))
    played = [e for k in range(3) for e in read_episodes(folder / f"episodes-{k:04d}.jsonl")]
    assert len(chosen) == 6 and len(played) == 18 and all(e.ungraded for e in played)
    scores = {row["key"]: row["feedback"]["score"] for row in read(folder / "judgements.jsonl")}
    best: dict[str, float] = {}
    for e in played:
        best[e.group_id] = max(best.get(e.group_id, 0.0), scores[content_key(as_judged(e))])
    assert {t.meta["group_id"]: t.meta["judge_score"] for t in chosen} == best
    assert [row["update"] for row in read(folder / "eval.jsonl")] == [-1, 5]
    assert summary["held_out_success"]["value"] is not None  # held-out tasks keep their answers
    AutoModelForCausalLM.from_pretrained(folder / "policy")


def same(folder: Path, whole: tuple[Path, dict[str, Any]]) -> None:
    """Both runs played, chose, learned and evaluated the same, to the bit (but for how long tools took)."""
    for name in ("metrics.jsonl", "eval.jsonl", "policy/model.safetensors"):
        assert (folder / name).read_bytes() == (whole[0] / name).read_bytes(), name
    chosen = [[(t.id, t.meta["judge_score"]) for t in read_canonical(f / "chosen.jsonl")] for f in (folder, whole[0])]
    assert chosen[0] == chosen[1]


def test_a_stop_while_playing_loses_a_part(base, tmp_path, monkeypatch, whole) -> None:
    arm(monkeypatch, 4 + 6 + 2)  # four held-out episodes, six of the first part, two of the second
    with pytest.raises(SystemExit) as stopped:
        distil(config(base, tmp_path), judge=scripted())
    assert stopped.value.code == 128 + signal.SIGTERM
    assert [p.name for p in sorted(tmp_path.glob("episodes-*"))] == ["episodes-0000.jsonl"]
    arm(monkeypatch, -1)
    distil(config(base, tmp_path), judge=scripted())
    assert SignalEnv.begun == 12 + 4  # what was played is not played again, nor evaluated
    same(tmp_path, whole)


def test_what_a_judge_read_before_a_stop_is_counted(base, tmp_path, whole) -> None:
    asked: list[str] = []

    def stopped(text: str) -> str:
        asked.append(text)
        if len(asked) > 8:  # six attempts of the first part, two of the second
            raise KeyboardInterrupt
        return reply(text)

    with pytest.raises(KeyboardInterrupt):
        distil(config(base, tmp_path), judge=scripted(stopped))
    judge = scripted()
    summary = distil(config(base, tmp_path), judge=judge)
    assert 0 < len(calls_of(judge)) < 18
    assert summary["judge_tokens"] == whole[1]["judge_tokens"]
    same(tmp_path, whole)


def test_a_stop_while_learning_loses_nothing(base, tmp_path, monkeypatch, whole) -> None:
    learn = SFTLearner.imitate_episodes

    def signalled(self: SFTLearner, *args: Any) -> Any:
        metrics = learn(self, *args)
        if self.update_index == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return metrics

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(SFTLearner, "imitate_episodes", signalled)
        distil(config(base, tmp_path), judge=scripted())
    assert [p.name for p in checkpoints(tmp_path / "checkpoints")] == ["checkpoint-000002"]
    judge = scripted()
    distil(config(base, tmp_path), judge=judge)
    assert not calls_of(judge)  # what was judged is read back
    same(tmp_path, whole)
    again = distil(config(base, tmp_path), judge=judge)  # a finished run says what it came to
    assert again["steps"] == 6
    same(tmp_path, whole)


def test_a_judge_that_was_away_changes_nothing_when_the_run_goes_on(base, tmp_path) -> None:
    calls = iter(range(1000))

    def flaky(text: str) -> Any:
        return EngineError("503") if next(calls) % 3 == 0 else reply(text)

    settings = config(base, tmp_path, feedback={"max_failure_rate": 0.9})
    first, chosen = distil(settings, judge=scripted(flaky)), (tmp_path / "chosen.jsonl").read_bytes()
    judge = scripted()
    again = distil(settings, judge=judge)
    assert not calls_of(judge) and (tmp_path / "chosen.jsonl").read_bytes() == chosen
    assert again == first and first["judge_tokens"] > 0


def test_the_same_command_again_says_the_same(base, whole) -> None:
    folder, said = whole
    with open(folder / "eval.jsonl", "a") as rows:
        rows.write('{"update": 5, "succ')
    assert distil(config(base, folder), judge=scripted()) == said
    assert [row["update"] for row in read(folder / "eval.jsonl")] == [-1, 5]


def test_no_reference_is_held_for_a_guard_that_never_looks(base, tmp_path) -> None:
    settings = config(base, tmp_path, guards={"kl": {"max": 0.1}})
    policy, _ = load_policy(settings.policy, with_values=False)
    accelerator = make_accelerator(settings, tmp_path)
    assert Learner(settings, policy, tmp_path, accelerator).frozen is not None
    run = Distilling(settings, policy, cast(Any, None), None, accelerator, cast(Any, None))
    assert run.imitator(6).frozen is None


# ---- what is refused ----


def test_nothing_worth_learning_from_is_an_error(base, tmp_path) -> None:
    poor = scripted(
        lambda text: "<think>[step 1] looked</think><critique>[step 1] bad: no</critique><score>0.2</score>"
    )
    with pytest.raises(RRMError, match=r"of 6 tasks no attempt is worth learning from .*distil.min_score=0.5"):
        distil(config(base, tmp_path, distil={"min_score": 0.5}), judge=poor)
    played = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("episodes-*.jsonl")}
    # as the error says, in the same folder
    said = distil(config(base, tmp_path, distil={"min_score": 0.1}), judge=poor)
    assert said["learned"] == 6 and played == {p.name: p.stat().st_mtime_ns for p in tmp_path.glob("episodes-*.jsonl")}
    with pytest.raises(RRMError, match="holds a run with another distil"):
        distil(config(base, tmp_path, distil={"min_score": 0.05}), judge=poor)


def test_the_oracle_needs_labels(base, tmp_path) -> None:
    with pytest.raises(RRMError, match=r"no training task is graded: use distil\.by=judge"):
        distil(config(base, tmp_path, distil={"by": "oracle"}))


def test_a_judge_that_cannot_read_the_tasks_is_refused_by_the_settings_name(base, tmp_path) -> None:
    settings = config(base, tmp_path, environment={"name": "calculator"}, feedback={"judge": "lab"})
    with pytest.raises(
        RRMError, match=r"^distil\.by=judge with environment\.name=calculator: .*; or .*distil\.by=majority"
    ):
        distil(settings)


def test_another_runs_folder_is_refused(base, whole) -> None:
    with pytest.raises(RRMError, match="holds a run with another distil"):
        distil(config(base, whole[0], distil={"epochs": 3}))


def test_a_bound_on_scores_needs_scores() -> None:
    with pytest.raises(ValueError, match=r"which distil\.by=longest never asks for"):
        AgentConfig.model_validate({"distil": {"by": "longest", "min_score": 0.5}})


def test_a_folder_that_another_process_writes_into_is_left_alone(base: Path, tmp_path: Path) -> None:
    with sole_writer(tmp_path / "run"), pytest.raises(RRMError, match="another process is writing a run"):
        distil(config(base, tmp_path / "run"))
