"""Every public source as rows a judge may learn from: cut at the first verdict, with only the labels that may be learned.

Each source's cautions are kept here, in code (the data's README says why):
  mint            no critic, cut at the first `<solution>`; outcome: solved with exactly that proposal
  mint_critic     GPT-4's verdict and words on each turn; the outcome is not learned (the agent read the critique)
  mint_more       cut at `first_proposal`; outcome: `first_outcome`
  alfworld        one row a graded step, cut before what came back: a run ends at reward 1, so only a step that earned it has
                  no result, and the result's absence would tell. Never the outcome of the whole record
  intercode       rewards as verdicts on steps, good where 1.0; the outcome only where reward could not end the run
  agentdojo, reflexion, fireact, knowagent   the outcome; verdicts of the environment are cut
  tau_bench, r1_searcher                     held out whole, for evaluation only

KnowAgent's ALFWorld runs are left out: they end by themselves at success and have no rewards for steps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import mint
from rrm.data.annotation import Annotation, Finding, critiques_of
from rrm.data.questions import question_hash
from rrm.data.text import leaks, normalise, references, shorten, transcript_text
from rrm.data.trajectory import Message, Trajectory
from rrm.readers import read
from rrm.readers.leaks import cut_verdicts
from rrm.train import given_labels as given

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
UNSEEN = ("tau_bench", "r1_searcher")
"""Never trained on, whole."""
AGENTS = {
    "ft_gpt_3_5_turbo_0613_prince": "gpt-3.5-turbo-0613 fireact",
    "llama_models_lora_llama_2_13": "Llama-2-13b fireact",
    "llama_models_lora_llama_2_7b": "Llama-2-7b fireact",
    "KnowAgentHotpotQA_llama-2-13b_D0": "Llama-2-13b knowagent",
}
"""Who made the runs of files that do not say so in their rows."""
ENDED_FREELY = ("agent", "turn limit")
"""InterCode's `meta.ended` where reward 1 did not end the run, so that its length does not tell the outcome."""
GOAL = "Your task is to:"
"""Stands before the goal in ALFWorld's task text, after the room."""
MAX_WORDS = 25
"""Longest critique of one step, and sentence budget of a critique of an attempt is three times that."""


@dataclass(frozen=True)
class Example:
    """One row of the mixture."""

    trajectory: Trajectory
    """`meta["source"]` names the source; the outcome is there only where it may be learned."""
    annotation: Annotation | None
    keys: tuple[str, ...]
    """Forms of the question: two rows that share one stand on one side of the split."""

    @property
    def source(self) -> str:
        """The source's name, `mint/math`."""
        return self.trajectory.meta["source"]

    @property
    def unseen(self) -> bool:
        """Whether the source is held out whole."""
        return self.source.split("/")[0] in UNSEEN

    def steps(self) -> dict[int, bool]:
        """Labelled steps: number → good."""
        found = self.annotation.findings or [] if self.annotation else []
        return {f.step: f.verdict == "good" for f in found if f.verdict != "unclear"}


def text_keys(task: str) -> tuple[str, ...]:
    """The question's normalised text, and what it is without a preamble or tests (ALFWorld's goal, MBPP's sentence)."""
    forms = [task, task.split("\nassert ")[0], task.rpartition(GOAL)[2]]
    return tuple(dict.fromkeys(f"text:{words}" for form in forms if (words := normalise(form))))


def example(
    trajectory: Trajectory,
    source: str,
    *,
    outcome: float | None,
    findings: Sequence[Finding] = (),
    annotator: str = "",
    kind: str = "rules",
    critique: str | None = None,
    **changes: Any,
) -> Example:
    """A row with its labels; `changes` are fields of the trajectory (its cut messages)."""
    meta = {k: v for k, v in trajectory.meta.items() if k not in ("critiques", "outcome_leaks")}
    cut = trajectory.model_copy(update={**changes, "outcome": outcome, "meta": {**meta, "source": source}})
    label = None
    if findings or critique:
        label = Annotation.model_validate(
            {
                "trajectory_id": cut.id,
                "digest": cut.digest,
                "annotator": annotator,
                "kind": kind,
                "findings": list(findings) or None,
                "critique": critique,
            }
        )
    return Example(cut, label, (f"id:{cut.question_id}", *text_keys(cut.task)))


# ---- MINT --------------------------------------------------------------------------------------------------------------


def mint_outcomes(data: Path) -> Iterator[Example]:
    """The protocol's rows, those of `benchmarks.mint`."""
    for t in mint.rows(data / "transcripts" / "mint", critic=False):
        yield example(t, f"mint/{t.meta['dataset']}", outcome=t.outcome)


def mint_critiques(data: Path) -> Iterator[Example]:
    """Rows with a critic: a verdict a turn, with the critique's words where they do not give the answer away."""
    for t in mint.rows(data / "transcripts" / "mint", critic=True, proposals_only=False):
        worded = {f.step: f for f in given.critiques_to_findings(t, max_words=MAX_WORDS)}
        findings: dict[int, Finding] = {}
        for said in critiques_of(t):
            verdict, _ = given.split_verdict(said.text, said.good)
            if said.step is not None and verdict is not None:
                findings[said.step] = worded.get(said.step) or Finding(step=said.step, verdict=verdict)
        found = [findings[k] for k in sorted(findings)]
        if found:
            critique = given.format_findings([f for f in found if f.text]) or None
            source, critic = f"mint_critic/{t.meta['dataset']}", str(t.meta["critic"])
            yield example(t, source, outcome=None, findings=found, critique=critique, annotator=critic, kind="llm")


