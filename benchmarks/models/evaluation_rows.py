"""Rows that a step judge is measured on: readings in the form of `rows.py`, and one line a slot that says what is known of it.

Every source has the same share of the tokens. It is spent on four kinds of rows in turn, runs drawn by seed:

    whole     all readings of a run, with a mistake and without one in turn
    exact     the reading of a state-changing call that was compared with a reference, right and wrong in turn
    ending    the last reading of a run that succeeded and of one that failed and is about as long; those that claim success first
    planted   the reading of a run that succeeded with planted twins as branches, the kinds that were drawn least first

The digest of earlier steps has no findings here: in training they are the labels, which a judge does not have.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models.rivals import Rivals, step_text
from benchmarks.models.rows import BRANCHES, IN_HEAD, Maker, Row
from benchmarks.models.sources import FOLDS, LabelledRun
from rrm.annotate.planted import COUNTERPARTS, OPERATORS, Planted, counterpart, plant
from rrm.annotate.proven import proven_mistakes
from rrm.data.mistakes import MEANING_KINDS, MISTAKE_KINDS, MistakeKind
from rrm.evaluation.baselines import transcript_length
from rrm.prompt.forms import Form
from rrm.prompt.prompter import Prompt, Prompter
from rrm.trajectory import Trajectory

SHARES = {"whole": 3.0, "exact": 2.0, "ending": 2.0, "planted": 3.0}
"""How a source's tokens are divided."""
MOST_READINGS = 8
"""Of a whole run: longer ones are not drawn."""
TRIES = 400
"""Draws of a kind of row, after which its share goes to the others."""
MOST_DONORS = 300
"""Runs that succeeded, of a source, in which mistakes are planted and whose values they take."""
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
    """Makes rows and their lines. A line's keys: see `_lines`."""

    def __init__(self, prompter: Prompter, runs: Sequence[LabelledRun], sources: Sequence[str], rivals: Rivals) -> None:
        rng, solved = random.Random(0), defaultdict(list)
        for run in runs:
            if run.succeeded:
                solved[run.source].append(run)
        donors = [run for mine in solved.values() for run in rng.sample(mine, min(len(mine), MOST_DONORS))]
        super().__init__(prompter, donors, sources)
        self.rivals = rivals
        self.rows: list[Row] = []
        self.lines: list[dict[str, Any]] = []
        self.planted: Counter[tuple[str, MistakeKind]] = Counter()
        self._proven: dict[str, frozenset[int]] = {}

    def _readings(self, trajectory: Trajectory, labels: Sequence[int | None], form: Form) -> list[Prompt]:
        return super()._readings(trajectory, [], form)

    def readings(self, run: LabelledRun) -> list[Prompt]:
        """All readings of a run in its own form."""
        return self._readings(run.trajectory, [], "own")

    def add(self, run: LabelledRun, prompt: Prompt, *, whole: bool = False) -> int:
        """Add a reading of the run itself; its ids."""
        return self._keep(run, self._main(run, prompt), [], whole=whole)

    def add_planted(self, run: LabelledRun, rng: random.Random) -> int:
        """Add a reading of a run that succeeded, with up to `BRANCHES` twins, or a copy that was given an instruction; its ids, 0: there is
        no place for a mistake."""
        if self._next_kind(run.source) in IN_HEAD:
            make: Callable[..., Planted | None] = plant if rng.random() < 0.5 else counterpart
            found = make(self.view(run), "broken_instruction", rng)
            self.planted[run.source, "broken_instruction"] += 1
            row = None if found is None else self._single(run, found, "own")
            return 0 if row is None or found is None else self._keep(run, row, [found], single=True)
        prompts = self.readings(run)
        prompt = rng.choice(prompts)
        steps = [slot.step for slot in prompt.slots if slot.step is not None and run.labels[slot.step - 1] == 1]
        if not steps:
            return 0
        made, kept = self._main(run, prompt), list[Planted]()
        for found in self._planted(run, steps, BRANCHES, rng):
            reading, before = self._reading(run, found, "own"), len(made.segments)
            if reading is not None:
                self._branch(made, run, found, reading)
            if len(made.segments) > before:
                kept.append(found)
                self.planted[run.source, found.kind] += not found.good
        return self._keep(run, made, kept) if kept else 0

    def _next_kind(self, source: str) -> MistakeKind:
        kinds = [kind for kind in OPERATORS if kind in MEANING_KINDS]
        return min(kinds, key=lambda kind: (self.planted[source, kind], MISTAKE_KINDS.index(kind)))

    def _planted(
        self, run: LabelledRun, allowed: Sequence[int], branches: int, rng: random.Random
    ) -> Iterator[Planted]:
        """Copies with one mistake each, of the kinds drawn least so far, those of meaning twice as often; and a counterpart now and then."""
        view = self.view(run, allowed)
        kinds = [kind for kind in OPERATORS if kind not in IN_HEAD]
        rng.shuffle(kinds)
        kinds.sort(key=lambda kind: self.planted[run.source, kind] / (2 if kind in MEANING_KINDS else 1))
        made = 0
        for kind in kinds:
            if made < branches and (found := plant(view, kind, rng)) is not None:
                made += 1
                yield found
        others = [kind for kind in COUNTERPARTS if kind not in IN_HEAD]
        if rng.random() < 0.5 and (found := counterpart(view, rng.choice(others), rng)) is not None:
            yield found

    def _keep(
        self, run: LabelledRun, row: Row, planted: Sequence[Planted], *, whole: bool = False, single: bool = False
    ) -> int:
        self.lines += self._lines(run, row, planted, whole, single)
        self.rows.append(row)
        return len(row.ids)

    def _lines(
        self, run: LabelledRun, row: Row, planted: Sequence[Planted], whole: bool, single: bool
    ) -> Iterator[dict[str, Any]]:
        """One line a slot, in order: what the run is, what the slot is (step 0: the outcome), its label and what rivals say of it."""
        t, starts = run.trajectory, [start for start, _ in row.segments]
        name = f"{run.source}/{t.id}"
        if name not in self._proven:
            self._proven[name] = frozenset(proven_mistakes(t, run.changes_state))
        ending = step_text(t, len(t.steps))
        about = {
            "row": len(self.rows),
            "run": name,
            "source": run.source,
            "key": run.key,
            "part": run.part,
            "steps": len(t.steps),
            "run_outcome": run.outcome,
            "chars": transcript_length(t),
            "claims": claims_success(ending),
            "whole": whole,
            "inside": self.rivals.inside(t),
        }
        for at, label, _, _, kind, step in row.slots:
            branch = sum(start <= at for start in starts) - 1
            twin = planted[0] if single else planted[branch - 1] if branch else None
            ours = twin is None or step == twin.step
            shown = t if twin is None else twin.trajectory
            text = step_text(shown, step) if step else ending
            yield {
                **about,
                "step": step,
                "label": None if label < 0 or not ours else label,
                "exact": twin is None and step in run.exact,
                "planted": None if twin is None else f"{len(self.rows)}/{branch}",
                "kind": MISTAKE_KINDS[kind] if kind >= 0 else None,
                "rule": step in self._proven[name]
                if twin is None
                else twin.step in proven_mistakes(shown, run.changes_state),
                **self.rivals.of(text, step, len(t.steps)),
            }


