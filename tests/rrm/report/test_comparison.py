"""Two judges on the same transcripts: figures by hand, and the command."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from report_pages import JUDGE, Page, pair

from rrm.cli import report_cmd
from rrm.data.feedback import Feedback
from rrm.data.trajectory import write_jsonl
from rrm.errors import ConfigError, RRMError
from rrm.report.comparison import ComparedTranscript, compare_judges


def said(score: float | None, *verdicts: str, model: str = "a") -> Feedback:
    findings = [{"step": k, "verdict": verdict} for k, verdict in enumerate(verdicts, 1)]
    status = "judge_error" if score is None else "scored"
    row = {"id": "x", "status": status, "score": score, "findings": findings, "judge": JUDGE | {"model": model}}
    return Feedback.model_validate(row)


def test_figures_are_those_of_the_rows_that_both_scored() -> None:
    rows = [
        ComparedTranscript("q1", 2, 1.0, said(0.9, "good", "bad"), said(0.6, "good", "good", model="b")),
        ComparedTranscript("q1", 2, 0.0, said(0.2, "bad"), said(0.7, "unclear")),
        ComparedTranscript("q2", 2, 1.0, said(0.4), said(0.8, "good")),
        ComparedTranscript("q2", 3, None, said(None), said(0.5)),
        ComparedTranscript("q3", 1, 1.0, said(0.5), None),
        ComparedTranscript("q3", 1, 0.0, said(None), said(None)),
    ]
    found = compare_judges(rows)
    assert found["names"] == ["a, full mode", "b, full mode"]
    assert [found[k] for k in ("both", "only_first", "only_second", "neither")] == [3, 1, 1, 1]
    assert found["difference"] == {"value": pytest.approx((-0.3 + 0.5 + 0.4) / 3), "low": None, "high": None}
    assert found["same_side"]["value"] == pytest.approx(1 / 3)
    assert found["spearman"] == pytest.approx(-0.5)  # of ranks 3 1 2 and 1 2 3
    assert found["steps"] == {"both": 2, "same": 1}
    lines = {line["name"]: line for line in found["outcomes"]["lines"]}
    assert (found["outcomes"]["rows"], found["outcomes"]["questions"]) == (3, 2)
    assert (lines["AUROC"]["first"]["value"], lines["AUROC"]["second"]["value"]) == (1.0, 0.5)
    pairs = lines["Pair accuracy, same question"]
    assert (pairs["first"]["value"], pairs["second"]["value"], pairs["difference"]["value"]) == (1.0, 0.0, -1.0)
    assert pairs["difference"]["low"] is None  # two questions carry no interval


def test_a_real_difference_has_an_interval_off_zero_and_noise_has_not() -> None:
    rng = random.Random(0)
    better, same = [], []
    for n in range(120):
        y = float(rng.random() < 0.5)
        a, noise = rng.random(), rng.gauss(0, 0.1)
        good = min(1.0, max(0.0, 0.3 + 0.4 * y + noise))
        better.append(ComparedTranscript(f"q{n // 3}", 2, y, said(a), said(good)))
        same.append(ComparedTranscript(f"q{n // 3}", 2, y, said(a), said(rng.random())))

    def auroc(rows: list[ComparedTranscript]) -> dict[str, Any]:
        lines = compare_judges(rows)["outcomes"]["lines"]
        return next(line["difference"] for line in lines if line["name"] == "AUROC")

    assert auroc(better)["low"] > 0
    assert auroc(same)["low"] < 0 < auroc(same)["high"]


def test_relative_scores_are_compared_within_questions_alone() -> None:
    """A question's relative scores average to a half, whether its attempts are good or bad."""

    def placed(score: float) -> Feedback:
        place = {"position": 1 if score > 0.5 else 2, "n_compared": 2, "n_batches": 1, "group": "0"}
        return Feedback.model_validate(said(score).model_dump() | {"rank": place})

    rows = [
        ComparedTranscript("easy", 2, 1.0, said(0.9), placed(1.0)),
        ComparedTranscript("easy", 2, 0.0, said(0.8), placed(0.0)),
        ComparedTranscript("hard", 2, 1.0, said(0.1), placed(1.0)),
        ComparedTranscript("hard", 2, 0.0, said(0.2), placed(0.0)),
    ]
    for at, given in enumerate(
        (rows, [ComparedTranscript(r.question, r.steps, r.outcome, r.second, r.first) for r in rows])
    ):  # pyright: ignore[reportArgumentType]
        found = compare_judges(given)
        assert found["relative"] == [at == 1, at == 0] and found["both"] == 4
        assert not {"difference", "same_side", "spearman"} & found.keys()
        lines = {line["name"]: line for line in found["outcomes"]["lines"]}
        assert [*lines] == ["Pair accuracy, same question and number of steps", "Pair accuracy, same question"]
        values = [lines["Pair accuracy, same question"][who]["value"] for who in ("first", "second")]
        assert values == ([0.5, 1.0] if at == 0 else [1.0, 0.5])


