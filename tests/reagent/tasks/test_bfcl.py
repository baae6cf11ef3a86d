"""BFCL multi-turn: the data's form, the user's turns one after the other, and grading as the package's checker grades.

The package pins an old numpy, so the environment is tested on a small stand-in of it, written here, with one program; where the
package itself is installed (`pip install --no-deps bfcl-eval`), verdicts are compared with its own checker's.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reagent.env.parsers import make_parser
from reagent.env.task import Task
from reagent.tasks import bfcl_apis
from reagent.tasks.bfcl import MAX_STEPS, Bfcl
from reagent.tasks.bfcl_apis import missing, too_large
from rrm.data.trajectory import ToolCall
from rrm.errors import ConfigError, MissingExtra, ReadError

PARSER = make_parser("hermes")
SHOP = """
class Shop:
    def __init__(self):
        self.stock, self.sold, self._log = {}, [], []

    def _load_scenario(self, scenario, long_context=False):
        self.stock = dict(scenario.get("stock", {}))
        if long_context:
            self.stock["filler"] = 1000

    def count(self, name):
        self._log.append(name)
        return {"count": self.stock[name]}

    def sell(self, name, number=1):
        if self.stock[name] < number:
            return {"error": "too few"}
        self.stock[name] -= number
        self.sold.append(name)
        return {"sold": number}

    def close(self):
        return "closed"
"""
DOCS = [
    {
        "name": "count", "description": "How many are left.",
        "parameters": {"type": "dict", "properties": {"name": {"type": "string", "description": "Of what."}}, "required": ["name"]},
    },
    {
        "name": "sell", "description": "Sell some.",
        "parameters": {
            "type": "dict",
            "properties": {
                "name": {"type": "string", "description": "What."},
                "number": {"type": "float", "description": "How many."},
                "sizes": {"type": "array", "items": {"type": "dict"}, "description": "Of no use."},
            },
            "required": ["name"],
        },
    },
    {"name": "close", "description": "Close the shop.", "parameters": {"type": "dict", "properties": {}, "required": []}},
]  # fmt: skip


def question(id: str, turns: list[str | None], **more: Any) -> dict[str, Any]:
    return {
        "id": id,
        "question": [[] if t is None else [{"role": "user", "content": t}] for t in turns],
        "initial_config": {"Shop": {"stock": {"pen": 5, "cup": 2}}},
        "path": ["Shop.sell"],
        "involved_classes": ["Shop"],
    } | more


QUESTIONS = {
    "base": [question("multi_turn_base_0", ["Sell two pens.", "How many pens are left? Then close."])],
    "miss_func": [question("multi_turn_miss_func_0", ["Sell a cup.", None], missed_function={"1": ["sell"]})],
    "miss_param": [question("multi_turn_miss_param_0", ["Sell some.", "One cup."])],
    "long_context": [question("multi_turn_long_context_0", ["Sell two pens."])],
}
TRUTHS = {
    "base": [["sell('pen', 2)"], ["count(name='pen')", "close()"]],
    "miss_func": [[], ["sell(name='cup')"]],
    "miss_param": [[], ["sell(name='cup')"]],
    "long_context": [["sell(name='pen', number=2)"]],
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `bfcl_eval` with one program; the folder of its data."""
    root = tmp_path / "site" / "bfcl_eval"
    (root / "data" / "possible_answer").mkdir(parents=True)
    (root / "data" / "multi_turn_func_doc").mkdir()
    (root / "constants").mkdir()
    for folder in (root, root / "constants"):
        (folder / "__init__.py").touch()
    (root / "constants" / "executable_backend_config.py").write_text(
        'MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Shop": "shop.json"}\n'
        'CLASS_FILE_PATH_MAPPING = {"Shop": "bfcl_eval.shop"}\nSTATELESS_CLASSES = []\n'
    )
    (root / "shop.py").write_text(SHOP)
    (root / "data" / "multi_turn_func_doc" / "shop.json").write_text("".join(json.dumps(d) + "\n" for d in DOCS))
    for category, rows in QUESTIONS.items():
        name = f"BFCL_v4_multi_turn_{category}.json"
        (root / "data" / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        truth = {"id": rows[0]["id"], "ground_truth": TRUTHS[category]}
        (root / "data" / "possible_answer" / name).write_text(json.dumps(truth) + "\n")
    monkeypatch.syspath_prepend(str(root.parent))
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "bfcl_eval"}
    bfcl_apis.schemas.cache_clear()
    importlib.invalidate_caches()
    yield root / "data"
    for name in [name for name in sys.modules if name.partition(".")[0] == "bfcl_eval"]:
        del sys.modules[name]
    sys.modules.update(before)
    bfcl_apis.schemas.cache_clear()


