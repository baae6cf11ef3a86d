"""The line that decides, found by a small judge that was trained on short logs: at which lengths does it still find it?

    python -m benchmarks.needle_lab --run runs/needle_lab

Trains with `benchmarks/needle_lab.yaml` what `rrm train` would (a run that has finished is not repeated), in mode `steps` on logs of at
most 3,000 tokens that are read in windows, and measures it on the logs and places of the scripted judge (`benchmarks.needle`,
windows of 1,024). A step is labelled bad where a FATAL line stands in it, a run where it has such a step.

What training and test share: the form of a log, the words of its INFO lines, the word FATAL at a line's start. What differs:
seeds, lengths, and all else that is said after FATAL: in training other words, made-up ones and numbers, never those of the test's line.
Training logs also hold WARN, ERROR and NOTE lines made of the same words: no line is bad for being odd.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.adversarial.texts import PROSE
from benchmarks.needle import LENGTHS, NEEDLE, WINDOWS, alarmed, as_log, bad_steps, cases, finds, pairs, put, results
from benchmarks.record import RESULTS, command, commit, made_with, write
from rrm.config import load_config
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import Feedback
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM
from rrm.prompt.prompter import VERDICTS
from rrm.prompt.rendering import OPENINGS, agent_text, observation_text, rubric
from rrm.prompt.rules import step_lines
from rrm.prompt.windows import SLOT

CONFIG = Path(__file__).with_suffix(".yaml")
SHORTEST, LONGEST = 60, 3_000  # tokens of a training log
MOST_LINES = 58
"""Of a step that fits a window, at some fourteen tokens a line. How far the line may stand from its slot is learned, too: with at most 34
lines a judge missed nearly all that stood farther."""
FAR, BEFORE = 0.45, 0.2
"""Shares of ruined steps: the log's longest one that fits, since lines far from their slot are rare by chance; and one whose line stands
in one window with the sound step after it, at a distance at which it might be that step's own: without these, both were called bad."""
SOUND = 10  # least lines of such a sound step
UNBOUNDED = 0.3
"""Share of training logs whose steps may be longer than a window. The verdict on a step stands at each of its parts in training, so a
ruined one has the line in each."""
EVERY = 25
"""Lines after which a long ruined step has another, from a random one on; its last line is one, too. A part without would be called bad for
nothing: with fewer of them sound parts were at p_good 0.5 to 0.8, and of 600 steps one was below any threshold."""
RUINED = 0.55
KNOWN = sorted({word for word in PROSE if word not in re.findall(r"\w+", NEEDLE)})
"""Words of a line, beside made-up ones; none of the test's line. With made-up ones alone FATAL was learned only before such."""
HARMLESS = ("WARN", "ERROR", "NOTE")
POSITIONS = 2_048  # of the model: a window, its rubric and the template
TOKENIZER_LOGS = 600


# ---- what it learns from ---------------------------------------------------------------------------------------------


def words(rng: random.Random) -> str:

    def word() -> str:
        kind = rng.random()
        if kind < 0.15:
            return str(rng.randrange(1000))
        if kind < 0.55:
            return rng.choice(KNOWN)
        return "".join(rng.choice("bcdfghjklmnprstvwz") + rng.choice("aeiou") for _ in range(rng.randint(1, 4)))

    said = [word() for _ in range(rng.randint(3, 11))]
    if rng.random() < 0.5:
        said[rng.randrange(len(said) - 1)] += ":"
    return " ".join(said)


def generate(*, seed: int, logs: int) -> list[tuple[Trajectory, Annotation]]:
    """Labelled training logs (the config's `data.generate`), each a question of its own."""
    return [labelled_log(f"needle-{seed}-{i}", random.Random(derive_seed("needle", seed, i))) for i in range(logs)]


