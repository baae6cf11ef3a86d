"""The arms of the study without an answer key: real configs that pay what they say, in the order in which they are run."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.studies.judges import Labels, Others, length
from benchmarks.studies.no_answer_key import Study
from benchmarks.studies.no_answer_key_arms import ARMS, JUDGE, KNOWN, TRAINED, due
from benchmarks.studies.noisy_search import NoisySearch
from benchmarks.studies.study import frozen_judge, judge_hashes, train_once
from reagent.lab.search_env import SearchEnv, world_of
from reagent.lab.shipped import judge_folder
from reagent.train.build_feedback import MODES
from reagent.train.config import AgentConfig, load_agent_config
from reagent.train.guards import check_guards
from rrm.config import load_config
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError


def config_of(arm: str) -> AgentConfig:
    return load_agent_config("lab", Study(Path("/runs"), "/runs/judge").options(arm, 0))


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_is_a_config_and_pays_what_it_says(arm: str) -> None:
    config = config_of(arm)
    asks = MODES[config.feedback.mode].asks_judge(config.feedback)
    assert asks == (ARMS[arm].judge is not None)
    assert config.output_dir == f"/runs/{arm}/seed0" and config.seed == ARMS[arm].offset
    judge = f"/runs/judges/{ARMS[arm].judge}/judge" if ARMS[arm].judge in TRAINED else "/runs/judge"
    assert (config.feedback.judge == judge) == asks
    second = {None: None, "study": "/runs/judge"}.get(ARMS[arm].auditor, f"/runs/judges/{ARMS[arm].auditor}/judge")
    assert config.guards.auditor.judge == second
    check_guards(config)
    assert load_agent_config("lab", Study(Path("/runs"), "/runs/judge").options(arm, 1)).seed == config.seed + 1


@pytest.mark.parametrize("name", TRAINED)
def test_a_judge_of_the_studys_own_is_a_config(name: str) -> None:
    config = load_config("lab", TRAINED[name])
    if name.startswith("rows-"):
        assert sum(config.data.generate_options[kind] for kind in ("transcripts", "wanderers")) == int(name[5:])


def test_judge_only_sees_no_outcome() -> None:
    """In the headline only what pays differs."""
    judge, outcome, nothing = (config_of(arm) for arm in ("judge", "outcome", "nothing"))
    assert (judge.environment.label_share, outcome.environment.label_share) == (0.0, 1.0)
    assert nothing.environment.rewards.outcome == 0.0 and nothing.environment.label_share == 1.0
    same = {"environment": {"label_share", "rewards"}, "feedback": True, "guards": True, "output_dir": True}
    left = [config.model_dump(exclude=same) for config in (judge, outcome, nothing)]  # pyright: ignore[reportArgumentType]
    assert left[0] == left[1] == left[2]
    assert (judge.feedback.mode, judge.feedback.score_weight) == ("r", 1.0)


def test_a_stage_is_run_seed_by_seed_before_the_next() -> None:
    assert len({arm.says for arm in KNOWN.values()}) == len(KNOWN)
    found = due({"placebo": 2, "nothing": 1, "outcome": 2})
    first, second, *others = found
    assert first == [("outcome", 0), ("nothing", 0), ("outcome", 1)] and second == [("placebo", 0), ("placebo", 1)]
    assert not any(others)


def test_a_judge_is_known_by_its_own_weights_and_settings(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.safetensors").write_bytes(b"adapter")
    with pytest.raises(SystemExit, match=r"no judge\.json"):
        judge_hashes(tmp_path)
    (tmp_path / "judge.json").write_text("{}")
    weights, settings = (hashlib.sha256(data).hexdigest() for data in (b"adapter", b"{}"))
    assert judge_hashes(tmp_path) == {"weights": weights, "settings": settings}


def test_the_judge_that_was_named_is_the_one_that_is_shipped() -> None:
    """Another one is to be named before the study is run."""
    assert judge_hashes(judge_folder()) == JUDGE


def test_an_honest_arm_is_guarded_as_the_gamed_one_is() -> None:
    gamed, honest = config_of("gamed"), config_of("honest")
    assert honest.guards.model_copy(update={"auditor": gamed.guards.auditor}) == gamed.guards
    assert (honest.max_updates, honest.eval.every) == (gamed.max_updates, gamed.eval.every) == (48, 4)
    assert honest.feedback == config_of("judge").feedback


def test_a_copy_that_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    source, runs = tmp_path / "source", tmp_path / "runs"
    source.mkdir()
    (source / "judge.json").write_text("{}")
    (source / "model.safetensors").symlink_to(tmp_path / "nowhere")  # the copy stops here
    with pytest.raises(shutil.Error):
        frozen_judge(runs, str(source))
    assert not (runs / "judge").exists()
    (source / "model.safetensors").unlink()
    (source / "model.safetensors").write_bytes(b"whole")
    frozen_judge(runs, str(source))
    assert sorted(path.name for path in (runs / "judge").iterdir()) == ["judge.json", "model.safetensors"]
    assert [path.name for path in runs.iterdir()] == ["judge"]


def test_a_training_is_made_once_and_its_seconds_are_added_up(tmp_path: Path) -> None:
    folder, config, log = tmp_path / "arm" / "seed0", tmp_path / "config.json", tmp_path / "log"
    folder.mkdir(parents=True)
    with pytest.raises(subprocess.CalledProcessError):
        train_once(folder, ["--compact"], log, "json.tool", [str(config)])
    begun = folder.with_suffix(".begun.json")
    kept = json.loads(begun.read_text())
    assert not (folder / "done.json").exists() and kept["seconds"] > 0 and len(kept["commits"]) == 1
    config.write_text("{}")
    begun.write_text(json.dumps(kept | {"seconds": 1000.0, "commits": ["earlier"]}))
    with pytest.raises(SystemExit, match="was begun with"):
        train_once(folder, [], log, "json.tool", [str(config)])
    train_once(folder, ["--compact"], log, "json.tool", [str(config)])
    done = json.loads((folder / "done.json").read_text())
    assert 1000 < done["seconds"] < 1100 and done["options"] == ["--compact"]
    assert done["commits"] == ["earlier", done["commit"]]
    config.unlink()
    train_once(folder, ["--compact"], log, "json.tool", [str(config)])  # nothing is left to do


def trajectory(name: str, steps: int) -> Trajectory:
    messages = [Message(role="user", content=f"question {name}")]
    messages += [Message(role="assistant", content=f"turn {n}") for n in range(steps)]
    return Trajectory(id=name, task=f"question {name}", messages=messages)


def test_the_judge_of_length_counts_steps_alone() -> None:
    said = length().judge([trajectory("a", 3), trajectory("b", 7), trajectory("c", 1)], mode="score")
    assert [feedback.score for feedback in said] == [0.5, 1.0, pytest.approx(0.17)]


def test_others_words_are_dealt_on_by_half() -> None:
    scores = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}

    def say(messages: list[dict[str, str]], params: object, key: str) -> str:
        (name,) = [name for name in scores if f"question {name}" in messages[-1]["content"]]
        return f"<score>{scores[name]}</score>"

    judge = Others(ScriptedChatEngine(say))
    found = judge.judge([trajectory(name, 2) for name in scores], mode="score")
    assert [(f.id, f.score) for f in found] == [("a", 0.3), ("b", 0.4), ("c", 0.1), ("d", 0.2)]
    (alone,) = judge.judge([trajectory("a", 2)], mode="score")
    assert (alone.status, alone.score) == ("judge_error", None)


@pytest.mark.parametrize("sizes", [(5, 1, 2), (1, 6, 1), (3, 3, 2), (7, 1)])
def test_others_words_are_never_of_the_same_task(sizes: tuple[int, ...]) -> None:
    """Attempts that say the same are read once, so that one task can hold more than half of a reading."""
    tasks = [n for n, size in enumerate(sizes) for _ in range(size)]
    runs = [
        trajectory(f"{place}", 2).model_copy(update={"question_id": f"task {n}", "task": f"task {n}."})
        for place, n in enumerate(tasks)
    ]

    def say(messages: list[dict[str, str]], params: object, key: str) -> str:
        (n,) = [n for n in range(len(sizes)) if f"task {n}." in messages[-1]["content"]]
        return f"<score>{n / 10}</score>"

    judge = Others(ScriptedChatEngine(say))
    found = judge.judge(runs, mode="score")
    assert [f.id for f in found] == [t.id for t in runs] and all(f.score is not None for f in found)
    assert all(f.score != n / 10 for f, n in zip(found, tasks, strict=True))
    same = judge.judge([t for t, n in zip(runs, tasks, strict=True) if n == 0], mode="score")
    assert {(f.status, f.score) for f in same} == {("judge_error", None)}


def test_a_noisy_verifier_is_wrong_of_training_answers_alone() -> None:
    env = NoisySearch(flipped=0.3)
    training, held_out = (NoisySearch.make_tasks(300, 0, hops=(1, 2), split=split) for split in ("train", "heldout"))
    plain = SearchEnv.make_tasks(300, 0, hops=(1, 2), split="heldout")
    assert [(t.id, t.question, t.answer) for t in held_out] == [(t.id, t.question, t.answer) for t in plain]
    assert all(env.grade(t, t.answer or "") == 1 and env.grade(t, "nobody") == 0 for t in held_out)
    right = [env.grade(t, t.answer or "") for t in training]
    wrong = [env.grade(t, "nobody") for t in training]
    assert right == [env.grade(t, t.answer or "") for t in training]
    # 300 draws: three standard deviations are 0.08
    assert abs(sum(right) / 300 - 0.7) < 0.08 and abs(sum(wrong) / 300 - 0.3) < 0.08
    exact = NoisySearch(flipped=0.0)
    assert all(exact.grade(t, t.answer or "") == 1 for t in training)
    with pytest.raises(ConfigError, match="share"):
        NoisySearch(flipped=2)


def test_the_judge_of_labels_knows_the_world() -> None:
    tasks = SearchEnv.make_tasks(2, 9, hops=1)
    runs = []
    for task in tasks:
        plan = SearchEnv.plan(task)
        call = plan.move(0, plan.start).call
        assert isinstance(call.arguments, dict)
        found = world_of(task.seed).search(call.arguments["query"])
        said = task.answer if task is tasks[0] else "nobody"
        messages = [
            Message(role="user", content=task.question),
            Message(role="assistant", content="", tool_calls=[call]),
            Message(role="tool", content=found, name="search"),
            Message(role="assistant", content=f"Answer: {said}"),
        ]
        runs.append(Trajectory(id="x", task=task.question, question_id=task.question_id or task.id, messages=messages))
    right, wrong = Labels(tasks).judge(runs, mode="critique")
    assert [[f.verdict for f in one.findings] for one in (right, wrong)] == [["good", "good"], ["good", "bad"]]
    assert (right.status, right.score) == ("scored", 1.0) and wrong.score is not None and wrong.score < 0.5
