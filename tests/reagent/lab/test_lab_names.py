"""The lab's names: none is a crude word, each is one token of every shipped model, and respelling a few changed nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from reagent.lab import world as lab_world
from reagent.lab.demonstrations import demonstrations
from reagent.lab.faulty_agents import make_wanderers
from reagent.lab.scripted import Split
from reagent.lab.search_env import SearchEnv
from reagent.lab.shipped import FOLDER
from reagent.lab.transcripts import make_transcripts
from reagent.lab.world import make_world
from reagent.tasks.environments import make_tasks
from rrm.data.seeds import derive_seed

KINDS = ("person", "town", "company")
SPLITS: tuple[Split, ...] = ("train", "heldout", "few")
SHIPPED = ("policy", "reflective", "judge")
CONTEXTS = ("{}", " {}", "the mother of {} is", 'query": "{}"}}', "\n{}", "({} of", "{}'s home", "Answer: {}")
_EVERYWHERE = """
anal anus arse arsch boob bitch cock coon cunt dick dildo dyke faggo fuck gook homo jizz kike milf nazi negro nigg paki pedo
penil penis penor piss poof porn prick puss queef rapi retard semen shit slut smeg spic sperm titt turd twat vagin wank whore
cabron cagar chocho coger cojon culo joder marica mierda picha pinga polla puta puto verga bucet caralh foder merda piroc
porra rabo viado xana branl chatte couill encul merde niqu putain pute salop fick fotz hure kacke nutte pimmel schwanz wichs
cazzo minchia stronz troia blyad dupa khuy kurva mudak pedik pidor pizda suka
"""
"""Body parts, slurs and crude words, or how they begin, in English, Spanish, Portuguese, French, German, Italian, Russian and
Polish: no name may hold one. Words that are ordinary names or nouns too (Fagan, Mamon) are not here."""
_AS_A_WHOLE = "ass bite bum cul cum fag figa gay pede pene rape sex tit"
"""Those that innocent names hold."""
OLD_DRAWS = "0291628db6b3bbe79c9194d37edeb67db4d601c136e2dba15f1973a4b4d676c5"
"""Digest of worlds, searches, transcripts and demonstrations as they were before any name was respelled."""


def every_name() -> list[str]:
    """All names there are: 600 worlds have each of them."""
    names = {name for seed in range(600) for kind in KINDS for name in make_world(seed).entities[kind]}
    assert len(names) == 520  # 20 beginnings with 20 + 3 + 3 endings
    return sorted(names)


def crude(name: str) -> bool:
    low = name.lower()
    return low in _AS_A_WHOLE.split() or any(word in low for word in _EVERYWHERE.split())


def drawn_text() -> Iterator[str]:
    """All that draws in the lab, with names as they were drawn."""
    for seed in range(200):
        world = make_world(seed)
        yield lab_world.as_drawn(json.dumps([world.entities, [f.text for f in world.facts]]))
        for name in world.entities["person"][:8]:
            yield lab_world.as_drawn(world.search(f"mother of {name}"))
    labelled = [pair for split in SPLITS for pair in make_transcripts(120, seed=1, split=split)]
    for trajectory, annotation in [*labelled, *make_wanderers(160, seed=3)]:
        said = [[m.content, *(call.arguments for call in m.tool_calls or ())] for m in trajectory.messages]
        yield lab_world.as_drawn(json.dumps([said, annotation.score, annotation.trace, annotation.critique]))
    for row in demonstrations("search", 120, 0, imperfect=1.0):
        yield lab_world.as_drawn(json.dumps([message["content"] for message in row.messages]))


def test_no_name_is_a_crude_word() -> None:
    assert [name for name in every_name() if crude(name)] == []


def test_the_short_list_knows_what_was_drawn_once() -> None:
    drawn = [lab_world.as_drawn(name) for name in every_name()]
    assert sorted(name for name in drawn if crude(name)) == ["Pe" + "dor", "Pe" + "nis"]


def test_worlds_searches_transcripts_and_demonstrations_stand_up_to_the_spelling() -> None:
    digest = hashlib.sha256()
    for text in drawn_text():
        digest.update(text.encode())
    assert digest.hexdigest() == OLD_DRAWS


@pytest.mark.parametrize(("spelled", "drawn"), [("Keris", "Kenis"), ("Keror", "Kedor")])
def test_whether_the_tool_is_down_is_drawn_by_the_name_as_it_was_drawn(spelled: str, drawn: str) -> None:
    env, results, expected = SearchEnv(error_rate=0.5), [], []
    for task in make_tasks("search", 12, seed=3):
        env.reset(task)
        call = json.dumps({"name": "search", "arguments": {"query": f"boss of {spelled}"}})
        step = asyncio.run(env.step(f"<tool_call>{call}</tool_call>"))
        results.append("search is down" in step.observations[0]["content"])
        expected.append(random.Random(derive_seed(task.seed, "down", f"boss of {drawn}", 1)).random() < 0.5)
    assert results == expected and 0 < sum(results) < 12


def tokenizer_as_drawn(name: str) -> Tokenizer:
    """The tokenizer as it was trained: the respelled pieces, and the merges that make them, put back."""
    read = json.loads((FOLDER / name / "tokenizer.json").read_text(encoding="utf-8"))
    trained = {"eris": ["en", "is"], "eror": ["ed", "or"]}
    model = read["model"]
    model["vocab"] = {lab_world.as_drawn(piece): number for piece, number in model["vocab"].items()}
    model["merges"] = [trained.get(a + b, [lab_world.as_drawn(a), lab_world.as_drawn(b)]) for a, b in model["merges"]]
    return Tokenizer.from_str(json.dumps(read))


@pytest.mark.parametrize("model", SHIPPED)
def test_every_name_is_one_token_and_reads_back_in_every_context(model: str) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / model / "tokenizer.json"))
    for name in every_name():
        assert len(tokenizer.encode(f" {name}").ids) == 1, name
        for context in CONTEXTS:
            text = context.format(name)
            assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize("model", SHIPPED)
def test_a_respelled_name_has_the_ids_of_the_drawn_one_in_every_context(model: str) -> None:
    now, before = Tokenizer.from_file(str(FOLDER / model / "tokenizer.json")), tokenizer_as_drawn(model)
    for name in every_name():
        for context in CONTEXTS:
            text = context.format(name)
            assert now.encode(text).ids == before.encode(lab_world.as_drawn(text)).ids, text
    assert now.get_vocab_size() == before.get_vocab_size() == 1536


@pytest.mark.parametrize("model", SHIPPED)
def test_the_shipped_models_read_the_ids_they_were_trained_on(model: str) -> None:
    now, before = Tokenizer.from_file(str(FOLDER / model / "tokenizer.json")), tokenizer_as_drawn(model)
    respelled = 0
    for trajectory, annotation in make_transcripts(200, seed=5):
        text = json.dumps([m.model_dump() for m in trajectory.messages], ensure_ascii=False)
        for part in (text, annotation.trace or "", annotation.critique or ""):
            respelled += lab_world.as_drawn(part) != part
            assert now.encode(part).ids == before.encode(lab_world.as_drawn(part)).ids
    assert respelled > 10
