"""Errors of tools by their kind."""

from __future__ import annotations

from typing import Any

import pytest

from reagent.errors import ToolError


def raises(*kinds: str, match: str | None = None) -> Any:
    """As `pytest.raises`, of a `ToolError` of one of these kinds."""
    return pytest.raises(ToolError, match=match, check=lambda error: error.kind in kinds)
