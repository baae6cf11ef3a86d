"""`openai`: OpenAI chat messages, TRL's rows (`messages`, `prompt` + `completion`) and ShareGPT's."""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, first_user_text, make, own_id, text_field, without
from rrm.readers.chat import is_chat, tool_list
from rrm.readers.messages import chat_messages
from rrm.readers.outcomes import find_outcome

NAME = "openai"
MARKS = ("messages|conversations|prompt|[].role", "messages[].role|conversations[].from|prompt[].role|[].role")


def sniff(value: Any) -> bool:
    """A list of messages, or an object that holds one under a usual name."""
    if isinstance(value, list):
        return is_chat(value)
    if not isinstance(value, dict):
        return False
    if is_chat(value.get("messages")) or is_chat(value.get("conversations")):
        return True
    return is_chat(value.get("prompt")) and "completion" in value


def parse(item: SourceItem) -> Trajectory:
    """Read one conversation; messages keep their indices, so annotations that point at them stay valid
    (except beside Anthropic's blocks: `rrm.readers.messages`)."""
    record = item.value if isinstance(item.value, dict) else {"messages": item.value}
    messages, used = _messages(record)
    tools = tool_list(record.get("tools"))
    question_id = own_id(record, "question_id")
    meta = without(record, "id", *used, *(["tools"] if tools is not None else []))
    if question_id is not None:
        meta.pop("question_id")
    task = _task(record, messages)
    # TRL's unpaired preference rows; beside `messages` a label may be a gold answer
    unpaired = used == ("prompt", "completion") and isinstance(record.get("label"), bool)
    if meta.get("task") == task:
        del meta["task"]
    outcome, id = find_outcome(record, *(["label"] if unpaired else [])), own_id(record)
    return make(
        item, NAME, messages, meta=meta, id=id, task=task, question_id=question_id, outcome=outcome, tools=tools
    )


def _messages(record: dict[str, Any]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The messages, and the keys they came from."""
    for key in ("messages", "conversations"):
        if key in record:
            return chat_messages(record[key], key), (key,)
    if "prompt" not in record or "completion" not in record:
        missing = "has `chosen` and `rejected`: read one of them with --map messages=chosen"
        raise ValueError(missing if "chosen" in record else "no `messages`, and no `prompt` with a `completion`")
    prompt, completion = record["prompt"], record["completion"]
    prompt = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    completion = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
    return chat_messages(prompt, "prompt") + chat_messages(completion, "completion"), ("prompt", "completion")


def _task(record: dict[str, Any], messages: list[dict[str, Any]]) -> str:
    """The question: `question` where the record has one; `task` only if it is a phrase the user said.

    A `task` of one or two words may name a data set ("math"), which a question can contain by chance ("\\mathop").
    """
    user_text = first_user_text(messages)
    if question := text_field(record, "question"):
        return question
    claimed = text_field(record, "task")
    if claimed and not user_text:
        return claimed
    return claimed if claimed and len(claimed.split()) > 2 and claimed.strip() in user_text else user_text
