"""The endpoints: POST /v1/score, /v1/rank, /v1/measure; GET /v1/judge, /healthz, /metrics, /openapi.json."""

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
from rrm.data.feedback import Feedback, Mode
from rrm.errors import ConfigError, ReadError
from rrm.readers import read_value
from rrm.readers.base import AttachmentBudget
from rrm.serve.bodies import SMALL, BodyRoute, dumps
from rrm.serve.limits import AGAIN_S, GONE, Ascii, BodyLimits, RequestLimits, answer
from rrm.serve.metrics import Metrics
from rrm.serve.pool import Full, ItemFailed, JudgeRefused, PendingItem, TooMany, WorkerPool
from rrm.serve.schemas import (
    About,
    Health,
    MeasureRequest,
    MeasureResponse,
    RankRequest,
    RankResponse,
    ScoreRequest,
    ScoreResponse,
)

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


def make_app(pool: WorkerPool, limits: BodyLimits, metrics: Metrics) -> FastAPI:
    """The service over a pool, which is closed with it; started by whoever makes it."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        await pool.close()

    app = FastAPI(
        title="Agent-RRM",
        version=__version__,
        lifespan=life,
        docs_url=None,  # its page would run a script from elsewhere
        redoc_url=None,
        description="A reasoning reward model over HTTP: `rrm serve`.",
    )
    app.router.route_class = BodyRoute
    app.state.large, app.state.limits = asyncio.Lock(), limits

    def known() -> About:
        if pool.about is None:
            raise HTTPException(503, "no judge is loaded yet")
        return About.model_validate(pool.about)

    def mode_of(asked: Mode | None) -> Mode:
        return asked or known().settings.get("default_mode") or "full"

    async def accept(
        what: str, how: Mapping[str, Any], items: Sequence[tuple[str, Sequence[str]]]
    ) -> list[PendingItem]:
        if not pool.load.ready and pool.load.failing is not None:
            raise HTTPException(503, f"no judge is ready: {pool.load.failing}")
        return await pool.submit(what, how, items)

    @app.post("/v1/score", response_model=ScoreResponse, responses=_ERRORS, summary="Judge transcripts")
    async def score(asked: ScoreRequest, request: Request) -> Any:
        items = await parsed(asked, request)
        ids = [id for _, (id,) in items]
        how = {"mode": mode_of(asked.mode), "samples": asked.samples, "seed": asked.seed}
        how |= {"out_of_domain": asked.out_of_domain}
        asks = await accept("score", how, items)
        if asked.stream:
            return StreamingResponse(lines_of(asks, ids, how), media_type="application/x-ndjson")
        found = await answered(asks, request)
        return Ascii({"rows": [scored(one, id, how) for one, id in zip(found, ids, strict=True)]})

    async def parsed(asked: ScoreRequest | MeasureRequest, request: Request) -> list[tuple[str, list[str]]]:
        """A request's transcripts as items; those of a large one are read in a thread."""
        given = (asked.transcripts, asked.format, limits)
        small = len(await request.body()) <= SMALL  # it is there; what a header says of a body in chunks is anything
        return items_of(*given) if small else await asyncio.to_thread(items_of, *given)

    async def lines_of(asks: list[PendingItem], ids: Sequence[str], how: Mapping[str, Any]) -> AsyncIterator[str]:
        places = {ask.done: at for at, ask in enumerate(asks)}
        left, refused = set(places), None
        try:
            while left and refused is None:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    said = one.exception() or one.result()
                    if isinstance(said, JudgeRefused):
                        refused = {"message": str(said), "status": 503 if said.again else 422}
                        break
                    row = scored(said, ids[places[one]], how)
                    yield json.dumps({"index": places[one], "row": row}) + "\n"
            yield json.dumps({"error": refused} if refused else {"done": len(asks)}) + "\n"
        finally:
            await pool.cancel(asks)

    def scored(said: Any, id: str, how: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(said, ItemFailed):
            described = known().describe
            info = {k: described.get(k) for k in ("model", "model_hash", "prompt_version")}
            info |= {"mode": how["mode"], "seed": how["seed"]}
            row = {"id": id, "status": "judge_error", "reason": str(said), "judge": info}
            said = Feedback.model_validate(row).model_dump(mode="json")
        metrics.row(said["status"])
        return said

    @app.post("/v1/rank", response_model=RankResponse, responses=_ERRORS, summary="Compare attempts at one question")
    async def rank(asked: RankRequest, request: Request) -> Any:
        if not known().ranks:
            raise Wrong("this judge was trained to judge one run at a time and cannot compare several", "groups")
        items = await asyncio.to_thread(grouped, asked, limits)
        how = {"heat": asked.heat, "both_orders": asked.both_orders, "seed": asked.seed}
        found = await answered(await accept("rank", how, items), request)
        for one in found:
            if isinstance(one, ItemFailed):
                raise HTTPException(500, str(one))
        for one in found:
            for row in one["feedback"]:
                metrics.row(row["status"])
        return Ascii({"rankings": found})

    @app.post("/v1/measure", response_model=MeasureResponse, responses=_ERRORS, summary="Count tokens, judge nothing")
    async def measure(asked: MeasureRequest, request: Request) -> Any:
        items = await parsed(asked, request)
        how = {"mode": mode_of(asked.mode), "samples": asked.samples}
        found = await answered(await accept("measure", how, items), request)
        for one in found:
            if isinstance(one, ItemFailed):
                raise HTTPException(500, str(one))
        return {"reads": found}

    async def answered(asks: list[PendingItem], request: Request) -> list[Any]:
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
            await pool.cancel(asks)  # ends `whole`
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, ItemFailed):
                raise one
        return found

    @app.get("/v1/judge", response_model=About, summary="The judge that is served")
    async def judge() -> About:
        return known()

    @app.get("/healthz", response_model=Health, summary="Whether requests are taken")
    async def health() -> JSONResponse:
        load = pool.load
        status = "ok" if load.ready else "failing" if load.failing else "starting"
        said = Health(status=status, workers=load.ready, waiting=load.waiting, judging=load.judging)
        return JSONResponse(said.model_dump(), 200 if status == "ok" else 503)

    @app.get("/metrics", response_class=PlainTextResponse, summary="For Prometheus")
    async def exposition() -> PlainTextResponse:
        return PlainTextResponse(metrics.exposition(), media_type="text/plain; version=0.0.4")

    # ---- errors, all of one form ----

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # the body is none that JSON's parser takes: nested thousands deep, not UTF-8
            return answer(422, f"the body is not JSON: {error.__cause__ or error.detail}", at="body")
        again = {"Retry-After": str(AGAIN_S)} if error.status_code in (429, 503) else None
        return answer(error.status_code, str(error.detail), again)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return answer(422, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}", at="body")
        return answer(422, first["msg"], at=".".join(str(part) for part in first["loc"][1:]) or "body")

    @app.exception_handler(Wrong)
    async def wrong(_: Request, error: Wrong) -> JSONResponse:
        return answer(422, str(error), at=error.at)

    @app.exception_handler(JudgeRefused)
    async def refused(_: Request, error: JudgeRefused) -> JSONResponse:
        if error.again:
            return answer(503, str(error), {"Retry-After": str(AGAIN_S)})
        return answer(422, str(error)) if error.at is None else answer(422, str(error), at=error.at)

    @app.exception_handler(Full)
    async def full(_: Request, error: Full) -> JSONResponse:
        return answer(429, str(error), {"Retry-After": str(AGAIN_S)})

    @app.exception_handler(TooMany)
    async def too_many(_: Request, error: TooMany) -> JSONResponse:
        return answer(413, str(error))

    paths = frozenset(route.path for route in app.routes if isinstance(route, Route))
    app.add_middleware(RequestLimits, limits=limits, metrics=metrics, paths=paths)
    return app


