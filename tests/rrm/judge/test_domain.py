"""The mark "outside what this judge was measured on": by hand, kept exactly, its share, hostile text, and where it is told."""

from __future__ import annotations

import json
import logging
import math
import random
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rrm.cli.eval_cmd import outside_by_source
from rrm.data.feedback import OUTSIDE, Feedback, JudgeInfo
from rrm.data.trajectory import Message, ToolCall, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.domain import FILE, MOST_BYTES, Group, OutOfDomainDetector, features, fit_domain, widened
from rrm.judge.judge_dir import JudgeSettings, content_hash, save_settings
from rrm.judge.transcript_form import words_of
from rrm.prompt.forms import in_form
from rrm.scoring.run import score_file

WORDS = ("river", "stone", "paper", "house", "cloud", "glass", "train", "bread", "light", "wheel")


def react(n: int, source: str | None = "react") -> Trajectory:
    """A run that thinks and acts in text."""
    rng = random.Random(n)
    messages = [Message(role="user", content=f"Find the {rng.choice(WORDS)} of {rng.choice(WORDS)}.")]
    for k in range(rng.randint(1, 4)):
        messages += [
            Message(role="assistant", content=f"Thought {k}: look for {rng.choice(WORDS)}\nAction {k}: Search[x]"),
            Message(role="tool", content="\n".join(["Observation: found", *rng.choices(WORDS, k=rng.randint(1, 9))])),
        ]
    return Trajectory(id=f"r{n}", task="t", messages=messages, meta={} if source is None else {"source": source})


def code(n: int) -> Trajectory:
    """A run that calls a tool with code."""
    rng = random.Random(n)
    call = ToolCall(name="python", arguments={"code": f"print({n})"})
    messages = [Message(role="system", content="You are a coder."), Message(role="user", content=rng.choice(WORDS))]
    for _ in range(rng.randint(1, 3)):
        said = f"<plan>{rng.choice(WORDS)}</plan>"
        messages += [
            Message(role="assistant", content=said, tool_calls=[call]),
            Message(role="tool", content="{'x': 1}"),
        ]
    return Trajectory(id=f"c{n}", task="t", messages=messages, meta={"source": "code"})


@pytest.fixture(scope="module")
def domain() -> OutOfDomainDetector:
    return fit_domain([react(n) for n in range(80)], [react(n) for n in range(100, 200)])


def test_distance_by_hand() -> None:
    near = Group(name="g", rows=1, scale=0.5, centroid={"a": 0.6, "b": 0.8})
    far = Group(name="h", rows=1, scale=4.0, centroid={"b": 0.1})
    model = OutOfDomainDetector(
        threshold=2.0, share=0.05, rows=2, calibration_rows=1, unknown=12.0, idf={"a": 3.0, "b": 4.0}, groups=[near]
    )
    assert model.distance_of(Counter(a=1, b=1)) == pytest.approx(0.0, abs=1e-12)
    assert model.distance_of(Counter(a=5)) == pytest.approx(-math.log(0.6) / 0.5 / 2)  # alone, its count is no matter
    assert model.distance_of(Counter(b=1, never=1)) == pytest.approx(-math.log(3.2 / math.sqrt(16 + 144)) / 0.5 / 2)
    twice = 4 * (1 + math.log(2))
    both = (3 * 0.6 + twice * 0.8) / math.hypot(3, twice)
    assert model.distance_of(Counter(a=1, b=2)) == pytest.approx(-math.log(both) / 0.5 / 2)
    for nothing in (Counter[str](), Counter(never=3)):
        assert model.distance_of(nothing) == pytest.approx(-math.log(1e-3) / 0.5 / 2)
    two = model.model_copy(update={"groups": [near, far]})
    assert two.distance_of(Counter(b=1)) == pytest.approx(min(-math.log(0.8) / 0.5, -math.log(0.1) / 4) / 2)


def test_features_are_of_form_and_not_of_subject() -> None:
    one, other = react(1), react(1)
    other.messages[2] = Message(role="tool", content="Observation: found\nquite other words")
    assert features(one)["a:line:thought 0"] == sum(m.role == "assistant" for m in one.messages)
    assert features(one)["o:line:observation :"] == features(other)["o:line:observation :"]
    assert {"call:python", "argument:python.code", "a:tag:<plan>", "turns:^su"} <= set(features(code(0)))