def _matched(runs: Sequence[LabelledRun], rng: random.Random) -> Iterator[tuple[LabelledRun, LabelledRun]]:
    """(run that succeeded, one that failed and is nearest in length), each once; those that claim success where 20 of each do."""
    sides: list[list[LabelledRun]] = [[r for r in runs if r.outcome == y] for y in (1, 0)]
    claiming = [[r for r in side if claims_success(step_text(r.trajectory, len(r.labels)))] for side in sides]
    sides = claiming if min(map(len, claiming)) >= 20 else sides
    good, bad = (list(side) for side in sides)
    rng.shuffle(good)
    while good and bad:
        run = good.pop()
        size = transcript_length(run.trajectory)
        other = min(bad, key=lambda r: abs(transcript_length(r.trajectory) - size))
        bad.remove(other)
        yield run, other


def _in_turn(first: Sequence[Any], second: Sequence[Any], rng: random.Random) -> Iterator[Any]:
    """Items of two lists in turn, each shuffled, then the rest of the longer one."""
    lists = [rng.sample(list(items), len(items)) for items in (first, second)]
    while any(lists):
        for items in lists:
            if items:
                yield items.pop()


def fill(made: Rows, runs: Sequence[LabelledRun], tokens: int, seed: int) -> dict[str, int]:
    """Add rows of one source until `tokens` ids; ids by kind of row."""
    rng = random.Random(f"{seed}/{runs[0].source}")
    spent, tries = dict.fromkeys(SHARES, 0), Counter[str]()
    known = [r for r in runs if any(y is not None for y in r.labels)]
    whole = _in_turn([r for r in known if 0 in r.labels], [r for r in known if 0 not in r.labels], rng)
    calls = [(r, k) for r in runs for k in sorted(r.exact) if r.labels[k - 1] is not None]
    exact = _in_turn(*([(r, k) for r, k in calls if r.labels[k - 1] == y] for y in (0, 1)), rng)
    pairs = _matched(runs, rng)
    solved = [r for r in runs if made.view(r).donors.tools and r.succeeded]

    def one(kind: str) -> int:
        if kind == "whole":
            run = next(whole)
            prompts = made.readings(run)
            return sum(made.add(run, p, whole=True) for p in prompts) if len(prompts) <= MOST_READINGS else 0
        if kind == "exact":
            run, k = next(exact)
            return made.add(run, next(p for p in made.readings(run) if k in {s.step for s in p.slots}))
        if kind == "ending":
            return sum(made.add(run, made.readings(run)[-1]) for run in next(pairs))
        if not solved:
            raise StopIteration
        return made.add_planted(rng.choice(solved), rng)

    open_kinds = set(SHARES)
    while open_kinds and sum(spent.values()) < tokens:
        kind = min(sorted(open_kinds), key=lambda name: spent[name] / SHARES[name])
        tries[kind] += 1
        try:
            spent[kind] += one(kind)
        except StopIteration:
            open_kinds.discard(kind)
        if tries[kind] >= TRIES:
            open_kinds.discard(kind)
    return spent


