"""How fast multi-turn rollouts are: `reagent.rollout.rollout`, with either engine, beside the tool loop of TRL's `GRPOTrainer`.

    python -m benchmarks.speed.rollout [--model lab|smollm2|DIR_OR_HUB_ID] [--turns 2 4 8 16] [--batch 16] [--group 8]
    python -m benchmarks.speed.rollout --decode [--model …] [--contexts 256 1024]
    python -m benchmarks.speed.rollout --vllm-python .venv-vllm/bin/python --model smollm2 --batch 8 --group 4 --tokens 40 \\
        --turns 2 8 16 --repeats 3 2 1 [--waiting]                     (make test-vllm builds that environment)

All arms play the same episodes, in turn (A B A B …), on the same number of threads, with the same model, dtype, chat template
(Qwen2.5's, which TRL knows), prompts, tool and sampling; medians of action tokens/s count. So that every turn has the same length, the output
head is told what to say: after the whole projection was computed, the logit of a scripted token is raised (on a server by `benchmarks.speed.scripted`).
A turn is `--tokens` tokens, the last of them a tool call and the end of turn. What the tool says is of one length and differs by episode and turn:
an engine that computes rows of equal ids once must not gain by it. That all arms end with the same ids is checked.

- `hf`, `vllm`: `rollout` with that engine and a `ToolEnv`; before each run of the server its prefix cache is emptied.
- `trl`: `GRPOTrainer` with `tools=[…]`, configured as `GRPO` says; what is timed is its generation and tool loop (`_generate`).

`--waiting`: both of our engines with a tool that takes 0.1 to 3 s (uniform, seeded), beside the tool that answers at once. What is lost is
1 − (seconds with quick tools / seconds with slow ones). `lock-step` is the control: every call of a turn takes as long as its slowest one.
`--decode`: one decoding step of a session beside a plain transformers decode (DynamicCache) at the same context, rows of equal
and of unlike length.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import random
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from transformers.utils.chat_template_utils import get_json_schema

from benchmarks import record
from benchmarks.speed.harness import Timing, finish, in_turn, made, medians, seconds, timed
from benchmarks.vllm_server import serving, version_of
from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.lab.settings import LabSettings
from reagent.rollout.rollout import rollout
from rrm.engines.base import SamplingParams, TokenEngine
from rrm.engines.hf.base_model import base_path
from rrm.engines.hf.engine import HFEngine
from rrm.engines.vllm import VLLMEngine

RESULT = "{number:04d} is the record that says that the bridge was built by the elder of the two sisters, in a year of drought."
"""What the tool says to an episode in a turn: `result_of`."""
SYSTEM = "You look things up with the tool you are given, one thing at a time, and answer at the end."
QUESTION = "Question {number:04d}: who built the bridge over the river by the old mill, and in which year was that?"
CALL = '<tool_call>\n{{"name": "lookup", "arguments": {{"query": "{query}"}}}}\n</tool_call>'
GRPO: dict[str, Any] = {
    "temperature": 1.0, "max_steps": 1, "report_to": [], "use_cpu": True, "bf16": False, "save_strategy": "no",
    "disable_tqdm": True, "gradient_checkpointing": False,
}  # fmt: skip
"""TRL's configuration beside lengths and batch sizes, which the command line gives; all else is TRL's default."""
SLOW_S = (0.1, 3.0)
ROOT = Path(__file__).resolve().parents[2]
Rows = list[tuple[list[int], list[int]]]  # (ids, action mask) of each episode


# ---- what is played ----


def result_of(episode: int, turn: int) -> str:
    """What the tool says to the episode of that number, from 0, in a turn, from 0."""
    return RESULT.format(number=episode * 100 + turn)


def lookup(query: str) -> str:
    """Look something up in the archive.

    Args:
        query: What to look for.

    Returns:
        What the archive says.
    """
    raise NotImplementedError(query)  # the arms' own know whose call it is


_SCHEMAS: list[dict[str, Any]] = [get_json_schema(lookup)]


class Archive(ToolEnv):
    """The tool, described by the chat template as TRL does it.

    Args:
        episode: its number.
        waits: seconds of each of its calls; the others answer at once.
    """

    system = SYSTEM

    def __init__(self, turns: int, episode: int, waits: Sequence[float] = ()) -> None:
        left, numbers = list(waits), itertools.count()

        @functools.wraps(lookup)
        async def answer(query: str) -> str:
            del query
            if left:
                await asyncio.sleep(left.pop(0))
            return result_of(episode, next(numbers))

        super().__init__([tool(answer)], max_turns=turns, tool_prompt="template")

    @property
    def template_tools(self) -> list[dict[str, Any]]:
        """The schema as TRL shows it, with what the function returns."""
        return _SCHEMAS


def tasks(args: argparse.Namespace) -> list[Task]:
    return [Task(f"q{i}", QUESTION.format(number=i)) for i in range(args.batch // args.group)]


def opening(task: Task) -> list[dict[str, str]]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]


def waits(args: argparse.Namespace, episode: int, turns: int, tools: str) -> list[float]:
    """Seconds of each call of an episode; nothing comes after the last one's.

    Args:
        tools: `quick`, `slow`, or `lock-step`.
    """

    def slow(number: int) -> list[float]:
        rng = random.Random(args.seed * 1_000_003 + number)
        return [rng.uniform(*SLOW_S) for _ in range(turns)]

    if tools == "lock-step":
        return [max(of_turn) for of_turn in zip(*map(slow, range(args.batch)), strict=True)]
    return slow(episode) if tools == "slow" else []


class Script:
    """Makes a model say a turn of fixed tokens, whatever it computes.

    All prompts have one length P, all turns one length L, all results one length S, so the position alone says which
    token is due: number (position − P) mod (L + S) of the turn. Positions are read where the model reads them, at its
    rotary embedding; rows of a prefill end where a turn begins.
    """

    def __init__(self, model: Any, turn: list[int], prompt: int, suffix: int) -> None:
        import torch

        self.turn, self.prompt, self.period = torch.tensor(turn), prompt, len(turn) + suffix
        self._positions = torch.empty(0)
        self._model = model

    def __enter__(self) -> None:
        self._hooks = [
            self._model.get_decoder().rotary_emb.register_forward_pre_hook(self._read, with_kwargs=True),
            self._model.get_output_embeddings().register_forward_hook(self._say),
        ]

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _read(self, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._positions = kwargs["position_ids"] if "position_ids" in kwargs else args[1]

    def _say(self, _module: Any, _args: Any, logits: Any) -> Any:
        import torch

        rows = logits.reshape(-1, logits.shape[-1])
        due = torch.zeros(len(rows), dtype=torch.long)
        if self._positions.shape[1] == 1:
            due = (self._positions[:, 0] + 1 - self.prompt) % self.period
            due = due.expand(len(rows)) if len(due) == 1 else due
        rows[torch.arange(len(rows)), self.turn[due.clamp(max=len(self.turn) - 1)]] += 1e4
        return logits


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """(model, tokenizer) in evaluation mode. `lab`: the lab's shape with random weights and room for 16 turns."""
    import torch
    from trl.chat_template_utils import qwen2_5_chat_template

    from rrm.config import ModelConfig
    from rrm.engines.hf.base_model import load_model

    if args.model == "lab":
        from reagent.lab.model import build_lab_model, build_lab_tokenizer

        words = [SYSTEM, result_of(0, 0), QUESTION, json.dumps(_SCHEMAS), CALL.format(query="bridge 0123456789")]
        tokenizer: Any = build_lab_tokenizer(words * 2, vocab_size=2048)
        shape = LabSettings()
        sizes = {name: getattr(shape, name) for name in ("hidden", "layers", "heads", "intermediate")}
        model = build_lab_model(tokenizer, **sizes, seed=args.seed)
        tokenizer.model_max_length = model.config.max_position_embeddings = 8192
    else:
        model, tokenizer = load_model(ModelConfig(base=args.model, dtype=args.dtype))
    tokenizer.chat_template = qwen2_5_chat_template
    return model.to(getattr(torch, args.dtype)).eval(), tokenizer


