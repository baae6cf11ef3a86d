"""What raters say becomes annotations; their file survives; the page answers nobody else; raters are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from labelled_runs import ask, run, served

from rrm.annotate.label import Change, Label, StepSaid, annotation_of, changed, objection
from rrm.annotate.label_journal import Journal, open_journal
from rrm.annotate.label_pool import TranscriptPool
from rrm.annotate.label_server import MOST_BODY, LabelServer
from rrm.annotate.rater_agreement import unsure_of
from rrm.cli import eval_cmd, label_cmd
from rrm.config import TrainConfig
from rrm.data.annotation import Annotation, match, read_annotations
from rrm.data.feedback import Feedback, JudgeInfo
from rrm.data.mistakes import MISTAKE_KINDS
from rrm.data.trajectory import write_jsonl
from rrm.errors import RRMError

Invoke = Callable[..., tuple[int, dict[str, Any]]]


def said(*changes: tuple[str, int | None, str | None], steps: int = 3) -> Label:
    found = Label()
    for field, step, value in changes:
        found = changed(found, Change.model_validate({"field": field, "step": step, "value": value}), steps)
    return found


def label(found: Label) -> Annotation | None:
    return annotation_of(found, "run/1", "d" * 16, "ann")


def test_what_was_said_becomes_an_annotation() -> None:
    found = label(said(
        ("outcome", None, "bad"), ("comment", None, " Never answers. "), ("verdict", 1, "good"), ("verdict", 2, "bad"),
        ("category", 2, "wrong tool"), ("step_comment", 2, "Should <score>1.0</score> search"), ("verdict", 3, "unclear"),
    ))  # fmt: skip
    assert found is not None and (found.score, found.kind, found.annotator) == (0.0, "human", "ann")
    assert [(f.step, f.verdict, f.text) for f in found.findings or ()] == [
        (1, "good", ""),
        (2, "bad", "wrong tool: Should (score)1.0(/score) search"),
        (3, "unclear", ""),
    ]
    assert found.critique == "Never answers.\n[step 2] bad: wrong tool: Should (score)1.0(/score) search"
    assert Annotation.from_json(found.to_json()) == found


def test_nothing_is_learned_from_who_is_unsure_or_takes_it_back() -> None:
    assert label(said(("outcome", None, "unsure"))) is None and label(Label()) is None
    assert (
        said(("verdict", 1, "bad"), ("verdict", 1, None), ("outcome", None, "good"), ("outcome", None, None)) == Label()
    )
    rest = said(("verdict", 2, "bad"), ("rest", None, "good"))
    assert [one.verdict for one in rest.steps.values()] == ["good", "bad", "good"]
    assert rest.done(3, "steps") and not rest.done(3, "outcome") and not rest.done(3, "both")
    for wrong in (("verdict", 4, "good"), ("verdict", None, "good"), ("verdict", 1, "fine"), ("outcome", None, "1")):
        with pytest.raises(ValueError):
            said(wrong)


def test_a_comment_alone_is_no_verdict_and_nothing_is_wrong_with_a_good_step() -> None:
    alone = said(("step_comment", 2, "Asks the same again."))
    assert label(alone) is None and alone.waiting == [2]
    judged = changed(alone, Change(field="verdict", step=2, value="bad"), 3)
    assert judged.waiting == [] and (found := label(judged)) is not None
    assert [(f.step, f.verdict, f.text) for f in found.findings or ()] == [(2, "bad", "Asks the same again.")]
    wrong = Change(field="category", step=1, value="wrong tool")
    good = said(("verdict", 1, "good"))
    assert "step 1 is good" in (objection(good, wrong) or "") and changed(good, wrong, 3) == good
    first = changed(Label(), wrong, 3).steps[1]
    assert (first.verdict, first.category, objection(Label(), wrong)) == ("bad", "wrong tool", None)
    for verdict, category in (("unclear", "wrong tool"), ("good", None), (None, None)):
        steps = said(("category", 1, "wrong tool"), ("verdict", 1, verdict)).steps
        assert steps.get(1, StepSaid()).category == category


def test_a_journal_keeps_every_action_and_undoes_them_also_later(tmp_path: Path) -> None:
    path, t = tmp_path / "labels.jsonl", run(1)
    good, bad = (Change(field="outcome", value=value) for value in ("good", "bad"))
    of = (t.digest, t.own_id, 3)
    with open_journal(path, "ann") as journal:
        journal.change("action-1", *of, good)
        journal.change("action-2", *of, bad)
        journal.change("action-2", *of, good)  # sent twice: its answer was lost
        assert read_annotations(path)[0].score == 0.0
        with pytest.raises(RRMError, match="is being labelled by another `rrm label`"), open_journal(path, "ann"):
            pass
    with open(f"{path}.journal", "ab") as file:
        file.write(b'{"action": "half')  # the machine went down while it was written
    path.unlink()
    with open_journal(path, "ann") as journal:
        assert journal.said(t.digest).outcome == "bad" and read_annotations(path)[0].score == 0.0
        assert journal.undo("action-3") == t.digest == journal.undo("action-3")
        assert read_annotations(path)[0].score == 1.0
    with open_journal(path, "ann") as journal:
        assert journal.undo("action-4") == t.digest and journal.undo("action-5") is None
        assert read_annotations(path) == [] and journal.said(t.digest) == Label()


def test_actions_that_change_nothing_are_not_taken_later_either(tmp_path: Path) -> None:
    path, of = tmp_path / "labels.jsonl", (run(1).digest, run(1).own_id, 3)
    good, bad = (Change(field="outcome", value=value) for value in ("good", "bad"))

    def sent(journal: Journal) -> str | None:
        """What a page that is left sends once more, all together."""
        undone = journal.undo("action-1")
        journal.change("action-2", *of, good)
        journal.change("action-3", *of, good)  # as it is said
        journal.change("action-4", *of, bad)
        return undone

    with open_journal(path, "ann") as journal:
        for _ in range(2):
            assert sent(journal) is None and journal.said(of[0]).outcome == "bad"
    with open_journal(path, "ann") as journal:  # started again under the same --port
        assert sent(journal) is None and journal.said(of[0]).outcome == "bad"
        assert journal.undo("action-5") == of[0] and journal.said(of[0]).outcome == "good"
        assert journal.undo("action-6") == of[0] and journal.said(of[0]) == Label()  # saying it again was no step


def test_a_file_is_one_raters_and_an_edit_is_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, t = tmp_path / "labels.jsonl", run(1)
    with open_journal(path, "ann") as journal:
        journal.change("action-1", t.digest, t.own_id, 3, Change(field="outcome", value="good"))
    with pytest.raises(RRMError, match="holds the labels of 'ann'"), open_journal(path, "bob"):
        pass
    edited = path.read_text().replace("1.0", "0.5")
    path.write_text(edited)
    with open_journal(path, "ann"):
        pass
    assert read_annotations(path)[0].score == 1.0 and (tmp_path / "labels.jsonl.before").read_text() == edited
    assert "was kept as" in caplog.text
    for later in ("a second edit\n", "a third\n"):
        path.write_text(later)
        with open_journal(path, "ann"):
            pass
    kept = [(tmp_path / f"labels.jsonl.before{n}").read_text() for n in ("", ".2", ".3")]
    assert kept == [edited, "a second edit\n", "a third\n"]
    other = tmp_path / "rules.jsonl"
    other.write_text(edited)
    with pytest.raises(RRMError, match="did not write"), open_journal(other, "ann"):
        pass
    with open(f"{path}.journal", "a") as file:
        file.write('{"action": "x", "at": "now", "nonsense": 1}\n')
    with pytest.raises(RRMError, match=r"journal:2: not an action of `rrm label`"), open_journal(path, "ann"):
        pass


def test_transcripts_stay_on_disk_and_what_nobody_may_see_stays_out_of_view() -> None:
    runs = [run(n) for n in range(20)]
    runs[3].meta["reference"] = "the answer is secret"
    with TranscriptPool([*runs, run(3)], shuffle=1) as pool:
        assert len(pool) == 20 and pool.repeated == 1
        assert {item.digest for item in pool.items} == {t.digest for t in runs}
        assert [item.id for item in pool.items] != [t.id for t in runs]
        place = pool.place(runs[3].digest)
        assert place is not None and pool.place("unknown") is None
        view = pool.view(place)
    assert set(view) == {"task", "tools", "prelude", "steps"} and "secret" not in json.dumps(view)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LabelServer]:
    with served([run(1), run(2)], tmp_path / "labels.jsonl") as server:
        yield server


def test_nobody_but_the_page_is_answered(server: LabelServer) -> None:
    inside, act = f"/{server.token}", {"action": "action-1", "undo": True}
    status, headers, page = ask(server, "GET", f"{inside}/")
    assert status == 200 and b"<title>Label transcripts</title>" in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert headers["Cache-Control"] == "no-store" and headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert server.token.encode() not in page
    refused = {
        ("GET", "/"): 404,
        ("GET", "/start"): 404,
        ("GET", f"/{server.token[:-1]}/start"): 404,
        ("GET", f"{inside}/item/0"): 404,
        ("GET", f"{inside}/item/3"): 404,
        ("GET", f"{inside}/item/x"): 404,
        ("POST", f"{inside}/start"): 404,
        ("POST", "/act"): 404,
    }
    assert {key: ask(server, key[0], key[1], act if key[0] == "POST" else None)[0] for key in refused} == refused
    assert (
        ask(server, "GET", f"{inside}/start", Host="evil.example")[0] == 421
    )  # a name that was rebound to this machine
    assert ask(server, "POST", f"{inside}/act", act, Origin="http://evil.example")[0] == 403
    assert ask(server, "POST", f"{inside}/act", act, Origin="")[0] == 403
    assert ask(server, "POST", f"{inside}/act", act, Content_Type="text/plain")[0] == 415  # what a form may send
    assert ask(server, "POST", f"{inside}/act", act, Content_Length="-1")[0] == 411
    assert ask(server, "POST", f"{inside}/act", b" " * (MOST_BODY + 1))[0] == 413
    assert ask(server, "POST", f"{inside}/act", act, Content_Length="9" * 5000)[0] == 413
    assert ask(server, "PUT", f"{inside}/act", act)[0] == 501
    assert ask(server, "POST", f"{inside}/act", act)[0] == 200


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (b"{", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        ([], "valid dictionary"),
        ({"action": "action-1"}, "an action is a change"),
        ({"action": "action-1", "digest": "x", "change": {"field": "outcome", "value": "good"}}, "not among those"),
        ({"field": "outcome", "value": "great"}, "good"),
        ({"field": "verdict", "value": "good", "step": 4}, "no step 4"),
        ({"field": "verdict", "value": "good", "step": 0}, "greater than"),
        ({"field": "category", "value": "<b>", "step": 1}, "no such category"),
        ({"field": "comment", "value": "a" * 5000}, "at most 4000"),
        ({"field": "weight", "value": "9"}, "field"),
    ],
)
def test_an_action_that_means_nothing_changes_nothing(server: LabelServer, change: Any, why: str) -> None:
    if isinstance(change, dict) and "field" in change:
        change = {"action": "action-1", "digest": run(1).digest, "change": change}
    status, _, said = ask(server, "POST", f"/{server.token}/act", change)
    assert status in (400, 410) and why in json.loads(said)["error"], said
    assert json.loads(ask(server, "GET", f"/{server.token}/item/1")[2])["said"] == Label().model_dump()
    assert not server.labelling.journal.path.read_text()


def test_categories_are_the_twelve_kinds_of_mistakes() -> None:
    assert label_cmd.categories_of(None) == MISTAKE_KINDS


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--rater", "../ann"], "a name of up to 64"),
        (["--rater", ""], "a name of up to 64"),
        (["--ask", "all"], "outcome, steps or both"),
        (["--categories", " , "], "between 1 and 35"),
        (["--transcripts", "x"], "goes with --agreement"),
        (["-o", "runs.jsonl"], "lies in the input"),
    ],
)
def test_what_cannot_be_labelled_is_said(
    options: list[str], why: str, tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("runs.jsonl"), [run(1)])
    with pytest.raises(RRMError, match=why):
        invoke(label_cmd.command, "runs.jsonl", *options)
    Path("empty.jsonl").write_text("")
    with pytest.raises(RRMError, match="no transcript"):
        invoke(label_cmd.command, "empty.jsonl")
    with pytest.raises(RRMError, match=r"gone\.jsonl"):
        invoke(label_cmd.command, "gone.jsonl")


def labelled(folder: Path, rater: str, verdict: Callable[[int], str], count: int = 24) -> Path:
    """A rater's file: outcome and both steps of each run by a rule, as the page writes it."""
    path = folder / f"{rater}.jsonl"
    with served([run(n) for n in range(count)], path, rater=rater) as server:
        for n in range(count):
            changes = [{"field": "outcome", "value": verdict(n)}]
            changes += [{"field": "verdict", "step": k, "value": "bad" if k == 2 and n % 2 else "good"} for k in (1, 2)]
            changes += [{"field": "step_comment", "step": 2, "value": "Looks it up."}]
            for k, change in enumerate(changes):
                act = {"action": f"action-{n}-{k}", "digest": run(n).digest, "change": change}
                assert ask(server, "POST", f"/{server.token}/act", act)[0] == 200
    return path


