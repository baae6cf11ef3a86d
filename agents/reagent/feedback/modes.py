"""The feedback modes, after Reagent-C, -R and -U of arXiv 2601.22154, §4 (text, not code).

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
    @classmethod
    def asks_judge(cls, settings: FeedbackConfig) -> bool:
        return False

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        episodes = play(attempts)
        return Round(episodes, episodes)


class ScoreFeedback(FeedbackMode):
    @classmethod
    def pays_feedback(cls, settings: FeedbackConfig) -> bool:
        return settings.score_weight != 0

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
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
        if self.settings.score_from != "rank":
            return super().scores(episodes, update, report, by=by)
        return [self.paid_score(j, JudgingReport()) for j in self.ranked(episodes, update, report, by=by)]


class SecondAttempts(FeedbackMode):
    """Base of the modes with a second attempt: a new episode of the same task."""

    gathers = True

    def texts_of(self, judged: Sequence[JudgedEpisode], text_kind: TextKind, report: JudgingReport) -> list[str | None]:
        """The judge's critiques, or traces, that the policy may read: written, and without the answer."""
        texts: list[str | None] = []
        for j in judged:
            text = getattr(j.feedback, text_kind) if j.feedback is not None and j.score is not None else None
            report.counts[f"{text_kind}s"] += bool(text)
            knew = j.feedback is not None and j.feedback.judge.saw_reference
            if text and (knew or leaks(text, j.episode.task, j.episode.trajectory)):
                report.counts[f"leaked_{text_kind}s"] += 1
                text = None
            texts.append(text or None)
        return texts

    def placebos(
        self, judged: Sequence[JudgedEpisode], critiques: Sequence[str | None], update: int
    ) -> list[str | None]:
        """Another task's critique for each attempt, drawn by seed; all processes call this together."""
        mine = zip(judged, critiques, strict=True)
        written = gather_object([(j.episode.task.id, text) for j, text in mine if text is not None])
        chosen: list[str | None] = []
        for j in judged:
            others = [
                text
                for task, text in written
                if task != j.episode.task.id and not leaks(text, j.episode.task, j.episode.trajectory)
            ]
            rng = random.Random(derive_seed(self.seed, "placebo", update, j.episode.key))
            chosen.append(rng.choice(others) if others else None)
        return chosen

    def shown(
        self, judged: Sequence[JudgedEpisode], critiques: Sequence[str | None], update: int, report: JudgingReport
    ) -> list[str | None]:
        if self.settings.refinement == "retry":
            return [None] * len(judged)
        chosen = list(critiques)
        if self.settings.refinement == "placebo":
            chosen = self.placebos(judged, critiques, update)
        report.counts["without_critique"] += sum(
            text is None and judgeable(j.episode) for j, text in zip(judged, chosen, strict=True)
        )
        return chosen

    def refine(
        self,
        firsts: Sequence[Episode],
        critiques: Sequence[str | None],
        play: Callable[..., list[Episode]],
        report: JudgingReport,
    ) -> tuple[list[Episode], list[Episode]]:
        """(second attempts, the first attempts they follow); none after a failed environment."""
        chosen = [(e, text) for e, text in zip(firsts, critiques, strict=True) if judgeable(e)]
        attempts = [Attempt(e.task, e.group_id, e.attempt, "refined") for e, _ in chosen]
        before = {attempt.key: pair for attempt, pair in zip(attempts, chosen, strict=True)}

        def prompt(attempt: Attempt, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
            first, critique = before[attempt.key]
            first_messages = [m.model_dump(exclude_none=True) for m in first.own_messages]
            return second_attempt(messages, first_messages, critique, critique_chars=self.settings.critique_chars)

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
        judged = self.judge(firsts, self.settings.critique_mode, update, report)
        self.note_scores(judged, report)
        return judged

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        report = JudgingReport()
        firsts = self.play(play, attempts, self.settings.critique_mode, update, report)
        judged = self.first_judged(firsts, update, report)
        critiques = self.texts_of(judged, "critique", report)
        texts = self.shown(judged, critiques, update, report)
        seconds, _ = self.refine(firsts, texts, lambda again, _, **hooks: play(again, **hooks), report)
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
        return [JudgedEpisode(e, None) for e in firsts]


class UnifiedFeedback(SecondAttempts):
    """`u`: both stages in one judge mode, each paid for its own score; texts as an auxiliary loss."""

    @classmethod
    def asks_judge(cls, settings: FeedbackConfig) -> bool:
        return settings.score_weight != 0 or cls.asks_texts(settings)

    @classmethod
    def pays_feedback(cls, settings: FeedbackConfig) -> bool:
        return settings.score_weight != 0

    @classmethod
    def asks_texts(cls, settings: FeedbackConfig) -> bool:
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
        chosen = critiques
        if settings.refinement != "none":
            chosen = self.shown(written, critiques, update, report)
            seconds, before = self.refine(firsts, chosen, partial(self.again, play, update, report), report)
        texts = self.texts(firsts, {"trace": traces, "critique": critiques}, report)
        judgements = written if self.asks_texts(settings) and writes == settings.score_mode else None
        refined = self.paid(seconds, before, update, report)
        rows = [*self.paid(firsts, (), update, report, judgements), *refined]
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
        if not self.settings.score_weight:
            return play(attempts, **hooks)
        return self.play(play, attempts, self.settings.score_mode, update, report, firsts, **hooks)

    def paid(
        self,
        episodes: Sequence[Episode],
        firsts: Sequence[Episode],
        update: int,
        report: JudgingReport,
        judgements: list[JudgedEpisode] | None = None,
    ) -> list[Episode]:
        """Rows with R_env + λ·s; unchanged where λ is 0, so that no failed judgement costs a row."""
        if not self.settings.score_weight or not episodes:
            return list(episodes)
        judged = judgements or self.judge(episodes, self.settings.score_mode, update, report, firsts)
        self.note_scores(judged, report, "refined_score" if firsts else "score")
        weight = self.weight(update)
        rows = [with_score(j.episode, self.paid_score(j, report), weight) for j in judged]
        self.note_rewards(rows, report)
        return rows

    def texts(
        self, firsts: Sequence[Episode], texts: dict[TextKind, list[str | None]], report: JudgingReport
    ) -> list[SFTRow]:
        """The auxiliary rows, by first attempt; all processes call this together."""
        weights: dict[TextKind, float] = {"trace": self.settings.aux.trace, "critique": self.settings.aux.critique}
        rows: list[SFTRow] = []
        share = self.settings.aux.share
        everyones: list[str] = gather_object([e.key for e in firsts])
        order = {name: number for number, name in enumerate(everyones)}
        for i, episode in enumerate(firsts):
            number = order[episode.key]
            if int((number + 1) * share) == int(number * share):
                continue  # with a share of 1/4, every fourth is taken
            for text_kind in TEXT_KINDS:
                text = texts[text_kind][i]
                if text is None or not weights[text_kind]:
                    continue
                if self._writer is None:
                    raise ValueError(f"feedback.mode={self.settings.mode} was made without a writer of texts")
                row = self._writer.row(episode, text, text_kind, weights[text_kind])
                if row is None:
                    report.counts["long_texts"] += 1
                else:
                    rows.append(row)
        return rows