def task_of(folder: Path, category: str) -> Task:
    [task] = Bfcl.read(folder, category=category)
    return task


def begun(folder: Path, category: str = "base", **options: Any) -> Bfcl:
    """An environment at the beginning of a category's task."""
    env = Bfcl(**options)
    env.reset(task_of(folder, category))
    return env


def play(env: Bfcl, *turns: str | list[tuple[str, dict[str, Any]]]) -> Any:
    """The last result of an agent's turns: a text, or calls."""
    result = None
    for turn in turns:
        calls = [] if isinstance(turn, str) else [ToolCall(name=n, arguments=a) for n, a in turn]
        text = turn if isinstance(turn, str) else PARSER.render_turn(calls=calls)
        result = asyncio.run(env.step(text))
    return result


SELL, COUNT, CLOSE = ("sell", {"name": "pen", "number": 2}), ("count", {"name": "pen"}), ("close", {})
ONE, DONE = ("sell", {"name": "pen", "number": 1}), "Answer: done"


def test_the_data_are_read_with_their_ground_truth(package: Path) -> None:
    tasks = Bfcl.read(package)
    assert [t.id for t in tasks] == [rows[0]["id"] for rows in QUESTIONS.values()]
    assert {t.question_id for t in tasks} == {"bfcl-0"}  # one question in four categories
    assert tasks[0].question == "Sell two pens." and tasks[0].answer is None
    assert (tasks[1].meta["later"], tasks[1].meta["turns"]) == ({"1": ["sell"]}, 2)
    assert Bfcl.read(package / "BFCL_v4_multi_turn_base.json") == tasks[:1]
    assert Bfcl.make_tasks(1, 0, category="miss_param")[0].id == "multi_turn_miss_param_0"
    with pytest.raises(ConfigError, match="bfcl has no category 'basic'; there are base, miss_func"):
        Bfcl.read(package, category="basic")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "simple_0"}, "no question of the multi-turn categories"),
        ({"question": []}, "'question' must be a list of turns"),
        ({"question": [[{"role": "user", "content": "x"}]]}, "the ground truth has 2 turns, and the question 1"),
    ],
)
def test_rows_of_another_form(package: Path, change: dict[str, Any], message: str) -> None:
    path = package / "odd.json"
    path.write_text(json.dumps(QUESTIONS["base"][0] | change))
    with pytest.raises(ReadError, match=message):
        Bfcl.read(path)


def test_schemas_have_json_schemas_types(package: Path) -> None:
    env = Bfcl()
    system, user = env.reset(task_of(package, "base"))
    assert user["content"] == "Sell two pens." and '"sell"' in system["content"]
    assert "ground_truth" not in system["content"]
    sell = env.tools[1]["function"]["parameters"]
    assert sell["type"] == "object" and sell["properties"]["number"]["type"] == "number"
    assert sell["properties"]["sizes"] == {"type": "array", "items": {"type": "object"}, "description": "Of no use."}


def test_an_attempt_that_does_what_the_ground_truth_does(package: Path) -> None:
    env = begun(package)
    first = play(env, [SELL])
    assert first.observations[0]["content"] == '{"sold": 2}' and not first.terminated
    assert not env.is_final(DONE)
    second = play(env, DONE)
    assert second.observations[0]["role"] == "user" and not second.terminated
    assert second.observations[0]["content"] == "How many pens are left? Then close."
    assert env.is_final(DONE)
    assert play(env, [CLOSE, COUNT]).observations[1]["content"] == '{"count": 3}'  # in another order
    last = play(env, DONE)
    assert last.terminated and last.info["success"] is True and last.outcome_reward == 1.0


