"""Shards that put together are the whole, rows in the order of their inputs, and what is refused to be put together."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_judge import ChatJudge, rows_of, transcripts
from hypothesis import given
from hypothesis import strategies as st
from openai_server import completion, serve
from typer.testing import CliRunner

from rrm.cli import COMMANDS, GROUPS, app, register
from rrm.data.trajectory import Trajectory, write_jsonl
from rrm.errors import ConfigError, RRMError
from rrm.scoring.row_index import facts_of, order_of
from rrm.scoring.run import score_file
from rrm.scoring.sharding import Shard, merge


def sharded(folder: Path, total: int, of: int, judge: Any = None) -> list[Path]:
    """The outputs of all shards."""
    paths = []
    for number in range(1, of + 1):
        part = Shard(number, of)
        paths.append(folder / f"part{number}.jsonl")
        score_file(
            judge or ChatJudge(), part.of_rows(transcripts(total), total), paths[-1], settings=part.settings(total)
        )
    return paths


class Shuffled(ChatJudge):
    """Ends its rows in any order."""

    def judge(self, trajectories: Sequence[Trajectory], **how: Any) -> Any:
        return super().judge(random.Random(len(self.windows)).sample(list(trajectories), len(trajectories)), **how)


@given(st.integers(0, 50), st.integers(1, 12))
def test_each_row_is_in_exactly_one_shard(total: int, of: int) -> None:
    parts = [list(Shard(i, of).of_rows(range(total), total)) for i in range(1, of + 1)]
    assert [row for part in parts for row in part] == list(range(total))
    assert [len(part) for part in parts] == [Shard(i, of).rows_of(total) for i in range(1, of + 1)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", "1/9999999"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write i/n"):
        Shard.parse(text)
    assert Shard.parse(" 2/8 ") == Shard(2, 8)


def test_finished_shards_one_after_the_other_are_the_whole(tmp_path: Path) -> None:
    score_file(ChatJudge(), transcripts(23), tmp_path / "whole.jsonl")
    paths = sharded(tmp_path, 23, 4, Shuffled())
    assert b"".join(path.read_bytes() for path in paths) == (tmp_path / "whole.jsonl").read_bytes()
    done = merge([paths[2], paths[0], paths[3], paths[1]], tmp_path / "merged.jsonl")
    assert (done.rows, done.statuses, done.missing, done.files) == (23, {"scored": 23}, [], [str(p) for p in paths])
    for suffix in ("", ".run.json"):
        assert (
            Path(f"{tmp_path}/merged.jsonl{suffix}").read_bytes()
            == Path(f"{tmp_path}/whole.jsonl{suffix}").read_bytes()
        )
    again = score_file(ChatJudge(), transcripts(25), tmp_path / "merged.jsonl")  # goes on as the whole would
    assert (again.resumed, again.judged) == (23, 2)


def test_rows_stand_in_the_order_of_their_inputs_once_all_are_judged(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    score_file(Shuffled(down=("t3", "t11")), transcripts(20)[5:], output)
    summary = score_file(Shuffled(), [*transcripts(20), *transcripts(30)[25:]], output, retry_errors=True)
    assert [row["id"] for row in rows_of(output)] == [f"t{i}" for i in (*range(20), *range(25, 30))]
    assert summary.statuses == {"scored": 25}
    whole = score_file(ChatJudge(), [*transcripts(20), *transcripts(30)[25:]], tmp_path / "whole.jsonl")
    assert whole.rows == 25 and output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    score_file(ChatJudge(), transcripts(4)[2:], output)  # of the others' inputs nothing is known: they stay, behind
    assert [row["id"] for row in rows_of(output)][:4] == ["t2", "t3", "t0", "t1"]


def test_a_shard_of_another_run_is_refused(tmp_path: Path) -> None:
    (first, *_) = sharded(tmp_path, 9, 3)
    part = Shard(1, 3)
    with pytest.raises(RRMError, match="inputs was 9 and is 12"):  # the input has grown: its parts are others
        score_file(ChatJudge(), part.of_rows(transcripts(12), 12), first, settings=part.settings(12))
    with pytest.raises(RRMError, match="shard was '1/3' and is not set"):
        score_file(ChatJudge(), transcripts(9), first)


def test_missing_and_unfinished_shards_are_named(tmp_path: Path) -> None:
    paths = sharded(tmp_path, 20, 5)
    lines = paths[3].read_bytes().splitlines(keepends=True)
    paths[3].write_bytes(b"".join(lines[:2]) + lines[2][:30])  # killed
    out = tmp_path / "merged.jsonl"
    with pytest.raises(RRMError, match=r"of 5 shards 2, 5 are missing; shard 4 \(.*part4.jsonl\) has 2 of 4 rows"):
        merge([paths[0], paths[2], paths[3]], out)
    assert not out.exists() and not Path(f"{out}.tmp").exists()
    done = merge([paths[0], paths[2], paths[3]], out, partial=True)
    assert done.rows == 10 and len(rows_of(out)) == 10 and len(done.missing) == 2


def test_only_rows_of_one_making_are_put_together(tmp_path: Path) -> None:
    runs = {}
    for name, judge, rows in (
        ("a", ChatJudge(), transcripts(5)),
        ("b", ChatJudge(), transcripts(9)[4:]),
        ("c", ChatJudge(transcript_tokens=9), transcripts(12)[9:]),
        ("d", ChatJudge(), transcripts(12)[9:]),
    ):
        runs[name] = tmp_path / f"{name}.jsonl"
        score_file(judge, rows, runs[name])
    (whole, *_) = sharded(tmp_path, 4, 2)
    out = tmp_path / "out.jsonl"
    for given_paths, why in (
        (["a", "b"], r"b\.jsonl:1: its id has a row in another place"),
        (["a", "c"], "made otherwise: transcript_tokens was not set and is 9"),
        (["a", "a"], "a file is named twice"),
        (["a"], "is there already"),
    ):
        if why == "is there already":
            out.write_text("x")
        with pytest.raises(RRMError, match=why):
            merge([runs[name] for name in given_paths], out)
    assert out.read_text() == "x"
    with pytest.raises(RRMError, match="made otherwise: inputs was not set and is 4"):
        merge([runs["a"], whole], out, overwrite=True)
    assert merge([runs["a"], runs["d"]], out, overwrite=True).rows == 8
    Path(f"{runs['a']}.run.json").unlink()
    with pytest.raises(RRMError, match="does not say what made the rows"):
        merge([runs["a"], runs["d"]], out, overwrite=True)


def test_the_commands(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in.jsonl", transcripts(7))
    if not app.registered_commands:
        register(app, "rrm.cli", COMMANDS, GROUPS)

    def rrm(*args: object) -> Any:
        return CliRunner().invoke(app, [str(a) for a in args])

    with serve(lambda n, body: completion("<score>0.5</score>")) as server:
        given_args = [tmp_path / "in.jsonl", "--model", f"openai:{server.url}#m", "--mode", "score"]
        assert rrm("score", *given_args, "-o", tmp_path / "whole.jsonl").exit_code == 0
        for number in range(1, 10):  # more shards than transcripts: two are empty
            done = rrm("score", *given_args, "--shard", f"{number}/9", "-o", tmp_path / f"p{number}.jsonl")
            assert done.exit_code == 0, done.output
        refused = rrm("score", "-", *given_args[1:], "--shard", "1/2", "-o", tmp_path / "x.jsonl")
    assert "give files, not standard input" in str(refused.exception)
    done = rrm("merge", *(tmp_path / f"p{n}.jsonl" for n in range(9, 0, -1)), "-o", tmp_path / "m.jsonl")
    assert done.exit_code == 0 and json.loads(done.stdout.splitlines()[-1])["rows"] == 7
    assert (tmp_path / "m.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_what_is_held_of_a_row_is_what_it_says() -> None:
    def held(digest: str, **row: object) -> tuple:
        return facts_of({"id": "a", "source": {"digest": digest}, **row})

    verdicts = [{"verdict": verdict} for verdict in ("good", "unsure", "bad")]
    a = held("00ff00ff00ff00ff", status="scored", coverage=0.5, out_of_domain=True, findings=verdicts)
    assert a == ("scored", 0x00FF00FF00FF00FF, 0.5, True, 3, 1, None)
    assert held("f" * 16, status="judge_error") == ("judge_error", 2**64 - 1, None, None, 0, 0, None)
    criteria = {"done": {"value": 0.25}, "tone": {"value": None}}
    c = held("0" * 16, status="scored", coverage=1.0, out_of_domain=False, criteria=criteria)
    assert c == ("scored", 0, 1.0, False, 0, 0, {"done": 0.25, "tone": None})
    with pytest.raises(ValueError, match="invalid literal"):
        held("no digest", status="scored")


@given(st.lists(st.integers(0, 9), unique=True), st.lists(st.integers(0, 9), unique=True))
def test_rows_are_ordered_as_their_inputs(rows: list[int], inputs: list[int]) -> None:
    order = order_of([*map(str, rows)], map(str, inputs))
    found = rows if order is None else [rows[i] for i in order]
    assert found == [i for i in inputs if i in rows] + [r for r in rows if r not in inputs]
    assert order is None or order != list(range(len(rows)))
