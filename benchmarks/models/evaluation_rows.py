"""Rows that a step judge is measured on: readings in the form of `rows.py`, and one line a slot that says what is known of it.

A source's share of the tokens is spent on kinds of rows in turn, runs drawn by seed:

    whole     all readings of a run, with a mistake and without one in turn
    exact     the reading of a state-changing call that was compared with a reference, up to that; right and wrong in turn
    ending    the last reading of a run that succeeded and of one that failed and is about as long; those that claim success first
    outcome   the last reading of a run that succeeded and of one that failed in turn, of any length
    planted   the reading of a run that succeeded with planted twins as branches, the kinds that were drawn least first
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.bars.judge import CLAIMED
from benchmarks.models.rivals import Rivals, step_text
from benchmarks.models.rows import BRANCHES, IN_HEAD, Maker, Row
from benchmarks.models.sources import LabelledRun
from rrm.annotate.planted import COUNTERPARTS, OPERATORS, Planted, counterpart, plant
from rrm.data.mistakes import MEANING_KINDS, MISTAKE_KINDS, MistakeKind
from rrm.evaluation.baselines import transcript_length
from rrm.prompt.prompter import Prompt, Prompter
from rrm.prompt.proven import proven_mistakes
from rrm.readers import read

SHARES = {"whole": 2.0, "exact": 4.0, "ending": 2.0, "planted": 2.0}
"""How a source's tokens are divided."""
NATURAL = {"whole": 3.0, "outcome": 2.0}
"""The same of the calibration part, where only the runs' own steps and outcomes count."""
MORE = 3.0
"""What a source of exact calls or of claimed success gets of the tokens, beside 1 for another."""
MOST_READINGS = 8
"""Of a whole run: longer ones are not drawn."""
TRIES = 400
"""Runs of a source in which mistakes are planted, at most."""
MOST_DONORS = 300
"""Runs that succeeded, of a source, in which mistakes are planted, and whose values these take."""
IN_HEAD_SHARE = 0.25
"""Share of the rows with planted mistakes that are copies with one more instruction."""
_CLAIM = re.compile(
    r"(?i)\b(?:done|success(?:fully)?|complet(?:e|ed)|finished|(?:has|have) (?:now )?been|(?:is|are) now|i(?:'ve| have) \w+|all set|confirmed"
    r"|(?:sent|created|deleted|updated|booked|scheduled|cancell?ed|added|moved|assigned|forwarded|processed))\b"
)
_NO_CLAIM = re.compile(
    r"(?i)\b(?:unable|cannot|can't|could ?n[o']t|not able|fail(?:ed|s)?|error|sorry|unfortunately|not possible|transferred to|no \w+ (?:was|were) found)\b"
)


def claims_success(text: str) -> bool:
    """Whether a last message says that the task is done, and nothing of a failure."""
    return bool(_CLAIM.search(text)) and not _NO_CLAIM.search(text)


