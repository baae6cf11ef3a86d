"""Cut inputs into pieces that fit one call each, and join them where torch and safetensors are, but no gguf.

A model's matrices travel as int8, each 32 neighbours in a row with a bfloat16 scale: 53 % of bfloat16's bytes. What comes back is
bfloat16, off by half a step of its scale at most, and one rounding. On SmolLM2-135M (3,072 tokens) that is a divergence of
0.0014 nats a token, as much as computing in bfloat16 costs; one scale a row has 0.0049.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

SCALE = ".int8_scale"
GROUP = 32


class PieceError(Exception):
    """A piece is missing, or is not the one that was cut."""


def quantise(source: Path, target: Path) -> None:
    """Write the model folder `source` into `target`, its matrices as int8; vectors and small files stay as they are."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    for path in source.glob("*.safetensors"):
        packed = load_file(path)
        for name in [name for name, w in packed.items() if w.dim() > 1 and w.is_floating_point()]:
            shape = packed[name].shape
            groups = packed[name].float().reshape(-1, math.gcd(GROUP, shape[-1]))
            scale = (groups.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-30)
            # the next bfloat16 above, so that no value of the group is beyond 127 steps
            scale = torch.where(scale.bfloat16() < scale, scale * (1 + 2**-7), scale).bfloat16()
            packed[name] = (groups / scale.float()).round().clamp(-127, 127).to(torch.int8).reshape(shape)
            packed[name + SCALE] = scale
        save_file(packed, target / path.name)


def dequantise(folder: Path) -> None:
    """Turn the int8 matrices of the model folder into bfloat16, in place."""
    import torch
    from safetensors.torch import load_file, save_file

    for path in folder.glob("*.safetensors"):
        packed = load_file(path)
        for name in [name for name in packed if name.endswith(SCALE)]:
            scale, matrix = packed.pop(name), name.removesuffix(SCALE)
            groups = packed[matrix].float().reshape(len(scale), -1) * scale.float()
            packed[matrix] = groups.to(torch.bfloat16).reshape(packed[matrix].shape)
        save_file(packed, path, metadata={"format": "pt"})


def sha256(path: Path) -> str:
    """Hex SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def split(files: dict[str, Path], folder: Path, name: str, size: int, small: bool = False) -> list[dict[str, Any]]:
    """Archive `files` (name: path; `small`: compressed) and cut that into `folder`/`name`.000 …; returns these."""
    pieces = []
    with tempfile.TemporaryFile(dir=folder) as whole:
        with tarfile.open(fileobj=whole, mode="w:gz" if small else "w") as tar:
            for inside, path in files.items():
                tar.add(path, inside)
        whole.seek(0)
        while data := whole.read(size):
            path = folder / f"{name}.{len(pieces):03}"
            path.write_bytes(data)
            pieces.append({"name": path.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    return pieces


def unpack(pieces: list[dict[str, Any]], folder: Path, target: Path) -> None:
    """Join the pieces in `folder` and extract their archive into `target`; PieceError where one is missing or altered."""
    target.mkdir(parents=True)
    with tempfile.TemporaryFile(dir=target) as whole:
        for piece in pieces:
            path = folder / piece["name"]
            if not path.is_file() or sha256(path) != piece["sha256"]:
                raise PieceError(f"piece {path} {'has another checksum' if path.is_file() else 'is missing'}")
            whole.write(path.read_bytes())
        whole.seek(0)
        with tarfile.open(fileobj=whole) as tar:
            tar.extractall(target, filter="data")


def pack(source: Path, target: Path, piece_bytes: int, model: bool = False) -> dict[str, Any]:
    """Cut a file, a folder or a model's folder into pieces in `target`, unless they are there; returns the manifest for `join`."""
    paths = [source] if source.is_file() else sorted(source.rglob("*"))
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    stamp = hashlib.sha256(json.dumps([model, stamps]).encode()).hexdigest()[:12]
    kept = target / "pieces.json"
    if kept.is_file():
        manifest = json.loads(kept.read_text("utf-8"))
        if manifest["stamp"] == stamp and all(piece["bytes"] <= piece_bytes for piece in manifest["pieces"]):
            return manifest
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = source
        if model:
            quantise(source, folder := Path(scratch) / "model")
        files = {source.name: source} if source.is_file() else {path.name: path for path in sorted(folder.iterdir())}
        # text shrinks to a fifth, int8 weights hardly
        pieces = split(files, target, f"{target.name}.{stamp}", piece_bytes, small=not model)
    manifest = {"stamp": stamp, "model": model, "file": source.name if source.is_file() else "", "pieces": pieces}
    kept.write_text(json.dumps(manifest) + "\n", "utf-8")
    return manifest


def join(manifest: dict[str, Any], pieces: Path, target: Path) -> Path:
    """Make the input again in `target`, unless it is there; returns the path that a script takes."""
    if not target.is_dir():
        part = target.with_name(f"{target.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        unpack(manifest["pieces"], pieces, part)
        if manifest["model"]:
            dequantise(part)
        part.rename(target)
    return target / manifest["file"]
