"""Config keys of `reagent train`, `eval` and `distil` that are gone."""

from rrm.removed import Removed

REMOVED: dict[str, Removed] = {
    "feedback.curriculum": Removed(
        "it gained nothing that was seen: tasks come in order; choose their levels by environment.train, or stages of "
        "feedback.criteria"
    ),
    "feedback.distil": Removed(
        "it gained nothing that was seen: `reagent distil` learns from chosen attempts, feedback.mode=c from second ones",
        {"weight": 0.0},
    ),
    "feedback.context": Removed(
        "it gained nothing that was seen: critiques teach by feedback.mode=c, or feedback.mode=u with feedback.aux.critique",
        {"weight": 0.0},
    ),
    "feedback.attempt_chars": Removed(
        "a second attempt is shown 700 characters of the first: `reagent.feedback.second_attempt_prompt.ATTEMPT_CHARS`",
        700,
    ),
    "feedback.recalibrate.method": Removed(
        "calibration is refitted by `platt`, on the logit of the raw score", "platt"
    ),
    "guards.length.first": Removed(
        "the first 3 updates are the measure: `reagent.train.monitor_conditions.FIRST_UPDATES`", 3
    ),
    "rollout.engine.prefill_tokens": Removed(
        "the engine chooses it by its device; rollout.engine.max_batch_tokens bounds the memory of a rollout"
    ),
    "rollout.engine.kept_bytes": Removed(
        "2 GiB of keys and values are kept between turns: `rrm.engines.hf.engine.KEPT_BYTES`; "
        "rollout.engine.max_batch_tokens bounds the memory of a rollout",
        2 << 30,
    ),
}
