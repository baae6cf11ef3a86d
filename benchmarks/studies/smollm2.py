"""What the studies of SmolLM2-135M on real questions share: a server that samples, rows of held-out questions, what a run logged."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.studies.study import lines
from benchmarks.vllm_server import LORA, serving, version_of
from reagent.rollout.episode import Episode
from reagent.train.config import load_agent_config
from reagent.train.evaluate import evaluate_config
from rrm.engines.hf.host_memory import keep_freed_memory

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "rollout.engine={max_batch_tokens: 16384}"
"""Held-out questions are answered in this process by every policy, whatever sampled its training: one sampler, one arithmetic."""
REWARDS = {"useful": 0.0, "repeated": -0.05, "unanswered": -0.1, "max_malformed": None}
"""As its trainings earned, whatever the defaults have become."""
"""As configs/agents/smollm2.yaml has them: what is paid for a call teaches to call."""
DTYPES = ("float32", "bfloat16")
DEVICES = ("cpu", "cuda")
_SEED = re.compile(r"seed(0|[1-9][0-9]*)")
Row = Callable[[Episode], dict[str, Any]]


def held_in(dtype: str) -> list[str]:
    """Overrides that name what the policy's weights and the judge's are held in; an adapter's are float32."""
    return [f"policy.dtype={dtype}", f"feedback.judge_options={{dtype: {dtype}}}"]


def on(device: str) -> list[str]:
    """Overrides that name where policies are trained and answer; configs/agents/smollm2.yaml says the CPU, a judge takes a GPU that is there."""
    return ["cpu=false"] if device == "cuda" else []


def engine(device: str) -> str:
    """The override of what answers held-out questions: as many rows at once as a device has the memory of."""
    return ENGINE if device == "cpu" else ENGINE.replace("16384", "131072")


def on_device(parser: argparse.ArgumentParser) -> None:
    """`--device`."""
    parser.add_argument("--device", choices=DEVICES, default=DEVICES[0], help="where policies are trained and answer")


