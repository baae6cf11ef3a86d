"""Supervised warm starts of SmolLM2 on demonstrations: LoRA, merged, made once."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reagent.lab.build import homogeneous, rows_of
from reagent.lab.demonstrations import Demonstration
from reagent.rollout.templates import TurnTemplate
from reagent.train.config import PolicyConfig
from reagent.train.export import export
from reagent.train.policy import load_policy
from rrm.train.sft import collate, labelled_positions_only

RATE = 5e-4
CARD = "warm.json"


def warm_start(
    shown: Sequence[Demonstration],
    config: PolicyConfig,
    folder: Path,
    *,
    epochs: int,
    batch: int,
    seed: int,
    device: str = "cpu",
) -> dict[str, Any]:
    """A policy that knows the format, unless it is there; returns its card: `demonstrations, epochs, batch, steps, tokens` (of an epoch)`,
    loss, seconds`.

    Args:
        device: `cpu` or `cuda`.

    Raises:
        SystemExit: the one that is there was made of other demonstrations or with other settings.
    """
    card = {"demonstrations": len(shown), "epochs": epochs, "batch": batch, "seed": seed, "rate": RATE}
    if (folder / CARD).is_file():
        kept = json.loads((folder / CARD).read_text())
        if other := {key: kept[key] for key in card if kept[key] != card[key]}:
            raise SystemExit(f"{folder} was made with {other}, not {card}: move it away")
        return kept
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    policy, tokenizer = load_policy(config, with_values=False)
    examples = homogeneous(list(rows_of(shown, TurnTemplate(tokenizer), tokenizer)), batch, seed)
    trainer = SFTTrainer(
        model=policy.model,
        args=SFTConfig(
            output_dir=str(folder.with_name(f"{folder.name}.sft")), seed=seed, num_train_epochs=epochs, learning_rate=RATE,
            per_device_train_batch_size=batch, lr_scheduler_type="cosine", warmup_steps=0.05, max_length=None,
            train_sampling_strategy="sequential", gradient_checkpointing=False, bf16=False, use_cpu=device == "cpu",
            save_strategy="no", logging_steps=10, report_to="none",
        ),
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        data_collator=functools.partial(collate, pad_token_id=tokenizer.pad_token_id),
    )  # fmt: skip
    begun = time.monotonic()
    with labelled_positions_only():
        found = trainer.train()
    export(policy, tokenizer, folder)
    card |= {
        "steps": found.global_step,
        "tokens": sum(len(row["input_ids"]) for row in examples),
        "loss": round(found.training_loss, 4),
        "losses": [round(row["loss"], 4) for row in trainer.state.log_history if "loss" in row],
        "seconds": round(time.monotonic() - begun, 1),
    }
    (folder / CARD).write_text(json.dumps(card) + "\n")  # last: without it the policy is made again
    return card
