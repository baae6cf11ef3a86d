"""The lab's names: none is a crude word, each is one token of every shipped model, and respelling a few changed nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from reagent.lab import world as lab_world
from reagent.lab.demonstrations import demonstrations
from reagent.lab.shipped import FOLDER
from reagent.lab.transcripts import make_transcripts
from reagent.lab.wanderers import make_wanderers
from reagent.lab.world import as_drawn, make_world

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
OLD_DRAWS = "6ebda359df70258b8865dd289a20c3485d0e180eb32b19902fd1a7cb78ce7864"
"""Digest of worlds, searches, transcripts and demonstrations as they were before any name was respelled."""


def every_name() -> list[str]:
    """All names the generator can draw."""
    return [
        lab_world._spelled(beginning + ending)
        for endings in lab_world._ENDINGS.values()
        for beginning in lab_world._BEGINNINGS
        for ending in endings
    ]


def crude(name: str) -> bool:
    low = name.lower()
    return low in _AS_A_WHOLE.split() or any(word in low for word in _EVERYWHERE.split())


def drawn_text() -> Iterator[str]:
    """All that draws in the lab, with names as they were drawn."""
    for seed in range(200):
        world = make_world(seed)
        yield as_drawn(json.dumps([world.entities, [f.text for f in world.facts]]))
        for name in world.entities["person"][:8]:
            yield as_drawn(world.search(f"mother of {name}"))
    for split in ("train", "heldout", "few"):
        for trajectory, annotation in make_transcripts(120, seed=1, split=split):
            yield as_drawn(trajectory.to_json() + annotation.model_dump_json())
    for trajectory, annotation in make_wanderers(160, seed=3):
        yield as_drawn(trajectory.to_json() + annotation.model_dump_json())
    for seed in range(2):
        for row in demonstrations("search", 60, seed, imperfect=1.0, with_critique=bool(seed)):
            yield as_drawn(json.dumps(row.messages))


def test_no_name_is_a_crude_word() -> None:
    names = every_name()
    assert len(names) == len(set(names)) == 520
    assert [name for name in names if crude(name)] == []


def test_the_short_list_knows_what_was_drawn_once() -> None:
    drawn = [as_drawn(name) for name in every_name()]
    assert sorted(name for name in drawn if crude(name)) == ["Pe" + "dor", "Pe" + "nis"]


def test_worlds_searches_transcripts_and_demonstrations_stand_up_to_the_spelling() -> None:
    digest = hashlib.sha256()
    for text in drawn_text():
        digest.update(text.encode())
    assert digest.hexdigest() == OLD_DRAWS


def tokenizer_as_drawn(name: str) -> Tokenizer:
    """The tokenizer as it was trained: the respelled pieces, and the merges that make them, put back."""
    read = json.loads((FOLDER / name / "tokenizer.json").read_text(encoding="utf-8"))
    trained = {"eris": ["en", "is"], "eror": ["ed", "or"]}
    model = read["model"]
    model["vocab"] = {as_drawn(piece): number for piece, number in model["vocab"].items()}
    model["merges"] = [trained.get(a + b, [as_drawn(a), as_drawn(b)]) for a, b in model["merges"]]
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
            assert now.encode(text).ids == before.encode(as_drawn(text)).ids, text
    assert now.get_vocab_size() == before.get_vocab_size() == 1536


@pytest.mark.parametrize("model", SHIPPED)
def test_the_shipped_models_read_the_ids_they_were_trained_on(model: str) -> None:
    now, before = Tokenizer.from_file(str(FOLDER / model / "tokenizer.json")), tokenizer_as_drawn(model)
    respelled = 0
    for trajectory, annotation in make_transcripts(400, seed=5):
        text = json.dumps([m.model_dump() for m in trajectory.messages], ensure_ascii=False)
        for part in (text, annotation.trace or "", annotation.critique or ""):
            respelled += as_drawn(part) != part
            assert now.encode(part).ids == before.encode(as_drawn(part)).ids
    assert respelled > 20
