"""SmolLM2-135M learns GSM8K with a calculator: a supervised warm start, then GRPO with LoRA on outcomes alone.

    nice -n 19 python -m benchmarks.studies.smollm2_gsm8k --vllm-python .venv-vllm/bin/python
    python -m benchmarks.studies.smollm2_gsm8k --collect             # only write the results of what is done
    python -m benchmarks.studies.smollm2_gsm8k --device cuda         # minutes, on a GPU: runs/smollm2_gsm8k_gpu
    python -m benchmarks.studies.smollm2_gsm8k --device cuda --shown 300 --arms grpo,wide,wide-shuffled --parallel 6 \\
        --runs runs/smollm2_gsm8k_wide --output benchmarks/results/smollm2_gsm8k_wide.json
    python -m benchmarks.studies.smollm2_gsm8k --shown 300 --arms grpo,filled,filled-shuffled \\
        --runs runs/smollm2_gsm8k_few --output benchmarks/results/smollm2_gsm8k_few.json    # hours, on two cores

Questions are GSM8K's (Cobbe et al. 2021, arXiv 2110.14168) whose published solution has one or two operations: a model of 135 M parameters
solves few of the others, and a reward that is always 0 teaches nothing. The model as it stands calls no tool, so it is first shown
--shown published solutions, each of whose calculations became a call. RL then plays other questions of the training file, 40 updates
of 48 episodes (8 of each of 6 questions), and is paid 1 for a right answer. Greedy answers to held-out questions are counted before
and after: the test file's, and 500 of the training file that neither has seen. Everything lies in runs/smollm2_gsm8k, is not
repeated once it is done, and continues where it was stopped. Writes benchmarks/results/smollm2_gsm8k.json.

An earlier run of PPO (320 episodes after 200 demonstrations, calls paid 0.05) rose in reward and fell to 0 of 60: it learned to call
until its turns were over. Since then calls are not paid for, a missing answer costs 0.1, and the policy starts where it solves something.

**Written down before it was run:**

| figure, on held-out questions | wanted | expected |
|---|---|---|
| success of the warm start | ≥ 0.10 | 0.15 |
| success after GRPO less the warm start's, questions resampled, mean of the seeds | interval above 0 | +0.05 |
| answers given, and calls an episode | reported | as before |

**Written down after that was run, before `wide` was.** From 0.201 the two seeds of `grpo` ended at 0.207 and 0.164. 240 of 477 questions were asked, each once,
six an update, and in 59 % of the groups all eight attempts earned alike: two or three questions make a step. That more of them would teach what holds for
others is a conjecture; on multi-hop questions one run with 16 speaks against it (decision 178). `wide` asks 32 an update, and its warm start is shown
300 solutions instead of 1,000, so that 1,236 questions are left to play, each about once, too; `grpo` is run beside it from the same start, which
tells more questions from a start with more to learn. `wide-shuffled` is its control, each group's rewards dealt anew among its attempts. Success of the
warm start: 0.13 expected (0.10 wanted); `grpo` less it: +0.01; `wide` less it, three seeds: interval above 0 wanted, +0.03 expected, and every seed above every one of
the control, which at that gain and the seeds seen so far (0.03 apart) happens in one case of three: to miss it says little. The control: 0 ± 0.02.

**Written down before `filled` was run**, on two cores from 300 solutions, beside `grpo`: as in `smollm2_qa` it draws up to six more batches of problems until six groups differ, and does not divide by a group's deviation, so that a
step is six live problems and not two or three. Two seeds, less the warm start: `grpo` +0.01, `filled` +0.02 expected, an interval above 0 wanted, of `filled` also less its control `filled-shuffled` (0 ± 0.02), and both seeds above both of the control's
(by chance once in six times).

**Written down before any policy was asked so**: as it is trained, a policy samples, and is right far less often than greedily: in the first updates from 1,000 solutions
8 % of the attempts were, from 300 some 3 %, and in the last ten of the two seeds on a GPU 12 and 13 %. So all held-out questions are answered once more, sampled as attempts are
(`sampled` in the record, one answer a question): what outcomes raise by their own lights. Less the warm start's 0.03: `grpo` +0.03, `filled` +0.05, interval above 0 wanted and of `filled` also less
its control (0 ± 0.02), each seed above each. A policy that only grew surer of itself would rise so, too, up to its greedy answers and no further: those of the warm start stand beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import record
from benchmarks.studies.smollm2 import (
    DTYPES,
    REWARDS,
    ROOT,
    calls,
    engine,
    held_in,
    on,
    on_device,
    placed,
    said,
    sampler,
    seeds_in,
    training,
)
from benchmarks.studies.smollm2_gsm8k_figures import CONTROLS, SAMPLED, START, TEMPERATURES, answers, figures, who
from benchmarks.studies.study import begin, call, parse, run_all, train_once, training_command
from benchmarks.studies.warm import CARD, warm_start
from reagent.env.task import Task, write_tasks
from reagent.errors import ToolError
from reagent.lab.demonstrations import Demonstration, ScriptedTurn, plain, played
from reagent.rollout.episode import Episode
from reagent.tasks.base import TaskLimits
from reagent.tasks.gsm8k import GSM8K
from reagent.tasks.reading import read_rows
from reagent.tools.calculator import evaluate, format_number
from reagent.train.config import load_agent_config
from rrm.data.provenance import environment
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import ToolCall
from rrm.engines.hf.host_memory import keep_freed_memory

NAME = "smollm2_gsm8k"
DATA = ROOT.parent / "shared" / "data" / "gsm8k"
ENVIRONMENT = f"benchmarks.studies.{NAME}:FewOperations"
OPERATIONS = 2
SHOWN, FEW = 1000, 300
"""Solutions of the warm start: as a rule, and where more questions are to be left to play."""
OWN_HELD_OUT = 500
"""Of the training file: the test file has 344 such questions."""
UPDATES = 40
TRAINING = (
    "algorithm=grpo", "optim.minibatches=1", f"max_updates={UPDATES}", "save_every=4", "eval.every=0",
    "sample_episodes=8", "rollout.tasks_per_update=6", "rollout.group_size=8", "optim.learning_rate=3e-4",
    "optim.microbatch_tokens=4096",
)  # fmt: skip
PLAYING = (
    f"environment.name={ENVIRONMENT}", "rollout.max_turns=4", "rollout.max_new_tokens=32", "rollout.max_episode_tokens=384",
    "rollout.max_observation_tokens=24",
)  # fmt: skip
WIDE = ("rollout.tasks_per_update=32",)
FILLED = (
    "rollout.dynamic_sampling=6", "loss.advantage_scale=none", "optim.microbatch_tokens=1024", "optim.share_prefixes=true",
)  # fmt: skip
"""All of its rows teach, so that a step has more of them: read as they come, a process takes 9 GB and an update twice as long. Both change no
gradient but by rounding."""
ARMS = {"grpo": (), "filled": FILLED, "wide": WIDE}
ARMS |= {control: (*ARMS[arm], "feedback.mode=shuffled") for arm, control in CONTROLS.items()}
SEEDS = {"grpo": 2}
FEW_SEEDS = {"grpo": 2, "filled": 2, "filled-shuffled": 2}
"""From few solutions, on two cores."""
GPU_SEEDS = {"wide": 3, "wide-shuffled": 3}
"""Those that are wide are of a GPU, and run when they are asked for."""
CONTEXT = 448
_CALCULATION = re.compile(r"<<([^=<>]+)=[^<>]*>>")


class FewOperations(GSM8K):
    """At most three calls of the calculator, then the number."""

    limits: ClassVar[TaskLimits] = TaskLimits(turns=4, new_tokens=32, episode_tokens=384)
    own_parser: ClassVar[str | None] = "search_tags"
    system: ClassVar[str] = "Solve the problem by the calculator, then answer with the number."

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"rewards": REWARDS, "tool_prompt": "brief", **options})


# ---- questions and demonstrations --------------------------------------------------------------------------------------


def problems(path: Path) -> list[tuple[Task, str]]:
    """Tasks of one or two operations with their published solutions, in the file's order."""
    found = []
    for row in read_rows(path):
        task = GSM8K.task_of(row)
        if task is not None and 1 <= task.meta.get("operations", 0) <= OPERATIONS:
            found.append((task, row.text("answer")))
    return found


