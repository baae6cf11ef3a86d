"""GSM8K with a calculator, for a small language model: its questions, a supervised warm start, and the config of its trainings.

    python -m benchmarks.studies.gsm8k --runs runs/gsm8k [--base smollm2] [--shown 300] [policy.dtype=bfloat16]
    reagent probe --config runs/gsm8k/config.yaml                      (whether rewards can teach it, once for all arms)
    python -m benchmarks.studies.no_answer_key --config runs/gsm8k/config.yaml --judge small feedback.score_mode=steps \\
        --runs runs/gsm8k/grpo --output benchmarks/results/gsm8k.json

Questions (Cobbe et al. 2021, arXiv 2110.14168) are those whose published solution has one or two operations: of the others a small model
solves few, and a reward that is always 0 teaches nothing. The model is first shown --shown published solutions, each of whose calculations
became a call. RL then plays other questions of the training file; held out are the test file's, and 500 of the training file that neither
has seen. Calls are not paid for, and no answer costs 0.1: paid 0.05 a call, PPO learned to call until its turns were over.

What SmolLM2-135M learned from outcomes alone is recorded (smollm2_gsm8k*.json, docs/results.md), made by commit 85fd7148. There
six questions an update were asked, of which two or three groups differ; `rollout.tasks_per_update=32` asks more, and was not tried.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from benchmarks.studies.study import ROOT
from reagent.env.task import Task, write_tasks
from reagent.errors import ToolError
from reagent.lab.build import homogeneous, rows_of
from reagent.lab.demonstrations import Demonstration, ScriptedTurn, plain, played
from reagent.rollout.templates import TurnTemplate
from reagent.tasks.base import TaskLimits
from reagent.tasks.gsm8k import GSM8K
from reagent.tasks.reading import read_rows
from reagent.tools.calculator import evaluate, format_number
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.export import export
from reagent.train.policy import load_policy
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import ToolCall
from rrm.engines.hf.host_memory import keep_freed_memory
from rrm.train.sft import collate, labelled_positions_only

DATA = ROOT.parent / "shared" / "data" / "gsm8k"
OPERATIONS = 2
OWN_HELD_OUT = 500  # of the training file: the test file has 344 such questions
RATE = 5e-4
TRAINING = (
    "algorithm=grpo", "gate=off", "optim.minibatches=1", "max_updates=40", "save_every=4", "sample_episodes=8", "rollout.tasks_per_update=6",
    "rollout.group_size=8", "optim.learning_rate=3e-4", "optim.microbatch_tokens=1024", "optim.share_prefixes=true",
    "environment.name=benchmarks.studies.gsm8k:FewOperations", "environment.options={}", "rollout.max_turns=4", "rollout.max_new_tokens=32",
    "rollout.max_episode_tokens=384", "rollout.max_observation_tokens=24", "gate=off",  # all runs begin alike: `reagent probe` says it once
)  # fmt: skip
_CALCULATION = re.compile(r"<<([^=<>]+)=[^<>]*>>")
Parts = tuple[list[Task], list[Task], list[Demonstration]]


class FewOperations(GSM8K):
    """At most three calls of the calculator, then the number."""

    limits: ClassVar[TaskLimits] = TaskLimits(turns=4, new_tokens=32, episode_tokens=384)
    own_parser: ClassVar[str | None] = "search_tags"
    system: ClassVar[str] = "Solve the problem by the calculator, then answer with the number."

    def __init__(self, **options: Any) -> None:
        rewards = {"useful": 0.0, "repeated": -0.05, "unanswered": -0.1, "max_malformed": None}
        super().__init__(**{"rewards": rewards, "tool_prompt": "brief", **options})


def problems(path: Path) -> list[tuple[Task, str]]:
    """Read tasks of one or two operations with their published solutions, in the file's order."""
    rows = ((GSM8K.task_of(row), row.text("answer")) for row in read_rows(path))
    return [(task, solution) for task, solution in rows if task and 1 <= task.meta.get("operations", 0) <= OPERATIONS]


def script(env: FewOperations, task: Task, solution: str) -> list[ScriptedTurn] | None:
    """Call for each calculation of a solution, then answer the last result; None where the calculator ends at another number."""
    turns, result = [], ""
    for written in _CALCULATION.findall(solution):
        try:
            result = format_number(evaluate(written))
        except ToolError:
            return None
        call = ToolCall(name="calculator", arguments={"expression": written})
        turns.append(ScriptedTurn(env.parser.render_turn(calls=[call])))
    if not result or len(turns) >= env.limits.turns or env.grade(task, result) < 1:
        return None
    return [*turns, ScriptedTurn(env.parser.render_turn(answer=result))]


