"""Stage 2: RL with TRL's GRPOTrainer (GRPO, arXiv 2402.03300), wrapped, not subclassed.

All steps' prompts are laid out beforehand, so a resumed run sees the same rows. The trainer loads its reference from
`config._name_or_path`, replaces the model's `forward`, and leaves a second adapter behind: here this is undone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.config import RLSettings, TrainConfig
from rrm.data.annotation import Finding
from rrm.data.feedback import Mode
from rrm.data.labels import JudgementTarget
from rrm.data.seeds import derive_seed
from rrm.data.text import references, transcript_text
from rrm.data.trajectory import Trajectory
from rrm.engines.base import SamplingParams
from rrm.errors import RRMError
from rrm.judge.local import write_replies
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import OPENINGS, shown_steps
from rrm.train.data import about
from rrm.train.rewards import PARTS, Label, Part, read_reply, rewards
from rrm.train.sft import labelled_positions_only, last_checkpoint, seal_checkpoints

logger = logging.getLogger(__name__)

SAMPLES_EVERY = 5  # steps between logged sample replies
REFERENCE_ADAPTER = "ref"  # TRL's frozen copy of an adapter that is trained further


# ---- prompts ----


def make_row(prompter: Prompter, trajectory: Trajectory, target: JudgementTarget, mode: Mode) -> dict[str, Any]:
    """A prompt as text and as ids, and its label as columns."""
    text, _ = prompter.text(trajectory, mode)
    prompt = prompter.prompt(trajectory, mode)
    findings = (
        about(target.annotation, prompt.steps or shown_steps(text)).findings if target.annotation else None
    ) or []
    return {
        "prompt": text,
        "prompt_ids": prompt.ids,
        "prompt_tokens": len(prompt.ids),
        "id": trajectory.id,
        "target": target.score,
        "n_steps": len(trajectory.steps),
        "findings": json.dumps([f.model_dump() for f in findings]),
        "references": references(trajectory.meta.get("reference")),
        "transcript": transcript_text(trajectory),
    }


def schedule(
    prompter: Prompter,
    trajectories: Sequence[Trajectory],
    targets: Mapping[str, JudgementTarget],
    settings: RLSettings,
    seed: int,
) -> list[dict[str, Any]]:
    """The prompts of all steps in order, those of a step near in length; RRMError if labels are too few."""
    labelled = [t for t in trajectories if t.id in targets]
    per_step = settings.prompts_per_step
    if len(labelled) < per_step:
        raise RRMError(
            f"rl.prompts_per_step is {per_step} but only {len(labelled)} training transcript(s) carry a score or an "
            "outcome: lower it, or run `rrm annotate` to make labels"
        )
    steps: list[list[dict[str, Any]]] = []
    epoch = 0
    while len(steps) < settings.max_steps:
        rng = random.Random(derive_seed(seed, "rl", epoch))
        count = min(settings.max_steps - len(steps), len(labelled) // per_step)
        drawn = rng.sample(labelled, count * per_step)
        rows = [make_row(prompter, t, targets[t.id], settings.mode) for t in drawn]
        rows.sort(key=lambda row: row["prompt_tokens"])
        chunks = [rows[i : i + per_step] for i in range(0, len(rows), per_step)]
        rng.shuffle(chunks)
        steps += chunks
        epoch += 1
    return [row for step in steps for row in step]


def check_room(rows: Sequence[Mapping[str, Any]], model: Any, settings: RLSettings) -> None:
    """Refuse (RRMError) prompts that leave no room for a reply within the model's positions."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    longest = max(row["prompt_tokens"] for row in rows)
    if positions is not None and longest + settings.max_completion_length > positions:
        raise RRMError(
            f"the longest prompt has {longest} tokens; with rl.max_completion_length={settings.max_completion_length} "
            f"that exceeds the model's {positions} positions: lower transcript_tokens or rl.max_completion_length"
        )


# ---- rewards, as the trainer calls them ----