def labelled_log(name: str, rng: random.Random) -> tuple[Trajectory, Annotation]:
    """One training log with a verdict on every step; the lengths' logarithms are evenly spread."""
    tokens = round(math.exp(rng.uniform(math.log(SHORTEST), math.log(LONGEST))))
    unbounded = rng.random() < UNBOUNDED
    steps = results(tokens, rng, mu=rng.uniform(0.5, 4.2), most=None if unbounded else MOST_LINES)
    for _ in range(rng.choice((0, 0, 1, 2, 4))):
        put(steps, rng.random(), f"{rng.choice(HARMLESS)} {words(rng)}")
    if rng.random() < RUINED:
        for _ in range(rng.choice((1, 1, 1, 2))):
            ruined = ruin(steps, rng)
            if len(ruined) > MOST_LINES + 1:
                for at in (*range(rng.randrange(EVERY), len(ruined), EVERY), len(ruined)):  # no part of it is sound
                    ruined.insert(at, f"FATAL {words(rng)}")
    bad = [any(line.startswith("FATAL") for line in lines) for lines in steps]
    log = as_log(steps, rng, name).model_copy(update={"question_id": name, "outcome": float(not any(bad))})
    findings = [Finding(step=k, verdict="bad" if found else "good") for k, found in enumerate(bad, start=1)]
    return log, Annotation(trajectory_id=name, findings=findings, annotator="needle", kind="rules")


def ruin(steps: list[list[str]], rng: random.Random) -> list[str]:
    """Put the line that decides somewhere, into the longest step that fits a window, or before a sound step in the same one; returns
    the ruined step's lines."""
    line, kind = f"FATAL {words(rng)}", rng.random()
    chosen: list[list[str]] = []
    if kind < FAR:
        chosen = [max((lines for lines in steps if len(lines) <= MOST_LINES), key=len, default=[])]
    elif kind < FAR + BEFORE:
        chosen = [a for a, b in pairwise(steps) if len(b) >= SOUND and len(a) + len(b) <= MOST_LINES]
    ruined = rng.choice(chosen) if chosen else []
    if not ruined:
        return steps[put(steps, rng.random(), line) - 1]
    ruined.insert(rng.randrange(len(ruined) + 1), line)
    return ruined


def build(
    trajectories: Sequence[Trajectory],
    annotations: Mapping[str, Annotation],
    *,
    seed: int,
    hidden_size: int = 128,
    intermediate_size: int | None = None,
    layers: int = 3,
    heads: int = 4,
    vocab_size: int = 1536,
) -> tuple[Any, Any]:
    """(model, tokenizer), the lab's, with room for longer windows (the config's `model.base`)."""
    from reagent.lab.model import build_lab_model, build_lab_tokenizer

    tokenizer = build_lab_tokenizer(texts(trajectories[:TOKENIZER_LOGS]), vocab_size, digits_together=3)
    sizes = {"hidden": hidden_size, "layers": layers, "heads": heads, "intermediate": intermediate_size}
    model = build_lab_model(tokenizer, **sizes, seed=seed)
    tokenizer.model_max_length = model.config.max_position_embeddings = POSITIONS
    return model, tokenizer


def texts(trajectories: Sequence[Trajectory]) -> list[str]:
    """What the tokenizer is made from: the rubric, the logs' steps, digests and slots."""
    found: list[str] = []
    for trajectory in trajectories:
        found.append(rubric("steps") + OPENINGS["steps"])
        for step, line in zip(trajectory.steps, step_lines(trajectory.steps), strict=True):
            found.append(f"agent: {agent_text(step.message)}\n{observation_text(step)}\n")
            found.append(f"[step {step.index}] {line} (bad)\n")
            found += [SLOT.format(step=step.index) + verdict for verdict in VERDICTS]
    return found


# ---- what it is measured on ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """A ruined log and the same without its line, as they were judged."""

    tokens: int  # asked for, of four characters each
    place: float
    step: int | None  # the ruined one
    steps: int
    bad: list[int]  # steps of the ruined log that were called bad
    score: float | None
    found: bool
    sound_bad: list[int]
    sound_score: float | None
    alarmed: bool
    p_ruined: float | None  # p_good of the ruined step
    p_lowest: float | None  # the lowest p_good of the other log
    coverage: float  # the lower one
    transcript: int  # the judge's own tokens in both logs
    read: int  # tokens read of both, without rubrics and the chat template
    read_all: int  # with them
    readings: int


