"""Methods: what each makes of a config, what it tells the policy, and how its turns are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from multihop import hotpot_file, install_search
from rollout_models import make_tokenizer, says

from benchmarks.agents.methods import METHODS, MethodSettings, NotApplicable, entries_of, find_method
from reagent.env.tool import tool
from reagent.rollout.episode import Episode
from reagent.rollout.rollout import rollout
from reagent.rollout.templates import TurnTemplate
from reagent.tasks.environments import find_environment, make_factory
from reagent.tasks.hotpotqa import HotpotQA
from reagent.tasks.registry import TASKS
from reagent.train.config import AgentConfig
from rrm.engines.base import SamplingParams

FORM = (
    "The answer is a name, a date, a number or a few words, as short as it can be and not a sentence; where the question can be "
    "answered by yes or no, it is yes or no."
)
LINE = "Think as long as the question needs, then write one line: Answer: <answer>"


def configured(
    method: str, task: str = "hotpotqa", settings: MethodSettings | None = None, **sections: Any
) -> AgentConfig:
    environment = {"name": task, **sections.pop("environment", {})}
    config = AgentConfig.model_validate({"environment": environment, **sections})
    benchmark: Any = find_environment(task)
    return find_method(method)(settings).configure(config, benchmark)


def opening(config: AgentConfig, question: int, path: Path) -> list[dict[str, Any]]:
    """What the config's environment says first."""
    env = make_factory(config.environment.name, **config.environment.options)()
    return env.reset(HotpotQA.read(path)[question])


def played(config: AgentConfig, path: Path, *turns: str, n: int = 1) -> list[Episode]:
    """Episodes of a policy that says these turns."""
    tokenizer = make_tokenizer("lab")
    factory = make_factory(config.environment.name, **config.environment.options)
    params = config.rollout.sampling(seed=0, temperature=0.0)
    return rollout(
        says(tokenizer, *turns), tokenizer, factory, HotpotQA.read(path)[:n], params=params, **config.rollout.limits
    )


# ---- what a policy is told ---------------------------------------------------------------------------------------------


