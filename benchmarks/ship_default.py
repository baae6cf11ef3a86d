"""Put a trained judge into the package as the default one, with what was measured of it.

    python -m benchmarks.ship_default --run runs/default_judge/small_run --init-split benchmarks/splits/mint.json

    python -m benchmarks.ship_default --name-questions DIRECTORY --init-split benchmarks/splits/mint.json

Copies adapter, settings and calibration (and `domain.json`, where there is one) to rrm/assets/default and writes its evaluation card and model card
from benchmarks/results/default_judge.json, which must have been made by this very judge. Where the judge went on from one whose
`judge.json` names no training questions, --init-split says which they were: they are added, so that an evaluation meets none of
them unsaid. That is to be done before it is measured: --name-questions writes them into a judge's directory and ships nothing. They
decide no score, and so leave its hash.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks import mint
from benchmarks.record import RESULTS
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings
from rrm.questions import question_keys
from rrm.train.export import write_card

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "rrm" / "assets" / "default"
FILES = ("adapter_model.safetensors", "adapter_config.json", "judge.json")
OPTIONAL = ("domain.json",)
MOST_MEGABYTES = 15.0
"""Of all files of the judge in the package."""


def card(record: dict[str, Any], trained_on: dict[str, Any]) -> dict[str, Any]:
    """The evaluation card: the held-out questions of all sources together, and each source's figures in short."""
    steps = record["modes"]["steps"]
    return {
        "trained_on": trained_on,
        "command": record["command"],
        "commit": record["commit"],
        "environment": record["environment"],
        "steps": steps["sources"]["home"],
        "pooled": {key: steps[key] for key in ("pooled", "pooled_mint", "unseen")},
        "sources": {
            name: {"rows": report["rows"], "auroc": report["metrics"].get("judge", {}).get("auroc"), "coverage": report["coverage"]}
            for name, report in steps["sources"].items()
        },
    }  # fmt: skip


def check(record: dict[str, Any], judge: Path) -> None:
    """Refuse figures of another judge.

    Raises:
        SystemExit: naming both hashes.
    """
    measured, own = record["judge"]["model_hash"], AgentRRM.from_pretrained(str(judge)).model_hash
    if own != measured:
        raise SystemExit(f"default_judge.json was measured with {measured}, and {judge} is {own}")


def shipped_files(judge: Path) -> list[Path]:
    """The files that go into the package.

    Raises:
        SystemExit: a file is missing, or they are too large together.
    """
    found = [judge / name for name in FILES]
    found += [judge / n for n in OPTIONAL if (judge / n).is_file()]
    missing = [path.name for path in found if not path.is_file()]
    if missing:
        raise SystemExit(f"{judge} has no {', '.join(missing)}: train it, or run benchmarks.default_judge.finish")
    size = sum(path.stat().st_size for path in found) / 1e6
    if size > MOST_MEGABYTES:
        raise SystemExit(f"{judge}: its files are {size:.1f} MB together, and a package may bring {MOST_MEGABYTES:.0f}")
    return found


def with_questions(settings: JudgeSettings, split: Path) -> JudgeSettings:
    """The settings with MINT's questions under the split's `train` among the training questions."""
    before = set(json.loads(split.read_text(encoding="utf-8"))["train"])
    rows = [t for t in mint.rows(mint.DATA, critic=False) if t.question_id in before]
    questions = sorted({*settings.training_questions, *question_keys(rows)})
    return settings.model_copy(update={"training_questions": questions})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", type=Path, help="the run folder of `rrm train`")
    what.add_argument(
        "--name-questions", type=Path, metavar="DIRECTORY", help="a judge's, whose judge.json is to name them"
    )
    parser.add_argument("--init-split", type=Path, help="split of the judge that this one goes on from")
    args = parser.parse_args()
    if args.name_questions is not None:
        if args.init_split is None:
            parser.error("--name-questions needs --init-split: the questions")
        settings = with_questions(load_settings(args.name_questions), args.init_split)
        save_settings(args.name_questions, settings)
        print(json.dumps({"judge": str(args.name_questions), "training_questions": len(settings.training_questions)}))
        return
    judge = args.run / "judge"
    record = json.loads((RESULTS / "default_judge.json").read_text(encoding="utf-8"))
    check(record, judge)
    files = shipped_files(judge)
    for name in OPTIONAL:
        (TARGET / name).unlink(missing_ok=True)
    for path in files:
        shutil.copyfile(path, TARGET / path.name)
    settings = load_settings(judge).model_copy(update={"name": "default"})
    if args.init_split:
        settings = with_questions(settings, args.init_split)
    save_settings(TARGET, settings)
    write_card(TARGET, settings, card(record, settings.trained_on))
    size = sum((TARGET / path.name).stat().st_size for path in files)
    told = {
        "target": str(TARGET.relative_to(ROOT)),
        "megabytes": round(size / 1e6, 2),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
