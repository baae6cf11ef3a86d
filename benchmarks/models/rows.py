"""Training rows of a step judge: windows of runs as token ids, with planted twins as branches of the same row.

A row is one reading of a run (`rrm.prompt.windows`) and the readings of copies with a planted mistake, each from where it leaves the run:

    ids        the run's reading, then each branch's own ids
    segments   (start, cut): from `start` on a branch sees the run's first `cut` ids and itself; positions go on from `cut`
    slots      (at, verdict, progress, source, kind, step): labels 1, 0 or -1 (unknown)
    pairs      (good slot, bad slot): the run's own step and its planted twin

So a mistake and the right step stand in one forward, behind the same prefix, which is read once. Rows are packed into one file of
arrays without pickle, and read by `benchmarks/gpu/train_steps.py`, which needs nothing else of this package.

    python -m benchmarks.models.rows --leave-out tau_stepshield --tokens 1000000 -o runs/judges/rows/tau_stepshield.npz
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.sources import FOLDS, WEIGHTS, LabelledRun, load
from rrm.annotate.planted import OPERATORS, Donors, Planted, SuccessfulRun, counterpart, plant
from rrm.data.mistakes import MEANING_KINDS, MISTAKE_KINDS, MistakeKind
from rrm.data.trajectory import Trajectory
from rrm.prompt.canonical import Form, canonical_step, in_form
from rrm.prompt.prompter import Prompt, Prompter

VERSION = "3"
"""Prompt version."""
WINDOW = 640
"""Tokens of a window."""
STEP = 80
"""Tokens of a step that are shown."""
SHARES = (0.7, 0.27, 0.03)
"""Of the draws: runs that succeeded, in which mistakes are planted; runs that failed, with a known mistake; other runs that failed."""
AT_MISTAKE = 0.8
"""How often the window of a run with a known mistake is one that holds it."""
BRANCHES = 6
"""Planted copies a row, at most, without counterparts."""
BESIDE: dict[MistakeKind, float] = {"repeat": 0.5, "ignored_error": 0.5, "unsupported_claim": 1.0}
"""How often a planted mistake of a kind is joined by its counterpart, the same surface where it is right."""
MORE = 3
"""Kinds that are drawn beyond those, to choose among."""
MOST_IDS = 1800
"""Ids of a row, branches included."""
KIND_WEIGHTS = {kind: 2.0 if kind in MEANING_KINDS else 1.0 for kind in MISTAKE_KINDS} | {"gave_up_early": 0.5}
IN_HEAD: tuple[MistakeKind, ...] = ("broken_instruction",)
"""Kinds that change what stands before the steps: a row of their own."""
SPOILS = frozenset(
    {"wrong_answer", "unsupported_claim", "ignored_error", "gave_up_early", "invented_result", "misread_result"}
)
"""Kinds that make the whole run a failure when planted in its last step."""
FORMS: tuple[Form, ...] = ("own", "native", "react")


@dataclass
class Row:
    """One row; see the module's docstring."""

    ids: list[int]
    segments: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    slots: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)


