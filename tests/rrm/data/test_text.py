"""The one normaliser, the one leak test, names that are nearly alike, and keys of questions."""

from __future__ import annotations

import pytest
from agent_runs import call, run
from hypothesis import given
from hypothesis import strategies as st
from linear_time import assert_linear

from rrm.data.printing import nearest, nearest_file
from rrm.data.questions import question_hash, question_key, question_of, seen_in_training, text_hash
from rrm.data.text import (
    answer_form,
    answer_leak,
    contains_phrase,
    content_words,
    leaks,
    normalise,
    numbers,
    references,
    shorten,
    squad_normalise,
    transcript_text,
)
from rrm.data.trajectory import Message, Trajectory


@pytest.mark.parametrize(("text", "words"), [
    ("The  Café, 1,000.0 Dahls!", "cafe 1000 dahls"), ("It's 3.50 kg, or .5 of it", "it s 3.5 kg or 0.5 of it"),
    ("x=-2 and \N{MINUS SIGN}24.0, but 3-2", "x -2 and -24 but 3 2"),
    ("1,23 and 12,3456 are no thousands", "1 23 and 12 3456 are no thousands"), ("STRASSE straße", "strasse strasse"),
    ("\uff21\uff42c \u00bd", "abc 1 2"), ("a_b [step 1] v1.2.", "b step 1 v1.2"), ("...--- !?", ""),
])  # fmt: skip
def test_texts_are_compared_by_their_words(text: str, words: str) -> None:
    assert normalise(text) == words


def test_phrases_are_whole_words() -> None:
    assert contains_phrase(normalise("It is 3.5 kg"), normalise("3.5"))
    assert not contains_phrase(normalise("It is 13.5 kg"), "3.5")
    assert not contains_phrase("anything", "")
    assert normalise("The A", articles=True) == "the a" and content_words("the cat x 7") == {"cat", "7"}


@pytest.mark.parametrize("alike", [
    ("the Eiffel Tower", "Eiffel tower.", "**Eiffel Tower**"), ("A", "a", "(A)", "A."),
    ("1,000.0", "$1000", "1000", "+1000"), ("1/2", "1 / 2", "\u00bd"), ("x^2", "x^{2}", "$X^2$"),
    ("The capital is Paris", "The capital is **Paris**.", "# The capital is *Paris*", "- The *capital* is **Paris**!"),
    ("Answer: Paris", "**Answer:** Paris", "> Answer: Paris"), ("x - 1", "x-1", "$x$ \N{MINUS SIGN} $1$", "x \u2013 1"),
    ("x \u2264 3", "x <= 3"), ("2 \u00d7 3", "2*3", "2 \u22c5 3"), ("well-known", "Well known!", "well \u2013 known"),
    ("(3, 4)", "3, 4"), ("5", "=5", "=> 5", "\u2192 5"), ("-5", "- 5", "\N{MINUS SIGN}5"), ("- 0.5", "-0.5"),
    ("5 7", "- 5\n- 7"), ("(1+2)*3", "(1 + 2) * 3", "[1+2] * 3"), ("2^{n+1}", "2^(n+1)"), ("x = (1+2)", "x = 1+2"),
    ("[0, 1,000)", "[0, 1000)"), ("(1,000)", "1000"),
])  # fmt: skip
def test_one_answer_in_several_words(alike: tuple[str, ...]) -> None:
    assert len({answer_form(answer) for answer in alike}) == 1


@pytest.mark.parametrize("apart", [
    ("A", "B", "An", "The", "A, B"), ("C", "C++", "C#"), ("[0,100]", "(0,100)", "0100", "100", "[0,100)"),
    ("[1,200]", "(1,200)", "1200", "1,200, 3"), ("(1+2)*3", "1+2*3", "1+(2*3)"), ("2^{n+1}", "2^n+1"),
    ("\\sqrt{x+1}", "\\sqrt{x}+1"), ("-(a+b)", "-a+b"), ("(-2)^2", "-2^2"), ("- 5", "5", "- 0.5", "0.5"),
    ("5", "-5", "0.5", "1/5"), ("x + 1", "x * 1", "x^1", "x 1", "x - 1", "x \u00b1 1"),
    ("x \u2264 3", "x \u2265 3", "x < 3", "x > 3", "x = 3", "x \u2260 3", "x -> 3", "x 3"), ("3!", "3"),
    ("\u221a2", "\u00b12", "2", "-2", "< 2", "> 2"), ("x", "-x", "x!"), ("A", "A+", "A-"),
    ("[1, 2)", "(1, 2]", "[1, 2]", "(1, 2)"), ("x = \u221e", "x = -\u221e", "x"), ("2*3*4", "2 3 4", "(2)*(3)+(4)"),
    ("p \u2227 q", "p \u2228 q"), ("Vitamin A", "Vitamin"), ("+", "-", "\u2205"),
])  # fmt: skip
def test_other_answers_in_nearly_the_same_words(apart: tuple[str, ...]) -> None:
    forms = [answer_form(answer) for answer in apart]
    assert all(forms) and len(set(forms)) == len(apart)


