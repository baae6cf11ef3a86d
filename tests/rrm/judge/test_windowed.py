"""Judges that write, over windows: findings, statuses and coverage."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import torch

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.config import CalibrationSettings
from rrm.data.feedback import Feedback, Mode
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import Completion, SamplingParams
from rrm.engines.hf.engine import HFEngine
from rrm.engines.scripted import ScriptedChatEngine, ScriptedEngine
from rrm.errors import EngineError, RRMError
from rrm.evaluation.fit_calibration import calibrate
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt
from rrm.judge.card import calibrated
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.local import expectation
from rrm.prompt.prompter import Prompter

SERVED = JudgeSettings(opening=False, prompt_version="2", transcript_tokens=400)
SCORE = "<score>0.8</score>"
N = 40
"""Steps of a run that takes several windows."""


def run(name: str, steps: int, marks: dict[int, str] | None = None, long: int = 0) -> Trajectory:
    """A run whose steps take some 30 tokens each; `long` is a step of 1,500."""
    messages = [Message(role="user", content="find it")]
    for k in range(1, steps + 1):
        messages.append(Message(role="assistant", content=f"look at number {k} in the store once more"))
        result = "nothing at all " * (400 if k == long else 3) + (marks or {}).get(k, "")
        messages.append(Message(role="tool", content=result))
    return Trajectory(id=name, task="find it", question_id="q", messages=messages)


def shown(content: str) -> list[int]:
    return list(dict.fromkeys(int(k) for k in re.findall(r"^\[step (\d+)\]$", content, re.MULTILINE)))


class Judge:
    """A scripted chat judge: bad where a step's block holds RUIN."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        """What to answer instead, by key."""
        self.asked: list[tuple[str, str, str]] = []
        """(key, rubric, content) of every request."""

    def __call__(self, messages: list[dict[str, str]], params: SamplingParams, key: str) -> Any:
        rubric, content = messages[0]["content"], messages[1]["content"]
        self.asked.append((key, rubric, content))
        if key in self.answers:
            return self.answers[key]
        _, *blocks = re.split(r"^\[step (\d+)\]$", content, flags=re.MULTILINE)
        lines = [
            f"[step {k}] {'bad: ruin' if 'RUIN' in text else 'good: fine'}"
            for k, text in zip(blocks[::2], blocks[1::2], strict=True)
        ]
        score = 0.2 if "RUIN" in content or "(bad)" in content else 0.8
        trace = "\n".join(f"[step {k}] looks" for k in shown(content))
        return f"<think>{trace}</think><critique>{chr(10).join(lines)}</critique><score>{score}</score>"

    def over(self, **changes: Any) -> AgentRRM:
        return AgentRRM(ScriptedChatEngine(self), settings=SERVED.model_copy(update=changes, deep=True))


def verdicts(feedback: Feedback) -> dict[int, str]:
    assert len({f.step for f in feedback.findings}) == len(feedback.findings)
    return {f.step: f.verdict for f in feedback.findings}


@pytest.mark.parametrize("samples", [1, 2])
def test_each_reading_of_a_long_transcript_is_heard_of(samples: int) -> None:
    script, heard = Judge(), list[tuple[str, int]]()
    judge, rows = script.over(), [run("a", N), run("b", 2)]
    judge.judge(rows, mode="full", samples=samples, on_reading=lambda *event: heard.append(event))
    readings = len([key for key, _, _ in script.asked if key.startswith("a")])
    assert readings > samples and heard == [("a", readings)] * readings  # nothing of b, which takes one


def test_readings_of_a_transcript_follow_each_other_and_each_is_told_what_was_found() -> None:
    script = Judge()
    heard: list[str] = []
    feedback = script.over().judge(
        [run("a", N, {2: "RUIN"}), run("b", 2), run("c", N)], mode="full", on_feedback=lambda f: heard.append(f.id)
    )
    keys = [key for key, _, _ in script.asked]
    assert keys[:2] == ["a/reading1", "a/reading2"] and keys[keys.index("a") :][:3] == ["a", "b", "c/reading1"]
    assert heard == ["a", "b", "c"] and [f.id for f in feedback] == ["a", "b", "c"]
    of_a = [content for key, _, content in script.asked if key.startswith("a")]
    assert len(of_a) > 2 and all(re.search(r"^\[step 2\] writes .* \(bad\)$", text, re.M) for text in of_a[1:])
    assert not any("(bad)" in content for key, _, content in script.asked if key.startswith("c"))
    for text, after in pairwise(of_a):
        if N not in shown(text):
            assert text.endswith(f"the run goes on with [step {max(shown(text)) + 1}]\n")
            assert shown(after)[-1] > shown(text)[-1]
    a = feedback[0]
    assert verdicts(a) == {k: "bad" if k == 2 else "good" for k in range(1, N + 1)}
    assert [f.score for f in feedback] == [0.2, 0.8, 0.8] and [f.coverage for f in feedback] == [1.0, 1.0, 1.0]
    assert (a.trace or "").splitlines() == [f"[step {k}] looks" for k in range(1, N + 1)]
    assert (a.critique or "").splitlines() == [
        f"[step {k}] {'bad: ruin' if k == 2 else 'good: fine'}" for k in range(1, N + 1)
    ]
    assert a.reason is None and a.judge.prompt_version == "2" and a.truncated_tokens == 0


