"""`verl`: verl's rollout and validation dumps (`{input, output, gts, score, step, …}`) and Agent-R1's.

Prompt and reply are texts, with or without their special tokens (`rrm.readers.chat_text`). Each of Agent-R1's `steps` has the whole prompt:
what it adds to the turns before came back from the environment, also where the prompt is built anew for each step.
"""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers import react, search_tags
from rrm.readers.base import SourceItem, make, own_id, without
from rrm.readers.chat_text import Turn, declared_tools, prompt_turns, reply_turns, turn_messages
from rrm.readers.outcomes import RunOutcome, find_outcome

NAME = "verl"
MARKS = ("input", "output", "score", "step|steps[].step_index")


def sniff(value: Any) -> bool:
    """Texts under `input` and `output`, beside the training step and a score."""
    if not isinstance(value, dict) or not _is_pair(value) or "score" not in value:
        return False
    step = value.get("step")
    return isinstance(step, int) and not isinstance(step, bool)


def _is_pair(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("input"), str) and isinstance(value.get("output"), str)


def parse(item: SourceItem) -> Trajectory:
    record = item.value
    if not _is_pair(record):
        raise ValueError("no texts under `input` and `output`")
    raw = record.get("steps")
    steps = raw if isinstance(raw, list) and raw and all(map(_is_pair, raw)) else None
    turns = _joined(steps) if steps else [*prompt_turns(record["input"])[0]]
    if steps:
        messages = turn_messages(turns)
    else:
        reply = reply_turns(record["output"], prompt_turns(record["input"])[1])
        messages = turn_messages(turns)
        messages += reply_messages(reply, sum(len(m.get("tool_calls", ())) for m in messages))
    meta = without(record, "input", "output", *(["steps"] if steps else []))
    if steps:
        meta["steps"] = [{k: v for k, v in step.items() if k not in ("input", "output")} for step in steps]
    if meta.get("reference") is None and meta.get("gts") is not None:
        meta["reference"] = meta.pop("gts")
    id, outcome = own_id(record, "trajectory_uid", "request_id"), _outcome(record, steps)
    return make(item, NAME, messages, meta=meta, id=id, outcome=outcome, tools=declared_tools(turns))


def _outcome(record: dict[str, Any], steps: list[dict[str, Any]] | None) -> RunOutcome | None:
    """Read `acc`, verl's own success; the score may be a shaped reward, and of steps it is a sum."""
    last = steps[-1] if steps else {}
    for prefix, holder in (("", record), (f"steps[{len(steps or ()) - 1}].", last)):
        accuracy = holder.get("acc")
        if isinstance(accuracy, bool | int | float) and 0 <= accuracy <= 1:
            return RunOutcome(float(accuracy), f"{prefix}acc")
    return find_outcome(record)


def reply_messages(turns: list[Turn], calls_before: int) -> list[dict[str, Any]]:
    """Read a reply; one text of search tags or of Thought and Action lines as those formats do."""
    if len(turns) == 1:
        text = turns[0][1]
        if any(tag in text for tag in search_tags.QUERY):
            return search_tags.turns(text)
        if "<tool_call>" not in text and react.sniff(text) and react.LABEL.search(text):
            return react.turns(text, calls_before)
    return turn_messages(turns, calls_before)


def _joined(steps: list[dict[str, Any]]) -> list[Turn]:
    """The turns of a run's steps, each said once."""
    turns: list[Turn] = []
    for step in steps:
        output = step["output"]
        text = step["input"].removesuffix(output) if output.strip() else step["input"]  # validation dumps end with it
        prompt, begun = prompt_turns(text)
        earlier = [_plain(turn) for turn in turns]
        if [_plain(turn) for turn in prompt[: len(turns)]] == earlier:
            turns += prompt[len(turns) :]
        else:
            turns += [turn for turn in prompt if _plain(turn) not in earlier]
        turns += reply_turns(output, begun)
    return turns


def _plain(turn: Turn) -> Turn:
    """Return a turn as a later prompt repeats it: templates leave out thoughts."""
    return turn[0], (turn[1].rpartition("</think>")[2] if turn[0] == "assistant" else turn[1]).strip()
