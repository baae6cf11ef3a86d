"""Differences of scores, and verl's rollouts read back as the transcripts they were."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.integrations import apart, lab_tokenizer, rollout_of
from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import Trajectory
from rrm.integrations.verl import as_trajectory
from rrm.integrations.verl_tokens import reply_text

ALONE = {"a": 0.25, "b": 0.5}


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
