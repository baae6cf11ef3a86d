"""Environments: they parse an agent's turn, run its calls, reward them, and grade the answer.

Subclass `ToolEnv` for your own (docs/mdp.md shows one in under 40 lines)."""

import asyncio
import inspect
import json
import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from reagent.env.graders import REFERENCE_GRADERS, Grader, exact_match, f1
from reagent.env.parsers import MalformedCall, ParsedTurn, Parser, family_of, make_parser
from reagent.env.parsers.base import made_up_at
from reagent.env.parsers.near_calls import example_call, near_call, tool_meant
from reagent.env.rewards import RewardWeights, Verdict, as_weights
from reagent.env.task import Task
from reagent.env.tool import EMPTY, HOW, Tool, ToolResult, by_name, declared_tools, undeclared_tools
from reagent.errors import GradeFailed, GradeUnknown, ToolError
from rrm.data.trajectory import ToolCall
from rrm.engines.base import StopReason
from rrm.errors import ConfigError, RRMError
from rrm.prompt.neutralise import neutralise_control

logger = logging.getLogger(__name__)

ToolPrompt = Literal["auto", "schema", "brief", "template"]

SAME_ERROR = 4
"""Turns with the same error, at which the episode ends."""
_SHOWN = ("malformed_call", "unknown_tool", "bad_arguments")  # errors that a correct call is shown for
_CUT = "the turn was cut at its token limit: nothing in it was run, and it is no answer; write a shorter turn"

_FAILED: dict[str, Any] = {"grade": 0.0, "success": False}
_UNGRADED: dict[str, Any] = {"grade": None, "success": None}


@dataclass(frozen=True)
class StepResult:
    """The result of one turn."""

    message: dict[str, Any]  # the parsed turn as an OpenAI assistant message
    observations: list[dict[str, Any]]
    """Chat messages for the agent, with `name`, `tool_call_id`, `timestamp` (ISO 8601, UTC), `duration_s`."""
    reward: float
    outcome_reward: float | None
    """Set when an answer or the turn limit ends the episode; None there: the task is ungraded."""
    terminated: bool
    truncated: bool  # the turn limit was reached, or `SAME_ERROR`. Token limits are the rollout's.
    info: dict[str, Any] = field(default_factory=dict)
    """`tool_calls` (well-formed), `malformed`, `tool_errors` ([{tool, kind, message}]), `verdicts`,
    `cut_chars`, `denied`, perhaps `invented_results`; at the end `answer`, `grade`, `success` (None where ungraded), `grader_error`."""


class Environment(Protocol):
    """The interface a rollout needs. One instance plays one episode at a time.
    Optional: `stop` (texts that end a turn), `template_tools` (the chat template's tools; `tools` where absent, none where None),
    `made_up_at(text)` (where a turn begins to make up results), `is_graded(task)`, and `fit_prompt(messages, tokens, room)`, which shortens
    what `reset` returned to `room` tokens, counted by `tokens(messages)`. Without `stop_reason` in `step`, a turn cut at its token limit ends
    the episode without an answer."""

    @property
    def tools(self) -> list[dict[str, Any]]: ...

    def reset(self, task: Task) -> list[dict[str, Any]]:
        """Set up the task and return the messages an episode begins with (system, user)."""
        ...

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        """Take the agent's decoded turn, without its end-of-turn token. Raises nothing that the agent did.
        `stop_reason` of `length`: the turn was cut, and is no answer."""
        ...

    async def close(self) -> None: ...


EnvFactory = Callable[[], Environment]


def takes_stop_reason(env: Environment) -> bool:
    parameters = inspect.signature(env.step).parameters
    return "stop_reason" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@dataclass(frozen=True)
class _Outcome:
    call: ToolCall | MalformedCall
    result: ToolResult
    name: str


def _error_key(outcome: _Outcome) -> str:
    """The same for one mistake of the agent's, and for one call on which a tool fails."""
    call = "" if _by_agent(outcome) or isinstance(outcome.call, MalformedCall) else outcome.call.arguments_text()
    return outcome.result.content + call


def _by_agent(outcome: _Outcome) -> bool:
    error = outcome.result.error
    return isinstance(outcome.call, MalformedCall) or (error is not None and error.agents_fault)


