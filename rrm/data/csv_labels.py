"""Reader of labels in a table: text with a header (`id,label`), one label a row.

A label is a number in [0, 1], `true` or `false`; rows without label, trace and critique are skipped. `annotator` defaults
to the file's name, `kind` to `human`. Commas, semicolons or tabs separate cells; Excel's `sep=;` line may come first.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rrm.data.printing import printable
from rrm.errors import ReadError

SUFFIXES = (".csv", ".tsv")  # read as tables whatever they hold; other files by their first line
SEPARATORS = ",;\t"
NAMES = {"id": "trajectory_id", "label": "score"}  # column in a table → field of an annotation
COLUMNS = ("trajectory_id", "digest", "score", "trace", "critique", "annotator", "kind", "weight")
TEXTS = ("trace", "critique")  # fields whose surrounding spaces stay
SAYS = ("score", "trace", "critique")  # a label has at least one of these
WANTED = "wanted: trajectory_id (or id) and score (or label); digest, trace, critique, annotator, kind and weight may stand beside them"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WORDS = {"true": 1.0, "false": 0.0}


def is_table(path: str | Path) -> bool:
    """Test by name or first line whether a labels file is a table or spreadsheet rather than JSON lines."""
    if Path(path).suffix.lower() in SUFFIXES:
        return True
    try:
        with open(path, "rb") as file:
            start = file.readline(_HEAD)
    except OSError:
        return False
    first = start.decode("utf-8-sig", errors="replace")
    return start.startswith((_ZIP, *_UTF_16)) or bool(_SEP.match(first)) or _separated(first) is not None


_HEAD = 65536  # bytes of the first line
_ZIP, _UTF_16 = b"PK\x03\x04", (b"\xff\xfe", b"\xfe\xff")
# Excel's first line that names the separator
_SEP = re.compile(r"sep=([^\w\s\"']|\t)\s*$", re.IGNORECASE | re.MULTILINE)


def _separated(header: str) -> str | None:
    ids = {"trajectory_id", *(name for name, field in NAMES.items() if field == "trajectory_id")}

    def cells(by: str) -> set[str]:
        return {cell.strip().strip('"').strip().lower() for cell in header.split(by)}

    return next((by for by in SEPARATORS if cells(by) & ids), None)


def label_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, annotation fields) of each row with a label or text; raises `ReadError` with the line."""
    try:
        if (data := Path(path).read_bytes()).startswith(_ZIP):
            raise ReadError(str(path), None, "a spreadsheet, not text: save the table as CSV (UTF-8)")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ReadError(str(path), None, f"cannot be opened: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReadError(str(path), None, f"not UTF-8 (byte {error.start + 1}): save the table as UTF-8") from error
    separator = _SEP.match(text)
    by = separator[1] if separator else _separated(text.split("\n", 1)[0]) or SEPARATORS[0]
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=by, skipinitialspace=True, strict=True)
    try:
        table = _cells(rows, len(text))
        if separator:
            next(table)
        names = _header(next(table, []))
        for cells in table:
            if any(cell.strip() for cell in cells) and (row := _row(names, cells)):
                yield rows.line_num, {"annotator": Path(path).name, "kind": "human", **row}
    except (ValueError, csv.Error) as error:
        raise ReadError(str(path), rows.line_num or 1, f"not a table of labels: {error}") from error


def _cells(rows: Iterator[list[str]], longest: int) -> Iterator[list[str]]:
    # csv's own limit of a cell, global to the process, is shorter than a trace
    while True:
        limit = csv.field_size_limit(longest + 1)
        try:
            row = next(rows, None)
        finally:
            csv.field_size_limit(limit)
        if row is None:
            return
        yield row


def _header(cells: list[str]) -> list[str]:
    columns = f"columns found: {', '.join(map(_called, cells)) or 'none'}; {WANTED}"
    names = [NAMES.get(name, name) for name in (cell.strip().lower() for cell in cells)]
    if missing := [name for name in ("trajectory_id",) if name not in names]:
        raise ValueError(f"the header has no {missing[0]}; {columns}" + (SEPARATED if len(cells) == 1 else ""))
    if unknown := [cell for cell, name in zip(cells, names, strict=True) if name not in COLUMNS]:
        index = INDEX if any(_NO_NAME.fullmatch(cell.strip()) for cell in unknown) else ""
        raise ValueError(f"unknown columns {', '.join(map(_called, unknown))}: rename or drop them{index}; {columns}")
    if not set(names) & set(SAYS):
        raise ValueError(f"the header has no score; {columns}")
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"two columns for {twice[0]}; {columns}")
    return names


def _called(cell: str) -> str:
    return printable(cell.strip(), 40) or "(no name)"


SEPARATED = ". Cells are separated by commas, semicolons or tabs"
INDEX = " (a comma at the line's end makes one without a name, and so does pandas: write the table with index=False)"
_NO_NAME = re.compile(r"(Unnamed: \d+)?")  # pandas' name of a column without one


def _row(names: list[str], cells: list[str]) -> dict[str, Any] | None:
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} cells where the header has {len(names)} columns")
    filled = {name: cell for name, cell in zip(names, cells, strict=True) if cell.strip()}
    row: dict[str, Any] = {name: cell if name in TEXTS else cell.strip() for name, cell in filled.items()}
    if not row.keys() & set(SAYS):
        return None
    if "trajectory_id" not in row:
        raise ValueError("a label without a trajectory_id")
    for name in ("score", "weight"):
        if name in row:
            row[name] = _number(name, row[name])
    return row


def _number(name: str, cell: str) -> float:
    if name == "score" and cell.lower() in WORDS:
        return WORDS[cell.lower()]
    if not _NUMBER.fullmatch(cell):
        expected = "a number in [0, 1], true or false" if name == "score" else "a number"
        point = ", with a point" if _NUMBER.fullmatch(cell.replace(",", ".")) else ""
        raise ValueError(f"{name} {printable(cell, 40)!r} is not {expected}{point}")
    return float(cell)
