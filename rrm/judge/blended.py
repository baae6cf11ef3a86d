"""A judge whose score is blended with its lexical model's: for scoring finished runs (`rrm score`), never for rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rrm.errors import ConfigError, RRMError
from rrm.feedback import Feedback, Mode, Reads
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.lexical import Lexical
from rrm.judge.wanted import OnReading
from rrm.money import Purse
from rrm.trajectory import Trajectory


def blends_unasked(judge: AgentRRM, mode: Mode) -> bool:
    """Whether a judge's finished runs are scored with its blend where nobody says (`JudgeSettings.default_blend`)."""
    if not isinstance(judge, AgentRRM):  # a chat model has no directory, and nothing to blend with
        return False
    blend = judge.settings.blend
    return judge.settings.default_blend and blend is not None and judge.abilities.read_as(mode) in blend.modes


def scorer_of(judge: AgentRRM, mode: Mode, blend: bool | None = None) -> AgentRRM | Blended:
    """What scores finished runs: the judge, or its blend.

    Args:
        blend: None: where the judge asks for it (`blends_unasked`).

    Raises:
        ConfigError, RRMError: as `Blended`.
    """
    served = getattr(judge, "scoring", None)
    if served is not None:  # it blends where its files are
        return served(mode, blend)
    return Blended(judge) if blend or (blend is None and blends_unasked(judge, mode)) else judge


class Blended:
    """Judges as its judge does, and puts the blend in the place of the score; all else of a row stays the judge's.

    Raises:
        ConfigError: the judge's directory has no blend.
        RRMError: its lexical model is gone, or another one than the blend was fitted with.
    """

    tells_readings = True
    blends = True

    def __init__(self, judge: AgentRRM) -> None:
        if judge.settings.blend is None or judge.folder is None:
            raise ConfigError(
                f"{judge.model} has no lexical model to blend with: train one with calibration.blend=true, or leave out --blend"
            )
        self.judge_alone, self.blend = judge, judge.settings.blend
        self.lexical = Lexical.load(judge.folder)
        if self.lexical.sha256 != self.blend.lexical_sha256:
            raise RRMError(
                f"{judge.folder}: lexical.json is not the one that judge.json was fitted with; train it again"
            )

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
        on_reading: OnReading | None = None,
    ) -> list[Feedback]:
        """One Feedback per trajectory, in order (`AgentRRM.judge`).

        Raises:
            ConfigError: the blend was not fitted for the mode.
        """
        self._check(mode)
        by_id, done = {t.id: t for t in trajectories}, dict[str, Feedback]()

        def take(feedback: Feedback) -> None:
            done[feedback.id] = self.blended(feedback, by_id[feedback.id])
            if on_feedback is not None:
                on_feedback(done[feedback.id])

        how: dict[str, Any] = {"mode": mode, "samples": samples, "seed": seed}
        self.judge_alone.judge(trajectories, **how, on_feedback=take, on_reading=on_reading)
        return [done[t.id] for t in trajectories]

    def streams(self, mode: Mode) -> bool:
        """Whether `judge_stream` can be asked (`AgentRRM.streams`)."""
        return self.judge_alone.streams(mode)

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
        """`judge` for any number of transcripts (`AgentRRM.judge_stream`); their ids are unique."""
        self._check(mode)
        begun: dict[str, Trajectory] = {}

        def noted() -> Iterator[Trajectory]:
            for trajectory in trajectories:
                begun[trajectory.id] = trajectory
                yield trajectory

        def take(feedback: Feedback) -> None:
            on_feedback(self.blended(feedback, begun.pop(feedback.id)))

        how: dict[str, Any] = {"mode": mode, "samples": samples, "seed": seed}
        self.judge_alone.judge_stream(noted(), **how, on_feedback=take, on_reading=on_reading)

    def _check(self, mode: Mode) -> None:
        if self.judge_alone.abilities.read_as(mode) not in self.blend.modes:
            fitted = ", ".join(self.blend.modes)
            raise ConfigError(f"{self.judge_alone.model} blends in mode {fitted}, not in {mode}: leave out --blend")

    def blended(self, feedback: Feedback, trajectory: Trajectory) -> Feedback:
        """The row with the blended score; one without a score stays as it is."""
        if feedback.score is None or feedback.raw_score is None:
            return feedback
        fitted = self.blend.modes[self.judge_alone.abilities.read_as(feedback.judge.mode)]
        raw = fitted(feedback.raw_score, self.lexical.log_odds(trajectory))
        windowed = self.judge_alone.in_windows(trajectory, feedback.judge.mode)
        own = {"unblended_score": feedback.score, "unblended_raw_score": feedback.raw_score}
        info = feedback.judge.model_copy(update={**own, "calibrated": fitted.covers(windowed=windowed)})
        score = fitted.probability(raw, windowed=windowed)
        return feedback.model_copy(update={"raw_score": raw, "score": score, "judge": info})

    @property
    def purse(self) -> Purse | None:
        """What is paid for its judge's server."""
        return self.judge_alone.purse

    def describe(self) -> dict[str, Any]:
        """What decides the scores."""
        return {**self.judge_alone.describe(), "blend": self.blend.lexical_sha256[:12]}

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """What is read of each transcript (`AgentRRM.measure`)."""
        return self.judge_alone.measure(trajectories, mode, samples)