class Maker:
    """Makes rows of runs, with plants from donors among the same runs.

    Args:
        runs: those of the same part; donors of planted values are drawn among the ones that succeeded.
    """

    def __init__(self, prompter: Prompter, runs: Sequence[LabelledRun], sources: Sequence[str]) -> None:
        self.prompter, self.sources = prompter, list(sources)
        solved: dict[str, list[LabelledRun]] = defaultdict(list)
        for run in runs:
            if run.succeeded:
                solved[_family(run)].append(run)
        self.counts: Counter[tuple[str, bool, int]] = Counter()
        """Labels in runs that succeeded, by place, whether it calls, and verdict (`place_of`)."""
        self.donors = {name: Donors.of((run.key, run.trajectory) for run in mine) for name, mine in solved.items()}

    def view(self, run: LabelledRun, allowed: Sequence[int] | None = None) -> SuccessfulRun:
        """The run as the operators of planted mistakes see it."""
        return SuccessfulRun(
            run.trajectory, run.key, self.donors.get(_family(run), Donors()), run.changes_state, allowed
        )

    def row(self, run: LabelledRun, rng: random.Random, branches: int = BRANCHES, form: Form = "own") -> Row | None:
        """A window of the run with branches, or an instructed copy of it; None where the window has no label."""
        if run.succeeded and branches and rng.random() < 0.2:
            make = plant if rng.random() < 0.5 else counterpart
            if (found := make(view := self.view(run), "broken_instruction", rng)) is not None:
                row = self._single(run, found, form)
                return None if row is None else self._counted(row, view)
        prompts, number = self._window(run, rng, form)
        if number is None:
            return None
        made = self._main(run, prompts[number])
        if not run.succeeded or not branches:
            while (
                made.slots and made.slots[-1][1] < 0 and made.slots[-1][2] < 0
            ):  # nothing is learned behind the last label
                made.slots.pop()
            made.ids = made.ids[: made.slots[-1][0] + 1] if made.slots else made.ids
            return made
        allowed = [slot.step for slot in prompts[number].slots if slot.step is not None]
        self._counted(made, self.view(run))
        for found in self._planted(run, allowed, branches, rng):
            reading = self._reading(run, found, form)
            if reading is not None:
                before = len(made.segments)
                self._branch(made, run, found, reading)
                if len(made.segments) > before:
                    self.counts[(*_place(found, run), int(found.good))] += 1
        return made

    def _counted(self, row: Row, run: SuccessfulRun) -> Row:
        """The row, its labels of the run's own steps counted."""
        for _, verdict, *_, step in row.slots:
            if step and verdict >= 0:
                place = place_of(step, len(run.steps), bool(run.steps[step - 1].calls))
                self.counts[(*place, verdict)] += 1
        return row

    def _share(self, place: tuple[str, bool]) -> float:
        """Share of the labels at a place that are mistakes."""
        bad, good = self.counts[(*place, 0)], self.counts[(*place, 1)]
        return bad / (bad + good + 1)

    def _window(self, run: LabelledRun, rng: random.Random, form: Form) -> tuple[list[Prompt], int | None]:
        """All readings of the run, and the one to take: where a mistake is, else any with a label."""
        prompts = self._readings(run.trajectory, form)
        bad = [i for i, p in enumerate(prompts) if any(s.step and run.labels[s.step - 1] == 0 for s in p.slots)]
        known = [
            i for i, p in enumerate(prompts) if any(s.step and run.labels[s.step - 1] is not None for s in p.slots)
        ]
        places = bad if bad and rng.random() < AT_MISTAKE else known
        return prompts, rng.choice(places) if places else None

    def _readings(self, trajectory: Trajectory, form: Form = "own") -> list[Prompt]:
        plan = self.prompter.plan(in_form(trajectory, form), "steps")
        return [self.prompter.reading(plan, i, "steps") for i in range(len(plan))]

    def _main(self, run: LabelledRun, prompt: Prompt) -> Row:
        made = Row(list(prompt.ids))
        source = self.sources.index(run.source)
        outcome = -1 if run.outcome is None else run.outcome
        for slot in prompt.slots:
            if slot.step is None:
                made.slots.append((slot.at, outcome, -1, source, -1, 0))
                continue
            label = run.labels[slot.step - 1]
            kind = run.kinds.get(slot.step)
            number = -1 if kind is None else MISTAKE_KINDS.index(kind)
            made.slots.append((slot.at, -1 if label is None else label, outcome, source, number, slot.step))
        return made

    def _planted(
        self, run: LabelledRun, allowed: Sequence[int], branches: int, rng: random.Random
    ) -> Iterator[Planted]:
        """Copies with one mistake each, of different kinds, each with its counterpart now and then.

        Of some more that are drawn, two of a kind, those are taken whose places have had the smallest share of mistakes: neither a step's number
        nor whether it calls may tell the verdict.
        """
        view = self.view(run, allowed)
        kinds = [kind for kind in OPERATORS if kind not in IN_HEAD]
        order = sorted(kinds, key=lambda kind: rng.random() ** (1 / KIND_WEIGHTS[kind]), reverse=True)
        drawn = dict[MistakeKind, list[Planted]]()
        for kind in order:
            found = [p for _ in range(2) if (p := plant(view, kind, rng)) is not None]
            drawn |= {kind: found} if found else {}
            if len(drawn) == branches + MORE:
                break
        for _ in range(min(branches, len(drawn))):
            found = min((p for many in drawn.values() for p in many), key=lambda p: self._share(_place(p, run)))
            del drawn[found.kind]
            yield found
            if rng.random() < BESIDE.get(found.kind, 0.0) and (right := counterpart(view, found.kind, rng)) is not None:
                yield right

    def _labels(self, run: LabelledRun, found: Planted) -> list[int | None]:
        """Labels of a copy: the run's own up to `known`, the planted step's, and between them unknown."""
        labels: list[int | None] = list(run.labels[: found.known])
        labels += [None] * (found.step - len(labels))
        labels[found.step - 1] = (
            int(found.good) if found.step > found.known or not found.good else labels[found.step - 1]
        )
        return labels

    def _reading(self, run: LabelledRun, found: Planted, form: Form) -> Prompt | None:
        """The reading of a copy that holds the planted step's slot."""
        prompts = self._readings(found.trajectory, form)
        return next((p for p in prompts if any(slot.step == found.step for slot in p.slots)), None)

    def _single(self, run: LabelledRun, found: Planted, form: Form) -> Row | None:
        """A copy as a row of its own."""
        prompt = self._reading(run, found, form)
        if prompt is None:
            return None
        kinds = {**run.kinds, found.step: found.kind} if not found.good else dict(run.kinds)
        copy = LabelledRun(found.trajectory, run.source, run.key, tuple(self._labels(run, found)), None, kinds)
        return self._main(copy, prompt)

    def _branch(self, made: Row, run: LabelledRun, found: Planted, prompt: Prompt) -> None:
        """Add a copy's reading to the row, from where it leaves the run's."""
        main = made.segments[1][0] if len(made.segments) > 1 else len(made.ids)
        cut = next(
            (i for i, (a, b) in enumerate(zip(made.ids[:main], prompt.ids, strict=False)) if a != b),
            min(main, len(prompt.ids)),
        )
        rest = prompt.ids[cut:]
        if not rest or len(made.ids) + len(rest) > MOST_IDS or cut < 40:
            return
        shift = len(made.ids) - cut
        made.segments.append((len(made.ids), cut))
        made.ids += rest
        source, kind = self.sources.index(run.source), MISTAKE_KINDS.index(found.kind)
        spoilt = (
            not found.good and found.step >= len(run.labels) - 1 and found.kind in SPOILS and run.outcome is not None
        )
        for slot in prompt.slots:
            if slot.at < cut:
                continue
            if slot.step == found.step:
                made.slots.append((slot.at + shift, int(found.good), -1, source, kind, slot.step))
                self._pair(made, found)
            elif slot.step is None and spoilt:
                made.slots.append((slot.at + shift, 0, -1, source, kind, 0))

    def _pair(self, made: Row, found: Planted) -> None:
        """Pair the planted slot, the last one, with the run's own step."""
        if found.good or found.twin is None:
            return
        own = next(
            (
                i
                for i, s in enumerate(made.slots[:-1])
                if s[5] == found.twin and s[1] == 1 and s[0] < made.segments[1][0]
            ),
            None,
        )
        if own is not None:
            made.pairs.append((own, len(made.slots) - 1))