def script(env: FewOperations, task: Task, solution: str) -> list[ScriptedTurn] | None:
    """A call for each calculation of a solution, then the last result; None where the calculator ends at another number."""
    turns, result = [], ""
    for written in _CALCULATION.findall(solution):
        try:
            result = format_number(evaluate(written))
        except ToolError:
            return None
        turns.append(
            ScriptedTurn(env.parser.render_turn(calls=[ToolCall(name="calculator", arguments={"expression": written})]))
        )
    if not result or len(turns) >= env.limits.turns or env.grade(task, result) < 1:
        return None
    return [*turns, ScriptedTurn(env.parser.render_turn(answer=result))]


def demonstrations(found: Sequence[tuple[Task, str]]) -> Iterator[Demonstration]:
    """Of each problem that can be demonstrated, in their order. Not to be called from a running event loop."""
    env = FewOperations()
    with asyncio.Runner() as runner:
        for task, solution in found:
            turns = script(env, task, solution)
            if turns is None:
                continue
            prompt = env.reset(task)
            run = runner.run(played(env, turns))
            yield Demonstration(task, "tool_call", plain([*prompt, *run.shown]), [False] * len(prompt) + run.train_on)


def prepare(data: Path, runs: Path, shown: int) -> dict[str, int]:
    """`held_out.jsonl` and `train.jsonl`, unless they are there; how many tasks each has. What is demonstrated is in neither.

    Raises:
        SystemExit: too few questions are left to play.
    """
    counts = runs / "counts.json"
    if counts.is_file():
        return json.loads(counts.read_text())
    own, rest, _ = _parts(data, shown)
    test = [task for task, _ in problems(data / "test.jsonl.gz")]
    runs.mkdir(parents=True, exist_ok=True)
    found = {
        "held_out": write_tasks(runs / "held_out.jsonl", [*test, *own]),
        "train": write_tasks(runs / "train.jsonl", rest),
    }
    counts.write_text(json.dumps(found | {"test": len(test)}) + "\n")
    return prepare(data, runs, shown)


