"""One precision in rollout and training: what `mixed_precision=bf16` samples from is what it learns from."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState
from feedback_lab import PaidEnv
from safetensors.torch import load_file
from trainer_setup import make_trainer, settings

from reagent.rollout.batch import make_batch
from reagent.train.config import AgentConfig, PolicyConfig
from reagent.train.evaluate import evaluate
from reagent.train.export import export, written_dtype
from reagent.train.policy import load_policy, precision
from rrm.config import LoraSettings
from rrm.engines.hf.head import in_float32

LORA = LoraSettings(r=4, alpha=8)


@pytest.fixture(autouse=True)
def own_state() -> Iterator[None]:
    """accelerate keeps one precision a process: the tests before and after this one have another."""
    AcceleratorState._reset_state()
    yield
    AcceleratorState._reset_state()


LONGER = {"max_new_tokens": 48, "max_turns": 4, "max_episode_tokens": 600, "group_size": 2}
SHIPPED = Path("lab")
"""A shipped policy: a random one's flat distribution hides the gap."""


def gap_of(config: AgentConfig) -> torch.Tensor:
    """What rollout and training differ by at each sampled token."""
    trainer = make_trainer(config)
    batch = make_batch(trainer.collect(0))
    old, values = trainer.statistics(batch, trainer.ddp_model, batch.action_mask)
    assert values is not None
    return (old - batch.rollout_logprobs).abs()[batch.action_mask]


def test_rollout_and_training_agree_under_mixed_precision(tmp_path) -> None:
    config = settings(SHIPPED, tmp_path, mixed_precision="bf16", rollout=LONGER)
    gap = gap_of(config)
    assert gap.max() < 0.02 and gap.mean() < 2e-4 and len(gap) > 200
    assert gap.max() > 1e-6  # the body does run in bf16: in fp32 the two agree to the seventh digit


def test_the_value_head_is_float32_under_mixed_precision(base, tmp_path) -> None:
    trainer = make_trainer(settings(base, tmp_path, mixed_precision="bf16"))
    head = trainer.policy.value_head
    assert head is not None
    torch.manual_seed(0)
    torch.nn.init.normal_(head.weight)
    states: list[torch.Tensor] = []
    decoder = trainer.policy.model.get_decoder()
    decoder.register_forward_hook(lambda module, inputs, output: states.append(output.last_hidden_state))
    ids, mask = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[False, True, True, True]])
    with precision("bf16", "cpu"):
        values = trainer.policy(ids, mask).values
    expected = states[0][0, :3].float() @ head.weight[0].float() + head.bias[0]
    assert values.dtype == torch.float32
    torch.testing.assert_close(values[0, 1:], expected, rtol=1e-6, atol=1e-6)


def test_an_evaluation_runs_in_the_precision_of_training(base, tmp_path) -> None:
    config = settings(base, tmp_path, mixed_precision="bf16", eval={"temperature": 1.0})
    trainer = make_trainer(config)
    seen: list[bool] = []
    decoder = trainer.policy.model.get_decoder()
    decoder.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    evaluate(replace(trainer.player(), env_factory=PaidEnv), trainer.tasks[:2])
    assert seen and all(seen)


def test_a_bfloat16_base_trained_whole_is_held_in_float32(base, tmp_path) -> None:
    small = {"tasks_per_update": 1, "max_new_tokens": 4}
    tree = {"policy": {"base": str(base), "dtype": "bfloat16"}, "optim": {"learning_rate": 1e-6}, "rollout": small}
    trainer = make_trainer(settings(base, tmp_path, **tree))
    weights = dict(trainer.policy.model.named_parameters())
    assert {p.dtype for p in weights.values()} == {torch.float32}
    before = {name: p.detach().clone() for name, p in weights.items()}
    episodes = trainer.collect(0)
    for number, episode in enumerate(episodes):
        episode.outcome_reward = float(number % 2)
    trainer.learn(episodes)
    moved = [float((p != before[name]).float().mean()) for name, p in weights.items() if "proj" in name]
    assert moved and min(moved) > 0.9


