"""Checks arguments against a schema of somebody else, in a process that can be ended.

A schema of a few lines can take for ever to follow: references that double at each step, a pattern that tries every split."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reagent.tools.line_worker import LineWorker
from rrm.errors import RRMError

CHECK_S = 2.0  # wall clock of one check


class SchemaChecker(LineWorker):
    """A process that checks: give each author of schemas one of their own, so that none holds up another."""

    def __init__(self, check_s: float = CHECK_S) -> None:
        super().__init__(Path(__file__).with_name("schema_worker.py"), check_s, "-I")

    def problem(self, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, str] | None:
        """(dotted path, message) of the arguments' first problem. Blocks. Raises RRMError."""
        try:
            answer = json.loads(self.ask({"schema": schema, "arguments": arguments}))
        except OSError as error:
            raise RRMError(str(error)) from error
        if "cannot" in answer:
            raise RRMError(answer["cannot"])
        return (answer["place"], answer["message"]) if answer else None
