"""A session of Claude Code that calls `rrm guard` as its hook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from rrm.cli.guard_cmd import command


class Claude:
    """A session as Claude Code writes it, and the hooks it calls."""

    def __init__(self, folder: Path, where: Path, *arguments: str) -> None:
        self.path, self.audit = where / "session.jsonl", where / "audit.jsonl"
        self.arguments = ["--audit", str(self.audit), "--model", str(folder), *arguments]
        self.calls = 0
        self.write("user", "fix it")

    def write(self, role: str, content: Any) -> None:
        line = {"type": role, "sessionId": "s1", "uuid": str(self.calls), "message": {"role": role, "content": content}}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def hook(self, event: str, **more: Any) -> tuple[int, dict[str, Any]]:
        fields = {"hook_event_name": event, "session_id": "s1", "transcript_path": str(self.path), "cwd": "/", **more}
        return self.invoke(json.dumps(fields))

    def invoke(self, text: str) -> tuple[int, Any]:
        app = typer.Typer()
        app.command()(command)
        result = CliRunner().invoke(app, self.arguments, input=text)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, json.loads(result.stdout) if result.stdout else None

    def call(self, *, late: bool = False) -> tuple[int, dict[str, Any]]:
        """A call that is made and answered; `late`: the file does not have it yet."""
        self.calls += 1
        id = f"toolu_{self.calls}"
        tool_input = {"command": f"ls {self.calls}"}
        if not late:
            self.write("assistant", [{"type": "tool_use", "id": id, "name": "Bash", "input": tool_input}])
            self.write("user", [{"type": "tool_result", "tool_use_id": id, "content": f"files {self.calls}"}])
        response = {"stdout": f"files {self.calls}"}
        return self.hook("PostToolUse", tool_name="Bash", tool_input=tool_input, tool_use_id=id, tool_response=response)
