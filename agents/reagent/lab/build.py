"""Build the lab's policies: a byte-level BPE and a Llama of about a million parameters.

Rows hold the token ids of a rollout: prompt, each turn's text and its end, observations. The loss falls on the agent's turns
but for its mistakes. The first rows come from a search without distractors. RL starts from `tool_call`; `naive_rag` and
`direct` are baselines with equal training."""

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reagent.lab.demonstrations import Demonstration, demonstrations
from reagent.lab.model import PAD, build_lab_model, build_lab_tokenizer
from reagent.lab.reflections import reflections
from reagent.lab.settings import LabSettings, ReflectSettings
from reagent.rollout.templates import LAB_TEMPLATE, TurnTemplate
from rrm.data.seeds import derive_seed

TOKENIZER_ROWS = 3000
HURRIED, HURRIED_LEARNING_RATE = 0.6, 3e-4
"""Share of the last `tool_call` rows whose agent answers with its first result, and their rate.
Imitation takes the habit over, and RL can unlearn it."""


def easy_demonstrations(settings: LabSettings) -> list[Demonstration]:
    seed, hops = derive_seed(settings.seed, "easy"), settings.hop_counts
    options = {"distractors": False}
    return list(demonstrations("search", settings.easy_rows, seed, kind=settings.kind, hops=hops, options=options))


def lab_demonstrations(settings: LabSettings) -> list[Demonstration]:
    """The training conversations; `naive_rag` and `direct` have no calculator or second attempts."""
    if settings.kind == "tool_call":
        return _mixture(settings, settings.rows, settings.seed, hurried=0.0)
    return list(demonstrations("search", settings.rows, settings.seed, kind=settings.kind, hops=settings.hop_counts))


def hurried_demonstrations(settings: LabSettings) -> list[Demonstration]:
    if settings.kind != "tool_call":
        return []
    return _mixture(settings, settings.hurried_rows, derive_seed(settings.seed, "hurried"), hurried=HURRIED)


def _mixture(settings: LabSettings, rows: int, seed: int, *, hurried: float) -> list[Demonstration]:
    demos: list[Demonstration] = []
    for name, share in (("search", 0.6), ("calculator", 0.4)):
        critique = round(0.3 * share * rows)
        lengths = settings.hop_counts if name == "search" else None
        demos += demonstrations(name, round(share * rows) - critique, seed, hops=lengths, hurried=hurried)
        demos += demonstrations(name, critique, derive_seed(seed, "critique"), hops=lengths, with_critique=True)
    random.Random(derive_seed(seed, "order")).shuffle(demos)
    return demos


def rows_of(demos: Sequence[Demonstration], template: TurnTemplate, tokenizer: Any) -> Iterator[dict[str, list[int]]]:
    """`input_ids` and `labels` (−100 on everything but the turns to learn and their ends)."""
    for demo in demos:
        first = next(i for i, m in enumerate(demo.messages) if m["role"] == "assistant")
        ids = list(template.prompt(demo.messages[:first]))
        labels = [-100] * len(ids)
        turn_start = first
        while turn_start < len(demo.messages):
            turn = [*tokenizer.encode(demo.messages[turn_start]["content"], add_special_tokens=False), template.end_id]
            ids += turn
            labels += turn if demo.train_on[turn_start] else [-100] * len(turn)
            stop = turn_start + 1
            while stop < len(demo.messages) and demo.messages[stop]["role"] != "assistant":
                stop += 1
            if stop < len(demo.messages):
                suffix = template.suffix(demo.messages[turn_start + 1 : stop], [template.end_id])
                ids += suffix
                labels += [-100] * len(suffix)
            turn_start = stop
        yield {"input_ids": ids, "labels": labels}


def homogeneous(rows: list[dict[str, list[int]]], batch_size: int, seed: int) -> list[dict[str, list[int]]]:
    """Rows in shuffled batches of similar length."""
    ordered = sorted(rows, key=lambda row: len(row["input_ids"]))
    batches = [ordered[i : i + batch_size] for i in range(0, len(ordered) - len(ordered) % batch_size, batch_size)]
    random.Random(seed).shuffle(batches)
    return [row for batch in batches for row in batch]


