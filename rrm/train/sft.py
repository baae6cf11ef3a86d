"""Stage 1: supervised fine-tuning with TRL's SFTTrainer on rows tokenised and ordered here.

The trainer neither truncates nor re-tokenises. All epochs are laid out beforehand (rows drawn anew each epoch, homogeneous batches,
see `rrm.train.data`), so a resumed run sees exactly the rows it would have seen.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.config import LossWeights, SFTSettings, TrainConfig
from rrm.data.feedback import Mode
from rrm.data.labels import JudgementTarget, StepTarget
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.engines.hf.base_model import lora_config
from rrm.errors import RRMError
from rrm.prompt.prompter import Prompter
from rrm.train.adapter import with_adapter
from rrm.train.checkpoints import newest_whole, seal
from rrm.train.data import UNLABELLED, TrainingRow, batched, epoch_rows
from rrm.train.weighting import KEY, LABEL_WEIGHTS, weighted_rows

logger = logging.getLogger(__name__)


# why a mode may get no rows
NEEDS: dict[Mode, str] = {
    "score": "no transcript was drawn for it",
    "critique": "no training transcript has a critique of the steps its prompt shows",
    "full": "no training transcript has both a trace and a critique of the steps its prompt shows",
    "steps": "no training transcript has an outcome, a score, or a finding that says good or bad",
}


def schedule(
    prompter: Prompter,
    trajectories: Sequence[Trajectory],
    targets: Mapping[str, JudgementTarget],
    settings: SFTSettings,
    seed: int,
    steps: Mapping[str, StepTarget] | None = None,
) -> list[TrainingRow]:
    """All epochs' rows in training order; warns of a mode without any, RRMError without rows.

    Args:
        targets: by trajectory id (`rrm.data.labels.targets_of`).
        steps: labelled steps by trajectory id (`rrm.data.labels.step_targets_of`), for mode `steps`.
    """
    shares = settings.mix
    order: tuple[Mode, ...] = ("score", "critique", "full", "steps")  # the seeded draws follow it
    mix: dict[Mode, float] = {mode: share for mode in order if (share := getattr(shares, mode)) > 0}
    rows: list[TrainingRow] = []
    for epoch in range(settings.epochs):
        rng = random.Random(derive_seed(seed, "sft", epoch))
        drawn = epoch_rows(
            prompter,
            trajectories,
            targets,
            mix,
            balance=settings.balance,
            injection=settings.claim_injection_share,
            finding_noise=settings.finding_noise,
            rng=rng,
            follow=settings.consistency_rows,
            steps=steps or {},
        )
        rows += batched(drawn, settings.batch_size, rng, settings.short_first_share if epoch == 0 else 0.0)
    if not rows:
        raise RRMError(
            "no training row: no transcript has an outcome or an annotation for the modes in sft.mix. "
            "Run `rrm check` on the data, or `rrm annotate` to make labels"
        )
    for mode in mix.keys() - {row.mode for row in rows}:
        logger.warning("sft: no row of mode %s (sft.mix.%s=%g): %s", mode, mode, mix[mode], NEEDS[mode])
    return rows


def as_dataset(rows: Sequence[TrainingRow], *, loss_weights: LossWeights | None = None) -> Any:
    """Rows as a datasets.Dataset with `input_ids`, `labels` (-100: not learned) and weights."""
    from datasets import Dataset

    def labels(row: TrainingRow) -> list[int]:
        if row.labels is not None:
            return list(row.labels)
        if row.learned is not None:
            chosen = set(row.learned)
            learned = [token if i in chosen else -100 for i, token in enumerate(row.completion)]
            return [-100] * len(row.prompt) + learned
        return [-100] * len(row.prompt) + row.completion

    weights = loss_weights or LossWeights()
    by_mode = weights.model_dump()

    def example(row: TrainingRow) -> dict[str, Any]:
        columns = {"input_ids": row.prompt + row.completion, "labels": labels(row)}
        if row.labels is None:
            return columns | {KEY: row.weight * by_mode[row.mode], LABEL_WEIGHTS: None}
        return columns | {KEY: by_mode[row.mode], LABEL_WEIGHTS: label_weights(row, weights.outcome)}

    return Dataset.from_list([example(row) for row in rows])


def label_weights(row: TrainingRow, outcome: float) -> list[float]:
    """Weights of the labels of a row of mode `steps`, in order.

    The steps share 1 and the run's slot gets `outcome`, both times their labels' weight, divided by 1 + `outcome`: a row of forty
    labelled steps learns as much of its outcome as a row of one.
    """
    count = sum(label != UNLABELLED for label in row.labels or ())
    steps = count - (row.outcome_weight is not None)
    parts = {"steps": float(steps > 0), "run": 0.0 if row.outcome_weight is None else outcome}
    total = sum(parts.values()) or 1.0
    weights = [row.weight * parts["steps"] / total / steps for _ in range(steps)]
    return weights if row.outcome_weight is None else [*weights, row.outcome_weight * parts["run"] / total]


def last_checkpoint(folder: Path, cpu: bool) -> str | None:
    """The stage's newest whole checkpoint, the same in every process."""
    from rrm.train.ranks import on_main

    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.removeprefix("checkpoint-")))
    newest = on_main(lambda: newest_whole(checkpoints), cpu)
    return None if newest is None else str(newest)