def test_the_share_on_data_of_its_own_and_another_format(domain: OutOfDomainDetector) -> None:
    held_out = [domain.distance(react(n)) > 1 for n in range(300, 500)]
    assert sum(held_out) / len(held_out) <= 0.12
    assert sum(domain.distance(react(n)) > 1 for n in range(100, 200)) == 5  # the share asked for
    assert all(domain.distance(code(n)) > 1 for n in range(50))
    both = fit_domain(
        [*map(react, range(80)), *map(code, range(80))], [*map(react, range(100, 200)), *map(code, range(100, 200))]
    )
    assert [group.name for group in both.groups] == ["code", "react"]
    assert sum(both.distance(code(n)) > 1 for n in range(300, 400)) <= 12


def test_without_sources_all_is_one_group_and_too_few_rows_are_refused() -> None:
    rows = [react(n, None) for n in range(60)]
    assert [group.name for group in fit_domain(rows[:30], rows[30:]).groups] == [""]
    with pytest.raises(RRMError, match="3 training and 30 calibration"):
        fit_domain(rows[:3], rows[30:])


def test_it_is_kept_and_loaded_exactly_and_cut_to_its_size(domain: OutOfDomainDetector, tmp_path: Path) -> None:
    assert domain.save(tmp_path).stat().st_size < MOST_BYTES
    assert OutOfDomainDetector.load(tmp_path) == domain
    small = fit_domain([react(n) for n in range(80)], [react(n) for n in range(100, 200)], most_bytes=3500)
    assert 0 < len(small.idf) < len(domain.idf) and len(small.to_json()) <= 3500
    tree = json.loads(domain.to_json())
    for bad in (
        {},
        {**tree, "more": 1},
        {**tree, "threshold": 0},
        {**tree, "unknown": float("nan")},
        {**tree, "groups": []},
        {**tree, "version": 3},
    ):
        (tmp_path / FILE).write_text(json.dumps(bad))
        with pytest.raises(RRMError, match="not a description"):
            OutOfDomainDetector.load(tmp_path)


def test_hostile_text_is_only_text_and_takes_little_time(domain: OutOfDomainDetector, tmp_path: Path) -> None:
    texts = ["\ud800\udfff \x00", "x" * 1_000_000, "<" * 1_000_000, "\n" * 1_000_000, "a:line:thought 0", "١٢٣ ²"]
    started = time.perf_counter()
    rows = [
        Trajectory(id=str(i), task="t", messages=[Message(role="assistant", content=text)])
        for i, text in enumerate(texts)
    ]
    odd = ToolCall(name="\udc00" * 100_000, arguments={"\udc00" * 100_000: 1})
    rows.append(Trajectory(id="odd", task="", messages=[Message(role="assistant", tool_calls=[odd])]))
    rows.append(Trajectory(id="empty", task="", messages=[]))
    assert all(domain.distance(t) > 1 for t in rows)
    assert time.perf_counter() - started < 5
    fitted = fit_domain([rows[0]] * 30 + [rows[6]] * 30, [rows[0]] * 20)
    fitted.save(tmp_path)
    assert OutOfDomainDetector.load(tmp_path) == fitted


def judge_in(folder: Path) -> AgentRRM:
    engine = ScriptedChatEngine(lambda messages, params, key: "<score>0.5</score>")
    return AgentRRM(engine, settings=JudgeSettings(name="mine", opening=False), folder=folder)


def test_a_judge_marks_its_rows_in_every_mode_and_its_hash_stays(domain: OutOfDomainDetector, tmp_path: Path) -> None:
    save_settings(tmp_path, JudgeSettings(name="mine"))
    before = content_hash(tmp_path)
    silent = Trajectory(id="s", task="t", messages=[Message(role="user", content="?")])
    rows = [react(300), code(1), silent]
    assert [f.out_of_domain for f in judge_in(tmp_path).judge(rows)] == [None] * 3
    domain.save(tmp_path)
    assert content_hash(tmp_path) == before
    judge = judge_in(tmp_path)
    for mode in ("score", "critique", "full"):
        heard: list[Feedback] = []
        found = judge.judge(rows, mode=mode, on_feedback=heard.append)
        assert [f.out_of_domain for f in found] == [False, True, None]
        assert {f.id: f.out_of_domain for f in heard} == {f.id: f.out_of_domain for f in found}
        assert [f.score for f in found] == [0.5, 0.5, None]  # it is marked, and scored
        assert found[1].domain_distance == pytest.approx(domain.distance(code(1)), rel=1e-3)
    assert [[f.out_of_domain for f in row] for row in judge.sample(rows[:2], mode="score", k=2)] == [
        [False] * 2,
        [True] * 2,
    ]


