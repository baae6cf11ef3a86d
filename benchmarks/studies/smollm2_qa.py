"""SmolLM2-135M learns real multi-hop questions on two cores: three warm starts, then reinforcement learning by search.

    python -m benchmarks.studies.smollm2_qa --plan                                        # hours of each part, nothing is run
    nice -n 19 python -m benchmarks.studies.smollm2_qa --vllm-python .venv-vllm/bin/python    # everything, two processes at once
    python -m benchmarks.studies.smollm2_qa --arms grpo --seeds 1                         # one arm; the rest by the same command later
    python -m benchmarks.studies.smollm2_qa --collect                                     # only write the results of what is done
    python -m benchmarks.studies.smollm2_qa --device cuda --parallel 8 --arms wide,wide-shuffled,wide-judge,wide-ppo    # minutes, on a GPU
    python -m benchmarks.studies.smollm2_qa --shown 56 --dtype bfloat16 --arms bare,bare-shuffled,judge,ppo \\
        --runs runs/smollm2_qa_few --output benchmarks/results/smollm2_qa_few.json                    # from a quarter of the demonstrations

HotpotQA and 2WikiMultihopQA, split by the hash of each question into `warm`, `train` and `held_out` (`smollm2_qa_data`); MuSiQue is for
evaluation alone. One BM25 corpus of all their passages. Three methods (`smollm2_qa_demos`) get equal warm starts: the same questions
demonstrated, as many steps. From the warm start of `tool_call` the arms train a LoRA adapter on the same tasks in the same order, 40 updates of
24 episodes (8 of each of 3 questions): `grpo` on outcomes (two seeds), `judge` on the shipped judge's word and no outcome, `ppo` on outcomes,
`filled`, a remedy, and `shuffled`, its control (both below).
Every policy then answers all held-out questions greedily, by the same engine. All of it is in runs/smollm2_qa, is not repeated once it
is done, and continues where it was stopped. Where a folder does not outlive a machine, `--keep` goes on from the record: what it holds is not made
again, and each run is compared with the warm start of its own sitting. With --vllm-python episodes are sampled by a server of each run's own. Writes
benchmarks/results/smollm2_qa.json.

The reward is the answer's F1, not exact match: where a policy is exactly right once in ten attempts, most groups of eight hold no success or
one, and an earlier run of this model on GSM8K, whose outcome is all or nothing, fell to 0. Beside it stand configs/agents/smollm2.yaml's
own: a malformed call costs 0.1, a repeated one 0.05, no answer 0.1, a useful call earns nothing. LoRA, clipping and no KL term are that
config's, too; the learning rate is 3e-4 (its 1e-4 moves an adapter little in 40 steps), and group methods make one step an update. --dtype is that of all
weights but the adapters', warm starts', servers' and the judge's too: bfloat16 takes three quarters of the time on a processor with AMX, and is slower on others.

**Written down before an arm was run** (try-outs of two updates, and warm starts of one pass looked at on 60 questions, were known):

| figure, on the held-out questions | wanted | expected |
|---|---|---|
| `grpo` less its warm start, F1, mean of two seeds, questions resampled | interval above 0 | +0.04 |
| the same, exact match | reported | +0.03 |
| `ppo` less the warm start, F1 | reported | +0.02 |
| `judge` less the warm start, F1: the judge knows no answers, and its training had other agents | reported | 0.00, fewer searches |
| `tool_call` over `naive_rag`, F1 (Agent-R1's best is 2.9 times naive RAG, in exact match and with large models) | reported | 1.3 |
| the best arm over `naive_rag`, F1 | reported | 1.5 |
| `direct`, F1 | reported | 0.08 |
| one of eight attempts of the warm start, F1: the judge less majority, and less the better of longest and shortest | reported | +0.01, +0.02 |
| MuSiQue, `grpo` less warm start, F1: 100 questions of up to four hops show little | reported | 0.00 |

**Written down after `grpo` was run, before `filled` was.** `grpo`'s two seeds gave +0.035 and −0.029: of the groups of eight attempts 43 % and 66 %
earned alike and taught nothing (in 3 and 10 of the updates all three), and a group in which nobody was right but one turn was malformed
weighed as much as one with a right answer, for GRPO divides by each group's deviation. What the seeds learned from so little is how often to
search: two times always, and once. `filled` draws up to six more batches of questions until three groups differ (dynamic sampling), and does not
divide (Dr. GRPO). `filled` less its warm start, F1, mean of two seeds: interval above 0 wanted, +0.04 expected.

**Written down before `shuffled` was run.** `shuffled` is `filled` with each group's rewards dealt anew among its attempts (`feedback.mode=shuffled`):
as many questions differ, advantages are as large, and nothing says which attempt was better. Intervals over questions take the seeds as they
are: with `grpo`'s two, 0.065 apart, the mean of two seeds of an arm that learns nothing would be above its warm start by more than such an interval
about once in four times. `shuffled` less its warm start: 0 expected, each seed within ±0.03. `filled` less `shuffled`, each less its own warm
start (`f1_less_control`): interval above 0, and every seed of `filled` above every seed of `shuffled` (by chance once in six times), wanted.

**On a GPU, more questions an update** (`--device cuda`, smollm2_qa_gpu.json). Written down before it was run: three questions an update say little
about what is worth doing. `wide` is `grpo` with 16 questions an update, 128 episodes; `wide-shuffled` its control (as `shuffled` is `filled`'s),
`wide-judge` and `wide-ppo` are `judge` and `ppo` likewise (whose two minibatches are then of 64 episodes). In 40 updates each question is asked two or
three times, `grpo` asks half of them once: `wide` has more questions, and more of them again. F1 less the warm start: `wide` +0.06, interval above 0, every seed above 0.02;
`wide-shuffled` 0 ± 0.03; `wide-judge` 0.00; `wide-ppo` +0.04; `grpo`'s seeds as before, anywhere between −0.03 and +0.04.

**From few demonstrations** (`--shown 56`, smollm2_qa_few.json). Written down before it was run, after 1,739 answers of the warm start of all 229 had been read. It reads a
passage that holds the answer in 29 % of the questions (F1 0.37 there, 0.06 elsewhere); 44 % of its second searches find the passage that it had (`reading`, `earns` in the record). Among eight attempts at
one question neither a second search (0.01 in F1) nor another passage (0.04) earns much; what earns is to have read the answer (0.35), and that
is a matter of the words of each query: rewards of 120 questions say little of those. What they can say of every question (to call, to answer in few words, to copy from what was
read) 229 demonstrations have said already. The papers' agents begin with none. So a start of 56 (F1 0.07 on 150 questions, 6 % of its turns malformed) leaves that
to be earned. `bare` is `filled`, paid for F1 alone: a try-out of two updates in which malformed turns cost 0.1 learned to take fewer turns first. `bare-shuffled`
is its control. Less the warm start, F1, mean of two seeds: `bare` +0.03, interval above 0 wanted; `bare-shuffled` 0 ± 0.02; `ppo` (penalties as above) +0.01; `judge` 0.00.
`bare` stays below the warm start of 229.

An answer of the two searches' passages is held by about six in ten questions at best (a script that knows the titles), so 0.6 is the ceiling.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.studies.no_answer_key_figures import by_n, grouped_attempts
from benchmarks.studies.smollm2 import DTYPES, ROOT, engine, held_in, on, on_device, placed, sampler, seeds_in, training
from benchmarks.studies.smollm2_qa_data import prepare, tasks_in
from benchmarks.studies.smollm2_qa_demos import METHODS, Method, environment_name
from benchmarks.studies.smollm2_qa_figures import figures
from benchmarks.studies.smollm2_qa_held_out import f1_of
from benchmarks.studies.smollm2_qa_plan import others, planned, told
from benchmarks.studies.smollm2_qa_reading import auroc_within, by_searches, earns, reading
from benchmarks.studies.smollm2_qa_sittings import held_alike, none_lost, packed, pooled, together, trained, whole
from benchmarks.studies.study import Job, begin, call, parse, run_all, train_once, training_command
from benchmarks.studies.warm import CARD
from reagent.env.task import Task
from rrm.data.provenance import environment
from rrm.data.trajectory import Trajectory, read_canonical
from rrm.prompt.actions import final_answer

DATA = ROOT.parent / "shared" / "data" / "qa"
START: Method = "tool_call"
RIVAL: Method = "naive_rag"
UPDATES = 40
ON_THE_WAY = 50
"""Held-out questions of the evaluations within a training; which policy is reported does not hang on them: the last is."""
SETS = ("held_out", "musique")
TRAINING = (
    f"max_updates={UPDATES}", "save_every=4", f"eval.every={UPDATES // 2}", "sample_episodes=8",
    "rollout.tasks_per_update=3", "rollout.group_size=8", "optim.learning_rate=3e-4", "optim.microbatch_tokens=2048",
)  # fmt: skip
PLAYING = (
    "rollout.max_turns=3", "rollout.max_new_tokens=48", "rollout.max_episode_tokens=512", "rollout.max_observation_tokens=160",
)  # fmt: skip
JUDGED = (
    "algorithm=grpo", "optim.minibatches=1", "environment.label_share=0", "feedback.mode=r", "feedback.judge=default",
    "feedback.score_mode=steps", "feedback.score_weight=1",
)  # fmt: skip
FILLED = ("algorithm=grpo", "optim.minibatches=1", "rollout.dynamic_sampling=6", "loss.advantage_scale=none")
ARMS: dict[str, tuple[str, ...]] = {
    "grpo": ("algorithm=grpo", "optim.minibatches=1"),
    "filled": FILLED,
    "shuffled": (*FILLED, "feedback.mode=shuffled"),
    "judge": JUDGED,
    "ppo": ("algorithm=ppo",),
}
SEEDS = {"grpo": 2, "filled": 2, "shuffled": 2, "judge": 1, "ppo": 1}
FEW = 56
"""Demonstrations where there are few, `--shown`."""
FEW_SEEDS = {"bare": 2, "bare-shuffled": 2, "judge": 1, "ppo": 1}
BARE = "environment.options.rewards={useful: 0.0, malformed: 0.0, repeated: 0.0, unanswered: 0.0}"
GPU_SEEDS = {"wide": 3, "wide-shuffled": 3, "wide-judge": 1, "wide-ppo": 1}
WIDE = ("rollout.tasks_per_update=16", "optim.microbatch_tokens=4096")
ARMS |= {f"wide{name}": (*ARMS[arm], *WIDE) for name, arm in (("", "grpo"), ("-judge", "judge"), ("-ppo", "ppo"))}
ARMS["wide-shuffled"] = (*ARMS["wide"], "feedback.mode=shuffled")
ARMS |= {"bare": (*FILLED, BARE), "bare-shuffled": (*FILLED, BARE, "feedback.mode=shuffled")}
"""Those that are wide are of a GPU, those that are bare of a start from few demonstrations; they run when they are asked for."""
CONTROLS = {"filled": "shuffled", "wide": "wide-shuffled", "bare": "bare-shuffled"}
"""Arm → the one that differs from it in what its rewards say alone."""
CHOSEN = 150
"""Held-out questions of which one of eight attempts is chosen; judging them takes most of the time. On a GPU all."""
CHOOSING = (
    "eval.samples=8", "eval.temperature=0.7", f"environment.eval_tasks={CHOSEN}", "feedback.judge=default",
    "feedback.score_mode=steps", "policy.lora=null", "seed=0",
)  # fmt: skip
CONTEXT = 640
"""Tokens of a server's context (`sampler`)."""


