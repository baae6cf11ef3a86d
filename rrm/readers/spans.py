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
    """One call of a model."""

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
    """One run of a tool."""

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
    """What `assemble` found."""

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
        """What is left beside the messages, for a trajectory's meta."""
        runs = [{"name": r.name, "arguments": r.arguments, "result": r.result} for r in self.unmatched]
        below = [sub.agent for sub in self.subagents]
        named = (("other_conversations", self.others), ("other_tool_runs", runs), ("subagents", below))
        return {k: v for k, v in named if v}


class _Thread:
    """A conversation as its calls are put together; its agent is the outermost of those that made them."""

    def __init__(self, messages: list[Message], before: _Thread | None, call: ModelSpan) -> None:
        self.messages = messages
        self.inside_tool = call.inside_tool and (before is None or before.inside_tool)
        outer = before if before is not None and len(before.agents) <= len(call.agents) else call
        self.agents, self.agent = outer.agents, outer.agent

    def is_below(self, other: _Thread) -> bool:
        """Whether its agent was started by the other's."""
        deeper = 0 < len(other.agents) < len(self.agents) and self.agents[: len(other.agents)] == other.agents
        return deeper or (self.inside_tool and not other.inside_tool)


def assemble(calls: Sequence[ModelSpan], runs: Sequence[ToolRun], join: bool = False) -> Conversation:
    """The root agent's conversation of a trace, with those of the agents below it; the longest where agents are not recorded or stand side
    by side, of two as long the later one. No calls: no messages.

    What was said inside a tool's run is taken only where there is nothing else: the trace's outcome is its caller's.

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
        known = next((k for k in range(len(call.read), 0, -1) if digests[k - 1] in ends), 0)
        begun = digests[known - 1] if known else None
        if begun is None and (shortened := _shortened(call.read, keys, tails, ends)) is not None:
            known, begun = shortened
        # what was said before is kept as it was recorded then: histories drop reasoning and times
        before = ends.pop(begun) if begun is not None else None
        earlier = before.messages if before else []
        made = _Thread([*earlier, *call.read[known:], *call.wrote], before, call)
        if (same := ends.get(digests[-1])) is not None:
            # two instrumentations may record one call: the first record went on from what was kept
            made = _Thread(same.messages, same, call)
        ends[digests[-1]] = made
        tails[keys[-1]] = digests[-1]
    if not ends:
        return Conversation([], unmatched=list(runs))
    threads = list(ends.values())
    if join and _are_turns(threads, calls):
        told = [m for k, t in enumerate(threads) for m in t.messages if not k or m["role"] != "system"]
        threads[0].messages = told
        threads = threads[:1]
    main = _root(threads)
    left = sorted(runs, key=lambda r: r.start)
    found, left = _filled(main.messages, left)
    held = Counter(map(_key, found))
    others = [t for t in threads if t is not main and Counter(map(_key, t.messages)) - held]
    subagents = list[Conversation]()
    for thread in (t for t in others if t.is_below(main)):
        messages, left = _filled(thread.messages, left)
        subagents.append(Conversation(messages, agent=thread.agent))
    beside = [t.messages for t in others if not t.is_below(main)]
    return Conversation(found, beside, left, main.agent, subagents)


def _are_turns(threads: list[_Thread], calls: Sequence[ModelSpan]) -> bool:
    """Whether each call was given only what was new: no two have a message in common but the same instructions, and each is answered."""
    if len(threads) < 2 or len(threads) != sum(bool(c.read or c.wrote) for c in calls):
        return False
    if len({t.agents for t in threads}) > 1 or any(t.inside_tool for t in threads):
        return False
    told = [{_key(m) for m in t.messages if m["role"] == "system"} for t in threads]
    asked = [{_key(m) for m in t.messages if m["role"] not in ("system", "assistant")} for t in threads]
    answered = all(t.messages[-1]["role"] == "assistant" for t in threads)
    return (
        answered
        and all(t == told[0] for t in told)
        and sum(map(len, asked)) == len(set[str]().union(*asked))
        and all(asked)
    )


def _root(threads: list[_Thread]) -> _Thread:
    """The conversation that the others are below, or the longest that is not below any."""
    outside = [t for t in threads if not t.inside_tool] or threads
    longest = max(range(len(outside)), key=lambda k: (len(outside[k].messages), k))
    above = [t for t in outside if outside[longest].is_below(t)]
    return min(above, key=lambda t: (len(t.agents), -len(t.messages))) if above else outside[longest]


def with_subagents(
    item: SourceItem, name: str, assembled: Callable[[SourceItem], Conversation]
) -> Iterator[SourceItem]:
    """A trace's item, then one for each agent below the root's; `SourceItem.context["found"]` of each is its conversation, `"elsewhere"` of the first
    what the others hold, and `"root"` of those the trace's name. What cannot be assembled is left to `parse`, which says why."""
    item.context["lines_of"] = f"trace {name[:40]}"
    try:
        found = assembled(item)
    except (ValueError, RecursionError):
        yield item
        return
    elsewhere = [sub.messages for sub in found.subagents]
    yield replace(item, context={**item.context, "found": found, "elsewhere": elsewhere})
    for sub in found.subagents:
        yield replace(item, context={**item.context, "found": sub, "root": name, "lines": 0})


def subagent(item: SourceItem, found: Conversation) -> tuple[str, dict[str, Any]]:
    """The id of the run that an item of `with_subagents` is, behind its trace's, and what its meta says of it."""
    if (name := item.context.get("root")) is None:
        return "", found.meta()
    return f"/{found.agent or 'agent'}", {PARENT: {"trace_id": name}, **({"agent": found.agent} if found.agent else {})}


