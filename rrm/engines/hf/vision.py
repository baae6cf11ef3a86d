"""A vision-language model as a `ChatEngine` (Transformers' `AutoModelForImageTextToText`).

Pictures are `data:` addresses in content parts; nothing is fetched. One row at a time. The Pillow processor needs no torchvision.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrm.data.pictures import Picture, decoded, picture_of
from rrm.data.seeds import derive_seed
from rrm.engines.base import Reply, SamplingParams
from rrm.engines.hf.base_model import named_damage
from rrm.errors import EngineError, RRMError
from rrm.prompt.template import SpecialTokenEscaper


class VisionEngine:
    """A `ChatEngine` over a model and its processor; the generation config keeps eos and pad alone."""

    takes_schema = False  # replies are not constrained

    def __init__(self, model: Any, processor: Any, device: str = "cpu") -> None:
        if getattr(processor, "chat_template", None) is None:
            raise RRMError("the processor has no chat template: choose a model that was made to be talked to")
        self.model, self.processor, self.device = model, processor, device
        tokenizer = processor.tokenizer
        image_token = getattr(processor, "image_token", None)
        self._disarm = SpecialTokenEscaper(tokenizer, also=[str(image_token)] if image_token else [])
        ends = model.generation_config.eos_token_id
        self._ends = sorted({tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])} - {None})
        pads = (model.generation_config.pad_token_id, tokenizer.pad_token_id, *self._ends)
        self._pad = next((pad for pad in pads if pad is not None), None)
        # `generate` takes from here what it is not told: a chat's repetition_penalty must not decide how a judge writes
        model.generation_config = self._generation()
        config = model.config.get_text_config()
        self.max_positions: int | None = getattr(config, "max_position_embeddings", None)

    def complete(self, messages: list[dict[str, Any]], params: SamplingParams, key: str = "") -> Reply:
        """Get one reply. Raises EngineError: prompt, pictures and reply exceed the model's positions;
        EngineError: model or template refuses the messages, a picture cannot be shown, or memory is full."""
        import torch

        try:
            return self._complete(messages, params, key)
        except (torch.OutOfMemoryError, MemoryError) as error:
            full = str(error).partition("\n")[0] or type(error).__name__
        # not raised in the block: the first error would be its context, and keep the tensors that filled the memory
        raise EngineError(
            f"the memory of {self.device!r} is full ({full:.200}): lower --images, --transcript-tokens or --max-new-tokens"
        )

    def _complete(self, messages: list[dict[str, Any]], params: SamplingParams, key: str) -> Reply:
        import torch

        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(derive_seed(params.seed, key) % 2**63)
            inputs = self._inputs(messages)
            prompt_length = inputs["input_ids"].shape[1]
            if self.max_positions is not None and prompt_length + params.max_new_tokens > self.max_positions:
                raise EngineError(
                    f"the prompt has {prompt_length} tokens with its images and a reply may have {params.max_new_tokens}, over the model's "
                    f"{self.max_positions} positions: lower --images, --transcript-tokens or --max-new-tokens",
                    "too_long",
                )
            sampled = {"do_sample": True, "temperature": params.temperature, "top_p": params.top_p, "top_k": 0}
            how = self._generation(sampled if params.temperature > 0 else {"do_sample": False}, params.max_new_tokens)
            try:
                new_ids = self.model.generate(**inputs, generation_config=how)[0, prompt_length:].tolist()
            except ValueError as error:  # as many places for pictures as there are pictures: it counts them once more
                raise EngineError(f"the model does not take the prompt with its images: {error}") from error
        ended = bool(new_ids) and new_ids[-1] in self._ends
        return Reply(self.processor.tokenizer.decode(new_ids, skip_special_tokens=True), "eos" if ended else "length")

    def _inputs(self, messages: list[dict[str, Any]]) -> Any:
        images = list[Any]()
        turns = [{"role": m["role"], "content": self._parts(m["content"], images)} for m in messages]
        text = self._text(turns)
        bos = self.processor.tokenizer.bos_token
        # a template that writes the token a text begins with has written it; the tokenizer would put a second one before it
        written: dict[str, Any] = {"add_special_tokens": False} if bos and text.startswith(bos) else {}
        try:
            inputs = self.processor(text=text, images=images or None, return_tensors="pt", **written)
        except (ValueError, TypeError, RuntimeError) as error:
            raise EngineError(f"the processor does not take the prompt with {len(images)} images: {error}") from error
        return inputs.to(self.device, self.model.dtype)

    def _text(self, turns: list[dict[str, Any]]) -> str:
        """The prompt in chat form; without a system role the rubric heads the user's turn."""
        try:
            return self._rendered(turns)
        except EngineError:
            if turns[0]["role"] != "system":
                raise
        return self._rendered([{"role": "user", "content": [item for turn in turns for item in turn["content"]]}])

    def _rendered(self, turns: list[dict[str, Any]]) -> str:
        try:
            return self.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # a template may raise what it likes
            raise EngineError(f"the chat template does not take the messages: {error}") from error

    def _generation(self, sampling: Mapping[str, Any] | None = None, max_new_tokens: int | None = None) -> Any:
        from transformers import GenerationConfig

        return GenerationConfig(
            eos_token_id=self._ends or None, pad_token_id=self._pad, max_new_tokens=max_new_tokens, **(sampling or {})
        )

    def _parts(self, content: Any, images: list[Any]) -> list[dict[str, str]]:
        """Content parts for the template; pictures are appended to `images` in order."""
        if isinstance(content, str):
            return [{"type": "text", "text": self._disarm(content)}]
        parts = list[dict[str, str]]()
        for item in content:
            if isinstance(item.get("text"), str):
                parts.append({"type": "text", "text": self._disarm(item["text"])})
                continue
            picture = picture_of(item)
            if not isinstance(picture, Picture):
                raise EngineError(f"an image that cannot be shown: {picture}")
            try:
                images.append(decoded(picture))
            except ValueError as error:
                raise EngineError(f"an image that cannot be shown: {error}") from error
            parts.append({"type": "image"})
        return parts


def load_vision(name: str | Path, *, device: str, dtype: Any, trust_remote_code: bool = False) -> VisionEngine:
    """Load the engine from a folder or hub id; RRMError where that fails."""
    from transformers import AutoModelForImageTextToText, AutoProcessor

    how: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    try:
        processor = AutoProcessor.from_pretrained(str(name), backend="pil", **how)
        with named_damage(name):
            model: Any = AutoModelForImageTextToText.from_pretrained(
                str(name), dtype=dtype, use_safetensors=True, **how
            )
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise RRMError(f"cannot load {str(name)!r} as a vision-language model: {error}") from error
    return VisionEngine(model.to(device).eval(), processor, device)
