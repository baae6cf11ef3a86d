"""How fast rollouts are on either engine, `hf` and `vllm`, and in TRL's own tool loop; and what slow tools cost them.

    python -m benchmarks.speed.engines --vllm-python .venv-vllm/bin/python [--model smollm2] [--turns 2 8 16]
    (make test-vllm builds that environment; SmolLM2 takes half an hour on two cores)

All three play the same episodes, one arm after the other, over and over: the same prompts, tool, template and sampling, and every turn
says the same tokens, in this process as `benchmarks.speed.rollout` describes, on the server by a logits processor
(`benchmarks.speed.scripted`); that all end with the same ids is checked. One thread computes in each arm; the server's HTTP side, which is
a process of its own, and the client run beside it on other cores. Medians of action tokens/s count.

`waiting`: the same on both of our engines with a tool that takes 0.1 to 3 s (uniform, seeded), against the tool that answers at once,
in turn: the same waits in every arm, by episode and turn. What is lost is 1 − (seconds with quick tools / seconds with slow
ones). `lock-step` is the control: every call of a turn takes as long as its slowest one, as in a loop that waits for all rows after each turn; turns are so short there that
it loses more than the bar allows. `floor_s`: the longest episode's waits, which no engine can be quicker than. Before each run of the
server its prefix cache is emptied. Progress goes to standard error; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import urllib.request
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed import rollout as alike
from benchmarks.vllm_server import PYTHON, serving, version_of
from reagent.env.env import ToolEnv
from reagent.env.tool import tool
from reagent.rollout.rollout import rollout
from rrm.engines.base import SamplingParams, TokenEngine
from rrm.engines.hf.base_model import base_path
from rrm.engines.hf.engine import HFEngine
from rrm.engines.vllm import VLLMEngine

OUT = record.RESULTS / "engines_speed.json"
BARS = {"vllm_over_trl_at_8_turns": 2.0, "lost_to_waiting": 0.2}
PARTS = ("rollouts", "waiting")
SLOW_S = (0.1, 3.0)
ROOT = Path(__file__).resolve().parents[2]


class Archive(alike.Archive):
    """The tool of `benchmarks.speed.rollout`, which takes its time where it is given some.

    Args:
        seconds: of each of its calls.
    """

    def __init__(self, turns: int, episode: int, seconds: Sequence[float] = ()) -> None:
        left, said = list(seconds), itertools.count()

        async def lookup(query: str) -> str:
            """Look something up in the archive.

            Args:
                query: What to look for.
            """
            del query
            if left:
                await asyncio.sleep(left.pop(0))
            return alike.result_of(episode, next(said))

        ToolEnv.__init__(self, [tool(lookup)], max_turns=turns, tool_prompt="template")


def arm(
    engine: TokenEngine, tokenizer: Any, args: argparse.Namespace, turns: int, longest: int, tools: str = "quick"
) -> Callable[[], alike.Timed]:
    """A call that rolls the batch out with an engine of ours.

    Args:
        tools: `quick`, `slow`, or `lock-step`: how long they take.
    """
    timed = alike.Timed()
    taken = {
        "quick": lambda episode: [],
        "slow": lambda episode: waits(args, episode, turns),
        "lock-step": lambda episode: [
            max(w) for w in zip(*(waits(args, n, turns) for n in range(args.batch)), strict=True)
        ],
    }[tools]

    def run() -> alike.Timed:
        numbers = itertools.count()  # of episodes, as their environments are made
        if isinstance(engine, VLLMEngine):
            forget(engine)
        with timed:
            episodes = rollout(
                engine,
                tokenizer,
                lambda: Archive(turns, number := next(numbers), taken(number)),
                alike.tasks(args),
                params=SamplingParams(max_new_tokens=args.tokens, temperature=1.0, seed=args.seed),
                group_size=args.group,
                max_turns=turns,
                max_episode_tokens=longest,
            )
        flat = [e.flatten() for e in episodes]
        timed.rows = [(f.input_ids.tolist(), f.action_mask.astype(int).tolist()) for f in flat]
        return timed

    return run


def waits(args: argparse.Namespace, episode: int, turns: int) -> list[float]:
    """Seconds of each call of an episode; nothing comes after the last one's."""
    rng = random.Random(args.seed * 1_000_003 + episode)
    return [rng.uniform(*SLOW_S) for _ in range(turns)]


