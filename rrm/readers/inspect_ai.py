"""`inspect`: logs of Inspect (`inspect_ai`), `.json` or `.eval` (a zip with a member per sample).

Each sample and epoch is a run. Score labels are C, I, P (half) and N (no answer: 0), else numbers and words as everywhere. A single
scorer's score is the outcome; of several none is chosen: `meta["outcome_fields"]` names them for `--outcome`. Scores that
`rrm.readers.exports` put there are no outcome. Fields: https://inspect.aisi.org.uk/eval-logs.html.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.own_entries import is_ours
from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.archive import MAGIC, Archive
from rrm.readers.base import AttachmentBudget, SourceItem, describe, first_user_text, make
from rrm.readers.chat import as_text, chat_message, text_of, tool_call
from rrm.readers.jsontext import decode, parse_json
from rrm.readers.outcomes import MISSING, RunOutcome, as_outcome, get, outcome_at
from rrm.readers.sources import load
from rrm.readers.spans import seconds

NAME = "inspect"
MARKS = ("eval.task|epoch", "samples[].messages|target")
LABELS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
ATTACHMENT = "attachment://"
MAX_UNFOLDED = 1 << 28  # characters: a few long attachments can be named a million times
DROPPED = ("messages", "input", "events", "events_data", "attachments", "output", "timelines", "target")
"""Fields that the transcript already holds or that repeat it; events are counted by type."""
SUFFIXES = (".eval", ".json")
HEAD = 1 << 16
"""Bytes of a JSON log in which task and time must stand."""
_TASK = re.compile(r'"task_id": ?"([^"]{1,200})"')
_CREATED = re.compile(r'"created": ?"([^"]{1,60})"')
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """Match a log, or one sample of it."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("eval"), dict) and "task" in value["eval"] and ("samples" in value or "plan" in value):
        return True
    return "epoch" in value and "target" in value and isinstance(value.get("messages"), list) and "input" in value


def explode(value: Any) -> Iterator[tuple[Any, dict[str, Any]]] | None:
    """Yield the samples of a `.json` log, each with the log's evaluation; None for others."""
    if not sniff(value) or not isinstance(value.get("samples"), list) or not isinstance(value.get("eval"), dict):
        return None
    samples = value["samples"]
    context = {"eval": value["eval"], "other_scale": _other_scales(samples), "asked_alike": _asked_alike(samples)}
    return ((sample, context) for sample in samples)


def unpack(archive: Archive) -> Iterator[SourceItem | ReadError] | None:
    """Yield the samples of an `.eval` log, one in memory at a time; None for other archives."""
    names = set(archive.names)
    if not names & {"header.json", "_journal/start.json"} or not any(n.startswith("samples/") for n in names):
        return None
    return _samples(archive)


def _samples(archive: Archive) -> Iterator[SourceItem | ReadError]:
    try:
        # the header is written when the run ends; a run that was cut off has its start and partial summaries
        finished = "header.json" in archive.names
        header = load(archive, "header.json" if finished else "_journal/start.json")
        lists = [n for n in archive.names if n == "summaries.json" or (not finished and "/summaries/" in n)]
        summaries = [s for n in lists if isinstance(listed := load(archive, n), list) for s in listed]
    except (ValueError, RecursionError) as error:
        yield ReadError(archive.path, None, f"the log's header: {describe(error)} (format {NAME})")
        return
    about = header.get("eval") if isinstance(header, dict) else None
    context = {"eval": about if isinstance(about, dict) else {}, "other_scale": _other_scales(summaries)}
    context["asked_alike"] = _asked_alike(summaries)
    for name in archive.names:
        if name.startswith("samples/"):
            try:
                yield SourceItem(load(archive, name), archive.place(name), context=context, format=NAME)
            except (ValueError, RecursionError) as error:
                yield ReadError(archive.place(name), None, f"{describe(error)} (format {NAME})")


def _scores(sample: Any) -> dict[str, Any]:
    """Scorer -> the value it gave, unread."""
    scores = sample.get("scores") if isinstance(sample, dict) else None
    if not isinstance(scores, dict):
        return {}
    return {name: s["value"] if isinstance(s, dict) and "value" in s else s for name, s in scores.items()}


