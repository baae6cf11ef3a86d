"""Data sets on the Hugging Face hub as inputs: `hf:OWNER/NAME:SPLIT`, streamed; needs the extra `hub`.

`hf:OWNER/NAME@REVISION#CONFIG:SPLIT` in full. A local folder of data files is named in the same way (`hf:./folder:train`). Rows are
items like those of a file, so formats, `--format` and `--map` apply. Images and audio are left as bytes; no code of a data set is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rrm.data.extras import needs
from rrm.errors import ReadError
from rrm.readers.base import printable

PREFIX = "hf:"
NAME = re.compile(r"hf:(?P<name>[^@#]+?)(@(?P<revision>[^@#:]+))?(#(?P<config>[^@#:]+))?:(?P<split>[\w.-]+)")


@dataclass(frozen=True)
class HubSet:
    name: str
    split: str
    config: str | None = None
    revision: str | None = None


def is_hub(path: str) -> bool:
    return path.startswith(PREFIX)


def hub_set(path: str) -> HubSet | ReadError:
    """Parse an `hf:` input; a ReadError where it is malformed."""
    if (match := NAME.fullmatch(path)) is None:
        return ReadError(
            path,
            None,
            "write a data set as hf:owner/name:split, e.g. hf:owner/name:train (or name@revision, name#config)",
        )
    return HubSet(match["name"], match["split"], match["config"], match["revision"])


def hub_rows(path: str) -> Iterator[dict[str, Any] | ReadError]:
    """The rows of a split, as they arrive; one error where it cannot be had, or not any further.

    Raises:
        MissingExtra: `datasets` is not installed.
    """
    named = hub_set(path)
    if isinstance(named, ReadError):
        yield named
        return
    needs("hub", f"reading {PREFIX}…", "datasets")
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from pyarrow import ArrowException

    row = 0
    try:
        rows = load_dataset(named.name, named.config, split=named.split, revision=named.revision, streaming=True)
        for record in rows.decode(False) if rows.features else rows:
            row += 1
            yield dict(record)
    except (DatasetsError, ArrowException, OSError, ValueError) as error:  # the hub's own errors are OSErrors
        where = "cannot be read" if row == 0 else "cannot be read from here on"
        yield ReadError(path, row + 1 if row else None, f"the data set {where}: {printable(str(error))}")
