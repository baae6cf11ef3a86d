"""Agent-RRM: reasoning reward models for agents. Heavy names load on first use, so `import rrm` is quick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rrm.annotation import Annotation, Finding
from rrm.feedback import Feedback, JudgeInfo
from rrm.trajectory import Message, Step, ToolCall, Trajectory

if TYPE_CHECKING:
    from rrm.judge.agent_rrm import AgentRRM

__version__ = "0.1.0"
__all__ = [
    "AgentRRM",
    "Annotation",
    "Feedback",
    "Finding",
    "JudgeInfo",
    "Message",
    "Step",
    "ToolCall",
    "Trajectory",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "AgentRRM":
        from rrm.judge.agent_rrm import AgentRRM

        return AgentRRM
    raise AttributeError(f"module 'rrm' has no attribute {name!r}")
