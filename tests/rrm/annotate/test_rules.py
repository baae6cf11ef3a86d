"""Text and actions of a transcript, and what rules see in them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from agent_runs import call, run
from linear_time import assert_linear

from rrm.annotate import llm, self_
from rrm.data.annotation import Finding
from rrm.data.text import normalise
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.prompt import rules
from rrm.prompt.actions import actions_of, final_answer, observation_text
from rrm.prompt.answers import stated_answer
from rrm.prompt.failures import error_of


def faults(trajectory: Trajectory) -> dict[str, int]:
    return dict(rules.check_steps(trajectory)[1])


def bad_steps(trajectory: Trajectory) -> list[int]:
    return [f.step for f in rules.check_steps(trajectory)[0] if f.verdict == "bad"]


# ---- text and actions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<thought> hm </thought>\n<execute>\nprint(1)\n</execute>", [("code", "code", "print(1)", False)]),
        ("<execute> print(1)", [("code", "code", "print(1)", True)]),
        ("The answer is <solution> 42 </solution>.", [("answer", "answer", "42", False)]),
        ("Thought: x\nAction: Search[Gryphon (film)]", [("call", "Search", "Gryphon (film)", False)]),
        ("Action: search\nAction Input: Gryphon", [("call", "search", "Gryphon", False)]),
        ("Action 3: Finish[1982]", [("answer", "Finish", "1982", False)]),
        ("<think>a</think><search>who</search>", [("call", "search", "who", False)]),
        ("<|begin_of_query|> who <|end_of_query|>", [("call", "search", "who", False)]),
        ("<tool_call>{bad</tool_call>", [("call", "tool", "{bad", True)]),
        (
            '<tool_call>{"name": "f", "arguments": {"b": 1, "a": 2}}</tool_call>',
            [("call", "f", '{"a": 2, "b": 1}', False)],
        ),
        (
            '<function_call>[\n send(to="x", n=1)]</function_call>\n<final_answer></final_answer>',
            [("call", "send", 'send(to="x", n=1)', False)],
        ),
        (
            "<function_call>[read(id=[1, 2]), mail.send(to='a, b)]')]</function_call>",
            [("call", "read", "read(id=[1, 2])", False), ("call", "mail.send", "mail.send(to='a, b)]')", False)],
        ),
        ("<function_call>[read(id=1),]</function_call>", [("call", "read", "read(id=1)", False)]),
        ("<function_call>[read(id=1)</function_call>", [("call", "read", "read(id=1)", True)]),
        ("<function_call>[read(id=1), oops]</function_call>", [("call", "read", "read(id=1), oops]", True)]),
        ("<function_call>[read(id='1)]</function_call>", [("call", "read", "read(id='1)]", True)]),
        ("<function_call>[read(id=1)]", [("call", "read", "read(id=1)]", True)]),
        ("<answer></answer>", [("answer", "answer", "", False)]),
        ("<search>x</search><answer>", [("call", "search", "x", False), ("answer", "answer", "", True)]),
        ("<function_call>[]</function_call>", []),
        ("> go to shelf 8", [("call", "go", "go to shelf 8", False)]),
        ("just talk", []),
    ],
)
def test_actions_in_every_convention(text: str, expected: list[tuple[str, str, str, bool]]) -> None:
    actions = actions_of(run(text).steps[0])
    assert [(a.kind, a.name, a.text, a.malformed) for a in actions] == expected


def test_tool_calls_are_equal_whatever_the_order_of_their_arguments() -> None:
    steps = run(call({"q": "x", "n": 1}), "ok", call('{"n": 1, "q": "X"}')).steps
    assert actions_of(steps[0])[0].key == actions_of(steps[1])[0].key
    assert actions_of(run(call('{"q": ')).steps[0])[0].malformed


@pytest.mark.parametrize(
    ("observation", "error"),
    [
        ("Traceback (most recent call last)\n...\nNameError: name 'x' is not defined", "NameError"),
        ("I don't understand your input. \nIf you want", "not understood"),
        ('{"error": "no such user"}', "error"),
        ("Error: search is down", "error"),
        ("The Comedy of Errors is a play. Error: none", None),
        ("42", None),
    ],
)
def test_errors_are_told_from_results(observation: str, error: str | None) -> None:
    assert error_of(observation) == error


def test_observation_text_drops_the_environments_counter() -> None:
    step = run("x", "Observation:\n803\nYou have 4 steps left and 2 chances to propose solution left.").steps[0]
    assert observation_text(step) == "803"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Thought: it is there.\nAnswer: Drastad", "Drastad"),
        ("Final Answer: 1,200", "1,200"),
        ("So I stop. Final Answer: 1,200", "1,200"),
        ("**Answer:** 42", "42"),
        ("**Final answer: 42**", "42"),
        ("So: **Final Answer: 42.**", "42"),
        ("__Answer: x_1__", "x_1"),
        ("Final Answer: A*", "A*"),
        ("* Answer: A*", "A*"),
        ("The answer is **A***.", "A*"),
        ("**The answer is A***", "A*"),
        ("Answer: ***B***", "B"),
        ("Answer: **A** or **B**", "**A** or **B**"),
        ("Answer: snake_case_", "snake_case_"),
        ("so \\boxed{x_*}", "x_*"),
        ("so \\boxed{**42.**}", "42"),
        ("Final Answer:\n\nParis.", "Paris"),
        ("answer: no\nAnswer: yes", "yes"),
        ("The correct answer is B.", "B"),
        ("Therefore, the answer is 7", "7"),
        ("2 + 2 = 4\n#### 1,200", "1,200"),
        ("#### Step 1", None),
        ("Now I answer the question: why", None),
        ("A question and its answer: none of it", None),
        ("Answer:", None),
    ],
)
def test_answers_stated_in_every_convention(text: str, answer: str | None) -> None:
    assert stated_answer(text) == answer


def test_an_answer_as_the_projects_examples_write_it_is_seen() -> None:
    trajectory = run(call({"q": "river"}), "Drastad lies on the Pell.", "Thought: I looked.\nAnswer: Drastad")
    assert rules.step_lines(trajectory.steps)[-1] == "states an answer seen in step 1"
    assert final_answer(trajectory) == (2, "Drastad")
    made_up = run(call({"q": "river"}), "Drastad lies on the Pell.", "Thought: I looked.\nAnswer: Orrin")
    assert faults(made_up)["unsupported"] == 1


def test_an_empty_answer_block_is_no_answer() -> None:
    assert final_answer(run("<final_answer>\nEmma is free.\n</final_answer>")) == (1, "Emma is free.")
    beside = run("<function_call>[look()]</function_call>\n<final_answer></final_answer>", "ok")
    assert [action.name for action in actions_of(beside.steps[0])] == ["look"]
    alone = run(call({"q": "x"}), "found it there", "<answer></answer>", "go on", "<solution> </solution>")
    assert final_answer(alone) is None and "no_action" not in faults(alone)
    assert faults(alone)["no_answer"] == 1
    assert rules.step_lines(alone.steps)[1].startswith("proposes an answer;")
    said = run(call({"q": "x"}), "found it there", "The file is sent.\n<final_answer>\n</final_answer>")
    assert final_answer(said) == (2, "The file is sent.") and "no_answer" not in faults(said)
    assert final_answer(run("I give up.\nAction: Finish[]")) is None and final_answer(run("<answer>")) is None


@pytest.mark.parametrize(("head", "piece"), [("f('", "\\'"), ("", "f("), ("f('", "''"), ("", "f(x), ")])
def test_a_long_hostile_list_of_calls_is_read_in_linear_time(head: str, piece: str) -> None:
    def read_it(count: int) -> None:
        assert actions_of(run(f"<function_call>[{head}{piece * count}</function_call>").steps[0])[0].malformed

    assert_linear(read_it, 10_000)


def test_final_answer() -> None:
    assert final_answer(run("<solution> 42 </solution>", "Your answer is wrong.", "I stop")) == (1, "42")
    assert final_answer(run("so \\boxed{\\frac{1}{2}} it is")) == (1, "\\frac{1}{2}")
    assert final_answer(run(call({"q": "x"}), "found")) is None


# ---- rules -----------------------------------------------------------------------------------------------------------


def test_the_trace_says_what_each_step_did() -> None:
    trajectory = run(
        "<execute>print(wikipedia_search('Gryphon'))</execute>",
        "Observation:\n" + "Page: Gryphon. Summary: a 1988 film written by Manuel Arce. " * 3,
        "<execute>x = 1/0\nprint(x)</execute>",
        "Observation:\nZeroDivisionError: division by zero",
        "<execute>x = 1/0\nprint(x)</execute>",
        "Observation:\nZeroDivisionError: division by zero",
        "hmm",
        "Observation:\nI don't understand your input.",
        "<execute>print('the answer')</execute>",
        "Observation:\nthe answer",
        "<solution>Manuel Arce</solution>",
    )
    assert rules.rules_trace(trajectory).splitlines() == [
        "[step 1] calls wikipedia_search; gets text",
        "[step 2] runs code; error ZeroDivisionError",
        "[step 3] repeats step 2; error ZeroDivisionError",
        "[step 4] writes text, no action; not understood",
        "[step 5] prints text only; gets a result",
        "[step 6] proposes an answer seen in step 1",
    ]


def test_repeated_calls_and_ignored_errors() -> None:
    assert faults(run(call({"q": "a"}), "some result", call({"q": "a"}), "some result", "Final Answer: some"))["repeat"]
    error = "ValueError: bad"
    code = "<execute>f()</execute>"
    assert faults(run(code, error, code, error, "The answer is 5"))["ignored_error"] == 1
    # what a retry can cure may be retried once, not for ever
    down = "Error: temporarily unavailable"
    assert bad_steps(run(call({"q": "a"}), down, call({"q": "a"}), "it is blue", "Final Answer: blue")) == []
    again = run(call({"q": "a"}), down, call({"q": "a"}), down, call({"q": "a"}), down, call({"q": "a"}), down, "blue")
    assert bad_steps(again)[0] == 3 and 4 not in bad_steps(again)


def test_malformed_empty_and_degenerate_messages() -> None:
    trajectory = run(call("{'q': "), "Error: bad arguments", "", "hm", "spam ham eggs and more spam " * 30, "hm", "5")
    assert faults(trajectory).items() >= {"malformed": 1, "empty": 1, "degenerate": 1}.items()
    assert bad_steps(trajectory)[:3] == [1, 2, 3]
    assert not rules.is_degenerate(" ".join(f"word{i}" for i in range(300)))
    assert rules.is_degenerate("ab" * 1000)


def test_results_are_used_or_not() -> None:
    used = run(call({"q": "Gryphon"}), "written by Manuel Arce", "Arce it is. Final Answer: Manuel Arce")
    findings, found = rules.check_steps(used)
    assert findings == [Finding(step=1, verdict="good", text="its result is used later")] and not found
    assert rules.rules_score(found) == 1.0
    unused = run(call({"q": "Gryphon"}), "written by Manuel Arce", call({"q": "Zzz"}), "blue", "Final Answer: blue")
    assert bad_steps(unused) == [1]


def test_an_answer_put_together_from_two_results_is_supported() -> None:
    both = (call({"q": "rome"}), "Rome 20C", call({"q": "oslo"}), "Oslo 3C")
    task = "Compare the weather in Rome and Oslo"
    assert bad_steps(run(*both, "Final Answer: Rome is warmer: 20C versus 3C.", task=task)) == []
    assert bad_steps(run(*both, "Final Answer: Rome is warmer: 20C versus 4C.", task=task))[-1] == 3
    assert bad_steps(run(*both, "Final Answer: Bergen is much warmer", task=task))[-1] == 3


def test_what_only_an_image_shows_is_not_called_unused() -> None:
    image = {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}
    assert bad_steps(run(call({"q": "cat"}), image, "Final Answer: black", task="Which colour?")) == []


def test_an_answer_from_the_task_is_used_where_the_result_names_it() -> None:
    task = "Which is older, Zed or Ynx?"
    chosen = run("<search>Zed</search>", "Zed is from 1900", "<answer>Zed</answer>", task=task)
    assert rules.check_steps(chosen)[0] == [Finding(step=1, verdict="good", text="its result is used later")]


def test_an_environment_that_reports_errors_as_the_user_is_no_conversation() -> None:
    """As in the project's examples: the agent forgot its action, and the trace said that it spoke to the user."""
    message = "error: write `Action: search[query]` or `Answer: ...`"
    steps = [*run("Thought: Drastad is a city.").messages, Message(role="user", content=message)]
    trajectory = run("x").model_copy(update={"messages": [*steps, *run("Thought: a river.").messages[-1:]]})
    assert rules.step_lines(trajectory.steps)[0] == "writes text, no action; error"
    assert faults(trajectory)["no_action"] == 1
    steps[-1] = Message(role="user", content="What is this?\nTypeError: x is not iterable")
    asked = trajectory.model_copy(update={"messages": [*steps, trajectory.messages[-1]]})
    assert rules.step_lines(asked.steps)[0] == "speaks to the user; the user replies" and "no_action" not in faults(
        asked
    )


