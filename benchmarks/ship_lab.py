"""Put a trained lab judge into the package, with the command, seed and hash that made it.

    rrm train --config lab                       (in a fresh folder)
    python -m benchmarks.ship_lab --run runs/lab

Copies the judge's folder to rrm/assets/lab and writes card.json beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from pathlib import Path

from rrm.config import TrainConfig
from rrm.judge_files import load_settings
from rrm.run_folder import saved_config

TARGET = Path(__file__).resolve().parents[1] / "rrm" / "assets" / "lab"
MOST_BYTES = 5_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/lab"), help="the run folder of `rrm train`")
    parser.add_argument("--command", default="rrm train --config lab", help="what made it")
    args = parser.parse_args()
    weights = args.run / "judge" / "model.safetensors"
    if weights.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{weights} has {weights.stat().st_size:,} bytes; at most {MOST_BYTES:,} are shipped")
    config = TrainConfig.model_validate(saved_config(args.run / "config.yaml", TrainConfig))
    if TARGET.exists():
        shutil.rmtree(TARGET)
    shutil.copytree(args.run / "judge", TARGET)
    (TARGET / "model.safetensors").chmod(0o644)
    card = {
        "command": args.command,
        "config": config.model_dump(exclude={"output_dir"}),
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "trained_on": load_settings(TARGET).trained_on,
    }
    (TARGET / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    size = sum(path.stat().st_size for path in TARGET.iterdir())
    print(json.dumps({"target": str(TARGET.relative_to(TARGET.parents[2])), "megabytes": round(size / 1e6, 2)}))


if __name__ == "__main__":
    main()
