"""The judge at an address: `AgentRRM.from_pretrained("http://host:8321")`, `rrm score --model http://host:8321`.

It judges as the judge it stands for, row for row: what decides a score is on the server. A server that is busy, restarting or gone is asked
again for a while, which all requests have together; then a scoring run stops, and of others the rows are `judge_error`.
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
from rrm.serve.address import TIMEOUT_S, Fault, ServerAddress, TooLarge, Unsendable
from rrm.serve.calls import PATIENCE_S, Backoff, Busy, Calls
from rrm.serve.schemas import About, check_row

CHUNK = 8
"""Transcripts of one request."""
CONCURRENCY = 8


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
        answer = run(address.ask("/v1/judge", timeout_s=address.short_s))
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

        def keep(at: int, feedback: Feedback) -> None:
            rows[at] = feedback
            if on_feedback is not None:
                on_feedback(feedback)

        def failed(left: Sequence[int], why: str, calls: Calls) -> None:
            if stop_when_gone and calls.over is not None:
                raise self.address.ended(calls, why)
            for at in left:
                info = self.info(chosen, seed)
                keep(at, Feedback(id=runs[at].id, status="judge_error", reason=why, judge=info))

        async def ask(chunk: Sequence[int], calls: Calls, *, last: bool = False) -> None:
            """Rows of some transcripts, asked again for those that are left while the server is busy.

            Args:
                last: where the server fails at the request, nothing more is tried.
            """
            left, pauses, faults = list(chunk), Backoff(calls), 0
            while left:
                if calls.over is not None:
                    return failed(left, calls.over, calls)
                places = list(left)
                try:
                    body = {**asked, "transcripts": [runs[at] for at in places]}
                    async with aclosing(self.address.lines("/v1/score", body, calls)) as answer:
                        async for line in answer:
                            if "error" in line:
                                self._broken_off(line["error"])
                            if "row" in line:
                                at, feedback = self._row(line, places, left, runs)
                                left.remove(at)
                                pauses.answered()
                                keep(at, feedback)
                    if left:
                        raise Busy(f"{self.address.url}: the answer was cut off")
                except Busy as busy:
                    if not await pauses.wait(busy):
                        return failed(left, busy.why, calls)
                except (TooLarge, Fault, Unsendable) as error:
                    fault, faults = isinstance(error, Fault), faults + 1
                    if fault and faults == 1 and not last:
                        calls.answered()  # it works, and fails at this request
                        await pauses.pause()
                        continue
                    if len(left) == 1:
                        return failed(left, str(error), calls)
                    size = len(left) // 2 if isinstance(error, TooLarge) else 1
                    for start in range(0, len(left), size):
                        await ask(left[start : start + size], calls, last=last or fault)
                    return

        self._together(dealt(runs, CHUNK), ask)
        return [rows[at] for at in range(len(runs))]

    def _together(self, chunks: Sequence[list[int]], ask: Callable[[list[int], Calls], Awaitable[None]]) -> None:
        """Ask for each chunk, over some requests at once; where one fails, or on Ctrl-C, all end."""

        async def all_of_them() -> None:
            calls, slots = self.address.calls(), asyncio.Semaphore(max(self.concurrency, 1))

            async def one(chunk: list[int]) -> None:
                async with slots:
                    await ask(chunk, calls)

            await together([partial(one, chunk) for chunk in chunks])

        run(all_of_them())

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

        async def ask(chunk: list[int], calls: Calls) -> None:
            (number,) = chunk
            group = groups[number]
            try:
                body = {**how, "groups": [group]}
                found[number] = self._ranking(await self.address.ask("/v1/rank", body, calls), group)
            except (ServerGone, Fault, TooLarge) as error:
                info, why = self.info("score", seed), str(error)
                found[number] = Ranking(
                    [Feedback(id=t.id, status="judge_error", reason=why, judge=info) for t in group]
                )
            if on_ranking is not None:
                on_ranking(number, found[number])

        self._together([[number] for number in range(len(groups))], ask)
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

        async def ask(chunk: list[int], calls: Calls) -> None:
            rows = [trajectories[at] for at in chunk]
            body = {"format": "canonical", "mode": mode, "samples": samples, "transcripts": rows}
            try:
                said = await self.address.ask("/v1/measure", body, calls)
            except TooLarge:
                if len(chunk) == 1:
                    raise
                half = len(chunk) // 2
                await ask(chunk[:half], calls)
                await ask(chunk[half:], calls)
                return
            try:
                found.update(zip(chunk, [Reads(**reads) for reads in said["reads"]], strict=True))
            except (ValueError, TypeError, LookupError) as error:
                raise self.address.another(error) from error

        self._together(dealt(trajectories, CHUNK), ask)
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