@given(st.text(max_size=40))
def test_normalising_twice_changes_nothing(text: str) -> None:
    once = normalise(text)
    assert normalise(once) == once


def test_shorten_keeps_whole_sentences_that_fit() -> None:
    assert shorten("One two. Three four. Five six.", 4) == "One two. Three four."
    assert shorten("  short \n text") == "short text"
    assert shorten("aa bb cc, dd ee ff gg", 4) == "aa bb cc."
    assert shorten("aa bb cc dd ee", 4) == "aa bb cc dd."
    assert len(shorten("word " * 500).split()) == 25


@pytest.mark.parametrize(("said", "reference", "seen", "kind"), [
    ("It should be Paris.", "paris", "The agent said Lyon.", "leak"), ("the Café Noir", "Cafe Noir", "nothing", "leak"),
    ("it is the USA", "U.S.A.", "nothing", "leak"), ("it is 12.50", 12.5, "1250", "leak"),
    ("it is 24", "-24", "nothing", "clean"), ("it is 2e3", "2,000", "nothing", "leak"),
    ("the answer is A", "A", "nothing", "short_leak"), ("no", ["no", "Paris"], "nothing", "short_leak"),
    ("no, Paris", ["no", "Paris"], "nothing", "leak"), ("Paris", ["no", "Paris"], "no", "clean"),
    ("答案是北京。", "北京", "nothing", "leak"), ("答案是北 京。", "北京", "nothing", "leak"), ("答案是北京。", "北京", "他去了北京市", "clean"),
    ("正解は東京タワーです", "東京タワー", "nothing", "leak"),
    ("正解は\uff86\uff9d\uff83\uff9d\uff84\uff9e\uff73です", "ニンテンドウ", "nothing", "leak"),
    ("คำตอบคือกรุงเทพ", "กรุงเทพ", "nothing", "leak"), ("정답은 서울입니다", "서울", "nothing", "leak"),
    ("정답은 각입니다", "가", "nothing", "clean"), ("是中国", "中", "nothing", "short_leak"), ("它是13年前", "3年", "nothing", "clean"),
    ("它是3年前", "3年", "nothing", "leak"), ("答案是1234。", 1234, "nothing", "leak"), ("他用xAI技术", "AI技术", "nothing", "clean"),
    ("他用AI技术", "AI技术", "nothing", "leak"), ("パリだ", "Paris", "nothing", "clean"),
    ("答案是Tokyo。", "Tokyo", "nothing", "leak"), ("答案是New York。", "New York", "nothing", "leak"),
    ("정답은 Paris입니다", "Paris", "nothing", "leak"), ("正解はGPT4です", "GPT4", "nothing", "leak"),
    ("答案是Tokyo。", "Tokyo", "他去了Tokyo市", "clean"), ("It is Tokyo.", "Tokyo", "他去了Tokyo市", "clean"),
    ("答案是Tokyo。", "Tokyo", "他去了Tokyos市", "leak"), ("答案是Tokyos。", "Tokyo", "nothing", "clean"),
    ("anything", " ", "nothing", "no_reference"), ("anything", [], "nothing", "no_reference"),
])  # fmt: skip
def test_one_leak_test_finds_an_answer_in_every_form(said: str, reference: object, seen: str, kind: str) -> None:
    assert answer_leak(said, reference, seen) == kind


