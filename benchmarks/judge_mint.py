"""A judge on real transcripts: agents and sources never trained on, and its critiques.

    python -m benchmarks.judge_mint --dtype bfloat16                       # the shipped judge
    python -m benchmarks.judge_mint --dtype bfloat16 --model runs/mint/run/judge

Writes benchmarks/results/judge_mint.json; every part names the judge that made it. Rows judged are kept under --work and
not judged again. All parts take the test questions of splits/mint.json (40 % of the questions; six agents held out):
  score     rows without a critic: pair accuracy beside the baselines, calibration; apart, agents seen and never seen
  sources   fireact, r1_searcher, tau_bench: never trained on (environment verdicts cut from the transcripts)
  critiques `full` mode on rows with GPT-4's step labels: localisation, format validity, answer leaks
"""

from __future__ import annotations

import argparse
import json
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import mint, record
from rrm.data.feedback import Feedback, Mode
from rrm.data.localisation import step_labels
from rrm.data.provenance import environment
from rrm.data.trajectory import Trajectory
from rrm.evaluation.baselines import fit_agent, fit_tfidf, length_scores, position_verdicts
from rrm.evaluation.evaluate import evaluate_feedback
from rrm.judge.agent_rrm import AgentRRM
from rrm.readers import read
from rrm.scoring.run import ScoringJudge, score_file
from rrm.train import given_labels as given

SOURCES = ("fireact", "r1_searcher", "tau_bench")


def judged(judge: ScoringJudge, rows: Sequence[Trajectory], path: Path, mode: Mode, seed: int) -> list[Feedback]:
    """The rows' feedback, judged now or kept from an earlier run."""
    score_file(judge, rows, path, mode=mode, seed=seed, progress=False)
    wanted = {t.id for t in rows}
    return [f for f in kept(path) if f.id in wanted]


def kept(path: Path) -> list[Feedback]:
    """What a file of `judged` holds."""
    with open(path, encoding="utf-8") as lines:
        known = Feedback.model_fields
        return [Feedback.model_validate({k: v for k, v in json.loads(x).items() if k in known}) for x in lines]


def outcomes(rows: Sequence[Trajectory]) -> np.ndarray:
    """(N,) outcomes."""
    return np.array([t.outcome for t in rows], dtype=np.float64)


def report(rows: Sequence[Trajectory], feedback: Sequence[Feedback], **options: Any) -> dict[str, Any]:
    """The evaluation as plain data."""
    return json.loads(json.dumps(dict(evaluate_feedback(rows, feedback, **options)), default=str))


def score_part(judge: AgentRRM, work: Path, data: Path, seed: int) -> dict[str, Any]:
    """The protocol's rows of the split's test questions, and apart those of held-out and of other agents."""
    parts = mint.load_split()
    held_out = set(parts["held_out_agents"])
    protocol = list(mint.rows(data, critic=False))
    test = [t for t in protocol if t.question_id in set(parts["test"])]
    train = [t for t in protocol if t.question_id in set(parts["train"])]
    feedback = judged(judge, test, work / "score.jsonl", "score", seed)
    baselines = {
        "length": length_scores(test),
        "tfidf": fit_tfidf(train, outcomes(train))(test),
        "agent": fit_agent(train, outcomes(train))(test),
    }
    found = {"all": report(test, feedback, baselines=baselines, seed=seed)}
    for name, keep in (("seen_agents", False), ("unseen_agents", True)):
        index = [i for i, t in enumerate(test) if (t.meta["agent"] in held_out) == keep]
        part = [test[i] for i in index]
        chosen = {k: v[index] for k, v in baselines.items()}
        found[name] = report(part, [f for f in feedback if f.id in {t.id for t in part}], baselines=chosen, seed=seed)
    return found


def without_verdicts(trajectory: Trajectory) -> Trajectory:
    """The transcript without the messages in which the environment reveals the outcome."""
    leaks = set(trajectory.meta.get("outcome_leaks") or [])
    kept = [m for i, m in enumerate(trajectory.messages) if i not in leaks]
    return trajectory.model_copy(update={"messages": kept, "meta": {**trajectory.meta, "outcome_leaks": []}})