async def left_us(request: Request) -> None:
    """Return once the client has gone. The body has been read: nothing else is said of a request after that."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def items_of(given: Sequence[Any], format: str, limits: BodyLimits) -> list[tuple[str, list[str]]]:
    """Each transcript as a worker reads it, and its id.

    Raises:
        Wrong: as `transcripts`; two of one id.
    """
    unfolding = AttachmentBudget(limits.body_bytes)
    return [(said, [id]) for said, id in transcripts(given, format, limits.transcripts, "transcripts", unfolding)]


def grouped(asked: RankRequest, limits: BodyLimits) -> list[tuple[str, list[str]]]:
    """Each group as a worker reads it, and its attempts' ids, unique within it.

    Raises:
        Wrong: as `transcripts`.
    """
    most, unfolding = limits.transcripts, AttachmentBudget(limits.body_bytes)
    if sum(map(len, asked.groups)) > most:
        raise Wrong(f"{sum(map(len, asked.groups))} attempts, and a request may have {most}", "groups")
    found = []
    for number, group in enumerate(asked.groups):
        rows = transcripts(group, asked.format, most, f"groups.{number}", unfolding)
        found.append((f"[{','.join(said for said, _ in rows)}]", [id for _, id in rows]))
    return found


def transcripts(
    given: Sequence[Any], format: str, most: int, at: str, unfolding: AttachmentBudget
) -> list[tuple[str, str]]:
    """Each element as a run: its JSON, and its id.

    Args:
        unfolding: what attachments may unfold to, in the whole request.

    Raises:
        Wrong: too many, two of one id, or one that is none or several, or nested too deeply to be handed on.
    """
    if len(given) > most:
        raise Wrong(f"{len(given)} transcripts, and a request may have {most}: send them in several", at)
    found: dict[str, str] = {}
    for number, data in enumerate(given):
        place = f"{at}.{number}"
        try:
            runs = read_value(data, place, format=format, unfolding=unfolding)
        except ConfigError as error:
            raise Wrong(str(error), "format") from error
        if len(runs) != 1:
            raise Wrong(f"holds {len(runs)} runs: send each as an element of its own", place)
        run = runs[0]
        if isinstance(run, ReadError):
            raise Wrong(str(run), place)
        if run.id in found:
            raise Wrong(f"the id {run.id!r} occurs twice; ids must be unique in a request", place)
        try:
            found[run.id] = dumps(run)
        except (ValueError, RecursionError) as error:
            raise Wrong(f"cannot be handed on to the judge: {error}", place) from error
    return [(said, id) for id, said in found.items()]
