"""Many callers, one judge."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from chat_judge import ChatJudge, transcripts

from rrm.errors import ConfigError, EngineError
from rrm.integrations import loading
from rrm.integrations.asking import Asker, first_finding
from rrm.integrations.loading import asker
from rrm.trajectory import Trajectory


def test_who_asks_while_it_judges_is_judged_in_the_next_batch() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(window: Sequence[Trajectory]) -> None:
        begun.set()
        assert go.wait(10)

    judge = ChatJudge(on_window=wait)
    asking = Asker(judge, mode="full")
    rows = transcripts(6)
    first = asking.submit(rows[0])
    assert begun.wait(10)
    rest = [asking.submit(t) for t in (*rows[1:], rows[1])]
    go.set()
    said = [future.result(10) for future in (first, *rest)]
    assert judge.windows == [["t0"], ["t1", "t2", "t3", "t4", "t5"]]
    assert [f.id for f in said] == ["t0", "t1", "t2", "t3", "t4", "t5", "t1"]
    alone = ChatJudge().judge(rows, mode="full")
    assert [f.score for f in said[:6]] == [f.score for f in alone]


def test_two_that_ask_one_judge_take_turns() -> None:
    inside: list[int] = []
    most: list[int] = []

    def note(window: Sequence[Trajectory]) -> None:
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.01)
        inside.pop()

    judge = ChatJudge(on_window=note)
    askers = [Asker(judge), Asker(judge)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: askers[i % 2].ask(transcripts(2)), range(8)))
    assert len(judge.windows) == 8 and max(most) == 1


def test_coroutines_share_batches_and_hear_what_judging_raised() -> None:
    async def all_of(asking: Asker) -> list[str]:
        said = await asyncio.gather(*(asking.ask_async([t]) for t in transcripts(20)))
        return [row.id for (row,) in said]

    judge = ChatJudge()
    assert asyncio.run(all_of(Asker(judge))) == [f"t{i}" for i in range(20)]
    assert sum(map(len, judge.windows)) == 20

    def refuse(window: Sequence[Trajectory]) -> None:
        raise EngineError("no money")

    with pytest.raises(EngineError, match="no money"):
        asyncio.run(all_of(Asker(ChatJudge(on_window=refuse))))


def test_the_first_finding_is_the_first_bad_one() -> None:
    (row,) = ChatJudge().judge(transcripts(1))
    finding = row.findings[0]
    later = [finding, finding.model_copy(update={"step": 3, "verdict": "bad", "text": "lost"})]
    assert first_finding(row) == "[step 1] good: ok"
    assert first_finding(row.model_copy(update={"findings": later})) == "[step 3] bad: lost"
    assert first_finding(row.model_copy(update={"findings": []})) is None


def test_a_named_judge_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[object] = []

    class Loads:
        @staticmethod
        def from_pretrained(name: str | None, **options: object) -> ChatJudge:
            loaded.append((name, options))
            return ChatJudge()

    monkeypatch.setattr(loading, "AgentRRM", Loads)
    monkeypatch.setattr(loading, "_LOADED", {})
    monkeypatch.setattr(loading, "_ASKERS", {})
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: asker("mine", options={"max_windows": 2}), range(16)))
    assert len(set(map(id, found))) == 1 and loaded == [("mine", {"max_windows": 2})]
    assert asker("mine", options={"max_windows": 2}, mode=None).mode == "full"
    assert asker("mine").judge is not found[0].judge and len(loaded) == 2
    with pytest.raises(ConfigError, match="plain numbers"):
        asker("mine", options={"engine": object()})
    with pytest.raises(ConfigError, match="this one is loaded"):
        asker(found[0].judge, options={"max_windows": 2})
