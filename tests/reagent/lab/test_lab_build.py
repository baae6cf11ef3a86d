"""The lab's supervised rows are, token by token, what a rollout shows the policy; and a tiny policy is built whole."""

from __future__ import annotations

import json

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from reagent.lab.build import build_lab_policy, homogeneous, lab_demonstrations, rows_of
from reagent.lab.demonstrations import demonstrations
from reagent.lab.model import build_lab_tokenizer
from reagent.lab.settings import LabSettings
from reagent.rollout.rollout import rollout
from reagent.rollout.templates import LAB_TEMPLATE, TurnTemplate
from reagent.tasks.environments import make_factory
from rrm.engines.base import SamplingParams
from rrm.engines.scripted import ScriptedEngine


@pytest.mark.parametrize("name", ["search", "calculator"])
def test_a_rollout_that_says_the_same_makes_the_same_tokens(name) -> None:
    found = list(demonstrations(name, 6, 0, imperfect=0.0))
    tokenizer = build_lab_tokenizer((m["content"] for d in found for m in d.messages), 600)
    tokenizer.chat_template = LAB_TEMPLATE
    template = TurnTemplate(tokenizer)
    for demo, row in zip(found, rows_of(found, template, tokenizer), strict=True):
        turns = [m["content"] for m in demo.messages if m["role"] == "assistant"]
        script = [[*tokenizer.encode(text, add_special_tokens=False), template.end_id] for text in turns]
        engine = ScriptedEngine(script, eos_token_id=template.end_id)
        (episode,) = rollout(
            engine, tokenizer, make_factory(name), [demo.task], params=SamplingParams(max_new_tokens=200)
        )
        assert episode.success is True and len(episode.turns) == len(turns)
        flat = episode.flatten()
        assert row["input_ids"] == flat.input_ids.tolist()
        assert [label != -100 for label in row["labels"]] == flat.action_mask.tolist()


def test_mistakes_are_shown_but_not_learned() -> None:
    found = list(demonstrations("search", 40, 1, imperfect=1.0))
    wrong = [
        d for d in found if any(m["role"] == "assistant" and not t for m, t in zip(d.messages, d.train_on, strict=True))
    ]
    assert wrong, "forty imperfect demonstrations hold no mistake"
    tokenizer = build_lab_tokenizer((m["content"] for d in wrong for m in d.messages), 600)
    tokenizer.chat_template = LAB_TEMPLATE
    for demo, row in zip(wrong, rows_of(wrong, TurnTemplate(tokenizer), tokenizer), strict=True):
        learned = tokenizer.decode(
            [i for i, label in zip(row["input_ids"], row["labels"], strict=True) if label != -100]
        )
        kept = [m["content"] for m, t in zip(demo.messages, demo.train_on, strict=True) if t]
        assert learned == "".join(f"{text}<|im_end|>" for text in kept)


def test_the_mixture_holds_both_environments_and_second_attempts() -> None:
    found = lab_demonstrations(LabSettings(rows=100))
    names = [d.task.id.split("-")[0] for d in found]
    assert (names.count("search"), names.count("calculator")) == (60, 40)
    assert sum("Critique:" in d.messages[-1]["content"] or any("Critique:" in m["content"] for m in d.messages) for d in found) == 30  # fmt: skip
    assert {d.task.meta["hops"] for d in found if d.task.id.startswith("search")} == {1, 2, 3, 4}


def test_batches_are_of_one_length_and_drop_no_more_than_a_batch() -> None:
    rows = [{"input_ids": [0] * n} for n in (3, 9, 4, 8, 5, 7, 6)]
    ordered = homogeneous(rows, 2, seed=0)  # pyright: ignore[reportArgumentType]
    lengths = [len(row["input_ids"]) for row in ordered]
    assert sorted(sorted(lengths[i : i + 2]) for i in range(0, 6, 2)) == [[3, 4], [5, 6], [7, 8]]


def test_a_policy_is_built_whole(tmp_path) -> None:
    small = LabSettings(rows=24, easy_rows=40, hurried_rows=24, hidden=32, layers=1, heads=2, vocab_size=500, hops=(1,))
    card = build_lab_policy(small, tmp_path)
    assert json.loads((tmp_path / "card.json").read_text()) == card
    model = AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert sum(p.numel() for p in model.parameters()) == card["parameters"]
    TurnTemplate(tokenizer)
    again = build_lab_policy(small, tmp_path / "again")
    assert again["sha256"] == card["sha256"]  # the same seed makes the same weights
