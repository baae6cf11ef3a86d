"""The same transcripts scored by the judge itself and through Inspect, verl, TRL and `rrm serve`: the largest difference.

    python -m benchmarks.integrations --python inspect=VENV/bin/python --python verl=VENV/bin/python

Each way runs in the interpreter that has its framework (`--python NAME=PATH`, else this one; `verl` is also that of `verl_reply` and `verl_tokens`),
and asks for the transcripts of the lab one at a time and all at once. One at a time must be equal to 1e-6. At once the judge meets other batches than
when it is asked itself, and float32 rounds otherwise: `batches` says how far the judge is from itself so. verl is given transcripts in three ways: as
messages, as a prompt and the reply's text without special tokens, and as a rollout's token ids through the reward manager. The last two
must be read back from what the chat template made of them. Every way's scores are kept. Writes benchmarks/results/integrations.json.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed.serving import ROOT, serving
from reagent.lab.shipped import judge_folder, lab_policy_folder
from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM

OUT = record.RESULTS / "integrations.json"
WANTED = 1e-6
Scores = dict[str, float | None]  # id → score
Way = Callable[[Sequence[Trajectory], bool], Scores]  # (transcripts, whether all are asked for at once) → scores


def one_by_one(way: Callable[[Sequence[Trajectory]], Scores]) -> Way:
    """A way that takes any number of transcripts, by itself asked for one after the other."""

    def asked(rows: Sequence[Trajectory], at_once: bool) -> Scores:
        return way(rows) if at_once else {id: score for row in rows for id, score in way([row]).items()}

    return asked


@one_by_one
def direct(rows: Sequence[Trajectory]) -> Scores:
    return {row.id: row.score for row in judge().judge(rows, mode="score")}


@cache
def judge(name: str = str(judge_folder())) -> AgentRRM:
    return AgentRRM.from_pretrained(name)


def through_inspect(rows: Sequence[Trajectory], at_once: bool) -> Scores:
    """An evaluation whose samples are the transcripts, scored by the scorer."""
    import inspect_ai.model  # pyright: ignore[reportMissingImports]
    from inspect_ai import Task  # pyright: ignore[reportMissingImports]
    from inspect_ai.dataset import Sample  # pyright: ignore[reportMissingImports]
    from inspect_ai.solver import solver  # pyright: ignore[reportMissingImports]
    from inspect_ai.tool import ToolCall  # pyright: ignore[reportMissingImports]

    from rrm.integrations.inspect_scorer import agent_rrm

    def message(m: Any) -> Any:
        more: dict[str, Any] = {}
        if m.tool_calls:
            more["tool_calls"] = [ToolCall(id=c.id, function=c.name, arguments=c.arguments) for c in m.tool_calls]
        if m.role == "tool":
            more = {"tool_call_id": m.tool_call_id, "function": m.name}
        return getattr(inspect_ai.model, f"ChatMessage{m.role.capitalize()}")(content=m.text(), **more)

    @solver
    def replay() -> Any:
        async def solve(state: Any, _: Any) -> Any:
            state.messages = [message(m) for m in known[str(state.sample_id)].messages]
            return state

        return solve

    known = {row.id: row for row in rows}
    samples = [Sample(input=row.task, id=row.id) for row in rows]
    task = Task(dataset=samples, solver=replay(), scorer=agent_rrm(judge=str(judge_folder()), mode="score"))
    with tempfile.TemporaryDirectory() as folder:
        at_most = len(rows) if at_once else 1
        (log,) = inspect_ai.eval(task, model="mockllm/model", log_dir=folder, display="none", max_samples=at_most)
        if log.status != "success":
            raise SystemExit(f"inspect: {log.error}")
        return {str(one.id): one.scores["agent_rrm"].value for one in log.samples}


@one_by_one
def through_verl(rows: Sequence[Trajectory]) -> Scores:
    """verl's reward function, told messages."""
    return by_verls_function(rows, [("", {"messages": plain(row)}) for row in rows])


@one_by_one
def through_verl_reply(rows: Sequence[Trajectory]) -> Scores:
    """verl's reward function, told what verl's `naive` manager tells it: the prompt, and the reply decoded without its special tokens."""
    tokenizer, told = lab_tokenizer(), []
    for row in rows:
        prompt, ids, _ = rollout_of(row, tokenizer)
        told.append((tokenizer.decode(ids, skip_special_tokens=True), {"raw_prompt": prompt}))
    return by_verls_function(rows, told)


