"""Rows of parquet files, with size limits: a value stored once may repeat in a million rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from rrm.data.sizes import GROWS, NODE, TooManyBytes, most_bytes

ROWS = 256
"""Read at once."""
INDEX = 8
"""Least bytes of memory that a value takes in arrow."""


@contextmanager
def bounded_parquet(source: str | IO[bytes]) -> Iterator[Iterator[dict[str, Any]]]:
    """Open a file's rows.

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
    """Halve a batch until each piece takes at most `most` bytes as Python's values."""
    if sum(map(_size, batch.columns)) <= most:
        yield batch
    elif len(batch) == 1:
        raise TooManyBytes("this row")
    else:
        half = len(batch) // 2
        yield from _pieces(batch.slice(0, half), most)
        yield from _pieces(batch.slice(half), most)


def _size(array: Any) -> int:
    """Estimate the bytes of an arrow array's values in Python."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrow_type, own = array.type, NODE * len(array)
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    if pa.types.is_dictionary(arrow_type) and any(is_text(arrow_type.value_type) for is_text in texts):
        lengths = pc.call_function("binary_length", [array.dictionary]).cast(pa.int64())
        return own + (pc.call_function("sum", [lengths.take(array.indices)]).as_py() or 0)
    if pa.types.is_struct(arrow_type):
        return own + sum(map(_size, array.flatten()))
    if pa.types.is_map(arrow_type):
        inside = array.offsets
        start, length = inside[0].as_py(), inside[len(array)].as_py() - inside[0].as_py()
        return own + _size(array.keys.slice(start, length)) + _size(array.items.slice(start, length))
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type) or pa.types.is_fixed_size_list(arrow_type):
        return own + _size(array.flatten())
    return own + array.nbytes
