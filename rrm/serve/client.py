"""The judge at an address: `AgentRRM.from_pretrained("http://host:8321")`, `rrm score --model http://host:8321`.

It judges as the judge it stands for, row for row: what decides a score is on the server. A server that is busy, restarting or gone is asked
again for a while, which all requests have together; then a scoring run stops, and of others the rows are `judge_error`. Nothing here needs more than Python's own library.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

from rrm.data.annotation import OutOfDomain
from rrm.data.feedback import Feedback, Mode, Reads
from rrm.data.printing import describe
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage
from rrm.engines.server_options import ServerOptions
from rrm.errors import ConfigError, RRMError, ServerGone
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.inputs import as_trajectories
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.judge_request import OnReading
from rrm.judge.rank import SIZE, Ranking
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN
from rrm.serve.address import KEY as KEY
from rrm.serve.address import TIMEOUT_S, Fault, ServerAddress, TooLarge
from rrm.serve.calls import PATIENCE_S, Backoff, Busy, Calls
from rrm.serve.schemas import About, check_row

CHUNK = 8
"""Transcripts of one request."""
CONCURRENCY = 8
T = TypeVar("T")


class RemoteJudge(AgentRRM):
    """A judge that `rrm serve` has loaded somewhere else.

    Args:
        address: where.
        concurrency: requests in flight at once.
        out_of_domain: as `AgentRRM.from_pretrained` takes it; None: as it is served.

    Raises:
        RRMError: nothing answers there, or not as `rrm serve` does.
    """

    tells_readings = False
    stops_when_gone = True
    """It takes `stop_when_gone`."""

    def __init__(
        self, address: ServerAddress, *, concurrency: int = CONCURRENCY, out_of_domain: OutOfDomain | None = None
    ) -> None:
        self.address, self.concurrency, self._asked_of_domain = address, concurrency, out_of_domain
        answer = address.ask("/v1/judge", timeout_s=address.short_s)
        if not (isinstance(answer, dict) and "describe" in answer):
            raise address.another(ValueError("its /v1/judge describes no judge"))
        try:
            self.about = About.model_validate(answer)
            self.settings = JudgeSettings.model_validate(self.about.settings)
            self.model: str = self.about.describe["model"]
        except (ValueError, KeyError) as error:
            why = describe(error) if isinstance(error, ValueError) else "its judge has no name"
            raise RRMError(f"{address.url} is of another version of rrm serve: {why}") from error
        said = self.about.describe
        self.model_hash, self.dtype = said.get("model_hash"), self.about.dtype
        self.engine: Any = SimpleNamespace(concurrency=concurrency)
        self.prompter = self.reader = self.folder = self.domain = None
        self.max_windows, self.asked = said.get("max_windows"), ServerOptions()

    # ---- judging ----

    def judge(
        self,
        trajectories: Sequence[Trajectory | Sequence[Any] | Mapping[str, Any]],
        *,
        mode: Mode | None = None,
        samples: int = 1,
        seed: int = 0,
        on_feedback: Callable[[Feedback], None] | None = None,
        on_reading: OnReading | None = None,
        stop_when_gone: bool = False,
    ) -> list[Feedback]:
        """As `AgentRRM.judge`; a row that the server could not be asked for is a `judge_error`.

        Args:
            stop_when_gone: where nobody answers any more, say so instead.

        Raises:
            ServerGone: that; the rows that were answered have been handed to `on_feedback`.
            RRMError: the server refuses the request.
        """
        del on_reading  # what a server reads is not told
        runs, chosen = as_trajectories(trajectories), mode or self.settings.default_mode or "full"
        asked = {
            "format": "canonical",
            "mode": chosen,
            "samples": samples,
            "seed": seed,
            "out_of_domain": self._asked_of_domain,
            "stream": True,
        }
        rows: dict[int, Feedback] = {}

        def ask(chunk: list[int], calls: Calls) -> Iterator[tuple[int, Feedback]]:
            return self._chunk(runs, chunk, asked, chosen, seed, calls, stops=stop_when_gone)

        with closing(self._together(dealt(runs, CHUNK), ask)) as answers:
            for at, feedback in answers:
                rows[at] = feedback
                if on_feedback is not None:
                    on_feedback(feedback)
        return [rows[at] for at in range(len(runs))]

    def _together(
        self, chunks: Sequence[list[int]], ask: Callable[[list[int], Calls], Iterator[tuple[int, T]]]
    ) -> Generator[tuple[int, T], None, None]:
        """(place, answer) as they come, over some requests at once; closing it ends these."""
        heard: queue.Queue[tuple[int, T] | Future[None]] = queue.Queue()
        calls = self.address.calls()

        def work(chunk: list[int]) -> None:
            if calls.stopped.is_set():
                return
            for row in ask(chunk, calls):
                if calls.stopped.is_set():
                    return
                heard.put(row)

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
            calls.stop()
            pool.shutdown(wait=False, cancel_futures=True)

    def _chunk(
        self,
        trajectories: Sequence[Trajectory],
        chunk: Sequence[int],
        asked: Mapping[str, Any],
        mode: Mode,
        seed: int,
        calls: Calls,
        *,
        stops: bool,
        last: bool = False,
    ) -> Iterator[tuple[int, Feedback]]:
        """Rows of some transcripts, asked again for those that are left while the server is busy.

        Args:
            stops: where the server is gone, that is an error.
            last: where the server fails at the request, nothing more is tried.
        """
        left, pauses, faults = list(chunk), Backoff(calls), 0

        def failed(why: str) -> Iterator[tuple[int, Feedback]]:
            if stops and calls.over is not None:
                raise self.address.ended(calls, why)
            for at in left:
                yield (
                    at,
                    Feedback(id=trajectories[at].id, status="judge_error", reason=why, judge=self.info(mode, seed)),
                )

        def apart(some: Sequence[int], *, last: bool = False) -> Iterator[tuple[int, Feedback]]:
            return self._chunk(trajectories, some, asked, mode, seed, calls, stops=stops, last=last)

        while left:
            if calls.over is not None:
                yield from failed(calls.over)
                return
            places = list(left)
            try:
                rows = [trajectories[at].model_dump(mode="json") for at in places]
                for line in self.address.lines("/v1/score", {**asked, "transcripts": rows}, calls):
                    if "error" in line:
                        self._broken_off(line["error"])
                    if "row" in line:
                        at, feedback = self._row(line, places, left, trajectories)
                        left.remove(at)
                        pauses.answered()
                        yield at, feedback
                if left:
                    raise Busy(f"{self.address.url}: the answer was cut off")
            except Busy as busy:
                if not pauses.wait(busy):
                    yield from failed(busy.why)
                    return
            except TooLarge as error:
                if len(left) == 1:
                    yield from failed(str(error))
                    return
                half = len(left) // 2
                yield from apart(left[:half])
                yield from apart(left[half:])
                return
            except Fault as error:
                faults += 1
                if faults == 1 and not last and pauses.breathe():
                    continue
                if len(left) == 1:
                    yield from failed(str(error))
                    return
                for at in left:
                    yield from apart([at], last=True)
                return
            except (ValueError, RecursionError) as error:  # nested too deeply, or no number of JSON
                if len(left) == 1:
                    yield from failed(f"it cannot be sent: {error}")
                    return
                for at in left:
                    yield from apart([at])
                return

    def _broken_off(self, said: Any) -> NoReturn:
        """What a stream that ends in an error means."""
        why = f"{self.address.url}: {said.get('message', said) if isinstance(said, dict) else said}"
        if isinstance(said, dict) and said.get("status") == 503:
            raise Busy(why)
        raise RRMError(why)

    def _row(
        self, line: Mapping[str, Any], places: Sequence[int], left: Sequence[int], trajectories: Sequence[Trajectory]
    ) -> tuple[int, Feedback]:
        """A streamed row, and the place it is of.

        Raises:
            RRMError: it is none of those that were asked for.
        """
        try:
            at = places[range(len(places))[line["index"]]]
            feedback = Feedback.model_validate(line["row"])
            if at not in left:
                raise ValueError("a row twice")
            check_row(feedback, trajectories[at])
        except (ValueError, TypeError, LookupError) as error:
            raise self.address.another(error) from error
        return at, self._own(feedback)

    def _own(self, feedback: Feedback) -> Feedback:
        """A row of the judge that the server had when it was first asked.

        Raises:
            ConfigError: of another one.
        """
        said, own = feedback.judge, (self.model, self.model_hash)
        stronger = self.about.describe.get("escalate")  # of its own name, which a row then has
        if (said.model, said.model_hash) != own and (stronger is None or said.model.rpartition("#")[2] != stronger):
            names = [f"{name} ({hash})" if hash else name for name, hash in (own, (said.model, said.model_hash))]
            raise ConfigError(
                f"{self.address.url} now serves another judge: {names[1]}, and this run began with {names[0]}"
            )
        return feedback

    def rank_groups(
        self,
        groups: Sequence[Sequence[Trajectory]],
        *,
        size: int = SIZE,
        both_orders: bool = False,
        seed: int = 0,
        on_ranking: Callable[[int, Ranking], None] | None = None,
    ) -> list[Ranking]:
        """As `rrm.judge.rank.rank_groups`; the rows of a group that the server could not be asked for are `judge_error`.

        Raises:
            RRMError: the server refuses.
        """
        found: dict[int, Ranking] = {}
        how = {"format": "canonical", "heat": size, "both_orders": both_orders, "seed": seed}

        def ask(chunk: list[int], calls: Calls) -> Iterator[tuple[int, Ranking]]:
            for number in chunk:
                group = groups[number]
                try:
                    rows = [t.model_dump(mode="json") for t in group]
                    yield number, self._ranking(self.address.ask("/v1/rank", {**how, "groups": [rows]}, calls), group)
                except (ServerGone, Fault, TooLarge) as error:
                    info = self.info("score", seed)
                    yield (
                        number,
                        Ranking(
                            [Feedback(id=t.id, status="judge_error", reason=str(error), judge=info) for t in group]
                        ),
                    )

        with closing(self._together([[number] for number in range(len(groups))], ask)) as answers:
            for number, ranking in answers:
                found[number] = ranking
                if on_ranking is not None:
                    on_ranking(number, ranking)
        return [found[number] for number in range(len(groups))]

    def _ranking(self, said: Any, group: Sequence[Trajectory]) -> Ranking:
        try:
            (row,) = said["rankings"]
            usage = row.pop("usage", None)
            feedback = [self._own(Feedback.model_validate(one)) for one in row.pop("feedback")]
            for one, attempt in zip(feedback, group, strict=True):
                check_row(one, attempt)
            return Ranking(feedback, **row, usage=None if usage is None else Usage.model_validate(usage))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise self.address.another(error) from error

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """As `AgentRRM.measure`, by the server.

        Raises:
            RRMError: the server refuses, or does not answer.
        """
        found: dict[int, Reads] = {}

        def ask(chunk: list[int], calls: Calls) -> Iterator[tuple[int, Reads]]:
            rows = [trajectories[at].model_dump(mode="json") for at in chunk]
            body = {"format": "canonical", "mode": mode, "samples": samples, "transcripts": rows}
            try:
                said = self.address.ask("/v1/measure", body, calls)
            except TooLarge:
                if len(chunk) == 1:
                    raise
                half = len(chunk) // 2
                yield from ask(chunk[:half], calls)
                yield from ask(chunk[half:], calls)
                return
            try:
                yield from zip(chunk, [Reads(**reads) for reads in said["reads"]], strict=True)
            except (ValueError, TypeError, LookupError) as error:
                raise self.address.another(error) from error

        with closing(self._together(dealt(trajectories, CHUNK), ask)) as answers:
            found.update(answers)
        return [found[at] for at in range(len(trajectories))]

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: Mode) -> list[int]:
        """An estimate, four characters a token, for which nobody is asked; `measure` asks the server."""
        return [
            (len(t.task) + sum(len(m.text()) + len(m.reasoning_content or "") for m in t.messages) + 3)
            // CHARACTERS_PER_TOKEN
            for t in trajectories
        ]

    def describe(self) -> dict[str, Any]:
        """What decides the scores: the served judge's own, not where it is served."""
        said = dict(self.about.describe)
        if self.about.knows_domain and self._asked_of_domain is not None:
            said.pop("out_of_domain", None)
            said |= {"out_of_domain": "unsure"} if self._asked_of_domain == "unsure" else {}
        return said

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


