"""Agent-RRM: reasoning reward models for agents. Names load on first use, for a quick import."""

from __future__ import annotations

from rrm.moved import forward

TYPE_CHECKING = False  # `typing` takes its time to import, and a Ctrl-C meanwhile is nobody's
if TYPE_CHECKING:
    from typing import Any

    from rrm.data.annotation import Annotation, Finding
    from rrm.data.feedback import Feedback, JudgeInfo
    from rrm.data.trajectory import Message, Step, ToolCall, Trajectory
    from rrm.judge.agent_rrm import AgentRRM

forward()
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
_MODULES = {
    "rrm.data.annotation": ("Annotation", "Finding"),
    "rrm.data.feedback": ("Feedback", "JudgeInfo"),
    "rrm.judge.agent_rrm": ("AgentRRM",),
    "rrm.data.trajectory": ("Message", "Step", "ToolCall", "Trajectory"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'rrm' has no attribute {name!r}")