def test_what_is_dropped_for_naming_an_answer() -> None:
    assert leaks("it is 7", ["7"], "nothing") and not leaks("it is 7", ["7"], "seven is 7.0")
    assert not leaks("no, wrong", ["no"], "nothing") and leaks("no, wrong", ["no"], "nothing", yes_no=True)
    assert leaks("Paris", ["no", "Paris"], "no"), "a no in the transcript does not give Paris away"
    assert not leaks("Paris", [], "nothing")


def test_the_transcript_is_all_that_was_said() -> None:
    answer = {"content": "so", "reasoning_content": "hm"}
    text = transcript_text(run(call({"q": "Ada"}, "lookup"), "by Ada", answer, task="Who?"))
    assert [w in text for w in ("Who?", "lookup", '"q": "Ada"', "by Ada", "so", "hm")] == [True] * 6


def test_references_and_numbers() -> None:
    assert references(3.0) == ["3"] and references(["a", "b"]) == ["a", "b"] and references([1, 2]) == ["[1, 2]"]
    assert references(None) == references("") == []
    assert numbers("1,234.5, -3, .5 and 2e3") == [1234.5, -3.0, 0.5, 2000.0]
    assert squad_normalise("The U.S.A., an é") == "usa é"


def test_a_form_costs_no_more_than_its_length() -> None:
    for piece in ("**a ", "[(", "(1,", "*", "> "):
        assert_linear(lambda count, piece=piece: answer_form(piece * count), 1000)


FORMATS = ("openai", "anthropic", "langchain", "openhands", "swe_agent", "react")
FILES = ("ann.jsonl", "runs.jsonl", "runs.parquet", "scored.jsonl", "README.md")


@pytest.mark.parametrize(("name", "names", "meant"), [
    ("opanai", FORMATS, "openai"), ("OpenAI", FORMATS, "openai"), ("langchian", FORMATS, "langchain"),
    ("agent", FORMATS, "swe_agent"), ("swe", FORMATS, None), ("chat", FORMATS, None), ("", FORMATS, None),
    ("enable_thinking", ["thinking"], "thinking"), ("memory", ["memory_mb"], "memory_mb"),
    ("of", ["out_of_place"], None), ("x", [], None),
])  # fmt: skip
def test_only_near_names_and_words_of_a_longer_one_are_meant(name: str, names: list[str], meant: str | None) -> None:
    assert nearest(name, names) == meant


@pytest.mark.parametrize(("name", "meant"), [
    ("runz.jsonl", "runs.jsonl"), ("run.jsonl", "runs.jsonl"), ("runs.parq", "runs.parquet"),
    ("runs.json", "runs.jsonl"), ("absent.jsonl", None), ("labels.jsonl", None),
])  # fmt: skip
def test_an_ending_in_common_makes_no_file_near(name: str, meant: str | None) -> None:
    assert nearest_file(name, FILES) == meant


QUESTION = "What is 6 × 7?"


def attempt(question_id: str | None, task: str = QUESTION) -> Trajectory:
    return Trajectory(id="i", task=task, question_id=question_id, messages=[Message(role="assistant", content="42")])


def test_hashes_are_those_that_judges_and_splits_hold() -> None:
    assert question_hash(QUESTION) == question_hash("what is\n6 × 7?") == "383a83bce706"
    assert text_hash(QUESTION) == text_hash("what is 6 7") == "572a18222404fad7"
    assert text_hash("…") == "b4935894c8ce16bd" and question_hash("\ud800") == "91a681b99855"


@pytest.mark.parametrize("given", [None, QUESTION, "383a83bce706"])
def test_an_id_made_of_the_text_is_no_id_of_its_own(given: str | None) -> None:
    assert question_key(attempt(given)) == "572a18222404fad7"


def test_a_given_id_is_part_of_the_key() -> None:
    assert question_key(attempt("q1")) == "572a18222404fad7:c75de8c1b7c3ae52"
    assert [question_of(a) for a in (attempt("q1"), attempt(None), attempt(None, ""))] == ["q1", QUESTION, "i"]


def test_a_question_is_met_again_by_its_id_where_both_sides_have_one() -> None:
    keys = [question_key(attempt("q1"))]
    assert seen_in_training(keys, [attempt("q1", "In other words"), attempt("q2"), attempt(None)]) == ["i", "i"]
    assert seen_in_training([], [attempt("q1")]) == []