@pytest.mark.parametrize(
    "said",
    [
        "Unable to access my account since Monday, can you help?",
        "Failed to get my refund in time.",
        "Error code 51 shows on my card reader.",
        "Unknown action on my card, please block it",
    ],
)
def test_what_a_person_says_of_an_error_is_no_tools_failure(said: str) -> None:
    reply, thanks = ({"role": "user", "content": text} for text in (said, "Thanks."))
    for complaint in (
        run("How can I help you?", reply),
        run("How can I help?", reply, "I have reset it for you.", thanks),
    ):
        assert faults(complaint) == {}
        assert rules.step_lines(complaint.steps)[0] == "speaks to the user; the user replies"


def test_a_result_that_its_log_calls_an_error_is_one() -> None:
    told = {"content": "The user said no.", "is_error": True}
    refused = run(call({"q": "a"}), told, call({"q": "a"}), told, "Final Answer: yes")
    assert rules.step_lines(refused.steps)[:2] == ["calls search; error", "repeats step 1; error"]
    assert faults(refused)["ignored_error"] == 1
    busy = {"content": "It is busy, come back later", "is_error": True}
    assert faults(run(call({"q": "a"}), busy, call({"q": "a"}), "it is blue", "Final Answer: blue")) == {}


def test_a_conversation_with_a_user_needs_no_final_answer() -> None:
    talk = run("Which flight?", {"role": "user", "content": "AB1"}, call({"id": "AB1"}, "cancel"), "done")
    assert faults(talk) == {}
    assert rules.rules_trace(talk).splitlines()[0] == "[step 1] speaks to the user; the user replies"


