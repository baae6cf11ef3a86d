"""Small models that lie in a judge's directory as JSON (`lexical.json`, `domain.json`): no pickle, checked as they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ValidationError

from rrm.errors import RRMError


class Stored(BaseModel):
    """A model with one file in a judge's directory; every number is one that JSON brings back exactly."""

    file: ClassVar[str]
    """Name of the file."""
    what: ClassVar[str]
    """What it holds, for messages."""

    def to_json(self) -> str:
        """The stored form."""
        return json.dumps(self.model_dump(), ensure_ascii=False, separators=(",", ":"))

    def save(self, folder: Path) -> Path:
        """Write the file; returns its path."""
        path = folder / self.file
        path.write_text(self.to_json(), encoding="utf-8")
        return path

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the file.

        Raises:
            RRMError: it is not there, or holds something else.
        """
        path = folder / cls.file
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise RRMError(f"{path}: the judge's {cls.what} cannot be read: {error}") from error
        except ValidationError as error:
            raise RRMError(f"{path}: not a {cls.what}: {error.errors()[0]['msg']}") from error
