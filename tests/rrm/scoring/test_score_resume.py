"""The scoring run: killed at random points and continued, locked, refused where rows would mix, told how long it takes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_judge import ChatJudge, rows_of, transcripts

from rrm.data.feedback import Feedback
from rrm.data.output import RowFile
from rrm.data.time_slices import windows
from rrm.data.trajectory import Trajectory
from rrm.engines.cost import Prices
from rrm.errors import RRMError
from rrm.scoring.estimate import estimate
from rrm.scoring.run import score_file

ROWS, WINDOW = 60, 4


def run_in_child(output: Path) -> None:
    """Body of the killed process: says over the pipe that it is about to judge, and waits for leave to go on."""

    def wait(window: Sequence[Trajectory]) -> None:
        print(window[0].id, flush=True)
        sys.stdin.readline()

    score_file(ChatJudge(wait), transcripts(ROWS), output, seed=7, chunk_size=WINDOW)


def start_child(output: Path) -> subprocess.Popen[str]:
    folder, root = Path(__file__).parent, Path(__file__).resolve().parents[3]
    code = f"from pathlib import Path; import test_score_resume as t; t.run_in_child(Path({str(output)!r}))"
    path = os.pathsep.join([str(folder), str(folder.parent), str(root)])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def kill_after(child: subprocess.Popen[str], allowed: int) -> None:
    """SIGKILL: right at a window's start, or on its heels while it judges, writes and syncs."""
    assert child.stdin is not None and child.stdout is not None
    for _ in range(allowed):
        if not child.stdout.readline():
            break
        child.stdin.write("go\n")
        child.stdin.flush()
    child.send_signal(signal.SIGKILL)
    assert child.wait(30) == -signal.SIGKILL
    child.stdin.close()
    child.stdout.close()


def test_a_run_killed_at_random_points_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    score_file(ChatJudge(), transcripts(ROWS), whole, seed=7, chunk_size=WINDOW)
    chance = random.Random(11)
    for _ in range(4):
        kill_after(start_child(broken), chance.randint(1, 4))
        written = broken.read_bytes()
        # a kill inside write(2) cannot be timed from outside: tear the last line as it would
        if written and chance.random() < 0.7:
            broken.write_bytes(written[: -chance.randint(1, 40)])
    before = {row["id"] for row in rows_of_whole_lines(broken)}
    assert 0 < len(before) < ROWS
    judge = ChatJudge()
    summary = score_file(judge, transcripts(ROWS), broken, seed=7, chunk_size=WINDOW)
    assert broken.read_bytes() == whole.read_bytes()
    judged = [name for window in judge.windows for name in window]
    assert not before & set(judged) and summary.resumed == len(before) and summary.judged == ROWS - len(before)
    assert summary.rows == ROWS and summary.statuses == {"scored": ROWS}


def rows_of_whole_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def test_a_second_run_on_the_same_output_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    child = start_child(output)
    assert child.stdout is not None and child.stdout.readline()  # it holds the lock now
    try:
        with pytest.raises(RRMError, match=r"another run is writing .*out\.jsonl"):
            score_file(ChatJudge(), transcripts(ROWS), output, seed=7)
    finally:
        kill_after(child, 0)
    assert score_file(ChatJudge(), transcripts(ROWS), output, seed=7).rows == ROWS


def test_rows_and_order(tmp_path: Path) -> None:
    output = tmp_path / "new" / "out.jsonl"
    score_file(ChatJudge(down=("t2",)), transcripts(5), output)
    rows = rows_of(output)
    assert [r["id"] for r in rows] == [f"t{i}" for i in range(5)]
    assert set(rows[0]) == {
        "id", "status", "score", "raw_score", "trace", "critique", "findings", "verdict", "images", "truncated_tokens", "coverage",
        "out_of_domain", "domain_distance", "criteria", "rank", "usage", "judge", "reason", "source",
    }  # fmt: skip
    assert [(r["status"], r["score"] is None) for r in rows] == [("scored", False)] * 2 + [("judge_error", True)] + [
        ("scored", False)
    ] * 2
    source = {k: v for k, v in rows[1]["source"].items() if k != "digest"}
    assert source == {"file": "runs.jsonl", "line": 2, "format": "canonical"}