class Rows(Maker):
    """Makes rows, and beside them one line a slot (`_lines`)."""

    def __init__(self, prompter: Prompter, runs: Sequence[LabelledRun], sources: Sequence[str], rivals: Rivals) -> None:
        rng, donors = random.Random(0), list[LabelledRun]()
        for source in sources:
            solved = [run for run in runs if run.source == source and run.succeeded]
            donors += rng.sample(solved, min(len(solved), MOST_DONORS))
        super().__init__(prompter, donors, sources)
        self.solved, self.rivals = donors, rivals
        self.rows: list[Row] = []
        self.lines: list[dict[str, Any]] = []
        self.kinds: Counter[tuple[str, MistakeKind]] = Counter()
        """Planted so far."""

    def readings(self, run: LabelledRun) -> list[Prompt]:
        """All readings of a run in its own form."""
        return self._readings(run.trajectory)

    def add(self, run: LabelledRun, prompt: Prompt, *, whole: bool = False) -> int:
        """Add a reading of the run itself; its ids."""
        return self._keep(run, self._main(run, prompt), [], whole=whole)

    def add_planted(self, run: LabelledRun, rng: random.Random) -> int:
        """Add a reading of a run that succeeded with up to `BRANCHES` twins, or a copy with one more instruction; its ids, 0: no place."""
        if rng.random() < IN_HEAD_SHARE:
            found = (plant if rng.random() < 0.5 else counterpart)(self.view(run), "broken_instruction", rng)
            row = None if found is None else self._single(run, found, "own")
            return 0 if row is None or found is None else self._keep(run, row, [found])
        prompt = rng.choice(self.readings(run))
        steps = [slot.step for slot in prompt.slots if slot.step is not None and run.labels[slot.step - 1] == 1]
        made, kept = self._main(run, prompt), list[Planted]()
        for found in self._planted(run, steps, BRANCHES, rng) if steps else ():
            reading, before = self._reading(run, found, "own"), len(made.segments)
            if reading is not None:
                self._branch(made, run, found, reading)
            if len(made.segments) > before:
                kept.append(found)
                self.kinds[run.source, found.kind] += not found.good
        return self._keep(run, made, kept) if kept else 0

    def _planted(
        self, run: LabelledRun, allowed: Sequence[int], branches: int, rng: random.Random
    ) -> Iterator[Planted]:
        """As the parent, but of the kinds that were planted least so far, those of meaning twice as often."""
        view = self.view(run, allowed)
        kinds: list[MistakeKind] = [kind for kind in OPERATORS if kind not in IN_HEAD]
        rng.shuffle(kinds)
        kinds.sort(key=lambda kind: self.kinds[run.source, kind] / (2 if kind in MEANING_KINDS else 1))
        yield from islice((p for kind in kinds if (p := plant(view, kind, rng)) is not None), branches)
        others: list[MistakeKind] = [kind for kind in COUNTERPARTS if kind not in IN_HEAD]
        if rng.random() < 0.5 and (found := counterpart(view, rng.choice(others), rng)) is not None:
            yield found

    def _keep(self, run: LabelledRun, row: Row, planted: Sequence[Planted], *, whole: bool = False) -> int:
        self.lines += self._lines(run, row, planted, whole)
        self.rows.append(row)
        return len(row.ids)

    def _lines(self, run: LabelledRun, row: Row, planted: Sequence[Planted], whole: bool) -> Iterator[dict[str, Any]]:
        """One line a slot, in order: the run, what the slot is (step 0: the outcome), its label, and what rivals and rules say of it."""
        t, starts, n = run.trajectory, [start for start, _ in row.segments], len(run.labels)
        ending = step_text(t, n)
        about = {
            "row": len(self.rows),
            "run": f"{run.source}/{t.id}",
            "source": run.source,
            "key": run.key,
            "steps": n,
            "chars": transcript_length(t),
            "claims": claims_success(ending),
            "whole": whole,
            "inside": self.rivals.inside(t),
        }
        rules = [proven_mistakes(shown, run.changes_state) for shown in (t, *(p.trajectory for p in planted))]
        alone = bool(planted) and len(starts) == 1
        for at, label, _, _, kind, step in row.slots:
            branch = 1 if alone else sum(start <= at for start in starts) - 1
            twin = planted[branch - 1] if branch else None
            text = ending if not step else step_text(t if twin is None else twin.trajectory, step)
            yield {
                **about,
                "step": step,
                "label": None if label < 0 or (twin is not None and step != twin.step) else label,
                "exact": twin is None and step in run.exact,
                "planted": None if twin is None else f"{len(self.rows)}/{branch}",
                "kind": MISTAKE_KINDS[kind] if twin is None and kind >= 0 else None if twin is None else twin.kind,
                "rule": step in rules[branch],
                **self.rivals.of(text, step, n),
            }


def _matched(runs: Sequence[LabelledRun], rng: random.Random) -> Iterator[tuple[LabelledRun, ...]]:
    """(run that succeeded, one that failed and is nearest in length), each once; those that claim success where 20 of each do."""
    sides = [[r for r in runs if r.outcome == y] for y in (1, 0)]
    claiming = [[r for r in side if claims_success(step_text(r.trajectory, len(r.labels)))] for side in sides]
    good, bad = claiming if min(map(len, claiming)) >= 20 else sides
    size = {id(run): transcript_length(run.trajectory) for run in (*good, *bad)}
    for run in rng.sample(good, len(good)):
        if bad:
            other = min(bad, key=lambda r: abs(size[id(r)] - size[id(run)]))
            bad.remove(other)
            yield run, other


