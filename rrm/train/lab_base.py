"""The lab's base: a byte-level BPE trained on rendered lab transcripts and a small Llama from scratch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rrm.config import TrainConfig
from rrm.lab.model import build_lab_model, build_lab_tokenizer
from rrm.rendering import OPENINGS, agent_text, observation_text, rubric, task_text
from rrm.trajectory import Trajectory


def lab_texts(trajectories: Sequence[Trajectory]) -> Iterator[str]:
    """What the tokenizer learns from: rubrics, tags, and every transcript's words."""
    yield from (rubric(mode) + OPENINGS[mode] for mode in OPENINGS)
    yield "</think><critique></critique><score>0.0 1.0 0.5</score>"
    for trajectory in trajectories:
        yield f"Task: {task_text(trajectory)}"
        for step in trajectory.steps:
            yield f"[step {step.index}]\nagent: {agent_text(step.message)}\n{observation_text(step.observations)}"


def build_lab_base(config: TrainConfig, trajectories: Sequence[Trajectory]) -> tuple[Any, Any]:
    """(model, tokenizer), deterministic for the config's seed."""
    tokenizer = build_lab_tokenizer(lab_texts(trajectories), config.model.vocab_size)
    model = build_lab_model(
        tokenizer,
        hidden=config.model.hidden_size,
        layers=config.model.layers,
        heads=config.model.heads,
        seed=config.seed,
    )
    return model, tokenizer
