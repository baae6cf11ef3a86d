"""Train a step judge on rows of `benchmarks/models/rows.py`, on a GPU or on two CPU cores, in pieces that resume.

    python benchmarks/gpu/train_steps.py --base BASE --rows ROWS.npz --out OUT --run small --max-tokens 1000000 --minutes 50

Needs torch, transformers, peft, safetensors and numpy alone. One row is one forward: a window of a run and the branches of its planted
twins under one mask (DESIGN §4, windows). The loss of an update is the mean over its labelled slots of

    verdict     −log σ(±(log p(good) − log p(bad) + b)), b a running constant, good and bad weighed so that an update holds as much of both
    progress    the same of the second pair of tokens against the run's outcome, times PROGRESS
    pairs       −log σ(d(own step) − d(planted twin)) of the log-odds d, times PAIRS

What is trained is a LoRA adapter, or with --full every linear weight of the layers from --first-layer on: over few updates that learns
faster (docs/decisions.md, ADR 8), and its adapter is the best approximation of rank --rank of what changed. The layers below never change:
with --lower their outputs are kept in a file, for the next training on the same rows. --leave-out leaves the rows of a fold's sources out.
AdamW with linear warm-up and linear decay over `--max-tokens`. OUT/RUN.adapter.safetensors, .moments.safetensors and .state.json hold everything that a resumed run
needs; OUT/RUN.log.jsonl has a line an update. A run that is stopped by --minutes goes on from them. Weights are kept to 16 bits and
moments to 8, so that a resumed run ends within about 10⁻³ of the way it went on from the run that was not stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import logsigmoid, scaled_dot_product_attention
from transformers import AttentionInterface, AutoModelForCausalLM

PROGRESS, PAIRS, OUTCOME, RARE = 0.1, 0.5, 1.0, 3.0
FOLLOW = 0.2
"""Share of an update's own constant in the next one's (`new_bias`)."""
WARM_UP = 0.1
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

    def span(self, i: int) -> tuple[int, int]:
        """Places of a row's first id and of the one after its last, among all rows' ids."""
        start, end = self.arrays["ids_ptr"][i : i + 2].tolist()
        return start, end

    def source(self, i: int) -> str:
        """Name of the source that a row's run is from."""
        return self.about["sources"][self.part("slots", i)[0][3]]


def spans(segments: np.ndarray, length: int) -> list[tuple[int, int, int]]:
    """(start, cut, end) of a row's run and of its branches."""
    ends = [int(start) for start, _ in segments[1:]] + [length]
    return [(start, cut, end) for (start, cut), end in zip(segments.tolist(), ends, strict=True)]


def log_odds(
    model: Any,
    ids: np.ndarray,
    segments: np.ndarray,
    slots: np.ndarray,
    choices: torch.Tensor,
    device: str,
    *,
    dtype: torch.dtype | None = None,
    below: Below | None = None,
) -> torch.Tensor:
    """(slots, 2): log-odds of good against bad, and of success against failure, at each slot of one row.

    Args:
        dtype: of products; None: the model's.
        below: the row's hidden states (L, d) under the layers that are trained.
    """
    parts, lm = spans(segments, len(ids)), decoder(model)
    places = torch.cat([torch.arange(cut, cut + end - start) for start, cut, end in parts])[None].to(device)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=(dtype or lm.dtype) == torch.bfloat16):
        hidden = lm.model.embed_tokens(torch.tensor(ids, dtype=torch.long, device=device)[None])
        rotary = lm.model.rotary_emb(hidden, position_ids=places)

        def through(x: torch.Tensor, layers: Any) -> torch.Tensor:
            for layer in layers:
                x = layer(x, attention_mask=None, position_ids=places, position_embeddings=rotary, parts=parts)
            return x

        if below is None:
            hidden = through(hidden, lm.model.layers)
        else:
            if not below.known():
                with torch.no_grad():
                    below.keep(through(hidden, lm.model.layers[: below.layers])[0])
            hidden = through(below.states().to(device, hidden.dtype)[None], lm.model.layers[below.layers :])
        hidden = lm.model.norm(hidden)[0]
    at = torch.tensor(slots[:, 0], dtype=torch.long, device=device)
    weight = lm.lm_head.weight[choices].float()
    logits = hidden[at].float() @ weight.T
    return torch.stack([logits[:, 0] - logits[:, 1], logits[:, 2] - logits[:, 3]], dim=1)


