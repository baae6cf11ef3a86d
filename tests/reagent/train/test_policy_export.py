"""What is exported is what was trained: merged and written in float32, and compared with the policy."""

from __future__ import annotations

import logging

import pytest
import torch
from safetensors.torch import load_file

from reagent.train.config import AgentConfig, PolicyConfig
from reagent.train.export import export, written_dtype
from reagent.train.policy import load_policy
from rrm.config import LoraSettings

LORA = LoraSettings(r=4, alpha=8, dropout=0.0, target_modules=["q_proj", "v_proj"])


@pytest.mark.parametrize(("dtype", "least", "most"), [("float32", 0.0, 1e-4), ("base", 0.02, 1.0)])
def test_a_merged_adapter_keeps_what_was_learned(base, tmp_path, dtype: str, least: float, most: float, caplog) -> None:
    caplog.set_level(logging.INFO, "reagent.train.export")
    config = PolicyConfig(base=str(base), dtype="bfloat16", lora=LORA, export_dtype=dtype)  # pyright: ignore[reportArgumentType]
    policy, tokenizer = load_policy(config, with_values=False)
    torch.manual_seed(0)
    wanted: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for name, module in policy.model.named_modules():
        if name.endswith(("q_proj", "v_proj")):
            # as small beside the weights as training leaves it
            torch.nn.init.normal_(module.lora_B["default"].weight, std=1e-3)
            a, b = (part["default"].weight.detach().double() for part in (module.lora_A, module.lora_B))
            plain = name.removeprefix("base_model.model.") + ".weight"
            wanted[plain] = module.base_layer.weight.detach().double().clone(), 2.0 * b @ a  # alpha / r = 2
    gap = export(policy, tokenizer, tmp_path, AgentConfig(policy=config))
    saved = load_file(tmp_path / "model.safetensors")
    lost = [float((saved[n].double() - (w + d)).norm() / d.norm()) for n, (w, d) in wanted.items()]
    assert wanted and least <= max(lost) <= most, lost
    assert f"says what was trained to {gap:.5f} nats a token" in caplog.text and gap < 0.05
    assert written_dtype(str(tmp_path)) == ("float32" if dtype == "float32" else "bfloat16")
    assert written_dtype("a/hub-id") is None and (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_an_export_that_says_something_else_is_seen(base, tmp_path, monkeypatch, caplog) -> None:
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
    assert "says what was trained to" in caplog.text
