"""`command`: a ChatEngine over a program that reads a prompt from standard input and writes its reply to standard output."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

from rrm.data.printing import printable
from rrm.engines.base import Reply, SamplingParams
from rrm.errors import ConfigError, EngineError

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\))")


class CommandEngine:
    """Starts the program anew for each prompt, without a shell; how it samples is its own."""

    def __init__(self, command: str, timeout_s: float = 60.0, concurrency: int = 8) -> None:
        self.timeout_s, self.concurrency, self.refuses_temperature = timeout_s, concurrency, True
        try:
            self.words = shlex.split(command)
            if not self.words or shutil.which(self.words[0]) is None:
                raise ValueError("no such program; write command:PROGRAM ARGUMENTS")
        except ValueError as error:
            raise ConfigError(f"command:{command}: {error}") from error

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        """One reply. Raises `EngineError` where the program fails or takes longer than `params.timeout_s`."""
        prompt = "\n\n".join(message["content"] for message in messages).encode(errors="replace")
        try:  # in a session of its own: Ctrl-C is for us alone
            ran = subprocess.run(self.words, input=prompt, capture_output=True, timeout=params.timeout_s, start_new_session=True)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineError(printable(f"{error} (--timeout)")) from error
        reply, said = (ESCAPES.sub("", out.decode(errors="replace")).strip() for out in (ran.stdout, ran.stderr))
        if ran.returncode:
            raise EngineError(printable(f"{self.words[0]}: exit code {ran.returncode}: {(said or reply)[-300:]}"))
        return Reply(reply, "eos")
