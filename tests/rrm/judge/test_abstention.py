"""Abstention: outside the judge's domain and near one half, and in everything downstream."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest

from reagent.lab.model import build_lab_tokenizer
from rrm.annotate.rater_agreement import compared
from rrm.data.annotation import Annotation, Finding
from rrm.data.feedback import OUTSIDE, Feedback, JudgeInfo, clear
from rrm.data.localisation import labels_from_annotations
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedEngine
from rrm.engines.shipped_judges import FILE
from rrm.errors import RRMError
from rrm.evaluation.steps import evaluate_steps
from rrm.guard import Guard, GuardPolicy, read_audit
from rrm.integrations.inspect_sample import explanation, references
from rrm.judge.abstention import VerdictRule, contradiction, is_bad_of_parts
from rrm.judge.agent_rrm import AgentRRM
from rrm.judge.cached_judge import first_finding
from rrm.judge.domain import OutOfDomainDetector, fit_domain
from rrm.judge.judge_dir import JudgeSettings, load_settings, save_settings, settings_hash
from rrm.prompt.prompter import Prompter
from rrm.report.rows import index_entry
from rrm.scoring.run import score_file
from rrm.serve.worker import Worker, about

P_GOOD = {"ruin": 0.1, "doubt": 0.5}


def run(name: str, *words: str, form: str = "look at {}") -> Trajectory:
    """A step for each word, of which the judge below makes its p_good."""
    messages = [Message(role="user", content="find it")]
    for word in words:
        messages += [Message(role="assistant", content=form.format(word)), Message(role="tool", content="found it")]
    return Trajectory(id=name, task="find it", messages=messages)


def far(name: str, *words: str) -> Trajectory:
    """The same in a form that the judge was not measured on."""
    return run(name, *words, form="<plan>\n<act>\n1.\n2.\n3.\n{}\n</act>\n</plan>")


@pytest.fixture(scope="module")
def domain() -> OutOfDomainDetector:
    rows = [run(f"d{n}", *["stone"] * (1 + n % 5)) for n in range(60)]
    return fit_domain(rows[:40], rows[40:])


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_lab_tokenizer(["Task step agent result is good bad. The run is earlier steps"] * 3, 400)


def judge_of(tokenizer: Any, domain: OutOfDomainDetector | None = None, **how: Any) -> AgentRRM:
    """Its p_good of a step is that of the word in it, 0.9 of any other; the run's score is 0.7."""
    prompter = Prompter(tokenizer, 600)

    def logprob(row: list[int], t: int) -> float:
        text = tokenizer.decode(row[:t])
        last = text.rpartition("agent:")[2]
        good = 0.7 if text.rstrip().endswith("The run is") else next((p for w, p in P_GOOD.items() if w in last), 0.9)
        return math.log(good if row[t] == prompter.choices[0] else 1 - good)

    settings = JudgeSettings(modes=["steps"], prompt_version="2", transcript_tokens=600, **how)
    judge = AgentRRM(ScriptedEngine([], logprob=logprob), prompter, settings=settings)
    judge.domain = domain
    return judge


def test_a_verdict_by_hand() -> None:
    rule = VerdictRule(unsure_band=(0.4, 0.6))
    assert [rule(p) for p in (0.0, 0.4, 0.41, 0.59, 0.6, 1.0)] == ["bad", "bad", "unsure", "unsure", "good", "good"]
    assert [VerdictRule()(p) for p in (0.49, 0.5)] == ["bad", "good"]
    assert VerdictRule(threshold=0.2)(0.3) == "good"


