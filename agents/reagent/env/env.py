"""Environments: what the agent sees, what a step is worth, and when it ends.

A tool does the action; the environment parses the agent's turn, runs its calls at the same time, rewards the turn, and
grades the answer. Subclass `ToolEnv` for your own (docs/mdp.md shows one in under 40 lines).
"""

import asyncio
import inspect
import json
import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from reagent.env.graders import REFERENCE_GRADERS, Grader, exact_match, f1
from reagent.env.parsers import MalformedCall, ParsedTurn, Parser, family_of, make_parser
from reagent.env.parsers.base import made_up_at
from reagent.env.parsers.near_calls import example_call, near_call
from reagent.env.rewards import RewardWeights, Verdict, as_weights
from reagent.env.task import Task
from reagent.env.tool import EMPTY, Tool, ToolResult, by_name, declared_tools
from reagent.errors import EnvironmentMisuse, GradeFailed, GradeUnknown, ToolError
from rrm.data.trajectory import ToolCall
from rrm.engines.base import StopReason
from rrm.errors import ConfigError
from rrm.prompt.neutralise import neutralise_control

logger = logging.getLogger(__name__)

ToolPrompt = Literal["auto", "schema", "brief", "template"]

_CUT = "the turn was cut at its token limit: nothing in it was run, and it is no answer; write a shorter turn"

_FAILED: dict[str, Any] = {"grade": 0.0, "success": False}
_UNGRADED: dict[str, Any] = {"grade": None, "success": None}


@dataclass(frozen=True)
class StepResult:
    """What one turn led to."""

    message: dict[str, Any]
    """The turn as an OpenAI assistant message, as the parser understood it."""
    observations: list[dict[str, Any]]
    """What the agent reads next: chat messages with `name`, `tool_call_id`, `timestamp` (ISO 8601, UTC), `duration_s`."""
    reward: float
    """The turn's process reward."""
    outcome_reward: float | None
    """Set once the episode is over by the environment's own doing (an answer, or the turn limit), else None. None at the
    end: nobody can grade it (`ungraded`), as the task has no answer key."""
    terminated: bool
    truncated: bool
    """The turn limit was reached. Token limits are the rollout's."""
    info: dict[str, Any] = field(default_factory=dict)
    """`tool_calls` (well-formed ones), `malformed`, `tool_errors` ([{tool, kind, message}]), `verdicts` (one a call),
    `cut_chars`, `invented_results` where the turn made one up, `denied` (pages and results kept from the agent), and at the end `answer`, `grade`, `success` (the last two None where nobody can grade), and `grader_error`
    where the grader raised."""


class Environment(Protocol):
    """What a rollout needs of an environment. One instance plays one episode at a time.

    It may also have `stop` (texts that end a turn) and `template_tools` (what the chat template is given as its tools:
    `tools` where the attribute is absent, nothing where it is None), `made_up_at(text)` (where a turn begins to make up results),
    `is_graded(task)`, as `ToolEnv` has it, where some
    tasks have no answer key, and `fit_prompt(messages, tokens, room)`, where what `reset` returned can be made shorter:
    `tokens(messages)` says how many tokens they take, and `room` are there.

    `step` may leave out `stop_reason`: a turn cut at its token limit then ends the episode without an answer, unseen by
    the environment.
    """

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools' JSON schemas, OpenAI form."""
        ...

    def reset(self, task: Task) -> list[dict[str, Any]]:
        """Set up the task and return the messages an episode begins with (system, user)."""
        ...

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        """Take the agent's decoded turn, without its end-of-turn token. Raises nothing that the agent did. `stop_reason`: why the turn
        ended; one of `length` was cut, and is no answer."""
        ...

    async def close(self) -> None:
        """Give up what the environment holds."""
        ...


EnvFactory = Callable[[], Environment]


def takes_stop_reason(env: Environment) -> bool:
    """Whether its `step` can be told why a turn ended."""
    parameters = inspect.signature(env.step).parameters
    return "stop_reason" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


