"""Prompt version 2: a transcript of any length, read in windows (DESIGN §4).

    Task: …
    Tools: …
    40 earlier steps are not listed               only in a window that is not the first: the digest, one exact line for
    [step 41] calls search; gets text (bad)       each earlier step, with the judge's own findings so far
    [step 42]
    agent: …
    call search {"query": "…"}
    result: …
    [step 42] is                                  a slot, where the mode has them: the next token's probability is p_good
    [step 42] calls search (bad)                  the run's end, in a mode with slots: the finding on the first parts of a
                                                  step that goes on in this window, which its own slot does not see
    the run goes on with [step 43]                where it does, in a mode that writes: this is not its end

A window is filled with whole steps from the left; a step longer than a window is read in parts. So a step's window and its
context depend on nothing that comes after: a prefix of a run is read exactly as the whole run is. The last window, with the
ending, is scored; where it holds little, the ending is read once more with as many steps before it as fit.

Version 3 shows canonical steps with noted facts (`rrm.prompt.facts`), a digest without findings, and the same head in every window.
Every text is encoded by itself, so a reading is a list of token ids that is known piece by piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from rrm.data.pictures import in_words
from rrm.data.trajectory import Step, Trajectory
from rrm.prompt.canonical import LEFT_OUT, canonical_room, canonical_step, head_texts, in_form
from rrm.prompt.facts import facts
from rrm.prompt.neutralise import neutralise_digest
from rrm.prompt.rendering import (
    MARKER,
    Tokenizer,
    agent_text,
    head_and_tail,
    head_room,
    observation_text,
    on_one_line,
    render_transcript,
    shown_steps,
    task_and_tools,
    water_fill,
)
from rrm.prompt.rules import check_steps, step_lines

FIRST_HEAD, CANONICAL_HEAD = 0.5, 0.25  # share of the first window for task and tools; what exceeds it loses its middle
# shares of task and tools, and of the digest, in a later window. In version 3 the head is the first window's, and the digest
# shorter: at 1,024 tokens a step of 320 stands whole beside both
HEAD, DIGEST, CANONICAL_DIGEST = 0.125, 0.2, 0.125
MOST_HEAD, MOST_DIGEST = 512, 1024  # tokens at most, however long the window is
# a last window with steps in less than LITTLE of its room is followed by a reading of the ending, which fills ENDING of it
LITTLE, ENDING = 0.25, 0.5
SLOT = "[step {step}] is"  # brackets with a step's number come out of no transcript (`rrm.prompt.neutralise`)
AFTER_SLOT = "\n"  # the input after a slot, whatever the verdict
_NEAR = 16  # tokens in which a character ends
# ends a window without slots that is not the run's end: what has not happened yet is no fault of its steps
GOES_ON = "the run goes on with [step {step}]\n"


@dataclass(frozen=True)
class Slot:
    """A verdict is read from the logits at token `at` of a reading."""

    at: int
    step: int | None  # None: the run's outcome


@dataclass(frozen=True)
class Window:
    """One prompt of a transcript, without the chat template around it."""

    text: str
    ids: list[int]
    # of steps (or parts of steps) that no earlier window showed, in order of `at`, an index into `ids`; empty without slots
    slots: tuple[Slot, ...]
    steps: tuple[int, ...]  # numbers of the steps it shows, whole or in part
    markers: tuple[int, ...]  # step of each `[step k]` that it writes itself, in order: any other would be forged


@dataclass(frozen=True)
class _Piece:
    text: str
    ids: list[int]


_NOTHING = _Piece("", [])


@dataclass(frozen=True)
class _Block:
    step: int
    piece: _Piece
    tokens: int


_Window = list[_Block]


class Planner:
    """Divides transcripts into windows of at most `budget` ids.

    Args:
        tokenizer: its ids are counted and returned; finer ones than tokens have `ids_a_token`.
        budget: ids of a window: task, tools, digest, steps and slots.
        clean: applied to every text of the transcript (disarms a tokenizer's own special tokens).
        slot_end: ids that a slot ends with, so that the two verdicts differ in the next token alone.
        max_windows: windows read of a transcript; None: all (`WindowPlan.limit`).
        canonical: steps in their canonical form (prompt version 3), and every window with the same head.
        step_tokens: ids of a canonical step; a longer one loses the middle of its action or its result. None: all.
        cut: one reading, cut to the budget (prompt version 1).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        budget: int,
        clean: Callable[[str], str] = str,
        slot_end: Sequence[int] = (),
        max_windows: int | None = None,
        canonical: bool = False,
        step_tokens: int | None = None,
        cut: bool = False,
    ) -> None:
        self.canonical, self.step_tokens, self.cut = canonical, step_tokens, cut
        self.tokenizer, self.budget, self.clean, self.max_windows = tokenizer, budget, clean, max_windows
        self.slot_end = list(slot_end)
        self.scale: int = getattr(tokenizer, "ids_a_token", 1)
        self.fixed = self.encode(AFTER_SLOT)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def piece(self, text: str) -> _Piece:
        return _Piece(text, self.encode(text))

    def slot(self, step: int) -> list[int]:
        """Ids of the slot after a step; its verdict is read at the last one."""
        return self.encode(SLOT.format(step=step)) + self.slot_end

    def shortened(self, text: str, keep: int, marker: str = MARKER) -> tuple[str, int]:
        """A text of at most `keep` ids (head, marker and tail), and the number of its ids left out."""
        ids = self.encode(text)
        if len(ids) <= keep:
            return text, 0
        room = max(keep - len(self.encode(marker.format(len(ids)))), 2)
        lost = len(ids) - room
        return head_and_tail(ids, room, self.tokenizer, marker.format(lost // self.scale)), lost

    def told_of(self, trajectory: Trajectory) -> Trajectory:
        """The run that digest and rules describe: of canonical steps the same whatever form the log has."""
        return in_form(in_words(trajectory), "native") if self.canonical else trajectory

    def plan(self, trajectory: Trajectory, *, slots: bool) -> WindowPlan:
        plan = CutPlan(self, trajectory) if self.cut else WindowPlan(self, trajectory, slots)
        if self.max_windows is not None and len(plan) > self.max_windows:
            findings, _ = check_steps(self.told_of(trajectory))
            plan.limit(self.max_windows, {f.step for f in findings if f.verdict == "bad"})
        return plan


class WindowPlan:
    """The windows of one transcript. `reading(i, findings)` renders one; the last is scored.

    The digest of a later window depends on the findings so far.
    """

    def __init__(self, planner: Planner, trajectory: Trajectory, slots: bool) -> None:
        self._planner, self._slots, self._trajectory = planner, slots, trajectory
        trajectory = in_words(trajectory)
        texts = head_texts(trajectory) if planner.canonical else task_and_tools(trajectory)
        head = {label: planner.clean(text) for label, text in texts.items()}
        self._first, cut = self._head(head, int(planner.budget * (CANONICAL_HEAD if planner.canonical else FIRST_HEAD)))
        later = min(int(planner.budget * HEAD), MOST_HEAD * planner.scale)
        self._later, cut_later = (self._first, cut) if planner.canonical else self._head(head, later)
        digest = int(planner.budget * (CANONICAL_DIGEST if planner.canonical else DIGEST))
        self._digest_room = min(digest, MOST_DIGEST * planner.scale)
        whole_head = sum(len(planner.encode(text)) for text in head.values())
        self._first_tokens, self._later_tokens = whole_head - cut, whole_head - cut_later
        self._cut_tokens = 0
        self._facts = facts(trajectory) if planner.canonical else []
        self._windows = self._filled(trajectory.steps)
        blocks = [b for window in self._windows for b in window]
        self._next = {id(b): after.step for b, after in pairwise(blocks)}  # id of a block → number of the next step
        # ids of the blocks that begin a step; the finding on the first part of one is shown if the next part begins a window
        self._starts = {id(b) for before, b in pairwise([None, *blocks]) if b and (not before or before.step < b.step)}
        # of the whole transcript, in ids
        self.transcript_tokens = whole_head + self._cut_tokens + sum(b.tokens for w in self._windows for b in w)
        self._read_ending_again()
        self._kept = list(range(len(self._windows)))

    @cached_property
    def _lines(self) -> list[str]:
        return step_lines(self._planner.told_of(self._trajectory).steps)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def windowed(self) -> bool:
        return len(self._windows) > 1

    @property
    def _head_tokens(self) -> int:
        return self._first_tokens if 0 in self._kept else self._later_tokens

    @cached_property
    def shown_tokens(self) -> int:
        """Transcript tokens (ids) in the readings, each counted once."""
        return self._head_tokens + sum({id(b): b.tokens for i in self._kept for b in self._windows[i]}.values())

    @property
    def coverage(self) -> float:
        return self.shown_tokens / self.transcript_tokens if self.transcript_tokens else 1.0

    @cached_property
    def parted(self) -> frozenset[int]:
        blocks = {id(b): b.step for window in self._windows for b in window}
        return frozenset(step for step, parts in Counter(blocks.values()).items() if parts > 1)

    def steps(self, number: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys(b.step for b in self._windows[self._kept[number]]))

    def new_tokens(self, number: int) -> int:
        """Transcript tokens first shown in the `number`-th reading; task and tools count in the first."""
        new = sum(b.tokens for b in self._windows[self._kept[number]] if self._shown_at[id(b)] == number)
        return new + self._head_tokens * (number == 0)

    def limit(self, most: int, flagged: Collection[int] = ()) -> WindowPlan:
        """Keep at most `most` ≥ 1 windows: the last, the first, those with flagged steps, then from the end."""
        if most < 1:
            raise ValueError(f"max_windows must be at least 1, got {most}")
        last = len(self._windows) - 1
        marked = [i for i, window in enumerate(self._windows) if any(b.step in flagged for b in window)]
        order = list(dict.fromkeys([last, 0, *marked, *range(last, -1, -1)]))
        self._kept = sorted(order[:most])
        for name in ("shown_tokens", "_shown_at"):
            self.__dict__.pop(name, None)  # of the readings before
        return self

    @cached_property
    def _shown_at(self) -> dict[int, int]:
        # id of a block → the first reading that shows it
        return {id(b): n for n in reversed(range(len(self))) for b in self._windows[self._kept[n]]}

    def reading(self, number: int, findings: Mapping[int, bool] | None = None, *, slots: bool | None = None) -> Window:
        """The `number`-th reading, from 0.

        Args:
            findings: number of an earlier step → bad. Version 3 shows none.
            slots: False: without the slots of the plan.
        """
        index = self._kept[number]
        window, planner = self._windows[index], self._planner
        with_slots = self._slots if slots is None else slots and self._slots
        earlier = window[0].step - (id(window[0]) in self._starts) if window else 0
        flags, end, marked = {} if planner.canonical else findings or {}, _NOTHING, 0
        steps_shown = frozenset[int]()
        if with_slots:  # a step's slot is not told what its earlier part's slot said; the run's slot, behind it, is
            steps_shown = frozenset(self.steps(number))
            if earlier in steps_shown and number == len(self) - 1 and flags.get(earlier):
                end, marked = planner.piece(self._line(earlier, bad=True)), earlier
        elif window and (after := self._next.get(id(window[-1]))):
            end, marked = planner.piece(GOES_ON.format(step=after)), after
        digest, markers = self._digest(earlier, flags, steps_shown) if index else (_NOTHING, [])
        pieces = [self._later, digest] if index else [self._first]
        text, ids = "".join(p.text for p in pieces), [i for p in pieces for i in p.ids]
        new_slots: list[Slot] = []
        for block in window:
            text += block.piece.text
            ids += block.piece.ids
            markers += [block.step] * (2 if with_slots else 1)
            if with_slots:
                text += SLOT.format(step=block.step) + AFTER_SLOT
                ids += planner.slot(block.step)
                if self._shown_at[id(block)] == number:
                    new_slots.append(Slot(len(ids) - 1, block.step))
                ids += planner.fixed
        markers += [marked] if marked else []
        return Window(text + end.text, ids + end.ids, tuple(new_slots), self.steps(number), tuple(markers))

    # ---- making it ----

    def _head(self, head: Mapping[str, str], room: int) -> tuple[_Piece, int]:
        """Task and tools within `room` ids, and the number of their ids cut."""
        planner, parts = self._planner, dict[str, str]()
        sizes = {label: len(planner.encode(text)) for label, text in head.items()}
        cut = 0
        rooms, marker = (
            (canonical_room(sizes, room), LEFT_OUT) if planner.canonical else (head_room(sizes, room), MARKER)
        )
        for label, text in head.items():
            if text:
                parts[label], lost = planner.shortened(text, max(rooms[label], 4 * planner.scale), marker)
                cut += lost
        return planner.piece("".join(f"{label}: {text}\n" for label, text in parts.items())), cut

    def _overhead(self, step: int) -> int:
        return len(self._planner.slot(step)) + len(self._planner.fixed) if self._slots else 0

    def _room_of_end(self, step: int) -> int:
        # of the line on a bad step that goes on in the reading
        marks = self._slots and not self._planner.canonical
        return len(self._planner.encode(self._line(step, bad=True))) if marks else 0

    def _filled(self, steps: Sequence[Step]) -> list[_Window]:
        """Fill windows with whole steps from the left; divide a step that no window holds."""
        planner, windows = self._planner, list[_Window]([[]])
        budget = planner.budget - (0 if self._slots else len(planner.encode(GOES_ON.format(step=99999))))
        first = room = budget - len(self._first.ids)
        later = budget - len(self._later.ids) - self._digest_room
        for step in steps:
            overhead = self._overhead(step.index)
            blocks = self._blocks(step, max(room, later) - overhead, min(first, later) - overhead)
            for block in blocks:
                size = len(block.piece.ids) + overhead
                if size > room:
                    windows.append([])
                    room = later - (0 if block is blocks[0] else self._room_of_end(step.index))
                windows[-1].append(block)
                room -= size
        return windows

    def _blocks(self, step: Step, most: int, size: int) -> list[_Block]:
        """A step as one block of at most `most` ids, or in parts of about `size`."""
        planner = self._planner
        if planner.canonical:
            form = canonical_step(step)
            action, result = self._shortened(planner.clean(form.action_text), planner.clean(form.return_text))
        else:
            action, result = f"agent: {agent_text(step.message)}", observation_text(step)
        noted = self._facts[step.index - 1] if planner.canonical else ""
        body = planner.clean("".join(f"{line}\n" for line in (action, result, noted and f"noted: {noted}") if line))
        head = f"[step {step.index}]\n"
        piece = planner.piece(head + body)
        if len(piece.ids) <= most:
            return [_Block(step.index, piece, len(piece.ids))]
        ids = planner.encode(body)
        size -= len(planner.encode(f"{head}(part 999 of 999){MARKER}\n")) + self._room_of_end(step.index)
        size = max(size, 8 * planner.scale)
        chunks = list[list[int]]()
        start = 0
        while start < len(ids):
            end = self._between_characters(ids, start, min(start + size, len(ids)))
            chunks.append(ids[start:end])
            start = end
        blocks = []
        for number, chunk in enumerate(chunks):
            # a line's middle must not begin a line: it would pass for a label of ours
            begins = f"{head}(part {number + 1} of {len(chunks)}){MARKER}" if number else head
            text = planner.tokenizer.decode(chunk).rstrip("\n")
            blocks.append(_Block(step.index, planner.piece(f"{begins}{text}\n"), len(chunk)))
        return blocks

    def _shortened(self, action: str, result: str) -> tuple[str, str]:
        planner = self._planner
        if planner.step_tokens is None:
            return action, result
        sizes = [len(planner.encode(text)) for text in (action, result)]
        (action, lost), (result, more) = map(
            planner.shortened, (action, result), water_fill(sizes, planner.step_tokens)
        )
        self._cut_tokens += lost + more
        return action, result

    def _between_characters(self, ids: Sequence[int], start: int, end: int) -> int:
        """The last position up to `end` that splits no character (one may span tokens); `end` if none is near."""
        decode = self._planner.tokenizer.decode

        def between(position: int) -> bool:
            before, after = list(ids[max(position - _NEAR, start) : position]), list(ids[position : position + _NEAR])
            text = decode(before)  # ends with the sign for half a character, unless that stands in the text
            return not text.endswith("\ufffd") or text + decode(after) == decode(before + after)

        return next((position for position in range(end, max(end - _NEAR, start), -1) if between(position)), end)

    def _line(self, step: int, *, bad: bool) -> str:
        text = neutralise_digest(on_one_line(self._lines[step - 1]))
        return f"[step {step}] {self._planner.clean(text)}{' (bad)' if bad else ''}\n"

    def _digest(self, last: int, findings: Mapping[int, bool], but: Collection[int]) -> tuple[_Piece, list[int]]:
        """Lines of bad and recent steps up to `last` within the digest's room, and their numbers."""
        planner, lines = self._planner, dict[int, str]()
        room = self._digest_room - len(planner.encode("99999 earlier steps are not listed\n"))
        bad = sorted((k for k, is_bad in findings.items() if is_bad and k <= last and k not in but), reverse=True)
        marked = frozenset(bad)
        used = 0
        for share, order in ((room // 2, bad), (room, range(last, 0, -1))):
            for k in order:
                if k in lines:
                    continue
                line = self._line(k, bad=k in marked)
                size = len(planner.encode(line))
                if used + size > share:
                    break
                lines[k] = line
                used += size
        counted = f"{last - len(lines)} earlier steps are not listed\n" if len(lines) < last else ""
        return planner.piece(counted + "".join(lines[k] for k in sorted(lines))), sorted(lines)

    def _read_ending_again(self) -> None:
        """Add a reading of the ending where the last window holds little."""
        room = self._planner.budget - len(self._later.ids) - self._digest_room
        last = self._windows[-1]
        if len(self._windows) == 1 or sum(len(b.piece.ids) for b in last) >= LITTLE * room:
            return
        chosen: list[_Block] = []
        room = int(room * ENDING)
        for block in reversed([b for window in self._windows for b in window]):
            room -= len(block.piece.ids) + self._overhead(block.step)
            if room < 0:
                break
            chosen.insert(0, block)
        if len(chosen) > len(last):
            self._windows.append(chosen)


class CutPlan(WindowPlan):
    """A transcript cut to one reading (prompt version 1); the rest is left out, and counted."""

    def __init__(self, planner: Planner, trajectory: Trajectory, budget: int | None = None) -> None:
        rendered = render_transcript(trajectory, planner.tokenizer, planner.budget if budget is None else budget)
        text = planner.clean(rendered.text)
        steps = tuple(sorted(shown_steps(text)))
        self._read = Window(text, planner.encode(text), (), steps, steps)
        self._windows, self._kept = [[]], [0]
        self.shown_tokens = len(self._read.ids)
        self.transcript_tokens = self.shown_tokens + rendered.truncated_tokens

    def limit(self, most: int, flagged: Collection[int] = ()) -> WindowPlan:
        return self

    def reading(self, number: int, findings: Mapping[int, bool] | None = None, *, slots: bool | None = None) -> Window:
        return self._read
