"""What a file may look like from outside: JSON or JSONL, gzip, parquet, encodings, folders, pipes, damage."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
from linear_time import assert_linear
from log_rows import talk

from rrm import readers
from rrm.data.trajectory import Trajectory
from rrm.errors import MissingExtra, ReadError
from rrm.readers import read
from rrm.readers.base import SourceItem, make
from rrm.readers.hub import HubSet, hub_set
from rrm.readers.jsontext import parse_json
from rrm.readers.paths import missing
from rrm.readers.unique import FLUSH, UniqueIds


def run(k: int | str, **more: Any) -> dict[str, Any]:
    return {"id": f"r{k}", "messages": talk(f"question {k} é", f"answer {k}"), **more}


def collect(*paths: Path | str, **options: Any) -> tuple[list[Trajectory], list[ReadError]]:
    errors: list[ReadError] = []
    return list(read(list(paths), on_error=errors.append, **options)), errors


RUNS = [run(k) for k in range(3)]
JSONL = "\n".join(map(json.dumps, RUNS)) + "\n"


@pytest.mark.parametrize(("name", "data"), [
    ("a.jsonl", JSONL.encode()), ("a.json", JSONL.encode()),  # JSONL under the wrong name
    ("a.jsonl", json.dumps(RUNS, indent=2).encode()),  # a document under the wrong name
    ("a.json", json.dumps(RUNS).encode()), ("a", json.dumps({r["id"]: r for r in RUNS}, indent=1).encode()),
    ("a.json", "\n".join(json.dumps(r, indent=2) for r in RUNS).encode()),  # documents in a row
    ("a.jsonl", JSONL.replace("\n", "\r\n\r\n").encode()), ("a.jsonl", b"\xef\xbb\xbf" + JSONL.encode()),
    ("a.jsonl", "\n".join(json.dumps(r, ensure_ascii=False) for r in RUNS).encode("utf-16")),
    ("a.jsonl", JSONL.encode("utf-32")), ("a.jsonl.gz", gzip.compress(JSONL.encode())),
    ("a.jsonl", gzip.compress(JSONL.encode()[:100]) + gzip.compress(JSONL.encode()[100:]) + b"\0" * 512),
    ("a.txt", ("\n" * 3 + JSONL).encode()),
])  # fmt: skip
def test_the_same_three_runs_in_every_wrapping(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    found, errors = collect(tmp_path / name)
    assert errors == [] and [t.id for t in found] == ["r0", "r1", "r2"]
    assert found[1].task == "question 1 é"


def test_parquet_drops_struct_padding_and_keeps_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    call = {"id": "c", "function": {"name": "f", "arguments": '{"x": null}'}}
    rows = [run(0, reward=float("nan")), run(1, reward=1.0, blob=b"\0\1")]
    rows[1]["messages"][1]["tool_calls"] = [call]
    table = pa.Table.from_pylist(rows, schema=pa.Table.from_pylist(rows[::-1]).schema)
    parquet.write_table(table, tmp_path / "data.bin.parquet")
    found, errors = collect(tmp_path / "data.bin.parquet")
    assert errors == [] and [(t.id, t.outcome) for t in found] == [("r0", None), ("r1", 1.0)]
    assert found[0].messages[1].tool_calls is None and found[0].meta["reward"] == "nan"
    assert found[1].messages[1].tool_calls and found[1].messages[1].tool_calls[0].arguments == {"x": None}
    whole = (tmp_path / "data.bin.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    assert "parquet" in collect(tmp_path / "cut.parquet")[1][0].reason


def test_bad_lines_are_reported_where_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = json.dumps(run(1)).encode()
    lines = [
        *(b'{"id": ', good, b"", b"17", b"null", b'"text"', b"{}", b"[]", b'{"messages": [{"role": "pope"}]}'),
        *(b'\xff{"messages": []}', b"[" * 100_000, b'{"a":' * 2_000 + b"1" + b"}" * 2_000, b"\0\0\0\0", good),
    ]
    path.write_bytes(b"\n".join(lines))
    found, errors = collect(path)
    assert [t.source.line for t in found if t.source] == [2, 14] and [t.id for t in found] == ["r1", "r1#2"]
    assert [e.line for e in errors] == [1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert {e.path for e in errors} == {str(path)}
    reasons = {e.line: e.reason for e in errors}
    assert "cut off" in reasons[1] and "not UTF-8: byte 1 is 0xff" in reasons[10] and "nested" in reasons[11]
    assert "nested" in reasons[12] and "an empty object" in reasons[7]


def test_first_error_is_raised_without_a_handler_and_strict_calls_it_first(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(run(1)) + "\nnope\n" + json.dumps(run(2)) + "\n")
    with pytest.raises(ReadError, match=r"a\.jsonl:2: not JSON"):
        list(read(path))
    seen: list[ReadError] = []
    with pytest.raises(ReadError):
        list(read(path, on_error=seen.append, strict=True))
    assert len(seen) == 1


def test_damaged_gzip_gives_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    lines = "\n".join(json.dumps(run(k, noise=f"{k * 7919:x}" * 40)) for k in range(500))
    path.write_bytes(gzip.compress(lines.encode())[:-2_000])
    found, errors = collect(path)
    assert [t.id for t in found] == [f"r{k}" for k in range(len(found))] and len(found) > 50
    assert [e.line for e in errors] == [len(found) + 1] and "ends early" in errors[0].reason


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "empty"), (b"\n \n", "empty"), (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "an image"), (b"\x7fELF\0\0\0\0", "binary"),
    (b"PK\x03\x04zip", "zip"), (gzip.compress(b"", mtime=0), "empty"), (b"\x1f\x8bnot gzip at all", "gzip"),
    (b"PAR1 but no parquet", "parquet"), ("hello".encode("utf-16")[:-1], "UTF-16"),
    (b"Dear diary,\ntoday I wrote no JSON.", "plain text"), (b"[]", "empty list"), (b'[{"messages": [', "cut off"),
    (b'{"simulations": []}', "empty list"), (b"\xff\xfe\xfa\xfb\xfc", "UTF"),
])  # fmt: skip
def test_files_that_hold_no_transcript_are_one_error(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "file").write_bytes(data)
    runs, (error,) = collect(tmp_path / "file")
    assert runs == [] and reason in error.reason


def test_wrong_path_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text(JSONL)
    _, errors = collect(tmp_path / "run.jsonl")
    assert "did you mean" in errors[0].reason and "runs.jsonl" in errors[0].reason
    _, errors = collect(tmp_path / "no" / "x.jsonl")
    assert "does not exist" in errors[0].reason


def test_folder_is_sorted_recursive_and_ids_stay_unique(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "b" / "x.jsonl").write_text(JSONL)
    (tmp_path / "a.json").write_text(json.dumps(RUNS))
    (tmp_path / "README.md").write_text("words")
    (tmp_path / ".git" / "c.json").write_text("{}")
    found, errors = collect(tmp_path)
    assert errors == [] and [t.id for t in found] == ["r0", "r1", "r2", "r0#2", "r1#2", "r2#2"]
    assert [t.meta.get("original_id") for t in found] == [None, None, None, "r0", "r1", "r2"]
    assert "README.md" in caplog.text
    (tmp_path / "empty").mkdir()
    assert "holds no transcripts" in collect(tmp_path / "empty")[1][0].reason


def test_what_a_file_holds_decides_in_a_folder_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.traj").write_text(json.dumps(run("a"), indent=1))
    (tmp_path / "b.log.1").write_text(json.dumps([run("b")]))
    for name, text in (("conf.toml", "[tool]\n"), ("x.py", "{1: 2}"), ("notes.md", "words"), ("c.css", "{a: b}")):
        (tmp_path / name).write_text(text)
    caplog.set_level("INFO")
    for _ in range(2):  # read twice, said once
        found, errors = collect(tmp_path)
        assert errors == [] and [t.id for t in found] == ["ra", "rb"]
    assert caplog.text.count("4 files are not data files") == 1 and "a.traj" not in caplog.text


def test_a_run_spread_over_the_files_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run a folder, its sub-folder's run apart, whatever else lies between."""
    reader = types.ModuleType("events")

    def gather(items: Iterable[SourceItem]) -> Iterator[SourceItem | ReadError]:
        found = list(items)
        yield SourceItem([item.value for item in found], found[0].path)

    def parse(item: SourceItem) -> Trajectory:
        said = [{"role": "user" if e["kind"] == "ask" else "assistant", "content": str(e["event"])} for e in item.value]
        return make(item, "events", said, meta={}, id=str(PurePath(item.path).parent.relative_to(tmp_path)))

    vars(reader).update(NAME="events", OVER_FOLDER=True, gather=gather, parse=parse, sniff=lambda v: "event" in v)
    monkeypatch.setattr(readers, "READERS", (reader, *readers.READERS))
    monkeypatch.setitem(readers.FORMATS, "events", reader)
    monkeypatch.setitem(readers._GATHERERS, "events", reader)
    events = {"a/1": (1, "ask"), "a/b/1": (7, "ask"), "a/b/2": (8, "say"), "a/x": (2, "say"), "d/1": (9, "ask")}
    for name, (number, kind) in events.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.json").write_text(json.dumps({"event": number, "kind": kind}))
    (tmp_path / "a/c.jsonl").write_text(JSONL)
    found, errors = collect(tmp_path)
    assert errors == []
    assert [(t.id, [m.content for m in t.messages]) for t in found if t.source and t.source.format == "events"] == [
        ("a/b", ["7", "8"]), ("a", ["1", "2"]), ("d", ["9"]),
    ]  # fmt: skip
    assert [t.id for t in found] == ["a/b", "r0", "r1", "r2", "a", "d"]


