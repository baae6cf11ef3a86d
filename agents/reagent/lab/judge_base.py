"""The lab judge's base: a byte-level BPE trained on rendered transcripts, and a small Llama."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.data.annotation import Annotation
from rrm.data.trajectory import Trajectory
from rrm.prompt.rendering import OPENINGS, agent_text, observation_text, rubric, task_text
from rrm.train.data import target_text


def lab_texts(trajectories: Sequence[Trajectory], annotations: Mapping[str, Annotation]) -> Iterator[str]:
    """Texts of the tokenizer: as the judge will read and write them (the rubric every time)."""
    yield from (rubric(mode) + OPENINGS[mode] for mode in OPENINGS)
    for trajectory in trajectories:
        yield rubric("full") + OPENINGS["full"]
        yield f"Task: {task_text(trajectory)}"
        for step in trajectory.steps:
            yield f"[step {step.index}]\nagent: {agent_text(step.message)}\n{observation_text(step)}"
        annotation = annotations.get(trajectory.id)
        reply = annotation and target_text("full", 0.5 if annotation.score is None else annotation.score, annotation)
        yield reply or "</think><critique></critique><score>0.5</score>"


def build(
    trajectories: Sequence[Trajectory],
    annotations: Mapping[str, Annotation],
    *,
    seed: int,
    hidden_size: int = 192,
    intermediate_size: int | None = None,
    layers: int = 4,
    heads: int = 6,
    vocab_size: int = 2048,
) -> tuple[Any, Any]:
    """(model, tokenizer), deterministic for the seed: a config's `model.base`, with `model.options`.

    `annotations`: by trajectory id. `intermediate_size`: feed-forward width; four times the width by default."""
    tokenizer = build_lab_tokenizer(lab_texts(trajectories, annotations), vocab_size)
    model = build_lab_model(
        tokenizer, hidden=hidden_size, layers=layers, heads=heads, intermediate=intermediate_size, seed=seed
    )
    return model, tokenizer