def _above(parents: Mapping[str, str | None], marked: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Name → the marked names above it, the outermost first.

    Args:
        parents: name → the name of what it stands under, which may be none of them; those in a circle end where they began.
        marked: some of the names.
    """
    known: dict[str, tuple[str, ...]] = {}
    for name in parents:
        path, at = dict[str, None](), name
        while at is not None and at not in known and at in parents and at not in path:
            path[at], at = None, parents[at]
        held = known.get(at, ()) + ((at,) if at in marked else ()) if at is not None and at in known else ()
        for one in reversed(path):
            known[one] = held
            held = (*held, one) if one in marked else held
    return known


def placed(
    calls: Iterable[tuple[str, ModelSpan]],
    parents: Mapping[str, str | None],
    tools: Collection[str],
    agents: Mapping[str, str],
) -> list[ModelSpan]:
    """The calls, which come with their records' names, each with the tool and the agents that it was made in; `agents`: record → agent's name."""
    tools_above, agents_above = _above(parents, tools), _above(parents, agents.keys())
    made = list[ModelSpan]()
    for name, call in calls:
        within = (*agents_above.get(name, ()), *([name] if name in agents else []))
        agent = agents[within[-1]] if within else ""
        made.append(replace(call, inside_tool=bool(tools_above.get(name)), agents=within, agent=agent))
    return made


def _key(message: Message) -> str:
    """What makes two records the same message: who said what and called what; not ids, times or reasoning."""
    calls = [[c.get("name"), arguments_of(c)] for c in message.get("tool_calls") or []]
    content = message.get("content")
    said = (
        content if isinstance(content, list) and not all(p.get("type") == "text" for p in content) else text_of(content)
    )
    return json.dumps([message["role"], said.strip() if isinstance(said, str) else said, calls], sort_keys=True)


def arguments_of(call: Message) -> Any:
    """A call's arguments as an object where their text is one."""
    raw = call.get("arguments")
    if isinstance(raw, str):
        try:
            return json.loads(raw)
        except (ValueError, RecursionError):
            return raw.strip()
    return raw


def _prefixes(keys: list[str]) -> list[str]:
    """The digest of the first k messages, for each k from 1, of their keys."""
    digests, so_far = list[str](), b""
    for key in keys:
        so_far = hashlib.blake2b(so_far + key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        digests.append(so_far.hex())
    return digests


def _shortened(
    read: list[Message], keys: list[str], tails: Mapping[str, str], ends: Mapping[str, _Thread]
) -> tuple[int, str] | None:
    """(messages of `read` that are old, the conversation) where a call read the end of a conversation without some of its earlier
    messages, as a client does that shortens its history; the system prompt may be another."""
    for k in range(len(read), 0, -1):
        thread = ends.get(tails.get(keys[k - 1], "")) if read[k - 1]["role"] == "assistant" else None
        if thread is None:
            continue
        before = iter(map(_key, thread.messages))
        if all(read[j]["role"] == "system" or keys[j] in before for j in range(k)):
            return k, tails[keys[k - 1]]
    return None


def _filled(messages: list[Message], runs: list[ToolRun]) -> tuple[list[Message], list[ToolRun]]:
    """The messages with the tools' results, times and names; and the runs that belong to none of them."""
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
    """The results that were read, then those only the tools' records hold; runs that are used leave `left`."""
    paired = _pairs(calls, results)
    answered = set(paired.values())
    for place, result in enumerate(results):
        if (at := paired.get(place)) is None:
            continue
        for key, own in (("id", "tool_call_id"), ("name", "name")):
            if calls[at].get(key):
                result.setdefault(own, calls[at][key])
        if (run := _run_of(calls[at], left)) is not None:
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
    """The place of a result → that of the call it answers: of its id; without an id the first free one of its name; of neither, the call at
    its own place. A result with an id of its own, or with the name of calls that are all answered, answers none."""
    found, names = dict[int, int](), {call.get("name") for call in calls}
    for key, own in (("id", "tool_call_id"), ("name", "name")):
        for place, result in enumerate(results):
            said = result.get(own)
            if place in found or said is None or (key == "name" and result.get("tool_call_id") is not None):
                continue
            at = next((k for k, c in enumerate(calls) if k not in found.values() and c.get(key) == said), None)
            found |= {place: at} if at is not None else {}
    for place, result in enumerate(results):
        is_free = place < len(calls) and place not in found.values() and place not in found
        if is_free and result.get("tool_call_id") is None and result.get("name") not in names:
            found[place] = place
    return found


def _run_of(call: Message, left: list[ToolRun]) -> ToolRun | None:
    """The run of a call: of its id, else the first without an id that has its name and does not contradict its arguments."""
    name, asked = call.get("name"), arguments_of(call)
    by_id = (r for r in left if r.id is not None and r.id == call.get("id"))
    by_name = (
        r
        for r in left
        if r.id is None
        and r.name == name
        and (r.arguments is None or arguments_of({"arguments": r.arguments}) == asked)
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
    """A time as seconds since 1970: ISO 8601 text (UTC where it names no zone), or a number of seconds; None where it is neither."""
    if isinstance(time, bool):
        return None
    try:
        if isinstance(time, int | float):
            return float(time)
        found = datetime.fromisoformat(time) if isinstance(time, str) else None
        return found and (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
