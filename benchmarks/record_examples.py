"""Record a real small language model at work as an agent: the transcripts in examples/transcripts/.

SmolLM2-135M-Instruct answers questions about a small invented country with two tools, `search` (BM25 over the country's
encyclopedia) and `calculator`. It is prompted ReAct-style with three worked examples; each turn starts with `Thought:`
and everything after that is its own, sampled, and kept whether it went well or not. The outcome is exact match after normalisation.

    python -m benchmarks.record_examples                 # writes examples/transcripts/smollm2_agent.jsonl and README.md

Simplified: one episode at a time; only the examples' KV cache is kept between turns.
"""

from __future__ import annotations

import ast
import copy
import json
import math
import operator
import platform
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from rrm.data.seeds import derive_seed
from rrm.data.trajectory import Message, ToolCall, Trajectory, write_jsonl

OUT = Path(__file__).resolve().parents[1] / "examples" / "transcripts"
MAX_TURNS = 6
SYSTEM = (
    "Answer the question with the tools. Write a Thought, then either one Action (search[query] or "
    "calculator[expression]) or the Answer."
)
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, description, argument in (
        ("search", "Find the encyclopedia's best article for a query.", "query"),
        ("calculator", "Evaluate an arithmetic expression.", "expression"),
    )
]
ARGUMENT = {"search": "query", "calculator": "expression"}
EXAMPLES = """\
Question: Who is the mayor of Newport?
Thought: I search for the mayor of Newport.
Action: search[mayor of Newport]
Observation: The mayor of Newport is Tina Brook.
Thought: The mayor of Newport is Tina Brook.
Answer: Tina Brook

Question: In which year was the mayor of Ashton born?
Thought: I search for the mayor of Ashton.
Action: search[mayor of Ashton]
Observation: The mayor of Ashton is Hugo Stone.
Thought: The mayor of Ashton is Hugo Stone. I search for Hugo Stone.
Action: search[Hugo Stone born]
Observation: Hugo Stone, a baker, was born in 1951.
Thought: Hugo Stone was born in 1951.
Answer: 1951

Question: How many people live in Newport and Ashton together?
Thought: I search for the people in Newport.
Action: search[people live in Newport]
Observation: In Newport live 41 people.
Thought: In Newport live 41 people. I search for the people in Ashton.
Action: search[people live in Ashton]
Observation: In Ashton live 25 people.
Thought: In Ashton live 25 people. I add 41 and 25.
Action: calculator[41 + 25]
Observation: 66
Thought: Together they are 66.
Answer: 66

"""
HEAD = f"{SYSTEM}\n\n{EXAMPLES}"
"""What every prompt starts with."""


@dataclass(frozen=True)
class Question:
    """A question about the invented country and its one right answer."""

    id: str
    text: str
    answer: str


