"""Build the feedback of a config: its mode, its judge, its record in the run folder."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reagent.feedback.base import FeedbackMode
from reagent.feedback.judging import Judging
from reagent.feedback.modes import (
    CritiqueFeedback,
    NoFeedback,
    PlaceboFeedback,
    RetryFeedback,
    ScoreFeedback,
    UnifiedFeedback,
)
from reagent.feedback.process import ProcessFeedback
from reagent.feedback.settings import EscalateConfig, FeedbackConfig, ModeName
from reagent.feedback.shuffled import ShuffledRewards
from reagent.feedback.stages import by_stage, longest, named, one_stage, read_criteria
from reagent.feedback.texts import TextWriter
from reagent.tasks.environment_config import EnvironmentConfig
from reagent.tasks.environments import make_factory
from reagent.train.config import AgentConfig
from rrm.data.seeds import derive_seed
from rrm.engines.cost import Prices
from rrm.engines.server_options import ServerOptions
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.rank import check_ranks
from rrm.scoring.escalating import escalating

MODES: dict[ModeName, type[FeedbackMode]] = {
    "none": NoFeedback, "c": CritiqueFeedback, "r": ScoreFeedback, "u": UnifiedFeedback, "process": ProcessFeedback,
    "retry": RetryFeedback, "placebo": PlaceboFeedback, "shuffled": ShuffledRewards,
}  # fmt: skip


@dataclass(frozen=True)
class AskedFor:
    """The option that asks a judge where that is not `feedback.mode`, for messages."""

    setting: str
    otherwise: str


def make_feedback(
    config: AgentConfig,
    tokenizer: Any,
    *,
    device: str,
    judge: AgentRRM | None = None,
    folder: Path | None = None,
    rank: int = 0,
    positions: int | None = None,
    eos_ids: Collection[int] | None = None,
    asker: AskedFor | None = None,
    trains: bool = False,
) -> FeedbackMode:
    """The feedback of `feedback.mode`; a judge is loaded only where the mode asks one.

    Args:
        device, judge: for, or in place of, `feedback.judge`.
        folder, rank: run folder and process of the record, `judgements.jsonl`.
        positions, eos_ids: most tokens the policy takes, and the ends of its turns, for auxiliary rows.
        asker: who set the config's mode, where the user did not.
        trains: for the updates of a training, which have stages of criteria.

    Raises:
        RRMError: the judge cannot be loaded, or asked the criteria; ConfigError: stages without updates.
    """
    settings = config.feedback
    mode = MODES[settings.mode]
    judging = writer = None
    if mode.asks_judge(settings):
        record = folder / ("judgements.jsonl" if rank == 0 else f"judgements-{rank}.jsonl") if folder else None
        if not trains:
            one_stage(settings, f"feedback.mode={settings.mode} of an evaluation" if asker is None else asker.setting)
        if judge is None:
            check_judge(settings, config.environment, asker=asker)
        first, *others = by_stage(judge or load_judge(settings, device), settings, read_criteria(settings))
        for number, stage_judge in enumerate((first, *others)):
            check_unseen(stage_judge, settings, asker=asker, where=named(settings, number) if others else None)
        if settings.score_from == "rank":
            check_ranks(first)
        judging = Judging(
            first,
            seed=derive_seed(config.seed, "judge"),
            record=record,
            later=[(stage.first, stage_judge) for stage, stage_judge in zip(settings.stages[1:], others, strict=True)],
        )
    if mode.writes_texts(settings):
        room = config.rollout.max_episode_tokens * 2
        options = config.rollout.template_options
        writer = TextWriter(tokenizer, min(room, positions or room), eos_ids, options)
    return mode(settings, judging=judging, writer=writer, updates=config.horizon, seed=config.seed)


def check_judge(
    settings: FeedbackConfig,
    environment: EnvironmentConfig,
    option: str = "feedback.judge",
    asker: AskedFor | None = None,
) -> None:
    """Refuse the lab judge for another environment. Raises ConfigError. `option`: names it in the message."""
    from reagent.lab.search_env import SearchEnv

    if settings.judge != "lab" or isinstance(make_factory(environment.name, **environment.made_with)(), SearchEnv):
        return
    who, otherwise = (
        (f"feedback.mode={settings.mode}", "") if asker is None else (asker.setting, f"; or {asker.otherwise}")
    )
    raise ConfigError(
        f"{who} with environment.name={environment.name}: the judge is {option}=lab, which reads "
        f"runs of the search lab alone. Name one that reads your agent's transcripts: {option}=openai:BASE_URL#MODEL (any "
        f"chat model on an OpenAI-compatible server), {option}=default (small, of English agent runs), or the judge/ "
        f"folder of an `rrm train` on transcripts like yours; `rrm eval` says how well it orders them{otherwise}"
    )


def check_unseen(
    judge: AgentRRM, settings: FeedbackConfig, where: str | None = None, asker: AskedFor | None = None
) -> None:
    """Refuse a judge that reads the reference answer where its texts go to the policy. Raises ConfigError."""
    criteria = getattr(judge, "criteria", None)
    if criteria is None or not criteria.see_reference or not MODES[settings.mode].asks_texts(settings):
        return
    reason = (
        f"{where or 'feedback.judge'}: the judge's criteria {criteria.identity} let it read the reference answer, and"
    )
    if asker is not None:
        raise ConfigError(
            f"{reason} {asker.setting} chooses without it: set see_reference: false, or {asker.otherwise}"
        )
    raise ConfigError(
        f"{reason} feedback.mode={settings.mode} hands its texts to the policy: set see_reference: false, or take its score alone "
        "with feedback.mode=r"
    )


def load_judge(settings: FeedbackConfig, device: str, option: str = "feedback.judge") -> AgentRRM:
    """The judge that the config names, with criteria of the longest reply. Raises RRMError."""
    criteria = longest(read_criteria(settings))
    try:
        how = {"device": device, **settings.judge_options.chosen}
        judge = AgentRRM.from_pretrained(settings.judge, criteria=criteria, **how)
    except RRMError as error:
        raise RRMError(f"{option}={settings.judge}: {error}") from error
    return judge if settings.escalate is None else escalating(judge, _stronger(settings.escalate, device))


def _stronger(settings: EscalateConfig, device: str) -> AgentRRM:
    prices = None if settings.price is None else Prices.parse(settings.price)
    how: dict[str, Any] = {"max_new_tokens": settings.max_new_tokens, "timeout_s": settings.timeout_s}
    try:
        if settings.model.startswith("openai:"):
            how["server"] = ServerOptions(prices=prices, max_cost=settings.max_cost)
        elif prices is not None or settings.max_cost is not None:
            raise ConfigError("price and max_cost are of openai:BASE_URL#model")
        elif "://" not in settings.model:
            how["device"] = device
        return AgentRRM.from_pretrained(settings.model, concurrency=settings.concurrency, **how)
    except RRMError as error:
        raise RRMError(f"feedback.escalate.model={settings.model}: {error}") from error
