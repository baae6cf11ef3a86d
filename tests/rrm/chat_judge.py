"""A judge without weights, and transcripts and rows for runs of `rrm score`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rrm.data.feedback import Feedback, JudgeInfo, Mode, Reads
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Message, Source, Trajectory
from rrm.engines.base import ChatEngine, Reply, Request, SamplingParams
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import EngineError
from rrm.judge.chat import SCORE, TranscriptFacts, combine, is_repair, read_reply, with_repair
from rrm.judge.expected_score import branch_logprobs, with_opening


@dataclass(frozen=True)
class ChatItem:
    """One transcript, rendered."""

    id: str
    messages: list[dict[str, str]]
    n_steps: int
    truncated_tokens: int = 0
    opening: str = ""


def to_feedback(
    item: ChatItem,
    replies: Sequence[Reply | EngineError],
    info: JudgeInfo,
    calibrate: Callable[[float], float] | None = None,
) -> Feedback:
    """The replies to one transcript as its Feedback."""
    read = [read_reply(r if isinstance(r, EngineError) else with_opening(r, item.opening)) for r in replies]
    return combine(TranscriptFacts(item.id, item.n_steps, item.truncated_tokens), read, info, calibrate)


def judge_chat(
    engine: ChatEngine,
    items: Sequence[ChatItem],
    *,
    info: JudgeInfo,
    params: SamplingParams,
    samples: int = 1,
    calibrate: Callable[[float], float] | None = None,
    on_feedback: Callable[[Feedback], None] | None = None,
) -> list[Feedback]:
    """Judge rendered transcripts, each in one request a sample."""
    info = info.model_copy(update={"seed": params.seed, "temperature": params.temperature})
    replies: list[dict[int, Reply | EngineError]] = [{} for _ in items]
    done: dict[int, Feedback] = {}

    def answered(request: Request, reply: Reply | EngineError) -> None:
        row, sample = request.about
        replies[row][sample] = reply
        if len(replies[row]) == samples:
            done[row] = to_feedback(items[row], [replies[row][k] for k in range(samples)], info, calibrate)
            if on_feedback is not None:
                on_feedback(done[row])

    def opening(request: Request) -> str:
        return "" if is_repair(request) else items[request.about[0]].opening

    requests = [
        Request(
            [*item.messages, *([{"role": "assistant", "content": item.opening}] if item.opening else [])],
            item.id if k == 0 else f"{item.id}/sample{k}",
            k == 0,
            about=(row, k),
        )
        for row, item in enumerate(items)
        for k in range(samples)
    ]
    unopened = replace(SCORE, problem=lambda asked, reply: None if opening(asked) else SCORE.problem(asked, reply))
    branch_logprobs(engine, requests, params, with_repair(engine, answered, unopened), opening)
    return [done[row] for row in range(len(items))]


def transcripts(n: int, said: str = "done") -> list[Trajectory]:
    return [
        Trajectory(
            id=f"t{i}",
            task=f"task {i}",
            messages=[Message(role="user", content=f"task {i}"), Message(role="assistant", content=f"{said} {i}")],
            source=Source(file="runs.jsonl", line=i + 1, format="canonical"),
        )
        for i in range(n)
    ]


class ChatJudge:
    """A judge over a scripted engine: the score follows from the row's seed alone."""

    def __init__(
        self,
        on_window: Callable[[Sequence[Trajectory]], None] = lambda window: None,
        down: tuple[str, ...] = (),
        **about: Any,
    ) -> None:
        self.on_window, self.down, self.about = on_window, down, about
        self.windows: list[list[str]] = []

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
    ) -> list[Feedback]:
        self.on_window(trajectories)
        self.windows.append([t.id for t in trajectories])

        def reply(messages: Any, params: SamplingParams, key: str) -> str | EngineError:
            if key in self.down:
                return EngineError("server is down")
            score = derive_seed(params.seed, key) % 11 / 10
            return f"<think>\ud800 {key}</think><critique>[step 1] good: ok</critique><score>{score}</score>"

        items = [ChatItem(t.id, [], len(t.steps)) for t in trajectories]
        info = JudgeInfo(model=self.describe()["model"], prompt_version="1", mode=mode)
        params = SamplingParams(seed=seed, temperature=0.5)
        engine = ScriptedChatEngine(reply)
        return judge_chat(engine, items, info=info, params=params, samples=samples, on_feedback=on_feedback)

    def describe(self) -> dict[str, Any]:
        return {"model": "scripted", "model_hash": None, "prompt_version": "1", **self.about}

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        return [Reads(10 * len(t.messages) * samples, samples, 0.8) for t in trajectories]


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]