def scripted_turn(tokenizer: Any, tokens: int) -> list[int]:
    """`tokens` ids: thoughts, a call, the end of turn."""
    call = tokenizer.encode(CALL.format(query="who built the bridge"), add_special_tokens=False)
    thought = tokenizer.encode("I have to look this up in the archive first. " * tokens, add_special_tokens=False)
    room = tokens - len(call) - 1
    if room < 1:
        raise SystemExit(f"--tokens {tokens} leaves no room beside a call of {len(call)} tokens")
    return [*thought[:room], *call, tokenizer.eos_token_id]


def layout(tokenizer: Any, args: argparse.Namespace) -> tuple[int, int]:
    """(tokens of a prompt, tokens of a result's suffix), the same for all."""
    from reagent.rollout.templates import TurnTemplate

    template = TurnTemplate(tokenizer, _SCHEMAS)
    prompts = {len(template.prompt(opening(task))) for task in tasks(args)}
    results = (result_of(episode, turn) for episode in range(args.batch) for turn in range(max(args.turns)))
    message = {"role": "tool", "name": "lookup"}
    suffixes = {len(template.suffix([{**message, "content": text}], [template.end_id])) for text in results}
    if len(prompts) != 1 or len(suffixes) != 1:
        raise SystemExit(f"lengths differ, of prompts {sorted(prompts)}, of results {sorted(suffixes)}: fewer groups?")
    return prompts.pop(), suffixes.pop()


