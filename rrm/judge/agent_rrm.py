"""AgentRRM: the judge. Transcripts in, Feedback out, whatever engine answers.

judge = AgentRRM.from_pretrained()                      # the judge that ships with the package
judge = AgentRRM.from_pretrained("runs/judge/judge")    # one trained by `rrm train`
judge = AgentRRM.from_pretrained("openai:http://localhost:8000/v1#model")
feedback = judge.judge(trajectories, mode="full")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rrm.engines.base import ChatEngine, SamplingParams, TokenEngine
from rrm.errors import ConfigError, RRMError
from rrm.feedback import Feedback, JudgeInfo, Mode
from rrm.judge.chat import ChatItem, Judgement, combine, judge_chat
from rrm.judge.judge_dir import JudgeSettings, content_hash, load_settings
from rrm.judge.local import judge_rows
from rrm.prompt.neutralise import neutralise_special
from rrm.prompt.prompter import Prompt, Prompter
from rrm.prompt.rendering import PROMPT_VERSION, judge_messages
from rrm.trajectory import Message, Trajectory

SAMPLING_TEMPERATURE = 0.7
"""Temperature of a local judge's replies where more than one is sampled; a single reply is greedy."""


class CharacterTokenizer:
    """Counts a token as four characters: the budget of a server whose tokenizer we do not have."""

    ids_a_token = 4

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """One id a character."""
        return [ord(c) for c in text]

    def decode(self, token_ids: list[int]) -> str:
        """The inverse of `encode`."""
        return "".join(map(chr, token_ids))


CHARACTERS_PER_TOKEN = CharacterTokenizer.ids_a_token


