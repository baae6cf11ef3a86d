"""What a method's attempts come to: success, the benchmark's own figures and what the judge says, each with its interval over questions.

A question with an attempt whose outcome is unknown (its environment failed, its grader did not answer, its prompt left no room) is in
no figure: it is counted by what went wrong. Nothing that failed becomes a number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.agents.methods import Headline
from reagent.env.gradability import Grading
from reagent.env.graders import Grader
from reagent.rollout.episode import Episode
from reagent.train.choosing import attempts_of, policy_tokens, success_by_n
from reagent.train.evaluate import mean_interval, question_of_task, summarise
from reagent.train.metrics import mean
from rrm.data.feedback import Feedback
from rrm.data.trajectory import Trajectory
from rrm.evaluation.bootstrap import JUDGE, by_questions, paired_bootstrap, too_few
from rrm.evaluation.choosing import Attempts
from rrm.evaluation.evaluate import evaluate_feedback

BESIDE = ("judge", "majority", "random", "oracle")  # how one of several attempts is chosen
Figures = dict[str, Any]


def left_out(episodes: Sequence[Episode]) -> dict[str, str]:
    """Group → why the outcome of one of its attempts is unknown."""
    found: dict[str, str] = {}
    for e in episodes:
        if e.success is None and not e.ungraded:
            no_room = e.status == "token_limit"  # the prompt left none for a turn
            why = "no_room" if no_room else "grade_failed" if e.grade_failed else e.status
            found.setdefault(e.group_id, why)
    return found


@dataclass(frozen=True)
class Measure:
    """How episodes of one benchmark are measured."""

    grading: Grading
    samples: int  # attempts at a question
    seed: int  # of intervals and ties

    def attempts(self, episodes: Sequence[Episode]) -> Figures:
        """Figures of all these attempts, means of a task first; `by_question` has these means, `asked_alike` says which tasks ask
        one question."""
        how = {"is_graded": self.grading.is_graded, "metrics": self.grading.metrics}
        found = summarise(episodes, samples=self.samples, seed=self.seed, **how)
        by_question: dict[str, dict[str, float]] = {"success": found.pop("by_task")}
        for name, grade in self.grading.metrics.items():
            grades = grades_of(episodes, grade)
            by_question[name] = {q: mean([g for _, g in ofs]) for q, ofs in grades.items()}
            found[name] = self.interval(by_question[name], sum(map(len, grades.values())), episodes)
        return found | {"by_question": by_question} | asked_alike(episodes)

    def interval(self, values: Mapping[str, float], rows: int, episodes: Sequence[Episode]) -> dict[str, float | None]:
        """Mean of the values, by group of these episodes, with its interval over questions."""
        alike = asked_alike(episodes).get("asked_alike", {})
        return mean_interval(list(values.values()), rows, seed=self.seed, questions=[alike.get(g, g) for g in values])

    def chosen(self, episodes: Sequence[Episode], scores: Sequence[float | None]) -> Figures:
        """Figures of the attempt that the judge scores best, exact expectations where several are scored alike; `choose` has
        success of the other ways to choose, at every number of attempts."""
        groups = attempts_of(episodes, scores, self.grading.is_graded)
        known = [group for group in groups if group.known]
        by_n = success_by_n(groups, BESIDE, self.samples, self.seed)
        by_question: dict[str, dict[str, float]] = {"success": {g.question: g.expected(JUDGE) for g in known}}
        found: Figures = {"success": self.interval(by_question["success"], sum(map(len, known)), episodes)}
        for name, grade in self.grading.metrics.items():
            grades = grades_of(episodes, grade)
            by_question[name] = {g.question: _expected(g, grades[g.question]) for g in groups if g.question in grades}
            found[name] = self.interval(by_question[name], sum(map(len, grades.values())), episodes)
        choose = {"by_n": by_n, **by_n.get(str(self.samples), {})}
        return found | {"by_question": by_question, "choose": choose} | asked_alike(episodes)


def asked_alike(episodes: Sequence[Episode]) -> Figures:
    """`asked_alike`: group → its question, of the groups that share one (BFCL asks each in four categories); nothing of none."""
    questions = {e.group_id: question_of_task(e) for e in episodes}
    groups = Counter(questions.values())
    alike = {group: question for group, question in questions.items() if groups[question] > 1}
    return {"asked_alike": alike} if alike else {}


def grades_of(episodes: Sequence[Episode], grade: Grader) -> dict[str, list[tuple[int, float]]]:
    """Group → (place, grade) of its attempts, 0 where no answer was given; groups of tasks with a reference alone."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for i, e in enumerate(episodes):
        if e.task.answer is not None:
            found[e.group_id].append((i, grade(e.task, e.answer) if e.answer is not None else 0.0))
    return found