@dataclass(frozen=True)
class Study:
    """A folder of runs, and how they are made."""

    runs: Path
    epochs: int
    vllm: Path | None = None
    """The Python of an environment with vLLM; None: episodes are sampled in the training's own process."""
    overrides: tuple[str, ...] = ()
    dtype: str = "float32"
    """Of the policies' weights and of the judge's."""
    threads: int = 1
    """Of each training; all else has one."""
    device: str = "cpu"
    shown: int | None = None
    """Demonstrations of each warm start; None: all."""

    def warm(self, method: Method) -> Path:
        """The folder of a warm start."""
        return self.runs / "warm" / method

    def playing(self, method: Method, tasks: str) -> list[str]:
        """What says how a set of questions is played, by a method."""
        return [
            f"environment.name={environment_name(method)}", f"environment.options={{corpus: {self.runs / 'corpus'}}}",
            f"environment.eval={{path: {self.runs / f'{tasks}.jsonl'}}}", *PLAYING, *held_in(self.dtype), *on(self.device),
        ]  # fmt: skip

    def options(self, arm: str, seed: int) -> list[str]:
        """Of a training."""
        counts = prepared(self.runs)
        return [
            f"policy.base={self.warm(START)}", *self.playing(START, "held_out"),
            f"environment.train={{path: {self.runs / 'train.jsonl'}}}", f"environment.train_tasks={counts['train']}",
            f"environment.eval_tasks={ON_THE_WAY}", *TRAINING, *ARMS[arm], f"seed={seed}",
            f"output_dir={self.folder(arm, seed)}", *self.overrides, *[f"threads={self.threads}"] * (self.threads > 1),
        ]  # fmt: skip

    def folder(self, arm: str, seed: int) -> Path:
        """Of a run."""
        return self.runs / arm / f"seed{seed}"

    def begin_with(self, method: Method) -> None:
        """A warm start, and what it answers."""
        if not (self.warm(method) / CARD).is_file():
            wanted = ["--work", str(self.runs), "--method", method, "--epochs", str(self.epochs), "--dtype", self.dtype]
            wanted += ["--device", self.device, *([] if self.shown is None else ["--shown", str(self.shown)])]
            call(wanted, self.warm(method).with_suffix(".log"), "benchmarks.studies.smollm2_qa_warm")
        for tasks in SETS:
            self.evaluate(self.runs / "start" / method / f"{tasks}.json", method, self.warm(method), tasks)

    def train(self, arm: str, seed: int) -> None:
        """A training, and what its policy answers."""
        folder = self.folder(arm, seed)
        done = (folder / "done.json").is_file()
        with nullcontext([]) if done else sampler(self.vllm, self.warm(START), folder, CONTEXT, self.dtype) as where:
            arguments = ["train", "--config", "smollm2", *where]
            train_once(folder, self.options(arm, seed), folder.with_suffix(".log"), arguments=arguments)
        for tasks in SETS:
            self.evaluate(folder / f"{tasks}.json", START, folder / "policy", tasks)

    def choose(self) -> None:
        """One of eight attempts of the policy at the start, by the shipped judge and by what needs no judge."""
        target = self.runs / "choose" / "figures.json"
        if target.is_file():
            return
        attempts = ["--transcripts", str(target.with_name("attempts.jsonl"))]
        settings = [
            f"policy.base={self.warm(START)}", *self.playing(START, "held_out"),
            *CHOOSING, *([] if self.device == "cpu" else [f"environment.eval_tasks={prepared(self.runs)['held_out']}"]),
            engine(self.device), *self.overrides,
        ]  # fmt: skip
        arguments = ["eval", "--config", "smollm2", "--choose", "all", *attempts, "-o", str(target), *settings]
        call(arguments, target.with_suffix(".log"))

    def evaluate(self, target: Path, method: Method, policy: Path, tasks: str) -> None:
        """A policy on a whole set of questions, unless that is done."""
        if target.is_file():
            return
        arguments = [
            "--policy", str(policy), "--output", str(target), "--transcripts", str(target.with_suffix(".jsonl")),
            *self.playing(method, tasks), engine(self.device), f"environment.eval_tasks={prepared(self.runs)[tasks]}",
            "seed=0", *(o for o in self.overrides if o.startswith("environment.eval_tasks=")),
        ]  # fmt: skip
        call(arguments, target.with_suffix(".log"), "benchmarks.studies.smollm2_qa_held_out")