def test_endings() -> None:
    search = (call({"q": "Gryphon"}), "written by Manuel Arce")
    assert faults(run(*search, "I could not find the writer."))["gave_up"] == 1
    assert faults(run(*search, "Final Answer: John Doe"))["unsupported"] == 1
    assert faults(run(*search, "Final Answer: yes")) == {"unused": 1}  # yes and no occur anywhere
    assert faults(run(*search))["no_answer"] == 1
    assert faults(run("It is <solution>42</solution>")) == {}  # no tool: nothing could support it


def test_the_score_is_the_documented_function() -> None:
    assert rules.rules_score(Counter()) == 1.0
    assert rules.rules_score(Counter(repeat=1, malformed=1)) == 0.5
    assert rules.rules_score(Counter(repeat=9)) == 0.1
    assert rules.rules_score(Counter(unsupported=1)) == 0.4
    assert rules.rules_score(Counter(gave_up=1)) == 0.2


def test_twice_the_steps_are_at_most_twice_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step states an answer, and calls, which asks for all results before it and all words after it."""
    done = Counter[str]()

    def counted(name: str, real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counting(given: Any) -> Any:
            done[name] += 1
            return real(given)

        return counting

    for name in ("actions_of", "observation_text", "normalise", "content_words"):
        monkeypatch.setattr(rules, name, counted(name, getattr(rules, name)))
    real_search = rules.PhraseText.contains

    def searching(words: rules.PhraseText, phrase: str) -> bool:
        done["contains"] += 1  # not once: each answer was looked for in each result, and here none has its word
        return real_search(words, phrase)

    monkeypatch.setattr(rules.PhraseText, "contains", searching)

    def work(rounds: int) -> Counter[str]:
        done.clear()
        said = [(f"Final Answer: x{k}", f"row y{k}", call({"q": str(k)}), f"row z{k}") for k in range(rounds)]
        trajectory = run(*(text for texts in said for text in texts))
        lines = rules.step_lines(trajectory.steps)
        assert lines[-2] == "states an answer not seen before; gets a result"
        assert rules.check_steps(trajectory)[1]["unused"] > rounds // 2
        return done.copy()

    once, twice = work(20), work(40)
    assert len(once) == 4 and all(twice[name] <= 2 * once[name] + 4 for name in once)


def test_an_answer_is_found_where_a_search_of_every_result_finds_it() -> None:
    rng = random.Random(0)
    parts = ["red", "blue", "3", "東京", "東", "x東京y", "green"]
    for _ in range(200):
        texts = [" ".join(rng.choices(parts, k=rng.randint(0, 4))) for _ in range(6)]
        trajectory = run(*(text for pair in zip(["go on"] * 6, texts, strict=True) for text in pair))
        phrase = normalise(" ".join(rng.choices(parts, k=rng.randint(1, 2))))
        earlier, answers, found = rules._Earlier(), rules._Answers(), list[int]()
        answers.add(phrase)
        for facts in map(rules._StepFacts, trajectory.steps):
            found += [facts.step.index] if facts.phrases.contains(phrase) else []
            assert answers.any_in(facts.phrases) == facts.phrases.contains(phrase)
            earlier.add(facts)
            latest = earlier.latest_with(phrase)
            assert (latest.step.index if latest else None) == (found[-1] if found else None)


def test_rules_read_neither_outcome_nor_reference() -> None:
    plain = run(call({"q": "a"}), "x y", "Final Answer: y")
    told = plain.model_copy(update={"outcome": 0.0, "meta": {"reference": "y"}})
    assert list(rules.annotate([plain])) == list(rules.annotate([told]))


def test_where_the_agent_never_spoke_there_is_nothing_to_annotate() -> None:
    from rrm.judge.agent_rrm import AgentRRM

    silent = run(outcome=0)
    engine = ScriptedChatEngine([])  # which has no reply to give
    for annotate in (
        lambda rows, counts: rules.annotate(rows, counts=counts),
        lambda rows, counts: llm.annotate(rows, engine, model="m", counts=counts),
        lambda rows, counts: self_.annotate(rows, AgentRRM(engine), model="m", counts=counts),
    ):
        counts = Counter[str]()
        assert list(annotate([silent], counts)) == [] and counts["without_steps"] == 1