def test_what_is_not_trained_keeps_its_precision(base) -> None:
    half = PolicyConfig(base=str(base), dtype="bfloat16")
    read, _ = load_policy(half, with_values=False, trained=False)
    assert {p.dtype for p in read.parameters()} == {torch.bfloat16}
    lora = half.model_copy(update={"lora": LORA})
    adapted, _ = load_policy(lora, with_values=False)
    kinds = {(p.dtype, p.requires_grad) for p in adapted.parameters()}
    assert kinds == {(torch.bfloat16, False), (torch.float32, True)}


def test_rollout_and_training_agree_over_a_bfloat16_base(tmp_path) -> None:
    policy = {"base": "lab", "dtype": "bfloat16", "lora": LORA.model_dump()}
    config = settings(SHIPPED, tmp_path, policy=policy, rollout=LONGER)
    gap = gap_of(config)
    assert gap.max() < 0.03 and gap.mean() < 1e-3 and len(gap) > 200


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_16_bit_vocabulary_projection_is_computed_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    head, states = torch.nn.Linear(64, 500, bias=False, dtype=dtype), torch.randn(7, 64).to(dtype).requires_grad_()
    with precision("bf16", "cpu"):
        logits = in_float32(head, states)
    expected = states.detach().double() @ head.weight.detach().double().T
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.detach().double(), expected, rtol=1e-5, atol=1e-6)
    logits.sum().backward()
    assert states.grad is not None and head.weight.grad is not None


ADAPTER = LoraSettings(r=4, alpha=8, dropout=0.0, target_modules=["q_proj", "v_proj"])


@pytest.mark.parametrize(("dtype", "least", "most"), [("float32", 0.0, 1e-4), ("base", 0.02, 1.0)])
def test_a_merged_adapter_keeps_what_was_learned(base, tmp_path, dtype: str, least: float, most: float, caplog) -> None:
    caplog.set_level(logging.INFO, "reagent.train.export")
    config = PolicyConfig(base=str(base), dtype="bfloat16", lora=ADAPTER, export_dtype=dtype)  # pyright: ignore[reportArgumentType]
    policy, tokenizer = load_policy(config, with_values=False)
    torch.manual_seed(0)
    expected: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name, module in policy.model.named_modules():
        if name.endswith(("q_proj", "v_proj")):
            # as small beside the weights as training leaves it
            torch.nn.init.normal_(module.lora_B["default"].weight, std=1e-3)
            a, b = (part["default"].weight.detach().double() for part in (module.lora_A, module.lora_B))
            plain = name.removeprefix("base_model.model.") + ".weight"
            expected[plain] = module.base_layer.weight.detach().double().clone(), 2.0 * b @ a  # alpha / r = 2
    gap = export(policy, tokenizer, tmp_path, AgentConfig(policy=config))
    saved = load_file(tmp_path / "model.safetensors")
    lost = [float((saved[n].double() - (w + d)).norm() / d.norm()) for n, (w, d) in expected.items()]
    assert expected and least <= max(lost) <= most, lost
    assert f"matches the trained one within {gap:.5f} nats a token" in caplog.text and gap < 0.05
    assert written_dtype(str(tmp_path)) == ("float32" if dtype == "float32" else "bfloat16")
    assert written_dtype("a/hub-id") is None and (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_an_export_that_says_something_else_is_seen(base, tmp_path, monkeypatch, caplog) -> None:
    caplog.set_level("WARNING")
    policy, tokenizer = load_policy(PolicyConfig(base=str(base)), with_values=False)
    assert export(policy, tokenizer, tmp_path / "right") < 1e-5 and not caplog.text
    policy, _ = load_policy(PolicyConfig(base=str(base)), with_values=False)
    save = type(policy.model).save_pretrained

    def spoilt(model: torch.nn.Module, *args: object, **options: object) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3.0)
        save(model, *args, **options)

    monkeypatch.setattr(type(policy.model), "save_pretrained", spoilt)
    assert export(policy, tokenizer, tmp_path / "wrong") > 0.05
    assert "matches the trained one" in caplog.text