def place_of(step: int, steps: int, calls: bool) -> tuple[str, bool]:
    """(the place of a step among a run's steps, whether it makes a call)."""
    return "last" if step >= steps else str(min(step, 4)), calls


def _place(found: Planted, run: LabelledRun) -> tuple[str, bool]:
    """Where a planted step stands."""
    return place_of(found.step, len(run.labels), bool(canonical_step(found.trajectory.steps[found.step - 1]).calls))


def _family(run: LabelledRun) -> str:
    """Runs with the same tools: a domain of tau, a suite of AgentDojo, a source."""
    return f"{run.source}/{run.trajectory.meta.get('suite') or run.trajectory.id.split('-')[0]}"


def draw(maker: Maker, runs: Sequence[LabelledRun], tokens: int, seed: int, forms: bool = True) -> list[Row]:
    """Rows until `tokens` ids, sources by their weights; the form of a run is drawn each time."""
    rng = random.Random(seed)
    maker.counts.clear()
    pools: dict[str, tuple[list[LabelledRun], ...]] = defaultdict(lambda: ([], [], []))
    for run in runs:
        pools[run.source][0 if run.succeeded else 1 if 0 in run.labels else 2].append(run)
    names = [name for name in WEIGHTS if name in pools]
    rows, total = list[Row](), 0
    while total < tokens:
        pool = pools[rng.choices(names, [WEIGHTS[name] for name in names])[0]]
        run = rng.choice(rng.choices(pool, [share * bool(part) for share, part in zip(SHARES, pool, strict=True)])[0])
        row = maker.row(run, rng, form=rng.choice(FORMS) if forms else "own")
        if row is not None and any(slot[1] >= 0 for slot in row.slots):
            rows.append(row)
            total += len(row.ids)
    return rows


