"""Mode `steps`: probabilities at slots against plain forwards, windows, calibration, texts."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.config import CalibrationSettings, TrainConfig
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import Feedback, Mode
from rrm.data.labels import StepTarget
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.hf.engine import HFEngine
from rrm.engines.scripted import ScriptedChatEngine, ScriptedEngine
from rrm.errors import RRMError
from rrm.evaluation.fit_calibration import calibrate
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt, fit, half_of
from rrm.judge.judge_dir import JudgeSettings
from rrm.judge.prompt_preview import shown
from rrm.prompt.prompter import Prompter
from rrm.prompt.rules import rules_trace
from rrm.scoring.estimate import estimate
from rrm.train.export import measure

SETTINGS = JudgeSettings(modes=["steps"], prompt_version="2", transcript_tokens=600)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_lab_tokenizer(["Task step agent result is good bad. The run is earlier steps"] * 3, 400)


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0).double()


def judge_of(model: Any, tokenizer: Any, tokens: int = 600, **changes: Any) -> AgentRRM:
    settings = SETTINGS.model_copy(update={"transcript_tokens": tokens, **changes}, deep=True)
    return AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, tokens), settings=settings)


def run(name: str, steps: int, marks: dict[int, str] | None = None, words: int = 4) -> Trajectory:
    messages = [Message(role="user", content="find it")]
    for k in range(1, steps + 1):
        messages.append(Message(role="assistant", content=f"look at {(marks or {}).get(k, k)}" + " again" * words))
        messages.append(Message(role="tool", content=f"found {k}"))
    return Trajectory(id=name, task="find it", question_id="q", messages=messages)


def test_p_good_and_score_equal_a_plain_forward(model: Any, tokenizer: Any) -> None:
    judge, trajectories = judge_of(model, tokenizer), [run(str(n), n) for n in (1, 4, 2)]
    assert judge.prompter is not None
    for trajectory, feedback in zip(trajectories, judge.judge(trajectories, mode="steps"), strict=True):
        prompt = judge.prompter.reading(judge.prompter.plan(trajectory, "steps"), 0, "steps")
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt.ids])).logits[0][:, list(judge.prompter.choices)]
        expected = [float(p) for p in logits.softmax(-1)[[slot.at for slot in prompt.slots], 0]]
        assert [f.p_good for f in feedback.findings] == pytest.approx(expected[:-1], abs=1e-9)
        assert feedback.raw_score == feedback.score == pytest.approx(expected[-1], abs=1e-9)
        assert [f.step for f in feedback.findings] == list(range(1, len(trajectory.steps) + 1))
        assert [f.verdict for f in feedback.findings] == ["good" if p >= 0.5 else "bad" for p in expected[:-1]]
        assert (feedback.status, feedback.coverage, feedback.judge.score_source) == ("scored", 1.0, "expected")
        assert feedback.trace is None and feedback.critique is None and not any(f.text for f in feedback.findings)


@pytest.mark.parametrize("tokens", [600, 100], ids=["one window", "several"])
def test_p_good_of_a_step_is_the_same_in_a_prefix_and_in_the_whole_run(model: Any, tokenizer: Any, tokens: int) -> None:
    judge, trajectory = judge_of(model, tokenizer, tokens), run("a", 9)
    assert judge.prompter is not None and (len(judge.prompter.plan(trajectory, "steps")) > 1) == (tokens == 100)
    (feedback,) = judge.judge([trajectory], mode="steps")
    for n in (1, 4, 8):
        prefix = trajectory.model_copy(update={"id": f"p{n}", "messages": trajectory.messages[: 1 + 2 * n]})
        (of_prefix,) = judge.judge([prefix], mode="steps")
        assert [f.p_good for f in of_prefix.findings] == pytest.approx(
            [f.p_good for f in feedback.findings[:n]], abs=1e-9
        )


def test_rows_come_as_they_are_read_and_do_not_depend_on_each_other(model: Any, tokenizer: Any) -> None:
    judge, rows = judge_of(model, tokenizer, 100), [run(str(n), n) for n in (1, 12, 5, 3)]
    heard: list[Feedback] = []
    readings: Counter[tuple[str, int]] = Counter()
    together = judge.judge(
        rows, mode="steps", on_feedback=heard.append, on_reading=lambda *event: readings.update([event])
    )
    assert judge.prompter is not None
    plans = {t.id: len(judge.prompter.plan(t, "steps")) for t in rows}
    assert readings == {(id, n): n for id, n in plans.items() if n > 1} and plans["12"] > 1 == plans["1"]
    assert [f.id for f in together] == ["1", "12", "5", "3"] and sorted(f.id for f in heard) == sorted(
        ["1", "12", "5", "3"]
    )
    for row, feedback in zip(rows, together, strict=True):
        (alone,) = judge.judge([row], mode="steps")
        assert [f.p_good for f in alone.findings] == pytest.approx([f.p_good for f in feedback.findings], abs=1e-9)
        assert len(feedback.findings) == len(row.steps) and feedback.coverage == 1.0
        assert alone.score == pytest.approx(feedback.score, abs=1e-9)


def scripted(tokenizer: Any, tokens: int, fault: str = "ruin") -> AgentRRM:
    """A judge that calls steps with the fault's word bad, and a run with one."""
    prompter = Prompter(tokenizer, tokens)

    def logprob(row: list[int], t: int) -> float:
        text = tokenizer.decode(row[:t])
        if text.rstrip().endswith("The run is"):
            bad = "(bad)" in text or fault in text
        else:
            bad = fault in text.rpartition("agent:")[2]
        good = 0.1 if bad else 0.9
        return math.log(good if row[t] == prompter.choices[0] else 1 - good)

    settings = SETTINGS.model_copy(update={"transcript_tokens": tokens}, deep=True)
    return AgentRRM(ScriptedEngine([], logprob=logprob), prompter, settings=settings)


