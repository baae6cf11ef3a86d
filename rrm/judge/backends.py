"""Who answers for a judge: made of its parts, whether its model runs here or on a server, and in whichever way it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rrm.data.pictures import ImageBudget
from rrm.engines.base import ChatEngine, SamplingParams
from rrm.judge.criteria import CriteriaAsker
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.slots import LocalSlots, ServedSlots, SlotReader
from rrm.judge.templated import TemplatedEngine
from rrm.judge.text_backends import LocalAsker, ServerAsker
from rrm.prompt.characters import CHARACTERS_PER_TOKEN, CharacterTokenizer
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import CUT_VERSION
from rrm.prompt.windows import Planner


class JudgeParts(Protocol):
    """What is needed of an `AgentRRM`."""

    engine: Any
    """A `TokenEngine` where there is a prompter, else a `ChatEngine`."""
    prompter: Prompter | None
    reader: Prompter | None
    settings: JudgeSettings
    max_windows: int | None
    images: ImageBudget | None
    unfinished: bool
    """Whether a chat model is asked of runs that go on."""


@dataclass(frozen=True)
class Chat:
    """What a judge's model is talked to with."""

    engine: ChatEngine
    planner: Planner
    """Its budget is that of a transcript."""
    reader: Prompter | None
    """With the model's tokenizer, where there is one and the model is on a server."""


def chat_of(judge: JudgeParts) -> Chat:
    """The model as anybody would talk to it, for questions that are not the fixed rubric's."""
    prompter = judge.prompter or judge.reader
    budget = judge.settings.transcript_tokens * (1 if prompter else CHARACTERS_PER_TOKEN)
    tokenizer = prompter.tokenizer if prompter else CharacterTokenizer()
    windows = judge.max_windows if prompter is None else prompter.planner.max_windows
    planner = Planner(tokenizer, budget, prompter.planner.clean if prompter else str, max_windows=windows)
    if judge.prompter is None:
        return Chat(judge.engine, planner, judge.reader)
    return Chat(TemplatedEngine(judge.engine, judge.prompter.tokenizer), planner, None)


def slots_of(judge: JudgeParts) -> tuple[Prompter, SlotReader]:
    """What renders prompts with slots, and what reads these."""
    if judge.prompter is not None:
        return judge.prompter, LocalSlots(judge.engine)
    assert judge.reader is not None
    tokenizer = judge.reader.tokenizer
    timeout = getattr(judge.engine, "timeout_s", SamplingParams.timeout_s)
    return judge.reader, ServedSlots(judge.engine, lambda token: tokenizer.decode([token]), timeout)


def asker_of(judge: JudgeParts, *, slots: bool = False) -> LocalAsker | ServerAsker | CriteriaAsker:
    """Who answers for a judge's readings.

    Args:
        slots: whether slots are read: on a server, their places are those of a judge here.
    """
    settings = judge.settings
    if settings.criteria is not None:
        chat = chat_of(judge)
        return CriteriaAsker(settings.criteria, chat.engine, chat.planner, chat.reader, judge.images, judge.unfinished)
    prompter = judge.reader if slots and judge.prompter is None else judge.prompter
    if prompter is not None:

        def is_bad(raw: float) -> bool:
            return settings.calibration.p_good(raw) < settings.threshold

        sent = judge.prompter is None
        return LocalAsker(judge.engine, prompter, settings.modes, is_bad, settings.max_new_tokens, sent)
    characters = settings.transcript_tokens * CHARACTERS_PER_TOKEN
    cut = settings.prompt_version == CUT_VERSION
    own = Planner(CharacterTokenizer(), characters, max_windows=judge.max_windows, cut=cut)
    planner = own if judge.reader is None else judge.reader.planner
    return ServerAsker(
        judge.engine, planner, judge.reader, settings.modes, settings.opening, judge.images, judge.unfinished
    )
