"""`langsmith`: LangSmith's runs (`trace_id`, `parent_run_id`, `run_type`, …). One trace is one run.

Runs stand one per line or list element. `llm` runs give the messages, `tool` runs the results (`rrm.readers.spans`). The outcome is
feedback where the trace has a single key of it, which names success, in [0, 1]; others are named in `meta["outcome_fields"]` for
`--outcome`. Fields: https://docs.langchain.com/langsmith/run-data-format.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.errors import ReadError
from rrm.readers.anthropic import anthropic_tools, unblock
from rrm.readers.base import SourceItem, make, own_id
from rrm.readers.chat import as_text, is_chat, tool_list
from rrm.readers.langchain import is_messages, message_of
from rrm.readers.outcomes import FIELDS, RunOutcome, as_outcome, get
from rrm.readers.spans import Conversation, ModelSpan, ToolRun, assemble, placed, seconds, subagent, with_subagents

NAME = "langsmith"
MARKS = ("run_type", "trace_id|dotted_order|parent_run_id|child_runs", "inputs|outputs")
OVER_FOLDER = False
ASKED = ("question", "input", "query", "prompt", "text")
SAID = ("output", "answer", "result", "response", "text", "content")
LONG = ("inputs", "outputs", "child_runs", "events", "serialized", "manifest", "messages")
"""Fields of the root run that repeat the transcript, or are long and say nothing of the run."""
SUCCESS = frozenset({*FIELDS, "correctness", "accuracy", "exact_match", "pass", "ok", "completion", "completed"})
"""Keys of feedback on a run's success, behind words of `OF_WHAT`."""
OF_WHAT = ("is", "answer", "task", "goal", "final", "user", "overall", "agent")
AGENTS = ("LangGraph", "AgentExecutor")
"""LangChain's names for the run of a whole agent."""
PAIR_ROLES = ("human", "user", "ai", "assistant", "system", "developer", "tool", "function")
Record = dict[str, Any]
Message = dict[str, Any]


def sniff(value: Any) -> bool:
    """One run, with its type and its place in a trace; or an object that lists runs."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("runs"), list):
        return bool(value["runs"]) and all(_is_run(r) for r in value["runs"])
    return _is_run(value)


def _is_run(value: Any) -> bool:
    places = ("trace_id", "dotted_order", "parent_run_id", "child_runs", "session_id")
    return (
        isinstance(value, dict)
        and isinstance(value.get("run_type"), str)
        and ("inputs" in value or "outputs" in value)
        and any(k in value for k in places)
    )


def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
    """Yield a file's traces in order: the root run's fields, and all runs as `runs`."""
    runs: dict[str, tuple[Record, SourceItem]] = {}
    for item in items:
        flattened = list(_flattened(item.value))
        if not flattened:
            yield ReadError(item.path, item.line, f"a run is an object with an id (format {NAME})")
        for number, run in enumerate(flattened):
            name = own_id(run) or f"{item.line}/{number}"
            runs.setdefault(name if name not in runs else f"{name} {item.line}/{number}", (run, item))
    traces: dict[str, list[tuple[Record, SourceItem]]] = {}
    trace_ids: dict[str, str] = {}
    for name, entry in runs.items():
        traces.setdefault(_trace_of(name, runs, trace_ids), []).append(entry)
    roots = [
        SourceItem(
            _trace(t, [r for r, _ in g]), g[0][1].path, g[0][1].line, context={"lines": len({id(i) for _, i in g})}
        )
        for t, g in traces.items()
    ]
    # a 1 is no success where the file has the key's 5
    other_scale = {_key(i.value, path) for i in roots for path, value in _feedback(i.value).items() if is_off(value)}
    for item in roots:
        item.context["other_scale"] = other_scale
        yield from with_subagents(item, as_text(item.value["trace_id"]), _assembled)


def _flattened(value: Any) -> Iterator[Record]:
    """A run and the runs inside it, or the runs of a list of them."""
    left = deque([value])
    while left:
        run = left.popleft()
        if not isinstance(run, dict):
            continue
        if isinstance(run.get("runs"), list) and "run_type" not in run:
            left.extend(run["runs"])
            continue
        yield run
        children = run.get("child_runs")
        for child in children if isinstance(children, list) else []:
            if isinstance(child, dict):
                left.append({"parent_run_id": run.get("id"), "trace_id": run.get("trace_id"), **child})


def _trace_of(name: str, runs: dict[str, tuple[Record, SourceItem]], trace_ids: dict[str, str]) -> str:
    """Return the run's trace: its own, else its topmost parent in the file; fills `trace_ids` on the way."""
    path: dict[str, None] = {}
    while name not in trace_ids and name not in path:
        path[name] = None
        run = runs[name][0]
        parent = own_id(run, "parent_run_id")
        if (own_trace := own_id(run, "trace_id")) is not None:
            trace_ids[name] = own_trace
        elif parent is None or parent not in runs:
            trace_ids[name] = parent or name
        else:
            name = parent
    trace = trace_ids[name] if name in trace_ids else min(path)  # parents in a circle
    trace_ids |= dict.fromkeys(path, trace)
    return trace