def by_verls_function(rows: Sequence[Trajectory], told: Sequence[tuple[str, dict[str, Any]]]) -> Scores:
    """The coroutine that verl's reward loop awaits, as verl's own code loads it from its config; of each row it is told (reply, extra_info)."""
    function = {"path": "pkg://rrm.integrations.verl", "name": "compute_score_async"}
    conf = verl_config(custom_reward_function=function | {"reward_kwargs": {"judge": str(judge_folder())}})
    called = importlib.import_module("verl.trainer.ppo.reward").get_custom_reward_fn(conf)

    async def all_of() -> list[dict[str, Any]]:
        return await asyncio.gather(*(called("lab", reply, None, extra) for reply, extra in told))

    return {row.id: said["score"] for row, said in zip(rows, asyncio.run(all_of()), strict=True)}


@one_by_one
def through_verl_tokens(rows: Sequence[Trajectory]) -> Scores:
    """The reward manager, as verl loads it from its config, given rollouts as verl's agent loop makes them."""
    import numpy as np
    import torch

    tokenizer = lab_tokenizer()
    module = {"path": "pkg://rrm.integrations.verl_manager", "name": None}
    named = {"source": "importlib", "name": "AgentRRMRewardManager", "module": module}
    conf = verl_config(reward_manager=named, reward_kwargs={"judge": str(judge_folder())})
    proto = importlib.import_module("verl").DataProto

    def data(row: Trajectory) -> Any:
        prompt, ids, mask = rollout_of(row, tokenizer)
        pads = [0] * PADS
        rows_of = {"prompts": [0], "responses": ids + pads, "response_mask": mask + pads}
        rows_of["attention_mask"] = [1] * (1 + len(ids)) + pads
        tensors = {name: torch.tensor([values]) for name, values in rows_of.items()}
        columns = {"data_source": "lab", "reward_model": {"ground_truth": None}, "raw_prompt": prompt}
        held = {name: np.fromiter([value], dtype=object) for name, value in columns.items()}
        return proto.from_dict(tensors=tensors, non_tensors=held)

    async def all_of() -> list[dict[str, Any]]:
        manager = importlib.import_module("verl.trainer.ppo.reward").load_reward_manager(conf, tokenizer)
        return await asyncio.gather(*(manager.run_single(data(row)) for row in rows))

    return {row.id: said["reward_score"] for row, said in zip(rows, asyncio.run(all_of()), strict=True)}


PADS = 3  # tokens behind a response, as in a batch of unlike lengths


def verl_config(**reward: Any) -> Any:
    naive = {"source": "register", "name": "naive", "module": {"path": None, "name": None}}
    return importlib.import_module("omegaconf").OmegaConf.create({"reward": {"reward_manager": naive, **reward}})


def lab_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(lab_policy_folder()))


def rollout_of(row: Trajectory, tokenizer: Any) -> tuple[list[dict[str, Any]], list[int], list[int]]:
    """A transcript as the rollout that makes it: prompt, the response's token ids, and 1 for each that the model sampled.

    A turn of the model's is sampled with the mark that ends it; what the template puts before, between and after turns is not.
    """
    prompt, response = split(row)
    begin, messages = len(prompt), [*prompt, *response]

    def shown(n: int) -> str:
        speaks = n < len(messages) and messages[n]["role"] == "assistant"
        return tokenizer.apply_chat_template(messages[:n], tokenize=False, add_generation_prompt=speaks)

    ids: list[int] = []
    mask: list[int] = []
    for n in range(begin, len(messages)):
        text = shown(n + 1).removeprefix(shown(n))
        eos, speaks = tokenizer.eos_token, messages[n]["role"] == "assistant"
        sampled = text.rindex(eos) + len(eos) if speaks else 0
        for piece, is_sampled in ((text[:sampled], 1), (text[sampled:], 0)):
            found = tokenizer(piece, add_special_tokens=False)["input_ids"]
            ids += found
            mask += [is_sampled] * len(found)
    return prompt, ids, mask


@one_by_one
def through_trl(rows: Sequence[Trajectory]) -> Scores:
    """The reward function that a GRPOTrainer calls with a batch's prompts and completions."""
    from rrm.integrations.trl import reward_func

    prompts, completions = zip(*map(split, rows), strict=True)
    rewards = reward_func(judge(), mode="score")(prompts=list(prompts), completions=list(completions))
    return {row.id: reward for row, reward in zip(rows, rewards, strict=True)}


@one_by_one
def through_serve(rows: Sequence[Trajectory]) -> Scores:
    """A server of its own, asked by the judge that stands for it."""
    return {row.id: row.score for row in judge(os.environ["RRM_SERVED"]).judge(rows, mode="score")}


