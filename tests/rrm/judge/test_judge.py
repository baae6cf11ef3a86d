"""AgentRRM over a real small model: expected scores, statuses, samples, TRL's reward interface."""

from __future__ import annotations

import math

import pytest
import torch

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from reagent.lab.transcripts import make_transcripts
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.base import SamplingParams
from rrm.engines.hf.engine import HFEngine
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, RRMError
from rrm.integrations.trl import as_trajectory
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings
from rrm.judge.local import expectation
from rrm.prompt.prompter import GRID, Prompter


@pytest.fixture(scope="module")
def rows():
    return [t for t, _ in make_transcripts(6, seed=3)]


@pytest.fixture(scope="module")
def tokenizer(rows):
    return build_lab_tokenizer(
        [m.text() for t in rows for m in t.messages] + ["<score>0.1</score> critique think"], 500
    )


def make_judge(tokenizer, **settings) -> AgentRRM:
    model = build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0).eval()
    defaults = {"transcript_tokens": 300, "max_new_tokens": 24}
    return AgentRRM(
        HFEngine(model, tokenizer), Prompter(tokenizer, 300), settings=JudgeSettings(**{**defaults, **settings})
    )


def test_expectation_by_hand() -> None:
    # two thirds of the grid's mass on 1.0, one third on 0.1; half of all mass is off the grid
    logprobs = [-math.inf] * len(GRID)
    logprobs[10], logprobs[1] = math.log(1 / 3), math.log(1 / 6)
    score, off = expectation(logprobs)
    assert score == pytest.approx((2 * 1.0 + 0.1) / 3)
    assert off == pytest.approx(0.5)


def test_a_prompt_of_several_samples_is_counted_as_often_as_it_is_prefilled(tokenizer, rows) -> None:
    """`rrm score --dry-run` counted it once a sample."""
    judge = make_judge(tokenizer)
    engine = judge.engine
    assert isinstance(engine, HFEngine) and judge.prompter is not None
    prompt = judge.prompter.prompt(rows[0], "critique").ids
    engine.generate([prompt] * 3, SamplingParams(max_new_tokens=2, temperature=1.0), ["a", "b", "c"])
    ((single,), (three,)) = (judge.measure(rows[:1], "critique", samples) for samples in (1, 3))
    assert engine.counters.prefilled == single.tokens == three.tokens == len(prompt)
    assert (single.readings, three.readings) == (1, 3)
    assert judge.measure(rows, "score", 3) == judge.measure(rows, "score")  # nothing is sampled


def test_score_mode_equals_a_plain_forward(tokenizer, rows) -> None:
    judge = make_judge(tokenizer)
    assert judge.prompter is not None
    feedback = judge.judge(rows, mode="score")
    model = judge.engine.model  # type: ignore[union-attr]
    for t, f in zip(rows, feedback, strict=True):
        prompt = judge.prompter.prompt(t, "score").ids
        totals = []
        for continuation in judge.prompter.grid():
            ids = torch.tensor([prompt + continuation])
            with torch.no_grad():
                logprobs = model(ids).logits.log_softmax(-1)[0]
            totals.append(sum(logprobs[len(prompt) - 1 + i, c].item() for i, c in enumerate(continuation)))
        assert f.status == "scored"
        assert f.raw_score == pytest.approx(expectation(totals)[0], abs=1e-5)
        assert f.judge.score_source == "expected"
        assert f.judge.off_grid_mass == pytest.approx(expectation(totals)[1], abs=1e-5)


def test_a_judge_that_never_scores_is_truncated_not_zero(tokenizer, rows) -> None:
    for f in make_judge(tokenizer).judge(rows, mode="full"):
        assert f.status in ("truncated", "unparsable")
        assert f.score is None
        assert f.raw_score is None
        assert f.reason


