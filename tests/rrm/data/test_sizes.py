"""What is read has a size: a line, a document, a parquet batch, a gunzipped file, YAML without aliases."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from reagent.report.runs import _config
from reagent.tasks.source_rows import read_rows
from reagent.tools.passages import read_passages
from rrm.config import BaseSettings
from rrm.data.jsonl import read_lines
from rrm.data.plain_yaml import plain_yaml
from rrm.data.sizes import MOST_BYTES, VARIABLE, TooManyBytes, bounded, check_weight, inflated, most_bytes, weight
from rrm.errors import ConfigError, ReadError
from rrm.judge.card import front_matter
from rrm.readers.sources import Value, values
from rrm.train.run_folder import saved_config

MIB = 1 << 20
TOO_LONG = "more than 1,048,576 bytes: not read; a larger RRM_MOST_BYTES reads it"


@pytest.fixture
def one_mib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(MIB))


@contextmanager
def little_memory(mib: int) -> Iterator[None]:
    """What runs holds no more than so much of Python's memory at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= mib * MIB
    finally:
        tracemalloc.stop()


def errors(path: Path) -> list[str]:
    return [v.reason for v in values(str(path)) if isinstance(v, ReadError)]


def test_the_limit_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert most_bytes() == MOST_BYTES == 256 * MIB
    monkeypatch.setenv(VARIABLE, "12")
    assert most_bytes() == 12 and list(bounded([b"x" * 12], "it")) == [b"x" * 12]
    with pytest.raises(TooManyBytes, match="it has more than 12 bytes"):
        list(bounded([b"x" * 12, b"x"], "it"))
    for wrong in ("0", "-1", "1e9", "256M"):
        monkeypatch.setenv(VARIABLE, wrong)
        with pytest.raises(ConfigError, match="write a count of bytes"):
            most_bytes()


def test_values_weigh_more_than_their_text() -> None:
    assert weight("abc") == 3 and weight(b"[{},{}]") == 7 + 4 * 64
    with pytest.raises(ValueError, match="so many values"):
        check_weight("[" + "{}," * 100, "it", 5000)


def test_what_is_inflated_comes_in_pieces() -> None:
    packed = gzip.compress(b"a" * MIB) + gzip.compress(b"b") + b"\0" * 512
    pieces = list(inflated([packed[:100], packed[100:]]))
    assert b"".join(pieces) == b"a" * MIB + b"b" and max(map(len, pieces)) <= 1 << 18
    with pytest.raises(ValueError, match="ends early"):
        list(inflated([packed[:50]]))


@pytest.mark.usefixtures("one_mib")
@pytest.mark.parametrize(
    "bomb",
    [
        b'{"a": 1}\n{"a": "' + b"x" * (16 * MIB), b'{"a": "' + b"x" * (16 * MIB), b"{\n" + b" " * (16 * MIB),
        b"{\n" + b"\n" * (16 * MIB), b"text\n" * (4 * MIB),
    ],
    ids=["line", "first line", "document", "its blank lines", "plain text"],
)  # fmt: skip
def test_a_packed_bomb_is_an_error_before_it_is_memory(tmp_path: Path, bomb: bytes) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(bomb, 1))
    del bomb
    with little_memory(12):
        assert len(reasons := errors(path)) == 1 and TOO_LONG in reasons[0]


@pytest.mark.usefixtures("one_mib")
def test_blank_lines_before_a_value_are_counted_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "late.json.gz"
    path.write_bytes(gzip.compress(b"\n" * (MIB + 1) + b'{"a":\n1}', 1))
    with little_memory(12):
        (value,) = values(str(path))
    assert isinstance(value, Value) and value.data == {"a": 1} and value.line == MIB + 2


@pytest.mark.usefixtures("one_mib")
def test_many_small_lines_are_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps({"a": "x" * 1000}).encode() + b"\n") * 3000, 1))
    assert sum(isinstance(v, Value) for v in values(str(path))) == 3000 and errors(path) == []