def pack(rows: Sequence[Row], about: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of all rows, one after another; `*_ptr` say where each row's begin."""

    def ragged(name: str, items: Sequence[Sequence[Any]], width: int, dtype: Any) -> dict[str, np.ndarray]:
        flat = [x for row in items for x in row]
        values = np.array(flat, dtype=dtype).reshape((-1, width)) if width > 1 else np.array(flat, dtype=dtype)
        return {name: values, f"{name}_ptr": np.cumsum([0, *map(len, items)]).astype(np.int64)}

    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    return {
        "about": text,
        **ragged("ids", [row.ids for row in rows], 1, np.int32),
        **ragged("segments", [row.segments for row in rows], 2, np.int32),
        **ragged("slots", [row.slots for row in rows], 6, np.int32),
        **ragged("pairs", [row.pairs for row in rows], 2, np.int32),
    }


def counts(rows: Sequence[Row], sources: Sequence[str]) -> dict[str, Any]:
    """Rows, ids and labels, by source and by planted kind."""
    by_source, by_kind = defaultdict(Counter), Counter()
    for row in rows:
        name = sources[row.slots[0][3]]
        by_source[name].update({"rows": 1, "ids": len(row.ids), "pairs": len(row.pairs)})
        for _, verdict, _, _, kind, step in row.slots:
            by_source[name][{1: "good", 0: "bad", -1: "unknown"}[verdict] if step else "outcome"] += 1
            if kind >= 0 and step:
                by_kind[f"{MISTAKE_KINDS[kind]}/{'good' if verdict == 1 else 'bad'}"] += 1
    return {"by_source": {k: dict(v) for k, v in sorted(by_source.items())}, "by_kind": dict(sorted(by_kind.items()))}


def prompter_of(tokenizer: str) -> Prompter:
    """What renders runs for a base model, or for the tokenizer in a folder."""
    from transformers import AutoTokenizer

    from rrm.engines.hf.base_model import base_path

    return Prompter(AutoTokenizer.from_pretrained(base_path(tokenizer)), WINDOW, VERSION, step_tokens=STEP)


def store(path: Path, prompter: Prompter, rows: Sequence[Row], sources: Sequence[str], **about: Any) -> None:
    """Write rows with what they are, and print it."""
    about |= {"sources": list(sources), "kinds": list(MISTAKE_KINDS), "choices": list(prompter.choices)}
    about |= {
        "progress": list(prompter.progress_choices),
        "tokens": sum(len(row.ids) for row in rows),
        **counts(rows, sources),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **pack(rows, about))  # pyright: ignore[reportArgumentType]
    print(json.dumps({"output": str(path), "rows": len(rows), **about}), flush=True)


def main() -> None:
    """Write the rows of one fold, or of all sources."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument(
        "--leave-out", choices=list(FOLDS), help="the fold whose sources are left out; none: all are in"
    )
    parser.add_argument("--part", default="train", choices=["train", "calibration", "test"])
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--tokenizer", default="smollm2", help="base model, or a folder")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    runs = [run for run in load() if run.part == args.part and run.ships and run.fold != args.leave_out]
    sources, prompter = sorted({run.source for run in runs}), prompter_of(args.tokenizer)
    rows = draw(Maker(prompter, runs, sources), runs, args.tokens, args.seed)
    folds = {name: list(prefixes) for name, prefixes in FOLDS.items()}
    store(
        args.output, prompter, rows, sources, base=args.tokenizer, leave_out=args.leave_out, seed=args.seed, folds=folds
    )


if __name__ == "__main__":
    main()