class ToolEnv:
    """The standard environment: tools, a parser, process rewards, a grader.

    Subclasses declare tools as methods with `@tool` and may set the class attributes or override `begin`, `instructions`, `question`,
    `is_useful`, `grade` and `is_graded`.

    Args:
        tools: further tools beside the class's own.
        parser: name of a tool-call format (reagent.env.parsers), or a parser. None: `hermes`, or with `tool_prompt="auto"` the format of the
            chat template.
        rewards: weights, or a mapping with some of them.
        max_turns: after this many turns an episode is truncated.
        max_calls_per_turn: calls beyond it are not run.
        tool_prompt: where the tools are described: `schema` or `brief` in the system message, `template` by the tokenizer's chat template;
            `auto`: by the template where it lists tools in a known format (`adopt_template`), else `schema`.
        grader: overrides the class's.
        failure_reward: outcome of an answer that its own grader fails on.

    Raises:
        ConfigError: an unknown format or reward weight.
        RRMError: a tool without a usable docstring, or two of one name.
    """

    system: ClassVar[str] = ""  # the system message; the tools' description follows it
    grader: Grader = staticmethod(exact_match)
    success_at: float = 1.0  # the grade from which an answer is a success
    metrics: ClassVar[Mapping[str, Grader]] = MappingProxyType({"exact_match": exact_match, "f1": f1})
    """Metrics that an evaluation reports beside success, over tasks with a reference."""
    forgiving: ClassVar[bool] = True  # read what is nearly a call as one, and answer a malformed call with an example
    slow_grader: ClassVar[bool] = False
    """Grading asks a server or another process: it runs in a thread, so that other episodes go on."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "told" in vars(cls):  # as version 0.1 called it
            warnings.warn(f"{cls.__name__}.told is called `instructions` now", DeprecationWarning, stacklevel=2)
            cls.instructions = vars(cls)["told"]

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        parser: str | Parser | None = None,
        rewards: RewardWeights | Mapping[str, Any] | None = None,
        max_turns: int = 8,
        max_calls_per_turn: int = 8,
        tool_prompt: ToolPrompt = "auto",
        grader: Grader | None = None,
        failure_reward: float = 0.0,
    ) -> None:
        if max_turns < 1 or max_calls_per_turn < 1:
            raise ConfigError(
                f"max_turns and max_calls_per_turn must be at least 1, got {max_turns}, {max_calls_per_turn}"
            )
        self._tools = by_name([*declared_tools(self), *tools])
        if not self._tools and (methods := undeclared_tools(self)):
            names = ", ".join(methods)
            raise RRMError(f"{type(self).__name__} has no tool. If {names} is one (else call it _{methods[0]}): {HOW}")
        self.tools: list[dict[str, Any]] = [t.schema for t in self._tools.values()]
        self._named = parser
        self.parser = (
            make_parser(parser or "hermes", self.tools) if parser is None or isinstance(parser, str) else parser
        )
        self.rewards, self.failure_reward = as_weights(rewards), failure_reward
        self.max_turns, self.max_calls_per_turn, self.tool_prompt = max_turns, max_calls_per_turn, tool_prompt
        if grader is not None:
            self.grader = grader
        self.task: Task | None = None
        self._graded = True
        self._by_template = False
        self._turn = self._calls = self._paid = self._charged = 0
        self._done: set[str] = set()
        self._errors = Counter[str]()

    @property
    def stop(self) -> tuple[str, ...]:
        return self.parser.stop

    @property
    def template_tools(self) -> list[dict[str, Any]] | None:
        """The tools for the chat template; None where the system message describes them."""
        return self.tools if self.tool_prompt == "template" or self._by_template else None

    def adopt_template(self, chat_template: Any) -> None:
        """Settle `tool_prompt: auto` by a tokenizer's chat template. A rollout calls this before `reset`."""
        if self.tool_prompt != "auto":
            return
        family = family_of(chat_template) if isinstance(chat_template, str) else None
        self._by_template = family is not None and self._named in (None, family)
        if family is not None and self._named is None:
            self.parser = make_parser(family, self.tools)

    @property
    def unanswered_reward(self) -> float:
        return self.rewards.unanswered

    def is_final(self, text: str) -> bool:
        """Tell whether a turn would be graded as an answer, without running a tool."""
        return self._parsed(text).answer is not None

    def made_up_at(self, text: str) -> int | None:
        """The character at which a turn begins to make up results, and is cut; None: it makes up none."""
        return made_up_at(text, self.parser)

    # ---- what a subclass may say ---------------------------------------------------------------------------------------

    def begin(self, task: Task) -> None: ...

    def instructions(self) -> str:
        """The system message, before the tools' description."""
        return self.system

    def question(self, task: Task) -> str:
        return task.question

    def is_useful(self, call: ToolCall, result: ToolResult) -> bool:
        """Tell whether a call that ran gave the agent something."""
        return result.content != EMPTY

    def grade(self, task: Task, answer: str) -> float:
        """Grade the answer in [0, 1]; called for tasks that `is_graded`.
        An answer on which it raises, or gives no finite number, has grade 0 and earns `failure_reward`. Where it does so on the task's own
        answer too (without one: on plain answers), or raises `GradeUnknown`, the episode ends as `env_error`. `GradeFailed`: the answer is at
        fault, and has no grade."""
        return self.grader(task, answer)

    def is_graded(self, task: Task) -> bool:
        """Tell whether the task's episodes are graded, however they end: a group is graded as a whole.
        A task without an answer is not graded by a grader that compares with it; a grader of your own is taken to need none."""
        own = type(self).grade is not ToolEnv.grade or self.grader not in REFERENCE_GRADERS
        return task.graded and (own or task.answer is not None)

    def check_task(self, task: Task) -> None:
        """Grade a task's own answer before it is played. Raises ValueError: the grader cannot compare with it."""
        if self.is_graded(task) and type(self).grade is ToolEnv.grade and self.grader in REFERENCE_GRADERS:
            self._grade(task, task.answer or "")

    # ---- the contract --------------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> list[dict[str, Any]]:
        """Begin an episode: returns the system message, if there is one, and the question."""
        self.task, self._turn, self._calls, self._paid, self._charged, self._done = task, 0, 0, 0, 0, set()
        self._errors = Counter[str]()
        self._graded = self.is_graded(task)
        self.begin(task)
        parts = [instructions] if (instructions := self.instructions()) else []
        if self.tools and self._by_template:
            parts.append(self.parser.answering)
        elif self.tools and self.tool_prompt != "template":
            parts.append(self.parser.instructions(self.tools, self.tool_prompt == "brief"))
        system = [{"role": "system", "content": "\n".join(parts)}] if parts else []
        return [*system, {"role": "user", "content": self.question(task)}]

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        """Parse the turn and run its calls at the same time, or grade the answer.
        A result that the turn makes up and all that follows are not read (`invented_results` in `info`). Nothing of a turn that was cut
        (`stop_reason` of `length`) is run or graded. Raises RRMError: there is no episode, or it is over; GradeUnknown."""
        if self.task is None:
            raise RRMError("step without an episode: call reset(task) first, and again after an episode's end")
        made_up = self.made_up_at(text)
        if made_up is not None:
            text, stop_reason = text[:made_up].rstrip(), "stop"
        cut = stop_reason == "length"
        turn = ParsedTurn(None, text, [MalformedCall("", _CUT)], None) if cut else self._parsed(text)
        self._turn += 1
        ids = [f"call_{self._calls + i}" for i in range(1, len(turn.calls) + 1)]
        self._calls += len(ids)
        message = _message(turn, ids)
        if turn.answer is not None and self.slow_grader:
            return await asyncio.to_thread(self._finish, self.task, message, turn.answer)
        if turn.answer is not None:
            return self._finish(self.task, message, turn.answer)
        if cut:
            results = [_refused(ToolError(_CUT, "cut_turn"))]
        else:
            results = await asyncio.gather(*(self._run(call, i) for i, call in enumerate(turn.calls)))
        outcomes = [_Outcome(c, r, c.name or "call") for c, r in zip(turn.calls, results, strict=True)]
        verdicts: list[Verdict] = [self._judge(outcome) for outcome in outcomes]
        reward = self._pay(verdicts)
        self._errors.update({_error_key(o) for o in outcomes if self.forgiving and o.result.error is not None})
        truncated = self._turn >= self.max_turns or max(self._errors.values(), default=0) >= SAME_ERROR
        info = _info(outcomes, verdicts) | ({} if made_up is None else {"invented_results": 1})
        if truncated:
            self.task = None
            info |= {"answer": None} | (_FAILED if self._graded else _UNGRADED)
        observations = [self._observe(outcome, i) for outcome, i in zip(outcomes, ids, strict=True)]
        outcome_reward = self.rewards.unanswered if truncated and self._graded else None
        return StepResult(message, observations, reward, outcome_reward, False, truncated, info)

    async def close(self) -> None:
        self.task = None

    # ---- how ------------------------------------------------------------------------------------------------------------

    def _parsed(self, text: str) -> ParsedTurn:
        turn = self.parser.parse(text)
        if not self.forgiving:
            return turn
        if turn.answer is not None:
            near = near_call(turn.answer, self.tools)
            before = turn.content.rpartition(turn.answer)[0].rstrip().removesuffix("Answer:").rstrip()
            return turn if near is None else replace(turn, content=before, calls=[near], answer=None)
        calls: list[ToolCall | MalformedCall] = [
            (near_call(call.text, self.tools) or call)
            if isinstance(call, MalformedCall)
            else call.model_copy(update={"name": tool_meant(call.name, self._tools)})
            for call in turn.calls
        ]
        return replace(turn, calls=calls)

    def _example(self, outcome: _Outcome) -> str:
        """Text with a correct call, for a call that the agent got wrong; empty where there is none to show."""
        call, error = outcome.call, outcome.result.error
        if not self.forgiving or not self._tools or error is None or error.kind not in _SHOWN:
            return ""
        tool = self._tools.get(call.name or "") or next(iter(self._tools.values()))
        written = call.text if isinstance(call, MalformedCall) else json.dumps(call.arguments)
        example = self.parser.render_call(example_call(tool.schema, written))
        # control tokens are disarmed in a prompt: what would be shown of them is no call
        return f". For example: {example}" if neutralise_control(example) == example else ""

    def _finish(self, task: Task, message: dict[str, Any], answer: str) -> StepResult:
        if not self._graded:
            self.task = None
            return StepResult(message, [], 0.0, None, True, False, _info([], []) | {"answer": answer} | _UNGRADED)
        info = _info([], []) | {"answer": answer}
        try:
            grade = self._grade(task, answer)
        except Exception as problem:  # a grader may raise anything, and an answer may be written to make it
            if isinstance(problem, GradeUnknown) and not isinstance(problem, GradeFailed):
                raise
            failed = _UNGRADED
            if not isinstance(problem, GradeFailed):
                self._try_grader(task)
                failed = _FAILED
            reason = f"{type(problem).__name__}: {problem}"[:500]
            _grader_failed(type(self).__name__, type(problem).__name__, reason)
            reward, info = self.failure_reward, info | failed | {"grader_error": reason}
        else:
            reward, info = self.rewards.outcome * grade, info | {"grade": grade, "success": grade >= self.success_at}
        self.task = None
        return StepResult(message, [], 0.0, reward, True, False, info)

    def _try_grader(self, task: Task) -> None:
        """Grade the reference answer, or plain answers. Raises what the grader raises on all of them."""
        tried = (task.answer,) if task.answer is not None else ("", "0", "yes")
        for answer in tried:
            try:
                self._grade(task, answer)
                return
            except Exception:
                if answer == tried[-1]:
                    raise

    def _grade(self, task: Task, answer: str) -> float:
        grade = float(self.grade(task, answer))
        if not math.isfinite(grade):
            raise ValueError(f"the grader gave {grade} for task {task.id!r}; a grade is a number in [0, 1]")
        return grade

    async def _run(self, call: ToolCall | MalformedCall, position: int) -> ToolResult:
        if isinstance(call, MalformedCall):
            unknown = f"{self._no_tool(call.name)}. " if call.name and call.name not in self._tools else ""
            return _refused(ToolError(unknown * self.forgiving + call.reason, "malformed_call"))
        if position >= self.max_calls_per_turn:
            return _refused(ToolError(f"not run: at most {self.max_calls_per_turn} calls a turn", "too_many_calls"))
        tool = self._tools.get(call.name)
        if tool is None:
            return _refused(ToolError(self._no_tool(call.name), "unknown_tool"))
        if isinstance(call.arguments, str):
            return _refused(ToolError(f"bad arguments for {call.name}: not a JSON object", "bad_arguments"))
        return await tool.call(call.arguments)

    def _no_tool(self, name: str) -> str:
        return f"there is no tool {name[:64]!r}; there are: {', '.join(self._tools)}"

    def _judge(self, outcome: _Outcome) -> Verdict:
        call, error = outcome.call, outcome.result.error
        if isinstance(call, MalformedCall) or _by_agent(outcome):
            return "malformed"
        if error is not None:
            return "failed"
        key = f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
        if key in self._done:
            return "repeated"
        self._done.add(key)
        return "useful" if self.is_useful(call, outcome.result) else "useless"

    def _pay(self, verdicts: Sequence[Verdict]) -> float:
        weights, useful = self.rewards, verdicts.count("useful")
        left = useful if weights.max_useful is None else min(useful, max(weights.max_useful - self._paid, 0))
        self._paid += useful
        reward = left * weights.useful
        reward += sum(getattr(weights, v) for v in verdicts if v not in ("useful", "malformed"))
        if "malformed" in verdicts:
            self._charged += 1
            reward += weights.malformed * (weights.max_malformed is None or self._charged <= weights.max_malformed)
        return reward

    def _observe(self, outcome: _Outcome, call_id: str) -> dict[str, Any]:
        result = outcome.result
        own_words = result.error is not None and result.error.kind in ("malformed_call", "cut_turn")
        content = result.content if own_words else neutralise_control(result.content, self.parser.tags)
        content += self._example(outcome)
        if isinstance(outcome.call, MalformedCall) and not outcome.call.text:
            message: dict[str, Any] = {"role": "user", "content": content}
        else:
            message = self.parser.observation(content, neutralise_control(outcome.name, self.parser.tags), call_id)
        started = datetime.fromtimestamp(result.started, UTC).isoformat(timespec="milliseconds")
        return message | {"timestamp": started, "duration_s": round(result.duration_s, 6)}


