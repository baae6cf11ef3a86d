"""Scores as chat models write them are read where one reading is possible, and never guessed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from openai_server import Answer, completion, failure, serve

from rrm.annotate import llm
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import Reply, StopReason
from rrm.engines.openai import OpenAIEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.chat import read_reply
from rrm.judge.rank import rank_groups
from rrm.judge.score_text import own_text, score_blocks
from rrm.prompt.criteria import parse_criteria

MORE: list[tuple[str, float | str]] = json.loads((Path(__file__).parent / "judge_replies_more.json").read_text("utf-8"))
CASES = Path(__file__).resolve().parents[4] / "shared" / "cases" / "judge_replies.json"
if CASES.is_file():
    cases = json.loads(CASES.read_text("utf-8"))
    MORE += [*cases["readable"], *((text, "unparsable") for text in cases["not_readable"])]
REVISED = (
    "At first sight <score>0.9</score>, but 41 is wrong.\n"
    "<critique>[step 1] bad: 6*7 is not 41</critique>\n<score>0.1</score>"
)
QUOTING = "<critique>[step 1] bad: it writes <score>1.0</score> itself</critique><score>0.1</score>"


def run() -> Trajectory:
    messages = [Message(role="user", content="What is 6*7?"), Message(role="assistant", content="It is 41.")]
    return Trajectory(id="r1", task="What is 6*7?", messages=messages)


@pytest.mark.parametrize(("text", "expected"), MORE)
def test_replies_are_read_or_typed(text: str, expected: float | str) -> None:
    """`7/10`, `70%`, `0,7`, `0.7 (…)`, a labelled line, JSON and an unclosed tag were all `unparsable`."""
    judgement = read_reply(Reply(text, "eos"))
    assert (judgement.raw_score if judgement.status == "scored" else judgement.status) == expected
    assert (judgement.reason is None) == (judgement.status == "scored")


def test_a_reply_that_says_two_scores_has_none_and_one_that_quotes_one_has_its_own() -> None:
    for text, expected in ((REVISED, None), (QUOTING, 0.1)):
        with serve(lambda n, body, text=text: completion(text)) as server:
            judge = AgentRRM.from_pretrained(f"openai:{server.url}#m")
            row = judge.judge([run()])[0]
            labels = list(llm.annotate([run()], OpenAIEngine(server.url, "m"), model="m"))
        assert row.raw_score == expected and row.findings[0].verdict == "bad"
        assert [label.score for label in labels] == [expected] * (expected is not None)
    assert row.status == "scored"


def test_texts_from_json_are_the_reply_s_and_what_cuts_it_off_is_said() -> None:
    """A fenced object with a trace, a critique and a score was `unparsable`: no <score> block."""
    fenced = '```json\n{"trace": "x", "critique": "[step 1] good: fine", "score": 0.8}\n```'
    judgement = read_reply(Reply(fenced, "eos"))
    assert (judgement.raw_score, judgement.trace, judgement.critique) == (0.8, "x", "[step 1] good: fine")
    assert read_reply(Reply("<critique>c</critique><score>0.8", "length")).status == "truncated"
    assert read_reply(Reply('{"score": 0.8', "length")).status == "truncated"


@pytest.mark.parametrize(
    "text",
    [
        "<score>" * 15_000,
        "<score>" + " " * 100_000,
        "score" + "\n" * 100_000,
        "score:" + "*" * 100_000,
        "{" * 100_000,
        "<critique>" * 10_000,
        "0" * 100_000,
        "Score: 1\n\n" * 10_000 + "or 0.5",
        '{"a":' * 20_000,
    ],
)
def test_no_reply_takes_long_to_read(text: str) -> None:
    """Of 100 kB each, a second of this process."""
    began = time.process_time()
    assert read_reply(Reply(text, "eos")).raw_score is None
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ('{"steps": [{"step": 1, "score": 0.9}], "score": 0.1,}', "eos", "unparsable"),
        ('{"steps": [{"step": 1, "score": 1.0}], "critique": "it is\nwrong", "score": 0.0}', "eos", 0.0),
        ('{"steps":[{"step":1,"score":1.0},{"step":2,"verdict":"bad","sc', "length", "truncated"),
        ('{"steps":[{"step":1}],"critique":"it says <score>1.0</score> and', "length", "truncated"),
        ('{"example": {"score": 1.0}, // the format\n "score": 0.2}', "eos", "unparsable"),
        ("{'steps': [{\"score\": 0.9}], 'score': 0.1}", "eos", "unparsable"),
        ('[{"step":1,"score":0.9}]', "eos", "unparsable"),
        ('{"step": 1, "score": 0.9}', "eos", "unparsable"),
        ('{"score": 0.2, "final": {"score": 0.9}}', "eos", "unparsable"),
        ('{"score": 0.9, "final_score": 0.2}', "eos", "unparsable"),
        ('{"score": 0.2, "final": {"score": 0.2}}', "eos", 0.2),
        ('{"steps": [{"step": 1, "score": 0.9}], "score": 0.1}', "eos", 0.1),
        ('{"steps": {"1": {"score": 0.9}}, "score": 0.1}', "eos", 0.1),
        ('{"critique": "it says <score>1.0</score>", "score": 0.2}', "eos", 0.2),
        (r"\boxed{\frac{1}{2}} is wrong, as {x} is. " + '{"score": 0.2}', "eos", 0.2),
    ],
)
def test_the_score_of_a_reply_in_json_is_the_whole_s(text: str, stop: StopReason, expected: float | str) -> None:
    """A step's, an example's or the first of two scores is not the reply's."""
    judgement = read_reply(Reply(text, stop))
    assert (judgement.raw_score if judgement.status == "scored" else judgement.status) == expected


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("<critique>[step 2] bad: it read <score>1.0</score> and obeyed, although the", "length", "truncated"),
        ("<critique>[step 2] bad: it read <score>1.0</score> and obeyed.", "eos", "unparsable"),
        ("<critique>[step 2] bad: page holds\nScore: 1.0\nand the agent", "length", "truncated"),
        ("The tool printed:\nScore: 1.0\nbut the answer is wrong.", "eos", "unparsable"),
        ("The agent wrote `<score>1.0</score>` of itself.", "eos", "unparsable"),
        ("> Score: 1.0\n\nis what it printed.", "eos", "unparsable"),
        ("<critique>bad</critique>\n**Score:** 0", "length", "truncated"),
        ("<critique>bad</critique>\nScore: 1", "length", "truncated"),
        ("<critique>bad</critique>\n0.", "length", "truncated"),
        ("<critique>bad</critique><score>1</score>", "length", "truncated"),
        ("At first <score>0.9</score>, but now <score>0.", "length", "truncated"),
        ("At first <score>0.9</score>, but now <score>0.1", "eos", "unparsable"),
        ("### Step 1\n**Score:** 0.9\n\n### Overall\nThe agent fails, so the mark is 0.1.", "eos", "unparsable"),
        ("**Step 1: search**\n<score>0.9</score>\n\n**Overall**\nIt fails.", "eos", "unparsable"),
        ("- Step 1: a search <score>0.9</score>\n\nThe agent fails.", "eos", "unparsable"),
        ("Step 1: a search\nScore: 0.9\n\nThe agent fails.", "eos", "unparsable"),
        ("Score: 0.9\nis what the tool printed.", "eos", "unparsable"),
        ("**Score:** 0.3\n**Reason:** it guessed.", "eos", 0.3),
        ("Score: 0.9\n\nAll in all it deserves 0.1.", "eos", "unparsable"),
        ("### Step 1\n**Score:** 0.9\n\n### Overall\n**Score:** 0.1", "eos", 0.1),
        ("The agent fails.\n\n**Score:** 0.1\n\nIt read the wrong page.", "eos", 0.1),
        ("<critique>c</critique><score>0.8</score>", "length", 0.8),
    ],
)
def test_a_number_that_is_quoted_cut_or_of_a_step_is_not_the_reply_s(
    text: str, stop: StopReason, expected: float | str
) -> None:
    """The number that stands there: 1.0, 0.9 and, cut, 0.0."""
    judgement = read_reply(Reply(text, stop))
    assert (judgement.raw_score if judgement.status == "scored" else judgement.status) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<score>1</score>/10", 0.1),
        ("<score>1</score> out of 10", 0.1),
        ("<score>1/10</score>", 0.1),
        ("**Rating (1 to 5):** 4/5", 0.8),
        ("Overall rating (0-1): 1.0", 1.0),
        ("On a scale of 0 to 1: <score>1.0</score>", 1.0),
        ("<score>1.0 (all of it is right)</score>", 1.0),
        ('{"score": 0.8, "max_score": 1.0, "score_reason": "5 of 6 are right"}', 0.8),
        ("**Score (1-10):** 1", None),
        ("Score (out of 100)\n1", None),
        ("<score>1 (worst)</score>", None),
        ("<score>1</score> (the lowest)", None),
        ("<score>1 - on a scale of ten</score>", None),
        ("I answer from 1 to 10.\n\nScore: 1", None),
        ("Score: 1, which is the lowest on the scale", None),
        ("Score: 1 - poor", None),
        ("<score>1</score> - poor", None),
        ("<score>1</score> of 10", None),
        ("<score>1 (worst)</score> or rather <score>0.9</score>", None),
        ('{"score": 1, "reason": "the lowest on a scale of ten"}', None),
        ('{"score": 0.9, "higher_is_worse": true}', None),
        ("<score>0.8</score> (4 of 5 steps are right)", 0.8),
        ('{"score": 1, "max_score": 10}', None),
        ('{"score": 1, "scale": "1-10"}', None),
        ("**Score (higher is worse):** 0.9", None),
        ("Here higher is worse. <score>0.9</score>", None),
    ],
)
def test_a_number_of_another_scale_is_read_with_it_or_not_at_all(text: str, expected: float | None) -> None:
    """1.0 for each 1, and 0.9 where the higher is the worse."""
    judgement = read_reply(Reply(f"<critique>It failed.</critique>\n{text}", "eos"))
    assert (judgement.raw_score, judgement.status) == (expected, "unparsable" if expected is None else "scored")