def test_of_two_transcripts_with_one_id_neither_is_marked_as_the_other(
    domain: OutOfDomainDetector, tmp_path: Path
) -> None:
    """What `on_feedback` heard of the first had the mark of the second."""
    domain.save(tmp_path)
    rows = [react(300), code(1).model_copy(update={"id": react(300).id})]
    heard: list[bool | None] = []
    found = judge_in(tmp_path).judge(rows, mode="score", on_feedback=lambda f: heard.append(f.out_of_domain))
    assert heard == [None, None] and [f.out_of_domain for f in found] == [False, True]


def test_a_row_is_outside_by_the_distance_it_says(domain: OutOfDomainDetector) -> None:
    """One at 1.00004 was outside, and said 1.0."""
    t = code(1)
    near = domain.model_copy(update={"threshold": domain.threshold * domain.distance(t) / 1.00004})
    assert near.distance(t) > 1.0 and near.flag(t) == (False, 1.0)
    over = domain.model_copy(update={"threshold": domain.threshold * domain.distance(t) / 1.0006})
    assert over.flag(t) == (True, pytest.approx(1.001))


def test_a_small_source_joins_the_transcripts_without_one() -> None:
    rows = [react(n) for n in range(40)] + [code(n) for n in range(5)]
    found = fit_domain(rows, [react(n) for n in range(100, 130)])
    assert {group.name: group.rows for group in found.groups} == {"": 5, "react": 40}


def test_a_served_judge_reads_it_and_saving_copies_it(domain: OutOfDomainDetector, tmp_path: Path) -> None:
    save_settings(tmp_path / "one", JudgeSettings(name="mine", prompt_version="1"))
    domain.save(tmp_path / "one")
    served = AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", settings=tmp_path / "one")
    assert served.domain == domain
    served.save_pretrained(tmp_path / "two")
    assert OutOfDomainDetector.load(tmp_path / "two") == domain


