"""What a server used: read from whatever it says, priced, limited, and counted once over runs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai_server import Answer, complete_many, completion, serve

from rrm.data.usage import Usage, read_usage, total_of
from rrm.engines.base import SamplingParams
from rrm.engines.cost import CostTracker, Prices, WorkSize
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import ConfigError, SpendingLimit
from rrm.scoring.usage_totals import Spending


@pytest.mark.parametrize(
    ("said", "prompt", "cached", "written", "thought"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}, 10, 0, 4, 0),
        (
            {
                "prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 8},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            10, 8, 4, 3,
        ),
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 6}, 10, 6, 4, 0),  # DeepSeek
        ({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 44}, 10, 0, 34, 0),  # Gemini: thinking in the total alone
        (
            {
                "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 20,
                "completion_tokens_details": {"reasoning_tokens": 6},
            },
            10, 0, 10, 6,
        ),
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": None, "total_tokens": None}, 10, 0, 4, 0),
        ({"prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 99}}, 2, 2, 1, 0),
    ],
)  # fmt: skip
def test_usage_is_read_as_servers_say_it(said: Any, prompt: int, cached: int, written: int, thought: int) -> None:
    expected = Usage(
        requests=1, prompt_tokens=prompt, cached_tokens=cached, completion_tokens=written, reasoning_tokens=thought
    )
    assert read_usage(said) == expected


@pytest.mark.parametrize(
    "said",
    [None, [], "12", {}, {"prompt_tokens": 3}, {"prompt_tokens": "3", "completion_tokens": 1},
     {"prompt_tokens": -3, "completion_tokens": 1}, {"prompt_tokens": True, "completion_tokens": 1},
     {"prompt_tokens": 1.5, "completion_tokens": 1}, {"prompt_tokens": 10**300, "completion_tokens": 1}],
)  # fmt: skip
def test_what_is_no_count_is_said_to_be_unknown(said: Any) -> None:
    assert read_usage(said) == Usage(requests=1, unreported=1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details")


@given(st.one_of(JSON, st.dictionaries(st.sampled_from(NAMES), JSON)))
def test_garbage_is_a_request_and_nothing_negative(said: Any) -> None:
    usage = read_usage(said)
    assert usage.requests == 1 and usage.cost is None
    assert 0 <= usage.cached_tokens <= usage.prompt_tokens and 0 <= usage.reasoning_tokens <= usage.completion_tokens


def test_prices() -> None:
    usage = Usage(requests=1, prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=10_000)
    assert Prices.parse("2,10").of(usage) == pytest.approx(2.0 + 0.1)
    assert Prices.parse("2, 10, 0.5").of(usage) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1)
    for text in ("", "1", "1,2,3,4", "a,b", "-1,2", "nan,1", "inf,1", "1;2"):
        with pytest.raises(ConfigError, match="IN,OUT"):
            Prices.parse(text)


def test_a_purse_closes_before_what_is_under_way_goes_beyond_its_limit() -> None:
    purse = CostTracker(Prices(1.0, 0.0), max_cost=10.0)
    assert not purse.closed(500) and not purse.waits(0) and purse.waits(1)  # nobody knows yet what one costs
    purse.end(0.0)  # a failure: it does not say, either
    assert not purse.waits(1) and purse.waits(2)
    purse.begin(None)
    paid = purse.pay(Usage(requests=1, prompt_tokens=1_000_000))
    assert paid.cost == 1.0 and purse.spent == 1.0
    purse.end(1.0)
    assert not purse.waits(500) and not purse.closed(8) and purse.closed(9)
    purse.pay(Usage(requests=1, prompt_tokens=500_000))  # the first part of what is under way
    assert not purse.closed(8) and purse.closed(9)
    purse.begin(paid)  # the same output, another run of the same process
    assert purse.spent == 1.0 and purse.usage == Usage() and not purse.closed() and purse.waits(1)
    purse.begin(Usage(cost=10.0))
    assert purse.closed() and "higher --max-cost" in purse.why_closed()
    assert not CostTracker(Prices(1.0, 1.0)).waits(10**6)
    assert not CostTracker(Prices(1.0, 1.0)).closed(10**6)


def test_a_limit_is_of_all_outputs_of_a_purse_each_counted_once() -> None:
    purse = CostTracker(Prices(1.0, 0.0), max_cost=10.0)
    purse.begin(Usage(cost=1.0), "rows")  # of an earlier run
    purse.pay(Usage(requests=1, prompt_tokens=3_000_000))
    purse.begin(None, "rows2")
    assert purse.spent == 4.0
    purse.pay(Usage(requests=1, prompt_tokens=2_000_000))
    purse.begin(Usage(cost=4.0), "rows")  # its rows say themselves what was paid here
    assert purse.spent == 6.0 and not purse.closed()
    purse.begin(Usage(cost=8.5), "rows3")
    assert purse.spent == 14.5 and purse.closed()


def test_what_is_under_way_is_priced_by_its_size() -> None:
    """Ten characters cost 0.1 to read, each reply 0.2."""
    purse = CostTracker(Prices(1.0, 1.0), max_cost=10.0)
    purse.begin(None)
    for _ in range(2):
        purse.end(0.3, WorkSize(sent=10), read=0.1)
    assert purse.foreseen(WorkSize(sent=1000, replies=2)) == pytest.approx(10.4)
    assert purse.closed(WorkSize(sent=940)) and not purse.closed(WorkSize(sent=900))
    small, large = WorkSize(sent=10), WorkSize(sent=960)
    assert purse.closed(small, large) and not purse.closed(small, small)
    assert not purse.closed(WorkSize(sent=900), small), "an ordinary one more is begun, as with all of one size"


def test_long_requests_among_short_ones_do_not_break_the_limit() -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        sent = len(body["messages"][0]["content"]) // 4
        return completion("ok", usage={"prompt_tokens": sent, "completion_tokens": 10})

    options = ServerOptions(prices=Prices(1.0, 10.0), max_cost=0.12)
    rows = [[{"role": "user", "content": "word" * (50_000 if k % 10 == 9 else 100)}] for k in range(200)]
    with serve(answer) as server:
        engine = OpenAIEngine(server.url, "m", concurrency=64, options=options)
        with pytest.raises(SpendingLimit, match="and the next transcript may go beyond it"):
            complete_many(engine, rows, SamplingParams(), [str(k) for k in range(200)])
    assert 0.1 < engine.purse.spent < 0.12


def test_a_limit_needs_prices_and_a_server_that_counts() -> None:
    with pytest.raises(ConfigError, match="--price"):
        CostTracker(None, 1.0)
    with pytest.raises(ConfigError, match="number from 0"):
        CostTracker(Prices(1, 1), float("nan"))
    purse = CostTracker(Prices(1, 1), 5.0)
    purse.pay(Usage(requests=1, unreported=1), whole=False)  # a time-out
    assert not purse.closed()
    purse.pay(Usage(requests=1, unreported=1))
    assert purse.closed() and "does not say what its replies use" in purse.why_closed()


def used(tokens: int, cost: float | None = None) -> Usage:
    return Usage(requests=1, prompt_tokens=tokens, cost=cost)


@pytest.mark.parametrize(
    ("parts", "total"),
    [([None, None], None), ([used(1), None, used(2, 0.5)], Usage(requests=2, prompt_tokens=3, cost=0.5))],
)
def test_sums(parts: list[Usage | None], total: Usage | None) -> None:
    assert total_of(parts) == total


def test_a_row_judged_again_hands_on_what_it_used_and_is_counted_once() -> None:
    first = Spending()
    failed = first.paid({"id": "a"}, used(5), True)
    first.paid({"id": "b"}, used(7), False)
    assert first.total == used(5) + used(7) and not first.stale
    second = Spending()  # another run over the same file
    second.met(failed, True)
    second.met({"id": "b", "usage": used(7).model_dump()}, False)
    assert second.total == first.total
    again = second.paid({"id": "a"}, used(11), False)
    assert again["usage"] == (used(5) + used(11)).model_dump() and second.now == used(11)
    assert second.total == used(5) + used(7) + used(11) and second.stale == {"a": 1}
    killed = Spending()  # before the failed row was dropped
    killed.met(failed, True)
    killed.met({"id": "b", "usage": used(7).model_dump()}, False)
    killed.met(again, False)
    assert killed.total == second.total and killed.stale == {"a": 1}
    with pytest.raises(ValueError, match="usage cannot be read"):
        killed.met({"id": "c", "usage": {"requests": -1}}, False)


def test_rows_without_money_get_it_and_others_keep_theirs() -> None:
    purse = CostTracker(Prices(1.0, 1.0))
    spending = Spending(purse.priced)
    spending.met({"id": "a", "usage": used(1_000_000).model_dump()}, False)
    spending.met({"id": "b", "usage": used(1_000_000, 7.0).model_dump()}, False)
    spending.met({"id": "c"}, False)
    assert spending.total is not None and spending.total.cost == 8.0
