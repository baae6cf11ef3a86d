"""One conversation from the model calls and tool runs of a trace (OpenTelemetry, LangSmith).

A call says what it read and what it wrote. A call that read a conversation so far continues it. The run is the root agent's conversation
(where no agent is recorded, the longest), agents below it are runs of their own, and tool results that no later call read are taken
from the tools' own records.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from rrm.readers.base import SourceItem
from rrm.readers.chat import as_text, text_of
from rrm.readers.left import PARENT

Message = dict[str, Any]


@dataclass
class ModelSpan:
    read: list[Message]
    wrote: list[Message]
    start: float = 0.0
    """Seconds; calls are taken in this order."""
    inside_tool: bool = False
    """Made by a tool while it ran: an agent that is called as a tool."""
    agents: tuple[str, ...] = ()
    """The ids of the agents' runs that it was made in, the outermost first."""
    agent: str = ""
    """The name of the innermost."""


@dataclass
class ToolRun:
    name: str
    id: str | None = None
    """The id of the model's call, where the record has it."""
    arguments: Any = None
    result: Any = None
    failed: bool = False
    start: float = 0.0
    duration_s: float | None = None
    timestamp: str | float | None = None


@dataclass
class Conversation:
    """The result of `assemble`."""

    messages: list[Message]
    others: list[list[Message]] = field(default_factory=list)
    """Conversations beside it (retries, other agents of its level) that say something it does not."""
    unmatched: list[ToolRun] = field(default_factory=list)
    """Tool runs that no message asked for."""
    agent: str = ""
    """The name of its agent, where the trace has one."""
    subagents: list[Conversation] = field(default_factory=list)
    """Conversations of agents below its own, in the order of their first calls."""

    def meta(self) -> dict[str, Any]:
        """Return the meta of a trajectory: what is left beside the messages."""
        runs = [{"name": r.name, "arguments": r.arguments, "result": r.result} for r in self.unmatched]
        below = [sub.agent for sub in self.subagents]
        named = (("other_conversations", self.others), ("other_tool_runs", runs), ("subagents", below))
        return {k: v for k, v in named if v}


class _Thread:
    """A conversation while its calls are joined; its agent is the outermost of those that made them."""

    def __init__(self, messages: list[Message], before: _Thread | None, call: ModelSpan) -> None:
        self.messages = messages
        self.inside_tool = call.inside_tool and (before is None or before.inside_tool)
        outer = before if before is not None and len(before.agents) <= len(call.agents) else call
        self.agents, self.agent = outer.agents, outer.agent

    def is_below(self, other: _Thread) -> bool:
        """Return whether the other's agent started its agent."""
        deeper = 0 < len(other.agents) < len(self.agents) and self.agents[: len(other.agents)] == other.agents
        return deeper or (self.inside_tool and not other.inside_tool)


def assemble(calls: Sequence[ModelSpan], runs: Sequence[ToolRun], join: bool = False) -> Conversation:
    """Join calls to the root agent's conversation, with those of the agents below it.

    Where agents are not recorded or stand side by side, the longest; of two as long the later one. No calls: no messages.
    A conversation inside a tool's run is taken only where there is nothing else: the trace's outcome is its caller's.

    Args:
        calls: in any order; messages in the OpenAI shape.
        runs: in any order.
        join: whether calls of which none read what another did or wrote are one conversation, in the order of their starts.
    """
    ends: dict[str, _Thread] = {}  # a conversation so far, by the digest of what its last call read and wrote
    tails: dict[str, str] = {}  # the key of its last message → that digest
    for call in sorted(calls, key=lambda c: c.start):
        if not call.read and not call.wrote:
            continue
        keys = [_key(message) for message in (*call.read, *call.wrote)]
        digests = _prefixes(keys)
        continued = next((k for k in range(len(call.read), 0, -1) if digests[k - 1] in ends), 0)
        begun = digests[continued - 1] if continued else None
        if begun is None and (shortened := _shortened(call.read, keys, tails, ends)) is not None:
            continued, begun = shortened
        # what was said before is kept as it was recorded then: histories drop reasoning and times
        before = ends.pop(begun) if begun is not None else None
        earlier = before.messages if before else []
        current = _Thread([*earlier, *call.read[continued:], *call.wrote], before, call)
        if (same := ends.get(digests[-1])) is not None:
            # two instrumentations may record one call: the first record went on from what was kept
            current = _Thread(same.messages, same, call)
        ends[digests[-1]] = current
        tails[keys[-1]] = digests[-1]
    if not ends:
        return Conversation([], unmatched=list(runs))
    threads = list(ends.values())
    if join and _are_turns(threads, calls):
        merged = [m for k, t in enumerate(threads) for m in t.messages if not k or m["role"] != "system"]
        threads[0].messages = merged
        threads = threads[:1]
    main = _root(threads)
    left = sorted(runs, key=lambda r: r.start)
    main_messages, left = _filled(main.messages, left)
    counts = Counter(map(_key, main_messages))
    others = [t for t in threads if t is not main and Counter(map(_key, t.messages)) - counts]
    subagents = list[Conversation]()
    for thread in (t for t in others if t.is_below(main)):
        messages, left = _filled(thread.messages, left)
        subagents.append(Conversation(messages, agent=thread.agent))
    beside = [t.messages for t in others if not t.is_below(main)]
    return Conversation(main_messages, beside, left, main.agent, subagents)