def sanity_runs(path: Path) -> list[LabelledRun]:
    """The sanity set's runs, as sources are read; each domain is a source."""
    runs = []
    for line in path.read_text("ascii").splitlines():
        said = json.loads(line)
        messages = [
            {**m, "tool_calls": [_call(c) for c in m["tool_calls"]]} if m.get("tool_calls") else m
            for m in said["messages"]
        ]
        t = Trajectory.model_validate(
            {"id": said["id"], "task": said["task"], "messages": messages, "tools": said["tools"]}
        )
        labels = tuple(None if y is None else int(y == "good") for y in said["step_labels"])
        kinds = {k: said["kind"] for k, y in enumerate(labels, start=1) if y == 0}
        runs.append(LabelledRun(t, f"sanity/{said['domain']}", said["id"], labels, None, kinds))
    return runs


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A call as `Trajectory` has it; arguments that are no JSON object stay text."""
    text = call["function"]["arguments"]
    try:
        body = json.loads(text)
    except ValueError:
        body = text
    return {"id": call["id"], "name": call["function"]["name"], "arguments": body if isinstance(body, dict) else text}


def chosen(runs: Sequence[LabelledRun], fold: str) -> list[LabelledRun]:
    """The runs that may be drawn for a fold: of `home` the test part, of `calibration` that part, of a fold its sources' runs whose key no
    other source is trained on."""
    if fold in ("home", "calibration"):
        return [r for r in runs if r.ships and r.part == ("test" if fold == "home" else fold)]
    trained = {r.key for r in runs if r.fold != fold and r.part == "train" and r.ships}
    return [r for r in runs if r.fold == fold and r.key not in trained]


def make(
    prompter: Prompter, runs: Sequence[LabelledRun], rivals: Rivals, tokens: int, seed: int
) -> tuple[Rows, dict[str, Any]]:
    """Rows of all the runs' sources, each with the same share of `tokens`, and ids by source and kind of row."""
    sources = sorted({run.source for run in runs})
    made, spent = Rows(prompter, runs, sources, rivals), {}
    for source in sources:
        spent[source] = fill(made, [r for r in runs if r.source == source], tokens // len(sources), seed)
    return made, spent


def make_sanity(prompter: Prompter, path: Path, rivals: Rivals) -> Rows:
    """All readings of the sanity set."""
    runs = sanity_runs(path)
    made = Rows(prompter, runs, sorted({run.source for run in runs}), rivals)
    for run in runs:
        for prompt in made.readings(run):
            made.add(run, prompt, whole=True)
    return made


ALL = (*FOLDS, "home", "calibration", "sanity")
"""What rows are made for."""
