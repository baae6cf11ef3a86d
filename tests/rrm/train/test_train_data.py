"""Training rows: masks, balance, homogeneous batches, targets."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from reagent.lab.model import build_lab_tokenizer
from reagent.lab.pretraining_rows import drill_rows, follow_row
from reagent.lab.transcripts import make_transcripts
from rrm.config import DataConfig, FollowSettings, MixConfig, SFTSettings
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import parse_findings, parse_judgement
from rrm.data.labels import JudgementTarget, targets_of
from rrm.data.splits import apply_split, load_split, make_split
from rrm.data.trajectory import Message, Trajectory
from rrm.errors import ConfigError, RRMError
from rrm.prompt.prompter import Prompter
from rrm.prompt.rendering import OPENINGS, shown_steps
from rrm.train.data import (
    TrainingRow,
    about,
    balanced,
    batched,
    make_row,
    on_grid,
    target_text,
    window_rows,
    with_claim,
)
from rrm.train.prepare import shared_texts
from rrm.train.rl import make_row as rl_row
from rrm.train.sft import as_dataset, schedule

RNG = random.Random(0)


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    return Prompter(
        build_lab_tokenizer(["You judge an agent's run. score critique think step good bad 0.5"] * 3, 400), 200
    )


def row(i: int, question: str, outcome: float | None, agent: str = "a") -> Trajectory:
    messages = [Message(role="user", content=question), Message(role="assistant", content=f"answer {i}")]
    return Trajectory(
        id=str(i), task=question, question_id=question, messages=messages, outcome=outcome, meta={"agent": agent}
    )


ANNOTATION = Annotation(
    trajectory_id="1", trace="[step 1] answers", critique="[step 1] bad: check it", annotator="x", kind="human"
)


@pytest.mark.parametrize("mode", ["full", "critique", "score"])
def test_target_parses_back(mode) -> None:
    text = target_text(mode, 0.7, ANNOTATION)
    assert text is not None
    parsed = parse_judgement(OPENINGS[mode] + text)
    assert parsed.score == 0.7
    assert parsed.critique == (None if mode == "score" else ANNOTATION.critique)
    assert parsed.trace == (ANNOTATION.trace if mode == "full" else None)


def test_target_needs_its_parts() -> None:
    assert target_text("critique", 1.0, None) is None
    assert target_text("full", 1.0, ANNOTATION.model_copy(update={"trace": None})) is None


def test_labels_cover_exactly_the_completion(prompter) -> None:
    built = make_row(prompter, row(1, "q", 1.0), "score", JudgementTarget(1.0, "outcome"), RNG)
    assert built is not None
    example = as_dataset([built])[0]
    assert example["input_ids"] == built.prompt + built.completion
    assert [t for t in example["labels"] if t != -100] == [*prompter.encode("1.0</score>"), prompter.eos_token_id]
    assert len(example["labels"]) == len(example["input_ids"])
    assert example["labels"][: len(built.prompt)] == [-100] * len(built.prompt)
    text = prompter.tokenizer.decode(example["input_ids"])
    assert text.endswith("<score>1.0</score><|im_end|>")


def test_no_target_speaks_of_a_step_that_the_prompt_leaves_out(prompter) -> None:
    messages = [
        Message(role="user", content="q"),
        *(Message(role="assistant", content=f"answer {i}") for i in range(1, 61)),
    ]
    lines = {k: f"[step {k}] bad: check it" for k in range(1, 61)}
    findings = [Finding(step=k, verdict="bad", text="check it") for k in lines]
    complete = ANNOTATION.model_copy(update={"critique": "\n".join(lines.values()), "findings": findings})
    trajectory = row(1, "q", 0.0).model_copy(update={"messages": messages})
    built = make_row(prompter, trajectory, "critique", JudgementTarget(0.0, "outcome", annotation=complete), RNG)
    assert built is not None
    steps_shown = shown_steps(prompter.tokenizer.decode(built.prompt))
    assert 60 in steps_shown and len(steps_shown) < 40
    critique = parse_judgement("<critique>" + prompter.tokenizer.decode(built.completion)).critique or ""
    assert [f.step for f in parse_findings(critique, 60)] == sorted(steps_shown)
    prompt_row = rl_row(prompter, trajectory, JudgementTarget(0.0, "outcome", annotation=complete), "critique")
    assert {f["step"] for f in json.loads(prompt_row["findings"])} == steps_shown
    assert about(complete, range(1, 61)) == complete
    # a step of which nothing is shown leaves no label at all
    hidden = complete.model_copy(update={"critique": lines[30]})
    assert make_row(prompter, trajectory, "critique", JudgementTarget(0.0, "outcome", annotation=hidden), RNG) is None


def test_a_row_says_its_target_and_weighs_what_its_label_weighs(prompter) -> None:
    target = JudgementTarget(
        0.3, "blend", weight=0.5, annotation=ANNOTATION.model_copy(update={"score": 0.9, "weight": 2.0})
    )
    critique, score = (make_row(prompter, row(1, "q", 1.0), mode, target, RNG) for mode in ("critique", "score"))
    assert critique is not None and score is not None
    assert "<score>0.3</score>" in prompter.tokenizer.decode(critique.completion)
    assert (critique.weight, score.weight) == (2.0, 0.5)


@pytest.mark.parametrize("score", [0.0, 0.04, 0.25, 0.3, 0.35, 0.97, 1.0])
def test_targets_between_two_tenths_are_unbiased(score) -> None:
    """f"{0.04:.1f}" and f"{0.25:.1f}" are 0.0 and 0.2, every time."""
    rng = random.Random(0)
    drawn = [on_grid(score, rng) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(score, abs=1e-3)
    assert all(abs(value - score) < 0.1 and 0.0 <= value <= 1.0 for value in drawn)
    assert all(f"{value:.1f}" == str(value) for value in set(drawn)) and len(set(drawn)) <= 2
    assert (len(set(drawn)) == 1) == (round(score, 1) == score)


def test_rows_with_a_score_and_no_outcome_are_kept_and_balanced() -> None:
    """They used to be dropped where `sft.balance` is on."""
    rows = [row(i, "q", None) for i in range(6)]
    targets = {t.id: JudgementTarget(0.9 if int(t.id) < 2 else 0.2, "annotation") for t in rows}
    assert Counter(targets[t.id].score for t in balanced(rows, targets, 1.0, random.Random(0))) == {0.9: 2, 0.2: 2}


def test_balance_groups_by_the_task_where_there_is_no_question_id() -> None:
    rows = [row(i, "ab"[i % 2], float(i < 2)).model_copy(update={"question_id": None}) for i in range(8)]
    chosen = Counter((t.task, t.outcome) for t in balanced(rows, targets_of(rows, {})[0], 1.0, random.Random(0)))
    assert chosen == {("a", 1.0): 1, ("a", 0.0): 2, ("b", 1.0): 1, ("b", 0.0): 2}


def test_balanced_keeps_ratio_inside_each_group() -> None:
    rows = [row(i, "hard", float(i < 2)) for i in range(20)] + [row(100 + i, "lost", 0.0) for i in range(9)]
    targets, _ = targets_of(rows, {})
    chosen = Counter((t.question_id, t.outcome) for t in balanced(rows, targets, 1.5, random.Random(0)))
    assert chosen == {("hard", 1.0): 2, ("hard", 0.0): 3, ("lost", 0.0): 2}
    assert len(balanced(rows, targets, None, random.Random(0))) == len(rows)


def test_batches_share_mode_and_are_close_in_length() -> None:
    rng = random.Random(0)
    rows = [TrainingRow([0] * rng.randrange(5, 200), [1], rng.choice(["score", "full"])) for _ in range(101)]  # type: ignore[arg-type]
    ordered = batched(rows, 8, rng)
    assert len(ordered) % 8 == 0
    for i in range(0, len(ordered), 8):
        batch = ordered[i : i + 8]
        assert len({r.mode for r in batch}) == 1
    waste = sum(8 * max(len(r.prompt) for r in ordered[i : i + 8]) for i in range(0, len(ordered), 8))
    assert waste < 1.25 * sum(len(r.prompt) for r in ordered)
    assert {id(r) for r in rows} == {id(r) for r in ordered}


def test_short_rows_come_first_where_asked_and_none_is_lost() -> None:
    rng = random.Random(0)
    rows = [TrainingRow([0] * rng.randrange(5, 200), [1], "full") for _ in range(800)]
    ordered = batched(rows, 8, random.Random(1), short_first=1.0)
    assert sorted(map(id, ordered)) == sorted(map(id, rows))
    lengths = [len(r.prompt) for r in ordered]
    first, middle, last = (sum(lengths[i : i + 200]) / 200 for i in (0, 300, 600))
    assert first < 70 and 85 < middle < 120 and last > 135
    assert max(lengths[:200]) > min(lengths[-200:])  # a tendency, not a sorting


def test_claim_changes_one_message_and_never_the_label() -> None:
    t = row(1, "q", 1.0)
    claimed = with_claim(t, random.Random(3))
    assert claimed.outcome == t.outcome
    assert sum(a != b for a, b in zip(t.messages, claimed.messages, strict=True)) == 1
    assert t.messages[1].text() in claimed.messages[1].text()


def test_schedule_is_the_same_for_the_same_seed(prompter) -> None:
    rows = [row(i, f"q{i % 5}", float(i % 2)) for i in range(30)]
    settings = SFTSettings(epochs=2, balance=1.0, claim_injection_share=0.5)
    targets, _ = targets_of(rows, {})
    first = schedule(prompter, rows, targets, settings, seed=1)
    assert first == schedule(prompter, rows, targets, settings, seed=1)
    assert first != schedule(prompter, rows, targets, settings, seed=2)


def test_a_mode_without_a_row_is_warned_of_by_name(prompter, caplog) -> None:
    rows = [row(1, "q", 1.0), row(2, "q", 0.0)]
    targets, _ = targets_of(rows, {"1": ANNOTATION.model_copy(update={"trace": None})})
    schedule(prompter, rows, targets, SFTSettings(epochs=1, mix=MixConfig(score=1, critique=1, full=0.5)), seed=0)
    (warning,) = [r.getMessage() for r in caplog.records]
    assert warning.startswith(
        "sft: no row of mode full (sft.mix.full=0.5): no training transcript has both a trace and"
    )


def test_schedule_without_labels_says_what_to_do(prompter) -> None:
    with pytest.raises(RRMError, match="rrm annotate"):
        schedule(prompter, [row(1, "q", None)], {}, SFTSettings(), seed=0)


def test_split_is_by_question_and_holds_agents_out(tmp_path) -> None:
    rows = [row(i, f"q{i % 10}", 1.0, agent=f"a{i % 3}") for i in range(60)]
    split = make_split(rows, DataConfig(), seed=0)
    assert sorted(split["train"] + split["calibration"] + split["test"]) == sorted({t.question_id or "" for t in rows})
    parts = apply_split(rows, {**split, "held_out_agents": ["a1"]})
    assert all(t.meta["agent"] != "a1" for t in parts["train"])
    assert any(t.meta["agent"] == "a1" for t in parts["test"])
    bad = tmp_path / "split.json"
    bad.write_text('{"train": ["q1"], "calibration": [], "test": ["q1"]}')
    with pytest.raises(ConfigError, match="'q1' is in train and in test"):
        load_split(bad)


def test_drills_are_traces_of_which_only_the_verdicts_are_learned(prompter) -> None:
    rows = drill_rows(prompter, 24, seed=0)
    assert len(rows) == 24
    data = as_dataset(rows)
    verdicts = set()
    for row, example in zip(rows, data, strict=True):
        text = prompter.tokenizer.decode(row.completion)
        assert "call search" not in text and example["input_ids"] == row.completion
        learned = [i for i, token in enumerate(example["labels"]) if token != -100]
        assert learned == sorted(row.learned) and 0 not in learned
        words = prompter.tokenizer.decode([row.completion[i] for i in learned]).split()
        verdicts |= set(words)
        assert words == [line.split()[-1] for line in text.strip().splitlines()]
    assert verdicts == {"good", "bad"}


def test_a_critique_that_follows_a_turned_trace_is_learned_at_its_verdicts_alone(prompter) -> None:
    turned, lines = 0, 0
    for n, (trajectory, annotation) in enumerate(make_transcripts(24, seed=3)):
        built, plain = follow_row(prompter, trajectory, annotation, random.Random(n)), None
        assert built is not None and built.learned is not None
        plain = make_row(prompter, trajectory, "full", JudgementTarget(0.5, "annotation", annotation=annotation), RNG)
        assert plain is not None and built.prompt == plain.prompt
        text = prompter.tokenizer.decode(built.completion)
        trace, critique = text.split("</think><critique>")
        words = [line.split()[-1] for line in trace.splitlines()]
        assert [f.verdict for f in parse_findings(critique, len(words))] == words
        learned = [prompter.tokenizer.decode([built.completion[i]]).strip() for i in built.learned]
        assert learned == words  # a verdict is one token here
        original = [line.split()[-1] for line in (annotation.trace or "").splitlines()]
        turned, lines = turned + sum(a != b for a, b in zip(words, original, strict=True)), lines + len(original)
    assert 0.2 < turned / lines < 0.4
    assert follow_row(prompter, row(1, "q", 1.0), ANNOTATION, random.Random(0)) is None  # not the lab's trace


def test_followed_rows_come_beside_the_full_ones_in_batches_of_their_own(prompter) -> None:
    pairs = make_transcripts(24, seed=4)
    rows = [t for t, _ in pairs]
    labels, _ = targets_of(rows, {a.trajectory_id: a for _, a in pairs}, "annotation")
    follow = FollowSettings(rows="reagent.lab.pretraining_rows:follow_row", share=0.5)
    settings = SFTSettings(epochs=1, batch_size=4, consistency_rows=follow, mix=MixConfig(score=1, critique=0, full=1))
    drawn = schedule(prompter, rows, labels, settings, seed=0)
    parts = [{r.learned is None for r in drawn[i : i + 4]} for i in range(0, len(drawn), 4)]
    assert all(len(batch) == 1 for batch in parts) and parts.count({False}) == 3
    without = schedule(prompter, rows, labels, settings.model_copy(update={"consistency_rows": None}), seed=0)
    assert len(without) == len(drawn) - 12


@pytest.mark.parametrize("content", ["[1]", "{", '{"train": [1]}'])
def test_a_bad_split_file_says_what_it_should_be(tmp_path, content: str) -> None:
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(ConfigError, match=r"s\.json"):
        load_split(tmp_path / "s.json", parts=())
    with pytest.raises(ConfigError, match="cannot be read"):
        load_split(tmp_path / "absent.json")
    (tmp_path / "s.json").write_text('{"train": ["q"], "test": []}')
    with pytest.raises(ConfigError, match=r"no list of question ids under 'calibration'; there are: train, test"):
        load_split(tmp_path / "s.json")


def test_what_is_no_part_of_a_split_file_is_left_out(tmp_path) -> None:
    """The committed splits of MINT say which seed drew them."""
    path = tmp_path / "s.json"
    path.write_text('{"seed": 0, "fold": 1, "train": ["q1"], "calibration": [], "test": ["q2"]}')
    assert load_split(path) == {"train": ["q1"], "calibration": [], "test": ["q2"]}
    path.write_text('{"seed": 0, "train": 1, "calibration": [], "test": []}')
    with pytest.raises(ConfigError, match="all ids as texts"):
        load_split(path)
    for committed in sorted((Path(__file__).parents[3] / "benchmarks" / "splits").glob("*.json")):
        assert load_split(committed)["train"]


def test_a_part_is_read_apart_from_those_that_are_not_asked_for(tmp_path) -> None:
    (tmp_path / "s.json").write_text('{"train": ["q1"], "dev": ["q2"], "test": ["q2"], "held_out_agents": ["a"]}')
    split = load_split(tmp_path / "s.json", ("test", "train"))
    assert split.keys() == {"train", "test", "held_out_agents"}
    parts = apply_split([row(1, "q1", 1.0), row(2, "q2", 1.0), row(3, "q1", 1.0, agent="b")], split)
    assert {name: [t.id for t in rows] for name, rows in parts.items()} == {"train": ["3"], "test": ["2"]}


def test_rows_that_share_a_training_rows_text_under_another_id_are_counted() -> None:
    rows = [row(i, f"Who founded town {i % 10}?", 1.0) for i in range(60)]
    rows = [t.model_copy(update={"question_id": f"run-{t.id}"}) for t in rows]
    parts = apply_split(rows, make_split(rows, DataConfig(), 0))
    learned = {t.task for t in parts["train"]}
    assert shared_texts(parts) == {p: sum(t.task in learned for t in parts[p]) for p in ("calibration", "test")}
    assert shared_texts(parts)["test"] > 0
    rows = [t.model_copy(update={"question_id": t.task}) for t in rows]
    assert set(shared_texts(apply_split(rows, make_split(rows, DataConfig(), 0))).values()) == {0}


def test_a_mode_that_writes_is_trained_on_windows_as_a_judge_reads_them(prompter) -> None:
    messages: list[Message] = [Message(role="user", content="q")]
    for k in range(1, 31):
        messages += [
            Message(role="assistant", content=f"answer {k}"),
            Message(role="tool", content=f"seen {k} and seen {k}"),
        ]
    lines = {k: f"[step {k}] {'bad' if k % 2 else 'good'}: check {k}" for k in (1, 2, 28, 29, 30)}
    findings = [Finding(step=k, verdict="bad" if k % 2 else "good", text=f"check {k}") for k in lines]
    complete = ANNOTATION.model_copy(
        update={"critique": "In all: no.\n" + "\n".join(lines.values()), "findings": findings}
    )
    trajectory = row(1, "q", 0.0).model_copy(update={"messages": messages})
    target = JudgementTarget(0.0, "outcome", annotation=complete)
    plan = prompter.plan(trajectory, "critique")
    assert len(plan) > 4
    drawn = window_rows(prompter, trajectory, "critique", target, random.Random(3), 0.0)
    texts = [(prompter.tokenizer.decode(r.prompt), prompter.tokenizer.decode(r.completion)) for r in drawn]
    for prompt, completion in texts:  # each speaks of the steps it shows, and of no other
        spoken = {int(k) for k in re.findall(r"\[step (\d+)\]", completion)}
        assert spoken == shown_steps(prompt) & set(lines)
    assert {int(k) for _, c in texts for k in re.findall(r"\[step (\d+)\]", c)} == set(lines)
    assert len(texts) < len(plan)  # windows of which nothing is said teach nothing
    assert drawn[0].prompt == prompter.reading(plan, 0, "critique").ids
    marked = re.findall(r"^\[step (\d+)\] .*\(bad\)$", texts[-1][0], re.MULTILINE)
    assert "(bad)" not in texts[0][0] and set(marked) <= {"1", "29"} - {str(k) for k in shown_steps(texts[-1][0])}
    short = row(1, "q", 0.0)
    plain = window_rows(prompter, short, "critique", JudgementTarget(0.0, "outcome", annotation=ANNOTATION), RNG)
    assert [r.prompt for r in plain] == [prompter.encode(prompter.text(short, "critique")[0])]