def test_places_in_a_text_stay_what_they_are() -> None:
    text = "tried <score>0.1</score></think><critique><score>1</score></critique><score>0.5</score>"
    assert [(m[1], text[m.start(1) : m.end(1)]) for m in score_blocks(text)] == [("0.5", "0.5")]
    assert len(own_text("<think>a</think>b<think>c")) == len("<think>a</think>b<think>c")


SAID = "<think>looked</think><critique>[step 1] bad: 6*7 is not 41</critique><score>eight</score>"


def again(body: dict[str, Any]) -> bool:
    """Whether a request asks for a reply that could not be read."""
    return "cannot be read" in body["messages"][-1]["content"]


def test_an_unreadable_score_is_asked_for_once_more_and_the_texts_stay() -> None:
    """A second unreadable reply is `unparsable`; there is no third request."""
    counted = {"prompt_tokens": 10, "completion_tokens": 4}
    for second, status, score in (('{"score": 0.2}', "scored", 0.2), ("two tenths", "unparsable", None)):
        with serve(lambda n, body, s=second: completion(s if again(body) else SAID, usage=counted)) as server:
            row = AgentRRM(OpenAIEngine(server.url, "m"), model="m").judge([run()], mode="full")[0]
        assert (row.status, row.raw_score, row.trace) == (status, score, "looked")
        assert row.findings[0].verdict == "bad" and "score 'eight' is not a number" in str(row.reason)
        first, repair = server.requests
        assert repair["messages"][:2] == first["messages"] and repair["response_format"]["type"] == "json_schema"
        assert "score 'eight' is not a number" in repair["messages"][3]["content"]
        assert row.usage is not None and (row.usage.requests, row.usage.prompt_tokens) == (2, 20)


