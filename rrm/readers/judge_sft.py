"""`judge_sft`: training data of reasoning reward models: a judge's prompt and its reply.

As in Reagent-RRM-SFT-28K: a rubric, the question and the transcript; then `<think>`, `<critique>` and `<score>`. The transcript becomes
messages and the reply a label that `rrm annotate --annotator given` and `rrm train data.annotations=[given]` take (`meta["annotations"]`).
Rows are ShareGPT's `conversations` (or `messages`): the first or second turn is the prompt, the last the reply. Headings:
https://huggingface.co/datasets/bunny127/Reagent-RRM-SFT-28K, https://github.com/kxfan2002/Reagent (which writes `Agent Trajectory:`).
"""

from __future__ import annotations

import re
from typing import Any

from rrm.data.blocks import parse_judgement
from rrm.data.jsonl import DECODER
from rrm.data.trajectory import Trajectory
from rrm.readers.base import SourceItem, make, own_id, without
from rrm.readers.chat import is_chat, text_of
from rrm.readers.chat_text import Turn, declared_tools, prompt_turns, reply_turns, turn_messages
from rrm.readers.messages import chat_messages
from rrm.readers.outcomes import NUMERIC, find_outcome

NAME = "judge_sft"
MARKS = ("conversations[].from=human", "conversations[].from=gpt", "conversations[].value")
QUESTIONS = (
    re.compile(r"^Original question:[ \t]*\n?", re.MULTILINE),
    re.compile(r"^Question:[ \t]*\n?", re.MULTILINE),
)
"""Headings of the question, the surest first."""
TRAJECTORY = (
    re.compile(r"^Agent trajectory:[ \t]*\n?", re.MULTILINE | re.IGNORECASE),
    re.compile(r"^[^\n:<>]{0,40}\btrajectory:[ \t]*\n?", re.MULTILINE | re.IGNORECASE),
    re.compile(
        r"^(?:The )?(?:agent|model|assistant)(?:['’]s)? (?:full |complete )?(?:response|reasoning|output|answer)(?: process)?:[ \t]*\n?",
        re.MULTILINE | re.IGNORECASE,
    ),
)
"""Headings of the transcript, the surest first. Rubric, question and transcript may hold lookalikes."""
BLOCKS = ("<critique>", "</critique>", "<score>", "</score>")


def sniff(value: Any) -> bool:
    """Match two or three turns, of which the last is a critique and score of the one before."""
    if not isinstance(value, dict) or (key := _chat(value)) is None:
        return False
    turns = value[key]
    if not 2 <= len(turns) <= 3 or not all(isinstance(turn, dict) for turn in turns):
        return False
    prompt, reply = (turn.get("value", turn.get("content")) for turn in turns[-2:])
    return (
        isinstance(prompt, str)
        and isinstance(reply, str)
        and all(tag in reply for tag in BLOCKS)
        and any(heading.search(prompt) for heading in QUESTIONS)
    )


def _chat(record: dict[str, Any]) -> str | None:
    return next((key for key in ("conversations", "messages") if is_chat(record.get(key))), None)


def parse(item: SourceItem) -> Trajectory:
    record = item.value
    if not isinstance(record, dict) or (key := _chat(record)) is None:
        raise ValueError("no `conversations` with a judge's prompt and its reply")
    chat = chat_messages(record[key], key)
    if [m["role"] for m in chat] not in (["user", "assistant"], ["system", "user", "assistant"]):
        raise ValueError(f"a judge's prompt and its reply were expected in `{key}`, got {len(chat)} turns")
    *rubric, prompt, reply = (text_of(m.get("content")) for m in chat)
    judgement = parse_judgement(reply)
    if judgement.score is None:
        raise ValueError(f"the reply's score cannot be read: {judgement.problem}")
    before, question, transcript = _sections(prompt)
    question_turns = prompt_turns(question)[0]
    messages, is_complete = _messages(transcript)
    if not is_complete:
        messages = [*turn_messages(question_turns), *messages]
    if not any(m["role"] == "assistant" for m in messages):
        raise ValueError("the prompt's transcript holds no turn of the agent")
    label = {k: getattr(judgement, k) for k in ("score", "trace", "critique")} | {"annotator": NAME, "kind": "llm"}
    meta = without(record, key, "id", "question_id")
    meta |= {"annotations": [{k: v for k, v in label.items() if v is not None}]}
    return make(
        item,
        NAME,
        messages,
        meta=meta | {"rubric": "\n\n".join([*rubric, before]).strip()},
        id=own_id(record),
        question_id=own_id(record, "question_id"),
        outcome=find_outcome({k: v for k, v in record.items() if k not in NUMERIC}),  # a number there is the judge's
        tools=declared_tools(question_turns) or declared_tools([("system", question)]),
    )


def _sections(prompt: str) -> tuple[str, str, str]:
    """Split a prompt into (text before the question, question, transcript) by its surest headings."""
    if not any(heading.search(prompt) for heading in QUESTIONS):
        raise ValueError("the prompt names no question (a line `Original question:` or `Question:`)")
    for heading in TRAJECTORY:
        ends = list(heading.finditer(prompt))
        for start in QUESTIONS:
            questions = [m for m in start.finditer(prompt) if ends and m.end() <= ends[-1].start()]
            if questions:
                return _parts(prompt, questions, [m for m in ends if m.start() >= questions[0].end()])
    raise ValueError(
        "the prompt names no transcript after its question (a line such as `Agent Trajectory:` or `Agent's response:`)"
    )


def _parts(prompt: str, questions: list[re.Match[str]], transcripts: list[re.Match[str]]) -> tuple[str, str, str]:
    """Split by one heading each, of the question and of the transcript after it."""
    questions = [m for m in questions if m.start() < transcripts[0].start()]  # the others stand in the transcript
    for matches in (questions, transcripts):
        if len(matches) > 1:
            raise ValueError(
                f"the prompt has {len(matches)} lines like {matches[0].group().strip()!r}, and which one is the heading cannot be known"
            )
    question = prompt[questions[0].end() : transcripts[0].start()].strip()
    transcript = prompt[transcripts[0].end() :].strip()
    if not transcript:
        raise ValueError(f"nothing follows the prompt's heading {transcripts[0].group().strip()!r}")
    return prompt[: questions[0].start()].strip(), question, transcript


def _messages(text: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the transcript's messages, and whether they include the question.

    Reads a JSON list, or a text with ChatML's, Llama-3's or Qwen's tags; other text is one message of the agent.
    """
    if text.startswith("["):
        try:
            listed = DECODER.decode(text)
        except (ValueError, RecursionError):
            listed = None
        if is_chat(listed):
            messages = chat_messages(listed, "the transcript")
            return messages, messages[0]["role"] != "assistant"
    turns: list[Turn] = reply_turns(text)
    return turn_messages(turns), bool(turns) and turns[0][0] in ("system", "user")
