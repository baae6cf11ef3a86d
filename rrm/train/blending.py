"""The stage `calibration.blend`: a lexical model of the training rows, and how it goes together with the judge's score."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.errors import RRMError
from rrm.evaluation.baselines import BaselineError
from rrm.feedback import Feedback, Mode
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.blend import Blend, BlendMap, fit_blend
from rrm.judge.lexical import fit_lexical
from rrm.labels import truth_of
from rrm.questions import question_of
from rrm.train.prepare import Run
from rrm.trajectory import Trajectory

logger = logging.getLogger(__name__)


def fit_words(
    judge: AgentRRM,
    folder: Path,
    run: Run,
    rows: Sequence[Trajectory],
    labels: Sequence[float],
    judged: Mapping[Mode, Sequence[Feedback]],
) -> dict[str, Any]:
    """Write `lexical.json` into the judge's folder and set the blend in its settings; what was fitted, for the card.

    The words are learned from the training rows and what a row's label is from `rrm.labels.truth_of`, as calibration has it.
    Where nothing can be fitted the judge stays without a blend, and the card says why.

    Args:
        rows, labels: the calibration rows and their labels.
        judged: the judge's feedback on the first of them, by mode.
    """
    known = [(t, y) for t in run.parts["train"] if (y := truth_of(t, run.annotations.get(t.id))) is not None]
    try:
        lexical = fit_lexical([t for t, _ in known], [y for _, y in known])
    except BaselineError as error:
        logger.warning("no blend: %s", error)
        return {"skipped": str(error)}
    maps: dict[Mode, BlendMap] = {}
    found: dict[str, Any] = {"terms": len(lexical.terms), "terms_seen": lexical.terms_seen, "rows": lexical.rows}
    for mode, feedback in judged.items():
        kept = [
            (f.raw_score, lexical.log_odds(t), y, judge.in_windows(t, mode), question_of(t))
            for f, t, y in zip(feedback, rows, labels, strict=False)  # feedback is of the first rows
            if f.raw_score is not None
        ]
        try:
            raw, words, truths, windowed, questions = zip(*kept, strict=True) if kept else ((), (), (), (), ())
            maps[mode] = fit_blend(raw, words, truths, run.config.calibration.method, windowed, questions)
        except RRMError as error:
            logger.warning("mode %s is not blended: %s", mode, error)
            found[mode] = {"skipped": str(error), "rows": len(kept)}
            continue
        found[mode] = maps[mode].model_dump()
    if maps:
        found["bytes"] = lexical.save(folder).stat().st_size
        judge.settings.blend = Blend(lexical_sha256=lexical.sha256, modes=maps)
    return found
