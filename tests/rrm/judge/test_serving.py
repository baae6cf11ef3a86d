"""A server's windows fit into its context; how many are read, and what that covers, is said."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai_server import answering

from rrm.data import extras
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.openai import OpenAIEngine
from rrm.errors import ConfigError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings, save_settings
from rrm.judge.loading import LoadOptions, load_reader
from rrm.judge.serving import RUBRIC, SHARE, UNKNOWN, room
from rrm.prompt import rules
from rrm.prompt.rendering import CUT_VERSION, CharacterTokenizer
from rrm.prompt.rules import check_steps
from rrm.prompt.windows import Planner
from rrm.scoring.estimate import estimate


@contextmanager
def lists(models: Any) -> Iterator[str]:
    """A server that only lists its models; yields the judge's name."""

    with answering({"/v1/models": (200, models)}) as (url, _):
        yield f"openai:{url}/v1#m"


def log_of(steps: int, bad: int | None = None) -> Trajectory:
    messages = [Message(role="user", content="find it")]
    for k in range(1, steps + 1):
        messages.append(Message(role="assistant", content="" if k == bad else f"look at {k}"))
        messages.append(Message(role="tool", content=f"row {k} " * 60))
    return Trajectory(id="log", task="find it", messages=messages)


def test_a_window_fills_the_context_a_server_tells_and_no_more() -> None:
    with lists({"data": [{"id": "other", "max_model_len": 64}, {"id": "m", "max_model_len": 4096}]}) as name:
        reported = AgentRRM.from_pretrained(name)
        short = AgentRRM.from_pretrained(name, context=2048)
        chosen = AgentRRM.from_pretrained(name, max_transcript_tokens=500, max_new_tokens=100)
    assert reported.settings.transcript_tokens == int((4096 - 512 - RUBRIC) * SHARE)
    assert short.settings.transcript_tokens == int((2048 - 512 - RUBRIC) * SHARE)
    assert chosen.settings.transcript_tokens == 500 and reported.settings.prompt_version == "2"
    longest = max(len(m["content"]) for m in [{"content": r} for r in texts(reported, log_of(60))])
    assert longest <= 4 * reported.settings.transcript_tokens


def texts(judge: AgentRRM, trajectory: Trajectory) -> list[str]:
    plan = judge.plan(trajectory, "full")
    return [plan.reading(i).text for i in range(len(plan))]


def test_an_adapters_context_is_that_of_its_base() -> None:
    """As vLLM lists a LoRA adapter: its own length is null, and `parent` names what it is over."""
    base, adapter = (
        {"id": "base", "max_model_len": 4096, "parent": None},
        {"id": "m", "max_model_len": None, "parent": "base"},
    )
    with lists({"data": [base, adapter]}) as name:
        assert OpenAIEngine.from_spec(name).context_tokens() == 4096
    with lists({"data": [adapter]}) as name:
        assert OpenAIEngine.from_spec(name).context_tokens() is None
    with lists(
        {"data": [{"id": "m", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}]}
    ) as name:  # as llama.cpp lists its model
        assert OpenAIEngine.from_spec(name).context_tokens() == 2048


@pytest.mark.parametrize(
    "models",
    [
        {"data": [{"id": "m"}]},
        {"data": [{"id": "m", "max_model_len": "big"}]},
        {"data": [{"id": "m", "parent": ["m"]}]},
        {"data": ["m"]},
        ["x"],
        {"data": None},
    ],
)
def test_a_server_that_does_not_tell_is_asked_with_a_default(models: Any, caplog: pytest.LogCaptureFixture) -> None:
    """8,192 transcript tokens, and nothing said of it."""
    with lists(models) as name:
        assert OpenAIEngine.from_spec(name).context_tokens() is None
        assert AgentRRM.from_pretrained(name).settings.transcript_tokens == room(UNKNOWN, 512, False)
    assert AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m").settings.transcript_tokens == 19173
    assert caplog.text.count("32768 tokens are assumed; say it with --context") == 2


