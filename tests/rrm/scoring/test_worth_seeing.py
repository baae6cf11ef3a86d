"""examples/worth_seeing.py, with which quickstart ends: which runs it picks, what it says of them, and the commands around it."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.trajectory import Message, Trajectory, read_canonical, write_jsonl
from rrm.errors import RRMError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
JUDGE = JudgeInfo(model="m", prompt_version="2", mode="full")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("worth_seeing", EXAMPLES / "worth_seeing.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def attempt(n: int, outcome: float | None, said: str = "after") -> Trajectory:
    messages = [Message(role="user", content=f"Question {n}?"), Message(role="assistant", content=said)]
    return Trajectory(id=f"t{n}/0", task=f"Question {n}?", question_id=f"q{n}", messages=messages, outcome=outcome)


def judged(id: str, score: float | None, *findings: tuple[int, Any, str]) -> Feedback:
    found = [Finding(step=step, verdict=verdict, text=text) for step, verdict, text in findings]
    status = "judge_error" if score is None else "scored"
    return Feedback(id=id, status=status, score=score, raw_score=score, findings=found, judge=JUDGE)


def picked(example: ModuleType, *given: Any, **how: Any) -> list[tuple[str, float | None]]:
    return [(t.id, t.outcome) for t in example.pick(*given, **{"each": 2, "seed": 0, **how})]


def test_as_many_failures_as_successes_each_beside_the_attempt_before(example: ModuleType) -> None:
    after = [attempt(n, float(n % 5 == 0)) for n in range(20)] + [attempt(20, None)]
    before = [attempt(n, 0.0, "before") for n in range(20) if n != 5]
    scores = {t.id: t.outcome for t in after} | {"t5/0": 0.1, "t7/0": 0.6, "t8/0": 0.9, "t9/0": None, "t10/0": 0.5}
    found = picked(example, after, scores, before)
    trained = [(id, outcome) for id, outcome in found if id.startswith("trained/")]
    # half of either kind by disagreement: 0.9 beside a failure, 0.1 beside a success
    assert {"trained/t5/0", "trained/t8/0"} <= {id for id, _ in trained} and "trained/t20/0" not in dict(trained)
    assert [[o for _, o in trained].count(outcome) for outcome in (0.0, 1.0)] == [2, 2]
    for n, (id, _) in enumerate(found):
        other = id.replace("trained/", "before/")
        if id.startswith("trained/") and id != "trained/t5/0":
            assert found[n + 1] == (other, 0.0)
    assert len(found) == 7 and found == picked(example, after, scores, before)
    draws = {tuple(picked(example, after, scores, before, seed=seed)) for seed in range(8)}
    assert len(draws) > 1


def test_a_kind_of_which_there_are_few_is_taken_whole(example: ModuleType) -> None:
    after = [attempt(n, float(n == 3)) for n in range(6)]
    found = picked(example, after, {}, [], each=4)
    assert sum(o == 1.0 for _, o in found) == 1 and sum(o == 0.0 for _, o in found) == 4
    assert picked(example, [attempt(0, None)], {}, [attempt(0, 1.0)]) == []


def test_three_lines_say_where_to_begin(example: ModuleType) -> None:
    runs = [
        attempt(n, outcome).model_copy(update={"id": f"trained/t{n}/0"}) for n, outcome in enumerate((0, 0, 1, 1, 0, 1))
    ]
    runs.append(attempt(0, 0.0).model_copy(update={"id": "before/t0/0"}))
    rows = [
        judged("trained/t0/0", 0.2, (1, "good", "asks"), (2, "bad", "a guess")),
        judged("trained/t1/0", 0.1, (1, "unclear", "?"), (3, "bad", "wrong entity")),
        judged("trained/t2/0", 0.8, (1, "good", "finds it")),
        judged("trained/t3/0", 0.3),
        judged("trained/t4/0", 0.75, (1, "good", "looks right")),
        judged("trained/t5/0", None),
        judged("before/t0/0", 0.0, (1, "bad", "not the trained agent's")),
    ]
    assert example.look(runs, rows, "q/runs.html") == [
        "a failure that the judge saw: outcome 0, score 0.10; step 3 bad: wrong entity\n    q/runs.html#trained%2Ft1%2F0",
        "a success that it saw: outcome 1, score 0.80; step 1 good: finds it\n    q/runs.html#trained%2Ft2%2F0",
        "judge and outcome disagree in 2 of 5: outcome 0, score 0.75; step 1 good: looks right\n    q/runs.html#trained%2Ft4%2F0",
    ]
    assert example.look(runs[:1], rows[:1], "p")[1:] == [
        "a success that it saw: none here",
        "judge and outcome disagree in 0 of 1: none here",
    ]


def test_the_commands_by_files(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    after, before = ([attempt(n, n % 2 * won) for n in range(4)] for won in (1.0, 0.0))
    write_jsonl(tmp_path / "r.jsonl", after)
    write_jsonl(tmp_path / "base.jsonl", before)
    (tmp_path / "r.scored.jsonl").write_text("".join(judged(t.id, 0.9).model_dump_json() + "\n" for t in after))
    given = [str(tmp_path / name) for name in ("r.jsonl", "r.scored.jsonl", "base.jsonl")]
    example.main(["pick", *given, "-o", str(tmp_path / "runs.jsonl"), "--each", "1"])
    runs = list(read_canonical(tmp_path / "runs.jsonl"))
    assert [t.id.partition("/")[0] for t in runs] == ["trained", "before"] * 2
    (tmp_path / "s.jsonl").write_text("".join(judged(t.id, 0.9).model_dump_json() + "\n" for t in runs))
    example.main(["look", str(tmp_path / "runs.jsonl"), str(tmp_path / "s.jsonl"), "runs.html"])
    assert "judge and outcome disagree in 1 of 2: outcome 0, score 0.90\n" in capsys.readouterr().out
    write_jsonl(tmp_path / "r.jsonl", [t.model_copy(update={"outcome": None}) for t in after])
    with pytest.raises(RRMError, match="no run has an outcome"):
        example.main(["pick", *given, "-o", str(tmp_path / "runs.jsonl")])


def test_quickstart_gives_it_what_it_takes(example: ModuleType) -> None:
    """Files that the script names are files that an earlier line of it writes, and its options exist."""
    script = (EXAMPLES / "quickstart.sh").read_text().replace("\\\n", " ")
    lines = [line for line in script.splitlines() if "worth_seeing.py" in line]
    commands = [shlex.split(line.partition("worth_seeing.py")[2]) for line in lines]
    assert [example.parser().parse_args(given).command for given in commands] == ["pick", "look"]
    made = set(re.findall(r"(?:-o|--transcripts|--html) \"?(\$Q/[\w$.]+)", script))
    made |= {f"$Q/{name}{end}" for name in re.findall(r"\bplay (\w+)", script) for end in (".jsonl", ".scored.jsonl")}
    read = {
        part for given in commands for n, part in enumerate(given) if part.startswith("$Q") and given[n - 1] != "-o"
    }
    assert read <= made, read - made
    scored = next(
        line for line in script.splitlines() if "$Q/runs.scored.jsonl" in line and line.startswith("rrm score")
    )
    assert "--model lab" in scored and "--html" in scored
