"""The lab's tokenizer and model: byte-level BPE trained on lab text, and a Llama of 1–3 M parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rrm.prompt.rendering import CHAT_TEMPLATE

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
MAX_POSITIONS = 1024


def build_lab_tokenizer(
    texts: Iterable[str], vocab_size: int = 2048, *, digits_together: int = 1
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with ChatML tokens, a pad that is not the end, and the judge's template.

    `digits_together`: most digits of one token. With 3 a frequent number below 1000 is one token, copied as a name is."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # pyright: ignore[reportAttributeAccessIssue]
        [
            pre_tokenizers.Split(Regex(rf"\p{{N}}{{1,{digits_together}}}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        model_max_length=MAX_POSITIONS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_lab_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden: int = 192,
    layers: int = 4,
    heads: int = 6,
    intermediate: int | None = None,
    seed: int,
) -> LlamaForCausalLM:
    """A Llama with tied embeddings, float32, deterministic for a seed, begun as in `start_copying`.

    Weights have a standard deviation of 1/√hidden: with 0.02 the attention of so narrow a model is uniform. Raises ValueError:
    `hidden` is not a multiple of `heads`. `intermediate`: feed-forward width; four times `hidden` by default."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    if hidden % heads:
        raise ValueError(f"hidden size {hidden} is not a multiple of {heads} heads")
    vocabulary = tokenizer.get_vocab()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=intermediate or 4 * hidden,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=MAX_POSITIONS, initializer_range=hidden**-0.5, tie_word_embeddings=True,
        bos_token_id=None, pad_token_id=vocabulary[PAD], eos_token_id=vocabulary[END],
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        start_copying(model)
    return model


def start_copying(model: LlamaForCausalLM, sharpness: float = 0.7) -> None:
    """Let every attention layer begin by copying from tokens that resemble the query.

    W_O = W_Vᵀ with W_V orthogonal, W_K ≈ W_Q, orthogonal times `sharpness`. After mimetic initialisation (Trockman & Kolter
    2023, arXiv 2305.09828), with the sign that copies: hundreds of updates to learn copying, not thousands."""
    import torch

    for layer in model.model.layers:
        attention: Any = layer.self_attn
        hidden = attention.q_proj.weight.shape[1]
        torch.nn.init.orthogonal_(attention.v_proj.weight)
        torch.nn.init.orthogonal_(attention.q_proj.weight, gain=sharpness)
        noise = torch.randn_like(attention.k_proj.weight) * 0.3 * hidden**-0.5
        with torch.no_grad():
            attention.o_proj.weight.copy_(attention.v_proj.weight.T)
            attention.k_proj.weight.copy_(attention.q_proj.weight + noise)