class AgentRRM:
    """A judge over one engine: a `TokenEngine` with a `Prompter` (local), or a `ChatEngine` (a server).

    Args:
        engine: what answers.
        prompter: required with a TokenEngine, absent with a ChatEngine.
        settings: budgets, calibration and training facts.
        model: how the judge is named in every row.
        model_hash: hash of weights and settings, where they are local.
    """

    def __init__(
        self,
        engine: TokenEngine | ChatEngine,
        prompter: Prompter | None = None,
        *,
        settings: JudgeSettings | None = None,
        model: str = "judge",
        model_hash: str | None = None,
    ) -> None:
        self.engine, self.prompter = engine, prompter
        self.settings = settings or JudgeSettings()
        self.model, self.model_hash = model, model_hash

    # ---- making one ----

    @classmethod
    def from_pretrained(
        cls,
        model: str | None = None,
        *,
        device: str | None = None,
        dtype: str | None = None,
        batch_tokens: int | None = None,
        max_transcript_tokens: int | None = None,
        max_new_tokens: int | None = None,
        timeout_s: float | None = None,
        concurrency: int | None = None,
    ) -> AgentRRM:
        """Load a judge.

        Args:
            model: a directory, a hub id, `openai:BASE_URL#model`, the name of a judge that an installed package
                ships, or None for the default judge.
            device: `cpu`, `cuda`, …; the best there is by default.
            dtype: `float32` or `bfloat16`; by default bfloat16 on an accelerator and float32 on a CPU, where scores
                then do not depend on the batch a transcript stands in.
            batch_tokens: tokens held at once (memory).
            max_transcript_tokens: rendered transcript budget; the one the judge was trained with by default.
            max_new_tokens: of a reply; what the judge was trained with, or 512, by default.
            timeout_s: seconds a request to a server may take, 60 by default.
            concurrency: requests to a server in flight at once, 8 by default.

        Raises:
            RRMError: no such model, not a judge's directory, or made for another prompt version.
            ConfigError: an option of a server for a judge that runs here.
        """
        if model is not None and model.startswith("openai:"):
            from rrm.engines.openai import OpenAIEngine

            settings = JudgeSettings(name=model)
            if max_transcript_tokens:
                settings.transcript_tokens = max_transcript_tokens
            if max_new_tokens:
                settings.max_new_tokens = max_new_tokens
            options = {"timeout_s": timeout_s, "concurrency": concurrency}
            engine = OpenAIEngine.from_spec(model, **{k: v for k, v in options.items() if v is not None})
            return cls(engine, settings=settings, model=model)
        if timeout_s is not None or concurrency is not None:
            raise ConfigError(
                f"timeout_s and concurrency are a server's; {model or 'the default judge'} runs in this process"
            )
        from rrm.judge.loading import load_local

        parts = load_local(model, device, dtype, batch_tokens, max_transcript_tokens, max_new_tokens)
        return cls(
            parts.engine,
            parts.prompter,
            settings=parts.settings,
            model=model or "default",
            model_hash=parts.model_hash,
        )

    # ---- judging ----

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
    ) -> list[Feedback]:
        """One Feedback per trajectory, in order. Failures keep their status and are never a number.

        With `samples` > 1 replies are sampled at temperature 0.7 and the score is their mean; `score` mode on a local
        model samples nothing, so one is enough there.

        Args:
            on_feedback: hears of each row as soon as it is judged, in the order in which rows end.
        """
        if samples < 1:
            raise RRMError(f"samples must be at least 1, got {samples}")
        temperature = SAMPLING_TEMPERATURE if samples > 1 else 0.0
        if self.prompter is None:
            return self._judge_chat(trajectories, mode, samples, seed, temperature, on_feedback)
        info, calibrate, done = self._info(mode, seed), self._calibrate(mode), dict[int, Feedback]()

        def take(row: int, item: ChatItem, judgements: list[Judgement]) -> None:
            done[row] = combine(item, judgements, info, calibrate) if judgements else self._too_long(item, mode, seed)
            if on_feedback is not None:
                on_feedback(done[row])

        self._judge_local(trajectories, mode, samples, seed, temperature, take)
        return [done[row] for row in range(len(trajectories))]

    def sample(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        k: int,
        seed: int = 0,
        temperature: float = 1.0,
    ) -> list[list[Feedback]]:
        """k independent judgements of each trajectory, as Feedback of their own (rejection sampling, variance)."""
        if self.prompter is None:
            runs = [self._judge_chat(trajectories, mode, 1, seed + i, temperature) for i in range(k)]
            return [list(row) for row in zip(*runs, strict=True)]
        info, calibrate, done = self._info(mode, seed), self._calibrate(mode), dict[int, list[Feedback]]()

        def take(row: int, item: ChatItem, judgements: list[Judgement]) -> None:
            done[row] = [combine(item, [j], info, calibrate) for j in judgements] or [self._too_long(item, mode, seed)]

        self._judge_local(trajectories, mode, k, seed, temperature, take)
        return [done[row] for row in range(len(trajectories))]

    def describe(self) -> dict[str, Any]:
        """What decides this judge's scores."""
        return {
            "model": self.model,
            "model_hash": self.model_hash,
            "prompt_version": PROMPT_VERSION,
            "transcript_tokens": self.settings.transcript_tokens,
            "max_new_tokens": self.settings.max_new_tokens,
        }

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: Mode) -> list[int]:
        """Prompt tokens of each transcript (for a server: an estimate, four characters a token)."""
        if self.prompter is not None:
            return [len(self.prompter.prompt(t, mode).ids) for t in trajectories]
        items = [self._chat_item(t, mode) for t in trajectories]
        return [sum(len(m["content"]) for m in item.messages) // CHARACTERS_PER_TOKEN for item in items]

    def as_reward_func(self, *, mode: Mode = "score", seed: int = 0) -> Callable[..., list[float | None]]:
        """A reward function for TRL's GRPOTrainer: the calibrated score of prompt and completion as a transcript.

        Conversational and plain-text rows both work; a `tools` column is shown to the judge. A failed judgement is
        None, which TRL leaves out.
        """

        def agent_rrm_score(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
            tools = columns.get("tools") or [None] * len(prompts)
            rows = [
                as_trajectory(str(i), prompt, completion, tool)
                for i, (prompt, completion, tool) in enumerate(zip(prompts, completions, tools, strict=True))
            ]
            return [f.score for f in self.judge(rows, mode=mode, seed=seed)]

        return agent_rrm_score

    # ---- inside ----

    def _info(self, mode: Mode, seed: int) -> JudgeInfo:
        return JudgeInfo(
            model=self.model,
            model_hash=self.model_hash,
            prompt_version=PROMPT_VERSION,
            mode=mode,
            seed=seed,
        )

    def _calibrate(self, mode: Mode) -> Callable[[float], float]:
        return lambda raw: self.settings.calibration.apply(mode, raw)

    def _judge_local(
        self,
        trajectories: Sequence[Trajectory],
        mode: Mode,
        samples: int,
        seed: int,
        temperature: float,
        take: Callable[[int, ChatItem, list[Judgement]], None],
    ) -> None:
        """Each trajectory's judgements through `take`, as they come; none for a prompt longer than the model's positions."""
        assert self.prompter is not None
        engine: TokenEngine = self.engine  # pyright: ignore[reportAssignmentType]
        prompts: list[Prompt] = [self.prompter.prompt(t, mode) for t in trajectories]
        params = SamplingParams(
            max_new_tokens=self.settings.max_new_tokens, temperature=temperature, seed=seed, stop=("<score>",)
        )
        room = getattr(engine, "max_positions", None)
        reply = 8 if mode == "score" else self.settings.max_new_tokens + 8
        fit = [i for i, p in enumerate(prompts) if room is None or len(p.ids) + reply <= room]
        items = [
            ChatItem(t.id, [], len(t.steps), p.truncated_tokens) for t, p in zip(trajectories, prompts, strict=True)
        ]
        for i in sorted(set(range(len(prompts))) - set(fit)):
            take(i, items[i], [])

        def on_row(row: int, judgements: list[Judgement]) -> None:
            take(fit[row], items[fit[row]], judgements)

        names = [trajectories[i].id for i in fit]
        judge_rows(engine, self.prompter, [prompts[i] for i in fit], names, mode, params, samples, on_row)

    def _too_long(self, item: ChatItem, mode: Mode, seed: int) -> Feedback:
        return Feedback(
            id=item.id,
            status="too_long",
            truncated_tokens=item.truncated_tokens,
            judge=self._info(mode, seed),
            reason="prompt and reply exceed the model's positions; choose a smaller transcript budget",
        )

    def _chat_item(self, trajectory: Trajectory, mode: Mode) -> ChatItem:
        budget = self.settings.transcript_tokens * CHARACTERS_PER_TOKEN
        messages, cut = judge_messages(trajectory, mode, CharacterTokenizer(), budget)
        messages[-1]["content"] = neutralise_special(messages[-1]["content"])
        return ChatItem(trajectory.id, messages, len(trajectory.steps), -(-cut // CHARACTERS_PER_TOKEN))

    def _judge_chat(
        self,
        trajectories: Sequence[Trajectory],
        mode: Mode,
        samples: int,
        seed: int,
        temperature: float,
        on_feedback: Callable[[Feedback], None] | None = None,
    ) -> list[Feedback]:
        params = SamplingParams(
            max_new_tokens=self.settings.max_new_tokens,  # also for a score alone: a server's model may think first
            temperature=temperature,
            seed=seed,
            stop=("</score>",),
            timeout_s=getattr(self.engine, "timeout_s", SamplingParams.timeout_s),
            top_logprobs=20,
        )
        return judge_chat(
            self.engine,  # pyright: ignore[reportArgumentType]
            [self._chat_item(t, mode) for t in trajectories],
            info=self._info(mode, seed),
            params=params,
            samples=samples,
            calibrate=self._calibrate(mode),
            on_feedback=on_feedback,
        )


def as_trajectory(name: str, prompt: Any, completion: Any, tools: Any = None) -> Trajectory:
    """A TRL prompt and completion (text, or lists of messages) as a Trajectory."""
    before = [Message(role="user", content=prompt)] if isinstance(prompt, str) else [Message(**m) for m in prompt]
    after = (
        [Message(role="assistant", content=completion)]
        if isinstance(completion, str)
        else [Message(**m) for m in completion]
    )
    task = next((m.text() for m in before if m.role == "user"), "")
    return Trajectory(id=name, task=task, messages=before + after, tools=tools)


__all__ = ["AgentRRM", "as_trajectory", "content_hash", "load_settings"]
