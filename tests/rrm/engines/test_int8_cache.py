"""The cache of int8 graphs (skipped where OpenVINO is not installed): made once, whole on disk, made anew where damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine_models import make_rows
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from rrm.engines.hf.engine import HFEngine

pytest.importorskip("openvino", reason="int8 needs openvino: pip install 'agent-rrm[fast]'")

from rrm.engines import int8
from rrm.engines.int8 import Int8Engine, graph_file

CHOICES = (66, 71)


def test_the_graph_is_made_once(model: LlamaForCausalLM, tmp_path: Path) -> None:
    made = []
    places = [graph_file(tmp_path, "abc", lambda: made.append(1) or model) for _ in range(2)]
    assert made == [1] and places[0] == places[1] and places[0].is_file()
    assert [path.name for path in places[0].parent.parent.glob("*") if path.is_dir()] == [places[0].parent.name]
    assert graph_file(tmp_path, "abd", lambda: model) != places[0]


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("name", ["model.xml", "model.bin"])
def test_a_damaged_graph_is_made_anew_once(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    flip: bool,
) -> None:
    made, rows = [], make_rows()[:2]
    asked = (rows, [[len(row) - 1] for row in rows], CHOICES)
    graph = graph_file(tmp_path, "abc", lambda: model)
    wanted = Int8Engine(graph, 0, lambda: HFEngine(model, tokenizer)).choice_logprobs(*asked)
    whole = (graph.parent / name).read_bytes()
    middle = len(whole) // 2
    damaged = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :] if flip else whole[:middle]
    (graph.parent / name).write_bytes(damaged)
    for _ in range(2):
        again = graph_file(tmp_path, "abc", lambda: made.append(1) or model)
    assert made == [1] and caplog.text.count("is damaged: it is made anew") == 1
    assert Int8Engine(again, 0, lambda: HFEngine(model, tokenizer)).choice_logprobs(*asked) == wanted


def test_a_graph_is_on_disk_before_it_has_its_name(
    model: LlamaForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, replace, sync = [], os.replace, os.fsync
    monkeypatch.setattr(int8.os, "fsync", lambda opened: done.append(os.fstat(opened).st_ino) or sync(opened))
    monkeypatch.setattr(int8.os, "replace", lambda *paths: done.append("named") or replace(*paths))
    folder = graph_file(tmp_path, "abc", lambda: model).parent
    assert done[-1] == "named" and set(done[:-1]) == {path.stat().st_ino for path in (*folder.iterdir(), folder)}
