"""A Trajectory as ATIF v1.8 (Harbor's Agent Trajectory Interchange Format), with a judge's figures among its metrics.

What the `atif` reader read goes back to where it stood. What the format has no place for stands under `extra.agent_rrm` of the step, and
in the document's own stands what the reader would still read otherwise than it was: results that came later than their step, names and
ids that the format asks for. So task, messages and tools come back exactly (`Trajectory.digest`), with a judge's figures and without.
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
    """One document that Harbor's own models accept.

    Args:
        feedback: what a judge said: score, critique and the like go to `final_metrics.extra.agent_rrm`, what it found of a step to
            that step's `metrics.extra.agent_rrm`.

    Raises:
        ValueError: no messages: a document has one step at least.
    """
    if not trajectory.messages:
        raise ValueError("no messages: an ATIF document has one step at least")
    steps = _Steps()
    for at, message in enumerate(trajectory.messages):
        if message.role == "tool":
            steps.result(message, at)
        else:
            steps.message(message, at)
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
    """What the reader needs beside the steps to have the messages as they were, {} for nothing."""
    made = messages_of(steps.made)
    order = sorted((at, place) for place, at in enumerate(at for each in steps.places for at in each) if at is not None)
    places = [place for _, place in order]
    wanted: list[Object] = list(made)
    for message, place in zip(trajectory.messages, places, strict=True):
        wanted[place] = message.model_dump(exclude_none=True)
    found: Object = {"edits": changes} if (changes := list(edits(made, wanted))) else {}
    found |= {"order": places} if places != list(range(len(made))) else {}
    return {"of": fingerprint(made), **found} if found else {}


class _Steps:
    """Steps as messages come; a result goes to the step whose call it answers."""

    def __init__(self) -> None:
        self.made: list[Object] = []
        self.agents: list[Object] = []
        """The agent's own, in order: the trajectory's step k is `agents[k - 1]`."""
        self.places: list[list[int | None]] = []
        """Of each step: the places among the run's messages of its own one (None: there is none) and of its results."""
        self._callers: dict[str, tuple[int, str]] = {}
        """A call's id -> the last step that called it so, and the tool's name."""

    def message(self, message: Message, at: int) -> None:
        """A step for a message that is no tool's, and is the run's at this place."""
        step: Object = {"step_id": len(self.made) + 1, "source": SOURCES[message.role]}
        self.made.append(step)
        self.places.append([at])
        more = dict(message.model_extra or {})
        if more.get("step_id") == step["step_id"]:
            del more["step_id"]
        extra = _own_extra(more)
        step["message"] = self._content(message, more)
        for key, kind in (("is_copied_context", bool), ("llm_call_count", int)):
            if _is(more.get(key), kind) and not (kind is int and more[key] < 0):
                step[key] = more.pop(key)
        if message.role == "assistant":
            self.agents.append(step)
            self._said(step, message, more)
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

    def _said(self, step: Object, message: Message, more: Object) -> None:
        """What only a step of the agent's has."""
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

    def result(self, message: Message, at: int) -> None:
        """A tool's message, as a result of the step that called for it; else of the last one."""
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
        self.places[step].append(at)

    @staticmethod
    def _content(message: Message, more: Object) -> str | list[Object]:
        """Text, or parts in the format's form; where that leaves something out, the parts are in `more` too."""
        if not isinstance(message.content, list):
            return message.content or ""
        made = [_part(part) for part in message.content]
        if any(new.get("type") == "text" and new != part for part, new in zip(message.content, made, strict=True)):
            more["content"] = message.content
        return made

    @staticmethod
    def _stamp(step: Object, message: Message, more: Object) -> None:
        """The time in ISO 8601 where it can be said so."""
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
    """An `extra` that the source has itself, taken from there: without what stands under our name, which the reader would put back."""
    extra = dict(more.pop("extra")) if isinstance(more.get("extra"), dict) else {}
    extra.pop(OURS, None)
    return extra


def _keep(place: Object, extra: Object, more: Object) -> None:
    """Put what the format has no field for into its `extra`."""
    extra = extra | ({OURS: more} if more else {})
    if extra:
        place["extra"] = extra


def _call(call: ToolCall, id: str) -> Object:
    """A call; one without an id gets one, for the format asks for it."""
    more = dict(call.model_extra or {})
    extra = _own_extra(more)
    made: Object = {"tool_call_id": id if call.id is None else call.id, "function_name": call.name, "arguments": {}}
    if isinstance(call.arguments, dict):
        made["arguments"] = call.arguments
    else:
        more["arguments"] = call.arguments
    _keep(made, extra, more)
    return made


