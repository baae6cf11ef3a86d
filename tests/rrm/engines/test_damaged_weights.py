"""Damaged weights are named by their file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from rrm.engines.hf.base_model import named_damage
from rrm.errors import RRMError


@pytest.mark.parametrize("cut", [0, 4, 40, -1])
def test_the_damaged_one_of_several_files_is_named(tmp_path: Path, cut: int) -> None:
    files = [tmp_path / f"model-{n}.safetensors" for n in range(2)]
    for file in files:
        save_file({"a": np.zeros(16, np.float32)}, file)
    files[1].write_bytes(files[1].read_bytes()[:cut])
    with pytest.raises(RRMError, match=r"^\S+model-1\.safetensors: the weights are damaged .*fetch them again"):  # noqa: SIM117
        with named_damage(tmp_path):
            for file in files:
                with safe_open(file, framework="numpy"):
                    pass


def test_what_has_no_files_here_is_named_itself() -> None:
    with pytest.raises(RRMError, match=r"^me/model: "), named_damage("me/model"):
        safe_open(__file__, framework="numpy")
