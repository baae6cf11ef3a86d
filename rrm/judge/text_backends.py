"""Who writes a reading's judgement: a chat engine, or a model here (`windowed` says in which order readings come)."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rrm.data.annotation import Finding
from rrm.data.feedback import Mode, Reads
from rrm.data.pictures import ImageBudget, VisibleImages
from rrm.data.trajectory import Trajectory
from rrm.engines.base import ChatEngine, Reply, Request, SamplingParams, TokenEngine
from rrm.errors import EngineError
from rrm.judge.chat import ChatItem, Judgement, read_reply, sampled_as
from rrm.judge.expected_score import branch_logprobs
from rrm.judge.local import TOO_LONG, fits, judge_rows, written_at_most
from rrm.judge.repair import SCORE, is_repair, score_problem, with_repair
from rrm.judge.windowed import Ended, JudgeState, WindowRequest, hear_in_rounds, next_ask
from rrm.prompt.neutralise import neutralise_special
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import GRID_TOLD, OPENINGS, rubric
from rrm.prompt.windows import Planner, WindowPlan

# ---- a server ----


@dataclass(frozen=True)
class ServerAsker:
    """Asks a chat engine, for all readings of a round at once where it can.

    Args:
        planner: divides transcripts, with the tokenizer of the judge or in characters.
        reader: with the judge's tokenizer, where there is one.
        trained: the modes the judge was trained in; empty: any.
        opening: whether the reply's first tag is put into its mouth.
    """

    engine: ChatEngine
    planner: Planner
    reader: Prompter | None
    trained: Sequence[Mode]
    opening: bool
    images: ImageBudget | None = None
    """What it is shown of pictures; None: words in their places."""
    unfinished: bool = False
    """Whether runs go on after what is shown."""
    _tokenizing: threading.RLock = field(default_factory=threading.RLock, repr=False)
    """Transcripts are planned in one thread while another one writes their later readings."""

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        """How a transcript is read, and what its earlier readings are asked for."""
        with self._tokenizing:
            return self._plan(trajectory, mode)

    def _plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        plan, earlier = self.planner.plan(trajectory, slots=False), writes(mode, self.trained)
        return (plan, earlier) if earlier != "score" else (plan.limit(1), mode)

    def measure(self, trajectory: Trajectory, mode: Mode, samples: int) -> Reads:
        """What is read of a transcript, a request for each reading of each sample; tokens without findings, estimated in
        characters where there is no tokenizer."""
        chain = JudgeState(trajectory, *self.plan(trajectory, mode), mode=mode)
        contents = [m["content"] for number in range(len(chain.plan)) for m in self.messages(next_ask(chain, number))]
        tokens = sum(len(self.planner.encode(text)) for text in contents) // self.planner.scale
        return Reads(tokens * samples, len(chain.plan) * samples, chain.plan.coverage)

    def sampled(self, params: SamplingParams) -> dict[str, Any]:
        """`rrm.judge.chat.sampled_as`."""
        return sampled_as(self.engine, params)

    def messages(self, ask: WindowRequest) -> list[dict[str, str]]:
        """A reading as it is sent."""
        content = neutralise_special(ask.chain.plan.reading(ask.number, ask.marks).text)
        told = rubric(ask.mode, unfinished=self.unfinished) + (
            GRID_TOLD if ask.last and not (self.trained or self.reader) else ""
        )
        messages = [{"role": "system", "content": told}, {"role": "user", "content": content}]
        return with_pictures(ask, messages if self.reader is None else self.reader.as_taken(messages))

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
        """Ask for the readings of each, one right after the other."""

        def answered(request: Request, reply: Reply | EngineError) -> Request | None:
            ask, item = request.about
            ask.chain.take(ask, read_reply(reply if isinstance(reply, EngineError) else item.opened(reply)))
            if ask.chain.result is None:
                return self.request(ask.chain, ask.number + 1)
            ended(ask.chain)
            return None

        def opening(request: Request) -> str:
            if is_repair(request):
                return ""
            ask, item = request.about
            return item.opening if ask.last else ""  # of earlier readings no score is wanted

        def problem(request: Request, reply: Reply) -> str | None:
            ask, item = request.about
            return score_problem(request, reply) if ask.last and not item.opening else None

        hear = with_repair(self.engine, answered, replace(SCORE, problem=problem))
        branch_logprobs(self.engine, (self.request(chain, 0) for chain in chains), params, hear, opening)

    def request(self, chain: JudgeState, number: int) -> Request:
        """What is sent for a reading."""
        ask = next_ask(chain, number)
        with self._tokenizing:
            messages = self.messages(ask)
        opening = OPENINGS[ask.mode] if self.opening else ""
        item = ChatItem(ask.key, messages, chain.n_steps, opening=opening)
        begins, left = number == 0 and chain.sample == 0, len(chain.plan) - number
        return Request(item.request(), item.id, begins, about=(ask, item), readings=left)


def with_pictures(ask: WindowRequest, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the pictures whose marks they hold, where the judge sees."""
    trajectory = ask.chain.trajectory
    if not isinstance(trajectory, VisibleImages):
        return messages
    return [{**message, "content": trajectory.parts(message["content"])} for message in messages]


