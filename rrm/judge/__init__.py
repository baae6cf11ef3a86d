"""The judge: transcripts in, Feedback out. `AgentRRM` is loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rrm.judge.agent_rrm import AgentRRM

__all__ = ["AgentRRM"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from rrm.judge import agent_rrm

        return getattr(agent_rrm, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