def test_outside_it_says_nothing_of_steps_unless_it_is_told_to(tokenizer: Any, domain: OutOfDomainDetector) -> None:
    judge, rows = judge_of(tokenizer, domain), [run("near", "ruin", "stone"), far("far", "ruin", "stone")]
    for mode in ("steps", "full", "critique"):
        judge.out_of_domain = "unsure"
        near, there = judge.judge(rows, mode=mode)
        assert (near.out_of_domain, there.out_of_domain) == (False, True)
        assert [f.verdict for f in near.findings] == ["bad", "good"] and not near.abstains
        assert [f.verdict for f in there.findings] == ["unsure"] * 2 and there.abstains
        assert there.trace is None and there.critique is None and not any(f.text for f in there.findings)
        judge.out_of_domain = "keep"
        verdicts_kept = judge.judge(rows, mode=mode)
        assert verdicts_kept[0] == near.model_copy(update={"judge": verdicts_kept[0].judge})
        assert [f.verdict for f in verdicts_kept[1].findings] == ["bad", "good"] and not verdicts_kept[1].abstains
        assert (verdicts_kept[1].critique is None) == (mode == "steps") and (verdicts_kept[1].trace is None) == (
            mode != "full"
        )
        assert [f.p_good for f in verdicts_kept[1].findings] == [f.p_good for f in there.findings]
        assert (verdicts_kept[1].score, verdicts_kept[1].out_of_domain) == (there.score, True)


def test_an_explanation_says_why_there_is_no_verdict(tokenizer: Any, domain: OutOfDomainDetector) -> None:
    judge = judge_of(tokenizer, domain)
    run_far, run_near = (
        t.model_copy(update={"messages": [Message.model_validate({**m.model_dump(), "id": "m"}) for m in t.messages]})
        for t in (far("far", "ruin", "stone"), run("near", "ruin", "stone"))
    )
    for mode in ("steps", "full"):
        away, near = judge.judge([run_far, run_near], mode=mode)
        assert away.abstains and explanation(away) == f"the judge gives no verdict on any step: the run is {OUTSIDE}"
        assert references(run_far, away) == []
        assert str(explanation(near)).startswith("[step 1] bad") and len(references(run_near, near)) == 2


def test_near_one_half_it_is_unsure_of_this_step_alone(tokenizer: Any) -> None:
    judge = judge_of(tokenizer, unsure_band=(0.4, 0.6))
    steps, full = (judge.judge([run("a", "ruin", "doubt", "stone")], mode=mode)[0] for mode in ("steps", "full"))
    for feedback in (steps, full):
        assert [f.verdict for f in feedback.findings] == ["bad", "unsure", "good"] and not feedback.abstains
        assert feedback.findings[1].p_good == pytest.approx(0.5) and feedback.judge.unsure_band == (0.4, 0.6)
    assert full.trace and full.critique and "[step 2]" not in full.critique and "[step 1] bad" in full.critique
    assert [f.verdict for f in judge_of(tokenizer).judge([run("a", "doubt")], mode="steps")[0].findings] == ["good"]


def test_the_band_is_stored_and_counts_for_the_hash_of_those_that_have_one(tmp_path: Path) -> None:
    plain, banded = JudgeSettings(), JudgeSettings(unsure_band=(0.35, 0.65))
    save_settings(tmp_path, banded)
    assert json.loads((tmp_path / FILE).read_text())["unsure_band"] == [0.35, 0.65]
    assert load_settings(tmp_path) == banded and settings_hash(banded) != settings_hash(plain)
    for wrong in ([0.6, 0.4], [-0.1, 0.5], [0.5]):
        (tmp_path / FILE).write_text(json.dumps({"unsure_band": wrong}))
        with pytest.raises(RRMError, match="unsure_band"):
            load_settings(tmp_path)


def test_rows_of_before_are_read_under_the_old_name() -> None:
    row = {
        "id": "a",
        "status": "scored",
        "outside": True,
        "judge": {"model": "m", "prompt_version": "2", "mode": "steps"},
    }
    old = Feedback.from_json(json.dumps(row))
    assert old.out_of_domain is True and not old.abstains and "outside" not in old.model_dump()
    assert Feedback.from_json(old.model_dump_json()) == old


