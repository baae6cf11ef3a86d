"""Backends that answer a judge's readings: a chat engine or a local model."""

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
from rrm.judge.chat import SCORE, Judgement, is_repair, read_reply, sampled_as, score_problem, with_repair
from rrm.judge.expected_score import branch_logprobs, with_opening
from rrm.judge.local import excess, judge_rows, reserved, too_long, written_at_most
from rrm.judge.windowed import Ended, JudgeState, Take, WindowRequest, hear_in_rounds, next_ask
from rrm.prompt.neutralise import neutralise_special
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import GRID_TOLD, OPENINGS, rubric
from rrm.prompt.windows import CutPlan, Planner, WindowPlan

# ---- a server ----


@dataclass(frozen=True)
class Chat:
    engine: ChatEngine
    planner: Planner  # divides transcripts by the model's tokenizer or in characters; its budget is a window's
    reader: Prompter | None  # has the tokenizer of a model on a server, where known


@dataclass(frozen=True)
class ServerBackend(Chat):
    """Ask a chat engine, for all readings of a round at once where it can.

    Args:
        trained: modes the judge was trained in; empty: any.
        opening: prefill the reply with its first tag.
        unfinished: runs continue after the messages that are shown.
    """

    trained: Sequence[Mode] = ()
    opening: bool = False
    images: ImageBudget | None = None
    unfinished: bool = False
    # one thread plans transcripts while another writes their later readings
    _tokenizing: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        """Return a transcript's windows, and the mode of all but the last."""
        with self._tokenizing:
            return self._plan(trajectory, mode)

    def _plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        plan, earlier = self.planner.plan(trajectory, slots=False), writes(mode, self.trained)
        return (plan, earlier) if earlier != "score" else (plan.limit(1), mode)

    def measure(self, trajectory: Trajectory, mode: Mode, samples: int) -> Reads:
        """Count tokens without findings (estimated without a tokenizer), and a request per reading and sample."""
        chain = JudgeState(trajectory, *self.plan(trajectory, mode), mode=mode)
        contents = [m["content"] for number in range(len(chain.plan)) for m in self.messages(next_ask(chain, number))]
        tokens = sum(len(self.planner.encode(text)) for text in contents) // self.planner.scale
        return Reads(tokens * samples, len(chain.plan) * samples, chain.plan.coverage)

    def sampled(self, params: SamplingParams) -> dict[str, Any]:
        return sampled_as(self.engine, params)

    def messages(self, ask: WindowRequest) -> list[dict[str, str]]:
        content = neutralise_special(ask.chain.plan.reading(ask.number, ask.marks).text)
        system = rubric(ask.mode, unfinished=self.unfinished) + (
            GRID_TOLD if ask.last and not (self.trained or self.reader or self.planner.cut) else ""
        )
        messages = [{"role": "system", "content": system}, {"role": "user", "content": content}]
        return with_pictures(ask, messages if self.reader is None else self.reader.as_taken(messages))

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
        def answered(request: Request, reply: Reply | EngineError) -> Request | None:
            ask, opened = request.about
            ask.chain.take(ask, read_reply(reply if isinstance(reply, EngineError) else with_opening(reply, opened)))
            if ask.chain.result is None:
                return self.request(ask.chain, ask.number + 1)
            ended(ask.chain)
            return None

        def opening(request: Request) -> str:
            if is_repair(request):
                return ""
            ask, opened = request.about
            return opened if ask.last else ""  # of earlier readings no score is wanted

        def problem(request: Request, reply: Reply) -> str | None:
            ask, opened = request.about  # a judge that was trained to go on from there knows no talk
            return score_problem(request, reply) if ask.last and not opened else None

        hear = with_repair(self.engine, answered, replace(SCORE, problem=problem))
        branch_logprobs(self.engine, (self.request(chain, 0) for chain in chains), params, hear, opening)

    def request(self, chain: JudgeState, number: int) -> Request:
        ask = next_ask(chain, number)
        with self._tokenizing:
            messages = self.messages(ask)
        opening = OPENINGS[ask.mode] if self.opening else ""
        messages += [{"role": "assistant", "content": opening}] if opening else []
        begins, left = number == 0 and chain.sample == 0, len(chain.plan) - number
        return Request(messages, ask.key, begins, about=(ask, opening), readings=left)