def prepared(runs: Path) -> dict[str, int]:
    """How many questions each part has."""
    return json.loads((runs / "counts.json").read_text())


# ---- results -----------------------------------------------------------------------------------------------------------


def sitting(study: Study, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is done in a folder: warm starts, trainings, and the answers to both sets of questions.

    Args:
        facts: how its runs are made.
    """
    runs, made = study.runs, {}
    places = {str(method): {0: runs / "start" / method} for method in METHODS}
    for arm in ARMS:
        places[arm] = seeds_in(study.runs / arm)
        done = {seed: folder for seed, folder in places[arm].items() if (folder / "done.json").is_file()}
        made[arm] = [training(folder) | {"seed": seed} for seed, folder in done.items()]
    cards, held_out = {m: study.warm(m) / CARD for m in METHODS}, tasks_in(runs, "held_out")
    answered = {tasks: packed(_answered(places, tasks)) for tasks in SETS}
    return {
        "collected": {"command": training_command("smollm2_qa"), "commit": record.commit()},
        "made_with": dict(facts),
        "hardware": record.hardware(),
        "environment": environment(),
        "warm": {method: json.loads(card.read_text()) for method, card in cards.items() if card.is_file()},
        "trainings": {arm: rows for arm, rows in made.items() if rows},
        "reading": {name: kept for name, folders in places.items() if (kept := _read(folders, held_out))},
        "asked": {tasks: asked for tasks, (asked, _) in answered.items()},
        "rows": {tasks: rows for tasks, (_, rows) in answered.items()},
    }


def _answered(places: Mapping[str, Mapping[int, Path]], tasks: str) -> dict[str, list[dict[str, Any]]]:
    """Policy → `seed` and `rows` of each run that answered a set of questions."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, seed, folder in ((name, seed, folder) for name, of in places.items() for seed, folder in of.items()):
        if (file := folder / f"{tasks}.json").is_file():
            found.setdefault(name, []).append({"seed": seed, "rows": json.loads(file.read_text())})
    return found


def collect(study: Study, facts: Mapping[str, Any], kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What is done: this folder's sitting, those that a record holds, and figures of all on both sets.

    Args:
        kept: a record, `--keep`.
    """
    sittings = together((kept or {}).get("sittings", ()), sitting(study, facts), START)
    found: dict[str, Any] = {"questions": prepared(study.runs), "sittings": sittings, "figures": figures_of(sittings)}
    found["choosing"] = chosen(study.runs / "choose", tasks_in(study.runs, "held_out")) or (kept or {}).get(
        "choosing", {}
    )
    return found


def figures_of(sittings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of both sets, from the rows of every sitting."""
    return {tasks: figures(*pooled(sittings, tasks), START, RIVAL, CONTROLS) for tasks in SETS}


def chosen(folder: Path, tasks: Sequence[Task]) -> dict[str, Any]:
    """What each way of choosing among attempts reaches, in F1, by the number of attempts; empty before they were played.

    Args:
        tasks: among them those that were played; a transcript's own outcome is exact match.
    """
    figures = folder / "figures.json"
    if not figures.is_file():
        return {}
    said, reward = json.loads(figures.read_text())["choose"], partial(_f1, {task.question_id: task for task in tasks})
    played = list(read_canonical(folder / "attempts.jsonl"))
    raw = grouped_attempts(played, reward)
    tokens = {name: said[name] for name in ("policy_tokens", "judge_tokens")}
    of = {"attempts": said["attempts"], **tokens, "by_n": by_n(raw, said["attempts"])}
    of |= {"auroc_within": auroc_within(raw), "by_searches": by_searches(played)}
    return of | {"earns": earns(played, tasks, reward)}


def _read(folders: Mapping[int, Path], tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """`seed`, and what it read before its answers to held-out questions, of each run whose transcripts are kept."""
    reward = partial(_f1, {task.question_id: task for task in tasks})
    kept = {seed: file for seed, folder in folders.items() if (file := folder / "held_out.jsonl").is_file()}
    return [{"seed": seed, **reading(list(read_canonical(file)), tasks, reward)} for seed, file in kept.items()]


def _f1(by_id: Mapping[str | None, Task], one: Trajectory) -> float:
    answer = final_answer(one)  # as it was said: votes are compared in a form that F1 does not know
    return f1_of(by_id[one.question_id], None if answer is None else answer[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--epochs", type=int, default=3, help="of the warm starts")
    parser.add_argument("--shown", type=int, help="demonstrations of each warm start; all that there are")
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
    parser.add_argument(
        "--threads", type=int, default=1, help="of each training; with --parallel 1 all of the machine's"
    )
    parser.add_argument("--vllm-python", type=Path, help="of an environment with vLLM, which then samples the episodes")
    parser.add_argument(
        "--no-choose", dest="choose", action="store_false", help="leave choosing among attempts for later"
    )
    parser.add_argument(
        "--keep", action="store_true", help="the runs that --output holds, instead of making them again"
    )
    parser.add_argument("--plan", action="store_true", help="say what is to be done and how long it would take")
    parser.add_argument("--like", type=Path, help="with --plan: a run on this machine whose speed is taken")
    on_device(parser)
    args, wanted = parse(parser, "smollm2_qa", ARMS, SEEDS | FEW_SEEDS | GPU_SEEDS, usual=SEEDS)
    placed(parser, args)
    if not args.data.is_dir() and not (args.runs / "counts.json").is_file():
        parser.error(f"no questions at {args.data}: give the folder with --data")
    args.runs.mkdir(parents=True, exist_ok=True)
    prepare(args.data, args.runs)
    study = Study(
        args.runs.resolve(), args.epochs, args.vllm_python, tuple(args.overrides), args.dtype, args.threads, args.device,
        args.shown,
    )  # fmt: skip
    if args.plan:
        found = {arm: planned(study.options(arm, 0), args.like) for arm in wanted}
        questions = sum(prepared(args.runs)[tasks] for tasks in SETS)
        rest = others(study.options("grpo", 0), questions, args.epochs, args.like)
        print("\n".join(told(found, wanted, rest)))
        return
    facts = {"overrides": args.overrides, "epochs": args.epochs, "dtype": args.dtype, "training": [*TRAINING, *PLAYING]}
    facts |= {"device": args.device} if args.device != "cpu" else {}  # records and folders of before do not say it
    facts |= {"shown": args.shown} if args.shown is not None else {}
    begin(args.runs, sampler="vllm" if args.vllm_python else "hf", **facts)
    before = json.loads(args.output.read_text()) if args.output.is_file() else {}
    kept = before if args.keep else {}
    held_alike(kept.get("sittings", ()), facts, args.output)
    failed: list[str] = []
    if not args.collect:
        due = [(arm, seed) for seed in range(max(wanted.values())) for arm in wanted if seed < wanted[arm]]
        due = [one for one in due if one not in whole(kept.get("sittings", ()), SETS)]
        choose = args.choose and not kept.get("choosing")
        starts: list[Job] = [partial(study.begin_with, method) for method in (START, RIVAL, "direct")]
        trainings: list[Job] = [partial(study.train, arm, seed) for arm, seed in due]
        if not args.keep:  # a record that would be refused at the end is refused before days of training
            card = study.warm(START) / CARD
            here = {"warm": {START: json.loads(card.read_text())} if card.is_file() else {}}
            none_lost(before.get("sittings", ()), [here], START, args.output)
        for jobs in (starts if due or choose or not kept else [], trainings, [study.choose] if choose else []):
            try:
                run_all(jobs, args.parallel)
            except SystemExit as error:  # of what is done the results are written all the same
                failed.append(str(error))
                print(error, file=sys.stderr)
            if not (study.warm(START) / CARD).is_file():
                break  # nothing to train
    found = collect(study, facts, kept)
    none_lost(before.get("sittings", ()), found["sittings"], START, args.output)
    made = {
        "command": training_command("smollm2_qa"),
        "commit": record.commit(),
        "environment": environment(),
        "hardware": record.hardware(),
        "seeds": {arm: len({run["seed"] for run in runs}) for arm, runs in trained(found).items()},
        "dtype": args.dtype,
        "reward": "f1",
    }
    record.write(args.output, made | found)
    for name, one in found["figures"]["held_out"].items():
        print(f"{name:10s} F1 {one['f1']}  EM {one['em']}")
    print(json.dumps({"output": str(args.output), "policies": list(found["figures"]["held_out"])}))
    if failed:
        raise SystemExit("\n".join(failed))


if __name__ == "__main__":
    main()
