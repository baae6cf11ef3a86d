"""The low-rank part of what full fine-tuning changed, as an adapter over the public base: what a wheel can carry of it.

    python -m benchmarks.default_judge.low_rank --model runs/default_judge/full_run/judge --rank 20 -o runs/default_judge/low_rank

For every linear layer of the decoder the difference W' − W is replaced by its best approximation of rank r in the Frobenius
norm (Eckart and Young 1936: the r largest singular values), as LoRA's B A with alpha = r. What lies outside the linear layers
(embeddings, norms) is left out. Prints how much of the squared difference is kept. The folder is one that `sft.lora.init` takes; the
adapter is another judge than the one it comes from and has to be calibrated and measured as it is:

    rrm train --config default-small sft.lora.init=runs/default_judge/low_rank sft.lora.r=20 sft.lora.alpha=20 sft.lora.skip_layers=0 …
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from rrm.config import BaseSettings, LoraSettings
from rrm.engines.hf.base_model import load_model, lora_config
from rrm.engines.shipped_judges import FILE, judge_folder
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings
from rrm.train.export import halve_adapter, name_base

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def factors(difference: torch.Tensor, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, r) B and (r, in) A with B A the best approximation of rank r; the singular values are shared evenly between both."""
    u, s, v = torch.linalg.svd(difference.double(), full_matrices=False)
    root = s[:rank].sqrt()
    return (u[:, :rank] * root).float(), (root[:, None] * v[:rank]).float()


def low_rank(model: Any, base: Any, rank: int) -> tuple[Any, dict[str, float]]:
    """`base` under an adapter of rank `rank` that brings it as near to `model` as it can, and the share of the squared
    difference kept, by the kind of layer and in all linear layers (`linear`); `linear_of_all`: these layers' share of the whole difference.

    Args:
        model, base: causal language models of one architecture, in float32.
    """
    from peft import get_peft_model

    tuned = {k: v.detach() for k, v in model.named_parameters()}
    start = {k: v.detach().clone() for k, v in base.named_parameters()}
    whole = sum(float((tuned[k] - v).double().square().sum()) for k, v in start.items())
    adapted = get_peft_model(
        base, lora_config(LoraSettings(r=rank, alpha=rank, skip_layers=0, target_modules=list(TARGETS)), base)
    )
    there: dict[str, float] = dict.fromkeys(TARGETS, 0.0)
    kept = dict(there)
    with torch.no_grad():
        for name, module in adapted.named_modules():
            kind = name.rsplit(".", 1)[-1]
            if kind not in TARGETS or not hasattr(module, "lora_A"):
                continue
            key = name.removeprefix("base_model.model.") + ".weight"
            difference = tuned[key] - start[key]
            b, a = factors(difference, rank)
            module.lora_A["default"].weight.copy_(a)
            module.lora_B["default"].weight.copy_(b)
            there[kind] += float(difference.double().square().sum())
            kept[kind] += float((b @ a).double().square().sum())
    linear = sum(there.values())
    shares = {kind: kept[kind] / there[kind] for kind in TARGETS if there[kind]}
    return adapted, shares | {
        "linear": sum(kept.values()) / linear if linear else 1.0,
        "linear_of_all": linear / whole if whole else 1.0,
    }


def another(settings: JudgeSettings, base: str) -> JudgeSettings:
    """The settings of the adapter over `base`: what was fitted to the numbers of the judge it comes from is gone."""
    fresh = JudgeSettings()
    unfitted = {name: getattr(fresh, name) for name in ("calibration", "threshold")}
    return settings.model_copy(update={"base": base, **unfitted})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the judge with whole weights")
    parser.add_argument("--base", default="smollm2", help="what the adapter goes over")
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args()
    folder = judge_folder(args.model)
    if folder is None or not (folder / FILE).is_file():
        parser.error(f"--model {args.model}: no judge's folder: there is no {FILE}")
    model, tokenizer = load_model(BaseSettings(base=str(folder)))
    base, _ = load_model(BaseSettings(base=args.base))
    adapted, shares = low_rank(model, base, args.rank)
    adapted.save_pretrained(str(args.output), safe_serialization=True)
    halve_adapter(args.output / "adapter_model.safetensors")
    name_base(args.output / "adapter_config.json", args.base)
    tokenizer.save_pretrained(str(args.output))
    save_settings(args.output, another(load_settings(folder), args.base))
    megabytes = (args.output / "adapter_model.safetensors").stat().st_size / 1e6
    print(json.dumps({"megabytes": round(megabytes, 2), "kept": {k: round(v, 3) for k, v in shares.items()}}))


if __name__ == "__main__":
    main()
