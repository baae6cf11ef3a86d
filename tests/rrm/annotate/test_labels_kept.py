"""What given labels become, and which of a model's judgements are kept as labels."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest
from agent_runs import REPLY, call, run

from rrm.annotate import llm, self_
from rrm.data.annotation import Finding
from rrm.data.feedback import Feedback, JudgeInfo, parse_findings
from rrm.data.text import leaks, normalise, references
from rrm.data.trajectory import Message, Trajectory
from rrm.engines.scripted import ScriptedChatEngine
from rrm.errors import ConfigError, EngineError, RRMError
from rrm.prompt import rules
from rrm.train import given_labels as given

# ---- given -----------------------------------------------------------------------------------------------------------


def test_given_critiques_become_findings() -> None:
    trajectory = run(
        "<execute>f()</execute>",
        "NameError: f",
        "<solution>5</solution>",
        critic="gpt-4",
        reference="77",
        outcome=0,
        critiques=[
            {"after_message": 3, "text": "This is GOOD. Nice.", "good": True},
            {"after_message": 1, "text": "This is NOT GOOD. Define f. [step 9] Then call it.", "good": False},
            {"after_message": 1, "text": "The assistant's approach is still incorrect. Define f first.", "good": False},
            {"after_message": 1, "text": "This is INCORRECT. The answer is 77.", "good": False},
            {"after_message": 3, "text": "NOT GIVEN", "good": False},
            {"after_message": 2, "text": "This is GOOD. Speaks of no step.", "good": True},
        ],
    )
    counts = Counter[str]()
    (annotation,) = given.annotate([trajectory], counts=counts, with_trace=True)
    assert annotation.findings == [
        Finding(step=1, verdict="bad", text="Define f. step 9 Then call it."),
        Finding(step=1, verdict="bad", text="Define f first."),
        Finding(step=2, verdict="good", text="Nice."),
    ]
    assert parse_findings(annotation.critique, 2) == annotation.findings
    assert annotation.trace == "[step 1] runs code; error NameError\n[step 2] proposes an answer not seen before"
    assert (annotation.annotator, annotation.kind, annotation.score) == ("gpt-4", "llm", None)
    assert counts == {"findings": 3, "leaks_dropped": 1, "critiques_unusable": 2, "annotated": 1}


@pytest.mark.parametrize("critiques", ["too slow", {"text": "too slow"}, 3, ["too slow", "good"], [None, 7, []]])
def test_given_critiques_of_another_shape_are_no_labels(critiques: object) -> None:
    counts: Counter[str] = Counter()
    rows = list(given.annotate([run("a", critiques=critiques)], counts=counts))
    assert rows == [] and counts["without_label"] == 1
    assert counts["critiques_unusable"] == (len(critiques) if isinstance(critiques, list) else 0)


def test_given_critiques_among_other_things_are_kept_and_nothing_is_coerced() -> None:
    critiques = [
        "too slow",
        {"after_message": [1], "good": True, "text": "a"},
        {"after_message": 1, "good": "no", "text": "finds nothing"},
        {"after_message": 1, "good": False, "text": ["b"]},
        {"after_message": 1, "good": False, "text": "asks twice"},
    ]
    counts: Counter[str] = Counter()
    (row,) = given.annotate([run("a", critiques=critiques)], counts=counts)
    assert [(f.step, f.verdict, f.text) for f in row.findings or []] == [(1, "bad", "asks twice")]
    assert counts["critiques_unusable"] == 4


def test_a_reply_without_clear_verdicts_keeps_its_findings_but_teaches_none_of_them() -> None:
    reply = REPLY.replace("[step 2] bad:", "[step 2] good, but").replace("[step 1] good:", "**[Step 1] Good** –")
    counts = Counter[str]()
    engine = ScriptedChatEngine(lambda messages, params, key: reply)
    (annotation,) = llm.annotate([run("a", "b", "c")], engine, model="m", counts=counts)
    assert [f.verdict for f in annotation.findings or []] == ["good", "unclear"] and counts["findings_unclear"] == 1
    assert annotation.critique == "[step 1] good: right search"


def test_what_the_transcript_says_is_no_leak() -> None:
    assert leaks("it is 77", ["77"], normalise("nothing"))
    assert not leaks("it is 77", ["77"], normalise("we saw 77 there"))
    assert not leaks("it is 177", ["77"], "")
    assert not leaks("no, that is wrong", ["no"], "")
    several = references(["Paris", "Paris, France"])
    assert leaks("the answer is Paris", several, "which town")
    assert not leaks("the answer is Paris", several, normalise("in Paris, France, I think"))


def test_given_labels_of_another_shape() -> None:
    trajectory = run("hi", judge={"mark": 0.4, "note": "[step 1] bad: greet later"})
    fields = {"score": "judge.mark", "critique": "judge.note"}
    (annotation,) = given.annotate([trajectory], fields=fields)
    assert (annotation.score, annotation.critique, annotation.kind) == (0.4, "[step 1] bad: greet later", "human")
    with pytest.raises(RRMError, match="trajectory t: a given label does not fit"):
        list(given.annotate([run("hi", judge={"mark": 7})], fields=fields))
    with pytest.raises(ConfigError, match="cannot map grade"):
        list(given.annotate([trajectory], fields={"grade": "judge.mark"}))
    counts = Counter[str]()
    assert list(given.annotate([run("hi")], counts=counts)) == [] and counts["without_label"] == 1


def test_given_and_rules_on_real_transcripts(shared_data: Path) -> None:
    """Where both speak of a step: rules that see a fault agree with GPT-4's verdict far above its 78 % base rate."""
    trajectories = []
    for task in ("hotpotqa", "gsm8k"):
        with gzip.open(shared_data / "transcripts" / "mint" / f"{task}.jsonl.gz", "rt") as lines:
            rows = (Trajectory.model_validate(json.loads(line)) for line in lines)
            trajectories += [t for t in rows if t.meta.get("critic")][::6]
    counts = Counter[str]()
    labels = {a.trajectory_id: a for a in given.annotate(trajectories, counts=counts)}
    assert counts["findings"] > 400 and counts["annotated"] == len(trajectories)
    agree = Counter[tuple[str, str]]()
    for trajectory in trajectories:
        trace = rules.rules_trace(trajectory).splitlines()
        assert len(trace) == len(trajectory.steps) and max(map(len, map(str.split, trace)), default=0) <= 20
        verdicts = {f.step: f.verdict for f in labels[trajectory.id].findings or []}
        for finding in rules.check_steps(trajectory)[0]:
            if finding.step in verdicts and ("repeat" in finding.text or "no action" in finding.text):
                agree["hard", verdicts[finding.step]] += 1
            elif finding.step in verdicts and finding.verdict == "good":
                agree["used", verdicts[finding.step]] += 1
    assert agree["hard", "bad"] > 12 * agree["hard", "good"]  # a loop counts once
    assert agree["used", "good"] > agree["used", "bad"]


