"""Errors of tool calls and graders. A tool's error is an observation and ends no episode."""

from rrm.errors import RRMError


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


_GONE = {
    "ToolTimeout ToolBusy ToolRaised BadResult BadArguments UnknownTool MalformedCallError TurnCut TooManyCalls": (
        "raise ToolError(text, kind), and look at an error's `kind`"
    ),
    "ToolDefinitionError EnvironmentMisuse": "catch rrm.errors.RRMError",
}


def __getattr__(name: str) -> type:
    for names, instead in _GONE.items():
        if name in names.split():
            raise ImportError(f"reagent.errors.{name} is gone: {instead}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
