"""A record of a GPU says where products of float32 were rounded."""

from __future__ import annotations

import pytest
import torch

from rrm.provenance import environment


@pytest.mark.parametrize(("precision", "said"), [("highest", None), ("high", "high")])
def test_rounded_products_are_said(monkeypatch: pytest.MonkeyPatch, precision: str, said: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    assert environment().get("float32_products") == said and environment()["device"] == "a GPU"


def test_a_processor_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert "float32_products" not in environment()
