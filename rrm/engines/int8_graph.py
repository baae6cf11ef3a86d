"""An OpenVINO graph of a Llama or Qwen2 decoder whose linear layers multiply int8 by int8.

Weights have one scale an output channel, inputs one scale a token: x / max|x| lies in [-1, 1], so quantisation bounds are fixed
and a token's numbers depend on no other. Random orthogonal rotations, which change nothing in exact arithmetic, spread outliers
and halve the int8 error: the residual stream and each head's values are rotated in the weights (norm gains are folded in first),
the input of `down_proj` in blocks of 128 channels at run time. Embeddings, norms and the output layer are float; attention is
bfloat16 where the processor has it, softmax float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import openvino  # pyright: ignore[reportMissingImports]
from openvino import opset15  # pyright: ignore[reportMissingImports]

from rrm.errors import EngineError

ov: Any = openvino
op: Any = opset15
SCHEME = "rotated-int8-2"  # a graph of another scheme is made anew
TURNED = 128  # channels of `down_proj`'s input that are rotated together
KINDS = ("llama", "qwen2")
FLOATS = np.float32
LAST = np.array([-1])


def build(model: Any) -> Any:
    """Build the graph of a transformers model; EngineError for an architecture it does not know.

    Inputs: ids (L) int32; positions (L) int32, ascending by one, after the cached ones; at (T) int32, indices into L; choices (C)
    int32; cached keys and values, two a layer, (1, kv_heads, positions[0], head_dim) bfloat16.
    Outputs: logits (T, C) of the choices after `at`; keys and values with those of `ids` appended.
    """
    graph = _Graph(model.config, _weights(model), _rope(model))
    return graph.build()


def _weights(model: Any) -> dict[str, np.ndarray]:
    """Float32 arrays by name; EngineError for an unknown model type or weight."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if config.model_type not in KINDS or config.hidden_act != "silu" or kinds != {"full_attention"}:
        raise EngineError(f"int8 knows plain {' and '.join(KINDS)}, not this {config.model_type}")
    weights = {
        name.removeprefix("model."): tensor.detach().float().numpy() for name, tensor in model.state_dict().items()
    }
    weights.setdefault("lm_head.weight", weights["embed_tokens.weight"])
    linear = [f"self_attn.{projection}_proj" for projection in "qkvo"] + [
        f"mlp.{projection}_proj" for projection in ("gate", "up", "down")
    ]
    expected = {"embed_tokens.weight", "norm.weight", "lm_head.weight"}
    for layer in range(config.num_hidden_layers):
        expected |= {f"layers.{layer}.{name}.{suffix}" for name in linear for suffix in ("weight", "bias")}
        expected |= {f"layers.{layer}.{norm}_layernorm.weight" for norm in ("input", "post_attention")}
    if unknown := sorted(weights.keys() - expected):
        raise EngineError(f"int8 does not know the model's {unknown[0]}")
    return weights


def _rope(model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of each position's angles, (positions, head_dim) each."""
    rotary = model.get_decoder().rotary_emb
    angles = np.arange(model.config.max_position_embeddings)[:, None] * rotary.inv_freq.double().numpy()
    angles = np.concatenate([angles, angles], axis=1)
    cos, sin = (function(angles) * rotary.attention_scaling for function in (np.cos, np.sin))
    return cos.astype(FLOATS), sin.astype(FLOATS)


def _orthogonal(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0].astype(FLOATS)


def _constant(values: Any) -> Any:
    return op.constant(np.array(values, order="C"))


def linear(quantised: tuple[Any, Any], weight: np.ndarray, bias: np.ndarray | None) -> Any:
    """(L, out) of a quantised input (L, in) and weights (out, in)."""
    x, scale = quantised
    steps = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, np.finfo(FLOATS).tiny)
    rounded = _constant(np.rint(weight / steps).astype(np.int8))
    product = op.matmul(x, op.multiply(op.convert(rounded, "f32"), _constant(steps.astype(FLOATS))), False, True)
    product = op.multiply(product, scale)
    return product if bias is None else op.add(product, _constant(bias))


