"""The judge at an address: `AgentRRM.from_pretrained("http://host:8321")`, `rrm score --model http://host:8321`.

It judges as the judge it stands for, row for row: what decides a score is on the server. A server that is busy, restarting or gone is asked
again for a while; then rows are `judge_error`, which `--retry-errors` judges later. Nothing here needs more than Python's own library.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn
from urllib.parse import urlsplit

from rrm.engines.replies import retry_after_s
from rrm.engines.server_options import ServerOptions, shown_address
from rrm.errors import ConfigError, RRMError
from rrm.feedback import Feedback, Mode, Reads
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.rank import SIZE, Ranking
from rrm.judge.wanted import OnReading
from rrm.serve.wire import About
from rrm.trajectory import Trajectory
from rrm.usage import Usage

KEY = "RRM_API_KEY"
"""Environment variable: what the server asks for, and clients send."""
CHUNK = 8
"""Transcripts of one request."""
CONCURRENCY = 8
TIMEOUT_S = 600.0
"""Between two rows of a request."""
PATIENCE_S = 60.0
"""For which a server that is busy or gone is asked again."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 10.0
SCHEMES = ("http://", "https://")


class TooLarge(RRMError):
    """A request that is larger than the server takes."""


@dataclass(frozen=True)
class _Busy(Exception):
    """Ask again."""

    why: str
    after_s: float = 0.0


