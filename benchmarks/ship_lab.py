"""Put a trained lab judge into the package, with the commands, configs and hash that made it.

    python -m benchmarks.ship_lab --round runs/lab_judge --round runs/lab_judge2 seed=1 drills.rows=0 …

It is trained in rounds: `rrm train --config lab`, then again from the judge before (`model.base=runs/lab_judge/judge`) on other worlds, with
what is named behind each run folder overridden. The judge of the last round goes to agents/reagent/lab/assets/judge, card.json beside it.
Runs of other configs are refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from pathlib import Path

from benchmarks.record import ROOT, commit
from rrm.config import TrainConfig, load_config
from rrm.judge.judge_dir import load_settings
from rrm.train.run_folder import saved_config

TARGET = ROOT / "agents" / "reagent" / "lab" / "assets" / "judge"
MOST_BYTES = 5_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round", nargs="+", action="append", required=True, metavar="RUN|OVERRIDE")
    commands, configs, judge = [], [], Path()
    for number, (run, *changes) in enumerate(parser.parse_args().round):
        judge, free = Path(run) / "judge", {"output_dir", "threads"}
        config = TrainConfig.model_validate(saved_config(Path(run) / "config.yaml", TrainConfig))
        wanted = load_config("lab", [*changes, f"model.base={config.model.base}"])
        if config.model_dump(exclude=free) != wanted.model_dump(exclude=free):
            raise SystemExit(f"{run}: not made by `rrm train --config lab {' '.join(changes)}`")
        configs.append(config.model_dump(exclude={"output_dir"}))
        if number:
            configs[-1]["model"]["base"] = f"the judge of round {number}"
        commands.append(" ".join(["rrm train --config lab", *["model.base=…"] * (number > 0), *changes]))
    weights = judge / "model.safetensors"
    if weights.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{weights} has {weights.stat().st_size:,} bytes; at most {MOST_BYTES:,} are shipped")
    shutil.rmtree(TARGET, ignore_errors=True)
    shutil.copytree(judge, TARGET)
    (TARGET / "model.safetensors").chmod(0o644)
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    card = {"commands": commands, "commit": commit(), "configs": configs, "sha256": digest}
    card["trained_on"] = load_settings(TARGET).trained_on
    (TARGET / "card.json").write_text(json.dumps(card, indent=1) + "\n")
    size = sum(path.stat().st_size for path in TARGET.iterdir())
    print(json.dumps({"target": str(TARGET.relative_to(ROOT)), "megabytes": round(size / 1e6, 2)}))


if __name__ == "__main__":
    main()
