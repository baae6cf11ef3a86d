"""One line that decides a run, at a random place of logs of many lengths: is it found, and what does reading cost?

    python -m benchmarks.needle -o benchmarks/results/needle.json

The logs are made here: a shell agent whose steps bring from nothing to thousands of tokens. In the ruined ones a single `FATAL`
line stands among the results. The judge is scripted: it calls a step bad exactly where it is shown such a line in it, and the run
where it is shown the line or is told of a bad step. So what is measured is the reading (`rrm.judge.windowed`), not a model.
A token counts as four characters.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.record import command, commit, made_with, write
from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Message, ToolCall, Trajectory
from rrm.engines.base import SamplingParams
from rrm.engines.scripted import ScriptedChatEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN

LENGTHS = (2_000, 20_000, 200_000)  # tokens of a log
WINDOWS = (1_024, 8_192)
NEEDLE = "FATAL disk 3 lost: every row after this one is garbage"
_WORDS = [
    "table", "row", "index", "cache", "reads", "writes", "node", "query", "path", "user", "retry", "commit", "batch",
    "shard", "page", "block", "queue", "worker",
]  # fmt: skip
_BLOCK = re.compile(r"^\[step (\d+)\]$", re.MULTILINE)


@dataclass
class Found:
    """What was measured of one window and one length of log."""

    window: int
    tokens: int
    logs: int
    found: float  # share of the ruined logs whose step, and no other, was called bad, and whose run was
    alarms: float  # share of the same logs without the line of which a step or the run was called bad
    read_per_token: float  # tokens read (without rubrics) over the transcripts' tokens
    coverage: float  # the lowest of all rows
    readings: float  # mean per log


def make_log(tokens: int, seed: int, place: float | None = None) -> tuple[Trajectory, int | None]:
    """A log of about so many tokens, and the number of its ruined step.

    Args:
        place: share of the log's lines before the one that decides; None: there is no such line.
    """
    rng = random.Random(seed)
    steps = results(tokens, rng)
    ruined = None if place is None else put(steps, place, NEEDLE)
    name = f"{tokens}-{seed}-{'sound' if place is None else 'ruined'}"
    return as_log(steps, rng, name), ruined


def results(tokens: int, rng: random.Random, mu: float = 2.5, most: int | None = None) -> list[list[str]]:
    """The lines that each step of a log of about so many tokens brings.

    Args:
        mu: logarithm of the median number of lines.
        most: lines of a step at most; None: no bound.
    """
    steps: list[list[str]] = []
    left = tokens * CHARACTERS_PER_TOKEN
    while left > 0:
        count = min(int(rng.lognormvariate(mu, 1.2)), left // 60 + 1)
        lines = [_line(rng) for _ in range(count if most is None else min(count, most))]
        left -= sum(len(line) + 1 for line in lines) + 90
        steps.append(lines)
    return steps


def as_log(steps: list[list[str]], rng: random.Random, name: str) -> Trajectory:
    """The transcript whose steps bring these lines."""
    messages = [Message(role="user", content="Move the records to the new store and check them.")]
    for k, lines in enumerate(steps, start=1):
        call = ToolCall(id=f"c{k}", name="shell", arguments={"cmd": f"migrate --batch {rng.randrange(9999)}"})
        messages.append(Message(role="assistant", content=f"Next comes batch {k}.", tool_calls=[call]))
        messages.append(Message(role="tool", name="shell", tool_call_id=f"c{k}", content="\n".join(lines)))
    return Trajectory(id=name, task="Move the records.", question_id="move", messages=messages)


def _line(rng: random.Random) -> str:
    minute, words = rng.randrange(60), rng.choices(_WORDS, k=rng.randint(2, 9))
    return f"12:{minute:02d} INFO {' '.join(words)} {rng.randrange(10**6)}"


def put(steps: list[list[str]], place: float, line: str) -> int:
    """Put a line after that share of all lines, in [0, 1); returns the step's number."""
    at = int(place * sum(map(len, steps)))
    for k, lines in enumerate(steps, start=1):
        if at <= len(lines):
            lines.insert(at, line)
            return k
        at -= len(lines)
    raise AssertionError("place lies in [0, 1)")


