"""What can go wrong with a tool call. Each kind comes back to the agent as an observation; none of them ends an episode."""

from __future__ import annotations

from typing import ClassVar

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


class ToolError(RRMError):
    """A call that brought no result. Raise it inside a tool to tell the agent what went wrong, in your own words."""

    kind: ClassVar[str] = "failed"
    """Name of the kind in `StepResult.info["tool_errors"]`."""
    agents_fault: ClassVar[bool] = False
    """Whether the agent could have avoided it; such a call counts as malformed."""
    shown_chars: ClassVar[int] = 300
    """How much of its text the agent reads."""
    denied: ClassVar[int] = 0
    """Pages that were kept from the agent, counted in `StepResult.info["denied"]`."""


class ToolTimeout(ToolError):
    """The tool did not answer within its time-out. Its late answer is thrown away."""

    kind = "timeout"


class ToolBusy(ToolError):
    """No slot came free: as many calls as the tool allows at once are still running."""

    kind = "busy"


class ToolRaised(ToolError):
    """The tool raised an exception."""

    kind = "raised"


class BadResult(ToolError):
    """The tool returned something that is neither text nor JSON."""

    kind = "bad_result"


class BadArguments(ToolError):
    """Arguments that the tool does not take."""

    kind = "bad_arguments"
    agents_fault = True


class UnknownTool(ToolError):
    """A call of a tool that does not exist."""

    kind = "unknown_tool"
    agents_fault = True


class MalformedCallError(ToolError):
    """Text that was meant as a call and is none."""

    kind = "malformed_call"
    agents_fault = True


class TurnCut(MalformedCallError):
    """A turn that reached its token limit: nobody can say what its end would have been."""

    kind = "cut_turn"


class TooManyCalls(ToolError):
    """More calls in one turn than the environment allows."""

    kind = "too_many_calls"
    agents_fault = True