def _trace(trace: str, runs: list[Record]) -> Record:
    ordered = sorted(runs, key=_order)
    root = next((r for r in ordered if own_id(r, "parent_run_id") is None), ordered[0])
    return {**root, "trace_id": trace, "runs": ordered}


def _order(run: Record) -> tuple[float, str]:
    return _seconds(run.get("start_time")) or 0.0, as_text(run.get("dotted_order", ""))


def _seconds(time: Any) -> float | None:
    """Seconds since 1970; LangSmith's numbers are milliseconds."""
    value = seconds(time)
    return value / 1000 if value is not None and not isinstance(time, str) and value > 1e11 else value


def _feedback(record: Record) -> dict[str, Any]:
    """Path in the record -> feedback's value: averages by key, or single feedbacks."""
    stats, single = record.get("feedback_stats"), record.get("feedback")
    scores: dict[str, Any] = {}
    if isinstance(stats, dict):
        scores = {
            f"feedback_stats.{k}.avg": s["avg"]
            for k, s in stats.items()
            if isinstance(s, dict) and s.get("avg") is not None
        }
    if not scores and isinstance(single, list):
        keys = Counter(as_text(f.get("key")) for f in single if isinstance(f, dict))
        for k, entry in enumerate(single):
            if isinstance(entry, dict) and entry.get("score") is not None and keys[as_text(entry.get("key"))] == 1:
                scores[f"feedback[{k}].score"] = entry["score"]
    return scores


def _key(record: Record, path: str) -> str:
    """Return the feedback's key, which is the same in all traces; its place in a list is not."""
    return as_text(get(record, path.removesuffix(".score") + ".key")) if path.startswith("feedback[") else path


