"""The weight of each row: TRL's SFT loss, weighted by row and by batch instead of by label token.

By label tokens a `full` row (two hundred) would drown a `score` row (four). Here a micro-batch is the mean over its own label
tokens, an update the mean over its micro-batches, of all processes:

    L = 1/M Σ_m 1/T_m Σ_{row ∈ m} w_row Σ_{t ∈ row} −log p(t),    w_row = label's weight × sft.loss_weights.<mode>

In mode `steps` a micro-batch is the mean over its B rows; a row's labels share one, half for its n labelled steps, half for its
outcome (u = sft.loss_weights.outcome = 1), or all for what there is of the two:

    1/B Σ_{row ∈ m} w Σ_{t ∈ row} a_t · −log p(t),    a_t = 1/n/(1 + u) at a step's slot, u/(1 + u) at the run's

The trainer is wrapped: hooks on the model take the weights out of a batch and multiply the log-probabilities it returns.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

KEY = "row_weight"  # of a batch: (B,) float32, one a row, or (B, T), one at each label
LABEL_WEIGHTS = "label_weights"  # of a row: the weights of its labels in order, or None


@contextlib.contextmanager
def weighted_rows(trainer: Any) -> Iterator[None]:
    """Let `trainer` (TRL's SFTTrainer) compute the loss above.

    A training step raises RuntimeError where the model returns no log-probabilities (another TRL)."""
    local = threading.local()  # DataParallel runs copies of the model in threads, hooks included

    def take(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        local.weights = kwargs.pop(KEY, None)
        return args, kwargs

    def scale(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        weights, local.weights = local.weights, None
        if weights is None:
            return output
        if getattr(output, "log_probs", None) is None:
            raise RuntimeError(
                "SFTTrainer's model returns no log_probs: rows cannot be weighted with this version of trl"
            )
        # log_probs (B, T - 1): what is predicted at position i is the label at i + 1
        placed = weights[:, None] if weights.dim() == 1 else weights[:, 1:]
        output.log_probs = output.log_probs * placed.to(output.log_probs)
        return output

    model, counted = trainer.model, trainer.model_accepts_loss_kwargs
    hooks = (
        model.register_forward_pre_hook(take, with_kwargs=True),
        model.register_forward_hook(scale, with_kwargs=True),
    )
    trainer.model_accepts_loss_kwargs = False  # the loss is a mean already, and is divided by the micro-batches
    try:
        yield
    finally:
        trainer.model_accepts_loss_kwargs = counted
        for hook in hooks:
            hook.remove()
