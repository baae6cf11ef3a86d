"""Write a Trajectory as ATIF v1.8, with a judge's figures among its metrics.

Fields that the `atif` reader read go back to their places. Fields that the format lacks stand under `extra.agent_rrm` of the step;
the document's own `extra.agent_rrm` lists what the reader would otherwise read differently: results later than their step, names and
ids that the format requires. Task, messages and tools come back exactly (`Trajectory.digest`), with a judge's figures and without.
"""

from __future__ import annotations

import json
import mimetypes
from datetime import UTC, datetime
from typing import Any

from rrm.data.feedback import Feedback
from rrm.data.own_entries import OURS
from rrm.data.trajectory import Message, ToolCall, Trajectory
from rrm.readers.atif import ENVIRONMENT, fingerprint, messages_of
from rrm.readers.chat import as_text
from rrm.readers.json_patch import edits

VERSION = "ATIF-v1.8"
SOURCES = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""Media types that the format allows; an image of another type is written as the text of its part."""
OF_AGENT = ("model_name", "reasoning_effort", "metrics")
TOKENS = {"prompt_tokens": int, "completion_tokens": int, "cached_tokens": int, "cost_usd": float}
LISTS = {"prompt_token_ids": list, "completion_token_ids": list, "logprobs": list}
TOTALS = {
    "total_prompt_tokens": int,
    "total_completion_tokens": int,
    "total_cached_tokens": int,
    "total_cost_usd": float,
}
Object = dict[str, Any]


def to_atif(trajectory: Trajectory, feedback: Feedback | None = None) -> Object:
    """Return one document that Harbor's own models accept.

    Args:
        feedback: a judgement: score, critique and the like go to `final_metrics.extra.agent_rrm`, findings of a step to
            that step's `metrics.extra.agent_rrm`.

    Raises:
        ValueError: no messages: a document has one step at least.
    """
    if not trajectory.messages:
        raise ValueError("no messages: an ATIF document has one step at least")
    steps = _Steps()
    for index, message in enumerate(trajectory.messages):
        if message.role == "tool":
            steps.result(message, index)
        else:
            steps.message(message, index)
    meta = dict(trajectory.meta)
    meta.pop("schema_version", None)
    document: Object = {"schema_version": VERSION}
    if isinstance(meta.get("session_id"), str):
        document["session_id"] = meta.pop("session_id")
    if meta.get("trajectory_id") == trajectory.id:
        del meta["trajectory_id"]
    document |= {"trajectory_id": trajectory.id, "agent": _agent(trajectory, meta), "steps": steps.made}
    for key in ("notes", "continued_trajectory_ref"):
        if isinstance(meta.get(key), str):
            document[key] = meta.pop(key)
    totals, rest = _known(meta.pop("final_metrics", None), {**TOTALS, "total_steps": int})
    if feedback is not None:
        rest |= {OURS: _judged(feedback, steps.agents)}
    if totals or rest:
        document["final_metrics"] = totals | ({"extra": rest} if rest else {})
    document["extra"] = _extra(trajectory, meta)
    if changed := _changed(trajectory, steps):
        document["extra"][OURS]["messages"] = changed
    return document


def _changed(trajectory: Trajectory, steps: _Steps) -> Object:
    """Return what the reader needs beside the steps to restore the messages; {} for nothing."""
    derived = messages_of(steps.made)
    order = sorted(
        (index, position)
        for position, index in enumerate(index for each in steps.places for index in each)
        if index is not None
    )
    places = [position for _, position in order]
    originals: list[Object] = list(derived)
    for message, position in zip(trajectory.messages, places, strict=True):
        originals[position] = message.model_dump(exclude_none=True)
    result: Object = {"edits": changes} if (changes := list(edits(derived, originals))) else {}
    result |= {"order": places} if places != list(range(len(derived))) else {}
    return {"of": fingerprint(derived), **result} if result else {}


class _Steps:
    """Builds steps from messages; a result goes to the step whose call it answers."""

    def __init__(self) -> None:
        self.made: list[Object] = []
        self.agents: list[Object] = []
        """The agent's own, in order: the trajectory's step k is `agents[k - 1]`."""
        self.places: list[list[int | None]] = []
        """Each step's indices in the run: its own message (None: it has none), then its results."""
        self._callers: dict[str, tuple[int, str]] = {}
        """A call's id -> the last step that called it so, and the tool's name."""

    def message(self, message: Message, index: int) -> None:
        """Add a step for a message that is no tool's."""
        step: Object = {"step_id": len(self.made) + 1, "source": SOURCES[message.role]}
        self.made.append(step)
        self.places.append([index])
        more = dict(message.model_extra or {})
        if more.get("step_id") == step["step_id"]:
            del more["step_id"]
        extra = _own_extra(more)
        step["message"] = self._content(message, more)
        for key, expected in (("is_copied_context", bool), ("llm_call_count", int)):
            if _is(more.get(key), expected) and not (expected is int and more[key] < 0):
                step[key] = more.pop(key)
        if message.role == "assistant":
            self.agents.append(step)
            self._add_agent_fields(step, message, more)
        else:
            calls = [_call(c, f"call_{step['step_id']}_{i}") for i, c in enumerate(message.tool_calls or (), 1)]
            more |= {"reasoning_content": message.reasoning_content} if message.reasoning_content is not None else {}
            more |= {"tool_calls": calls} if calls else {}
        more |= {"role": message.role} if message.role == "developer" else {}
        self._stamp(step, message, more)
        if message.tool_call_id is not None:
            more["tool_call_id"] = message.tool_call_id
        if message.name is not None:
            more["name"] = message.name
        _keep(step, extra, more)

    def _add_agent_fields(self, step: Object, message: Message, more: Object) -> None:
        """Fill in the fields that only an agent's step has."""
        if isinstance(more.get("model_name"), str):
            step["model_name"] = more.pop("model_name")
        if isinstance(more.get("reasoning_effort"), str) or _is(more.get("reasoning_effort"), float):
            step["reasoning_effort"] = more.pop("reasoning_effort")
        if message.reasoning_content is not None:
            step["reasoning_content"] = message.reasoning_content
        if message.tool_calls:
            step["tool_calls"] = [_call(c, f"call_{step['step_id']}_{i}") for i, c in enumerate(message.tool_calls, 1)]
            self._callers |= {c["tool_call_id"]: (len(self.made) - 1, c["function_name"]) for c in step["tool_calls"]}
        metrics, rest = _known(more.pop("metrics", None), {**TOKENS, **LISTS})
        if metrics or rest:
            step["metrics"] = metrics | ({"extra": rest} if rest else {})
        if step.get("llm_call_count") == 0 and ("metrics" in step or "reasoning_content" in step):
            more["llm_call_count"] = step.pop("llm_call_count")  # the format says that no model spoke there

    def result(self, message: Message, index: int) -> None:
        """Add a tool's message to the step that called for it; else to the last one."""
        if not self.made:
            self.made.append({"step_id": 1, "source": "system", "message": ""})
            self.places.append([None])
        more = dict(message.model_extra or {})
        extra = _own_extra(more)
        result: Object = {}
        step, name = len(self.made) - 1, ENVIRONMENT
        if message.tool_call_id in self._callers:
            step, name = self._callers[str(message.tool_call_id)]
            result["source_call_id"] = message.tool_call_id
        elif message.tool_call_id is not None:
            more["tool_call_id"] = message.tool_call_id
        if message.content is not None:
            result["content"] = self._content(message, more)
        refs = more.get("subagent_trajectory_ref")
        if isinstance(refs, list) and all(isinstance(r, dict) and _is_reference(r) for r in refs):
            result["subagent_trajectory_ref"] = more.pop("subagent_trajectory_ref")
        if message.name not in (None, name):
            more["name"] = message.name
        if message.duration_s is not None:
            more["duration_s"] = message.duration_s
        if message.timestamp is not None:
            more["timestamp"] = message.timestamp
        if message.reasoning_content is not None:
            more["reasoning_content"] = message.reasoning_content
        if message.tool_calls:
            more["tool_calls"] = [_call(c, f"call_{i}") for i, c in enumerate(message.tool_calls, 1)]
        _keep(result, extra, more)
        self.made[step].setdefault("observation", {"results": []})["results"].append(result)
        self.places[step].append(index)

    @staticmethod
    def _content(message: Message, more: Object) -> str | list[Object]:
        """Return text, or parts in the format's form; where those lose something, add the parts to `more`."""
        if not isinstance(message.content, list):
            return message.content or ""
        parts = [_part(p) for p in message.content]
        if any(new.get("type") == "text" and new != p for p, new in zip(message.content, parts, strict=True)):
            more["content"] = message.content
        return parts

    @staticmethod
    def _stamp(step: Object, message: Message, more: Object) -> None:
        """Set the time in ISO 8601, or leave it in `more` where it has no such form."""
        stamp = message.timestamp
        try:
            if isinstance(stamp, str):
                datetime.fromisoformat(stamp.replace("Z", "+00:00"))
                step["timestamp"] = stamp
            elif stamp is not None:
                step["timestamp"] = datetime.fromtimestamp(stamp, UTC).isoformat()
        except (ValueError, OverflowError, OSError):
            more["timestamp"] = stamp
        if message.duration_s is not None:
            more["duration_s"] = message.duration_s


