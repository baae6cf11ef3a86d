"""Fit the maps of a trained judge's scores anew, without training it again.

    python -m benchmarks.default_judge.finish --judge runs/default_judge/full_run/judge --limit 24

Calibration questions are drawn at random, many questions before many attempts, and outcomes keep their natural rate: a judge that
learned from pairs of a success and a failure says 0.5 where nothing tells, whatever the rate. On these rows the maps of the
scores are fitted anew (one, or where it is better one of runs read at once and one of those read in windows; a kind of which too
few rows were drawn keeps the map it has); the map of single steps and the threshold stay, since later windows show what they say.

The folder is changed in place when all is fitted, and so is the judge's hash; the rows of this mode that were read, by `evaluate` too, are
kept under --work as the changed judge's, so that `evaluate` with the same --seed reads none of them again. Prints the old and the new maps, and the
calibration error of maps fitted without the questions they are measured on.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.default_judge.drawing import Draw, draw, limits_of, named
from benchmarks.default_judge.evaluate import unseen_by
from benchmarks.default_judge.said import Judged, floor_of
from benchmarks.default_judge.scorers import load
from benchmarks.default_judge.sources import Example
from benchmarks.judge_mint import kept
from rrm.config import CalibrationMethod
from rrm.data.feedback import Feedback, Mode, Reads
from rrm.data.questions import question_of
from rrm.data.splits import grouped_folds
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.evaluation.metrics.probability import CalibrationError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Calibrator, fit_by_reading, key_of
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings

FOLDS = 5
Scored = list[tuple[Example, float, bool]]
"""A row with an outcome, its raw score, and whether it was read in several windows."""


class Remembered:
    """A judge that says again what was read before its maps were fitted: raw scores and findings as they were."""

    def __init__(self, judge: AgentRRM, said: Mapping[str, Feedback]) -> None:
        self.changed, self.said = judge, said

    def describe(self) -> dict[str, Any]:
        """As the changed judge's rows are known."""
        return self.changed.describe()

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """As the changed judge reads."""
        return self.changed.measure(trajectories, mode, samples)

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "steps",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
    ) -> list[Feedback]:
        """What was said, with the score of the new maps."""
        maps, found = self.changed.settings.calibration, list[Feedback]()
        for t in trajectories:
            before = self.said[t.id]
            windowed = self.changed.in_windows(t, mode)
            info = before.judge.model_copy(
                update={"model_hash": self.changed.model_hash, "calibrated": maps.covers(mode, windowed=windowed)}
            )
            score = None if before.raw_score is None else maps.apply(mode, before.raw_score, windowed=windowed)
            found.append(before.model_copy(update={"score": score, "judge": info}))
            if on_feedback is not None:
                on_feedback(found[-1])
        return found


def fit_maps(scored: Scored, mode: Mode, method: CalibrationMethod) -> dict[str, Calibrator]:
    """The maps of a mode's scores, of rows read at once and of those read in windows (`fit_by_reading`: one, unless two are better);
    a kind of which too little is known has none.

    Raises:
        RRMError: neither has one.
    """
    fitted = fit_by_reading(
        [raw for _, raw, _ in scored],
        [row.trajectory.outcome or 0.0 for row, _, _ in scored],
        [many for _, _, many in scored],
        [question_of(row.trajectory) for row, _, _ in scored],
        method,
    )
    complaints = [f"{key_of(mode, many)}: {fitted.lacking[many]}" for many in sorted(fitted.lacking)]
    if not fitted.maps:
        raise RRMError("; ".join(complaints))
    for complaint in complaints:
        logging.warning("no map of %s", complaint)
    return {key_of(mode, many): fitted.maps[many] for many in sorted(fitted.maps)}


def calibration_error(scored: Scored, mode: Mode, maps: Callable[[int], Calibration]) -> float:
    """ECE of the scores under the maps for each row's place."""
    p = np.array([maps(i).apply(mode, raw, windowed=many) for i, (_, raw, many) in enumerate(scored)])
    y = np.array([row.trajectory.outcome for row, _, _ in scored], dtype=np.float64)
    return float(CalibrationError(p, y, np.zeros(len(p), dtype=np.int64), 1)(np.ones((1, 1)))[0])


def out_of_fold(others: Calibration, scored: Scored, mode: Mode, method: CalibrationMethod, seed: int) -> float | None:
    """ECE of maps that were fitted without the questions they are measured on; None, said why, where a fold gives none.

    Args:
        others: maps that these rows had no part in: of a kind of reading for which no map is fitted. Where a fold alone has too few
            rows of a kind, the fold's other map stands in, as in use.
    """
    try:
        folds = grouped_folds([question_of(row.trajectory) for row, _, _ in scored], FOLDS, seed)
        rest = [[one for one, at in zip(scored, folds, strict=True) if at != fold] for fold in range(FOLDS)]
        maps = [Calibration(modes={**others.modes, **fit_maps(rows, mode, method)}) for rows in rest]
    except RRMError as error:
        logging.warning("no calibration error out of fold: %s", error)
        return None
    return calibration_error(scored, mode, lambda i: maps[folds[i]])


