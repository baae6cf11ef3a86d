"""The mixture's cautions, by hand: cuts, labels that may be learned, joined questions, held-out agents and sources."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.default_judge import mixture, sources, split
from benchmarks.default_judge.sources import Example
from rrm.config import load_config
from rrm.data.annotation import Annotation, Finding, match
from rrm.data.splits import load_split
from rrm.data.trajectory import Message, Trajectory


def put(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Rows as gzipped JSONL; returns the data folder, whose parts the readers find by name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return path.parent


def talk(*said: tuple[str, str]) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in said]


def more(**fields: Any) -> dict[str, Any]:
    """A row of transcripts_more; `meta` is merged into what every row has."""
    return {"question_id": "q1", "agent": "bot", "tools": None, "outcome": 0.0, "meta": {}, **fields}


def texts(row: Example) -> list[str]:
    return [m.text() for m in row.trajectory.messages]


# ---- cuts and labels ---------------------------------------------------------------------------------------------------


def test_a_mint_critic_row_gives_verdicts_on_steps_and_no_outcome(tmp_path: Path) -> None:
    messages = talk(
        ("user", "What is 6 x 7?"),
        ("assistant", "I add 6 and 7: 13"),
        ("tool", "Observation: 13"),
        ("assistant", "I try again"),
        ("tool", "Observation: nothing"),
        ("assistant", "<solution>41</solution> and I am sure: Your answer is correct."),
        ("tool", "Your answer is wrong."),
        ("assistant", "<solution>42</solution>"),
    )
    critiques = [
        {"after_message": 1, "good": False, "text": "This is BAD. Multiply instead of adding the numbers."},
        {
            "after_message": 3,
            "good": True,
            "text": "This is GOOD. It should be 42 in the end.",
        },  # gives the answer away
        {"after_message": 7, "good": True, "text": "This is GOOD. The agent is done."},  # after the cut
    ]
    row = {"id": "m1", "task": "gsm8k", "question_id": "q1", "agent": "bot", "critic": "gpt-4", "messages": messages}
    row |= {"outcome": True, "reference": "42", "finish": "task_success", "actions": {"propose_solution": 1}}
    for name in ("hotpotqa", "gsm8k", "math", "theoremqa"):
        put(
            tmp_path / "transcripts" / "mint" / f"{name}.jsonl.gz",
            [row | {"critiques": critiques}] if name == "gsm8k" else [],
        )
    (found,) = sources.mint_critiques(tmp_path)
    assert found.source == "mint_critic/gsm8k" and found.trajectory.outcome is None
    assert texts(found)[-1] == "<solution>41</solution>"
    assert found.steps() == {1: False, 2: True}
    assert found.annotation and found.annotation.kind == "llm" and found.annotation.annotator == "gpt-4"
    assert found.annotation.critique == "[step 1] bad: Multiply instead of adding the numbers."
    assert list(sources.mint_outcomes(tmp_path)) == []  # rows with a critic carry no outcome to learn


def test_mint_more_ends_at_the_first_proposal_and_is_labelled_by_it(tmp_path: Path) -> None:
    messages = talk(
        ("user", "Write a function to add.\nassert add(1, 2) == 3"),
        ("assistant", "<execute>1</execute>"),
        ("tool", "1"),
        ("assistant", "<solution>def add</solution>\nHuman: Your answer is correct."),
        ("tool", "Your answer is wrong."),
        ("assistant", "<solution>def add(a, b)</solution>"),
    )
    meta = {"task_set": "mbpp", "first_proposal": 3, "first_outcome": 0.0}
    fields = more(id="x", task=messages[0]["content"], messages=messages, outcome=1.0, meta=meta)
    put(tmp_path / "transcripts_more" / "mint_more.jsonl.gz", [fields])
    (found,) = sources.mint_more(tmp_path)
    assert texts(found)[-1] == "<solution>def add</solution>" and len(found.trajectory.messages) == 4
    assert found.trajectory.outcome == 0.0  # the second proposal was right, the first was not
    assert found.keys == ("id:q1", "text:write function to add assert add 1 2 3", "text:write function to add")


def test_alfworld_shows_no_result_of_the_step_it_labels(tmp_path: Path) -> None:
    """A run ends at reward 1, so only the step that earned it has no result: whoever reads results sees the label."""
    messages = talk(
        ("user", "Interact.\nYour task is to: put a pan in sink."),
        ("assistant", "look"),
        ("tool", "a pan 1"),
        ("assistant", "I am done <solution>done</solution>"),
        ("tool", "Your answer is wrong."),
        ("assistant", "put pan 1"),
    )
    meta = {"task_set": "alfworld", "first_proposal": None, "step_rewards": [0.0, 0.0, 1.0]}
    row = more(task=messages[0]["content"], messages=messages, outcome=1.0)
    put(
        tmp_path / "transcripts_more" / "mint_more.jsonl.gz",
        [
            row | {"id": "a", "meta": meta},
            row | {"id": "b", "meta": meta | {"first_proposal": 3, "step_rewards": [0.0, None, 1.0]}},
        ],
    )
    found = list(sources.mint_more(tmp_path))
    assert [(r.trajectory.id, r.steps()) for r in found] == [
        ("a@1", {1: False}),
        ("a@2", {2: False}),
        ("a@3", {3: True}),
        ("b@1", {1: False}),  # after its first proposal the environment tells the verdict
    ]
    assert all(r.trajectory.messages[-1].role == "assistant" and r.trajectory.outcome is None for r in found)
    assert "text:put pan in sink" in found[0].keys


@pytest.mark.parametrize(
    ("environment", "ended", "rewards", "outcome", "good"),
    [
        ("sql", "agent", [None, 0.5, 1.0], 1.0, {2: False, 3: True}),
        ("bash", "agent", [0.67, None, 0.67], 0.0, {1: False, 3: False}),  # 0.67 is what doing nothing earns
        ("sql", "turn limit", [0.0, 0.0, 0.5], 0.0, {1: False, 2: False, 3: False}),
        ("sql", "reward 1 or turn limit", [0.0, 0.0, 1.0], None, {1: False, 2: False, 3: True}),  # its length tells
        ("bash", "model API blocked", [0.0, 0.0, 1.0], None, {1: False, 2: False, 3: True}),
    ],
)
def test_intercode_teaches_the_outcome_only_where_reward_did_not_end_the_run(
    tmp_path: Path,
    environment: str,
    ended: str,
    rewards: list[float | None],
    outcome: float | None,
    good: dict[int, bool],
) -> None:
    messages = talk(("user", "How many?"), ("assistant", "a"), ("tool", "1"), ("assistant", "b"), ("assistant", "c"))
    meta = {"environment": environment, "ended": ended, "step_rewards": rewards}
    put(
        tmp_path / "transcripts_more" / "intercode.jsonl.gz",
        [more(id="i", task="How many?", messages=messages, outcome=rewards[-1], meta=meta)],
    )
    (found,) = sources.intercode(tmp_path)
    assert found.source == f"intercode/{environment}"
    assert found.trajectory.outcome == outcome and found.steps() == good


def test_a_reflection_is_kept_unless_it_names_the_answer(tmp_path: Path) -> None:
    row = more(task="Who?", messages=talk(("user", "Who?"), ("assistant", "Finish[Bob]")))
    said = ("I guessed too early and should have searched.", "I should have answered Alice Munro.", None)
    rows = [row | {"id": str(i), "critique": text, "reference": "Alice Munro"} for i, text in enumerate(said)]
    put(tmp_path / "transcripts_more" / "reflexion.jsonl.gz", rows)
    found = list(sources.reflexion(tmp_path))
    assert [r.annotation and r.annotation.critique for r in found] == [said[0], None, None]
    assert [r.trajectory.outcome for r in found] == [0.0, 0.0, 0.0]


def test_a_verdict_of_the_environment_is_cut_and_the_agent_named_by_its_file(tmp_path: Path) -> None:
    traj = "Thought 1: easy\nAction 1: search[x]\nObservation 1: a page\nThought 2: done\nAction 2: finish[y]\nObservation 2: Episode finished, reward = True\n"
    folder = tmp_path / "transcripts" / "fireact"
    folder.mkdir(parents=True)
    runs = {
        "0": {
            "question": "What is x?",
            "reward": True,
            "em": True,
            "f1": 1.0,
            "gt": "y",
            "pred": "y",
            "traj": "Question: What is x?\n" + traj,
        }
    }
    with gzip.open(folder / "llama_models_lora_llama_2_7b.json.gz", "wt") as out:
        json.dump(runs, out)
    (found,) = sources.fireact(tmp_path)
    assert found.trajectory.outcome == 1.0 and found.trajectory.meta["agent"] == "Llama-2-7b fireact"
    assert not any("reward" in text for text in texts(found))


def test_an_annotation_is_of_the_cut_transcript() -> None:
    run = Trajectory(id="r", task="t", question_id="q", messages=[Message(role="assistant", content=c) for c in "ab"])
    row = sources.example(
        run, "s", outcome=None, findings=[Finding(step=1, verdict="bad")], annotator="x", messages=run.messages[:1]
    )
    assert match([row.trajectory], [row.annotation] if row.annotation else []).strays == []
    assert len(row.trajectory.messages) == 1 and len(run.messages) == 2


# ---- the split ---------------------------------------------------------------------------------------------------------


def row(
    id: str, source: str, question: str, *, task: str = "", agent: str = "bot", y: float | None = 1.0, steps: int = 1
) -> Example:
    messages = [Message(role="assistant", content=f"step {k}") for k in range(steps)]
    meta = {"source": source, "agent": agent}
    t = Trajectory(id=id, task=task or question, question_id=question, messages=messages, outcome=y, meta=meta)
    return Example(t, None, (f"id:{question}", *sources.text_keys(task or question)))


def test_questions_join_by_id_and_by_text_and_through_each_other() -> None:
    found = split.groups_of(
        [("id:1", "text:a"), ("id:2", "text:b"), ("id:2", "text:a"), ("id:3", "text:c"), ("id:4", "text:c")]
    )
    assert found["id:1"] == found["text:b"] == found["id:2"] == found["text:a"]  # 2 has the text of 1 and of its own
    assert found["id:3"] == found["id:4"] != found["id:1"]


def test_a_source_has_its_shares_and_what_is_fixed_stays() -> None:
    groups = {"a": [f"g{i}" for i in range(100)], "b": [f"g{i}" for i in range(90, 110)]}
    fixed = {f"g{i}": "test" for i in range(10)} | {"g10": "train"}
    found = split.deal(groups, fixed, seed=0)
    assert found == split.deal(groups, fixed, seed=0) != split.deal(groups, fixed, seed=1)
    assert found.items() >= fixed.items() and len(found) == 110
    parts = [found[g] for g in groups["a"]]
    assert (parts.count("test"), parts.count("calibration"), parts.count("train")) == (30, 10, 60)


def test_the_split_keeps_mints_parts_joins_paraphrases_and_holds_sources_and_agents_out() -> None:
    rows = [row(f"m{i}", "mint/math", f"m{i}") for i in range(6)]
    rows += [row(f"f{i}", "fireact", f"f{i}") for i in range(20)]
    rows += [row("same", "reflexion", "other-id", task="F3")]  # fireact's question in another form
    rows += [row("r", "r1_searcher/hotpotqa", "r1_searcher/hotpotqa:x", task="f5!"), row("t", "tau_bench", "tau:1")]
    rows += [row("r2", "r1_searcher/hotpotqa", "r1_searcher/hotpotqa:m", task="M0?")]
    agents = [("big", 50), ("strong", 8), ("weak", 8), ("middling", 8), ("once", 1)]
    for agent, n in agents:
        rows += [row(f"{agent}{i}", "intercode/sql", f"s{i % 8}", agent=agent, y=None) for i in range(n)]
    theirs = {"train": ["m0", "m1", "m2"], "calibration": ["m3"], "test": ["m4", "m5"], "held_out_agents": ["zephyr"]}
    made = split.make_split(rows, seed=0, mint_split=theirs)
    where = {q: part for part in mixture.PARTS for q in made[part]}
    assert len(where) == sum(len(made[part]) for part in mixture.PARTS)  # nothing on two sides
    assert [where[f"m{i}"] for i in range(6)] == ["test", "train", "train", "calibration", "test", "test"]
    assert where["f3"] == where["other-id"]
    assert where["f5"] == "test"  # a source held out whole has it
    assert {q for q, part in where.items() if part == "unseen"} == {
        "r1_searcher/hotpotqa:x",
        "r1_searcher/hotpotqa:m",
        "tau:1",
    }
    assert "zephyr" in made["held_out_agents"]
    assert set(made["held_out_agents"]) - {"zephyr"} <= {"strong", "weak", "middling"}  # not too many rows, not too few


def test_held_out_agents_have_test_rows_only() -> None:
    rows = [row(f"{q}{agent}", "s", q, agent=agent) for q in ("a", "b", "c", "u") for agent in ("seen", "held")]
    parts = {"train": ["a"], "calibration": ["b"], "test": ["c"], "unseen": ["u"], "held_out_agents": ["held"]}
    found = mixture.by_part(rows, parts)
    assert {part: [r.trajectory.id for r in mine] for part, mine in found.items()} == {
        "train": ["aseen"],
        "calibration": ["bseen"],
        "test": ["cseen", "cheld"],
        "unseen": ["useen", "uheld"],
    }
    with pytest.raises(ValueError, match="'new' is in no part"):
        mixture.by_part([row("x", "s", "new")], parts)


def test_a_cap_keeps_rows_with_a_partner_first() -> None:
    pairs = [row(f"p{i}", "s", f"q{i // 2}", y=float(i % 2)) for i in range(6)]
    alone = [row(f"a{i}", "s", f"r{i}", y=0.0) for i in range(20)]
    longer = [row("l", "s", "q0", y=1.0, steps=2)]  # of q0, but of another length: no partner
    found = mixture.drawn([*alone, *pairs, *longer], 8, random.Random(0))
    names = [r.trajectory.id for r in found]
    assert len(names) == 8 and {f"p{i}" for i in range(6)} < set(names)
    assert names == sorted(names, key=[r.trajectory.id for r in [*alone, *pairs, *longer]].index)
    assert mixture.drawn(pairs, 6, random.Random(0)) == pairs


def test_what_is_written_is_read_back_with_its_labels(tmp_path: Path) -> None:
    rows = {part: [row(part, "s", part)] for part in mixture.PARTS}
    labelled = rows["train"][0].trajectory
    label = Annotation(
        trajectory_id=labelled.id,
        digest=labelled.digest,
        annotator="x",
        kind="llm",
        findings=[Finding(step=1, verdict="good")],
    )
    rows["train"] = [Example(labelled, label, ())]
    mixture.write(tmp_path, rows)
    read = [Trajectory.from_json(line) for line in (tmp_path / "transcripts.jsonl").read_text().splitlines()]
    assert [(t.id, t.meta["part"]) for t in read] == [(part, part) for part in ("train", "calibration", "test")]
    (annotation,) = map(Annotation.from_json, (tmp_path / "annotations.jsonl").read_text().splitlines())
    assert match(read, [annotation]).by_id.keys() == {"train"}
    assert len((tmp_path / "unseen.jsonl").read_text().splitlines()) == 1


def test_the_config_names_what_the_command_writes() -> None:
    config = load_config("default")
    written = {Path(name).name for name in config.data.trajectories + config.data.annotations}
    assert written == {"transcripts.jsonl", "annotations.jsonl"}
    root = split.SPLIT.parents[2]
    assert config.data.split and root / config.data.split == split.SPLIT
    assert set(load_split(split.SPLIT)) == {"train", "calibration", "test", "held_out_agents"}
    assert config.sft.mix.steps > config.sft.mix.score > 0 and config.sft.balance


def test_one_id_for_two_rows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "READERS", (lambda data: [row("x", "s", "q")] * 2,))
    with pytest.raises(ValueError, match="'x'"):
        sources.load(tmp_path)
