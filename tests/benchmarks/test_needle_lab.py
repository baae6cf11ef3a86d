"""The logs that a judge learns the deciding line from, and what is counted as read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.needle import LENGTHS, NEEDLE, cases, make_log
from benchmarks.needle_lab import (
    CONFIG,
    LONGEST,
    MOST_LINES,
    Pair,
    build,
    generate,
    labelled_log,
    summed,
    tokens_read,
    words,
)
from rrm.config import load_config
from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.engines.hf.engine import HFEngine
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter


def test_a_step_is_bad_where_a_fatal_line_stands_and_the_run_where_it_has_one() -> None:
    rows = generate(seed=3, logs=60)
    assert len({t.question_id for t, _ in rows}) == 60
    for log, annotation in rows:
        shown = [step.observations[0].text().splitlines() for step in log.steps]
        bad = [any(line.split()[0] == "FATAL" for line in lines) for lines in shown]
        assert [f.verdict == "bad" for f in annotation.findings or []] == bad
        assert log.outcome == float(not any(bad))
    outcomes = [log.outcome for log, _ in rows]
    assert 0.3 < sum(o or 0.0 for o in outcomes) / len(outcomes) < 0.8
    assert any("\nWARN" in m.text() for log, _ in rows for m in log.messages)


def test_logs_are_short_and_a_longer_list_begins_with_the_shorter() -> None:
    some, more = generate(seed=3, logs=20), generate(seed=3, logs=40)
    assert [t for t, _ in more[:20]] == [t for t, _ in some] != [t for t, _ in generate(seed=4, logs=20)]
    tokens = [sum(len(m.text()) for m in log.messages) / 4 for log, _ in more]
    assert max(tokens) < 1.2 * LONGEST and min(tokens) < 200
    bounded = [labelled_log("a", random.Random(seed))[0] for seed in range(60)]
    most = [max(step.observations[0].text().count("\n") for step in log.steps) for log in bounded]
    assert sum(lines <= MOST_LINES + 5 for lines in most) > len(most) / 2 < len(most)


def test_no_word_of_the_measured_line_is_taught_but_the_first() -> None:
    """The line that is looked for shares one word with those that are learned."""
    rng = random.Random(0)
    taught = {word.strip(":") for _ in range(3000) for word in words(rng).split() if word.strip(":").isalpha()}
    assert not taught & set(NEEDLE.replace(":", "").split()) and len(taught) > 1000
    text = "\n".join(m.text() for log, _ in generate(seed=1, logs=40) for m in log.messages)
    assert "FATAL" in text and "garbage" not in text and "disk" not in text


def test_the_logs_that_are_measured_are_the_scripted_judges() -> None:
    found = list(cases(4, 0))
    assert [tokens for _, tokens, _, _ in found] == [*LENGTHS, *LENGTHS]
    rng = random.Random(0)
    places = [rng.random() for _ in range(4)]
    assert found[0] == (1024, LENGTHS[0], places, rng.randrange(10**6))


def test_tokens_read_are_those_of_the_readings() -> None:
    """Against the readings' own ids; a log within one window is read once, with its slots."""
    config = load_config(str(CONFIG))
    rows = generate(seed=5, logs=12)
    options = {**config.model.options, "hidden_size": 16, "intermediate_size": 16, "layers": 1, "heads": 2}
    model, tokenizer = build([t for t, _ in rows], {}, seed=0, **{**options, "vocab_size": 600})
    assert model.config.max_position_embeddings == 2048 == tokenizer.model_max_length
    prompter = Prompter(tokenizer, 1024)
    judge = AgentRRM(HFEngine(model.eval(), tokenizer), prompter, settings=JudgeSettings(transcript_tokens=1024))
    short, _ = make_log(100, 1)
    said = Feedback(
        id=short.id, status="scored", score=1.0, judge=JudgeInfo(model="m", prompt_version="2", mode="steps")
    )
    transcript, inside, whole, readings = tokens_read(judge, short, said)
    text = prompter.tokenizer.decode(prompter.reading(prompter.plan(short, "steps"), 0, "steps").ids)
    before, content = text[: text.index("Task: ")], text[text.index("Task: ") :]
    assert readings == 1 and transcript < inside < whole == len(prompter.encode(before)) + len(prompter.encode(content))
    around = whole - inside
    long, step = make_log(3000, 1, 0.3)
    marked = said.model_copy(update={"findings": [Finding(step=step or 0, verdict="bad", p_good=0.0)]})
    transcript, inside, whole, readings = tokens_read(judge, long, marked)
    assert readings > 2 and 1.0 < inside / transcript < whole / transcript < 2.1
    assert whole - inside == around + (readings - 1) * len(prompter.encode(before))  # it ends once
    assert inside > tokens_read(judge, long, said)[1]  # the mark stands in every digest that follows


def test_figures_of_a_length_by_hand() -> None:
    def pair(found: bool, alarmed: bool, read: int) -> Pair:
        return Pair(2000, 0.5, 3, 6, [3], 0.1, found, [], 0.9, alarmed, 0.0, 1.0, 1.0, 100, read, read + 10, 4)

    assert summed([pair(True, False, 120), pair(False, True, 160)]) == {
        "tokens": 2000, "logs": 2, "found": 0.5, "alarms": 0.5, "read_per_token": pytest.approx(1.4),
        "read_with_rubrics": pytest.approx(1.5), "coverage": 1.0, "readings": 2.0, "steps": 6.0,
    }  # fmt: skip


def test_the_config_is_one_of_mode_steps_alone() -> None:
    config = load_config(str(CONFIG))
    assert Path(CONFIG).name == "needle_lab.yaml" and config.sft.finding_noise == 0.0
    assert config.sft.mix.model_dump() == {"score": 0.0, "critique": 0.0, "full": 0.0, "steps": 1.0}
