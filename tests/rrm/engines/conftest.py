"""A server of vLLM's for its tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from vllm_server import VLLMServer, serve_vllm


@pytest.fixture
def server() -> Iterator[VLLMServer]:
    with serve_vllm() as made:
        yield made
