"""SmolLM2 on both engines: whether vLLM says what `hf` says, and whether updates that are learned through it are those it speaks with.

    python -m benchmarks.agreement --vllm-python .venv-vllm/bin/python          (ten minutes on two cores; make test-vllm builds that environment)

`greedy`: the tokens of both engines after questions of the calculator, float32, temperature 0, and how far the log-probabilities of one and the same token lie
apart. `updates`: a GRPO run with LoRA through the server (`reagent train`), the gap of each update, and afterwards the trained
adapter on both engines again: greedy tokens alike, and other ones than before training. Writes benchmarks/results/engines_agree.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.vllm_server import LORA, PYTHON, serving, version_of
from reagent.tasks.environments import make_tasks
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.engine import check_agrees
from reagent.train.policy import load_policy
from reagent.train.run import train
from rrm.engines.base import SamplingParams
from rrm.engines.hf.base_model import base_path
from rrm.engines.hf.engine import HFEngine, eos_ids_of
from rrm.engines.vllm import VLLMEngine

OUT = record.RESULTS / "engines_agree.json"
BASE = "smollm2"


def config_of(args: argparse.Namespace, url: str, folder: Path) -> AgentConfig:
    return load_agent_config(BASE, [
        "algorithm=grpo", "gate=off", "policy.dtype=float32", f"max_updates={args.updates}", "eval.every=0", "environment.eval_tasks=1",
        "rollout.tasks_per_update=2", "rollout.group_size=4", "rollout.max_episode_tokens=512", "optim.learning_rate=1e-3",
        f"rollout.engine=vllm:{url}#base", f"output_dir={folder / 'run'}", f"seed={args.seed}",
    ])  # fmt: skip


def both(policy: Any, tokenizer: Any, there: VLLMEngine, rows: list[list[int]], tokens: int) -> dict[str, Any]:
    greedy = SamplingParams(max_new_tokens=tokens)
    here = HFEngine(policy.model, tokenizer, exact_head=True)
    mine, theirs = here.generate(rows, greedy), there.generate(rows, greedy)
    alike = [(a.logprobs, b.logprobs) for a, b in zip(mine, theirs, strict=True) if a.ids == b.ids]
    apart = [abs(x - y) for a, b in alike for x, y in zip(a, b, strict=True)]
    return {
        "prompts": len(rows),
        "tokens": sum(len(a.ids) for a in mine),
        "same": len(alike),
        "most_apart": max(apart, default=None),
        "hf": [a.ids for a in mine],
        "vllm": [b.ids for b in theirs],
        "hf_logprobs": [[round(x, 7) for x in a.logprobs] for a in mine],
        "vllm_logprobs": [[round(x, 7) for x in b.logprobs] for b in theirs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path, default=PYTHON)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    questions = [task.question for task in make_tasks("calculator", args.prompts, args.seed)]
    with (
        tempfile.TemporaryDirectory() as name,
        serving(args.vllm_python, base_path(BASE), *LORA, context=1024, cache_gib=2, threads=args.threads) as url,
    ):
        folder = Path(name)
        config = config_of(args, url, folder)
        policy, tokenizer = load_policy(config.policy, with_values=False, trained=False)
        asked = [[{"role": "user", "content": question}] for question in questions]
        rows = [tokenizer.apply_chat_template(one, add_generation_prompt=True, return_dict=False) for one in asked]
        size = int(policy.model.get_input_embeddings().num_embeddings)
        known = {"eos_ids": eos_ids_of(policy.model, tokenizer), "vocabulary": size}

        def engine(adapters: Path | None) -> VLLMEngine:
            return VLLMEngine(f"vllm:{url}#base", adapters=adapters, **known)

        there = engine(None)
        try:
            start = check_agrees(there, policy, tokenizer, None)
            before = both(policy, tokenizer, there, rows, args.tokens)
        finally:
            there.close()
        train(config)
        metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
        merged = config.policy.model_copy(update={"base": str(folder / "run" / "policy"), "lora": None})
        trained, _ = load_policy(merged, with_values=False, trained=False)
        # the adapter as the run wrote it, over the server's own weights
        plain: Any = AutoModelForCausalLM.from_pretrained(base_path(BASE), dtype=torch.float32)
        speaking = PeftModel.from_pretrained(plain, str(folder / "run" / "policy" / "adapter"))
        there = engine(folder / "adapters")
        try:
            there.sync(speaking, 1)
            after = both(trained, tokenizer, there, rows, args.tokens)
        finally:
            there.close()
        vllm = version_of(url)
    keys = ("update", "logprob_gap", "logprob_gap_mean", "importance_mean", "staleness", "grad_norm", "episode/reward")
    found = {
        "greedy": before | {"start_gap": start},
        "updates": [{key: row[key] for key in keys if key in row} for row in metrics],
        "trained": after | {"moved": sum(a != b for a, b in zip(before["hf"], after["hf"], strict=True))},
        **{"vllm": vllm, "commit": record.commit(), "seed": args.seed},
    }
    args.vllm_python = args.vllm_python.name
    record.write(args.out, found | record.timed_with("agreement", args, "torch", "transformers", "peft"))
    said = {part: {k: v for k, v in found[part].items() if not isinstance(v, list)} for part in ("greedy", "trained")}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