class Scorer:
    """Reads each reply once for all reward parts, and appends sample replies to a file.

    Args:
        end: token id that closes a reply.
        samples: JSONL file; a resumed run writes the steps after its checkpoint again.
        weights: of the parts, for the `reward` in the file.
    """

    def __init__(self, mode: Mode, end: int, samples: Path, weights: Mapping[Part, float]) -> None:
        self.mode: Mode = mode
        self.end, self.samples, self.weights = end, samples, weights
        self._batch: Any = None
        self._found: list[dict[Part, float]] = []

    def functions(self) -> list[Callable[..., list[float]]]:
        """One function a part, named after it (TRL logs `rewards/<name>/mean`)."""
        return [self._function(component) for component in PARTS]

    def _function(self, component: Part) -> Callable[..., list[float]]:
        def reward(completions: list[str], completion_ids: list[list[int]], **columns: Any) -> list[float]:
            return [parts[component] for parts in self._score(completions, completion_ids, columns)]

        reward.__name__ = component
        return reward

    def _score(
        self, completions: list[str], completion_ids: list[list[int]], columns: Mapping[str, Any]
    ) -> list[dict[Part, float]]:
        """Parts of each reply. The trainer passes the same list of ids to every function of a batch."""
        if completion_ids is self._batch:
            return self._found
        texts = [OPENINGS[self.mode] + completion for completion in completions]
        self._batch, self._found = completion_ids, []
        for i, (text, ids) in enumerate(zip(texts, completion_ids, strict=True)):
            reply = read_reply(text, self.mode, ended=bool(ids) and ids[-1] == self.end)
            self._found.append(rewards(reply, label_of({name: columns[name][i] for name in LABEL_COLUMNS})))
        self._log(texts, columns)
        return self._found

    def _log(self, texts: list[str], columns: Mapping[str, Any]) -> None:
        state = columns["trainer_state"]
        if state.global_step % SAMPLES_EVERY or not state.is_world_process_zero:
            return
        with open(self.samples, "a", encoding="utf-8") as out:
            for i, name in enumerate(columns["id"]):
                if i and columns["id"][i - 1] == name:
                    continue
                parts = self._found[i]
                line = {
                    "step": state.global_step,
                    "id": name,
                    "target": columns["target"][i],
                    "parts": parts,
                    "reward": sum(self.weights[component] * parts[component] for component in PARTS),
                    "text": texts[i],
                }
                out.write(json.dumps(line) + "\n")


PART_WEIGHTS: dict[Part, float] = {"agreement": 1.0, "format": 0.3, "anchor": 0.3, "leak": 0.5}
LABEL_COLUMNS = ("target", "n_steps", "findings", "references", "transcript")


def label_of(columns: Mapping[str, Any]) -> Label:
    findings = [Finding.model_validate(f) for f in json.loads(columns["findings"])]
    return Label(columns["target"], columns["n_steps"], findings, columns["references"], columns["transcript"])


# ---- the gate ----


def gate(model: Any, prompter: Prompter, trajectories: Sequence[Trajectory], settings: RLSettings) -> float:
    """Share of well-formed greedy replies on up to `gate_rows` held-out transcripts.

    Raises:
        RRMError: below `gate_format` (RL would learn the form and little else), or nothing held out.
    """
    from rrm.engines.hf.engine import HFEngine

    if not trajectories:
        raise RRMError("rl: no held-out transcript to check the reply format on (data.calibration_share, data.split)")
    chosen = random.Random(derive_seed("gate")).sample(list(trajectories), min(settings.gate_rows, len(trajectories)))
    prompts = [prompter.prompt(t, settings.mode) for t in chosen]
    params = SamplingParams(max_new_tokens=settings.max_completion_length)
    engine = HFEngine(model, prompter.tokenizer)
    names = [f"{i}/{t.id}" for i, t in enumerate(chosen)]
    replies = write_replies(engine, prompter, prompts, settings.mode, params, names)
    ended = [bool(r.ids) and r.ids[-1] == prompter.eos_token_id for r in replies]
    bad = [i for i, r in enumerate(replies) if read_reply(r.text, settings.mode, ended=ended[i]) is None]
    share = 1.0 - len(bad) / len(replies)
    if share < settings.gate_format:
        cut = sum(r.completion.stop_reason == "length" for r in replies)
        raise RRMError(
            f"rl: {len(replies) - len(bad)} of {len(replies)} replies on held-out transcripts are well-formed "
            f"({share:.1%}; {cut} were cut off by length), and rl.gate_format asks for {settings.gate_format:.0%}. "
            f"Train stage 1 longer or with more `{settings.mode}` rows (sft.epochs, sft.mix.{settings.mode}), raise "
            "rl.max_completion_length where replies are cut off, or lower rl.gate_format. "
            f"The first malformed reply: {replies[bad[0]].text[:200]!r}"
        )
    logger.info("rl: %.1f%% of %d held-out replies are well-formed", 100 * share, len(replies))
    return share


# ---- the stage ----


@contextlib.contextmanager
def own_forward(model: Any) -> Iterator[None]:
    """Restore the `forward` that trainer and accelerate replace, inside of an adapter too."""
    modules = [model, model.get_base_model()] if hasattr(model, "get_base_model") else [model]
    names = ("forward", "_original_forward")
    before = [{n: m.__dict__[n] for n in names if n in m.__dict__} for m in modules]
    try:
        yield
    finally:
        for module, attributes in zip(modules, before, strict=True):
            for name in names:
                module.__dict__.pop(name, None)
            module.__dict__.update(attributes)