@pytest.mark.usefixtures("one_mib")
@pytest.mark.parametrize(
    "rows",
    [["x" * (MIB // 16)] * 512, [["x" * (MIB // 16)] * 256], [{"a": ["x" * (MIB // 16)] * 256}], [[0] * (MIB // 4)]],
    ids=["rows", "list", "struct", "numbers"],
)
def test_a_parquet_bomb_is_bounded_before_it_is_pythons(tmp_path: Path, rows: list[object]) -> None:
    """A value that stands once is in every row."""
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pa.table({"a": pa.array(rows)}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    n_rows = 0
    with little_memory(12):
        for value in values(str(path)):
            if isinstance(value, ReadError):
                assert "has more than 1,048,576 bytes" in value.reason
                return
            n_rows += 1
    assert n_rows == 512  # read in pieces


def test_parquet_of_every_kind_is_read_as_it_was(tmp_path: Path) -> None:
    row = {
        "text": "é", "list": [{"role": "user", "n": None}], "map": [("k", "v")], "big": b"\x00\x01", "f": 0.5,
        "none": None,
    }  # fmt: skip
    types = pa.schema([
        ("text", pa.string()), ("list", pa.list_(pa.struct([("role", pa.string()), ("n", pa.int64())]))),
        ("map", pa.map_(pa.string(), pa.string())), ("big", pa.binary()), ("f", pa.float64()), ("none", pa.string()),
    ])  # fmt: skip
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.Table.from_pylist([row] * 300, schema=types), path)
    expected = {"text": "é", "list": [{"role": "user"}], "map": [["k", "v"]], "big": "AAE=", "f": 0.5}
    assert [v.data for v in values(str(path)) if isinstance(v, Value)] == [expected] * 300


@pytest.mark.usefixtures("one_mib")
def test_a_tasks_table_is_unpacked_no_further(tmp_path: Path) -> None:
    path = tmp_path / "tasks.csv.gz"
    path.write_bytes(gzip.compress(b"question,answer\na,b\n"))
    assert [row.data for row in read_rows(path)] == [{"question": "a", "answer": "b"}]
    path.write_bytes(gzip.compress(b"question,answer\n" + b"a,b\n" * (4 * MIB), 1))
    with little_memory(12), pytest.raises(ReadError, match="more than 1,048,576 bytes"):
        list(read_rows(path))
    path.write_bytes(gzip.compress(b"question,answer\na,b\n")[:-9])
    with pytest.raises(ReadError, match="ends early"):
        list(read_rows(path))


@pytest.mark.usefixtures("one_mib")
@pytest.mark.parametrize("start", [b'{"text": "', b'[{"text": "'])
def test_passages_are_unpacked_no_further(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "passages.jsonl.gz"
    path.write_bytes(gzip.compress(start + b"x" * (16 * MIB), 1))
    with little_memory(12), pytest.raises(ReadError, match="more than 1,048,576 bytes"):
        list(read_passages(path))


@pytest.mark.usefixtures("one_mib")
def test_a_line_of_our_own_files_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n" + b" " * (2 * MIB))
    with pytest.raises(ReadError, match=r"rows\.jsonl:2: this line has more than 1,048,576 bytes"):
        list(read_lines(path, json.loads, "a row"))


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


def test_an_alias_is_refused_and_the_rest_is_read() -> None:
    assert plain_yaml("a: [1, true, null]\nb: {c: d}\n") == {"a": [1, True, None], "b": {"c": "d"}}
    with pytest.raises(yaml.YAMLError, match="an alias"):
        plain_yaml(BOMB)


def test_a_run_folders_config_is_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(BOMB + "algorithm: {}\n")
    with pytest.raises(ConfigError, match=r"config\.yaml: not a config that a run wrote"):
        saved_config(path, BaseSettings)
    with pytest.raises(ConfigError, match="an alias"):
        _config(path)
    path.write_text("base: m\n")
    assert saved_config(path, BaseSettings)["base"] == "m"


def test_a_card_is_no_bomb() -> None:
    assert front_matter(f"---\n{BOMB}---\nText") == {}
    assert front_matter("---\nlicense: mit\n---\nText") == {"license": "mit"}
