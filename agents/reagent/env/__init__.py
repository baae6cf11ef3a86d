"""Tasks, tools, environments, parsers and graders."""

from reagent.env.env import EnvFactory, Environment, StepResult, ToolEnv
from reagent.env.rewards import RewardWeights
from reagent.env.task import Task, read_tasks
from reagent.env.tool import EMPTY, Tool, ToolResult, tool

__all__ = [
    "EMPTY",
    "EnvFactory",
    "Environment",
    "RewardWeights",
    "StepResult",
    "Task",
    "Tool",
    "ToolEnv",
    "ToolResult",
    "read_tasks",
    "tool",
]