class Below:
    """A row's hidden states under the layers that are trained, kept in a file for all rows (16-bit floats).

    Args:
        held: (ids of all rows, d) float16, and (rows,) whether a row is there.
        span: the row's first id and the one after its last.
        layers: how many layers are below.
    """

    def __init__(self, held: tuple[np.ndarray, np.ndarray], row: int, span: tuple[int, int], layers: int) -> None:
        self.held, self.row, self.span, self.layers = held, row, span, layers

    def known(self) -> bool:
        """Whether the row was read before."""
        return bool(self.held[1][self.row])

    def keep(self, states: torch.Tensor) -> None:
        """Store (L, d); values that 16 bits do not hold are an error."""
        if not (states.abs() < 65000).all():
            raise ValueError("hidden states are too large for 16 bits: train without --lower")
        self.held[0][self.span[0] : self.span[1]] = states.cpu().to(torch.float16).numpy()
        self.held[1][self.row] = 1

    def states(self) -> torch.Tensor:
        """(L, d)."""
        return torch.from_numpy(np.array(self.held[0][self.span[0] : self.span[1]]))


def lower_file(folder: Path, rows: Rows, layers: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The two arrays of `Below`, of a file that is made where it is not there; its name holds the rows' digest."""
    digest = hashlib.sha256(rows.arrays["ids"].tobytes() + rows.arrays["segments"].tobytes()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {"states": (np.float16, (len(rows.arrays["ids"]), size)), "known": (np.uint8, (len(rows),))}
    made = []
    for name, (dtype, shape) in shapes.items():
        path = folder / f"{digest}.{layers}.{name}"
        made.append(np.memmap(path, dtype=dtype, mode="r+" if path.exists() else "w+", shape=shape))
    return made[0], made[1]


def class_weights(slots: Sequence[np.ndarray]) -> tuple[float, float]:
    """Weights of a slot of label 0 and of label 1 in an update: both labels weigh the same in all, so that a constant has no gradient once
    `new_bias` found it. A rare label weighs at most `RARE` a slot, and the frequent one as much less. Outcomes count `OUTCOME`."""
    part = np.concatenate(slots)
    bad, good = (float(((part[:, 1] == y) * np.where(part[:, 5] > 0, 1.0, OUTCOME)).sum()) for y in (0, 1))
    if not bad or not good:
        return 1.0, 1.0
    each = min((bad + good) / 2, RARE * min(bad, good))
    return each / bad, each / good


def terms(
    odds: torch.Tensor,
    slots: np.ndarray,
    pairs: np.ndarray,
    balance: tuple[float, float] = (1.0, 1.0),
    bias: float = 0.0,
) -> tuple[torch.Tensor, dict[str, list[float]]]:
    """Sum of a row's loss terms, and what to log: each verdict's loss.

    Args:
        balance: of `class_weights`.
        bias: added to the log-odds of verdicts (`new_bias`).
    """
    verdict = torch.tensor(slots[:, 1], device=odds.device)
    progress = torch.tensor(slots[:, 2], device=odds.device)
    step = torch.tensor(slots[:, 5], device=odds.device)
    known = verdict >= 0
    said = odds[:, 0] + bias
    nll = -logsigmoid(torch.where(verdict == 1, said, -said))
    weight = torch.where(step > 0, 1.0, OUTCOME) * torch.where(verdict == 1, balance[1], balance[0]) * known
    total = (nll * weight).sum()
    if (seen := progress >= 0).any():
        total = total - PROGRESS * logsigmoid(torch.where(progress == 1, odds[:, 1], -odds[:, 1]))[seen].sum()
    if len(pairs):
        own, twin = (odds[torch.tensor(pairs[:, i], device=odds.device), 0] for i in (0, 1))
        total = total - PAIRS * logsigmoid(own - twin).sum()
    steps = known & (step > 0)
    told = {"nll": nll[steps], "right": ((said >= 0) == (verdict == 1))[steps].float()}
    return total, {
        **{k: v.tolist() for k, v in told.items()},
        "odds": odds[known, 0].tolist(),
        "y": verdict[known].tolist(),
        "weights": weight[known].tolist(),
    }


def new_bias(
    bias: float, odds: Sequence[float], labels: Sequence[float], weights: Sequence[float], steps: int = 1
) -> float:
    """The constant that log-odds of an update lack for the least weighted loss, by Newton's method.

    The weights need not learn it then: an update that moves all verdicts at once moves them by about 1 with Adam at 1e-4, which drowns
    what tells them apart. Calibration finds the constant again.
    """
    d, y = np.array(odds), np.array(labels)
    if (y == 1).all() or (y == 0).all():
        return bias
    share = np.array(weights) / np.sum(weights)
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(d + bias)))
        bias -= float(np.clip(share @ (p - y) / max(share @ (p * (1 - p)), 0.02), -2, 2))
    return bias


