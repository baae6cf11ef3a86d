"""A record of a GPU says where products of float32 were rounded."""

from __future__ import annotations

import pytest
import torch

from rrm.data.provenance import environment


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


@pytest.mark.parametrize(("asked", "said"), [("tf32", "tf32"), ("ieee", None)])
def test_the_newer_way_to_ask_for_them_is_understood(
    monkeypatch: pytest.MonkeyPatch, asked: str, said: str | None
) -> None:
    """With it torch's older question raises."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = asked
    try:
        assert environment().get("float32_products") == said
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert "float32_products" not in environment()
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