def recalibrate(
    settings: JudgeSettings, scored: Scored, mode: Mode, method: CalibrationMethod, seed: int
) -> dict[str, Any]:
    """Fit the maps of a mode's scores anew and set them; what they were, what they are, and their errors.

    Raises:
        RRMError: too few rows, or scores that do not rise with the outcomes.
    """
    before = settings.calibration
    fitted = fit_maps(scored, mode, method)
    after = Calibration(modes={**before.modes, **fitted})
    others = Calibration(modes={key: of for key, of in before.modes.items() if key not in fitted})
    sure = [after.apply(mode, raw, windowed=many) for _, raw, many in scored]
    found = {
        "rows": len(scored),
        "questions": len({question_of(row.trajectory) for row, _, _ in scored}),
        "positive_rate": float(np.mean([row.trajectory.outcome or 0.0 for row, _, _ in scored])),
        "fitted": sorted(fitted),
        "before": {key: of.model_dump() for key, of in before.modes.items()},
        "after": {key: of.model_dump() for key, of in after.modes.items()},
        "ece_before": calibration_error(scored, mode, lambda _: before),
        "ece_out_of_fold": out_of_fold(others, scored, mode, method, seed),
        "ece_floor": floor_of(sure, seed),
    }
    settings.calibration = after
    return found


def finish(
    folder: Path,
    scored: Scored,
    mode: Mode,
    method: CalibrationMethod,
    seed: int,
) -> dict[str, Any]:
    """Fit the maps, then write them into the judge's folder: where none can be fitted, nothing is written.

    Raises:
        RRMError: as `recalibrate`.
    """
    settings = load_settings(folder)
    found = {"calibration": recalibrate(settings, scored, mode, method, seed)}
    save_settings(folder, settings)
    return found


def carry(before: Path, after: Path, mode: Mode, changed: AgentRRM, rows: Sequence[Example], seed: int) -> int:
    """Keep what was read of a mode before the maps were fitted as the changed judge's; how many rows.

    Args:
        before, after: folders of `benchmarks.judge_mint.judged`'s files, of the judge as it was and as it is.
        rows: where a file's ids are looked up; others are left behind.
    """
    by_id, carried = {row.trajectory.id: row for row in rows}, 0
    after.mkdir(parents=True, exist_ok=True)
    for path in sorted(before.glob(f"{mode}.*.jsonl")):
        said = {f.id: f for f in kept(path) if f.id in by_id}
        Judged(mode).add(Remembered(changed, said), [by_id[id] for id in said], after / path.name, seed)
        carried += len(said)
    return carried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", type=Path, required=True, help="the judge's folder, changed in place")
    parser.add_argument("--mode", default="steps", choices=get_args(Mode))
    parser.add_argument("--dtype")
    parser.add_argument("--data", type=Path, default=Path("runs/default_judge/data"), help="what the mixture wrote")
    parser.add_argument("--work", type=Path, default=Path("runs/default_judge/evaluation"), help="as `evaluate --work`")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="[SOURCE=]N", help="calibration rows of each source"
    )
    parser.add_argument("--method", default="platt", choices=get_args(CalibrationMethod))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    try:
        how = Draw(calibration=limits_of(args.limit), seed=args.seed)
    except ValueError as error:
        parser.error(str(error))
    judge = AgentRRM.from_pretrained(str(args.judge), dtype=args.dtype)
    parts = load(args.data)
    rows = draw(unseen_by(judge, {"calibration": parts["calibration"]})[0], how)[0]["calibration"]
    said = Judged(args.mode)
    files = {name: f"{args.mode}.calibration.{name.replace('/', '_')}.jsonl" for name in named(rows)}
    before = args.work / (judge.model_hash or "no_hash")[:12]
    before.mkdir(parents=True, exist_ok=True)
    for name, mine in named(rows).items():
        said.add(judge, mine, before / files[name], args.seed)
    scored: Scored = [
        (row, raw, judge.in_windows(row.trajectory, args.mode))
        for row in rows
        if row.trajectory.outcome is not None and (raw := said.score(row)) is not None
    ]
    found = finish(args.judge, scored, args.mode, args.method, args.seed)
    changed = AgentRRM.from_pretrained(str(args.judge), dtype=args.dtype)
    after = args.work / (changed.model_hash or "no_hash")[:12]
    everything = [row for part in parts.values() for row in part]
    found["carried"] = carry(before, after, args.mode, changed, everything, args.seed)
    hashes = {"hash_before": judge.model_hash, "hash": changed.model_hash}
    print(json.dumps({"judge": str(args.judge), **hashes, **found}))


if __name__ == "__main__":
    main()
