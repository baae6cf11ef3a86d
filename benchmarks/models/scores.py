"""Log-odds of a step judge at every slot of a file of rows, in pieces that resume; and reading them with their lines."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.sources import FOLDS

EVERY_S = 60
"""Seconds between two saved states."""


def _load(base: str, adapter: str, device: str, dtype: str) -> Any:
    """The base with an adapter's weights, or with weights of its own that were trained; `none` changes nothing."""
    import torch
    from safetensors.torch import load_file

    from benchmarks.gpu import train_steps

    weights = {} if adapter == "none" else load_file(adapter)
    rank = next((w.shape[0] for name, w in weights.items() if "lora_A" in name), 1)
    first = min((int(name.split(".layers.")[1].split(".")[0]) for name in weights), default=0)
    model = train_steps.adapter(base, rank, device, getattr(torch, dtype), 0, first)
    places = {name.replace(".default.", "."): parameter for name, parameter in model.named_parameters()}
    for name, value in weights.items():
        own = name if "lora_" in name else f"base_model.model.{name.removesuffix('.weight')}.base_layer.weight"
        places[own].data = value.to(device, places[own].dtype)
    return model.eval()


def score(
    rows: Path, output: Path, base: str, adapter: str, device: str, dtype: str, leave_out: str | None, minutes: float
) -> dict[str, Any]:
    """Write log-odds (slots, 2) of the rows that no earlier call has scored; NaN where a row is not scored.

    Args:
        leave_out: rows of this fold's sources are not scored.
        minutes: after which it stops; the next call goes on.

    Raises:
        SystemExit: the output holds scores of another adapter or other rows.
    """
    import torch

    from benchmarks.gpu import train_steps

    held = train_steps.Rows(rows)
    digest = adapter if adapter == "none" else hashlib.sha256(Path(adapter).read_bytes()).hexdigest()[:16]
    about = {"rows": str(rows), "fold": held.about["fold"], "adapter": digest, "dtype": dtype, "leave_out": leave_out}
    odds, done = np.full((len(held.arrays["slots"]), 2), np.nan, dtype=np.float32), np.zeros(len(held), dtype=bool)
    if output.is_file():
        with np.load(output) as before:
            if (said := json.loads(bytes(before["about"]).decode())) != about:
                raise SystemExit(f"{output} holds scores of {said}, not of {about}: move it away")
            odds, done = before["odds"], before["done"]

    def save() -> None:
        unfinished, text = output.with_suffix(".tmp.npz"), np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
        output.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(unfinished, about=text, odds=odds, done=done)
        os.replace(unfinished, output)

    model = _load(base, adapter, device, dtype)
    choices = torch.tensor([*held.about["choices"], *held.about["progress"]], device=device)
    pointers, sources = held.arrays["slots_ptr"], held.about["sources"]
    begun = saved = time.monotonic()
    for i in np.flatnonzero(~done).tolist():
        ids, segments, slots = (held.part(name, i) for name in ("ids", "segments", "slots"))
        if leave_out is None or not sources[slots[0][3]].startswith(FOLDS[leave_out]):
            with torch.no_grad():
                found = train_steps.log_odds(model, ids, segments, slots, choices, device)
            odds[pointers[i] : pointers[i + 1]] = found.float().cpu().numpy()
        done[i] = True
        if time.monotonic() - begun > 60 * minutes:
            break
        if time.monotonic() - saved > EVERY_S:
            save()
            saved = time.monotonic()
    save()
    seconds = round(time.monotonic() - begun, 1)
    return {"output": str(output), "rows": len(held), "scored": int(done.sum()), "seconds": seconds}


@dataclass(frozen=True)
class Scored:
    """Steps or outcomes with scores: N lines, and log-odds of good against bad (N,)."""

    lines: Sequence[dict[str, Any]]
    odds: np.ndarray

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> np.ndarray:
        """One key of every line."""
        return np.array([line[name] for line in self.lines])

    @property
    def labels(self) -> np.ndarray:
        """1 good, 0 bad."""
        return self.column("label").astype(np.float64)

    def where(self, keep: np.ndarray | Sequence[bool]) -> Scored:
        """Some of them."""
        at = np.flatnonzero(np.asarray(keep, dtype=bool))
        return Scored([self.lines[i] for i in at.tolist()], self.odds[at])

    def known(self, *, steps: bool = True, planted: bool = False) -> Scored:
        """Labelled steps, or outcomes, of the runs themselves; or planted ones."""
        said = ((x["step"] > 0, x["planted"] is not None, x["label"] is not None) for x in self.lines)
        return self.where([of == (steps, planted, True) for of in said])

    def by(self, column: str) -> dict[str, Scored]:
        """Value of a column → its rows, in order of the values."""
        values = np.array([str(line[column]) for line in self.lines])
        return {str(value): self.where(values == value) for value in np.unique(values)}


def merged(lines: Sequence[dict[str, Any]], odds: np.ndarray) -> Scored:
    """Slots (S,) as steps: one of a step that was read twice or in parts, with the lowest log-odds; those without a score are left out."""
    found: dict[tuple[Any, ...], tuple[dict[str, Any], float]] = {}
    for line, value in zip(lines, odds.tolist(), strict=True):
        if np.isfinite(value):
            key = (line["run"], line["step"], line["planted"])
            before, lowest = found.get(key, (line, value))
            found[key] = ({**line, "whole": line["whole"] or before["whole"]}, min(value, lowest))
    return Scored([line for line, _ in found.values()], np.array([value for _, value in found.values()]))


def read_scores(path: Path) -> tuple[Scored, dict[str, Any]]:
    """The steps and outcomes of a file of scores, with the lines that lie beside its rows; and what was scored, and by which adapter.

    Raises:
        SystemExit: rows are not scored yet.
    """
    with np.load(path) as held:
        about, odds, done = json.loads(bytes(held["about"]).decode()), held["odds"], held["done"]
    if not done.all():
        raise SystemExit(f"{path}: {int((~done).sum())} rows are not scored yet: call `score` again")
    text = Path(about["rows"]).with_suffix(".jsonl").read_text("utf-8")
    return merged([json.loads(line) for line in text.splitlines()], odds[:, 0]), about