def test_the_summary_counts_them_also_of_an_earlier_run(
    domain: OutOfDomainDetector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    domain.save(tmp_path)
    rows, output = [react(300), code(1), code(2)], tmp_path / "out.jsonl"
    with caplog.at_level(logging.WARNING):
        summary = score_file(judge_in(tmp_path), rows[:2], output, mode="score")
    assert summary.out_of_domain == {"outside": 1, "rows": 2}
    assert f"1 of 2 transcripts are {OUTSIDE}" in caplog.text
    assert json.loads(output.read_text().splitlines()[1])["out_of_domain"] is True
    assert score_file(judge_in(tmp_path), rows, output, mode="score").out_of_domain == {"outside": 2, "rows": 3}
    plain = score_file(judge_in(tmp_path / "none"), rows, tmp_path / "plain.jsonl", mode="score")
    assert plain.out_of_domain is None


def test_training_describes_its_rows_or_says_why_not(tmp_path: Path) -> None:
    from rrm.train.export import describe_domain

    parts = {"train": [*map(react, range(60)), *map(code, range(40))], "test": [react(300), *map(code, range(50, 53))]}
    parts["calibration"] = [*map(react, range(100, 130)), *map(code, range(100, 130))]
    run: Any = SimpleNamespace(parts=parts, config=SimpleNamespace(seed=0))
    judge = judge_in(tmp_path)
    card = describe_domain(judge, tmp_path, run)
    assert card["groups"] == {"code": 40, "react": 60} and card["calibration_rows"] == 60
    assert OutOfDomainDetector.load(tmp_path) == judge.domain
    parts["calibration"] = parts["calibration"][:5]
    assert "5 calibration transcripts" in describe_domain(judge, tmp_path, run)["skipped"]


def test_an_evaluation_counts_them_by_source() -> None:
    info = JudgeInfo(model="m", prompt_version="2", mode="score")
    rows = [react(1), react(2), code(1), react(3, None)]
    said = [
        Feedback(id=t.id, status="scored", judge=info, out_of_domain=mark)
        for t, mark in zip(rows, (True, False, True, None), strict=True)
    ]
    assert outside_by_source(rows, said) == {
        "code": {"share": 1.0, "outside": 1, "rows": 1},
        "react": {"share": 0.5, "outside": 1, "rows": 2},
    }
    assert outside_by_source(rows[3:], said[3:]) is None


# ---- version 2: shapes of canonical steps ----


def _support(id: str, name: str = "get_order", said: str = "I look the order up for you now.") -> Trajectory:
    call = {"id": "1", "name": name, "arguments": {"order": id}}
    return Trajectory.model_validate(
        {
            "id": id,
            "task": f"When is the order {id} sent to me?",
            "messages": [
                {"role": "user", "content": f"When is the order {id} sent to me?"},
                {"role": "assistant", "content": said, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": f"order {id}: it is on the way to you"},
                {"role": "assistant", "content": f"The order {id} is on its way."},
            ],
        }
    )


def test_version_two_knows_a_run_by_its_steps_whatever_its_tools_and_its_form() -> None:
    domain = fit_domain([_support(f"A{i}") for i in range(30)], [_support(f"B{i}") for i in range(30)], version=2)
    assert not domain.flag(_support("C1"))[0]
    assert not domain.flag(_support("C1", name="orders.find_by_id"))[0]
    assert domain.distance(in_form(_support("C1"), "react")) == domain.distance(_support("C1"))
    foreign = _support("C1", said="我现在为您查询订单我现在为您查询订单我现在为您查询订单我现在为您查询订单")
    assert domain.distance(foreign) > domain.distance(_support("C1"))
    talk = Trajectory.model_validate(
        {"id": "s", "messages": [{"role": "assistant", "content": "Once upon a time. " * 400}]}
    )
    assert domain.flag(talk)[0]


def test_version_two_is_stored_and_read_as_such(tmp_path: Path) -> None:
    domain = fit_domain([_support(f"A{i}") for i in range(30)], [_support(f"B{i}") for i in range(30)], version=2)
    domain.save(tmp_path)
    assert OutOfDomainDetector.load(tmp_path) == domain and domain.version == 2
    assert not any("order" in feature for feature in domain.idf)


def _german(id: str) -> Trajectory:
    call = {"id": "1", "name": "get_order", "arguments": {"order": id}}
    asked = f"Wann wird meine Bestellung {id} geliefert, und kann ich die Anschrift noch ändern?"
    return Trajectory.model_validate(
        {
            "id": id,
            "task": asked,
            "question_id": id,
            "messages": [
                {"role": "user", "content": asked},
                {"role": "assistant", "content": "Ich sehe gerne für Sie nach.", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": f"order {id}: it is on the way to you"},
                {"role": "assistant", "content": "Ihre Bestellung ist unterwegs und kommt morgen bei Ihnen an."},
            ],
        }
    )


def test_version_two_knows_another_language_by_its_words() -> None:
    domain = fit_domain([_support(f"A{i}") for i in range(30)], [_support(f"B{i}") for i in range(30)], version=2)
    assert domain.flag(_german("C1"))[0] and domain.unknown_words == 0.5
    assert domain.distance(_german("C1")) >= domain.unknown_share(words_of(_german("C1"))) / 0.5
    other = _support("C1", said="Your parcel? Let me look for the order, it is on the way to you now.")
    assert not domain.flag(other)[0], "words of another subject are no other language"
    few = Trajectory.model_validate({"id": "f", "messages": [{"role": "assistant", "content": "Vier."}]})
    assert domain.unknown_share(words_of(few)) == 0.0


@pytest.mark.parametrize("version", [1, 2])
def test_it_widens_to_a_user_s_transcripts_and_takes_nothing_back(version: int, tmp_path: Path) -> None:
    domain = fit_domain([_support(f"A{i}") for i in range(30)], [_support(f"B{i}") for i in range(30)], version=version)
    wide = widened(domain, [_german(f"D{i}") for i in range(25)], "mine")
    wide.save(tmp_path)
    assert OutOfDomainDetector.load(tmp_path) == wide and [group.name for group in wide.groups] == ["", "mine"]
    assert domain.flag(_german("E1"))[0] and not wide.flag(_german("E1"))[0]
    assert not wide.flag(_support("C1"))[0]
    said = "Quand sera livrée votre commande ? Un instant, je cherche tout de suite dans nos dossiers, puis nous répondrons. "
    messages = [{"role": "user", "content": said}, {"role": "assistant", "content": said * 9}]
    talk = Trajectory.model_validate({"id": "F1", "messages": messages})
    assert wide.flag(talk)[0], "neither language"
    with pytest.raises(RRMError, match="19 transcripts with a step: 20 are needed"):
        widened(domain, [_german(f"D{i}") for i in range(19)], "mine")
