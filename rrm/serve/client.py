"""The client of `rrm serve`: `AgentRRM.from_pretrained("http://host:8321")`.

Rows are the served judge's own. A busy or absent server is retried for a patience that all requests share; then a scoring run stops, and
other callers get `judge_error` rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from rrm.data.annotation import OutOfDomain
from rrm.data.feedback import Feedback, Mode, Reads
from rrm.data.printing import describe
from rrm.data.trajectory import Trajectory
from rrm.data.usage import Usage
from rrm.engines.async_runner import run, together
from rrm.engines.server_options import ServerOptions
from rrm.errors import ConfigError, RRMError, ServerGone
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.inputs import as_trajectories
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.judge_request import OnReading
from rrm.judge.rank import SIZE, Ranking
from rrm.prompt.rendering import CHARACTERS_PER_TOKEN
from rrm.serve.address import KEY as KEY
from rrm.serve.address import LOOK_S, TIMEOUT_S, RequestFailed, ServerAddress
from rrm.serve.calls import PATIENCE_S, Backoff, Busy, Calls
from rrm.serve.schemas import About, check_row

ABSENT_S = 2.0  # of retries at first, where nobody answers and no --timeout was given
CHUNK = 8  # transcripts of a request
CONCURRENCY = 8


class RemoteJudge(AgentRRM):
    """A judge that `rrm serve` has loaded elsewhere.

    Args:
        out_of_domain: as `AgentRRM.from_pretrained` takes it; None: as it is served.

    Raises:
        RRMError: nothing answers at the address, or something else does.
    """

    tells_readings = False
    stops_when_gone = True  # `judge` takes `stop_when_gone`

    def __init__(
        self, address: ServerAddress, *, concurrency: int = CONCURRENCY, out_of_domain: OutOfDomain | None = None
    ) -> None:
        self.address, self.concurrency, self._asked_of_domain = address, concurrency, out_of_domain
        absent_s, within_s = (ABSENT_S, LOOK_S) if address.patience_s == PATIENCE_S else (None, address.short_s)
        answer = run(address.ask("/v1/judge", calls=address.calls(absent_s), timeout_s=within_s))
        if not (isinstance(answer, dict) and "describe" in answer):
            raise address.another(ValueError("its /v1/judge describes no judge"))
        try:
            self.about = About.model_validate(answer)
            self.settings = JudgeSettings.model_validate(self.about.settings)
            self.model: str = self.about.describe["model"]
        except (ValueError, KeyError) as error:
            why = describe(error) if isinstance(error, ValueError) else "its judge has no name"
            raise RRMError(f"{address.url} is of another version of rrm serve: {why}") from error
        description = self.about.describe
        self.model_hash, self.dtype = description.get("model_hash"), self.about.dtype
        self.engine: Any = SimpleNamespace(concurrency=concurrency)
        self.prompter = self.reader = self.folder = self.domain = None
        self.max_windows, self.asked = description.get("max_windows"), ServerOptions()

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
        """Judge as `AgentRRM.judge`; a row for which the server could not be asked is a `judge_error`.

        Raises:
            ServerGone: with `stop_when_gone`, the server answers no more; answered rows went to `on_feedback`.
        """
        del on_reading  # what a server reads is not told
        runs, chosen = as_trajectories(trajectories), mode or self.settings.default_mode or "full"
        request = {
            "format": "canonical",
            "mode": chosen,
            "samples": samples,
            "seed": seed,
            "out_of_domain": self._asked_of_domain,
            "stream": True,
        }
        rows: dict[int, Feedback] = {}

        def keep(index: int, feedback: Feedback) -> None:
            rows[index] = feedback
            if on_feedback is not None:
                on_feedback(feedback)

        def failed(left: Sequence[int], why: str, calls: Calls) -> None:
            if stop_when_gone and calls.over is not None:
                raise self.address.ended(calls, why)
            for index in left:
                info = self.info(chosen, seed)
                keep(index, Feedback(id=runs[index].id, status="judge_error", reason=why, judge=info))

        async def ask(chunk: Sequence[int], calls: Calls, *, last: bool = False) -> None:
            """Ask for rows, again for those left while the server is busy; `last`: not after a fault."""
            left, pauses, faults = list(chunk), Backoff(calls), 0
            while left:
                if calls.over is not None:
                    return failed(left, calls.over, calls)
                places = list(left)
                try:
                    body = {**request, "transcripts": [runs[index] for index in places]}
                    async with aclosing(self.address.lines("/v1/score", body, calls)) as answer:
                        async for line in answer:
                            if "error" in line:
                                self._broken_off(line["error"])
                            if "row" in line:
                                index, feedback = self._row(line, places, left, runs)
                                left.remove(index)
                                pauses.answered()
                                keep(index, feedback)
                    if left:
                        raise Busy(f"{self.address.url}: the answer was cut off")
                except Busy as busy:
                    if not await pauses.wait(busy):
                        return failed(left, busy.why, calls)
                except RequestFailed as error:
                    fault, faults = error.kind == "fault", faults + 1
                    if fault and faults == 1 and not last:
                        calls.answered()  # it works, and fails at this request
                        await pauses.pause()
                        continue
                    if len(left) == 1:
                        return failed(left, str(error), calls)
                    size = len(left) // 2 if error.kind == "large" else 1
                    for start in range(0, len(left), size):
                        await ask(left[start : start + size], calls, last=last or fault)
                    return

        self._together(dealt(runs, CHUNK), ask)
        return [rows[index] for index in range(len(runs))]

    def _together(self, chunks: Sequence[list[int]], ask: Callable[[list[int], Calls], Awaitable[None]]) -> None:
        """Ask for all chunks, `concurrency` at once; where one fails, or on Ctrl-C, all end."""

        async def all_of_them() -> None:
            calls, slots = self.address.calls(), asyncio.Semaphore(max(self.concurrency, 1))

            async def ask_in_turn(chunk: list[int]) -> None:
                async with slots:
                    await ask(chunk, calls)

            await together([partial(ask_in_turn, chunk) for chunk in chunks])

        run(all_of_them())

    def _broken_off(self, error: Any) -> NoReturn:
        why = f"{self.address.url}: {error.get('message', error) if isinstance(error, dict) else error}"
        if isinstance(error, dict) and error.get("status") == 503:
            raise Busy(why)
        raise RRMError(why)

    def _row(
        self, line: Mapping[str, Any], places: Sequence[int], left: Sequence[int], trajectories: Sequence[Trajectory]
    ) -> tuple[int, Feedback]:
        """Return (index, feedback) of a streamed row; RRMError for a row that was not asked for."""
        try:
            index = places[range(len(places))[line["index"]]]
            feedback = Feedback.model_validate(line["row"])
            if index not in left:
                raise ValueError("a row twice")
            check_row(feedback, trajectories[index])
        except (ValueError, TypeError, LookupError) as error:
            raise self.address.another(error) from error
        return index, self._own(feedback)

    def _own(self, feedback: Feedback) -> Feedback:
        """Return a row of the judge that the server had at first; ConfigError for another judge's."""
        info, own = feedback.judge, (self.model, self.model_hash)
        stronger = self.about.describe.get("escalate")  # of its own name, which a row then has
        if (info.model, info.model_hash) != own and (stronger is None or info.model.rpartition("#")[2] != stronger):
            names = [f"{name} ({hash})" if hash else name for name, hash in (own, (info.model, info.model_hash))]
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
        """Rank as `rrm.judge.rank.rank_groups`; `judge_error` rows where the server could not be asked."""
        rankings: dict[int, Ranking] = {}
        how = {"format": "canonical", "heat": size, "both_orders": both_orders, "seed": seed}

        async def ask(chunk: list[int], calls: Calls) -> None:
            (number,) = chunk
            group = groups[number]
            try:
                body = {**how, "groups": [group]}
                rankings[number] = self._ranking(await self.address.ask("/v1/rank", body, calls), group)
            except (ServerGone, RequestFailed) as error:
                if isinstance(error, RequestFailed) and error.kind == "unsendable":
                    raise
                info, why = self.info("score", seed), str(error)
                rankings[number] = Ranking(
                    [Feedback(id=t.id, status="judge_error", reason=why, judge=info) for t in group]
                )
            if on_ranking is not None:
                on_ranking(number, rankings[number])

        self._together([[number] for number in range(len(groups))], ask)
        return [rankings[number] for number in range(len(groups))]

    def _ranking(self, answer: Any, group: Sequence[Trajectory]) -> Ranking:
        try:
            (row,) = answer["rankings"]
            usage = row.pop("usage", None)
            feedback = [self._own(Feedback.model_validate(entry)) for entry in row.pop("feedback")]
            for entry, attempt in zip(feedback, group, strict=True):
                check_row(entry, attempt)
            return Ranking(feedback, **row, usage=None if usage is None else Usage.model_validate(usage))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise self.address.another(error) from error

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        """Measure on the server, as `AgentRRM.measure`; RRMError where it refuses or does not answer."""
        measured: dict[int, Reads] = {}

        async def ask(chunk: list[int], calls: Calls) -> None:
            rows = [trajectories[index] for index in chunk]
            body = {"format": "canonical", "mode": mode, "samples": samples, "transcripts": rows}
            try:
                answer = await self.address.ask("/v1/measure", body, calls)
            except RequestFailed as error:
                if error.kind != "large" or len(chunk) == 1:
                    raise
                half = len(chunk) // 2
                await ask(chunk[:half], calls)
                await ask(chunk[half:], calls)
                return
            try:
                measured.update(zip(chunk, [Reads(**reads) for reads in answer["reads"]], strict=True))
            except (ValueError, TypeError, LookupError) as error:
                raise self.address.another(error) from error

        self._together(dealt(trajectories, CHUNK), ask)
        return [measured[index] for index in range(len(trajectories))]

    def count_tokens(self, trajectories: Sequence[Trajectory], mode: Mode) -> list[int]:
        """Estimate tokens at four characters each, without a request; `measure` asks the server."""
        return [
            (len(t.task) + sum(len(m.text()) + len(m.reasoning_content or "") for m in t.messages) + 3)
            // CHARACTERS_PER_TOKEN
            for t in trajectories
        ]

    def describe(self) -> dict[str, Any]:
        """Return what decides the scores: the served judge's description, without its address."""
        description = dict(self.about.describe)
        if self.about.knows_domain and self._asked_of_domain is not None:
            description.pop("out_of_domain", None)
            description |= {"out_of_domain": "unsure"} if self._asked_of_domain == "unsure" else {}
        return description

    def streams(self, mode: Mode) -> bool:
        return False

    def sample(self, *_: Any, **__: Any) -> NoReturn:
        self._here("give several judgements of one transcript")

    def save_pretrained(self, *_: Any, **__: Any) -> NoReturn:
        self._here("be saved or calibrated")

    def as_chat(self) -> NoReturn:
        self._here("be talked to")

    def _plan(self, *_: Any, **__: Any) -> NoReturn:
        self._here("show what it reads")

    def _here(self, action: str) -> NoReturn:
        raise ConfigError(
            f"{self.model} is served at {self.address.url} and cannot {action} from here: name its directory or hub id"
        )


