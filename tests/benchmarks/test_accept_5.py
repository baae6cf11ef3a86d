"""The bars read records that say what made them, and no figure passes for another."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import accept_5, record
from benchmarks.acceptance import Bar

MADE = {"command": "c", "commit": (record.commit() or "c").rstrip("+"), "seed": 0}
ROW = {"window": 1024, "tokens": 2000, "found": 1.0, "alarms": 0.0, "read_per_token": 1.0}


def bars(monkeypatch: pytest.MonkeyPatch, records: dict[str, Any]) -> dict[str, Bar]:
    monkeypatch.setattr(accept_5, "load", records.get)
    return {bar.what: bar for bar in (*accept_5.needle_bars(), *accept_5.flag_bars())}


def test_each_record_must_say_what_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last of a loop was asked, and the study of the mark not at all."""
    mark = {"unseen": {"a": {"share": 1.0}}, "home": {"share": 0.0}, "home_by_source": {"b": {}}}
    records = {
        "needle": {"rows": [ROW]},
        "needle_lab": {**MADE, "rows": [ROW], "raw": [1]},
        "default_judge_domain": mark,
    }
    found = {what: bar.ok for what, bar in bars(monkeypatch, records).items() if "commit" in what}
    assert found == {
        "1 scripted judge: command, commit, seed, figures": False,
        "1 a judge trained for it in the lab: command, commit, seed, figures": True,
        "3 transcripts unlike the training data: command, commit, seed, figures": False,
    }
    records |= {"needle": {**MADE, "rows": [ROW]}, "default_judge_domain": {**MADE, **mark}}
    assert all(bar.ok for bar in bars(monkeypatch, records).values())


@pytest.mark.parametrize(("value", "ok"), [(0.0, True), (0.05, True), (0.06, False), (None, False)])
def test_a_perfect_calibration_passes_and_none_does_not(
    monkeypatch: pytest.MonkeyPatch, value: float | None, ok: bool
) -> None:
    """An error of exactly 0.0 was read as none."""
    monkeypatch.setattr(accept_5, "load", {}.get)
    ece = {"value": value, "low": None, "high": None}
    found = {
        "pooled": {},
        "pooled_mint": {},
        "unseen": {},
        "sources": {"home": {"metrics": {"judge": {"ece": ece}}}},
    }
    (bar,) = [bar for bar in accept_5.outcome_bars(found) if "ECE" in bar.what]
    assert bar.ok is ok


def test_a_source_of_which_nothing_was_scored_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was in no list, and `none below` held of the others."""
    monkeypatch.setattr(accept_5, "load", {}.get)
    auroc = {"auroc": {"value": 0.9, "low": 0.8, "high": 0.95}}
    home = {"metrics": {"judge": {}}}
    found = {
        "pooled": {},
        "pooled_mint": {},
        "unseen": {"metrics": {"judge": auroc}, "sources": ["a"], "unscored": {}},
        "sources": {"home": home, "a": {"metrics": {"judge": auroc}}},
    }

    def bar() -> Bar:
        (found_bar,) = [
            bar for bar in accept_5.outcome_bars(found) if bar.what.startswith("7 sources never trained on")
        ]
        return found_bar

    assert bar().ok
    found["unseen"]["unscored"] = {"b": 40}
    assert bar().ok is False and "b without a score of 40 rows" in bar().measured
    found["unseen"]["metrics"] = {}
    assert bar().ok is False


def test_an_attack_on_another_judge_than_ships_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shipped:
        model_hash = "new"

    monkeypatch.setattr(accept_5.AgentRRM, "from_pretrained", lambda: Shipped)
    made = {
        "made": MADE,
        "report": {"rows": [1]},
        "excess": 0.01,
        "escapes": 0,
        "cases": 60,
        "mode": "steps",
        "passed": True,
    }
    plain = {**made, "judge": {"model_hash": "new"}, "length_lift": 0.01}
    records = {
        "adversarial_default_steps": plain,
        "adversarial_default_steps_windows": {**plain, "judge": {"model_hash": "old"}},
    }
    monkeypatch.setattr(accept_5, "load", records.get)
    found = [bar.ok for bar in accept_5.attack_bars()]
    assert found == [True, True, False, True]  # each with its record
    records["adversarial_default_steps"] = {**plain, "length_lift": None}
    assert not next(iter(accept_5.attack_bars())).ok