def mint_more(data: Path) -> Iterator[Example]:
    """MBPP, HumanEval and MMLU up to the first proposal; ALFWorld as one row a graded step."""
    for t in read([data / "transcripts_more" / "mint_more.jsonl.gz"]):
        task_set = t.meta["task_set"]
        if task_set == "alfworld":
            yield from _alfworld_steps(t)
        elif (first := t.meta["first_proposal"]) is not None:
            kept = mint.cut_at_solution([m.model_dump(exclude_none=True) for m in t.messages[: first + 1]])
            messages = [Message.model_validate(m) for m in kept or ()]
            if len(messages) != first + 1:
                raise ValueError(f"{t.id}: its first proposal is message {first}, but no <solution> stands there first")
            outcome = float(t.meta["first_outcome"] == 1.0)
            yield example(t, f"mint_more/{task_set}", outcome=outcome, messages=messages)


def _alfworld_steps(t: Trajectory) -> Iterator[Example]:
    """Steps with a reward, up to the first proposal: after it the environment says that the answer is wrong."""
    first = t.meta["first_proposal"]
    for step, reward in zip(t.steps, t.meta["step_rewards"], strict=True):
        if reward is None or (first is not None and step.message_index >= first):
            continue
        cut = t.model_copy(update={"id": f"{t.id}@{step.index}"})
        finding = Finding(step=step.index, verdict="good" if reward == 1.0 else "bad")
        messages = t.messages[: step.message_index + 1]
        yield example(
            cut, "mint_more/alfworld", outcome=None, findings=[finding], annotator="alfworld:reward", messages=messages
        )


# ---- other sources -----------------------------------------------------------------------------------------------------


def intercode(data: Path) -> Iterator[Example]:
    """Step rewards; the outcome where the run could go on after reward 1. Partial rewards are no success."""
    for t in read([data / "transcripts_more" / "intercode.jsonl.gz"]):
        pairs = zip(t.steps, t.meta["step_rewards"], strict=True)
        findings = [Finding(step=s.index, verdict="good" if r == 1.0 else "bad") for s, r in pairs if r is not None]
        free = t.meta["ended"] in ENDED_FREELY and t.outcome is not None
        yield example(
            t,
            f"intercode/{t.meta['environment']}",
            outcome=float(t.outcome == 1.0) if free else None,
            findings=findings,
            annotator="intercode:reward",
        )


def agentdojo(data: Path) -> Iterator[Example]:
    """The outcome is utility; whether the injected text had its way is another label, not used here."""
    for t in read([data / "transcripts_more" / "agentdojo.jsonl.gz"]):
        yield example(t, "agentdojo", outcome=t.outcome)


def reflexion(data: Path) -> Iterator[Example]:
    """The outcome, and the reflection written after a failed attempt, unless it gives the answer away."""
    for t in read([data / "transcripts_more" / "reflexion.jsonl.gz"]):
        said = t.meta.get("critique")
        text = shorten(re.sub(r"\[step (\d+)\]", r"step \1", said), 3 * MAX_WORDS) if said else None
        if text and leaks(text, references(t.meta.get("reference")), transcript_text(t)):
            text = None
        yield example(t, "reflexion", outcome=t.outcome, critique=text, annotator="reflexion", kind="llm")


def _graded(data: Path, paths: Sequence[str], source: str) -> Iterator[Example]:
    """Files whose environment wrote its verdict into the transcript: up to there, without it."""
    for t in read([data / "transcripts" / path for path in paths]):
        name = Path(t.source.file).name.split(".json")[0] if t.source else ""
        agent = t.meta.get("agent") or AGENTS.get(name)
        t = cut_verdicts(t)
        yield example(t.model_copy(update={"meta": {**t.meta, "agent": agent}}), source, outcome=t.outcome)


def fireact(data: Path) -> Iterator[Example]:
    """ReAct agents on HotpotQA."""
    return _graded(data, ["fireact"], "fireact")


def knowagent(data: Path) -> Iterator[Example]:
    """KnowAgent's HotpotQA."""
    return _graded(data, ["knowagent/KnowAgentHotpotQA_llama-2-13b_D0.jsonl.gz"], "knowagent")


def unseen(data: Path) -> Iterator[Example]:
    """The sources held out whole. Their question ids carry the source's name, so that no split has them by chance."""
    folder = Path("r1_searcher")
    for source, paths in (
        ("tau_bench", ["tau_bench"]),
        ("r1_searcher/hotpotqa", [str(folder / "hotpotqa_qwen.jsonl.gz")]),
        ("r1_searcher/2wiki", [str(folder / "2wiki_qwen.jsonl.gz")]),
    ):
        for found in _graded(data, paths, source):
            t = found.trajectory
            own = f"{source}:{t.question_id or question_hash(t.task)}"
            keys = (f"id:{own}", *found.keys[1:])
            yield Example(t.model_copy(update={"question_id": own}), None, keys)


READERS = (
    mint_outcomes,
    mint_critiques,
    mint_more,
    intercode,
    agentdojo,
    reflexion,
    fireact,
    knowagent,
    unseen,
)


def load(data: Path = DATA) -> list[Example]:
    """All rows of all sources, in a fixed order, with unique ids.

    Raises:
        ValueError: two rows of one id.
    """
    found = [row for reader in READERS for row in reader(data) if row.trajectory.steps]
    twice = [name for name, n in Counter(row.trajectory.id for row in found).items() if n > 1]
    if twice:
        raise ValueError(f"{len(twice)} ids stand for several rows, the first {twice[0]!r}")
    return found
