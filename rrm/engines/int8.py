"""`int8`: verdicts of a Llama or Qwen2 judge on a CPU by OpenVINO (`pip install 'agent-rrm[fast]'`).

Only `choice_logprobs` runs in int8 (`rrm.engines.int8_graph`); the rest loads the float model. The graph is cached per model,
library version and scheme.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rrm.engines.base import Completion, EngineCounters, SamplingParams, Span, check_choices
from rrm.engines.hf.batching import common_prefix
from rrm.engines.hf.weights import sha256
from rrm.errors import EngineError

if TYPE_CHECKING:
    from rrm.engines.hf.engine import HFEngine

log = logging.getLogger(__name__)
FILE = "model.xml"
SUMS = "sha256.json"  # in a graph's folder, written last
# forwards end at multiples of this: longer ones leave a core's cache, and attention reads more masked keys
CHUNK = 256
# the last forward, unless it is the first, ends at a multiple of this: attention rounds by the number of keys
PADDED = 16
KEPT_BYTES = 2 << 30  # default for keys and values kept under keys
GRAPH_INPUTS = 4  # before the keys and values


@contextmanager
def library_errors() -> Iterator[None]:
    """Turn errors of OpenVINO, also of loading it, into EngineError."""
    try:
        yield
    except (RuntimeError, ImportError) as error:
        raise EngineError(f"OpenVINO: {' '.join(str(error).split()):.300}") from error


@library_errors()
def graph_file(cache: Path, model_hash: str, load: Callable[[], Any]) -> Path:
    """Path of the model's graph, made from `load()` (a float32 model) unless it is cached.

    Raises EngineError: a model that `int8_graph` does not know, or the library failed."""
    from filelock import FileLock

    from rrm.engines.int8_graph import SCHEME, build, ov

    version = ov.get_version().partition("-")[0]
    target = cache / "int8" / f"{model_hash}-{SCHEME}-openvino-{version}"
    if not _readable(target / FILE):
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.parent / f".{target.name}.lock"):
            if not _readable(target / FILE):
                if target.exists():
                    log.warning("the int8 graph in %s is damaged: it is made anew", target)
                    shutil.rmtree(target)
                for stale in target.parent.glob(f".{target.name}.*/"):  # of a process that was killed: we hold the lock
                    shutil.rmtree(stale)
                with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as scratch:
                    scratch_graph = Path(scratch) / "graph"
                    ov.save_model(build(load()), scratch_graph / FILE, compress_to_fp16=False)
                    (scratch_graph / SUMS).write_text(json.dumps(_sums(scratch_graph)), encoding="utf-8")
                    for path in (*scratch_graph.iterdir(), scratch_graph):
                        _to_disk(path)
                    os.replace(scratch_graph, target)
    return target / FILE


def _readable(graph: Path) -> bool:
    """Tell whether a graph is there with its checksums: OpenVINO does not notice flipped bits."""
    try:
        return json.loads((graph.parent / SUMS).read_text(encoding="utf-8")) == _sums(graph.parent)
    except (OSError, ValueError):
        return False


def _sums(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path) for path in sorted(folder.iterdir()) if path.name != SUMS}


def _to_disk(path: Path) -> None:
    """Sync a file or folder to disk; not every system can open a folder."""
    if path.is_dir() and not hasattr(os, "O_DIRECTORY"):
        return
    opened = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@library_errors()
def multiplies_exactly() -> bool:
    """Tell whether int8 products are exact: without VNNI, sums of pairs in 16 bits may overflow."""
    from rrm.engines.int8_graph import linear, op, ov, quantised

    x = op.parameter([-1, 64], np.float32)
    graph = ov.Model([op.result(linear(quantised(x), np.ones((16, 64), np.float32), None))], [x], "probe")
    outputs = ov.Core().compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([np.ones((4, 64), np.float32)])
    return bool(np.allclose(outputs[0], 64.0, rtol=1e-3))


class Int8Engine:
    """A `TokenEngine` whose `choice_logprobs` runs an int8 graph (from `graph_file`), row by row.

    Forwards end at fixed positions, so that results do not depend on batch or cache. Raises EngineError: the graph is unreadable.

    Args:
        floats: loads the engine for everything else.
        kept_bytes: memory for rows kept under keys; the least recently used are dropped.
    """

    @library_errors()
    def __init__(
        self, graph: Path, eos_token_id: int, floats: Callable[[], HFEngine], *, kept_bytes: int = KEPT_BYTES
    ) -> None:
        from rrm.engines.int8_graph import ov

        threads = os.environ.get("OMP_NUM_THREADS", "")
        settings = {"INFERENCE_NUM_THREADS": threads} if threads.isdigit() else {}
        core = ov.Core()
        ov_model = core.read_model(graph)
        self.max_positions, self.vocabulary = (
            int(ov_model.get_rt_info(["rrm", name]).value) for name in ("positions", "vocabulary")
        )
        compiled = core.compile_model(
            ov_model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", **settings}
        )
        # two, since what one put out is what the next forward reads
        self._requests = [compiled.create_infer_request() for _ in range(2)]
        shapes = [port.partial_shape for port in compiled.inputs[GRAPH_INPUTS:]]
        self._empty = [
            ov.Tensor(ov.Type.bf16, ov.Shape([n.get_length() if n.is_static else 0 for n in shape])) for shape in shapes
        ]
        self.eos_token_id, self.kept_bytes, self._floats = eos_token_id, kept_bytes, floats
        self._kept: OrderedDict[str, _KeptKeys] = OrderedDict()
        self._counters = EngineCounters()

    @cached_property
    def floats(self) -> HFEngine:
        log.debug("loading the float weights: only verdicts run in int8")
        return self._floats()

    @property
    def model(self) -> Any:
        return self.floats.model

    @property
    def counters(self) -> EngineCounters:
        return self._counters

    def generate(
        self, rows: Sequence[Sequence[int]], params: SamplingParams, keys: Sequence[str] | None = None
    ) -> list[Completion]:
        return self.floats.generate(rows, params, keys)

    def logprobs(self, rows: Sequence[Sequence[int]], spans: Sequence[Span]) -> list[list[float]]:
        return self.floats.logprobs(rows, spans)

    def continuation_logprobs(
        self, rows: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]], keys: Sequence[str] | None = None
    ) -> list[list[float]]:
        return self.floats.continuation_logprobs(rows, continuations, keys)

    def choice_logprobs(
        self,
        rows: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
        choices: Sequence[int],
        keys: Sequence[str] | None = None,
    ) -> list[list[list[float]]]:
        """See `TokenEngine`; in int8. A prefix that all rows share is run once. Raises like `HFEngine`."""
        check_choices(rows, positions, choices)
        if max(choices) >= self.vocabulary:
            raise EngineError(f"choices {list(choices)}: the model has {self.vocabulary} tokens")
        if keys is not None and (len(keys) != len(rows) or len(set(keys)) != len(keys)):
            raise EngineError(f"{len(rows)} rows need as many distinct keys, got {len(keys)}")
        prefixes = [
            [int(token) for token in row[: max(row_positions, default=-1) + 1]]
            for row, row_positions in zip(rows, positions, strict=True)
        ]
        if (longest := max(map(len, prefixes), default=0)) > self.max_positions:
            raise EngineError(
                f"a row of {longest} tokens exceeds the model's {self.max_positions} positions; shorten it"
            )
        choice_ids = np.array(choices, np.int32)
        reusable = [min(row_positions, default=0) for row_positions in positions]
        cached = [None if keys is None else self._kept.get(key) for key in keys or [""] * len(rows)]
        bare = [i for i, row in enumerate(prefixes) if row and cached[i] is None]
        common = common_prefix([prefixes[i] for i in bare]) if len(bare) > 1 else 0
        shared: _KeptKeys | None = None
        results: list[list[list[float]]] = []
        for i, (row, row_positions) in enumerate(zip(prefixes, positions, strict=True)):
            if not row:
                results.append([])
                continue
            start = cached[i] or shared
            logits, caches = self._forward(row, start, reusable[i], row_positions, choice_ids)
            logits -= logits.max(axis=1, keepdims=True)
            results.append((logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).tolist())
            if shared is None and cached[i] is None and common:
                shared = _KeptKeys(row[:common], [np.array(cache.data[:, :, :common]) for cache in caches])
            if keys is not None:
                self._keep(keys[i], _KeptKeys(row, [np.array(cache.data[:, :, : len(row)]) for cache in caches]))
        return results

    def release(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._kept.pop(key, None)
        if "floats" in self.__dict__:
            self.floats.release(keys)

    def _forward(
        self, row: list[int], start: _KeptKeys | None, reusable: int, positions: Sequence[int], choices: np.ndarray
    ) -> tuple[np.ndarray, list[Any]]:
        """Run a row after what it shares with `start`: (logits (T, C) float64, keys and values).

        Args:
            reusable: leading tokens whose keys and values may come from `start`.
        """
        from rrm.engines.int8_graph import ov

        done = min(common_prefix([start.ids, row]), reusable) if start else 0
        if done > CHUNK:  # what ends within a forward was read with fewer keys
            done -= done % CHUNK
        caches = self._empty
        if start is not None and done:
            parts = [np.ascontiguousarray(array[:, :, :done]) for array in start.caches]
            caches = [ov.Tensor(array, ov.Shape(list(array.shape)), ov.Type.bf16) for array in parts]
        targets = np.array(positions, np.int64)
        logits = np.empty((len(targets), len(choices)))
        last = min(max(CHUNK, len(row) + -len(row) % PADDED), self.max_positions)
        ends = [*range(done - done % CHUNK + CHUNK, len(row), CHUNK), last]
        padded = row + [row[-1]] * (last - len(row))
        for number, (first, end) in enumerate(pairwise((done, *ends))):
            ids = np.array(padded[first:end], np.int32)
            here = np.flatnonzero((targets >= first) & (targets < end))
            offsets = np.append(
                targets[here] - first, [0, 0]
            )  # a single place is multiplied, and rounded, in another way than several
            inputs = (ids, np.arange(first, end), offsets, choices)
            request = self._requests[number % 2]
            for port, values in enumerate((*(np.array(array, np.int32) for array in inputs), *caches)):
                request.set_input_tensor(port, ov.Tensor(values) if isinstance(values, np.ndarray) else values)
            request.infer()
            logits[here] = request.get_output_tensor(0).data[:-2]
            caches = [request.get_output_tensor(1 + i) for i in range(len(self._empty))]
            self._counters.prefill_forwards += 1
        self._counters.prefilled += len(row) - done
        return logits, caches

    def _keep(self, key: str, entry: _KeptKeys) -> None:
        """Keep a row's keys and values, dropping the least recently used ones beyond `kept_bytes`."""
        self._kept.pop(key, None)
        self._kept[key] = entry
        while self._kept and sum(row.size for row in self._kept.values()) > self.kept_bytes:
            self._kept.popitem(last=False)


@dataclass(frozen=True)
class _KeptKeys:
    """A row's tokens; per layer two arrays (1, heads, tokens, head_dim), bfloat16 as float16 bits."""

    ids: list[int]
    caches: list[np.ndarray]

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in self.caches)
