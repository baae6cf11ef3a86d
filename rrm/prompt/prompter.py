"""Prompter: a tokenizer, a token budget and the judge's prompt format, in one place for training and judging.

The prompt a local judge reads ends with its reply's opening tag (`<score>`, `<critique>` or `<think>`), so the sampled
tokens begin at a fixed token boundary in training and in use. In mode `steps` nothing is sampled: verdicts are read at slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rrm.data.feedback import Mode
from rrm.data.trajectory import Trajectory
from rrm.errors import RRMError
from rrm.prompt.rendering import CANONICAL_VERSION, CUT_VERSION, OPENINGS, PROMPT_VERSION, PROMPT_VERSIONS, rubric
from rrm.prompt.template import SpecialTokenEscaper, as_taken, render, set_template
from rrm.prompt.windows import Planner, Slot, WindowPlan

GRID = tuple(round(i / 10, 1) for i in range(11))
"""The values a score may take in text: 0.0, 0.1 … 1.0."""
VERDICTS = (" good", " bad")
"""What a slot's next token may be."""
PROGRESS = (" yes", " no")
"""The second readout of a step's slot: whether the run will succeed (DESIGN §4)."""
TOO_LONG = "sequence-length-is-longer-than-the-specified-maximum"
"""The warning of transformers where a text has more tokens than a model's positions: a transcript is counted, then cut."""
_CONTENT = "the transcript stands here"


@dataclass(frozen=True)
class Prompt:
    """Token ids of a prompt and how many transcript tokens the budget cut."""

    ids: list[int]
    truncated_tokens: int
    slots: tuple[Slot, ...] = ()
    """In mode `steps`: where the verdicts are read; the run's outcome (`step` None) at the end of the last reading."""
    steps: tuple[int, ...] = ()
    """In version 2: the steps it shows."""
    coverage: float = 1.0
    """Share of the transcript's tokens that is shown: here, or in version 2 in all of its plan's readings."""


