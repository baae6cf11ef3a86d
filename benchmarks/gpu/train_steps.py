"""Train a step judge's LoRA adapter on rows of `benchmarks/models/rows.py`, on a GPU or on two CPU cores, in pieces that resume.

    python benchmarks/gpu/train_steps.py --base BASE --rows ROWS.npz --out OUT --run small --max-tokens 1000000 --minutes 50

Needs torch, transformers, peft, safetensors and numpy alone. One row is one forward: a window of a run and the branches of its planted
twins under one mask (DESIGN §4, windows). The loss of an update is the mean over its labelled slots of

    verdict     −log σ(±(log p(good) − log p(bad)))
    progress    the same of the second pair of tokens against the run's outcome, times PROGRESS
    pairs       −log σ(d(own step) − d(planted twin)) of the log-odds d, times PAIRS

AdamW with linear warm-up and linear decay over `--max-tokens`. OUT/RUN.adapter.safetensors, .moments.safetensors and .state.json hold
everything that a resumed run needs; OUT/RUN.log.jsonl has a line an update. A run that is stopped by --minutes goes on from them. Weights
are kept to 16 bits and moments to 8, so that a resumed run ends within about 10⁻³ of the way it went on from the run that was not stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch.nn.functional import logsigmoid
from transformers import AttentionInterface, AutoModelForCausalLM

PROGRESS, PAIRS, OUTCOME = 0.3, 0.5, 0.5
WARM_UP = 0.05
"""Share of the tokens over which the learning rate rises."""
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
EVERY_S = 300
"""Seconds between two saved states."""


class Rows:
    """The packed rows."""

    def __init__(self, path: str | Path) -> None:
        with np.load(path, allow_pickle=False) as held:
            self.arrays = {name: held[name] for name in held.files}
        self.about: dict[str, Any] = json.loads(bytes(self.arrays["about"]).decode())

    def __len__(self) -> int:
        return len(self.arrays["ids_ptr"]) - 1

    def part(self, name: str, i: int) -> np.ndarray:
        """One row's `ids`, `segments`, `slots` or `pairs`."""
        start, end = self.arrays[f"{name}_ptr"][i : i + 2]
        return self.arrays[name][start:end]