# ---- llm and self ----------------------------------------------------------------------------------------------------


def test_llm_labels_without_leaks_and_without_failures() -> None:
    rows = [
        run(call({"q": "a"}), "x", "Final Answer: x", reference="Baker Street", outcome=0).model_copy(update={"id": i})
        for i in "abcd"
    ]
    script = {"a": REPLY, "b": "no idea", "c": EngineError("HTTP 500"), "d": REPLY.replace("Baker Street", "another")}
    engine, counts = ScriptedChatEngine(script), Counter[str]()
    labels = list(llm.annotate(rows, engine, model="m", window=2, counts=counts))
    assert [a.trajectory_id for a in labels] == ["a", "d"]
    assert [f.step for f in labels[0].findings or []] == [1]
    assert [f.step for f in labels[1].findings or []] == [1, 2]
    assert (labels[0].score, labels[0].trace, labels[0].kind) == (0.3, "[step 1] searched; found", "llm")
    assert counts == {
        "annotated": 2,
        "leaks_dropped": 1,
        "findings_unclear": 0,
        "without_steps": 0,
        "unparsable": 1,
        "judge_error": 1,
    }
    system, user = engine.calls[0][0]
    assert llm.INSTRUCTION in system["content"]
    assert "Baker Street" not in system["content"] + user["content"]


def test_llm_says_once_what_brought_no_annotation(caplog: pytest.LogCaptureFixture) -> None:
    """It was a line of the log a transcript."""
    engine = ScriptedChatEngine([EngineError("gone\nfor good"), "no blocks", REPLY, "none here", "nor here"])
    rows = [run("a", "b", "c", id=f"t{i}", question_id=f"q{i}") for i in range(5)]
    counts = Counter[str]()
    labels = list(llm.annotate(rows, engine, model="m", window=2, counts=counts))
    assert len(labels) == 1 and counts["unparsable"] == 3 and counts["judge_error"] == 1
    (said,) = [r.getMessage() for r in caplog.records if r.name == "rrm.annotate.llm"]
    assert said.startswith("4 transcripts got no annotation: 3 unparsable, the first t1: ")
    assert said.endswith("; 1 judge_error, the first t0: gone for good")


