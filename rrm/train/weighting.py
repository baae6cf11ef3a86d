"""How much each row counts: TRL's SFT loss, weighted by row and by batch instead of by label token.

The trainer divides the loss of an update by the label tokens of all its micro-batches and processes. A `score` row has four,
a `full` row two hundred: beside each other the score, though a third of the rows, would get a fiftieth of the gradient.
Here a micro-batch is the mean over its own label tokens, an update the mean over its micro-batches, of all processes:

    L = 1/M Σ_m 1/T_m Σ_{row ∈ m} w_row Σ_{t ∈ row} −log p(t),    w_row = label's weight × sft.loss_weights.<mode>

In mode `steps` a micro-batch is the mean over its B rows, and each row's labels share one: half for its n labelled steps, half
for its outcome (u = sft.loss_weights.outcome = 1), or all for what there is of the two:

    1/B Σ_{row ∈ m} w Σ_{t ∈ row} a_t · −log p(t),    a_t = 1/n/(1 + u) at a step's slot, u/(1 + u) at the run's

As all rows of a micro-batch share a mode (`rrm.train.data.batched`), each mode gets its share of the rows, whatever
accumulates beside it. The trainer is wrapped, not subclassed: it is told not to count tokens over the update, and a pair
of hooks on the model takes the weights out of a batch and multiplies the log-probabilities it returns.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

KEY = "row_weight"
"""A batch's key: (B,) float32, one a row, or (B, T), one a label, at the label's place."""
LABEL_WEIGHTS = "label_weights"
"""A row's key: the weights of its labels, in their order, or None."""


@contextlib.contextmanager
def weighted_rows(trainer: Any) -> Iterator[None]:
    """While the block runs, `trainer` (TRL's SFTTrainer) computes the loss above.

    Raises:
        RuntimeError: in a training step, where the model returns no log-probabilities to weight (another TRL).
    """
    held = threading.local()  # DataParallel runs copies of the model in threads, hooks included

    def take(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        held.weights = kwargs.pop(KEY, None)
        return args, kwargs

    def scale(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
        weights, held.weights = held.weights, None
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
