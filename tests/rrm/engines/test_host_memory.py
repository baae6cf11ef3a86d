"""Freed memory that lies between blocks in use is given back once a process has grown by as much as it may."""

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rrm.engines.hf import host_memory
from rrm.engines.hf.host_memory import FreedMemory, own_bytes

MB = 1 << 20
FRAGMENTED = """
import torch
from rrm.engines.hf.host_memory import FreedMemory, keep_freed_memory, own_bytes
assert keep_freed_memory()
freed, before = FreedMemory(grown=150 << 20), own_bytes()
assert not FreedMemory(grown=before + (1 << 30)).give_back()  # it has not grown by as much
freed.give_back()
before = own_bytes()
blocks = [torch.ones(n << 18) for _ in range(100) for n in (3, 1)]  # of 3 and of 1 MB, in turn
held = blocks[1::2]
del blocks
full = own_bytes()
assert full - before > 350 << 20, (before, full)  # freed, and not given back
assert freed.give_back()
after = own_bytes()
assert full - after > 200 << 20, (full, after)
assert sum(float(block.sum()) for block in held) == 100 * (1 << 18)
assert not freed.give_back()  # counted from here on
print("given back")
"""


@pytest.mark.skipif(not host_memory.mallocs_with_glibc(), reason="glibc's malloc alone is told")
def test_gaps_between_blocks_in_use_are_given_back() -> None:
    run = subprocess.run([sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=False)
    assert run.stdout == "given back\n", run.stderr


def test_it_is_time_when_the_process_has_grown_since(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([100, 101, 90, 190, 191, 70, 165, 171, 120])
    calls: list[int] = []

    class Library:
        @staticmethod
        def malloc_trim(pad: object) -> int:
            calls.append(1)
            return 1

    monkeypatch.setattr(host_memory, "own_bytes", lambda: next(sizes))
    monkeypatch.setattr(host_memory, "_glibc", Library)
    freed = FreedMemory(grown=100)
    assert not freed.give_back()  # 100: as much as it may
    assert freed.give_back()  # 101, and 90 afterwards
    assert not freed.give_back()  # 190
    assert freed.give_back()  # 191, and 70 afterwards
    assert not freed.give_back()  # 165
    assert freed.give_back() and len(calls) == 3  # 171, and 120 afterwards


def test_where_nothing_can_be_read_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    if host_memory.sys.platform.startswith("linux"):
        assert own_bytes() > MB
    monkeypatch.setattr(host_memory, "STATM", "/no/such/file")
    assert own_bytes() == 0 and not FreedMemory(0).give_back()


def test_pages_of_files_are_not_counted(tmp_path: Path) -> None:
    """What is mapped cannot be given back: an index or weights read anew would have it tried again and again."""
    (tmp_path / "index").write_bytes(bytes(64 * MB))
    before = own_bytes()
    with open(tmp_path / "index", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[i] for i in range(0, 64 * MB, mmap.PAGESIZE)) == 0
        assert own_bytes() - before < 32 * MB


def test_another_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    host_memory._glibc.cache_clear()
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")
    try:
        assert not host_memory.mallocs_with_glibc() and not FreedMemory(0).give_back()
        assert not host_memory.keep_freed_memory()
    finally:
        host_memory._glibc.cache_clear()


def test_it_is_asked_between_pieces_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that join a batch, and groups of rows that are read."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from rrm.engines.base import SamplingParams, Span
    from rrm.engines.hf.engine import HFEngine

    class Tokenizer:
        eos_token_id = 1

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": 32}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    engine: Any = HFEngine(LlamaForCausalLM(LlamaConfig(**sizes)), Tokenizer(), max_batch_tokens=8)  # pyright: ignore
    asked: list[int] = []
    monkeypatch.setattr(FreedMemory, "give_back", lambda self: asked.append(1))
    engine.generate([[3, 4, 5], [6, 7]], SamplingParams(max_new_tokens=2))
    joined = len(asked)
    engine.logprobs([[3, 4, 5, 6, 7, 8], [6, 7, 8, 9, 3, 4]], [Span(1, 6)] * 2)
    assert joined >= 1 and len(asked) - joined == 2  # two groups of eight tokens