def _own_extra(more: Object) -> Object:
    """Remove and return the source's own `extra`, without our entry, which the reader would restore."""
    extra = dict(more.pop("extra")) if isinstance(more.get("extra"), dict) else {}
    extra.pop(OURS, None)
    return extra


def _keep(holder: Object, extra: Object, more: Object) -> None:
    """Put fields that the format lacks into its `extra`."""
    extra = extra | ({OURS: more} if more else {})
    if extra:
        holder["extra"] = extra


def _call(call: ToolCall, id: str) -> Object:
    """Write a call; one without an id gets one, which the format requires."""
    more = dict(call.model_extra or {})
    extra = _own_extra(more)
    result: Object = {"tool_call_id": id if call.id is None else call.id, "function_name": call.name, "arguments": {}}
    if isinstance(call.arguments, dict):
        result["arguments"] = call.arguments
    else:
        more["arguments"] = call.arguments
    _keep(result, extra, more)
    return result


def _part(content_part: Object) -> Object:
    """Write a content's part: text, an image or a sound at a path; others as text of their JSON."""
    if content_part.get("type") == "text" and isinstance(content_part.get("text"), str):
        return {"type": "text", "text": content_part["text"]}
    source, image = content_part.get("source"), content_part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    media_type = content_part.get("media_type")
    if content_part.get("type") == "image_url" and isinstance(url, str):
        media_type = media_type if isinstance(media_type, str) else _media_type(url)
    elif content_part.get("type") == "image" and isinstance(source, dict) and isinstance(source.get("data"), str):
        media_type = source.get("media_type")
        url = f"data:{media_type};base64,{source['data']}"
    elif content_part.get("type") == "audio" and isinstance(source, dict) and isinstance(source.get("path"), str):
        return content_part
    if isinstance(url, str) and media_type in IMAGES:
        return {"type": "image", "source": {"media_type": media_type, "path": url}}
    return {"type": "text", "text": as_text(content_part)}


