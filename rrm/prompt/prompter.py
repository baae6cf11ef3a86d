"""A tokenizer, a token budget and the judge's prompt format, in one place for training and judging.

The prompt of a local judge ends with its reply's opening tag (`<score>`, `<critique>` or `<think>`), so sampled tokens begin at
a fixed token boundary. In mode `steps` nothing is sampled: verdicts are read at slots.
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

GRID = tuple(round(i / 10, 1) for i in range(11))  # scores in text: 0.0, 0.1 … 1.0
VERDICTS = (" good", " bad")  # next tokens of a slot
PROGRESS = (" yes", " no")  # second readout of a step's slot: will the run succeed (DESIGN §4)
# transformers' warning of a text longer than a model's positions: a transcript is counted, then cut
LENGTH_WARNING = "sequence-length-is-longer-than-the-specified-maximum"
_CONTENT = "the transcript stands here"


@dataclass(frozen=True)
class Prompt:
    """Token ids of a prompt and how many transcript tokens the budget cut."""

    ids: list[int]
    truncated_tokens: int
    # mode `steps`: verdicts are read here; the outcome (`step` None) at the end of the last reading
    slots: tuple[Slot, ...] = ()
    steps: tuple[int, ...] = ()  # shown, from version 2 on
    # share of the transcript's tokens shown: here, or from version 2 on in all readings of the plan
    coverage: float = 1.0


class Prompter:
    """Makes a judge's prompts in its base's form (`rrm.prompt.template`); transcripts stay plain text.

    Args:
        tokenizer: the base's or a saved judge's. It gets the chat template its judge is trained and used with.
        transcript_tokens: budget of a rendered transcript, from version 2 on of a window.
        version: 1 cuts what exceeds the budget, 2 reads it in windows (`rrm.prompt.windows`), 3 the same with canonical steps.
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
        if isinstance(warned := getattr(tokenizer, "deprecation_warnings", None), dict):
            warned[LENGTH_WARNING] = True  # not by a larger model_max_length, which would be saved with the judge
        self.eos_token_id: int = set_template(tokenizer)  # ends a reply: the base's own end of a turn
        self._disarm = SpecialTokenEscaper(tokenizer)
        good, bad = (self.encode(word) for word in VERDICTS)
        yes, no = (self.encode(word)[0] for word in PROGRESS)
        self.progress_choices: tuple[int, int] = (yes, no)  # tokens of the second readout: success, failure
        shared = next((i for i, pair in enumerate(zip(good, bad, strict=False)) if pair[0] != pair[1]), None)
        if shared is None:
            raise RRMError("the tokenizer gives ' good' and ' bad' no token in which they differ: choose another base")
        self.choices: tuple[int, int] = (good[shared], bad[shared])  # a slot's tokens: good, bad
        canonical = version == CANONICAL_VERSION
        self.planner = Planner(
            tokenizer, transcript_tokens, self._disarm, good[:shared], max_windows, canonical, step_tokens,
            cut=version == CUT_VERSION,
        )  # fmt: skip
        self._around: dict[Mode, tuple[list[int], list[int]]] = {}

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    # ---- readings ----

    def plan(self, trajectory: Trajectory, mode: Mode) -> WindowPlan:
        """The readings of a transcript; one where it fits, and in version 1."""
        plan = self.planner.plan(trajectory, slots=mode == "steps")
        if self.version == CUT_VERSION and (cut := plan.transcript_tokens - plan.shown_tokens):
            shown_tokens = len(self.reading(plan, 0, mode).ids) - sum(map(len, self._template(mode)))
            plan.shown_tokens, plan.transcript_tokens = shown_tokens, shown_tokens + cut
        return plan

    def reading(self, plan: WindowPlan, number: int, mode: Mode, findings: Mapping[int, bool] | None = None) -> Prompt:
        """The prompt of reading `number`, from 0; `findings` (step → bad) stand in the digest of version 2."""
        before, after = self._template(mode)
        window = plan.reading(number, findings, slots=mode == "steps")
        cut = plan.transcript_tokens - plan.shown_tokens
        if self.version == CUT_VERSION:  # encoded as one text
            text = render(self.tokenizer, self._messages(mode, window.text)) + OPENINGS[mode]
            return Prompt(self.encode(text), cut, coverage=plan.coverage)
        ids = before + window.ids
        slots = tuple(Slot(slot.at + len(before), slot.step) for slot in window.slots)
        last = number == len(plan) - 1
        if last or mode != "steps":
            ids = ids + after
        if last and mode == "steps":
            slots = (*slots, Slot(len(ids) - 1, None))
        return Prompt(ids, cut, slots, window.steps, plan.coverage)

    @property
    def after_slot(self) -> list[int]:
        return self.planner.fixed

    def _template(self, mode: Mode) -> tuple[list[int], list[int]]:
        """Ids before a transcript and after it: rubric, roles, and the opening of the reply."""
        if mode not in self._around:
            before, _, after = render(self.tokenizer, self._messages(mode, _CONTENT)).rpartition(_CONTENT)
            end = self.encode(after + OPENINGS[mode])
            self._around[mode] = self.encode(before), end + (self.planner.slot_end if mode == "steps" else [])
        return self._around[mode]

    # ---- one prompt ----

    def messages(self, trajectory: Trajectory, mode: Mode) -> tuple[list[dict[str, str]], int]:
        """Rubric (system) and transcript (user) of the last reading, and the number of transcript tokens cut."""
        plan = self.plan(trajectory, mode).limit(1)
        return self._messages(mode, plan.reading(0).text), plan.transcript_tokens - plan.shown_tokens

    def _messages(self, mode: Mode, content: str) -> list[dict[str, str]]:
        return [{"role": "system", "content": rubric(mode, self.version)}, {"role": "user", "content": content}]

    def as_taken(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        return as_taken(self.tokenizer, messages)

    def text(self, trajectory: Trajectory, mode: Mode) -> tuple[str, int]:
        """Prompt of the last reading as text, and the number of transcript tokens cut."""
        messages, cut = self.messages(trajectory, mode)
        return render(self.tokenizer, messages) + OPENINGS[mode], cut

    def prompt(self, trajectory: Trajectory, mode: Mode) -> Prompt:
        """The prompt of the last reading."""
        return self.reading(self.plan(trajectory, mode).limit(1), 0, mode)

    def grid(self) -> list[list[int]]:
        return [self.encode(f"{value:.1f}") for value in GRID]