@pytest.mark.parametrize(
    ("turns", "failure"),
    [
        ([DONE, [SELL, COUNT, CLOSE], DONE], "turn 1: no call was made"),
        ([[ONE], DONE, [COUNT, CLOSE], DONE], "turn 1: Shop.stock is not as it should be"),
        ([[SELL, SELL], DONE, [COUNT, CLOSE], DONE], "turn 1: Shop.stock"),
        ([[SELL], DONE, [CLOSE], DONE], "turn 2: 1 results were never read"),
        ([[SELL], DONE, [COUNT], DONE], "turn 2: 1 results"),
        ([[SELL], DONE, DONE], "turn 2: no call was made"),
        ([[SELL], DONE, [SELL, COUNT, CLOSE], DONE], "turn 2: Shop.stock"),
    ],
)
def test_what_goes_wrong_in_any_turn_fails_the_attempt(package: Path, turns: list[Any], failure: str) -> None:
    env = begun(package)
    last = play(env, *turns)
    assert last.terminated and last.info["success"] is False and last.outcome_reward == 0.0
    assert env.failure is not None and env.failure.startswith(failure)


def test_a_call_that_misses_its_format_ends_no_wish(package: Path) -> None:
    """Neither the user's turn, nor is the ground truth of the last one run for it as well."""
    env = begun(package)
    assert play(env, 'sell("pen", 2)').observations[0]["content"] == '{"sold": 2}'
    assert play(env, DONE).observations[0]["role"] == "user"
    assert not env.is_final('count(name="pen")')
    assert play(env, 'count(name="pen")').observations[0]["content"] == '{"count": 3}'
    assert play(env, "close()", DONE).info["success"] is True


def test_results_may_have_been_read_in_an_earlier_turn(package: Path) -> None:
    """As in the package: a call that reads needs no repetition. (`_log` is private, and not compared.)"""
    env = begun(package)
    assert play(env, [SELL, COUNT], DONE, [CLOSE], DONE).info["success"] is True


def test_each_attempt_begins_anew(package: Path) -> None:
    """The package's own checker keeps programs by question: its second attempt would begin where the first ended."""
    task, env = task_of(package, "base"), Bfcl()
    for _ in range(2):
        env.reset(task)
        assert play(env, [SELL], DONE, [COUNT, CLOSE], DONE).info["success"] is True


def test_a_function_comes_later_and_a_turn_without_truth_asks_for_nothing(package: Path) -> None:
    env = begun(package, "miss_func")
    assert [t["function"]["name"] for t in env.tools] == ["count", "close"]
    more = play(env, "Answer: I have no tool for that.")
    assert "there are more tools" in more.observations[0]["content"] and '"sell"' in more.observations[0]["content"]
    assert [t["function"]["name"] for t in env.tools] == ["count", "close", "sell"]
    assert play(env, [("sell", {"name": "cup"})], DONE).info["success"] is True


def test_long_context_fills_both_sides(package: Path) -> None:
    env = begun(package, "long_context")
    assert '"count": 1000' in play(env, [("count", {"name": "filler"}), SELL]).observations[0]["content"]
    assert play(env, DONE).info["success"] is True


def test_calls_that_cannot_run_come_back_as_words(package: Path) -> None:
    env = begun(package)
    calls = [
        ("sell", {"name": "hat"}), ("sell", {"colour": "red"}), ("buy", {}), ("_load_scenario", {"scenario": {}}),
        ("sell", {"name": "pen", "number": 1e300}), ("__init__", {}),
    ]  # fmt: skip
    result = play(env, calls)
    contents = [o["content"] for o in result.observations]
    assert contents[0] == "Error during execution: 'hat'" and "unexpected keyword argument 'colour'" in contents[1]
    assert contents[2] == "Error: there is no tool 'buy'; there are: count, sell, close"
    assert "there is no tool" in contents[3] and "there is no tool" in contents[5]
    assert "number is too large" in contents[4]
    assert result.info["verdicts"] == ["failed", "failed", "malformed", "malformed", "malformed", "malformed"]
    assert play(env, [SELL], DONE, [COUNT, CLOSE], DONE).info["success"] is True
    assert too_large({"exponent": 20_000}) == "exponent" and too_large({"numbers": [1, 2e12]}) == "numbers"
    assert too_large({"base": 20_000, "name": "x", "flag": True}) is None


