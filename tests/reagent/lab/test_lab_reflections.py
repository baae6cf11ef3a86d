"""What a lab policy is shown of feedback: the prompts and texts of training with feedback, and right lessons from them."""

from __future__ import annotations

import json
import re

import pytest

from reagent.feedback.texts import TextWriter
from reagent.lab.build import build_lab_policy, reflect, rows_of
from reagent.lab.demonstrations import Demonstration
from reagent.lab.model import build_lab_tokenizer
from reagent.lab.reflections import KINDS, reflections
from reagent.lab.settings import LabSettings, ReflectSettings
from reagent.rollout.rollout import rollout
from reagent.rollout.templates import LAB_TEMPLATE, TurnTemplate
from reagent.tasks.environments import make_factory
from rrm.engines.base import SamplingParams
from rrm.engines.scripted import ScriptedEngine


@pytest.fixture(scope="module")
def found() -> list[Demonstration]:
    return list(reflections(120, 0, hops=(1, 2, 3), hurried=0.6))


def asked(demo: Demonstration) -> str:
    """The prompt's last message."""
    return next(m["content"] for m in demo.messages if m["role"] == "user")


def test_all_kinds_at_all_lengths_and_the_same_again(found) -> None:
    assert {(d.kind, d.task.meta["hops"]) for d in found} == {(kind, h) for kind in KINDS for h in (1, 2, 3)}
    assert list(reflections(3, 0, hops=(1, 2, 3), hurried=0.6)) == found[:3]


def test_after_a_critique_everything_is_done_right(found) -> None:
    again = [d for d in found if d.kind == "again"]
    right = [d for d in again if " bad: " not in asked(d)]
    assert len(right) >= 5 and len(again) - len(right) >= 5
    for demo in again:
        assert demo.messages[-1]["content"] == f"Answer: {demo.task.answer}"
    for demo in right:  # what was done well is done once more, in the same words
        steps = [m["content"] for m in demo.messages if m["role"] == "assistant"]
        first = re.findall(r"\[step \d+\] (.+?)(?: -> .*)?$", asked(demo).split("Critique:")[0], re.MULTILINE)
        queries = [json.loads(line.removeprefix("search "))["query"] for line in first[:-1]]
        assert first[-1] == steps[-1]
        assert [q for q in queries if f'"query": "{q}"' not in "".join(steps)] == []


def test_a_retry_without_a_critique_is_no_better_informed(found) -> None:
    retries = [d for d in found if d.kind == "retry" and d.task.meta["hops"] > 1]
    assert all("Critique:" not in asked(d) for d in retries)
    right = [d.messages[-1]["content"] == f"Answer: {d.task.answer}" for d in retries]
    assert any(right) and not all(right)


def test_texts_are_rows_as_the_auxiliary_loss_has_them(found) -> None:
    texts = [d for d in found if d.kind in ("trace", "critique")]
    tokenizer = build_lab_tokenizer((m["content"] for d in texts for m in d.messages), 700)
    tokenizer.chat_template = LAB_TEMPLATE
    template, writer = TurnTemplate(tokenizer), TextWriter(tokenizer, longest=4000)
    plain = [d for d in texts if all("Error" not in m["content"] for m in d.messages)][:6]
    assert {d.kind for d in plain} == {"trace", "critique"}
    for demo, row in zip(plain, rows_of(plain, template, tokenizer), strict=True):
        turns = [m["content"] for m in demo.messages[:-2] if m["role"] == "assistant"]
        script = [[*tokenizer.encode(text, add_special_tokens=False), template.end_id] for text in turns]
        engine = ScriptedEngine(script, eos_token_id=template.end_id)
        params = SamplingParams(max_new_tokens=400)
        (episode,) = rollout(engine, tokenizer, make_factory("search"), [demo.task], params=params)
        text = writer.row(episode, demo.messages[-1]["content"], demo.kind, 1.0)  # pyright: ignore[reportArgumentType]
        assert text is not None and text.ids == row["input_ids"]
        assert row["labels"] == [-100] * text.start + text.ids[text.start :]


def test_a_policy_is_taught_to_reflect(tmp_path) -> None:
    small = LabSettings(rows=24, easy_rows=8, hurried_rows=8, hidden=32, layers=1, heads=2, vocab_size=500, hops=(1,))
    base = build_lab_policy(small, tmp_path / "base")
    card = reflect(ReflectSettings(rows=8, repeated=8), tmp_path / "base", tmp_path / "taught")
    assert card["from"] == base["sha256"] != card["sha256"]
    assert json.loads((tmp_path / "taught" / "card.json").read_text()) == card
    assert (
        reflect(ReflectSettings(rows=8, repeated=8), tmp_path / "base", tmp_path / "again")["sha256"] == card["sha256"]
    )
