"""The endpoints: POST /v1/score, /v1/rank, /v1/measure; GET /v1/judge, /healthz, /metrics, /openapi.json, /docs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from rrm import __version__
from rrm.errors import ConfigError, ReadError
from rrm.feedback import Feedback, JudgeInfo, Mode
from rrm.readers import read_value
from rrm.serve.limits import GONE, Gate, Limits, answer
from rrm.serve.metrics import Metrics
from rrm.serve.pool import Ask, Full, GivenUp, Pool, Refused, TooMany
from rrm.serve.wire import (
    About,
    Health,
    MeasureRequest,
    MeasureResponse,
    RankingRow,
    RankRequest,
    RankResponse,
    ScoreRequest,
    ScoreResponse,
)
from rrm.trajectory import Trajectory

SMALL = 2**15
"""Bytes of a body that is read between two others; a larger one would keep them waiting."""
AGAIN_S = 2
"""Seconds after which a client that was refused for want of room may ask again."""
_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"description": "no key, or another one"},
    408: {"description": "the body came too slowly"},
    413: {"description": "too large"},
    422: {"description": "not a request, or not a transcript; `error.at` says where"},
    429: {"description": "too much waits; Retry-After says when to ask again"},
    503: {"description": "no judge is ready"},
}


class Wrong(Exception):
    """What a client asked wrongly.

    Args:
        at: where in the request.
    """

    def __init__(self, message: str, at: str) -> None:
        super().__init__(message)
        self.at = at


def make_app(pool: Pool, limits: Limits, metrics: Metrics) -> FastAPI:
    """The service over a pool, which is closed with it; started by whoever makes it."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.stopping = True
        await pool.close()

    app = FastAPI(
        title="Agent-RRM",
        version=__version__,
        lifespan=life,
        description="A reasoning reward model over HTTP: `rrm serve`.",
    )
    app.state.stopping = False

    def known() -> About:
        if pool.about is None:
            raise HTTPException(503, "no judge is loaded yet")
        return About.model_validate(pool.about)

    def mode_of(asked: Mode | None) -> Mode:
        return asked or known().settings.get("default_mode") or "full"

    async def accept(what: str, how: Mapping[str, Any], items: Sequence[tuple[Any, Sequence[str]]]) -> list[Ask]:
        if not pool.load.ready and pool.load.failing is not None:
            raise HTTPException(503, f"no judge is ready: {pool.load.failing}")
        return await pool.submit(what, how, items)

    @app.post("/v1/score", response_model=ScoreResponse, responses=_ERRORS, summary="Judge transcripts")
    async def score(asked: ScoreRequest, request: Request) -> Any:
        rows = await parsed(asked, request)
        how = {"mode": mode_of(asked.mode), "samples": asked.samples, "seed": asked.seed, "blend": asked.blend}
        asks = await accept("score", how, [(dumped(t), [t.id]) for t in rows])
        if asked.stream:
            return StreamingResponse(lines_of(asks, rows, how), media_type="application/x-ndjson")
        found = await answered(asks, request)
        # each is a Feedback already, that a worker dumped
        return JSONResponse({"rows": [scored(one, t, how) for one, t in zip(found, rows, strict=True)]})

    async def parsed(asked: ScoreRequest | MeasureRequest, request: Request) -> list[Trajectory]:
        """A request's transcripts; those of a large one are read in a thread."""
        given = (asked.transcripts, asked.format, limits.transcripts, "transcripts")
        small = int(request.headers.get("content-length", SMALL + 1)) <= SMALL
        rows = transcripts(*given) if small else await asyncio.to_thread(transcripts, *given)
        unique(rows)
        return rows

    async def lines_of(asks: list[Ask], rows: Sequence[Trajectory], how: Mapping[str, Any]) -> AsyncIterator[str]:
        places = {ask.done: at for at, ask in enumerate(asks)}
        left, refused = set(places), None
        try:
            while left and refused is None:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    said = one.exception() or one.result()
                    if isinstance(said, Refused):
                        refused = str(said)
                        break
                    row = scored(said, rows[places[one]], how)
                    yield json.dumps({"index": places[one], "row": row}) + "\n"
            yield json.dumps({"error": {"message": refused}} if refused else {"done": len(asks)}) + "\n"
        finally:
            await pool.cancel(asks)

    def scored(said: Any, trajectory: Trajectory, how: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(said, GivenUp):
            described = known().describe
            info = {k: described.get(k) for k in ("model", "model_hash", "prompt_version")}
            judge = JudgeInfo.model_validate({**info, "mode": how["mode"], "seed": how["seed"]})
            row = Feedback(id=trajectory.id, status="judge_error", reason=str(said), judge=judge)
            said = row.model_dump(mode="json")
        metrics.row(said["status"])
        return said

    @app.post("/v1/rank", response_model=RankResponse, responses=_ERRORS, summary="Compare attempts at one question")
    async def rank(asked: RankRequest, request: Request) -> Any:
        if not known().ranks:
            raise Wrong("this judge was trained to judge one run at a time and cannot compare several", "groups")
        groups = await asyncio.to_thread(grouped, asked, limits.transcripts)
        how = {"heat": asked.heat, "both_orders": asked.both_orders, "seed": asked.seed}
        items = [([dumped(t) for t in group], [t.id for t in group]) for group in groups]
        found = await answered(await accept("rank", how, items), request)
        for one in found:
            if isinstance(one, GivenUp):
                raise HTTPException(500, str(one))
        return {"rankings": [RankingRow.model_validate(one) for one in found]}

    @app.post("/v1/measure", response_model=MeasureResponse, responses=_ERRORS, summary="Count tokens, judge nothing")
    async def measure(asked: MeasureRequest, request: Request) -> Any:
        rows = await parsed(asked, request)
        how = {"mode": mode_of(asked.mode), "samples": asked.samples}
        found = await answered(await accept("measure", how, [(dumped(t), [t.id]) for t in rows]), request)
        for one in found:
            if isinstance(one, GivenUp):
                raise HTTPException(500, str(one))
        return {"reads": found}

    async def answered(asks: list[Ask], request: Request) -> list[Any]:
        """Each item's row, or why it has none; raises what the judge cannot be asked for."""
        whole = asyncio.gather(*(ask.done for ask in asks), return_exceptions=True)
        whole.add_done_callback(
            lambda one: one.cancelled() or one.exception()
        )  # of one who has gone nobody asks for it
        gone = asyncio.create_task(left_us(request))
        try:
            await asyncio.wait({gone, whole}, return_when=asyncio.FIRST_COMPLETED)
            if not whole.done():
                raise HTTPException(GONE, "the client has gone")
            found = whole.result()
        finally:
            gone.cancel()
            whole.cancel()
            await pool.cancel(asks)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, GivenUp):
                raise one
        return found

    @app.get("/v1/judge", response_model=About, summary="The judge that is served")
    async def judge() -> About:
        return known()

    @app.get("/healthz", response_model=Health, summary="Whether requests are taken")
    async def health() -> JSONResponse:
        load = pool.load
        status = "stopping" if app.state.stopping else "ok" if load.ready else "failing" if load.failing else "starting"
        said = Health(status=status, workers=load.ready, waiting=load.waiting, judging=load.judging)
        return JSONResponse(said.model_dump(), 200 if status == "ok" else 503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="For Prometheus")
    async def told() -> PlainTextResponse:
        return PlainTextResponse(metrics.told(), media_type="text/plain; version=0.0.4")

    # ---- errors, all of one form ----

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return answer(
            error.status_code, str(error.detail), {"Retry-After": str(AGAIN_S)} if error.status_code == 503 else None
        )

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return answer(422, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}", at="body")
        return answer(422, first["msg"], at=".".join(str(part) for part in first["loc"][1:]) or "body")

    @app.exception_handler(Wrong)
    async def wrong(_: Request, error: Wrong) -> JSONResponse:
        return answer(422, str(error), at=error.at)

    @app.exception_handler(Refused)
    async def refused(_: Request, error: Refused) -> JSONResponse:
        return answer(422, str(error), at="mode")

    @app.exception_handler(Full)
    async def full(_: Request, error: Full) -> JSONResponse:
        return answer(429, str(error), {"Retry-After": str(AGAIN_S)})

    @app.exception_handler(TooMany)
    async def too_many(_: Request, error: TooMany) -> JSONResponse:
        return answer(413, str(error))

    paths = frozenset(route.path for route in app.routes if isinstance(route, Route))
    app.add_middleware(Gate, limits=limits, metrics=metrics, paths=paths)
    return app