def says_success(key: str) -> bool:
    """Return whether a feedback's key names success: of `hallucination` or `latency` a 1 is none."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", key.removeprefix("feedback_stats.").removesuffix(".avg"))
    left = list(itertools.dropwhile(OF_WHAT.__contains__, map(str.lower, words)))
    return "_".join(left) in SUCCESS


def is_off(value: Any) -> bool:
    return isinstance(value, int | float) and not 0 <= value <= 1


def _assembled(item: SourceItem) -> Conversation:
    """The conversations of a trace."""
    runs: list[Record] = item.value["runs"]
    parents = {name: own_id(r, "parent_run_id") for r in runs if (name := own_id(r)) is not None}
    tools = {name for r in runs if r.get("run_type") == "tool" and (name := own_id(r)) is not None}
    agents = {name: as_text(r["name"]) for r in runs if r.get("name") in AGENTS and (name := own_id(r)) is not None}
    calls = [_call(run) for run in _leaves(runs)]
    # a graph's state holds the whole conversation, results included
    states = [r for r in runs if r.get("run_type") == "chain" and _listed(get_messages(r.get("outputs"))) is not None]
    for run in states:
        wrote = _read(get_messages(run["outputs"]), f"run {own_id(run)} outputs", "assistant")
        calls.append(ModelSpan([], wrote, _seconds(run.get("end_time")) or _order(run)[0]))
    names = [own_id(run) or "" for run in (*_leaves(runs), *states)]
    calls = placed(zip(names, calls, strict=True), parents, tools, agents)
    return assemble(calls, [_tool_run(r) for r in runs if r.get("run_type") == "tool"])


def _leaves(runs: list[Record]) -> list[Record]:
    """Return the model calls that hold no other."""
    parents = {own_id(r, "parent_run_id") for r in runs if r.get("run_type") == "llm"}
    return [r for r in runs if r.get("run_type") == "llm" and own_id(r) not in parents]


def parse(item: SourceItem) -> Trajectory:
    record, conversation = item.value, item.context.get("found") or _assembled(item)
    runs: list[Record] = record["runs"]
    messages = conversation.messages or _asked_and_said(record)
    if not messages:
        raise ValueError(f"no messages in {len(runs)} runs")
    behind, more = subagent(item, conversation)
    id, meta = as_text(record["trace_id"]) + behind, _meta(item, _leaves(runs)) | more
    if behind:  # feedback is on the trace's root
        return make(item, NAME, messages, meta=meta, id=id)
    feedback = _feedback(record)
    on_scale = {p: raw for p, raw in feedback.items() if _key(record, p) not in item.context["other_scale"]}
    labels = {p: v for p, raw in on_scale.items() if (v := as_outcome(raw)) is not None}
    sole = next((p for p in labels if len(feedback) == 1 and says_success(_key(record, p))), None)
    fields = {"outcome_fields": list(labels)} if feedback and sole is None else {}
    outcome = None if sole is None else RunOutcome(labels[sole], sole)
    tools = next((t for r in _leaves(runs) if (t := _tools(r))), None)
    return make(item, NAME, messages, meta=meta | fields, id=id, outcome=outcome, tools=tools)


def _meta(item: SourceItem, leaves: list[Record]) -> dict[str, Any]:
    record = item.value
    fields = {k: v for k, v in record.items() if k not in (*LONG, "runs", "id") and v not in (None, {}, [], "")}
    models = ("extra.invocation_params.model", "extra.invocation_params.model_name", "extra.metadata.ls_model_name")
    model = next((m for r in leaves for path in models if isinstance(m := get(r, path), str)), None)
    start, end = _seconds(record.get("start_time")), _seconds(record.get("end_time"))
    more = {"model": model, "duration_s": round(end - start, 6) if start is not None and end is not None else None}
    counts = dict(Counter(as_text(r.get("run_type", ""))[:40] for r in record["runs"]))
    return fields | {"lines": item.context["lines"], "runs": counts} | {k: v for k, v in more.items() if v is not None}


def get_messages(value: Any) -> Any:
    """Return the value under `messages`, or in a LangGraph command or output one level deeper."""
    if not isinstance(value, dict):
        return None
    inner = value.get("output")
    return value.get("messages", inner.get("messages") if isinstance(inner, dict) else None)


def _listed(value: Any) -> list[Any] | None:
    """A list of messages, or the only one in a batch; None for anything else."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) and not _is_pair(value[0]):
        value = value[0]
    if not isinstance(value, list) or not value:
        return None
    return value if is_chat(value) or is_messages(value) or all(_is_pair(m) for m in value) else None


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and value[0] in PAIR_ROLES and isinstance(value[1], str)


def _read(raw: Any, where: str, role: str) -> list[Message]:
    """Read messages of LangChain, OpenAI, Anthropic's blocks, or (role, text) pairs."""
    messages = list[Message]()
    for i, entry in enumerate(_listed(raw) or []):
        if isinstance(entry, list):
            entry = {"role": entry[0], "content": entry[1]}
        messages += _message(entry, f"{where}[{i}]", role)
    return messages


def _message(raw: Any, where: str, role: str) -> list[Message]:
    if isinstance(raw, str):
        return [{"role": role, "content": raw}]
    if isinstance(raw, dict) and isinstance(raw.get("role"), str) and isinstance(raw.get("content"), list):
        return unblock(raw, where)
    return [message_of(raw, where)]


