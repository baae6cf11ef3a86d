"""How `smollm2_qa` asks its questions by three methods, and the demonstrations that each is first trained on.

    direct      the question alone
    naive_rag   the question and the passages found for it as it stands; as much text as two searches give
    tool_call   up to two searches of a passage each, then the answer

Demonstrations are made by a script that knows the titles of the supporting passages and plays the very environment that the
policy will play. A query is what the question, or a result read so far, itself calls a supporting passage; only where the question names none it is
the question as it stands. What is demonstrated can therefore be done: a question whose second title stands in no result, or whose
answer is never read (nor in the question, nor yes or no), is demonstrated by no method. All three are shown the same questions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from benchmarks.studies.smollm2 import REWARDS
from benchmarks.studies.smollm2_qa_data import NAME, holds, mention, words
from reagent.env.graders import Grader, exact_match, f1_closed
from reagent.env.task import Task
from reagent.lab.demonstrations import Demonstration, ScriptedTurn, plain, played
from reagent.tasks.base import Benchmark, TaskLimits
from reagent.tasks.tooling import build_tools
from rrm.data.seeds import derive_seed
from rrm.data.trajectory import ToolCall

Method = Literal["direct", "naive_rag", "tool_call"]
METHODS: tuple[Method, ...] = ("direct", "naive_rag", "tool_call")
SEARCHES = 2
RESULT_CHARS = 400
"""Of a passage: 95 tokens in the mean."""


class MultiHop(Benchmark):
    """Two searches at most, then the answer. Graded by F1, as 135 M parameters are exactly right too seldom to learn from.

    Args:
        corpus: folder of the corpus.
        options: those of `Benchmark`.
    """

    name: ClassVar[str] = NAME
    title: ClassVar[str] = "HotpotQA and 2WikiMultihopQA, small"
    metric: ClassVar[str] = "F1"
    source: ClassVar[str] = "what benchmarks.studies.smollm2_qa_data wrote"
    licence: ClassVar[str] = "CC BY-SA 4.0, Apache-2.0, CC BY 4.0"
    wants: ClassVar[tuple[str, ...]] = ("search",)
    limits: ClassVar[TaskLimits] = TaskLimits(turns=SEARCHES + 1, new_tokens=48, episode_tokens=512)
    metrics: ClassVar[Mapping[str, Grader]] = {"exact_match": exact_match, "f1": f1_closed}
    grader = staticmethod(f1_closed)
    own_parser: ClassVar[str | None] = "search_tags"
    system: ClassVar[str] = "Search for a name, read what is found, search again or answer in few words."

    def __init__(self, *, corpus: str, **options: Any) -> None:
        search = {"search": {"corpus": corpus, "k": 1, "max_chars": RESULT_CHARS}}
        given = {"tool_options": search, "rewards": REWARDS, "tool_prompt": "brief"}
        super().__init__(**{**given, **options})


class Direct(MultiHop):
    """The question alone; no tool is there."""

    limits: ClassVar[TaskLimits] = TaskLimits(turns=1, new_tokens=48, episode_tokens=512)
    system: ClassVar[str] = "Answer in few words: <answer>...</answer>"

    def __init__(self, *, corpus: str, **options: Any) -> None:
        super().__init__(corpus=corpus, **{"tools": [], "tool_options": {}, **options})


class NaiveRag(Direct):
    """The question after the passages found for it."""

    system: ClassVar[str] = "Read what was found, then answer in few words: <answer>...</answer>"

    def __init__(self, *, corpus: str, **options: Any) -> None:
        super().__init__(corpus=corpus, **options)
        found = {"corpus": corpus, "k": SEARCHES, "max_chars": SEARCHES * RESULT_CHARS}
        (self._search,) = build_tools(["search"], {"search": found}, needed_by=self.name)

    def question(self, task: Task) -> str:
        """The passages, then the question."""
        return f"{self._search.function(task.question)}\n\n{task.question}"


ENVIRONMENTS: dict[Method, type[MultiHop]] = {"direct": Direct, "naive_rag": NaiveRag, "tool_call": MultiHop}


def environment_name(method: Method) -> str:
    """As a config names it."""
    return f"{__name__}:{ENVIRONMENTS[method].__name__}"


# ---- scripts -----------------------------------------------------------------------------------------------------------


def queries(env: MultiHop, task: Task) -> list[str] | None:
    """What a careful agent searches for; None where it could not know, or does not find the answer.

    It searches for what the question calls a supporting passage, else for the question as it stands; then, unless the answer was
    read, for what the question or the first result calls another one.
    """
    answer, titles = task.answer or "", list(task.meta["supporting"])
    closed = words(answer) in (("yes",), ("no",))
    told = closed or holds(task.question, answer)  # a comparison: both passages must be read
    asked: list[str] = []
    seen, read, shown = task.question, "", set[str]()
    while len(asked) < SEARCHES:
        left = [title for title in titles if title not in shown]
        if not left or (not told and holds(read, answer)):
            break
        named = [query for title in left if (query := mention(seen, title)) is not None]
        fresh = [query for query in named if words(query) not in map(words, asked)]
        if not fresh and asked:
            return None
        asked.append(fresh[0] if fresh else task.question.strip())
        result = env._tools["search"].function(asked[-1])
        seen, read = f"{seen}\n{result}", f"{read}\n{result}"
        shown |= {title for title in titles if result.startswith(f"[1] {title}\n")}
    return asked if (shown >= set(titles) if told else holds(read, answer)) else None


def script(env: MultiHop, method: Method, task: Task, asked: Sequence[str]) -> list[ScriptedTurn]:
    """The turns of a demonstration."""
    render = env.parser.render_turn
    calls = [ToolCall(name="search", arguments={"query": query}) for query in asked] if method == "tool_call" else []
    return [*(ScriptedTurn(render(calls=[call])) for call in calls), ScriptedTurn(render(answer=task.answer))]


def demonstrations(tasks: Sequence[Task], method: Method, corpus: str) -> Iterator[Demonstration]:
    """Of each task that can be demonstrated, in their order. Not to be called from a running event loop."""
    searching, env = MultiHop(corpus=corpus), ENVIRONMENTS[method](corpus=corpus)
    with asyncio.Runner() as runner:
        for task in tasks:
            asked = queries(searching, task)
            if asked is None:
                continue
            prompt = env.reset(task)
            run = runner.run(played(env, script(env, method, task, asked)))
            yield Demonstration(task, method, plain([*prompt, *run.shown]), [False] * len(prompt) + run.train_on)


def drawn(tasks: Sequence[Task], n: int | None, seed: int) -> list[Task]:
    """The first `n` of an order of the seed; all without a number."""
    return random.Random(derive_seed(NAME, "demonstrations", seed)).sample(list(tasks), len(tasks))[:n]