def test_unique_ids_over_flushes_and_many_repeats() -> None:
    ids = UniqueIds()
    assert [ids.take("x") for _ in range(5)] == ["x", "x#2", "x#3", "x#4", "x#5"]
    assert ids.take("x#6") == "x#6" and ids.take("x") == "x#7"
    for k in range(FLUSH):
        ids.take(str(k))
    assert ids.take("17") == "17#2" and ids.take("x") == "x#8" and "new" not in ids


def test_numbers_that_are_not_json_become_text() -> None:
    named = {"a": "NaN", "b": "-Infinity", "c": "1e999", "d": 1.5}
    assert parse_json('{"a": NaN, "b": -Infinity, "c": 1e999, "d": 1.5}') == named
    with pytest.raises(ValueError, match="digits"):
        parse_json("9" * 10_000)


PIPE = """
import json, resource, sys
from rrm import readers
from rrm.readers import read
from rrm.readers.base import SourceItem, make
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
count = 0
for count, trajectory in enumerate(read("-"), 1):
    if count == 2000:
        early = peak()
print(json.dumps({"rows": count, "grown_mib": peak() - early}))
"""


def test_a_pipe_streams_in_constant_memory() -> None:
    """12,000 lines of 2 kB (24 MB) through standard input: the peak after 2,000 hardly grows."""
    reader = subprocess.Popen([sys.executable, "-c", PIPE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdin and reader.stdout
    filler = "x" * 1_800
    for k in range(12_000):
        reader.stdin.write(json.dumps(run(k, filler=filler)).encode() + b"\n")
    reader.stdin.close()
    result = json.loads(reader.stdout.read())
    assert reader.wait() == 0 and result["rows"] == 12_000
    assert result["grown_mib"] < 15, result


def _parents(count: int) -> Any:
    own = {"session_id": "s", "run_type": "chain", "inputs": {"question": "q"}, "outputs": {"answer": "a"}}
    return {"runs": [{"id": f"r{k}", "parent_run_id": f"r{k - 1}" if k else None, **own} for k in range(count)]}


def _evaluations(count: int) -> Any:
    said = {"name": "gen_ai.evaluation.result", "attributes": {"gen_ai.evaluation.name": "e"}}
    read_ = {"gen_ai.input.messages": json.dumps([{"role": "user", "content": "q"}])}
    return {"traceId": "a", "spanId": "b", "startTimeUnixNano": "1", "attributes": read_, "events": [said] * count}


def _before_the_agent(count: int) -> Any:
    said = {"role": "user", "content": "<returncode>0", "agent": "a"}
    return {"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": [said] * count}


def _told(count: int) -> Any:
    return {"history": _before_the_agent(count)["messages"], "trajectory": [], "info": {}}


@pytest.mark.parametrize(
    ("document", "count"), [(_parents, 750), (_evaluations, 2000), (_before_the_agent, 3000), (_told, 3000)]
)
def test_time_grows_with_the_document_and_not_with_its_square(tmp_path: Path, document: Any, count: int) -> None:
    def read_it(entries: int) -> None:
        (tmp_path / "x.json").write_text(json.dumps(document(entries)))
        (found,), errors = collect(tmp_path / "x.json")
        assert errors == [] and found.messages

    assert_linear(read_it, count)


def read_rows(path: Path, *more: dict[str, Any]) -> list[Trajectory]:
    path.write_text("".join(json.dumps({"messages": talk("What is 2+2?", "4"), **fields}) + "\n" for fields in more))
    return list(read(path))


def test_a_subfolder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, scandir = tmp_path / "closed", os.scandir
    for folder in (tmp_path, closed):
        folder.mkdir(exist_ok=True)
        read_rows(folder / "runs.jsonl", {}, {})

    def refusing(path: Any) -> Any:  # root may read everything
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(ReadError, match=r"closed: this folder cannot be read: Permission denied"):
        list(read(tmp_path))
    errors: list[ReadError] = []
    assert len(list(read(tmp_path, on_error=errors.append))) == 2 and [e.path for e in errors] == [str(closed)]


def test_ids_of_every_type_are_kept_as_text(tmp_path: Path) -> None:
    rows = read_rows(tmp_path / "runs.jsonl", *({"id": id} for id in ["a", 7, True, 1.5, ["x", 2], 0]))
    assert [t.id for t in rows] == ["a", "7", "true", "1.5", '["x", 2]', "0"]
    unnamed = read_rows(tmp_path / "runs.jsonl", {"id": ""}, {"id": None}, {"id": []})
    assert [t.id for t in unnamed] == ["runs:1", "runs:2", "runs:3"]


@pytest.mark.parametrize("field", ["outcome", "reward", "score", "success"])
def test_numbers_that_are_no_outcomes_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    found = read_rows(
        tmp_path / "runs.jsonl", {field: "0.5"}, {field: 2}, {field: float("nan")},
        {field: True if field == "success" else 1},
    )  # fmt: skip
    assert [t.outcome for t in found] == [None, None, None, 1.0]
    said = "holds a number that is no label in [0, 1] in 3 runs, which have no outcome; the first: '0.5' of runs:1"
    assert f"`{field}` {said}" in caplog.text


def test_words_and_choices_are_no_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_rows(tmp_path / "runs.jsonl", {"correct": "B"}, {"correct": 3, "options": ["a"]}, {"outcome": "unknown"})
    assert "no label" not in caplog.text


ROWS = [
    {"id": "a", "messages": talk("q", "x"), "correct": True},
    {"id": "b", "turns": [{"who": "human", "what": "q"}], "meta": {"k": [1]}},
]


class Loaded:
    """What a streaming data set is to us: rows, features or none, and `decode`."""

    features = None

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[Any]:
        for row in self.rows:
            if isinstance(row, Exception):
                raise row
            yield row


@pytest.mark.parametrize(("path", "named"), [
    ("hf:owner/name:train", HubSet("owner/name", "train")),
    ("hf:owner/name@v1#big:test", HubSet("owner/name", "test", config="big", revision="v1")),
    ("hf:./folder:validation", HubSet("./folder", "validation")),
])  # fmt: skip
def test_names(path: str, named: HubSet) -> None:
    assert hub_set(path) == named and missing(path) is None


@pytest.mark.parametrize("path", ["hf:", "hf:owner/name", "hf:owner/name:", "hf::train", "hf:a/b:train[:10]"])
def test_a_malformed_name_says_how_to_write_it(path: str) -> None:
    errors: list[ReadError] = []
    assert list(read(path, on_error=errors.append)) == []
    assert len(errors) == 1 and "hf:owner/name:split" in errors[0].reason
    assert missing(path) is not None


def test_a_folder_of_data_files_through_the_library(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    name = f"hf:{tmp_path}:test"
    errors: list[ReadError] = []
    (run,) = read(name, on_error=errors.append)
    assert run.id == "a" and run.outcome == 1.0 and [m.text() for m in run.messages] == ["q", "x"]
    assert run.source and (run.source.file, run.source.line, run.source.format) == (name, 1, "openai")
    assert [e.line for e in errors] == [2]
    mapping = {"messages": "turns?", "message.role": "who", "message.content": "what", "response": "id"}
    mapped = list(read(name, mapping=mapping))
    assert [m.text() for m in mapped[1].messages] == ["q", "b"] and mapped[1].meta["k"] == [1]
    assert list(read(f"hf:{tmp_path}:train", on_error=errors.append)) == []
    assert "cannot be read: Bad split: train. Available splits: ['test']" in errors[-1].reason


def test_what_breaks_on_the_way_keeps_the_rows_before(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[Any] = []

    def load(*args: Any, **options: Any) -> Loaded:
        asked.append((args, options))
        return Loaded([ROWS[0], ConnectionError("the line\ndropped")])

    monkeypatch.setattr(datasets, "load_dataset", load)
    errors: list[ReadError] = []
    assert [t.id for t in read("hf:owner/name@v1#big:train", on_error=errors.append)] == ["a"]
    assert asked == [(("owner/name", "big"), {"split": "train", "revision": "v1", "streaming": True})]
    assert errors[0].line == 2
    assert errors[0].reason == "the data set cannot be read from here on: the line dropped"
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: Loaded([]))
    with pytest.raises(ReadError, match="has no rows"):
        list(read("hf:owner/name:train"))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.setattr("rrm.data.extras._is_there", lambda module: module != "datasets")
    with pytest.raises(MissingExtra, match=r"pip install 'agent-rrm\[hub\]'"):
        list(read("hf:owner/name:train"))
