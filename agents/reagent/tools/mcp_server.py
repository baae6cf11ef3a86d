"""A connection to one MCP server, usable from any thread and event loop.

The `mcp` package binds a connection to the task that opened it, while episodes have loops of their own. So all connections live in one
background loop, each in a task that holds it. A server that has died is started again at the next call, a few times."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reagent.errors import ToolError
from reagent.tools.keys import header_name, key_from, scrubbed
from rrm.engines.async_runner import Background
from rrm.errors import ConfigError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as ToolDescription

T = TypeVar("T")
_MAX_PAGES = 50
_CLOSE_S = 3.0  # for a server to end by itself, and again when it is made to


class ServerSpec(BaseModel):
    """One server in a config: a command (stdio) or a URL (streamable HTTP)."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    """Set for the server. It inherits only HOME, LOGNAME, PATH, SHELL, TERM and USER."""
    env_from: tuple[str, ...] = ()
    """Variables handed on from our environment: keys stand there, not in a config."""
    cwd: str | None = None
    stderr: str | None = None
    """A file for its standard error; without, that is lost."""
    url: str | None = None
    headers_from: Mapping[str, str] = Field(default_factory=dict)
    """Header → the environment variable that holds it."""
    tools: tuple[str, ...] | None = None
    """Only these of its tools."""
    prefix: str = ""
    """Before the tools' names, where two servers share one."""
    restarts: int = Field(3, ge=0)
    """Starts anew without an answered call in between."""

    @model_validator(mode="after")
    def _one_way(self) -> ServerSpec:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either `command` (with `args`) or `url`")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` must begin with http:// or https://")
        for name in self.env_from:
            if name not in os.environ:
                raise ValueError(f"the environment variable {name} is not set")
        try:
            self.headers()
        except ConfigError as error:
            raise ValueError(str(error)) from None
        return self

    def headers(self) -> dict[str, str]:
        """`headers_from`, read. Raises ConfigError: one that cannot be sent."""
        return {
            header_name(header, "headers_from"): key_from(name, "headers_from")
            for header, name in self.headers_from.items()
        }

    def keys(self) -> list[str]:
        """The values that no message may show."""
        return [os.environ.get(name, "") for name in (*self.env_from, *self.headers_from.values())]


@functools.cache
def _loop() -> Background:
    return Background("mcp servers")