def quantised(x: Any) -> tuple[Any, Any]:
    """(x over its largest magnitude in 255 steps, that magnitude), per token."""
    scale = op.maximum(op.reduce_max(op.abs(x), _constant(LAST), True), _constant(FLOATS(1e-6)))
    low, high = _constant(FLOATS(-128 / 127)), _constant(FLOATS(1))
    return op.fake_quantize(op.divide(x, scale), low, high, low, high, 256), scale


def _float(x: Any, weight: np.ndarray, transpose: bool = False) -> Any:
    return op.matmul(x, _constant(weight), False, transpose)


@dataclass
class _Graph:
    config: Any
    weights: dict[str, np.ndarray]
    rope: tuple[np.ndarray, np.ndarray]
    caches: list[Any] = field(default_factory=list)  # inputs: of each layer keys, then values
    grown: list[Any] = field(default_factory=list)  # outputs, in the same order

    def __post_init__(self) -> None:
        self.heads, self.kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        self.width = self.config.hidden_size
        self.dim = self.rope[0].shape[1]
        self.turn, self.turn_head = _orthogonal(self.width, 0), _orthogonal(self.dim, 1)
        inner = self.config.intermediate_size
        self.turn_down = _orthogonal(math.gcd(TURNED, inner), 2)

    def build(self) -> Any:
        ids, positions, targets, choices = (
            op.parameter([-1], np.int32, name=n) for n in ("ids", "positions", "at", "choices")
        )
        for _ in range(2 * self.config.num_hidden_layers):
            self.caches.append(op.parameter(ov.PartialShape([1, self.kv_heads, -1, self.dim]), ov.Type.bf16))
        first = _constant(np.int32(0))
        # 16 bits hold the embeddings of a 16-bit model as they are, or nearly so
        table = _constant(self.weights["embed_tokens.weight"].astype(np.float16))
        x = _float(op.convert(op.gather(table, ids, first), "f32"), self.turn)  # (L, E), turned from here on
        self.cos, self.sin = (op.gather(_constant(angles), positions, first) for angles in self.rope)
        self._mask(positions)
        for layer in range(self.config.num_hidden_layers):
            x = op.add(x, self._attention(layer, self._norm(x)))
            x = op.add(x, self._mlp(layer, self._norm(x)))
        x = self._norm(_float(op.gather(x, targets, first), self.turn.T))
        head = self.weights["lm_head.weight"]
        rows = table if head is self.weights["embed_tokens.weight"] else _constant(head.astype(np.float16))
        rows = op.convert(op.gather(rows, choices, first), "f32")
        logits = op.matmul(op.multiply(x, _constant(self.weights["norm.weight"])), rows, False, True)
        results = [op.result(output) for output in (logits, *self.grown)]
        graph = ov.Model(results, [ids, positions, targets, choices, *self.caches], "decoder")
        graph.set_rt_info(str(len(self.rope[0])), ["rrm", "positions"])
        graph.set_rt_info(str(len(head)), ["rrm", "vocabulary"])
        return graph

    def _norm(self, x: Any) -> Any:
        """RMS norm without its gain."""
        mean = op.reduce_mean(op.power(x, _constant(FLOATS(2))), _constant(LAST), True)
        return op.divide(x, op.sqrt(op.add(mean, _constant(FLOATS(self.config.rms_norm_eps)))))

    def _mask(self, positions: Any) -> None:
        """(1, 1, heads / kv_heads · L, S) bfloat16: a query sees the keys up to its own position."""
        step = _constant(np.int32(1))
        stop = op.add(op.reduce_max(positions, _constant(np.array([0])), False), step)
        keys = op.unsqueeze(op.range(_constant(np.int32(0)), stop, step, "i32"), _constant(0))
        visible = op.less_equal(keys, op.unsqueeze(positions, _constant(1)))
        mask = op.select(visible, _constant(FLOATS(0)), _constant(FLOATS(-1e9)))
        mask = op.unsqueeze(mask, _constant(np.array([0, 1])))
        self.mask = op.convert(op.tile(mask, _constant(np.array([1, 1, self.heads // self.kv_heads, 1]))), "bf16")

    def _attention(self, layer: int, x: Any) -> Any:
        """(L, E). Query heads that share a key head are concatenated, so that no key is copied."""
        x = quantised(x)
        norm = self.weights[f"layers.{layer}.input_layernorm.weight"]
        query, key, value = (self._projected(layer, f"self_attn.{letter}_proj", x, norm) for letter in "qkv")
        query, key = (self._roped(self._split(tensor)) for tensor in (query, key))
        grown = [
            op.concat([self.caches[2 * layer + i], op.convert(tensor, "bf16")], 2)
            for i, tensor in enumerate((key, self._split(value)))
        ]
        self.grown += grown
        query = op.reshape(query, _constant(np.array([1, self.kv_heads, -1, self.dim])), False)
        output = op.scaled_dot_product_attention(op.convert(query, "bf16"), *grown, self.mask)
        output = op.reshape(op.convert(output, "f32"), _constant(np.array([self.heads, -1, self.dim])), False)
        output = op.transpose(output, _constant(np.array([1, 0, 2])))
        output = op.reshape(output, _constant(np.array([0, self.heads * self.dim])), True)
        return self._projected(layer, "self_attn.o_proj", quantised(output))

    def _mlp(self, layer: int, x: Any) -> Any:
        x = quantised(x)
        norm = self.weights[f"layers.{layer}.post_attention_layernorm.weight"]
        gate, up = (self._projected(layer, f"mlp.{name}_proj", x, norm) for name in ("gate", "up"))
        inner = op.multiply(op.swish(gate), up)
        size = len(self.turn_down)
        blocks = op.reshape(inner, _constant(np.array([0, self.config.intermediate_size // size, size])), True)
        turned = op.reshape(
            _float(blocks, self.turn_down), _constant(np.array([0, self.config.intermediate_size])), True
        )
        return self._projected(layer, "mlp.down_proj", quantised(turned))

    def _split(self, x: Any) -> Any:
        """(L, heads · head_dim) as (1, heads, L, head_dim)."""
        return op.unsqueeze(
            op.transpose(op.reshape(x, _constant(np.array([0, -1, self.dim])), True), _constant(np.array([1, 0, 2]))),
            _constant(0),
        )

    def _roped(self, x: Any) -> Any:
        low, high = op.split(x, _constant(-1), 2).outputs()
        across = op.concat([op.multiply(high, _constant(FLOATS(-1))), low], -1)
        return op.add(op.multiply(x, self.cos), op.multiply(across, self.sin))

    def _projected(self, layer: int, name: str, x: tuple[Any, Any], gain: np.ndarray | None = None) -> Any:
        """Linear layer, its weights rotated on the sides that need it."""
        weight = self.weights[f"layers.{layer}.{name}.weight"]
        bias = self.weights.get(f"layers.{layer}.{name}.bias")
        if gain is not None:
            weight = (weight * gain) @ self.turn
        if name.endswith("v_proj"):
            weight = _turned_blocks(weight.T, self.turn_head).T
            bias = None if bias is None else _turned_blocks(bias[None], self.turn_head)[0]
        elif name.endswith(("o_proj", "down_proj")):
            weight = _turned_blocks(weight, self.turn_head if name.endswith("o_proj") else self.turn_down)
            weight = self.turn.T @ weight
            bias = None if bias is None else bias @ self.turn
        return linear(x, weight, bias)


def _turned_blocks(x: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Rotate every block of n columns of (rows, blocks · n) by (n, n)."""
    return (x.reshape(len(x), -1, len(turn)) @ turn).reshape(x.shape)