def _parts(data: Path, shown: int) -> tuple[list[Task], list[Task], list[Demonstration]]:
    """Of the training file: held out, played, and demonstrated."""
    found = problems(data / "train.jsonl.gz")
    random.Random(derive_seed(NAME, "parts")).shuffle(found)
    own, rest = found[:OWN_HELD_OUT], found[OWN_HELD_OUT:]
    made: list[Demonstration] = []
    for demonstration in demonstrations(rest):
        made.append(demonstration)
        if len(made) == shown:
            break
    last = next((k for k, (task, _) in enumerate(rest) if made and task.id == made[-1].task.id), 0)
    left = [task for task, _ in rest[last + 1 :]]
    if len(made) < shown or len(left) < 100:
        raise SystemExit(
            f"{data}: {len(found)} problems are too few for {shown} demonstrations: give a smaller --shown"
        )
    return [task for task, _ in own], left, made


# ---- runs --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """A folder of runs, and how they are made."""

    runs: Path
    counts: dict[str, int]
    vllm: Path | None = None
    overrides: tuple[str, ...] = ()
    dtype: str = "float32"
    """Of the policies' weights, but the adapters'."""
    device: str = "cpu"

    @property
    def asked(self) -> int:
        """Held-out questions: all, or as many as an override says."""
        said = [o.partition("=")[2] for o in self.overrides if o.startswith("environment.eval_tasks=")]
        return min(int(said[-1]), self.counts["held_out"]) if said else self.counts["held_out"]

    @property
    def warm(self) -> Path:
        """The folder of the warm start."""
        return self.runs / "warm"

    def folder(self, arm: str, seed: int) -> Path:
        """Of a training."""
        return self.runs / arm / f"seed{seed}"

    def options(self, arm: str, seed: int) -> list[str]:
        """Of a training."""
        return [
            f"policy.base={self.warm}", *PLAYING, f"environment.train={{path: {self.runs / 'train.jsonl'}}}",
            f"environment.train_tasks={self.counts['train']}", "environment.options={}",
            f"environment.eval={{path: {self.runs / 'held_out.jsonl'}}}", f"environment.eval_tasks={self.counts['held_out']}",
            *TRAINING, *ARMS[arm], *held_in(self.dtype), *on(self.device), f"seed={seed}", f"output_dir={self.folder(arm, seed)}",
            *self.overrides,
        ]  # fmt: skip

    def train(self, arm: str, seed: int) -> None:
        """A training, and what its policy answers."""
        folder = self.folder(arm, seed)
        done = (folder / "done.json").is_file()
        with nullcontext([]) if done else sampler(self.vllm, self.warm, folder, CONTEXT, self.dtype) as where:
            arguments = ["train", "--config", "smollm2", *where]
            train_once(folder, self.options(arm, seed), folder.with_suffix(".log"), arguments=arguments)
        self.evaluate(folder, folder / "policy")

    def evaluate(self, folder: Path, policy: Path) -> None:
        """A policy on all held-out questions, each way, unless that is done."""
        for way in TEMPERATURES:
            if not (folder / f"{way}.json").is_file():
                self._ask(folder / f"{way}.json", policy, TEMPERATURES[way])

    def _ask(self, target: Path, policy: Path, temperature: float) -> None:
        arguments = [
            "--policy", str(policy), "--output", str(target), "--transcripts", str(target.with_suffix(".jsonl")), *PLAYING,
            "environment.options={}", f"environment.eval={{path: {self.runs / 'held_out.jsonl'}}}",
            f"environment.eval_tasks={self.asked}", f"eval.temperature={temperature}", *held_in(self.dtype), *on(self.device), engine(self.device), "seed=0",
        ]  # fmt: skip
        call(arguments, target.with_suffix(".log"), f"benchmarks.studies.{NAME}_held_out")


