"""BFCL v4 multi-turn (Berkeley Function Calling Leaderboard; Patil et al., ICML 2025).

A user with several wishes in turn, and simulated programs whose state must be right after each. Reads the data of the package
`bfcl_eval`. Each question has four categories: `base`, `miss_func` (a function comes later), `miss_param` (the user forgets to say
something), `long_context`. An attempt succeeds where after each of the user's turns the programs are in the ground truth's state, its
results have been read, and no turn with something to do was answered without a call (`multi_turn_checker` of the package)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from reagent.env.env import StepResult
from reagent.env.graders import Grader
from reagent.env.parsers import MalformedCall, make_parser
from reagent.env.parsers.base import tool_list
from reagent.env.task import Task
from reagent.env.tool import ToolResult, shorten
from reagent.errors import ToolError
from reagent.tasks.base import Benchmark, TaskLimits
from reagent.tasks.bfcl_apis import FAILED, Programs, data_folder, missing, schemas, too_large
from reagent.tasks.source_rows import SourceRow, read_rows
from rrm.data.trajectory import ToolCall
from rrm.engines.base import StopReason
from rrm.errors import ConfigError

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
MAX_STEPS = 20  # turns of the agent within one of the user's; one more ends the episode
_RESULT_CHARS = 8000
_MORE_TOOLS = "From now on there are more tools, with which the last wish may be fulfilled:\n{tools}"


class Bfcl(Benchmark):
    name: ClassVar[str] = "bfcl"
    title: ClassVar[str] = "BFCL v4 multi-turn"
    metric: ClassVar[str] = "state after each turn, results read"
    source: ClassVar[str] = "the package bfcl-eval: pip install --no-deps bfcl-eval"
    licence: ClassVar[str] = "Apache-2.0"
    limits: ClassVar[TaskLimits] = TaskLimits(turns=60, new_tokens=512, episode_tokens=32768)
    metrics: ClassVar[Mapping[str, Grader]] = {}
    read_options: ClassVar[tuple[str, ...]] = ("category",)
    own_tools: ClassVar[bool] = True
    work: ClassVar[str] = (
        "You work for a user through the tools. Do all that the user asks for with as many calls as it takes, and nothing else; look "
        "things up with the tools rather than guess. Where something cannot be done with the tools, or was not said, say so. When a wish is "
        "fulfilled, answer without a call: the user then goes on."
    )

    def __init__(self, *, parser: Any = "hermes", max_calls_per_turn: int = 200, **options: Any) -> None:
        super().__init__(parser=parser, max_calls_per_turn=max_calls_per_turn, **options)
        data_folder()  # says what to install
        self._format = parser

    # ---- the episode -------------------------------------------------------------------------------------------------

    def begin(self, task: Task) -> None:
        """Make the programs in their initial state, for the agent and for the ground truth."""
        meta = task.meta
        self._agents, self._truths = (
            Programs(meta["programs"], meta["initial"], long_context=meta["category"] == "long_context")
            for _ in range(2)
        )
        self._wishes: list[list[str]] = meta["wishes"]
        self._wish = self._steps = self._calls_made = 0
        self._read: list[str] = []
        self.failure: str | None = None  # the first error, by the ground truth
        functions = {s["function"]["name"]: s for name in meta["programs"] for s in schemas(name)}
        self._later = {
            int(turn): [functions.pop(name) for name in names if name in functions]
            for turn, names in meta.get("later", {}).items()
        }
        self._offer(list(functions.values()))

    def _offer(self, offered: list[dict[str, Any]]) -> None:
        self.tools = offered
        if isinstance(self._format, str):
            self.parser = make_parser(self._format, offered)

    async def step(self, text: str, stop_reason: StopReason = "eos") -> StepResult:
        """See `ToolEnv.step`; a turn without a call ends the user's turn, and the last of them the episode."""
        if self.task is None or stop_reason == "length" or self._parsed(text).answer is None:
            result = await super().step(text, stop_reason)
            self._steps += 1
            return self._quit(result) if self._steps > MAX_STEPS else result
        self._compare()
        if self._wish + 1 == len(self._wishes):
            return await super().step(text, stop_reason)
        self._wish, self._steps, self._calls_made = self._wish + 1, 0, 0
        return self._go_on(text)

    def is_final(self, text: str) -> bool:
        return super().is_final(text) and self._wish + 1 == len(self._wishes)

    def _go_on(self, text: str) -> StepResult:
        more = self._later.get(self._wish, [])
        self._offer([*self.tools, *more])
        lines = [*self._wishes[self._wish]]
        if more:
            lines.append(_MORE_TOOLS.format(tools=tool_list(more, self.tool_prompt == "brief")))
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        observation = {"role": "user", "content": "\n".join(lines), "timestamp": stamp, "duration_s": 0.0}
        message = {"role": "assistant", "content": self.parser.parse(text).content}
        result = StepResult(message, [observation], 0.0, None, False, False, self._quiet())
        self._turn += 1
        return self._quit(result) if self._turn >= self.max_turns else result

    def _quit(self, result: StepResult) -> StepResult:
        """End the episode without an answer, unless it is over."""
        if result.terminated or result.truncated:
            return result
        self.task = None
        over = (
            {"answer": None, "grade": 0.0, "success": False}
            if self._graded
            else {"answer": None, "grade": None, "success": None}
        )
        reward = self.rewards.unanswered if self._graded else None
        return replace(result, outcome_reward=reward, truncated=True, info=result.info | over)

    def _quiet(self) -> dict[str, Any]:
        return {"tool_calls": 0, "malformed": 0, "tool_errors": [], "verdicts": [], "cut_chars": 0, "denied": 0}

    async def _run(self, call: ToolCall | MalformedCall, position: int) -> ToolResult:
        """Call a program's function; as in the package, those that come later can be called too."""
        if isinstance(call, MalformedCall) or position >= self.max_calls_per_turn:
            return await super()._run(call, position)
        started = datetime.now(UTC).timestamp()
        if (refused := self._refused(call)) is not None:
            return ToolResult(f"Error: {refused}", refused, started, 0.0)
        assert not isinstance(call.arguments, str)
        text = self._agents.call(call.name, **call.arguments)
        self._calls_made += 1
        self._read.append(text)
        content, cut = shorten(text, _RESULT_CHARS)
        failed = text.startswith(FAILED)
        return ToolResult(content, ToolError(text[:300], "raised") if failed else None, started, 0.0, cut)

    def _refused(self, call: ToolCall) -> ToolError | None:
        if call.name not in self._agents.methods:
            names = ", ".join(s["function"]["name"] for s in self.tools)
            return ToolError(f"there is no tool {call.name[:64]!r}; there are: {names}", "unknown_tool")
        if isinstance(call.arguments, str):
            return ToolError(f"bad arguments for {call.name}: not a JSON object", "bad_arguments")
        if large := too_large(call.arguments):
            return ToolError(
                f"bad arguments for {call.name}: {large} is too large a number to compute with", "bad_arguments"
            )
        return None

    # ---- grading -----------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        """Run the ground truth of a user's turn, and compare the agent's programs with it."""
        if self.task is None or not self._graded:
            return
        truth: list[str] = self.task.meta["ground_truth"][self._wish]
        results = [self._truths.run(written) for written in truth]
        if not truth or self.failure is not None:
            return
        if not self._calls_made:
            self.failure = f"turn {self._wish + 1}: no call was made"
        elif (difference := self._agents.differs_from(self._truths)) is not None:
            self.failure = f"turn {self._wish + 1}: {difference} is not as it should be"
        elif absent := missing(results, self._read):
            self.failure = f"turn {self._wish + 1}: {len(absent)} results were never read"

    def grade(self, task: Task, answer: str) -> float:
        return float(self.failure is None)

    def is_graded(self, task: Task) -> bool:
        return task.graded and "ground_truth" in task.meta

    def check_task(self, task: Task) -> None:
        """Do nothing: an attempt is graded by what it did."""
        del task

    # ---- reading -----------------------------------------------------------------------------------------------------

    @classmethod
    def default_path(cls, split: str) -> str | None:
        """The package's data: the leaderboard has no training set, so a share must be held out for one."""
        del split
        return str(data_folder())

    @classmethod
    def read(cls, path: str | Path, category: str | Sequence[str] = CATEGORIES) -> list[Task]:
        """See `Benchmark.read`. Raises ConfigError: no such category.
        `path`: the package's folder `data`, or one file in it; `category`: one or some of `CATEGORIES`, of a folder."""
        folder = Path(path)
        if not folder.is_dir():
            return cls.read_with(path, _FolderReader(folder.parent))
        categories = [category] if isinstance(category, str) else list(category)
        if unknown := [each for each in categories if each not in CATEGORIES]:
            raise ConfigError(f"bfcl has no category {unknown[0]!r}; there are {', '.join(CATEGORIES)}")
        files = [folder / f"BFCL_v4_multi_turn_{each}.json" for each in categories]
        return [task for file in files for task in cls.read_with(file, _FolderReader(folder))]


