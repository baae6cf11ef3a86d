"""Benchmarks as environments: by name in a config, drawn by seed, split by question, with tools by name, and played whole."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reagent.env.gradability import Grading
from reagent.env.graders import f1_closed
from reagent.env.task import Task, as_task, read_tasks, write_tasks
from reagent.env.tool import Tool, tool
from reagent.rollout.episode import Episode, Turn
from reagent.tasks.base import Benchmark, is_held_out
from reagent.tasks.environments import ENVIRONMENTS, find_environment, make_factory, make_tasks
from reagent.tasks.gsm8k import GSM8K, final_number
from reagent.tasks.hle import Hle
from reagent.tasks.hotpotqa import HotpotQA
from reagent.tasks.registry import TASKS
from reagent.tasks.tooling import PUBLISHERS, build_tools, calculator
from reagent.tasks.xbench import XBench
from reagent.tools.deny import DenyList
from reagent.train.evaluate import summarise
from reagent.train.metrics import episode_metrics
from rrm.data.trajectory import Trajectory
from rrm.errors import ConfigError, ReadError, RRMError


def gsm_file(folder: Path, n: int = 40) -> Path:
    path = folder / "gsm.jsonl"
    rows = [
        {"question": f"Ana has {i} pens and buys {i % 3 + 1} more. How many?", "answer": f"<<{i}+{i % 3 + 1}={i + i % 3 + 1}>>\n#### {i + i % 3 + 1}"}
        for i in range(n)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ---- the registry ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_every_benchmark_says_what_it_is(name: str) -> None:
    benchmark = find_environment(name)
    assert isinstance(benchmark, type) and issubclass(benchmark, Benchmark) and benchmark.name == name
    assert benchmark.title and benchmark.metric and benchmark.licence and benchmark.source and benchmark.work
    assert benchmark.limits.turns >= 1 and benchmark.limits.new_tokens < benchmark.limits.episode_tokens
    assert all(path.startswith("hf:") and split in ("train", "heldout") for split, path in benchmark.hub.items())


def test_names_that_are_near_are_said() -> None:
    assert list(ENVIRONMENTS)[:2] == ["search", "calculator"] and set(TASKS) < set(ENVIRONMENTS)
    with pytest.raises(ConfigError, match=r"no environment 'hotpotqaa'; .*did you mean hotpotqa"):
        find_environment("hotpotqaa")


# ---- which tasks -------------------------------------------------------------------------------------------------------


def test_tasks_are_drawn_by_seed_and_split_by_question(tmp_path: Path) -> None:
    path = str(gsm_file(tmp_path))
    drawn = make_tasks("gsm8k", 10, 3, path=path)
    assert drawn == make_tasks("gsm8k", 10, 3, path=path) != make_tasks("gsm8k", 10, 4, path=path)
    every = GSM8K.read(path)
    held_out = {t.id for t in every if is_held_out(t, 0.25)}
    assert 2 <= len(held_out) <= 18
    train = make_tasks("gsm8k", 40 - len(held_out), 0, path=path, heldout=0.25)
    test = make_tasks("gsm8k", len(held_out), 0, split="heldout", path=path, heldout=0.25)
    assert {t.id for t in test} == held_out and {t.id for t in train} == {t.id for t in every} - held_out
    assert held_out <= {t.id for t in every if is_held_out(t, 0.5)}  # a larger share holds the smaller one
    with pytest.raises(ConfigError, match=f"{len(held_out)} of the 40 held-out tasks asked for: set eval_tasks lower"):
        make_tasks("gsm8k", 40, 0, split="heldout", path=path, heldout=0.25)


def test_tasks_are_chosen_by_their_meta(tmp_path: Path) -> None:
    rows = [
        {"_id": str(i), "question": f"Who is number {i}?", "answer": "x", "level": level, "type": type_}
        for i, (level, type_) in enumerate(
            [("easy", "bridge"), ("hard", "bridge"), ("hard", "comparison"), ("medium", "bridge")]
        )
    ]
    path = tmp_path / "h.json"
    path.write_text(json.dumps(rows))
    tasks = make_tasks("hotpotqa", 2, 0, path=str(path), where={"level": ["hard", "medium"], "type": "bridge"})
    assert {t.id for t in tasks} == {"1", "3"}
    with pytest.raises(ConfigError, match="where: no task has 'hops' in its meta; there are benchmark, level, type"):
        make_tasks("hotpotqa", 1, 0, path=str(path), where={"hops": 2})
    with pytest.raises(ConfigError, match="where: no task has level=ultra; there are easy, hard, medium"):
        make_tasks("hotpotqa", 1, 0, path=str(path), where={"level": "ultra"})
    assert len(make_tasks("hotpotqa", 1, 0, path=str(path), where={"level": ["easy", "ultra"]})) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "gone.jsonl"}, "cannot be read"),
        ({"pth": "x"}, "do not take pth; they take path, heldout, where, seed, split"),
        ({"aliases": "x", "path": "x"}, "do not take aliases"),
        ({"split": "dev"}, "split must be train or heldout"),
        ({"heldout": 1.0}, "heldout must lie between 0 and 1"),
        ({"where": {"topic": 1}}, "no task has 'topic'"),
    ],
)
def test_wrong_options_of_tasks(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    all_options = {"path": str(gsm_file(tmp_path)), **options} if "pth" not in options else options
    with pytest.raises((ConfigError, ReadError), match=message):
        make_tasks("gsm8k", 1, 0, **all_options)


def test_written_tasks_are_read_again_by_their_own_benchmark(tmp_path: Path) -> None:
    tasks = GSM8K.read(gsm_file(tmp_path))
    path = tmp_path / "tasks.jsonl"
    assert write_tasks(path, tasks) == 40
    assert read_tasks(path) == GSM8K.read(path) == tasks
    path.write_text(path.read_text().splitlines()[0].replace('"question": ', '"quest": '))
    with pytest.raises(ReadError, match=r"tasks\.jsonl:1: not a task: .*quest"):
        GSM8K.read(path)


@pytest.mark.parametrize("row", [{"id": 1}, {"id": "a", "question": 7}, {"id": "a", "question": "q", "meta": 1}])
def test_an_object_that_is_no_task(row: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        as_task(row)


# ---- tools -------------------------------------------------------------------------------------------------------------


@tool
async def search(query: str) -> str:
    """Search the passages.

    Args:
        query: What to look for.
    """
    return f"found {query}"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """`reagent.tools` with a search alone; what it was asked to build."""
    requests: list[tuple[list[str], dict[str, Any]]] = []

    def build(names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> list[Tool]:
        requests.append((list(names), {k: dict(v) for k, v in options.items()}))
        return [search for _ in names]

    module = types.ModuleType("reagent.tools")
    module.build = build  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reagent.tools", module)
    return requests


def test_tools_are_made_by_name_once_for_all_episodes(built: list[tuple[list[str], dict[str, Any]]], tmp_path) -> None:
    corpus = str(tmp_path / "corpus")
    factory = make_factory("hotpotqa", corpus=corpus, tool_options={"search": {"k": 5}})
    first, second = factory(), factory()
    assert built == [(["search"], {"search": {"k": 5, "corpus": corpus}})]
    assert [t["function"]["name"] for t in first.tools] == ["search"] and first is not second
    first.reset(HotpotQA.make("Which river?", "the Oltava"))
    result = asyncio.run(first.step('<tool_call>{"name": "search", "arguments": {"query": "bridge"}}</tool_call>'))
    assert "found bridge" in result.observations[0]["content"] and not result.terminated
    assert asyncio.run(first.step("Answer: Oltava")).info["success"] is True


def test_web_tools_are_kept_from_published_answers(built: list[tuple[list[str], dict[str, Any]]]) -> None:
    XBench(grader="f1", tools=["browse"])
    XBench(grader="f1", tools=["search_api"], tool_options={"search_api": {"url": "x"}})
    XBench(grader="f1", tools=["python"])
    XBench(grader="f1", tools=["browse"], deny=["a.example"])
    XBench(grader="f1", tools=["browse"], tool_options={"browse": {"deny": []}})
    HotpotQA(tools=[], retrieve="search_api")
    XBench(grader="f1", tools=["mcp"], tool_options={"mcp": {"servers": {}}})
    assert built == [
        (["browse"], {"browse": {"deny": [*PUBLISHERS, "xbench.org"]}}),
        (["search_api"], {"search_api": {"url": "x", "deny": [*PUBLISHERS, "xbench.org"]}}),
        (["python"], {}),
        (["browse"], {"browse": {"deny": ["a.example"]}}),
        (["browse"], {"browse": {"deny": []}}),
        (["search_api"], {"search_api": {"deny": [*PUBLISHERS]}}),
        (["mcp"], {"mcp": {"servers": {}, "deny": [*PUBLISHERS, "xbench.org"]}}),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "https://datasets-server.huggingface.co/rows?dataset=cais/hle",
        "https://raw.githubusercontent.com/a/b/main/dev.json", "https://cdn.jsdelivr.net/gh/a/b/dev.json",
        "https://fastly.jsdelivr.net/gh/a/b/dev.json", "https://raw.githack.com/a/b/main/dev.json",
        "https://rawcdn.githack.com/a/b/main/dev.json", "https://cdn.statically.io/gh/a/b/main/dev.json",
    ],
)  # fmt: skip
def test_copies_of_published_files_are_on_the_list(url: str) -> None:
    assert DenyList(PUBLISHERS).entry_for(url) is not None
    assert DenyList(PUBLISHERS).entry_for("https://cdn.jsdelivr.net/npm/a") is None


def test_what_is_kept_from_an_agent_is_counted() -> None:
    env = Hle(grader="f1", tools=["browse"])
    env.reset(Hle.make("Which letter?", "B"))
    urls = ("https://huggingface.co/datasets/cais/hle", "https://lastexam.ai/", "http://127.0.0.1/")
    calls = (json.dumps({"name": "browse", "arguments": {"url": url}}) for url in urls)
    step = asyncio.run(env.step("".join(f"<tool_call>{call}</tool_call>" for call in calls)))
    kinds = [error["kind"] for error in step.info["tool_errors"]]
    assert (kinds, step.info["denied"]) == (["host_denied", "host_denied", "address_refused"], 2)
    turn, task = Turn([1], [0.0], [], info=step.info), Task("t", "?")
    trajectory = Trajectory(id="t", task="?", messages=[])
    episode = Episode(task, [1], [turn, turn], None, "finished", None, None, "g", "initial", trajectory)
    assert episode_metrics([episode])["episode/denied"] == 4.0


def test_without_the_tool_the_error_names_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reagent.tools", None)  # as if it were absent
    message = r"hotpotqa wants the tool 'search', which this installation does not have; name others in environment\.options\.tools"
    with pytest.raises(ConfigError, match=message):
        make_factory("hotpotqa", corpus="corpus-not-built-before")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tools": [], "corpus": "x"}, "hotpotqa: options for search, which is none of its tools"),
        ({"tools": ["calculator", "calculator"]}, "the tool 'calculator' is wanted twice"),
        ({"tools": ["calculator"], "tool_options": {"python": {}}}, "options for python"),
        ({"tools": [], "grader": "bleu"}, "hotpotqa has no grader 'bleu'; there are exact_match, f1"),
        ({"tools": [], "max_turns": 0}, "max_turns and max_calls_per_turn must be at least 1"),
        ({"tools": [], "colour": 1}, "does not take these options: .*colour"),
    ],
)
def test_wrong_options_of_environments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_factory("hotpotqa", **options)


def test_the_calculator_is_always_there() -> None:
    assert build_tools(["calculator"], {}, needed_by="t") == [calculator]
    assert build_tools([search, "calculator"], {}, needed_by="t") == [search, calculator]
    env = make_factory("gsm8k")()
    env.reset(GSM8K.make("How many?", "8"))
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "3 + 5"}}</tool_call>'
    assert asyncio.run(env.step(call)).observations[0]["content"] == "8"
    assert asyncio.run(env.step("Answer: 8 pens")).info["success"] is True


# ---- grading and figures -----------------------------------------------------------------------------------------------


def test_a_grader_by_name_pays_what_it_grades() -> None:
    task = HotpotQA.make("Which river?", "the river Oltava")
    env = make_factory("hotpotqa", tools=[], grader="f1")()
    env.reset(task)
    result = asyncio.run(env.step("Answer: Oltava"))
    assert result.outcome_reward == pytest.approx(2 / 3) and result.info["success"] is False


def test_an_evaluation_reports_the_benchmarks_own_figures() -> None:
    with Grading(make_factory("hotpotqa", tools=[])) as grading:
        assert grading.metrics["f1"] is f1_closed
    with Grading(make_factory("gsm8k")) as grading:
        assert dict(grading.metrics) == {"accuracy": final_number}
        assert summarise([], samples=1, seed=0, metrics=grading.metrics)["accuracy"] is None
    with Grading(make_factory("search")) as grading:
        assert list(grading.metrics) == ["exact_match", "f1"]


def test_checked_before_a_training() -> None:
    env = make_factory("gsm8k")()
    with pytest.raises(ValueError, match="holds no number"):
        env.check_task(Task("t", "?", "seven"))  # type: ignore[attr-defined]


def test_a_policy_is_evaluated_on_a_published_file(reagent, base, tmp_path) -> None:
    """`reagent eval` with the name of a benchmark and its file, an untrained policy: played, graded, and its own figures."""
    path, out = gsm_file(tmp_path), tmp_path / "rows.jsonl"
    arguments = [
        "eval", "environment.name=gsm8k", f"environment.eval={{path: {path}, heldout: 0.5, where: {{steps: 1}}}}",
        "environment.eval_tasks=3", "--policy", str(base), "rollout.max_turns=2", "rollout.max_new_tokens=8",
        "--transcripts", str(out),
    ]  # fmt: skip
    code, output, _ = reagent(*arguments)
    summary = json.loads(output.splitlines()[-1])
    assert code == 0 and summary["environment"] == "gsm8k" and summary["tasks"] == 3
    assert summary["accuracy"] == 0.0 and "exact_match" not in summary and summary["success"]["value"] == 0.0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 3 and all(row["tools"][0]["function"]["name"] == "calculator" for row in rows)
    expected = {t.question_id for t in GSM8K.read(path) if is_held_out(t, 0.5)}
    assert {row["question_id"] for row in rows} <= expected


def test_questions_of_any_file_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [
        {"prompt": "2 + 2?", "info": {"gold": [4, "four"]}},
        {"prompt": "Who?", "info": {"gold": "Ana"}},
        {"prompt": "Where?"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:2]))
    tasks = make_tasks("questions", 2, 0, path=str(path), question="prompt", answer="info.gold")
    assert {t.question: t.references for t in tasks} == {"2 + 2?": ["4", "four"], "Who?": ["Ana"]}
    env = make_factory("questions", grader="numeric")()
    sums = next(t for t in tasks if t.answer == "4")
    assert env.is_graded(sums) and env._grade(sums, "It is 4.0.") == 1.0  # type: ignore[attr-defined]
    assert not any(t.answer for t in make_tasks("questions", 2, 0, path=str(path), question="prompt", answer=None))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for options, message in (
        ({}, "no 'question'; the row's columns are info, prompt: name them by question= and answer="),
        ({"question": "prompt", "answer": "info.gold"}, "jsonl:3: no 'info.gold'"),
        (
            {"question": "prompt", "answer": "info"},
            "'info' holds .*, a dict: an answer is a text, a finite number or a list",
        ),
    ):
        with pytest.raises(RRMError, match=message):
            make_tasks("questions", 1, 0, path=str(path), **options)
    path.write_text(
        "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in (("a?", 42.0), ("b?", -5), ("c?", "A 1")))
    )
    graded = {t.question: t for t in make_tasks("questions", 3, 0, path=str(path))}
    env = make_factory("questions")()
    grades = [
        env._grade(graded[q], a)
        for q, a in (("a?", "420"), ("a?", "42"), ("b?", "5"), ("b?", "-5"), ("c?", "a 1"), ("c?", "2"))
    ]  # type: ignore[attr-defined]
    assert grades == [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]  # SQuAD's exact match drops points and signs
    with pytest.raises(ConfigError, match="no grader 'math'; there are exact_match, f1, numeric"):
        make_factory("questions", grader="math")


def test_a_missing_answer_is_refused_and_differing_ones_are_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "own.jsonl"
    for row in ('{"question": "a?", "answer": NaN}', '{"question": "a?", "answer": ["1", NaN]}'):
        path.write_text('{"question": "b?", "answer": 1}\n' + row + "\n")
        with pytest.raises(ReadError, match=r"own\.jsonl:2: 'answer' holds NaN.*leave the row out"):
            make_tasks("questions", 1, 0, path=str(path))
    rows = [("a?", 1), ("a?", 2), ("b?", 1), ("b?", 1), ("c?", "x"), ("c?", "y")]
    path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in rows))
    assert len(make_tasks("questions", 6, 0, path=str(path))) == 6
    (record,) = [r for r in caplog.records if "different answers" in r.getMessage()]
    assert "2 questions have different answers in several rows, e.g. 'a?'" in record.getMessage()


def test_tasks_are_chosen_by_elements_of_lists_and_by_numbers_as_text() -> None:
    from reagent.tasks.base import chosen

    tasks = [
        Task("a", "?", meta={"supporting": ["T1", "T2"], "level": 1, "sure": True}),
        Task("b", "?", meta={"supporting": ["T2"], "level": "2", "sure": False}),
        Task("c", "?", meta={"level": 12}),
    ]
    for where, ids in (
        ({"supporting": "T1"}, "a"), ({"supporting": ["T1", "T3"]}, "a"), ({"supporting": "T2"}, "ab"),
        ({"level": "1"}, "a"), ({"level": [1, 2]}, "ab"), ({"level": "12", "supporting": "T1"}, ""),
        ({"sure": True}, "a"), ({"sure": None}, "c"),
    ):  # fmt: skip
        assert "".join(task.id for task in chosen(tasks, where)) == ids, where
    for where, there in (
        ({"supporting": "T"}, "T1, T2"),
        ({"sure": "True"}, "False, True"),
        ({"level": 3}, "1, 12, 2"),
    ):
        with pytest.raises(ConfigError, match=f"where: no task has .*; there are {there}"):
            chosen(tasks, where)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tasks(reagent: Run) -> Run:
    """Runs `reagent tasks`."""
    return functools.partial(reagent, "tasks")


def hotpot(path: Path) -> Path:
    rows: list[dict[str, Any]] = [
        {
            "_id": f"q{i}", "question": f"Who built bridge {i}?", "answer": "Ana Büki", "level": level,
            "supporting_facts": [["Ana Büki", 0]],
            "context": [["Ana Büki", ["An engineer."]], [f"Bridge {i}", ["A bridge."]]],
        }
        for i, level in enumerate(("easy", "hard", "hard"))
    ]  # fmt: skip
    path.write_text(json.dumps(rows))
    return path


def test_the_list_names_each_with_metric_tools_licence_and_source(tasks: Run) -> None:
    code, out, _ = tasks()
    assert code == 0 and json.loads(out.splitlines()[-1]) == {"command": "tasks", "names": list(TASKS)}
    for text in ("HotpotQA", "exact match; F1", "search", "CC BY-SA 4.0", "hotpotqa.github.io", "256, 4096", *TASKS):
        assert text in out


def test_a_file_becomes_tasks_and_passages(tasks: Run, tmp_path: Path) -> None:
    source, out, passages = hotpot(tmp_path / "dev.json"), tmp_path / "tasks.jsonl", tmp_path / "passages.jsonl"
    code, summary, error = tasks(
        "hotpotqa", "--path", source, "-o", out, "--passages", passages, "--where", "level=hard"
    )
    assert code == 0, error
    assert json.loads(summary) == {
        "command": "tasks", "name": "hotpotqa", "source": str(source), "tasks": 2, "questions": 2, "with_answer": 2,
        "output": str(out), "passages": 4, "passages_output": str(passages),
    }  # fmt: skip
    assert [t.id for t in read_tasks(out)] == ["q1", "q2"]
    rows = [json.loads(line) for line in passages.read_text().splitlines()]
    assert [row["title"] for row in rows] == ["Ana Büki", "Bridge 0", "Bridge 1", "Bridge 2"]  # each once
    code, summary, _ = tasks("hotpotqa", "--path", out)
    assert code == 0 and json.loads(summary)["tasks"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hotpot"], "no benchmark 'hotpot'; there are hotpotqa, 2wiki, musique"),
        (["2wiki"], "2wiki is not read from the hub: give its file with --path"),
        (["--path", "x"], "--path is for one benchmark: name it"),
        (["hotpotqa", "--path", "gone.json"], "gone.json: cannot be read: No such file or directory"),
        (["hotpotqa", "--path", "DEV", "--where", "hops=2"], "where: no task has 'hops' in its meta"),
        (["hotpotqa", "--path", "DEV", "--where", "level"], "--where 'level' is not of the form key=value"),
        (["hotpotqa", "--path", "DEV", "--option", "aliases=x"], "hotpotqa has no option 'aliases'; it has: none"),
        (["hotpotqa", "--path", "DEV", "-o", "nowhere/x.jsonl"], "there is no folder nowhere"),
        (["hotpotqa", "--path", "DEV", "-o", "dev.json"], "-o dev.json is what is read, or written, besides"),
        (["hotpotqa", "--path", "DEV", "--passages", "dev.json"], "--passages dev.json is what is read"),
        (["hotpotqa", "--path", "DEV", "-o", "x.jsonl", "--passages", "x.jsonl"], "--passages x.jsonl is what is read, or written"),
        (["hotpotqa", "--path", "DEV", "--where", "level=ultra"], "no task has level=ultra; there are easy, hard"),
        (["bamboogle", "--path", "BARE", "--passages", "p.jsonl"], "has no passages: bamboogle's questions come without"),
    ],
)  # fmt: skip
def test_errors(tasks: Run, tmp_path, monkeypatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"Question": "Who?", "Answer": "Ana"}\n')
    files = {"DEV": str(hotpot(tmp_path / "dev.json")), "BARE": str(bare)}
    code, out, error = tasks(*[files.get(a, a) for a in arguments])
    assert code == 2 and not out and error.startswith("error: ") and message in error and "Traceback" not in error


def test_a_file_without_answers_is_said(tasks: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = tmp_path / "test.json"
    source.write_text('[{"_id": "q", "question": "Who?"}]')
    code, summary, _ = tasks("hotpotqa", "--path", source)
    assert code == 0 and json.loads(summary)["with_answer"] == 0
    assert "no task has an answer, so that nothing can be graded" in caplog.text


def test_the_guides_own_benchmark_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The class that docs/tasks.md shows, from its text, by the name of its file."""
    guide = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text(encoding="utf-8")
    (tmp_path / "my_sums.py").write_text(guide.partition("```python\n")[2].partition("```")[0])
    (tmp_path / "sums.csv").write_text("sum,result\n40 + 2,42\n1 + 1,2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [task] = make_tasks("my_sums:Sums", 1, 0, path=str(tmp_path / "sums.csv"), where={"digits": 6})
    env = make_factory("my_sums:Sums")()
    env.reset(task)
    assert asyncio.run(env.step("Answer: it is 42.0")).info["success"] is True
    assert all(f"`{name}`" in guide for name in TASKS)