def test_labels_train_and_measure_a_judge_as_they_are(tmp_path: Path, invoke: Invoke) -> None:
    from rrm.train.run import train

    labels = labelled(tmp_path, "ann", lambda n: "good" if n % 2 else "bad")
    runs = [run(n).model_copy(update={"outcome": None, "question_id": f"q{n // 2}"}) for n in range(24)]
    write_jsonl(tmp_path / "runs.jsonl", runs)
    assert len(match(runs, read_annotations(labels)).by_id) == 24
    info = JudgeInfo(model="judge", prompt_version="2", mode="critique")
    rows = [
        Feedback(id=t.id, status="scored", score=0.2 + 0.6 * (n % 2), raw_score=0.2 + 0.6 * (n % 2), judge=info)
        for n, t in enumerate(runs)
    ]
    (tmp_path / "scored.jsonl").write_text("".join(row.model_dump_json() + "\n" for row in rows))
    given = [tmp_path / "runs.jsonl", "--feedback", tmp_path / "scored.jsonl", "--annotations", labels]
    code, _ = invoke(eval_cmd.command, *given, "-o", tmp_path / "metrics.json", "--resamples", 100)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert code == 0 and metrics["metrics"]["judge"]["auroc"]["value"] == 1.0
    assert (metrics["steps"]["steps"], metrics["steps"]["bad_share"]) == (48, 0.25)

    small = {"hidden_size": 32, "intermediate_size": 32, "layers": 1, "heads": 2, "vocab_size": 400}
    config = {
        "name": "labelled", "output_dir": str(tmp_path / "run"), "transcript_tokens": 200, "max_new_tokens": 8, "cpu": True,
        "model": {"base": "reagent.lab.judge_base:build", "options": small},
        "data": {"trajectories": [str(tmp_path / "runs.jsonl")], "annotations": [str(labels)], "target": "annotation",
                 "calibration_share": 0.3, "test_share": 0.2},
        "sft": {"max_steps": 1, "batch_size": 2, "lora": None, "mix": {"score": 1, "critique": 1, "steps": 1}},
        "rl": {"enabled": False}, "calibration": {"modes": ["score"]}, "evaluation": {"max_rows": 4, "full_rows": 0},
    }  # fmt: skip
    assert train(TrainConfig.model_validate(config)) is not None
    trained_on = json.loads((tmp_path / "run" / "judge" / "evaluation.json").read_text())["trained_on"]
    assert trained_on["labels"]["annotation"] == {"ann": trained_on["rows"]["train"]}


