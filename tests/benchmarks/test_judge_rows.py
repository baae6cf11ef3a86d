"""Rows of step judges: a branch under the mask is read as its copy alone, slots and pairs are where they should be, no question is on two sides."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from succeeded_runs import CHANGES, question, support
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.gpu.train_steps import log_odds
from benchmarks.models import sources
from benchmarks.models.rows import VERSION, WEIGHTS, Maker, Row, draw, pack
from benchmarks.models.sources import DATA, FOLDS, READERS, LabelledRun, load
from reagent.lab.model import build_lab_tokenizer
from rrm.annotate.planted import Planted
from rrm.data.text import normalise
from rrm.data.trajectory import Trajectory
from rrm.prompt.canonical import Form, canonical_step, head_texts
from rrm.prompt.prompter import Prompt, Prompter

SOURCES = ["fireact", "tau"]


def labelled(run: Trajectory, source: str, key: str) -> LabelledRun:
    """Its first step is unknown, the others are good."""
    labels = (None, *[1] * (len(run.steps) - 1))
    return LabelledRun(run, source, key, labels, 1, changes_state=CHANGES if source == "tau" else frozenset())


@cache
def runs() -> tuple[LabelledRun, ...]:
    return tuple(labelled(support(i), "tau", f"tau/{i}") for i in range(8)) + tuple(
        labelled(question(i), "fireact", f"q{i}") for i in range(8)
    )


class Recorder(Maker):
    """A maker that remembers which reading each branch is made of."""

    branches: list[tuple[Row, int, Planted, Prompt]]

    def _branch(self, made: Row, run: LabelledRun, found: Planted, prompt: Prompt) -> None:
        before = len(made.segments)
        super()._branch(made, run, found, prompt)
        if len(made.segments) > before:
            self.branches.append((made, before, found, prompt))


@cache
def made() -> tuple[Recorder, list[tuple[LabelledRun, Row]]]:
    texts = [m.text() for run in runs() for m in run.trajectory.messages]
    tokenizer = build_lab_tokenizer([*texts, "[step 0123456789] is good bad The run is yes no call result: user:"], 600)
    maker = Recorder(Prompter(tokenizer, 600, VERSION), runs(), SOURCES)
    maker.branches = []
    rng, rows = random.Random(0), []
    forms: list[Form] = ["own", "native", "react"]
    for run in runs():
        for form in forms:
            row = maker.row(run, rng, form=form)
            if row is not None:
                rows.append((run, row))
    return maker, rows


class Held:
    """A model as peft's wrapper holds it."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self.model = model

    def get_base_model(self) -> LlamaForCausalLM:
        return self.model


@cache
def model() -> Held:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 4096}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
    config = LlamaConfig(vocab_size=len(made()[0].prompter.tokenizer), **sizes, **heads)
    config._attn_implementation = "tree"
    return Held(LlamaForCausalLM(config).eval())


def read(ids: list[int], segments: list[tuple[int, int]], at: list[int]) -> np.ndarray:
    """(slots, 2) log-odds."""
    prompter = made()[0].prompter
    slots = np.array([[i, -1, -1, 0, -1, 0] for i in at])
    choices = torch.tensor([*prompter.choices, *prompter.progress_choices])
    with torch.no_grad():
        return log_odds(model(), np.array(ids), np.array(segments), slots, choices, "cpu").numpy()


def test_a_branch_is_its_copys_reading_behind_what_it_shares_with_the_run() -> None:
    maker, rows = made()
    assert len(maker.branches) >= 40 and len(rows) >= 40
    for row, number, _, prompt in maker.branches:
        starts = [start for start, _ in row.segments] + [len(row.ids)]
        start, cut = row.segments[number]
        assert row.ids[:cut] + row.ids[start : starts[number + 1]] == prompt.ids
        assert cut <= row.segments[1][0]


def test_a_branch_in_a_row_is_read_as_the_copy_alone() -> None:
    maker, _ = made()
    for row, number, planted, prompt in maker.branches[::6]:
        start, cut = row.segments[number]
        (alone,) = [slot.at for slot in prompt.slots if slot.step == planted.step]
        merged = read(row.ids, row.segments, [start + alone - cut])
        np.testing.assert_allclose(merged, read(prompt.ids, [(0, 0)], [alone]), atol=1e-5)


def test_the_run_is_read_as_if_it_had_no_branches() -> None:
    row = next(row for row, number, _, _ in made()[0].branches if number == 2)
    main = row.segments[1][0]
    at = [slot[0] for slot in row.slots if slot[0] < main]
    np.testing.assert_allclose(read(row.ids, row.segments, at), read(row.ids[:main], [(0, 0)], at), atol=1e-5)


def test_slots_stand_where_the_verdict_is_the_next_token() -> None:
    maker, rows = made()
    tokenizer = maker.prompter.tokenizer
    for _, row in rows:
        assert len({slot[0] for slot in row.slots}) == len(row.slots)
        for at, *_, step in row.slots:
            said = tokenizer.decode(row.ids[max(at - 12, 0) : at + 1])
            assert said.endswith(f"[step {step}] is" if step else "The run is"), said


def test_labels_are_the_runs_own_and_those_of_the_plants() -> None:
    planted = 0
    for run, row in made()[1]:
        main = row.segments[1][0] if len(row.segments) > 1 else len(row.ids)
        for at, verdict, progress, source, kind, step in row.slots:
            assert SOURCES[source] == run.source
            if kind >= 0:
                planted += 1
                assert (verdict in (0, 1) and progress == -1) or len(row.segments) == 1
            elif step and at < main:
                assert (verdict, progress) == (-1 if step == 1 else 1, 1) or len(row.segments) == 1
    assert planted >= 40