@pytest.mark.parametrize("step", [2, 11, 19])
def test_what_a_window_finds_reaches_the_score(tokenizer: Any, step: int) -> None:
    judge = scripted(tokenizer, 800)
    sound, ruined = judge.judge([run("sound", 20), run("ruined", 20, {step: "ruin"})], mode="steps")
    assert judge.prompter is not None and len(judge.prompter.plan(run("sound", 20), "steps")) > 1
    assert [f.step for f in ruined.findings if f.verdict == "bad"] == [step]
    assert ruined.findings[step - 1].p_good == pytest.approx(0.1)
    assert ruined.score == pytest.approx(0.1) and sound.score == pytest.approx(0.9)


def test_calibration_and_threshold_decide_score_and_verdict(model: Any, tokenizer: Any) -> None:
    (plain,) = judge_of(model, tokenizer).judge([run("a", 3)], mode="steps")
    once, step = Platt(a=2, b=1, rows=9), Platt(a=1, b=-2, rows=9)
    calibration = Calibration(modes={"steps": once, "steps_p_good": step})
    (feedback,) = judge_of(model, tokenizer, calibration=calibration, threshold=0.01).judge([run("a", 3)], mode="steps")
    assert plain.raw_score is not None and feedback.score == pytest.approx(once(plain.raw_score))
    assert feedback.judge.calibrated is True and plain.judge.calibrated is False
    for raw, sure in zip(plain.findings, feedback.findings, strict=True):
        assert raw.p_good is not None and sure.p_good == pytest.approx(step(raw.p_good)) and sure.verdict == "good"
    assert feedback.judge.threshold == 0.01 and plain.judge.threshold == 0.5
    windowed = judge_of(model, tokenizer, 100, calibration=calibration)
    assert windowed.judge([run("a", 9)], mode="steps")[0].judge.calibrated is False