def _other_scales(samples: Iterable[Any]) -> set[str]:
    """Return scorers that gave a number outside [0, 1] in the log: on their scale a 1 may be the worst."""
    return {
        name
        for sample in samples
        for name, value in _scores(sample).items()
        if isinstance(value, int | float) and not 0 <= value <= 1
    }


def _asked_alike(samples: Iterable[Any]) -> set[str]:
    """Return ids of samples that share their input but not their target: other files, another question."""
    targets: dict[str, dict[str, str]] = {}
    for sample in samples:
        if isinstance(sample, dict) and sample.get("input") is not None:
            same = targets.setdefault(as_text(sample["input"]), {})
            same[as_text(sample.get("id"))] = as_text(sample.get("target"))
    return {id for same in targets.values() if len(set(same.values())) > 1 for id in same}


def label(value: Any) -> float | None:
    """A score's value as a label in [0, 1]; None where it is none."""
    return LABELS.get(value) if isinstance(value, str) and value in LABELS else as_outcome(value)


def outcome(record: Any, path: str) -> RunOutcome | None:
    """The label at a path such as `scores.match`; as `rrm.readers.outcomes.outcome_at` otherwise."""
    name = path.removesuffix("?")
    scores = _scores(record)
    raw = scores[name[7:]] if name.startswith("scores.") and name[7:] in scores else get(record, name)
    if raw is MISSING or (value := label(raw)) is None:
        return outcome_at(record, path)
    return RunOutcome(value, name)


def parse(item: SourceItem) -> Trajectory:
    sample = item.value
    if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
        reason = "samples were not logged" if sniff(sample) else "no list of `messages`"
        raise ValueError(f"nothing to judge: {reason}")
    about = item.context.get("eval", {})
    unfold = _Attachments(sample.get("attachments"), item.unfolding or AttachmentBudget(MAX_UNFOLDED))
    events = [e for e in sample["events"] if isinstance(e, dict)] if isinstance(sample.get("events"), list) else []
    times = _times(events)
    prompt = sample.get("input")  # all there is of a sample that failed before its first message
    chat = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}] if prompt is not None else []
    raw = sample["messages"] or chat
    messages = [m for i, entry in enumerate(raw) for m in _messages(unfold.inside(entry), f"messages[{i}]", times)]
    task = unfold.inside(prompt) if isinstance(prompt, str) else first_user_text(messages)
    scores = {name: value for name, value in _scores(sample).items() if not is_ours(name)}
    off = item.context.get("other_scale", set())
    readable = {n: v for n, s in scores.items() if (v := label(s)) is not None and n not in off}
    sole = next(iter(readable), None) if len(scores) == 1 else None
    fields = {"outcome_fields": [f"scores.{name}" for name in readable]} if len(scores) > 1 else {}
    number = f"{as_text(about.get('task', 'sample'))[:80]}:{as_text(sample.get('id'))[:80]}"
    apart = as_text(sample.get("id")) in item.context.get("asked_alike", ())
    user_parts = [p for m in messages if m["role"] == "user" and isinstance(m["content"], list) for p in m["content"]]
    return make(
        item,
        NAME,
        messages,
        meta=_meta(sample, about, events, unfold) | fields,
        id=f"{number}-epoch{as_text(sample.get('epoch', 1))[:20]}",
        task=task,
        # the words alone do not tell questions about different pictures or files apart
        question_id=number if apart or any(p.get("type") != "text" for p in user_parts) else None,
        outcome=None if sole is None else RunOutcome(readable[sole], f"scores.{sole}"),
        tools=_tools(events),
    )