def tree_attention(
    module: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: None,
    scaling: float,
    parts: Sequence[tuple[int, int, int]],
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of one row, part by part: the run is causal, a branch sees the run's first `cut` tokens and itself.

    Args:
        q, k, v: (1, heads, L, d), (1, key heads, L, d).
        parts: of `spans`.
    """
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    made = []
    for start, cut, end in parts:
        if not start:
            part = (q[:, :, :end], k[:, :, :end], v[:, :, :end])
            made.append(scaled_dot_product_attention(*part, is_causal=True, scale=scaling))
            continue
        keys, values = (torch.cat([x[:, :, :cut], x[:, :, start:end]], dim=2) for x in (k, v))
        seen = torch.ones(end - start, cut + end - start, dtype=torch.bool, device=q.device).tril(cut)
        made.append(scaled_dot_product_attention(q[:, :, start:end], keys, values, attn_mask=seen, scale=scaling))
    return torch.cat(made, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register("tree", tree_attention)


def adapter(base: str, rank: int, device: str, dtype: torch.dtype, seed: int, first: int = 0) -> Any:
    """The base with a fresh adapter on its layers from `first` on; the adapter's weights are float32."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, attn_implementation="tree")
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


def whole(base: str, device: str, first: int) -> Any:
    """The base in float32, its linear weights trained from layer `first` on."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="tree").to(device)
    for name, parameter in model.named_parameters():
        layer = int(name.split(".layers.")[1].split(".")[0]) if ".layers." in name else -1
        parameter.requires_grad_(layer >= first and name.split(".")[-2] in TARGETS)
    return model


def low_rank(model: Any, base: str, rank: int) -> dict[str, torch.Tensor]:
    """What changed since the base, as an adapter of a rank with alpha = 2 rank: truncated singular values, shared by both factors."""
    before = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).state_dict()
    made = {}
    for name, parameter in trained(model).items():
        u, s, v = torch.linalg.svd(parameter.detach().float().cpu() - before[name], full_matrices=False)
        root = (s[:rank] / 2).sqrt()
        stem = f"base_model.model.{name.removesuffix('.weight')}"
        made[f"{stem}.lora_A.weight"] = (root[:, None] * v[:rank]).contiguous()
        made[f"{stem}.lora_B.weight"] = (u[:, :rank] * root).contiguous()
    return made


def trained(model: Any) -> dict[str, torch.nn.Parameter]:
    """The weights that are trained; an adapter's by the names that peft's files have."""
    return {n.replace(".default.", "."): p for n, p in model.named_parameters() if p.requires_grad}


def decoder(model: Any) -> Any:
    """The language model under an adapter, or itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


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
        save_file(tensors, out / f"{run}.{kind}.tmp", {"updates": str(state["updates"])})
    for kind in files:
        os.replace(out / f"{run}.{kind}.tmp", out / f"{run}.{kind}.safetensors")
    (out / f"{run}.state.tmp").write_text(json.dumps(state))
    os.replace(out / f"{run}.state.tmp", out / f"{run}.state.json")


def resume(folder: Path, run: str, model: Any, optimiser: torch.optim.AdamW) -> dict[str, Any] | None:
    """Load what `save` wrote; None where nothing is there.

    Raises:
        SystemExit: the files are of different updates, as a stop between two renames leaves them.
    """
    if not (folder / f"{run}.state.json").is_file():
        return None
    state = json.loads((folder / f"{run}.state.json").read_text())
    paths = [folder / f"{run}.{kind}.safetensors" for kind in ("adapter", "moments")]
    for path in paths:
        with safe_open(path, "pt") as held:
            if (held.metadata() or {}).get("updates") != str(state["updates"]):
                raise SystemExit(f"{path} is of another update than {run}.state.json: start anew in another folder")
    halves, moments = map(load_file, paths)
    for name, parameter in trained(model).items():
        parameter.data = (halves[name].float() + moments[f"{name}/rest"].float()).to(parameter.device)
        if f"{name}/exp_avg" in moments:
            kept = {key: moments[f"{name}/{key}"].float().to(parameter.device) for key in ("exp_avg", "exp_avg_sq")}
            optimiser.state[parameter] = {"step": torch.tensor(float(state["updates"] - 1)), **kept}
    return state


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train until the tokens or the minutes are spent; the last state."""
    rows, out = Rows(args.rows), Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if args.full:
        model = whole(args.base, args.device, args.first_layer)
    else:
        model = adapter(args.base, args.rank, args.device, getattr(torch, args.dtype), args.seed, args.first_layer)
    weights = list(trained(model).values())
    optimiser = torch.optim.AdamW(weights, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)
    choices = torch.tensor([*rows.about["choices"], *rows.about["progress"]], device=args.device)
    state = resume(Path(args.resume or out), args.run, model, optimiser)
    fresh = {"updates": 0, "tokens": 0, "seconds": 0.0, "place": 0, "bias": None}
    state = state or {"run": args.run, "seed": args.seed, "leave_out": args.leave_out, **fresh}
    if state.setdefault("leave_out", args.leave_out) != args.leave_out:
        raise SystemExit(f"{args.run} has learned with --leave-out {state['leave_out']}: start anew in another folder")
    digest = hashlib.sha256(rows.arrays["ids"].tobytes()).hexdigest()[:12]
    if state.setdefault("rows", digest) != digest:  # more rows, from the first on
        state |= {"rows": digest, "place": 0}
    out_of = tuple(rows.about["folds"][args.leave_out]) if args.leave_out else ()
    kept = [i for i in range(len(rows)) if not (out_of and rows.source(i).startswith(out_of))]
    layers = args.first_layer
    held = lower_file(Path(args.lower), rows, layers, decoder(model).config.hidden_size) if args.lower else None
    begun = saved = time.monotonic()
    before = state["seconds"]
    model.train()
    log = (out / f"{args.run}.log.jsonl").open("a", encoding="utf-8")
    while state["tokens"] < args.max_tokens and time.monotonic() - begun < 60 * args.minutes:
        batch = [kept[order(len(kept), args.seed, state["place"] + i)] for i in range(args.batch)]
        labels = [rows.part("slots", i) for i in batch]
        known, balance = max(sum(int((part[:, 1] >= 0).sum()) for part in labels), 1), class_weights(labels)
        done = state["tokens"] / args.max_tokens
        for group in optimiser.param_groups:
            group["lr"] = args.lr * min(done / WARM_UP + 0.02, 1.0) * (1 - done)
        said: dict[str, list[float]] = {"nll": [], "right": [], "odds": [], "y": [], "weights": []}
        for i in batch:
            ids, segments, slots = (rows.part(name, i) for name in ("ids", "segments", "slots"))
            below = Below(held, i, rows.span(i), layers) if held else None
            dtype = getattr(torch, args.dtype)
            odds = log_odds(model, ids, segments, slots, choices, args.device, dtype=dtype, below=below)
            loss, told = terms(odds, slots, rows.part("pairs", i), balance, state["bias"] or 0.0)
            (loss / known).backward()
            state["tokens"] += len(ids)
            for key, values in told.items():
                said[key] += values
        norm = torch.nn.utils.clip_grad_norm_(weights, 1.0)
        if state["bias"] is None:  # the first rows only say how the base is biased
            state["bias"] = new_bias(0.0, said.pop("odds"), said.pop("y"), said.pop("weights"), steps=20)
        else:
            optimiser.step()
            found = new_bias(state["bias"], said.pop("odds"), said.pop("y"), said.pop("weights"))
            state["bias"] = (1 - FOLLOW) * state["bias"] + FOLLOW * found
        optimiser.zero_grad(set_to_none=True)
        state["updates"] += 1
        state["place"] += args.batch
        state["seconds"] = round(before + time.monotonic() - begun, 1)
        line = {
            **{k: state[k] for k in ("updates", "tokens", "seconds")},
            "norm": round(float(norm), 3),
            "bias": round(state["bias"], 3),
        }
        log.write(json.dumps(line | {k: round(sum(v) / max(len(v), 1), 4) for k, v in said.items()}) + "\n")
        log.flush()
        if time.monotonic() - saved > EVERY_S:
            save(out, args.run, model, optimiser, state)
            saved = time.monotonic()
    state["finished"] = state["tokens"] >= args.max_tokens
    save(out, args.run, model, optimiser, state)
    if args.full:
        made = {name: value.to(torch.bfloat16) for name, value in low_rank(model, args.base, args.rank).items()}
        save_file(made, out / f"{args.run}.lowrank.safetensors")
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
    made.add_argument("--lower", help="folder of the outputs of the layers below, read and filled")
    made.add_argument("--leave-out", metavar="FOLD", help="the fold whose sources' rows are left out")
    made.add_argument(
        "--full", action="store_true", help="train the weights themselves; the adapter is made at the end"
    )
    made.add_argument("--lr", type=float, default=3e-4, help="1e-4 with --full")
    made.add_argument("--batch", type=int, default=8, help="rows an update")
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument(
        "--dtype",
        default="bfloat16",
        choices=["float32", "bfloat16"],
        help="of products, and of an adapter's base; a CPU without bfloat16 needs float32",
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
