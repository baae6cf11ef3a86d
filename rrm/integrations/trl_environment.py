"""Environments of TRL's protocol that record their calls and are judged.

The protocol: `reset(**row)` returns text to append to the last user message, or None; public methods are the tools;
`get_reward()` takes nothing. TRL looks at an instance's class, so each judged class gets one of its own here.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from rrm.data.feedback import Feedback
from rrm.data.trajectory import Message, ToolCall, Trajectory
from rrm.integrations.loading import LazyAsker
from rrm.integrations.rows import messages_of
from rrm.judge.cached_judge import by_content

_OWN = ("reset", "get_reward")


def tool_names(environment: type) -> list[str]:
    """List the methods of an environment's class that TRL offers as tools."""
    names = [name for name, _ in inspect.getmembers(environment, predicate=inspect.isfunction)]
    return [name for name in names if name not in _OWN and not name.startswith("_")]


def schemas(source: Any) -> list[dict[str, Any]]:
    """Return JSON schemas of tools: functions and schemas in a list, or an environment's methods."""
    methods = source if isinstance(source, Iterable) else [getattr(source, name) for name in tool_names(type(source))]
    if not methods:
        return []
    from transformers.utils import get_json_schema  # pyright: ignore[reportPrivateImportUsage]

    return [method if isinstance(method, dict) else get_json_schema(method) for method in methods]