class Address:
    """One server.

    Args:
        url: `http://host:port`, with a path where it lies behind one.
        key: what it asks for; None: `RRM_API_KEY`, where that is set.

    Raises:
        ConfigError: no address.
    """

    def __init__(
        self, url: str, *, timeout_s: float = TIMEOUT_S, patience_s: float = PATIENCE_S, key: str | None = None
    ) -> None:
        parts = urlsplit(url)
        if f"{parts.scheme}://" not in SCHEMES or not parts.hostname:
            raise ConfigError(f"{shown_address(url)} is no address of rrm serve: write http://HOST:PORT")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ConfigError(
                f"an address of rrm serve is http://HOST:PORT alone: put the key into {KEY}; for a chat model write openai:BASE_URL#model"
            )
        self.url, self.timeout_s, self.patience_s = url.rstrip("/"), timeout_s, patience_s
        self._key = key if key is not None else os.environ.get(KEY)

    def lines(self, path: str, body: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """What a request is answered, a JSON value a line, as they come.

        Raises:
            _Busy: it should be asked again.
            TooLarge, RRMError: it should not.
        """
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as reply:
                yield from map(json.loads, reply)
        except urllib.error.HTTPError as error:
            self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise _Busy(f"{self.url}: {type(reason).__name__}: {reason}") from error
        except ValueError as error:
            raise RRMError(
                f"{self.url} does not answer as rrm serve does: {error}; a chat server is openai:BASE_URL#model"
            ) from error

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        with error:
            try:
                said = json.loads(error.read(65536))["error"]
                why = f"{said['message']}{' (at ' + said['at'] + ')' if 'at' in said else ''}"
            except (ValueError, KeyError, TypeError, OSError):
                why = error.reason
        if error.code in (408, 429, 502, 503, 504):
            raise _Busy(f"{self.url}: {why}", retry_after_s(error.headers)) from error
        if error.code == 413:
            raise TooLarge(f"{self.url}: {why}") from error
        if error.code in (401, 403):
            raise ConfigError(f"{self.url}: {why}; clients send the environment's {KEY}") from error
        if error.code in (404, 405):
            raise ConfigError(
                f"{self.url} is no server of rrm serve ({error.code}): a chat server is openai:BASE_URL#model"
            ) from error
        raise RRMError(f"{self.url}: {error.code}: {why}") from error

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A request's whole answer, asked again while the server is busy.

        Raises:
            RRMError: it refuses, or does not answer for `patience_s`.
        """
        pauses = Pauses(self.patience_s)
        while True:
            try:
                (said,) = self.lines(path, body)
                return said
            except _Busy as busy:
                if not pauses.wait(busy.after_s):
                    raise RRMError(f"{busy.why}; asked for {self.patience_s:g} s") from busy


class Pauses:
    """Between tries: doubled each time, with jitter, until a time is over."""

    def __init__(self, patience_s: float) -> None:
        self.end, self.pause = time.monotonic() + patience_s, FIRST_PAUSE_S

    def wait(self, least_s: float) -> bool:
        """Wait; False where the time is over."""
        pause = max(self.pause * random.uniform(0.75, 1.25), least_s)
        if time.monotonic() + pause > self.end:
            return False
        time.sleep(pause)
        self.pause = min(2 * self.pause, LONGEST_PAUSE_S)
        return True


class RemoteJudge(AgentRRM):
    """A judge that `rrm serve` has loaded somewhere else.

    Args:
        address: where.
        concurrency: requests in flight at once.
        blend: whether scores are asked for blended with its lexical model's; rewards never are.

    Raises:
        RRMError: nothing answers there, or not as `rrm serve` does.
    """

    tells_readings = False

    def __init__(self, address: Address, *, concurrency: int = CONCURRENCY, blend: bool = False) -> None:
        self.address, self.concurrency, self.blended = address, concurrency, blend
        try:
            self.about = About.model_validate(address.ask("/v1/judge"))
        except ValueError as error:
            raise RRMError(f"{address.url} is of another version of rrm serve: {error}") from error
        said = self.about.describe
        self.settings = JudgeSettings.model_validate(self.about.settings)
        self.model, self.model_hash, self.dtype = said["model"], said.get("model_hash"), self.about.dtype
        self.engine: Any = SimpleNamespace(concurrency=concurrency)
        self.prompter = self.reader = self.folder = self.domain = None
        self.max_windows, self.asked = said.get("max_windows"), ServerOptions()

    def scoring(self, mode: Mode, blend: bool | None) -> RemoteJudge:
        """The judge for finished runs (`rrm.judge.blended.scorer_of`).

        Raises:
            ConfigError: it is to blend, and has nothing to blend with.
        """
        if blend and self.about.blend is None:
            raise ConfigError(f"{self.model} has no lexical model to blend with: leave out --blend")
        wanted = self.about.blends.get(mode, False) if blend is None else blend
        return self if wanted == self.blended else RemoteJudge(self.address, concurrency=self.concurrency, blend=wanted)

    # ---- judging ----

    def judge(
        self,
        trajectories: Sequence[Trajectory],
        *,
        mode: Mode = "full",
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
        on_reading: OnReading | None = None,
    ) -> list[Feedback]:
        """As `AgentRRM.judge`; a row that the server could not be asked for is a `judge_error`.

        Raises:
            RRMError: the server refuses the request.
        """
        del on_reading  # what a server reads is not told
        asked = {
            "format": "canonical",
            "mode": mode,
            "samples": samples,
            "seed": seed,
            "blend": self.blended,
            "stream": True,
        }
        rows: dict[int, Feedback] = {}
        for at, feedback in self._asked(trajectories, asked, mode, seed):
            rows[at] = feedback
            if on_feedback is not None:
                on_feedback(feedback)
        return [rows[at] for at in range(len(trajectories))]

    def _asked(
        self, trajectories: Sequence[Trajectory], asked: Mapping[str, Any], mode: Mode, seed: int
    ) -> Iterator[tuple[int, Feedback]]:
        """(place, row) as rows come, over some requests at once."""
        heard: queue.Queue[tuple[int, Feedback] | Future[None]] = queue.Queue()
        stop = threading.Event()

        def work(chunk: list[int]) -> None:
            if stop.is_set():
                return
            for row in self._chunk(trajectories, chunk, asked, mode, seed):
                heard.put(row)
                if stop.is_set():
                    return

        chunks = dealt(trajectories, CHUNK)
        pool = ThreadPoolExecutor(max(1, min(self.concurrency, len(chunks))), thread_name_prefix="rrm-client")
        try:
            for chunk in chunks:
                pool.submit(work, chunk).add_done_callback(heard.put)
            ended = 0
            while ended < len(chunks):
                said = heard.get()
                if isinstance(said, Future):
                    said.result()  # raises what its thread did
                    ended += 1
                else:
                    yield said
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _chunk(
        self, trajectories: Sequence[Trajectory], chunk: list[int], asked: Mapping[str, Any], mode: Mode, seed: int
    ) -> Iterator[tuple[int, Feedback]]:
        """Rows of some transcripts, asked again for those that are left while the server is busy."""
        left, pauses = list(chunk), Pauses(self.address.patience_s)
        while left:
            try:
                places = list(left)
                body = {**asked, "transcripts": [trajectories[at].model_dump(mode="json") for at in places]}
                for line in self.address.lines("/v1/score", body):
                    if "error" in line:
                        raise RRMError(f"{self.address.url}: {line['error']['message']}")
                    if "row" in line:
                        at = places[line["index"]]
                        left.remove(at)
                        yield at, Feedback.model_validate(line["row"])
                if left:
                    raise _Busy(f"{self.address.url}: the answer was cut off")
            except TooLarge as error:
                if len(left) == 1:
                    yield left.pop(), self._failed(trajectories[places[0]], mode, seed, str(error))
                    return
                half = len(left) // 2
                yield from self._chunk(trajectories, left[:half], asked, mode, seed)
                yield from self._chunk(trajectories, left[half:], asked, mode, seed)
                return
            except _Busy as busy:
                if not pauses.wait(busy.after_s):
                    for at in left:
                        yield at, self._failed(trajectories[at], mode, seed, busy.why)
                    return

    def _failed(self, trajectory: Trajectory, mode: Mode, seed: int, why: str) -> Feedback:
        return Feedback(id=trajectory.id, status="judge_error", reason=why, judge=self.info(mode, seed))

    def rank_groups(
        self,
        groups: Sequence[Sequence[Trajectory]],
        *,
        size: int = SIZE,
        both_orders: bool = False,
        seed: int = 0,
        on_ranking: Callable[[int, Ranking], None] | None = None,
    ) -> list[Ranking]:
        """As `rrm.judge.rank.rank_groups`.

        Raises:
            RRMError: the server refuses, or does not answer.
        """
        found = []
        how = {"format": "canonical", "heat": size, "both_orders": both_orders, "seed": seed}
        for number, group in enumerate(groups):
            said = self.address.ask("/v1/rank", {**how, "groups": [[t.model_dump(mode="json") for t in group]]})
            (row,) = said["rankings"]
            usage = None if row["usage"] is None else Usage.model_validate(row.pop("usage"))
            feedback = [Feedback.model_validate(one) for one in row.pop("feedback")]
            row.pop("usage", None)
            found.append(Ranking(feedback, **row, usage=usage))
            if on_ranking is not None:
                on_ranking(number, found[-1])
        return found

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """As `AgentRRM.measure`, by the server.

        Raises:
            RRMError: the server refuses, or does not answer.
        """
        found: list[Reads] = []
        for chunk in dealt(trajectories, CHUNK):
            rows = [trajectories[at].model_dump(mode="json") for at in chunk]
            asked = {"format": "canonical", "mode": mode, "samples": samples, "transcripts": rows}
            found += [Reads(**reads) for reads in self.address.ask("/v1/measure", asked)["reads"]]
        return found

    def describe(self) -> dict[str, Any]:
        """What decides the scores: the served judge's own, not where it is served."""
        return {**self.about.describe, **({"blend": self.about.blend} if self.blended else {})}

    def streams(self, mode: Mode) -> bool:
        """Transcripts are handed over in windows."""
        return False

    def sample(self, *_: Any, **__: Any) -> NoReturn:
        """Not over this API."""
        self._here("give several judgements of one transcript")

    def save_pretrained(self, *_: Any, **__: Any) -> NoReturn:
        """Not over this API."""
        self._here("be saved or calibrated")

    def as_chat(self) -> NoReturn:
        """Not over this API."""
        self._here("be talked to")

    def _plan(self, *_: Any, **__: Any) -> NoReturn:
        self._here("show what it reads")

    def _here(self, what: str) -> NoReturn:
        raise ConfigError(
            f"{self.model} is served at {self.address.url} and cannot {what} from here: name its directory or hub id"
        )


def dealt(trajectories: Sequence[Trajectory], size: int) -> list[list[int]]:
    """Places in lists of at most `size`, no two of one id together."""
    chunks: list[tuple[list[int], set[str]]] = []
    full = 0
    for at, trajectory in enumerate(trajectories):
        for chunk, ids in chunks[full:]:
            if len(chunk) < size and trajectory.id not in ids:
                break
        else:
            chunk, ids = [], set[str]()
            chunks.append((chunk, ids))
        chunk.append(at)
        ids.add(trajectory.id)
        while full < len(chunks) and len(chunks[full][0]) == size:
            full += 1
    return [chunk for chunk, _ in chunks]


def connect(url: str, *, timeout_s: float | None = None, concurrency: int | None = None, **others: Any) -> RemoteJudge:
    """The judge at an address.

    Args:
        others: options of judges that are loaded here, which this one does not take; a device is ignored.

    Raises:
        ConfigError: one of these is given, or the address is none.
        RRMError: nothing answers there.
    """
    others.pop("device", None)  # trainings say where judges of their own would run
    if given := sorted(name for name, value in others.items() if value not in (None, False)):
        raise ConfigError(
            f"{', '.join(given)}: how a judge is loaded is said where it is served, to rrm serve, not with {url}"
        )
    address = Address(url, timeout_s=TIMEOUT_S if timeout_s is None else timeout_s)
    return RemoteJudge(address, concurrency=CONCURRENCY if concurrency is None else concurrency)
