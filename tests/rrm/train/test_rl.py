"""Stage 2 with a tiny Llama through the real GRPOTrainer: its prompts, training and resumption."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from reagent.lab.judge_base import lab_texts
from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.lab.transcripts import make_transcripts
from rrm.config import RLSettings, TrainConfig
from rrm.data.labels import targets_of
from rrm.errors import RRMError
from rrm.prompt.prompter import Prompter
from rrm.train.rewards import PARTS
from rrm.train.rl import PART_WEIGHTS, gate, schedule, train_rl

MODE = "critique"
ROWS = make_transcripts(12, seed=5, hops=(1,))
TRAJECTORIES = [t for t, _ in ROWS]
TARGETS, _ = targets_of(TRAJECTORIES, {a.trajectory_id: a for _, a in ROWS}, "annotation")


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    return Prompter(build_lab_tokenizer(lab_texts(TRAJECTORIES, {}), vocab_size=700), transcript_tokens=40)


@pytest.fixture(scope="module")
def untrained(prompter: Prompter) -> Any:
    return build_lab_model(prompter.tokenizer, hidden=48, layers=2, heads=4, seed=1)


@pytest.fixture(scope="module")
def policy(prompter: Prompter, untrained: Any) -> Any:
    """A model that writes the form, with a verdict and a score of its own choice: its rewards differ."""
    model = copy.deepcopy(untrained)
    rng = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        prompts = [prompter.prompt(rng.choice(TRAJECTORIES), MODE).ids for _ in range(8)]
        replies = [
            f"[step 1] {rng.choice(('good', 'bad'))}: x</critique><score>0.{rng.randrange(10)}</score>" for _ in prompts
        ]
        encoded = [[*prompter.encode(reply), prompter.eos_token_id] for reply in replies]
        width = max(len(p) + len(r) for p, r in zip(prompts, encoded, strict=True))
        ids = torch.zeros(8, width, dtype=torch.long)
        labels = torch.full((8, width), -100)
        for i, (prompt, reply) in enumerate(zip(prompts, encoded, strict=True)):
            row = prompt + reply
            ids[i, : len(row)] = torch.tensor(row)
            labels[i, len(prompt) : len(row)] = torch.tensor(reply)
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def config(**rl: Any) -> TrainConfig:
    settings = {
        "max_steps": 3,
        "prompts_per_step": 2,
        "num_generations": 4,
        "learning_rate": 1e-3,
        "max_completion_length": 32,
        "mode": MODE,
        "save_steps": 2,
        **rl,
    }
    return TrainConfig(seed=3, cpu=True, rl=RLSettings(**settings))


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def history(folder: Path) -> list[dict[str, Any]]:
    return [row for row in json.loads((folder / "trainer_state.json").read_text())["log_history"] if "reward" in row]


def from_checkpoint(folder: Path, step: int, new: Path) -> Path:
    """A run folder as a kill after `step` leaves it."""
    shutil.copytree(folder / f"checkpoint-{step}", new / f"checkpoint-{step}")
    return new


def test_prompts_are_token_exact_and_follow_from_the_seed(prompter: Prompter) -> None:
    settings = config(max_steps=8).rl
    rows = schedule(prompter, TRAJECTORIES, TARGETS, settings, seed=3)
    assert len(rows) == 16  # more than the 12 transcripts: a second epoch begins
    assert rows == schedule(prompter, TRAJECTORIES, TARGETS, settings, seed=3)
    assert rows != schedule(prompter, TRAJECTORIES, TARGETS, settings, seed=4)
    by_id = {t.id: t for t in TRAJECTORIES}
    for row in rows:
        ids = prompter.prompt(by_id[row["id"]], MODE).ids
        assert row["prompt_ids"] == ids and row["prompt_tokens"] == len(ids)
        assert row["target"] == TARGETS[row["id"]].score
    epoch = [rows[i : i + 2] for i in range(0, 12, 2)]
    assert len({row["id"] for step in epoch for row in step}) == 12
    spans = sorted((min(row["prompt_tokens"] for row in s), max(row["prompt_tokens"] for row in s)) for s in epoch)
    assert all(high <= low for (_, high), (low, _) in itertools.pairwise(spans))  # neighbours in length


def test_the_trainer_is_given_the_ids_that_a_judge_reads(
    prompter: Prompter, policy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the text as a whole other tokens may come, where a merge goes across two pieces."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    class Watched(Exception):
        """Ends the training where its first prompts are known."""

    sampled: list[list[int]] = []

    def watched(self: Any, prompt_ids: list[list[int]], *rest: Any, **more: Any) -> Any:
        sampled.extend(prompt_ids)
        raise Watched

    real = Prompter.prompt
    odd = [5, 5, 5]  # in front, which no text of ours encodes to
    monkeypatch.setattr(
        Prompter, "prompt", lambda self, t, mode: replace(real(self, t, mode), ids=odd + real(self, t, mode).ids)
    )
    monkeypatch.setattr(GRPOTrainer, "_generate_single_turn", watched)
    with pytest.raises(Watched):
        train_rl(copy.deepcopy(policy), TRAJECTORIES, TARGETS, prompter, config(max_steps=1), tmp_path)
    judged = [prompter.prompt(t, MODE).ids for t in TRAJECTORIES]
    assert sampled and all(ids in judged for ids in sampled)


def test_what_cannot_be_trained_on_is_refused_with_a_reason(prompter: Prompter, untrained: Any, tmp_path: Path) -> None:
    with pytest.raises(RRMError, match=r"prompts_per_step is 2 but only 0 .* `rrm annotate`"):
        schedule(prompter, TRAJECTORIES, {}, config().rl, seed=0)
    with pytest.raises(RRMError, match=r"exceeds the model's 1024 positions"):
        train_rl(untrained, TRAJECTORIES, TARGETS, prompter, config(max_completion_length=1000), tmp_path)


def test_the_gate_lets_a_policy_pass_that_writes_the_form(prompter: Prompter, policy: Any) -> None:
    assert gate(policy, prompter, TRAJECTORIES, config(gate_rows=8).rl) == 1.0


def test_the_gate_refuses_with_the_figure_and_what_to_do(prompter: Prompter, untrained: Any) -> None:
    with pytest.raises(RRMError, match=r"0 of 6 .*0\.0%; .*gate_format asks for 95%.*sft\.epochs, sft\.mix\.critique"):
        gate(untrained, prompter, TRAJECTORIES, config(gate_rows=6).rl)
    assert gate(untrained, prompter, TRAJECTORIES, config(gate_rows=6, gate_format=0.0).rl) == 0.0
    with pytest.raises(RRMError, match="no held-out transcript"):
        gate(untrained, prompter, [], config().rl)


def test_projecting_the_replies_alone_changes_no_gradient(
    prompter: Prompter, policy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.trainer import utils
    from trl.trainer.grpo_trainer import GRPOTrainer

    gradients: list[dict[str, torch.Tensor]] = []
    projected: list[int] = []
    step, project = GRPOTrainer.training_step, utils._ChunkedLogProbFunction.apply

    def watched(self: Any, model: Any, *rest: Any) -> Any:
        loss = step(self, model, *rest)
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        return loss

    monkeypatch.setattr(GRPOTrainer, "training_step", watched)
    monkeypatch.setattr(
        utils._ChunkedLogProbFunction, "apply", lambda h, *a: projected.append(len(h)) or project(h, *a)
    )
    train_rl(copy.deepcopy(policy), TRAJECTORIES, TARGETS, prompter, config(max_steps=1), tmp_path / "fast")
    (row,) = history(tmp_path / "fast")
    fast = sum(projected)
    assert fast == round(2 * 8 * row["completions/mean_length"])  # eight replies, by the reference and by the policy
    monkeypatch.setattr("rrm.train.rl.labelled_positions_only", contextlib.nullcontext)
    train_rl(copy.deepcopy(policy), TRAJECTORIES, TARGETS, prompter, config(max_steps=1), tmp_path / "plain")
    assert sum(projected) - fast > 2 * fast  # prompts and padding, too
    assert len(gradients) == 4 and any(g.any() for g in gradients[1].values())
    for quick, plain in zip(gradients[:2], gradients[2:], strict=True):
        assert quick.keys() == plain.keys()
        for name, expected in plain.items():
            torch.testing.assert_close(quick[name], expected, rtol=1e-4, atol=1e-6, msg=name)


def test_full_weights_train_from_the_policy_and_resume_exactly(prompter: Prompter, policy: Any, tmp_path: Path) -> None:
    start = weights(policy)
    trained = train_rl(copy.deepcopy(policy), TRAJECTORIES, TARGETS, prompter, config(), tmp_path / "whole")
    after = weights(trained)
    assert any(not torch.equal(start[name], after[name]) for name in start)
    assert all(torch.isfinite(value).all() for value in after.values())
    assert "forward" not in vars(trained)

    log = history(tmp_path / "whole")
    assert len(log) == 3
    assert log[0]["kl"] == pytest.approx(0.0, abs=1e-6)  # the reference is the policy as given, not its base
    assert log[-1]["kl"] > 1e-6
    assert tuple(PART_WEIGHTS) == PARTS
    for row in log:
        parts = [row[f"rewards/{name}/mean"] for name in PARTS]
        assert row["reward"] == pytest.approx(
            sum(w * p for w, p in zip(PART_WEIGHTS.values(), parts, strict=True)), abs=1e-5
        )
    samples = [json.loads(line) for line in (tmp_path / "whole" / "samples.jsonl").read_text().splitlines()]
    assert [s["step"] for s in samples] == [0, 0]
    assert all(s["text"].startswith("<critique>") and set(s["parts"]) == set(PARTS) for s in samples)
    assert any(s["parts"]["format"] == 1.0 and s["reward"] > 0.3 for s in samples)

    folder = from_checkpoint(tmp_path / "whole", 2, tmp_path / "resumed")
    resumed = train_rl(copy.deepcopy(policy), TRAJECTORIES, TARGETS, prompter, config(), folder)
    assert not (folder / "samples.jsonl").exists()  # step 0, which is logged, was not run again
    for name, value in weights(resumed).items():
        torch.testing.assert_close(value, after[name], rtol=0, atol=1e-6)


def test_an_adapter_on_a_bf16_base_is_trained_further_and_resumes(
    prompter: Prompter, policy: Any, tmp_path: Path
) -> None:
    from peft import LoraConfig, PeftModel, get_peft_model

    base = copy.deepcopy(policy).to(torch.bfloat16)
    torch.manual_seed(0)
    lora = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    peft_policy = get_peft_model(copy.deepcopy(base), lora)
    with torch.no_grad():
        for name, value in peft_policy.named_parameters():
            if "lora_B" in name:
                value.mul_(0.01)  # an adapter that has learnt something, yet still writes the form
    peft_policy.save_pretrained(str(tmp_path / "adapter"))

    def stage_1() -> Any:
        return PeftModel.from_pretrained(copy.deepcopy(base), str(tmp_path / "adapter"))  # frozen, as for use

    start = weights(stage_1())
    trained = train_rl(stage_1(), TRAJECTORIES, TARGETS, prompter, config(), tmp_path / "whole")
    after = weights(trained)
    assert set(after) == set(start)  # no second adapter is left behind
    changed = {name for name in start if not torch.equal(start[name], after[name])}
    assert changed and all("lora_" in name for name in changed)
    assert history(tmp_path / "whole")[0]["kl"] == pytest.approx(0.0, abs=1e-6)

    folder = from_checkpoint(tmp_path / "whole", 2, tmp_path / "resumed")
    resumed = weights(train_rl(stage_1(), TRAJECTORIES, TARGETS, prompter, config(), folder))
    assert not (folder / "samples.jsonl").exists()
    for name in changed:
        torch.testing.assert_close(resumed[name], after[name], rtol=0, atol=1e-6)
