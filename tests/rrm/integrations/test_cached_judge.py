"""Many callers, one judge."""

from __future__ import annotations

import asyncio
import pickle
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from chat_judge import ChatJudge, transcripts

from rrm.data.trajectory import Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, EngineError
from rrm.integrations import loading
from rrm.integrations.loading import LazyAsker, asker
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.cached_judge import JudgeQueue, by_content, first_finding, lock_of
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.criteria import parse_criteria


def test_who_asks_while_it_judges_is_judged_in_the_next_batch() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait(window: Sequence[Trajectory]) -> None:
        begun.set()
        assert go.wait(10)

    judge = ChatJudge(on_window=wait)
    asking = JudgeQueue(judge, mode="full")
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
    askers = [JudgeQueue(judge), JudgeQueue(judge)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: askers[i % 2].ask(transcripts(2)), range(8)))
    assert len(judge.windows) == 8 and max(most) == 1


def test_coroutines_share_batches_and_hear_what_judging_raised() -> None:
    async def all_of(asking: JudgeQueue) -> list[str]:
        said = await asyncio.gather(*(asking.ask_async([t]) for t in transcripts(20)))
        return [row.id for (row,) in said]

    judge = ChatJudge()
    assert asyncio.run(all_of(JudgeQueue(judge))) == [f"t{i}" for i in range(20)]
    assert sum(map(len, judge.windows)) == 20

    def refuse(window: Sequence[Trajectory]) -> None:
        raise EngineError("no money")

    with pytest.raises(EngineError, match="no money"):
        asyncio.run(all_of(JudgeQueue(ChatJudge(on_window=refuse))))


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


def reference_judge(see: bool) -> AgentRRM:
    """Says yes where the prompt names the reference 42."""
    asked = {"questions": {"right": {"ask": "Right?", "scale": "yes_no"}}, "see_reference": see}

    def reply(messages: list[dict[str, str]], params: object, key: str) -> str:
        said = "yes" if "REF42" in str(messages) else "no"
        return f'<criterion name="right">\nwhy: w\nsteps: 1\nanswer: {said}\n</criterion>'

    return AgentRRM(
        ScriptedChatEngine(reply), settings=JudgeSettings(opening=False, criteria=parse_criteria(asked, "here"))
    )


def test_rows_alike_but_for_their_reference_are_two_to_a_judge_that_reads_it() -> None:
    (row,) = transcripts(1)
    rows = [by_content(row.model_copy(update={"meta": {"reference": r}})) for r in ("REF42", "REF7", "REF42")]
    judge = reference_judge(see=True)
    assert [f.score for f in JudgeQueue(judge, mode="full").ask(rows)] == [1.0, 0.0, 1.0]
    assert isinstance(judge.engine, ScriptedChatEngine) and len(judge.engine.calls) == 2
    blind = reference_judge(see=False)
    assert [f.score for f in JudgeQueue(blind, mode="full").ask(rows)] == [0.0, 0.0, 0.0]
    assert isinstance(blind.engine, ScriptedChatEngine) and len(blind.engine.calls) == 1


def test_two_transcripts_of_one_name_are_judged_one_after_the_other() -> None:
    rows = [t.model_copy(update={"id": name}) for t, name in zip(transcripts(4), "abab", strict=True)]
    judge = ChatJudge()
    assert [f.id for f in JudgeQueue(judge).ask([*rows, rows[0]])] == ["a", "b", "a", "b", "a"]
    assert judge.windows == [["a", "b"], ["a", "b"]]


def test_who_brought_what_the_judge_raises_of_hears_of_it_alone() -> None:
    begun, go = threading.Event(), threading.Event()

    def refuse_t3(window: Sequence[Trajectory]) -> None:
        begun.set()
        assert go.wait(10)
        if any(t.id == "t3" for t in window):
            raise EngineError("t3 is refused")

    asking = JudgeQueue(ChatJudge(on_window=refuse_t3), mode="full")
    rows = transcripts(5)
    first = asking.submit(rows[0])
    assert begun.wait(10)
    rest = [asking.submit(t) for t in rows[1:]]
    go.set()
    alone = ChatJudge().judge(rows, mode="full")
    for row, future, said in zip(rows, [first, *rest], alone, strict=True):
        if row.id == "t3":
            with pytest.raises(EngineError, match="t3 is refused"):
                future.result(10)
        else:
            assert future.result(10).score == said.score


class Plain:
    """A judge that can go to another process."""

    judge = ChatJudge().judge


def test_an_asker_goes_to_another_process_without_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = JudgeQueue(Plain(), mode="full", samples=2, seed=7)
    said = asking.ask(transcripts(2))
    other = pickle.loads(pickle.dumps(asking))  # noqa: S301
    assert (other.mode, other.samples, other.seed) == ("full", 2, 7)
    assert other.submit(transcripts(2)[1]).result(10) == said[1]
    assert lock_of(other.judge) is not lock_of(asking.judge)
    monkeypatch.setattr(loading, "AgentRRM", None)  # a named one is not loaded before it is asked
    named = pickle.loads(pickle.dumps(LazyAsker("mine", mode="full")))  # noqa: S301
    with pytest.raises(AttributeError, match="from_pretrained"):
        named()


def test_no_module_for_a_framework_is_imported_by_the_rest_of_the_package() -> None:
    package = Path(loading.__file__).parents[1]
    own = {path.stem for path in (package / "integrations").glob("*.py")} - {"__init__", "asking", "loading"}
    named = re.compile(rf"^\s*(?:from|import) rrm\.integrations(?:\.({'|'.join(own)})\b| import)", re.MULTILINE)
    found = [path for path in package.rglob("*.py") if named.search(path.read_text(encoding="utf-8"))]
    assert [path for path in found if path.parent.name != "integrations"] == []
