"""What test_sharded runs in one process, in two and in four: steps under DDP and FSDP2, and whole runs that are stopped.

    torchrun --nproc-per-node 4 tests/reagent/sharded_worker.py POLICY OUTPUT [HANDED]

Each process writes OUTPUT/<case>-<sharding>-<rank>.json (metrics of each update) and the main one the weights beside it. Runs are in
OUTPUT/<kind>-straight, and OUTPUT/<kind>-stopped, which ends with an error inside a forward and goes on here; OUTPUT/<kind>-handed
is as that one was when it ended. With HANDED, a folder of such runs, they go on here.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from distributed_worker import grade
from feedback_lab import configured, scripted, trainer_of
from processes import part
from safetensors.torch import save_file
from trainer_setup import settings

from reagent.train.run import train
from reagent.train.trainer import AgentTrainer
from rrm.engines.hf.engine import base_causal_lm
from rrm.train.fsdp import gathered

BF16 = {"mixed_precision": "bf16"}
LORA = {"r": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj"]}
CASES: dict[str, dict[str, Any]] = {
    "ppo": {"algorithm": "ppo", "loss": {"bootstrap": True}, "policy": {"gradient_checkpointing": True}},
    "ppo-lora": {"algorithm": "ppo", "policy": {"lora": LORA, "gradient_checkpointing": True}},
    "grpo": {"algorithm": "grpo", "loss": {"kl_coef": 0.1}},
    "grpo-lora": {"algorithm": "grpo", "loss": {"kl_coef": 0.1}, "policy": {"lora": LORA}},
    "texts": {"algorithm": "ppo", "feedback": {"mode": "u"}, "optim": {"minibatches": 3}},
    "placebo": {"algorithm": "grpo", "feedback": {"mode": "placebo"}},
    "bf16": {"algorithm": "ppo", "policy": {"gradient_checkpointing": True}, **BF16},
    # weights in bfloat16 also play in it: with seed 0 its rounding turns a token of four processes, which then learn other episodes
    "bf16-lora": {
        "algorithm": "grpo",
        "seed": 1,
        "loss": {"kl_coef": 0.1},
        "policy": {"lora": LORA, "dtype": "bfloat16", "gradient_checkpointing": True},
        **BF16,
    },
}
"""Name → changes of the config. Eight rows a stage of unlike lengths: four processes have other numbers of micro-batches."""
UPDATES = 2
RUNS: dict[str, dict[str, Any]] = {
    "full": {
        "algorithm": "ppo",
        "loss": {"kl_coef": 0.1},
        "optim": {"learning_rate": 1e-3, "value_learning_rate": 2e-3},
    },
    "lora": {"algorithm": "grpo", "loss": {"kl_coef": 0.1}, "policy": {"lora": LORA}, "optim": {"learning_rate": 1e-3}},
}


def steps(policy: Path, output: Path, case: str, sharding: str) -> None:
    """Two updates on episodes whose rewards depend on task and attempt alone."""
    AcceleratorState._reset_state()  # accelerate keeps one precision a process; the processes stay joined
    changes = {name: dict(value) if isinstance(value, dict) else value for name, value in CASES[case].items()}
    feedback = {"mode": "none", "aux": {"share": 0.3}, **changes.pop("feedback", {})}
    config = settings(
        policy, output / f"{case}-{sharding}", sharding=sharding,
        environment={"options": {"parser": "search_tags"}, "rewards": {"unanswered": 0}},
        optim={"learning_rate": 1e-3, "microbatch_tokens": 600, "minibatches": 2, **changes.pop("optim", {})},
        policy={"base": str(policy), **changes.pop("policy", {})}, rollout={"max_episode_tokens": 700},
        feedback=feedback, **changes,
    )  # fmt: skip
    trainer = trainer_of(config, scripted())
    for group in trainer.optimizer.param_groups:
        group["eps"] = 1e-6  # or a gradient that is all rounding, which is the processor's own, makes a whole step
    updates = []
    for update in range(UPDATES):
        # in float32: where bfloat16's rounding turned one sampled token, processes would learn from other episodes than one does
        with patch("reagent.train.evaluate.precision", lambda *_: nullcontext()):
            round_ = trainer.round(update)
        metrics = trainer.learn(grade(round_.rows), round_.texts)
        trainer.update_index += 1
        updates.append({"metrics": metrics, "rows": len(round_.rows), "texts": len(round_.texts)})
    accelerator = trainer.accelerator
    results = {"processes": accelerator.num_processes, "sharded": trainer.sharded, "updates": updates}
    (output / f"{case}-{sharding}-{accelerator.process_index}.json").write_text(json.dumps(results))
    weights = gathered(dict(trainer.policy.named_parameters()), keep=accelerator.is_main_process)
    if accelerator.is_main_process:
        save_file(weights, output / f"{case}-{sharding}.safetensors")


def run_config(policy: Path, output: Path, kind: str, sharding: str = "fsdp") -> Any:
    """A run of three updates with a judge's score in its reward, evaluated after each: the best policy is kept."""
    changes = {name: dict(value) if isinstance(value, dict) else value for name, value in RUNS[kind].items()}
    return configured(
        policy, output, "r", max_updates=3, save_every=100, sharding=sharding,
        environment={"train_tasks": 8, "eval_tasks": 5}, policy={"base": str(policy), **changes.pop("policy", {})},
        optim={"microbatch_tokens": 600, "minibatches": 2, **changes.pop("optim", {})},
        eval={"every": 1, "temperature": 0.7}, **changes,
    )  # fmt: skip