def _media_type(url: str) -> str | None:
    """Return the media type that a data URL names, or that a file's suffix means."""
    if url.startswith("data:"):
        return url[5:100].split(";")[0].split(",")[0]
    return mimetypes.guess_type(url.split("?")[0])[0]


def _is(value: Any, expected: type) -> bool:
    """Return whether a value has a field's type; a boolean is no number."""
    if expected is list:  # of numbers: token ids, log probabilities
        return isinstance(value, list) and all(_is(v, float) for v in value)
    if expected is bool:
        return isinstance(value, bool)
    return isinstance(value, int | float if expected is float else int) and not isinstance(value, bool)


def _is_reference(ref: Object) -> bool:
    named = ("trajectory_id", "trajectory_path", "session_id")
    return ref.keys() <= {*named, "extra"} and all(isinstance(ref[k], str) for k in named if ref.get(k) is not None)


def _known(raw: Any, fields: dict[str, type]) -> tuple[Object, Object]:
    """Split into (the format's own fields, the rest for its `extra`)."""
    if not isinstance(raw, dict):
        return {}, {} if raw is None else {OURS: raw}
    accepted = {k: raw[k] for k, expected in fields.items() if _is(raw.get(k), expected)}
    extra = raw["extra"] if isinstance(raw.get("extra"), dict) else {}
    used = {*accepted, *(["extra"] if isinstance(raw.get("extra"), dict) else [])}
    return accepted, {**{k: v for k, v in raw.items() if k not in used}, **extra}


