"""AgentRRM: the judge. Transcripts in, Feedback out, for any engine.

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

AT_AN_ADDRESS = "rrm.serve.client"  # judges behind `rrm serve`; named, not imported, as it builds on this module
FOR_TRL = "rrm.integrations.trl"


class AgentRRM:
    """A judge over one engine: a `TokenEngine` with a `Prompter` (local), or a `ChatEngine` (a server).

    Args:
        engine: generates the replies.
        prompter: required with a TokenEngine, absent with a ChatEngine.
        settings: budgets, calibration and training facts; default: those of a chat model never trained to judge.
        model: name of the judge in every row.
        model_hash: hash of local weights, base and settings.
        reader: renders for a ChatEngine with the judge's own tokenizer; default: four characters count as a token.
        folder: the judge's directory, which `save_pretrained` copies.
        dtype: of local weights, for the rows.
        max_windows: for a ChatEngine without a reader; otherwise the prompter has it.
        images: budget of pictures for a ChatEngine that sees; None: words replace pictures.
        out_of_domain: treatment of verdicts on transcripts outside the judge's domain (`rrm.judge.abstention`).
    """

    tells_readings = True  # accepts `on_reading`
    unfinished: bool = False  # judges runs that continue after the messages it is given (`rrm.judge.prefixes`)

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
        # request options of its server; empty for a local judge
        self.asked: ServerOptions = getattr(engine, "options", ServerOptions())
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
        """Load a judge with the calibration, budgets and modes of its `judge.json`.

        Args:
            model: a directory, a hub id, `openai:BASE_URL#model` (several addresses with commas), `vision:` and the folder or
                hub id of a vision-language model, `http://HOST:PORT` of `rrm serve`, the name of an installed judge, or None
                for the shipped default judge.
            settings: with `openai:…`: directory or hub id of the judge that the server serves.
            revision: branch, tag or commit of a hub id.
            token: for a private hub id; default: HF_TOKEN, or the one stored by `hf auth login`.
            device: `cpu`, `cuda`, …; default: the best available.
            dtype: `float32`, `bfloat16` or `float16`; default: bfloat16 on an accelerator, float32 on a CPU, where scores
                then do not depend on the batch.
            attn_implementation: `sdpa`, `eager`, `flash_attention_2`, …; default: the model's own.
            batch_tokens: tokens processed at once (memory).
            max_transcript_tokens: budget of a rendered transcript; default: the one the judge was trained with.
            max_windows: most windows read of a transcript (the last, the first, those the rules flag); default: all. Prompt
                version 2 only.
            context: tokens of a server's context; default: as the server reports (`rrm.judge.serving`).
            max_new_tokens: of a reply; default: as trained, or 512.
            timeout_s: seconds for a request to a chat model's server, and until a silent `rrm serve` is asked again;
                default: 60.
            concurrency: requests in flight to a server; default: 8.
            criteria: questions instead of the fixed rubric (`rrm.prompt.criteria`), their file or shipped name; for chat
                models that were not trained to judge.
            server: further request options of a server: temperature, headers, prices, …
            images: most pictures of a transcript shown to a chat model, the latest; 0: none. Default: 0 for a server, 8 for
                `vision:`.
            out_of_domain: for transcripts outside the judge's domain: `unsure` abstains, `keep` keeps the verdicts and marks
                the row. Default: `unsure`; at an address: as it is served.
            trust_remote_code: run Python code in the folder of the judge or its base, for their own architectures.

        Raises:
            RRMError: no such model, not a judge's directory, or made for another prompt version.
            ConfigError: a server option for a local judge, or the reverse.
        """
        from rrm.judge.loading import LoadOptions, load

        if model is not None and model.startswith(("http://", "https://")):
            return importlib.import_module(AT_AN_ADDRESS).connect(
                model, timeout_s=timeout_s, concurrency=concurrency, settings=settings, revision=revision, token=token, device=device,
                dtype=dtype, attn_implementation=attn_implementation, batch_tokens=batch_tokens, max_windows=max_windows, context=context,
                max_transcript_tokens=max_transcript_tokens, max_new_tokens=max_new_tokens, criteria=criteria, server=server,
                images=images, out_of_domain=out_of_domain, trust_remote_code=trust_remote_code,
            )  # fmt: skip
        questions = load_criteria(criteria) if isinstance(criteria, str | Path) else criteria
        loaded = load(model, LoadOptions(
            settings=settings, device=device, dtype=dtype, attn_implementation=attn_implementation, revision=revision, token=token,
            batch_tokens=batch_tokens, transcript_tokens=max_transcript_tokens, max_windows=max_windows, context=context,
            max_new_tokens=max_new_tokens, timeout_s=timeout_s, concurrency=concurrency, criteria=questions, server=server,
            images=images, trust_remote_code=trust_remote_code,
        ))  # fmt: skip
        return cls(
            loaded.engine, loaded.prompter, settings=loaded.settings, model=loaded.model, model_hash=loaded.model_hash,
            reader=loaded.reader, folder=loaded.folder, dtype=loaded.dtype, max_windows=loaded.settings.max_windows,
            images=loaded.images, out_of_domain=out_of_domain or "unsure",
        )  # fmt: skip

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write and return the judge's directory; raises RRMError if its weights cannot be saved."""
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
        """Upload the judge's directory to the Hugging Face hub as `repo_id`; returns the commit's address.

        Raises RRMError if the judge needs files that only this machine has, or the hub refuses it.
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
        """Return one Feedback per run, in order, as `rrm score` does; failures have a status and no score.

        With `samples` > 1 replies are sampled at temperature 0.7 (or the server options' own) and scores are averaged. Where
        nothing is sampled (`steps`, `score` on a local model, text of a judge that only reads slots) each transcript is
        read once, with one warning. A transcript without a step is `unparsable`, without asking the model.

        Args:
            trajectories: runs, also as lists of messages or records (`rrm.judge.inputs.as_trajectories`).
            mode: default: the judge's own (`JudgeSettings.default_mode`), else `full`.
            on_feedback: called with each row as soon as it is judged, in the order of completion.
            on_reading: called with (id, number of readings) after each reading of a transcript that takes several.
        """
        runs, mode = as_trajectories(trajectories), mode or self.settings.default_mode or "full"
        temperature = self._sampling.temperature(self.abilities, self.asked.temperature, mode, samples)
        marker = DomainFlagger(self.domain, runs)
        hear = None if on_feedback is None else lambda feedback: on_feedback(marker.heard(feedback))
        judgements = self._judgements(runs, mode, samples, seed, temperature, True, hear, on_reading)
        return [marker.mark(feedback, run) for (feedback,), run in zip(judgements, runs, strict=True)]

    def streams(self, mode: Mode) -> bool:
        """Return whether `judge_stream` supports this mode: on a server, without criteria."""
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
        """Judge any number of transcripts, starting the next as soon as the server may get a request.

        Args:
            trajectories: consumed in a thread of their own, a little ahead.
            on_feedback: called with each row as soon as it is judged, one at a time.
            on_reading: as in `judge`.

        Raises:
            SpendingLimit: the limit is reached; transcripts that were begun are judged, the others are not.
        """
        temperature = self._sampling.temperature(self.abilities, self.asked.temperature, mode, samples)
        request = self._request(mode, samples, seed, temperature, True, None, on_reading)
        judge_stream(self.backend(), trajectories, request, self.domain, on_feedback)

    def sample(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        k: int,
        seed: int = 0,
        temperature: float = 1.0,
    ) -> list[list[Feedback]]:
        """Return k independent judgements of each trajectory, one where nothing is sampled."""
        groups = self._judgements(trajectories, mode, k, seed, temperature, False)
        marker = DomainFlagger(self.domain, trajectories)
        return [[marker.mark(f, t) for f in judged] for judged, t in zip(groups, trajectories, strict=True)]

    def describe(self) -> dict[str, Any]:
        """Return all that determines this judge's scores; the rules' version, as windows show a digest."""
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
        # spending on its server; None for a local judge
        return getattr(self.engine, "purse", None)

    @property
    def abilities(self) -> Abilities:
        local, asks = self.prompter is not None, self.criteria is not None
        served = self.reader is not None and self.prompt_version != CUT_VERSION
        return Abilities(self.model, self.settings.modes, local, self.prompt_version, asks, served)

    @property
    def criteria(self) -> Criteria | None:
        """The questions it answers; None: the fixed rubric."""
        return self.settings.criteria

    @property
    def answer_tokens(self) -> int | None:
        # where replies are generated in full: by a server, or to criteria
        return self.settings.max_new_tokens if self.prompter is None or self.criteria is not None else None

    @property
    def prompt_version(self) -> str:
        prompter = self.prompter or self.reader
        return self.settings.prompt_version if prompter is None else prompter.version

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: Mode) -> list[int]:
        """Return each transcript's prompt tokens (server: estimated at four characters a token)."""
        return [reads.tokens for reads in self.measure(trajectories, mode)]

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """Return each transcript's prompt tokens (as `count_tokens`), readings and coverage."""
        samples = samples if self.abilities.samples(mode) else 1
        self.abilities.check(mode)
        backend = self.backend(slots=self.abilities.reads_slots(mode))
        return [backend.measure(trajectory, self.abilities.read_as(mode), samples) for trajectory in trajectories]

    def plan(self, trajectory: Trajectory, mode: Mode) -> WindowPlan:
        """Return a transcript's windows; raises RRMError for prompt version 1, which has none."""
        if self.prompt_version == CUT_VERSION:
            raise RRMError(f"{self.model} was made for prompt version {CUT_VERSION}, which reads no windows")
        return self._plan(trajectory, mode)[0]

    def in_windows(self, trajectory: Trajectory, mode: Mode) -> bool:
        # such scores have maps of their own
        return self._plan(trajectory, mode)[0].windowed

    def readings(self, trajectory: Trajectory, mode: Mode) -> tuple[WindowPlan, list[Window]]:
        """Return a transcript's plan, and each window before any finding; raises RRMError like `plan`."""
        plan, earlier = self._plan(trajectory, mode)
        modes = [earlier] * (len(plan) - 1) + [self.abilities.read_as(mode)]
        return plan, [plan.reading(number, slots=window_mode == "steps") for number, window_mode in enumerate(modes)]

    def as_reward_func(self, *, mode: Mode = "score", seed: int = 0) -> Callable[..., list[float | None]]:
        """Return a reward function for TRL's GRPOTrainer (`rrm.integrations.trl.reward_func`)."""
        return importlib.import_module(FOR_TRL).reward_func(self, mode=mode, seed=seed)

    def as_chat(self) -> Chat:
        """Return the model as a plain chat, for prompts other than the fixed rubric's."""
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
        if self.prompter is not None:
            return self.prompter, LocalSlots(self.engine)
        assert self.reader is not None
        tokenizer = self.reader.tokenizer
        timeout = getattr(self.engine, "timeout_s", SamplingParams.timeout_s)
        return self.reader, ServedSlots(self.engine, lambda token: tokenizer.decode([token]), timeout)

    def backend(self, *, slots: bool = False) -> LocalBackend | ServerBackend:
        # on a server, `slots` are read at a local judge's positions
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
        # a local reply ends at the score's tag; a server's model may think first
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
        request = self._request(mode, samples, seed, temperature, together, on_feedback, on_reading)
        silent = {i: [unspoken(t, request.info)] for i, t in enumerate(trajectories) if not t.steps}
        for rows in silent.values():
            request.tell(rows)
        judged = iter(self._judged([t for t in trajectories if t.steps], request))
        return [silent[i] if i in silent else next(judged) for i in range(len(trajectories))]

    def _judged(self, trajectories: Sequence[Trajectory], request: JudgeRequest) -> list[list[Feedback]]:
        if self.abilities.reads_slots(request.mode):
            self.abilities.check(request.mode)
            prompter, slots = self.slots()
            rows = judge_steps(slots, prompter, trajectories, request, self.settings.verdicts)
            return [[feedback] for feedback in rows]
        return judge_in_windows(self.backend(), trajectories, request, together=self.prompter is None)

    def _request(
        self,
        mode: Mode,
        samples: int,
        seed: int,
        temperature: float,
        together: bool,
        on_feedback: Callable[[Feedback], None] | None,
        on_reading: OnReading | None,
    ) -> JudgeRequest:
        samples = samples if self.abilities.samples(mode) else 1
        params = self.params(seed, temperature)
        maps = self.settings.calibration
        sources = {key: facts.get("score_source") for key, facts in self.settings.calibrated_on.items()}
        return JudgeRequest(self.info(mode, seed), params, maps, samples, together, on_feedback, on_reading, sources)

    def info(self, mode: Mode, seed: int) -> JudgeInfo:
        # facts known before judging
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
    version = PROMPT_VERSION if prompter is None else prompter.version
    return JudgeSettings(opening=prompter is not None, prompt_version=version)
