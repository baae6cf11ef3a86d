"""What the lines of a Claude Code session say together: which branch of it was kept, and which lines are one reply."""

from __future__ import annotations

from typing import Any

from rrm.readers.base import own_id
from rrm.readers.chat import as_text

OF_THE_REPLY = ("id", "usage", "stop_reason")
"""Fields of a reply that its message keeps."""
Line = dict[str, Any]


# ---- branches --------------------------------------------------------------------------------------------------------


def abandoned(lines: list[Line]) -> set[int]:
    """The places of lines that the user took back: what stands below a fork (an edited prompt, a rewind, a reply that was made again) and
    leads not to the last message. Results, and pieces of a reply that goes on, are no forks."""
    nodes = [(str(line["uuid"]), _parent(line), k) for k, line in enumerate(lines) if line.get("uuid") is not None]
    parents = {uuid: parent for uuid, parent, _ in nodes}
    last = next((str(x["uuid"]) for x in reversed(lines) if _is_message(x) and x.get("uuid") is not None), None)
    kept, at = set[str](), last
    while at is not None and at not in kept:
        kept.add(at)
        at = parents.get(at)
    # a log that names no parents has no branches
    rootless = any(p is None and lines[k].get("type") == "assistant" for _, p, k in nodes)
    begins = next((n for n in nodes if n[0] in kept and n[1] is None and _is_prompt(lines[n[2]])), None)
    replies: dict[str | None, set[str | None]] = {}
    for uuid, parent, k in nodes:
        if uuid in kept:
            replies.setdefault(parent, set()).add(_reply(lines[k]))
            replies.setdefault(uuid, set()).add(_reply(lines[k]))
    gone, found = set[str](), set[int]()
    for uuid, parent, k in nodes:
        if uuid in kept:
            continue
        line = lines[k]
        if parent is None:
            fork = begins is not None and not rootless and k < begins[2] and _is_prompt(line)
        else:
            fork = parent in replies and _is_turn(line) and _reply(line) not in replies[parent] - {None}
        if fork or parent in gone:
            gone.add(uuid)
            found.add(k)
        elif parent in kept:
            kept.add(uuid)
            replies.setdefault(uuid, set()).add(_reply(line))
    return found


def _parent(line: Line) -> str | None:
    """The line that a line follows; behind a compaction the one that it names."""
    found = line.get("parentUuid")
    found = line.get("logicalParentUuid") if found is None else found
    return None if found is None else str(found)


def _is_message(line: Line) -> bool:
    return line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)


def _reply(line: Line) -> str | None:
    return own_id(line["message"]) if line.get("type") == "assistant" and _is_message(line) else None


def _is_turn(line: Line) -> bool:
    """Whether a line begins something: what the user asks, or a reply."""
    return _is_message(line) and not is_of_the_harness(line) and (line["type"] == "assistant" or _is_prompt(line))


def is_of_the_harness(line: Line) -> bool:
    """Whether an agent's line is Claude Code's own: an error of the API, or a word in the place of a reply."""
    return line.get("isApiErrorMessage") is True or line["message"].get("model") == "<synthetic>"


def _is_prompt(line: Line) -> bool:
    """Whether a line is the user's own: no result, and nothing that Claude Code put there."""
    if not _is_message(line) or line["type"] != "user" or line.get("isMeta") is True or line.get("isCompactSummary"):
        return False
    return not any(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks_of(line["message"]))


# ---- replies ---------------------------------------------------------------------------------------------------------


