"""A judge whose slots are read on a server gives its local verdicts, in every mode."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from openai_server import Answer, failure, serve
from test_steps_mode import SETTINGS, run

from reagent.lab.model import build_lab_model, build_lab_tokenizer
from rrm.data.feedback import Mode
from rrm.engines.cost import Prices
from rrm.engines.hf.engine import HFEngine
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import EngineError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.calibration import Calibration, Platt
from rrm.judge.steps import p_good
from rrm.prompt.prompter import Prompter
from rrm.scoring.estimate import estimate

PLATT = Platt(a=2.0, b=-0.5, rows=10)
USED = {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 60}}
ROWS = [run("short", 2), run("long", 12, words=9), run("one", 1)]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_lab_tokenizer(["Task step agent result is good bad. The run is earlier steps"] * 3, 400)


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return build_lab_model(tokenizer, hidden=32, layers=2, heads=2, seed=0).double()


@pytest.fixture
def local(model: Any, tokenizer: Any) -> AgentRRM:
    calibration = Calibration(modes={"steps": PLATT, "steps_p_good": PLATT})
    settings = SETTINGS.model_copy(update={"transcript_tokens": 160, "calibration": calibration}, deep=True)
    return AgentRRM(HFEngine(model, tokenizer), Prompter(tokenizer, 160), settings=settings)


def served_at(url: str, judge: AgentRRM, **options: Any) -> AgentRRM:
    engine = OpenAIEngine(url, "m", backoff_s=0.001, **options)
    return AgentRRM(engine, settings=judge.settings, reader=judge.prompter)


def next_tokens(model: Any, tokenizer: Any, prompts: list[list[int]], form: str, top: int) -> Answer:
    """Tokens after each prompt as servers return them: vLLM by id, others by text, llama.cpp as in a chat."""
    choices = []
    for index, ids in enumerate(prompts):
        with torch.no_grad():
            log_p = model(input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        values, tokens = log_p.topk(top)
        names = [f"token_id:{t}" if form == "ids" else tokenizer.decode([t]) for t in tokens.tolist()]
        logprobs: dict[str, Any] = {"tokens": names[:1], "token_logprobs": values.tolist()[:1], "text_offset": [0]}
        logprobs["top_logprobs"] = [dict(zip(names, values.tolist(), strict=True))]
        if form == "chat":
            listed = [
                {"id": t, "token": n, "logprob": v}
                for t, n, v in zip(tokens.tolist(), names, values.tolist(), strict=True)
            ]
            logprobs = {"content": [{**listed[0], "top_logprobs": listed}]}
        choices.append({"index": index, "text": names[0], "logprobs": logprobs, "finish_reason": "length"})
    body = {"id": "x", "object": "text_completion", "choices": choices[::-1], "usage": USED}
    return Answer(body=json.dumps(body).encode())


@pytest.mark.parametrize("mode", ["steps", "score", "full"])
@pytest.mark.parametrize("form", ["ids", "texts", "chat"])
def test_a_server_says_what_the_model_says_here(
    model: Any, tokenizer: Any, local: AgentRRM, mode: Mode, form: str
) -> None:
    with serve(lambda n, body: next_tokens(model, tokenizer, body["prompt"], form, len(tokenizer))) as server:
        feedback = served_at(server.url, local).judge(ROWS, mode=mode)
    expected = local.judge(ROWS, mode=mode)
    for here, there in zip(expected, feedback, strict=True):
        assert there.status == "scored" and there.score == pytest.approx(here.score, abs=1e-9)
        assert there.raw_score == pytest.approx(here.raw_score, abs=1e-9) and there.coverage == here.coverage
        assert [(f.step, f.verdict, f.text) for f in there.findings] == [
            (f.step, f.verdict, f.text) for f in here.findings
        ]
        assert [f.p_good for f in there.findings] == pytest.approx([f.p_good for f in here.findings], abs=1e-9)
        assert (there.trace, there.critique) == (here.trace, here.critique)
        assert there.judge.calibrated == here.judge.calibrated
    assert local.prompter is not None
    readings = [len(local.prompter.plan(t, "steps")) for t in ROWS]
    assert readings[0] == readings[2] == 1 < readings[1] and len(server.requests) == sum(readings)
    assert [f.usage.requests for f in feedback if f.usage is not None] == readings
    body = server.requests[0]
    assert (body["max_tokens"], body["logprobs"], body["return_tokens_as_token_ids"]) == (1, 20, True)
    assert all(len(first) < len(two) and two[: len(first)] == first for first, two in pairwise(body["prompt"]))
    served = served_at("http://127.0.0.1:9/v1", local)
    assert [len(served.plan(t, mode)) for t in ROWS] == readings
    here, there = local.measure(ROWS, mode), served.measure(ROWS, mode)
    assert [replace(reads, tokens=0) for reads in here] == [replace(reads, tokens=0) for reads in there]
    sent = [sum(len(prompt) for prompt in request["prompt"]) for request in server.requests]
    # of a run in one reading what is sent; later readings are told of findings, which are not foreseen
    assert {there[0].tokens, there[2].tokens} <= set(sent)
    assert 0 <= sum(sent) - sum(reads.tokens for reads in there) < 0.1 * sum(sent)
    assert all(first.tokens < two.tokens for first, two in zip(here, there, strict=True))
    assert not served.streams(mode)
    tokens = sum(len(request["prompt"]) * request["max_tokens"] for request in server.requests)
    for judge in (served, local):  # a token a slot, whatever a reply in words might take
        assert estimate(judge, ROWS, mode=mode, probe=0, thinking_tokens=500).max_output_tokens == tokens


@pytest.mark.parametrize(
    ("answer", "status", "message"),
    [
        (failure(500, "out of memory"), "judge_error", "out of memory"),
        (failure(400, "This model's maximum context length is 64 tokens"), "too_long", "maximum context length"),
        (failure(404, "no such route"), "judge_error", "no such route"),
        (Answer(body=b'{"choices": []}'), "judge_error", "not a"),
        (Answer(body=b'{"choices": [{"index": 0, "text": "x", "logprobs": null}]}'), "judge_error", "not a"),
        (Answer(body=b"[1]"), "judge_error", "not a"),
    ],
)  # fmt: skip
def test_a_server_without_slots_fails_its_row_and_no_other(
    answer: Answer, status: str, message: str, model: Any, tokenizer: Any, local: AgentRRM
) -> None:
    with serve(
        lambda n, body: answer if len(body["prompt"]) == 3 else next_tokens(model, tokenizer, body["prompt"], "ids", 20)
    ) as server:
        judge = served_at(server.url, local, max_retries=1)
        two, single = judge.judge([ROWS[0], ROWS[2]], mode="steps")  # of two steps and the run: three slots
    assert (two.status, two.score, two.coverage, two.findings) == (status, None, 0.0, []) and message in str(two.reason)
    assert two.usage is not None and two.usage.requests >= 1
    assert single.status == "scored"


def test_a_server_of_another_model_is_no_judge(tokenizer: Any, local: AgentRRM) -> None:
    strange = {"tokens": ["x"], "top_logprobs": [{"x": -0.1, "y": -3.0}]}
    body = {"choices": [{"index": i, "text": "x", "logprobs": strange} for i in range(2)], "usage": USED}
    with serve(lambda n, sent: Answer(body=json.dumps(body).encode())) as server:
        (feedback,) = served_at(server.url, local).judge([ROWS[2]], mode="steps")
    assert feedback.status == "judge_error" and "reads no slots" in str(feedback.reason)
    assert feedback.usage is not None and feedback.usage.prompt_tokens == 100


def test_a_refused_key_ends_the_run(local: AgentRRM) -> None:
    with (
        serve(lambda n, body: failure(401)) as server,
        pytest.raises(EngineError, check=lambda error: error.kind == "refused"),
    ):
        served_at(server.url, local).judge(ROWS, mode="steps")


def test_money_is_counted_and_limited(model: Any, tokenizer: Any, local: AgentRRM) -> None:
    """100 tokens in, 60 of them cached, 3 out: 40·1 + 60·0.5 + 3·10 = 100 millionths a request."""
    rows, heard = [run(str(i), 2) for i in range(9)], []
    options = ServerOptions(prices=Prices.parse("1,10,0.5"), max_cost=0.00035)
    with serve(lambda n, body: next_tokens(model, tokenizer, body["prompt"], "ids", 20)) as server:
        judge = served_at(server.url, local, options=options, concurrency=1)
        with pytest.raises(RRMError, match="max-cost"):
            judge.judge(rows, mode="steps", on_feedback=heard.append)
    assert len(heard) == len(server.requests) < 9
    assert [f.usage.cost for f in heard] == [pytest.approx(0.0001)] * len(heard)


def test_a_verdict_that_is_not_listed_is_below_all_that_are() -> None:
    good, bad = ["token_id:5", " good"], ["token_id:6", " bad"]
    assert p_good({" good": -0.5, " bad": -0.5}, good, bad) == pytest.approx(0.5)
    assert p_good({"token_id:5": -0.1, "x": -3.1}, good, bad) == pytest.approx(1 / (1 + math.exp(-3)))
    assert p_good({"token_id:6": 0.0, "x": -9999.0}, good, bad) == pytest.approx(0.0, abs=1e-300)
    assert p_good({" good": -math.inf, " bad": 0.0}, good, bad) == pytest.approx(0.0, abs=1e-300)
    for top in ({" good": -0.1}, {"x": -0.1, " bad": -3.0}):
        with pytest.raises(EngineError, match="nothing is known of it"):
            p_good(top, good, bad)
    for none in ({"x": -0.1}, {}):
        with pytest.raises(EngineError, match="reads no slots"):
            p_good(none, good, bad)


def test_an_adapter_is_read_with_its_bases_tokenizer(tmp_path: Path, model: Any, tokenizer: Any) -> None:
    base, folder = tmp_path / "base", tmp_path / "adapter"
    tokenizer.save_pretrained(base)
    folder.mkdir()
    settings = SETTINGS.model_copy(update={"base": str(base)})
    (folder / "judge.json").write_text(settings.model_dump_json())
    (folder / "adapter_config.json").write_text("{}")
    judge = AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", settings=folder)
    assert judge.reader is not None and judge.abilities.reads_slots("score")
    other = folder / "judge.json"
    other.write_text(settings.model_copy(update={"modes": ["full"]}).model_dump_json())
    assert AgentRRM.from_pretrained("openai:http://127.0.0.1:9/v1#m", settings=folder).reader is None