def pairs(tokens: int, places: Iterable[float], seed: int) -> list[tuple[tuple[Trajectory, int | None], Trajectory]]:
    """Logs with the line at each of these places, and its step; beside each the same log without it."""
    return [(make_log(tokens, seed + i, place), make_log(tokens, seed + i)[0]) for i, place in enumerate(places)]


def scripted_judge(window: int) -> AgentRRM:
    """A judge of that budget that says bad exactly where it is shown a FATAL line."""

    def reply(messages: list[dict[str, str]], params: SamplingParams, key: str) -> str:
        content = messages[-1]["content"]
        _, *blocks = _BLOCK.split(content)
        shown = dict.fromkeys(map(int, blocks[::2]), False)
        for k, text in zip(blocks[::2], blocks[1::2], strict=True):
            shown[int(k)] |= "FATAL" in text
        lines = [f"[step {k}] {'bad: it is fatal' if bad else 'good: it works'}" for k, bad in shown.items()]
        told = any(line.endswith("(bad)") for line in content.splitlines())
        score = 0.1 if told or any(shown.values()) else 0.9
        return f"<think>{len(lines)} steps</think><critique>{chr(10).join(lines)}</critique><score>{score}</score>"

    settings = JudgeSettings(opening=False, prompt_version="2", transcript_tokens=window)
    return AgentRRM(ScriptedChatEngine(reply), settings=settings)


def measure(window: int, tokens: int, places: Iterable[float], *, mode: Mode = "critique", seed: int = 0) -> Found:
    """Judge logs of one length with the line at each of these places, and the same logs without it."""
    made = pairs(tokens, places, seed)
    judge = scripted_judge(window)
    ruined = judge.judge([log for (log, _), _ in made], mode=mode)
    sound = judge.judge([log for _, log in made], mode=mode)
    engine = judge.engine
    assert isinstance(engine, ScriptedChatEngine)
    read = sum(len(messages[-1]["content"]) for messages, _, _ in engine.calls)
    whole = sum(judge.plan(log, "critique").transcript_tokens for (a, _), b in made for log in (a, b))
    hits = sum(finds(f, step, mode) for f, ((_, step), _) in zip(ruined, made, strict=True))
    return Found(
        window=window, tokens=tokens, logs=len(made), found=hits / len(made), alarms=sum(map(alarmed, sound)) / len(made),
        read_per_token=read / whole, coverage=min(f.coverage or 0.0 for f in [*ruined, *sound]), readings=len(engine.calls) / (2 * len(made)),
    )  # fmt: skip


def bad_steps(feedback: Feedback) -> list[int]:
    return [f.step for f in feedback.findings if f.verdict == "bad"]


def finds(feedback: Feedback, step: int | None, mode: Mode) -> bool:
    """Whether the run was called bad, and in the modes that say so just the one step."""
    return feedback.score is not None and feedback.score < 0.5 and (mode == "score" or bad_steps(feedback) == [step])


def alarmed(feedback: Feedback) -> bool:
    """Whether a step or the run was called bad, or nothing was said of it."""
    return bad_steps(feedback) != [] or feedback.score is None or feedback.score < 0.5


def cases(logs: int, seed: int = 0) -> Iterator[tuple[int, int, list[float], int]]:
    """What is measured: (window, tokens of a log, `logs` random places in [0, 1), seed of the first log)."""
    rng = random.Random(seed)
    for window in WINDOWS:
        for tokens in LENGTHS:
            yield window, tokens, [rng.random() for _ in range(logs)], rng.randrange(10**6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=20, help="places tried in logs of each length")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path, help="results.json")
    args = parser.parse_args()
    rows = [measure(*case, seed=first) for *case, first in cases(args.logs, args.seed)]
    for row in rows:
        print(asdict(row))
    if args.output:
        record = {"command": command("needle"), "commit": commit(), "seed": args.seed, **made_with("agent-rrm")}
        write(args.output, {**record, "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
