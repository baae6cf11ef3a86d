"""Criteria files: what they may say, what they are hashed by, what a model is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rrm.data.feedback import CriterionAnswer
from rrm.errors import ConfigError
from rrm.prompt.criteria import (
    Criteria,
    answer_schema,
    beside_text,
    load_criteria,
    notes_text,
    parse_criteria,
    shipped,
    system_text,
)

YES_NO: dict[str, Any] = {"ask": "Done?", "scale": "yes_no"}


def criteria(**questions: dict[str, Any]) -> Criteria:
    return parse_criteria({"name": "mine", "questions": questions}, "here")


def written(folder: Path, text: str) -> Path:
    path = folder / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_with_yes_and_no_as_words(tmp_path: Path) -> None:
    text = (
        "instructions: be fair\nquestions:\n  leaked:\n    ask: Was data leaked?\n    labels: {yes: 0, no: 1, off: null}\n"
        "    weight: 2\n  share:\n    ask: How much?\n    scale: unit\n    may_not_apply: true\n"
    )
    loaded = load_criteria(written(tmp_path, text))
    assert (loaded.name, loaded.see_reference, loaded.see_policy) == ("c", False, False)
    assert loaded.questions["leaked"].answers == {"yes": 0.0, "no": 1.0, "off": None}
    assert loaded.questions["share"].answers == {"not applicable": None} and loaded.questions["share"].of_numbers


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("question:\n  a: {ask: x, scale: unit}\n", "unknown key 'question'; nearest valid key: questions"),
        (
            "questions:\n  a: {ask: x, scale: unit, wieght: 2}\n",
            "unknown key 'questions.a.wieght'; nearest valid key: questions.a.weight",
        ),
        ("questions:\n  a: {ask: x, scale: percent}\n", "questions.a.scale"),
        (
            "questions:\n  a: {ask: x}\n",
            "give one of `scale: yes_no`, `scale: unit`, `scale: 1-5` and `labels: {name: value, …}`",
        ),
        ("questions:\n  a: {ask: x, scale: unit, labels: {b: 1, c: 0}}\n", "give one of `scale: yes_no`"),
        ("questions:\n  a: {ask: x, labels: {b: 1.5, c: 0}}\n", "the label 'b' has the value 1.5"),
        ("questions:\n  a: {ask: x, labels: {b: .nan, c: 0}}\n", "the label 'b' has the value nan"),
        ("questions:\n  a: {ask: x, labels: {Big: 1, big: 0}}\n", "'Big' and 'big' could not be told apart"),
        ("questions:\n  a: {ask: x, labels: {so-so: 1, so_so: 0}}\n", "'so-so' and 'so_so' could not be told apart"),
        ("questions:\n  a: {ask: x, labels: {b: null, c: null}}\n", "no label has a value"),
        ("questions:\n  a: {ask: x, labels: {b: 1}}\n", "questions.a.labels"),
        ("questions:\n  a: {ask: x, scale: unit, weight: 0}\n", "no question has a weight above 0"),
        ("questions:\n  a: {ask: x, scale: unit, weight: -1}\n", "questions.a.weight"),
        ("questions:\n  a: {ask: x, scale: unit, weight: .inf}\n", "questions.a.weight"),
        ("questions:\n  a b: {ask: x, scale: unit}\n", "a question's name is a letter"),
        ("questions:\n  a: {ask: x, scale: unit}\n  a: {ask: y, scale: unit}\n", "the key 'a' stands here a second"),
        ("questions: {}\n", "questions"),
        ("- a\n", "expected keys such as `questions`, found list"),
        ("x: &x [1]\nquestions: *x\n", "an alias"),
        ("questions: !!python/object:os.system {}\n", "not readable as YAML"),
        ("questions: [\n", "not readable as YAML"),
        ("? [a, b]\n: 1\n", "not readable as YAML"),
        ("#" * 300_000, "longer than 256 KiB"),
    ],
)
def test_a_wrong_file_is_refused_by_name_of_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_criteria(written(tmp_path, text))
    assert message in str(error.value) and str(tmp_path / "c.yaml") in str(error.value)


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(ConfigError, match="support-policy, task-success, tool-use; did you mean 'tool-use'"):
        load_criteria("tool_use")


@pytest.mark.parametrize("name", ["task-success", "tool-use", "support-policy"])
def test_the_shipped_ones_are_whole(name: str) -> None:
    loaded = load_criteria(name)
    assert loaded.name == name and loaded.about and loaded.instructions and set(shipped()) >= {name}
    assert not loaded.see_reference and loaded.see_policy == (name == "support-policy")
    text = system_text(loaded, "full", structured=False)
    assert all(f"- {question}: " in text for question in loaded.questions)


def test_the_hash_is_of_what_is_asked(tmp_path: Path) -> None:
    first = criteria(a=YES_NO, b={"ask": "How?", "scale": "unit"})
    same = parse_criteria({"name": "other", "about": "x", **first.model_dump(include={"questions"})}, "there")
    assert first.hash == same.hash and len(first.hash) == 12 and first.identity == f"mine ({first.hash})"
    turned = criteria(b={"ask": "How?", "scale": "unit"}, a=YES_NO)
    weighed = criteria(a={**YES_NO, "weight": 2}, b={"ask": "How?", "scale": "unit"})
    seeing = first.model_copy(update={"see_policy": True})
    assert len({first.hash, turned.hash, weighed.hash, seeing.hash}) == 4


def test_the_score_is_the_weighted_mean_of_what_has_a_value() -> None:
    loaded = criteria(a={**YES_NO, "weight": 3}, b=YES_NO, c={**YES_NO, "weight": 0}, d=YES_NO)
    values = {"a": 1.0, "b": 0.0, "c": 0.0, "d": None}
    assert loaded.value({name: CriterionAnswer(value=v) for name, v in values.items()}) == 0.75
    assert loaded.value({"c": CriterionAnswer(value=1.0), "d": CriterionAnswer()}) is None
    assert loaded.value({}) is None


def test_the_schema_asks_for_the_reason_first_and_leaves_nothing_open() -> None:
    unit = {"ask": "How?", "scale": "unit"}
    loaded = criteria(a={**YES_NO, "may_not_apply": True}, b=unit, c={**unit, "may_not_apply": True})
    schema = answer_schema(loaded, "score")
    answers = schema["properties"]["answers"]
    assert list(schema["properties"]) == schema["required"] == ["answers"] and schema["additionalProperties"] is False
    assert list(answers["properties"]["a"]["properties"]) == ["why", "steps", "answer"]
    assert {name: question["properties"]["answer"] for name, question in answers["properties"].items()} == {
        "a": {"type": "string", "enum": ["yes", "no", "not applicable"]},
        "b": {"type": "number"},
        "c": {"anyOf": [{"type": "number"}, {"type": "string", "enum": ["not applicable"]}]},
    }
    assert list(answer_schema(loaded, "full")["properties"]) == ["trace", "answers", "critique"]
    assert list(answer_schema(loaded, "critique")["properties"]) == ["answers", "critique"]


def test_what_the_model_is_told() -> None:
    loaded = parse_criteria({"instructions": "Be fair.\n", "questions": {"a": {**YES_NO, "may_not_apply": True}}}, "x")
    beside = beside_text("no refunds", "42")
    prompt = system_text(loaded, "score", structured=False, beside=beside)
    assert '- a: Done? ("yes" or "no" or "not applicable")' in prompt and "Be fair." in prompt
    assert "<<<\nno refunds\n>>>" in prompt and "<<<\n42\n>>>" in prompt
    assert prompt.index("42") < prompt.index("<criterion")
    assert "<critique>" not in prompt and "<critique>" in system_text(loaded, "critique", structured=False)
    assert '"answers": {"a":' in system_text(loaded, "score", structured=True)
    assert "Do not answer the questions yet" in notes_text(loaded) and beside_text(None, None) == ""


KEYS = st.sampled_from(["ask", "scale", "labels", "weight", "a", "questions", "name", ""])
LEAVES = st.sampled_from([None, True, 0, -1.5, float("nan"), "", "yes_no", "x" * 99, b"y"])
TREES = st.recursive(LEAVES, lambda x: st.lists(x, max_size=2) | st.dictionaries(KEYS, x, max_size=3), max_leaves=6)


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_garbage_is_a_config_error(tree: Any) -> None:
    for given_tree in (tree if isinstance(tree, dict) else {}, {"questions": tree}, {"questions": {"a": tree}}):
        try:
            parse_criteria(given_tree, "garbage")
        except ConfigError as error:
            assert str(error).startswith("garbage")


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="a:&*!{}[]\n -?<|\"'#%", max_size=30))
def test_garbage_files_are_config_errors(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.getbasetemp(), text)
    with pytest.raises(ConfigError):
        load_criteria(path)