def build_lab_policy(settings: LabSettings, output: Path) -> dict[str, Any]:
    """Train a lab policy and write it (safetensors, tokenizer, card.json); returns the card."""
    demos, hurried = lab_demonstrations(settings), hurried_demonstrations(settings)
    # as the template writes them: the roles' names then are tokens too
    texts = (f"\n{m['role']}\n{m['content']}" for d in demos[:TOKENIZER_ROWS] for m in d.messages)
    tokenizer = build_lab_tokenizer(texts, settings.vocab_size, digits_together=3)
    tokenizer.chat_template = LAB_TEMPLATE
    model = build_lab_model(
        tokenizer,
        hidden=settings.hidden,
        layers=settings.layers,
        heads=settings.heads,
        intermediate=settings.intermediate,
        seed=settings.seed,
    )
    template = TurnTemplate(tokenizer)
    rows = list(rows_of(demos, template, tokenizer))
    easy = list(rows_of(easy_demonstrations(settings), template, tokenizer))
    last = list(rows_of(hurried, template, tokenizer))
    ordered = homogeneous(easy, settings.batch_size, derive_seed(settings.seed, "easy")) + [
        row
        for epoch in range(settings.epochs)
        for row in homogeneous(rows, settings.batch_size, derive_seed(settings.seed, "batches", epoch))
    ]
    losses = [_fit(model, tokenizer, ordered, settings, settings.learning_rate, output)]
    if last:
        shuffled = homogeneous(last, settings.batch_size, derive_seed(settings.seed, "hurried"))
        losses.append(_fit(model, tokenizer, shuffled, settings, HURRIED_LEARNING_RATE, output))
    card = {
        "settings": {**asdict(settings), "hops": list(settings.hop_counts)},
        "parameters": sum(p.numel() for p in model.parameters()),
        "rows": len(rows) + len(last),
        "longest_row": max(len(row["input_ids"]) for row in rows),
        "tokens": sum(len(row["input_ids"]) for row in [*ordered, *last]),
        "train_loss": [round(loss, 4) for loss in losses],
    }
    return _save(model, tokenizer, card, output)


def reflect(settings: ReflectSettings, base: Path, output: Path) -> dict[str, Any]:
    """Teach the lab policy in `base` to reflect (`reagent.lab.reflections`), and write it.

    Rows as in the last stage of its own training keep first attempts as they were."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, use_safetensors=True, dtype="float32")
    tokenizer = AutoTokenizer.from_pretrained(base)
    own = LabSettings(seed=derive_seed(settings.seed, "reflect"))
    demos = _mixture(own, settings.repeated, own.seed, hurried=HURRIED)
    demos += reflections(settings.rows, own.seed, hops=own.hop_counts, hurried=HURRIED)
    random.Random(own.seed).shuffle(demos)
    rows = homogeneous(list(rows_of(demos, TurnTemplate(tokenizer), tokenizer)), settings.batch_size, own.seed)
    loss = _fit(model, tokenizer, rows, settings, settings.learning_rate, output)
    card = {
        "settings": asdict(settings),
        "from": hashlib.sha256((base / "model.safetensors").read_bytes()).hexdigest(),
        "rows": len(rows),
        "longest_row": max(len(row["input_ids"]) for row in rows),
        "tokens": sum(len(row["input_ids"]) for row in rows),
        "train_loss": round(loss, 4),
    }
    return _save(model, tokenizer, card, output)


def _save(model: Any, tokenizer: Any, card: dict[str, Any], output: Path) -> dict[str, Any]:
    from accelerate.state import AcceleratorState

    from rrm.data.provenance import environment

    AcceleratorState._reset_state()  # accelerate keeps the trainer's precision for the process; an agent's may differ
    model.save_pretrained(str(output), safe_serialization=True)
    tokenizer.save_pretrained(str(output))
    card["sha256"] = hashlib.sha256((output / "model.safetensors").read_bytes()).hexdigest()
    card["environment"] = environment()
    (output / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    return card


def _fit(
    model: Any,
    tokenizer: Any,
    rows: list[dict[str, list[int]]],
    settings: LabSettings | ReflectSettings,
    rate: float,
    output: Path,
) -> float:
    import functools

    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from rrm.train.sft import collate, labelled_positions_only

    arguments = SFTConfig(
        output_dir=str(output / "training"), seed=settings.seed, num_train_epochs=1,
        per_device_train_batch_size=settings.batch_size, learning_rate=rate, lr_scheduler_type="cosine",
        warmup_steps=0.03, weight_decay=0.01, train_sampling_strategy="sequential", gradient_checkpointing=False,
        bf16=True, use_cpu=True, max_length=None, packing=False, save_strategy="no", logging_steps=50, report_to="none",
    )  # fmt: skip
    trainer = SFTTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        data_collator=functools.partial(collate, pad_token_id=tokenizer.get_vocab()[PAD]),
    )
    with labelled_positions_only():
        return trainer.train().training_loss
