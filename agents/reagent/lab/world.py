"""Seeded worlds of people, towns and companies, a search tool, and multi-hop questions.

A fact is (subject, relation, object); every subject has exactly one object for each relation of its type. Names are drawn from
400 people, 60 towns and 60 companies, each one token of a small vocabulary; some get a look-alike (same beginning)."""

import random
import re
from dataclasses import dataclass, field

from rrm.data.seeds import derive_seed

RELATIONS: dict[str, tuple[str, str]] = {
    "mother": ("person", "person"), "father": ("person", "person"), "boss": ("person", "person"),
    "mentor": ("person", "person"), "friend": ("person", "person"), "home": ("person", "town"),
    "birthplace": ("person", "town"), "employer": ("person", "company"), "sponsor": ("person", "company"),
    "trade": ("person", "craft"), "hobby": ("person", "craft"), "mayor": ("town", "person"),
    "sheriff": ("town", "person"), "founder": ("company", "person"), "director": ("company", "person"),
}  # fmt: skip
"""Relation → (type of the subject, type of the object)."""
CRAFTS = ("baking", "weaving", "fishing", "painting", "farming", "pottery", "sailing", "mining", "carving", "tailoring")
TOOL_ERROR = "Error: search is temporarily unavailable."
BAD_ARGUMENTS = "Error: arguments are not valid JSON."
TERSE_TOOL_ERROR = "Error: search is down, try again"
TERSE_BAD_ARGUMENTS = 'Error: not valid JSON: write <tool_call>{"name": ..., "arguments": {...}}</tool_call>'
NOTHING_FOUND = "No facts found."
SEARCH_TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Search the facts of this world.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
}
_BEGINNINGS = (
    "Ba", "Be", "Do", "Fa", "Fi", "Ga", "Ka", "Ke", "La", "Lo", "Ma", "Mi", "Na", "Ni", "Pe", "Ra", "Ro", "Sa", "Ta", "Vi",
)  # fmt: skip
_ENDINGS = {
    "person": (
        "ban", "bel", "dor", "fin", "gan", "kel", "kim", "las", "len", "lin",
        "mar", "mon", "nel", "nis", "ra", "rik", "ron", "ta", "vin", "zo",
    ),
    "town": ("ford", "ton", "by"),
    "company": ("corp", "tec", "lux"),
}  # fmt: skip
RESPELLED = {"enis": "eris", "edor": "eror"}
"""Ending of a drawn name → its spelling: `P` before either made a crude word.
The shipped tokenizers' pieces were respelled in place, with the same ids."""


@dataclass(frozen=True)
class Fact:
    """One fact; `text` is what the search returns."""

    subject: str
    relation: str
    object: str

    @property
    def text(self) -> str:
        return f"The {self.relation} of {self.subject} is {self.object}."


@dataclass(frozen=True)
class WorldQuestion:
    """Start entity and relations in order; `values[i]` is reached after hop i, the last is the answer."""

    start: str
    path: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def answer(self) -> str:
        return self.values[-1]

    @property
    def phrase(self) -> str:
        return " of the ".join(reversed(self.path)) + f" of {self.start}"


@dataclass
class World:
    """Entities by type and the facts about them. Make one with `make_world`."""

    seed: int
    entities: dict[str, list[str]]
    facts: list[Fact]
    _table: dict[tuple[str, str], Fact] = field(init=False, repr=False)
    _kind: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._table = {(f.subject, f.relation): f for f in self.facts}
        self._kind = {name: entity_type for entity_type, names in self.entities.items() for name in names}

    def kind_of(self, name: str) -> str | None:
        return self._kind.get(name)

    def value(self, subject: str, relation: str) -> str | None:
        fact = self._table.get((subject, relation))
        return fact.object if fact else None

    def find(self, query: str, *, distractors: bool = True) -> list[Fact]:
        """Find up to three facts for a query: the best match, one of the same relation, one of the same subject.

        A fact matches by its subject (or object) in the query, better with its relation. Without `distractors` the best match alone."""
        words = set(re.findall(r"\w+", query.lower()))
        rng = random.Random(derive_seed(self.seed, as_drawn(query)))

        def score(fact: Fact) -> int:
            named = 4 * (fact.subject.lower() in words) + 2 * (fact.object.lower() in words)
            return named + (fact.relation in words) if named else 0

        ranked = sorted(self.facts, key=lambda f: (-score(f), rng.random()))
        best = ranked[0]
        if score(best) == 0:
            return []
        if not distractors:
            return [best]
        same_relation = [f for f in self.facts if f.relation == best.relation and f.subject != best.subject]
        same_relation.sort(key=lambda f: (f.subject[:2] != best.subject[:2], rng.random()))
        same_subject = [f for f in self.facts if f.subject == best.subject and f.relation != best.relation]
        others = [same_relation[0]]
        if rng.random() < 0.5:
            others.append(rng.choice(same_subject))
        rng.shuffle(others)
        return [best, *others]

    def search(self, query: str, *, distractors: bool = True) -> str:
        return " ".join(f.text for f in self.find(query, distractors=distractors)) or NOTHING_FOUND


def _spelled(drawn: str) -> str:
    return drawn[0] + RESPELLED.get(drawn[1:], drawn[1:])


def as_drawn(text: str) -> str:
    """The text with names as they were drawn: random draws by it are the same after respelling."""
    for drawn, spelled in RESPELLED.items():
        text = text.replace(spelled, drawn)
    return text


def _name(rng: random.Random, entity_type: str, beginning: str | None = None) -> str:
    return _spelled((beginning or rng.choice(_BEGINNINGS)) + rng.choice(_ENDINGS[entity_type]))


def _names(rng: random.Random, entity_type: str, count: int, taken: set[str]) -> list[str]:
    """Fresh names; every second one begins like the one before it (a look-alike)."""
    names: list[str] = []
    tries = 0
    while len(names) < count:
        # a beginning has three towns at most: where they are taken, give up the look-alike
        beginning = names[-1][:2] if len(names) % 2 == 1 and tries < 50 else None
        name = _name(rng, entity_type, beginning)
        tries += 1
        if name not in taken:
            taken.add(name)
            names.append(name)
            tries = 0
    return names


def make_world(seed: int, *, people: int = 16, towns: int = 6, companies: int = 6) -> World:
    """A world from its seed, the same on every machine."""
    rng = random.Random(seed)
    taken: set[str] = set()
    entities = {
        "person": _names(rng, "person", people, taken),
        "town": _names(rng, "town", towns, taken),
        "company": _names(rng, "company", companies, taken),
        "craft": list(CRAFTS),
    }
    facts = [
        Fact(subject, relation, rng.choice([e for e in entities[target] if e != subject]))
        for relation, (source, target) in RELATIONS.items()
        for subject in entities[source]
    ]
    return World(seed, entities, facts)


def make_question(world: World, hops: int, rng: random.Random) -> WorldQuestion:
    """A question of `hops` hops from a person; no entity occurs twice. Raises ValueError: no hop."""
    if hops < 1:
        raise ValueError(f"a question needs at least one hop, got {hops}")
    while True:
        start = rng.choice(world.entities["person"])
        path, values, current = [], [], start
        for hop in range(hops):
            options = [r for r, (source, target) in RELATIONS.items() if source == world.kind_of(current)]
            if hop < hops - 1:
                options = [r for r in options if RELATIONS[r][1] != "craft"]
            path.append(rng.choice(options))
            current = world.value(current, path[-1]) or ""
            values.append(current)
        if len({start, *values}) == hops + 1:
            return WorldQuestion(start, tuple(path), tuple(values))
