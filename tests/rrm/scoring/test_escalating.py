"""Escalation as it goes: which rows a stronger judge on a real server is asked for, whose row is taken, and its money; served and in training."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from openai_server import Answer, Server, completion, serve

from reagent.feedback.judging import Judging, JudgingReport
from reagent.feedback.settings import FeedbackConfig
from reagent.lab.model import build_lab_tokenizer
from reagent.train.build_feedback import load_judge as feedback_judge
from rrm.cli.judge_options import JudgeOptions
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.cost import Prices
from rrm.engines.openai import OpenAIEngine
from rrm.engines.scripted import ScriptedEngine
from rrm.engines.server_options import ServerOptions
from rrm.guard import Guard, GuardPolicy, read_audit
from rrm.judge.abstention import AgreementPromise
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.judge_dir import JudgeSettings
from rrm.prompt.prompter import Prompter
from rrm.scoring.escalating import EscalatingJudge, escalating
from rrm.serve.worker import Worker, about
from rrm.serve.worker import load_judge as served_judge

P_GOOD = {"ruin": 0.1, "doubt": 0.5, "haze": 0.55}
USED = {"prompt_tokens": 1000, "completion_tokens": 100}
COST = (1000 * 1.0 + 100 * 10.0) / 1e6
"""Of one reply at the price 1,10."""
LATEST_BAD = "<think>t</think><critique>[step {}] bad: wrong</critique><score>0.2</score>"


def run(name: str, *words: str) -> Trajectory:
    """A step for each word, of which the small judge makes its p_good."""
    messages = [Message(role="user", content=f"task {name}")]
    for word in words:
        messages += [Message(role="assistant", content=f"look at {word}"), Message(role="tool", content="found it")]
    return Trajectory(id=name, task=f"task {name}", messages=messages)


def says_bad(n: int, body: dict[str, Any]) -> Answer:
    """The last step is bad."""
    steps = re.findall(r"\[step (\d+)\]", body["messages"][-1]["content"])
    return completion(LATEST_BAD.format(max(map(int, steps), default=1)), usage=USED)


def asked(server: Server) -> list[str]:
    return [re.findall(r"task (\w+)", body["messages"][1]["content"])[0] for body in server.requests]


def small_judge() -> AgentRRM:
    """Of steps, unsure between 0.4 and 0.6; the run's score is 0.7."""
    tokenizer: Any = build_lab_tokenizer(["Task step agent result is good bad. The run is earlier steps"] * 3, 400)
    prompter = Prompter(tokenizer, 600)

    def logprob(row: list[int], t: int) -> float:
        text = tokenizer.decode(row[:t])
        last = text.rpartition("agent:")[2]
        good = 0.7 if text.rstrip().endswith("The run is") else next((p for w, p in P_GOOD.items() if w in last), 0.9)
        return math.log(good if row[t] == prompter.choices[0] else 1 - good)

    settings = JudgeSettings(modes=["steps"], prompt_version="2", transcript_tokens=600, unsure_band=(0.4, 0.6))
    return AgentRRM(ScriptedEngine([], logprob=logprob), prompter, settings=settings, model="small")


def judge_with(server: Server, max_cost: float | None = None) -> EscalatingJudge:
    options = ServerOptions(prices=Prices(1.0, 10.0), max_cost=max_cost)
    engine = OpenAIEngine(server.url, "big", options=options, concurrency=1, backoff_s=0.001)
    return escalating(small_judge(), AgentRRM(engine, model=f"openai:{server.url}#big"))


RUNS = [run("sure", "stone", "ruin"), run("hazy", "haze"), run("doubtful", "doubt"), run("silent")]


@pytest.mark.parametrize("mode", ["steps", "score", "full"])
def test_what_is_not_sure_is_the_stronger_judge_s_worst_first(mode: Any) -> None:
    heard: list[str] = []
    with serve(says_bad) as server:
        judge = judge_with(server)
        rows = judge.judge(RUNS, mode=mode, on_feedback=lambda row: heard.append(row.id))
        assert asked(server) == ["doubtful", "hazy"] and heard == [t.id for t in RUNS]
    assert [row.judge.model.rpartition("#")[2] for row in rows] == ["small", "big", "big", "small"]
    assert [row.score for row in rows[:3]] == [pytest.approx(0.7), 0.2, 0.2] and rows[3].status == "unparsable"
    assert [row.usage and row.usage.cost for row in rows] == [None, pytest.approx(COST), pytest.approx(COST), None]
    assert len(rows[0].findings) == (0 if mode == "score" else 2) and rows[0].judge.mode == mode
    told = judge.escalation
    assert (told.unsure, told.escalated, told.left, told.failed) == (2, 2, 0, {})
    assert judge.describe()["escalate"] == "big" and judge.describe()["model"] == "small"


def test_where_the_money_ends_or_it_fails_the_small_judge_s_row_stays(caplog: pytest.LogCaptureFixture) -> None:
    with serve(says_bad) as server:
        judge = judge_with(server, max_cost=0.5 * COST)
        first, second = (judge.judge(RUNS, mode="steps") for _ in range(2))
        assert asked(server) == ["doubtful"] and first[2].score == 0.2
    for row in (first[1], second[1], second[2]):
        assert row.judge.model == "small" and row.findings[0].verdict == "unsure" and row.usage is None
    assert (judge.escalation.left, caplog.text.count("stays its own from here on: --max-cost")) == (3, 1)
    with serve(lambda n, body: completion("I cannot say.", usage=USED)) as server:
        judge = judge_with(server)
        row = judge.judge(RUNS[2:3], mode="steps")[0]
    assert row.judge.model == "small" and row.usage is not None and row.usage.cost == pytest.approx(2 * COST), (
        "asked once more"
    )
    assert judge.escalation.failed == {"unparsable": 1}