@pytest.mark.parametrize(
    ("about", "options", "said"),
    [
        ({"prompt_version": "2"}, {}, "the version of the prompt was '1' and is '2'"),
        ({"model": "other"}, {}, "was made by scripted, now other"),
        ({}, {"seed": 1}, "seed was 0 and is 1"),
        ({}, {"samples": 2}, "samples was 1 and is 2"),
        ({}, {"mode": "score"}, "mode was 'full' and is 'score'"),
        ({}, {"settings": {"max_tokens": 99}}, "max_tokens was not set and is 99"),
    ],
)
def test_rows_of_another_making_are_not_mixed_in(
    tmp_path: Path, about: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(), transcripts(2), output)
    before = output.read_bytes()
    with pytest.raises(RRMError, match=f"{said}.*--overwrite"):
        score_file(ChatJudge(**about), transcripts(3), output, **options)
    assert output.read_bytes() == before
    summary = score_file(ChatJudge(**about), transcripts(3), output, overwrite=True, **options)
    assert (summary.judged, summary.resumed, len(rows_of(output))) == (3, 0, 3)


def test_another_dtype_than_before_names_the_option_that_goes_on(tmp_path: Path) -> None:
    """As where the extra `fast` was installed meanwhile."""
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(dtype="float32"), transcripts(2), output)
    with pytest.raises(RRMError, match=r"dtype was 'float32' and is 'int8' \(--dtype float32 goes on so\)"):
        score_file(ChatJudge(dtype="int8"), transcripts(3), output)


def test_rows_of_an_older_judge_s_blend_say_what_they_are(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(), transcripts(2), output, settings={"blend": "0a1b"})
    with pytest.raises(RRMError, match="blended with a lexical model, which judges have no longer"):
        score_file(ChatJudge(), transcripts(3), output)


def test_the_same_weights_under_another_path_continue(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(model="a/judge", model_hash="abc"), transcripts(2), output)
    assert score_file(ChatJudge(model="./a/judge", model_hash="abc"), transcripts(3), output).resumed == 2


def test_a_server_under_another_address_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a 404 advises: mend the URL and retry. The model's name decides, not where it is served."""
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(model="openai:http://old:1/v1#m", down=("t1",)), transcripts(2), output)
    moved = ChatJudge(model="openai:http://new:2/v1#m")
    assert score_file(moved, transcripts(3), output, retry_errors=True).statuses == {"scored": 3}
    assert "its rows came from openai:http://old:1/v1#m, further ones come from openai:http://new:2/v1#m" in caplog.text
    with pytest.raises(RRMError, match="was made by openai:http://old:1/v1#m, now openai:http://new:2/v1#other"):
        score_file(ChatJudge(model="openai:http://new:2/v1#other"), transcripts(3), output)


def test_rows_that_only_failed_bind_a_retry_to_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(model="openai:http://a/v1#typo", down=("t0", "t1")), transcripts(2), output)
    mended = ChatJudge(model="openai:http://a/v1#name")
    with pytest.raises(RRMError, match="#typo, now openai"):
        score_file(mended, transcripts(2), output)
    assert score_file(mended, transcripts(2), output, retry_errors=True, seed=3).statuses == {"scored": 2}
    assert score_file(mended, transcripts(2), output, seed=3).resumed == 2