def _part(part: Object) -> Object:
    """A part of a content: text, an image or a sound at some place; anything else as the text of its JSON."""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    source, image = part.get("source"), part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    kind = part.get("media_type")
    if part.get("type") == "image_url" and isinstance(url, str):
        kind = kind if isinstance(kind, str) else _media_type(url)
    elif part.get("type") == "image" and isinstance(source, dict) and isinstance(source.get("data"), str):
        kind = source.get("media_type")
        url = f"data:{kind};base64,{source['data']}"
    elif part.get("type") == "audio" and isinstance(source, dict) and isinstance(source.get("path"), str):
        return part
    if isinstance(url, str) and kind in IMAGES:
        return {"type": "image", "source": {"media_type": kind, "path": url}}
    return {"type": "text", "text": as_text(part)}


def _media_type(url: str) -> str | None:
    """Of a data URL what it says, of others what their ending means."""
    if url.startswith("data:"):
        return url[5:100].split(";")[0].split(",")[0]
    return mimetypes.guess_type(url.split("?")[0])[0]


def _is(value: Any, kind: type) -> bool:
    """Whether a value is of a field's kind; a boolean is no number."""
    if kind is list:  # of numbers: token ids, log probabilities
        return isinstance(value, list) and all(_is(v, float) for v in value)
    if kind is bool:
        return isinstance(value, bool)
    return isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)


def _is_reference(ref: Object) -> bool:
    named = ("trajectory_id", "trajectory_path", "session_id")
    return ref.keys() <= {*named, "extra"} and all(isinstance(ref[k], str) for k in named if ref.get(k) is not None)


def _known(raw: Any, fields: dict[str, type]) -> tuple[Object, Object]:
    """(what has a field of the format's, the rest, which goes to its `extra`)."""
    if not isinstance(raw, dict):
        return {}, {} if raw is None else {OURS: raw}
    known = {k: raw[k] for k, kind in fields.items() if _is(raw.get(k), kind)}
    extra = raw["extra"] if isinstance(raw.get("extra"), dict) else {}
    used = {*known, *(["extra"] if isinstance(raw.get("extra"), dict) else [])}
    return known, {**{k: v for k, v in raw.items() if k not in used}, **extra}


def _agent(trajectory: Trajectory, meta: Object) -> Object:
    """The agent, as the source names it; else by the format it was read from."""
    told: Any = meta.pop("agent") if isinstance(meta.get("agent"), dict | str) else {}
    said: Object = {"name": told} if isinstance(told, str) else told
    names = {k: said[k] for k in ("name", "version", "model_name") if isinstance(said.get(k), str)}
    extra = dict(said["extra"]) if isinstance(said.get("extra"), dict) else {}
    rest = {k: v for k, v in said.items() if k not in names and not (k == "extra" and isinstance(v, dict))}
    if isinstance(meta.get("model"), str):
        names.setdefault("model_name", meta["model"])
    format = (trajectory.source.format if trajectory.source else None) or "unknown"
    made: Object = {"name": format, "version": "unknown", **names}
    if trajectory.tools is not None:
        made["tool_definitions"] = trajectory.tools
    _keep(made, extra, rest)
    return made


def _extra(trajectory: Trajectory, meta: Object) -> Object:
    """The document's `extra`: the source's own, the outcome, and under our name what has no other place."""
    extra = dict(meta.pop("extra")) if isinstance(meta.get("extra"), dict) else {}
    ours: Object = {"task": trajectory.task, "question_id": trajectory.question_id, "outcome": trajectory.outcome}
    if trajectory.source is not None:
        ours["source"] = trajectory.source.model_dump(exclude_none=True)
    ours |= {"meta": meta} if meta else {}
    ours |= {"extra": extra[OURS]} if extra.get(OURS) is not None else {}
    return {**extra, OURS: {k: v for k, v in ours.items() if v is not None}}


def _judged(feedback: Feedback, agents: list[Object]) -> Object:
    """What goes for the whole run; what was found of a step is put on that step."""
    row = json.loads(feedback.model_dump_json(exclude_none=True, exclude={"id", "findings"}))
    found: dict[int, list[Object]] = {}
    for finding in feedback.findings:
        found.setdefault(finding.step, []).append(finding.model_dump(exclude_none=True, exclude={"step"}))
    for k, step in enumerate(agents, 1):
        place = step if step.get("llm_call_count") == 0 else step.get("metrics", {})
        extra = dict(place.get("extra", {}))
        before = extra.pop(OURS) if isinstance(extra.get(OURS), dict) else {}
        ours = {k: v for k, v in before.items() if k != "findings"}  # those are an earlier judge's
        ours |= {"findings": found.pop(k)} if k in found else {}
        extra |= {OURS: ours} if ours else {}
        if extra or "extra" in place:
            place["extra"] = extra
            if place is not step:
                step["metrics"] = place
    apart = [{"step": k, **said} for k, each in found.items() for said in each]
    return {**row, **({"findings": apart} if apart else {})}
