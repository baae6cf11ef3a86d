"""How fast multi-turn rollouts are: `reagent.rollout.rollout` against the tool loop of TRL's `GRPOTrainer`.

    python -m benchmarks.speed.rollout [--model lab|smollm2|DIR_OR_HUB_ID] [--turns 2 4 8 16] [--batch 16] [--group 8]
    python -m benchmarks.speed.rollout --decode [--model …] [--contexts 256 1024]

Both arms play the same episodes, in turn (A B A B …), on the same number of threads, with the same model, dtype, chat
template (Qwen2.5's, which TRL knows), prompts, tool and sampling; the medians of action tokens/s count. So that every
turn has the same length in both, the output head is told what to say: after the whole projection was computed, the
logit of a scripted token is raised. A turn is `--tokens` tokens, the last of them a tool call and the end of turn. What the
tool says is of one length and differs by episode and turn, from its first word on: sampled episodes are never alike, and an
engine that computes rows of equal ids once must not gain by it. That both arms end with the same ids is checked.

- `ours`: `rollout` with `HFEngine` and a `ToolEnv`.
- `trl`: `GRPOTrainer` with `tools=[…]`, configured as `GRPO` below says. What is timed is its own generation and tool loop
  (`_generate`) inside the method a training step calls; log-probabilities and rewards, which it computes next, are not.

`--decode` compares one decoding step of a session with a plain transformers decode (DynamicCache) at the same context,
rows of equal and of unlike length. Progress goes to standard error; the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers.utils.chat_template_utils import get_json_schema

from benchmarks import record
from benchmarks.speed import arms
from benchmarks.speed.decode import compare_decode
from reagent.env.env import ToolEnv
from reagent.env.task import Task
from reagent.env.tool import tool
from reagent.lab.settings import LabSettings
from reagent.rollout.rollout import rollout
from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine

BARS = {"ours_over_trl_at_8_turns": 2.0, "decode_step_over_plain": 1.15}
RESULT = "{number:04d} is the record that says that the bridge was built by the elder of the two sisters, in a year of drought."
"""What the tool says to an episode in a turn: `result_of`."""
MOST_TURNS = 100
SYSTEM = "You look things up with the tool you are given, one thing at a time, and answer at the end."
QUESTION = "Question {number:04d}: who built the bridge over the river by the old mill, and in which year was that?"
GRPO: dict[str, Any] = {**arms.GRPO, "gradient_checkpointing": False}
"""TRL's configuration beside the lengths and batch sizes, which the command line gives."""


def result_of(episode: int, turn: int) -> str:
    """What the tool says to the episode of that number, from 0, in a turn, from 0."""
    return RESULT.format(number=episode * MOST_TURNS + turn)


def lookup(query: str) -> str:
    """Look something up in the archive.

    Args:
        query: What to look for.

    Returns:
        What the archive says.
    """
    raise NotImplementedError(query)  # the arms' own know whose call it is


class Archive(ToolEnv):
    """The tool, described by the chat template as TRL does it.

    Args:
        episode: its number.
    """

    system = SYSTEM

    def __init__(self, turns: int, episode: int) -> None:
        said = itertools.count()

        @functools.wraps(lookup)
        def answer(query: str) -> str:
            del query
            return result_of(episode, next(said))

        super().__init__([tool(answer)], max_turns=turns, tool_prompt="template")

    @property
    def template_tools(self) -> list[dict[str, Any]]:
        """The schema as TRL shows it, with what the function returns."""
        return _SCHEMAS


_SCHEMAS: list[dict[str, Any]] = [get_json_schema(lookup)]


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
        self._hooks = [
            model.get_decoder().rotary_emb.register_forward_pre_hook(self._read, with_kwargs=True),
            model.get_output_embeddings().register_forward_hook(self._say),
        ]

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

    def remove(self) -> None:
        """Let the model speak for itself again."""
        for hook in self._hooks:
            hook.remove()


