"""Sessions: rows that join and leave a running batch come out as if each had been alone."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from engine_models import EOS, RUBRIC, assert_same, make_rows, naive_generate
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from rrm.engines.base import Completion, SamplingParams, Span
from rrm.engines.hf.decoder import row_uniforms
from rrm.engines.hf.engine import HFEngine
from rrm.engines.hf.slots import SlotCache
from rrm.engines.scripted import ScriptedEngine
from rrm.engines.sessions import BatchSession, open_session
from rrm.errors import EngineError

PARAMS = SamplingParams(max_new_tokens=20, temperature=1.3, seed=3)


@pytest.mark.parametrize("budget", [32768, 250], ids=["roomy", "few slots"])
def test_conversations_equal_one_row_at_a_time(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, budget: int
) -> None:
    """Rows of unlike limits join at unlike times, three turns each, a few tokens appended between: the cache grows."""
    engine = HFEngine(model, tokenizer, max_batch_tokens=budget, prefill_tokens=50)
    rows = {f"k{i}": row for i, row in enumerate(make_rows(9, shared=RUBRIC))}
    limits = {key: 3 + 2 * i for i, key in enumerate(rows)}
    found: dict[str, list[Completion]] = {key: [] for key in rows}
    wanted: dict[str, list[Completion]] = {key: [] for key in rows}
    with open_session(engine, PARAMS) as session:
        assert session.idle and session.step() == []
        late = list(rows)[4:]
        for key in list(rows)[:4]:
            session.submit(key, rows[key], limits[key])
        while late or not session.idle:
            for key, completion in session.step():
                found[key].append(completion)
                if len(found[key]) < 3:
                    rows[key] = [*rows[key], *completion.ids, 70, 71 + len(found[key]), EOS, 9][: 256 - limits[key]]
                    session.submit(key, rows[key], limits[key])
            if late:
                session.submit(late[0], rows[late[0]], limits[late[0]])
                late.pop(0)
    engine.release(list(rows))
    assert not engine._kept and engine._held == 0
    for key, row in zip(rows, make_rows(9, shared=RUBRIC), strict=True):
        for turn in range(3):
            whole = naive_generate(model, row, PARAMS, key)
            cut = whole.ids[: limits[key]]
            reason = "eos" if cut[-1] == EOS else "length"
            wanted[key].append(Completion(cut, whole.logprobs[: len(cut)], reason))
            row = [*row, *cut, 70, 71 + turn + 1, EOS, 9][: 256 - limits[key]]
        assert_same(found[key], wanted[key])


def test_a_group_is_prefilled_once_whatever_the_slots(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Eight attempts at each of two prompts of 45 and 46 tokens that share 40; three slots, so most wait."""
    rows = [[*RUBRIC, *range(5)], [*RUBRIC, *range(100, 106)]] * 8
    keys = [f"k{i}" for i in range(16)]
    wanted = [naive_generate(model, row, PARAMS, key) for row, key in zip(rows, keys, strict=True)]
    roomy, narrow = HFEngine(model, tokenizer), HFEngine(model, tokenizer, max_batch_tokens=3 * 66)
    assert_same(roomy.generate(rows, PARAMS, keys), wanted)
    assert roomy.counters.prefilled == 40 + 5 + 6 and roomy.counters.prefill_forwards == 2
    assert_same(narrow.generate(rows, PARAMS, keys), wanted)
    assert 51 < narrow.counters.prefilled <= 51 + 14  # the others compute their last token anew
    assert narrow.counters.decoded == roomy.counters.decoded == sum(len(c.ids) - 1 for c in wanted)


def test_prefills_of_unlike_widths_fit_beside_each_other(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    """A row that starts late and adds little runs beside one that starts early and adds much: padding needs room."""
    engine, fresh = HFEngine(model, tokenizer), HFEngine(model, tokenizer)
    params, keys = SamplingParams(max_new_tokens=1), ["long", "short"]
    first = [[i % 250 + 1 for i in range(100)], [5] * 10]
    done = engine.generate(first, params, keys)
    longer = [[*first[0], *done[0].ids, 7], [*first[1], *done[1].ids, *range(30, 60)]]
    assert_same(engine.generate(longer, params, keys), fresh.generate(longer, params, keys))
    assert engine.counters.prefilled == 110 + 2 + 31
    grid = [[10, 11], [12, 13, 14]]
    found, wanted = engine.continuation_logprobs(longer, grid, keys), fresh.continuation_logprobs(longer, grid)
    assert torch.allclose(torch.tensor(found), torch.tensor(wanted), atol=1e-4)


def test_what_cannot_be_submitted_is_said(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    with HFEngine(model, tokenizer).session(PARAMS) as session:
        for limit in (0, 21):
            with pytest.raises(EngineError, match=rf"k: max_new_tokens {limit} is not within 1 … 20"):
                session.submit("k", [1], limit)
        with pytest.raises(EngineError, match="exceed the model's 256 positions"):
            session.submit("k", [1] * 240)
        session.submit("k", [1])
        with pytest.raises(EngineError, match="k: this key's row has not finished yet"):
            session.submit("k", [1, 2])


def test_engines_without_sessions_run_batch_by_batch() -> None:
    engine = ScriptedEngine(lambda row, params, key: [*row, 5, 6, 7], eos_token_id=0)
    with open_session(engine, PARAMS) as session:
        assert isinstance(session, BatchSession) and session.step() == []
        for key, limit in (("a", 3), ("b", 2), ("c", 3)):
            session.submit(key, [1], limit)
        assert [(key, c.ids) for key, c in session.step()] == [("a", [1, 5, 6]), ("c", [1, 5, 6])]
        assert not session.idle
        assert [(key, c.ids, c.stop_reason) for key, c in session.step()] == [("b", [1, 5], "length")]
        assert session.idle


def test_a_rows_numbers_do_not_depend_on_how_many_it_may_need() -> None:
    """Else a limit of its own would change a row's samples."""
    for count in (1, 3, 15, 16, 17, 64):
        assert torch.equal(row_uniforms(7, 1000)[:count], row_uniforms(7, count))


def test_a_batchs_keys_and_values_go_with_it(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once: they are gigabytes, of which Python's search for rings of references knows nothing."""
    made: list[weakref.ref[SlotCache]] = []
    init = SlotCache.__init__

    def noted(self: SlotCache, *args: int) -> None:
        made.append(weakref.ref(self))
        init(self, *args)

    monkeypatch.setattr(SlotCache, "__init__", noted)
    engine, rows = HFEngine(model, tokenizer), make_rows(5, shared=RUBRIC)
    gc.collect()
    gc.disable()
    try:
        engine.generate(rows, PARAMS, [str(i) for i in range(5)])
        engine.continuation_logprobs(rows, [[10, 11], [12]])
        engine.logprobs(rows, [Span(2, 5)] * 5)
        assert len(made) >= 3 and all(cache() is None for cache in made)
    finally:
        gc.enable()