WAYS: dict[str, tuple[Way, tuple[str, ...]]] = {
    "inspect": (through_inspect, ("inspect_ai",)),
    "verl": (through_verl, ("verl",)),
    "verl_reply": (through_verl_reply, ("verl",)),
    "verl_tokens": (through_verl_tokens, ("verl",)),
    "trl": (through_trl, ("trl",)),
    "serve": (through_serve, ("fastapi", "uvicorn")),
}
"""Name → how scores are got through it, and the packages it needs."""


def fits(row: Trajectory) -> bool:
    """Whether every framework can hold it: Inspect has no arguments that are not JSON, and tells tools in a model's calls, which these were not."""
    return all(isinstance(call.arguments, dict) for m in row.messages for call in m.tool_calls or ())


def plain(row: Trajectory) -> list[dict[str, Any]]:
    return [m.model_dump(exclude_none=True) for m in row.messages]


def split(row: Trajectory) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Its chat messages until the model speaks, and from there on."""
    messages = plain(row)
    begin = next(i for i, m in enumerate(messages) if m["role"] == "assistant")
    return messages[:begin], messages[begin:]


def scores_of(way: Way, rows: Sequence[Trajectory]) -> dict[str, Scores]:
    return {"alone": way(rows, False), "at_once": way(rows, True)}


def apart(one: Scores, two: Scores) -> float:
    """The largest difference; infinite where a transcript has no score on one side, or there is none."""

    def between(a: float | None, b: float | None) -> float:
        return abs(a - b) if a is not None and b is not None and math.isfinite(a - b) else math.inf

    return max((between(one.get(id), two.get(id)) for id in one.keys() | two.keys()), default=math.inf)


def elsewhere(name: str, python: str, runs: Path, served: str) -> dict[str, Any]:
    """What a way says in its own interpreter; ends the program where it fails."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'agents'}", "RRM_SERVED": served}
    command = [python, "-m", "benchmarks.integrations", "--way", name, "--runs", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32, help="transcripts")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="a framework's interpreter")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    if args.way:
        way, packages = WAYS[args.way]
        rows = [Trajectory.model_validate_json(line) for line in args.runs.read_text(encoding="utf-8").splitlines()]
        print(json.dumps(scores_of(way, rows) | {"versions": {name: version(name) for name in packages}}))
        return
    pythons = dict(one.split("=", 1) for one in args.python)
    frameworks = {name: name.partition("_")[0] for name in WAYS}
    if unknown := sorted(set(pythons) - set(frameworks.values())):
        parser.error(f"--python {unknown[0]}: the frameworks are {', '.join(dict.fromkeys(frameworks.values()))}")
    made = (t.model_copy(update={"tools": None}) for t, _ in make_transcripts(4 * args.rows, seed=args.seed))
    rows = [t for t in made if fits(t)][: args.rows]
    own = scores_of(direct, rows)
    found: dict[str, Any] = {}
    scores = {"judge": own}
    with tempfile.TemporaryDirectory() as folder, serving("--model", str(judge_folder())) as server:
        runs = Path(folder) / "runs.jsonl"
        runs.write_text("".join(row.model_dump_json() + "\n" for row in rows), encoding="utf-8")
        for name in args.ways:
            python = pythons.get(frameworks[name], sys.executable)
            said = elsewhere(name, python, runs, f"http://{server.host}:{server.port}")
            scores[name] = {"alone": said["alone"], "at_once": said["at_once"]}
            found[name] = {key: apart(own[p], said[p]) for key, p in (("apart", "alone"), ("apart_at_once", "at_once"))}
            found[name]["versions"] = said["versions"]
            print(name, json.dumps(found[name]), file=sys.stderr)
    for name in ("way", "runs"):  # of the ways' own processes
        delattr(args, name)
    args.python = sorted(pythons)
    worst = max(one["apart"] for one in found.values())
    whole = {
        **{"largest_difference": worst, "equal": worst <= WANTED, "batches": apart(own["alone"], own["at_once"])},
        **{"transcripts": len(rows), "judge": "lab", "ways": found, "scores": scores, "commit": record.commit()},
        **record.timed_with("integrations", args, "torch", "transformers"),
        "command": "python -m benchmarks.integrations " + " ".join(f"--python {n}=…" for n in args.python),
    }
    record.write(args.out, whole)
    print(json.dumps({k: v for k, v in whole.items() if k not in ("scores", "options")}))


if __name__ == "__main__":
    main()