def stopped_once(config: Any) -> None:
    """A run that ends in every process after its first update, in the midst of a forward, whose layers are gathered then: the
    policy's, or with an adapter the reference's, which switches that off."""
    prepare = AgentTrainer.prepare

    def fails(attention: Any, *given: Any) -> None:
        if getattr(attention.q_proj, "disable_adapters", True):
            raise MemoryError

    def prepared(self: AgentTrainer, batch: Any) -> Any:
        if self.update_index:
            decoder: Any = base_causal_lm(self.policy.model).get_decoder()
            decoder.layers[1].self_attn.register_forward_pre_hook(fails)
        return prepare(self, batch)

    with suppress(MemoryError), patch.object(AgentTrainer, "prepare", prepared):
        train(config, judge=scripted())


def whole_run(config: Any, *, part: bool = False) -> None:
    """A run to its end.

    Args:
        part: with the end at which the processes part: they cannot join again, so only the last run has it.
    """
    with nullcontext() if part else patch.object(Accelerator, "end_training", Accelerator.wait_for_everyone):
        train(config, judge=scripted())


def runs(policy: Path, output: Path, kind: str, *, part: bool = False) -> None:
    """A whole run, and one that ends with an error and goes on."""
    whole_run(run_config(policy, output / f"{kind}-straight", kind))
    stopped = output / f"{kind}-stopped"
    stopped_once(run_config(policy, stopped, kind))
    state = PartialState(cpu=True)
    state.wait_for_everyone()
    if state.is_main_process:
        shutil.copytree(stopped, output / f"{kind}-handed")
    state.wait_for_everyone()
    whole_run(run_config(policy, stopped, kind), part=part)


def run(policy: Path, output: Path, handed: Path | None = None) -> None:
    """Everything, in the processes there are."""
    for case in CASES:
        for sharding in ("none", "fsdp") if PartialState(cpu=True).num_processes > 1 else ("none",):
            steps(policy, output, case, sharding)
    AcceleratorState._reset_state()
    for begun in sorted(handed.iterdir()) if handed is not None else ():
        whole_run(run_config(policy, begun, begun.name.partition("-")[0]))
    *others, last = RUNS
    for kind in others:
        runs(policy, output, kind)
    runs(policy, output, last, part=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    part()