def test_damage_is_named_and_nothing_is_judged_over_it(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    score_file(ChatJudge(), transcripts(3), output)
    good = output.read_bytes()
    lines = good.splitlines(keepends=True)
    for bad, said in ((lines[0] + b"{}\n", ":2: not a row"), (lines[0] + lines[0], ":2: a second row of 't0'")):
        output.write_bytes(bad)
        with pytest.raises(RRMError, match=said):
            score_file(ChatJudge(), transcripts(3), output)
        assert output.read_bytes() == bad
    output.write_bytes(good)
    with pytest.raises(RRMError, match="'t0', but that transcript has changed"):
        score_file(ChatJudge(), transcripts(3, said="other words"), output)
    Path(f"{output}.run.json").unlink()
    with pytest.raises(RRMError, match="does not say what made them"):
        score_file(ChatJudge(), transcripts(3), output)
    with pytest.raises(RRMError, match="'t0' occurs twice"):
        score_file(ChatJudge(), transcripts(1) * 2, tmp_path / "twice.jsonl")


def test_judge_errors_are_judged_again_on_demand(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    summary = score_file(ChatJudge(down=("t1", "t3")), transcripts(5), output)
    assert summary.statuses == {"judge_error": 2, "scored": 3} and summary.first_error == "server is down"
    again = score_file(ChatJudge(), transcripts(5), output)
    assert again.judged == 0 and again.first_error == "server is down", "the cause is of the rows, not of the run"
    assert again.first_failure == "judge_error: server is down"
    fewer = score_file(ChatJudge(), transcripts(1), output)
    assert fewer.statuses == {"scored": 1} and fewer.first_error is None, "of the rows that were asked for"
    judge = ChatJudge()
    summary = score_file(judge, transcripts(5), output, retry_errors=True)
    assert judge.windows == [["t1", "t3"]] and summary.statuses == {"scored": 5}
    assert summary.first_error is None and summary.first_failure is None
    fresh = tmp_path / "fresh.jsonl"
    score_file(ChatJudge(), transcripts(5), fresh)
    assert sorted(output.read_bytes().splitlines()) == sorted(fresh.read_bytes().splitlines())


def test_a_server_that_is_gone_stops_the_run(tmp_path: Path) -> None:
    everyone = tuple(f"t{i}" for i in range(100))
    with pytest.raises(RRMError, match=r"server is down.*--retry-errors"):
        score_file(ChatJudge(down=everyone), transcripts(100), tmp_path / "out.jsonl", chunk_size=8, give_up_after=20)
    assert len(rows_of(tmp_path / "out.jsonl")) == 20


def test_a_judge_that_loses_rows_is_caught(tmp_path: Path) -> None:
    class Loses(ChatJudge):
        def judge(self, trajectories: Sequence[Trajectory], **options: Any) -> list[Feedback]:
            return super().judge(trajectories[1:], **options)

    with pytest.raises(RRMError, match=r"missing: \['t0'\]"):
        score_file(Loses(), transcripts(3), tmp_path / "out.jsonl")
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == ["t1", "t2"]


def test_inputs_stream_through_windows(tmp_path: Path) -> None:
    drawn: list[int] = []

    def endless() -> Iterator[Trajectory]:
        for i, t in enumerate(transcripts(500)):
            drawn.append(i)
            yield t

    ahead: list[int] = []
    judge = ChatJudge(lambda window: ahead.append(len(drawn)))
    score_file(judge, endless(), tmp_path / "out.jsonl", chunk_size=50)
    assert max(len(w) for w in judge.windows) == 50 and ahead[0] == 32  # the first is small, none is read ahead
    assert [len(w) for w in windows(transcripts(3), 2)] == [2, 1]


def test_an_unwritable_output_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RRMError, match="cannot write"), RowFile.open(tmp_path / "file" / "out.jsonl", {}):
        pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which nobody can make a file")
def test_a_folder_that_cannot_be_written_is_no_other_run() -> None:
    """The lock's library says of it what it says of a lock that is held."""
    with (
        pytest.raises(RRMError, match=r"cannot write /proc/out\.jsonl\.lock: ") as refused,
        RowFile.open(Path("/proc/out.jsonl"), {}),
    ):
        pass
    assert "another run" not in str(refused.value)


def test_a_run_that_fails_before_its_first_row_leaves_its_lock_alone(tmp_path: Path) -> None:
    class Refused(ChatJudge):
        def judge(self, trajectories: Sequence[Trajectory], **options: Any) -> list[Feedback]:
            raise RRMError("the key is refused")

    output = tmp_path / "out.jsonl"
    with pytest.raises(RRMError, match="the key is refused"):
        score_file(Refused(), transcripts(3), output)
    # a run that waits has opened the lock: were it taken away, the next one would lock another file, and both would write
    (lock,) = tmp_path.iterdir()
    assert lock.name == "out.jsonl.lock"
    score_file(ChatJudge(), transcripts(2), output)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RRMError, match="the key is refused"):
        score_file(Refused(), transcripts(3), output)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept


def test_rows_that_are_to_be_replaced_stand_until_the_first_new_one(tmp_path: Path) -> None:
    class Stops(ChatJudge):
        def judge(self, trajectories: Sequence[Trajectory], **options: Any) -> list[Feedback]:
            if trajectories[0].id != "t0" or self.refused:
                raise RRMError("the key is refused")
            return super().judge(trajectories, **options)

        refused = True

    output, stops = tmp_path / "out.jsonl", Stops()
    score_file(ChatJudge(), transcripts(3), output)
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RRMError, match="the key is refused"):
        score_file(stops, transcripts(5), output, overwrite=True, seed=1)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == kept
    stops.refused = False
    with pytest.raises(RRMError, match="the key is refused"):
        score_file(stops, transcripts(5), output, overwrite=True, chunk_size=1)
    assert [row["id"] for row in rows_of(output)] == ["t0"]
    assert score_file(ChatJudge(), transcripts(5), output, overwrite=True).judged == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("left", ["aside", "half a row", "its header is back", "only its header is aside"])