# ---- the arms ----


class Bench:
    """A model and what all arms are told."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.model, self.tokenizer = load(args)
        self.prompt, self.suffix = layout(self.tokenizer, args)

    def length(self, turns: int) -> int:
        return self.prompt + turns * (self.args.tokens + self.suffix) + 1

    def ours(self, server: VLLMEngine | None, turns: int, tools: str = "quick") -> Callable[[], Timing]:
        """A call that rolls the batch out with an engine of ours, without a server `hf`; its result: (rows, tokens prefilled here)."""
        args = self.args
        here = HFEngine(self.model, self.tokenizer, max_batch_tokens=args.batch * self.length(turns) * 2)
        engine: TokenEngine = server or here

        def play() -> Any:
            numbers = itertools.count()  # of episodes, as their environments are made
            return rollout(
                engine, self.tokenizer, lambda: Archive(turns, number := next(numbers), waits(args, number, turns, tools)),
                tasks(args), params=SamplingParams(max_new_tokens=args.tokens, temperature=1.0, seed=args.seed),
                group_size=args.group, max_turns=turns, max_episode_tokens=self.length(turns),
            )  # fmt: skip

        def arm() -> Timing:
            if server is not None:  # nothing of a run before is left
                reset = f"{server.addresses[0].removesuffix('/v1')}/reset_prefix_cache"
                httpx2.post(reset, timeout=60).raise_for_status()
            before, timing = here.counters.prefilled, timed(play)
            flat = [episode.flatten() for episode in timing.result]
            rows = [(f.input_ids.tolist(), f.action_mask.astype(int).tolist()) for f in flat]
            return replace(timing, result=(rows, here.counters.prefilled - before))

        return arm

    def trl(self, turns: int) -> Callable[[], Timing]:
        """A call that rolls the batch out with TRL."""
        from datasets import Dataset
        from trl.trainer.grpo_config import GRPOConfig
        from trl.trainer.grpo_trainer import GRPOTrainer

        args, timings = self.args, list[Timing]()
        prompts = [{"prompt": opening(task)} for task in tasks(args) for _ in range(args.group)]
        calls = itertools.count()  # of all rows, turn after turn

        @functools.wraps(lookup)
        def answer(query: str) -> str:
            del query
            turn, episode = divmod(next(calls), args.batch)
            return result_of(episode, turn)

        trainer: Any = GRPOTrainer(
            model=self.model, processing_class=self.tokenizer, tools=[answer], train_dataset=Dataset.from_list(prompts),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=GRPOConfig(
                output_dir=tempfile.mkdtemp(), per_device_train_batch_size=args.batch, num_generations=args.group,
                max_completion_length=self.length(turns), max_tool_calling_iterations=turns - 1, seed=args.seed, **GRPO,
            ),
        )  # fmt: skip
        # One turn is at most this long; TRL applies max_completion_length to each turn's generation and to their sum.
        trainer.generation_config.max_new_tokens = args.tokens
        generate = trainer._generate

        def generate_timed(given: list[Any]) -> Any:
            timing = timed(lambda: generate(given))
            parts = zip(*timing.result[:3], strict=True)
            rows = [(prompt + said, [0] * len(prompt) + mask) for prompt, said, mask in parts]
            timings.append(replace(timing, result=(rows, 0)))
            return timing.result

        trainer._generate = generate_timed

        def arm() -> Timing:
            nonlocal calls
            calls = itertools.count()
            trainer.model.train()
            trainer._generate_and_score_completions(list(prompts))
            return timings.pop()

        return arm

    def compare(
        self, arms: dict[str, Callable[[], Timing]], repeats: int, what: str, warm_up: int = 0
    ) -> tuple[dict[str, Any], int]:
        """Time the arms in turn: what they took, and the tokens that `hf` prefilled; ends the program where they did not play the same."""
        turn = scripted_turn(self.tokenizer, self.args.tokens)
        with Script(self.model, turn, self.prompt, self.suffix):
            timings = in_turn(arms, repeats, what, warm_up)
        first, *others = (sorted(of[-1].result[0]) for of in timings.values())
        if any(rows != first for rows in others):
            raise SystemExit(f"{what}: the arms did not play the same episodes")
        actions, middle = sum(sum(mask) for _, mask in first), medians(timings)
        return {
            "action_tokens": actions,
            "episode_tokens": len(first[0][0]),
            "action_tokens_per_s": {name: round(actions / value, 2) for name, value in middle.items()},
            "seconds": seconds(timings),
        }, next(iter(timings.values()))[-1].result[1]

    def rollouts(self, turns: int, server: VLLMEngine | None, repeats: int, warm_up: int) -> dict[str, Any]:
        """All arms at one number of turns."""
        engines = {"hf": None} | ({"vllm": server} if server is not None else {})
        arms = {name: self.ours(engine, turns) for name, engine in engines.items()}
        found, prefilled = self.compare(arms | {"trl": self.trl(turns)}, repeats, f"{turns} turns", warm_up)
        # one prompt a group less what the groups share, and a turn's suffix with the last sampled token before it
        most = self.prompt * len(tasks(self.args)) + self.args.batch * (turns - 1) * (self.suffix + 1)
        rates = found["action_tokens_per_s"]
        over = {f"{'ours' if name == 'hf' else name}_over_trl": round(rates[name] / rates["trl"], 3) for name in arms}
        return {"turns": turns, **found, **over, "prefilled_tokens": prefilled, "prefilled_only_new": prefilled <= most}

    def waiting(self, server: VLLMEngine) -> dict[str, Any]:
        """What slow tools cost either engine."""
        turns, kinds = self.args.turns[0], ("quick", "slow", "lock-step")
        engines = {"hf": None, "vllm": server}
        arms = {f"{name} {kind}": self.ours(engines[name], turns, kind) for kind in kinds for name in engines}
        found, _ = self.compare(arms, 1, "waiting")  # checks also that no arm's turn was without a call
        every = {name: {kind: found["seconds"][f"{name} {kind}"] for kind in kinds} for name in engines}
        sizes = {"turns": turns, "tokens": self.args.tokens, "batch": self.args.batch, "tool_s": SLOW_S}
        return {**sizes, **{name: {"seconds": every[name]} for name in engines}, "commit": record.commit()}


# ---- single decoding steps ----


def plain_steps(model: Any, rows: list[list[int]]) -> Iterator[None]:
    """A step of a plain decode each time, after the prefill: DynamicCache, left padding, sampling by torch.multinomial."""
    import torch
    from transformers import DynamicCache

    width = max(map(len, rows))
    ids = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    cache, ragged = DynamicCache(config=model.config), len({len(row) for row in rows}) > 1
    with torch.inference_mode():
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        given = {"attention_mask": mask, "position_ids": positions, "past_key_values": cache}
        output = model(input_ids=ids, logits_to_keep=1, **given)
        positions = positions[:, -1:]
        while True:
            yield
            token = torch.multinomial(output.logits[:, -1].float().softmax(-1), 1)
            mask, positions = torch.cat([mask, torch.ones_like(token)], dim=1), positions + 1
            given |= {"attention_mask": mask if ragged else None, "position_ids": positions}
            output = model(input_ids=token, logits_to_keep=1, **given)


def session_steps(engine: HFEngine, rows: list[list[int]], steps: int) -> Iterator[None]:
    """A decoding step of a session each time, after the prefill."""
    with engine.session(SamplingParams(max_new_tokens=steps + 1, temperature=1.0)) as session:
        for i, row in enumerate(rows):
            session.submit(f"row-{i}", row)
        while len(session.active) < len(rows):
            session.step()
        while True:
            yield
            session.step()


def step_seconds(decode: Iterator[None], steps: int) -> list[float]:
    next(decode)
    return [timed(lambda: next(decode)).wall for _ in range(steps)]


def compare_decode(model: Any, tokenizer: Any, args: argparse.Namespace, context: int, ragged: bool) -> dict[str, Any]:
    """Median step times at one context, arms in turn; the first round warms up."""
    import torch

    generator = torch.Generator().manual_seed(args.seed)
    lengths = [context - (i * context // (2 * args.batch) if ragged else 0) for i in range(args.batch)]
    rows = [torch.randint(3, len(tokenizer), (n,), generator=generator).tolist() for n in lengths]
    engine = HFEngine(model, tokenizer, max_batch_tokens=args.batch * (context + args.steps + 1))
    arms = {
        "ours": lambda: timed(lambda: step_seconds(session_steps(engine, rows, args.steps), args.steps)),
        "plain": lambda: timed(lambda: step_seconds(plain_steps(model, rows), args.steps)),
    }
    engine.eos_ids = frozenset()  # rows run to their limit: a step then always decodes all of them
    timings = in_turn(arms, args.repeats[0], f"{context} tokens", warm_up=1)
    middle = {name: statistics.median(s for one in of for s in one.result) for name, of in timings.items()}
    return {
        "context": context,
        "rows": "unlike lengths" if ragged else "equal lengths",
        "step_ms": {name: round(1e3 * value, 3) for name, value in middle.items()},
        "ours_over_plain": round(middle["ours"] / middle["plain"], 3),
    }


# ---- commands ----


def through_vllm(args: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    """Rollouts with both engines and TRL, or what slow tools cost."""
    said = json.dumps(scripted_turn(bench.tokenizer, args.tokens))
    options = ("--logits-processors", "benchmarks.speed.scripted:Scripted")
    environment = {"SCRIPTED_TURN": said, "PYTHONPATH": str(ROOT)}
    with serving(
        args.vllm_python, base_path(args.model), *options,
        context=bench.length(max(args.turns)) + 1, cache_gib=2, threads=args.threads, environment=environment,
    ) as url:  # fmt: skip
        server = VLLMEngine(f"vllm:{url}#base", eos_ids={bench.tokenizer.eos_token_id})
        try:
            part = {"waiting": bench.waiting(server)} if args.waiting else {"rollouts": rollouts(bench, server)}
            return part | {"vllm": version_of(url)}
        finally:
            server.close()


def rollouts(bench: Bench, server: VLLMEngine | None = None) -> list[dict[str, Any]]:
    """A row for each number of turns; the first one warms up."""
    args = bench.args
    repeats = args.repeats if len(args.repeats) == len(args.turns) else args.repeats[:1] * len(args.turns)
    rows = enumerate(zip(args.turns, repeats, strict=True))
    return [bench.rollouts(turns, server, n, warm_up=int(number == 0)) for number, (turns, n) in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lab", help="`lab`, `smollm2`, a model directory or a hub id")
    parser.add_argument("--dtype", default="float32", choices=["bfloat16", "float32"])
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--tokens", type=int, default=64, help="sampled tokens a turn")
    parser.add_argument("--batch", type=int, default=16, help="episodes")
    parser.add_argument("--group", type=int, default=8, help="episodes a prompt")
    parser.add_argument("--repeats", type=int, nargs="+", default=[3], help="of all, or of each of --turns")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decode", action="store_true", help="compare single decoding steps instead")
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--vllm-python", type=Path, help="also through a server, of an environment with vLLM")
    parser.add_argument("--waiting", action="store_true", help="slow tools instead, at the first of --turns")
    parser.add_argument("--out", type=Path, help="default: rollout_speed.json, with --vllm-python engines_speed.json")
    args = parser.parse_args()
    if args.batch % args.group:
        parser.error(f"--batch {args.batch} is no multiple of --group {args.group}")
    if args.waiting and args.vllm_python is None:
        parser.error("--waiting needs --vllm-python")
    import torch

    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)
    out = args.out or record.RESULTS / f"{'engines' if args.vllm_python else 'rollout'}_speed.json"
    kept = json.loads(out.read_text()) if out.is_file() else {}
    if args.vllm_python is not None:
        found = through_vllm(args, Bench(args))
        args.vllm_python = args.vllm_python.name
        return finish(kept | found | made("rollout", args, "torch", "transformers", "trl"), out)
    if args.decode:
        model, tokenizer = load(args)
        found = {"decode": [compare_decode(model, tokenizer, args, c, r) for c in args.contexts for r in (False, True)]}
    else:
        found = {"rollouts": rollouts(Bench(args))}
    found |= {"trl_config": GRPO, **made("rollout", args, "torch", "transformers", "trl")}
    mine = found["options"] = found["options"] | {"model": found["model"]}
    others = [run for run in kept.get("runs", ()) if any(run["options"][k] != mine[k] for k in ("model", "decode"))]
    finish({"runs": [*others, found]}, out)


if __name__ == "__main__":
    main()
