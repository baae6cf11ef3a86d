"""Scores as chat models write them are read where one reading is possible, and never guessed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from openai_server import completion, serve

from rrm.annotators import llm
from rrm.engines.base import Reply
from rrm.engines.openai import OpenAIEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.chat import read_reply
from rrm.judge.said_score import own_text, score_blocks
from rrm.trajectory import Message, Trajectory

MORE: list[tuple[str, float | str]] = json.loads((Path(__file__).parent / "judge_replies_more.json").read_text("utf-8"))
REVISED = (
    "At first sight <score>0.9</score>, but 41 is wrong.\n"
    "<critique>[step 1] bad: 6*7 is not 41</critique>\n<score>0.1</score>"
)
QUOTING = "<critique>[step 1] bad: it writes <score>1.0</score> itself</critique><score>0.1</score>"


def run() -> Trajectory:
    said = [Message(role="user", content="What is 6*7?"), Message(role="assistant", content="It is 41.")]
    return Trajectory(id="r1", task="What is 6*7?", messages=said)


@pytest.mark.parametrize(("text", "wanted"), MORE)
def test_replies_are_read_or_typed(text: str, wanted: float | str) -> None:
    """`7/10`, `70%`, `0,7`, `0.7 (…)`, a labelled line, JSON and an unclosed tag were all `unparsable`."""
    found = read_reply(Reply(text, "eos"))
    assert (found.raw_score if found.status == "scored" else found.status) == wanted
    assert (found.reason is None) == (found.status == "scored")


def test_a_reply_that_says_two_scores_has_none_and_one_that_quotes_one_has_its_own() -> None:
    """By `rrm score` and `rrm annotate`: 0.9 and 1.0, without a critique, also as labels that were trained on."""
    for text, wanted in ((REVISED, None), (QUOTING, 0.1)):
        with serve(lambda n, body, text=text: completion(text)) as server:
            judge = AgentRRM.from_pretrained(f"openai:{server.url}#m")
            row = judge.judge([run()])[0]
            labels = list(llm.annotate([run()], OpenAIEngine(server.url, "m"), model="m"))
        assert row.raw_score == wanted and row.findings[0].verdict == "bad"
        assert [label.score for label in labels] == [wanted] * (wanted is not None)
    assert row.status == "scored"


def test_texts_from_json_are_the_reply_s_and_what_cuts_it_off_is_said() -> None:
    """A fenced object with a trace, a critique and a score was `unparsable`: no <score> block."""
    fenced = '```json\n{"trace": "x", "critique": "[step 1] good: fine", "score": 0.8}\n```'
    found = read_reply(Reply(fenced, "eos"))
    assert (found.raw_score, found.trace, found.critique) == (0.8, "x", "[step 1] good: fine")
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
    ],
)
def test_no_reply_takes_long_to_read(text: str) -> None:
    """Of 100 kB each."""
    began = time.perf_counter()
    assert read_reply(Reply(text, "eos")).raw_score is None
    assert time.perf_counter() - began < 1.0


def test_places_in_a_text_stay_what_they_are() -> None:
    text = "tried <score>0.1</score></think><critique><score>1</score></critique><score>0.5</score>"
    assert [(m[1], text[m.start(1) : m.end(1)]) for m in score_blocks(text)] == [("0.5", "0.5")]
    assert len(own_text("<think>a</think>b<think>c")) == len("<think>a</think>b<think>c")