def test_rows_that_a_killed_run_was_to_replace_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str, overwrite: bool
) -> None:
    """They stayed under the other name, while all was judged again; with half a row in their place --overwrite dropped them."""
    path, header = tmp_path / "out.jsonl", tmp_path / "out.jsonl.run.json"
    aside, said = tmp_path / "out.jsonl.replaced", tmp_path / "out.jsonl.replaced.run.json"
    with RowFile.open(path, {"seed": 1}) as out:
        out.append([{"id": "a"}])
    kept = (path.read_bytes(), header.read_bytes())
    said.write_bytes(kept[1])
    if left != "only its header is aside":  # what a kill leaves, in the order of what it may come between
        path.rename(aside)
        path.write_text('{"id": "b' if left == "half a row" else "")
        if left == "its header is back":
            said.rename(header)
        else:
            header.write_text('{"fingerprint": {"seed": 2}}')
    with pytest.raises(RRMError, match="the key is refused"), RowFile.open(path, {"seed": 1}, overwrite=overwrite):
        raise RRMError("the key is refused")
    assert (path.read_bytes(), header.read_bytes()) == kept and not (aside.exists() or said.exists())
    assert ("are back" in caplog.text) == (overwrite or left != "only its header is aside")


def test_rows_of_a_killed_run_drop_those_that_they_replace(tmp_path: Path) -> None:
    """Once the output was removed, those of long ago would come back."""
    path, aside = tmp_path / "out.jsonl", tmp_path / "out.jsonl.replaced"
    with RowFile.open(path, {}) as out:
        out.append([{"id": "a"}])
    aside.write_text('{"id": "b"}\n')
    with RowFile.open(path, {}) as out:
        assert [row for _, row in out.rows()] == [{"id": "a"}]
    assert not aside.exists()


def test_rows_go_through_a_link_and_into_no_device(tmp_path: Path) -> None:
    real, link = tmp_path / "disk" / "rows.jsonl", tmp_path / "link.jsonl"
    real.parent.mkdir()
    link.symlink_to(real)
    score_file(ChatJudge(down=("t1",)), transcripts(3), link)
    assert score_file(ChatJudge(), transcripts(3), link, retry_errors=True).judged == 1  # which rewrites the file
    assert link.is_symlink() and len(rows_of(real)) == 3
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, tmp_path, Path("-")):
        with pytest.raises(RRMError, match="is not a file"), RowFile.open(target, {}):
            pass
    assert sorted(os.listdir(tmp_path)) == ["disk", "link.jsonl", "pipe"] and not Path("-.lock").exists()


def test_progress_shows_on_a_terminal_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    score_file(ChatJudge(), transcripts(3), tmp_path / "out.jsonl", total=4)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take a pipe for a terminal
    monkeypatch.setenv("COLUMNS", "120")
    score_file(ChatJudge(), transcripts(4), tmp_path / "out.jsonl", total=4)
    shown = capsys.readouterr().err
    assert "4/4" in shown and "left" in shown


def test_estimate_counts_and_probes() -> None:
    judge = ChatJudge()
    found = estimate(judge, transcripts(300), mode="full", samples=2, prices=Prices(1.0, 10.0))
    assert (found.rows, found.prompt_tokens, found.max_output_tokens) == (300, 12_000, 300 * 512 * 2)
    assert found.probed == 4 and found.seconds is not None and found.cost == pytest.approx(0.012 + 3.072)
    silent = ChatJudge()
    assert estimate(silent, transcripts(3), probe=0).seconds is None and silent.windows == []
    assert estimate(silent, []).rows == 0


def test_an_estimate_of_a_slow_judge_times_one_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rrm.scoring.estimate.PROBE_SECONDS", -1.0)  # whatever it takes is too long
    judge = ChatJudge()
    found = estimate(judge, transcripts(8), mode="full")
    assert (
        found.probed == 1 and found.seconds is not None and [len(w) for w in judge.windows] == [1, 1]
    )  # and to warm up


def test_the_lock_needs_no_fcntl(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    code = f"""
import pathlib, sys
sys.modules["fcntl"] = None  # as on Windows: importing it fails
from rrm.data.output import RRMError, RowFile
path = pathlib.Path({str(path)!r})
with RowFile.open(path, {{}}):
    try:
        with RowFile.open(path, {{}}):
            pass
    except RRMError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "another run is writing" in done.stdout
    with RowFile.open(path, {}):  # and it was given back
        pass


def test_a_local_judge_goes_on_with_the_same_rows(tmp_path: Path) -> None:
    """docs/scale.md said "the same file"; what is left is batched anew, and scores differed by 1.7e-6."""
    from reagent.lab.transcripts import make_transcripts
    from rrm.judge.agent_rrm import AgentRRM

    judge, given = AgentRRM.from_pretrained("lab", device="cpu"), [t for t, _ in make_transcripts(7, seed=5)]
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    score_file(judge, given, whole, mode="score")
    score_file(judge, [given[4], given[1]], broken, mode="score")
    assert score_file(judge, given, broken, mode="score").resumed == 2
    expected, found = rows_of(whole), rows_of(broken)
    for row, other in zip(expected, found, strict=True):
        assert (row["id"], row["status"], row["source"]) == (other["id"], other["status"], other["source"])
        assert other["score"] == pytest.approx(row["score"], abs=2e-6)
