"""Measure how much of a judge's own speed `rrm serve` keeps under load.

    python -m benchmarks.speed.serve [--judge lab] [--rounds 8]

The same transcripts are judged one a request, from 1, 8 and 64 clients, and in this process in one call, in turn, by one thread each. The
median of the rounds' ratios counts (beside that of the processor's seconds: the judge's here, the worker's there).

Writes the part `speed` of benchmarks/results/serve_speed.json. Its parts `scripted` and `lab`, requests with faults, were made by code that
stands in commits 8bddff24 and 85fd7148.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.speed.harness import made, timed
from benchmarks.speed.serving import Client, Server, at_once, serving
from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import Trajectory
from rrm.judge.agent_rrm import AgentRRM

OUT = record.RESULTS / "serve_speed.json"
CLIENTS = {64: 1.0, 8: 0.5, 1: 0.125}  # clients → the share of the transcripts that they send in a round


def speed(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Requests a second of each number of clients, beside the judge in this process: the record after each round."""
    import torch

    torch.set_num_threads(1)
    judge = AgentRRM.from_pretrained(args.judge or None)
    rows = [t for t, _ in make_transcripts(args.rows, seed=args.seed)]
    judge.judge(rows[:8], mode=args.mode)
    rounds: list[dict[str, Any]] = []
    times: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
    apart = 0.0
    with serving(*(["--model", args.judge] if args.judge else [])) as server:
        asyncio.run(served(server, rows[:16], 8, args.mode))
        for number in range(args.rounds):
            arms = [0, *CLIENTS]
            found, own = dict[str, Any](), list[Any]()
            for clients in arms[number % len(arms) :] + arms[: number % len(arms)]:
                if not clients:
                    taken = timed(lambda: judge.judge(rows, mode=args.mode))
                    own = taken.result
                    found["in_process"] = {"per_s": round(len(rows) / taken.wall, 2), "cpu_s": round(taken.cpu, 3)}
                    continue
                part = rows[: max(int(len(rows) * CLIENTS[clients]), 16)]
                cpu = server.cpu_s()
                wall, answers = asyncio.run(served(server, part, clients, args.mode))
                spent = [round(b - a, 2) for a, b in zip(cpu, server.cpu_s(), strict=True)]
                found[str(clients)] = {"per_s": round(len(part) / wall, 2), "cpu_s": spent, "answers": answers}
                times[clients] += [seconds for seconds, _ in answers]
            for clients in CLIENTS:
                answers = zip(found[str(clients)].pop("answers"), own, strict=False)
                apart = max(apart, *(abs(row["score"] - one.score) for (_, row), one in answers))
            found["ratio"] = round(found["64"]["per_s"] / found["in_process"]["per_s"], 4)
            print(json.dumps(found), file=sys.stderr)
            rounds.append(found)
            yield {"judge": judge.model, "rows": len(rows), **summary(rounds, times), "apart": apart, "rounds": rounds}


def summary(rounds: Sequence[dict[str, Any]], times: dict[int, list[float]]) -> dict[str, Any]:
    """Medians over the rounds.

    Args:
        times: clients → seconds of each request.
    """

    def median(values: Iterator[float]) -> float:
        return round(statistics.median(values), 4)

    return {
        "kept_at_64": median(one["ratio"] for one in rounds),
        "kept_of_processor": median(one["in_process"]["cpu_s"] / one["64"]["cpu_s"][1] for one in rounds),
        "in_process_per_s": median(one["in_process"]["per_s"] for one in rounds),
        "clients": {
            str(clients): {
                "requests": len(some),
                "per_s": median(one[str(clients)]["per_s"] for one in rounds),
                "p50_s": round(statistics.median(some), 4),
                "p99_s": round(statistics.quantiles(some, n=100)[98], 4),
            }
            for clients, some in times.items()
        },
    }


async def served(
    server: Server, rows: Sequence[Trajectory], clients: int, mode: str
) -> tuple[float, list[tuple[float, dict[str, Any]]]]:
    """Seconds; and of each transcript, a request of its own, how long it took and its row."""
    bodies = [json.dumps({"transcripts": [t.model_dump(mode="json")], "mode": mode}) for t in rows]

    async def ask(client: Client, body: str) -> tuple[float, dict[str, Any]]:
        begun = time.perf_counter()
        answer = await client.post("/v1/score", body.encode())
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.body[:300]!r}")
        return time.perf_counter() - begun, json.loads(answer.body)["rows"][0]

    begun = time.perf_counter()
    found = await at_once([Client(server.host, server.port) for _ in range(clients)], bodies, ask)
    return time.perf_counter() - begun, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", default="lab", help="empty: the judge that ships")
    parser.add_argument("--mode", default="score")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    begun = time.time()
    found: dict[str, Any] = {}
    for found in speed(args):
        found |= {"minutes": round((time.time() - begun) / 60, 1), "niceness": os.nice(0)}
        found |= made("serve", args, "fastapi", "uvicorn", "torch")
        record.write(args.out, {**(json.loads(args.out.read_text()) if args.out.exists() else {}), "speed": found})
    print(json.dumps({k: v for k, v in found.items() if k not in ("rounds", "versions", "options")}))


if __name__ == "__main__":
    main()
