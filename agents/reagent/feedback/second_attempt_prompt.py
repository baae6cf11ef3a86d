"""The prompt of a second attempt: question, first attempt and critique; none of it is trained on."""

from collections.abc import Sequence
from typing import Any

from reagent.env.tool import shorten
from rrm.data.trajectory import Message
from rrm.prompt.neutralise import neutralise_control
from rrm.prompt.rendering import water_fill

ATTEMPT_CHARS = 700
ATTEMPT, CRITIQUE, AGAIN = "First attempt:", "Critique:", "Try again."


def render_attempt(messages: Sequence[dict[str, Any]], max_chars: int = ATTEMPT_CHARS) -> str:
    """Render messages, from the agent's first turn on, as lines `[step 1] search {…} -> result`."""
    steps: list[str] = []
    for raw in messages:
        message = Message.model_validate(raw)
        if message.role != "assistant":
            if steps:
                steps[-1] += f" -> {message.text().strip()}"
            continue
        parts = [message.reasoning_content or "", message.text()]
        parts += [f"{call.name} {call.arguments_text()}" for call in message.tool_calls or ()]
        steps.append(" ".join(p.strip() for p in parts if p.strip()) or "(nothing)")
    lines = [neutralise_control(" ".join(step.split())) for step in steps]
    shares = water_fill([len(line) for line in lines], max_chars)
    shortened = (shorten(line, share, " … ")[0] for line, share in zip(lines, shares, strict=True))
    return "\n".join(f"[step {k}] {step}" for k, step in enumerate(shortened, 1))


def second_attempt(
    prompt: Sequence[dict[str, Any]],
    attempt: Sequence[dict[str, Any]],
    critique: str | None,
    max_chars: int = ATTEMPT_CHARS,
    critique_chars: int = 1000,
) -> list[dict[str, Any]]:
    """The first attempt's prompt, its question followed by attempt and critique (None: a retry).

    Raises ValueError: the prompt has no user message. A critique longer than `critique_chars` loses its middle."""
    parts = [ATTEMPT, render_attempt(attempt, max_chars)]
    if critique is not None:  # no control token, and not too long
        parts += [CRITIQUE, shorten(neutralise_control(critique.strip()), critique_chars, " … ")[0]]
    places = [i for i, message in enumerate(prompt) if message["role"] == "user"]
    if not places:
        raise ValueError("a second attempt needs a user message in the prompt, to put the first attempt behind it")
    messages = [dict(message) for message in prompt]
    messages[places[-1]]["content"] = "\n".join([prompt[places[-1]]["content"], *parts, AGAIN])
    return messages