class McpServer:
    """One server. `start` connects; a call of a server that has died connects again."""

    def __init__(self, name: str, spec: ServerSpec, connect_s: float = 30.0) -> None:
        self.name, self.spec, self.connect_s = name, spec, connect_s
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
        self._holder: tuple[asyncio.Task[None], asyncio.Event] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._left = spec.restarts + 1

    def start(self) -> list[ToolDescription]:
        """Connect, and list its tools. Raises ConfigError: it cannot be reached, or lacks a wanted tool."""
        try:
            listed = self._wait(self._list(), self.connect_s)
        except (ToolError, TimeoutError) as error:
            self.close()
            problem = str(error) or f"no answer within {self.connect_s:g} s"
            raise ConfigError(f"tools.mcp: server {self.name!r}: {problem}") from error
        atexit.register(self.close)
        chosen = self.spec.tools
        missing = [name for name in chosen or () if name not in {t.name for t in listed}]
        if missing:
            names = ", ".join(t.name for t in listed) or "none"
            self.close()
            raise ConfigError(f"tools.mcp: server {self.name!r} has no tool {missing[0]!r}; it has: {names}")
        return [t for t in listed if chosen is None or t.name in chosen]

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool, from any event loop; to cancel this cancels the call. Raises ToolError."""
        return await asyncio.wrap_future(_loop().start(self._call(tool, arguments)))

    def close(self) -> None:
        """End the connection and a server started by a command. It can be started again."""
        atexit.unregister(self.close)
        with contextlib.suppress(TimeoutError):
            self._wait(self._close(), 8.0)

    def _wait(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        future = _loop().start(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    # ---- in the background loop -------------------------------------------------------------------------------------------

    async def _connected(self) -> Client:
        """The connection. A cancelled call leaves the connecting to the next one; it has a time of its own."""
        if self._client is not None:
            return self._client
        if self._connecting is None or self._connecting.done():
            if not self._left:
                raise ToolError(
                    f"the server {self.name!r} has ended {self.spec.restarts + 1} times and is not started again",
                    "mcp_down",
                )
            self._left -= 1
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(_retrieved)
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> Client:
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        closing = asyncio.Event()
        self._holder = asyncio.create_task(self._hold(ready, closing)), closing
        try:
            async with asyncio.timeout(self.connect_s):
                self._client = await ready
        except TimeoutError:
            self._end()
            raise ToolError(
                f"the server {self.name!r} did not answer within {self.connect_s:g} s", "mcp_down"
            ) from None
        return self._client

    async def _hold(self, ready: asyncio.Future[Client], closing: asyncio.Event) -> None:
        try:
            async with self._opened() as client:
                if not ready.done():
                    ready.set_result(client)
                await closing.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(ToolError(f"cannot be started or reached: {self._said(error)}", "mcp_down"))

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[Client]:
        from mcp import Client, StdioServerParameters, stdio_client

        spec = self.spec
        async with contextlib.AsyncExitStack() as stack:
            if spec.command is not None:
                env = dict(spec.env) | {name: os.environ[name] for name in spec.env_from}
                log = open(spec.stderr or os.devnull, "a", encoding="utf-8")  # noqa: SIM115 - the stack closes it
                stack.callback(log.close)
                parameters = StdioServerParameters(command=spec.command, args=list(spec.args), env=env, cwd=spec.cwd)
                transport = stdio_client(parameters, errlog=log)
            else:
                import httpx2
                from mcp.client.streamable_http import streamable_http_client

                headers = spec.headers()
                timeout = httpx2.Timeout(30.0, read=300.0)
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=timeout))
                assert spec.url is not None  # one of the two is given
                transport = streamable_http_client(spec.url, http_client=http)
            client = await stack.enter_async_context(Client(transport))
            # the package would follow the server's output schemas in this loop; an agent reads what came, whatever was promised
            client.session.validate_tool_result = _as_it_came
            yield client

    async def _list(self) -> list[ToolDescription]:
        client = await self._connected()
        tools: list[ToolDescription] = []
        cursor = None
        for _ in range(_MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if not cursor:
                return tools
        raise ToolError(f"lists its tools on more than {_MAX_PAGES} pages", "mcp_error")

    async def _call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        client = await self._connected()
        try:
            result = await client.call_tool(tool, arguments)
        except MCPError as error:
            if error.code != CONNECTION_CLOSED:
                raise ToolError(
                    f"{self.name} refuses: {scrubbed(error.message, self.spec.keys())}", "mcp_error"
                ) from error
            problem: BaseException = error
        except Exception as error:  # a result that is none, or whatever its transport raises
            if self._client is client and not self._broken(error):
                raise ToolError(
                    f"{self.name} answered with what is no result ({self._said(error)})", "mcp_error"
                ) from error
            problem = error
        else:
            self._left = self.spec.restarts  # it is of use again
            return result
        if self._client is client:
            self._end()
        raise ToolError(
            f"the server {self.name!r} broke off ({self._said(problem)}); call again to start it anew", "mcp_down"
        ) from problem

    def _broken(self, error: BaseException) -> bool:
        import anyio
        import httpx2

        ends = (OSError, EOFError, anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream)
        if isinstance(error, BaseExceptionGroup):
            return any(map(self._broken, error.exceptions))
        gone = self._holder is None or self._holder[0].done()
        return gone or isinstance(error, (*ends, httpx2.HTTPError, httpx2.StreamError))

    def _end(self) -> None:
        """Let the connection go; it closes by itself, and `close` waits for that."""
        self._client = None
        if self._connecting is not None and self._connecting is not asyncio.current_task():
            self._connecting.cancel()
        self._connecting = None
        if self._holder is not None:
            ending = asyncio.create_task(_ended(*self._holder))
            self._holder = None
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _close(self) -> None:
        self._end()
        if self._ending:
            await asyncio.wait(set(self._ending))

    def _said(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return scrubbed(f"{type(error).__name__}: {error}", self.spec.keys())[:200]


async def _ended(holder: asyncio.Task[None], closing: asyncio.Event) -> None:
    closing.set()
    await asyncio.wait({holder}, timeout=_CLOSE_S)
    if not holder.done():  # it never came to wait for `closing`, or its transport hangs
        holder.cancel()
        await asyncio.wait({holder}, timeout=_CLOSE_S)
    _retrieved(holder)


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Retrieve a task's exception, which asyncio would log otherwise."""
    if task.done() and not task.cancelled():
        task.exception()


async def _as_it_came(name: str, result: CallToolResult) -> None: ...
