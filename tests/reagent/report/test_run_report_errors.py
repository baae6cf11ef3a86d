"""The training report's errors: what is said of mistaken inputs, and that no page is left, or an old one stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_runs import judged, make_run, transcript, write_rows

from reagent.report import read_runs, write_page
from reagent.report.examples import parse_policy
from rrm.data.trajectory import write_jsonl
from rrm.errors import ConfigError, RRMError


@pytest.mark.parametrize("text", ["p", "p=a.jsonl", "=a.jsonl,b.jsonl", "p=a,b,c", "p=,b", "p=a,", " =a,b"])
def test_a_malformed_policy_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write NAME=TRANSCRIPTS.jsonl,FEEDBACK.jsonl"):
        parse_policy(text)


def test_a_policys_name_may_hold_spaces() -> None:
    assert parse_policy("after RL = t.jsonl, f.jsonl") == ("after RL", Path("t.jsonl"), Path("f.jsonl"))


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (["nowhere"], "nowhere is not a folder: give a run folder of `reagent train`"),
        (["."], "looked for config.yaml and metrics.jsonl, found no config.yaml and no metrics.jsonl"),
        (["half"], "found no metrics.jsonl"),
        (["empty"], "empty/metrics.jsonl is empty: the run has not finished its first update"),
        (["broken"], "broken/metrics.jsonl:1: not a row of metrics: no JSON object"),
        (["judgerun"], "config.yaml is no config of `reagent train`: it has no `algorithm`"),
        (["one", "./one/"], "is given twice"),
        (["one", "p=t.jsonl,f.jsonl"], "write --policy before each NAME="),
        (["one", "--judge", "gone.json"], "gone.json: cannot be opened: No such file"),
        (["one", "--judge", "t.jsonl"], "t.jsonl is not what `rrm eval -o` writes"),
        (["one", "--judge", "one/config.yaml"], "one/config.yaml: not JSON"),
        (["one", "--reliability", "gone.png"], "gone.png: cannot be opened"),
        (["one", "--reliability", "t.jsonl"], "t.jsonl is not a PNG"),
        (["one", "--policy", "p"], "--policy 'p': write NAME="),
        (["one", "--policy", "p=t.jsonl,f.jsonl", "--policy", "p=t.jsonl,f.jsonl"], "two policies are called 'p'"),
        (["one", "--policy", "p=gone.jsonl,f.jsonl"], "gone.jsonl: cannot be opened"),
        (["one", "--policy", "p=t.jsonl,gone.jsonl"], "gone.jsonl: cannot be opened"),
        (["one", "--policy", "p=f.jsonl,t.jsonl"], "f.jsonl:1: not a canonical trajectory"),
        (["one", "--policy", "p=nothing.jsonl,f.jsonl"], "nothing.jsonl has no transcripts"),
        (["one", "--policy", "p=twice.jsonl,f.jsonl"], "1 ids occur more than once, e.g. 'q/0'"),
        (["one", "--policy", "p=t.jsonl,other.jsonl"], "none of the 1 rows in other.jsonl matches a transcript"),
        (["one", "--policy", "p=t.jsonl,anotherstext.jsonl"], "1 of them have its ids but were written on other texts"),
        (["one", "--policy", "p=t.jsonl,noid.jsonl"], "not a row of `rrm score`: no text `id`"),
        (["one", "--policy", "p=t.jsonl,norow.jsonl"], "row 'q/0' is not an output row of `rrm score`: status"),
        (["one", "--policy", "p=t.jsonl,f.jsonl", "--policy", "o=u.jsonl,g.jsonl"], "no question was attempted by all of"),
        (["one", "--policy", "p=t.jsonl,report.html"], "report.html is one of the inputs"),
    ],
)  # fmt: skip
def test_errors_are_clear_and_leave_no_page(tmp_path, monkeypatch, report, arguments, error_text) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "half", "empty", "broken", "judgerun"):
        make_run(tmp_path / name)
    (tmp_path / "half" / "metrics.jsonl").unlink()
    (tmp_path / "empty" / "metrics.jsonl").write_text("\n")
    (tmp_path / "broken" / "metrics.jsonl").write_text("[1]\n{}\n")
    (tmp_path / "judgerun" / "config.yaml").write_text("model: {base: lab}\n")
    t, other = transcript("q", 1.0), transcript("other", 1.0)
    write_jsonl(tmp_path / "t.jsonl", [t])
    write_jsonl(tmp_path / "u.jsonl", [other])
    write_jsonl(tmp_path / "twice.jsonl", [t, t])
    (tmp_path / "nothing.jsonl").write_text("")
    write_rows(tmp_path / "f.jsonl", [judged(t)])
    write_rows(tmp_path / "g.jsonl", [judged(other)])
    write_rows(tmp_path / "other.jsonl", [judged(other)])
    write_rows(tmp_path / "anotherstext.jsonl", [judged(other) | {"id": t.id}])
    write_rows(tmp_path / "noid.jsonl", [{"status": "scored"}])
    write_rows(tmp_path / "norow.jsonl", [{"id": t.id}])
    code, out, error = report(*arguments, "-o", "report.html")
    assert code == 2 and not out and error.startswith("error: ") and error_text in error, error
    assert "Traceback" not in error
    assert not list(tmp_path.glob("report.html*"))


def test_a_page_that_cannot_be_written_is_an_error_and_an_old_page_stays(tmp_path: Path, run: Path) -> None:
    runs = read_runs([run])
    with pytest.raises(RRMError, match=r"cannot write .*report.html: No such file or directory"):
        write_page(tmp_path / "nowhere" / "report.html", runs)
    page = tmp_path / "report.html"
    page.write_text("old")
    with pytest.raises(RRMError, match="cannot be opened"):
        write_page(page, runs, judge=tmp_path / "gone.json")
    assert page.read_text() == "old" and not list(tmp_path.glob("*.part"))
    link = tmp_path / "link.html"
    link.symlink_to(page)
    write_page(link, runs)
    assert link.is_symlink() and page.read_text().startswith("<!doctype html>")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", page / "report.html"):
        with pytest.raises(RRMError, match="cannot write"):
            write_page(target, runs)
    assert not list(tmp_path.glob("*.part"))