def test_pairs_join_a_step_of_the_run_and_its_planted_twin() -> None:
    maker, rows = made()
    pairs = 0
    twins = {(id(row), planted.step, planted.twin) for row, _, planted, _ in maker.branches}
    for _, row in rows:
        for own, twin in row.pairs:
            pairs += 1
            assert row.slots[own][1] == 1 and row.slots[own][4] == -1 and row.slots[own][0] < row.segments[1][0]
            assert row.slots[twin][1] == 0 and row.slots[twin][4] >= 0 and row.slots[twin][0] >= row.segments[1][0]
            assert (id(row), row.slots[twin][5], row.slots[own][5]) in twins
    assert pairs >= 20


def test_packed_rows_are_the_rows() -> None:
    rows = [row for _, row in made()[1]]
    arrays = pack(rows, {"a": 1})
    for name in ("ids", "segments", "slots", "pairs"):
        ends = arrays[f"{name}_ptr"]
        got = [arrays[name][a:b].tolist() for a, b in pairwise(ends)]
        assert got == [[list(x) if isinstance(x, tuple) else x for x in getattr(row, name)] for row in rows]


def test_the_same_seed_draws_the_same_rows() -> None:
    maker = made()[0]
    drawn = [draw(maker, runs(), 6000, seed) for seed in (3, 3, 4)]
    assert [r.ids for r in drawn[0]] == [r.ids for r in drawn[1]] != [r.ids for r in drawn[2]]


def test_mistakes_are_planted_where_few_have_stood() -> None:
    """Among runs that succeeded, mistakes are about as frequent in steps of one number as in others, and in calls as in messages."""
    maker = Maker(made()[0].prompter, runs(), SOURCES)
    draw(maker, [replace(run, labels=(1,) * len(run.labels)) for run in runs()], 80_000, 0)
    share = {}
    for place in ("1", "2", "3", "last"):
        bad, good = (sum(maker.counts[place, calls, verdict] for calls in (False, True)) for verdict in (0, 1))
        assert bad + good >= 40, place
        share[place] = bad / (bad + good)
    assert max(share.values()) - min(share.values()) < 0.2, share


def test_a_read_that_a_run_which_succeeded_made_is_good_in_one_that_failed() -> None:
    solved = labelled(support(0), "tau", "k")
    lost = solved.trajectory.model_copy(update={"id": "lost", "outcome": 0.0})
    steps = [canonical_step(step) for step in lost.steps]
    unknown = replace(solved, trajectory=lost, labels=(None,) * len(steps))
    got = sources.with_shared_reads([replace(solved, labels=(1,) * len(steps)), unknown])[1].labels
    reads = [bool(s.calls) and not any(c.name in CHANGES for c in s.calls) for s in steps]
    assert any(reads) and [y == 1 for y in got] == reads and None in got
    alone = replace(unknown, trajectory=lost.model_copy(update={"task": "Something else"}))
    for others in ([], [replace(solved, labels=(None,) * len(steps))], [replace(solved, labels=(1,) * len(steps))]):
        run = alone if others and others[0].labels[0] else unknown
        assert sources.with_shared_reads([*others, run])[-1].labels == unknown.labels


def test_a_step_whose_program_raised_is_no_good_step_of_a_run_that_succeeded() -> None:
    run = support(0)
    at = run.steps[1].message_index + 1
    raised = "Traceback (most recent call last)\nZeroDivisionError: division by zero"
    run.messages[at] = run.messages[at].model_copy(update={"content": raised})
    assert sources.labelled(run, "tau", "k").labels[:2] == (1, None)


# ---- with the data ----


def test_every_source_stands_in_one_fold_and_has_a_weight() -> None:
    held = [source for fold in FOLDS.values() for source in fold]
    assert len(held) == len(set(held))
    for name in WEIGHTS:
        run = LabelledRun(support(0), name, "k", ())
        assert [fold for fold, starts in FOLDS.items() if any(name.startswith(s) for s in starts)] == [run.fold]


def task_digest(run: LabelledRun) -> str:
    """Of the task as a judge reads it."""
    return hashlib.sha256(normalise(head_texts(run.trajectory)["Task"]).encode()).hexdigest()


def test_no_key_and_no_task_is_in_two_parts_of_any_source_or_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DATA / "transcripts_more").is_dir():
        pytest.skip(f"no public runs at {DATA}")
    monkeypatch.setattr(sources, "proven_mistakes", lambda *_: {})  # labels take minutes, and parts do not ask for them
    parts, keys, names, folds = defaultdict(set), defaultdict(set), defaultdict(set), defaultdict(set)
    for run in load(DATA):
        parts[task_digest(run)].add(run.part)
        names[task_digest(run)].add(run.source)
        keys[run.key].add(run.part)
        folds[run.key].add(run.fold)
    assert len(READERS) > 6 and {"train", "calibration", "test"} == set().union(*keys.values())
    assert [key for key, found in keys.items() if len(found) > 1] == []
    assert [key for key, found in folds.items() if len(found) > 1] == []
    shared = [task for task, found in parts.items() if len(found) > 1]
    # StepShield has one text for several of its pairs, and splits by pair: its figures at home are those of tasks met in training
    assert {source for task in shared for source in names[task]} <= {"stepshield"} and len(shared) <= 57
