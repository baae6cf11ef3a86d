"""Make a judge's directory of a trained adapter, and with --ship put it into the package.

    python -m benchmarks.models.ship --adapter runs/judges/small/small.lowrank.safetensors --name small --maps runs/judges/small/maps.json \\
        -o runs/judges/small/judge
    python -m benchmarks.models.ship … --ship

Beside the weights stand judge.json (prompt version, window, calibration, abstention band, hashes of the training questions), domain.json
(the form of what it was measured on), evaluation.json and README.md, the card, with a table of the data by source: runs, licence and who
wrote the text. A source without a licence or a maker there fails the build.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from benchmarks import record
from benchmarks.models.card import card
from benchmarks.models.rows import STEP, VERSION, WINDOW
from benchmarks.models.sources import SOURCES, WEIGHTS, LabelledRun, load
from rrm.data.questions import question_keys
from rrm.judge.calibration import Calibration
from rrm.judge.card import HUB_NAMES
from rrm.judge.domain import fit_domain
from rrm.judge.judge_dir import JudgeSettings, save_settings

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "rrm" / "assets"
MOST_BYTES = {"small": 8_000_000, "base": 18_000_000}
BASES = {"small": "smollm2", "base": "Qwen/Qwen2.5-Coder-0.5B-Instruct"}
OUTSIDE = 0.03
"""Share of the calibration transcripts that lie outside of the domain."""


def data_table(runs: list[LabelledRun]) -> list[dict[str, Any]]:
    """Source, runs, licence and makers of what it learned from.

    Raises:
        SystemExit: a cell is unknown.
    """
    rows = []
    for source in sorted({run.source for run in runs}):
        mine = [run for run in runs if run.source == source]
        makers = SOURCES[source].maker or ", ".join(
            name for name, _ in Counter(r.maker for r in mine if r.maker).most_common()
        )
        rows.append({"source": source, "runs": len(mine), "licence": SOURCES[source].licence, "made_by": makers})
        if not all(rows[-1].values()):
            raise SystemExit(f"{source}: no licence or no maker is known: it cannot ship")
    return rows


def build(adapter: Path, name: str, maps: dict[str, Any], folder: Path, trained_on: dict[str, Any]) -> None:
    """Write the judge's directory."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {key: value.to(torch.bfloat16) for key, value in load_file(adapter).items()}
    save_file(weights, folder / "adapter_model.safetensors", {"format": "pt"})
    size = (folder / "adapter_model.safetensors").stat().st_size
    if size > MOST_BYTES[name]:
        raise SystemExit(f"the adapter has {size:,} bytes, {name} may have {MOST_BYTES[name]:,}")
    layers = sorted({int(key.split(".layers.")[1].split(".")[0]) for key in weights})
    rank = next(value.shape[0] for key, value in weights.items() if "lora_A" in key)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({key.split(".lora_")[0].split(".")[-1] for key in weights}),
        "layers_to_transform": layers,
        "base_model_name_or_path": BASES[name],
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    runs = [run for run in load() if run.ships and run.source in WEIGHTS]
    train = [run for run in runs if run.part == "train"]
    calibration = [run for run in runs if run.part == "calibration"]
    table = data_table(train)
    settings = JudgeSettings(
        name=name,
        base=BASES[name],
        modes=["steps"],
        default_mode="steps",
        prompt_version=VERSION,
        transcript_tokens=WINDOW,
        step_tokens=STEP,
        threshold=0.5,
        unsure_band=maps.get("unsure_band"),
        calibration=Calibration.model_validate({"modes": maps["modes"]}),
        trained_on={**trained_on, "data": table},
        training_questions=sorted(question_keys([run.trajectory for run in train])),
    )
    save_settings(folder, settings)
    named = [r.trajectory.model_copy(update={"meta": {**r.trajectory.meta, "source": r.source}}) for r in train]
    fit_domain(named, [run.trajectory for run in calibration], share=OUTSIDE, version=2).save(folder)
    known = record.RESULTS / "judges.json"
    figures = json.loads(known.read_text()).get(name, {}) if known.is_file() else {}
    (folder / "README.md").write_text(card(name, HUB_NAMES.get(BASES[name], BASES[name]), figures, table), "utf-8")
    (folder / "evaluation.json").write_text(json.dumps(figures, indent=1) + "\n")


def main() -> None:
    """Build, and ship where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--name", choices=list(BASES), required=True)
    parser.add_argument(
        "--maps", type=Path, required=True, help="the calibration maps, as `evaluate calibrate` wrote them"
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--ship", action="store_true", help="copy the directory into the package")
    args = parser.parse_args()
    run = args.adapter.name.removesuffix(".safetensors").rpartition(".")[0]
    state = json.loads(args.adapter.with_name(f"{run}.state.json").read_text())
    trained_on = {key: state[key] for key in ("seed", "updates", "tokens")} | record.made_with(
        "torch", "transformers", "peft"
    )
    build(
        args.adapter,
        args.name,
        json.loads(args.maps.read_text()),
        args.output,
        {**trained_on, "commit": record.commit()},
    )
    if args.ship:
        shutil.copytree(args.output, ASSETS / args.name, dirs_exist_ok=True)
    print(json.dumps({"judge": str(args.output), "shipped": args.ship}))


if __name__ == "__main__":
    main()