def _in_turn(first: Sequence[Any], second: Sequence[Any], rng: random.Random) -> Iterator[Any]:
    """Items of two lists in turn, each shuffled, then the rest of the longer one."""
    lists = [rng.sample(items, len(items)) for items in (first, second)]
    while any(lists):
        yield from (items.pop() for items in lists if items)


def _until(prompt: Prompt, step: int) -> Prompt:
    """A reading up to the last slot of a step: what comes later changes nothing there."""
    end = max(slot.at for slot in prompt.slots if slot.step == step) + 1
    return replace(prompt, ids=prompt.ids[:end], slots=tuple(slot for slot in prompt.slots if slot.at < end))


def fill(made: Rows, runs: Sequence[LabelledRun], tokens: int, seed: int, shares: Mapping[str, float]) -> None:
    """Add rows of one source until `tokens` ids, divided by `shares`."""
    rng, source = random.Random(f"{seed}/{runs[0].source}"), runs[0].source
    known = [r for r in runs if any(y is not None for y in r.labels)]
    calls = [(r, k) for r in runs for k in sorted(r.exact) if r.labels[k - 1] is not None]
    solved = [r for r in made.solved if r.source == source]
    left: dict[str, Iterator[Any]] = {
        "whole": _in_turn([r for r in known if 0 in r.labels], [r for r in known if 0 not in r.labels], rng),
        "exact": _in_turn(
            [c for c in calls if not c[0].labels[c[1] - 1]], [c for c in calls if c[0].labels[c[1] - 1]], rng
        ),
        "ending": _matched(runs, rng),
        "outcome": (
            (r,) for r in _in_turn([r for r in runs if r.outcome == 0], [r for r in runs if r.outcome == 1], rng)
        ),
        "planted": (rng.choice(solved) for _ in range(TRIES if solved else 0)),
    }

    def one(kind: str, item: Any) -> int:
        if kind == "whole":
            prompts = made.readings(item)
            return sum(made.add(item, p, whole=True) for p in prompts) if len(prompts) <= MOST_READINGS else 0
        if kind == "exact":
            run, k = item
            return made.add(run, _until(next(p for p in made.readings(run) if any(s.step == k for s in p.slots)), k))
        if kind in ("ending", "outcome"):
            return sum(made.add(run, made.readings(run)[-1]) for run in item)
        return made.add_planted(item, rng)

    spent, left = dict.fromkeys(shares, 0), {name: left[name] for name in shares}
    while left and sum(spent.values()) < tokens:
        kind = min(left, key=lambda name: spent[name] / shares[name])
        if (item := next(left[kind], None)) is None:
            del left[kind]
        else:
            spent[kind] += one(kind, item)


def sanity_runs(path: Path) -> Iterator[LabelledRun]:
    """The sanity set's runs; each domain is a source."""
    for t in read([path]):
        labels = tuple(None if y is None else int(y == "good") for y in t.meta["step_labels"])
        kinds = {k: t.meta["kind"] for k, y in enumerate(labels, start=1) if y == 0}
        yield LabelledRun(t, f"sanity/{t.meta['domain']}", t.id, labels, None, kinds)


def chosen(runs: Sequence[LabelledRun], fold: str) -> list[LabelledRun]:
    """The runs that may be drawn: of `home` the test part, of `calibration` that part, of a fold its sources' runs whose key no other
    source is trained on."""
    if fold in ("home", "calibration"):
        return [r for r in runs if r.ships and r.part == ("test" if fold == "home" else fold)]
    trained = {r.key for r in runs if r.fold != fold and r.part == "train" and r.ships}
    return [r for r in runs if r.fold == fold and r.key not in trained]


def make(
    prompter: Prompter,
    runs: Sequence[LabelledRun],
    rivals: Rivals,
    tokens: int | None,
    seed: int,
    shares: Mapping[str, float] = SHARES,
) -> Rows:
    """Rows of all the runs' sources, `tokens` ids in all; None: all readings of all runs."""
    sources = sorted({run.source for run in runs})
    made = Rows(prompter, runs, sources, rivals)
    if tokens is None:
        for run in runs:
            for prompt in made.readings(run):
                made.add(run, prompt, whole=True)
        return made
    parts = {source: MORE if source in CLAIMED else 1.0 for source in sources}
    for source, part in parts.items():
        fill(made, [r for r in runs if r.source == source], int(tokens * part / sum(parts.values())), seed, shares)
    return made