def with_pictures(ask: WindowRequest, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    trajectory = ask.chain.trajectory
    if not isinstance(trajectory, VisibleImages):
        return messages
    return [{**message, "content": trajectory.parts(message["content"])} for message in messages]


def writes(mode: Mode, trained: Sequence[Mode]) -> Mode:
    """Return the mode of earlier readings; `score` where the judge was trained to write nothing."""
    if mode != "score":
        return mode
    if not trained or "critique" in trained:
        return "critique"
    return "full" if "full" in trained else "score"


# ---- a model here ----


def local_plan(
    prompter: Prompter, trajectory: Trajectory, mode: Mode, trained: Sequence[Mode]
) -> tuple[WindowPlan, Mode]:
    """Return a local judge's windows, which also cut training rows, and the mode of all but the last."""
    plan = prompter.plan(trajectory, mode)
    if mode != "score" or len(plan) == 1:
        return plan, mode
    if "steps" in trained:
        return prompter.plan(trajectory, "steps"), "steps"
    earlier = writes(mode, trained)
    return (plan, earlier) if earlier != "score" else (plan.limit(1), mode)


@dataclass(frozen=True)
class LocalBackend:
    """Ask a model in this process.

    Args:
        trained: modes the judge was trained in; empty: any but `steps`.
        is_bad: maps a step's raw probability to its mark in later readings.
        slots_sent: `measure` counts for a server that gets a prompt per slot (`rrm.judge.steps.ServedSlots`).
    """

    engine: TokenEngine
    prompter: Prompter
    trained: Sequence[Mode]
    is_bad: Callable[[float], bool]
    max_new_tokens: int
    slots_sent: bool = False

    def plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        plan, earlier = local_plan(self.prompter, trajectory, mode, self.trained)
        return (self._cut_to_fit(plan, trajectory, mode) if self.planner.cut else plan), earlier

    def _cut_to_fit(self, plan: WindowPlan, trajectory: Trajectory, mode: Mode) -> WindowPlan:
        """Cut a version-1 prompt further where it exceeds the model: each piece keeps a least size, so many steps exceed the budget."""
        budget = self.planner.budget
        while (
            over := excess(self.engine, self.prompter.reading(plan, 0, mode), mode, self.max_new_tokens)
        ) > 0 and budget > 1:
            budget -= min(over, budget // 2)
            plan = CutPlan(self.planner, trajectory, budget)
        return plan

    @property
    def planner(self) -> Planner:
        return self.prompter.planner

    def measure(self, trajectory: Trajectory, mode: Mode, samples: int) -> Reads:
        """Count tokens without findings; all samples share the prefill of the first reading."""
        chain = JudgeState(trajectory, *self.plan(trajectory, mode), mode=mode)
        asks = [next_ask(chain, number) for number in range(len(chain.plan))]
        prompts = [self.prompter.reading(chain.plan, ask.number, ask.mode) for ask in asks]
        first, *later = [
            sum(slot.at + 1 for slot in prompt.slots) if self.slots_sent else len(prompt.ids) for prompt in prompts
        ]
        written = sum(written_at_most(p, a.mode, self.max_new_tokens) for p, a in zip(prompts, asks, strict=True))
        return Reads(first + sum(later) * samples, len(asks) * samples, chain.plan.coverage, written * samples)

    def run_requests(self, chains: Iterable[JudgeState], params: SamplingParams, ended: Ended) -> None:
        hear_in_rounds(self.ask, chains, params, ended)

    def ask(self, asks: Sequence[WindowRequest], params: SamplingParams, take: Take) -> None:
        by_mode: dict[Mode, list[int]] = defaultdict(list)
        prompts = [self.prompter.reading(a.chain.plan, a.number, a.mode, a.marks) for a in asks]
        for i, (ask, prompt) in enumerate(zip(asks, prompts, strict=True)):
            if excess(self.engine, prompt, ask.mode, self.max_new_tokens) <= 0:
                by_mode[ask.mode].append(i)
            else:
                why = too_long(self.engine, len(prompt.ids), reserved(ask.mode, self.max_new_tokens))
                take(ask, Judgement("too_long", reason=str(why)))
        for mode, chosen in by_mode.items():
            if mode == "steps":
                slots = [[slot.at for slot in prompts[i].slots] for i in chosen]
                rows = [prompts[i].ids for i in chosen]
                choice_logprobs = self.engine.choice_logprobs(rows, slots, self.prompter.choices)
                for i, logprobs in zip(chosen, choice_logprobs, strict=True):
                    steps = [slot.step for slot in prompts[i].slots]
                    take(asks[i], Judgement("scored", findings=tuple(self._findings(steps, logprobs))))
                continue

            def on_row(row: int, judgement: Judgement, chosen: list[int] = chosen) -> None:
                take(asks[chosen[row]], judgement)

            keys = [self._key(asks[i]) for i in chosen]
            judge_rows(self.engine, self.prompter, [prompts[i] for i in chosen], keys, mode, params, on_row)

    def _key(self, ask: WindowRequest) -> str:
        # names a reply and seeds it, so each version keeps its own form
        if self.planner.cut:
            return f"{ask.chain.trajectory.id}/sample{ask.chain.sample}"
        return f"{ask.key}/sample0"

    def sampled(self, params: SamplingParams) -> dict[str, Any]:
        # nothing: each judgement has its own temperature, as retries use another
        return {}

    def _findings(self, steps: Sequence[int | None], logprobs: Sequence[Sequence[float]]) -> list[Finding]:
        sure = [(step, math.exp(good)) for step, (good, _) in zip(steps, logprobs, strict=True) if step is not None]
        return [Finding(step=k, verdict="bad" if self.is_bad(p) else "good", p_good=min(p, 1.0)) for k, p in sure]