@dataclass(frozen=True)
class _Outcome:
    """One call and how it ended."""

    call: ToolCall | MalformedCall
    result: ToolResult
    name: str


class ToolEnv:
    """The standard environment: tools, a parser, process rewards, a grader.

    Subclasses declare tools as methods with `@tool` and may set the class attributes or override `begin`, `instructions`,
    `question`,
    `is_useful`, `grade` and `is_graded`.

    Args:
        tools: further tools beside the class's own.
        parser: name of a tool-call format (reagent.env.parsers), or a parser. None: the family's, where `tool_prompt` is `auto`
            and the chat template shows which, else `hermes`.
        rewards: weights, or a mapping with some of them.
        max_turns: after this many turns an episode is truncated.
        max_calls_per_turn: calls beyond it are not run.
        tool_prompt: where the tools are described: `schema` or `brief` in the system message, `template` by the
            tokenizer's chat template, which then is to be given `template_tools`; `auto`: by the template where it lists tools in a
            format that is known here (`adopt_template`), else as `schema`.
        grader: overrides the class's.
        failure_reward: outcome of an answer that its own grader fails on.

    Raises:
        ConfigError: an unknown format or reward weight.
        ToolDefinitionError: a tool without a usable docstring, or two of one name.
    """

    system: ClassVar[str] = ""
    """The system message; the tools' description follows it."""
    grader: Grader = staticmethod(exact_match)
    success_at: float = 1.0
    """Grade from which an answer counts as a success."""
    metrics: ClassVar[Mapping[str, Grader]] = MappingProxyType({"exact_match": exact_match, "f1": f1})
    """What an evaluation reports beside success, over tasks with a reference."""
    forgiving: ClassVar[bool] = True
    """Whether what is nearly a call is read as one, and a malformed call is answered with an example."""
    slow_grader: ClassVar[bool] = False
    """Whether grading asks a server or another process: it then has a thread of its own, so that other episodes go on."""

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
        """Whether `auto` leaves the tools' description to the chat template."""
        self._turn = self._calls = self._paid = self._charged = 0
        self._done: set[str] = set()

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a turn, for the sampler."""
        return self.parser.stop

    @property
    def template_tools(self) -> list[dict[str, Any]] | None:
        """What the chat template is to be given as its tools; None where the system message describes them."""
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
        """Outcome of an episode that a limit ended, for a rollout whose own limit that is."""
        return self.rewards.unanswered

    def is_final(self, text: str) -> bool:
        """Whether a turn would be graded as an answer, without running a tool."""
        return self._parsed(text).answer is not None

    def made_up_at(self, text: str) -> int | None:
        """Find the character at which a turn begins to make up results; the turn is taken to end there. None: it makes up none."""
        return made_up_at(text, self.parser)

    # ---- what a subclass may say ---------------------------------------------------------------------------------------

    def begin(self, task: Task) -> None:
        """Set up the task's own state."""

    def instructions(self) -> str:
        """The system message, before the tools' description."""
        return self.system

    def question(self, task: Task) -> str:
        """The first user message."""
        return task.question

    def is_useful(self, call: ToolCall, result: ToolResult) -> bool:
        """Whether a call that ran gave the agent something."""
        return result.content != EMPTY

    def grade(self, task: Task, answer: str) -> float:
        """The answer's grade in [0, 1]; asked for where `is_graded` says so.

        An answer on which it raises, or gives no finite number, has grade 0 and earns `failure_reward`; where it does so on the
        task's own answer as well (without one: on an empty answer), the task or the grader is at fault, and the episode ends as
        `env_error`; so it does where it raises `GradeUnknown`. `GradeFailed`: the answer is at fault, and has no grade.
        """
        return self.grader(task, answer)

    def is_graded(self, task: Task) -> bool:
        """Whether anybody can grade the task's episodes, however they end. It is asked of the task, never of an episode, so
        that a group is graded wholly or not at all.

        A task without an answer is not graded by a grader that compares with the answer; one of your own is taken to need
        none.
        """
        own = type(self).grade is not ToolEnv.grade or self.grader not in REFERENCE_GRADERS
        return task.graded and (own or task.answer is not None)

    def check_task(self, task: Task) -> None:
        """Grade a task's own answer, where the grader compares with it: what cannot be graded is known before it is played. Raises
        ValueError: the answer is none that the grader can compare with."""
        if self.is_graded(task) and type(self).grade is ToolEnv.grade and self.grader in REFERENCE_GRADERS:
            self._grade(task, task.answer or "")

    # ---- the contract --------------------------------------------------------------------------------------------------

    def reset(self, task: Task) -> list[dict[str, Any]]:
        """A fresh episode of the task: the system message, if there is anything to say, and the question."""
        self.task, self._turn, self._calls, self._paid, self._charged, self._done = task, 0, 0, 0, 0, set()
        self._graded = self.is_graded(task)
        self.begin(task)
        parts = [told] if (told := self.instructions()) else []
        if self.tools and self._by_template:
            parts.append(self.parser.answering)
        elif self.tools and self.tool_prompt != "template":
            parts.append(self.parser.instructions(self.tools, self.tool_prompt == "brief"))
        system = [{"role": "system", "content": "\n".join(parts)}] if parts else []
        return [*system, {"role": "user", "content": self.question(task)}]

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        """Parse the turn, run its calls at the same time, reward them; or grade the answer.

        A result that the turn makes up behind its calls is not read, nor what follows it (`invented_results` in `info`). Of a turn that was
        cut (`stop_reason` of `length`) nothing is run or graded: what stands in it may be half an answer, or half an argument. The agent
        reads that it was cut. Raises EnvironmentMisuse: there is no episode, or it is over; GradeUnknown: the answer's grade could not be
        had.
        """
        if self.task is None:
            raise EnvironmentMisuse("step without an episode: call reset(task) first, and again after an episode's end")
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
        truncated = self._turn >= self.max_turns
        info = _info(outcomes, verdicts) | ({} if made_up is None else {"invented_results": 1})
        if truncated:
            self.task = None
            info |= {"answer": None} | (_FAILED if self._graded else _UNGRADED)
        observations = [self._observe(outcome, i) for outcome, i in zip(outcomes, ids, strict=True)]
        outcome_reward = self.rewards.unanswered if truncated and self._graded else None
        return StepResult(message, observations, reward, outcome_reward, False, truncated, info)

    async def close(self) -> None:
        """End the episode. Subclasses that hold connections close them here."""
        self.task = None

    # ---- how ------------------------------------------------------------------------------------------------------------

    def _parsed(self, text: str) -> ParsedTurn:
        """A turn as its format's parser reads it; what is nearly a call, and can be nothing else, is one."""
        turn = self.parser.parse(text)
        if not self.forgiving:
            return turn
        if turn.answer is not None:
            near = near_call(turn.content, self.tools)
            return turn if near is None else replace(turn, content="", calls=[near], answer=None)
        calls = [(isinstance(c, MalformedCall) and near_call(c.text, self.tools)) or c for c in turn.calls]
        return replace(turn, calls=calls)

    def _with_example(self, call: MalformedCall) -> str:
        """What is wrong with a call, and how one of that tool is written."""
        tool = self._tools.get(call.name or "") or next(iter(self._tools.values()), None)
        if tool is None or not self.forgiving:
            return call.reason
        example = self.parser.render_call(example_call(tool.schema))
        # control tokens are disarmed in a prompt: what would be shown of them is no call
        return f"{call.reason}. For example: {example}" if neutralise_control(example) == example else call.reason

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
            said = f"{type(problem).__name__}: {problem}"[:500]
            _grader_failed(type(self).__name__, type(problem).__name__, said)
            reward, info = self.failure_reward, info | failed | {"grader_error": said}
        else:
            reward, info = self.rewards.outcome * grade, info | {"grade": grade, "success": grade >= self.success_at}
        self.task = None
        return StepResult(message, [], 0.0, reward, True, False, info)

    def _try_grader(self, task: Task) -> None:
        """Grade the reference answer, or without one some plain answers. Raises what the grader raises on all of them: then it is not the
        doing of the answer that it raised on."""
        tried = (task.answer,) if task.answer is not None else ("", "0", "yes")
        for answer in tried:
            try:
                self._grade(task, answer)
                return
            except Exception:
                if answer == tried[-1]:
                    raise

    def _grade(self, task: Task, answer: str) -> float:
        """Raises what the grader raises, and ValueError for a grade that is no finite number."""
        grade = float(self.grade(task, answer))
        if not math.isfinite(grade):
            raise ValueError(f"the grader gave {grade} for task {task.id!r}; a grade is a number in [0, 1]")
        return grade

    async def _run(self, call: ToolCall | MalformedCall, position: int) -> ToolResult:
        """The `position`-th call of a turn. A call that cannot be run ends at once, with its error."""
        if isinstance(call, MalformedCall):
            return _refused(ToolError(self._with_example(call), "malformed_call"))
        if position >= self.max_calls_per_turn:
            return _refused(ToolError(f"not run: at most {self.max_calls_per_turn} calls a turn", "too_many_calls"))
        tool = self._tools.get(call.name)
        if tool is None:
            return _refused(
                ToolError(f"there is no tool {call.name[:64]!r}; there are: {', '.join(self._tools)}", "unknown_tool")
            )
        if isinstance(call.arguments, str):
            return _refused(ToolError(f"bad arguments for {call.name}: not a JSON object", "bad_arguments"))
        return await tool.call(call.arguments)

    def _judge(self, outcome: _Outcome) -> Verdict:
        call, error = outcome.call, outcome.result.error
        if isinstance(call, MalformedCall) or (error is not None and error.agents_fault):
            return "malformed"
        if error is not None:
            return "failed"
        key = f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
        if key in self._done:
            return "repeated"
        self._done.add(key)
        return "useful" if self.is_useful(call, outcome.result) else "useless"

    def _pay(self, verdicts: Sequence[Verdict]) -> float:
        """A turn's process reward: useful calls and turns with malformed ones count up to the episode's bounds."""
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
        """The message for one call. What a tool said may hold neither control tokens nor the format's own tags."""
        result = outcome.result
        own_words = result.error is not None and result.error.kind in ("malformed_call", "cut_turn")
        content = result.content if own_words else neutralise_control(result.content, self.parser.tags)
        if isinstance(outcome.call, MalformedCall) and not outcome.call.text:
            message: dict[str, Any] = {"role": "user", "content": content}
        else:
            message = self.parser.observation(content, neutralise_control(outcome.name, self.parser.tags), call_id)
        started = datetime.fromtimestamp(result.started, UTC).isoformat(timespec="milliseconds")
        return message | {"timestamp": started, "duration_s": round(result.duration_s, 6)}


_GRADERS_THAT_FAILED: set[tuple[str, str]] = set()


def _grader_failed(environment: str, kind: str, problem: str) -> None:
    """Say so, once for each kind of error: it may be the grader's fault, and not the answer's."""
    if (environment, kind) in _GRADERS_THAT_FAILED:
        return
    _GRADERS_THAT_FAILED.add((environment, kind))
    logger.warning(
        "%s: the grader raised on an answer, which earns `failure_reward` (`grader_error` in the turn's info; said once): %s",
        environment, problem,
    )  # fmt: skip


def _refused(error: ToolError) -> ToolResult:
    return ToolResult(f"Error: {error}", error, datetime.now(UTC).timestamp(), 0.0)


def _message(turn: ParsedTurn, ids: Sequence[str]) -> dict[str, Any]:
    """The turn as an OpenAI message. A malformed call is kept with its text as the arguments: it is evidence."""
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
