"""`rrm serve` under load: what it keeps of a judge's own speed, and what becomes of requests when all goes wrong.

    python -m benchmarks.speed.serve [--only speed|scripted|lab …] [--judge lab] [--rounds 8]

Servers of their own on this machine, one judge thread each, parts that may be run one by one into the same record:

    speed      the same transcripts, one a request, from 1, 8 and 64 clients, and judged in this process in one call; rounds in which these
               take turns, so that what else the machine does falls on all; the ratio is the median of the rounds' ratios (and of the processor's seconds
               beside it: the judge's here, the worker's there)
    scripted   100,000 requests to a judge of a script, from 64 clients, with faults (`benchmarks.speed.soak`)
    lab        1,000 to the judge of the lab

Writes benchmarks/results/serve_speed.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed.serving import ROOT, Client, Server, at_once, serving
from benchmarks.speed.soak import Soak
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM
from rrm.readers import read

OUT = record.RESULTS / "serve_speed.json"
BARS = {"kept_at_64": 0.9, "lost": 0}
CLIENTS = {64: 1.0, 8: 0.5, 1: 0.125}
"""Clients → the share of the transcripts that they send in a round."""
PARTS = ("speed", "scripted", "lab")


def lab_runs(n: int, seed: int) -> list[Trajectory]:
    """Transcripts of the lab."""
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "runs.jsonl"
        options = ["-o", str(made), "--n", str(n), "--seed", str(seed)]
        env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'agents'}"}
        subprocess.run(
            [sys.executable, "-m", "reagent", "lab", "transcripts", *options], check=True, capture_output=True, env=env
        )
        return [one for one in read([made]) if isinstance(one, Trajectory)][:n]


def speed(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Requests a second of each number of clients, beside the judge in this process: the record after each round."""
    import torch

    torch.set_num_threads(1)
    judge, rows = AgentRRM.from_pretrained(args.judge or None), lab_runs(args.rows, args.seed)
    judge.judge(rows[:8], mode=args.mode)
    rounds: list[dict[str, Any]] = []
    times: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    apart = 0.0
    named = ["--model", args.judge] if args.judge else []
    with serving(*named, *args.serve) as server:
        asyncio.run(served(server, rows[:16], 8, args.mode))
        for number in range(args.rounds):
            arms = [0, *CLIENTS]
            found: dict[str, Any] = {}
            own: list[Any] = []
            for clients in arms[number % len(arms) :] + arms[: number % len(arms)]:
                if not clients:
                    before = time.perf_counter(), time.process_time()
                    own = judge.judge(rows, mode=args.mode)
                    wall, cpu = time.perf_counter() - before[0], time.process_time() - before[1]
                    found["in_process"] = {"per_s": round(len(rows) / wall, 2), "cpu_s": round(cpu, 3)}
                    continue
                part = rows[: max(int(len(rows) * CLIENTS[clients]), 16)]
                cpu = server.cpu_s()
                wall, answers = asyncio.run(served(server, part, clients, args.mode))
                spent = [round(b - a, 2) for a, b in zip(cpu, server.cpu_s(), strict=True)]
                found[str(clients)] = {"per_s": round(len(part) / wall, 2), "cpu_s": spent, "answers": answers}
                times[clients] += [seconds for seconds, _ in answers]
            for clients in CLIENTS:
                answers = found[str(clients)].pop("answers")
                apart = max(
                    apart, *(abs(row["score"] - one.score) for (_, row), one in zip(answers, own, strict=False))
                )
            found["ratio"] = round(found["64"]["per_s"] / found["in_process"]["per_s"], 4)
            print(json.dumps(found), file=sys.stderr)
            rounds.append(found)
            yield {"judge": judge.model, "rows": len(rows), **summary(rounds, times), "apart": apart, "rounds": rounds}


def summary(rounds: Sequence[dict[str, Any]], times: dict[int, list[float]]) -> dict[str, Any]:
    """Medians over the rounds.

    Args:
        times: clients → seconds of each request.
    """

    def median(of: Callable[[dict[str, Any]], float]) -> float:
        return round(statistics.median(map(of, rounds)), 4)

    clients = {
        str(clients): {
            "requests": len(some),
            "per_s": median(lambda one, name=str(clients): one[name]["per_s"]),
            "p50_s": round(statistics.median(some), 4),
            "p99_s": round(statistics.quantiles(some, n=100)[98], 4),
        }
        for clients, some in times.items()
    }
    return {
        "kept_at_64": median(lambda one: one["ratio"]),
        "kept_of_processor": median(lambda one: one["in_process"]["cpu_s"] / one["64"]["cpu_s"][1]),
        "in_process_per_s": median(lambda one: one["in_process"]["per_s"]),
        "clients": clients,
    }


async def served(
    server: Server, rows: Sequence[Trajectory], clients: int, mode: str
) -> tuple[float, list[tuple[float, dict[str, Any]]]]:
    """Seconds; and of each transcript, a request of its own, how long it took and its row."""
    bodies = [json.dumps({"transcripts": [t.model_dump(mode="json")], "mode": mode}) for t in rows]

    async def ask(client: Client, body: str) -> tuple[float, dict[str, Any]]:
        begun = time.perf_counter()
        answer = await client.ask(client.request("/v1/score", body.encode()))
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.body[:300]!r}")
        return time.perf_counter() - begun, answer.json()["rows"][0]

    begun = time.perf_counter()
    found = await at_once([Client(server.host, server.port) for _ in range(clients)], bodies, ask)
    return time.perf_counter() - begun, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--judge", default="lab", help="of the part speed; empty: the judge that ships")
    parser.add_argument("--mode", default="score")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--serve", nargs="*", default=[], help="options of rrm serve, without their dashes: batch=64")
    parser.add_argument("--scripted", type=int, default=100_000)
    parser.add_argument("--lab", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", help="of the part speed in the record, where it is another judge's")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    args.serve = [word for option in args.serve for word in f"--{option}".split("=", 1)]
    for part in args.only:
        begun = time.time()
        name = args.name if part == "speed" and args.name else part
        made: dict[str, Any] = {}
        for made in parts(part, args):
            made["minutes"] = round((time.time() - begun) / 60, 1)
            made |= {"commit": record.commit(), "niceness": os.nice(0)}
            made |= record.timed_with("speed.serve", args, "fastapi", "uvicorn", "torch")
            found = (
                json.loads(args.out.read_text()) if args.out.exists() else {"benchmark": "serve_speed", "bars": BARS}
            )
            record.write(args.out, {**found, name: made})
        print(json.dumps({name: {k: v for k, v in made.items() if k not in ("rounds", "versions", "options")}}))


def parts(part: str, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A part's record; that of the part `speed` after each round."""
    if part == "speed":
        yield from speed(args)
    elif part == "scripted":
        yield Soak.scripted(args.scripted, args.seed).run()
    else:
        yield Soak.lab(args.lab, args.seed, lab_runs(200, args.seed)).run()


if __name__ == "__main__":
    main()
