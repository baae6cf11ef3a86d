"""Put a trained judge into the package as the default one, with what was measured of it.

    python -m benchmarks.ship_default --run runs/mint/run

Copies adapter, settings and calibration to rrm/assets/default and writes its evaluation card and model card from
benchmarks/results/judge_mint.json, whose parts must have been made by this very judge.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS
from rrm.judge.judge_dir import load_settings
from rrm.train.export import write_card

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "rrm" / "assets" / "default"
FILES = ("adapter_model.safetensors", "adapter_config.json", "judge.json")
PARTS = {"score": "score", "critiques": "full"}
"""Part of judge_mint.json → mode of the card."""


def card(record: dict[str, Any], trained_on: dict[str, Any]) -> dict[str, Any]:
    """The evaluation card: the protocol's figures, the critiques', and other sources'.

    Raises:
        SystemExit: the record's parts were made by different judges.
    """
    hashes = {part: record["judges"][part]["model_hash"] for part in record["parts"]}
    if len(set(hashes.values())) > 1:
        raise SystemExit(f"judge_mint.json holds parts of different judges: {hashes}")
    found: dict[str, Any] = {
        "trained_on": trained_on,
        "commands": record["commands"],
        "environment": record["environment"],
    }
    for part, mode in PARTS.items():
        if part in record["parts"]:
            report = record["parts"][part]
            found[mode] = report.get("all", report)
    found["sources"] = {
        name: {"rows": report["rows"], "auroc": report["metrics"]["judge"]["auroc"]}
        for name, report in record["parts"].get("sources", {}).items()
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="the run folder of `rrm train`")
    args = parser.parse_args()
    judge = args.run / "judge"
    for name in FILES:
        shutil.copyfile(judge / name, TARGET / name)
    settings = load_settings(judge)
    record = json.loads((RESULTS / "judge_mint.json").read_text())
    write_card(TARGET, settings, card(record, settings.trained_on))
    size = sum((TARGET / name).stat().st_size for name in FILES)
    print(json.dumps({"target": str(TARGET.relative_to(ROOT)), "megabytes": round(size / 1e6, 2)}))


if __name__ == "__main__":
    main()
