"""Put a trained lab judge into the package, with the commands, configs and hash that made it.

    rrm train --config lab output_dir=runs/lab_judge                  (one round: what users run)
    rrm train --config lab output_dir=runs/lab_judge2 model.base=runs/lab_judge/judge \\
        seed=1 drills.rows=0 sft.learning_rate=1.0e-3 sft.short_first=0     (a second one, on other worlds)
    python -m benchmarks.ship_lab --run runs/lab_judge --further runs/lab_judge2

Copies the last round's judge to rrm/assets/lab and writes card.json beside it. Runs of other configs are refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rrm.config import TrainConfig, load_config
from rrm.judge_files import load_settings
from rrm.run_folder import saved_config

TARGET = Path(__file__).resolve().parents[1] / "rrm" / "assets" / "lab"
MOST_BYTES = 5_000_000


FURTHER = ("seed=1", "drills.rows=0", "sft.learning_rate=1.0e-3", "sft.short_first=0")
"""Of the second round, beside `model.base`."""


def round_of(run: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """A round's config, for the card.

    Raises:
        SystemExit: it is not the one named above.
    """
    free = {"output_dir", "threads"}
    found = TrainConfig.model_validate(saved_config(run / "config.yaml", TrainConfig))
    wanted = load_config("lab", [*overrides, f"model.base={found.model.base}"])
    if found.model_dump(exclude=free) != wanted.model_dump(exclude=free):
        raise SystemExit(f"{run}: not made by `rrm train --config lab {' '.join(overrides)}`; see the top of this file")
    return found.model_dump(exclude={"output_dir"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/lab_judge"), help="the run folder of `rrm train`")
    parser.add_argument("--further", type=Path, help="the run folder of the second round")
    args = parser.parse_args()
    rounds = [round_of(args.run, ())] + ([round_of(args.further, FURTHER)] if args.further else [])
    judge = (args.further or args.run) / "judge"
    weights = judge / "model.safetensors"
    if weights.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{weights} has {weights.stat().st_size:,} bytes; at most {MOST_BYTES:,} are shipped")
    if TARGET.exists():
        shutil.rmtree(TARGET)
    shutil.copytree(judge, TARGET)
    (TARGET / "model.safetensors").chmod(0o644)
    card = {
        "commands": ["rrm train --config lab"]
        + (["rrm train --config lab model.base=… " + " ".join(FURTHER)] if args.further else []),
        "configs": rounds,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "trained_on": load_settings(TARGET).trained_on,
    }
    (TARGET / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    size = sum(path.stat().st_size for path in TARGET.iterdir())
    print(json.dumps({"target": str(TARGET.relative_to(TARGET.parents[2])), "megabytes": round(size / 1e6, 2)}))


if __name__ == "__main__":
    main()