def dealt(trajectories: Sequence[Trajectory], size: int) -> list[list[int]]:
    """Split indices into lists of at most `size`, no two transcripts of one id together."""
    chunks: list[tuple[list[int], set[str]]] = []
    full = 0
    for index, trajectory in enumerate(trajectories):
        for chunk, ids in chunks[full:]:
            if len(chunk) < size and trajectory.id not in ids:
                break
        else:
            chunk, ids = [], set[str]()
            chunks.append((chunk, ids))
        chunk.append(index)
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
    """Connect to the judge at an address; raises as `RemoteJudge` and `address_for`.

    Args:
        timeout_s: of retries, a connection and a first answer (None: `PATIENCE_S`), and of a row if above `TIMEOUT_S`.
    """
    patience_s = PATIENCE_S if timeout_s is None else timeout_s
    address = address_for(url, timeout_s=max(TIMEOUT_S, patience_s), patience_s=patience_s, **others)
    how_many = CONCURRENCY if concurrency is None else concurrency
    return RemoteJudge(address, concurrency=how_many, out_of_domain=out_of_domain)


def address_for(
    url: str, *, timeout_s: float, patience_s: float, until: float | None = None, **others: Any
) -> ServerAddress:
    """Make the address of a judge named with options, without a request.

    Args:
        others: options of judges loaded here, of which only a device is ignored.

    Raises:
        ConfigError: one of these is given, or the address is none.
    """
    others.pop("device", None)  # trainings say where judges of their own would run
    server = others.pop("server", None)
    names = [name for name, value in others.items() if value not in (None, False)]
    names += [] if server is None else server.given
    if names:
        raise ConfigError(
            f"{', '.join(sorted(names))}: how a judge is loaded, and how a chat model is asked, is said where it is served, to rrm serve, not with {url}"
        )
    return ServerAddress(url, timeout_s=timeout_s, patience_s=patience_s, until=until)
