"""`rrm serve` under load: requests a second and times at 1, 8 and 64 clients, what it keeps of the judge's own speed, and faults.

    python -m benchmarks.speed.serve [--judge lab] [--rows 1000] [--scripted 100000]

Three parts, each in a server of its own on this machine, one judge thread:

    speed     `--rows` transcripts of the lab, one a request, from 1, 8 and 64 clients, beside the same judge in this process on the
              same transcripts in one call (whole, and its own order), in turns
    same      those rows, and those of `rrm score`, must be equal to 1e-6
    faults    `--scripted` requests to a judge of a script, from 64 clients: scores, ranks, malformed and oversized bodies, clients that drip and that hang up,
              and a worker killed every few seconds; every accepted request must be answered with the row that its transcript orders

Writes benchmarks/results/serve_speed.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks import record
from rrm.judge.agent_rrm import AgentRRM
from rrm.readers import read
from rrm.trajectory import Trajectory

ROOT = Path(__file__).resolve().parents[2]
OUT = record.RESULTS / "serve_speed.json"
SCRIPTED = ROOT / "tests" / "rrm" / "serve" / "scripted_worker.py"
CLIENTS = (1, 8, 64)
KEPT = 0.9
KILL_S = 5.0
MIX = {"score": 0.8, "rank": 0.1, "malformed": 0.04, "large": 0.02, "hang up": 0.03, "drip": 0.01}
LARGE = 2**20


@contextlib.contextmanager
def server(*options: str, worker: Path | None = None) -> Iterator[tuple[str, int, int]]:
    """(host, port, process id) of an `rrm serve`; with `worker` its judge is that script's."""
    command = [sys.executable, "-m", "rrm", "serve", "--port", "0", *options]
    if worker is not None:
        command = [sys.executable, "-m", "benchmarks.speed.serve", "--serve-script", str(worker)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "agents")])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT) as run:
        assert run.stderr is not None
        try:
            for line in run.stderr:
                if found := re.search(r"on http://([\d.]+):(\d+)", line):
                    break
                print(line, end="", file=sys.stderr)
            else:
                raise SystemExit("the server did not start")
            threading.Thread(target=lambda: [None for _ in run.stderr or ()], daemon=True).start()
            yield found[1], int(found[2]), run.pid
        finally:
            run.send_signal(signal.SIGTERM)
            run.wait(120)


class Client:
    """One that keeps its connection."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.connection = HTTPConnection(host, port, timeout=300)

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body; asked again where the server says so, as a client should."""
        while True:
            try:
                self.connection.request("POST", path, body, {"Content-Type": "application/json"})
                reply = self.connection.getresponse()
                status, said = reply.status, reply.read()
            except OSError:
                self.connection.close()
                raise
            if status != 429:
                return status, said
            time.sleep(0.05)


def at_once(
    clients: int, jobs: Sequence[Any], do: Callable[[Client, Any], Any], host: str, port: int
) -> tuple[float, list[Any]]:
    """Seconds, and what came of each job, of so many clients that take the next one as soon as they can."""
    found: list[Any] = [None] * len(jobs)
    numbers, lock = count(), threading.Lock()

    def work() -> None:
        client = Client(host, port)
        while True:
            with lock:
                number = next(numbers)
            if number >= len(jobs):
                return
            found[number] = do(client, jobs[number])

    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        for one in [pool.submit(work) for _ in range(clients)]:
            one.result()
    return time.perf_counter() - begun, found


def scored(client: Client, body: bytes) -> tuple[float, dict[str, Any]]:
    """Seconds and row of a request of one transcript."""
    begun = time.perf_counter()
    status, said = client.post("/v1/score", body)
    if status != 200:
        raise SystemExit(f"{status}: {said[:300]!r}")
    return time.perf_counter() - begun, json.loads(said)["rows"][0]