def _expected(group: Attempts, grades: Sequence[tuple[int, float]]) -> float:
    return replace(group, outcomes=np.array([grade for _, grade in grades])).expected(JUDGE)


def method_figures(
    episodes: Sequence[Episode],
    headline: Headline,
    measure: Measure,
    transcripts: Sequence[Trajectory],
    feedback: Sequence[Feedback] | None,
) -> Figures:
    """A method's figures: those of the attempts that the headline names, of the episodes of both stages.

    Args:
        transcripts: of the episodes, in their order, as they were judged.
        feedback: the judge's, matched by the transcripts' ids; None: no judge was asked.

    Returns:
        the headline's figures, with `questions` in all, `left_out` by what went wrong, `policy_tokens` a question, `first` (of second
        attempts, the first ones' figures), `choose` and `attempts` (of chosen ones), and `judge` (`judge_figures`).
    """
    gone = left_out(episodes)
    kept = [(e, t) for e, t in zip(episodes, transcripts, strict=True) if e.group_id not in gone]
    stage = "refined" if headline == "refined" else "initial"
    rows = [(e, t) for e, t in kept if e.stage == stage]
    heads = [e for e, _ in rows]
    said = None if feedback is None else {f.id: f for f in feedback}
    questions = len({e.group_id for e in episodes})
    if headline == "chosen":
        scores = [_score(said, t) for _, t in rows]
        every = measure.attempts(heads)
        costs = {name: value for name, value in every.items() if not isinstance(value, dict)}
        found = costs | measure.chosen(heads, scores) | {"attempts": every}
    else:
        found = measure.attempts(heads)
    if headline == "refined":
        found["first"] = measure.attempts([e for e, _ in kept if e.stage == "initial"])
    found |= {
        "questions": questions,
        "left_out": dict(sorted(Counter(gone.values()).items())),
        "policy_tokens": round(policy_tokens(episodes) / questions, 1) if questions else None,
    }
    found["judge"] = None if said is None else judge_figures([t for _, t in rows], said, measure.seed)
    return found


def _score(said: Mapping[str, Feedback] | None, transcript: Trajectory) -> float | None:
    found = (said or {}).get(transcript.id)
    return None if found is None else found.score


def judge_figures(transcripts: Sequence[Trajectory], said: Mapping[str, Feedback], seed: int) -> Figures:
    """`mean` score; `brier` and `auroc` against the known outcomes; how many rows of which `status`; the median share
    of a transcript that was read, `coverage`, and how many rows are `outside` what the judge was measured on, None where it cannot say.

    Undefined figures (AUROC with one outcome alone) have no value, figures of too few questions no interval.
    """
    feedback = [said[t.id] for t in transcripts if t.id in said]
    nothing = mean_interval([], 0, seed=seed)
    by_question: dict[str, list[float]] = defaultdict(list)
    for t in transcripts:
        score = _score(said, t)
        if score is not None:
            by_question[t.question_id or t.task or t.id].append(score)
    means = [mean(scores) for scores in by_question.values()]
    shares = [f.coverage for f in feedback if f.coverage is not None]
    marks = [f.out_of_domain for f in feedback if f.out_of_domain is not None]
    found: Figures = {
        "mean": mean_interval(means, sum(map(len, by_question.values())), seed=seed),
        "brier": nothing,
        "auroc": nothing,
        "status": dict(sorted(Counter(f.status for f in feedback).items())),
        "coverage": float(np.median(shares)) if shares else None,
        "outside": sum(marks) if marks else None,
    }
    if means and any(t.outcome is not None for t in transcripts):
        measured = evaluate_feedback(transcripts, feedback, seed=seed)["metrics"]["judge"]
        found |= {name: measured[name] for name in ("brier", "auroc") if name in measured}
    return found


def difference(
    a: Mapping[str, float], b: Mapping[str, float], seed: int, alike: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """a − b over the groups that both have, paired, with its interval over questions; without one where there are too few.

    Args:
        alike: the questions of groups that share one (`asked_alike`).
    """
    both = sorted(a.keys() & b.keys())
    if not both:
        return {"value": None, "low": None, "high": None, "questions": 0}
    asked = [(alike or {}).get(group, group) for group in both]
    ours, theirs = (by_questions([side[group] for group in both], asked) for side in (a, b))
    count = len(ours.numerator)
    found = paired_bootstrap(ours, theirs, count, seed=seed).unless(too_few(count, 2 * len(both)))
    return {**found.to_dict(), "questions": len(both)}