@contextlib.contextmanager
def reference_at(model: Any, folder: Path, needed: bool) -> Iterator[None]:
    """Make the trainer's reference the policy as given: it is loaded from the config's `_name_or_path`."""
    if not needed:
        yield
        return
    from accelerate import PartialState

    state = PartialState()
    if state.is_main_process:
        model.save_pretrained(str(folder))
    state.wait_for_everyone()
    name = model.config._name_or_path
    model.config._name_or_path = str(folder)
    try:
        yield
    finally:
        model.config._name_or_path = name


def grpo_config(config: TrainConfig, folder: Path, bf16: bool) -> Any:
    """TRL's settings: a group a micro-batch, `prompts_per_step` groups over all processes a step.

    Raises RRMError: `prompts_per_step` is no multiple of the number of processes."""
    from accelerate import PartialState
    from trl.trainer.grpo_config import GRPOConfig

    settings = config.rl
    processes = PartialState(cpu=config.cpu).num_processes
    if settings.prompts_per_step % processes:
        raise RRMError(f"rl.prompts_per_step={settings.prompts_per_step} is no multiple of {processes} processes")
    return GRPOConfig(
        output_dir=str(folder),
        seed=config.seed,
        data_seed=config.seed,
        max_steps=settings.max_steps,
        per_device_train_batch_size=settings.num_generations,
        gradient_accumulation_steps=settings.prompts_per_step // processes,
        num_generations=settings.num_generations,
        max_completion_length=settings.max_completion_length,
        temperature=settings.temperature,
        beta=settings.beta,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        reward_weights=list(PART_WEIGHTS.values()),
        shuffle_dataset=False,
        disable_dropout=True,
        gradient_checkpointing=config.sft.gradient_checkpointing,
        use_vllm=False,
        bf16=bf16,
        use_cpu=config.cpu,
        save_steps=settings.save_steps,
        save_total_limit=2,
        logging_steps=1,
        report_to=config.report_to or "none",
        run_name=f"{config.name}-rl",
        dataloader_num_workers=0,
    )


def train_rl(
    model: Any,
    trajectories: Sequence[Trajectory],
    targets: Mapping[str, JudgementTarget],
    prompter: Prompter,
    config: TrainConfig,
    folder: Path,
) -> Any:
    """Run the stage, continuing from the newest checkpoint in `folder`, and return the trained model.

    Args:
        model: the policy of stage 1, also the reference of the KL term: a resumed run must get the same one.
        targets: by trajectory id (`rrm.data.labels.targets_of`); rows without one are left out.
        folder: gains checkpoints, `trainer_state.json` (rewards by part, KL, lengths) and `samples.jsonl`.
    """
    import torch
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer

    folder.mkdir(parents=True, exist_ok=True)
    settings = config.rl
    rows = schedule(prompter, trajectories, targets, settings, config.seed)
    check_room(rows, model, settings)
    adapter = getattr(model, "active_adapter", None) if hasattr(model, "peft_config") else None
    if adapter is not None:
        model.set_adapter(adapter)  # one that was loaded for inference is frozen
    model.generation_config.eos_token_id = prompter.eos_token_id
    arguments = grpo_config(config, folder, bf16=config.model.dtype == "bfloat16" or model.dtype == torch.bfloat16)
    scorer = Scorer(settings.mode, prompter.eos_token_id, folder / "samples.jsonl", PART_WEIGHTS)
    full_reference = adapter is None and settings.beta != 0.0
    ids = {row["prompt"]: row.pop("prompt_ids") for row in rows}
    with own_forward(model):
        with reference_at(model, folder / "reference", needed=full_reference):
            trainer: Any = GRPOTrainer(
                model=model,
                reward_funcs=scorer.functions(),  # pyright: ignore[reportArgumentType]
                args=arguments,
                train_dataset=Dataset.from_list(rows),
                processing_class=prompter.tokenizer,
            )
        # a judge encodes a transcript piece by piece: of the whole text other tokens may come
        trainer._tokenize_prompts = lambda prompts: ([list(ids[prompt]) for prompt in prompts], None, {})
        seal_checkpoints(trainer, config.cpu)
        checkpoint = last_checkpoint(folder, config.cpu)
        with labelled_positions_only():
            trainer.train(resume_from_checkpoint=checkpoint)
        trainer.save_state()
    if adapter is not None and REFERENCE_ADAPTER in model.peft_config:
        model.delete_adapter(REFERENCE_ADAPTER)
    return model