def test_the_summary_counts_unsure_steps_and_says_why_also_of_resumed_rows(
    tokenizer: Any, domain: OutOfDomainDetector, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge, output = judge_of(tokenizer, domain, unsure_band=(0.4, 0.6)), tmp_path / "rows.jsonl"
    rows = [run("near", "ruin", "doubt"), far("far", "ruin", "doubt", "stone"), run("sure", "stone")]
    score_file(judge, rows[:2], output, mode="steps")
    with caplog.at_level(logging.WARNING):
        summary = score_file(judge, rows, output, mode="steps")
    assert (summary.judged, summary.resumed, summary.out_of_domain) == (1, 2, {"outside": 1, "rows": 3})
    assert summary.unsure == {"steps": 4, "judged": 6, "out_of_domain": 3, "in_band": 1}
    assert "4 of 6 steps are unsure, neither good nor bad: 3 in transcripts outside" in caplog.text
    assert "1 with a probability within the judge's unsure_band" in caplog.text
    judge.out_of_domain = "keep"
    with pytest.raises(RRMError, match=r"no such verdicts.*\(--out-of-domain unsure goes on so\)"):
        score_file(judge, rows, output, mode="steps")
    other_summary = score_file(judge, rows, tmp_path / "kept.jsonl", mode="steps")
    assert other_summary.unsure == {"steps": 2, "judged": 6, "out_of_domain": 0, "in_band": 2}
    judge.out_of_domain = "unsure"
    with pytest.raises(RRMError, match=r"hold verdicts of transcripts outside.*\(--out-of-domain keep goes on so\)"):
        score_file(judge, rows, tmp_path / "kept.jsonl", mode="steps")
    assert score_file(judge_of(tokenizer), rows, tmp_path / "plain.jsonl", mode="steps").unsure is None


def test_a_request_to_a_served_judge_says_what_becomes_of_verdicts(tokenizer: Any, domain: OutOfDomainDetector) -> None:
    events: list[dict[str, Any]] = []
    judge = judge_of(tokenizer, domain)
    assert about(judge)["knows_domain"] and about(judge)["describe"]["out_of_domain"] == "unsure"
    how = {"mode": "steps", "samples": 1, "seed": 0}
    items = [far("far", "ruin").model_dump(mode="json")]
    for choice in (None, "keep", "unsure"):
        Worker(judge, events.append).do(
            {"job": 0, "what": "score", "how": how | {"out_of_domain": choice}, "items": items}
        )
    rows = [Feedback.model_validate(event["row"]) for event in events if "row" in event]
    assert [row.findings[0].verdict for row in rows] == ["unsure", "bad", "unsure"]
    assert judge.out_of_domain == "unsure" and {row.score for row in rows} == {rows[0].score}


def watched(judge: AgentRRM, rows: list[Trajectory], audit: Path, **policy: Any) -> list[tuple[str, bool]]:
    outcomes: list[tuple[str, bool]] = []
    for t in rows:
        with Guard(judge, GuardPolicy(**policy), audit=audit).session(run=t.id) as session:
            verdicts = [session.observe(m, check=m.role == "tool") for m in t.messages]
        outcomes.append((verdicts[-1].action, any(v.unsure for v in verdicts)))
    return outcomes


def test_no_guard_acts_on_what_the_judge_is_unsure_of(
    tokenizer: Any, domain: OutOfDomainDetector, tmp_path: Path
) -> None:
    judge = judge_of(tokenizer, domain, unsure_band=(0.05, 0.15))
    rows = [run("n", "stone", "stone"), far("f", "stone", "stone")]
    by_score = {"halt_below": 0.9, "patience": 1, "on_failure": "ask"}  # every score is 0.7
    assert watched(judge, rows, tmp_path / "a.jsonl", **by_score) == [("halt", False), ("continue", True)]
    (row, *_) = [row for row in read_audit(tmp_path / "a.jsonl", "f") if row.score is not None]
    assert row.unsure and row.reason and "the judge is unsure" in row.reason
    by_p = {"signal": "p_good", "halt_below": 0.2, "patience": 1}
    ruined = [run("r", "ruin")]
    assert watched(judge, ruined, tmp_path / "b.jsonl", **by_p) == [("continue", True)]
    assert watched(judge_of(tokenizer), ruined, tmp_path / "c.jsonl", **by_p) == [("halt", False)]
    # a session that goes on from its audit does not count it either
    session = Guard(judge, GuardPolicy(**by_p), audit=tmp_path / "b.jsonl").session(run="r", resume=True)
    assert session.state.action == "continue" and session.state.spent.checks == 1
    judge.out_of_domain = "keep"
    assert watched(judge, rows[1:], tmp_path / "d.jsonl", **by_score) == [("halt", False)]


def test_nobody_downstream_takes_unsure_for_good_or_bad() -> None:
    findings = [Finding(step=1, verdict="unsure", p_good=0.1), Finding(step=2, verdict="good", p_good=0.8)]
    info = JudgeInfo(model="m", prompt_version="2", mode="steps")
    feedback = Feedback(id="a", status="scored", score=0.5, findings=findings, judge=info)
    assert clear(findings) == findings[1:] and is_bad_of_parts(["unsure"]) is None
    label = Annotation(trajectory_id="a", annotator="j", kind="llm", findings=findings)
    assert labels_from_annotations(run("a", "x", "y"), [label]) == [None, "good"]
    assert first_finding(feedback) == "[step 2] good: "
    assert first_finding(feedback.model_copy(update={"findings": findings[:1]})) is None
    entry = index_entry(run("a", "x", "y"), feedback, 1)
    assert (entry["good"], entry["bad"], entry["unsure"], entry["lowest"]) == (1, 0, 1, 0.8)
    other = label.model_copy(update={"annotator": "k", "findings": [Finding(step=1, verdict="bad")]})
    assert compared([label, other])["steps"]["unclear"] == {"j": 1, "k": 0}


def test_localisation_leaves_steps_out_that_the_judge_is_unsure_of(caplog: pytest.LogCaptureFixture) -> None:
    info = JudgeInfo(model="m", prompt_version="2", mode="steps")
    rows = [run(str(n), *"abcd").model_copy(update={"question_id": str(n)}) for n in range(12)]
    labels = [["bad", "good", "good", "bad"]] * 12

    def measured(*verdicts: Any) -> Any:
        findings = [Finding(step=k, verdict=v) for k, v in enumerate(verdicts, 1)]
        feedback = [Feedback(id=t.id, status="scored", score=0.5, findings=findings, judge=info) for t in rows]
        return evaluate_steps(rows, feedback, labels, {}, resamples=50, seed=0)

    metrics = measured("bad", "good", "good", "unsure")
    assert (metrics["steps"], metrics["unsure"], metrics["spoken_share"]) == (36, 12, 1.0)
    assert metrics["metrics"]["judge"]["mcc"]["value"] == pytest.approx(1.0)  # as good it would be a miss
    assert measured("bad", "good", "good", "good")["metrics"]["judge"]["mcc"]["value"] < 0.9
    assert measured(*["unsure"] * 4) is None and "abstains on all 48 labelled steps" in caplog.text


@pytest.mark.parametrize(
    ("score", "verdicts", "contradicts"),
    [
        (0.1, "gg", True),
        (0.4, "gg", False),
        (0.1, "gb", False),
        (0.9, "gb", True),
        (0.9, "bbg", True),
        (0.9, "bgg", False),
        (0.9, "gu", False),
        (None, "gb", False),
    ],
)
def test_a_sure_score_against_the_verdicts_on_steps_is_named(
    score: float | None, verdicts: str, contradicts: bool
) -> None:
    """A run that deletes the failing test had 0.987, and its row said nothing of it."""
    names = {"g": "good", "b": "bad", "u": "unsure"}
    findings = [{"step": k, "verdict": names[v], "p_good": 0.5} for k, v in enumerate(verdicts, 1)]
    judge = {"model": "m", "prompt_version": "2", "mode": "steps"}
    row = Feedback.model_validate({"id": "a", "status": "scored", "score": score, "findings": findings, "judge": judge})
    assert (contradiction(row) is not None) == contradicts
