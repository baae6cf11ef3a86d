"""Requests of all kinds, and clients and workers that misbehave, against `rrm serve`; and the books afterwards.

Every request is known by its number, which its transcripts' ids hold, and of each the one right answer is known beforehand: a status, and the rows that its transcripts
order of a judge of a script. What clients counted must be what the server counted, by endpoint and status; a client
that hung up is in the server's count alone. At last servers are told to stop while all clients go on asking: what was answered is whole and right.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.speed.serving import Answer, Client, Cut, Server, Unanswered, at_once, serving

CLIENTS = 64
KEY = "a key of the soak's"
LARGE = 2**20
BODY_S = 3.0
BATCH, STREAM = (2, 6), (2, 8)
STREAMED = ("stream", "slow reader", "leave stream")
STOPS = 3
STOP_AFTER_S = 2.0
AGAIN_S = 0.05
LIMITS = {"body_bytes": LARGE, "body_s": BODY_S, "transcripts": 64, "workers": 2, "batch": 64, "most_waiting": 4096}
MIX = {
    "score": 0.5, "batch": 0.12, "stream": 0.1, "rank": 0.08, "measure": 0.02, "healthz": 0.03, "metrics": 0.005, "judge": 0.01,
    "malformed": 0.03, "invalid": 0.02, "large": 0.01, "no key": 0.01, "wrong key": 0.01, "hang up": 0.02, "leave stream": 0.01, "cut body": 0.005,
    "drip": 0.008, "slow reader": 0.005, "unfinished": 0.0005, "raise": 0.006, "kill": 0.0001,
}  # fmt: skip
"""Kinds of requests, and their shares. The last two are orders to the judge."""
ORDERS = ("raise", "kill")
STATUSES = {"malformed": 422, "invalid": 422, "large": 413, "no key": 401, "wrong key": 401, "unfinished": 408}
"""Of kinds that are refused."""
LEAVES = ("hang up", "leave stream", "cut body")  # kinds whose client does not wait for an answer


@dataclass
class Soak:
    """One run of so many requests against a judge of a script, whose transcripts say which score they want."""

    n: int
    seed: int
    kills: int = 20  # workers that are killed, evenly over the requests

    def run(self) -> dict[str, Any]:
        """The record: what was asked, answered, lost, and how the books compare."""
        draw = random.Random(self.seed)
        kinds = draw.choices(list(MIX), weights=list(MIX.values()), k=self.n)
        with serving(key=KEY, script=json.dumps(LIMITS)) as server:
            found = asyncio.run(self._soak(server, kinds, draw))
        stops = [self._stopped(draw) for _ in range(STOPS)]
        wrong = [*found.pop("wrong"), *(one for stop in stops for one in stop.pop("wrong"))]
        return {**found, "stops": stops, "wrong": wrong[:20], "lost": len(wrong)}

    async def _soak(self, server: Server, kinds: Sequence[str], draw: random.Random) -> dict[str, Any]:
        books = Books()
        marks = {self.n * k // (self.kills + 1) for k in range(1, self.kills + 1)}

        async def do(client: Client, job: tuple[int, str]) -> str | None:
            if job[0] in marks and (workers := server.workers()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(workers), signal.SIGKILL)
                    books.killed += 1
            number, kind = job
            try:
                if kind in LEAVES:
                    return await self._leave(client, number, kind, books)
                return await self._asked(client, number, kind, books)
            except (Unanswered, Cut, ValueError, LookupError, TypeError) as error:  # cut off, or an answer that is none
                return f"{type(error).__name__}: {error}"

        clients = [Client(server.host, server.port, KEY) for _ in range(CLIENTS)]
        begun = time.perf_counter()
        outcomes = await at_once(clients, list(enumerate(kinds)), do)
        seconds = time.perf_counter() - begun
        last = Client(server.host, server.port, KEY)
        for _ in range(600):  # what hung up is still being judged
            health = (await last.ask(last.request("/healthz"))).json()
            books.requests["/healthz", 200 if health["status"] == "ok" else 503] += 1
            if health["status"] == "ok" and not health["waiting"] + health["judging"] and health["workers"] >= 2:
                break
            await asyncio.sleep(0.1)
        told = (await last.ask(last.request("/metrics"))).body.decode()
        wrong = [f"{number} {kinds[number]}: {said}" for number, said in enumerate(outcomes) if said is not None]
        wrong += [f"books: {line}" for line in books.differences(told)]
        return {
            "requests": len(kinds),
            "transcripts": sum(books.rows.values()),
            "seconds": round(seconds, 1),
            "requests_per_s": round(len(kinds) / seconds, 1),
            "kinds": dict(Counter(kinds).most_common()),
            "answers": {f"{path} {status}": n for (path, status), n in sorted(books.requests.items())},
            "rows": dict(books.rows),
            "left": dict(books.left),
            "workers_killed": books.killed,
            "worker_restarts": int(values(told, "rrm_worker_restarts_total").get((), 0)),
            "refused_for_want_of_room": books.again,
            "left_over": health["waiting"] + health["judging"],
            "wrong": wrong,
        }

    async def _asked(self, client: Client, number: int, kind: str, books: Books) -> str | None:
        """What was wrong with the answer to a request of a kind; None: nothing."""
        path, ids, body = self.request(number, kind)
        how = {"drip": {"pause_s": 0.05}, "slow reader": {"read_pause_s": 0.1}}.get(kind, {})
        wanted_status = STATUSES.get(kind, 200)
        whole = {
            "malformed": lambda: client.request(path, (body or b"")[: -1 - number % 40]),
            "large": lambda: client.request(path, b" " * (LARGE + 1 + number)),
            "no key": lambda: client.request(path, body, key=""),
            "wrong key": lambda: client.request(path, body, key=KEY[:-1]),
            "unfinished": lambda: client.request(path, body)[:-1],
        }.get(kind, lambda: client.request(path, body))()
        cuts = [len(whole) * k // 6 for k in range(7)] if kind == "drip" else [0, len(whole)]
        parts = [whole[a:b] for a, b in pairwise(cuts)]
        while True:
            answer = await client.ask(*parts, **how)
            books.requests[path, answer.status] += 1
            if answer.status != 429:
                break
            books.again += 1
            await asyncio.sleep(AGAIN_S)
        if kind == "unfinished":
            client.close()
        if kind == "healthz" and answer.status == 503:  # both workers were killed, and it says so
            return None if answer.json()["status"] in ("starting", "failing") else f"{answer.body!r}"
        if answer.status != wanted_status:
            return f"{answer.status}: {answer.body[:200]!r}"
        if wanted_status != 200:
            return None if answer.json()["error"]["message"] else f"{answer.body[:200]!r}"
        return self.wrong(kind, ids, answer, books)

    def request(self, number: int, kind: str) -> tuple[str, list[str], bytes | None]:
        """Path, ids in their order, and body."""
        if kind in ("healthz", "metrics", "judge"):
            return "/v1/judge" if kind == "judge" else f"/{kind}", [], None
        draw = random.Random(number)
        several = dict.fromkeys(("batch", *ORDERS), BATCH) | dict.fromkeys(STREAMED, STREAM)
        ids = [f"{number}-{k}" for k in range(draw.randint(*several[kind]) if kind in several else 1)]
        if kind == "rank":
            ids = [f"{number}-{k}" for k in range(2)]
            return "/v1/rank", ids, json.dumps({"groups": [[transcript(id, f"RANK {id}") for id in ids]]}).encode()
        runs = [transcript(id, f"score {wanted(id)}") for id in ids]
        if kind in ORDERS:
            runs[-1] = transcript(ids[-1], kind.upper())
        body: dict[str, Any] = {"transcripts": runs, "mode": "full"}
        if kind == "measure":
            return "/v1/measure", ids, json.dumps(body).encode()
        if kind == "invalid":
            twice = {"transcripts": [runs[0], runs[0]]}
            body |= draw.choice([{"samples": 0}, {"what": 1}, {"transcripts": []}, twice, {"mode": "loud"}])
        if kind in STREAMED:
            body["stream"] = True
        return "/v1/score", ids, json.dumps(body).encode()

    def wrong(self, kind: str, ids: Sequence[str], answer: Answer, books: Books) -> str | None:
        """What is wrong with an answer of status 200."""
        simple: dict[str, Callable[[], bool]] = {
            "healthz": lambda: answer.json()["status"] == "ok",
            "metrics": lambda: b"rrm_requests_total" in answer.body,
            "judge": lambda: bool(answer.json()["describe"]["model"]),
            "measure": lambda: len(answer.json()["reads"]) == len(ids),
        }
        if kind in simple:
            return None if simple[kind]() else f"{answer.body[:200]!r}"
        if kind == "rank":
            (ranking,) = answer.json()["rankings"]
            rows = ranking["feedback"]
            books.rows.update(row["status"] for row in rows)
            fits = [row["id"] for row in rows] == list(ids) and sorted(row["score"] for row in rows) == [0.0, 1.0]
            return None if fits else f"{ranking}"
        if kind in STREAMED:
            *lines, last_line = answer.lines()
            lines.sort(key=lambda line: line["index"])
            if last_line != {"done": len(ids)} or [line["index"] for line in lines] != list(range(len(ids))):
                return f"a stream of {len(ids)} ended as {answer.body[-300:]!r}"
            rows = [line["row"] for line in lines]
        else:
            rows = answer.json()["rows"]
        if [row["id"] for row in rows] != list(ids):
            return f"rows of {[row['id'] for row in rows]} for {ids}"
        books.rows.update(row["status"] for row in rows)
        last = rows.pop() if kind in ORDERS else None
        if last is not None and (last["status"] != "judge_error" or last["score"] is not None):
            return f"{last}"
        bad = [row for row in rows if (row["status"], row["score"]) != ("scored", wanted(row["id"]))]
        return f"{bad[0]}" if bad else None

    async def _leave(self, client: Client, number: int, kind: str, books: Books) -> None:
        path, ids, body = self.request(number, kind)
        whole = client.request(path, body)
        books.left[path] += 1
        books.left_rows += len(ids)
        client.close()
        with contextlib.suppress(OSError, Unanswered, asyncio.IncompleteReadError):
            writer = await client.connect()
            writer.write(whole[: len(whole) - 10 if kind == "cut body" else None])
            await writer.drain()
            if kind == "leave stream":
                assert client.reader is not None
                await client.reader.readuntil(b"\r\n\r\n")
            else:
                await asyncio.sleep(0.01 * (number % 4))
        client.close()

    # ---- stopping ----

    def _stopped(self, draw: random.Random) -> dict[str, Any]:
        """A server that is told to stop while all clients go on asking."""
        kinds = draw.choices(("score", "batch", "stream", "rank"), weights=(0.6, 0.2, 0.15, 0.05), k=200_000)
        books, numbers, wrong = Books(), iter(enumerate(kinds)), list[str]()
        counts = Counter[str]()
        told, begun = False, 0.0

        async def work(client: Client) -> None:
            for number, kind in numbers:
                try:
                    said = await self._asked(client, number, kind, books)
                except Unanswered:
                    counts["refused_after_the_signal"] += 1
                    return
                except Cut as error:
                    said = f"cut off: {error}"
                counts["answered_after_the_signal"] += told
                wrong.extend([f"{number} {kind}: {said}"] if said is not None else [])

        async def stopping(server: Server) -> None:
            nonlocal told, begun
            working = [asyncio.create_task(work(Client(server.host, server.port, KEY))) for _ in range(CLIENTS)]
            await asyncio.sleep(STOP_AFTER_S)
            server.stop()
            told, begun = True, time.perf_counter()
            await asyncio.gather(*working)

        with serving(key=KEY, script=json.dumps(LIMITS)) as server:
            asyncio.run(stopping(server))
            seconds = time.perf_counter() - begun
            ended = server.wait()
        answered = sum(books.requests.values())
        rows = {name: n for name, n in ended.items() if name not in ("served", "requests", "exit")}
        if ended["exit"] != 0:
            wrong.append(f"it ended with {ended['exit']}")
        if (ended["requests"], rows) != (answered, dict(books.rows)):
            wrong.append(f"the server counts {ended['requests']} requests, {rows}, not {answered}, {books.rows}")
        found = {**counts, "seconds_to_the_last_answer": round(seconds, 2), "answered": answered, "wrong": wrong}
        return {**found, "server_answered": ended["requests"], "rows": rows}


@dataclass
class Books:
    """What the clients count."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # (path, status) → answers
    rows: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)  # path → requests whose client was gone before the answer
    left_rows: int = 0  # transcripts of those
    killed: int = 0
    again: int = 0

    def differences(self, metrics: str) -> list[str]:
        """Where the server's own counts (its /metrics) are others."""
        server = {(path, int(status)): int(n) for (path, status), n in values(metrics, "rrm_requests_total").items()}
        found = []
        for path in sorted({path for path, _ in [*server, *self.requests]}):
            mine = {status: n for (own, status), n in self.requests.items() if own == path}
            its = {status: n for (own, status), n in server.items() if own == path}
            over = {status: its.get(status, 0) - mine.get(status, 0) for status in {*mine, *its}}
            gone = {status: n for status, n in over.items() if n}
            strange = any(n < 0 or status not in (200, 499) for status, n in gone.items())
            if strange or sum(gone.values()) > self.left[path]:
                found.append(f"{path}: the server counts {its}, its clients {mine}, and {self.left[path]} left")
        rows = {status: int(n) for (status,), n in values(metrics, "rrm_rows_total").items()}
        over = {status: rows.get(status, 0) - self.rows[status] for status in {*rows, *self.rows}}
        if min(over.values(), default=0) < 0 or sum(over.values()) > self.left_rows:
            found.append(f"the server counts rows {rows}, its clients {dict(self.rows)}, and {self.left_rows} left")
        return found


def values(metrics: str, name: str) -> dict[tuple[str, ...], float]:
    """Label values → value, of one metric in Prometheus's text."""
    found: dict[tuple[str, ...], float] = {}
    for line in metrics.splitlines():
        if (match := re.match(rf"{name}(?:\{{(.*)\}})? (\S+)$", line)) is not None:
            found[tuple(re.findall(r'"([^"]*)"', match[1] or ""))] = float(match[2])
    return found


def wanted(id: str) -> float:
    """The score that a transcript of this id orders."""
    number, _, place = id.partition("-")
    return (int(number) * 7 + int(place)) % 101 / 100


def transcript(id: str, order: str) -> dict[str, Any]:
    """A transcript that orders its score, or else something of the judge."""
    messages = [{"role": "user", "content": "Do it."}, {"role": "assistant", "content": order}]
    return {"id": id, "task": "Do it.", "messages": messages}
