"""Transcripts cut to one prompt, as judges of prompt version 1 read them; later ones read in windows (`rrm.judge.windowed`).

What exceeds the budget is left out of the prompt, and counted: `truncated_tokens`, `coverage`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from rrm.data.feedback import Feedback, JudgeInfo, Mode, Reads
from rrm.data.trajectory import Trajectory
from rrm.engines.base import ChatEngine, SamplingParams, TokenEngine
from rrm.judge.chat import ChatItem, Judgement, judge_chat
from rrm.judge.judge_request import JudgeRequest
from rrm.judge.local import TOO_LONG, fits, judge_rows, written_at_most
from rrm.prompt.characters import CHARACTERS_PER_TOKEN, CharacterTokenizer
from rrm.prompt.neutralise import neutralise_special
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import OPENINGS, judge_messages


@dataclass(frozen=True)
class LocalCut:
    """Judges with a model in this process.

    Args:
        max_new_tokens: of a reply.
    """

    engine: TokenEngine
    prompter: Prompter
    max_new_tokens: int

    def judge(self, trajectories: Sequence[Trajectory], wanted: JudgeRequest) -> list[list[Feedback]]:
        """Each transcript's judgements; one, `too_long`, where its prompt exceeds the model's positions."""
        mode, done = wanted.mode, dict[int, list[Feedback]]()
        prompts = [self.prompter.prompt(t, mode) for t in trajectories]
        items = [
            ChatItem(t.id, [], len(t.steps), p.truncated_tokens, p.coverage)
            for t, p in zip(trajectories, prompts, strict=True)
        ]

        def take(row: int, found: list[Feedback]) -> None:
            done[row] = found
            wanted.tell(found)

        fit = [i for i, prompt in enumerate(prompts) if fits(self.engine, prompt, mode, self.max_new_tokens)]
        for i in sorted(set(range(len(prompts))) - set(fit)):
            take(i, [_too_long(items[i], wanted.info)])

        def on_row(row: int, judgements: list[Judgement]) -> None:
            take(fit[row], wanted.rows(items[fit[row]], judgements))

        names = [trajectories[i].id for i in fit]
        chosen = [prompts[i] for i in fit]
        judge_rows(self.engine, self.prompter, chosen, names, mode, wanted.params, wanted.samples, on_row)
        return [done[row] for row in range(len(trajectories))]

    def measure(self, trajectory: Trajectory, mode: Mode, samples: int) -> Reads:
        """What is read of a transcript: its prompt once, for all samples."""
        prompt = self.prompter.prompt(trajectory, mode)
        written = written_at_most(prompt, mode, self.max_new_tokens)
        return Reads(len(prompt.ids), samples, prompt.coverage, written * samples)


def _too_long(item: ChatItem, info: JudgeInfo) -> Feedback:
    return Feedback(
        id=item.id, status="too_long", truncated_tokens=item.truncated_tokens, coverage=0.0, judge=info, reason=TOO_LONG
    )


@dataclass(frozen=True)
class ServerCut:
    """Judges over a chat engine.

    Args:
        reader: renders with the judge's own tokenizer; without one a token counts as four characters.
        transcript_tokens: budget of the rendered transcript, where there is no reader.
        opening: whether the reply's first tag is put into its mouth.
    """

    engine: ChatEngine
    reader: Prompter | None
    transcript_tokens: int
    opening: bool

    def judge(self, trajectories: Sequence[Trajectory], wanted: JudgeRequest) -> list[list[Feedback]]:
        """Each transcript's judgements; those that are rows of their own are sampled under seeds of their own."""
        items = [self.item(t, wanted.mode) for t in trajectories]

        def judged(params: SamplingParams, samples: int) -> list[Feedback]:
            return judge_chat(
                self.engine,
                items,
                info=wanted.info,
                params=params,
                samples=samples,
                calibrate=partial(wanted.calibration.apply, wanted.mode),
                on_feedback=wanted.on_feedback,
            )

        if wanted.together:
            return [[feedback] for feedback in judged(wanted.params, wanted.samples)]
        seeds = range(wanted.params.seed, wanted.params.seed + wanted.samples)
        runs = [judged(replace(wanted.params, seed=seed), 1) for seed in seeds]
        return [list(row) for row in zip(*runs, strict=True)]

    def item(self, trajectory: Trajectory, mode: Mode) -> ChatItem:
        """A transcript as it is sent."""
        if self.reader is not None:
            messages, cut = self.reader.messages(trajectory, mode)
            shown = len(self.reader.encode(messages[-1]["content"])) if cut else 1
            coverage = shown / (shown + cut)
        else:
            budget = self.transcript_tokens * CHARACTERS_PER_TOKEN
            messages, characters = judge_messages(trajectory, mode, CharacterTokenizer(), budget)
            cut = -(-characters // CHARACTERS_PER_TOKEN)
            coverage = (shown := len(messages[-1]["content"])) / (shown + characters)
        messages[-1]["content"] = neutralise_special(messages[-1]["content"])
        if self.reader is not None:
            messages = self.reader.as_taken(messages)  # as it was trained, where its template has no system role
        opening = OPENINGS[mode] if self.opening else ""
        return ChatItem(trajectory.id, messages, len(trajectory.steps), cut, coverage, opening)

    def measure(self, trajectory: Trajectory, mode: Mode, samples: int) -> Reads:
        """What is read of a transcript, a request a sample; tokens are estimated by its characters."""
        item = self.item(trajectory, mode)
        tokens = sum(len(m["content"]) for m in item.messages) // CHARACTERS_PER_TOKEN
        return Reads(tokens * samples, samples, item.coverage or 0.0)
