"""What a method is: a base config and a benchmark in, the config that plays it out, and which of its attempts count.

A method says nothing of the policy: the same weights can be played by each of them. Subclasses are in files of their own
(`benchmarks.methods.registry`) and override `options` and `sections`, or only class attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from reagent.tasks.base import Benchmark
from reagent.train.config import AgentConfig
from rrm.errors import ConfigError

Headline = Literal["initial", "refined", "chosen"]
Options = dict[str, Any]
ANSWER_LINE = "Think as long as the question needs, then write one line: Answer: <answer>"
"""How a turn without tools ends: what every format but those below reads as the answer."""
ANSWER_LINES = {"search_tags": "Think as long as the question needs, then answer: <answer>...</answer>"}
"""Format → the same, where its answers look otherwise and it needs no tools."""
OF_TOOLS_ALONE = ("react",)
"""Formats that say nothing without tools: the usual line is asked for."""
OF_TOOLS = ("tools", "tool_options", "tool_prompt", "corpus", "files", "max_calls_per_turn")
"""Options that mean nothing without tools."""


class NotApplicable(ConfigError):
    """A benchmark that a method cannot be played on; the message says why."""


@dataclass(frozen=True)
class MethodSettings:
    """What methods may be told."""

    passages: int = 5
    """`naive_rag`: so many of the question's passages."""
    samples: int = 8
    """`best_of_n`: attempts at each question."""
    temperature: float = 1.0
    """`best_of_n`: they are sampled at."""


class Method:
    """A way to answer a benchmark's questions."""

    name: ClassVar[str]
    says: ClassVar[str]
    """What it does, in a line."""
    headline: ClassVar[Headline] = "initial"
    """Whose figures are the method's: first attempts, second ones, or those that the judge chooses."""
    asks_judge: ClassVar[bool] = False
    """It cannot be played, or its figures not be had, without a judge."""

    def __init__(self, settings: MethodSettings | None = None) -> None:
        self.settings = settings or MethodSettings()

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        """`environment.options`, from those of the base config.

        Raises:
            NotApplicable: the benchmark cannot be played this way.
        """
        del benchmark
        return dict(options)

    def sections(self, config: AgentConfig) -> dict[str, dict[str, Any]]:
        """What changes in the config's other sections."""
        del config
        return {}

    def configure(self, config: AgentConfig, benchmark: type[Benchmark]) -> AgentConfig:
        """The config that plays the method.

        Turns and tokens of the base config's `rollout` that nobody has set are the benchmark's (`Benchmark.limits`).

        Raises:
            NotApplicable: as `options`; ConfigError: the base config forbids it.
        """
        limits, said = benchmark.limits, config.rollout.model_fields_set
        own = {
            "max_turns": limits.turns,
            "max_new_tokens": limits.new_tokens,
            "max_episode_tokens": limits.episode_tokens,
        }
        tree = config.model_dump()
        tree["rollout"] |= {name: value for name, value in own.items() if name not in said}
        tree["environment"]["options"] = self.options(benchmark, config.environment.options)
        tree["feedback"]["mode"] = "none"
        for section, changes in self.sections(config).items():
            tree[section] |= changes
        return AgentConfig.model_validate(tree)


class OneTurn(Method):
    """One turn, without tools. What the agent is told replaces the benchmark's words on its tools; the answer's form stays."""

    lead: ClassVar[str]
    """The first of the words to the agent."""

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        if benchmark.own_tools:
            raise NotApplicable(f"{benchmark.name}: each question brings its own tools, and {self.name} has none")
        kept = {name: value for name, value in options.items() if name not in OF_TOOLS}
        if kept.get("parser") in OF_TOOLS_ALONE:
            del kept["parser"]
        if "parser" not in kept and benchmark.own_parser in OF_TOOLS_ALONE:
            kept["parser"] = "hermes"
        told = " ".join(filter(None, (self.lead, benchmark.form)))
        line = ANSWER_LINES.get(str(kept.get("parser", benchmark.own_parser)), ANSWER_LINE)
        return {"system": f"{told}\n{line}", **kept, "tools": [], "max_turns": 1}

    def sections(self, config: AgentConfig) -> dict[str, dict[str, Any]]:
        return {"rollout": {"max_turns": 1}}