def writes(mode: Mode, trained: Sequence[Mode]) -> Mode:
    """The mode in which a judge says what it finds in an earlier reading; `score` where it was trained to say nothing."""
    if mode != "score":
        return mode
    if not trained or "critique" in trained:
        return "critique"
    return "full" if "full" in trained else "score"


# ---- a model here ----


def local_plan(
    prompter: Prompter, trajectory: Trajectory, mode: Mode, trained: Sequence[Mode]
) -> tuple[WindowPlan, Mode]:
    """How a judge trained in these modes reads a transcript here, and what its earlier readings are asked for: with room for
    slots where it is slots. Training rows are cut by it too."""
    plan = prompter.plan(trajectory, mode)
    if mode != "score" or len(plan) == 1:
        return plan, mode
    if "steps" in trained:
        return prompter.plan(trajectory, "steps"), "steps"
    earlier = writes(mode, trained)
    return (plan, earlier) if earlier != "score" else (plan.limit(1), mode)


@dataclass(frozen=True)
class LocalAsker:
    """Asks a model in this process.

    Args:
        trained: the modes the judge was trained in; empty: any but `steps`.
        is_bad: whether a step of this raw probability is called bad.
        max_new_tokens: of a reply.
        slots_sent: `measure` is of a server, which is sent a prompt once for each slot, as far as that slot (`slots.ServedSlots`).
    """

    engine: TokenEngine
    prompter: Prompter
    trained: Sequence[Mode]
    is_bad: Callable[[float], bool]
    max_new_tokens: int
    slots_sent: bool = False

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        """`local_plan`."""
        return local_plan(self.prompter, trajectory, mode, self.trained)

    @property
    def planner(self) -> Planner:
        """Divides transcripts."""
        return self.prompter.planner

    def measure(self, trajectory: Trajectory, mode: Mode, samples: int) -> Reads:
        """What is read of a transcript; tokens without findings. Equal prompts are prefilled once: the first reading of all
        samples."""
        chain = JudgeState(trajectory, *self.plan(trajectory, mode), mode=mode)
        asks = [next_ask(chain, number) for number in range(len(chain.plan))]
        prompts = [self.prompter.reading(chain.plan, ask.number, ask.mode) for ask in asks]
        first, *later = [
            sum(slot.at + 1 for slot in prompt.slots) if self.slots_sent else len(prompt.ids) for prompt in prompts
        ]
        written = sum(written_at_most(p, a.mode, self.max_new_tokens) for p, a in zip(prompts, asks, strict=True))
        return Reads(first + sum(later) * samples, len(asks) * samples, chain.plan.coverage, written * samples)

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
        """Ask for the readings of all, round by round."""
        hear_in_rounds(self, chains, params, ended)

    def ask(
        self, asks: Sequence[WindowRequest], params: SamplingParams, take: Callable[[WindowRequest, Judgement], None]
    ) -> None:
        """What each reading says, through `take` as it comes."""
        by_mode: dict[Mode, list[int]] = defaultdict(list)
        prompts = [self.prompter.reading(a.chain.plan, a.number, a.mode, a.marks) for a in asks]
        for i, (ask, prompt) in enumerate(zip(asks, prompts, strict=True)):
            if fits(self.engine, prompt, ask.mode, self.max_new_tokens):
                by_mode[ask.mode].append(i)
            else:
                take(ask, Judgement("too_long", reason=TOO_LONG))
        for mode, chosen in by_mode.items():
            if mode == "steps":
                slots = [[slot.at for slot in prompts[i].slots] for i in chosen]
                rows = [prompts[i].ids for i in chosen]
                found = self.engine.choice_logprobs(rows, slots, self.prompter.choices)
                for i, logprobs in zip(chosen, found, strict=True):
                    steps = [slot.step for slot in prompts[i].slots]
                    take(asks[i], Judgement("scored", findings=tuple(self._found(steps, logprobs))))
                continue

            def on_row(row: int, judgements: list[Judgement], chosen: list[int] = chosen) -> None:
                take(asks[chosen[row]], judgements[0])

            names = [asks[i].key for i in chosen]
            judge_rows(self.engine, self.prompter, [prompts[i] for i in chosen], names, mode, params, 1, on_row)

    def sampled(self, params: SamplingParams) -> dict[str, Any]:
        """Nothing: each judgement knows its own temperature, as a retry's is another."""
        return {}

    def _found(self, steps: Sequence[int | None], logprobs: Sequence[Sequence[float]]) -> list[Finding]:
        """A finding a slot, by the raw probability."""
        sure = [(step, math.exp(good)) for step, (good, _) in zip(steps, logprobs, strict=True) if step is not None]
        return [Finding(step=k, verdict="bad" if self.is_bad(p) else "good", p_good=min(p, 1.0)) for k, p in sure]