def test_nothing_in_common_is_said_and_no_number() -> None:
    assert compare_judges([])["both"] == 0
    found = compare_judges([ComparedTranscript("q", 1, 1.0, said(0.5), None)])
    assert (found["both"], found["only_first"]) == (0, 1) and "difference" not in found
    constant = compare_judges([ComparedTranscript("q", 1, None, said(0.5), said(0.5))] * 3)
    assert constant["spearman"] is None and constant["outcomes"] is None


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_command_tells_a_second_judges_rows_from_transcripts(tmp_path: Path, invoke: Any) -> None:
    pairs = [pair(n) for n in range(4)]
    runs, a, b = tmp_path / "runs.jsonl", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_jsonl(runs, [t for t, _ in pairs])
    rows = [{**row, "source": {"file": str(runs), "line": 1, "digest": t.digest}} for t, row in pairs]
    other = [{**row, "score": 0.75, "judge": JUDGE | {"model": "other"}} for row in rows[:3]]
    other[2]["source"] = {**other[2]["source"], "digest": "0" * 16}  # judged another text under the same id
    other.append({**other[0], "id": "elsewhere"})
    a.write_text("".join(json.dumps(row) + "\n" for row in rows))
    b.write_text("".join(json.dumps(row) + "\n" for row in other))
    out = tmp_path / "report.html"
    for arguments in ([a, b], [a, b, "--transcripts", runs], [a, "--transcripts", runs, b]):
        code, summary = invoke(report_cmd.command, *map(str, arguments), "-o", str(out))
        assert code == 0 and (summary["of_both"], summary["only_in_second"]) == (3, 1)
        page = Page(out)
        assert page.index["second"] == [0.75, 0.75, None, None]
        assert page.index["comparison"]["names"] == ["judge, full mode", "other, full mode"]
        assert page.details[0]["second"]["score"] == 0.75 and "second" not in page.details[2]
    with pytest.raises(RRMError) as nothing:  # rows of other runs: the page said that nobody scored both
        elsewhere = tmp_path / "c.jsonl"
        write_rows(elsewhere, ({**row, "id": f"e{n}", "source": {"digest": str(n) * 16}} for n, row in enumerate(rows)))
        invoke(report_cmd.command, str(a), str(elsewhere), "-o", str(tmp_path / "none.html"))
    names = ", ".join(repr(name) for name in sorted(row["id"] for row in rows)[:3])
    assert f"{a} holds 4 ids ({names}, …) and {elsewhere} holds 4 ids ('e0', 'e1', 'e2', …)" in str(nothing.value)
    assert "no id is in both" in str(nothing.value) and "rrm score IN" in str(nothing.value)
    with pytest.raises(RRMError, match=r"4 ids are in both, e\.g\. .* of other contents"):
        write_rows(elsewhere, ({**row, "source": {"digest": str(n) * 16}} for n, row in enumerate(rows)))
        invoke(report_cmd.command, str(a), str(elsewhere), "-o", str(tmp_path / "none.html"))
    assert not (tmp_path / "none.html").exists()
    bare = [{k: v for k, v in row.items() if k != "source"} for row in rows]  # an older version's: joined by id
    write_rows(elsewhere, bare)
    assert invoke(report_cmd.command, str(a), str(elsewhere), "-o", str(out))[1]["of_both"] == 4
    with pytest.raises(ConfigError, match="third judge"):
        invoke(report_cmd.command, str(a), str(b), str(b), "-o", str(out))
    assert not report_cmd.holds_rows(str(runs)) and not report_cmd.holds_rows(str(tmp_path / "gone"))