async def left_us(request: Request) -> None:
    """Return once the client has gone. The body has been read: nothing else is said of a request after that."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def transcripts(given: Sequence[Any], format: str, most: int, at: str) -> list[Trajectory]:
    """Each element as a run.

    Raises:
        Wrong: too many, or one that is none or several.
    """
    if len(given) > most:
        raise Wrong(f"{len(given)} transcripts, and a request may have {most}: send them in several", at)
    found = []
    for number, data in enumerate(given):
        place = f"{at}.{number}"
        try:
            runs = read_value(data, place, format=format)
        except ConfigError as error:
            raise Wrong(str(error), "format") from error
        if len(runs) != 1:
            raise Wrong(f"holds {len(runs)} runs: send each as an element of its own", place)
        if isinstance(runs[0], ReadError):
            raise Wrong(str(runs[0]), place)
        found.append(runs[0])
    return found


def grouped(asked: RankRequest, most: int) -> list[list[Trajectory]]:
    """Each group's attempts, their ids unique within it.

    Raises:
        Wrong: as `transcripts`.
    """
    if sum(map(len, asked.groups)) > most:
        raise Wrong(f"{sum(map(len, asked.groups))} attempts, and a request may have {most}", "groups")
    groups = [transcripts(group, asked.format, most, f"groups.{n}") for n, group in enumerate(asked.groups)]
    for group in groups:
        unique(group)
    return groups


def unique(rows: Sequence[Trajectory]) -> None:
    """Refuse two of one id.

    Raises:
        Wrong: the id.
    """
    seen: set[str] = set()
    for number, trajectory in enumerate(rows):
        if trajectory.id in seen:
            raise Wrong(
                f"the id {trajectory.id!r} occurs twice; ids must be unique in a request", f"transcripts.{number}"
            )
        seen.add(trajectory.id)


def dumped(trajectory: Trajectory) -> dict[str, Any]:
    """As a worker reads it."""
    return trajectory.model_dump(mode="json")