class _FolderReader:
    """Makes tasks of one folder's rows, with their ground truth from another file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._truths: dict[str, dict[str, list[list[str]]]] = {}

    def __call__(self, row: SourceRow) -> Task:
        id = row.text("id")
        category = id.removeprefix("multi_turn_").rpartition("_")[0]
        if category not in CATEGORIES:
            raise row.error(f"{id!r} is no question of the multi-turn categories {', '.join(CATEGORIES)}")
        wishes = [[str(m["content"]) for m in turn] for turn in row.get("question") or []]
        later = row.get("missed_function") or {}
        if not wishes or not wishes[0] or any(not w and str(number) not in later for number, w in enumerate(wishes)):
            raise row.error("'question' must be a list of turns with messages")
        truth = self._truth(category).get(id)
        if truth is not None and len(truth) != len(wishes):
            raise row.error(f"the ground truth has {len(truth)} turns, and the question {len(wishes)}")
        first = "\n".join(wishes[0])
        meta = {
            "benchmark": Bfcl.name,
            "category": category,
            "turns": len(wishes),
            "wishes": wishes,
            "programs": row.texts("involved_classes"),
            "initial": dict(row.get("initial_config") or {}),
            "later": later,
        }
        if truth is not None:
            meta["ground_truth"] = truth
        # the categories ask the same questions: they fall on the same side of a split
        return Task(id, first, question_id=f"bfcl-{id.rpartition('_')[2]}", meta=meta)

    def _truth(self, category: str) -> dict[str, list[list[str]]]:
        if category not in self._truths:
            file = self.folder / "possible_answer" / f"BFCL_v4_multi_turn_{category}.json"
            rows = read_rows(file) if file.is_file() else ()
            self._truths[category] = {row.text("id"): row.get("ground_truth") for row in rows}
        return self._truths[category]