def speed(judge_name: str, mode: str, rows: Sequence[Trajectory]) -> dict[str, Any]:
    """Requests a second of each number of clients, beside the judge in this process."""
    import torch

    torch.set_num_threads(1)
    judge = AgentRRM.from_pretrained(judge_name)
    judge.judge(rows[:8], mode=mode)  # type: ignore[arg-type]
    bodies = [
        json.dumps({"transcripts": [t.model_dump(mode="json")], "mode": mode, "blend": False}).encode() for t in rows
    ]
    found: dict[str, Any] = {"rows": len(rows), "mode": mode, "clients": {}}
    direct: list[float] = []
    with server("--model", judge_name, "--batch", "64") as (host, port, _):
        at_once(8, bodies[:16], scored, host, port)  # warm
        for clients in CLIENTS:
            begun = time.perf_counter()
            here = judge.judge(rows, mode=mode)  # type: ignore[arg-type]
            direct.append(time.perf_counter() - begun)
            few = bodies if clients > 1 else bodies[: max(len(bodies) // 8, 16)]
            seconds, answers = at_once(clients, few, scored, host, port)
            times = sorted(t for t, _ in answers)
            apart = max(
                abs((row["score"] or 0.0) - (own.score or 0.0)) for (_, row), own in zip(answers, here, strict=False)
            )
            found["clients"][str(clients)] = {
                "requests": len(few),
                "requests_per_s": round(len(few) / seconds, 2),
                "p50_s": round(statistics.median(times), 4),
                "p99_s": round(times[min(int(0.99 * len(times)), len(times) - 1)], 4),
                "apart": apart,
            }
            print(clients, found["clients"][str(clients)], file=sys.stderr)
    found["in_process_per_s"] = [round(len(rows) / seconds, 2) for seconds in direct]
    found["kept_at_64"] = round(
        found["clients"]["64"]["requests_per_s"] / statistics.median(found["in_process_per_s"]), 4
    )
    return found


def order(number: int, kind: str) -> bytes:
    """A request of a kind."""
    score = f"0.{number % 10}"
    one = {"id": f"r{number}", "task": "Do it.", "messages": [{"role": "assistant", "content": f"score {score}"}]}
    if kind == "rank":
        two = {"id": f"s{number}", "task": "Do it.", "messages": [{"role": "assistant", "content": "RANK two"}]}
        return json.dumps(
            {"groups": [[{**one, "messages": [{"role": "assistant", "content": "RANK one"}]}, two]]}
        ).encode()
    return json.dumps({"transcripts": [one], "mode": "full"}).encode()


def faults(n: int, seed: int) -> dict[str, Any]:
    """What became of `n` requests of `MIX`."""
    draw = random.Random(seed)
    kinds = draw.choices(list(MIX), weights=list(MIX.values()), k=n)
    jobs = list(enumerate(kinds))

    def do(client: Client, job: tuple[int, str]) -> str:
        number, kind = job
        body = order(number, kind)
        if kind == "malformed":
            status, _ = client.post("/v1/score", body[: len(body) // 2])
            return "refused" if status == 422 else f"WRONG {status}"
        if kind == "large":
            client.connection.close()
            try:
                status, _ = client.post("/v1/score", b" " * (LARGE + 1))
            except OSError:
                return "refused"  # cut off while it sent
            return "refused" if status == 413 else f"WRONG {status}"
        if kind in ("hang up", "drip"):
            with contextlib.suppress(OSError), socket.create_connection((client.host, client.port), timeout=10) as raw:
                raw.sendall(b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
                raw.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + (body if kind == "hang up" else body[:1]))
                if kind == "drip":
                    time.sleep(0.05)
            return "left"
        status, said = client.post("/v1/rank" if kind == "rank" else "/v1/score", body)
        if status != 200:
            return f"WRONG {status}: {said[:200]!r}"
        if kind == "rank":
            (row,) = json.loads(said)["rankings"]
            return "answered" if sorted(f["score"] for f in row["feedback"]) == [0.0, 1.0] else f"WRONG {row}"
        (row,) = json.loads(said)["rows"]
        ok = row["id"] == f"r{number}" and row["status"] == "scored" and row["score"] == (number % 10) / 10
        return "answered" if ok else f"WRONG {row}"

    killed = 0
    stop = threading.Event()

    def kill(parent: int) -> None:
        nonlocal killed
        while not stop.wait(KILL_S):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            if children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(draw.choice(children)), signal.SIGKILL)
                    killed += 1

    with server(worker=SCRIPTED) as (host, port, pid):
        killer = threading.Thread(target=kill, args=(pid,), daemon=True)
        killer.start()
        seconds, outcomes = at_once(64, jobs, do, host, port)
        stop.set()
        killer.join()
        client = Client(host, port)
        client.connection.request("GET", "/healthz")
        health = json.loads(client.connection.getresponse().read())
    wrong = [one for one in outcomes if one is None or one.startswith("WRONG")]
    return {
        "requests": n,
        "seconds": round(seconds, 1),
        "requests_per_s": round(n / seconds, 1),
        "kinds": dict(Counter(kinds)),
        "outcomes": dict(Counter(one.split()[0] for one in outcomes if one is not None)),
        "workers_killed": killed,
        "wrong": wrong[:20],
        "lost": len(wrong),
        "left_over": health["waiting"] + health["judging"],
    }


def serve_script(worker: Path) -> None:
    """`rrm serve` with the workers of a script."""
    import asyncio
    from functools import partial

    from rrm.cli.judge_options import JudgeOptions
    from rrm.serve import run
    from rrm.serve.limits import Limits
    from rrm.serve.pool import Pool

    run.Pool = partial(Pool, command=[sys.executable, str(worker)])  # type: ignore[assignment]
    limits = Limits(body_bytes=LARGE, body_s=5.0, transcripts=64)
    asyncio.run(run.serve(JudgeOptions(), "127.0.0.1", 0, limits, workers=2, batch=64, most_waiting=4096))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", default="lab")
    parser.add_argument("--mode", default="score")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--scripted", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--serve-script", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve_script is not None:
        serve_script(args.serve_script)
        return
    with tempfile.TemporaryDirectory() as name:
        made = Path(name) / "runs.jsonl"
        command = [
            sys.executable,
            "-m",
            "reagent",
            "lab",
            "transcripts",
            "-o",
            str(made),
            "--n",
            str(args.rows),
            "--seed",
            str(args.seed),
        ]
        subprocess.run(
            command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'agents'}"}
        )
        rows = list(read([made]))[: args.rows]
    found = {
        "bars": {"kept": KEPT},
        "speed": speed(args.judge, args.mode, rows),
        "faults": faults(args.scripted, args.seed),
    }
    del args.serve_script
    found |= {"commit": record.commit(), **record.timed_with("speed.serve", args, "fastapi", "uvicorn", "torch")}
    record.write(args.out, found)
    print(json.dumps({key: found[key] for key in ("speed", "faults")}))


if __name__ == "__main__":
    main()
