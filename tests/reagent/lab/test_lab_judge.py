"""The shipped lab judge: small enough to run for real in a test."""

from __future__ import annotations

import hashlib
import json

import pytest

from reagent.lab.transcripts import make_transcripts
from rrm.engines.shipped_judges import shipped
from rrm.judge.agent_rrm import AgentRRM


@pytest.fixture(scope="module")
def rows():
    """Worlds it was not trained on."""
    return make_transcripts(60, seed=77_000)


@pytest.fixture(scope="module")
def feedback(rows):
    return AgentRRM.from_pretrained("lab", device="cpu").judge([t for t, _ in rows])


def test_its_card_names_these_weights_and_they_are_small() -> None:
    folder = shipped("lab")
    card = json.loads((folder / "card.json").read_text())
    weights = folder / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == card["sha256"]
    assert weights.stat().st_size < 5_000_000
    assert card["commands"][0] == "rrm train --config lab" and card["configs"][0]["seed"] == 0
    assert all(not config["model"]["base"].startswith(("/", "runs")) for config in card["configs"])
    assert len({config["seed"] for config in card["configs"]}) == len(card["commands"]) == len(card["configs"])


def test_it_writes_whole_judgements(rows, feedback) -> None:
    scored = [f for f in feedback if f.status == "scored"]
    assert len(scored) >= 0.95 * len(rows)
    assert all(f.trace and f.critique and 0.0 <= f.score <= 1.0 for f in scored)


def test_it_finds_planted_faults_and_spares_clean_runs(rows, feedback) -> None:
    hit, alarms = [], []
    for (_, annotation), said in zip(rows, feedback, strict=True):
        wrong = [f.step for f in annotation.findings if f.verdict == "bad"]
        called = [f.step for f in said.findings if f.verdict == "bad"]
        if wrong:
            hit.append(wrong[0] in called)
        else:
            alarms.append(bool(called))
    assert sum(hit) >= 0.9 * len(hit)
    assert sum(alarms) <= 0.1 * len(alarms)


def test_its_scores_tell_success_from_failure(rows, feedback) -> None:
    success = [f.score for (t, _), f in zip(rows, feedback, strict=True) if t.outcome and f.score is not None]
    failure = [f.score for (t, _), f in zip(rows, feedback, strict=True) if not t.outcome and f.score is not None]
    assert sum(success) / len(success) > sum(failure) / len(failure) + 0.3