def test_a_guard_asks_of_the_latest_step_alone_and_counts_money_over_its_audit(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    policy = GuardPolicy(signal="p_good", halt_below=0.3, patience=1)
    with serve(says_bad) as server:
        for number, words in enumerate((["stone", "doubt", "stone"], ["doubt"])):
            guard = Guard(judge_with(server, max_cost=0.5 * COST), policy, audit=audit)
            with guard.session(run=f"r{number}") as session:
                said = [session.observe(m, check=m.role == "tool") for m in run("a", *words).messages]
        assert len(server.requests) == 1, (
            "the first sure step asks nobody, nor does a limit that another process reached"
        )
    rows = list(read_audit(audit))
    assert [(row.step, row.p_good, row.cost) for row in rows if row.run == "r0"] == [
        (1, pytest.approx(0.9), None), (2, 0.0, pytest.approx(COST)), (3, pytest.approx(0.9), None)
    ]  # fmt: skip
    assert [row.verdict for row in rows if row.run == "r0"][:2] == ["continue", "halt"]
    assert said[-1].unsure and said[-1].action == "continue" and "unsure_band" in (said[-1].reason or "")


def test_it_takes_runs_as_other_judges_do_and_a_promise_asks_nobody_of_a_guard_s_steps() -> None:
    """Lists of messages were an AttributeError, and a verdict `unsure` on the whole run sent every step of a guarded run on."""
    promise = AgreementPromise(
        mode="steps", agreement=0.9, confidence=0.9, least_sure=0.8, coverage=0.5, agreed=0.9, labels=100
    )
    with serve(says_bad) as server:
        judge = judge_with(server)
        judge.settings.promise, judge.settings.default_mode = promise, "steps"
        guarded = run("sure", "stone")
        small = AgentRRM.judge(judge, [guarded])
        assert small[0].verdict == "unsure" and small[0].findings[0].verdict == "good"
        assert judge.again(small, [guarded], mode="steps", latest=True) == small and not server.requests
        (row,) = judge.judge([[message.model_dump(exclude_none=True) for message in guarded.messages]])
        assert row.judge.model.endswith("#big")


def test_a_worker_of_rrm_serve_holds_both_judges() -> None:
    told: list[dict[str, Any]] = []

    def answer(n: int, body: dict[str, Any]) -> Answer:
        return says_bad(n, body) if body["model"] == "big" else completion("no idea")

    with serve(answer) as server:
        options = JudgeOptions(model=f"openai:{server.url}#small", price="1,10")
        judge = served_judge({**asdict(options), "escalate": f"openai:{server.url}#big"})
        assert about(judge)["describe"]["escalate"] == "big"
        how = {"mode": "full", "samples": 1, "seed": 0, "out_of_domain": "keep"}
        Worker(judge, told.append).do(
            {"job": 1, "what": "score", "how": how, "items": [run("a", "stone").model_dump()]}
        )
        assert type(served_judge(asdict(options))) is AgentRRM
    (row,) = (line["row"] for line in told if "row" in line)
    assert row["judge"]["model"].endswith("#big") and row["usage"]["cost"] == pytest.approx(COST)


def test_rrm_serve_gives_a_client_the_stronger_judge_s_rows() -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        return says_bad(n, body) if body["model"] == "big" else completion("no idea")

    with serve(answer) as server:
        command = [sys.executable, "-m", "rrm", "serve", "--port", "0", "--model", f"openai:{server.url}#small"]
        command += ["--escalate", f"openai:{server.url}#big"]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stderr is not None
            try:
                lines = (re.search(r"on (http://127\.0\.0\.1:\d+)", line) for line in process.stderr)
                said = next(found for found in lines if found)
                threading.Thread(target=process.stderr.read, daemon=True).start()
                rows = AgentRRM.from_pretrained(said[1]).judge([run("a", "stone")], mode="full")
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate()
    assert [(row.score, row.judge.model.rpartition("#")[2]) for row in rows] == [(0.2, "big")]


def test_feedback_escalates_and_a_run_that_is_gone_on_with_knows_what_was_paid(tmp_path: Path) -> None:
    def answer(n: int, body: dict[str, Any]) -> Answer:
        return says_bad(n, body) if body["model"] == "big" else completion("no idea")

    with serve(answer) as server:
        stronger = {"model": f"openai:{server.url}#big", "price": "1,10", "max_cost": 0.5 * COST}
        settings = FeedbackConfig.model_validate(
            {"mode": "r", "judge": f"openai:{server.url}#small", "escalate": stronger}
        )
        first = Judging(feedback_judge(settings, "cpu"), seed=0, record=tmp_path / "judgements.jsonl")
        (row,) = first.ask([run("a", "stone")], "score", 0, JudgingReport())
        assert row.score == 0.2
        again = Judging(feedback_judge(settings, "cpu"), seed=0, record=tmp_path / "judgements.jsonl")
        again.resume(1)
        (other,) = again.ask([run("b", "stone")], "score", 1, JudgingReport())
        assert [body["model"] for body in server.requests].count("big") == 1
    assert other.status == "unparsable" and other.judge.model.endswith("#small")
    for wrong in ({"recalibrate": {}}, {"criteria": "support"}):
        with pytest.raises(ValueError, match=r"feedback\.escalate"):
            FeedbackConfig.model_validate({"mode": "r", "judge": "x", "escalate": stronger, **wrong})