def _meta(sample: Message, about: Message, events: list[Message], unfold: _Attachments) -> dict[str, Any]:
    """Return what sample and log say beside the transcript; the judge sees none of it."""
    meta = {k: v for k, v in sample.items() if k not in DROPPED and v not in (None, {}, [])}
    if "id" in meta:
        meta["sample_id"] = meta.pop("id")
    target = unfold.inside(sample.get("target"))
    if target not in (None, "", []):
        meta["reference"] = target[0] if isinstance(target, list) and len(target) == 1 else target
    output = sample["output"] if isinstance(sample.get("output"), dict) else {}
    choices = output.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict) and "stop_reason" in choices[0]:
        meta["stop_reason"] = choices[0]["stop_reason"]
    data = about["dataset"] if isinstance(about.get("dataset"), dict) else {}
    names = {"agent": about.get("model"), "eval_task": about.get("task"), "dataset": data.get("name")}
    names |= {k: about.get(k) for k in ("eval_id", "run_id", "created")}
    counts = Counter(as_text(e.get("event"))[:40] for e in events)
    return meta | {k: v for k, v in names.items() if v is not None} | ({"events": dict(counts)} if counts else {})


def _times(events: list[Message]) -> dict[str, Message]:
    """Message or call id -> its time, and a call's duration in seconds."""
    times: dict[str, Message] = {}
    for event in events:
        if event.get("event") == "tool" and isinstance(event.get("id"), str):
            took = event.get("working_time")
            is_number = isinstance(took, int | float) and not isinstance(took, bool)
            times[event["id"]] = {"timestamp": event.get("completed")} | ({"duration_s": took} if is_number else {})
        elif event.get("event") == "model" and isinstance(id := get(event, "output.choices[0].message.id"), str):
            times[id] = {"timestamp": event.get("completed", event.get("timestamp"))}
    return times


def _tools(events: list[Message]) -> list[dict[str, Any]] | None:
    """Return the tools offered to the model in any of its calls, each name once."""
    tools: dict[str, dict[str, Any]] = {}
    for event in events:
        offered = event.get("tools") if event.get("event") == "model" else None
        for tool in offered if isinstance(offered, list) else []:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                definition = {k: tool[k] for k in ("name", "description", "parameters") if k in tool}
                tools.setdefault(tool["name"], {"type": "function", "function": definition})
    return list(tools.values()) or None


def _messages(raw: Any, where: str, times: dict[str, Message]) -> list[Message]:
    """One message; a tool that the model's server ran becomes a call and its result."""
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object with a role, got {type(raw).__name__}")
    parts, thoughts, served = _content(raw.get("content"))
    listed = raw.get("tool_calls")
    calls = [_call(c) for c in (listed if isinstance(listed, list) else [])] + [call for call, _ in served]
    failed, function = raw.get("error"), raw.get("function")
    fields = {k: v for k, v in raw.items() if k not in ("content", "tool_calls", "error", "function", "internal")}
    own = times.get(as_text(raw.get("tool_call_id" if raw.get("role") == "tool" else "id")), {})
    message = chat_message({**own, **fields, "content": parts}, where)
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    if function is not None:
        message["name"] = as_text(function)
    if failed is not None:
        error = as_text(failed.get("message", "") if isinstance(failed, dict) else failed)
        message |= {"is_error": True, "error": failed}
        if error not in text_of(message["content"]):
            message["content"] = f"{text_of(message['content'])}\n{error}".strip()
    return [message, *(result for _, result in served)]


def _call(raw: Any) -> Message:
    """Read one call, with the error of arguments that could not be parsed."""
    if not isinstance(raw, dict):
        return tool_call(raw)
    name = raw.get("function", raw.get("name", ""))
    call = tool_call({"name": as_text(name), "arguments": raw.get("arguments"), "id": raw.get("id")})
    return call | ({"parse_error": raw["parse_error"]} if raw.get("parse_error") is not None else {})


def _content(raw: Any) -> tuple[Any, list[str], list[tuple[Message, Message]]]:
    """Split a content into (text or parts, thoughts, (call, result) pairs that the server ran)."""
    if not isinstance(raw, list):
        return raw, [], []
    parts, thoughts, served = list[Any](), list[str](), list[tuple[Message, Message]]()
    for content_part in raw:
        part_type = content_part.get("type") if isinstance(content_part, dict) else None
        if part_type == "reasoning":
            thoughts.append(as_text(content_part.get("summary") or content_part.get("reasoning", "")))
        elif part_type == "tool_use":
            number = as_text(content_part.get("id", ""))
            call = {
                "name": as_text(content_part.get("name", "")),
                "arguments": as_text(content_part.get("arguments", "")),
                "id": number,
            }
            failed = {"is_error": True} if content_part.get("error") is not None else {}
            text = as_text(content_part.get("error") if failed else content_part.get("result", ""))
            served.append(
                (call, {"role": "tool", "tool_call_id": number, "name": call["name"], "content": text, **failed})
            )
        elif part_type == "image":
            parts.append({"type": "image_url", "image_url": {"url": as_text(content_part.get("image", ""))}})
        elif part_type == "text":
            parts.append({"type": "text", "text": as_text(content_part.get("text", ""))})
        else:
            parts.append(content_part)
    if all(isinstance(p, dict) and p.get("type") == "text" for p in parts):
        return "\n".join(p["text"] for p in parts), thoughts, served
    return parts, thoughts, served