class JudgedEnvironments:
    """The factory, picklable without what it made.

    Its environments are judged together when the first reward is asked for, until one continues after it was judged unasked:
    their episodes overlap, and each is then judged when asked.
    """

    def __init__(self, factory: Callable[[], Any], asking: LazyAsker, weight: float, unplayed: float | None) -> None:
        self.factory, self.asking, self.weight, self.unplayed = factory, asking, weight, unplayed
        self._begin()

    def _begin(self) -> None:
        self._made: list[weakref.ref[_Judged]] = []
        self._lock = threading.Lock()
        self._overlap = False
        self._scored, self._failed, self._total = 0, 0, 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("factory", "asking", "weight", "unplayed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __call__(self) -> Any:
        inner = self.factory()
        judged = _kind(type(inner))(inner, self)
        self._made.append(weakref.ref(judged, self._made.remove))
        return judged

    def summary(self) -> dict[str, Any]:
        """Counts of rewards so far: `judged`, share `failed`, mean `score` (None: of none)."""
        judged = self._scored + self._failed
        mean = self._total / self._scored if self._scored else None
        return {"judged": judged, "failed": self._failed / max(judged, 1), "score": mean}

    def judge(self, asking: _Judged) -> Feedback:
        with self._lock:
            feedback = asking._feedback or (None if self._overlap else self._judge_all(asking))
        if feedback is None:
            state, transcript = asking._version, asking._transcript()
            feedback = self.asking().submit(transcript).result()
            asking._judged = (state, feedback)
        asking._asked = True
        with self._lock:
            self._scored += feedback.score is not None
            self._failed += feedback.score is None
            self._total += feedback.score or 0.0
        return feedback

    def _judge_all(self, asking: _Judged) -> Feedback | None:
        """Judge all episodes played since they were last judged; None: together they cannot be judged."""
        alive = [environment for ref in list(self._made) if (environment := ref()) is not None]
        waiting = [
            environment
            for environment in alive
            if environment is asking or (environment._feedback is None and environment._played)
        ]
        # the version first: what changes meanwhile then counts as changed
        states = [(environment._version, environment._transcript()) for environment in waiting]
        try:
            feedbacks = self.asking().ask([transcript for _, transcript in states])
        except Exception:
            if len(waiting) == 1:
                raise
            self._overlap = True
            return None
        for environment, (version, _), feedback in zip(waiting, states, feedbacks, strict=True):
            environment._judged = (version, feedback)
            if environment._version != version:
                self._overlap = True
        return feedbacks[waiting.index(asking)]


class _Judged:
    # names begin with an underscore: a public method would be a tool
    def __init__(self, inner: Any, made_by: JudgedEnvironments) -> None:
        self._inner, self._made_by = inner, made_by
        self._messages: list[Message] = []
        self._calls = 0
        self._version = 0
        self._judged: tuple[int, Feedback] | None = None
        self._asked = True

    @property
    def _feedback(self) -> Feedback | None:
        # of the episode as it now is
        judged = self._judged
        return judged[1] if judged is not None and judged[0] == self._version else None

    def _changed(self) -> None:
        # called last in a change: who copied half of it sees that it changed
        self._version += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_inner"), name)

    def reset(self, **row: Any) -> Any:
        question = self._inner.reset(**row)
        prompt = row.get("prompt")
        before = messages_of("user", "" if prompt is None else prompt, "prompt") or messages_of("user", "", "prompt")
        messages = [Message.model_validate({**m, "content": _text(m.get("content"))}) for m in before]
        if question is not None:
            messages[-1].content = messages[-1].text() + _text(question)
        self._messages, self._calls = messages, 0
        self._changed()
        return question

    @property
    def _played(self) -> bool:
        return self._calls > 0

    def _transcript(self) -> Trajectory:
        # a step for each call: TRL does not tell which calls one turn held
        task = next((m.text() for m in self._messages if m.role == "user"), "")
        return by_content(Trajectory(id="", task=task, messages=self._messages, tools=schemas(self) or None))

    def _note(self, name: str, arguments: dict[str, Any], result: Any, failed: bool = False) -> None:
        if self._feedback is not None and not self._asked:
            self._made_by._overlap = True
        self._calls += 1
        id = f"call_{self._calls}"
        call = ToolCall(name=name, arguments=arguments, id=id)
        result = {"role": "tool", "name": name, "tool_call_id": id, "content": _text(result)}
        self._messages += [
            Message(role="assistant", tool_calls=[call]),
            Message.model_validate(result | ({"is_error": True} if failed else {})),
        ]
        self._asked = False
        self._changed()

    def _reward(self, own: float | None) -> float | None:
        """R_env + weight · s, or R_env + `unplayed` without a call; None where either is unknown."""
        if not self._played:
            return None if own is None else own + (self._made_by.unplayed or 0.0)
        score = self._made_by.judge(self).score
        return None if score is None or own is None else own + self._made_by.weight * score


def _text(value: Any) -> str:
    # as TRL shows a value: text parts joined, a picture as its type
    if not isinstance(value, list):
        return str(value) if value is not None else ""
    return Message(role="tool", content=[p if isinstance(p, dict) else {"text": str(p)} for p in value]).text()


@functools.cache
def _kind(inner: type) -> type[_Judged]:
    # TRL tells classes apart, and names the reward by the class
    members: dict[str, Any] = {name: _recorded(name, getattr(inner, name)) for name in tool_names(inner)}
    own = getattr(inner, "get_reward", None)
    members["get_reward"] = _async_reward if inspect.iscoroutinefunction(own) else _reward_of(own is not None)
    return type(f"Judged{inner.__name__}", (_Judged,), members | {"__doc__": inner.__doc__})


def _reward_of(owned: bool) -> Callable[[_Judged], float | None]:
    def get_reward(self: _Judged) -> float | None:
        if not owned and not self._played:
            return self._made_by.unplayed
        return self._reward(self._inner.get_reward() if owned else 0.0)

    return get_reward


async def _async_reward(self: _Judged) -> float | None:
    own = await self._inner.get_reward()
    return await asyncio.to_thread(self._reward, own)  # others go on while the judge reads


def _recorded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method, keeping its signature and docstring, to record each call."""

    @functools.wraps(method)
    def recorded(self: _Judged, *args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(method, args, kwargs)
        try:
            result = getattr(self._inner, name)(*args, **kwargs)
        except Exception as error:
            self._note(name, arguments, {"error": str(error)}, failed=True)
            raise
        self._note(name, arguments, result)
        return result

    @functools.wraps(method)
    async def recorded_async(self: _Judged, *args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(method, args, kwargs)
        try:
            result = await getattr(self._inner, name)(*args, **kwargs)
        except Exception as error:
            self._note(name, arguments, {"error": str(error)}, failed=True)
            raise
        self._note(name, arguments, result)
        return result

    return recorded_async if inspect.iscoroutinefunction(method) else recorded


def _arguments(method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = list(inspect.signature(method).parameters)[1:]
    return {**dict(zip(names, args, strict=False)), **kwargs}