def _call(run: Record) -> ModelSpan:
    """Return an `llm` run's input and output messages."""
    inputs, where = run.get("inputs"), f"run {own_id(run)}"
    history = _read(get_messages(inputs), f"{where} inputs", "user")
    if not history and isinstance(inputs, dict):
        prompts = inputs.get("prompts", inputs.get("prompt", inputs.get("input")))
        prompts = prompts if isinstance(prompts, list) and _listed(prompts) is None else [prompts]
        for prompt in prompts:
            history += _read(prompt, f"{where} inputs", "user") or (
                [{"role": "user", "content": prompt}] if isinstance(prompt, str) else []
            )
    system = inputs.get("system") if isinstance(inputs, dict) else None
    if isinstance(system, str) and system and not any(m["role"] == "system" for m in history):
        history.insert(0, {"role": "system", "content": system})
    wrote = _wrote(run.get("outputs"), f"{where} outputs")
    for message in wrote:
        if isinstance(stamp := run.get("end_time"), str | int | float) and not isinstance(stamp, bool):
            message.setdefault("timestamp", stamp)
    return ModelSpan(history, wrote, _order(run)[0])


def _wrote(outputs: Any, where: str) -> list[Message]:
    """Return the answer: the first generation or choice, a message by itself, or a text."""
    if not isinstance(outputs, dict):
        return []
    first = outputs.get("generations", outputs.get("choices"))
    while isinstance(first, list) and first:
        first = first[0]
    if isinstance(first, dict):
        if isinstance(first.get("message"), dict):
            return _message(first["message"], where, "assistant")
        return [{"role": "assistant", "content": as_text(first["text"])}] if "text" in first else []
    if listed := _read(outputs.get("messages"), where, "assistant"):
        return listed
    for candidate in (outputs, outputs.get("message"), outputs.get("output")):
        if isinstance(candidate, dict) and (isinstance(candidate.get("role"), str) or is_messages([candidate])):
            return _message(candidate, where, "assistant")
    text = next((v for k in SAID if isinstance(v := outputs.get(k), str)), None)
    return [{"role": "assistant", "content": text}] if text is not None else []


def _asked_and_said(record: Record) -> list[Message]:
    """Return a trace without a model's call as its root's input and output."""
    inputs, outputs = record.get("inputs"), record.get("outputs")
    messages = _read(get_messages(inputs), "inputs", "user")
    if not messages and isinstance(inputs, dict):
        text = next((v for k in ASKED if isinstance(v := inputs.get(k), str)), None)
        messages = [{"role": "user", "content": text}] if text is not None else []
    return [*messages, *_wrote(outputs, "outputs")] if messages else []


def _tools(run: Record) -> list[dict[str, Any]] | None:
    for path in ("extra.invocation_params.tools", "inputs.tools", "extra.options.tools"):
        listed = get(run, path)
        if isinstance(listed, list) and (tools := anthropic_tools(listed) or tool_list(listed)):
            return tools
    return None


def _tool_run(run: Record) -> ToolRun:
    """Return a tool's run; its result is an error, a ToolMessage's content, the output's text or its JSON."""
    inputs, outputs, failed = run.get("inputs"), run.get("outputs"), run.get("error") is not None
    result = outputs.get("output", outputs) if isinstance(outputs, dict) else outputs
    message = message_of(result) if is_messages([result]) else {}
    # a tool's text that LangChain printed as `content='…' name='…' tool_call_id='…'` stays text
    printed = re.search(r"tool_call_id='([^']{1,100})'\Z", result[-200:]) if isinstance(result, str) else None
    number = message.get("tool_call_id") or get(run, "extra.tool_call_id") or (printed and printed[1])
    start, end = _seconds(run.get("start_time")), _seconds(run.get("end_time"))
    arguments = inputs.get("args", inputs) if isinstance(inputs, dict) else inputs
    if isinstance(arguments, dict) and arguments.keys() == {"input"}:
        arguments = None  # the arguments as Python prints them: not compared
    stamp = run.get("end_time")
    return ToolRun(
        as_text(run.get("name", "")),
        number if isinstance(number, str) else None,
        arguments,
        as_text(run["error"]) if failed else message.get("content", result),
        failed or bool(message.get("is_error")),
        start or 0.0,
        round(end - start, 6) if start is not None and end is not None else None,
        stamp if isinstance(stamp, str | int | float) and not isinstance(stamp, bool) else None,
    )
