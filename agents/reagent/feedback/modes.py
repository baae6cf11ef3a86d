"""The modes of DESIGN §6, one small class each, after Reagent-C, -R and -U of arXiv 2601.22154, §4: its text, not its published code, which
learns nothing in C and has no auxiliary loss in U (docs/feedback.md).

| mode | episodes | reward | what else is learned |
|---|---|---|---|
| none | o1 | R_env | |
| shuffled | o1 | R_env, dealt anew among the attempts at a task (`reagent.feedback.shuffled`) | |
| r | o1 | R_env + λ·s | |
| process | o1 | R_env + the findings on each turn, or how the judge's opinion changed with it | |
| c | o1, o2 after the critique | R_env | |
| retry, placebo | o1, o2 after no critique, or after another task's | R_env | |
| u | o1, o2 after the critique | R_env + λ·s, each its own | the judge's trace and critique, given (q, o1) |

o1 and o2 of a task are one group: group methods compare all 2G rows with each other, PPO whitens over the tokens of both.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from accelerate.utils import gather_object

from reagent.feedback.base import FeedbackMode, JudgedEpisode, Play, Round, judgeable
from reagent.feedback.judging import JudgingReport
from reagent.feedback.leaks import leaks
from reagent.feedback.second_attempt_prompt import second_attempt
from reagent.feedback.settings import FeedbackConfig
from reagent.feedback.shaping import with_score
from reagent.feedback.texts import TEXT_KINDS, SFTRow, TextKind
from reagent.rollout.attempts import Attempt
from reagent.rollout.episode import Episode
from rrm.data.feedback import Mode
from rrm.data.seeds import derive_seed


class NoFeedback(FeedbackMode):
    """`none`: first attempts with the environment's rewards."""

    @classmethod
    def asks_judge(cls, settings: FeedbackConfig) -> bool:
        return False

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        """First attempts as they are."""
        episodes = play(attempts)
        return Round(episodes, episodes)


class ScoreFeedback(FeedbackMode):
    """`r`: R_env + λ·s."""

    @classmethod
    def pays_feedback(cls, settings: FeedbackConfig) -> bool:
        return settings.score_weight != 0

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        """First attempts, paid for their scores."""
        report, mode = JudgingReport(), self.settings.score_mode
        if self.settings.score_from == "rank":  # attempts are compared once all are there
            episodes = play(attempts)
            judged = self.ranked(episodes, update, report)
        else:
            episodes = self.play(play, attempts, mode, update, report)
            judged = self.judge(episodes, mode, update, report)
        self.note_scores(judged, report)
        weight = self.weight(update)
        rows = [with_score(j.episode, self.paid_score(j, report), weight) for j in judged]
        self.note_rewards(rows, report)
        return Round(episodes, rows, report=report)

    def scores(
        self, episodes: Sequence[Episode], update: int, report: JudgingReport, *, by: int | None = None
    ) -> list[float | None]:
        """As in `FeedbackMode.scores`; relative ones where the reward is."""
        if self.settings.score_from != "rank":
            return super().scores(episodes, update, report, by=by)
        return [self.paid_score(one, JudgingReport()) for one in self.ranked(episodes, update, report, by=by)]