def test_text_modes_of_a_judge_that_never_wrote_say_only_what_is_known(tokenizer: Any) -> None:
    judge, trajectory = scripted(tokenizer, 600), run("a", 4, {2: "ruin"})
    (full,) = judge.judge([trajectory], mode="full")
    (steps,) = judge.judge([trajectory], mode="steps")
    assert full.trace == rules_trace(trajectory) and full.score == steps.score and full.judge.mode == "full"
    assert [(f.step, f.verdict, f.p_good) for f in full.findings] == [
        (f.step, f.verdict, f.p_good) for f in steps.findings
    ]
    assert "[step 2] bad: " in (full.critique or "") and "probability 0.9" in (full.critique or "")
    (critique,) = judge.judge([trajectory], mode="critique")
    assert critique.trace is None and critique.critique == full.critique
    assert judge.sample([trajectory], mode="full", k=3) == [[full]]


def test_a_score_alone_is_the_one_of_the_slots_without_findings(tokenizer: Any, caplog: Any) -> None:
    judge, rows = scripted(tokenizer, 800), [run("short", 3), run("long", 20, {2: "ruin"})]
    maps = {"steps": Platt(a=2, b=1, rows=9), "steps@windowed": Platt(a=3, b=-1, rows=9)}
    judge.settings.calibration = Calibration(modes=maps)  # pyright: ignore[reportArgumentType]
    for expected, feedback in zip(judge.judge(rows, mode="steps"), judge.judge(rows, mode="score"), strict=True):
        assert (feedback.score, feedback.raw_score, feedback.coverage) == (
            expected.score,
            expected.raw_score,
            expected.coverage,
        )
        assert (feedback.findings, feedback.judge.mode, feedback.judge.calibrated) == (
            [],
            "score",
            True,
        ) and expected.findings
    assert judge.measure(rows, "score") == judge.measure(rows, "steps")
    prompt, completion = [{"role": "user", "content": "find it"}], [{"role": "assistant", "content": "look"}]
    assert judge.as_reward_func()([prompt], [completion]) == judge.as_reward_func(mode="steps")([prompt], [completion])
    assert judge.as_reward_func()([prompt], [completion]) == [pytest.approx(maps["steps"](0.9))]
    assert estimate(judge, rows, mode="full").rows == 2
    assert not caplog.records, "it is tried in what it reads these from"
    served = AgentRRM(
        ScriptedChatEngine(["<score>0.8</score>"]), settings=SETTINGS.model_copy(update={"opening": False})
    )
    assert served.judge(rows[:1], mode="score")[0].score == 0.8


@pytest.mark.parametrize("mode", ["steps", "full", "score"])
def test_samples_where_nothing_is_sampled_are_said_once(tokenizer: Any, caplog: Any, mode: Mode) -> None:
    judge = scripted(tokenizer, 600)
    (once,) = judge.judge([run("a", 2)], mode=mode)
    assert not caplog.records
    for _ in range(2):
        assert judge.judge([run("a", 2)], mode=mode, samples=5) == [once]
    (record,) = caplog.records
    assert f"samples nothing in mode {mode}" in record.getMessage() and "not 5 times" in record.getMessage()


def test_the_card_measures_verdicts_on_steps_at_the_judges_threshold(tokenizer: Any) -> None:
    judge, rows = scripted(tokenizer, 800), [run(str(n), 3, {2: "ruin"} if n % 2 else None) for n in range(4)]
    judge.settings.threshold = 0.95  # nothing reaches it
    raters = {
        t.id: [
            Annotation(
                trajectory_id=t.id,
                digest=t.digest,
                annotator="h",
                kind="human",
                findings=[Finding(step=k, verdict="bad" if n % 2 and k == 2 else "good") for k in (1, 2, 3)],
            )
        ]
        for n, t in enumerate(rows)
    }
    card = measure(judge, rows, raters, TrainConfig())["steps"]
    values = {name: x["value"] for name, x in card["step_scores"]["metrics"]["judge"].items()}
    assert card["step_scores"]["thresholds"]["judge"] == 0.95 and values["mcc_at_half"] == 1.0
    assert values["mcc"] == card["steps"]["metrics"]["judge"]["mcc"]["value"] == 0.0
    assert values["first_error"] == 0.0 and values["false_alarms"] == 1.0