def by_question(rows: list[Trajectory], most: int, seed: int) -> list[Trajectory]:
    """About `most` rows: whole questions in random order, so that attempts at a question stay together."""
    if not most or len(rows) <= most:
        return rows
    questions = sorted({t.question_id or t.id for t in rows})
    random.Random(seed).shuffle(questions)
    rank = {q: i for i, q in enumerate(questions)}
    ordered = sorted(rows, key=lambda t: rank[t.question_id or t.id])
    return ordered[:most]


def source_part(judge: AgentRRM, work: Path, data: Path, seed: int, most: int) -> dict[str, Any]:
    """Sources the judge never saw, `most` rows of each drawn by question (0: all)."""
    found = {}
    for source in SOURCES:
        rows = [without_verdicts(t) for t in read([str(data.parent / source)]) if t.outcome is not None]
        rows = by_question([t for t in rows if t.steps], most, seed)
        feedback = judged(judge, rows, work / f"{source}.jsonl", "score", seed)
        found[source] = report(rows, feedback, baselines={"length": length_scores(rows)}, seed=seed)
    return found


def critique_part(judge: AgentRRM, work: Path, data: Path, seed: int, n: int) -> dict[str, Any]:
    """Step localisation, format validity and leaks on `n` test-question rows with step labels."""
    parts = mint.load_split()
    train, test = set(parts["train"]), set(parts["test"])
    critic = list(mint.rows(data, critic=True, proposals_only=False))
    rows = [t for t in critic if t.question_id in test]
    random.Random(seed).shuffle(rows)
    rows = rows[:n]
    labels = {a.trajectory_id: [a] for a in given.annotate(critic)}
    learned = position_verdicts([step_labels(t, labels.get(t.id, ())) for t in critic if t.question_id in train])
    feedback = judged(judge, rows, work / "full.jsonl", "full", seed)
    return report(
        rows,
        feedback,
        step_labels=[step_labels(t, labels.get(t.id, ())) for t in rows],
        step_baselines={"position_only": [learned(len(t.steps)) for t in rows]},
        seed=seed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=None, help="a judge's directory; the shipped default without it")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--data", type=Path, default=mint.DATA)
    parser.add_argument("--work", type=Path, default=Path("runs/judge_mint"))
    parser.add_argument("--output", type=Path, default=record.RESULTS / "judge_mint.json")
    parser.add_argument("--critiques", type=int, default=300)
    parser.add_argument("--per-source", type=int, default=0, help="rows of each unseen source; 0: all")
    parser.add_argument("--parts", default="score,sources,critiques")
    parser.add_argument("--transcript-tokens", type=int, help="what a transcript is cut to; default: the judge's own")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    judge = AgentRRM.from_pretrained(args.model, dtype=args.dtype, max_transcript_tokens=args.transcript_tokens)
    budget = f"-{args.transcript_tokens}" if args.transcript_tokens else ""
    work = args.work / f"{(judge.model_hash or 'no_hash')[:12]}{budget}"
    work.mkdir(parents=True, exist_ok=True)
    whole = json.loads(args.output.read_text()) if args.output.is_file() else {"parts": {}}
    for part in args.parts.split(","):
        if part == "score":
            found = score_part(judge, work, args.data, args.seed)
        elif part == "sources":
            found = source_part(judge, work, args.data, args.seed, args.per_source)
        elif part == "critiques":
            found = critique_part(judge, work, args.data, args.seed, args.critiques)
        else:
            parser.error(f"no part {part!r}")
        whole["parts"][part] = found
        whole.setdefault("judges", {})[part] = judge.describe()
        whole.setdefault("commands", {})[part] = record.command("judge_mint")
        whole |= {"seed": args.seed, "environment": {**environment(), "dtype": args.dtype or "default"}}
        record.write(args.output, whole)
    print(json.dumps({"output": str(args.output), "parts": sorted(whole["parts"])}))


if __name__ == "__main__":
    main()
