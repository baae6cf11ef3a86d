"""Errors of tool calls and graders. A tool's error is an observation and ends no episode."""

from rrm.errors import RRMError


class ToolDefinitionError(RRMError):
    """A function that cannot be a tool: no docstring or type, or arguments without a name."""


class EnvironmentMisuse(RRMError):
    """A caller broke an environment's contract, e.g. a step after the episode had ended."""


class GradeUnknown(RRMError):
    """The grader itself failed: the episode ends with an unknown outcome."""


class GradeFailed(GradeUnknown):
    """The answer keeps itself from being graded: `environment.failure_reward`, success unknown."""


AGENTS_FAULT = {"bad_arguments", "unknown_tool", "malformed_call", "cut_turn", "too_many_calls"}
"""Errors that the agent could have avoided; such a call counts as malformed."""


class ToolError(RRMError):
    """A call that brought no result. Raise it inside a tool to tell the agent its mistake.

    Args:
        kind: its name in `StepResult.info["tool_errors"]` (docs/tools.md).
        shown_chars: how much of its text the agent reads.
        denied: pages that were kept from the agent, counted in `StepResult.info["denied"]`.
    """

    kind = "failed"
    shown_chars = 300

    def __init__(self, text: str = "", kind: str = "", *, shown_chars: int = 0, denied: int = 0) -> None:
        super().__init__(text)
        self.kind, self.shown_chars, self.denied = kind or self.kind, shown_chars or self.shown_chars, denied

    @property
    def agents_fault(self) -> bool:
        return self.kind in AGENTS_FAULT


_GONE = "ToolTimeout ToolBusy ToolRaised BadResult BadArguments UnknownTool MalformedCallError TurnCut TooManyCalls"


def __getattr__(name: str) -> type:
    if name in _GONE.split():
        raise ImportError(f"reagent.errors.{name} is gone: raise ToolError(text, kind), and look at an error's `kind`")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