def test_who_has_no_slots_says_so(model: Any, tokenizer: Any) -> None:
    served = AgentRRM(ScriptedChatEngine(["x"]), settings=SETTINGS)
    with pytest.raises(RRMError, match="runs on a server"):
        served.judge([run("a", 1)], mode="steps")
    older = AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, 100, "1"))
    with pytest.raises(RRMError, match="prompt version 1"):
        older.judge([run("a", 1)], mode="steps")
    for judge in (served, older):  # nor is shown or counted what would not be read
        for ask in (
            lambda judge: shown(judge, run("a", 1), "steps"),
            lambda judge: judge.measure([run("a", 1)], "steps"),
        ):
            with pytest.raises(RRMError, match=r"runs on a server|prompt version 1"):
                ask(judge)


@pytest.mark.parametrize("mode", ["score", "steps", "full"])
def test_a_plan_is_the_one_that_is_read(tokenizer: Any, mode: Mode) -> None:
    """A judge of steps alone reads slots in every mode."""
    judge = scripted(tokenizer, 400)
    for steps in range(2, 30):
        plan, (readings, windows) = judge.plan(run("a", steps), mode), judge.readings(run("a", steps), mode)
        assert len(plan) == len(readings) == len(windows) == judge.measure([run("a", steps)], mode)[0].readings


def test_a_reading_beyond_the_models_positions_has_no_number(tokenizer: Any) -> None:
    judge = scripted(tokenizer, 600)
    assert judge.prompter is not None
    vars(judge.engine)["max_positions"] = judge.count_tokens([run("s", 2)], "steps")[0]
    short, long = judge.judge([run("s", 1), run("l", 9)], mode="steps")
    assert (long.status, long.score, long.findings) == ("too_long", None, []) and long.reason
    assert short.status == "scored"


def test_calibration_of_steps_fits_scores_and_single_steps(tokenizer: Any) -> None:
    """Forty short runs and forty that take windows, half of each ruined; one in ten labels is wrong."""
    judge = scripted(tokenizer, 800)
    rows, labels, unlabelled, steps = [], [], [], {}
    for n, length in enumerate((4, 20) * 40):
        ruined, wrong = n % 4 < 2, n % 10 == 9
        trajectory = run(str(n), length, {2: "ruin"} if ruined else None)
        if n % 20 == 19:
            unlabelled.append(trajectory)
        else:
            rows.append(trajectory)
            labels.append(float(ruined == wrong))
        verdicts = ["bad" if ruined and k == 1 else "good" for k in range(length)]
        steps[str(n)] = StepTarget((*verdicts[:-1], "bad" if wrong else "good"))  # pyright: ignore[reportArgumentType]
    config, judged = CalibrationSettings(modes=["steps"]), {}
    report = calibrate(judge, rows, labels, config, judged=judged, steps=steps, steps_only=unlabelled)
    assert set(report) == set(judge.settings.calibration.modes) == {"steps", "steps@windowed", "steps_p_good"}
    assert report["steps"] == report["steps@windowed"]  # both readings say the same here: one map of all rows
    assert report["steps"]["rows"] == len(labels) == len(judged["steps"])
    assert judge.settings.threshold == 0.5
    (sound, ruined) = judge.judge([run("s", 20), run("r", 20, {3: "ruin"})], mode="steps")
    assert sound.score is not None and ruined.score is not None and sound.score > 0.7 > 0.3 > ruined.score
    assert ruined.judge.calibrated and [f.step for f in ruined.findings if f.verdict == "bad"] == [3]


def wary(tokenizer: Any) -> AgentRRM:
    """A judge that is surer of bad steps, and less sure of sound ones, once it was told of a bad one."""
    prompter = Prompter(tokenizer, 800)

    def logprob(row: list[int], t: int) -> float:
        text = tokenizer.decode(row[:t])
        ruined, marked = "ruin" in text.rpartition("agent:")[2], "(bad)" in text
        good = (0.6 if marked else 0.7) if ruined else (0.85 if marked else 0.95)
        return math.log(good if row[t] == prompter.choices[0] else 1 - good)

    settings = SETTINGS.model_copy(update={"transcript_tokens": 800}, deep=True)
    return AgentRRM(ScriptedEngine([], logprob=logprob), prompter, settings=settings)


