"""The bar of equal scores makes its differences anew from the scores, and verl's rollouts are read back as the transcripts they were."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from benchmarks import accept_10, record
from benchmarks.integrations import apart, lab_tokenizer, rollout_of
from reagent.lab.transcripts import make_transcripts
from rrm.integrations.verl import as_trajectory
from rrm.integrations.verl_tokens import reply_text
from rrm.trajectory import Trajectory

NAMES = ("inspect", "verl", "verl_reply", "verl_tokens", "trl", "serve")
ALONE = {"a": 0.25, "b": 0.5}
AT_ONCE = {"a": 0.25, "b": 0.5 + 1e-5}
OWN = {"alone": ALONE, "at_once": ALONE}
GOOD: dict[str, Any] = {
    "command": "python -m benchmarks.integrations",
    "commit": (record.commit() or "0123456789ab").rstrip("+"),
    "versions": {"torch": "2"},
    "transcripts": 2,
    "ways": {name: {"apart": 0.0, "apart_at_once": apart(ALONE, AT_ONCE)} for name in NAMES},
    "scores": {"judge": OWN} | {name: {"alone": ALONE, "at_once": AT_ONCE} for name in NAMES},
}


def missed(monkeypatch: pytest.MonkeyPatch, found: Any) -> list[str]:
    """What the bars that are missed say."""
    monkeypatch.setattr(accept_10, "load", {accept_10.INTEGRATIONS: found}.get)
    return [bar.measured for bar in accept_10.equal_bars() if bar.ok is False]


def changed(*path: Any, value: Any = None) -> Any:
    """The good record with another value, or none, at a place."""
    found = at = json.loads(json.dumps(GOOD))
    for key in path[:-1]:
        at = at[key]
    at.pop(path[-1]) if value is None else at.update({path[-1]: value})
    return found


def test_a_good_record_passes_and_an_absent_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missed(monkeypatch, GOOD) == []
    assert missed(monkeypatch, None)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (changed("scores", "verl", "alone", "b", value=0.6), "verl alone"),
        (changed("scores", "verl_tokens", "alone", "b"), "verl_tokens alone"),
        (changed("scores", "inspect", "alone", "c", value=0.5), "inspect alone"),
        (changed("scores", "serve", "at_once", "a", value=0.2), "serve at_once"),
        (changed("scores", "trl"), "trl alone, trl at_once"),
        (changed("scores", "judge", "alone", "a", value=0.3), "inspect alone"),
        (changed("scores", "judge"), "inspect alone"),
        (changed("transcripts", value=32), "inspect alone"),
        (changed("ways", "verl", "apart", value=1e-9), "verl alone"),
    ],
)
def test_a_record_that_its_scores_do_not_bear_out_fails(monkeypatch: pytest.MonkeyPatch, found: Any, said: str) -> None:
    (shown,) = missed(monkeypatch, found)
    assert shown.startswith("not what its scores say: ") and said in shown


@pytest.mark.parametrize("way", ["inspect", "verl", "verl_reply", "verl_tokens", "serve"])
def test_a_way_that_was_not_measured_fails(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    (shown,) = missed(monkeypatch, changed("ways", way))
    assert shown.endswith(f"not measured: {way}")


def test_a_way_that_is_apart_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = changed("scores", "verl_reply", "alone", "a", value=0.3)
    found["ways"]["verl_reply"]["apart"] = apart(ALONE, found["scores"]["verl_reply"]["alone"])
    (shown,) = missed(monkeypatch, found)
    assert "verl_reply 5.0e-02" in shown


def test_what_has_no_score_is_infinitely_apart() -> None:
    assert apart(ALONE, dict(ALONE)) == 0.0
    for other in ({"a": 0.25}, ALONE | {"b": None}, ALONE | {"b": math.nan}, ALONE | {"c": 0.5}):
        assert apart(ALONE, other) == apart(other, ALONE) == math.inf
    assert apart({}, {}) == math.inf


def test_a_rollout_is_read_back_as_its_transcript() -> None:
    def said(row: Trajectory) -> list[Any]:
        return [(m.role, m.text(), m.name, [(c.name, c.arguments) for c in m.tool_calls or ()]) for m in row.messages]

    tokenizer, tools = lab_tokenizer(), 0
    for row, _ in make_transcripts(24, seed=5):
        if not all(isinstance(c.arguments, dict) for m in row.messages for c in m.tool_calls or ()):
            continue
        prompt, ids, mask = rollout_of(row, tokenizer)
        whole, text = reply_text(tokenizer, ids, mask), tokenizer.decode(ids, skip_special_tokens=True)
        for reply in (whole, text):
            assert said(as_trajectory("lab", reply, None, {"raw_prompt": prompt})) == said(row)
        sampled = tokenizer.decode([i for i, is_sampled in zip(ids, mask, strict=True) if is_sampled])
        assert sampled.count("<|im_end|>") == sum(m.role == "assistant" for m in row.messages)
        tools += sum(m.role == "tool" for m in row.messages)
    assert tools > 5
