"""Ways to answer a benchmark's questions (docs/tasks.md), and how a row of the table is named: `METHOD`, `METHOD@POLICY`, `LABEL=METHOD@POLICY`.

A method is a change of a config: a base config and a benchmark in, the config that plays it out, and which of its attempts count. It says
nothing of the policy: the same weights can be played by each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from reagent.tasks.base import Benchmark
from reagent.train.config import AgentConfig
from rrm.data.printing import nearest
from rrm.errors import ConfigError

Headline = Literal["initial", "refined", "chosen"]
Options = dict[str, Any]
ANSWER_LINE = "Think as long as the question needs, then write one line: Answer: <answer>"
"""How a turn without tools ends: what every format but those below reads as the answer."""
ANSWER_LINES = {"search_tags": "Think as long as the question needs, then answer: <answer>...</answer>"}
"""Format → the same, where its answers look otherwise and it needs no tools."""
OF_TOOLS = ("tools", "tool_options", "tool_prompt", "corpus", "files", "max_calls_per_turn")
"""Options that mean nothing without tools."""
SEARCHES = {"search": "k", "search_api": "k"}  # tools that find passages, and the option of each that says how many
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class NotApplicable(ConfigError):
    """A benchmark that a method cannot be played on; the message says why."""


@dataclass(frozen=True)
class MethodSettings:
    """What methods may be told."""

    passages: int = 5  # `naive_rag`: so many of the question's passages
    samples: int = 8  # `best_of_n`: attempts at each question
    temperature: float = 1.0  # `best_of_n`: they are sampled at


class Method:
    """A way to answer a benchmark's questions."""

    name: ClassVar[str]
    headline: ClassVar[Headline] = "initial"
    """Whose figures are the method's: first attempts, second ones, or those that the judge chooses."""
    asks_judge: ClassVar[bool] = False  # it cannot be played, or its figures not be had, without a judge

    def __init__(self, settings: MethodSettings | None = None) -> None:
        self.settings = settings or MethodSettings()

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        """Give `environment.options`, from those of the base config, or raise `NotApplicable`."""
        del benchmark
        return dict(options)

    def sections(self) -> dict[str, dict[str, Any]]:
        """Give what changes in the config's other sections."""
        return {}

    def configure(self, config: AgentConfig, benchmark: type[Benchmark]) -> AgentConfig:
        """Give the config that plays the method; turns and tokens that nobody has set are the benchmark's (`Benchmark.limits`)."""
        limits, given = benchmark.limits, config.rollout.model_fields_set
        own = dict(max_turns=limits.turns, max_new_tokens=limits.new_tokens, max_episode_tokens=limits.episode_tokens)
        tree = config.model_dump()
        tree["rollout"] |= {name: value for name, value in own.items() if name not in given}
        tree["environment"]["options"] = self.options(benchmark, config.environment.options)
        tree["feedback"]["mode"] = "none"
        for section, changes in self.sections().items():
            tree[section] |= changes
        return AgentConfig.model_validate(tree)


class Direct(Method):
    """One turn, no tools: words of its own replace the benchmark's on its tools, and the answer's form stays."""

    name = "direct"
    lead: ClassVar[str] = "Answer from what you know: no tool is at hand, and there is this one turn."
    """The first of the words to the agent."""

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        if benchmark.own_tools:
            raise NotApplicable(f"{benchmark.name}: each question brings its own tools, and {self.name} has none")
        kept = {name: value for name, value in options.items() if name not in OF_TOOLS}
        if kept.get("parser") == "react":  # it says nothing without tools
            del kept["parser"]
        if "parser" not in kept and benchmark.own_parser == "react":
            kept["parser"] = "hermes"
        lead = " ".join(filter(None, (self.lead, benchmark.form)))
        line = ANSWER_LINES.get(str(kept.get("parser", benchmark.own_parser)), ANSWER_LINE)
        return {"system": f"{lead}\n{line}", **kept, "tools": [], "max_turns": 1}

    def sections(self) -> dict[str, dict[str, Any]]:
        return {"rollout": {"max_turns": 1}}


