"""Data sets on the hub as inputs. A local folder is a data set too, so the real library runs without a network."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rrm.errors import MissingExtra, ReadError
from rrm.readers import read
from rrm.readers.hub import HubSet, hub_set
from rrm.readers.paths import missing

ROWS = [
    {"id": "a", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}], "correct": True},
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


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("hf:owner/name:train", HubSet("owner/name", "train")),
        ("hf:owner/name@v1#big:test", HubSet("owner/name", "test", config="big", revision="v1")),
        ("hf:./folder:validation", HubSet("./folder", "validation")),
    ],
)
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