def test_a_context_without_room_is_refused_and_a_budget_beyond_it_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    name = "openai:http://127.0.0.1:9/v1#m"
    with pytest.raises(ConfigError, match=r"a context of 900 tokens leaves .* lower --max-new-tokens"):
        AgentRRM.from_pretrained(name, context=900)
    with caplog.at_level(logging.WARNING):
        judge = AgentRRM.from_pretrained(name, context=2812, max_transcript_tokens=5000)
    assert judge.settings.transcript_tokens == 1200 and "5000 transcript tokens do not fit" in caplog.text
    with pytest.raises(ConfigError, match="max_windows is of prompt version 2"):
        AgentRRM.from_pretrained("lab", device="cpu", max_windows=2)


def test_a_window_counted_in_characters_is_no_exact_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge's tokenizer lies there, but nothing that could read it is installed."""
    (tmp_path / "tokenizer.json").write_text("{}")
    save_settings(tmp_path, JudgeSettings(engine="openai:http://127.0.0.1:9/v1#m", transcript_tokens=8192))
    monkeypatch.setattr(extras, "_is_there", lambda module: module != "transformers")
    judge = AgentRRM.from_pretrained(str(tmp_path), context=4096)
    assert judge.reader is None
    assert judge.settings.transcript_tokens == int((4096 - 512 - RUBRIC) * SHARE)
    assert load_reader(str(tmp_path), LoadOptions(context=4096)) == (judge.settings, None)


def test_a_bound_on_windows_keeps_the_ends_and_what_the_rules_flag() -> None:
    trajectory = log_of(40, bad=20)
    unbounded = Planner(CharacterTokenizer(), 2400).plan(trajectory, slots=True)
    windows = [unbounded.steps(i) for i in range(len(unbounded))]
    plan = Planner(CharacterTokenizer(), 2400, max_windows=3).plan(trajectory, slots=True)
    steps = [plan.steps(i) for i in range(len(plan))]
    flagged = {f.step for f in check_steps(trajectory)[0] if f.verdict == "bad"}
    assert steps[0] == windows[0] and steps[-1] == windows[-1] and len(steps) == 3 < len(windows)
    assert 20 in flagged and set(steps[1]) & flagged
    judge = AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", max_transcript_tokens=600, max_windows=3)
    assert len(judge.plan(trajectory, "full")) == 3 and judge.describe()["max_windows"] == 3
    # the digest that later windows begin with is the rules': rows of two versions of them do not go into one file
    assert judge.describe()["rules"] == rules.VERSION
    settings = JudgeSettings(prompt_version=CUT_VERSION)
    assert "rules" not in AgentRRM(judge.engine, settings=settings, model="m").describe()
    assert "max_windows" not in AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m").describe()


def test_the_estimate_counts_readings_and_warns_of_low_coverage(caplog: pytest.LogCaptureFixture) -> None:
    judge = AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", max_transcript_tokens=600)
    rows = [log_of(40), log_of(1)]
    readings = len(judge.plan(rows[0], "full")) + 1
    costs = estimate(judge, rows, mode="full", probe=0)
    assert (costs.readings, costs.max_output_tokens) == (readings, 512 * readings)
    coverage = {"median": 1.0, "below_0.9": 0, "below_0.5": 0, "rows": 2, "lowest": {}}
    assert costs.coverage == coverage and not caplog.text
    thrice = estimate(judge, rows, mode="full", samples=3, probe=0)  # each a request of its own
    assert (thrice.readings, thrice.prompt_tokens) == (3 * readings, 3 * costs.prompt_tokens)
    bounded = AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", max_transcript_tokens=600, max_windows=1)
    low = estimate(bounded, rows[:1], mode="full", probe=0).coverage
    assert low is not None and low["median"] < 0.5 and low["below_0.9"] == 1
    assert "of the median transcript (1 of 1 below 90%, 1 below half; least of " in caplog.text
    assert "raise --max-windows, here 1, or leave it out" in caplog.text
