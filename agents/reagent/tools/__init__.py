"""Tools for agents: search, browse, run Python in a sandbox, read files, and any MCP server's tools."""

from reagent.tools.registry import TOOLS, build

__all__ = ["TOOLS", "build"]