class NaiveRag(Direct):
    """One search that nobody thought about, by the environment (`reagent.tasks.retrieval`), and an answer."""

    name = "naive_rag"
    lead = (
        "Answer from the passages that come with the question: no tool is at hand, and there is this one turn. Passages may have nothing "
        "to do with the question."
    )

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        given = options.get("tools")
        tool = next((each for each in (benchmark.wants if given is None else given) if each in SEARCHES), None)
        if tool is None:
            raise NotApplicable(f"{benchmark.name}: none of its tools searches passages to put in the prompt")
        own = {SEARCHES[tool]: self.settings.passages, **options.get("tool_options", {}).get(tool, {})}
        found = {**super().options(benchmark, options), "retrieve": tool, "tool_options": {tool: own}}
        return found | ({"corpus": options["corpus"]} if tool == "search" and "corpus" in options else {})


class ToolCall(Method):
    """The benchmark's tools, in the policy's own format (`environment.options.parser`)."""

    name = "tool_call"


class TrainedPolicy(ToolCall):
    """`policy@DIR`: the same with other weights, those that a training left in `policy/`."""

    name = "policy"


class React(Method):
    """The benchmark's tools, called in lines of Thought, Action and Action Input (Yao et al. 2023, arXiv 2210.03629)."""

    name = "react"

    def options(self, benchmark: type[Benchmark], options: Mapping[str, Any]) -> Options:
        # a chat template would describe the tools in the format of its own calls
        return {name: value for name, value in options.items() if name != "tool_prompt"} | {"parser": "react"}


class ReagentC(ToolCall):
    """A first attempt with tools, the judge's critique of it, and a second attempt (arXiv 2601.22154, §4), whose figures count."""

    name = "reagent_c"
    headline = "refined"
    asks_judge = True

    def sections(self) -> dict[str, dict[str, Any]]:
        return {"feedback": {"mode": "c", "refinement": "critique"}}


class BestOfN(ToolCall):
    """Several sampled attempts with tools, one chosen by the judge; beside its figures the majority's, a random one's and the best's."""

    name = "best_of_n"
    headline = "chosen"
    asks_judge = True

    def sections(self) -> dict[str, dict[str, Any]]:
        return {"eval": {"samples": self.settings.samples, "temperature": self.settings.temperature}}


METHODS: dict[str, type[Method]] = {
    method.name: method for method in (Direct, NaiveRag, ToolCall, React, ReagentC, TrainedPolicy, BestOfN)
}


@dataclass(frozen=True)
class Entry:
    """A row of the table."""

    label: str
    method: type[Method]
    policy: str | None  # in place of the table's own


def find_method(name: str) -> type[Method]:
    if name not in METHODS:
        near = nearest(name, METHODS)
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"no method {name!r}; there are {', '.join(METHODS)}{hint}")
    return METHODS[name]


def entries_of(given: Sequence[str]) -> list[Entry]:
    """Read the rows that are asked for, each `METHOD`, `METHOD@POLICY` or `LABEL=METHOD@POLICY`.

    Raises:
        ConfigError: no such method, `policy` without one, a label that is no name of a folder, or two of one label.
    """
    entries: list[Entry] = []
    for text in given:
        before, at, policy = text.partition("@")
        label, equals, name = before.rpartition("=")
        method = find_method(name)
        if at and not policy:
            raise ConfigError(f"{text!r}: after @ comes a policy, a directory or a hub id")
        if name == "policy" and not policy:
            raise ConfigError("the method policy plays a trained policy: write policy@runs/NAME/policy")
        label = label if equals else _label(name, policy)
        if not _LABEL.fullmatch(label):
            raise ConfigError(f"{text!r}: a label is of letters, digits, dots, dashes and underscores, not {label!r}")
        if any(entry.label == label for entry in entries):
            raise ConfigError(f"two methods are labelled {label!r}: write LABEL={name}{at}{policy} with another label")
        entries.append(Entry(label, method, policy or None))
    return entries


def _label(name: str, policy: str) -> str:
    """Of an entry that has none: the method, and the last telling part of the policy's path."""
    parts = [part for part in PurePath(policy).parts if part not in ("policy", "/", "runs")]
    return f"{name}-{re.sub('[^A-Za-z0-9._-]', '-', parts[-1])}" if parts else name