class Prompter:
    """Makes a judge's prompts, in the form of its base (`rrm.prompt.template`), and keeps transcripts plain text.

    Args:
        tokenizer: the base's or a saved judge's. It gets the chat template its judge is trained and used with.
        transcript_tokens: budget of a rendered transcript, in version 2 of a window.
        version: prompt version; 1 cuts what exceeds the budget, 2 reads it in windows (`rrm.prompt.windows`), 3 the same of canonical steps.
        max_windows: of a transcript, from version 2 on; None: as many as it takes.
        step_tokens: of a step, in version 3; None: all of it.

    Raises:
        RRMError: the tokenizer names no token that could end a reply, or there is no such version.
    """

    def __init__(
        self,
        tokenizer: Any,
        transcript_tokens: int,
        version: str = PROMPT_VERSION,
        max_windows: int | None = None,
        step_tokens: int | None = None,
    ) -> None:
        if version not in PROMPT_VERSIONS:
            raise RRMError(
                f"there is no prompt version {version!r}: those that are known are {', '.join(PROMPT_VERSIONS)}"
            )
        self.tokenizer = tokenizer
        self.transcript_tokens = transcript_tokens
        self.version = version
        if isinstance(told := getattr(tokenizer, "deprecation_warnings", None), dict):
            told[TOO_LONG] = True  # not by a larger model_max_length, which would be saved with the judge
        self.eos_token_id: int = set_template(tokenizer)
        """Ends a reply: the base's own end of a turn."""
        self._disarm = SpecialTokenEscaper(tokenizer)
        good, bad = (self.encode(word) for word in VERDICTS)
        yes, no = (self.encode(word)[0] for word in PROGRESS)
        self.progress_choices: tuple[int, int] = (yes, no)
        """The two tokens of the second readout: success, failure."""
        shared = next((i for i, pair in enumerate(zip(good, bad, strict=False)) if pair[0] != pair[1]), None)
        if shared is None:
            raise RRMError("the tokenizer gives ' good' and ' bad' no token in which they differ: choose another base")
        self.choices: tuple[int, int] = (good[shared], bad[shared])
        """The two tokens a slot chooses from: good, bad."""
        canonical = version == CANONICAL_VERSION
        self.planner = Planner(
            tokenizer, transcript_tokens, self._disarm, good[:shared], max_windows, canonical, step_tokens,
            cut=version == CUT_VERSION,
        )  # fmt: skip
        """Divides transcripts into windows; in version 1 it cuts them."""
        self._around: dict[Mode, tuple[list[int], list[int]]] = {}

    def encode(self, text: str) -> list[int]:
        """Token ids of our own text, without special tokens added."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    # ---- readings ----

    def plan(self, trajectory: Trajectory, mode: Mode) -> WindowPlan:
        """How a transcript is read: its readings, one where it fits and in version 1."""
        plan = self.planner.plan(trajectory, slots=mode == "steps")
        if self.version == CUT_VERSION and (cut := plan.transcript_tokens - plan.shown_tokens):
            shown = len(self.reading(plan, 0, mode).ids) - sum(map(len, self._template(mode)))
            plan.shown_tokens, plan.transcript_tokens = shown, shown + cut
        return plan

    def reading(self, plan: WindowPlan, number: int, mode: Mode, findings: Mapping[int, bool] | None = None) -> Prompt:
        """The prompt of a plan's `number`-th reading, from 0; the last one ends with the slot of the run's outcome.

        Args:
            findings: of earlier steps: True where a step is bad. They stand in the digest, but not in version 3's.
        """
        before, after = self._template(mode)
        read = plan.reading(number, findings, slots=mode == "steps")
        cut = plan.transcript_tokens - plan.shown_tokens
        if self.version == CUT_VERSION:  # encoded as one text
            text = render(self.tokenizer, self._messages(mode, read.text)) + OPENINGS[mode]
            return Prompt(self.encode(text), cut, coverage=plan.coverage)
        ids = before + read.ids
        slots = tuple(Slot(slot.at + len(before), slot.step) for slot in read.slots)
        last = number == len(plan) - 1
        if last or mode != "steps":
            ids = ids + after
        if last and mode == "steps":
            slots = (*slots, Slot(len(ids) - 1, None))
        return Prompt(ids, cut, slots, read.steps, plan.coverage)

    @property
    def after_slot(self) -> list[int]:
        """The input that follows a slot, whatever the verdict."""
        return self.planner.fixed

    def _template(self, mode: Mode) -> tuple[list[int], list[int]]:
        """Ids of what stands before a transcript and after it: rubric, roles, and the opening of the reply."""
        if mode not in self._around:
            before, _, after = render(self.tokenizer, self._messages(mode, _CONTENT)).rpartition(_CONTENT)
            end = self.encode(after + OPENINGS[mode])
            self._around[mode] = self.encode(before), end + (self.planner.slot_end if mode == "steps" else [])
        return self._around[mode]

    # ---- one prompt ----

    def messages(self, trajectory: Trajectory, mode: Mode) -> tuple[list[dict[str, str]], int]:
        """Rubric (system) and transcript (user), and how many transcript tokens the budget cut.

        No special token of this tokenizer comes out of the transcript when it is encoded. It is the last reading, without findings.
        """
        plan = self.plan(trajectory, mode).limit(1)
        return self._messages(mode, plan.reading(0).text), plan.transcript_tokens - plan.shown_tokens

    def _messages(self, mode: Mode, content: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": rubric(mode, self.version)}, {"role": "user", "content": content}]

    def as_taken(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        """The messages in the roles that this base's template has (`rrm.prompt.template.as_taken`)."""
        return as_taken(self.tokenizer, messages)

    def text(self, trajectory: Trajectory, mode: Mode) -> tuple[str, int]:
        """Rubric, transcript and the opening of the reply as text, and how many transcript tokens the budget cut."""
        messages, cut = self.messages(trajectory, mode)
        return render(self.tokenizer, messages) + OPENINGS[mode], cut

    def prompt(self, trajectory: Trajectory, mode: Mode) -> Prompt:
        """Rubric, transcript and the opening of the reply, as token ids, of the last reading."""
        return self.reading(self.plan(trajectory, mode).limit(1), 0, mode)

    def grid(self) -> list[list[int]]:
        """Token ids of each grid value as it stands between the score tags."""
        return [self.encode(f"{value:.1f}") for value in GRID]