def load(args: argparse.Namespace) -> tuple[Any, Any]:
    """(model, tokenizer) in evaluation mode. `lab`: the lab's shape with random weights and room for 16 turns."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.chat_template_utils import qwen2_5_chat_template

    from rrm.config import ModelConfig
    from rrm.engines.hf.base_model import load_model

    if args.model == "lab":
        from reagent.lab.model import build_lab_tokenizer

        words = [SYSTEM, result_of(0, 0), QUESTION, json.dumps(_SCHEMAS), _call("bridge 0123456789")]
        tokenizer: Any = build_lab_tokenizer(words * 2, vocab_size=2048)
        tokenizer.model_max_length = 8192
        torch.manual_seed(args.seed)
        shape = LabSettings()
        config = LlamaConfig(
            vocab_size=2048, hidden_size=shape.hidden, intermediate_size=shape.intermediate,
            num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.heads,
            max_position_embeddings=8192, tie_word_embeddings=True, bos_token_id=None,
            pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id,
        )  # fmt: skip
        model = LlamaForCausalLM(config)
    else:
        model, tokenizer = load_model(ModelConfig(base=args.model, dtype=args.dtype))
    tokenizer.chat_template = qwen2_5_chat_template
    return model.to(getattr(torch, args.dtype)).eval(), tokenizer


def _call(query: str) -> str:
    return f'<tool_call>\n{{"name": "lookup", "arguments": {{"query": "{query}"}}}}\n</tool_call>'


def scripted_turn(tokenizer: Any, tokens: int) -> list[int]:
    """`tokens` ids: thoughts, a call, the end of turn."""
    call = tokenizer.encode(_call("who built the bridge"), add_special_tokens=False)
    thought = tokenizer.encode("I have to look this up in the archive first. " * tokens, add_special_tokens=False)
    room = tokens - len(call) - 1
    if room < 1:
        raise SystemExit(f"--tokens {tokens} leaves no room beside a call of {len(call)} tokens")
    return [*thought[:room], *call, tokenizer.eos_token_id]


def tasks(args: argparse.Namespace) -> list[Task]:
    """One question a group, all of one length."""
    return [Task(f"q{i}", QUESTION.format(number=i)) for i in range(args.batch // args.group)]


class Timed:
    """What an arm took and made; a context manager around the part that counts."""

    seconds = cpu_seconds = 0.0
    prefilled: int | None = None
    rows: Sequence[tuple[list[int], list[int]]] = ()
    """(ids, action mask) of each episode."""

    def __enter__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start[0]
        self.cpu_seconds = time.process_time() - self._start[1]


def trl_arm(model: Any, tokenizer: Any, args: argparse.Namespace, turns: int, longest: int) -> Callable[[], Timed]:
    """A call that rolls out the batch with TRL."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    prompts = [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]
        for task in tasks(args)
        for _ in range(args.group)
    ]
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=args.batch,
        num_generations=args.group,
        max_completion_length=longest,
        max_tool_calling_iterations=turns - 1,
        seed=args.seed,
        **GRPO,
    )
    calls = itertools.count()  # of all rows, turn after turn

    @functools.wraps(lookup)
    def answer(query: str) -> str:
        del query
        turn, episode = divmod(next(calls), args.batch)
        return result_of(episode, turn)

    trainer: Any = GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
        tools=[answer],
    )
    # One turn is at most this long; TRL applies max_completion_length to each turn's generation and to their sum.
    trainer.generation_config.max_new_tokens = args.tokens

    generate, timed = trainer._generate, Timed()

    def generate_timed(given: list[Any]) -> Any:
        with timed:
            found = generate(given)
        prompt_ids, completion_ids, mask = found[:3]
        timed.rows = [(p + c, [0] * len(p) + m) for p, c, m in zip(prompt_ids, completion_ids, mask, strict=True)]
        return found

    trainer._generate = generate_timed

    def arm() -> Timed:
        nonlocal calls
        calls = itertools.count()
        trainer.model.train()
        trainer._generate_and_score_completions([{"prompt": prompt} for prompt in prompts])
        return timed

    return arm


def our_arm(model: Any, tokenizer: Any, args: argparse.Namespace, turns: int, longest: int) -> Callable[[], Timed]:
    """A call that rolls out the batch with `rollout`."""
    engine, timed = HFEngine(model, tokenizer, max_batch_tokens=args.batch * longest * 2), Timed()

    def arm() -> Timed:
        before, numbers = engine.counters.prefilled, itertools.count()  # of episodes, as their environments are made
        with timed:
            episodes = rollout(
                engine,
                tokenizer,
                lambda: Archive(turns, next(numbers)),
                tasks(args),
                params=SamplingParams(max_new_tokens=args.tokens, temperature=1.0, seed=args.seed),
                group_size=args.group,
                max_turns=turns,
                max_episode_tokens=longest,
            )
        timed.prefilled = engine.counters.prefilled - before
        flat = [e.flatten() for e in episodes]
        timed.rows = [(f.input_ids.tolist(), f.action_mask.astype(int).tolist()) for f in flat]
        return timed

    return arm