_GRADERS_THAT_FAILED: set[tuple[str, str]] = set()


def _grader_failed(environment: str, error_type: str, problem: str) -> None:
    if (environment, error_type) in _GRADERS_THAT_FAILED:
        return
    _GRADERS_THAT_FAILED.add((environment, error_type))
    logger.warning(
        "%s: the grader raised on an answer, which earns `failure_reward` (`grader_error` in the turn's info; said once): %s",
        environment, problem,
    )  # fmt: skip


def _refused(error: ToolError) -> ToolResult:
    return ToolResult(f"Error: {error}", error, datetime.now(UTC).timestamp(), 0.0)


def _message(turn: ParsedTurn, ids: Sequence[str]) -> dict[str, Any]:
    """The turn as an OpenAI message. A malformed call keeps its text as the arguments: it is evidence."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.content}
    if turn.reasoning is not None:
        message["reasoning_content"] = turn.reasoning
    calls = []
    for call, call_id in zip(turn.calls, ids, strict=True):
        if isinstance(call, MalformedCall):
            if not call.text:
                continue
            function = {"name": call.name or "malformed", "arguments": call.text}
        else:
            function = {"name": call.name, "arguments": call.arguments_text()}
        calls.append({"id": call_id, "type": "function", "function": function})
    return message | ({"tool_calls": calls} if calls else {})


def _info(outcomes: Sequence[_Outcome], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    errors = [
        {"tool": o.name, "kind": o.result.error.kind, "message": str(o.result.error)}
        for o in outcomes
        if o.result.error
    ]
    return {
        "tool_calls": sum(isinstance(o.call, ToolCall) for o in outcomes),
        "malformed": sum(v == "malformed" for v in verdicts),
        "tool_errors": errors,
        "verdicts": list(verdicts),
        "cut_chars": sum(o.result.cut_chars for o in outcomes),
        "denied": sum(o.result.denied for o in outcomes),
    }