def test_raters_are_compared_and_their_disagreements_listed(
    tmp_path: Path, invoke: Invoke, capfd: pytest.CaptureFixture[str]
) -> None:
    rule = lambda n: "good" if n % 3 else "bad"  # noqa: E731
    ann = labelled(tmp_path, "ann", rule)
    bob = labelled(tmp_path, "bob", lambda n: "unsure" if n == 1 else "bad" if n in (2, 4) else rule(n))
    with served([run(n) for n in range(24)], bob, rater="bob") as server:
        for n in (5, 6):  # of a step that ann says nothing of
            act = {
                "action": f"unclear-{n}",
                "digest": run(n).digest,
                "change": {"field": "verdict", "step": 3, "value": "unclear"},
            }
            assert ask(server, "POST", f"/{server.token}/act", act)[0] == 200
    code, summary = invoke(label_cmd.command, ann, bob, "--agreement", "-o", tmp_path / "agreement.json")
    found = json.loads((tmp_path / "agreement.json").read_text())
    label_cmd.show_agreement(found)
    assert "bob: 2 unclear" in capfd.readouterr().err
    assert code == 0 and summary["disagreements"] == 2 and summary["raters"] == ["ann", "bob"]
    outcome = found["outcome"]
    assert (outcome["units"], outcome["single"]) == (23, 1)
    assert outcome["unsure"] == {"ann": 0, "bob": 1} and found["steps"]["unclear"] == {"ann": 0, "bob": 2}
    assert (
        outcome["same"]["value"] == pytest.approx(21 / 23)
        and 0 < outcome["alpha"]["low"] < outcome["alpha"]["value"] < 1
    )
    assert found["steps"]["alpha"]["value"] == 1.0 and found["steps"]["units"] == 48
    assert [(row["trajectory_id"], row["step"], row["labels"]) for row in found["disagreements"]] == [
        ("run/2", None, {"ann": "good", "bob": "bad"}),
        ("run/4", None, {"ann": "good", "bob": "bad"}),
    ]
    with pytest.raises(RRMError, match="all labels are by 'ann'"):
        invoke(label_cmd.command, ann, "--agreement")
    (alone := tmp_path / "alone" / "bob.jsonl").parent.mkdir()
    alone.write_text(bob.read_text())  # sent without its journal
    _, summary = invoke(label_cmd.command, ann, alone, "--agreement")
    assert unsure_of([bob, bob, ann]) == {"ann": 0, "bob": 1}  # a file that is named twice counts once
    assert summary["outcome"]["unsure"] == {"ann": 0, "bob": None} and summary["steps"]["unclear"]["bob"] == 2
    empty = labelled(tmp_path, "cy", lambda n: "unsure", count=0)
    with pytest.raises(RRMError, match=r"cy\.jsonl holds no label: leave it out"):
        invoke(label_cmd.command, ann, bob, empty, "--agreement")
    twice = tmp_path / "twice.jsonl"
    twice.write_text(ann.read_text() + ann.read_text().replace('"score": 1.0', '"score": 0.0'))
    with pytest.raises(RRMError, match="two labels of"):
        invoke(label_cmd.command, twice, bob, "--agreement")


