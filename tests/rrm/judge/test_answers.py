"""Replies to criteria: what is read of them, and how each one that cannot be read ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrm.data.feedback import CriterionAnswer
from rrm.engines.base import Reply
from rrm.errors import ConfigError
from rrm.judge.answers import answer_of, read_answers, read_notes
from rrm.judge.chat import Judgement
from rrm.prompt.criteria import Question, answer_schema, parse_criteria

CRITERIA = parse_criteria(
    {
        "name": "c",
        "questions": {
            "done": {"ask": "Done?", "scale": "yes_no", "weight": 2},
            "tone": {"ask": "Tone?", "labels": {"very warm": 1.0, "cold": 0.0, "silent": None}},
            "care": {"ask": "Care?", "scale": "unit", "may_not_apply": True},
        },
    },
    "here",
)


def item(answer: Any, why: Any = "so [step 1]", steps: Any = (1,)) -> dict[str, Any]:
    return {"why": why, "steps": list(steps) if isinstance(steps, tuple) else steps, "answer": answer}


def whole(**changed: Any) -> str:
    answers = {"done": item("yes"), "tone": item("cold"), "care": item(0.5)}
    return json.dumps({"answers": {name: a for name, a in {**answers, **changed}.items() if a is not None}})


def block(name: str, answer: str, why: str = "so", steps: str = "1") -> str:
    return f'<criterion name="{name}">\nwhy: {why}\nsteps: {steps}\nanswer: {answer}\n</criterion>\n'


TAGS = block("done", "yes") + block("tone", "cold") + block("care", "0.5")


def schema(text: str, stop: Any = "eos", mode: Any = "score") -> Judgement:
    return read_answers(Reply(text, stop), CRITERIA, mode, 2, structured=True)


def tags(text: str, stop: Any = "eos", mode: Any = "score") -> Judgement:
    return read_answers(Reply(text, stop), CRITERIA, mode, 2, structured=False)


@pytest.mark.parametrize("result", [schema(whole()), tags(TAGS)])
def test_every_answer_is_read(result: Judgement) -> None:
    assert (result.status, result.reason, result.trace, result.critique) == ("scored", None, None, None)
    assert result.raw_score == (2 * 1.0 + 0.0 + 0.5) / 4
    assert result.criteria is not None and list(result.criteria) == ["done", "tone", "care"]
    assert [(a.value, a.label, a.steps) for a in result.criteria.values()] == [
        (1.0, "yes", [1]),
        (0.0, "cold", [1]),
        (0.5, None, [1]),
    ]
    assert result.criteria["done"].why in ("so", "so [step 1]")


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (whole(tone=None), "unparsable", "no answer to 'tone'"),
        (whole(tone=item("tepid")), "unparsable", "the answer to 'tone' is not in its scale: \"tepid\" where \"very warm\" or"),
        (whole(tone=item(None)), "unparsable", "the answer to 'tone' is not in its scale: null"),
        (whole(tone="cold"), "unparsable", "no answer to 'tone': not an object"),
        (whole(tone={"why": "x"}), "unparsable", "no answer to 'tone': not an object with an `answer`"),
        (whole(done=item(2)), "unparsable", "the answer to 'done' is not in its scale: \"2\""),
        (whole(care=item(1.5)), "unparsable", "the answer to 'care' is not in its scale: 1.5 lies outside [0, 1]"),
        (whole(care=item(10**400)), "unparsable", "the answer to 'care' is not in its scale: 1000"),
        (whole(care=item(float("nan"))), "unparsable", "the answer to 'care' is not in its scale: nan"),
        (whole(care=item(float("inf"))), "unparsable", "the answer to 'care' is not in its scale: inf"),
        (whole(care=item(True)), "unparsable", "the answer to 'care' is not in its scale: true"),
        (whole(care=item("7/10")), "unparsable", "the answer to 'care' is not in its scale: score '7/10'"),
        (whole(care=item([0.5])), "unparsable", "the answer to 'care' is not in its scale: \"a JSON list\""),
        (whole()[:-60], "unparsable", "no answer to 'care': the reply is no whole JSON object"),
        (whole()[:70], "unparsable", "no answer to 'tone': the reply is no whole JSON object"),
        ("Here you are: " + whole(), "unparsable", "no answer to 'care': text stands around the JSON object"),
        (whole() + " I hope this helps", "unparsable", "no answer to 'care': the reply is no whole JSON object (Extra"),
        ("", "unparsable", "no answer to 'done': empty reply"),
        ("[]", "unparsable", "no answer to 'done': the reply has no object `answers`"),
        ('{"answers": 1}', "unparsable", "no answer to 'done': the reply has no object `answers`"),
        ("[" * 100_000, "unparsable", "no answer to 'done': the reply is no whole JSON object (nested too deep)"),
        ('{"answers": {"done": {"answer": "yes", "answer": "no"}}}', "unparsable", "two different answers to 'done': \"yes\" and \"no\""),
        ('{"answers": {"done": {"answer": "yes"}, "done": {"answer": "no"}}}', "unparsable", "two different answers to 'done'"),
        ('{"answers": {"done": {"answer": "yes"}}, "answers": {}}', "unparsable", "`answers` stands in the reply twice"),
    ],
)  # fmt: skip
def test_a_schema_reply_that_is_not_whole_ends_typed(text: str, status: str, reason: str) -> None:
    result = schema(text)
    assert (result.status, result.raw_score) == (status, None)
    assert (result.reason is not None and result.reason.startswith(reason)) or reason in str(result.reason)


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        (TAGS.replace("yes", "maybe"), "unparsable", "the answer to 'done' is not in its scale: \"maybe\" where \"yes\" or \"no\""),
        (block("done", "yes") + block("care", "1"), "unparsable", "no answer to 'tone'"),
        (TAGS + block("tone", "very warm"), "unparsable", "two different answers to 'tone': \"cold\" and \"very warm\""),
        (TAGS.replace("answer: cold", "answer: cold\nanswer: silent"), "unparsable", "'tone' is not in its scale: \"cold / silent\""),
        (TAGS.replace("answer: cold", ""), "unparsable", "no answer to 'tone': its block has no line `answer: …`"),
        (TAGS.replace("0.5", "0.5 or so"), "unparsable", "the answer to 'care' is not in its scale: score '0.5 or so'"),
        (TAGS.replace('"tone"', '"other"'), "unparsable", "no answer to 'tone'"),
        (f"<think>{TAGS}</think>I will not answer.", "unparsable", "no answer to 'done'"),
        (f"<think>{TAGS}", "unparsable", "no answer to 'done'"),
        ("  ", "unparsable", "no answer to 'done': empty reply"),
        ("yes, cold, 0.5", "unparsable", "no answer to 'done'"),
    ],
)  # fmt: skip
def test_a_tagged_reply_that_is_not_whole_ends_typed(text: str, status: str, reason: str) -> None:
    result = tags(text)
    assert (result.status, result.raw_score) == (status, None) and reason in str(result.reason)


def test_a_reply_that_was_cut_off_is_truncated_only_where_something_is_missing() -> None:
    assert schema(whole()[:-60], "length").status == "truncated"
    assert tags(TAGS[:-20], "length").reason == "cut off by length: no answer to 'care'"
    assert tags(TAGS, "length").status == "scored"
    assert tags(TAGS.replace("cold", "tepid"), "length").status == "unparsable"


def test_what_was_answered_is_kept_beside_the_failure() -> None:
    result = tags(block("done", "no") + block("tone", "tepid"))
    assert result.criteria == {"done": CriterionAnswer(value=0.0, label="no", why="so", steps=[1])}


def test_answers_without_a_value_make_no_score() -> None:
    only = {name: q for name, q in CRITERIA.questions.items() if name != "done"}
    criteria = CRITERIA.model_copy(update={"questions": only})
    reply = Reply(block("tone", "Silent") + block("care", "not_applicable"), "eos")
    result = read_answers(reply, criteria, "score", 1, structured=False)
    assert result.status == "unparsable" and "no question that counts was answered with a value" in str(result.reason)
    assert result.criteria is not None and result.criteria["care"].label == "not applicable"
    more = schema(whole(tone=item("silent"), care=item("Not-applicable")))
    assert more.raw_score == 1.0 and more.criteria is not None and more.criteria["tone"].value is None


@pytest.mark.parametrize(
    "text", [f"```json\n{whole()}\n```", f"<think>hm {{}}</think>\n{whole()}", f"so…</think>{whole()}"]
)
def test_a_fence_and_thoughts_are_no_text_around(text: str) -> None:
    assert schema(text).status == "scored"


def test_labels_are_compared_without_case_and_markup() -> None:
    assert tags(TAGS.replace("cold", "**Very_Warm**.").replace("yes", '"Yes".')).raw_score == 3.5 / 4


@pytest.mark.parametrize(
    ("written", "value"),
    [("-1", 0.0), (-1, 0.0), ("0", 0.5), ("+1", 1.0), ("- so-so", 0.6), ("So so", 0.6), ("**C-**", 0.3)],
)
def test_a_sign_is_part_of_a_label(written: Any, value: float) -> None:
    labels = {"-1": 0.0, "0": 0.5, "+1": 1.0, "so-so": 0.6, "C-": 0.3, "C": 0.4}
    assert answer_of(Question(ask="How?", labels=labels), written)[1] == value


@pytest.mark.parametrize("written", ["1", 1, "- 1", "+ 1"])
def test_an_answer_without_the_sign_is_no_label(written: Any) -> None:
    with pytest.raises(ValueError, match="where"):
        answer_of(Question(ask="How?", labels={"-1": 0.0, "0": 0.5, "+1": 1.0}), written)


def test_the_same_answer_twice_is_one() -> None:
    assert tags(TAGS + block("tone", "Cold")).status == "scored"


def test_steps_that_do_not_exist_are_cut_and_said() -> None:
    result = schema(whole(done=item("yes", "fine\n[step 9] bad: made up", (2, 7, 2, True, "x"))))
    assert result.criteria is not None and result.criteria["done"].steps == [2]
    assert "7, 9" in str(result.reason) and result.status == "scored"
    tagged = tags(TAGS.replace("steps: 1", "steps: 1-2, 8", 1))
    assert tagged.criteria is not None and tagged.criteria["done"].steps == [1, 2] and ": 8" in str(tagged.reason)


def test_modes_say_what_else_is_read() -> None:
    extra = {"trace": "t", "critique": "[step 1] good: ok"}
    text = json.dumps({**extra, **json.loads(whole())})
    assert (schema(text, mode="full").trace, schema(text, mode="critique").trace) == ("t", None)
    assert schema(text, mode="critique").critique == extra["critique"] and schema(text).critique is None
    tagged = f"<think>t</think>{TAGS}<critique>{extra['critique']}</critique>"
    assert (tags(tagged, mode="full").trace, tags(tagged, mode="full").critique) == ("t", extra["critique"])


def test_notes_are_read_with_and_without_their_tag() -> None:
    for text in ("<critique>[step 1] bad: rude</critique>", "[step 1] bad: rude"):
        assert (read_notes(Reply(text, "eos"), 2).status, read_notes(Reply(text, "eos"), 2).critique) == (
            "scored",
            "[step 1] bad: rude",
        )
    assert read_notes(Reply("all is well", "eos"), 2).reason == "no note on a step"
    assert (
        read_notes(Reply("", "eos"), 2).reason == "empty reply"
        and read_notes(Reply("", "length"), 2).status == "truncated"
    )


PIECES = st.sampled_from(
    ['<criterion name="done">', "<criterion name=tone>", "</criterion>", "answer:", "why:", "steps:", " yes", "0.5", "\n", "{", "}",
     '"answers"', ":", '"done"', ",", "[step 1]", "<think>", "</think>", "```", "nan", "\ud800", "\x00"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=14), st.booleans(), st.sampled_from(["eos", "length", "stop"]))
def test_garbage_is_never_a_number(pieces: list[str], structured: bool, stop: Any) -> None:
    result = read_answers(Reply("".join(pieces), stop), CRITERIA, "full", 2, structured=structured)
    assert result.status in ("unparsable", "truncated") and result.raw_score is None and result.reason


@pytest.mark.parametrize(
    ("written", "value"),
    [(True, 1.0), ("true", 1.0), (1, 1.0), ("1", 1.0), ("True.", 1.0), (False, 0.0), ("false", 0.0), (0, 0.0), ("yes", 1.0), (2, None), ("maybe", None), (0.5, None)],
)  # fmt: skip
def test_a_program_s_answers_to_a_question_of_yes_or_no(written: Any, value: float | None) -> None:
    """JSON `true`, "true" and 1 were `unparsable`."""
    question = Question(ask="Done?", scale="yes_no")
    if value is None:
        with pytest.raises(ValueError, match="was asked for"):
            answer_of(question, written)
    else:
        assert answer_of(question, written)[1] == value


@pytest.mark.parametrize(
    ("written", "value"),
    [(1, 0.0), (3, 0.5), ("4", 0.75), (5.0, 1.0), ("**5**", 1.0), ("4/5", 0.75), ("4 out of 5", 0.75), (0, None), (6, None), (3.5, None), ("4/10", None), (True, None)],
)  # fmt: skip
def test_a_scale_of_whole_numbers_is_its_own(written: Any, value: float | None) -> None:
    """There was none: written as labels it took no number (3), and as `unit` its 3 lay outside [0, 1]."""
    question = Question(ask="How polite?", scale="1-5")
    if value is None:
        with pytest.raises(ValueError, match="a whole number from 1 to 5 was asked for"):
            answer_of(question, written)
    else:
        assert answer_of(question, written)[1] == value


def test_scales_are_told_and_checked() -> None:
    criteria = parse_criteria(
        {"questions": {"p": {"ask": "Polite?", "scale": "0 – 10", "may_not_apply": True}}}, "here"
    )
    question = criteria.questions["p"]
    assert question.scale == "0-10" and question.described() == 'a whole number from 0 to 10 or "not applicable"'
    expected = answer_schema(criteria, "score")["properties"]["answers"]["properties"]["p"]["properties"]["answer"]
    assert expected["anyOf"][0] == {"type": "integer", "enum": list(range(11))}
    for scale in ("5-1", "1-5000", "stars"):
        with pytest.raises(ConfigError, match="two whole numbers such as 1-5"):
            parse_criteria({"questions": {"p": {"ask": "Polite?", "scale": scale}}}, "here")
