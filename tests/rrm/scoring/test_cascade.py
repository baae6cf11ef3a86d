"""The cascade: which rows go to the stronger judge and in which order, runs over a real server that are killed, limited and fail."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_judge import rows_of, transcripts
from openai_server import Answer, Server, completion, failure, serve

from rrm.cli import score_cmd
from rrm.cli.judge_options import JudgeOptions
from rrm.data.annotation import Finding
from rrm.data.feedback import OUTSIDE, Feedback, JudgeInfo, Mode, Reads, Status
from rrm.data.trajectory import Message, Trajectory, write_jsonl
from rrm.engines.cost import Prices
from rrm.engines.openai import OpenAIEngine
from rrm.engines.server_options import ServerOptions
from rrm.errors import ConfigError, RRMError
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.capabilities import Abilities
from rrm.scoring.cascade import merged_row, order_of_escalation, score_cascade
from rrm.scoring.run import score_file

PRICES = Prices(1.0, 10.0)
USED = {"prompt_tokens": 1000, "completion_tokens": 100}
COST = (1000 * 1.0 + 100 * 10.0) / 1e6
"""Of one reply."""
BAD = "<think>t</think><critique>[step 1] bad: wrong</critique><score>0.2</score>"
INFO = JudgeInfo(model="small", prompt_version="2", mode="steps")


def said(id: str, *p_good: float, score: float | None = 0.5, outside: bool = False, band: float = 0.2) -> Feedback:
    """A row of a judge that is unsure where p_good is within `band` of one half, and outside its domain."""
    findings = [
        Finding(step=k, p_good=p, verdict="unsure" if outside or abs(p - 0.5) < band else "good" if p > 0.5 else "bad")
        for k, p in enumerate(p_good, 1)
    ]
    status: Status = "scored" if score is not None else "truncated"
    return Feedback(id=id, status=status, score=score, findings=findings, out_of_domain=outside, judge=INFO)


class Small:
    """A judge of steps whose p_good of the only step of `t<n>` stands in a list; None: it gives no score."""

    def __init__(self, *p_good: float | None) -> None:
        self.p_good, self.asked = p_good, Counter[str]()

    def judge(
        self, trajectories: Sequence[Trajectory], *, on_feedback: Callable[[Feedback], None] | None = None, **how: Any
    ) -> list[Feedback]:
        rows = []
        for trajectory in trajectories:
            self.asked[trajectory.id] += 1
            p_good = self.p_good[int(trajectory.id[1:])]
            rows.append(said(trajectory.id, *([] if p_good is None else [p_good]), score=p_good))
            if on_feedback is not None:
                on_feedback(rows[-1])
        return rows

    def describe(self) -> dict[str, Any]:
        return {"model": "small", "model_hash": "abc", "prompt_version": "2"}

    def measure(self, trajectories: Sequence[Trajectory], mode: Mode, samples: int = 1) -> list[Reads]:
        return [Reads(10, 1, 1.0)] * len(trajectories)


def stronger_at(url: str, max_cost: float | None = None, **options: Any) -> AgentRRM:
    how = ServerOptions(prices=PRICES, max_cost=max_cost)
    engine = OpenAIEngine(url, "big", options=how, **{"concurrency": 1, "backoff_s": 0.001, **options})
    return AgentRRM(engine, model=f"openai:{url}#big")


def who(body: dict[str, Any]) -> str:
    """The transcript that a request is about."""
    return "t" + body["messages"][1]["content"].split("task ", 1)[1].split()[0]


def asked(server: Server) -> list[str]:
    return [who(body) for body in server.requests]


def calls_all_bad(n: int, body: dict[str, Any]) -> Answer:
    return completion(BAD, usage=USED)


# ---- which, and in which order ----


def test_the_least_sure_goes_first() -> None:
    rows = [
        said("sure", 0.9, 0.9),
        said("one, near", 0.9, 0.51, score=0.9),
        said("one, far", 0.9, 0.6),
        said("one, near, low score", 0.9, 0.49, score=0.1),
        said("two", 0.4, 0.6),
        said("outside", 0.99, 0.99, 0.99, outside=True),
        said("no score", 0.9, score=None),
    ]
    expected = ["no score", "outside", "two", "one, near, low score", "one, near", "one, far"]
    assert order_of_escalation(rows, 0, share=0.0) == expected
    assert order_of_escalation(reversed(rows), 0, share=0.0) == expected
    assert set(order_of_escalation(rows, 0, share=1.0)) == {*expected, "sure"}
    assert order_of_escalation([], 0) == []


def test_of_runs_without_a_verdict_the_one_nearest_a_half_goes_first() -> None:
    """The lowest score went first, however sure it was."""
    rows = [said(str(score), score=score).model_copy(update={"verdict": "unsure"}) for score in (0.2, 0.48, 0.6)]
    assert order_of_escalation(rows, 0, share=0.0) == ["0.48", "0.6", "0.2"]


def test_a_run_out_of_domain_whose_verdicts_are_kept_goes_on_too() -> None:
    kept = said("a", 0.99, outside=True).model_copy(update={"findings": [Finding(step=1, verdict="good", p_good=0.99)]})
    assert order_of_escalation([kept, said("b", 0.99)], 0, share=0.0) == ["a"]


def test_control_is_drawn_by_seed_and_spread_over_the_order() -> None:
    sure = [said(f"s{k}", 0.95) for k in range(100)]
    doubtful = [said(f"d{k}", 0.5) for k in range(20)]
    order = order_of_escalation(sure + doubtful, 3)
    control = [id for id in order if id.startswith("s")]
    assert len(control) == 5 and len(order) == 25
    assert [sum(id.startswith("s") for id in order[i : i + 5]) for i in range(0, 25, 5)] == [1] * 5
    assert order_of_escalation(doubtful[::-1] + sure[::-1], 3) == order, "not the order of the rows"
    assert set(control) != {id for id in order_of_escalation(sure + doubtful, 4) if id.startswith("s")}
    more = order_of_escalation(sure, 3, share=0.1)
    assert len(more) == 10 and set(control) < set(more), "a larger sample holds the smaller one"
    assert len(order_of_escalation(sure[:3], 3)) == 1, "a sample of few rows is no empty one"


# ---- a run ----

P_GOOD = (0.9, 0.45, 0.05, 0.5, 0.95, 0.35)
"""t3, t1 and t5 are unsure, in this order; t0, t2, t4 are sure, and only t2 is called bad."""


def test_each_row_says_who_judged_it_and_nothing_is_lost(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with serve(calls_all_bad) as server:
        summary = score_cascade(
            Small(*P_GOOD), stronger_at(server.url), transcripts(6), output, share=1.0, progress=False
        )
        order = asked(server)
    assert [id for id in order if id in ("t1", "t3", "t5")] == ["t3", "t1", "t5"] and len(order) == 6
    rows = rows_of(output)
    assert [row["id"] for row in rows] == [f"t{k}" for k in range(6)]
    assert [row["escalated"] for row in rows] == ["control", True, "control", True, "control", True]
    assert {row["judge"]["model"] for row in rows} == {f"openai:{server.url}#big"}
    small = {row["id"]: row for row in rows_of(tmp_path / "out.small.jsonl")}
    for row in rows:
        own = Feedback.model_validate({"id": row["id"], **row["small_judge"]})
        assert own == Feedback.model_validate(small[row["id"]])
        assert row["score"] == 0.2 and row["usage"]["cost"] == pytest.approx(COST)
    said = summary.escalation
    assert said is not None and (said.unsure, said.escalated, said.control, said.left, said.failed) == (3, 3, 3, 0, {})
    assert said.agreement == {"steps": 3, "agree": 1, "rows": 3, "rows_agree": 1, "share": 0.3333}
    assert said.usage is not None and said.usage["cost"] == pytest.approx(6 * COST)
    assert summary.usage == said.usage and summary.statuses == {"scored": 6} and summary.unsure is not None


def test_sure_rows_stay_the_small_judge_s(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with serve(calls_all_bad) as server:
        judge = stronger_at(server.url)
        summary = score_cascade(Small(*P_GOOD), judge, transcripts(6), output, share=0.0, progress=False)
        rows = rows_of(output)
        assert [row["escalated"] for row in rows] == [False, True] * 3 and "small_judge" not in rows[0]
        assert {row["judge"]["model"] for row in rows if not row["escalated"]} == {"small"}
        assert summary.escalation is not None and summary.escalation.agreement is None
        again = Small(*P_GOOD)
        more = score_cascade(again, judge, transcripts(6), output, share=0.3, progress=False)
        assert not again.asked and len(server.requests) == 4, "only the sample that was added is paid"
        assert more.escalation is not None and more.escalation.control == 1
    assert more.usage is not None and more.usage["cost"] == pytest.approx(4 * COST)
    assert more.usage_now is not None and more.usage_now["cost"] == pytest.approx(COST)


def test_a_transcript_without_a_step_is_not_sent(tmp_path: Path) -> None:
    silent = Trajectory(id="t6", task="x", messages=[Message(role="user", content="x")])
    with serve(calls_all_bad) as server:
        small = Small(*P_GOOD, 0.5)
        score_cascade(
            small, stronger_at(server.url), [*transcripts(6), silent], tmp_path / "o.jsonl", share=0, progress=False
        )
        assert sorted(asked(server)) == ["t1", "t3", "t5"]


def test_where_the_stronger_judge_fails_the_small_judge_s_row_stays(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"

    def troubles(n: int, body: dict[str, Any]) -> Answer:
        match who(body):
            case "t3":
                return failure(500)
            case "t1":
                return completion("I cannot say.", usage=USED)
            case _:
                return calls_all_bad(n, body)

    with serve(troubles) as server:
        judge = stronger_at(server.url, max_retries=0)
        summary = score_cascade(Small(*P_GOOD), judge, transcripts(6), output, share=0.0, progress=False)
    rows = {row["id"]: row for row in rows_of(output)}
    small = {row["id"]: row for row in rows_of(tmp_path / "out.small.jsonl")}
    for id, status in (("t3", "judge_error"), ("t1", "unparsable")):
        failed = rows[id].pop("escalation_failed")
        assert failed["status"] == status and failed["reason"] and failed["model"].endswith("#big")
        assert rows[id].pop("escalated") is False
        assert {**rows[id], "usage": None} == {**small[id], "usage": None}
    assert rows["t1"]["usage"]["cost"] > 0, "what failed was paid, too"
    said = summary.escalation
    assert said is not None and said.failed == {"judge_error": 1, "unparsable": 1} and said.escalated == 1
    assert said.first_failure is not None and summary.statuses == {"scored": 6}
    with serve(calls_all_bad) as server:
        judge = stronger_at(server.url)
        done = score_cascade(
            Small(*P_GOOD), judge, transcripts(6), output, share=0.0, retry_errors=True, progress=False
        )
        assert asked(server) == ["t3", "t1"]
    assert done.escalation is not None and (done.escalation.escalated, done.escalation.failed) == (3, {})


def test_a_stronger_judge_that_abstains_takes_no_verdict_away(tmp_path: Path) -> None:
    """Both judges of steps; the stronger one is sure of t4 alone, and t6 has no score of the small one."""
    output = tmp_path / "out.jsonl"
    small, stronger = Small(*P_GOOD, None), Small(0.5, 0.5, 0.5, 0.5, 0.1, 0.5, 0.5)
    summary = score_cascade(small, stronger, transcripts(7), output, share=1.0, stronger_mode="steps", progress=False)
    own = {row["id"]: row for row in rows_of(tmp_path / "out.small.jsonl")}
    rows = {row["id"]: row for row in rows_of(output)}
    for id in ("t0", "t1", "t2", "t3", "t5"):
        assert rows[id].pop("escalation_failed") == {
            "model": "small", "status": "unsure", "reason": "it is unsure of every step"
        }  # fmt: skip
        assert rows[id].pop("escalated") is False and rows[id].pop("usage") is None
        assert rows[id].items() <= own[id].items()
    assert rows["t4"]["escalated"] == "control" and rows["t6"]["escalated"] is True
    assert rows["t6"]["score"] == 0.5, "a score without a verdict is more than none"
    said = summary.escalation
    assert said is not None and said.failed == {"unsure": 5} and (said.control, said.escalated) == (1, 1)
    assert said.first_failure == "unsure: it is unsure of every step" and said.left == 0
    assert said.agreement == {"steps": 1, "agree": 0, "rows": 1, "rows_agree": 0, "share": 0.0}


def test_of_steps_that_the_stronger_judge_is_unsure_of_the_small_judge_s_verdicts_stay() -> None:
    def row(model: str, *verdicts: Any) -> dict[str, Any]:
        findings = [Finding(step=k, verdict=verdict) for k, verdict in enumerate(verdicts, 1)]
        judge = JudgeInfo(model=model, model_hash=None, prompt_version="2", mode="steps", seed=0)
        return Feedback(id="a", status="scored", score=0.5, findings=findings, judge=judge).model_dump()

    merged = merged_row(row("small", "good", "bad", "unsure"), row("big", "unsure", "good", "unsure"))
    assert merged["judge"]["model"] == "big" and merged["escalated"] is True
    assert [finding["verdict"] for finding in merged["findings"]] == ["good", "good", "unsure"]


def test_a_stronger_judge_outside_its_domain_takes_no_verdict_away() -> None:
    outside = INFO.model_copy(update={"model": "big", "out_of_domain": "unsure"})
    sure, theirs = said("a", 0.9), said("a", 0.1, outside=True).model_copy(update={"judge": outside})
    row = merged_row(sure.model_dump(), theirs.model_dump())
    assert row["findings"] == sure.model_dump()["findings"] and row["escalated"] is False
    assert (row["escalation_failed"]["status"], row["escalation_failed"]["reason"]) == ("unsure", OUTSIDE)


def test_a_stronger_judge_that_refuses_all_leaves_the_small_judge_s_rows(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with serve(lambda n, body: failure(401, "no such key")) as server, pytest.raises(RRMError, match="no such key"):
        score_cascade(Small(*P_GOOD), stronger_at(server.url), transcripts(6), output, progress=False)
    assert [row["escalated"] for row in rows_of(output)] == [False] * 6
    with serve(calls_all_bad) as server:  # at another address
        small = Small(*P_GOOD)
        score_cascade(small, stronger_at(server.url), transcripts(6), output, share=0.0, progress=False)
    assert not small.asked and [row["escalated"] for row in rows_of(output)] == [False, True] * 3


# ---- money, kills, other runs on the same output ----


def test_the_worst_are_judged_until_the_money_is_spent(tmp_path: Path) -> None:
    output, p_good = tmp_path / "out.jsonl", [0.5 + 0.01 * k for k in range(20)]
    with serve(calls_all_bad) as server:
        judge = stronger_at(server.url, 6.5 * COST)
        first = score_cascade(Small(*p_good), judge, transcripts(20), output, share=0.0, progress=False)
        paid = asked(server)
        assert paid == [f"t{k}" for k in range(len(paid))] and 5 <= len(paid) <= 7
        assert first.stopped is not None and "--max-cost" in first.stopped and first.statuses == {"scored": 20}
        assert first.escalation is not None
        assert (first.escalation.escalated, first.escalation.left) == (len(paid), 20 - len(paid))
        assert [row["escalated"] for row in rows_of(output)] == [True] * len(paid) + [False] * (20 - len(paid))
        judge = stronger_at(server.url, 1.0)
        last = score_cascade(Small(*p_good), judge, transcripts(20), output, share=0.0, progress=False)
        assert asked(server) == [f"t{k}" for k in range(20)], "nothing is paid twice"
    assert last.stopped is None and last.escalation is not None and last.escalation.left == 0
    assert last.usage is not None and last.usage["cost"] == pytest.approx(20 * COST)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process of its own without an import")
def test_a_killed_run_goes_on_and_pays_no_row_twice(tmp_path: Path) -> None:
    output, later, p_good = tmp_path / "out.jsonl", tmp_path / "out.escalated.jsonl", [0.5] * 30
    read, write = os.pipe()
    child = os.fork()  # before there are threads
    if child == 0:
        os.close(write)
        url = os.read(read, 200).decode()
        try:
            score_cascade(Small(*p_good), stronger_at(url), transcripts(30), output, progress=False)
        finally:
            os._exit(0)
    os.close(read)
    hangs = threading.Event()

    def first(n: int, body: dict[str, Any]) -> Answer:
        if n < 10:
            return calls_all_bad(n, body)
        hangs.set()
        return Answer(hang=True)

    with serve(first) as server:
        os.write(write, server.url.encode())
        assert hangs.wait(60)
        while later.read_bytes().count(b"\n") < 10:
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "it ended before it could be killed"
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(write)
    paid = {row["id"] for row in rows_of(later)}
    assert len(paid) == 10
    with serve(calls_all_bad) as server:
        small = Small(*p_good)
        summary = score_cascade(small, stronger_at(server.url), transcripts(30), output, progress=False)
        assert not small.asked and not paid & set(asked(server)) and len(server.requests) == 20
    assert [row["escalated"] for row in rows_of(output)] == [True] * 30
    assert summary.usage is not None and summary.usage["cost"] == pytest.approx(30 * COST)


def test_rows_that_the_small_judge_made_alone_are_gone_on_with(tmp_path: Path) -> None:
    output, small = tmp_path / "out.jsonl", Small(*P_GOOD)
    score_file(small, transcripts(6), output, mode="steps", progress=False)
    alone = output.read_bytes()
    with serve(calls_all_bad) as server:
        score_cascade(small, stronger_at(server.url), transcripts(6), output, share=0.0, progress=False)
        assert set(small.asked.values()) == {1} and (tmp_path / "out.small.jsonl").read_bytes() == alone
        with pytest.raises(RRMError, match="escalate was 'big' and is not set"):
            score_file(small, transcripts(6), output, mode="steps", progress=False)
        other = stronger_at(server.url)
        other.model = f"openai:{server.url}#other"
        with pytest.raises(RRMError, match="escalate was 'big' and is 'other'"):
            score_cascade(small, other, transcripts(6), output, progress=False)
        score_cascade(small, other, transcripts(6), output, share=0.0, overwrite=True, progress=False)
    assert set(small.asked.values()) == {2} and len(server.requests) == 6
    assert {row["judge"]["model"] for row in rows_of(output) if row["escalated"]} == {other.model}


def test_rows_of_another_making_are_left_where_they_are(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    score_file(Small(*P_GOOD), transcripts(6), output, mode="steps", seed=1, progress=False)
    before = output.read_bytes()
    with serve(calls_all_bad) as server, pytest.raises(RRMError, match="seed was 1 and is 0"):
        score_cascade(Small(*P_GOOD), stronger_at(server.url), transcripts(6), output, progress=False)
    assert output.read_bytes() == before and not (tmp_path / "out.small.jsonl").exists()


# ---- the command ----


def test_the_command_asks_two_judges_and_says_what_became_of_it(tmp_path: Path, invoke: Any) -> None:
    """Both on one server: `small` gives no score for every third transcript."""
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_jsonl(source, transcripts(9))

    def answer(n: int, body: dict[str, Any]) -> Answer:
        if body["model"] == "big":
            return calls_all_bad(n, body)
        return completion("no idea" if int(who(body)[1:]) % 3 == 0 else BAD.replace("bad: wrong", "good: fine"))

    with serve(answer) as server:
        where = f"openai:{server.url}"
        run = [str(source), "-o", str(output), "--model", f"{where}#small", "--escalate", f"{where}#big"]
        paid = ["--price", "1,10", "--header", "X-Team=of-the-stronger"]
        code, summary = invoke(score_cmd.command, *run, *paid, "--max-cost", str(1.5 * COST), "--concurrency", "1")
        assert code == 4 and summary["escalation"]["left"] > 0
        code, summary = invoke(score_cmd.command, *run, *paid, "--html", tmp_path / "page.html")
        teams = {
            body["model"]: headers.get("x-team") for body, headers in zip(server.requests, server.headers, strict=True)
        }
    assert (code, summary["statuses"], summary["rows"]) == (0, {"scored": 9}, 9)
    assert teams == {"small": None, "big": "of-the-stronger"}, "options of servers are the stronger judge's"
    said = summary["escalation"]
    assert (said["unsure"], said["escalated"], said["control"], said["left"]) == (3, 3, 1, 0)
    assert said["agreement"] == {"steps": 1, "agree": 0, "rows": 1, "rows_agree": 0, "share": 0.0}
    assert said["usage"]["cost"] == pytest.approx(4 * COST) and (tmp_path / "page.html").is_file()
    rows = rows_of(output)
    assert [row["escalated"] is True for row in rows] == [k % 3 == 0 for k in range(9)]
    assert json.dumps(rows).count("of-the-stronger") == 0


def test_mode_score_shows_what_a_judge_of_steps_is_unsure_of(
    tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_jsonl(source, transcripts(6))
    asked_of: list[Mode] = []

    class Slots(Small):
        abilities = Abilities("small", ["steps"], local=True, prompt_version="2")

        def judge(self, trajectories: Sequence[Trajectory], **how: Any) -> list[Feedback]:
            asked_of.append(how["mode"])
            return super().judge(trajectories, **how)

    with serve(lambda n, body: completion("<score>0.2</score>", usage=USED)) as server:
        judges: dict[str, Any] = {"small": Slots(*P_GOOD), "big": stronger_at(server.url)}
        monkeypatch.setattr(score_cmd, "load_judge", lambda options: judges[options.model])
        run = [str(source), "-o", str(output), "--model", "small", "--escalate", "big", "--escalate-share", "0"]
        code, summary = invoke(score_cmd.command, *run, "--mode", "score")
        assert code == 0 and sorted(asked(server)) == ["t1", "t3", "t5"] and asked_of == ["steps"]
    assert summary["escalation"]["unsure"] == summary["escalation"]["escalated"] == 3
    assert [row["judge"]["mode"] for row in rows_of(output)] == ["steps", "score"] * 3
    assert score_cmd.mode_of_small("score", stronger_at("http://127.0.0.1:9/v1")) == "score"


def test_a_stronger_judge_that_cannot_be_reached_for_some_rows_is_exit_code_1(tmp_path: Path, invoke: Any) -> None:
    source = tmp_path / "in.jsonl"
    write_jsonl(source, transcripts(3))

    def answer(n: int, body: dict[str, Any]) -> Answer:
        return Answer(status=400, body=b"{}") if body["model"] == "big" else completion(BAD)

    with serve(answer) as server:
        where = f"openai:{server.url}"
        run = ["-o", tmp_path / "o.jsonl", "--model", f"{where}#small", "--escalate", f"{where}#big"]
        code, summary = invoke(score_cmd.command, source, *run, "--escalate-share", "0.1")
    assert code == 1 and summary["statuses"] == {"scored": 3} and summary["escalation"]["failed"] == {"judge_error": 1}


def test_options_are_dealt_between_the_two_judges() -> None:
    given = JudgeOptions(
        model="runs/judge", device="cpu", dtype="float32", price="1,2", criteria="c.yaml", settings="s"
    )
    small, stronger = given.escalating("openai:http://h/v1#m")
    assert small == JudgeOptions(model="runs/judge", device="cpu", dtype="float32")
    assert stronger == JudgeOptions(model="openai:http://h/v1#m", price="1,2", criteria="c.yaml", settings="s")
    _, local = given.escalating("runs/larger")
    assert (local.model, local.device, local.dtype, local.settings) == ("runs/larger", "cpu", None, None)
    served = JudgeOptions(model="openai:http://h/v1#small", settings="s", concurrency=3)
    small, stronger = served.escalating("openai:http://h/v1#m")
    assert (small.settings, stronger.settings, small.concurrency, stronger.concurrency) == ("s", None, None, 3)


def test_options_that_make_no_sense_are_refused(tmp_path: Path, invoke: Any) -> None:
    source = tmp_path / "in.jsonl"
    write_jsonl(source, transcripts(1))
    with pytest.raises(ConfigError, match="--escalate-share is of --escalate"):
        invoke(score_cmd.command, source, "-o", tmp_path / "o.jsonl", "--escalate-share", "0.1")
    with pytest.raises(ConfigError, match="--dry-run knows no --escalate"):
        invoke(score_cmd.command, source, "--dry-run", "--escalate", "openai:http://127.0.0.1:9/v1#m")
