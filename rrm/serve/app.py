"""Endpoints: POST /v1/score, /v1/rank, /v1/measure; GET /v1/judge, /healthz, /metrics, /openapi.json.

A large body is parsed in a thread. As C and Rust code holds the interpreter until it returns (seconds for 32 MiB of JSON),
the parser calls into Python at each object, and a run is written a message at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import Route

from rrm import __version__
from rrm.data.feedback import Feedback, Mode
from rrm.data.sizes import check_weight
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, ReadError
from rrm.readers import read_value
from rrm.readers.base import AttachmentBudget
from rrm.serve.limits import AGAIN_S, GONE, Ascii, BodyLimits, RequestLimits, answer
from rrm.serve.metrics import Metrics
from rrm.serve.pool import PendingItem, RequestRefused, WorkerPool
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

SMALL = 2**15  # bytes of a body that is parsed without a thread
VALUES = 8  # most memory of a body's values, times the largest body


def loads(body: bytes) -> Any:
    """Parse JSON, interruptible at each object; raises `ValueError`, `RecursionError`."""
    return json.loads(body, object_hook=lambda value: value)


def check_values(body: bytes, most: int) -> None:
    """Refuse (413) a body whose values are large in memory: 31 MiB of `{},` would take 1.4 GB."""
    try:
        check_weight(body, "the body", VALUES * most)
    except ValueError as error:
        raise HTTPException(413, f"{error}: send fewer transcripts at once") from None


def dumps(run: Trajectory) -> str:
    """Write a run as ASCII JSON, interruptible at each message; raises `ValueError`, `RecursionError`."""
    head = json.dumps(run.model_dump(mode="json", exclude={"messages"}))
    messages = ", ".join(json.dumps(message.model_dump(mode="json")) for message in run.messages)
    return f'{head[:-1]}, "messages": [{messages}]}}'


class BodyRequest(Request):
    """A request whose large body is joined and parsed in a thread, one such body at a time."""

    async def body(self) -> bytes:
        if not hasattr(self, "_body"):
            chunks = [chunk async for chunk in self.stream()]
            small = sum(map(len, chunks)) <= SMALL
            self._body = b"".join(chunks) if small else await asyncio.to_thread(b"".join, chunks)
        return self._body

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            body = await self.body()
            if len(body) <= SMALL:
                self._json = loads(body)
            else:
                async with self.app.state.large:
                    check_values(body, self.app.state.limits.body_bytes)
                    self._json = await asyncio.to_thread(loads, body)
        return self._json


class BodyRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answered = super().get_route_handler()

        async def handler(request: Request) -> Response:
            return await answered(BodyRequest(request.scope, request.receive))

        return handler


_ERRORS: dict[int | str, dict[str, Any]] = {
    401: {"description": "no key, or another one"},
    408: {"description": "the body came too slowly"},
    413: {"description": "too large"},
    422: {"description": "not a request, or not a transcript; `error.at` says where"},
    429: {"description": "too much waits; Retry-After says when to ask again"},
    503: {"description": "no judge is ready"},
}


def make_app(pool: WorkerPool, limits: BodyLimits, metrics: Metrics) -> FastAPI:
    """Make the service over a pool, which is started elsewhere and closed with the service."""

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

    def mode_of(mode: Mode | None) -> Mode:
        return mode or known().settings.get("default_mode") or "full"

    async def accept(
        task: str, how: Mapping[str, Any], items: Sequence[tuple[str, Sequence[str]]]
    ) -> list[PendingItem]:
        if not pool.load.ready and pool.load.failing is not None:
            raise HTTPException(503, f"no judge is ready: {pool.load.failing}")
        return await pool.submit(task, how, items)

    @app.post("/v1/score", response_model=ScoreResponse, responses=_ERRORS, summary="Judge transcripts")
    async def score(body: ScoreRequest, request: Request) -> Any:
        items = await parsed(body, request)
        ids = [id for _, (id,) in items]
        how = {"mode": mode_of(body.mode), "samples": body.samples, "seed": body.seed}
        how |= {"out_of_domain": body.out_of_domain}
        asks = await accept("score", how, items)
        if body.stream:
            return StreamingResponse(lines_of(asks, ids, how), media_type="application/x-ndjson")
        results = await answered(asks, request)
        return Ascii({"rows": [scored(result, id, how) for result, id in zip(results, ids, strict=True)]})

    async def parsed(body: ScoreRequest | MeasureRequest, request: Request) -> list[tuple[str, list[str]]]:
        arguments = (body.transcripts, body.format, limits)
        small = len(await request.body()) <= SMALL  # it is there; what a header says of a body in chunks is anything
        return items_of(*arguments) if small else await asyncio.to_thread(items_of, *arguments)

    async def lines_of(asks: list[PendingItem], ids: Sequence[str], how: Mapping[str, Any]) -> AsyncIterator[str]:
        places = {ask.done: index for index, ask in enumerate(asks)}
        left, refused = set(places), None
        try:
            while left and refused is None:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    result = future.exception() or future.result()
                    if isinstance(result, RequestRefused) and result.status != 500:
                        refused = {"message": str(result), "status": result.status}
                        break
                    row = scored(result, ids[places[future]], how)
                    yield json.dumps({"index": places[future], "row": row}) + "\n"
            yield json.dumps({"error": refused} if refused else {"done": len(asks)}) + "\n"
        finally:
            await pool.cancel(asks)

    def scored(result: Any, id: str, how: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(result, RequestRefused):
            described = known().describe
            info = {k: described.get(k) for k in ("model", "model_hash", "prompt_version")}
            info |= {"mode": how["mode"], "seed": how["seed"]}
            row = {"id": id, "status": "judge_error", "reason": str(result), "judge": info}
            result = Feedback.model_validate(row).model_dump(mode="json")
        metrics.row(result["status"])
        return result

    @app.post("/v1/rank", response_model=RankResponse, responses=_ERRORS, summary="Compare attempts at one question")
    async def rank(body: RankRequest, request: Request) -> Any:
        if not known().ranks:
            raise RequestRefused(
                "this judge was trained to judge one run at a time and cannot compare several", "groups"
            )
        items = await asyncio.to_thread(grouped, body, limits)
        how = {"heat": body.heat, "both_orders": body.both_orders, "seed": body.seed}
        results = await answered(await accept("rank", how, items), request, whole=True)
        for result in results:
            for row in result["feedback"]:
                metrics.row(row["status"])
        return Ascii({"rankings": results})

    @app.post("/v1/measure", response_model=MeasureResponse, responses=_ERRORS, summary="Count tokens, judge nothing")
    async def measure(body: MeasureRequest, request: Request) -> Any:
        items = await parsed(body, request)
        how = {"mode": mode_of(body.mode), "samples": body.samples}
        results = await answered(await accept("measure", how, items), request, whole=True)
        return {"reads": results}

    async def answered(asks: list[PendingItem], request: Request, *, whole: bool = False) -> list[Any]:
        """Return each item's row, or its error of status 500 unless `whole`; raises the pool's other errors."""
        gathered = asyncio.gather(*(ask.done for ask in asks), return_exceptions=True)
        gathered.add_done_callback(
            lambda result: result.cancelled() or result.exception()
        )  # of one who has gone nobody asks for it
        gone = asyncio.create_task(left_us(request))
        try:
            await asyncio.wait({gone, gathered}, return_when=asyncio.FIRST_COMPLETED)
            if not gathered.done():
                raise HTTPException(GONE, "the client has gone")
            results = gathered.result()
        finally:
            gone.cancel()
            await pool.cancel(asks)  # ends `whole`
        for result in results:
            if isinstance(result, BaseException) and (whole or getattr(result, "status", None) != 500):
                raise result
        return results

    @app.get("/v1/judge", response_model=About, summary="The judge that is served")
    async def judge() -> About:
        return known()

    @app.get("/healthz", response_model=Health, summary="Whether requests are taken")
    async def health() -> JSONResponse:
        load = pool.load
        status = "ok" if load.ready else "failing" if load.failing else "starting"
        health = Health(status=status, workers=load.ready, waiting=load.waiting, judging=load.judging)
        return JSONResponse(health.model_dump(), 200 if status == "ok" else 503)

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
        return answer(422, first["msg"], at=".".join(str(key) for key in first["loc"][1:]) or "body")

    @app.exception_handler(RequestRefused)
    async def refused(_: Request, error: RequestRefused) -> JSONResponse:
        again = {"Retry-After": str(AGAIN_S)} if error.status in (429, 503) else None
        return answer(error.status, str(error), again, **({} if error.at is None else {"at": error.at}))

    paths = frozenset(route.path for route in app.routes if isinstance(route, Route))
    app.add_middleware(RequestLimits, limits=limits, metrics=metrics, paths=paths)
    return app


async def left_us(request: Request) -> None:
    # the body was read: nothing else comes
    while (await request.receive())["type"] != "http.disconnect":
        pass


def items_of(elements: Sequence[Any], format: str, limits: BodyLimits) -> list[tuple[str, list[str]]]:
    """Return each transcript as JSON for a worker, and its id; raises `RequestRefused`."""
    unfolding = AttachmentBudget(limits.body_bytes)
    return [(text, [id]) for text, id in transcripts(elements, format, limits.transcripts, "transcripts", unfolding)]


def grouped(body: RankRequest, limits: BodyLimits) -> list[tuple[str, list[str]]]:
    """Return each group as JSON for a worker, and its attempts' ids, unique within it; raises `RequestRefused`."""
    most, unfolding = limits.transcripts, AttachmentBudget(limits.body_bytes)
    if sum(map(len, body.groups)) > most:
        raise RequestRefused(f"{sum(map(len, body.groups))} attempts, and a request may have {most}", "groups")
    groups = []
    for number, group in enumerate(body.groups):
        rows = transcripts(group, body.format, most, f"groups.{number}", unfolding)
        groups.append((f"[{','.join(text for text, _ in rows)}]", [id for _, id in rows]))
    return groups


def transcripts(
    elements: Sequence[Any], format: str, most: int, path: str, unfolding: AttachmentBudget
) -> list[tuple[str, str]]:
    """Return each element's run as JSON, and its id; `unfolding` limits attachments. Raises `RequestRefused`."""
    if len(elements) > most:
        raise RequestRefused(f"{len(elements)} transcripts, and a request may have {most}: send them in several", path)
    texts: dict[str, str] = {}
    for number, data in enumerate(elements):
        element_path = f"{path}.{number}"
        try:
            runs = read_value(data, element_path, format=format, unfolding=unfolding)
        except ConfigError as error:
            raise RequestRefused(str(error), "format") from error
        if len(runs) != 1:
            raise RequestRefused(f"holds {len(runs)} runs: send each as an element of its own", element_path)
        run = runs[0]
        if isinstance(run, ReadError):
            raise RequestRefused(str(run), element_path)
        if run.id in texts:
            raise RequestRefused(f"the id {run.id!r} occurs twice; ids must be unique in a request", element_path)
        try:
            texts[run.id] = dumps(run)
        except (ValueError, RecursionError) as error:
            raise RequestRefused(f"cannot be handed on to the judge: {error}", element_path) from error
    return [(text, id) for id, text in texts.items()]
