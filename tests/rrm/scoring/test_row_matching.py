"""Rows and transcripts, joined by content: in one way by every command, whatever the order in which files are read."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from evaluated_rows import judged, run

from rrm.cli import convert_cmd, eval_cmd
from rrm.cli.score_cmd import pair_rows
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import RRMError
from rrm.readers import read
from rrm.scoring.row_index import to_row
from rrm.scoring.row_matching import MatchedRows, match_rows

LEAK = "Your answer is wrong."


def scored(path: Path, *rows: tuple[Trajectory, float]) -> Path:
    """A file as `rrm score` writes it, whose critiques say what they are of."""
    lines = [json.dumps(to_row(judged(t.id, score, critique=f"of {t.task}"), t)) for t, score in rows]
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def fruit(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two files whose ids are the same (apples succeed, pears fail), and a sure judge's rows of both read together."""
    for word, outcome in (("apple", 1.0), ("pear", 0.0)):
        rows = [run(str(k), f"{word} {k}", outcome, task=f"{word} {k}") for k in range(3)]
        write_jsonl(tmp_path / f"{word}.jsonl", rows)
    files = tmp_path / "apple.jsonl", tmp_path / "pear.jsonl"
    rows = [(t, 0.9 if "apple" in t.task else 0.1) for t in read(files)]
    assert [t.id for t, _ in rows] == ["0", "1", "2", "0#2", "1#2", "2#2"]
    return *files, scored(tmp_path / "scored.jsonl", *rows)


def test_a_row_is_of_its_content_and_of_an_id_only_where_it_says_no_content() -> None:
    one, other = run("x", "q", None, say="one"), run("x", "q", None, say="other")
    rows = MatchedRows([("one", "x#2", one.digest), ("other", "x", other.digest), ("by hand", "y", None)])
    assert (rows.of(one), rows.of(other), rows.of(run("y", "q", None, say="any"))) == ("one", "other", "by hand")
    assert rows.of(run("x", "q", None, say="changed")) is None and rows.strays == []
    assert MatchedRows([("first", "x", one.digest), ("again", "x", one.digest)]).of(one) == "again"


def test_equal_contents_have_their_own_rows_and_each_row_is_taken_once() -> None:
    twins = [run(id, "q", None, say="same") for id in ("a", "b", "c")]
    for order in permutations(twins):
        rows = MatchedRows([(t.id, t.id, t.digest) for t in twins])
        assert [rows.of(t) for t in order] == [t.id for t in order]
        assert [rows.take(t) for t in order] == [t.id for t in order]
        assert rows.take(twins[0]) is None and not list(rows.left())
    renamed = [t.model_copy(update={"id": f"{t.id}#2"}) for t in twins]
    rows = MatchedRows([(t.id, t.id, t.digest) for t in twins])
    assert sorted(rows.take(t) or "" for t in renamed[:2]) == ["a", "b"]
    assert [key for key, _ in rows.left()] == [("c", twins[2].digest)] and rows.strays == []


def test_a_changed_transcript_is_no_match_and_said() -> None:
    before, after = run("x", "q", None, say="before"), run("x", "q", None, say="after")
    with pytest.raises(RRMError, match=r"s\.jsonl holds a judgement of 'x', but that transcript has changed since"):
        match_rows(MatchedRows([(1, "x", before.digest)]), [after], "s.jsonl")


def test_an_evaluation_is_the_same_in_whichever_order_files_are_read(
    fruit: tuple[Path, Path, Path], tmp_path: Path, invoke: Any
) -> None:
    apples, pears, rows = fruit
    for files in ([pears, apples], [pears]):
        given = [*files, "--feedback", rows, "-o", tmp_path / "m.json", "--resamples", "100"]
        code, summary = invoke(eval_cmd.command, *given)
        report = json.loads((tmp_path / "m.json").read_text())
        assert code == 0 and summary["brier"] == pytest.approx(0.01)
        assert report["unmatched_feedback"] == 6 - summary["rows"]


def test_the_page_of_a_run_refuses_what_changed_while_it_was_judged(tmp_path: Path) -> None:
    one, two = run("x", "q", None, say="one"), run("x", "q", None, say="two")
    rows = scored(tmp_path / "s.jsonl", (one, 0.5))
    assert [t.id for t, _ in pair_rows([one], rows)] == ["x"]
    with pytest.raises(RRMError, match="'x' changed while it was judged"):
        list(pair_rows([two], rows))


def test_what_is_cut_has_the_judgements_of_the_cut_alone(tmp_path: Path, invoke: Any) -> None:
    """A judge that had read the verdict gave its score to the run that ends before it."""
    whole = run("r", "q", 0.0, steps=2)
    whole.messages[2].content = LEAK
    write_jsonl(tmp_path / "whole.jsonl", [whole])
    assert invoke(convert_cmd.command, tmp_path / "whole.jsonl", "-o", tmp_path / "cut.jsonl", "--cut-verdicts")[0] == 0
    (cut,) = read(tmp_path / "cut.jsonl")
    assert cut.digest != whole.digest
    given = [tmp_path / "whole.jsonl", "-o", tmp_path / "out.jsonl", "--cut-verdicts", "--to", "atif", "--scores"]
    summary = invoke(convert_cmd.command, *given, scored(tmp_path / "cut.s.jsonl", (cut, 0.6), (whole, 0.1)))[1]
    assert (summary["scored"], summary["rows_without_transcript"]) == (1, 1)
    document = json.loads((tmp_path / "out.jsonl").read_text())
    assert document["final_metrics"]["extra"]["agent_rrm"]["score"] == 0.6
    with pytest.raises(RRMError, match="1 rows and none of these transcripts"):
        invoke(convert_cmd.command, *given, scored(tmp_path / "whole.s.jsonl", (whole, 0.1)))