def demonstrations(rows: Sequence[tuple[Task, str]]) -> Iterator[Demonstration]:
    """Play each problem that can be demonstrated, in their order. Not to be called from a running event loop."""
    env = FewOperations()
    with asyncio.Runner() as runner:
        for task, solution in rows:
            if (turns := script(env, task, solution)) is not None:
                prompt = env.reset(task)
                run = runner.run(played(env, turns))
                messages, train_on = plain([*prompt, *run.shown]), [False] * len(prompt) + run.train_on
                yield Demonstration(task, "tool_call", messages, train_on)


def parts(data: Path, shown: int) -> Parts:
    """Split the training file into what is held out, played, and demonstrated.

    Raises:
        SystemExit: too few questions are left to play.
    """
    rows = problems(data / "train.jsonl.gz")
    random.Random(derive_seed("smollm2_gsm8k", "parts")).shuffle(rows)
    own, rest = rows[:OWN_HELD_OUT], rows[OWN_HELD_OUT:]
    made: list[Demonstration] = []
    for demonstration in demonstrations(rest):
        made.append(demonstration)
        if len(made) == shown:
            break
    last = next((k for k, (task, _) in enumerate(rest) if made and task.id == made[-1].task.id), 0)
    left = [task for task, _ in rest[last + 1 :]]
    if len(made) < shown or len(left) < 100:
        raise SystemExit(f"{data}: {len(rows)} problems are too few for {shown} demonstrations: give a smaller --shown")
    return [task for task, _ in own], left, made


def prepare(split: Parts, test: Sequence[Task], runs: Path, overrides: Sequence[str] = ()) -> AgentConfig:
    """Write train.jsonl, held_out.jsonl and config.yaml, whose policy is the warm start; what is demonstrated is in neither file."""
    own, rest, _ = split
    runs.mkdir(parents=True, exist_ok=True)
    files = []
    for key, name, tasks in (("train", "train", rest), ("eval", "held_out", [*test, *own])):
        count = write_tasks(runs / f"{name}.jsonl", tasks)
        files += [f"environment.{key}={{path: {runs / f'{name}.jsonl'}}}", f"environment.{key}_tasks={count}"]
    config = load_agent_config("smollm2", [*TRAINING, *files, *overrides, f"policy.base={runs / 'warm'}"])
    (runs / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    return config


def warm_start(shown: Sequence[Demonstration], config: AgentConfig, folder: Path, epochs: int, seed: int = 0) -> None:
    """Train a policy with LoRA on demonstrations and write it, merged, with its card: warm.json says of what it was made."""
    from datasets import Dataset
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    policy, tokenizer = load_policy(config.policy, with_values=False)
    examples = homogeneous(list(rows_of(shown, TurnTemplate(tokenizer), tokenizer)), 8, seed)
    trainer = SFTTrainer(
        model=policy.model,
        args=SFTConfig(
            output_dir=str(folder.with_name(f"{folder.name}.sft")), seed=seed, num_train_epochs=epochs, learning_rate=RATE,
            per_device_train_batch_size=8, lr_scheduler_type="cosine", warmup_steps=0.05, max_length=None,
            train_sampling_strategy="sequential", gradient_checkpointing=False, bf16=False, use_cpu=config.cpu,
            save_strategy="no", logging_steps=10, report_to="none",
        ),
        train_dataset=Dataset.from_list(examples),
        processing_class=tokenizer,
        data_collator=functools.partial(collate, pad_token_id=tokenizer.pad_token_id),
    )  # fmt: skip
    with labelled_positions_only():
        done = trainer.train()
    export(policy, tokenizer, folder)
    card = {"demonstrations": len(shown), "epochs": epochs, "seed": seed, "rate": RATE}
    card["loss"] = round(done.training_loss, 4)
    (folder / "warm.json").write_text(json.dumps(card) + "\n")  # last: without it the policy is made again


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="a.b=c of the config")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--base", default="smollm2", help="the model that is shown solutions: a name, folder or hub id")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "gsm8k")
    parser.add_argument("--shown", type=int, default=300, help="solutions")
    parser.add_argument("--epochs", type=int, default=3, help="of the warm start")
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.error(f"no GSM8K at {args.data}: give its folder with --data")
    runs = args.runs.resolve()
    split = parts(args.data, args.shown)
    config = prepare(split, [task for task, _ in problems(args.data / "test.jsonl.gz")], runs, args.overrides)
    if not (runs / "warm" / "warm.json").is_file():
        keep_freed_memory()
        config.policy.base = args.base
        warm_start(split[2], config, runs / "warm", args.epochs)
    print(json.dumps({"config": str(runs / "config.yaml"), "played": len(split[1]), "shown": len(split[2])}))


if __name__ == "__main__":
    main()
