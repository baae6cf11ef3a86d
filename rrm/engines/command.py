"""`command`: a ChatEngine over a program that reads prompts from stdin and replies on stdout."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from typing import IO

from rrm.data.printing import printable
from rrm.data.secrets import REMOVED, clean
from rrm.engines.base import Reply, SamplingParams
from rrm.errors import ConfigError, EngineError

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\))")

SECRET_OPTION = re.compile(r"-{0,2}[\w-]*(key|token|secret|password)", re.IGNORECASE)
MOST_BYTES = 16 << 20  # of a reply


class CommandEngine:
    """Start the program for each prompt, without a shell; it samples as it likes."""

    def __init__(self, command: str, timeout_s: float = 60.0, concurrency: int = 8) -> None:
        self.timeout_s, self.concurrency, self.refuses_temperature = timeout_s, concurrency, True
        self._command = command
        try:
            self.words = shlex.split(command)
            if not self.words or shutil.which(self.words[0]) is None:
                raise ValueError("no such program; write command:PROGRAM ARGUMENTS")
        except ValueError as error:
            raise ConfigError(f"command:{command}: {error}") from error

    @property
    def name(self) -> str:
        """The command without its secrets, for rows and records."""
        words = [clean(word, Counter()) for word in self.words]
        for k, word in enumerate(self.words):
            option, equals, _ = word.partition("=")
            if SECRET_OPTION.fullmatch(option) and equals:
                words[k] = f"{option}={REMOVED}"
            elif SECRET_OPTION.fullmatch(option) and k + 1 < len(words):
                words[k + 1] = REMOVED
        return f"command:{self._command if words == self.words else shlex.join(words)}"

    def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
        """Get one reply. Raises EngineError: the program fails or takes longer than `params.timeout_s`."""
        prompt = "\n\n".join(message["content"] for message in messages).encode(errors="replace")
        with tempfile.TemporaryFile() as prompt_file, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            prompt_file.write(prompt)
            prompt_file.seek(0)
            try:
                code = self._run(prompt_file, out, err, params.timeout_s)
            except OSError as error:
                raise EngineError(printable(str(error))) from error
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(ESCAPES.sub("", file.read(MOST_BYTES).decode(errors="replace")).strip())
        reply, error_output = texts
        if code:
            raise EngineError(printable(f"{self.words[0]}: exit code {code}: {(error_output or reply)[-300:]}"))
        return Reply(reply, "eos")

    def _run(self, prompt_file: IO[bytes], out: IO[bytes], err: IO[bytes], timeout_s: float) -> int:
        """Return the exit code. Child processes end on a time-out, too much output or an interrupt."""
        until = time.monotonic() + timeout_s
        # in a session of its own: Ctrl-C is for us alone
        with subprocess.Popen(self.words, stdin=prompt_file, stdout=out, stderr=err, start_new_session=True) as program:
            try:
                while True:
                    with suppress(subprocess.TimeoutExpired):
                        return program.wait(max(min(0.2, until - time.monotonic()), 0.0))
                    if max(os.fstat(file.fileno()).st_size for file in (out, err)) > MOST_BYTES:
                        raise EngineError(printable(f"{self.words[0]}: wrote more than {MOST_BYTES >> 20} MB"))
                    if time.monotonic() >= until:
                        raise EngineError(
                            printable(f"{self.words[0]}: timed out after {timeout_s} seconds (--timeout)")
                        )
            except BaseException:
                os.killpg(program.pid, signal.SIGKILL)  # not reaped yet: the group is its own
                raise
