"""AgentRRM: the judge. Transcripts in, Feedback out, whatever engine answers.

judge = AgentRRM.from_pretrained()                      # the judge that ships with the package
judge = AgentRRM.from_pretrained("runs/judge/judge")    # one trained by `rrm train`
judge = AgentRRM.from_pretrained("openai:http://localhost:8000/v1#model")
feedback = judge.judge(trajectories, mode="full")
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rrm.data.annotation import OutOfDomain
from rrm.data.feedback import Feedback, JudgeInfo, Mode, Reads
from rrm.data.pictures import ImageBudget
from rrm.data.trajectory import Trajectory
from rrm.engines.base import ChatEngine, SamplingParams, TokenEngine
from rrm.engines.cost import CostTracker
from rrm.engines.server_options import ServerOptions
from rrm.errors import RRMError
from rrm.judge.backends import Chat, LocalBackend, ServerBackend
from rrm.judge.capabilities import Abilities, Sampling
from rrm.judge.criteria import CriteriaBackend
from rrm.judge.domain import DomainFlagger, load_domain
from rrm.judge.inputs import as_trajectories
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.judge_request import JudgeRequest, OnReading, unspoken
from rrm.judge.local import TemplatedEngine
from rrm.judge.steps import LocalSlots, ServedSlots, SlotReader, judge_steps
from rrm.judge.windowed import judge_in_windows, judge_stream
from rrm.prompt import rules
from rrm.prompt.criteria import Criteria, load_criteria
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN, CUT_VERSION, PROMPT_VERSION, CharacterTokenizer
from rrm.prompt.windows import Planner, Window, WindowPlan

AT_AN_ADDRESS = "rrm.serve.client"
"""Where judges behind `rrm serve` are; by name, as it is built on this module."""
FOR_TRL = "rrm.integrations.trl"
"""So is this."""


class AgentRRM:
    """A judge over one engine: a `TokenEngine` with a `Prompter` (local), or a `ChatEngine` (a server).

    Args:
        engine: what answers.
        prompter: required with a TokenEngine, absent with a ChatEngine.
        settings: budgets, calibration and training facts; by default those of a chat model that was never trained to judge.
        model: how the judge is named in every row.
        model_hash: hash of weights, base and settings, where they are local.
        reader: renders for a ChatEngine with the judge's own tokenizer; by default a token counts as four characters.
        folder: the directory the judge came from, which `save_pretrained` copies.
        dtype: of local weights, for the rows.
        max_windows: of a ChatEngine without a reader; the others' prompter knows it.
        images: what a ChatEngine that sees is shown of a transcript's pictures; None: words in their places.
        out_of_domain: what becomes of verdicts on a transcript outside what it was measured on (`rrm.judge.abstention`).
    """

    tells_readings = True
    """It takes `on_reading`."""
    unfinished: bool = False
    """Whether it is asked of runs that go on after what it is shown (`rrm.judge.prefixes`)."""

    def __init__(
        self,
        engine: TokenEngine | ChatEngine,
        prompter: Prompter | None = None,
        *,
        settings: JudgeSettings | None = None,
        model: str = "judge",
        model_hash: str | None = None,
        reader: Prompter | None = None,
        folder: Path | None = None,
        dtype: str | None = None,
        max_windows: int | None = None,
        images: ImageBudget | None = None,
        out_of_domain: OutOfDomain = "unsure",
    ) -> None:
        self.max_windows, self.images = max_windows, images
        if images is not None and prompter is not None:
            raise RRMError("a judge over a TokenEngine reads text alone: give images to one over a ChatEngine")
        self.engine: Any = engine
        self.prompter, self.reader = prompter, reader
        self.settings = settings or untrained(prompter)
        if prompter is not None and prompter.version != self.settings.prompt_version:
            raise RRMError(
                f"the prompter renders prompt version {prompter.version} and the judge's settings are for "
                f"{self.settings.prompt_version}: give both the one it was trained in"
            )
        self.model, self.model_hash, self.folder, self.dtype = model, model_hash, folder, dtype
        self.asked: ServerOptions = getattr(engine, "options", ServerOptions())
        """How its server is asked; that of a judge here is empty."""
        self.unfinished = any(facts.get("prefixes") for facts in self.settings.calibrated_on.values())
        self.domain = load_domain(folder)
        self.out_of_domain: OutOfDomain = out_of_domain
        self._sampling = Sampling()

    # ---- making and keeping one ----

    @classmethod
    def from_pretrained(
        cls,
        model: str | None = None,
        *,
        settings: str | Path | None = None,
        revision: str | None = None,
        token: str | None = None,
        device: str | None = None,
        dtype: str | None = None,
        attn_implementation: str | None = None,
        batch_tokens: int | None = None,
        max_transcript_tokens: int | None = None,
        max_windows: int | None = None,
        context: int | None = None,
        max_new_tokens: int | None = None,
        timeout_s: float | None = None,
        concurrency: int | None = None,
        criteria: Criteria | str | Path | None = None,
        server: ServerOptions | None = None,
        images: int | None = None,
        out_of_domain: OutOfDomain | None = None,
        trust_remote_code: bool = False,
    ) -> AgentRRM:
        """Load a judge, with the calibration, budgets and modes of its `judge.json` wherever it lies.

        Args:
            model: a directory, a hub id, `openai:BASE_URL#model` (of several addresses: with commas), `vision:` and the folder or hub id of a
                vision-language model, `http://HOST:PORT` of `rrm serve`, the name of an installed judge, or None for the shipped default judge.
            settings: with `openai:…`: the directory or hub id of the judge that the server serves.
            revision: branch, tag or commit of a hub id.
            token: for a private hub id; by default HF_TOKEN or the one that `hf auth login` stored.
            device: `cpu`, `cuda`, …; the best there is by default.
            dtype: `float32`, `bfloat16` or `float16`; by default bfloat16 on an accelerator and float32 on a CPU, where
                scores then do not depend on the batch a transcript stands in.
            attn_implementation: `sdpa`, `eager`, `flash_attention_2`, …; the model's own by default.
            batch_tokens: tokens held at once (memory).
            max_transcript_tokens: rendered transcript budget; the one the judge was trained with by default.
            max_windows: of a transcript, read at most (its last, its first, those that the rules flag); all by default. Of prompt version 2.
            context: tokens of a server's context; what the server says of itself by default (`rrm.judge.serving`).
            max_new_tokens: of a reply; what the judge was trained with, or 512, by default.
            timeout_s: seconds a request to a chat model's server may take, and in which a silent `rrm serve` is asked again; 60 by default.
            concurrency: requests to a server in flight at once, 8 by default.
            criteria: questions to answer instead of the fixed rubric (`rrm.prompt.criteria`), or their file or shipped name; of a
                chat model that was not trained to judge.
            server: how a server is asked beside that: temperature, headers, prices, …
            images: pictures of a transcript that a chat model is shown at most, the latest; 0 is none, which is the default of a server, and
                8 that of `vision:`.
            out_of_domain: `unsure`: the judge abstains on a transcript outside what it was measured on; `keep`: its verdicts stay, and the row is
                marked. Default: `unsure`, of a judge at an address as it is served.
            trust_remote_code: run the Python code in the judge's folder or its base's, where these have an architecture of
                their own.

        Raises:
            RRMError: no such model, not a judge's directory, or made for another prompt version.
            ConfigError: an option of a server for a judge that runs here, or the other way round.
        """
        from rrm.judge.loading import LoadOptions, load

        if model is not None and model.startswith(("http://", "https://")):
            return importlib.import_module(AT_AN_ADDRESS).connect(
                model, timeout_s=timeout_s, concurrency=concurrency, settings=settings, revision=revision, token=token, device=device,
                dtype=dtype, attn_implementation=attn_implementation, batch_tokens=batch_tokens, max_windows=max_windows, context=context,
                max_transcript_tokens=max_transcript_tokens, max_new_tokens=max_new_tokens, criteria=criteria, server=server,
                images=images, out_of_domain=out_of_domain, trust_remote_code=trust_remote_code,
            )  # fmt: skip
        asked = load_criteria(criteria) if isinstance(criteria, str | Path) else criteria
        loaded = load(model, LoadOptions(
            settings=settings, device=device, dtype=dtype, attn_implementation=attn_implementation, revision=revision, token=token,
            batch_tokens=batch_tokens, transcript_tokens=max_transcript_tokens, max_windows=max_windows, context=context,
            max_new_tokens=max_new_tokens, timeout_s=timeout_s, concurrency=concurrency, criteria=asked, server=server,
            images=images, trust_remote_code=trust_remote_code,
        ))  # fmt: skip
        return cls(
            loaded.engine, loaded.prompter, settings=loaded.settings, model=loaded.model, model_hash=loaded.model_hash,
            reader=loaded.reader, folder=loaded.folder, dtype=loaded.dtype, max_windows=loaded.settings.max_windows,
            images=loaded.images, out_of_domain=out_of_domain or "unsure",
        )  # fmt: skip

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the judge's directory: what `from_pretrained(folder)` needs to judge alike. Returns the directory.

        Raises:
            RRMError: an engine whose weights cannot be saved.
        """
        from rrm.judge.saving import save_judge

        return save_judge(self, Path(folder))

    def push_to_hub(
        self,
        repo_id: str,
        *,
        token: str | None = None,
        private: bool | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a judge",
    ) -> str:
        """Put the judge's directory on the Hugging Face hub as `repo_id`; returns the commit's address.

        Raises:
            RRMError: the judge needs what only this machine has, or the hub does not take it.
        """
        from rrm.judge.saving import push_judge

        return push_judge(self, repo_id, token=token, private=private, revision=revision, commit_message=commit_message)

    # ---- judging ----

    def judge(
        self,
        trajectories: Sequence[Trajectory | Sequence[Any] | Mapping[str, Any]],
        *,
        mode: Mode | None = None,
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
        on_reading: OnReading | None = None,
    ) -> list[Feedback]:
        """One Feedback per run, in order, as `rrm score` gives it. Failures keep their status and are never a number.

        With `samples` > 1 replies are sampled at temperature 0.7, unless a server's options say another, and the score is their mean; where nothing is sampled (`steps`,
        `score` on a local model, text of a judge that only reads slots) each transcript is read once, and that is said once.
        A transcript without a step is `unparsable`, and no model is asked.

        Args:
            trajectories: runs, also as lists of messages or records that `rrm.judge.inputs.as_trajectories` reads.
            mode: None: the judge's own (`JudgeSettings.default_mode`), else `full`.
            on_feedback: hears of each row as soon as it is judged, in the order in which rows end.
            on_reading: hears of each reading that was made of a transcript that takes several (its id, how many it takes).
        """
        runs, mode = as_trajectories(trajectories), mode or self.settings.default_mode or "full"
        temperature = self._sampling.temperature(self.abilities, self.asked.temperature, mode, samples)
        marker = DomainFlagger(self.domain, runs)
        hear = None if on_feedback is None else lambda feedback: on_feedback(marker.heard(feedback))
        judgements = self._judgements(runs, mode, samples, seed, temperature, True, hear, on_reading)
        return [marker.mark(feedback, run) for (feedback,), run in zip(judgements, runs, strict=True)]

    def streams(self, mode: Mode) -> bool:
        """Whether `judge_stream` can be asked for this mode: of a server's judge that has no criteria."""
        return self.prompter is None and self.criteria is None and not self.abilities.reads_slots(mode)

    def judge_stream(
        self,
        trajectories: Iterable[Trajectory],
        *,
        mode: Mode = "full",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None],
        on_reading: OnReading | None = None,
    ) -> None:
        """`judge` for any number of transcripts: the next one is begun as soon as a request of the server's may be sent.

        Args:
            trajectories: read in a thread of their own, a little ahead.
            on_feedback: hears of each row as soon as it is judged, of one at a time.
            on_reading: as in `judge`.

        Raises:
            SpendingLimit: the money is spent: what was begun was judged, the rest was not.
        """
        temperature = self._sampling.temperature(self.abilities, self.asked.temperature, mode, samples)
        wanted = self._wanted(mode, samples, seed, temperature, True, None, on_reading)
        judge_stream(self.backend(), trajectories, wanted, self.domain, on_feedback)

    def sample(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        k: int,
        seed: int = 0,
        temperature: float = 1.0,
    ) -> list[list[Feedback]]:
        """k independent judgements of each trajectory, as Feedback of their own (rejection sampling, variance); one where
        nothing is sampled."""
        found = self._judgements(trajectories, mode, k, seed, temperature, False)
        marker = DomainFlagger(self.domain, trajectories)
        return [[marker.mark(f, t) for f in judged] for judged, t in zip(found, trajectories, strict=True)]

    def describe(self) -> dict[str, Any]:
        """What decides this judge's scores; the rules are of it, as windows begin with their digest."""
        windows = {} if self.prompt_version == CUT_VERSION else {"rules": rules.VERSION}
        # a chat model that was not trained to judge is told the grid, and asked for log-probabilities
        untaught = self.prompter is None and self.reader is None
        grades = untaught and self.criteria is None and not self.settings.modes
        return {
            "model": self.model,
            "model_hash": self.model_hash,
            "prompt_version": self.settings.prompt_version,
            "transcript_tokens": self.settings.transcript_tokens,
            "max_new_tokens": self.settings.max_new_tokens,
            "dtype": self.dtype,
            **windows,
            **({"score_source": "expected"} if grades else {}),
            **({"unfinished": True} if self.unfinished else {}),
            **({} if self.max_windows is None else {"max_windows": self.max_windows}),
            **({} if self.criteria is None else {"criteria": self.criteria.identity}),
            **({} if self.images is None else self.images.deciding),
            **({"out_of_domain": "unsure"} if self.domain is not None and self.out_of_domain == "unsure" else {}),
            **self.asked.deciding,
        }

    @property
    def purse(self) -> CostTracker | None:
        """What is paid for its server; None where it has none."""
        return getattr(self.engine, "purse", None)

    @property
    def abilities(self) -> Abilities:
        """What it can be asked for."""
        local, asks = self.prompter is not None, self.criteria is not None
        served = self.reader is not None and self.prompt_version != CUT_VERSION
        return Abilities(self.model, self.settings.modes, local, self.prompt_version, asks, served)

    @property
    def criteria(self) -> Criteria | None:
        """The questions that it answers; None: it judges by the fixed rubric."""
        return self.settings.criteria

    @property
    def answer_tokens(self) -> int | None:
        """Tokens that its replies may take, where each is asked for to its end: from a server, and to criteria; else None."""
        return self.settings.max_new_tokens if self.prompter is None or self.criteria is not None else None

    @property
    def prompt_version(self) -> str:
        """How transcripts are rendered."""
        prompter = self.prompter or self.reader
        return self.settings.prompt_version if prompter is None else prompter.version

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: Mode) -> list[int]:
        """Prompt tokens of each transcript (for a server: an estimate, four characters a token)."""
        return [read.tokens for read in self.measure(trajectories, mode)]

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """What is read of each transcript for so many judgements of it, one where nothing is sampled: prompt tokens (estimated as
        `count_tokens` says), readings, coverage."""
        samples = samples if self.abilities.samples(mode) else 1
        self.abilities.check(mode)
        backend = self.backend(slots=self.abilities.reads_slots(mode))
        return [backend.measure(trajectory, self.abilities.read_as(mode), samples) for trajectory in trajectories]

    def plan(self, trajectory: Trajectory, mode: Mode) -> WindowPlan:
        """The windows in which a transcript is read.

        Raises:
            RRMError: the judge is of prompt version 1, which has none.
        """
        if self.prompt_version == CUT_VERSION:
            raise RRMError(f"{self.model} was made for prompt version {CUT_VERSION}, which reads no windows")
        return self._plan(trajectory, mode)[0]

    def in_windows(self, trajectory: Trajectory, mode: Mode) -> bool:
        """Whether a transcript is read in several windows in this mode; the scores of such have maps of their own."""
        return self._plan(trajectory, mode)[0].windowed

    def readings(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, list[Window]]:
        """The windows in which a transcript is read in this mode, and each as it is read before anything is found."""
        plan, earlier = self._plan(trajectory, mode)
        asked = [earlier] * (len(plan) - 1) + [self.abilities.read_as(mode)]
        return plan, [plan.reading(number, slots=said == "steps") for number, said in enumerate(asked)]

    def as_reward_func(self, *, mode: Mode = "score", seed: int = 0) -> Callable[..., list[float | None]]:
        """A reward function for TRL's GRPOTrainer (`rrm.integrations.trl.reward_func`, which takes more arguments)."""
        return importlib.import_module(FOR_TRL).reward_func(self, mode=mode, seed=seed)

    def as_chat(self) -> Chat:
        """The model as anybody would talk to it, for questions that are not the fixed rubric's."""
        prompter = self.prompter or self.reader
        budget = self.settings.transcript_tokens * (1 if prompter else CHARACTERS_PER_TOKEN)
        tokenizer = prompter.tokenizer if prompter else CharacterTokenizer()
        windows = self.max_windows if prompter is None else prompter.planner.max_windows
        planner = Planner(tokenizer, budget, prompter.planner.clean if prompter else str, max_windows=windows)
        if self.prompter is None:
            return Chat(self.engine, planner, self.reader)
        return Chat(TemplatedEngine(self.engine, self.prompter.tokenizer), planner, None)

    # ---- who answers ----

    def slots(self) -> tuple[Prompter, SlotReader]:
        """What renders prompts with slots, and what reads these."""
        if self.prompter is not None:
            return self.prompter, LocalSlots(self.engine)
        assert self.reader is not None
        tokenizer = self.reader.tokenizer
        timeout = getattr(self.engine, "timeout_s", SamplingParams.timeout_s)
        return self.reader, ServedSlots(self.engine, lambda token: tokenizer.decode([token]), timeout)

    def backend(self, *, slots: bool = False) -> LocalBackend | ServerBackend:
        """Who answers for its readings.

        Args:
            slots: whether slots are read: on a server, their places are those of a judge here.
        """
        settings = self.settings
        if settings.criteria is not None:
            chat, images, on = self.as_chat(), self.images, self.unfinished
            return CriteriaBackend(
                chat.engine, chat.planner, chat.reader, images=images, unfinished=on, criteria=settings.criteria
            )
        prompter = self.reader if slots and self.prompter is None else self.prompter
        if prompter is not None:

            def is_bad(raw: float) -> bool:
                return settings.calibration.p_good(raw) < settings.threshold

            sent = self.prompter is None
            return LocalBackend(self.engine, prompter, settings.modes, is_bad, settings.max_new_tokens, sent)
        characters, cut = settings.transcript_tokens * CHARACTERS_PER_TOKEN, settings.prompt_version == CUT_VERSION
        own = Planner(CharacterTokenizer(), characters, max_windows=self.max_windows, cut=cut)
        planner, opening = own if self.reader is None else self.reader.planner, settings.opening
        return ServerBackend(self.engine, planner, self.reader, settings.modes, opening, self.images, self.unfinished)

    def params(self, seed: int, temperature: float) -> SamplingParams:
        """How replies are sampled: here as far as the score's tag, from a server (whose model may think first) to its end."""
        served, asks = self.prompter is None, self.criteria is not None
        return SamplingParams(
            max_new_tokens=self.settings.max_new_tokens,
            temperature=temperature,
            seed=seed,
            stop=() if served or asks else ("<score>",),
            timeout_s=getattr(self.engine, "timeout_s", SamplingParams.timeout_s)
            if served
            else SamplingParams.timeout_s,
            top_logprobs=20 if served and not asks else 0,
        )

    # ---- inside ----

    def _plan(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, Mode]:
        """The windows of a transcript, and what is asked of all but the last."""
        return self.backend(slots=self.abilities.reads_slots(mode)).plan(trajectory, self.abilities.read_as(mode))

    def _judgements(
        self,
        trajectories: Sequence[Trajectory],
        mode: Mode,
        samples: int,
        seed: int,
        temperature: float,
        together: bool,
        on_feedback: Callable[[Feedback], None] | None = None,
        on_reading: OnReading | None = None,
    ) -> list[list[Feedback]]:
        """Each transcript's judgements: as one Feedback (`together`), or each as its own; one where nothing is sampled, or the agent never spoke."""
        wanted = self._wanted(mode, samples, seed, temperature, together, on_feedback, on_reading)
        silent = {i: [unspoken(t, wanted.info)] for i, t in enumerate(trajectories) if not t.steps}
        for rows in silent.values():
            wanted.tell(rows)
        judged = iter(self._judged([t for t in trajectories if t.steps], wanted))
        return [silent[i] if i in silent else next(judged) for i in range(len(trajectories))]

    def _judged(self, trajectories: Sequence[Trajectory], wanted: JudgeRequest) -> list[list[Feedback]]:
        if self.abilities.reads_slots(wanted.mode):
            self.abilities.check(wanted.mode)
            prompter, slots = self.slots()
            found = judge_steps(slots, prompter, trajectories, wanted, self.settings.verdicts)
            return [[feedback] for feedback in found]
        return judge_in_windows(self.backend(), trajectories, wanted, together=self.prompter is None)

    def _wanted(
        self,
        mode: Mode,
        samples: int,
        seed: int,
        temperature: float,
        together: bool,
        on_feedback: Callable[[Feedback], None] | None,
        on_reading: OnReading | None,
    ) -> JudgeRequest:
        """What is asked of each transcript; one judgement where nothing is sampled."""
        samples = samples if self.abilities.samples(mode) else 1
        params = self.params(seed, temperature)
        maps = self.settings.calibration
        sources = {key: facts.get("score_source") for key, facts in self.settings.calibrated_on.items()}
        return JudgeRequest(self.info(mode, seed), params, maps, samples, together, on_feedback, on_reading, sources)

    def info(self, mode: Mode, seed: int) -> JudgeInfo:
        """What its rows say of it, as far as that is known before it is asked."""
        promise = self.settings.promise
        return JudgeInfo(
            model=self.model,
            model_hash=self.model_hash,
            prompt_version=self.settings.prompt_version,
            mode=mode,
            seed=seed,
            transcript_tokens=self.settings.transcript_tokens,
            max_new_tokens=self.settings.max_new_tokens,
            dtype=self.dtype,
            request={k: v for k, v in self.asked.deciding.items() if k != "temperature"} or None,
            calibrated=self.settings.calibration.covers(mode),
            criteria=None if self.criteria is None else self.criteria.identity,
            out_of_domain=None if self.domain is None else self.out_of_domain,
            least_sure=promise.least_sure if promise is not None and promise.mode == mode else None,
        )


def untrained(prompter: Prompter | None) -> JudgeSettings:
    """Settings of a model that was never trained to judge: a server's reads in windows, one here as its prompter does."""
    version = PROMPT_VERSION if prompter is None else prompter.version
    return JudgeSettings(opening=prompter is not None, prompt_version=version)