def _are_turns(threads: list[_Thread], calls: Sequence[ModelSpan]) -> bool:
    """Return whether each call was given only new messages (beside the same instructions) and is answered."""
    if len(threads) < 2 or len(threads) != sum(bool(c.read or c.wrote) for c in calls):
        return False
    if len({t.agents for t in threads}) > 1 or any(t.inside_tool for t in threads):
        return False
    instructions = [{_key(m) for m in t.messages if m["role"] == "system"} for t in threads]
    inputs = [{_key(m) for m in t.messages if m["role"] not in ("system", "assistant")} for t in threads]
    answered = all(t.messages[-1]["role"] == "assistant" for t in threads)
    return (
        answered
        and all(t == instructions[0] for t in instructions)
        and sum(map(len, inputs)) == len(set[str]().union(*inputs))
        and all(inputs)
    )


def _root(threads: list[_Thread]) -> _Thread:
    """Return the conversation that the others are below, or the longest that is not below any."""
    outside = [t for t in threads if not t.inside_tool] or threads
    longest = max(range(len(outside)), key=lambda k: (len(outside[k].messages), k))
    above = [t for t in outside if outside[longest].is_below(t)]
    return min(above, key=lambda t: (len(t.agents), -len(t.messages))) if above else outside[longest]


def with_subagents(
    item: SourceItem, name: str, assembled: Callable[[SourceItem], Conversation]
) -> Iterator[SourceItem]:
    """Yield a trace's item, then one per agent below the root's; unassembled items are left to `parse`.

    Context: `"found"` is each one's conversation, `"elsewhere"` the others' messages (first item), `"root"` the trace's name (others).
    """
    item.context["lines_of"] = f"trace {name[:40]}"
    try:
        conversation = assembled(item)
    except (ValueError, RecursionError):
        yield item
        return
    elsewhere = [sub.messages for sub in conversation.subagents]
    yield replace(item, context={**item.context, "found": conversation, "elsewhere": elsewhere})
    for sub in conversation.subagents:
        yield replace(item, context={**item.context, "found": sub, "root": name, "lines": 0})


def subagent(item: SourceItem, talk: Conversation) -> tuple[str, dict[str, Any]]:
    """Return the id suffix of an item's run behind its trace's, and its meta."""
    if (name := item.context.get("root")) is None:
        return "", talk.meta()
    return f"/{talk.agent or 'agent'}", {PARENT: {"trace_id": name}, **({"agent": talk.agent} if talk.agent else {})}