class Replies:
    """Brings the lines of a reply together: those of one `message.id`, wherever its blocks stand.

    A gateway may give every reply the same id. It shows by a block that is new behind another prompt, in another request, or said when
    all calls were answered; such an id joins only lines that follow each other, or come while a call waits for its result.
    """

    def __init__(self, lines: list[Line]) -> None:
        self._constant = _constant(lines)
        self._known: dict[str, Line] = {}
        self._last: str | None = None
        self._waiting: dict[str, set[str]] = {}
        self._asked: dict[str, str] = {}
        """Call → the reply that made it."""

    def add_result(self, line: Line) -> None:
        """A line that is no reply's: results end the wait of their calls."""
        self._last = None
        for number in _answered(line) & self._asked.keys():
            self._waiting[self._asked[number]].discard(number)

    def taken(self, line: Line) -> Line | None:
        """The line, where it begins a reply; None where it belongs to one that is there, to which it is added."""
        name = _reply(line)
        if name is None:
            self._last = None
            return line
        message, calls = line["message"], _calls(blocks_of(line["message"]))
        known = self._known.get(name)
        if known is not None and name in self._constant and name != self._last and not self._waiting[name]:
            known = known if calls & _calls(known["message"]["content"]) else None
        self._last = name
        self._asked |= dict.fromkeys(calls, name)
        if known is not None:
            self._waiting[name] |= calls - _calls(known["message"]["content"])
            _add(known, message)
            return None
        self._waiting[name] = set(calls)
        self._known[name] = {**line, "message": {**message, "content": blocks_of(message)}}
        return self._known[name]


def _constant(lines: list[Line]) -> set[str]:
    """The ids that more than one reply has."""
    found, prompts, asked = set[str](), 0, dict[str, str]()
    held: dict[str, tuple[int, Any, list[Any], set[str], set[str]]] = {}
    for line in lines:
        if not _is_message(line):
            continue
        if (name := _reply(line)) is None:
            prompts += _is_prompt(line)
            for number in _answered(line) & asked.keys():
                held[asked[number]][-1].discard(number)
            continue
        if name in found:
            continue
        begun, request, told, calls, waiting = held.setdefault(name, (prompts, line.get("requestId"), [], set(), set()))
        blocks = [b for b in blocks_of(line["message"]) if not _calls([b]) & calls]
        fresh = [b for b in blocks if _calls([b]) or not any(_is_same(b, known) for known in told)]
        speaks = any(not isinstance(b, dict) or b.get("type") != "tool_use" for b in fresh)
        other = prompts > begun or (None not in (request, again := line.get("requestId")) and again != request)
        if fresh and (told or calls) and (other or (speaks and calls and not waiting)):
            found.add(name)
        told += [b for b in fresh if not _calls([b])]
        calls |= _calls(fresh)
        waiting |= _calls(fresh)
        asked |= dict.fromkeys(_calls(fresh), name)
    return found


def _calls(blocks: list[Any]) -> set[str]:
    """The ids of the calls among blocks."""
    return {as_text(b["id"]) for b in blocks if isinstance(b, dict) and b.get("id") is not None}


def _answered(line: Line) -> set[str]:
    """The calls that a line's results answer."""
    held = (b for b in blocks_of(line["message"]) if isinstance(b, dict) and b.get("tool_use_id") is not None)
    return {as_text(b["tool_use_id"]) for b in held}


def blocks_of(message: dict[str, Any]) -> list[Any]:
    """A message's content as a list of blocks."""
    content = message.get("content")
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _add(reply: Line, more: dict[str, Any]) -> None:
    """Add the blocks of one more line of a reply, each that is there already in its place; the later usage counts."""
    message = reply["message"]
    kept, taken = message["content"], set[int]()
    before = len(kept)
    for block in blocks_of(more):
        same = next((k for k in range(before) if k not in taken and _is_same(kept[k], block)), None)
        if same is None:
            kept.append(block)
            continue
        taken.add(same)
        if _length(block) >= _length(kept[same]):
            kept[same] = block
    message |= {k: more[k] for k in OF_THE_REPLY if more.get(k) is not None}


def _is_same(block: Any, other: Any) -> bool:
    """Whether two blocks are one: of one id, or of which one begins with the other."""
    if not isinstance(block, dict) or not isinstance(other, dict) or block.get("type") != other.get("type"):
        return block == other
    if block.get("id") is not None or other.get("id") is not None:
        return block.get("id") == other.get("id")
    field = "thinking" if block.get("type") == "thinking" else "text"
    a, b = block.get(field), other.get(field)
    return (a.startswith(b) or b.startswith(a)) if isinstance(a, str) and isinstance(b, str) else block == other


def _length(block: Any) -> int:
    """How far a block is written."""
    return len(as_text(block))