def make_country(seed: int, n_cities: int = 8) -> tuple[list[str], list[Question]]:
    """An encyclopedia of one-sentence articles, and three questions a pair of cities: one hop, two hops, and a sum."""
    rng = random.Random(seed)
    names = ["Oakford", "Redhill", "Milton", "Kingston", "Bridgeton", "Lakewood", "Sandville", "Greenfield", "Westbury"]
    first = ["Anna", "Peter", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Julia", "Martin"]
    last = ["Moore", "Hill", "Rand", "Foster", "Tanner", "Webb", "Voss", "Carter", "Young", "Baxter"]
    crafts = ["painter", "doctor", "teacher", "sailor", "farmer"]
    cities = rng.sample(names, n_cities)
    mayors = [f"{a} {b}" for a, b in zip(rng.sample(first, n_cities), rng.sample(last, n_cities), strict=True)]
    people, born = rng.sample(range(11, 99), n_cities), rng.sample(range(1930, 1990), n_cities)
    articles: list[str] = []
    for city, mayor, count, year in zip(cities, mayors, people, born, strict=True):
        articles.append(f"The mayor of {city} is {mayor}.")
        articles.append(f"In {city} live {count} people.")
        articles.append(f"{mayor}, a {rng.choice(crafts)}, was born in {year}.")
    questions: list[Question] = []
    for i in range(0, n_cities, 2):
        one, two, total = cities[i], cities[i + 1], str(people[i] + people[i + 1])
        questions += [
            Question(f"mayor-{one}", f"Who is the mayor of {one}?", mayors[i]),
            Question(f"born-{two}", f"In which year was the mayor of {two} born?", str(born[i + 1])),
            Question(f"sum-{one}-{two}", f"How many people live in {one} and {two} together?", total),
        ]
    return articles, questions


def words(text: str) -> list[str]:
    """Lower-case words and numbers."""
    return re.findall(r"\w+", text.lower())


def search(articles: list[str], query: str, k1: float = 1.5, b: float = 0.75) -> str:
    """The best article by BM25; the first of several that score the same."""
    documents = [Counter(words(text)) for text in articles]
    mean = sum(d.total() for d in documents) / len(documents)

    def score(counts: Counter[str]) -> float:
        total = 0.0
        for word in set(words(query)):
            containing = sum(word in d for d in documents)
            idf = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            total += idf * counts[word] * (k1 + 1) / (counts[word] + k1 * (1 - b + b * counts.total() / mean))
        return total

    scores = [score(d) for d in documents]
    best = max(scores)
    return articles[scores.index(best)] if best > 0 else "no article found"


_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def calculate(expression: str) -> str:
    """Evaluate + - * / and parentheses by walking the syntax tree; anything else raises ValueError."""

    def value(node: ast.AST) -> float:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
        raise ValueError(f"only numbers and + - * / are allowed, got {ast.unparse(node)[:40]!r}")

    try:
        result = value(ast.parse(expression.strip(), mode="eval"))
    except (SyntaxError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise ValueError(f"cannot evaluate {expression[:40]!r}: {error}") from error
    return f"{result:.10g}"


def normalise(answer: str) -> str:
    """Lower case, no articles, no punctuation: what exact match compares."""
    return " ".join(w for w in words(answer) if w not in ("a", "an", "the"))


def parse_turn(text: str) -> tuple[str, ToolCall | None, str | None]:
    """What the agent wrote → (its text without the action, the call, the answer); both None when it did neither."""
    action = re.search(r"^Action:\s*(\w+)\s*\[(.*?)\]\s*$", text, re.MULTILINE)
    answer = re.search(r"^Answer:[ \t]*(\S.*)$", text, re.MULTILINE)
    if action and (not answer or action.start() < answer.start()):
        name, argument = action.groups()
        call = ToolCall(name=name, arguments={ARGUMENT.get(name, "input"): argument})
        return text[: action.start()].strip(), call, None
    if answer:
        return text[: answer.end()].strip(), None, answer[1].strip()
    return text.strip(), None, None


def run_tool(call: ToolCall, articles: list[str]) -> str:
    """The tool's result, or an error the agent can act on."""
    argument = str(next(iter(call.arguments.values()))) if isinstance(call.arguments, dict) else call.arguments
    if call.name == "search":
        return search(articles, argument)
    if call.name == "calculator":
        try:
            return calculate(argument)
        except ValueError as error:
            return f"error: {error}"
    return f"error: there is no tool {call.name!r}; the tools are search and calculator"


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def run_agent(
    generate: Callable[[str, int], str], question: Question, articles: list[str], seed: int
) -> tuple[list[Message], str | None]:
    """One episode: the messages, and the agent's answer (None when it gave none within `MAX_TURNS`).

    `generate(prompt, seed)` continues a text up to the next observation. A second malformed turn ends the episode.
    """
    messages = [Message(role="system", content=SYSTEM), Message(role="user", content=question.text, timestamp=now())]
    prompt = f"{HEAD}Question: {question.text}\n"
    malformed = 0
    for turn in range(1, MAX_TURNS + 1):
        text, call, answer = parse_turn("Thought: " + generate(prompt + "Thought:", derive_seed(seed, turn)))
        message = Message(role="assistant", content=text, timestamp=now())
        messages.append(message)
        if answer is not None:
            return messages, answer
        if call is None:
            malformed += 1
            if malformed == 2:
                break
            observation = "error: write `Action: search[query]`, `Action: calculator[expression]` or `Answer: ...`"
            messages.append(Message(role="user", content=observation, timestamp=now()))
            prompt += f"{text}\nObservation: {observation}\n"
            continue
        call.id = f"call_{turn}"
        message.tool_calls = [call]
        start = time.perf_counter()
        observation = run_tool(call, articles)
        took = round(time.perf_counter() - start, 6)
        messages.append(
            Message(
                role="tool", name=call.name, tool_call_id=call.id, content=observation, timestamp=now(), duration_s=took
            )
        )
        argument = next(iter(call.arguments.values())) if isinstance(call.arguments, dict) else call.arguments
        prompt += f"{text}\nAction: {call.name}[{argument}]\nObservation: {observation}\n"
    return messages, None


def load_generate(model_dir: str, temperature: float, max_new_tokens: int = 48) -> Callable[[str, int], str]:
    """`generate(prompt, seed)` for a local causal model: samples until the agent hands over or starts a new question.

    The examples at the head of every prompt are prefilled once and their KV cache is copied for each call.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    head = tokenizer(HEAD, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        head_cache = model(head).past_key_values
    stops = ["Observation:", "Question:"]

    def generate(prompt: str, seed: int) -> str:
        set_seed(seed % 2**32)
        rest = tokenizer(prompt.removeprefix(HEAD), return_tensors="pt")["input_ids"]
        ids = torch.cat([head, rest], dim=1)  # (1, T)
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                past_key_values=copy.deepcopy(head_cache),
                max_new_tokens=max_new_tokens,
                do_sample=temperature > 0,
                temperature=temperature or None,
                top_k=0,
                stop_strings=stops,
                tokenizer=tokenizer,
                pad_token_id=tokenizer.eos_token_id,
            )
        text = tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
        return re.split("|".join(stops), text)[0].strip()

    return generate


README = """\
# Example transcripts

`smollm2_agent.jsonl`: {rows} runs of a real small language model as a tool-using agent, {per} at each of
{questions} questions, as it was recorded on {date}: canonical trajectories (OpenAI chat messages with tool calls, time
stamps, tool durations, and the outcome by exact match).

- agent: {model} (temperature {temperature}, at most {turns} turns, three worked examples in its prompt)
- tools: `search` (BM25 over an invented country's encyclopedia) and `calculator`
- command: `python -m benchmarks.record_examples --seed {seed} --attempts {per} --temperature {temperature}`
- outcome: {right} of {rows} runs answered right ({rate:.0%}); {unanswered} gave no answer
- machine: {machine}

Nothing was edited or selected. The cities' mayors and numbers are invented.
"""


def command(
    model: Annotated[str | None, typer.Option(help="Model directory; the default base weights when absent.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = OUT,
    seed: Annotated[int, typer.Option(help="Seed of the country and of the sampling.")] = 0,
    attempts: Annotated[int, typer.Option(help="Runs a question.")] = 2,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 0.4,
) -> None:
    """Record the example transcripts; the last line of output is one JSON object."""
    from rrm.engines.hf.weights import DEFAULT_BASE, fetch_base

    generate = load_generate(model or str(fetch_base()), temperature)
    name = Path(model).name if model else DEFAULT_BASE
    articles, questions = make_country(seed)
    rows: list[Trajectory] = []
    started = time.perf_counter()
    for question in questions:
        for attempt in range(attempts):
            messages, answer = run_agent(generate, question, articles, derive_seed(seed, question.id, attempt))
            rows.append(
                Trajectory(
                    id=f"{question.id}-{attempt}",
                    question_id=question.id,
                    task=question.text,
                    messages=messages,
                    tools=TOOLS,
                    outcome=float(answer is not None and normalise(answer) == normalise(question.answer)),
                    meta={"agent": name, "reference": question.answer, "answer": answer, "seed": seed},
                )
            )
    out.mkdir(parents=True, exist_ok=True)
    write_jsonl(out / "smollm2_agent.jsonl", rows)
    right, unanswered = sum(r.outcome == 1.0 for r in rows), sum(r.meta["answer"] is None for r in rows)
    facts = {"rows": len(rows), "per": attempts, "questions": len(questions), "date": now()[:10], "model": name}
    facts |= {"temperature": temperature, "turns": MAX_TURNS, "seed": seed, "right": right, "unanswered": unanswered}
    machine = f"CPU, {platform.machine()}, Python {platform.python_version()}"
    (out / "README.md").write_text(README.format(**facts, rate=right / len(rows), machine=machine), encoding="utf-8")
    typer.echo(json.dumps({**facts, "seconds": round(time.perf_counter() - started, 1)}))


if __name__ == "__main__":
    typer.run(command)