class _Attachments:
    """Long texts and pictures, which a log holds once and names by `attachment://HASH`."""

    def __init__(self, texts: Any, unfolding: AttachmentBudget) -> None:
        self._texts = texts if isinstance(texts, dict) else {}
        self._unfolding = unfolding

    def inside(self, value: Any) -> Any:
        """Return a copy with every name replaced; unknown names stay."""
        if isinstance(value, str) and value.startswith(ATTACHMENT):
            text = self._texts.get(value.removeprefix(ATTACHMENT))
            if not isinstance(text, str):
                return value
            self._unfolding.take(len(text))
            return text
        if isinstance(value, list):
            return [self.inside(v) for v in value]
        return {k: self.inside(v) for k, v in value.items()} if isinstance(value, dict) else value


# ---- samples that stand again in the log of a retry ------------------------------------------------------------------


def key_of(sample: Any) -> str:
    """Name a sample in its log, as the members of an `.eval` log are named."""
    return f"{sample.get('id')}_epoch_{sample.get('epoch')}" if isinstance(sample, dict) else ""


def superseded(paths: Iterable[str]) -> dict[str, set[str]]:
    """Map each file to its samples that stand again in a later log of the same task.

    Only heads are read of logs without a retry. Unreadable files are skipped: reading them says why.
    """
    tasks: dict[str, list[tuple[float, str, str]]] = {}
    logs = [path for path in paths if path.endswith(SUFFIXES) and os.path.isfile(path)]  # a pipe is read once
    for path in logs if len(logs) > 1 else []:
        if (head := _head(path)) is not None:
            tasks.setdefault(head[0], []).append((seconds(head[1]) or 0.0, head[1], path))
    repeated: dict[str, set[str]] = {}
    for group in (sorted(group) for group in tasks.values() if len(group) > 1):
        later = set[str]()
        for *_, path in reversed(group):
            own = _names(path)
            if again := own & later:
                repeated[path] = again
            later |= own
    return repeated


def _head(path: str) -> tuple[str, str] | None:
    """(task, time) of a log; None of another file."""
    try:
        with open(path, "rb") as file:
            begun = file.read(HEAD)
            if begun.startswith(MAGIC):
                about = _about(Archive(path, file))
            else:
                text = begun.decode("utf-8", "replace")
                task, created = _TASK.search(text), _CREATED.search(text)
                about = {"task_id": task[1], "created": created[1]} if task and created else {}
    except (OSError, ValueError, RecursionError):
        return None
    named = about.get("task_id"), about.get("created")
    return named if isinstance(named[0], str) and isinstance(named[1], str) else None  # pyright: ignore[reportReturnType]


def _about(archive: Archive) -> dict[str, Any]:
    name = next((n for n in ("header.json", "_journal/start.json") if n in archive.names), None)
    head = load(archive, name) if name else None
    about = head.get("eval") if isinstance(head, dict) else None
    return about if isinstance(about, dict) else {}


def _names(path: str) -> set[str]:
    try:
        with open(path, "rb") as file:
            if file.read(4).startswith(MAGIC):
                members = (n for n in Archive(path, file).names if n.startswith("samples/"))
                return {name.removeprefix("samples/").removesuffix(".json") for name in members}
            file.seek(0)
            log = parse_json(decode(file.read()))
    except (OSError, ValueError, RecursionError):
        return set()
    listed = log.get("samples") if isinstance(log, dict) else None
    return {key_of(sample) for sample in listed} if isinstance(listed, list) else set()