def test_an_agent_that_never_spoke_is_not_judged(tokenizer, rows) -> None:
    silent = Trajectory(id="silent", task="hi", messages=[Message(role="user", content="hi")])

    def refuse(messages, params, key):
        raise AssertionError("no model is asked about it")

    served = AgentRRM(ScriptedChatEngine(refuse))
    for judge in (make_judge(tokenizer), served):
        heard = []
        (feedback,) = judge.judge([silent], mode="score", on_feedback=heard.append)
        assert heard == [feedback] and judge.sample([silent], mode="score", k=2) == [[feedback]]
        assert (feedback.status, feedback.score, feedback.raw_score) == ("unparsable", None, None)
        assert feedback.trace is None and "the agent never spoke" in (feedback.reason or "")
    mixed = make_judge(tokenizer).judge([rows[0], silent, rows[1]], mode="score")
    assert [f.id for f in mixed] == [rows[0].id, "silent", rows[1].id]
    assert [f.status for f in mixed] == ["scored", "unparsable", "scored"]
    assert mixed[2].raw_score == pytest.approx(make_judge(tokenizer).judge([rows[1]], mode="score")[0].raw_score)


def test_too_long_is_a_status(tokenizer, rows) -> None:
    judge = make_judge(tokenizer, max_new_tokens=2000)
    long = judge.judge(rows, mode="full")
    assert {f.status for f in long} == {"too_long"} and "2,008 of reply exceed the model's" in (long[0].reason or "")
    assert {f.status for f in judge.judge(rows, mode="score")} == {"scored"}


def test_many_small_steps_are_cut_until_they_fit() -> None:
    """Each piece keeps a least size: 300 steps made 788 ids of a budget of 480, and the row was `too_long`."""
    messages = [Message(role="user", content="Find the capital.")]
    for k in range(300):
        messages += [
            Message(role="assistant", content=f"I search for number {k}."),
            Message(role="user", content="Rom"),
        ]
    run = Trajectory(id="steps", task="Find the capital.", messages=messages)
    judge = AgentRRM.from_pretrained("lab")
    for tokens in (480, 1200):
        assert judge.prompter is not None
        judge.prompter = Prompter(judge.prompter.tokenizer, tokens, "1")
        (feedback,) = judge.judge([run], mode="score")
        assert feedback.status == "scored" and 0 < (feedback.coverage or 0) < 0.2
    small = AgentRRM.from_pretrained("lab")  # 400 tokens of reply
    small.engine.max_positions = 600
    (feedback,) = small.judge([run.model_copy(update={"messages": messages[:41]})], mode="full")
    assert feedback.status != "too_long"  # by 567 tokens of a budget of 480; one of 60 fits


def test_calibration_is_applied_per_mode(tokenizer, rows) -> None:
    platt = Platt(a=2.0, b=-0.5, rows=10)
    judge = make_judge(tokenizer, calibration=Calibration(modes={"score": platt}))
    for f in judge.judge(rows[:2], mode="score"):
        assert f.raw_score is not None
        assert f.score == pytest.approx(platt(f.raw_score))


def test_reward_function_for_trl(tokenizer, rows) -> None:
    reward = make_judge(tokenizer).as_reward_func()
    talk = [{"role": "user", "content": "What is 2+2?"}]
    scores = reward(
        prompts=[talk, "2+2?"], completions=[[{"role": "assistant", "content": "4"}], "4"], trainer_state=None
    )
    assert len(scores) == 2
    assert all(s is not None and 0 <= s <= 1 for s in scores)
    assert reward.__name__ == "agent_rrm_score"
    assert as_trajectory("0", talk, "4").steps[0].message.text() == "4"


def test_settings_refuse_another_prompt_version(tmp_path) -> None:
    save_settings(tmp_path, JudgeSettings(prompt_version="0"))
    with pytest.raises(RRMError, match="prompt version 0"):
        load_settings(tmp_path)


def test_missing_directory_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'vllm:http://a#m': a judge is asked over openai:BASE_URL#model"):
        AgentRRM.from_pretrained("vllm:http://ann:s3cret@a#m")
    with pytest.raises(RRMError, match=r"no judge at '\./nowhere'"):
        AgentRRM.from_pretrained("./nowhere")