def test_p_good_is_calibrated_as_it_is_read_where_good_begins_at_one_half(tokenizer: Any) -> None:
    """The map is of what later windows are told once one half is one half after calibration."""
    rows = [run(str(n), (4, 20)[n % 2], {2: "ruin", 15: "ruin"} if n % 4 < 2 else None) for n in range(40)]
    steps = {
        t.id: StepTarget(tuple("bad" if ("ruin" in str(s.message.content)) != (n % 10 == k) else "good" for k, s in enumerate(t.steps)))
        for n, t in enumerate(rows)
    }  # fmt: skip

    def pairs(threshold: float) -> list[tuple[float, float]]:
        judge = wary(tokenizer)
        judge.settings.threshold = threshold
        findings = [
            (t.id, f) for t, row in zip(rows, judge.judge(rows, mode="steps"), strict=True) for f in row.findings
        ]
        return [(f.p_good or 0.0, float(steps[name].verdicts[f.step - 1] == "good")) for name, f in findings]

    def fitted_on(examples: list[tuple[float, float]]) -> Any:
        return fit([raw for raw, _ in examples], [y for _, y in examples])

    first = pairs(0.5)
    cut = half_of(fitted_on(first))
    last = pairs(cut)
    assert 0.7 < cut < 0.95 and first != last
    judge = wary(tokenizer)
    config = CalibrationSettings(modes=["steps"])
    labels = [float(n % 4 >= 2) for n in range(30)]
    report = calibrate(judge, rows[:30], labels, config, steps=steps, steps_only=rows[30:])["steps_p_good"]
    fitted = judge.settings.calibration.modes["steps_p_good"]
    assert fitted == fitted_on(last) != fitted_on(first)
    assert judge.settings.threshold == report["threshold"] == 0.5
    assert report["read_again"] == sum(
        n % 4 == 1 for n in range(40)
    )  # windowed ones with a step that is now called bad
    findings = [f for feedback in judge.judge(rows, mode="steps") for f in feedback.findings]
    assert [f.p_good for f in findings] == pytest.approx([fitted(raw) for raw, _ in last])
    assert [f.verdict == "bad" for f in findings] == [fitted(raw) < 0.5 for raw, _ in last]


def test_a_map_of_single_steps_that_cannot_be_replaced_stays_with_its_threshold(
    tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps are good where the judge says bad, so no rising map fits."""
    rows = [run(str(n), (4, 20)[n % 2], {2: "ruin"} if n % 4 < 2 else None) for n in range(40)]
    steps = {
        t.id: StepTarget(tuple("good" if "ruin" in str(s.message.content) else "bad" for s in t.steps)) for t in rows
    }
    judge, old = wary(tokenizer), Platt(a=2.0, b=-1.0, rows=30)
    judge.settings.calibration.modes["steps_p_good"] = old
    judge.settings.threshold = 0.7
    (before,) = judge.judge(rows[1:2], mode="steps")
    labels = [float(n % 4 >= 2) for n in range(40)]
    judged: dict[Mode, list[Feedback]] = {}
    report = calibrate(judge, rows, labels, CalibrationSettings(modes=["steps"]), judged=judged, steps=steps)
    assert judge.settings.calibration.modes["steps_p_good"] == old and judge.settings.threshold == 0.7
    entry = report["steps_p_good"]
    assert "scores fall as labels rise" in entry["skipped"] and entry["kept"] == old.model_dump()
    assert entry["threshold"] == 0.7 and entry["read_again"] == 10
    assert "steps_p_good keeps its earlier map and threshold: raw scores fall" in caplog.text
    (after,) = judge.judge(rows[1:2], mode="steps")
    assert after.findings == before.findings
    assert [f.p_good for f in after.findings] == [old(f.p_good or 0.0) for f in judged["steps"][1].findings]