def connect(
    url: str,
    *,
    timeout_s: float | None = None,
    concurrency: int | None = None,
    out_of_domain: OutOfDomain | None = None,
    **others: Any,
) -> RemoteJudge:
    """The judge at an address.

    Args:
        timeout_s: how long a server that answers nothing is asked again, and how long a connection and its first answer may take, `PATIENCE_S`
            by default; where it is longer than `TIMEOUT_S`, also how long a row may take.
        out_of_domain: see `RemoteJudge`.
        others: see `address_for`.

    Raises:
        ConfigError: an option that does not go with it, or the address is none.
        RRMError: nothing answers there.
    """
    patience_s = PATIENCE_S if timeout_s is None else timeout_s
    address = address_for(url, timeout_s=max(TIMEOUT_S, patience_s), patience_s=patience_s, **others)
    how_many = CONCURRENCY if concurrency is None else concurrency
    return RemoteJudge(address, concurrency=how_many, out_of_domain=out_of_domain)


def address_for(
    url: str, *, timeout_s: float, patience_s: float, until: float | None = None, **others: Any
) -> ServerAddress:
    """The address of a judge that was named with options. Nobody is asked.

    Args:
        timeout_s, patience_s, until: see `ServerAddress`.
        others: options of judges that are loaded here, which this one does not take; a device is ignored.

    Raises:
        ConfigError: one of these is given, or the address is none.
    """
    others.pop("device", None)  # trainings say where judges of their own would run
    asked = others.pop("server", None)
    given = [name for name, value in others.items() if value not in (None, False)]
    given += [] if asked is None else asked.given
    if given:
        raise ConfigError(
            f"{', '.join(sorted(given))}: how a judge is loaded, and how a chat model is asked, is said where it is served, to rrm serve, not with {url}"
        )
    return ServerAddress(url, timeout_s=timeout_s, patience_s=patience_s, until=until)