def judge_pairs(judge: AgentRRM, tokens: int, places: Sequence[float], seed: int) -> list[Pair]:
    """Judge logs of one length with the line at each of these places, and the same logs without it."""
    made = pairs(tokens, places, seed)
    ruined = judge.judge([log for (log, _), _ in made], mode="steps")
    sound = judge.judge([log for _, log in made], mode="steps")
    rows: list[Pair] = []
    for place, ((log, step), other), said, clean in zip(places, made, ruined, sound, strict=True):
        sizes = [tokens_read(judge, *row) for row in ((log, said), (other, clean))]
        transcript, read, read_all, readings = (sum(parts) for parts in zip(*sizes, strict=True))
        p_ruined = next((f.p_good for f in said.findings if f.step == step), None)
        p_lowest = min((f.p_good for f in clean.findings if f.p_good is not None), default=None)
        rows.append(
            Pair(
                tokens=tokens, place=place, step=step, steps=len(log.steps), bad=bad_steps(said), score=said.score,
                found=finds(said, step, "steps"), sound_bad=bad_steps(clean), sound_score=clean.score, alarmed=alarmed(clean),
                p_ruined=p_ruined, p_lowest=p_lowest, coverage=min(said.coverage or 0.0, clean.coverage or 0.0),
                transcript=transcript, read=read, read_all=read_all, readings=readings,
            )
        )  # fmt: skip
    return rows


def tokens_read(judge: AgentRRM, log: Trajectory, feedback: Feedback) -> tuple[int, int, int, int]:
    """(transcript tokens, tokens read without and with rubrics, readings) of a judged log, in the judge's own tokens."""
    prompter = judge.prompter
    assert prompter is not None
    plan, bad = prompter.plan(log, "steps"), bad_steps(feedback)
    marks = {f.step: f.step in bad for f in feedback.findings}
    told = [{step: mark for step, mark in marks.items() if step < plan.steps(n)[0]} for n in range(len(plan))]
    inside = sum(len(plan.reading(n, told[n]).ids) for n in range(len(plan)))
    whole = sum(len(prompter.reading(plan, n, "steps", told[n]).ids) for n in range(len(plan)))
    return plan.transcript_tokens, inside, whole, len(plan)


def summed(rows: Sequence[Pair]) -> dict[str, Any]:
    """The figures of one length, as `benchmarks.needle` has them, and tokens read with rubrics."""
    whole = sum(row.transcript for row in rows)
    return {
        "tokens": rows[0].tokens,
        "logs": len(rows),
        **{name: sum(getattr(row, key) for row in rows) / len(rows) for name, key in (("found", "found"), ("alarms", "alarmed"), ("steps", "steps"))},
        **{name: sum(getattr(row, key) for row in rows) / whole for name, key in (("read_per_token", "read"), ("read_with_rubrics", "read_all"))},
        "coverage": min(row.coverage for row in rows),
        "readings": sum(row.readings for row in rows) / (2 * len(rows)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/needle_lab"), help="folder of the training")
    parser.add_argument("--logs", type=int, default=20, help="places tried in logs of each length")
    parser.add_argument("--seed", type=int, default=0, help="of the logs that are measured")
    parser.add_argument("--longest", type=int, help="how many of the longest logs, from the first; all by default")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "needle_lab.json")
    args = parser.parse_args()
    config = load_config(str(CONFIG), [f"output_dir={args.run}"])
    if not (args.run / "judge").is_dir():
        from rrm.train.run import train

        train(config)
    judge = AgentRRM.from_pretrained(str(args.run / "judge"), device="cpu")
    rows: list[dict[str, Any]] = []
    raw: list[dict[str, Any]] = []
    for window, tokens, places, first in cases(args.logs, args.seed):
        if window == WINDOWS[0]:
            found = judge_pairs(judge, tokens, places[: args.longest] if tokens == LENGTHS[-1] else places, first)
            rows.append({"window": window, **summed(found)})
            raw += [asdict(row) for row in found]
            print(json.dumps(rows[-1]), flush=True)
    record = {
        "command": command("needle_lab"),
        "commit": commit(),
        "seed": args.seed,
        **made_with("agent-rrm", "torch", "transformers", "trl"),
        "config": config.model_dump(mode="json", exclude={"output_dir"}),
        "training": json.loads((args.run / "sft" / "done.json").read_text()),
        "judge": {"model_hash": judge.model_hash, "threshold": judge.settings.threshold},
    }
    write(args.output, {**record, "rows": rows, "raw": raw})


if __name__ == "__main__":
    main()