def layout(segments: np.ndarray, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(positions (L,), mask (L, L), True where a token may look) of a row with branches."""
    positions, mask = torch.arange(length), torch.ones(length, length, dtype=torch.bool).tril()
    starts = [int(start) for start, _ in segments] + [length]
    for (start, cut), end in zip(segments.tolist(), starts[1:], strict=True):
        if start:
            positions[start:end] = torch.arange(cut, cut + end - start)
            mask[start:end, cut:start] = False
    return positions, mask


def log_odds(
    model: Any, ids: np.ndarray, segments: np.ndarray, slots: np.ndarray, choices: torch.Tensor, device: str
) -> torch.Tensor:
    """(slots, 2): log-odds of good against bad, and of success against failure, at each slot of one row."""
    positions, mask = layout(segments, len(ids))
    dtype = model.get_base_model().dtype
    seen = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, float("-inf"))[None, None].to(device)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        hidden = model.get_base_model().model(
            input_ids=torch.tensor(ids, dtype=torch.long, device=device)[None],
            attention_mask=seen,
            position_ids=positions[None].to(device),
            use_cache=False,
        )[0][0]
    at = torch.tensor(slots[:, 0], dtype=torch.long, device=device)
    weight = model.get_base_model().lm_head.weight[choices].float()
    logits = hidden[at].float() @ weight.T
    return torch.stack([logits[:, 0] - logits[:, 1], logits[:, 2] - logits[:, 3]], dim=1)


def terms(odds: torch.Tensor, slots: np.ndarray, pairs: np.ndarray) -> tuple[torch.Tensor, dict[str, list[float]]]:
    """Sum of a row's loss terms, and what to log: each verdict's loss."""
    verdict = torch.tensor(slots[:, 1], device=odds.device)
    progress = torch.tensor(slots[:, 2], device=odds.device)
    step = torch.tensor(slots[:, 5], device=odds.device)
    known = verdict >= 0
    nll = -logsigmoid(torch.where(verdict == 1, odds[:, 0], -odds[:, 0]))
    weight = torch.where(step > 0, 1.0, OUTCOME) * known
    total = (nll * weight).sum()
    if (seen := progress >= 0).any():
        total = total - PROGRESS * logsigmoid(torch.where(progress == 1, odds[:, 1], -odds[:, 1]))[seen].sum()
    if len(pairs):
        own, twin = (odds[torch.tensor(pairs[:, i], device=odds.device), 0] for i in (0, 1))
        total = total - PAIRS * logsigmoid(own - twin).sum()
    steps = known & (step > 0)
    return total, {"nll": nll[steps].tolist(), "right": ((odds[:, 0] >= 0) == (verdict == 1))[steps].float().tolist()}


def grouped_attention(
    module: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scaling: float, **_: Any
) -> tuple[torch.Tensor, None]:
    """Attention by plain products of one row, for a CPU: its fused kernel is slower there with a mask and a gradient.

    Args:
        q, k, v: (1, heads, L, d), (1, key heads, L, d).
        mask: (1, 1, L, L), added to the scores.
    """
    heads, length, size = q.shape[1:]
    kv, each = k.shape[1], heads // k.shape[1]
    scores = torch.matmul((q[0] * scaling).reshape(kv, each * length, size), k[0].transpose(1, 2)).view(
        heads, length, length
    )
    weights = torch.softmax(scores + mask[0, 0], dim=-1).view(kv, each * length, length)
    return torch.matmul(weights, v[0]).view(1, heads, length, size).transpose(1, 2).contiguous(), None


AttentionInterface.register("grouped", grouped_attention)


def adapter(base: str, rank: int, device: str, dtype: torch.dtype, seed: int, first: int = 0) -> Any:
    """The base with a fresh adapter on its layers from `first` on; the adapter's weights are float32."""
    torch.manual_seed(seed)
    attention = "grouped" if device == "cpu" else "sdpa"
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation=attention)
    model = model.to(device)  # pyright: ignore[reportArgumentType]
    layers = list(range(first, model.config.num_hidden_layers))
    config = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=TARGETS, layers_to_transform=layers, task_type="CAUSAL_LM"
    )
    model = get_peft_model(model, config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return model


def trained(model: Any) -> dict[str, torch.nn.Parameter]:
    """The adapter's weights by the names that peft's files have."""
    return {n.replace(".default.", "."): p for n, p in model.named_parameters() if p.requires_grad}


def save(out: Path, run: str, model: Any, optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Write adapter, moments and state, each whole or not at all; the state last."""
    weights, moments = trained(model), {}
    for name, parameter in weights.items():
        for key in ("exp_avg", "exp_avg_sq"):
            if parameter in optimiser.state:
                moments[f"{name}/{key}"] = optimiser.state[parameter][key].to(torch.bfloat16).contiguous()
    exact = {name: p.detach().float().contiguous().cpu() for name, p in weights.items()}
    halves = {name: p.to(torch.bfloat16) for name, p in exact.items()}
    rest = {name: (p - halves[name].float()).to(torch.bfloat16) for name, p in exact.items()}
    files = {
        "adapter": halves,
        "moments": {**{k: v.cpu() for k, v in moments.items()}, **{f"{k}/rest": v for k, v in rest.items()}},
    }
    for kind, tensors in files.items():
        save_file(tensors, out / f"{run}.{kind}.tmp")
        os.replace(out / f"{run}.{kind}.tmp", out / f"{run}.{kind}.safetensors")
    (out / f"{run}.state.tmp").write_text(json.dumps(state))
    os.replace(out / f"{run}.state.tmp", out / f"{run}.state.json")


def resume(folder: Path, run: str, model: Any, optimiser: torch.optim.AdamW) -> dict[str, Any] | None:
    """Load what `save` wrote; None where nothing is there."""
    if not (folder / f"{run}.state.json").is_file():
        return None
    state = json.loads((folder / f"{run}.state.json").read_text())
    halves, moments = (load_file(folder / f"{run}.{kind}.safetensors") for kind in ("adapter", "moments"))
    for name, parameter in trained(model).items():
        parameter.data = (halves[name].float() + moments[f"{name}/rest"].float()).to(parameter.device)
        if f"{name}/exp_avg" in moments:
            kept = {key: moments[f"{name}/{key}"].float().to(parameter.device) for key in ("exp_avg", "exp_avg_sq")}
            optimiser.state[parameter] = {"step": torch.tensor(float(state["updates"])), **kept}
    return state


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train until the tokens or the minutes are spent; the last state."""
    rows, out = Rows(args.rows), Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    model = adapter(args.base, args.rank, args.device, getattr(torch, args.dtype), args.seed, args.first_layer)
    weights = list(trained(model).values())
    optimiser = torch.optim.AdamW(weights, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    choices = torch.tensor([*rows.about["choices"], *rows.about["progress"]], device=args.device)
    state = resume(Path(args.resume or out), args.run, model, optimiser)
    state = state or {"run": args.run, "seed": args.seed, "updates": 0, "tokens": 0, "seconds": 0.0, "place": 0}
    begun = saved = time.monotonic()
    before = state["seconds"]
    model.train()
    log = (out / f"{args.run}.log.jsonl").open("a", encoding="utf-8")
    while state["tokens"] < args.max_tokens and time.monotonic() - begun < 60 * args.minutes:
        batch = [order(len(rows), args.seed, state["place"] + i) for i in range(args.batch)]
        known = max(sum(int((rows.part("slots", i)[:, 1] >= 0).sum()) for i in batch), 1)
        done = state["tokens"] / args.max_tokens
        for group in optimiser.param_groups:
            group["lr"] = args.lr * min(done / WARM_UP + 0.02, 1.0) * (1 - done)
        said: dict[str, list[float]] = {"nll": [], "right": []}
        for i in batch:
            ids, segments, slots = (rows.part(name, i) for name in ("ids", "segments", "slots"))
            loss, told = terms(
                log_odds(model, ids, segments, slots, choices, args.device), slots, rows.part("pairs", i)
            )
            (loss / known).backward()
            state["tokens"] += len(ids)
            for key, values in told.items():
                said[key] += values
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        state["updates"] += 1
        state["place"] += args.batch
        state["seconds"] = round(before + time.monotonic() - begun, 1)
        line = {**{k: state[k] for k in ("updates", "tokens", "seconds")}, "norm": round(float(norm), 3)}
        log.write(json.dumps(line | {k: round(sum(v) / max(len(v), 1), 4) for k, v in said.items()}) + "\n")
        log.flush()
        if time.monotonic() - saved > EVERY_S:
            save(out, args.run, model, optimiser, state)
            saved = time.monotonic()
    state["finished"] = state["tokens"] >= args.max_tokens
    save(out, args.run, model, optimiser, state)
    return state


def order(rows: int, seed: int, place: int) -> int:
    """The row at a place of the endless order: every epoch shuffled anew."""
    epoch, at = divmod(place, rows)
    if (rows, seed, epoch) not in _ORDERS:
        _ORDERS[rows, seed, epoch] = random.Random(f"{seed}/{epoch}").sample(range(rows), rows)
    return _ORDERS[rows, seed, epoch][at]


_ORDERS: dict[tuple[int, int, int], list[int]] = {}


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--base", required=True)
    made.add_argument("--rows", required=True)
    made.add_argument("--out", required=True)
    made.add_argument("--run", required=True)
    made.add_argument("--resume", help="folder of the state to go on from; default: --out")
    made.add_argument("--max-tokens", type=int, default=1_000_000)
    made.add_argument("--minutes", type=float, default=1e9)
    made.add_argument("--rank", type=int, default=16)
    made.add_argument(
        "--first-layer", type=int, default=10, help="the layers below have no adapter, and cost no backward pass"
    )
    made.add_argument("--lr", type=float, default=8e-4)
    made.add_argument("--batch", type=int, default=4, help="rows an update")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument(
        "--dtype", default="bfloat16", choices=["float32", "bfloat16"], help="of the base and of products"
    )
    made.add_argument("--threads", type=int)
    made.add_argument("--seed", type=int, default=0)
    return made


def main() -> None:
    """Train, and print the last state as one JSON line."""
    args = parser().parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    print(json.dumps(train(args)))


if __name__ == "__main__":
    main()