@pytest.mark.parametrize("step", [1, 15, 30])
def test_a_score_alone_is_told_of_what_the_critiques_of_earlier_readings_found(step: int) -> None:
    script = Judge()
    (feedback,) = script.over().judge([run("a", N, {step: "RUIN"})], mode="score")
    assert feedback.score == 0.2 and feedback.coverage == 1.0
    rubrics = [rubric for _, rubric, _ in script.asked]
    assert all("<critique>" in r for r in rubrics[:-1]) and "Reply with <score>" in rubrics[-1]


def test_a_step_in_parts_is_bad_where_one_part_is() -> None:
    script = Judge()
    (feedback,) = script.over().judge([run("a", 5, {3: "RUIN"}, long=3)], mode="critique")
    parts = [content for _, _, content in script.asked if 3 in shown(content)]
    assert len(parts) > 2 and sum("RUIN" in content for content in parts) == 1
    assert feedback.findings[2].verdict == "bad" and {f.step for f in feedback.findings} == {1, 2, 3, 4, 5}
    assert verdicts(feedback)[3] == "bad" and feedback.score == 0.2


@pytest.mark.parametrize(
    ("error", "status"),
    [(EngineError("server gone"), "judge_error"), (EngineError("too many", "too_long"), "too_long")],
)
def test_a_reading_without_a_reply_fails_its_row_and_no_other(error: Exception, status: str) -> None:
    script = Judge(**{"a/reading2": error})
    a, b = script.over().judge([run("a", N), run("b", N)], mode="full")
    assert (a.status, a.score, a.findings) == (status, None, [])
    assert re.match(r"reading 2 of \d+: (server gone|too many)", a.reason or "")
    assert a.coverage is not None and 0.0 < a.coverage < 1.0 and b.status == "scored" and b.coverage == 1.0
    assert [key for key, _, _ in script.asked if key.startswith("a")] == ["a/reading1", "a/reading2"]
    (short,) = Judge(short=error).over().judge([run("short", 1)], mode="full")
    assert (short.status, short.coverage) == (status, 0.0)


def test_an_earlier_reading_that_cannot_be_read_lowers_coverage_and_is_named() -> None:
    script = Judge(**{"a/reading2": "I would rather not."})
    trajectory = run("a", N)
    (feedback,) = script.over().judge([trajectory], mode="full")
    plan = script.over().plan(trajectory, "full")
    assert feedback.status == "scored" and feedback.score == 0.8
    assert feedback.coverage == pytest.approx(1 - plan.new_tokens(1) / plan.transcript_tokens)
    assert (feedback.reason or "") == f"reading 2 of {len(plan)} could not be read (no <score> block)"
    assert not set(plan.steps(1)) - set(plan.steps(2)) & {f.step for f in feedback.findings}


def test_the_last_reading_decides_the_status() -> None:
    (feedback,) = Judge(a="No.").over().judge([run("a", N)], mode="full")
    assert (feedback.status, feedback.score, feedback.reason) == ("unparsable", None, "no <score> block")


def test_what_a_reading_says_of_steps_it_does_not_show_is_left_out() -> None:
    critique = f"Overall fine.\n[step 1] bad: never seen here\n[step {N}] good: ends\n[step 99] bad: made up"
    script = Judge(a=f"<think>[step 2] hm\n[step {N}] ends</think><critique>{critique}</critique>{SCORE}")
    (feedback,) = script.over().judge([run("a", N)], mode="full")
    assert 1 not in shown(script.asked[-1][2]) and verdicts(feedback)[1] == "good" and verdicts(feedback)[N] == "good"
    assert "never seen" not in (feedback.critique or "") and "made up" not in (feedback.critique or "")
    assert "Overall fine." in (feedback.critique or "") and "hm" not in (feedback.trace or "")
    assert "steps that the run does not have" in (feedback.reason or "") and "99" in (feedback.reason or "")


