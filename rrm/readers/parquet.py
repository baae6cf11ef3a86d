"""Rows of parquet files, bounded before they become Python's: a value that stands once in a file may stand a million times in its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from rrm.data.sizes import GROWS, NODE, TooManyBytes, most_bytes

ROWS = 256
"""Read at once."""
INDEX = 8
"""Bytes of memory that a value takes at least before it is Python's."""


@contextmanager
def bounded_parquet(source: str | IO[bytes]) -> Iterator[Iterator[dict[str, Any]]]:
    """The rows of a file.

    Raises:
        TooManyBytes: while they are read: a row group, or a single row, is larger than `most_bytes`.
        ArrowException, OSError: it cannot be read.
    """
    from pyarrow import parquet

    with parquet.ParquetFile(source) as table:
        columns = [table.schema.column(i) for i in range(table.metadata.num_columns)]
    texts = [c.path for c in columns if c.physical_type == "BYTE_ARRAY" and c.converted_type != "DECIMAL"]
    if not isinstance(source, str):
        source.seek(0)
    with parquet.ParquetFile(source, read_dictionary=texts) as table:  # each text once, however often it stands there
        yield _records(table)


def _records(table: Any) -> Iterator[dict[str, Any]]:
    most = most_bytes()
    for number in range(table.num_row_groups):
        group = table.metadata.row_group(number)
        values = max((group.column(i).num_values for i in range(group.num_columns)), default=0)
        if group.total_byte_size > most or values * INDEX > most:
            raise TooManyBytes(f"row group {number + 1}")
        for batch in table.iter_batches(batch_size=ROWS, row_groups=[number]):
            for piece in _pieces(batch, GROWS * most):
                yield from piece.to_pylist()


def _pieces(batch: Any, most: int) -> Iterator[Any]:
    """A batch, or its halves and theirs, each of which takes no more than `most` bytes as Python's values."""
    if sum(map(_size, batch.columns)) <= most:
        yield batch
    elif len(batch) == 1:
        raise TooManyBytes("this row")
    else:
        half = len(batch) // 2
        yield from _pieces(batch.slice(0, half), most)
        yield from _pieces(batch.slice(half), most)


def _size(array: Any) -> int:
    """About how many bytes an arrow array's values take as Python's."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, own = array.type, NODE * len(array)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if pa.types.is_dictionary(kind) and any(is_text(kind.value_type) for is_text in texts):
        lengths = pc.call_function("binary_length", [array.dictionary]).cast(pa.int64())
        return own + (pc.call_function("sum", [lengths.take(array.indices)]).as_py() or 0)
    if pa.types.is_struct(kind):
        return own + sum(map(_size, array.flatten()))
    if pa.types.is_map(kind):
        inside = array.offsets
        start, length = inside[0].as_py(), inside[len(array)].as_py() - inside[0].as_py()
        return own + _size(array.keys.slice(start, length)) + _size(array.items.slice(start, length))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return own + _size(array.flatten())
    return own + array.nbytes