def test_too_many_steps_in_a_turn_end_the_episode(package: Path) -> None:
    env = begun(package)
    assert not play(env, *[[COUNT]] * MAX_STEPS).truncated
    last = play(env, [COUNT])
    assert last.truncated and last.info["success"] is False and last.outcome_reward == -0.1
    env = begun(package, max_turns=2)
    last = play(env, [SELL], DONE)
    assert last.truncated and last.info["answer"] is None


def test_a_cut_turn_ends_nothing(package: Path) -> None:
    env = begun(package)
    cut = asyncio.run(env.step("Answer: do", "length"))
    assert not cut.terminated and "cut at its token limit" in cut.observations[0]["content"]
    assert play(env, [SELL], DONE, [COUNT, CLOSE], DONE).info["success"] is True


def test_without_a_ground_truth_it_is_played_ungraded(package: Path) -> None:
    (package / "possible_answer" / "BFCL_v4_multi_turn_base.json").unlink()
    task, env = task_of(package, "base"), Bfcl()
    assert not env.is_graded(task)
    env.reset(task)
    last = play(env, DONE, DONE)
    assert last.terminated and last.info["success"] is None and last.outcome_reward is None


@pytest.mark.parametrize("written", ["os.remove('x')", "sell(name=open('x'))", "count", "import os", "nothing()"])
def test_a_ground_truth_is_literal_calls_and_nothing_else(package: Path, written: str) -> None:
    del package
    with pytest.raises(ValueError, match="cannot be run"):
        bfcl_apis.Programs(["Shop"], {}).run(written)


def test_missing_counts_each_once() -> None:
    assert missing(["a", "a", "b"], ["b", "a"]) == ["a"] and missing([], ["x"]) == []


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install --no-deps bfcl-eval"):
        Bfcl()


# ---- the package itself -----------------------------------------------------------------------------------------------


def literal(env: Bfcl, written: str) -> tuple[str, dict[str, Any]]:
    """A call of the ground truth as an agent would make it, with names for its arguments."""
    call = ast.parse(written.strip(), mode="eval").body
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    names = inspect.signature(env._agents.methods[call.func.id]).parameters
    named = dict(zip(names, map(ast.literal_eval, call.args), strict=False))
    return call.func.id, named | {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}


def test_verdicts_are_those_of_the_packages_checker() -> None:
    if importlib.util.find_spec("bfcl_eval") is None:
        pytest.skip("bfcl-eval is not installed (pip install --no-deps bfcl-eval)")
    check = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker").multi_turn_checker
    rng, tasks = random.Random(0), Bfcl.read(Bfcl.default_path("heldout") or "")
    assert len(tasks) == 800 and len({t.question_id for t in tasks}) == 200
    verdicts = []
    for number, task in enumerate(rng.sample(tasks, 60)):
        env = Bfcl(max_turns=1000)
        env.reset(task)
        turns = [list(turn) for turn in task.meta["ground_truth"]]
        turn = rng.choice(turns)
        change = rng.choice(("none", "drop", "again", "shuffle", "empty"))
        if change == "drop" and turn:
            turn.pop(rng.randrange(len(turn)))
        elif change == "again" and turn:
            turn.append(rng.choice(turn))
        elif change == "shuffle":
            rng.shuffle(turn)
        elif change == "empty":
            turn.clear()
        last = play(env, *[text for t in turns for text in ([[literal(env, w) for w in t]] if t else []) + [DONE]])
        row = {"id": task.id, "initial_config": task.meta["initial"], "involved_classes": task.meta["programs"]}
        theirs = check([[t] if t else [] for t in turns], task.meta["ground_truth"], row, "x", f"m{number}")
        assert last.info["success"] is theirs["valid"], (task.id, change, env.failure, theirs)
        verdicts.append(theirs["valid"])
    assert 10 < sum(verdicts) < 50