def _above(parents: Mapping[str, str | None], marked: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Name → the marked names above it, the outermost first.

    Args:
        parents: name → the name of what it stands under, which may be none of them; those in a circle end where they began.
        marked: some of the names.
    """
    result: dict[str, tuple[str, ...]] = {}
    for name in parents:
        path, node = dict[str, None](), name
        while node is not None and node not in result and node in parents and node not in path:
            path[node], node = None, parents[node]
        above = (
            result.get(node, ()) + ((node,) if node in marked else ()) if node is not None and node in result else ()
        )
        for step in reversed(path):
            result[step] = above
            above = (*above, step) if step in marked else above
    return result


def placed(
    calls: Iterable[tuple[str, ModelSpan]],
    parents: Mapping[str, str | None],
    tools: Collection[str],
    agents: Mapping[str, str],
) -> list[ModelSpan]:
    """Add to each call (name, call) its tool and agents; `agents`: record → agent's name."""
    tools_above, agents_above = _above(parents, tools), _above(parents, agents.keys())
    result = list[ModelSpan]()
    for name, call in calls:
        within = (*agents_above.get(name, ()), *([name] if name in agents else []))
        agent = agents[within[-1]] if within else ""
        result.append(replace(call, inside_tool=bool(tools_above.get(name)), agents=within, agent=agent))
    return result


def _key(message: Message) -> str:
    """Key by which records are the same message: role, text and calls; not ids, times or reasoning."""
    calls = [[c.get("name"), arguments_of(c)] for c in message.get("tool_calls") or []]
    content = message.get("content")
    body = (
        content if isinstance(content, list) and not all(p.get("type") == "text" for p in content) else text_of(content)
    )
    return json.dumps([message["role"], body.strip() if isinstance(body, str) else body, calls], sort_keys=True)


def arguments_of(call: Message) -> Any:
    """Return a call's arguments as an object where their text is one."""
    raw = call.get("arguments")
    if isinstance(raw, str):
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            return raw.strip()
    return raw


def _prefixes(keys: list[str]) -> list[str]:
    """Return the digest of the first k messages, for each k from 1."""
    digests, so_far = list[str](), b""
    for key in keys:
        so_far = hashlib.blake2b(so_far + key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        digests.append(so_far.hex())
    return digests


def _shortened(
    history: list[Message], keys: list[str], tails: Mapping[str, str], ends: Mapping[str, _Thread]
) -> tuple[int, str] | None:
    """Return (number of old messages in `history`, conversation) where a client shortened its history; the
    system prompt may differ."""
    for k in range(len(history), 0, -1):
        thread = ends.get(tails.get(keys[k - 1], "")) if history[k - 1]["role"] == "assistant" else None
        if thread is None:
            continue
        before = iter(map(_key, thread.messages))
        if all(history[j]["role"] == "system" or keys[j] in before for j in range(k)):
            return k, tails[keys[k - 1]]
    return None


def _filled(messages: list[Message], runs: list[ToolRun]) -> tuple[list[Message], list[ToolRun]]:
    """Return the messages with the tools' results, times and names; and the runs that fit none."""
    left = list(runs)
    filled = list[Message]()
    k = 0
    while k < len(messages):
        message = messages[k]
        filled.append(message)
        k += 1
        calls = message.get("tool_calls") or []
        if message["role"] != "assistant" or not calls:
            continue
        results = list[Message]()
        while k < len(messages) and messages[k]["role"] == "tool":
            results.append(dict(messages[k]))
            k += 1
        filled += _answers(calls, results, left)
    return filled, left


def _answers(calls: list[Message], results: list[Message], left: list[ToolRun]) -> list[Message]:
    """Return the read results, then those only in the tools' records; used runs leave `left`."""
    paired = _pairs(calls, results)
    answered = set(paired.values())
    for index, result in enumerate(results):
        if (call_index := paired.get(index)) is None:
            continue
        for key, own in (("id", "tool_call_id"), ("name", "name")):
            if calls[call_index].get(key):
                result.setdefault(own, calls[call_index][key])
        if (run := _run_of(calls[call_index], left)) is not None:
            for key, value in (("duration_s", run.duration_s), ("timestamp", run.timestamp)):
                if value is not None:
                    result.setdefault(key, value)
            if run.failed:
                result.setdefault("is_error", True)
    for k, call in enumerate(calls):
        if k not in answered and (run := _run_of(call, left)) is not None:
            results.append(_result(call, run))
    return results


def _pairs(calls: list[Message], results: list[Message]) -> dict[int, int]:
    """Map a result's index to its call's: by id; without one the first free call of its name; of neither,
    the call at its index. A result with an unknown id, or a name whose calls are all answered, answers none."""
    pairs, names = dict[int, int](), {call.get("name") for call in calls}
    for key, own in (("id", "tool_call_id"), ("name", "name")):
        for index, result in enumerate(results):
            value = result.get(own)
            if index in pairs or value is None or (key == "name" and result.get("tool_call_id") is not None):
                continue
            call_index = next((k for k, c in enumerate(calls) if k not in pairs.values() and c.get(key) == value), None)
            pairs |= {index: call_index} if call_index is not None else {}
    for index, result in enumerate(results):
        is_free = index < len(calls) and index not in pairs.values() and index not in pairs
        if is_free and result.get("tool_call_id") is None and result.get("name") not in names:
            pairs[index] = index
    return pairs


def _run_of(call: Message, left: list[ToolRun]) -> ToolRun | None:
    """Take a call's run: of its id, else the first without id of its name and without other arguments."""
    name, arguments = call.get("name"), arguments_of(call)
    by_id = (r for r in left if r.id is not None and r.id == call.get("id"))
    by_name = (
        r
        for r in left
        if r.id is None
        and r.name == name
        and (r.arguments is None or arguments_of({"arguments": r.arguments}) == arguments)
    )
    run = next(by_id, None) or next(by_name, None)
    if run is not None:
        left.remove(run)
    return run


def _result(call: Message, run: ToolRun) -> Message:
    message: Message = {"role": "tool", "content": "" if run.result is None else as_text(run.result)}
    number = call.get("id") or run.id
    more = (("tool_call_id", number), ("name", call.get("name") or run.name))
    message |= {k: v for k, v in (*more, ("duration_s", run.duration_s), ("timestamp", run.timestamp)) if v is not None}
    return message | ({"is_error": True} if run.failed else {})


def seconds(time: Any) -> float | None:
    """Parse ISO 8601 text (UTC where it names no zone) or a number as seconds since 1970; else None."""
    if isinstance(time, bool):
        return None
    try:
        if isinstance(time, int | float):
            return float(time)
        moment = datetime.fromisoformat(time) if isinstance(time, str) else None
        return moment and (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