def test_where_a_server_takes_no_schema_the_score_is_asked_for_without() -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        if "response_format" in body:
            return failure(400, "response_format is not supported")
        return completion("<score>0.2</score>" if again(body) else SAID)

    with serve(answer) as server:
        judge = AgentRRM(OpenAIEngine(server.url, "m"), model="m")
        rows = [judge.judge([run()], mode="full")[0] for _ in range(2)]
    assert [row.raw_score for row in rows] == [0.2, 0.2] and rows[0].usage is not None and rows[0].usage.requests == 3
    assert ["response_format" in body for body in server.requests] == [False, True, False, False, False]


def test_criteria_and_orders_are_asked_for_once_more_too() -> None:
    """`unparsable` at once, of a question that was left out and of an order that lacks an attempt."""
    reply = '{"answers": {"done": {"why": "w", "steps": [1], "answer": "yes"}}}'
    with serve(lambda n, body: completion(reply if again(body) else '{"answers": {}}')) as server:
        criteria = parse_criteria({"questions": {"done": {"ask": "Is it done?", "scale": "yes_no"}}}, "test")
        judge = AgentRRM.from_pretrained(f"openai:{server.url}#m", criteria=criteria)
        row = judge.judge([run()], mode="score")[0]
    assert (row.raw_score, len(server.requests)) == (1.0, 2) and "no answer to 'done'" in str(row.reason)
    other = run().model_copy(
        update={"id": "r2", "messages": [*run().messages[:1], Message(role="assistant", content="42")]}
    )
    order = "<ranking>A > B</ranking>"
    with serve(lambda n, body: completion(order if again(body) else "<ranking>A</ranking>")) as server:
        ranking = rank_groups(AgentRRM(OpenAIEngine(server.url, "m"), model="m"), [[run(), other]])[0]
    assert sorted(f.score or 0.0 for f in ranking.feedback) == [0.0, 1.0] and len(server.requests) == 2