def test_llm_drops_a_trace_that_is_too_long_or_leaks() -> None:
    trajectory = run("Final Answer: x", reference="Baker Street")
    long = REPLY.replace("searched", "word " * 300)
    leaking = REPLY.replace("searched", "Baker Street")
    engine = ScriptedChatEngine([long, leaking])
    assert [a.trace for a in llm.annotate([trajectory, trajectory], engine, model="m")] == [None, None]


def judgement(score: float | None, *, anchored: bool = True, trace: str | None = "did it") -> Feedback:
    findings = [Finding(step=1, verdict="bad", text="no")] if anchored else []
    info = JudgeInfo(model="j", prompt_version="1", mode="full")
    status = "unparsable" if score is None else "scored"
    return Feedback(id="t", status=status, score=score, trace=trace, critique="c", findings=findings, judge=info)


def test_self_keeps_the_judgements_that_agree_with_the_outcome() -> None:
    failed = run("Final Answer: x", outcome=0)
    offered = [judgement(0.4), judgement(0.5), judgement(None), judgement(0.1), judgement(0.0, anchored=False)]
    assert [f.score for f in self_.agreeing(failed, offered)] == [0.1, 0.4]
    assert [f.score for f in self_.agreeing(failed.model_copy(update={"outcome": 1.0}), offered)] == []
    assert [f.score for f in self_.agreeing(failed, [judgement(0.2, trace=None)])] == []
    assert [f.score for f in self_.agreeing(failed, [judgement(0.2, trace=None)], "critique")] == [0.2]
    assert self_.agreeing(run("x"), offered) == []
    leaking = run("Final Answer: x", outcome=0, reference="did it")
    assert self_.agreeing(leaking, offered) == []


def test_self_annotates_with_a_real_judge() -> None:
    from rrm.judge.agent_rrm import AgentRRM

    replies = {"t": REPLY.replace("Baker Street", "y"), "u": REPLY.replace("0.3", "0.9")}
    judge = AgentRRM(ScriptedChatEngine(lambda messages, params, key: replies[key.partition("/")[0]]), model="tiny")
    rows = [run("a", "b", "c", outcome=0), run("a", "b", "c", outcome=0).model_copy(update={"id": "u"}), run("a")]
    counts = Counter[str]()
    labels = list(self_.annotate(rows, judge, model=judge.model, k=3, keep=2, counts=counts))
    assert [(a.trajectory_id, a.score, a.kind, a.annotator) for a in labels] == [("t", 0.3, "self", "tiny")] * 2
    said = {"judgements": 6, "agreeing": 3, "annotated": 1, "without_agreement": 1}
    assert counts == {"without_label": 1, "without_steps": 0, **said}


def test_a_killed_annotation_loses_one_round_of_requests() -> None:
    """Annotations are handed over after the first round, not after the first thirty-two transcripts."""
    from rrm.annotate import llm
    from rrm.engines.base import Reply, SamplingParams

    class Server:
        concurrency, asked = 2, 0

        def complete(self, messages: list[dict[str, str]], params: SamplingParams, key: str = "") -> Reply:
            self.asked += 1
            text = "<think>t</think><critique>[step 1] good: ok</critique><score>0.5</score>"
            return Reply(text=text, stop_reason="eos")

    rows = [Trajectory(id=f"t{i}", task=f"q{i}", messages=[Message(role="assistant", content="a")]) for i in range(9)]
    server = Server()
    made = llm.annotate(rows, server, model="m")
    next(made)
    assert server.asked == 2
    assert len(list(made)) == 8


def test_as_many_are_annotated_at_once_as_the_server_takes() -> None:
    from rrm.engines.base import Reply

    class Server:
        concurrency = 100
        rounds: ClassVar[list[int]] = []

        def converse(self, requests: Any, params: Any, answered: Any) -> None:
            asked = list(requests)
            self.rounds.append(len(asked))
            for request in asked:
                answered(request, Reply("<critique>[step 1] good: ok</critique><score>0.5</score>", "eos"))

    rows = [Trajectory(id=f"t{i}", task=f"q{i}", messages=[Message(role="assistant", content="a")]) for i in range(100)]
    server: Any = Server()
    assert len(list(llm.annotate(rows, server, model="m"))) == 100 and server.rounds == [100]
