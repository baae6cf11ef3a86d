"""Readers under a caller whose own limits are lower: they keep to those, and read."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

MEMORY = 900 << 20
_UNDER = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
{code}
"""
_READ = "from reagent.tools.documents.run import read_document\nprint(read_document(b'hello', 'txt').text)"
_LIMIT = """
from reagent.tools.documents.child import limit
print(limit(1 << 40, 7), resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CPU))
"""


def under(code: str, *start: str) -> str:
    command = [*start, sys.executable, "-c", _UNDER.format(memory=MEMORY, code=code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="macOS limits no address space")
def test_lower_limits_stay() -> None:
    assert under(_LIMIT) == f"[] ({MEMORY}, {MEMORY}) (7, 8)\n"


@pytest.mark.skipif(sys.platform != "linux", reason="macOS limits no address space")
def test_a_document_is_read_under_lower_limits() -> None:
    assert under(_READ) == "hello\n"


def test_what_a_system_does_not_limit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: the address space cannot be limited. The others are set to what they are."""
    from reagent.tools.documents import child

    limits: list[int] = []

    def refuses(number: int, values: tuple[int, int]) -> None:
        if number == resource.RLIMIT_AS:
            raise ValueError("current limit exceeds maximum limit")
        limits.append(number)

    monkeypatch.setattr(child.resource, "setrlimit", refuses)
    assert child.limit(1 << 30, 5) == ["address space"] and len(limits) == 3
