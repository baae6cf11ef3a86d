"""A judge is trained on the very prompts of its use, at any length (prompt version 2)."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from reagent.lab.model import build_lab_tokenizer
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import Mode
from rrm.data.labels import JudgementTarget, StepTarget
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import Completion, SamplingParams
from rrm.engines.scripted import ScriptedEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter
from rrm.train.data import epoch_rows

BUDGET = 500


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    words = "Task step agent result is good bad. The run is earlier steps are not listed look at number in the store"
    return build_lab_tokenizer([f"{words} <score>0.1</score> critique think"] * 3, 400)


def run(seed: int) -> Trajectory:
    """A run of one to forty steps, some of them longer than a window."""
    rng = random.Random(seed)
    messages = [Message(role="user", content="find it")]
    for k in range(rng.choice([1, 3, 12, 25, 40])):
        messages.append(Message(role="assistant", content=f"look at number {k} in the store " * rng.randint(1, 3)))
        messages.append(Message(role="tool", content="nothing at all " * rng.choice([1, 1, 4, 20, 200])))
    return Trajectory(id=str(seed), task="find it", question_id="q", messages=messages, outcome=1.0)


def numbers(text: str) -> list[int]:
    """The steps that a prompt shows."""
    return list(dict.fromkeys(int(k) for k in re.findall(r"^\[step (\d+)\]$", text.partition("Task:")[2], re.M)))


class Asked(ScriptedEngine):
    """Finds of each step what its label says, in slots and in words; keeps every prompt of a score."""

    def __init__(self, tokenizer: Any, choices: tuple[int, int], bad: set[int]) -> None:
        self.tokenizer, self.choices, self.bad = tokenizer, choices, bad
        self.scored: list[list[int]] = []
        super().__init__(self.reply, self.verdict)

    def reply(self, row: list[int], params: SamplingParams, key: str) -> Completion:
        critique = "".join(
            f"[step {k}] {'bad' if k in self.bad else 'good'}: so\n" for k in numbers(self.tokenizer.decode(row))
        )
        ids = self.tokenizer.encode(f"{critique}</critique><score>", add_special_tokens=False)
        return Completion(ids, [-1.0] * len(ids), "stop")

    def verdict(self, row: list[int], t: int) -> float:
        slot = re.search(r"\[step (\d+)\] is\s*$", self.tokenizer.decode(row[max(t - 40, 0) : t]))
        return 0.0 if slot and row[t] == self.choices[int(slot[1]) in self.bad] else -5.0

    def continuation_logprobs(self, rows: Any, continuations: Any, keys: Any = None) -> list[list[float]]:
        self.scored += [list(row) for row in rows]
        return super().continuation_logprobs(rows, continuations, keys)


@pytest.mark.parametrize(
    "modes", [["score"], ["score", "steps"], ["score", "critique"], ["score", "critique", "steps"]]
)
def test_a_score_is_trained_on_the_prompt_it_is_asked_with(tokenizer: Any, modes: list[Mode]) -> None:
    """They were cut without room for slots, and told of no step, whatever the judge found first."""
    prompter, windowed, marked = Prompter(tokenizer, BUDGET), 0, 0
    for seed in range(12):
        trajectory = run(seed)
        steps = range(1, len(trajectory.steps) + 1)
        bad = {k for k in steps if random.Random(f"{seed} {k}").random() < 0.3}
        engine = Asked(tokenizer, prompter.choices, bad)
        settings = JudgeSettings(modes=modes, prompt_version="2", transcript_tokens=BUDGET)
        (feedback,) = AgentRRM(engine, prompter, settings=settings).judge([trajectory], mode="score")
        assert feedback.status == "scored"
        findings = [Finding(step=k, verdict="bad" if k in bad else "good", text="so") for k in steps]
        critique = "\n".join(f"[step {f.step}] {f.verdict}: so" for f in findings)
        written = Annotation(
            trajectory_id=trajectory.id, critique=critique, findings=findings, annotator="x", kind="human"
        )
        rows = epoch_rows(
            prompter,
            [trajectory],
            {trajectory.id: JudgementTarget(1.0, "outcome", annotation=written)},
            dict.fromkeys(modes, 1.0),
            balance=None,
            injection=0.0,
            rng=random.Random(0),
            finding_noise=0.0,
            steps={trajectory.id: StepTarget(tuple(f.verdict for f in findings))},
        )
        ids = engine.scored[-1]  # those before it are of critiques
        assert [row.prompt for row in rows if row.mode == "score"] == [ids]
        windowed += feedback.coverage != 1.0 or len(prompter.plan(trajectory, "score")) > 1
        marked += "(bad)" in tokenizer.decode(ids)
    assert 4 < windowed < 12 and (marked > 4) == (modes != ["score"])