def placed(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """What was made on a GPU has a folder and a record of its own, unless others are named: `--runs` and `--output` end in `_gpu`.

    Raises:
        SystemExit: there is no GPU.
    """
    if args.device != "cuda":
        return
    if not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no GPU here")
    for name in ("runs", "output"):
        path: Path = getattr(args, name)
        if path == parser.get_default(name):
            setattr(args, name, path.with_name(f"{path.stem}_gpu{path.suffix}"))


def seeds_in(arm: Path) -> dict[int, Path]:
    """Seed → folder of every run of an arm that was begun, by seed."""
    found = {int(said[1]): path for path in arm.glob("seed*") if path.is_dir() and (said := _SEED.fullmatch(path.name))}
    return dict(sorted(found.items()))


@contextlib.contextmanager
def sampler(python: Path | None, base: Path, folder: Path, context: int, dtype: str) -> Iterator[list[str]]:
    """Overrides that name what samples a run's episodes: a server of its own where a Python with vLLM is given, else nothing.

    Args:
        base: the policy that the run starts from.
        folder: of the run; beside it stands which server it was.
        context: tokens of the server's: an episode and what its next turn may add.
        dtype: of the server's weights.
    """
    if python is None:
        yield []
        return
    with serving(python, str(base), *LORA, context=context, dtype=dtype) as url:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.with_suffix(".vllm.json").write_text(json.dumps(version_of(url)))
        yield [f"rollout.engine=vllm:{url}#base"]


def said(episode: Episode) -> dict[str, Any]:
    """What is recorded of any question: no text of the data but what the policy answered."""
    infos = [turn.info for turn in episode.turns]
    return {
        "id": episode.task.id,
        "answer": episode.answer,
        "status": episode.status,
        "malformed": sum(info.get("malformed", 0) for info in infos),
        "tokens": sum(len(turn.output_ids) for turn in episode.turns),
    }


def calls(episode: Episode) -> int:
    """How often its agent called a tool."""
    return sum(turn.info.get("tool_calls", 0) for turn in episode.turns)


def answer_held_out(description: str | None, row: Row, shown: Sequence[str]) -> None:
    """The command of a study that lets a policy answer questions, greedily unless an override says otherwise, and writes a row of each, in the order of their ids.

    Args:
        shown: keys of a row whose means are printed.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="a.b=c")
    parser.add_argument("--policy", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--transcripts", type=Path, help="every episode, JSONL, to look at")
    args = parser.parse_args()
    keep_freed_memory()
    config = load_agent_config("smollm2", [f"policy.base={args.policy}", "policy.lora=null", ENGINE, *args.overrides])
    _, episodes = evaluate_config(config)
    rows = sorted(map(row, episodes), key=lambda one: one["id"])
    args.output.parent.mkdir(parents=True, exist_ok=True)
    if args.transcripts is not None:
        args.transcripts.write_text("".join(e.trajectory.model_dump_json() + "\n" for e in episodes))
    part = args.output.with_suffix(".part")
    part.write_text(json.dumps(rows) + "\n")
    part.rename(args.output)
    means = {key: round(statistics.mean(float(one[key]) for one in rows), 4) for key in shown}
    print(json.dumps({"questions": len(rows), **means}))


def training(folder: Path) -> dict[str, Any]:
    """What a finished run logged: by update its reward and what it did, what it took, and the evaluations on the way.

    Of updates that are filled with groups that differ (`rollout.dynamic_sampling`) `reward` is that of all first attempts, since those that are
    learned were chosen by their rewards; `sampled` is [groups of which the update was chosen, those of them that differ].

    Raises:
        SystemExit: its updates are not 0, 1, 2, …: two processes wrote them, or rows are gone.
    """
    rows, done = lines(folder / "metrics.jsonl"), json.loads((folder / "done.json").read_text())
    if (numbers := [row["update"] for row in rows]) != list(range(len(rows))):
        at = next(i for i, number in enumerate(numbers) if number != i)
        raise SystemExit(
            f"{folder / 'metrics.jsonl'}: line {at + 1} is of update {numbers[at]}, where {at} is due: two processes wrote it"
        )
    noted = folder.with_suffix(".vllm.json")
    held = folder.resolve().parents[1]  # of the study's runs: no machine's path is recorded
    keys = {
        "reward": "learned/reward", "success": "episode/success", "turns": "episode/turns", "calls": "episode/tool_calls",
        "malformed": "episode/malformed_share", "flat_groups": "learned/flat_groups", "score": "feedback/score",
        "outside": "feedback/outside", "entropy": "entropy",
    }  # fmt: skip
    filled = "sampling/groups" in rows[0]
    if filled:
        keys["reward"] = "episode/reward"
        del keys["flat_groups"]  # of those that were chosen, 0
    fired = lines(guards) if (guards := folder / "guards.jsonl").is_file() else []
    evaluations = lines(folder / "eval.jsonl") if (folder / "eval.jsonl").is_file() else []
    return {
        "updates": len(rows),
        "episodes": rows[-1]["episodes"],
        # of a study that was killed the seconds until then are in the updates alone
        "hours": round(max(done["seconds"], sum(row.get("time/total_s", 0.0) for row in rows)) / 3600, 2),
        "update_seconds": {
            name: round(statistics.median(row.get(f"time/{name}_s", 0.0) for row in rows), 1)
            for name in ("rollout", "judge", "update", "total")
        },
        "commits": done["commits"],
        "options": [
            option.replace(f"{held}/", f"runs/{held.name}/").replace(f"{ROOT}/", "") for option in done["options"]
        ],
        "sampled_by": f"vllm {json.loads(noted.read_text())}" if noted.is_file() else "hf",
        "on_the_way": [{k: e.get(k) for k in ("update", "success", "f1", "exact_match", "score")} for e in evaluations],
        **{name: [row.get(key) for row in rows] for name, key in keys.items() if key in rows[0]},
        **({"guards": [{key: one[key] for key in ("update", "guard")} for one in fired]} if fired else {}),
        **({"sampled": [[row["sampling/groups"], row["sampling/differing"]] for row in rows]} if filled else {}),
    }
