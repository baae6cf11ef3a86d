"""Judge a growing run again and again by its slots, computing only what is new.

A slot's probability depends on the tokens up to it alone (`rrm.prompt.windows`), so it is reused while the prompt begins with
the same tokens; a local engine also keeps keys and values. Results equal those of judging the prefix afresh.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.engines.hf.batching import common_prefix
from rrm.errors import EngineError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.domain import DomainFlagger
from rrm.judge.judge_request import JudgeRequest, unspoken
from rrm.judge.steps import LocalSlots, SlotAsk, SlotReader, Take, WindowSlots, judge_steps

_NAMES = itertools.count()
KEPT_READINGS = 2  # latest windows whose keys and values are kept; earlier windows do not change


@dataclass
class _KnownWindow:
    ids: list[int]
    p_good: Mapping[int, float]  # by the slot's token


class KeptSlots:
    """Ask a reader only for slots that are not cached by the ask's key."""

    def __init__(self, reader: SlotReader) -> None:
        self._reader = LocalSlots(reader.engine, keep=True) if isinstance(reader, LocalSlots) else reader
        self._name = f"following{next(_NAMES)}"  # the engine may hold other runs' rows
        self._known: dict[str, _KnownWindow] = {}

    @property
    def engine(self) -> object:
        return self._reader.engine

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        cached = [self._still_known(ask) for ask in asks]
        missing = [
            replace(ask.prompt, slots=tuple(s for s in ask.prompt.slots if s.at not in p_good))
            for ask, p_good in zip(asks, cached, strict=True)
        ]
        unread = [number for number, prompt in enumerate(missing) if prompt.slots]
        for number in sorted(set(range(len(asks))) - set(unread)):
            take(number, WindowSlots([cached[number][slot.at] for slot in asks[number].prompt.slots]))

        def heard(k: int, result: WindowSlots | EngineError) -> None:
            number = unread[k]
            if isinstance(result, WindowSlots):
                p_good = cached[number] | {s.at: p for s, p in zip(missing[number].slots, result.p_good, strict=True)}
                prompt = asks[number].prompt
                self._known[asks[number].key] = _KnownWindow(prompt.ids, p_good)
                result = WindowSlots([p_good[slot.at] for slot in prompt.slots], result.usage)
            take(number, result)

        if unread:
            rows = [SlotAsk(self._key(asks[k].key), missing[k], asks[k].begins) for k in unread]
            self._reader.read(rows, choices, heard)
            self._forget_old()

    def close(self) -> None:
        self._release(list(self._known))
        self._known.clear()

    def _key(self, key: str) -> str:
        return f"{self._name}/{key}"

    def _still_known(self, ask: SlotAsk) -> dict[int, float]:
        window = self._known.get(ask.key)
        if window is None:
            return {}
        same = common_prefix([window.ids, ask.prompt.ids])
        return {token: p for token, p in window.p_good.items() if token < same}

    def _forget_old(self) -> None:
        self._release(list(self._known)[:-KEPT_READINGS])

    def _release(self, keys: Sequence[str]) -> None:
        release = getattr(self._reader.engine, "release", None)
        if release is not None and keys:
            release([self._key(key) for key in keys])


class Follower:
    """Judge one growing run in mode `steps`; a server's judge needs its tokenizer here.

    Raises RRMError if the judge has no slots to read.
    """

    def __init__(self, judge: AgentRRM, *, seed: int = 0) -> None:
        judge.abilities.check("steps")
        self._judge, self._seed = judge, seed
        self._prompter, reader = judge.slots()
        self._slots = KeptSlots(reader)

    def judge(self, trajectory: Trajectory) -> Feedback:
        """Return `AgentRRM.judge`'s row of the run so far; the prefix shared with the last call is reused."""
        judge = self._judge
        info = judge.info("steps", self._seed)
        if not trajectory.steps:
            return unspoken(trajectory, info)
        # the same name from call to call: readings are known by it
        run = trajectory.model_copy(update={"id": "run"})
        request = JudgeRequest(info, judge.params(self._seed, 0.0), judge.settings.calibration, 1, True, None)
        (feedback,) = judge_steps(self._slots, self._prompter, [run], request, judge.settings.verdicts)
        return DomainFlagger(judge.domain, [run]).mark(feedback.model_copy(update={"id": trajectory.id}), run)

    def close(self) -> None:
        self._slots.close()
