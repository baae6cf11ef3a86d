"""A run that is judged again and again while it grows, by a judge that reads slots: only what is new is computed.

A slot's probability depends on the tokens up to it alone (`rrm.prompt.windows`). So what was read at one is known as long as the
prompt begins with the same tokens, and an engine in this process keeps their keys and values. Where a prompt changes (a window's
digest says more), what stands behind the change is read anew: the result is always that of judging the prefix afresh.
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
KEPT_READINGS = 2
"""Of a run in windows, the last so many keep their keys and values: earlier windows do not change, and nothing of them is computed."""


@dataclass
class _KnownWindow:
    """What was read of one reading."""

    ids: list[int]
    p_good: Mapping[int, float]
    """By the slot's token."""


class KeptSlots:
    """A reader that asks another one only for the slots it does not know.

    Args:
        reader: of a judge here, or behind a server; its asks' keys stay the same from call to call.
    """

    def __init__(self, reader: SlotReader) -> None:
        self._reader = LocalSlots(reader.engine, keep=True) if isinstance(reader, LocalSlots) else reader
        self._name = f"following{next(_NAMES)}"  # the engine may hold other runs' rows
        self._known: dict[str, _KnownWindow] = {}

    @property
    def engine(self) -> object:
        """The reader's own."""
        return self._reader.engine

    def read(self, asks: Sequence[SlotAsk], choices: tuple[int, int], take: Take) -> None:
        """As `SlotReader.read`."""
        known = [self._still_known(ask) for ask in asks]
        missing = [
            replace(ask.prompt, slots=tuple(s for s in ask.prompt.slots if s.at not in said))
            for ask, said in zip(asks, known, strict=True)
        ]
        asked = [number for number, prompt in enumerate(missing) if prompt.slots]
        for number in sorted(set(range(len(asks))) - set(asked)):
            take(number, WindowSlots([known[number][slot.at] for slot in asks[number].prompt.slots]))

        def heard(k: int, found: WindowSlots | EngineError) -> None:
            number = asked[k]
            if isinstance(found, WindowSlots):
                said = known[number] | {s.at: p for s, p in zip(missing[number].slots, found.p_good, strict=True)}
                prompt = asks[number].prompt
                self._known[asks[number].key] = _KnownWindow(prompt.ids, said)
                found = WindowSlots([said[slot.at] for slot in prompt.slots], found.usage)
            take(number, found)

        if asked:
            rows = [SlotAsk(self._key(asks[k].key), missing[k], asks[k].begins) for k in asked]
            self._reader.read(rows, choices, heard)
            self._forget_old()

    def close(self) -> None:
        """Let the engine forget what it keeps."""
        self._release(list(self._known))
        self._known.clear()

    def _key(self, key: str) -> str:
        return f"{self._name}/{key}"

    def _still_known(self, ask: SlotAsk) -> dict[int, float]:
        known = self._known.get(ask.key)
        if known is None:
            return {}
        same = common_prefix([known.ids, ask.prompt.ids])
        return {at: p for at, p in known.p_good.items() if at < same}

    def _forget_old(self) -> None:
        self._release(list(self._known)[:-KEPT_READINGS])

    def _release(self, keys: Sequence[str]) -> None:
        release = getattr(self._reader.engine, "release", None)
        if release is not None and keys:
            release([self._key(key) for key in keys])


class Follower:
    """Judges one growing run in mode `steps`.

    Args:
        judge: one whose slots can be read: trained in `steps`, here or on a server whose tokenizer is here.
        seed: for the rows; nothing is sampled.

    Raises:
        RRMError: the judge has no slots to read.
    """

    def __init__(self, judge: AgentRRM, *, seed: int = 0) -> None:
        judge.abilities.check("steps")
        self._judge, self._seed = judge, seed
        self._prompter, reader = judge.slots()
        self._slots = KeptSlots(reader)

    def judge(self, trajectory: Trajectory) -> Feedback:
        """What `AgentRRM.judge` says of the run so far. Any run may be given: what it shares with the one before is not read again."""
        judge = self._judge
        info = judge.info("steps", self._seed)
        if not trajectory.steps:
            return unspoken(trajectory, info)
        # the same name from call to call: readings are known by it
        run = trajectory.model_copy(update={"id": "run"})
        wanted = JudgeRequest(info, judge.params(self._seed, 0.0), judge.settings.calibration, 1, True, None)
        (found,) = judge_steps(self._slots, self._prompter, [run], wanted, judge.settings.verdicts)
        return DomainFlagger(judge.domain, [run]).mark(found.model_copy(update={"id": trajectory.id}), run)

    def close(self) -> None:
        """Let the judge's engine forget the run."""
        self._slots.close()