def test_each_sample_has_its_own_readings() -> None:
    bad = "<critique>[step 1] bad: no</critique><score>0.5</score>"
    script = Judge(**{"a/sample1/reading1": bad})
    judge = script.over()
    (feedback,) = judge.judge([run("a", N)], mode="critique", samples=2)
    marked = {key: "(bad)" in content for key, _, content in script.asked}
    assert marked["a/sample1/reading2"] and not marked["a/reading2"]
    assert feedback.score == pytest.approx(0.5) and feedback.judge.samples == 2
    first, other = judge.sample([run("a", N)], mode="critique", k=2)[0]
    assert (first.score, other.score) == (0.8, 0.2) and verdicts(other)[1] == "bad"


def test_windowed_scores_have_their_own_calibration() -> None:
    once, windowed = Platt(a=1, b=1, rows=9), Platt(a=2, b=-1, rows=9)
    both = Calibration(modes={"full": once, "full@windowed": windowed})
    long, short = Judge().over(calibration=both).judge([run("a", N), run("b", 2)], mode="full")
    assert long.score == pytest.approx(windowed(0.8)) and short.score == pytest.approx(once(0.8))
    (plain,) = Judge().over(calibration=Calibration(modes={"full": once})).judge([run("a", N)], mode="full")
    assert plain.score == pytest.approx(once(0.8)) and plain.judge.calibrated is False


def test_a_judge_trained_to_score_alone_reads_the_ending_and_says_so() -> None:
    script = Judge()
    (feedback,) = script.over(modes=["score"]).judge([run("a", N)], mode="score")
    assert (
        len(script.asked) == 1
        and feedback.coverage is not None
        and feedback.coverage < 0.6
        and feedback.truncated_tokens > 0
    )


def test_version_one_is_one_request_whose_coverage_is_counted() -> None:
    script = Judge()
    (feedback,) = script.over(prompt_version="1").judge([run("a", N)], mode="full")
    content = script.asked[0][2]
    assert len(script.asked) == 1 and feedback.coverage == pytest.approx(
        len(content) / (len(content) + 4 * feedback.truncated_tokens), abs=0.01
    )
    with pytest.raises(RRMError, match="prompt version 1"):
        script.over(prompt_version="1").plan(run("a", 2), "full")


# ---- a model here ----


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    words = (
        "Task step agent result is good bad. The run is earlier steps look at number in the store once more nothing all"
    )
    return build_lab_tokenizer([f"{words} <score>0.1</score> critique think"] * 3, 400)


def local(tokenizer: Any, tokens: int, modes: list[Mode], engine: Any = None) -> AgentRRM:
    settings = JudgeSettings(modes=modes, prompt_version="2", transcript_tokens=tokens, max_new_tokens=64)
    model = build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0).double()
    return AgentRRM(engine or HFEngine(model, tokenizer), Prompter(tokenizer, tokens), settings=settings)


@pytest.mark.parametrize("modes", [["score", "steps"], ["score"]])
def test_a_local_score_is_the_last_readings_with_the_marks_its_own_slots_gave(
    tokenizer: Any, modes: list[Mode]
) -> None:
    judge, trajectory = local(tokenizer, 500, modes), run("a", N)
    prompter = judge.prompter
    assert prompter is not None
    first = [f.p_good for f in judge.judge([trajectory], mode="steps")[0].findings]
    judge.settings.threshold = sorted(p for p in first if p is not None)[N // 2]
    (feedback,) = judge.judge([trajectory], mode="score")
    plan, marks = judge.plan(trajectory, "score"), dict[int, bool]()
    model = judge.engine.model  # type: ignore[union-attr]
    if "steps" in modes:
        assert len(plan) > 2 and feedback.coverage == 1.0
        for number in range(len(plan) - 1):
            prompt = prompter.reading(plan, number, "steps", marks)
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt.ids])).logits[0][:, list(prompter.choices)]
            p = logits.softmax(-1)[:, 0]
            marks |= {slot.step: bool(p[slot.at] < judge.settings.threshold) for slot in prompt.slots if slot.step}
        assert len(set(marks.values())) == 2, "both verdicts occur, so the digest matters"
    else:
        assert len(plan) == 1 and feedback.coverage is not None and feedback.coverage < 1.0
    last = prompter.reading(plan, len(plan) - 1, "score", marks)
    assert last.slots == () and " is\n" not in tokenizer.decode(last.ids).partition("Task:")[2]
    engine = judge.engine
    assert isinstance(engine, HFEngine)
    expected, _ = expectation(engine.continuation_logprobs([last.ids], prompter.grid())[0])
    assert feedback.raw_score == pytest.approx(expected, abs=1e-9)