def layout(tokenizer: Any, args: argparse.Namespace) -> tuple[int, int]:
    """(tokens of a prompt, tokens of a result's suffix)."""
    from reagent.rollout.templates import TurnTemplate

    template = TurnTemplate(tokenizer, _SCHEMAS)
    lengths = {
        len(template.prompt([{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]))
        for task in tasks(args)
    }
    if len(lengths) != 1:
        raise SystemExit(f"the prompts' lengths differ ({sorted(lengths)}): use fewer groups")
    results = (result_of(episode, turn) for episode in range(args.batch) for turn in range(max(args.turns)))
    suffixes = {
        len(template.suffix([{"role": "tool", "content": said, "name": "lookup"}], [template.end_id]))
        for said in results
    }
    if len(suffixes) != 1:
        raise SystemExit(f"the results' lengths differ ({sorted(suffixes)}): this tokenizer joins digits")
    return lengths.pop(), suffixes.pop()


def compare(model: Any, tokenizer: Any, args: argparse.Namespace, turns: int, *, warm_up: bool) -> dict[str, Any]:
    """Both arms in turn, at one number of turns; the first round of the first number warms the process up."""
    prompt, suffix = layout(tokenizer, args)
    longest = prompt + turns * (args.tokens + suffix) + 1
    both = {
        "ours": our_arm(model, tokenizer, args, turns, longest),
        "trl": trl_arm(model, tokenizer, args, turns, longest),
    }
    script = Script(model, scripted_turn(tokenizer, args.tokens), prompt, suffix)
    seconds: dict[str, list[float]] = {name: [] for name in both}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in both}
    last: dict[str, Timed] = {}
    try:
        for repeat, (name, arm) in itertools.product(range(args.repeats + warm_up), both.items()):
            last[name] = arm()
            if repeat >= warm_up:
                seconds[name].append(last[name].seconds)
                cpu_seconds[name].append(last[name].cpu_seconds)
    finally:
        script.remove()
    ours, theirs = sorted(last["ours"].rows), sorted(last["trl"].rows)
    if ours != theirs:
        raise SystemExit(f"{turns} turns: the arms did not play the same episodes: {_difference(ours, theirs)}")
    actions = sum(sum(mask) for _, mask in ours)
    # one prompt a group less what the groups share, and a turn's suffix with the last sampled token before it
    most = prompt * len(tasks(args)) + args.batch * (turns - 1) * (suffix + 1)
    prefilled = last["ours"].prefilled or 0
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    found = {
        "turns": turns,
        "action_tokens": actions,
        "action_tokens_wanted": args.batch * turns * args.tokens,
        "episode_tokens": len(ours[0][0]),
        "action_tokens_per_s": {name: round(actions / value, 2) for name, value in middle.items()},
        "ours_over_trl": round(middle["trl"] / middle["ours"], 3),
        "cpu_ours_over_trl": round(statistics.median(cpu_seconds["trl"]) / statistics.median(cpu_seconds["ours"]), 3),
        "prefilled_tokens": prefilled,
        "prefilled_only_new": prefilled <= most,
        "seconds": {name: [round(v, 3) for v in values] for name, values in seconds.items()},
    }
    print(f"{turns} turns: {found['action_tokens_per_s']} {found['ours_over_trl']}x", file=sys.stderr)
    return found


def _difference(ours: list[Any], theirs: list[Any]) -> str:
    for a, b in zip(ours, theirs, strict=True):
        for part, name in ((0, "ids"), (1, "mask")):
            at = next((i for i, (x, y) in enumerate(zip(a[part], b[part], strict=False)) if x != y), None)
            if at is not None or len(a[part]) != len(b[part]):
                return f"{name} of lengths {len(a[part])} and {len(b[part])} differ at {at}"
    return "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="lab", help="`lab`, `smollm2`, a model directory or a hub id")
    parser.add_argument("--dtype", default="float32", choices=["bfloat16", "float32"])
    parser.add_argument("--turns", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--tokens", type=int, default=64, help="sampled tokens a turn")
    parser.add_argument("--batch", type=int, default=16, help="episodes")
    parser.add_argument("--group", type=int, default=8, help="episodes a prompt")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decode", action="store_true", help="compare single decoding steps instead")
    parser.add_argument("--contexts", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--out", type=Path, help="also write the JSON object here, beside those of other models")
    args = parser.parse_args()
    if args.batch % args.group:
        parser.error(f"--batch {args.batch} is no multiple of --group {args.group}")
    import torch

    torch.set_num_threads(args.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)
    model, tokenizer = load(args)
    found: dict[str, Any] = {"bars": BARS}
    if args.decode:
        found["decode"] = [compare_decode(model, tokenizer, args, c, r) for c in args.contexts for r in (False, True)]
        met = all(d["ours_over_plain"] <= BARS["decode_step_over_plain"] for d in found["decode"])
        found["met"] = {"decode_step_over_plain": met}
    else:
        found["rollouts"] = [
            compare(model, tokenizer, args, turns, warm_up=number == 0) for number, turns in enumerate(args.turns)
        ]
        at_8 = [r["ours_over_trl"] for r in found["rollouts"] if r["turns"] == 8]
        found["met"] = {
            "ours_over_trl_at_8_turns": bool(at_8) and at_8[0] >= BARS["ours_over_trl_at_8_turns"],
            "prefilled_only_new": all(r["prefilled_only_new"] for r in found["rollouts"]),
        }
    found |= {"trl_config": GRPO, **record.timed_with("speed.rollout", args, "torch", "transformers", "trl")}
    found["options"]["model"] = Path(args.model).name
    if args.out:
        kept = json.loads(args.out.read_text())["runs"] if args.out.is_file() else []
        mine = (found["options"]["model"], args.decode)
        kept = [run for run in kept if (run["options"]["model"], run["options"]["decode"]) != mine]
        record.write(args.out, {"runs": [*kept, found]})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
