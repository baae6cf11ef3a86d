"""Put a trained lab judge into the package, with the commands, configs and hash that made it.

    python -m benchmarks.ship_lab --rounds runs/lab_judge runs/lab_judge2 …

It is trained in rounds: `rrm train --config lab`, then again from the judge before, on other worlds (`ROUNDS`, with
`model.base=runs/lab_judge/judge` and so on). The judge of the last round goes to agents/reagent/lab/assets/judge, card.json beside it. Runs of
other configs are refused. The generator of its transcripts changed between rounds: each names the commit that has its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rrm.config import TrainConfig, load_config
from rrm.judge.judge_dir import load_settings
from rrm.removed import without_removed

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "agents" / "reagent" / "lab" / "assets" / "judge"
MOST_BYTES = 5_000_000


AGAIN = ("sft.learning_rate=1.0e-3", "sft.short_first_share=0", "rl.enabled=false")
ROUNDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("d5096ff", ()),
    ("d5096ff", ("seed=1", "drills.rows=0", *AGAIN)),
    ("6d96bf9", ("seed=2", "drills.rows=16000", "data.generate_options.wordings=many", *AGAIN)),
    ("cea3b70", ("seed=3", "drills.rows=16000", "data.generate_options.wordings=many", *AGAIN)),
    ("436e49d", ("seed=4", "data.generate_options.transcripts=2000",
                 "data.generate_options.wanderers=2500", "data.generate_options.wordings=many", "drills.rows=0",
                 "sft.learning_rate=5.0e-4", "sft.short_first_share=0", "sft.consistency_rows={rows: reagent.lab.pretraining_rows:follow_row, share: 0.5}", "rl.enabled=false")),
)  # fmt: skip
"""Of each round: the commit whose generator made its transcripts, and what it changes of the config `lab` beside
`model.base`. From the first commit to the third there are 700 question wordings in place of 46, twelve times the agents'
sentences, and more ways to err (docs/decisions.md, 41); the last round teaches the critique to follow the trace (45)."""


def as_now(tree: dict[str, Any]) -> dict[str, Any]:
    """A round's saved config in today's words: at these commits `model` and `data` held the lab's options themselves."""
    model, data, drills, sft = (tree[name] for name in ("model", "data", "drills", "sft"))
    if "lab_wordings" not in data:
        return tree
    model["options"] = {k: model.pop(k) for k in ("hidden_size", "intermediate_size", "layers", "heads", "vocab_size")}
    model["base"] = "reagent.lab.judge_base:build" if model["base"] == "lab" else model["base"]
    data["target"] = "annotation"
    data["generate"] = "reagent.lab.transcripts:generate"
    data["generate_options"] = {k: data.pop(f"lab_{k}") for k in ("transcripts", "wanderers", "wordings")}
    drills["generate"] = "reagent.lab.pretraining_rows:drill_rows"
    share = sft.pop("follow", 0.0)
    sft["follow"] = {"rows": "reagent.lab.pretraining_rows:follow_row", "share": share} if share else None
    return tree


def round_of(run: Path, number: int, overrides: Sequence[str]) -> dict[str, Any]:
    """A round's config, for the card: it names the round it went on from, not a folder of the machine it ran on.

    Raises:
        SystemExit: it is not the one named above.
    """
    free = {"output_dir", "threads"}
    tree = as_now(yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")))
    without_removed(tree, TrainConfig.removed)
    found = TrainConfig.model_validate(tree)
    wanted = load_config("lab", [*overrides, f"model.base={found.model.base}"])
    if found.model_dump(exclude=free) != wanted.model_dump(exclude=free):
        raise SystemExit(f"{run}: not made by `rrm train --config lab {' '.join(overrides)}`; see the top of this file")
    config = found.model_dump(exclude={"output_dir"})
    config["model"]["base"] = found.model.base if number == 1 else f"the judge of round {number - 1}"
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=Path, nargs="+", required=True, help="run folders of `rrm train`, in order")
    args = parser.parse_args()
    if len(args.rounds) > len(ROUNDS):
        parser.error(f"at most {len(ROUNDS)} rounds, got {len(args.rounds)}")
    rounds = enumerate(zip(args.rounds, ROUNDS, strict=False), 1)
    configs = [round_of(run, number, changes) for number, (run, (_, changes)) in rounds]
    judge = args.rounds[-1] / "judge"
    weights = judge / "model.safetensors"
    if weights.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{weights} has {weights.stat().st_size:,} bytes; at most {MOST_BYTES:,} are shipped")
    if TARGET.exists():
        shutil.rmtree(TARGET)
    shutil.copytree(judge, TARGET)
    (TARGET / "model.safetensors").chmod(0o644)
    card = {
        "commands": [
            " ".join(["rrm train --config lab", *(["model.base=…"] if n else []), *changes])
            for n, (_, changes) in enumerate(ROUNDS[: len(configs)])
        ],
        "commits": [commit for commit, _ in ROUNDS[: len(configs)]],
        "configs": configs,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "trained_on": load_settings(TARGET).trained_on,
    }
    (TARGET / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    size = sum(path.stat().st_size for path in TARGET.iterdir())
    print(json.dumps({"target": str(TARGET.relative_to(ROOT)), "megabytes": round(size / 1e6, 2)}))


if __name__ == "__main__":
    main()
