"""Runs that succeeded, of two kinds: native calls that change state, and a search in ReAct text; each in both forms."""

from __future__ import annotations

from typing import Any

from rrm.data.trajectory import Trajectory
from rrm.prompt.canonical import in_form

CHANGES = frozenset({"refund_order", "send_email"})
TOOLS = [{"name": n} for n in ("get_order", "search_orders", "get_policy", "refund_order", "send_email")]
PEOPLE = ["Ada Lovelace", "Alan Turing", "Grace Hopper", "Emmy Noether", "Mary Somerville", "Edsger Dijkstra"]


def support(i: int, form: str = "native") -> Trajectory:
    """A support run that succeeded: it looks up, refunds, sends word, and says what it did."""
    order, other, total, name = f"A-{4810 + i}", f"B-{7720 + i}", f"{40 + i}.{50 + i}", PEOPLE[i % 6]
    refund, rules = (
        f"R-{900 + 7 * i}",
        ("I read the policy.", "get_policy", {"name": "refunds"}, "Refunds within 30 days."),
    )
    steps: list[tuple[str, str, dict[str, Any], str]] = [
        ("I look for the customer's orders.", "search_orders", {"customer": name}, f'{{"orders": ["{order}", "{other}"], "since": "2024-03-{10 + i}"}}'),
        (f"There are {order} and {other}; I open the first.", "get_order", {"order": order}, f'{{"id": "{order}", "delivered": "2026-11-{10 + i}", "total": {total}, "items": {13 + i}}}'),
        (f"It was delivered on 2026-11-{10 + i}, with {13 + i} items; the policy allows it.", "refund_order", {"order": order, "amount": float(total)}, f'{{"refund": "{refund}", "amount": {total}}}'),
        (f"The refund {refund} is made; now I tell {name}.", "send_email", {"to": name, "text": f"Refund {refund}"}, '{"sent": true}'),
    ]  # fmt: skip
    steps[:0] = [rules] if i % 3 == 0 else []
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You help customers. Be polite."},
        {"role": "user", "content": f"Refund the broken order of {name}, please."},
    ]
    for k, (thought, tool, arguments, result) in enumerate(steps):
        call = {"id": f"c{k}", "name": tool, "arguments": arguments}
        messages.append({"role": "assistant", "content": thought, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{k}", "content": result})
    messages.append(
        {
            "role": "assistant",
            "content": f"I have refunded {total} for order {order} under {refund}, and sent you an email.",
        }
    )
    run = Trajectory.model_validate(
        {
            "id": f"s{i}",
            "task": f"Refund the broken order of {name}, please.",
            "messages": messages,
            "tools": TOOLS,
            "outcome": 1.0,
        }
    )
    return in_form(run, "react") if form == "react" else run


def question(i: int, form: str = "react") -> Trajectory:
    """A search run in text that succeeded, with a marked answer."""
    who, year = PEOPLE[i % 6], 1815 + 9 * i
    steps = [
        (f"Thought: I search for {who}.\nAction: search[{who} born]", f"Observation: {who} was born in {year} in Kassel, the daughter of {PEOPLE[(i + 1) % 6]}."),
        (f"Thought: She was born in {year}; next the town of Kassel.\nAction: lookup[Kassel]", "Observation: Kassel is a town on the Fulda."),
        (f"Thought: So it is {year}.\nAction: Finish[{year}]", ""),
    ]  # fmt: skip
    messages = [{"role": "user", "content": f"When was {who} born?"}]
    for said, seen in steps:
        messages.append({"role": "assistant", "content": said})
        messages += [{"role": "tool", "name": "environment", "content": seen}] if seen else []
    run = Trajectory.model_validate(
        {
            "id": f"q{i}",
            "task": f"When was {who} born?",
            "messages": messages,
            "outcome": 1.0,
            "tools": [{"name": "search"}, {"name": "lookup"}],
        }
    )
    return in_form(run, "native") if form == "native" else run