def seal_checkpoints(trainer: Any, cpu: bool) -> None:
    from transformers import TrainerCallback

    from rrm.train.ranks import is_main, wait

    class Seal(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            wait(cpu)  # each process keeps a random state of its own
            if is_main(cpu):
                seal(Path(args.output_dir) / f"checkpoint-{state.global_step}")

    trainer.add_callback(Seal())


def collate(rows: Sequence[Mapping[str, Any]], pad_token_id: int) -> dict[str, Any]:
    """Rows padded on the right to (B, T) `input_ids` and `labels` (-100); weights (B,) or (B, T).

    With causal attention right padding needs no mask, and without one kernels skip the upper triangle (a quarter of a step on a CPU).
    """
    import torch

    longest = max(len(row["input_ids"]) for row in rows)
    ids = torch.full((len(rows), longest), pad_token_id)
    labels = torch.full((len(rows), longest), UNLABELLED)
    for i, row in enumerate(rows):
        ids[i, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        labels[i, : len(row["labels"])] = torch.tensor(row["labels"])
    batch = {"input_ids": ids, "labels": labels, "attention_mask": torch.ones_like(ids)}
    if KEY in rows[0]:
        weights = torch.tensor([row[KEY] for row in rows], dtype=torch.float32)
        batch[KEY] = weights if rows[0].get(LABEL_WEIGHTS) is None else _spread(rows, weights, labels)
    return batch


def _spread(rows: Sequence[Mapping[str, Any]], weights: Any, labels: Any) -> Any:
    """(B, T) weights at their labels, so that the batch's loss is the mean over its rows."""
    import torch

    placed = torch.zeros(labels.shape)
    for i, row in enumerate(rows):
        placed[i, labels[i] != UNLABELLED] = torch.tensor(row[LABEL_WEIGHTS], dtype=torch.float32)
    # the trainer divides by the batch's labels; what these rows are to share is one each
    return placed * weights[:, None] * (labels != UNLABELLED).sum() / len(rows)


def compile_layers(model: Any) -> None:
    for layer in model.get_decoder().layers:
        layer.compile(dynamic=True)


@contextlib.contextmanager
def labelled_positions_only() -> Iterator[None]:
    """Restrict TRL's fused LM head on a CPU to the labelled positions (nearly twice as fast).

    TRL does so only where Triton runs; a `score` row has four labelled tokens in three hundred."""
    from trl.trainer import utils

    original = getattr(utils, "_use_triton", None)
    if original is None:  # another TRL: slower at worst
        yield
        return
    setattr(utils, "_use_triton", lambda device: device.type == "cpu" or original(device))  # noqa: B010
    try:
        yield
    finally:
        setattr(utils, "_use_triton", original)  # noqa: B010


@contextlib.contextmanager
def no_input_upcast(model: Any, active: bool) -> Iterator[None]:
    """Under autocast, keep peft from casting activations to LoRA's fp32 and back (2× on a CPU)."""
    if not active:
        yield
        return
    from peft.helpers import disable_input_dtype_casting

    with disable_input_dtype_casting(model):
        yield


def train_sft(model: Any, rows: Sequence[TrainingRow], prompter: Prompter, config: TrainConfig, folder: Path) -> Any:
    """Run the stage, continuing from the newest checkpoint in `folder`, and return the trained model.

    With LoRA the result is a PeftModel over `model`. A bf16 base trains under bf16 autocast with fp32 adapters. Under
    `sharding: fsdp` a copy of the model is divided and trained, and the model given takes its weights at the end.
    """
    from peft import get_peft_model
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from rrm.train import sharded as sharding
    from rrm.train.ranks import state

    settings = config.sft
    bf16 = config.model.dtype == "bfloat16"
    processes = state(config.cpu).num_processes
    sharded, an_update = config.sharding == "fsdp" and processes > 1, sharding.rows_per_update(settings, processes)
    arguments = (sharding.arguments() if sharded else SFTConfig)(
        output_dir=str(folder),
        seed=config.seed,
        data_seed=config.seed,
        num_train_epochs=1,
        max_steps=settings.max_steps or -1,
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.gradient_accumulation_steps,
        gradient_checkpointing=settings.gradient_checkpointing,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_ratio,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        train_sampling_strategy="sequential",
        bf16=bf16,
        use_cpu=config.cpu,
        max_length=None,
        packing=False,
        save_steps=settings.save_steps,
        save_total_limit=2,
        logging_steps=10,
        report_to=config.report_to or "none",
        run_name=config.name,
        dataloader_num_workers=0,
        remove_unused_columns=False,  # the weights
    )
    lora = settings.lora
    begun = lora is not None and lora.init is not None
    if lora and begun:
        model = with_adapter(model, lora, config.model.base)
    original = model
    if sharded:
        if lora and not begun:
            model = original = get_peft_model(model, lora_config(lora, model))
            begun = True
        model = sharding.divided(model, state(config.cpu).device)
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=as_dataset(rows, loss_weights=settings.loss_weights),
        processing_class=prompter.tokenizer,
        peft_config=lora_config(lora, model) if lora and not begun else None,
        data_collator=functools.partial(collate, pad_token_id=prompter.eos_token_id),
    )
    if settings.compile:
        compile_layers(model)
    seal_checkpoints(trainer, config.cpu)
    checkpoint = last_checkpoint(folder, config.cpu)
    upcast = no_input_upcast(trainer.model, active=bf16 and lora is not None)
    in_shards = config.sharding == "fsdp"  # one process alone writes one part, and goes on from several
    if checkpoint:
        sharding.check_checkpoint(Path(checkpoint), in_shards, an_update)
    shards = sharding.in_shards(trainer, an_update, bf16=bf16 and sharded) if in_shards else contextlib.nullcontext()
    with labelled_positions_only(), upcast, weighted_rows(trainer), shards:
        trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()
    if sharded:
        sharding.gather_weights(trainer.model, original)
        return original
    return trainer.model
