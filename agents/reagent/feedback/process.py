"""Mode `process`: the judge's verdict on each turn as the turn's reward (this project's own).

| `process.pay` | turn k earns | in sum |
|---|---|---|
| findings | `good` or `bad`, by the finding on it | within ±`max_rewarded_steps` of them |
| spread | λ·(Φ_k − Φ_{k−1}), Φ_0 = 0, the last Φ the score s | λ·s, as mode `r` |
| shaping | the same, the last Φ 0 | 0 |
"""

from collections.abc import Sequence

from reagent.feedback.base import FeedbackMode, JudgedEpisode, Play, Round, judgeable
from reagent.feedback.judging import JudgingReport
from reagent.feedback.potential_shaping import forward_fill, lowest_so_far, prefixes
from reagent.feedback.settings import FeedbackConfig
from reagent.feedback.shaping import unknown, with_differences, with_findings, with_score
from reagent.rollout.attempts import Attempt
from reagent.rollout.episode import Episode
from rrm.data.feedback import Mode


class ProcessFeedback(FeedbackMode):
    @classmethod
    def pays_feedback(cls, settings: FeedbackConfig) -> bool:
        paid = settings.process
        if paid.pay == "findings":
            return paid.good != 0 or paid.bad != 0
        return paid.pay == "spread" and settings.score_weight != 0

    @classmethod
    def learns_from_judge(cls, settings: FeedbackConfig) -> bool:
        # with `shaping` each turn is paid for what the judge says, though nothing in sum
        shaped = settings.process.pay == "shaping" and settings.score_weight != 0
        return shaped or super().learns_from_judge(settings)

    @property
    def judged_in(self) -> Mode:
        paid, findings = self.settings.process, self.settings.process.pay == "findings"
        return paid.judge_mode or (self.settings.critique_mode if findings else self.settings.score_mode)

    def round(self, update: int, attempts: Sequence[Attempt], play: Play) -> Round:
        report, mode, findings = JudgingReport(), self.judged_in, self.settings.process.pay == "findings"
        episodes = self.play(play, attempts, mode, update, report)
        judged = self.judge(episodes, mode, update, report)
        self.note_scores(judged, report)
        rows = self.by_findings(judged, report) if findings else self.by_differences(judged, mode, update, report)
        self.note_rewards(rows, report)
        return Round(episodes, rows, report=report)

    def by_findings(self, judged: Sequence[JudgedEpisode], report: JudgingReport) -> list[Episode]:
        paid = self.settings.process
        return [
            with_findings(
                j.episode,
                self.paid_findings(j, report),
                good=paid.good,
                bad=paid.bad,
                max_rewarded_steps=paid.max_rewarded_steps,
            )
            for j in judged
        ]

    def by_differences(
        self, judged: Sequence[JudgedEpisode], mode: Mode, update: int, report: JudgingReport
    ) -> list[Episode]:
        weight, spread = self.weight(update), self.settings.process.pay == "spread"
        rows: list[Episode] = []
        for attempt, potentials in zip(judged, self.potentials(judged, mode, update, report), strict=True):
            if not judgeable(attempt.episode):
                rows.append(unknown(attempt.episode))
                continue
            end = self.paid_score(attempt, report) if spread else 0.0
            row = with_differences(attempt.episode, potentials, end, weight)
            # where s is paid, an ungraded attempt earns it; where nothing is in sum, it stays ungraded
            rows.append(with_score(row, 0.0, 0.0) if spread else row)
        return rows

    def potentials(
        self, judged: Sequence[JudgedEpisode], mode: Mode, update: int, report: JudgingReport
    ) -> list[list[float]]:
        """Φ after each turn but the last of each attempt (`reagent.feedback.potential_shaping`)."""
        if mode == "steps":
            findings = [attempt.feedback.findings if attempt.feedback is not None else [] for attempt in judged]
            return [lowest_so_far(f, len(j.episode.turns)) for f, j in zip(findings, judged, strict=True)]
        parts = [prefixes(attempt.episode) if judgeable(attempt.episode) else [] for attempt in judged]
        feedback = iter(
            self.judging_at(update).ask([t for trajectories in parts for t in trajectories], mode, update, report)
        )
        return [
            forward_fill([None if (f := next(feedback)).abstains else self.recalibrated(f).score for _ in trajectories])
            for trajectories in parts
        ]