def test_a_label_without_a_digest_meets_those_that_have_one_by_the_transcripts(
    tmp_path: Path, invoke: Invoke, caplog: pytest.LogCaptureFixture
) -> None:
    ann = labelled(tmp_path, "ann", lambda n: "good" if n % 3 else "bad")
    table = tmp_path / "table.csv"  # as a person writes it: no digests
    table.write_text("trajectory_id,score,annotator\n" + "".join(f"run/{n},{int(n > 4)},bob\n" for n in range(24)))
    write_jsonl(tmp_path / "runs.jsonl", [run(n) for n in range(24)])
    write_jsonl(tmp_path / "others.jsonl", [run(n) for n in range(30, 34)])
    (tmp_path / "empty.jsonl").write_text("")
    runs = ("--transcripts", tmp_path / "runs.jsonl")

    def told(*given: Any) -> tuple[int, int, str]:
        caplog.clear()
        _, summary = invoke(label_cmd.command, ann, table, "--agreement", *given)
        return summary["outcome"]["units"], summary["apart"], caplog.text

    units, apart, said = told()
    assert (units, apart) == (0, 24) and "labels of 24 ids have a digest in one place" in said and "RUNS.jsonl" in said
    others = ("--transcripts", tmp_path / "others.jsonl")
    with pytest.raises(
        RRMError, match=r"48 of 48 labels are of no transcript in .*others\.jsonl, e\.g\. 'run/0' \(no id"
    ):
        told(*others)
    with pytest.raises(RRMError, match=r"empty\.jsonl: no transcript there can be read"):
        told("--transcripts", tmp_path / "empty.jsonl")
    write_jsonl(tmp_path / "some.jsonl", [run(n) for n in range(12)])
    units, apart, said = told("--transcripts", tmp_path / "some.jsonl")
    assert (units, apart) == (12, 12) and "24 of 48 labels are of no transcript" in said
    assert "no file of --transcripts has these ids" in said
    units, apart, said = told(*runs)
    assert (units, apart, said) == (24, 0, "")

    with table.open("a") as file:
        file.write("run/0,1,ann\n")  # who said in her own file that it is bad
    with pytest.raises(RRMError, match="'ann' has two labels of 'run/0'"):
        told(*runs)
    other = run(0).model_copy(update={"messages": run(1).messages})
    write_jsonl(tmp_path / "again.jsonl", [other])
    with pytest.raises(RRMError, match="2 different transcripts have that id"):
        told(*runs, "--transcripts", tmp_path / "again.jsonl")