def test_a_local_judge_writes_window_after_window(tokenizer: Any) -> None:
    def reply(row: list[int], params: SamplingParams, key: str) -> Completion:
        text = tokenizer.decode(row)
        steps = [k for k in shown(text.partition("Task:")[2])]
        lines = "".join(f"[step {k}] {'bad: ruin' if k == 3 else 'good: fine'}\n" for k in steps)
        ids = tokenizer.encode(f"{lines}</critique><score>", add_special_tokens=False)
        return Completion(ids, [-1.0] * len(ids), "stop")

    engine = ScriptedEngine(reply)
    judge = local(tokenizer, 500, ["critique"], engine)
    (feedback,) = judge.judge([run("a", N)], mode="critique")
    assert feedback.status == "scored" and feedback.coverage == 1.0
    assert verdicts(feedback) == {k: "bad" if k == 3 else "good" for k in range(1, N + 1)}
    marked = ["(bad)" in tokenizer.decode(row) for row, _, _ in engine.calls]
    assert len(marked) > 2 and marked == [False] * marked.index(True) + [True] * (len(marked) - marked.index(True))
    (once,), (thrice,) = (judge.measure([run("a", N)], "critique", samples) for samples in (1, 3))
    prompter = judge.prompter
    assert prompter is not None and (once.readings, thrice.readings) == (len(marked), 3 * len(marked))
    first = len(prompter.reading(prompter.plan(run("a", N), "critique"), 0, "critique").ids)
    assert thrice.tokens == first + 3 * (once.tokens - first)  # only the first reading is the same for all samples
    vars(engine)["max_positions"] = 300
    (long,) = judge.judge([run("a", N)], mode="critique")
    assert (long.status, long.coverage) == ("too_long", 0.0) and "reading 1 of" in (long.reason or "")


def test_the_card_names_a_map_of_windows_alone() -> None:
    some = Platt(a=1.0, b=0.0, rows=20)

    def said(*keys: str) -> str:
        return calibrated(JudgeSettings(calibration=Calibration(modes=dict.fromkeys(keys, some))))

    assert said() == "Its scores are not calibrated."
    assert said("score") == said("score", "score@windowed") == "Scores are calibrated in mode score, in no other."
    assert said("steps@windowed").startswith("Scores are calibrated in mode steps (of transcripts read in windows")


def test_scores_of_windows_are_calibrated_apart_from_those_of_one_reading() -> None:
    """The same raw scores: of one reading right in nine of ten cases, of several windows in six of ten."""
    script = Judge()
    # questions of their own: the maps are compared on others than they were fitted on
    runs = [run(str(n), N if n % 2 else 2, {2: "RUIN"} if n % 4 < 2 else None) for n in range(160)]
    rows = [t.model_copy(update={"question_id": f"q{n}"}) for n, t in enumerate(runs)]
    right = [n % 40 not in (0, 22) if n % 2 == 0 else n % 10 not in (1, 3) for n in range(160)]
    labels = [float(("RUIN" in str(t.messages)) != ok) for t, ok in zip(rows, right, strict=True)]
    judge = script.over(modes=["score", "critique"])
    report = calibrate(judge, rows, labels, CalibrationSettings(modes=["score"]))
    assert set(report) == set(judge.settings.calibration.modes) == {"score", "score@windowed"}
    assert report["score"]["rows"] == report["score@windowed"]["rows"] == 80
    short, long = judge.judge([run("s", 2), run("l", N)], mode="score")
    assert short.raw_score == long.raw_score == 0.8 and short.judge.calibrated and long.judge.calibrated
    for feedback, index in ((short, 0), (long, 1)):
        shares = [y for t, y in zip(rows[index::2], labels[index::2], strict=True) if "RUIN" not in str(t.messages)]
        assert feedback.score == pytest.approx(sum(shares) / len(shares), abs=0.02)
    assert short.score is not None and long.score is not None and short.score > long.score + 0.1
    windows = script.over(modes=["score", "critique"])
    config = CalibrationSettings(modes=["score"])
    report = calibrate(windows, rows[1::2], labels[1::2], config)  # it warned that the other map had no row
    assert set(report) == set(windows.settings.calibration.modes) == {"score@windowed"}
    of_long = {key for key, _, _ in script.asked for t in rows[1::2] if key.partition("/")[0] == t.id}
    lost = Judge(**dict.fromkeys(of_long, "?")).over(modes=["score", "critique"])
    report = calibrate(lost, rows, labels, config)  # of rows in windows, none of which was scored, nothing was said
    assert set(lost.settings.calibration.modes) == {"score"} and report["score@windowed"]["rows"] == 0
    assert report["score@windowed"]["skipped"].startswith("calibration needs at least 10 rows")