def _agent(trajectory: Trajectory, meta: Object) -> Object:
    """The agent, as the source names it; else by the format it was read from."""
    raw: Any = meta.pop("agent") if isinstance(meta.get("agent"), dict | str) else {}
    agent: Object = {"name": raw} if isinstance(raw, str) else raw
    names = {k: agent[k] for k in ("name", "version", "model_name") if isinstance(agent.get(k), str)}
    extra = dict(agent["extra"]) if isinstance(agent.get("extra"), dict) else {}
    rest = {k: v for k, v in agent.items() if k not in names and not (k == "extra" and isinstance(v, dict))}
    if isinstance(meta.get("model"), str):
        names.setdefault("model_name", meta["model"])
    format = (trajectory.source.format if trajectory.source else None) or "unknown"
    result: Object = {"name": format, "version": "unknown", **names}
    if trajectory.tools is not None:
        result["tool_definitions"] = trajectory.tools
    _keep(result, extra, rest)
    return result


def _extra(trajectory: Trajectory, meta: Object) -> Object:
    """Build the document's `extra`: the source's own, the outcome, and under our name the rest."""
    extra = dict(meta.pop("extra")) if isinstance(meta.get("extra"), dict) else {}
    ours: Object = {"task": trajectory.task, "question_id": trajectory.question_id, "outcome": trajectory.outcome}
    if trajectory.source is not None:
        ours["source"] = trajectory.source.model_dump(exclude_none=True)
    ours |= {"meta": meta} if meta else {}
    ours |= {"extra": extra[OURS]} if extra.get(OURS) is not None else {}
    return {**extra, OURS: {k: v for k, v in ours.items() if v is not None}}


def _judged(feedback: Feedback, agents: list[Object]) -> Object:
    """Return the judge's row for the whole run; put findings of a step on that step."""
    row = json.loads(feedback.model_dump_json(exclude_none=True, exclude={"id", "findings"}))
    findings: dict[int, list[Object]] = {}
    for finding in feedback.findings:
        findings.setdefault(finding.step, []).append(finding.model_dump(exclude_none=True, exclude={"step"}))
    for k, step in enumerate(agents, 1):
        holder = step if step.get("llm_call_count") == 0 else step.get("metrics", {})
        extra = dict(holder.get("extra", {}))
        before = extra.pop(OURS) if isinstance(extra.get(OURS), dict) else {}
        ours = {k: v for k, v in before.items() if k != "findings"}  # those are an earlier judge's
        ours |= {"findings": findings.pop(k)} if k in findings else {}
        extra |= {OURS: ours} if ours else {}
        if extra or "extra" in holder:
            holder["extra"] = extra
            if holder is not step:
                step["metrics"] = holder
    apart = [{"step": k, **finding} for k, each in findings.items() for finding in each]
    return {**row, **({"findings": apart} if apart else {})}
