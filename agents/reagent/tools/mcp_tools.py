"""Any MCP server's tools, with limits and an audit trail.

    build(["mcp"], {"mcp": {"servers": {"files": {"command": "my-server", "args": ["--root", "data"]}}, "audit": "calls.jsonl"}})

A server is not trusted: descriptions and schemas lose control tokens and are bounded, arguments are checked against the schema and the
denied addresses before they are sent, results are text within a limit (pictures and sounds are named, not shown)."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from reagent.env.tool import Tool, ToolResult
from reagent.errors import ToolError
from reagent.tools.audit import Arguments, ToolAudit
from reagent.tools.deny import DenyList
from reagent.tools.mcp_server import McpServer, ServerSpec
from reagent.tools.schemas import SchemaChecker
from rrm.data.extras import needs
from rrm.errors import ConfigError, RRMError
from rrm.prompt.neutralise import neutralise_control

if TYPE_CHECKING:
    from mcp.types import CallToolResult
    from mcp.types import Tool as ToolDescription

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DESCRIPTION_CHARS = 1000
_SCHEMA_CHARS = 20_000


class McpTool(Tool):
    """A tool of an MCP server; its calls are written to the audit trail."""

    server = ""
    audit: ToolAudit | None = None

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """See `Tool.call`; a refused, failed, timed-out or cancelled call is written down too."""
        started, clock = time.time(), time.perf_counter()
        try:
            result = await super().call(arguments)
        except asyncio.CancelledError:
            error = ToolError(f"the call of {self.name} was cancelled", "mcp_cancelled")
            self._write(arguments, ToolResult("", error, started, time.perf_counter() - clock))
            raise
        self._write(arguments, result)
        return result

    def _write(self, arguments: Mapping[str, Any], result: ToolResult) -> None:
        if self.audit is not None:
            self.audit.write(self.server, self.name, arguments, result)


def mcp_tools(
    servers: Mapping[str, Mapping[str, Any]],
    audit: str | None = None,
    audit_arguments: Arguments = "full",
    timeout_s: float = 30.0,
    connect_s: float = 30.0,
    max_result_chars: int = 8000,
    max_concurrency: int = 16,
    deny: Sequence[str] = (),
) -> list[Tool]:
    """Make the tools of MCP servers, which are started or reached now and kept until the process ends.

    Args:
        servers: name → `mcp_server.ServerSpec`.
        audit: a JSONL file, a line a call.
        audit_arguments: `full`, or `digest` where arguments may hold secrets.
        timeout_s: of a call.
        connect_s: for a server to start and list its tools.
        max_result_chars: longer results lose their middle.
        max_concurrency: of each tool.
        deny: `host` or `host/path`; a call that names one in its arguments is not sent, and counted (`reagent.tools.deny`).

    Raises:
        ConfigError: a server that is described wrongly, cannot be started, or has a tool that cannot be offered; a bad `deny` entry.
    """
    needs("mcp", "tools of MCP servers", "mcp")
    if audit is not None and not Path(audit).absolute().parent.is_dir():
        raise ConfigError(f"tools.mcp: audit: there is no folder {Path(audit).parent}")
    if audit_arguments not in ("full", "digest"):
        raise ConfigError(f"tools.mcp: audit_arguments is full or digest, not {audit_arguments!r}")
    trail = ToolAudit(audit, audit_arguments) if audit is not None else None
    denied = DenyList(deny, "tools.mcp: deny")
    limits = {"timeout_s": timeout_s, "max_result_chars": max_result_chars, "max_concurrency": max_concurrency}
    connected: list[McpServer] = []
    tools: list[Tool] = []
    try:
        for name, options in servers.items():
            server = McpServer(name, _spec(name, options), connect_s)
            listed = server.start()
            connected.append(server)
            checker = SchemaChecker()
            checker.start()
            tools += [make_tool(server, description, trail, checker, denied, **limits) for description in listed]
    except BaseException:
        for server in connected:
            server.close()
        raise
    return tools


def _spec(name: str, options: Mapping[str, Any]) -> ServerSpec:
    try:
        return ServerSpec.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join([name, *map(str, first["loc"])])
        raise ConfigError(f"tools.mcp.servers.{where}: {first['msg']}") from error


def make_tool(
    server: McpServer,
    description: ToolDescription,
    audit: ToolAudit | None,
    checker: SchemaChecker,
    denied: DenyList | None = None,
    **limits: Any,
) -> McpTool:
    """One tool of a server. Raises ConfigError: its name or schema cannot stand in a prompt."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    original = description.name
    name = server.spec.prefix + original
    where = f"tools.mcp: server {server.name!r}, tool {original[:80]!r}"
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{where}: a tool's name is made of at most 64 letters, digits, _ and -; leave it out (`tools`)"
        )
    input_schema = description.input_schema
    try:
        parameters = _clean(input_schema)
        text = json.dumps(parameters, ensure_ascii=False)
        if len(text) > _SCHEMA_CHARS or neutralise_control(text) != text:
            raise ConfigError(
                f"{where}: its schema is too long, or holds control tokens of chat templates; leave it out (`tools`)"
            )
        validator_for(input_schema).check_schema(input_schema)
    except RecursionError as error:
        raise ConfigError(f"{where}: its schema is nested too deeply; leave it out (`tools`)") from error
    except SchemaError as error:
        raise ConfigError(f"{where}: its schema is none: {error.message[:200]}") from error

    async def ask(**arguments: Any) -> str:
        # in here: within the call's slot and time, and not in the way of other episodes
        try:
            problem = await asyncio.to_thread(checker.problem, input_schema, arguments)
        except (RRMError, RuntimeError) as error:
            raise ToolError(
                f"{name}: its schema cannot be followed ({error}), so nothing was sent", "mcp_error"
            ) from error
        if problem is not None:
            path, message = problem
            raise ToolError(f"bad arguments for {name}: {path or 'arguments'}: {message}", "bad_arguments")
        if denied is not None and (entry := denied.entry_within(arguments)):
            raise ToolError(
                f"{name} is not asked about addresses of {entry} in this task; nothing was sent",
                "host_denied",
                denied=1,
            )
        return as_text(await server.call(original, arguments))

    schema = {
        "type": "function",
        "function": {
            "name": name,
            "description": neutralise_control((description.description or "").strip()[:_DESCRIPTION_CHARS]),
            "parameters": parameters,
        },
    }
    tool = McpTool.described(schema, ask, dict, **limits)
    tool.server, tool.audit = server.name, audit
    return tool


def _clean(schema: Any) -> Any:
    """A schema whose texts for people are disarmed and bounded; the rest stays, for the server means it."""
    if isinstance(schema, dict):
        return {
            key: neutralise_control(value[:_DESCRIPTION_CHARS])
            if key in ("description", "title") and isinstance(value, str)
            else _clean(value)
            for key, value in schema.items()
        }
    return [_clean(item) for item in schema] if isinstance(schema, list) else schema


def as_text(result: CallToolResult) -> str:
    """A result as text; of other content its type and size. Raises ToolError: the tool failed."""
    parts = []
    for block in result.content:
        if block.type == "text":
            parts.append(block.text)
        elif block.type == "image" or block.type == "audio":
            parts.append(f"[{block.type}, {block.mime_type}, {len(block.data)} base64 characters: not shown]")
        elif block.type == "resource":
            content = getattr(block.resource, "text", None)
            parts.append(content if content is not None else f"[resource {block.resource.uri}: not shown]")
        else:
            parts.append(f"[{block.type} {getattr(block, 'uri', '')}]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    text = "\n".join(parts)
    if result.is_error:
        raise ToolError(text or "the tool failed and does not say why", "mcp_error")
    return text
