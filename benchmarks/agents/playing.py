"""Playing a method so that it can be stopped anywhere: each attempt is kept when it ends, and a later run plays the others.

Attempts are the same either way: their samples depend on (seed, the attempt's key, its length) alone (`reagent.rollout.rollout`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reagent.env.task import Task
from reagent.feedback.base import FeedbackMode, as_judged
from reagent.feedback.judging import JudgeFailure
from reagent.rollout.attempts import Attempt, plan
from reagent.rollout.episode import Episode
from reagent.train.config import AgentConfig
from rrm.data.output import RowFile
from rrm.data.trajectory import Trajectory

Play = Callable[..., list[Episode]]  # as `reagent.train.evaluate.EpisodeRunner`


class Kept:
    """A player that remembers: `play` plays what is not in `output`, a line an episode, token for token."""

    def __init__(self, play: Play, output: RowFile) -> None:
        self._play, self._output = play, output
        read = output.rows(
            lambda row: Episode.from_json(json.dumps(row)), "an episode", "delete the folder to play again"
        )
        self.held = {episode.key: episode for _, episode in read}

    def __call__(
        self, attempts: Sequence[Attempt], *, on_end: Callable[[Episode], None] | None = None, **hooks: Any
    ) -> list[Episode]:
        missing = [attempt for attempt in attempts if attempt.key not in self.held]
        if on_end is not None:
            for attempt in attempts:
                if attempt.key in self.held:
                    on_end(self.held[attempt.key])

        def ended(episode: Episode) -> None:
            self._keep(episode)
            if on_end is not None:
                on_end(episode)

        if missing:
            for episode in self._play(missing, on_end=ended, **hooks):
                self._keep(episode)  # those that ended before their first turn
        return [self.held[attempt.key] for attempt in attempts]

    def _keep(self, episode: Episode) -> None:
        if episode.key not in self.held:
            self.held[episode.key] = episode
            self._output.append([json.loads(episode.to_json())])

    def forget(self, unwanted: Callable[[Episode], bool]) -> int:
        """Drop episodes, to be played again; returns how many."""
        if keys := {key for key, episode in self.held.items() if unwanted(episode)}:
            self.held = {key: episode for key, episode in self.held.items() if key not in keys}
            self._output.keep(lambda row: Episode.from_json(json.dumps(row)).key not in keys)
        return len(keys)


@dataclass(frozen=True)
class Played:
    """What a method's config came to."""

    episodes: list[Episode]  # first attempts, then second ones where there are any
    feedback: dict[str, float]  # the adapter's figures, `feedback/…`

    @property
    def transcripts(self) -> list[Trajectory]:
        """What a judge reads of each: of a second attempt without the first one and its critique."""
        firsts = {(e.group_id, e.attempt): e for e in self.episodes if e.stage == "initial"}
        return [
            as_judged(e, firsts[e.group_id, e.attempt]) if e.stage == "refined" else e.trajectory for e in self.episodes
        ]


def play_method(config: AgentConfig, play: Kept, tasks: Sequence[Task], feedback: FeedbackMode | None = None) -> Played:
    """All attempts at the tasks as a method's config says.

    Args:
        feedback: of a config with second attempts; what its record holds of an earlier run is not asked for again.

    Raises:
        JudgeFailure: too many judgements failed; second attempts, of which some were made without a critique, are forgotten.
    """
    attempts = plan(tasks, config.eval.samples)
    if feedback is None:
        return Played(play(attempts), {})
    feedback.restore(1, {})
    round_ = feedback.round(0, attempts, play)
    try:
        figures = feedback.report(None, [round_.report])
    except JudgeFailure:
        play.forget(lambda episode: episode.stage == "refined")
        raise
    return Played(sorted(round_.played, key=lambda e: e.stage != "initial"), figures)