class SecondAttempts(FeedbackMode):
    """Base of the modes with a second attempt: a new episode of the same task in an environment set up anew."""

    gathers = True

    def texts_of(self, judged: Sequence[JudgedEpisode], kind: TextKind, report: JudgingReport) -> list[str | None]:
        """The judge's critiques, or traces, that may be shown to the policy: written, and without the answer."""
        found: list[str | None] = []
        for one in judged:
            text = getattr(one.feedback, kind) if one.feedback is not None and one.score is not None else None
            report.counts[f"{kind}s"] += bool(text)
            knew = one.feedback is not None and one.feedback.judge.saw_reference
            if text and (knew or leaks(text, one.episode.task, one.episode.trajectory)):
                report.counts[f"leaked_{kind}s"] += 1
                text = None
            found.append(text or None)
        return found

    def placebos(
        self, judged: Sequence[JudgedEpisode], critiques: Sequence[str | None], update: int
    ) -> list[str | None]:
        """For each attempt the critique of another task's attempt, drawn by seed from those of all processes, which call this
        together; None where there is no other task."""
        mine = zip(judged, critiques, strict=True)
        written = gather_object([(j.episode.task.id, text) for j, text in mine if text is not None])
        found: list[str | None] = []
        for one in judged:
            others = [
                text
                for task, text in written
                if task != one.episode.task.id and not leaks(text, one.episode.task, one.episode.trajectory)
            ]
            rng = random.Random(derive_seed(self.seed, "placebo", update, one.episode.key))
            found.append(rng.choice(others) if others else None)
        return found

    def shown(
        self, judged: Sequence[JudgedEpisode], critiques: Sequence[str | None], update: int, report: JudgingReport
    ) -> list[str | None]:
        """What second attempts are shown as the critique, as `refinement` says."""
        if self.settings.refinement == "retry":
            return [None] * len(judged)
        chosen = list(critiques)
        if self.settings.refinement == "placebo":
            chosen = self.placebos(judged, critiques, update)
        report.counts["without_critique"] += sum(
            text is None and judgeable(one.episode) for one, text in zip(judged, chosen, strict=True)
        )
        return chosen

    def refine(
        self,
        firsts: Sequence[Episode],
        critiques: Sequence[str | None],
        play: Callable[..., list[Episode]],
        report: JudgingReport,
    ) -> tuple[list[Episode], list[Episode]]:
        """(second attempts, the first attempts they follow); none follows an attempt that the environment broke. `play`: (attempts, firsts
        by key, prompt_messages=…) → episodes."""
        chosen = [(e, text) for e, text in zip(firsts, critiques, strict=True) if judgeable(e)]
        attempts = [Attempt(e.task, e.group_id, e.attempt, "refined") for e, _ in chosen]
        before = {attempt.key: pair for attempt, pair in zip(attempts, chosen, strict=True)}

        def prompt(attempt: Attempt, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
            first, critique = before[attempt.key]
            said = [m.model_dump(exclude_none=True) for m in first.own_messages]
            return second_attempt(messages, said, critique, critique_chars=self.settings.critique_chars)

        if not attempts:
            return [], []
        seconds = play(attempts, {key: first for key, (first, _) in before.items()}, prompt_messages=prompt)
        report.counts["no_room"] += sum(e.status == "token_limit" and not e.turns for e in seconds)
        return seconds, [e for e, _ in chosen]


class CritiqueFeedback(SecondAttempts):
    """`c`: a second attempt after the critique; R_env alone."""

    @classmethod
    def asks_texts(cls, settings: FeedbackConfig) -> bool:
        return cls.asks_judge(settings)

    @property
    def judged_in(self) -> Mode:
        return self.settings.critique_mode

    def first_judged(self, firsts: Sequence[Episode], update: int, report: JudgingReport) -> list[JudgedEpisode]:
        """First attempts with their critiques."""
        judged = self.judge(firsts, self.settings.critique_mode, update, report)
        self.note_scores(judged, report)
        return judged

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        """First attempts and second ones."""
        report = JudgingReport()
        firsts = self.play(play, attempts, self.settings.critique_mode, update, report)
        judged = self.first_judged(firsts, update, report)
        critiques = self.texts_of(judged, "critique", report)
        shown = self.shown(judged, critiques, update, report)
        seconds, _ = self.refine(firsts, shown, lambda again, _, **hooks: play(again, **hooks), report)
        # without first attempts, those that no second one followed stand in as rows that teach nothing: processes need
        # as many as each other
        others = firsts if self.settings.train_initial else [
            replace(e, outcome_reward=None) for e in firsts if not judgeable(e)
        ]  # fmt: skip
        return Round([*firsts, *seconds], [*others, *seconds], report=report)


class PlaceboFeedback(CritiqueFeedback):
    """`placebo`: as `c`, with the critique of another task."""

    def __init__(self, settings: FeedbackConfig, **options) -> None:
        super().__init__(settings.model_copy(update={"refinement": "placebo"}), **options)


class RetryFeedback(CritiqueFeedback):
    """`retry`: as `c`, without any critique; no judge is asked."""

    def __init__(self, settings: FeedbackConfig, **options) -> None:
        super().__init__(settings.model_copy(update={"refinement": "retry"}), **options)

    @classmethod
    def asks_judge(cls, settings: FeedbackConfig) -> bool:
        return False

    def first_judged(self, firsts: Sequence[Episode], update: int, report: JudgingReport) -> list[JudgedEpisode]:
        """First attempts, unjudged."""
        return [JudgedEpisode(e, None) for e in firsts]


class UnifiedFeedback(SecondAttempts):
    """`u`: both stages pooled, each paid for its own score, and the judge's texts as an auxiliary loss.

    Scores of both stages are read in one mode of the judge, so that they can be compared with each other.
    """

    @classmethod
    def asks_judge(cls, settings: FeedbackConfig) -> bool:
        return settings.score_weight != 0 or cls.asks_texts(settings)

    @classmethod
    def pays_feedback(cls, settings: FeedbackConfig) -> bool:
        return settings.score_weight != 0

    @classmethod
    def asks_texts(cls, settings: FeedbackConfig) -> bool:
        """Whether the judge is to write."""
        return settings.refinement in ("critique", "placebo") or cls.writes_texts(settings)

    @classmethod
    def writes_texts(cls, settings: FeedbackConfig) -> bool:
        return bool(settings.aux.trace or settings.aux.critique)

    @property
    def written_in(self) -> Mode:
        """The judge's mode in which it writes on first attempts."""
        return "full" if self.settings.aux.trace else self.settings.critique_mode

    @property
    def judged_in(self) -> Mode:
        return self.settings.score_mode if self.settings.score_weight else self.written_in

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        """First attempts, their judgement, second attempts, theirs."""
        report, settings = JudgingReport(), self.settings
        writes = self.written_in
        first_mode = writes if self.asks_texts(settings) else settings.score_mode
        firsts = self.play(play, attempts, first_mode, update, report)
        written = [JudgedEpisode(e, None) for e in firsts]
        if self.asks_texts(settings):
            written = self.judge(firsts, writes, update, report)
        if not settings.score_weight:
            self.note_scores(written, report)
        critiques = self.texts_of(written, "critique", report)
        traces = self.texts_of(written, "trace", report)
        seconds: list[Episode] = []
        before: list[Episode] = []
        shown = critiques
        if settings.refinement != "none":
            shown = self.shown(written, critiques, update, report)
            seconds, before = self.refine(firsts, shown, partial(self.again, play, update, report), report)
        texts = self.texts(firsts, {"trace": traces, "critique": critiques}, report)
        known = written if self.asks_texts(settings) and writes == settings.score_mode else None
        refined = self.paid(seconds, before, update, report)
        rows = [*self.paid(firsts, (), update, report, known), *refined]
        return Round([*firsts, *seconds], rows, texts, report)

    def again(
        self,
        play: Play,
        update: int,
        report: JudgingReport,
        attempts: Sequence[Attempt],
        firsts: Mapping[str, Episode],
        **hooks: Any,
    ) -> list[Episode]:
        """Second attempts, judged as they end where they are to be paid for their scores."""
        if not self.settings.score_weight:
            return play(attempts, **hooks)
        return self.play(play, attempts, self.settings.score_mode, update, report, firsts, **hooks)

    def paid(
        self,
        episodes: Sequence[Episode],
        firsts: Sequence[Episode],
        update: int,
        report: JudgingReport,
        known: list[JudgedEpisode] | None = None,
    ) -> list[Episode]:
        """R_env + λ·s; as they are where λ's setting is 0, so that no failed judgement can cost a row. `known`: their judgements, where
        they have been asked for in the scores' mode already."""
        if not self.settings.score_weight or not episodes:
            return list(episodes)
        judged = known or self.judge(episodes, self.settings.score_mode, update, report, firsts)
        self.note_scores(judged, report, "refined_score" if firsts else "score")
        weight = self.weight(update)
        rows = [with_score(j.episode, self.paid_score(j, report), weight) for j in judged]
        self.note_rewards(rows, report)
        return rows

    def texts(
        self, firsts: Sequence[Episode], said: dict[TextKind, list[str | None]], report: JudgingReport
    ) -> list[SFTRow]:
        """The auxiliary rows, first attempt by first attempt; all processes call this together, as `aux.share` is of the whole
        update's attempts."""
        weights: dict[TextKind, float] = {"trace": self.settings.aux.trace, "critique": self.settings.aux.critique}
        rows: list[SFTRow] = []
        share = self.settings.aux.share
        everyones: list[str] = gather_object([e.key for e in firsts])
        place = {name: number for number, name in enumerate(everyones)}
        for at, episode in enumerate(firsts):
            number = place[episode.key]
            if int((number + 1) * share) == int(number * share):
                continue  # with a share of 1/4, every fourth is taken
            for kind in TEXT_KINDS:
                text = said[kind][at]
                if text is None or not weights[kind]:
                    continue
                if self._writer is None:
                    raise ValueError(f"feedback.mode={self.settings.mode} was made without a writer of texts")
                row = self._writer.row(episode, text, kind, weights[kind])
                if row is None:
                    report.counts["long_texts"] += 1
                else:
                    rows.append(row)
        return rows
