"""Tools: functions an agent can call, with a schema, a time-out and a limit on concurrent calls.

    @tool(timeout_s=5)
    def search(query: str) -> str:
        \"\"\"Search the facts.

        Args:
            query: What to look for.
        \"\"\"

Name, description and JSON schema come from the signature and the docstring (`transformers.utils.get_json_schema`). A call always ends in a
`ToolResult`, with text or a typed error. `@tool` also works on methods: bound to an environment, with shared limit and schema."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import inspect
import json
import time
import traceback
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypedDict, Unpack, overload

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from reagent.env.limiter import FairLimiter
from reagent.errors import ToolError
from rrm.engines.async_runner import in_thread
from rrm.errors import RRMError

EMPTY = "(no output)"  # shown to the agent for an empty result
_ERROR_CHARS = 300


class ToolLimits(TypedDict, total=False):
    timeout_s: float  # seconds a call may take, from when it starts to run: 10
    max_concurrency: int
    """Calls that run at once, over all environments: 16. A hanging plain function keeps its slot."""
    max_wait_s: float  # seconds a call waits for a slot: 60
    max_result_chars: int  # longer results lose their middle: 8000


@dataclass(frozen=True)
class ToolResult:
    content: str  # the result as text, shortened; for an error the message to the agent
    error: ToolError | None
    started: float  # seconds since the epoch
    duration_s: float
    cut_chars: int = 0  # characters left out of the middle of a long result
    denied: int = 0  # pages and results that were kept from the agent (`reagent.tools.deny`)


class TruncatedText(str):
    """A tool's text that carries how many results it leaves out."""

    denied: int

    def __new__(cls, text: str, denied: int) -> Self:
        instance = super().__new__(cls, text)
        instance.denied = denied
        return instance


def shorten(text: str, limit: int, marker: str = " … ({cut} characters left out) … ") -> tuple[str, int]:
    """(head, marker and tail within `limit` characters, how many were cut); the head gets two thirds."""
    if len(text) <= limit:
        return text, 0
    note = marker.format(cut=len(text) - limit)
    room = max(limit - len(note), 0)
    tail = room // 3
    head = room - tail
    return (text[:head] + note + (text[-tail:] if tail else ""))[:limit], len(text) - room


