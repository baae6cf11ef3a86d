"""Direct: one turn, no tools."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.methods.base import OneTurn


class Direct(OneTurn):
    """What the policy knows by itself."""

    name: ClassVar[str] = "direct"
    says: ClassVar[str] = "one turn, no tools"
    lead: ClassVar[str] = "Answer from what you know: no tool is at hand, and there is this one turn."