def row(episode: Episode) -> dict[str, Any]:
    """What is recorded of a question."""
    right = episode.answer is not None and GSM8K.grader(episode.task, episode.answer) == 1
    return {**said(episode), "correct": float(right), "calls": calls(episode)}


# ---- results -----------------------------------------------------------------------------------------------------------


def collect(study: Study) -> dict[str, Any]:
    """What is done: the warm start's card, trainings, success before and after, and who answered (policy → each run's `seed` and `by`);
    `sampled` the same of sampled answers, where there are any. The rows behind it stay in the folders of runs."""
    places = {arm: seeds_in(study.runs / arm) for arm in ARMS}
    rows, sampled = (
        answers({START: {0: study.runs / START}, **places}, study.asked, UPDATES, way) for way in TEMPERATURES
    )
    made = {
        arm: [training(one) | {"seed": seed} for seed, one in folders.items() if (one / "done.json").is_file()]
        for arm, folders in places.items()
    }
    card = study.warm / CARD
    return {
        "questions": study.counts,
        "warm": json.loads(card.read_text()) if card.is_file() else None,
        "trainings": {arm: runs for arm, runs in made.items() if runs},
        "figures": figures(rows),
        "answered": who(rows),
        **(
            {
                SAMPLED: {
                    "temperature": TEMPERATURES[SAMPLED],
                    "figures": figures(sampled, rows.get(START)),
                    "answered": who(sampled),
                }
            }
            if sampled
            else {}
        ),
    }


def start(study: Study, data: Path, shown: int, epochs: int) -> None:
    """The warm start, made once, and what it answers."""
    if not (study.warm / CARD).is_file():
        import torch

        torch.set_num_threads(1)
        keep_freed_memory()
        policy = load_agent_config("smollm2", held_in(study.dtype)).policy
        warm_start(_parts(data, shown)[2], policy, study.warm, epochs=epochs, batch=8, seed=0, device=study.device)
    study.evaluate(study.runs / START, study.warm)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--shown", type=int, default=SHOWN, help="demonstrations")
    parser.add_argument("--epochs", type=int, default=3, help="of the warm start")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    parser.add_argument("--vllm-python", type=Path, help="of an environment with vLLM, which then samples the episodes")
    on_device(parser)
    args, wanted = parse(parser, NAME, ARMS, SEEDS | FEW_SEEDS | GPU_SEEDS, usual=SEEDS)
    placed(parser, args)
    if not args.data.is_dir() and not (args.runs / "counts.json").is_file():
        parser.error(f"no GSM8K at {args.data}: give its folder with --data")
    runs = args.runs.resolve()
    counts = prepare(args.data, runs, args.shown)
    study = Study(runs, counts, args.vllm_python, tuple(args.overrides), args.dtype, args.device)
    begin(runs, overrides=args.overrides, shown=args.shown, epochs=args.epochs, training=[*TRAINING, *PLAYING],
          dtype=args.dtype, sampler="vllm" if args.vllm_python else "hf", **({"device": args.device} if args.device != "cpu" else {}))  # fmt: skip
    if not args.collect:
        start(study, args.data, args.shown, args.epochs)
        due = [(arm, seed) for seed in range(max(wanted.values())) for arm in wanted if seed < wanted[arm]]
        run_all([partial(study.train, arm, seed) for arm, seed in due], args.parallel)
    found = collect(study)
    made = {
        "command": training_command(NAME),
        "commit": record.commit(),
        "environment": environment(),
        "hardware": record.hardware(),
        "seeds": {arm: len(runs) for arm, runs in found["trainings"].items()},
        "overrides": args.overrides,
        "shown": args.shown,
        "dtype": args.dtype,
        "updates": min((one["updates"] for runs in found["trainings"].values() for one in runs), default=0),
    }
    record.write(args.output, made | found)
    print(json.dumps({"output": str(args.output), **{k: v["success"] for k, v in found["figures"].items()}}))


if __name__ == "__main__":
    main()