def to_text(value: object) -> str:
    """A tool's return value as text: text as it is, None as nothing, else JSON.
    Raises ToolError: bytes, or what JSON cannot express."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        raise ToolError(f"the tool returned {len(value)} bytes of binary data, which cannot be shown", "bad_result")
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(
            f"the tool returned a {type(value).__name__}, which is neither text nor JSON", "bad_result"
        ) from error


def _raised(error: BaseException) -> ToolError:
    if isinstance(error, ToolError):
        return error
    # format_exception_only survives exceptions whose own __str__ raises
    return ToolError(traceback.format_exception_only(error)[-1].strip()[:_ERROR_CHARS], "raised")


def _settle(function: Callable[..., object], values: dict[str, Any]) -> str | ToolError:
    try:
        return to_text(function(**values))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool may raise anything; the agent is told
        return _raised(error)


async def _settle_async(function: Callable[..., Awaitable[object]], values: dict[str, Any]) -> str | ToolError:
    try:
        return to_text(await function(**values))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a tool may raise anything; the agent is told
        return _raised(error)


HOOKS = (
    "made_up_at",
    "is_graded",
    "fit_prompt",
)  # methods that an environment may have (`reagent.env.env.Environment`)
HOW = '''Write a docstring: a tool has `@tool`, a docstring and, in it, `Args:` with a line for each argument, which has a type:

    @tool
    def search(self, query: str) -> str:
        """Search the pages.

        Args:
            query: The words to look for.
        """'''


def _arguments_model(function: Callable[..., object], name: str) -> tuple[type[BaseModel], list[str]]:
    """(a pydantic model of the function's arguments, their names).
    Its fields are numbered, with the names as aliases, so that an argument may be called `json` or `_x`."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError) as error:
        raise RRMError(f"tool {name!r}: its type hints cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    names: list[str] = []
    for argument, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise RRMError(f"tool {name!r}: argument {argument!r} cannot be passed by name")
        if argument not in hints:
            raise RRMError(f"tool {name!r}: argument {argument!r} has no type hint. {HOW}")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"a{len(names)}"] = (hints[argument], Field(default, alias=argument))
        names.append(argument)
    config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    try:
        return create_model(name, __config__=config, **fields), names
    except PydanticUserError as error:
        raise RRMError(f"tool {name!r}: an argument's type cannot be checked: {error}") from error


def _schema_of(function: Callable[..., Any], name: str) -> dict[str, Any]:
    from transformers.utils import get_json_schema  # pyright: ignore[reportPrivateImportUsage]
    from transformers.utils.chat_template_utils import DocstringParsingException, TypeHintParsingException

    try:
        schema = get_json_schema(function)
    except (DocstringParsingException, TypeHintParsingException) as error:
        raise RRMError(f"tool {name!r}: {error} {HOW}") from error
    schema["function"].pop("return", None)
    return schema


def undeclared_tools(env: object) -> list[str]:
    """Return names of public methods with arguments that an environment of a user's own adds to ours and to the optional `HOOKS`."""
    packages = ("reagent", "builtins", "abc", "typing")
    ours = [base for base in type(env).__mro__ if base.__module__.partition(".")[0] in packages]
    known = {*HOOKS, *(name for base in ours for name in vars(base))}
    return [
        name
        for base in type(env).__mro__
        for name, value in vars(base).items()
        if base not in ours and inspect.isfunction(value) and not name.startswith("_") and name not in known
        if len(inspect.signature(value).parameters) > 1
    ]


class Tool:
    """A function an agent can call; make one with `@tool`. Bound copies share its slots and its schema."""

    def __init__(self, function: Callable[..., Any], **limits: Unpack[ToolLimits]) -> None:
        parameters = list(inspect.signature(function).parameters)
        self._is_method = bool(parameters) and parameters[0] == "self"
        self._unbound = types.MethodType(function, object()) if self._is_method else function
        self._model, self._arguments = _arguments_model(self._unbound, function.__name__)
        self._set(function.__name__, function, {}, self._validated, limits)

    @classmethod
    def described(
        cls,
        schema: dict[str, Any],
        function: Callable[..., Awaitable[object]],
        check: Callable[[Mapping[str, Any]], dict[str, Any]],
        **limits: Unpack[ToolLimits],
    ) -> Self:
        """A tool with a schema from elsewhere, e.g. another server.

        Args:
            schema: OpenAI form, as `schema`.
            function: async; gets the arguments by name.
            check: the arguments as `function` wants them; raises a ToolError of the kind `bad_arguments`.
            limits: as of `tool`.
        """
        instance = cls.__new__(cls)
        instance._is_method = False
        instance._set(schema["function"]["name"], function, {"": schema}, check, limits)
        return instance

    def _set(
        self,
        name: str,
        function: Callable[..., Any],
        schema: dict[str, dict[str, Any]],
        check: Callable[[Mapping[str, Any]], dict[str, Any]],
        limits: ToolLimits,
    ) -> None:
        self.name, self._function, self._schema, self._check = name, function, schema, check
        self._owner: object = None
        self.timeout_s, self.max_wait_s = limits.get("timeout_s", 10.0), limits.get("max_wait_s", 60.0)
        self.max_result_chars = limits.get("max_result_chars", 8000)
        self.slots = FairLimiter(limits.get("max_concurrency", 16))

    def __get__(self, instance: object, owner: type) -> Tool:
        if instance is None or not self._is_method:
            return self
        bound = copy.copy(self)
        bound._owner = instance
        return bound

    @property
    def description(self) -> str:
        """The docstring without its sections."""
        return self.schema["function"]["description"]

    @property
    def schema(self) -> dict[str, Any]:
        """The OpenAI form: `{"type": "function", "function": {"name", "description", "parameters"}}`.
        Raises RRMError: the docstring or a type says too little; the message says what to write."""
        if not self._schema:
            self._schema[""] = _schema_of(self._unbound, self.name)
        return self._schema[""]

    @property
    def function(self) -> Callable[..., Any]:
        return types.MethodType(self._function, self._owner) if self._is_method else self._function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function as if it were no tool."""
        return self.function(*args, **kwargs)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert arguments (`"3"` becomes 3 for an int). Raises ToolError: one is wrong."""
        return self._check(arguments)

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            model = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, p['loc'])) or 'arguments'}: {p['msg']}" for p in error.errors()[:3]]
            takes = ", ".join(self._arguments) or "nothing"
            reason = "; ".join(problems)[:_ERROR_CHARS]
            raise ToolError(f"bad arguments for {self.name}: {reason}. It takes: {takes}", "bad_arguments") from error
        return {argument: getattr(model, f"a{i}") for i, argument in enumerate(self._arguments)}

    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Check the arguments and run the tool within its limits. Raises nothing that the tool did."""
        started, clock = time.time(), time.perf_counter()
        error, cut = None, 0
        try:
            text = await self._run(self.check(arguments))
            denied = text.denied if isinstance(text, TruncatedText) else 0
            content, cut = shorten(text, self.max_result_chars)
        except ToolError as problem:
            error, denied, content = problem, problem.denied, f"Error: {str(problem)[: problem.shown_chars]}"
        took = time.perf_counter() - clock
        return ToolResult(content if content.strip() else EMPTY, error, started, took, cut, denied)

    async def _run(self, values: dict[str, Any]) -> str:
        if not await self.slots.acquire(self.max_wait_s):
            raise ToolError(f"{self.name} is busy: no earlier call ended within {self.max_wait_s:g} s", "busy")
        call = self._start(values)
        try:
            # wait_for would wait on for a task that ignores its cancellation
            await asyncio.wait({call}, timeout=self.timeout_s)
            if not call.done():
                raise ToolError(f"{self.name} did not answer within {self.timeout_s:g} s", "timeout")
        finally:
            call.cancel()  # from here on nobody listens: a late answer is thrown away
        if call.cancelled():
            raise ToolError(f"{self.name} was cancelled from inside", "raised")
        outcome = call.result()
        if isinstance(outcome, ToolError):
            raise outcome
        return outcome

    def _start(self, values: dict[str, Any]) -> asyncio.Future[str | ToolError]:
        if inspect.iscoroutinefunction(self._function):
            task = asyncio.ensure_future(_settle_async(self.function, values))
            task.add_done_callback(lambda _: self.slots.release())
            return task
        context = contextvars.copy_context()

        def work() -> str | ToolError:
            try:
                return context.run(_settle, self.function, values)
            finally:
                self.slots.release()

        return asyncio.wrap_future(in_thread(work, f"tool {self.name}"))


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(**limits: Unpack[ToolLimits]) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, /, **limits: Unpack[ToolLimits]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a function or method a Tool; `@tool` or `@tool(timeout_s=5)`.

    Args:
        function: plain or async. A plain one runs in a thread, so it may block.
        limits: `ToolLimits`.

    Raises:
        RRMError: arguments without a type, or that cannot be passed by name.
    """

    return (lambda target: Tool(target, **limits)) if function is None else Tool(function, **limits)


def declared_tools(env: object) -> list[Tool]:
    """The class's own tools, base classes first, in the order they are written."""
    names: dict[str, None] = {}
    for klass in reversed(type(env).__mro__):
        names |= {name: None for name in vars(klass)}
    return [getattr(env, name) for name in names if isinstance(_static(type(env), name), Tool)]


def by_name(tools: Sequence[Tool]) -> dict[str, Tool]:
    """Tools by their names. Raises RRMError: two have one name."""
    named: dict[str, Tool] = {}
    for item in tools:
        if item.name in named:
            raise RRMError(f"two tools are called {item.name!r}: rename one")
        named[item.name] = item
    return named


def _static(klass: type, name: str) -> object:
    return next((vars(k)[name] for k in klass.__mro__ if name in vars(k)), None)