def test_direct_is_the_question_and_the_answers_form(tmp_path: Path) -> None:
    assert opening(configured("direct"), 0, hotpot_file(tmp_path)) == [
        {"role": "system", "content": f"Answer from what you know: no tool is at hand, and there is this one turn. {FORM}\n{LINE}"},
        {"role": "user", "content": "What was the trade of the mayor of Arlo?"},
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["direct", "naive_rag"])
def test_a_policy_that_answers_in_tags_is_asked_and_read_so_without_tools(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_search(monkeypatch)
    path = hotpot_file(tmp_path)
    options = {"parser": "search_tags", "corpus": str(path)}
    config = configured(method, environment={"options": options})
    said = opening(config, 0, path)[0]["content"]
    assert said.endswith("then answer: <answer>...</answer>") and "Answer:" not in said
    (episode,) = played(config, path, "<answer>baker</answer>")
    assert (episode.answer, episode.success, episode.turns[0].info.get("malformed", 0)) == ("baker", True, 0)
    react = configured(method, environment={"options": {**options, "parser": "react"}})
    assert opening(react, 0, path)[0]["content"].endswith(LINE) and "parser" not in react.environment.options


class Tagged(HotpotQA):
    own_parser = "search_tags"


class Lined(HotpotQA):
    own_parser = "react"


@pytest.mark.parametrize("method", ["direct", "naive_rag"])
def test_a_benchmark_whose_own_form_is_tags_is_answered_in_tags(method: str, tmp_path: Path) -> None:
    asked = find_method(method)(None)
    options = asked.options(Tagged, {"corpus": "x"})
    assert options["system"].endswith("<answer>...</answer>") and "parser" not in options
    assert asked.options(Tagged, {"corpus": "x", "parser": "hermes"})["system"].endswith(LINE)
    assert asked.options(Lined, {"corpus": "x"})["parser"] == "hermes"
    env: Any = Tagged(tools=[])
    assert env.parser.parse("<answer>baker</answer>").answer == "baker"


def test_naive_rag_is_the_questions_passages_and_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_search(monkeypatch)
    path = hotpot_file(tmp_path)
    config = configured(
        "naive_rag", settings=MethodSettings(passages=2), environment={"options": {"corpus": str(path), "max_turns": 9}}
    )
    assert opening(config, 1, path) == [
        {"role": "system", "content": "Answer from the passages that come with the question: no tool is at hand, and there is this one "
         f"turn. Passages may have nothing to do with the question. {FORM}\n{LINE}"},
        {"role": "user", "content": "What a search for the question found:\n\n"
         "[1] Mayor Birm\nMayor Birm was a smith.\n\n[2] Mayor Lomar\nMayor Lomar was a baker.\n\n"
         "Question: What was the trade of the mayor of Birm?"},
    ]  # fmt: skip
    env: Any = make_factory("hotpotqa", **config.environment.options)()
    assert env.tools == [] and env.max_turns == config.rollout.max_turns == 1


def test_passages_are_cut_to_what_the_prompt_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All else of the prompt stays whole, a turn has room behind it, and its tokens are those of the messages that are shown."""
    install_search(monkeypatch)
    path, tokenizer = hotpot_file(tmp_path), make_tokenizer("lab")
    options = {"corpus": str(path), "tool_options": {"search": {"k": 8}}}

    def prompted(budget: int) -> Episode:
        rollouts = {"max_new_tokens": 30, "max_episode_tokens": budget}
        return played(
            configured("naive_rag", environment={"options": options}, rollout=rollouts), path, "Answer: baker"
        )[0]

    whole = prompted(4000)
    text = whole.trajectory.messages[1].text()
    assert text.count("\n\n[") == 8 and "…" not in text
    budget = len(whole.prompt_ids) + 30
    assert prompted(budget).prompt_ids == whole.prompt_ids  # room to the token
    for less in (1, 100, 250):
        cut = prompted(budget - less)
        assert cut.success is True and budget - less - 40 < len(cut.prompt_ids) + 30 <= budget - less
        messages = [m.model_dump(exclude_none=True) for m in cut.trajectory.messages]
        assert TurnTemplate(tokenizer, []).prompt(messages[:2]) == cut.prompt_ids
        assert messages[0]["content"] == whole.trajectory.messages[0].text()
        assert messages[1]["content"].endswith("\n\nQuestion: What was the trade of the mayor of Arlo?")
        assert len(messages[1]["content"]) < len(text)
    none = prompted(len(whole.prompt_ids) // 2)
    assert none.status == "token_limit" and not none.turns and none.success is None


def test_a_search_that_fails_ends_the_episode_before_it_begins(tmp_path: Path) -> None:
    @tool
    def broken(query: str) -> str:
        """Search.

        Args:
            query: What to look for.
        """
        raise OSError("the index is gone")

    (episode,) = rollout(
        says(make_tokenizer("lab"), "Answer: baker"),
        make_tokenizer("lab"),
        make_factory("hotpotqa", tools=[], retrieve=broken),
        HotpotQA.read(hotpot_file(tmp_path))[:1],
        params=SamplingParams(max_new_tokens=8),
    )
    assert (episode.status, episode.success, episode.turns) == ("env_error", None, [])
    assert "the index is gone" in str(episode.error)


def test_react_reads_thoughts_actions_and_final_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_search(monkeypatch)
    path = hotpot_file(tmp_path)
    config = configured("react", environment={"options": {"corpus": str(path), "tool_prompt": "template"}})
    (episode,) = played(
        config, path,
        'Thought: who is the mayor?\nAction: search\nAction Input: {"query": "mayor of Arlo"}',
        "Thought: that was a baker.\nFinal Answer: baker",
    )  # fmt: skip
    system, _, first, found, last = episode.trajectory.messages
    assert "Thought: <what you think>\nAction: <tool>" in system.text() and "<tool_call>" not in system.text()
    assert first.reasoning_content == "who is the mayor?"
    assert [(c.name, c.arguments) for c in first.tool_calls or []] == [("search", {"query": "mayor of Arlo"})]
    assert (
        found.text().startswith("Observation: [1] Arlo\nArlo is a town.")
        and last.reasoning_content == "that was a baker."
    )
    assert (episode.answer, episode.success) == ("baker", True)
    (other,) = played(config, path, '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>')
    assert {t.info["malformed"] for t in other.turns} == {1} and other.success is False


def test_tool_call_has_the_benchmarks_own_words_and_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_search(monkeypatch)
    path = hotpot_file(tmp_path)
    config = configured("tool_call", environment={"options": {"corpus": str(path)}})
    system = opening(config, 0, path)[0]["content"]
    assert system.startswith(f"{HotpotQA.work} {FORM}\nYou can call these tools:") and '"name": "search"' in system
    (episode,) = played(
        config, path, '<tool_call>{"name": "search", "arguments": {"query": "Arlo mayor"}}</tool_call>', "Answer: baker"
    )
    assert (len(episode.turns), episode.success) == (2, True)


# ---- what a config becomes ---------------------------------------------------------------------------------------------


def test_each_method_changes_what_it_says() -> None:
    base = {"feedback": {"mode": "r"}, "eval": {"temperature": 0.3}}
    plain = {name: configured(name, **base) for name in ("direct", "tool_call", "react", "policy")}
    assert {c.feedback.mode for c in plain.values()} == {"none"} and {c.eval.temperature for c in plain.values()} == {
        0.3
    }
    assert plain["policy"] == plain["tool_call"]
    again = configured("reagent_c", **base)
    assert (again.feedback.mode, again.feedback.refinement, again.eval.samples) == ("c", "critique", 1)
    best = configured("best_of_n", settings=MethodSettings(samples=5, temperature=0.8), **base)
    assert (best.eval.samples, best.eval.temperature, best.feedback.mode) == (5, 0.8, "none")
    assert {name: method.headline for name, method in METHODS.items() if method.asks_judge} == {
        "reagent_c": "refined", "best_of_n": "chosen",
    }  # fmt: skip


def test_options_of_tools_go_with_the_tools() -> None:
    options: dict[str, Any] = {"tools": ["calculator", "search"], "tool_options": {"search": {"k": 7}}}
    options |= {"corpus": "c", "parser": "react", "grader": "f1"}
    direct = configured("direct", environment={"options": options}).environment.options
    assert direct == {"system": direct["system"], "tools": [], "max_turns": 1, "grader": "f1"}
    rag = configured("naive_rag", environment={"options": options | {"parser": "glm"}}).environment.options
    assert rag == {
        "system": rag["system"], "tools": [], "max_turns": 1, "grader": "f1", "parser": "glm", "corpus": "c",
        "retrieve": "search", "tool_options": {"search": {"k": 7}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "task", "said"),
    [
        ("naive_rag", "gsm8k", "gsm8k: none of its tools searches passages"),
        ("naive_rag", "bfcl", "bfcl: none of its tools"),
        ("direct", "bfcl", "bfcl: each question brings its own tools, and direct has none"),
    ],
)
def test_what_a_benchmark_cannot_be_played_by(method: str, task: str, said: str) -> None:
    with pytest.raises(NotApplicable, match=said):
        configured(method, task)


@pytest.mark.parametrize("task", [name for name in TASKS if name != "bfcl"])
def test_one_turn_is_never_told_of_tools(task: str) -> None:
    system = configured("direct", task).environment.options["system"]
    benchmark: Any = find_environment(task)
    assert benchmark.form in system and benchmark.work not in system and benchmark.form and benchmark.work


# ---- rows of a table ---------------------------------------------------------------------------------------------------


def test_rows_are_methods_policies_and_labels() -> None:
    found = entries_of(["direct", "policy@runs/grpo-0/policy", "warm=tool_call@a/b", "tool_call"])
    assert [(e.label, e.method.name, e.policy) for e in found] == [
        ("direct", "direct", None),
        ("policy-grpo-0", "policy", "runs/grpo-0/policy"),
        ("warm", "tool_call", "a/b"),
        ("tool_call", "tool_call", None),
    ]