def forget(engine: VLLMEngine) -> None:
    """Empty the server's prefix cache: nothing of a run before is left."""
    (url,) = engine.addresses
    with urllib.request.urlopen(
        urllib.request.Request(f"{url.removesuffix('/v1')}/reset_prefix_cache", method="POST"), timeout=60
    ):
        pass


def in_turn(arms: dict[str, Callable[[], alike.Timed]], repeats: int, what: str) -> dict[str, Any]:
    """Seconds of each arm, in turn; ends the program where they did not play the same."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    played: dict[str, Any] = {}
    for _, (name, run) in itertools.product(range(repeats), arms.items()):
        timed = run()
        seconds[name].append(timed.seconds)
        played[name] = sorted(timed.rows)
        print(f"{what} {name}: {timed.seconds:.1f} s", file=sys.stderr)
    first, *others = played.values()
    if any(rows != first for rows in others):
        raise SystemExit(f"{what}: the arms did not play the same episodes")
    actions = sum(sum(mask) for _, mask in first)
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "action_tokens": actions,
        "episode_tokens": len(first[0][0]),
        "action_tokens_per_s": {name: round(actions / value, 2) for name, value in middle.items()},
        "seconds": {name: [round(value, 3) for value in values] for name, values in seconds.items()},
    }


def length(tokenizer: Any, args: argparse.Namespace, turns: int) -> int:
    """Tokens of the longest episode."""
    prompt, suffix = alike.layout(tokenizer, args)
    return prompt + turns * (args.tokens + suffix) + 1


def compare(model: Any, tokenizer: Any, server: VLLMEngine, args: argparse.Namespace, turns: int) -> dict[str, Any]:
    """All three at one number of turns."""
    longest = length(tokenizer, args, turns)
    here = HFEngine(model, tokenizer, max_batch_tokens=args.batch * longest * 2)
    arms = {
        "hf": arm(here, tokenizer, args, turns, longest),
        "vllm": arm(server, tokenizer, args, turns, longest),
        "trl": alike.trl_arm(model, tokenizer, args, turns, longest),
    }
    with scripted(model, tokenizer, args):
        found = in_turn(arms, args.repeats[args.turns.index(turns)] if turns in args.turns else 1, f"{turns} turns")
    rates = found["action_tokens_per_s"]
    return {"turns": turns, **found} | {
        f"{name}_over_trl": round(rates[name] / rates["trl"], 3) for name in ("hf", "vllm")
    }


def waiting(model: Any, tokenizer: Any, server: VLLMEngine, args: argparse.Namespace) -> dict[str, Any]:
    """What slow tools cost either engine."""
    args = argparse.Namespace(**vars(args) | {"batch": args.waiting_batch})
    turns = args.waiting_turns
    longest = length(tokenizer, args, turns)
    here = HFEngine(model, tokenizer, max_batch_tokens=args.batch * longest * 2)
    found: dict[str, Any] = {"turns": turns, "tokens": args.tokens, "batch": args.batch, "tool_s": SLOW_S}
    kinds = ("quick", "slow", "lock-step")
    engines = {"hf": here, "vllm": server}
    arms = {
        f"{name} {kind}": arm(engine, tokenizer, args, turns, longest, kind)
        for kind in kinds
        for name, engine in engines.items()
    }
    with scripted(model, tokenizer, args):
        both = in_turn(arms, 1, "waiting")  # also: a server that says another turn calls no tool, and waits for none
    for name in engines:
        seconds = {kind: both["seconds"][f"{name} {kind}"] for kind in kinds}
        quick, slow, lock_step = (seconds[kind][0] for kind in kinds)
        found[name] = {"seconds": seconds, "lost": round(1 - quick / slow, 4), "lost_in_lock_step": round(1 - quick / lock_step, 4)}  # fmt: skip
    found |= {key: both[key] for key in ("action_tokens", "episode_tokens")}
    found["floor_s"] = round(max(sum(waits(args, episode, turns)[:-1]) for episode in range(args.batch)), 2)
    return found


class scripted:
    """The model here says the script."""

    def __init__(self, model: Any, tokenizer: Any, args: argparse.Namespace) -> None:
        prompt, suffix = alike.layout(tokenizer, args)
        self._make = lambda: alike.Script(model, alike.scripted_turn(tokenizer, args.tokens), prompt, suffix)

    def __enter__(self) -> None:
        self._script = self._make()

    def __exit__(self, *_: object) -> None:
        self._script.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="`smollm2`, or a model directory")
    parser.add_argument("--vllm-python", type=Path, default=PYTHON)
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 8, 16])
    parser.add_argument("--tokens", type=int, default=40, help="sampled tokens a turn")
    parser.add_argument("--batch", type=int, default=8, help="episodes")
    parser.add_argument("--group", type=int, default=4, help="episodes a prompt")
    parser.add_argument("--parts", choices=PARTS, nargs="+", default=list(PARTS), help="the others stay as recorded")
    parser.add_argument("--repeats", type=int, nargs="+", default=[3, 2, 1], help="of each of --turns")
    parser.add_argument("--waiting-turns", type=int, default=8)
    parser.add_argument("--waiting-batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.dtype = "float32"
    for name in ("batch", "waiting_batch"):
        if getattr(args, name) % args.group:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)} is no multiple of --group {args.group}")
    if len(args.repeats) != len(args.turns):
        parser.error("--repeats has a number for each of --turns")
    import torch

    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)
    model, tokenizer = alike.load(args)
    longest = length(tokenizer, args, max(*args.turns, args.waiting_turns))
    said = json.dumps(alike.scripted_turn(tokenizer, args.tokens))
    options = ("--logits-processors", "benchmarks.speed.scripted:Scripted")
    environment = {"SCRIPTED_TURN": said, "PYTHONPATH": str(ROOT)}
    with serving(
        args.vllm_python, base_path(args.model), *options,
        context=longest + 1, cache_gib=2, threads=args.threads, environment=environment,
    ) as url:  # fmt: skip
        server = VLLMEngine(f"vllm:{url}#base", eos_ids={tokenizer.eos_token_id})
        try:
            compare(model, tokenizer, server, args, 1)  # warms all three up
            found: dict[str, Any] = {"bars": BARS, "vllm": version_of(url)}
            if "rollouts" in args.parts:
                found["rollouts"] = [compare(model, tokenizer, server, args, turns) for turns in args.turns]
            if "waiting" in args.parts:
                found["waiting"] = waiting(model, tokenizer, server, args) | {"load_average": os.getloadavg()[1]}
        finally:
            server.close()
    args.vllm_python = args.vllm_python.name
    args.model = Path(args.model).name
    found |= {
        "model": args.model,
        "commit": record.commit(),
        **record.timed_with("speed.engines", args, "torch", "transformers", "trl"),
    }
    parts = {part: found.pop(part) for part in PARTS if part in found}
    kept = json.loads(args.out.read_text()) if args.out.is_file() else {}
    earlier = {part: kept[part] for part in PARTS if part in kept and part not in parts}
    # each part says what made it; the rest of the record is of the last one
    for part in parts.values():
        for one in part if isinstance(part, list) else [part]:
            one["commit"] = found["commit"]
    found |= earlier | parts
    record.write(args.out, found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
