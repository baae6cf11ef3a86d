"""What can go wrong with a tool call. Each kind comes back to the agent as an observation; none of them ends an episode."""

from rrm.errors import RRMError


class ToolDefinitionError(RRMError):
    """A function that cannot be a tool: a missing docstring or type, or arguments that have no name."""


class EnvironmentMisuse(RRMError):
    """A caller broke an environment's contract, e.g. a step after the episode had ended."""


class GradeUnknown(RRMError):
    """Nobody can say what an answer is worth, for the grader itself failed: a judge that could not be asked or not be read. Raised by
    a grader, it ends the episode with an unknown outcome, never with a grade."""


class GradeFailed(GradeUnknown):
    """The answer itself keeps it from being graded: the episode earns `environment.failure_reward`, and its success stays unknown."""


AGENTS_FAULT = {"bad_arguments", "unknown_tool", "malformed_call", "cut_turn", "too_many_calls"}
"""Kinds of errors that the agent could have avoided; such a call counts as malformed."""


class ToolError(RRMError):
    """A call that brought no result. Raise it inside a tool to tell the agent what went wrong, in your own words.

    Args:
        kind: its name in `StepResult.info["tool_errors"]`; docs/tools.md says which there are.
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
        """Whether the agent could have avoided it."""
        return self.kind in AGENTS_FAULT


_GONE = "ToolTimeout ToolBusy ToolRaised BadResult BadArguments UnknownTool MalformedCallError TurnCut TooManyCalls"


def __getattr__(name: str) -> type:
    if name in _GONE.split():
        raise ImportError(f"reagent.errors.{name} is gone: raise ToolError(text, kind), and look at an error's `kind`")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
